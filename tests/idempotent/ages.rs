//! Ids are forgotten by age: not before `idempotency-min-age`, oldest first, without leftovers, and by
//! several servers at once without harm.

use crate::support::resp::Value;
use crate::world::{START, World};
use std::time::{Duration, Instant};
use tern::keyspace::keys::{SHARDS, root};
use tern::lifecycle::idempotency::{Mark, Swept, sweep};
use tern::store::{RangeOptions, Read};

const DAY: Duration = Duration::from_secs(86_400);

fn use_id(world: &World, id: &str) -> Value {
    world.line(0, &format!("IDEMPOTENT {id} INCR k"))
}

/// Rows of idempotency records and of their index.
fn rows(world: &World) -> usize {
    world.runtime.block_on(async {
        let (tx, opts) = (world.store.begin(), RangeOptions::default());
        let (begin, end) = root::owned_idempotency_records();
        let records = tx.get_range(&begin, &end, opts, Read::Snapshot).await.unwrap().pairs.len();
        let ages = tx.get_range(b"u", b"v", opts, Read::Snapshot).await.unwrap().pairs.len();
        records + ages
    })
}

fn sweep_all(world: &World, before: u64, limit: usize) -> usize {
    let one =
        |shard| world.runtime.block_on(sweep(&world.servers[0].space, shard, &None, before, limit)).unwrap();
    (0..SHARDS).map(|shard| one(shard).removed).sum()
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_job_forgets_only_old_ids() {
    let world = World::new(2);
    use_id(&world, "old:000000000001");
    world.advance(DAY - Duration::from_secs(10));
    use_id(&world, "new:000000000001");
    assert_eq!(use_id(&world, "old:000000000001"), Value::Int(1), "no id may be forgotten within a day");
    world.advance(Duration::from_secs(11));
    wait_until("the old id must be forgotten after a day", || rows(&world) == 2);
    assert_eq!(use_id(&world, "new:000000000001"), Value::Int(2));
    assert_eq!(use_id(&world, "old:000000000001"), Value::Int(3), "a forgotten id must run again");
    let forgotten: u64 = world.servers.iter().map(|s| s.telemetry.forgotten.get()).sum();
    assert_eq!(forgotten, 1);
}

#[test]
fn the_age_is_set_at_run_time() {
    let world = World::new(1);
    use_id(&world, "request:00000001");
    world.advance(Duration::from_secs(60));
    assert_eq!(world.line(0, "CONFIG SET idempotency-min-age 30"), Value::Simple(b"OK".to_vec()));
    wait_until("the id must be forgotten after 30 s", || rows(&world) == 0);
}

#[test]
fn the_oldest_go_first() {
    let world = World::new(1);
    for n in 0..200 {
        use_id(&world, &format!("request:{n:08}"));
        world.advance(Duration::from_millis(10));
    }
    let sweep = |shard, from: Mark| {
        let space = &world.servers[0].space;
        world.runtime.block_on(sweep(space, shard, &from, START + 1000, 3)).unwrap()
    };
    let kept = |n: usize| match world.line(0, &format!("IDEMPOTENT RESULT request:{n:08}")) {
        Value::Array(items) => items[0] == Value::Int(1),
        other => panic!("{other:?}"),
    };
    let first = sweep(0, None);
    assert_eq!((first.removed, first.more), (3, true));
    let of_shard: Vec<usize> = (0..200)
        .filter(|n| tern::keyspace::keys::hash(format!("request:{n:08}").as_bytes()) >> 60 == 0)
        .collect();
    let gone: Vec<usize> = of_shard.iter().copied().filter(|n| !kept(*n)).collect();
    assert_eq!(gone, of_shard[..3], "the three oldest of the shard must go first");
    let mut from = first.next;
    loop {
        let Swept { removed, more, next } = sweep(0, from);
        from = next;
        if removed == 0 {
            break;
        }
        assert!(more || removed <= 3);
    }
    let gone: Vec<usize> = of_shard.iter().copied().filter(|n| !kept(*n)).collect();
    let old: Vec<usize> = of_shard.into_iter().filter(|n| *n < 100).collect();
    assert_eq!(gone, old, "only ids older than requested must go");
}

#[test]
fn nothing_is_left_behind() {
    let world = World::new(1);
    let long = "x".repeat(200_000);
    world.client(0).run(&["SET", "long", &long]);
    let argv = |n: usize| ["IDEMPOTENT".to_owned(), format!("request:{n:08}"), "GET".into(), "long".into()];
    for n in 0..6 {
        world.client(0).run(&argv(n));
        use_id(&world, &format!("short-one:{n:08}"));
    }
    assert!(rows(&world) > 6 * 4, "long replies must be in pieces");
    world.line(0, "IDEMPOTENT FORGET request:00000000 short-one:00000000");
    assert_eq!(sweep_all(&world, START + 1, 100), 10);
    assert_eq!(rows(&world), 0);
}

#[test]
fn an_id_that_is_forgotten_and_used_again_is_new() {
    let world = World::new(1);
    use_id(&world, "request:00000001");
    world.advance(Duration::from_secs(10));
    world.line(0, "IDEMPOTENT FORGET request:00000001");
    assert_eq!(use_id(&world, "request:00000001"), Value::Int(2));
    assert_eq!(sweep_all(&world, START + 5000, 100), 0, "the sweep must not remove it by its first use");
    assert_eq!(use_id(&world, "request:00000001"), Value::Int(2));
}

#[test]
fn many_sweeps_and_clients_at_once() {
    let world = World::new(2);
    let count = 300;
    (0..count).for_each(|n| drop(use_id(&world, &format!("request:{n:08}"))));
    world.advance(Duration::from_secs(1));
    let removed: usize = world.runtime.block_on(async {
        let mut sweeps = tokio::task::JoinSet::new();
        for server in world.servers.iter().cycle().take(6).cloned() {
            sweeps.spawn(async move {
                let mut removed = 0;
                for _ in 0..20 {
                    for shard in 0..SHARDS {
                        // A conflict removes nothing.
                        let swept = sweep(&server.space, shard, &None, START + 1, 7).await;
                        removed += swept.map_or(0, |s| s.removed);
                    }
                }
                removed
            });
        }
        sweeps.join_all().await.into_iter().sum()
    });
    assert_eq!(removed, count, "each id must be removed by one sweep");
    assert_eq!(rows(&world), 0);
}
