//! A store that several servers write to is sound in every state.

use super::cluster::Cluster;
use super::support::rng::Rng;
use super::{read, sets_world, streams, support};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tern::env::Env;
use tern::store::faulty::FaultRates;

/// A random command over few keys of every kind.
fn random_line(rng: &mut Rng) -> Vec<String> {
    let set = |rng: &mut Rng| format!("set:{}", rng.below(4));
    let member = |rng: &mut Rng| match rng.below(2) {
        0 => format!("m{}", rng.below(4000)),
        _ => rng.below(100_000).to_string(),
    };
    let many = |rng: &mut Rng, n: usize| (0..1 + rng.below(n)).map(|_| member(rng)).collect::<Vec<_>>();
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let pairs = |rng: &mut Rng, n: usize| {
        let one = |rng: &mut Rng| [member(rng), "v".repeat(rng.below(100))];
        (0..1 + rng.below(n)).flat_map(|_| one(rng)).collect::<Vec<_>>()
    };
    let scored = |rng: &mut Rng, n: usize| {
        let one = |rng: &mut Rng| [rng.below(1000).to_string(), member(rng)];
        (0..1 + rng.below(n)).flat_map(|_| one(rng)).collect::<Vec<_>>()
    };
    match rng.below(34) {
        0..=2 => [words(format!("SADD {}", set(rng))), many(rng, 300)].concat(),
        3 | 4 => [words(format!("SADD {}", set(rng))), many(rng, 5)].concat(),
        5 => [words(format!("SREM {}", set(rng))), many(rng, 100)].concat(),
        6 => words(format!("SPOP {} {}", set(rng), 1 + rng.below(50))),
        7 => words(format!("SINTERSTORE {} {} {}", set(rng), set(rng), set(rng))),
        8 => words(format!("SUNIONSTORE {} {} {}", set(rng), set(rng), set(rng))),
        9 => words(format!("RENAME {} {}", set(rng), set(rng))),
        10 => words(format!("SMOVE {} {} {}", set(rng), set(rng), member(rng))),
        11 => words(format!("DEL {} k:{}", set(rng), rng.below(20))),
        12 => words(format!(
            "SET k:{} {} PX {}",
            rng.below(20),
            "v".repeat(rng.below(40_000)),
            1 + rng.below(2000)
        )),
        13 => words(format!("SETRANGE k:{} {} x", rng.below(20), rng.below(100_000))),
        14 => words(format!("EXPIRE {} {}", set(rng), rng.below(3))),
        15 => [words(format!("HSET hash:{}", rng.below(3))), pairs(rng, 200)].concat(),
        16 => [words(format!("HDEL hash:{}", rng.below(3))), many(rng, 200)].concat(),
        17 => words(format!("HSET hash:{} long {}", rng.below(3), "v".repeat(rng.below(90_000)))),
        18 => words(format!("COPY hash:{} hash:{} REPLACE", rng.below(3), rng.below(3))),
        19 => [words(format!("ZADD zset:{}", rng.below(3))), scored(rng, 200)].concat(),
        20 => [words(format!("ZREM zset:{}", rng.below(3))), many(rng, 200)].concat(),
        21 => words(format!("ZPOPMIN zset:{} {}", rng.below(3), rng.below(100))),
        22 => words(format!("COPY zset:{} zset:{} REPLACE", rng.below(3), rng.below(3))),
        23..=32 => words(streams::random_line(rng)),
        _ => words(if rng.below(20) == 0 {
            "FLUSHDB".into()
        } else {
            format!("COPY {} {} REPLACE", set(rng), set(rng))
        }),
    }
}

async fn busy(cluster: &Cluster, seed: u64, commands: usize) {
    let worker = async |n: u64| {
        let mut rng = Rng::new(seed + n);
        for _ in 0..commands {
            let argv = random_line(&mut rng).into_iter().map(Bytes::from).collect();
            cluster.run(n as usize % cluster.members.len(), argv).await;
        }
    };
    futures_util::future::join_all((0..8).map(worker)).await;
}

async fn jobs(cluster: &Cluster) {
    let space = cluster.space(0);
    for shard in 0..16 {
        tern::lifecycle::expire::sweep(space, 0, shard, 100, &mut Default::default()).await.unwrap();
    }
    let mut from = None;
    loop {
        from = tern::lifecycle::reclaim::reclaim(space, from.as_deref(), 64).await.unwrap().next;
        if from.is_none() {
            return;
        }
    }
}

async fn cluster() -> (Cluster, tempfile::TempDir) {
    let (store, dir) = sets_world::fresh().await;
    let mut cluster = Cluster::on(store);
    for n in 0..2 {
        cluster.join(Env::seeded(super::cluster::START, 100 + n)).await;
    }
    (cluster, dir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_store_is_sound_after_every_round() {
    let seed = support::env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    support::say(&format!("check: TERN_SEED={seed}"));
    let (cluster, _dir) = cluster().await;
    for round in 0..4 {
        cluster.faulty.set_rates(FaultRates::mixed());
        busy(&cluster, seed + round * 100, 60).await;
        cluster.advance(Duration::from_millis(700));
        cluster.faulty.set_rates(FaultRates::default());
        // The round may have ended with a FLUSHDB; a check of nothing would prove nothing.
        cluster.run(0, ["SADD", "kept", "a", "b", "7"].map(Bytes::from).to_vec()).await;
        for half in ["before", "after"] {
            let report = read(&cluster.store).await;
            assert!(
                report.is_sound() && report.unchecked.is_empty(),
                "{half} the jobs of round {round}: {report}"
            );
            assert!(report.rows["keys"] > 0, "{report}");
            jobs(&cluster).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_written_to_is_not_called_damaged() {
    let seed = support::env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    support::say(&format!("check under writes: TERN_SEED={seed}"));
    let (cluster, _dir) = cluster().await;
    busy(&cluster, seed, 30).await;
    let done = AtomicBool::new(false);
    let checks = async {
        let mut checks = 0;
        while !done.load(Ordering::Relaxed) {
            let report = read(&cluster.store).await;
            assert!(report.is_sound(), "{report}");
            checks += 1;
        }
        checks
    };
    let writes = async {
        busy(&cluster, seed + 50, 120).await;
        done.store(true, Ordering::Relaxed);
    };
    let (checks, ()) = tokio::join!(checks, writes);
    assert!(checks > 0);
}
