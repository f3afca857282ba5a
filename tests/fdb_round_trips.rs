//! The cost of commands on FoundationDB by the engine's own counters: read versions, keys and pages fetched,
//! commits.

#![cfg(feature = "fdb")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use futures_util::future::join_all;
use rig::Rig;
use rig::units::{pipeline, replies};
use std::time::{Duration, Instant};
use tern::keyspace::packed::Packed;
use tern::server::reply::Reply;
use tern::types::set::stream::Pieces;
use tokio::sync::Mutex;

/// The metadata version belongs to the whole cluster: a namespace opened beside a test makes the test's
/// server reread its catalog. So one test runs at a time.
static ALONE: Mutex<()> = Mutex::const_new(());
/// The number of inconclusive runs allowed.
const VOID: usize = 50;

/// Read versions, keys read, pages read, commits.
type Cost = [u64; 4];

fn now(rig: &Rig) -> Cost {
    let stats = rig.server.store.stats();
    let network = stats.network.unwrap();
    [network.read_versions, network.keys_read, network.ranges_read, stats.commits]
}

/// Runs the lines as one pipeline window; returns its cost, and checks that no line failed.
async fn cost(rig: &Rig, lines: &[String]) -> Cost {
    let before = now(rig);
    let replies = replies(&rig.exec, pipeline(lines)).await;
    assert!(!replies.iter().any(|r| matches!(r, Reply::Error(_))), "{replies:?}");
    let after = now(rig);
    std::array::from_fn(|i| after[i] - before[i])
}

/// Reads and commits that the cluster refused, or whose outcome is unknown: those are retried.
fn mishaps(rig: &Rig) -> u64 {
    let network = rig.server.store.stats().network.unwrap();
    network.too_old + network.unknown
}

/// Expects the cost to be `expected`. A storage server that lags on a busy machine refuses reads, which are
/// retried: such a run is inconclusive and repeated. Every other one counts.
async fn expect(rig: &Rig, lines: &[String], expected: Cost, what: &str) {
    expect_each(rig, |_| lines.to_vec(), expected, what).await;
}

/// The same, for lines that depend on the number of the run.
async fn expect_each(rig: &Rig, lines: impl Fn(usize) -> Vec<String>, expected: Cost, what: &str) {
    for run in 0..VOID {
        let before = mishaps(rig);
        let found = cost(rig, &lines(run)).await;
        if mishaps(rig) == before {
            return assert_eq!(found, expected, "{what}");
        }
    }
    panic!("{what}: the cluster refused in each of {VOID} runs");
}

fn lines(n: usize, line: impl Fn(usize) -> String) -> Vec<String> {
    (0..n).map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_cost_the_expected_round_trips() {
    let _alone = ALONE.lock().await;
    let Some(rig) = Rig::on_fdb("round trips").await else { return };
    cost(&rig, &lines(16, |n| format!("set k{n} {n}"))).await;

    expect(&rig, &lines(1, |_| "get k0".into()), [1, 1, 0, 0], "GET").await;
    expect(&rig, &lines(16, |n| format!("get k{n}")), [1, 16, 0, 0], "16 GETs").await;
    expect(&rig, &lines(16, |_| "get k7".into()), [1, 1, 0, 0], "one key often").await;
    expect(&rig, &lines(1, |_| "set k0 x".into()), [1, 1, 0, 1], "SET").await;
    expect(&rig, &lines(16, |n| format!("set k{n} x")), [1, 16, 0, 1], "16 SETs").await;
    expect(&rig, &lines(16, |_| "incr n".into()), [1, 1, 0, 1], "16 INCRs of one key").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_reads_each_row_of_a_large_set_once() {
    let _alone = ALONE.lock().await;
    let Some(rig) = Rig::on_fdb("round trips of sets").await else { return };
    let members: Vec<String> = (0..2000).map(|n| format!("member:{n}")).collect();
    cost(&rig, &[format!("sadd s {}", members.join(" "))]).await;
    let known = |n: usize| format!("sadd s member:{}", n * 100);
    // The record, N, the one chunk, and the id of each member: each once. Their deltas as one range. Nothing
    // to commit.
    expect(&rig, &lines(16, known), [1, 3 + 16, 1, 0], "16 SADDs of members").await;
    // A small number of members is looked up one by one.
    expect(&rig, &lines(4, known), [1, 3 + 4 + 4, 0, 0], "4 SADDs of members").await;
    expect(
        &rig,
        &lines(2, |n| format!("smismember s member:{n} member:77")),
        [1, 3 + 3 + 3, 0, 0],
        "SMISMEMBER",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_reads_each_row_of_a_large_sorted_set_once() {
    let _alone = ALONE.lock().await;
    let Some(rig) = Rig::on_fdb("round trips of sorted sets").await else { return };
    let pairs: Vec<String> = (0..2000).map(|n| format!("{n} member:{n}")).collect();
    cost(&rig, &[format!("zadd z {}", pairs.join(" "))]).await;
    // The record, N, and the score of each member.
    expect(&rig, &lines(16, |n| format!("zscore z member:{}", n * 100)), [1, 2 + 16, 0, 0], "16 ZSCOREs")
        .await;
    let raised = |n: usize| format!("zincrby z 0.25 member:{}", n * 100);
    // The first time the ranges of counts are searched.
    cost(&rig, &lines(16, raised)).await;
    // The record, N, the scores, and the counts: 16 on the first level, one on each other level.
    expect(&rig, &lines(16, raised), [1, 2 + 16 + 18, 0, 1], "16 ZINCRBYs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_reads_each_row_of_a_group_once() {
    let _alone = ALONE.lock().await;
    let Some(rig) = Rig::on_fdb("round trips of streams").await else { return };
    cost(&rig, &["xgroup create s g 0 mkstream".into(), "xgroup create s h 0".into()]).await;
    expect(&rig, &lines(16, |_| "xadd s * field value".into()), [1, 1, 0, 1], "16 XADDs").await;
    cost(&rig, &lines(VOID * 32, |n| format!("xadd t {}-1 field value", n + 1))).await;
    cost(&rig, &["xgroup create t g 0".into(), "xgroup create t h 0".into()]).await;
    cost(&rig, &["xgroup createconsumer t g c".into(), "xgroup createconsumer t h c".into()]).await;
    // The record, the group, and the consumer; the entries, and which of them are pending already.
    let one = |_| vec!["xreadgroup group g c count 10 streams t >".to_owned()];
    expect_each(&rig, one, [1, 3, 2, 1], "XREADGROUP").await;
    let many = |_| lines(16, |_| "xreadgroup group h c count 1 streams t >".into());
    expect_each(&rig, many, [1, 3, 2, 1], "16 XREADGROUPs").await;
    cost(&rig, &[format!("xreadgroup group g c count {} streams t >", VOID * 32)]).await;
    // The record, the group, and whether each is pending.
    let acked = |run: usize| lines(16, |n| format!("xack t g {}-1", run * 16 + n + 1));
    expect_each(&rig, acked, [1, 2 + 16, 0, 1], "16 XACKs").await;
    let acked = |run: usize| vec![format!("xack t g {}-1", VOID * 16 + run + 1)];
    expect_each(&rig, acked, [1, 3, 0, 1], "XACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pieces_of_a_reply_are_read_at_one_version() {
    let _alone = ALONE.lock().await;
    let Some(rig) = Rig::on_fdb("round trips of replies").await else { return };
    for part in 0..20 {
        let members = lines(1000, |n| format!("{:0100}", part * 1000 + n));
        cost(&rig, &[format!("sadd s {}", members.join(" "))]).await;
    }
    for _ in 0..VOID {
        let (before, start) = (mishaps(&rig), now(&rig));
        let mut replies = replies(&rig.exec, pipeline(&["smembers s"])).await;
        let Some(Reply::Members(members)) = replies.pop() else { panic!("not streamed") };
        let (mut unread, mut piece, mut pieces, mut read) = (Pieces::new(*members), Packed::default(), 0, 0);
        let began = Instant::now();
        while !unread.is_done() && unread.next(&rig.server.store, &mut piece).await.is_ok() {
            (pieces, read) = (pieces + 1, read + piece.len());
        }
        if mishaps(&rig) == before && began.elapsed() < Duration::from_millis(500) {
            assert!(pieces > 2 && read == 20_000, "{pieces} pieces, {read} members");
            return assert_eq!(now(&rig)[0] - start[0], 2, "the command and the pieces share a version");
        }
    }
    panic!("the cluster refused or was slow in each of {VOID} runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_share_transactions() {
    let _alone = ALONE.lock().await;
    let Some(rig) = Rig::on_fdb("batches").await else { return };
    let before = now(&rig);
    let clients = (0..50).map(|_| async {
        for _ in 0..20 {
            cost(&rig, &["incr counter".to_owned()]).await;
        }
    });
    join_all(clients).await;
    let after = now(&rig);
    let commits = after[3] - before[3];
    assert!(commits <= 200, "{commits} commits for 1000 INCRs");
    let replies = replies(&rig.exec, pipeline(&["get counter"])).await;
    assert_eq!(replies, [Reply::text("1000")]);
    // An attempt after an unknown outcome conflicts with its predecessor.
    let stats = rig.server.store.stats();
    assert!(stats.conflicts <= stats.network.unwrap().unknown, "the lanes of one server must not conflict");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_metadata_version_costs_one_catalog_read() {
    let _alone = ALONE.lock().await;
    let Some(rig) = Rig::on_fdb("the catalog").await else { return };
    cost(&rig, &["set k x".to_owned()]).await;
    for _ in 0..VOID {
        let before = mishaps(&rig);
        let tx = rig.server.store.begin();
        tx.bump_metadata_version().unwrap();
        let moved = tx.commit().await.is_ok();
        let first = cost(&rig, &["get k".to_owned()]).await;
        let second = cost(&rig, &["get k".to_owned()]).await;
        if moved && mishaps(&rig) == before {
            // Databases and subscribers, concurrently.
            return assert_eq!([first, second], [[1, 1, 2, 0], [1, 1, 0, 0]]);
        }
    }
    panic!("the cluster refused in each of {VOID} runs");
}
