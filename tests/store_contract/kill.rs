//! A child process is killed with SIGKILL while it commits; commits acknowledged on its standard output must
//! be there, and every transaction whole or not at all. The child is this test binary with
//! `TERN_CONTRACT_CHILD` set.

use crate::{open, options};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tern::env::{Clock, Rng};
use tern::store::local::Local;
use tern::store::{Fsync, RangeOptions, Read, Store};

const CHILD: &str = "TERN_CONTRACT_CHILD";

fn spawn(dir: &Path, base: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["kill::child", "--exact", "--nocapture"]);
    command.env(CHILD, dir).env("TERN_CONTRACT_BASE", base.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Not a test if the variable is not set.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let base: u32 = std::env::var("TERN_CONTRACT_BASE").unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut options = options(&Clock::System, &Default::default(), Fsync::Always);
        options.write_buffer = 64 << 10;
        let store = match Local::open(Path::new(&dir), options) {
            Ok(local) => Store::Local(local),
            Err(e) => return println!("refused {e}"),
        };
        println!("open");
        let writers: Vec<_> =
            (0..8).map(|i| tokio::spawn(write(store.clone(), base + i * 100_000))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// Transaction n: `a/n` and `z/n` with a value that fills memtables, and a counter.
async fn write(store: Store, base: u32) {
    for n in base.. {
        let tx = store.begin();
        let value = n.to_be_bytes().repeat(25);
        tx.set(&[b"a/", &n.to_be_bytes()[..]].concat(), &value).unwrap();
        tx.set(&[b"z/", &n.to_be_bytes()[..]].concat(), &value).unwrap();
        tx.add(b"count", &1u32.to_le_bytes()).unwrap();
        tx.commit().await.unwrap();
        println!("ack {n}");
    }
}

/// Reads acknowledgements for a while, kills, and reads the rest of the pipe.
fn run_and_kill(dir: &Path, base: u32, alive: Duration) -> BTreeSet<u32> {
    let mut child = spawn(dir, base);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    // A line that the kill cut off has no end: it acknowledges nothing.
    let lines = std::iter::from_fn(move || {
        let mut line = String::new();
        output.read_line(&mut line).ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    });
    let (sender, opened) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut acks = BTreeSet::new();
        for line in lines {
            match line.rsplit_once("ack ").map(|(_, n)| n.parse()) {
                Some(Ok(n)) => drop(acks.insert(n)),
                _ if line.ends_with("open") => sender.send(()).unwrap(),
                _ => {}
            }
        }
        acks
    });
    opened.recv_timeout(Duration::from_secs(60)).expect("the child must open its store");
    std::thread::sleep(alive);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

async fn numbers(store: &Store, folder: &[u8]) -> BTreeSet<u32> {
    let (begin, end) = ([folder, b"/"].concat(), [folder, b"0"].concat());
    let tx = store.begin();
    let found = tx.get_range(&begin, &end, RangeOptions::default(), Read::Snapshot).await.unwrap();
    let number = |k: &[u8], v: &[u8]| {
        assert_eq!(k[2..].repeat(25), v);
        u32::from_be_bytes(k[2..].try_into().unwrap())
    };
    found.pairs.iter().map(|(k, v)| number(k, v)).collect()
}

#[tokio::test]
async fn acknowledged_commits_survive_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::from_entropy();
    let mut acknowledged = BTreeSet::new();
    let mut last_version = 0;
    for round in 0..6 {
        let alive = Duration::from_millis(20 + rng.below(250));
        acknowledged.extend(run_and_kill(dir.path(), 1_000_000 * (round + 1), alive));
        let store = open(dir.path(), Fsync::No).unwrap();
        let (a, z) = (numbers(&store, b"a").await, numbers(&store, b"z").await);
        assert_eq!(a, z, "transactions must be whole");
        assert!(
            acknowledged.is_subset(&a),
            "lost: {:?}",
            acknowledged.difference(&a).take(9).collect::<Vec<_>>()
        );
        let count = store.begin().get(b"count", Read::Snapshot).await.unwrap().unwrap_or_default();
        assert_eq!(count[..], (a.len() as u32).to_le_bytes());
        let version = store.begin().read_version().await.unwrap();
        assert!(version > last_version);
        last_version = version;
        store.close().await.unwrap();
    }
    println!("{} acknowledged", acknowledged.len());
    assert!(acknowledged.len() > 100, "too few commits to prove anything: {}", acknowledged.len());
}

#[tokio::test]
async fn another_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _open = open(dir.path(), Fsync::No).unwrap();
    let output = spawn(dir.path(), 1).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("refused") && text.contains("in use by another process"), "{text}");
}
