//! SSCAN over large sets: cursors fit any client's numbers (below 2^53, doubles and signed longs), the server
//! keeps no state, every member that stays comes exactly once, and a scan ends despite concurrent changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;

use bytes::Bytes;
use cluster::Cluster;
use std::collections::{BTreeMap, HashSet};
use tern::env::Rng;
use tern::keyspace::dictionary::ids::integer_id;
use tern::keyspace::keys::root;
use tern::server::reply::Reply;

/// The largest integer that clients with doubles can count to.
const LIMIT: u64 = 1 << 53;
/// Members that a page may have beyond COUNT: those with ids that share a cursor.
const SHARED: usize = 4096;

async fn add(cluster: &Cluster, members: &[String]) {
    for some in members.chunks(10_000) {
        let argv = ["SADD".into(), "s".into()].into_iter().chain(some.iter().cloned());
        let reply = cluster.run(0, argv.map(Bytes::from).collect()).await;
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
    }
}

/// One page of server `n`: the next cursor and the members.
async fn page(cluster: &Cluster, n: usize, cursor: u64, count: usize) -> (u64, Vec<String>) {
    let text = |reply: &Reply| match reply {
        Reply::Bulk(raw) => String::from_utf8(raw.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    match cluster.line(n, &format!("SSCAN s {cursor} COUNT {count}")).await {
        Reply::Array(parts) => match &parts[..] {
            [next, Reply::Array(members)] => {
                (text(next).parse().unwrap(), members.iter().map(text).collect())
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// How often each member came in a scan by both servers in turn.
async fn scan(cluster: &Cluster, count: usize) -> BTreeMap<String, usize> {
    let (mut seen, mut cursor, mut calls) = (BTreeMap::new(), 0, 0);
    loop {
        let (next, members) = page(cluster, calls % 2, cursor, count).await;
        assert!(next < LIMIT, "cursor {next}");
        assert!(next == 0 || next > cursor, "{next} behind {cursor}");
        assert!(members.len() < count + SHARED, "{} members of {count}", members.len());
        for member in members {
            *seen.entry(member).or_default() += 1;
        }
        calls += 1;
        assert!(calls < 100_000, "no end");
        cursor = next;
        if cursor == 0 {
            return seen;
        }
    }
}

async fn assert_scanned(members: Vec<String>, what: &str) {
    let cluster = Cluster::new(2).await;
    add(&cluster, &members).await;
    let distinct: HashSet<&String> = members.iter().collect();
    for count in [1 + members.len() / 200, 10_000_000] {
        let seen = scan(&cluster, count).await;
        assert_eq!(seen.len(), distinct.len(), "{what}, COUNT {count}");
        assert!(seen.iter().all(|(member, n)| *n == 1 && distinct.contains(member)), "{what}, COUNT {count}");
    }
}

#[tokio::test]
async fn members_of_every_kind_come_once_with_small_cursors() {
    let mut rng = Rng::seeded(7);
    let words = (0..3000).map(|n| format!("member:{n}")).collect();
    let near = (-2000..2000i64).map(|n| n.to_string()).collect();
    let edges = [0, 1 << 50, 1 << 51, (1 << 51) - 1, 1 << 53, 1 << 61, (1 << 61) - 1, i64::MAX];
    let around = |edge: &i64| (-200..200).filter_map(|d| edge.checked_add(d)).collect::<Vec<_>>();
    let edges = edges.iter().flat_map(around).flat_map(|n| [n.to_string(), (-n).to_string()]);
    let edges: Vec<String> = edges.chain([i64::MIN.to_string()]).collect();
    let snowflakes = (0..5000u64).map(|n| ((1_800_000_000_000 << 20) + n).to_string()).collect();
    let random = (0..5000).map(|_| (rng.u64().cast_signed() >> rng.below(40)).to_string()).collect();
    let mixed =
        (0..2000).flat_map(|n| [format!("word {n}"), (n * 7_777_777_777_777i64).to_string()]).collect();
    for (what, members) in [
        ("words", words),
        ("integers around 0", near),
        ("integers around powers of two", edges),
        ("snowflakes", snowflakes),
        ("random integers", random),
        ("words and integers", mixed),
    ] {
        assert_scanned(members, what).await;
    }
}

/// Dense sets of small integers and of words come in pages of COUNT: no two of their ids share a cursor.
#[tokio::test]
async fn pages_have_the_requested_length() {
    for members in [
        (0..30_000).map(|n| n.to_string()).collect::<Vec<_>>(),
        (0..30_000).map(|n| format!("m{n}")).collect(),
    ] {
        let cluster = Cluster::new(2).await;
        add(&cluster, &members).await;
        let (mut cursor, mut left) = (0, members.len());
        loop {
            let (next, some) = page(&cluster, 1, cursor, 1000).await;
            assert_eq!(some.len(), left.min(1000));
            left -= some.len();
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(left, 0);
    }
}

/// Also if so many blocks of ids were leased that several ids share a cursor.
#[tokio::test]
async fn ids_of_late_blocks_come_once() {
    for block in [(1u64 << 26) - 1, 1 << 26, (1 << 38) - 40] {
        let cluster = Cluster::new(2).await;
        let tx = cluster.store.begin();
        for shard in 0..=u8::MAX {
            tx.set(&root::lease(shard), &block.to_le_bytes()).unwrap();
        }
        tx.commit().await.unwrap();
        let members: Vec<String> = (0..20_000).map(|n| format!("m{n}")).collect();
        add(&cluster, &members).await;
        let seen = scan(&cluster, 60).await;
        assert_eq!(seen.len(), members.len(), "{block}");
        assert!(seen.values().all(|n| *n == 1), "{block}");
    }
}

/// Members that stay come once; a scan ends although others are added all the time.
#[tokio::test]
async fn stable_members_come_once_while_others_come_and_go() {
    for seed in 0..3 {
        let (cluster, mut rng) = (Cluster::new(2).await, Rng::seeded(seed));
        let draw = |rng: &mut Rng| match rng.below(3) {
            0 => format!("w{}", rng.below(1 << 20)),
            1 => rng.below(1 << 20).to_string(),
            _ => (rng.u64().cast_signed() >> rng.below(12)).to_string(),
        };
        let stay: HashSet<String> = (0..3000).map(|_| draw(&mut rng)).collect();
        add(&cluster, &stay.iter().cloned().collect::<Vec<_>>()).await;
        let (mut cursor, mut calls) = (0, 0);
        let (mut seen, mut others) = (BTreeMap::new(), Vec::new());
        loop {
            let (next, members) = page(&cluster, calls % 2, cursor, 20).await;
            for member in members.into_iter().filter(|m| stay.contains(m)) {
                *seen.entry(member).or_insert(0) += 1;
            }
            calls += 1;
            cursor = next;
            assert!(cursor < LIMIT && calls < 5000, "{cursor} after {calls}");
            if cursor == 0 {
                break;
            }
            // More than a page returns.
            let come: Vec<String> = (0..30).map(|_| draw(&mut rng)).filter(|m| !stay.contains(m)).collect();
            add(&cluster, &come).await;
            others.extend(come);
            let gone = others.swap_remove(rng.below(others.len() as u64) as usize);
            cluster.run(1, ["SREM".into(), "s".into(), gone].map(Bytes::from).to_vec()).await;
        }
        assert_eq!(seen.len(), stay.len(), "seed {seed}");
        assert!(seen.values().all(|n| *n == 1), "seed {seed}");
    }
}

/// An invented cursor leads to the end or somewhere into the set; never to an error or an endless scan.
#[tokio::test]
async fn invented_cursors_end_too() {
    let cluster = Cluster::new(2).await;
    add(&cluster, &(0..600).map(|n| format!("m{n}")).collect::<Vec<_>>()).await;
    let negative = integer_id(b"-1").unwrap();
    for mut cursor in [LIMIT - 1, LIMIT, negative, u64::MAX, 1, 12_345] {
        for calls in 0.. {
            assert!(calls < 100);
            let (next, _) = page(&cluster, 0, cursor, 10).await;
            assert!(next < LIMIT);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
    }
}
