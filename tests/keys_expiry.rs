//! Expiry on a manual clock: lazy and active removal, and the rows that it leaves in the store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::{Rig, START, bulk, error};
use std::time::Duration;
use tern::keyspace::keys::SHARDS;
use tern::lifecycle::expire::{Expired, Swept, sweep};
use tern::server::reply::Reply;
use tern::store::{RangeOptions, Read};

async fn sweep_all(rig: &Rig) -> Swept {
    let mut total = Swept::default();
    for shard in 0..SHARDS {
        let swept = sweep(rig.space(), rig.client.db, shard, 1000, &mut Expired::default()).await.unwrap();
        total.removed += swept.removed;
        total.stale += swept.stale;
        total.more |= swept.more;
    }
    total
}

/// Rows of the database with a tag.
async fn rows(rig: &Rig, tag: u8) -> usize {
    let db = rig.prefix().await;
    let (from, to) = ([db.as_bytes(), &[tag]].concat(), [db.as_bytes(), &[tag + 1]].concat());
    let tx = rig.server.store.begin();
    tx.get_range(&from, &to, RangeOptions::default(), Read::Snapshot).await.unwrap().pairs.len()
}

#[tokio::test]
async fn a_key_is_gone_at_its_millisecond() {
    let mut rig = Rig::new().await;
    rig.line("SET k v PX 1000").await;
    rig.advance(999);
    assert_eq!(rig.line("GET k").await, bulk("v"));
    assert_eq!(rig.line("PTTL k").await, Reply::Int(1));
    rig.advance(1);
    assert_eq!(rig.line("GET k").await, Reply::Nil);
    assert_eq!(rig.line("GETRANGE k 0 -1").await, bulk(""));
    assert_eq!(rig.line("EXISTS k").await, Reply::Int(0));
    assert_eq!(rig.line("TTL k").await, Reply::Int(-2));
    assert_eq!(rig.line("KEYS *").await, Reply::Array(Vec::new()));
    assert_eq!(rig.line("DBSIZE").await, Reply::Int(1), "DBSIZE counts it until it is removed, as in Redis");
    assert_eq!(rig.line("DEL k").await, Reply::Int(0));
    assert_eq!(rig.line("DBSIZE").await, Reply::Int(0));
}

#[tokio::test]
async fn times_are_rounded_to_the_nearest_second() {
    let mut rig = Rig::new().await;
    for (ms, seconds) in [(499, 0), (500, 1), (1499, 1), (1500, 2)] {
        rig.line(&format!("SET k v PX {ms}")).await;
        assert_eq!(rig.line("TTL k").await, Reply::Int(seconds));
        assert_eq!(rig.line("PTTL k").await, Reply::Int(ms));
        assert_eq!(rig.line("PEXPIRETIME k").await, Reply::Int(START as i64 + ms));
        assert_eq!(rig.line("EXPIRETIME k").await, Reply::Int((START as i64 + ms + 500) / 1000));
    }
}

#[tokio::test]
async fn the_past_removes() {
    let mut rig = Rig::new().await;
    for line in ["EXPIRE k 0", "EXPIRE k -1", "PEXPIREAT k 5", "EXPIREAT k -9223372036854775", "PEXPIRE k -1"]
    {
        rig.line("SET k v").await;
        assert_eq!(rig.line(line).await, Reply::Int(1), "{line}");
        assert_eq!(rig.line("EXISTS k").await, Reply::Int(0), "{line}");
        assert_eq!(rig.line("DBSIZE").await, Reply::Int(0), "{line}");
    }
    rig.line("SET k v").await;
    assert_eq!(rig.line("SET k w EXAT 1").await, Reply::Ok);
    assert_eq!(rig.line("DBSIZE").await, Reply::Int(0));
    rig.line("SET k v").await;
    assert_eq!(rig.line("GETEX k PXAT 1").await, bulk("v"));
    assert_eq!(rig.line("EXISTS k").await, Reply::Int(0));
    assert_eq!(rows(&rig, b'X').await, 0);
}

#[tokio::test]
async fn conditions_compare_with_the_current_expiry() {
    let mut rig = Rig::new().await;
    rig.line("SET k v").await;
    for (line, done) in [
        ("EXPIRE k 100 XX", 0),
        ("EXPIRE k 100 GT", 0),
        ("EXPIRE k 100 LT", 1),
        ("EXPIRE k 50 NX", 0),
        ("EXPIRE k 100 GT", 0),
        ("EXPIRE k 101 XX GT", 1),
        ("EXPIRE k 102 LT", 0),
        ("EXPIRE k 7 LT XX", 1),
        ("EXPIRE none 7", 0),
    ] {
        assert_eq!(rig.line(line).await, Reply::Int(done), "{line}");
    }
    assert_eq!(rig.line("TTL k").await, Reply::Int(7));
    for (line, want) in [
        ("EXPIRE k 1 NX GT", "ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("EXPIRE k x GT LT", "ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE k x AB", "ERR Unsupported option AB"),
        ("EXPIRE k x", "ERR value is not an integer or out of range"),
        ("EXPIRE k 9223372036854776", "ERR invalid expire time in 'expire' command"),
        ("PEXPIRE k 9223372036854775807", "ERR invalid expire time in 'pexpire' command"),
    ] {
        assert_eq!(error(&rig.line(line).await), want, "{line}");
    }
}

#[tokio::test]
async fn a_write_over_an_expired_key_starts_anew() {
    let mut rig = Rig::new().await;
    rig.line("SET n 41 PX 10").await;
    rig.advance(10);
    assert_eq!(rig.line("INCR n").await, Reply::Int(1));
    assert_eq!(rig.line("TTL n").await, Reply::Int(-1));
    rig.line("SET s long PX 10").await;
    rig.advance(10);
    assert_eq!(rig.line("APPEND s x").await, Reply::Int(1));
    rig.line("SADD t m").await;
    rig.line("PEXPIRE t 10").await;
    rig.advance(10);
    assert_eq!(rig.line("SET t v KEEPTTL").await, Reply::Ok);
    assert_eq!(rig.line("TTL t").await, Reply::Int(-1));
    assert_eq!(rig.line("DBSIZE").await, Reply::Int(3));
    assert_eq!(rows(&rig, b'X').await, 0);
}

#[tokio::test]
async fn the_sweep_removes_only_due_keys() {
    let mut rig = Rig::new().await;
    for n in 0..300 {
        rig.line(&format!("SET k{n} v PX {}", 1000 + n)).await;
    }
    rig.line("SET stays v").await;
    rig.advance(1099);
    assert_eq!(sweep_all(&rig).await, Swept { removed: 100, fields: 0, stale: 0, more: false });
    assert_eq!(rig.line("DBSIZE").await, Reply::Int(201));
    assert_eq!((rows(&rig, b'K').await, rows(&rig, b'X').await), (201, 200));
    rig.advance(10_000);
    assert_eq!(sweep_all(&rig).await.removed, 200);
    assert_eq!((rows(&rig, b'K').await, rows(&rig, b'X').await), (1, 0));
    assert_eq!(rig.line("GET stays").await, bulk("v"));
}

#[tokio::test]
async fn the_sweep_keeps_to_its_limit() {
    let mut rig = Rig::new().await;
    for n in 0..100 {
        rig.line(&format!("SET k{n} v PX 1")).await;
    }
    rig.advance(1);
    let mut removed = 0;
    for shard in 0..SHARDS {
        let swept = sweep(rig.space(), 0, shard, 2, &mut Expired::default()).await.unwrap();
        assert!(swept.removed <= 2);
        removed += swept.removed;
        while sweep(rig.space(), 0, shard, 2, &mut Expired::default()).await.unwrap().more {}
    }
    assert!(removed > 0);
    assert_eq!(sweep_all(&rig).await, Swept::default());
    assert_eq!(rows(&rig, b'K').await, 0);
}

#[tokio::test]
async fn a_row_that_the_record_does_not_confirm_is_stale() {
    let mut rig = Rig::new().await;
    rig.line("SET k v PX 5000").await;
    let tx = rig.server.store.begin();
    let db = rig.prefix().await;
    tx.set(&db.expiry(START + 1, b"k"), &[]).unwrap();
    tx.set(&db.expiry(START + 1, b"never-there"), &[]).unwrap();
    tx.commit().await.unwrap();
    rig.advance(10);
    assert_eq!(sweep_all(&rig).await, Swept { removed: 0, fields: 0, stale: 2, more: false });
    assert_eq!(rig.line("PTTL k").await, Reply::Int(4990));
    assert_eq!(rows(&rig, b'X').await, 1);
}

#[tokio::test]
async fn moving_a_key_moves_its_expiry() {
    let mut rig = Rig::new().await;
    rig.line("SET a v PX 100").await;
    rig.line("SET b w PX 50").await;
    rig.line("RENAME a b").await;
    assert_eq!(rig.line("PTTL b").await, Reply::Int(100));
    rig.line("COPY b c").await;
    assert_eq!(rig.line("PTTL c").await, Reply::Int(100));
    rig.line("PERSIST b").await;
    rig.line("MOVE c 1").await;
    rig.client.db = 1;
    assert_eq!(rig.line("PTTL c").await, Reply::Int(100));
    rig.advance(100);
    assert_eq!(sweep_all(&rig).await.removed, 1);
    rig.client.db = 0;
    assert_eq!(sweep_all(&rig).await, Swept::default());
    assert_eq!(rig.line("GET b").await, bulk("v"));
}

/// Keys that a transaction found alive may expire before its commit: then it runs again, and must finish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_soon_expiring_keys_do_not_stall_a_command() {
    let mut rig = Rig::on_system_clock().await;
    let own = rig.together(&["SET own v PX 1", "DEBUG SLEEP 0.05", "GET own"]).await;
    assert!(own.iter().all(|reply| !matches!(reply, Reply::Error(_))), "{own:?}");
    let sets: Vec<String> = (0..400).map(|n| format!("SET n{n} 1 PX {}", 1 + n)).collect();
    rig.together(&sets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let incrs: Vec<String> = (0..400).map(|n| format!("INCR n{n}")).collect();
    let incrs: Vec<&str> = incrs.iter().map(String::as_str).collect();
    let since = std::time::Instant::now();
    for _ in 0..5 {
        let replies = rig.together(&incrs).await;
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Int(_))), "{replies:?}");
    }
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}
