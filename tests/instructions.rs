//! Budgets: the instructions that a server executes for a command, counted by callgrind, where a clock on a busy machine cannot
//! tell a regression of a tenth.
//!
//! One connection sends windows of 16 commands with random keys. The count is the whole process' between the first window and the last
//! reply, less what the idle server executes in the same time: about a million instructions a second, of which nobody knows how many
//! fell into this round, so a round is long enough for them not to matter. The least of several rounds counts. The budgets are those of
//! a release build, which `TERN_BINARY` names. A regression of a tenth fails; lower the budget when a command becomes cheaper. On a
//! busy machine the same build took up to a tenth more (MSET 57 700 and 63 100), so MSET's and SET's budgets lie between; beside a
//! build that runs it counts a tenth less, because more time is taken off for idling: change a budget after counting on an idle machine only.
//! Instructions are not time: those that touch rows together (`exec/touch.rs`) save more than they cost, because the processor executes them while it waits for memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::resp::{Client, request};
use support::rng::Rng;
use support::server::{binary, try_start};

/// The commands of a window.
const WINDOW: usize = 16;
/// The keys that are drawn from; each exists before the counting begins.
const KEYS: usize = 1000;
/// The instructions that a round is to have at least, the least number of its windows, and the rounds.
const ROUND: u64 = 30_000_000;
const WINDOWS: usize = 40;
const ROUNDS: usize = 3;
/// For how long the idle server is counted, and how often.
const IDLE: Duration = Duration::from_secs(2);
const IDLE_ROUNDS: usize = 4;
/// By how much a budget may be exceeded, in percent.
const MARGIN: u64 = 10;

/// A command and its budget in instructions. `K`, `M`, `V` and `N` stand for a random key, member, value and number; `KK` for ten
/// keys, `KV` for ten keys with values. The set has every member already: new ones are folded into chunks later, in a round that
/// chance chooses.
const BUDGETS: &[(&str, u64)] = &[
    ("PING", 3_000),
    ("GET K", 6_350),
    ("EXISTS K", 5_950),
    ("SET K V", 10_250),
    ("INCR counter:K", 9_850),
    ("MGET KK", 33_900),
    ("MSET KV", 59_000),
    // A tenth more since deltas are looked for in a page, in a tenth less time: bench/results/2026-11-30-value-cache.md.
    ("SISMEMBER set M", 8_600),
    ("SADD set M", 8_900),
    ("ZADD board N M", 36_000),
    // Between 205 000 and 330 000 in one build: more while members wait to be folded into chunks.
    ("SINTERCARD 2 set other", 360_000),
];

fn key(rng: &mut Rng) -> String {
    format!("key:{:012}", rng.below(KEYS))
}

fn words(shape: &str, rng: &mut Rng) -> Vec<String> {
    let mut out = Vec::new();
    for word in shape.split(' ') {
        match word {
            "K" => out.push(key(rng)),
            "counter:K" => out.push(format!("counter:{}", key(rng))),
            "M" => out.push(format!("member:{}", rng.below(2 * KEYS))),
            "V" => out.push("xxx".to_owned()),
            "N" => out.push(rng.below(1 << 20).to_string()),
            "KK" => out.extend((0..10).map(|_| key(rng))),
            "KV" => out.extend((0..10).flat_map(|_| [key(rng), "xxx".to_owned()])),
            word => out.push(word.to_owned()),
        }
    }
    out
}

fn control(flags: &[&str], pid: u32) {
    let status = Command::new("callgrind_control").args(flags).arg(pid.to_string()).output().unwrap();
    assert!(
        status.status.success(),
        "callgrind_control {flags:?}: {}",
        String::from_utf8_lossy(&status.stderr)
    );
}

/// The instructions of the last dump.
fn counted(dir: &Path, dump: usize) -> u64 {
    let text = std::fs::read_to_string(dir.join(format!("counts.{dump}"))).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
    line.unwrap().trim().parse().unwrap()
}

fn window(client: &mut Client, shape: &str, rng: &mut Rng) {
    let bytes: Vec<u8> = (0..WINDOW).flat_map(|_| request(&words(shape, rng))).collect();
    client.send_raw(&bytes).unwrap();
    for _ in 0..WINDOW {
        assert!(!client.read().unwrap().value.is_error(), "{shape}");
    }
}

#[test]
fn commands_stay_within_their_budgets() {
    if std::env::var_os("TERN_BINARY").is_none() {
        if std::env::var_os("TERN_RELEASE_LATER").is_none() {
            support::skipped(
                "no release build",
                "cargo build --release, then TERN_BINARY=target/release/tern",
            );
        }
        return;
    }
    if support::program("valgrind").is_none() {
        return support::skipped("no valgrind", "apt-get install valgrind");
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--instr-atstart=no"])
        .arg(format!("--callgrind-out-file={}", dir.path().join("counts").display()))
        .arg(binary())
        .args(["--appendfsync", "everysec", "--slowlog-log-slower-than", "-1", "--dir"])
        .arg(&data);
    let server = try_start(command, &dir.path().join("log")).unwrap();
    let (mut client, mut rng) = (server.client(), Rng::new(1));
    for n in 0..KEYS {
        let key = format!("key:{n:012}");
        client.run(&["SET", &key, "xxx"]);
        client.run(&["INCR", &format!("counter:{key}")]);
        client.run(&["SADD", "set", &format!("member:{n}"), &format!("member:{}", KEYS + n)]);
        client.run(&["ZADD", "board", &n.to_string(), &format!("member:{n}")]);
        client.run(&["SADD", "other", &format!("member:{}", 2 * n)]);
    }
    control(&["-i", "on"], server.pid());
    let mut dumps = 0;
    let mut spent = |work: &mut dyn FnMut()| {
        control(&["-z"], server.pid());
        let since = Instant::now();
        work();
        control(&["-d"], server.pid());
        dumps += 1;
        (counted(dir.path(), dumps), since.elapsed().as_secs_f64())
    };
    // The least of several: after the loading, a server has work that it does once.
    let idle = (0..IDLE_ROUNDS).map(|_| spent(&mut || std::thread::sleep(IDLE)));
    let idle = idle.map(|(all, seconds)| all as f64 / seconds).fold(f64::MAX, f64::min);
    let mut exceeded = Vec::new();
    for (shape, budget) in BUDGETS {
        window(&mut client, shape, &mut rng);
        let windows = WINDOWS.max((ROUND / budget) as usize / WINDOW);
        let mut round = || {
            let (all, seconds) =
                spent(&mut || (0..windows).for_each(|_| window(&mut client, shape, &mut rng)));
            all.saturating_sub((idle * seconds) as u64) / (windows * WINDOW) as u64
        };
        let each = (0..ROUNDS).map(|_| round()).min().unwrap();
        support::say(&format!("{shape}: {each} instructions, budget {budget}"));
        if each > budget + budget * MARGIN / 100 {
            exceeded.push(format!("{shape}: {each} instructions, budget {budget}"));
        }
    }
    assert!(exceeded.is_empty(), "{exceeded:#?}");
}
