//! Redis' own test suite, of the release that the differential test uses, in its mode for external servers.
//!
//! The suite is not part of this repository: `TERN_TCL_SUITE` or the cache of the CI script has Redis'
//! sources; without them the test is skipped with a message. Each of [`UNITS`] runs on a server of its own.
//! `skipped.txt` lists the tests that cannot pass, each with a reason; a name that no unit knows fails the
//! test. The suite itself omits tests that it marks as not for external servers; some of those can run, so
//! [`EDITS`] removes the mark. Names of encodings and DEBUG DIGEST, which concern Redis' own memory, are not
//! compared (`--ignore-encoding`, `--ignore-digest`): OBJECT ENCODING has tests of its own, and
//! `differential` compares values.
//!
//! `TERN_TCL_UNITS=unit/type/set,unit/scan` runs some units only and shows their output.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod outcome;
mod skips;
#[path = "../support/mod.rs"]
mod support;

use outcome::Outcome;
use skips::Skips;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use support::server::tern;
use support::{program, say, skipped, suite};

/// The units, and the minimum number of passed tests of each: as many as pass today. The long ones come
/// first: two run at a time.
const UNITS: [(&str, usize); 40] = [
    ("unit/type/zset", 304),
    ("unit/geo", 59),
    ("unit/type/list", 236),
    ("unit/scripting", 247),
    ("unit/functions", 86),
    ("unit/type/stream", 70),
    ("unit/type/stream-cgroups", 45),
    ("unit/type/list-2", 2),
    ("unit/type/list-3", 4),
    ("unit/type/hash", 71),
    ("unit/type/set", 98),
    ("unit/keyspace", 53),
    ("unit/expire", 60),
    ("unit/hyperloglog", 20),
    ("unit/bitops", 43),
    ("unit/scan", 17),
    ("unit/multi", 38),
    ("unit/protocol", 24),
    ("unit/type/string", 71),
    ("unit/type/incr", 23),
    ("unit/quit", 3),
    ("unit/bitfield", 16),
    ("unit/dump", 10),
    ("unit/sort", 51),
    ("unit/info", 0),
    ("unit/introspection-2", 42),
    ("unit/introspection", 18),
    ("unit/acl", 71),
    ("unit/acl-v2", 28),
    ("unit/slowlog", 14),
    ("unit/latency-monitor", 13),
    ("unit/pubsub", 29),
    ("unit/pubsubshard", 9),
    ("unit/auth", 2),
    ("unit/querybuf", 0),
    ("unit/limits", 1),
    ("unit/networking", 0),
    ("unit/pause", 13),
    ("unit/tracking", 50),
    ("unit/other", 17),
];

/// Text replaced once. Some units mark their first server as not external without need; if a skipped test
/// would have prepared the next one, the edit does that; and a test that relies on one thread reading its
/// connections in the order of their requests waits until the first was served.
const EDITS: [(&str, &str, &str); 24] = [
    // An option of Redis' own files.
    ("unit/type/stream", "aof-use-rdb-preamble no", ""),
    ("unit/type/stream-cgroups", "aof-use-rdb-preamble no", ""),
    ("unit/type/stream-cgroups", "aof-use-rdb-preamble no", ""),
    ("unit/acl", "external:skip", ""),
    ("unit/acl-v2", "external:skip", ""),
    ("unit/auth", "external:skip", ""),
    ("unit/pubsubshard", "external:skip", ""),
    ("unit/limits", "external:skip", ""),
    (
        "unit/acl-v2",
        "test {Test general keyspace commands require some type of permission to execute} {",
        "test {Test general keyspace commands require some type of permission to execute} {\n \
         r ACL setuser command-test +@all %R~read* %W~write* %RW~rw*\n",
    ),
    ("unit/pubsub", "        unsubscribe $rd1\n        assert_equal 0", UNSUBSCRIBED),
    ("unit/pubsub", "        punsubscribe $rd1\n        assert_equal 0", PUNSUBSCRIBED),
    ("unit/pubsubshard", "        sunsubscribe $rd1\n        assert_equal 0", SUNSUBSCRIBED),
    // Tern evicts entries of the tracking table without a clock that could be stopped.
    ("unit/tracking", "r debug pause-cron 1", ""),
    ("unit/tracking", "r debug pause-cron 0", "set _ OK"),
    (
        "unit/acl-v2",
        "test {Existence test commands are not marked as access} {",
        "test {Existence test commands are not marked as access} {\n \
         r ACL setuser command-test +@all %R~read* %W~write* %RW~rw*\n",
    ),
    // A push is answered before the client that waits has run its command.
    (
        "unit/type/list",
        "r rpush list1{t} foo\n\n      assert_equal {foo} [r lrange list1{t} 0 -1]",
        "r rpush list1{t} foo\n after 500\n assert_equal {foo} [r lrange list1{t} 0 -1]",
    ),
    (
        "unit/type/list",
        "r rpush list1{t} foo\n\n      assert_equal {} [r lrange list1{t} 0 -1]",
        "r rpush list1{t} foo\n after 500\n assert_equal {} [r lrange list1{t} 0 -1]",
    ),
    (
        "unit/type/list",
        "r lpush srclist{t} element\n        $watching_client exec\n",
        "r lpush srclist{t} element\n after 500\n $watching_client exec\n",
    ),
    (
        "unit/type/stream-cgroups",
        "r XADD mystream * f2 v2\n            set grpinfo [r xinfo",
        "r XADD mystream * f2 v2\n assert_equal {f2 v2} [lindex [$rd read] 0 1 0 1]\n set grpinfo [r xinfo",
    ),
    // The client that sent first need not be the one that is served or waits first.
    (
        "unit/type/stream-cgroups",
        "STREAMS mystream \"$\"\n        r DEL mystream\n",
        "STREAMS mystream \"$\"\n wait_for_blocked_clients_count 1\n r DEL mystream\n",
    ),
    (
        "unit/type/stream-cgroups",
        "STREAMS mystream \"$\"\n        r SET mystream val1\n",
        "STREAMS mystream \"$\"\n wait_for_blocked_clients_count 1\n r SET mystream val1\n",
    ),
    ("unit/type/list", BOTH_WAIT.0, BOTH_WAIT.1),
    ("unit/sort", "\"set-max-intset-entries\" 32", ""),
    ("unit/keyspace", "test {MOVE basic usage} {", "test {MOVE basic usage} {\n r flushdb\n"),
];

/// What prepares Redis' nodes of a list, which Tern's do not have; replaced everywhere.
const NODES: (&str, &str, &str) =
    ("unit/type/list", "r debug quicklist-packed-threshold", "r client setname");

/// On a cluster, invalidations pass through the store and arrive once the server has read them there, which
/// may be after its next reply.
const EDITS_ON_A_CLUSTER: [(&str, &str, &str); 1] = [(
    "unit/tracking",
    "$rd_sg INCR key1\n        set inv_msg [r PING]\n        set ping_reply",
    "$rd_sg INCR key1\n after 1000\n set inv_msg [r PING]\n set ping_reply",
)];

const BOTH_WAIT: (&str, &str) = (
    "$rd1 brpoplpush blist{t} target1{t} 0\n        $rd2 brpoplpush blist{t} target2{t} 0\n",
    "$rd1 brpoplpush blist{t} target1{t} 0\n wait_for_blocked_clients_count 1\n \
     $rd2 brpoplpush blist{t} target2{t} 0\n wait_for_blocked_clients_count 2\n",
);
const UNSUBSCRIBED: &str = "unsubscribe $rd1\n $rd1 read\n $rd1 read\n $rd1 read\n assert_equal 0";
const PUNSUBSCRIBED: &str = "punsubscribe $rd1\n $rd1 read\n $rd1 read\n $rd1 read\n assert_equal 0";
const SUNSUBSCRIBED: &str = "sunsubscribe $rd1\n $rd1 read\n $rd1 read\n $rd1 read\n assert_equal 0";

/// Topics other than commands: replication, persistence files, eviction.
const TAGS: &str = "-needs:repl -needs:save -needs:config-maxmemory -large-memory";

/// The time limit in seconds of a unit, and of one of its tests.
const UNIT_TIME: u64 = 400;
const TEST_TIME: u64 = 200;
/// The factor of these limits on a cluster: some tests send tens of thousands of commands one after the
/// other, and each is a commit of several milliseconds there.
const ON_A_CLUSTER: u64 = 10;

/// Concurrent servers.
const AT_ONCE: usize = 2;

#[test]
fn redis_own_suite_passes() {
    let how =
        "the sources of Debian's package redis, unpacked where TERN_TCL_SUITE says; the CI script does that";
    let Some(tclsh) = program("tclsh") else {
        return skipped("Redis' own test suite: no tclsh", "apt-get install tcl");
    };
    let Some(sources) = sources() else { return skipped("Redis' own test suite: not found", how) };
    let skips = Skips::read(include_str!("skipped.txt"));
    let wanted = std::env::var("TERN_TCL_UNITS").ok();
    let units: Vec<&str> = match &wanted {
        Some(names) => names.split(',').collect(),
        None => UNITS.iter().map(|(unit, _)| *unit).collect(),
    };
    let queue = Mutex::new(units.iter());
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let next = || queue.lock().unwrap().next().copied();
                while let Some(unit) = next() {
                    let outcome = run(&tclsh, &sources, unit, &skips);
                    outcomes.lock().unwrap().push((unit, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by_key(|(unit, _)| units.iter().position(|u| u == unit));
    report(&outcomes, wanted.is_some());
    let failed: Vec<String> = outcomes.iter().flat_map(|(unit, o)| o.failures(unit)).collect();
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    let met: BTreeSet<&str> =
        outcomes.iter().flat_map(|(_, o)| o.skipped.iter().map(String::as_str)).collect();
    let stale: Vec<&str> = skips.names(&units).filter(|name| !met.contains(name)).collect();
    assert!(
        wanted.is_some() || stale.is_empty(),
        "skipped.txt names tests that the suite does not have: {stale:?}"
    );
    let least = |unit: &str| UNITS.iter().find(|(name, _)| *name == unit).map_or(0, |(_, least)| *least);
    let fewer = outcomes.iter().filter(|(unit, o)| o.passed < least(unit));
    let fewer: Vec<String> =
        fewer.map(|(unit, o)| format!("{unit}: {} of {}", o.passed, least(unit))).collect();
    assert!(fewer.is_empty(), "fewer tests passed than the minimum: {}", fewer.join(", "));
}

fn sources() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    let named = std::env::var_os("TERN_TCL_SUITE").map(PathBuf::from);
    let places = [named, cache.map(|c| c.join("tern/redis-suite"))];
    places.into_iter().flatten().find(|place| place.join("tests/test_helper.tcl").is_file())
}

/// Runs one unit on a new server.
fn run(tclsh: &Path, sources: &Path, unit: &str, skips: &Skips) -> Outcome {
    if skips.of(unit).any(|name| name == skips::ALL) {
        return Outcome::left_out();
    }
    let home = tempfile::tempdir().unwrap();
    copy(&sources.join("tests"), &home.path().join("tests"));
    let on_a_cluster = if support::fdb_cluster::wanted() { &EDITS_ON_A_CLUSTER[..] } else { &[] };
    for (_, from, to) in EDITS.iter().chain(on_a_cluster).filter(|(of, ..)| *of == unit) {
        edit(&home.path().join("tests").join(unit).with_extension("tcl"), from, to, 1);
    }
    if unit == NODES.0 {
        edit(&home.path().join("tests").join(unit).with_extension("tcl"), NODES.1, NODES.2, usize::MAX);
    }
    let list = home.path().join("skipped");
    std::fs::write(&list, skips.of(unit).collect::<Vec<_>>().join("\n")).unwrap();
    let server = tern(&["--appendfsync", "no", "--enable-debug-command", "yes"]);
    let said = home.path().join("said");
    let output = std::fs::File::create(&said).unwrap();
    let mut command = Command::new(tclsh);
    command
        .current_dir(home.path())
        .args(["tests/test_helper.tcl", "--host", "127.0.0.1", "--port", &server.port.to_string()])
        .args(["--single", unit, "--durable", "--ignore-encoding", "--ignore-digest", "--skipfile"])
        .arg(&list)
        .args([
            "--tags",
            TAGS,
            "--timeout",
            &patience(TEST_TIME).to_string(),
            "--baseport",
            &support::server::free_port().to_string(),
        ])
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output);
    let ended = wait(command);
    let said = std::fs::read(&said).unwrap();
    Outcome::read(&String::from_utf8_lossy(&said), ended)
}

fn patience(seconds: u64) -> u64 {
    if support::fdb_cluster::wanted() { seconds * ON_A_CLUSTER } else { seconds }
}

/// Whether it ended in time.
fn wait(mut command: Command) -> bool {
    let mut child = command.spawn().unwrap();
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(patience(UNIT_TIME)) {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// A copy of the suite without the tests of modules, Sentinel and Cluster.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if ["modules", "moduleapi", "sentinel"].iter().any(|left_out| name == *left_out) {
            continue;
        }
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            std::fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

fn edit(unit: &Path, from: &str, to: &str, times: usize) {
    let text = String::from_utf8_lossy(&std::fs::read(unit).unwrap()).into_owned();
    assert!(text.contains(from), "{unit:?} has no {from:?}");
    std::fs::write(unit, text.replacen(from, to, times)).unwrap();
}

fn report(outcomes: &[(&str, Outcome)], whole: bool) {
    say("Redis' own test suite    passed  failed  skipped  not for external servers, or by tag");
    for (unit, o) in outcomes {
        let (failed, skipped) = (o.failed.len(), o.skipped.len());
        say(&format!("  {unit:<22} {:>6} {failed:>7} {skipped:>8} {:>8}", o.passed, o.left_out));
        if whole {
            say(&o.text);
        }
    }
    for (unit, o) in outcomes {
        let name = unit.replace(['/', '-'], "_");
        suite(&format!("tcl_{name}"), o.passed, o.failed.len());
    }
}
