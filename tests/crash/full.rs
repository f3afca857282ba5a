//! Hazard: the disk is full, and an acknowledged write is lost, a refused one is applied, reads fail too, or
//! the server stays broken once there is space again.

use crate::ARGS;
use crate::disk::Disk;
use crate::history::{self, State};
use crate::room::{Mount, Room};
use crate::support::resp::{Client, Value};
use crate::support::rng::Rng;
use crate::support::server::{Server, assert_sound, tern_command, tern_in, try_start};
use crate::support::{say, skipped};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How soon writes must resume once there is space.
const RECOVERY: Duration = Duration::from_secs(20);
/// More steps than fit.
const STEPS: usize = 20_000;

/// Runs steps until one fails; returns the number acknowledged and the error.
fn fill(client: &mut Client, from: usize) -> (usize, String) {
    for n in from..STEPS {
        if let Err(e) = history::step(client, n) {
            return (n - 1, e);
        }
    }
    panic!("the disk must fill up");
}

fn read(server: &Server) -> (usize, State) {
    history::read(&mut server.client())
        .unwrap_or_else(|e| panic!("reads must still work: {e}\n{}", server.log()))
}

fn info(server: &Server, field: &str) -> String {
    let value = server.client().line("INFO everything");
    let text = String::from_utf8(value.bytes().unwrap().to_vec()).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field}")).to_owned()
}

/// Checks that writes are refused at once with the reason, and that reads are answered correctly.
fn refuses_and_reads(server: &Server, acknowledged: usize) {
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        let Value::Error(line) = server.client().line("SET more v") else {
            panic!("a full disk must refuse a write")
        };
        let line = String::from_utf8(line).unwrap();
        assert!(line.starts_with("MISCONF") && line.contains("writing to the store"), "{line}");
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        history::check(&read(server), acknowledged, acknowledged).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(info(server, "aof_last_write_status"), "err");
    assert_eq!(info(server, "store_read_only"), "1");
}

/// Waits until writes resume; returns the number of steps stored then.
fn recovered(server: &Server, acknowledged: usize) -> usize {
    let since = Instant::now();
    while server.client().line("SET more v").is_error() {
        assert!(since.elapsed() < RECOVERY, "writes stay refused\n{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    say(&format!("  writes again {:.1?} after there was space", since.elapsed()));
    let found = read(server);
    history::check(&found, acknowledged, acknowledged + 1).unwrap();
    found.0
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let Some(room) = Room::new(home.path()) else { return };
    let log = home.path().join("server.log");
    let mut server = room.start(&log);
    let mut client = server.client();
    let (acknowledged, error) = fill(&mut client, 1);
    say(&format!("a full disk ({}): full after {acknowledged} steps: {error}", room.name()));
    // The outcome of the step under way is either refused, which is certain, or unknown.
    assert!(error.contains("MISCONF") || error.contains("commit result unknown"), "{error}");
    refuses_and_reads(&server, acknowledged);
    room.free(&server);
    let there = recovered(&server, acknowledged);
    assert!(there == acknowledged || error.contains("unknown"), "a refused step must not be applied");
    history::steps(&mut server.client(), there + 1, there + 100);
    server.kill();
    let server = tern_in(&room.dir(), &ARGS);
    history::check(&read(&server), there + 100, there + 100).unwrap();
    drop(server);
    assert_sound(&room.dir(), &ARGS);
}

/// Without space nothing can be opened; with space everything is there.
#[test]
fn a_server_that_starts_on_a_full_disk_says_so_or_serves() {
    let home = tempfile::tempdir().unwrap();
    let Some(room) = Room::new(home.path()) else { return };
    let log = home.path().join("server.log");
    let mut server = room.start(&log);
    let (acknowledged, error) = fill(&mut server.client(), 1);
    let most = acknowledged + usize::from(error.contains("unknown"));
    server.kill();
    if let Room::Disk { .. } = room {
        match try_start(tern_command(&room.dir(), &ARGS), &log) {
            Err(refused) => {
                say(&format!("  started on a full disk: {}", refused.said));
                assert_eq!(refused.status, Some(1));
                assert!(
                    ["cannot open", "No space left", "free "].iter().all(|s| refused.said.contains(s)),
                    "{refused:?}"
                );
            }
            Ok(server) => history::check(&read(&server), acknowledged, acknowledged + 1).unwrap(),
        }
        std::fs::remove_file(room.dir().with_file_name("ballast")).unwrap();
    }
    let server = tern_in(&room.dir(), &ARGS);
    history::check(&read(&server), acknowledged, most.max(acknowledged + 1)).unwrap();
    drop(server);
    assert_sound(&room.dir(), &ARGS);
}

/// How soon a waiting writer must be answered once there is room: RocksDB retries every five seconds.
const ANSWER: Duration = Duration::from_secs(20);
/// How long there is no room for tables. Writers wait by then: 0.6 MB fill the memtables.
const FULL: Duration = Duration::from_millis(1500);
const WRITERS: usize = 3;
const WRITES: usize = 12;
const SMALL_TABLES: [&str; 2] = ["--store-write-buffer-size", "64kb"];

fn incompressible(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.next() as u8).collect()
}

/// Writes once; returns the error.
fn write_once(client: &mut Client, key: &str, value: &[u8]) -> Option<String> {
    let reply = client.try_run(&[b"SET", key.as_bytes(), value]).unwrap_or_else(|e| panic!("SET {key}: {e}"));
    let Value::Error(line) = reply.value else { return None };
    let line = String::from_utf8(line).unwrap();
    assert!(line.starts_with("MISCONF") || line.contains("commit result unknown"), "{line}");
    Some(line)
}

/// Retries a write until it succeeds.
fn write(client: &mut Client, key: &str, value: &[u8]) {
    while write_once(client, key, value).is_some() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The disk has no room for tables for a moment, and writers wait for tables to be written: all of them are
/// answered.
#[test]
fn writers_waiting_for_a_full_disk_are_answered() {
    let home = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::new(home.path()) else { return };
    let server = disk.start(&SMALL_TABLES);
    let value = incompressible(&mut Rng::new(7), 200_000);
    let written = AtomicUsize::new(0);
    disk.fill(".sst");
    let freed = std::thread::scope(|threads| {
        for writer in 0..WRITERS {
            let (server, value, written) = (&server, &value, &written);
            threads.spawn(move || {
                let mut client = server.client();
                client.set_timeout(FULL + ANSWER);
                for n in 0..WRITES {
                    write(&mut client, &format!("{writer}:{n}"), value);
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(FULL);
        let written = written.load(Ordering::Relaxed);
        assert!((1..WRITERS * WRITES / 2).contains(&written), "writers must wait: {written} writes");
        disk.free();
        Instant::now()
    });
    say(&format!("writers waiting for a full disk: answered {:.1?} after there was room", freed.elapsed()));
    assert_eq!(server.client().line("DBSIZE"), Value::Int((WRITERS * WRITES) as i64));
    drop(server);
    assert_sound(&disk.dir(), &ARGS);
}

/// The filler takes more of it than compaction ever asks for (24 to 45 MB were seen).
const LITTLE: u64 = 160 << 20;
/// Room for logs and new tables, but for less than half of what is compacted with them.
const LEFT: u64 = 8 << 20;
const KEYS: usize = 1800;
const VALUE: usize = 10_000;

/// Room for what a start writes: the contents of the logs as tables, and little more.
const START: u64 = 6 << 20;
/// How soon a write is refused: writers that wait for tables after six seconds.
const REFUSED: Duration = Duration::from_secs(10);

/// Fills the disk up to `left` bytes.
fn fill_up(file: &Path, left: u64) {
    let mut file = std::fs::File::options().append(true).create(true).open(file).unwrap();
    let block = [1; 64 << 10];
    while file.write_all(&block).is_ok() {}
    file.set_len(file.metadata().unwrap().len().saturating_sub(left)).unwrap();
}

fn shrink(file: &Path, by: u64) {
    let file = std::fs::File::options().write(true).open(file).unwrap();
    let bytes = file.metadata().unwrap().len();
    let left = bytes
        .checked_sub(by)
        .unwrap_or_else(|| panic!("the filler has only {bytes} of the {by} bytes to free"));
    file.set_len(left).unwrap();
}

fn set_any(client: &mut Client, rng: &mut Rng) -> Option<String> {
    let (key, value) = (format!("key:{}", rng.below(KEYS)), incompressible(rng, VALUE));
    write_once(client, &key, &value)
}

/// Writes until compaction would need more room than there is; returns the refusal. Space that compaction
/// frees is filled too.
fn until_no_room(server: &Server, rng: &mut Rng, filler: &Path) -> String {
    let (since, mut client) = (Instant::now(), server.client());
    client.set_timeout(ANSWER);
    for n in 0.. {
        assert!(since.elapsed() < RECOVERY, "no write is refused\n{}", server.log());
        if n % 64 == 0 {
            fill_up(filler, LEFT);
        }
        let asked = Instant::now();
        let refused = set_any(&mut client, rng);
        assert!(asked.elapsed() < REFUSED, "{:?}: {refused:?}", asked.elapsed());
        match refused {
            Some(line) if line.contains("no room for compaction") => return line,
            // While a compaction uses up the rest.
            Some(line) => assert!(line.contains("No space left") || line.contains("unknown"), "{line}"),
            None => {}
        }
    }
    unreachable!()
}

/// Writes until one is refused: a server that has just started accepts some.
fn until_refused(server: &Server, rng: &mut Rng) -> String {
    let since = Instant::now();
    while since.elapsed() < RECOVERY {
        if let Some(refusal) = set_any(&mut server.client(), rng) {
            return refusal;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("no write is refused\n{}", server.log())
}

/// The space that the error tells the operator to free.
fn megabytes_to_free(refusal: &str) -> u64 {
    let (_, more) = refusal.split_once("Free ").unwrap();
    more.split_once(" MB more").unwrap().0.parse().unwrap()
}

/// Hazard: nothing says why writes are refused or how much room is missing, or writes stay refused once that
/// much is free.
#[test]
fn a_disk_without_room_for_compaction_says_how_much_is_missing() {
    let home = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::new(&home.path().join("small"), LITTLE) else {
        return skipped("a disk without room for compaction: cannot mount a tmpfs", "run as root");
    };
    let (dir, filler) = (mount.path().join("data"), mount.path().join("filler"));
    let args = [&ARGS[..], &SMALL_TABLES].concat();
    let (mut server, mut rng) = (tern_in(&dir, &args), Rng::new(3));
    let mut client = server.client();
    for n in 0..KEYS {
        assert_eq!(write_once(&mut client, &format!("key:{n}"), &incompressible(&mut rng, VALUE)), None);
    }
    let refusal = until_no_room(&server, &mut rng, &filler);
    say(&format!("no room for compaction: {refusal}"));
    assert!(info(&server, "store_refusal").contains("no room for compaction"));
    assert!(server.whole_log().contains("no room for compaction"), "{}", server.log());
    assert_eq!(server.client().line("STRLEN key:7"), Value::Int(VALUE as i64), "reads must still work");
    shrink(&filler, megabytes_to_free(&refusal) << 20);
    let freed = Instant::now();
    write(&mut server.client(), "more", b"v");
    say(&format!("  writes again {:.1?} after there was room", freed.elapsed()));
    assert!(freed.elapsed() < RECOVERY, "{}", server.log());
    for n in 0..100 {
        assert_eq!(set_any(&mut server.client(), &mut rng), None, "write {n}\n{}", server.log());
    }
    assert_eq!(info(&server, "store_refusal"), "");
    // With room for its own writes, a server starts there and serves reads.
    until_no_room(&server, &mut rng, &filler);
    assert!(server.terminate(), "{}", server.log());
    fill_up(&filler, START);
    let server = tern_in(&dir, &args);
    let refusal = until_refused(&server, &mut rng);
    assert!(refusal.contains("no room for compaction"), "{refusal}");
    assert_eq!(server.client().line("STRLEN key:7"), Value::Int(VALUE as i64), "reads must still work");
    shrink(&filler, megabytes_to_free(&refusal) << 20);
    write(&mut server.client(), "more", b"v");
    drop(server);
    std::fs::remove_file(&filler).unwrap();
    let server = tern_in(&dir, &args);
    write(&mut server.client(), "more", b"v");
    drop(server);
    assert_sound(&dir, &ARGS);
}
