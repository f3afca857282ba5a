//! Hazard: a string that takes fifty bytes but is 512 MB long (`SETRANGE k 536870911 x`) makes every command
//! that touches it hold all other clients for seconds, and take gigabytes.
//!
//! While each command runs, three other clients send PING, GET and SET in turn. Their longest wait is
//! bounded, and so is the memory that the server takes meanwhile. The bound of a wait is a multiple of the
//! server's current pace (`support::pace`); `TERN_BINARY` names another build, and `TERN_LONGEST_WAIT_MS` a
//! bound in milliseconds (100 for a release build on two quiet cores).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::others::Others;
use support::pace::pace;
use support::resp::{Client, Value, request};
use support::server::{Server, tern};
use support::{env_number, say};

const MIB: usize = 1 << 20;
const LENGTH: usize = 512 * MIB;
/// The bound of others' waits: this many pipelines of a lone client, and an allowance for the machine. They
/// wait 5 to 30 ms on two quiet cores.
const TIMES: u32 = 24;
const FLOOR: Duration = Duration::from_millis(40);
/// MiB that the server may take beyond its memory at the start: 2 at most if nothing is written; twice the
/// measured growth of these.
const MEMORY: usize = 16;
const MEMORY_OF: [(&str, usize); 2] = [("BITOP NOT dst short", 200), ("RESTORE of a bomb", 40)];
/// A busy machine may be slow once; a server that holds others is slow each time.
const TRIES: usize = 5;

/// A server, and its memory at the start.
struct Target {
    server: Server,
    begin: usize,
}

impl Target {
    fn longest_wait(&self) -> Duration {
        let said = env_number("TERN_LONGEST_WAIT_MS").map(Duration::from_millis);
        said.unwrap_or_else(|| pace(&mut self.client()) * TIMES + FLOOR)
    }
}

impl std::ops::Deref for Target {
    type Target = Server;
    fn deref(&self) -> &Server {
        &self.server
    }
}

fn server() -> Target {
    let server = tern(&["--appendfsync", "no", "--store-cache-size", "64mb"]);
    let mut client = server.client();
    for key in ["sparse", "other"] {
        assert_eq!(client.line(&format!("SETRANGE {key} 536870911 x")), Value::Int(LENGTH as i64));
    }
    assert_eq!(client.line("SETRANGE middle 99999999 x"), Value::Int(100_000_000));
    assert_eq!(client.line("SADD set sparse other"), Value::Int(2));
    let begin = server.resident();
    Target { server, begin }
}

/// A reply that is not kept: its first line, and the number of bytes in its bulk strings.
struct Answer {
    line: String,
    bulks: usize,
    /// The number of non-zero bytes.
    others: usize,
}

/// Runs commands on a connection of its own, and reads the replies as fast as possible.
fn ask(server: &Server, requests: &[&[&str]]) -> Vec<Answer> {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut input = BufReader::with_capacity(MIB, stream.try_clone().unwrap());
    let mut stream = stream;
    for argv in requests {
        stream.write_all(&request(argv)).unwrap();
    }
    requests.iter().map(|_| answer(&mut input)).collect()
}

fn answer(input: &mut BufReader<TcpStream>) -> Answer {
    let mut line = String::new();
    input.read_line(&mut line).unwrap();
    let line = line.trim_end().to_owned();
    let (mut bulks, mut others) = (0, 0);
    let number = line[1..].parse::<i64>().unwrap_or(-1);
    match line.as_bytes()[0] {
        b'$' if number >= 0 => (bulks, others) = (1, skip(input, number as usize)),
        b'*' => {
            for _ in 0..number {
                let one = answer(input);
                (bulks, others) = (bulks + one.bulks, others + one.others);
            }
        }
        _ => {}
    }
    Answer { line, bulks, others }
}

fn skip(input: &mut BufReader<TcpStream>, mut bytes: usize) -> usize {
    let mut others = 0;
    while bytes > 0 {
        let there = input.fill_buf().unwrap();
        assert!(!there.is_empty(), "the connection was closed");
        let some = there.len().min(bytes);
        let parts = there[..some].chunks(4096).filter(|c| c[0] != 0 || c[..c.len() - 1] != c[1..]);
        others += parts.flatten().filter(|b| **b != 0).count();
        input.consume(some);
        bytes -= some;
    }
    let mut end = [0; 2];
    input.read_exact(&mut end).unwrap();
    assert_eq!(&end, b"\r\n");
    others
}

/// Runs `attack` beside others, and fails if they waited or the server grew. Retries if the machine may be at
/// fault.
fn measured(server: &Target, name: &str, mut attack: impl FnMut(&Server) -> String) {
    let memory = MEMORY_OF.iter().find(|(of, _)| *of == name).map_or(MEMORY, |(_, mib)| *mib) * MIB;
    for left in (0..TRIES).rev() {
        let longest = server.longest_wait();
        let others = Others::start(server);
        let since = Instant::now();
        let answered = attack(server);
        let took = since.elapsed();
        let (waited, peak) = others.stop();
        let grown = peak.saturating_sub(server.begin);
        say(&format!(
            "{name}: {took:.1?}, others waited: {waited} of {longest:.1?}, {} MiB, {answered}",
            grown / MIB
        ));
        if waited.longest() < longest && grown < memory {
            return;
        }
        assert!(left > 0, "{name}: others waited: {waited} of {longest:.1?}, {grown} bytes");
    }
}

fn all_are_harmless(lines: &[(&str, &str)]) {
    let server = server();
    for (line, want) in lines {
        let argv: Vec<&str> = line.split(' ').collect();
        measured(&server, line, |server| {
            let line = ask(server, &[&argv]).remove(0).line;
            assert!(line.starts_with(want), "{argv:?}: {line}");
            line
        });
    }
}

#[test]
fn reads_of_a_string_of_zeroes() {
    all_are_harmless(&[
        ("GET sparse", "$536870912"),
        ("GETRANGE sparse 0 -2", "$536870911"),
        ("SUBSTR sparse 5 -1", "$536870907"),
        ("DUMP sparse", "$536870928"),
        ("MGET sparse other sparse", "*3"),
        ("DIGEST sparse", "$16"),
        ("PFCOUNT sparse", "-WRONGTYPE"),
        ("PFCOUNT other sparse", "-WRONGTYPE"),
        ("BITCOUNT sparse", ":4"),
        ("BITPOS sparse 1", ":4294967289"),
        ("GETEX sparse PERSIST", "$536870912"),
        ("LCS sparse missing", "-ERR Insufficient memory"),
        ("LCS middle missing", "$0"),
        ("SORT set BY nosort GET *", "*2"),
        ("SORT set BY * ALPHA", "-ERR the values that BY or GET reads"),
    ]);
}

#[test]
fn writes_of_a_string_of_zeroes() {
    all_are_harmless(&[
        ("PFADD sparse x", "-WRONGTYPE"),
        ("PFMERGE new sparse", "-WRONGTYPE"),
        ("DELEX sparse IFEQ x", ":0"),
        ("DELEX sparse IFDEQ 0123456789abcdef", ":0"),
        ("SET sparse x IFDEQ 0123456789abcdef", "$-1"),
        ("COPY sparse copied REPLACE", ":1"),
        ("BITFIELD sparse SET u8 #0 1 SET u8 #99999 2 GET u8 #5", "*3"),
        ("BITOP OR dst sparse other", ":536870912"),
        ("BITOP AND dst sparse other", ":536870912"),
        ("BITOP XOR dst sparse sparse", ":536870912"),
        ("BITOP DIFF dst sparse other", ":536870912"),
        ("BITOP DIFF1 dst other sparse", ":536870912"),
        ("BITOP ANDOR dst sparse other sparse", ":536870912"),
        ("BITOP ONE dst sparse sparse other", ":536870912"),
        ("GETSET copied x", "$"),
        ("GETDEL other", "$"),
    ]);
}

/// A result of ones only, which exceeds a transaction, from an argument of zeroes only. Shorter than the
/// others, because it is written.
#[test]
fn the_opposite_of_zeroes_is_built() {
    let server = server();
    let mut client = server.client();
    assert_eq!(client.line("SETRANGE short 100000000 x"), Value::Int(100_000_001));
    measured(&server, "BITOP NOT dst short", |server| {
        ask(server, &[&["BITOP", "NOT", "dst", "short"]]).remove(0).line
    });
    assert_eq!(client.line("STRLEN dst"), Value::Int(100_000_001));
    assert_eq!(client.line("BITCOUNT dst"), Value::Int(100_000_001 * 8 - 4));
    assert_eq!(client.line("BITCOUNT dst 100000000 100000000"), Value::Int(4));
    // After a command that creates its source, in one pipeline.
    let pipeline: [&[&str]; 3] =
        [&["SETRANGE", "made", "50000000", "x"], &["BITOP", "NOT", "dst", "made"], &["BITCOUNT", "dst"]];
    let answers: Vec<String> = ask(&server, &pipeline).into_iter().map(|a| a.line).collect();
    assert_eq!(answers, [":50000001", ":50000001", ":400000004"]);
}

/// A payload that expands to 512 MB of zeroes.
fn bomb() -> Vec<u8> {
    let mut packed = vec![0, 0];
    let (times, rest) = ((LENGTH - 1) / 264, (LENGTH - 1) % 264);
    packed.extend((0..times).flat_map(|_| [0xe0, 255, 0]));
    packed.extend((0..rest).flat_map(|_| [0, 0]));
    let mut payload = vec![0, 0xc3, 0x80];
    payload.extend((packed.len() as u32).to_be_bytes());
    payload.push(0x80);
    payload.extend((LENGTH as u32).to_be_bytes());
    payload.extend(packed);
    payload.extend(10u16.to_le_bytes());
    let sum = payload.iter().fold(0u64, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { crc >> 1 }
        })
    });
    payload.extend(sum.to_le_bytes());
    payload
}

#[test]
fn a_bomb_is_restored() {
    let server = server();
    let mut client = server.client();
    let payload = bomb();
    client.set_timeout(Duration::from_secs(120));
    measured(&server, "RESTORE of a bomb", |_| {
        let reply = client.run(&[&b"RESTORE"[..], b"restored", b"0", &payload, b"REPLACE"]).value;
        assert_eq!(reply, Value::Simple(b"OK".to_vec()));
        format!("{} bytes", payload.len())
    });
    assert_eq!(client.line("STRLEN restored"), Value::Int(LENGTH as i64));
    assert_eq!(client.line("BITCOUNT restored"), Value::Int(0));
    let mut broken = payload.clone();
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let reply = client.run(&[&b"RESTORE"[..], b"broken", b"0", &broken]).value;
    assert_eq!(reply, Value::Error(b"ERR DUMP payload version or checksum are wrong".to_vec()));
}

fn filled(client: &mut Client, key: &str, mib: usize) {
    for n in 0..mib {
        let part: Vec<u8> = (0..MIB).map(|i| (i * 31 + n * 7) as u8 | 1).collect();
        client.run(&[&b"APPEND"[..], key.as_bytes(), &part]);
    }
}

/// A string without zeroes is streamed at its original version, though it changes while it is read.
#[test]
fn a_slow_reader_gets_the_version_it_asked_for() {
    let server = server();
    let mut client = server.client();
    filled(&mut client, "full", 64);
    let whole = client.line("DIGEST full");
    let held = server.resident();
    let mut slow = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    slow.write_all(&request(&["GET", "full"])).unwrap();
    // Longer than any transaction lives, without a change: no copy is kept.
    std::thread::sleep(Duration::from_secs(7));
    assert!(server.resident().saturating_sub(held) < 24 * MIB, "the rest must not be held");
    client.line("SETRANGE full 60000000 changed");
    client.line("DEL full");
    std::thread::sleep(Duration::from_secs(3));
    let mut input = BufReader::with_capacity(MIB, slow);
    let mut head = String::new();
    input.read_line(&mut head).unwrap();
    assert_eq!(head, format!("${}\r\n", 64 * MIB));
    let mut came = vec![0; 64 * MIB];
    input.read_exact(&mut came).unwrap();
    for (n, part) in came.chunks(MIB).enumerate() {
        client.run(&[&b"APPEND"[..], b"again", part]);
        assert!(part.iter().enumerate().all(|(i, b)| *b == (i * 31 + n * 7) as u8 | 1), "MiB {n}");
    }
    assert_eq!(client.line("DIGEST again"), whole);
}

/// Unread long strings do not keep the server from stopping.
#[test]
fn a_server_stops_while_strings_are_being_sent() {
    let mut server = server();
    let mut stalled = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stalled.write_all(&request(&["MGET", "sparse", "other"])).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(server.server.terminate());
}

/// A transaction's replies include its own writes.
#[test]
fn an_execs_replies_show_its_own_writes() {
    let server = server();
    let exec: [&[&str]; 6] = [
        &["MULTI"],
        &["SETRANGE", "sparse", "100000", "yyyy"],
        &["GETRANGE", "sparse", "0", "200000"],
        &["GET", "other"],
        &["SETRANGE", "sparse", "100000", "\0\0\0\0"],
        &["EXEC"],
    ];
    let answers = ask(&server, &exec);
    let last = answers.last().unwrap();
    assert_eq!((last.line.as_str(), last.bulks), ("*4", 2));
    assert_eq!(last.others, 4 + 1);
}

/// A call that its lane defers has looked up its keys there too: that lookup does not count.
#[test]
fn a_deferred_call_counts_its_lookups_once() {
    let server = server();
    let mut client = server.client();
    client.line("CONFIG RESETSTAT");
    let pipeline: [&[&str]; 2] = [&["SET", "quick", "v"], &["BITOP", "OR", "dst", "middle", "missing"]];
    assert_eq!(ask(&server, &pipeline)[1].line, ":100000000");
    let Value::Bulk(info) = client.line("INFO stats") else { panic!("no INFO") };
    let info = String::from_utf8(info).unwrap();
    assert!(info.contains("keyspace_hits:1\r\n") && info.contains("keyspace_misses:1\r\n"), "{info}");
}
