//! Hazard: the disk is full, and a write that was acknowledged is gone, one that was refused is there, reads fail too, or the server
//! stays broken when there is space again.

use crate::ARGS;
use crate::disk::Disk;
use crate::history::{self, State};
use crate::room::Room;
use crate::support::resp::{Client, Value};
use crate::support::rng::Rng;
use crate::support::say;
use crate::support::server::{Server, assert_sound, tern_command, tern_in, try_start};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How soon writes must go on after there is space.
const RECOVERY: Duration = Duration::from_secs(20);
/// More steps than there is space for.
const STEPS: usize = 20_000;

/// Steps until one fails: how many were acknowledged, and the error.
fn fill(client: &mut Client, from: usize) -> (usize, String) {
    for n in from..STEPS {
        if let Err(e) = history::step(client, n) {
            return (n - 1, e);
        }
    }
    panic!("the disk does not fill");
}

fn read(server: &Server) -> (usize, State) {
    history::read(&mut server.client()).unwrap_or_else(|e| panic!("reads go on: {e}\n{}", server.log()))
}

fn info(server: &Server, field: &str) -> String {
    let value = server.client().line("INFO everything");
    let text = String::from_utf8(value.bytes().unwrap().to_vec()).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field}")).to_owned()
}

/// Writes are refused with the reason, at once; reads are answered, and right.
fn refuses_and_reads(server: &Server, acknowledged: usize) {
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        let Value::Error(line) = server.client().line("SET more v") else {
            panic!("a full disk takes a write")
        };
        let line = String::from_utf8(line).unwrap();
        assert!(line.starts_with("MISCONF") && line.contains("writing to the store"), "{line}");
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        history::judge(&read(server), acknowledged, acknowledged).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(info(server, "aof_last_write_status"), "err");
    assert_eq!(info(server, "store_read_only"), "1");
}

/// Waits until writes go on; the number of steps that are there then.
fn recovered(server: &Server, acknowledged: usize) -> usize {
    let since = Instant::now();
    while server.client().line("SET more v").is_error() {
        assert!(since.elapsed() < RECOVERY, "writes stay refused\n{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    say(&format!("  writes again {:.1?} after there was space", since.elapsed()));
    let found = read(server);
    history::judge(&found, acknowledged, acknowledged + 1).unwrap();
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
    // In doubt is only what was on its way: refused, which is sure, or unknown.
    assert!(error.contains("MISCONF") || error.contains("commit result unknown"), "{error}");
    refuses_and_reads(&server, acknowledged);
    room.free(&server);
    let there = recovered(&server, acknowledged);
    assert!(there == acknowledged || error.contains("unknown"), "a refused step was applied");
    history::steps(&mut server.client(), there + 1, there + 100);
    server.kill();
    let server = tern_in(&room.dir(), &ARGS);
    history::judge(&read(&server), there + 100, there + 100).unwrap();
    drop(server);
    assert_sound(&room.dir(), &ARGS);
}

/// Nothing can be opened without space; with space everything is there.
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
                    refused.said.contains("cannot open") && refused.said.contains("No space left"),
                    "{refused:?}"
                );
            }
            Ok(server) => history::judge(&read(&server), acknowledged, acknowledged + 1).unwrap(),
        }
        std::fs::remove_file(room.dir().with_file_name("ballast")).unwrap();
    }
    let server = tern_in(&room.dir(), &ARGS);
    history::judge(&read(&server), acknowledged, most.max(acknowledged + 1)).unwrap();
    drop(server);
    assert_sound(&room.dir(), &ARGS);
}

/// How long a server may need for its next answer once there is room: RocksDB tries again every five seconds.
const ANSWER: Duration = Duration::from_secs(20);
/// How long there is no room for tables. Writers wait by then: 0.6 MB fill the memory for them.
const FULL: Duration = Duration::from_millis(1500);
const WRITERS: usize = 3;
const WRITES: usize = 12;
const SMALL_TABLES: [&str; 2] = ["--store-write-buffer-size", "64kb"];

fn incompressible(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.next() as u8).collect()
}

/// Writes once; what it was refused with.
fn write_once(client: &mut Client, key: &str, value: &[u8]) -> Option<String> {
    let reply = client.try_run(&[b"SET", key.as_bytes(), value]).unwrap_or_else(|e| panic!("SET {key}: {e}"));
    let Value::Error(line) = reply.value else { return None };
    let line = String::from_utf8(line).unwrap();
    assert!(line.starts_with("MISCONF") || line.contains("commit result unknown"), "{line}");
    Some(line)
}

/// Writes until it is taken.
fn write(client: &mut Client, key: &str, value: &[u8]) {
    while write_once(client, key, value).is_some() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The disk has no room for tables for a moment, and meanwhile writers wait for tables to be written: they are answered, all of them.
#[test]
fn writers_who_wait_for_a_full_disk_are_answered() {
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
        assert!((1..WRITERS * WRITES / 2).contains(&written), "nobody waits: {written} writes");
        disk.free();
        Instant::now()
    });
    say(&format!("writers who wait for a full disk: answered {:.1?} after there was room", freed.elapsed()));
    assert_eq!(server.client().line("DBSIZE"), Value::Int((WRITERS * WRITES) as i64));
    drop(server);
    assert_sound(&disk.dir(), &ARGS);
}
