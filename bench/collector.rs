//! What a cycle of the dictionary's collector costs, and whether it keeps up with a load.
//!
//! ```text
//! cargo run --release --features fdb --example bench_collector [dead members] [live members] [bytes of a member]
//! cargo run --release --features fdb --example bench_collector load <port> <seconds> [members a second]
//! ```
//! The first: time, and processor time of all threads, a phase; on the embedded store with `appendfsync always`, in this process, with nothing
//! else to do and no rest. The second: see `collector/load.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[path = "collector/load.rs"]
mod load;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tern::env::{Clock, Env};
use tern::keyspace::dictionary::collector::Phase;
use tern::keyspace::{Keyspace, Scope};
use tern::store::Store;
use tern::store::local::{Local, LocalOptions};
use tern::types::object;
use tern::types::set;
use tern::types::set::collect::grace::Waiting;
use tern::types::set::collect::{Collector, Pace, Step};

/// Members of a command.
const SOME: usize = 1000;

fn number(n: usize) -> Option<usize> {
    std::env::args().nth(n).map(|arg| arg.parse().unwrap())
}

/// Processor time of this process, in ms.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|n| n.parse::<u64>().unwrap()).sum();
    ticks * 10
}

/// Members `from..to`, each in the dictionary; in a set where `lives`.
async fn fill(space: &Keyspace, from: usize, to: usize, len: usize, lives: bool) {
    let db = space.catalog.load(&space.store.begin()).await.unwrap().prefix(0).unwrap();
    for at in (from..to).step_by(SOME) {
        let members: Vec<Bytes> = (at..to.min(at + SOME)).map(|n| format!("{n:0len$}").into()).collect();
        let ids = set::prebuild::intern(space, &[&members]).await.unwrap().remove(0);
        if !lives {
            continue;
        }
        let tx = space.store.begin();
        let round = space.catalog.load(&tx).await.unwrap().round;
        let s = Scope {
            tx: &tx,
            db,
            number: 0,
            now: 1,
            round,
            space,
            outbox: None,
            uncounted: None,
            life: Default::default(),
        };
        let key = Bytes::from(format!("set{}", at / 100_000));
        let mut slot = object::open_members(&s, &key).await.unwrap();
        set::add_ids(&s, &mut slot, &members, &ids).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if std::env::args().nth(1).as_deref() == Some("load") {
        return load::run(number(2).unwrap() as u16, number(3).unwrap(), number(4).unwrap_or(0));
    }
    let (dead, live) = (number(1).unwrap_or(1_000_000), number(2).unwrap_or(0));
    let len = number(3).unwrap_or(70);
    let dir = tempfile::tempdir().unwrap();
    let store = Store::Local(Local::open(dir.path(), LocalOptions::new(Clock::System)).unwrap());
    let space = Keyspace::open(store.clone(), &Env::system(), 1).await.unwrap();
    space.beat().await.unwrap();
    fill(&space, 0, live, len, true).await;
    fill(&space, live, live + dead, len, false).await;
    println!(
        "{dead} dead and {live} live members of {len} bytes, {} MB on disk",
        store.stats().disk_bytes / 1_000_000
    );
    let pace = Pace { share: 100, grace: Duration::from_millis(100), ..Pace::default() };
    let collector = Collector::new(&space, pace);
    let (mut waiting, mut spent) = (Waiting::default(), BTreeMap::<&str, (Duration, u64, u64)>::new());
    collector.begin().await.unwrap();
    loop {
        let state = collector.state().await.unwrap();
        if state.phase == Phase::Idle {
            println!("{} collected, {} live", state.collected, state.live);
            break;
        }
        waiting.look(&space, &pace, &store.begin(), &state).await.unwrap();
        let (start, before, commits) = (Instant::now(), cpu(), store.stats().commits);
        if collector.step().await.unwrap() == Step::Waits {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let phase = spent.entry(state.phase.name()).or_default();
        phase.0 += start.elapsed();
        phase.1 += cpu() - before;
        phase.2 += store.stats().commits - commits;
    }
    for (phase, (time, cpu, commits)) in spent {
        let each = cpu as f64 * 1000.0 / (dead + live) as f64;
        println!("{phase}: {time:.2?}, {cpu} ms of processor time, {each:.2} us a member, {commits} commits");
    }
    println!("{} MB on disk", store.stats().disk_bytes / 1_000_000);
}
