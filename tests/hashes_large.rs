//! Changes of hashes that exceed a transaction, and changes of one large hash by several servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;
mod rig;

use bytes::Bytes;
use cluster::Cluster;
use rig::units;
use rig::{Rig, bulk};
use tern::env::{Env, Rng};
use tern::error::StoreError;
use tern::exec::Unit;
use tern::server::reply::Reply;
use tern::types::hash::{sample, scan};
use tern::types::object;

fn line(words: &str, more: impl IntoIterator<Item = String>) -> Vec<Bytes> {
    words.split(' ').map(str::to_owned).chain(more).map(Bytes::from).collect()
}

fn pairs(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.flat_map(|n| [format!("field:{n:0>20}"), format!("value:{n}")])
}

fn fields(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|n| format!("field:{n:0>20}"))
}

const MANY: usize = 150_000;

/// Hazard: a transaction grows with the pipeline, and others wait while it commits.
#[tokio::test]
async fn a_pipeline_that_writes_much_is_several_transactions() {
    let rig = Rig::new().await;
    let value = "v".repeat(100);
    let line = |n| line(&format!("hset h:{n}"), fields(0..1000).flat_map(|field| [field, value.clone()]));
    for exec in [false, true] {
        let unit = Unit { exec, ..units::unit((0..20).map(|n| units::call(line(n))).collect()) };
        let done = rig.exec.run(unit).await;
        let ran = done.replies.unwrap().len();
        assert_eq!(ran + done.rest.len(), 20);
        assert!(if exec { ran == 20 } else { (2..=15).contains(&ran) }, "{ran} of 20 in a transaction");
    }
}

/// Hazard: others wait while much of a large value is committed at once.
#[tokio::test]
async fn a_large_value_is_built_in_pieces() {
    const FIELDS: usize = 40_000;
    let mut rig = Rig::embedded().await;
    rig.run_bytes(line("hset h", pairs(0..FIELDS))).await;
    let Reply::Bulk(dump) = rig.line("dump h").await else { panic!("no payload") };
    let restore = ["restore", "r", "0"].into_iter().map(Bytes::from).chain([dump]).collect();
    for (call, reply) in [(line("copy h c", []), Reply::Int(1)), (restore, Reply::Ok)] {
        let before = commits(&mut rig).await;
        assert_eq!(rig.run_bytes(call).await, reply);
        let used = commits(&mut rig).await - before;
        assert!(used >= FIELDS / 2000, "{reply:?}: {used} commits");
    }
    for key in ["c", "r"] {
        assert_eq!(rig.line(&format!("hlen {key}")).await, Reply::Int(FIELDS as i64));
        let last = format!("hget {key} field:{:0>20}", FIELDS - 1);
        assert_eq!(rig.line(&last).await, bulk(format!("value:{}", FIELDS - 1)));
    }
    rig.assert_sound().await;
}

async fn commits(rig: &mut Rig) -> usize {
    let Reply::Verbatim(info, _) = rig.line("info tern").await else { panic!("no INFO") };
    let info = String::from_utf8_lossy(&info).into_owned();
    info.lines().find_map(|line| line.strip_prefix("store_commits:")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn more_fields_than_a_transaction_takes() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.run_bytes(line("hset h a 1 b 2", [])).await, Reply::Int(2));
    assert_eq!(rig.run_bytes(line("hset h b 3", pairs(0..MANY))).await, Reply::Int(MANY as i64));
    assert_eq!(rig.line("hmget h a b c").await, Reply::Array(vec![bulk("1"), bulk("3"), Reply::Nil]));
    assert_eq!(rig.line("hlen h").await, Reply::Int(MANY as i64 + 2));
    rig.line("pexpire h 100000").await;
    rig.run(&["hset", "h", "long", &"x".repeat(50_000), "longer", &"y".repeat(50_000)]).await;
    rig.assert_sound().await;
    // Over a hash in rows: some new, some not, one of them long.
    let more = line("hset h long short", pairs(MANY / 2..2 * MANY));
    assert_eq!(rig.run_bytes(more).await, Reply::Int(MANY as i64));
    assert_eq!(rig.line("hlen h").await, Reply::Int(2 * MANY as i64 + 4));
    assert_eq!(rig.line("hget h long").await, bulk("short"));
    assert_eq!(rig.line("hstrlen h longer").await, Reply::Int(50_000));
    assert_eq!(rig.line("pttl h").await, Reply::Int(100_000));
    rig.assert_sound().await;
    let removed = rig.run_bytes(line("hdel h longer none", fields(0..2 * MANY))).await;
    assert_eq!(removed, Reply::Int(2 * MANY as i64 + 1));
    assert_eq!(rig.line("hlen h").await, Reply::Int(3));
    assert_eq!(rig.line("hget h b").await, bulk("3"));
    rig.assert_sound().await;
    rig.run_bytes(line("hset h", pairs(0..MANY))).await;
    let all = rig.run_bytes(line("hdel h long a b", fields(0..MANY))).await;
    assert_eq!(all, Reply::Int(MANY as i64 + 3));
    assert_eq!(rig.line("exists h").await, Reply::Int(0));
    rig.assert_sound().await;
}

#[tokio::test]
async fn a_value_larger_than_a_transaction() {
    let mut rig = Rig::new().await;
    let value = "v".repeat(12_000_000);
    for key in ["new", "small", "large"] {
        if key != "new" {
            rig.line(&format!("hset {key} a 1")).await;
        }
        if key == "large" {
            rig.run_bytes(line("hset large", pairs(0..1000))).await;
        }
        let (before, own) = (rig.line(&format!("hlen {key}")).await, [value.clone()]);
        let Reply::Int(before) = before else { panic!() };
        assert_eq!(rig.run_bytes(line(&format!("hsetnx {key} f"), own.clone())).await, Reply::Int(1));
        assert_eq!(rig.run_bytes(line(&format!("hsetnx {key} f"), own.clone())).await, Reply::Int(0));
        assert_eq!(rig.run_bytes(line(&format!("hset {key} f"), own.clone())).await, Reply::Int(0));
        assert_eq!(rig.line(&format!("hlen {key}")).await, Reply::Int(before + 1));
        assert_eq!(rig.line(&format!("hget {key} f")).await, bulk(&value));
        rig.assert_sound().await;
    }
    rig.line("set t x").await;
    let refused = rig.run_bytes(line("hset t f", [value])).await;
    assert_eq!(rig::error(&refused), "WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(rig.line("copy large other").await, Reply::Int(1));
    assert_eq!(rig.line("hstrlen other f").await, Reply::Int(12_000_000));
    assert_eq!(rig.line("hlen other").await, Reply::Int(1002));
    rig.assert_sound().await;
}

/// A change that rewrites the hash, and a copy, keep the expiries of the other fields.
#[tokio::test]
async fn expiries_in_a_hash_that_exceeds_a_transaction() {
    let mut rig = Rig::new().await;
    rig.run_bytes(line("hset h", pairs(0..MANY))).await;
    let [first, last] = [0, MANY - 1].map(|n| format!("field:{n:0>20}"));
    let both = rig.line(&format!("hpexpire h 1000 FIELDS 2 {first} {last}")).await;
    assert_eq!(both, Reply::Array(vec![Reply::Int(1), Reply::Int(1)]));
    let new = rig.run_bytes(line("hset h", pairs(MANY / 2..2 * MANY))).await;
    assert_eq!(new, Reply::Int(MANY as i64));
    assert_eq!(rig.line("copy h copied").await, Reply::Int(1));
    for key in ["h", "copied"] {
        let times = rig.line(&format!("hpttl {key} FIELDS 2 {first} {last}")).await;
        assert_eq!(times, Reply::Array(vec![Reply::Int(1000), Reply::Int(-1)]), "{key}");
    }
    rig.assert_sound().await;
    rig.advance(1000);
    for key in ["h", "copied"] {
        assert_eq!(rig.line(&format!("hlen {key}")).await, Reply::Int(2 * MANY as i64 - 1), "{key}");
        assert_eq!(rig.line(&format!("hget {key} {first}")).await, Reply::Nil, "{key}");
    }
}

async fn two() -> Cluster {
    let mut c = Cluster::empty();
    let env = Env::seeded(cluster::START, 7);
    c.join(env.clone()).await;
    c.join(env).await;
    c
}

/// Servers that change different fields of one hash do not conflict, and its length counts them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_change_different_fields_of_one_hash() {
    let c = two().await;
    c.run(0, line("hset h", pairs(0..1000))).await;
    // Later ones do not change the record.
    c.line(0, "hpexpire h 1000 FIELDS 1 field:00000000000000000000").await;
    let conflicts = || c.store.stats().conflicts;
    let before = conflicts();
    let worker = async |server: usize| {
        for n in 0..300 {
            let own = format!("own:{server}:{n}");
            assert_eq!(c.line(server, &format!("hset h {own} {n}")).await, Reply::Int(1));
            assert_eq!(c.line(server, &format!("hincrby h counter:{server} 1")).await, Reply::Int(n + 1));
            c.line(server, &format!("hpexpire h {} FIELDS 1 {own}", 2000 + n)).await;
            if n % 3 == 0 {
                assert_eq!(c.line(server, &format!("hdel h {own}")).await, Reply::Int(1));
            }
        }
    };
    tokio::join!(worker(0), worker(1));
    assert_eq!(c.line(0, "hlen h").await, Reply::Int(1000 + 2 * 200 + 2));
    assert_eq!(conflicts() - before, 0, "conflicts");
    c.assert_sound().await;
}

/// What a transaction that writes was told of a hash is still so when it commits.
#[tokio::test]
async fn a_transaction_relies_on_what_it_drew_or_scanned() {
    let mut rig = Rig::new().await;
    rig.run_bytes(line("hset h", pairs(0..600))).await;
    for way in ["few", "many", "repeated", "scanned"] {
        let tx = rig.server.store.begin();
        let s = rig.scope(&tx).await;
        let slot = object::open_members(&s, &Bytes::from("h")).await.unwrap();
        let (rep, mut rng) = (slot.hash().unwrap().unwrap(), Rng::seeded(5));
        match way {
            "few" => drop(sample::distinct(&s, rep, 90, false, &mut rng).await.unwrap()),
            "many" => drop(sample::distinct(&s, rep, 600, false, &mut rng).await.unwrap()),
            "repeated" => drop(sample::repeated(&s, rep, 90, false, &mut rng).await.unwrap()),
            _ => drop(scan::scan(&s, Some(rep), (0, 10), false).await.unwrap()),
        }
        tx.set(b"elsewhere", b"v").unwrap();
        rig.run_bytes(line("hdel h", fields(0..300))).await;
        assert_eq!(tx.commit().await, Err(StoreError::Conflict), "{way}");
        rig.run_bytes(line("hset h", pairs(0..300))).await;
    }
}
