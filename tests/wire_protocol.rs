//! Bytes in, bytes out: frames in pieces, pipelines, inline commands, and every protocol error with Redis'
//! text, which is compared with a live redis-server if one is installed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::{Duration, Instant};
use support::resp::{Client, Value, request, text};
use support::server::{Server, redis, tern};

/// All replies to `raw`, and whether the server then closed.
fn exchange(server: &Server, raw: &[u8]) -> (Vec<u8>, bool) {
    let mut client = server.client();
    client.set_timeout(Duration::from_millis(500));
    let _ = client.send_raw(raw);
    std::thread::sleep(Duration::from_millis(if raw.len() > 10_000 { 200 } else { 0 }));
    // The reply to a following command shows that the connection lives; a closed one does not answer.
    let _ = client.send_raw(b"*2\r\n$4\r\nECHO\r\n$9\r\nthe-end-!\r\n");
    let mut all = Vec::new();
    let end = b"$9\r\nthe-end-!\r\n";
    loop {
        let (bytes, closed) = client.drain();
        all.extend_from_slice(&bytes);
        if all.ends_with(end) {
            all.truncate(all.len() - end.len());
            return (all, false);
        }
        if closed || bytes.is_empty() {
            return (all, closed);
        }
    }
}

/// The request, its reply, and whether the connection is closed.
fn protocol_table() -> Vec<(Vec<u8>, &'static [u8], bool)> {
    let long = |first: &[u8]| [first, &[b'1'; 70_000][..]].concat();
    vec![
        (b"*-1\r\nPING\r\n".to_vec(), b"+PONG\r\n", false),
        (b"*0\r\n\r\n\n  \r\nPING\r\n".to_vec(), b"+PONG\r\n", false),
        (b"*1\rX$4\rYPINGzz".to_vec(), b"+PONG\r\n", false),
        (b"*a\r\n".to_vec(), b"-ERR Protocol error: invalid multibulk length\r\n", true),
        (b"*+1\r\n".to_vec(), b"-ERR Protocol error: invalid multibulk length\r\n", true),
        (b"*01\r\n".to_vec(), b"-ERR Protocol error: invalid multibulk length\r\n", true),
        (b"*2147483648\r\n".to_vec(), b"-ERR Protocol error: invalid multibulk length\r\n", true),
        (b"*1\r\n\r\n".to_vec(), b"-ERR Protocol error: expected '$', got ' '\r\n", true),
        (b"*1\r\n*1\r\n".to_vec(), b"-ERR Protocol error: expected '$', got '*'\r\n", true),
        (b"*2\r\n$4\r\nPING\r\n:1\r\n".to_vec(), b"-ERR Protocol error: expected '$', got ':'\r\n", true),
        (b"*1\r\n\xff\r\n".to_vec(), b"-ERR Protocol error: expected '$', got '\xff'\r\n", true),
        (b"*1\r\n$-1\r\n".to_vec(), b"-ERR Protocol error: invalid bulk length\r\n", true),
        (b"*1\r\n$x\r\n".to_vec(), b"-ERR Protocol error: invalid bulk length\r\n", true),
        (b"*1\r\n$536870913\r\n".to_vec(), b"-ERR Protocol error: invalid bulk length\r\n", true),
        (b"*1\r\n$9223372036854775808\r\n".to_vec(), b"-ERR Protocol error: invalid bulk length\r\n", true),
        (b"ECHO \"a\r\n".to_vec(), b"-ERR Protocol error: unbalanced quotes in request\r\n", true),
        (b"ECHO 'a'b\r\n".to_vec(), b"-ERR Protocol error: unbalanced quotes in request\r\n", true),
        (
            b"PING\r\n*x\r\nPING\r\n".to_vec(),
            b"+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n",
            true,
        ),
        (long(b"*"), b"-ERR Protocol error: too big mbulk count string\r\n", true),
        (long(b"*1\r\n$"), b"-ERR Protocol error: too big bulk count string\r\n", true),
        (long(b"A"), b"-ERR Protocol error: too big inline request\r\n", true),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n".to_vec(), b"", true),
        (b"quit now\r\nPING\r\n".to_vec(), b"+OK\r\n", true),
        (b"echo 'it\\'s' \r\n".to_vec(), b"$4\r\nit's\r\n", false),
        (b"echo \"\\x41\\n\\\"b\"\r\n".to_vec(), b"$4\r\nA\n\"b\r\n", false),
        (b"ECHO \"\"\n".to_vec(), b"$0\r\n\r\n", false),
        (b"foo a 'b\r\n".to_vec(), b"-ERR Protocol error: unbalanced quotes in request\r\n", true),
        (
            b"foo a b\r\n".to_vec(),
            b"-ERR unknown command 'foo', with args beginning with: 'a' 'b' \r\n",
            false,
        ),
        (b"foo\r\n".to_vec(), b"-ERR unknown command 'foo', with args beginning with: \r\n", false),
        (
            b"\"fo\\r\\nx\" \"a\\r\\nb\" \"c\\x00d\"\r\n".to_vec(),
            b"-ERR unknown command 'fo  x', with args beginning with: 'a  b' 'c' \r\n",
            false,
        ),
        (b"get\r\n".to_vec(), b"-ERR wrong number of arguments for 'get' command\r\n", false),
        (b"GET a b\r\n".to_vec(), b"-ERR wrong number of arguments for 'get' command\r\n", false),
        (b"client\r\n".to_vec(), b"-ERR wrong number of arguments for 'client' command\r\n", false),
        (b"client foo\r\n".to_vec(), b"-ERR unknown subcommand 'foo'. Try CLIENT HELP.\r\n", false),
        (b"client KILL\r\n".to_vec(), b"-ERR wrong number of arguments for 'client|kill' command\r\n", false),
    ]
}

#[test]
fn protocol_errors_in_redis_words() {
    let tern = tern(&[]);
    for (raw, expected, closes) in protocol_table() {
        let got = exchange(&tern, &raw);
        assert_eq!(text(&got.0), text(expected), "{}", text(&raw));
        assert_eq!(got.1, closes, "closed after {}", text(&raw));
    }
}

#[test]
fn a_live_redis_answers_with_the_same_errors() {
    let Some(redis) = redis("the texts of protocol errors") else { return };
    for (raw, expected, closes) in protocol_table() {
        let got = exchange(&redis, &raw);
        assert_eq!(text(&got.0), text(expected), "{}", text(&raw));
        assert_eq!(got.1, closes, "closed after {}", text(&raw));
    }
}

#[test]
fn the_arguments_quoted_for_an_unknown_command_are_cut_as_by_redis() {
    let tern = tern(&[]);
    let Some(redis) = redis("unknown commands") else { return };
    let many = vec!["a"; 100].join(" ");
    for line in [
        "f".repeat(200),
        format!("foo {}", "a".repeat(200)),
        format!("foo {many}"),
        format!("x {} b", "a".repeat(127)),
    ] {
        let raw = format!("{line}\r\n");
        assert_eq!(exchange(&tern, raw.as_bytes()), exchange(&redis, raw.as_bytes()), "{line}");
    }
}

#[test]
fn before_auth_requests_must_be_small() {
    let tern = tern(&["--requirepass", "secret"]);
    let cases: &[(&[u8], &[u8], bool)] = &[
        (b"*11\r\n", b"-ERR Protocol error: unauthenticated multibulk length\r\n", true),
        (b"*1\r\n$16385\r\n", b"-ERR Protocol error: unauthenticated bulk length\r\n", true),
    ];
    for (raw, expected, closes) in cases {
        assert_eq!(exchange(&tern, raw), (expected.to_vec(), *closes), "{}", text(raw));
    }
    // AUTH in the same packet lifts the limit for the commands after it.
    let mut client = tern.client();
    let big = vec![b'x'; 20_000];
    let both = [request(&["AUTH", "secret"]), request(&[&b"ECHO"[..], &big])].concat();
    client.send_raw(&both).unwrap();
    assert_eq!(client.read().unwrap().value, Value::Simple(b"OK".to_vec()));
    assert_eq!(client.read().unwrap().value, Value::Bulk(big));
}

/// A pipeline of all request forms.
fn mixed() -> (Vec<u8>, Vec<u8>) {
    let raw = b"*1\r\n$4\r\nPING\r\nECHO 'a b'\r\n*0\r\n\r\n*2\r\n$4\r\nECHO\r\n$6\r\n\r\n$1\r\n\r\n*2\r\n$4\r\necho\r\n$0\r\n\r\n\nPING\n";
    (raw.to_vec(), b"+PONG\r\n$3\r\na b\r\n$6\r\n\r\n$1\r\n\r\n$0\r\n\r\n+PONG\r\n".to_vec())
}

#[test]
fn frames_arrive_byte_by_byte() {
    let tern = tern(&[]);
    let (raw, expected) = mixed();
    let mut client = tern.client();
    for byte in &raw {
        client.send_raw(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_micros(300));
    }
    assert_eq!(text(&read_exactly(&mut client, expected.len())), text(&expected));
}

#[test]
fn frames_are_cut_anywhere() {
    let tern = tern(&[]);
    let (raw, expected) = mixed();
    let mut client = tern.client();
    for cut in 1..raw.len() {
        client.send_raw(&raw[..cut]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        client.send_raw(&raw[cut..]).unwrap();
        assert_eq!(text(&read_exactly(&mut client, expected.len())), text(&expected), "cut at {cut}");
    }
}

fn read_exactly(client: &mut Client, n: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < n {
        all.extend_from_slice(&client.read().unwrap().raw);
    }
    all
}

#[test]
fn a_long_pipeline_is_answered_in_order() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let n = 20_000;
    let raw: Vec<u8> = (0..n).flat_map(|i| request(&["ECHO", &i.to_string()])).collect();
    let mut sender = tern.client();
    std::mem::swap(&mut sender, &mut client);
    sender.send_raw(&raw).unwrap();
    for i in 0..n {
        assert_eq!(sender.read().unwrap().value, Value::Bulk(i.to_string().into_bytes()));
    }
}

#[test]
fn errors_keep_their_place_in_a_pipeline() {
    let tern = tern(&[]);
    let mut client = tern.client();
    client.send_raw(b"PING\r\nfoo\r\nPING\r\nget\r\nMULTI\r\nPING\r\nEXEC\r\nPING\r\n").unwrap();
    let kinds: Vec<u8> = (0..8).map(|_| client.read().unwrap().raw[0]).collect();
    assert_eq!(kinds, b"+-+-++*+");
}

#[test]
fn nested_arrays_are_refused_at_the_first_level() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let _ = client.send_raw(&b"*1\r\n".repeat(100_000));
    let (answer, closed) = client.drain();
    assert!(closed);
    // The rest of the flood may reset the connection before the answer is read.
    assert!(answer.is_empty() || answer == b"-ERR Protocol error: expected '$', got '*'\r\n");
    assert_eq!(tern.client().line("PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn announced_lengths_allocate_nothing() {
    let tern = tern(&[]);
    let before = tern.resident();
    let mut clients: Vec<Client> = (0..200).map(|_| tern.client()).collect();
    for client in &mut clients {
        client.send_raw(b"*2147483647\r\n$536870912\r\nxx").unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    let grown = tern.resident().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes");
    assert_eq!(tern.client().line("PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn a_large_argument_in_small_pieces_costs_linear_time() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let n = 64 << 20;
    let start = Instant::now();
    client.send_raw(format!("*2\r\n$4\r\nECHO\r\n${n}\r\n").as_bytes()).unwrap();
    let piece = vec![b'\r'; 16 << 10];
    for _ in 0..n / piece.len() {
        client.send_raw(&piece).unwrap();
    }
    client.send_raw(b"\r\n").unwrap();
    let mut left = n + 8 + n.to_string().len() - 3;
    client.set_timeout(Duration::from_millis(2000));
    while left > 0 {
        let (bytes, closed) = client.drain();
        assert!(!closed && !bytes.is_empty(), "{left} bytes are missing");
        left = left.saturating_sub(bytes.len());
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn an_array_of_many_arguments_costs_linear_time() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let n = 300_000;
    let mut raw = format!("*{}\r\n$6\r\nEXISTS\r\n", n + 1).into_bytes();
    (0..n).for_each(|_| raw.extend_from_slice(b"$1\r\nk\r\n"));
    let start = Instant::now();
    for piece in raw.chunks(1000) {
        client.send_raw(piece).unwrap();
    }
    assert_eq!(client.read().unwrap().value, Value::Int(0));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn resp3_is_spoken_after_hello_and_resp2_again_after_reset() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let Value::Array(flat) = client.line("HELLO") else { panic!("RESP2 must show maps as arrays") };
    assert_eq!(flat.len(), 14);
    let Value::Map(map) = client.line("HELLO 3") else { panic!("RESP3 has maps") };
    let name = |n: usize| map[2 * n].bytes().unwrap().to_vec();
    let names: Vec<Vec<u8>> = (0..7).map(name).collect();
    assert_eq!(names, [&b"server"[..], b"version", b"proto", b"id", b"mode", b"role", b"modules"]);
    assert_eq!(map[5], Value::Int(3));
    assert_eq!(client.run(&["GET", "missing"]).raw, b"_\r\n");
    assert!(matches!(client.line("SADD s a"), Value::Int(1)));
    assert_eq!(client.run(&["SMEMBERS", "s"]).raw, b"~1\r\n$1\r\na\r\n");
    assert!(client.run(&["CONFIG", "GET", "port"]).raw.starts_with(b"%1\r\n"));
    assert!(client.run(&["INFO", "server"]).raw.starts_with(b"="));
    // In one packet: each reply uses the protocol in force after it.
    client
        .send_raw(
            b"GET missing\r\nHELLO 2\r\nGET missing\r\nHELLO 3\r\nGET missing\r\nRESET\r\nGET missing\r\n",
        )
        .unwrap();
    let raw: Vec<Vec<u8>> = (0..7).map(|_| client.read().unwrap().raw).collect();
    assert_eq!(raw[0], b"_\r\n");
    assert!(raw[1].starts_with(b"*14\r\n") && raw[3].starts_with(b"%7\r\n"));
    assert_eq!(raw[2], b"$-1\r\n");
    assert_eq!(raw[4], b"_\r\n");
    assert_eq!(raw[5], b"+RESET\r\n");
    assert_eq!(raw[6], b"$-1\r\n");
}
