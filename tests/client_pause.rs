//! CLIENT PAUSE holds back the selected commands, in their order, until it ends.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::{Duration, Instant};
use support::resp::Value;
use support::server::{Server, tern};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}"))).into_owned()
}

/// Waits until `n` clients are paused.
fn wait_for_blocked(server: &Server, want: usize) {
    let (mut admin, since) = (server.client(), Instant::now());
    let line = format!("blocked_clients:{want}\r\n");
    while !text(&admin.line("INFO clients")).contains(&line) {
        assert!(since.elapsed() < Duration::from_secs(5), "{}", text(&admin.line("INFO clients")));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How long to watch a client that must not be answered.
const A_WHILE: Duration = Duration::from_millis(100);

#[test]
fn writers_wait_and_readers_do_not() {
    let server = tern(&[]);
    let (mut admin, mut writer, mut reader) = (server.client(), server.client(), server.client());
    admin.line("SET k old");
    assert_eq!(admin.line("CLIENT PAUSE 60000 WRITE"), ok());
    writer.send_raw(b"GET k\r\nGET k\r\nSET k new\r\nGET k\r\n").unwrap();
    assert_eq!(text(&writer.read().unwrap().value), "old", "commands before the write are answered");
    assert_eq!(text(&writer.read().unwrap().value), "old");
    wait_for_blocked(&server, 1);
    assert!(text(&admin.line("CLIENT LIST")).contains(" flags=b "), "{}", text(&admin.line("CLIENT LIST")));
    assert_eq!(text(&reader.line("GET k")), "old");
    assert_eq!(text(&reader.line("SET k")), "ERR wrong number of arguments for 'set' command");
    assert_eq!(admin.line("CLIENT UNPAUSE"), ok());
    assert_eq!(writer.read().unwrap().value, ok());
    assert_eq!(text(&writer.read().unwrap().value), "new");
    wait_for_blocked(&server, 0);
}

#[test]
fn commands_that_may_write_wait_too() {
    let server = tern(&[]);
    let mut admin = server.client();
    admin.line("PFADD h a");
    admin.line("CLIENT PAUSE 60000 WRITE");
    let (mut count, mut once) = (server.client(), server.client());
    count.send_raw(b"PFCOUNT h\r\n").unwrap();
    once.send_raw(b"IDEMPOTENT 0123456789abcdef SET k v\r\n").unwrap();
    wait_for_blocked(&server, 2);
    admin.line("CLIENT UNPAUSE");
    assert_eq!(count.read().unwrap().value.int(), Some(1));
    assert!(!once.read().unwrap().value.is_error());
}

#[test]
fn an_exec_that_writes_waits() {
    let server = tern(&[]);
    let (mut admin, mut reads, mut writes) = (server.client(), server.client(), server.client());
    admin.line("SET k v");
    writes.line("MULTI");
    assert_eq!(writes.line("SET k w"), Value::Simple(b"QUEUED".to_vec()));
    admin.line("CLIENT PAUSE 60000 WRITE");
    for line in ["MULTI", "GET k"] {
        reads.line(line);
    }
    assert_eq!(text(&reads.line("EXEC").items().unwrap()[0]), "v");
    writes.send_raw(b"EXEC\r\n").unwrap();
    wait_for_blocked(&server, 1);
    assert!(writes.is_silent(A_WHILE));
    admin.line("CLIENT UNPAUSE");
    assert_eq!(writes.read().unwrap().value.items(), Some(&[ok()][..]));
}

#[test]
fn a_pause_begins_right_after_its_own_transaction() {
    let server = tern(&[]);
    let (mut admin, mut other) = (server.client(), server.client());
    for line in ["MULTI", "SET a 1", "CLIENT PAUSE 60000 WRITE", "SET b 1"] {
        admin.line(line);
    }
    assert_eq!(admin.line("EXEC").items(), Some(&[ok(), ok(), ok()][..]));
    other.send_raw(b"SET c 1\r\n").unwrap();
    wait_for_blocked(&server, 1);
    assert_eq!(admin.line("EXISTS a b c").int(), Some(2));
    admin.line("CLIENT UNPAUSE");
    assert_eq!(other.read().unwrap().value, ok());
    other.send_raw(b"CLIENT PAUSE 60000 WRITE\r\nSET d 1\r\n").unwrap();
    assert_eq!(other.read().unwrap().value, ok());
    assert!(other.is_silent(A_WHILE));
    admin.line("CLIENT UNPAUSE");
    assert_eq!(other.read().unwrap().value, ok());
}

#[test]
fn all_commands_wait_until_the_pause_ends() {
    let server = tern(&[]);
    let (mut admin, mut one, mut two) = (server.client(), server.client(), server.client());
    let since = Instant::now();
    admin.line("CLIENT PAUSE 300");
    admin.line("CLIENT PAUSE 100 WRITE");
    one.send_raw(b"PING\r\n").unwrap();
    two.send_raw(b"MULTI\r\n").unwrap();
    assert_eq!(one.read().unwrap().value, Value::Simple(b"PONG".to_vec()));
    assert_eq!(two.read().unwrap().value, ok());
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(300), "the longer and stricter pause wins: {took:?}");
    admin.line("CLIENT PAUSE 60000 ALL");
    one.send_raw(b"PING\r\n").unwrap();
    assert!(one.is_silent(A_WHILE));
    assert_eq!(admin.line("CLIENT UNPAUSE"), ok(), "the pausing client can end the pause");
    assert_eq!(one.read().unwrap().value, Value::Simple(b"PONG".to_vec()));
}

#[test]
fn paused_clients_can_be_killed_and_do_not_block_shutdown() {
    let mut server = tern(&[]);
    let (mut admin, mut victim, mut other) = (server.client(), server.client(), server.client());
    let id = victim.line("CLIENT ID").int().unwrap();
    admin.line("CLIENT PAUSE 60000 WRITE");
    victim.send_raw(b"SET k v\r\n").unwrap();
    other.send_raw(b"SET k v\r\n").unwrap();
    wait_for_blocked(&server, 2);
    assert_eq!(admin.line(&format!("CLIENT KILL ID {id} 999999")).int(), Some(1));
    assert!(victim.drain().1, "closed");
    wait_for_blocked(&server, 1);
    assert_eq!(admin.line("EXISTS k").int(), Some(0), "the command did not run");
    assert!(server.terminate());
}

/// A held command runs with the rights that its user has when the pause ends, as in Redis.
#[test]
fn a_paused_command_is_checked_again_if_rights_changed() {
    let server = tern(&[]);
    let mut admin = server.client();
    let no_command = |name: &str| format!("NOPERM this user has no permissions to run the '{name}' command");
    let no_key = "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned();
    let id = "0123456789abcdef";
    for (n, (change, held, want)) in [
        ("-set", "SET k evil", no_command("set")),
        ("resetkeys ~x", "SET k evil", no_key.clone()),
        ("resetkeys %R~k", "DEL k", no_key.clone()),
        ("-@all +get", "FLUSHALL", no_command("flushall")),
        ("-idempotent", &format!("IDEMPOTENT {id} SET k evil"), no_command("idempotent")),
        ("-set", &format!("IDEMPOTENT {id} SET k evil"), no_command("set")),
        ("resetkeys", "SINTERSTORE k a b", no_key.clone()),
        // A command that runs on its own, outside a window.
        ("-restore", "RESTORE k 0 x", no_command("restore")),
        (
            "resetchannels",
            "PUBLISH c evil",
            "NOPERM this user has no permissions to access one of the channels used as arguments".into(),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        admin.line("SET k good");
        admin.line("ACL SETUSER bob reset on >pw +@all ~* &*");
        let mut bob = server.client();
        bob.line("AUTH bob pw");
        admin.line("CLIENT PAUSE 60000 WRITE");
        // Replies before, between and after it keep their order.
        bob.send_raw(format!("GET k\r\n{held}\r\nGET\r\n{held}\r\nPING\r\n").as_bytes()).unwrap();
        assert_eq!(text(&bob.read().unwrap().value), "good");
        wait_for_blocked(&server, 1);
        assert_eq!(admin.line(&format!("ACL SETUSER bob {change} +ping")), ok());
        admin.line("CLIENT UNPAUSE");
        assert_eq!(text(&bob.read().unwrap().value), want, "{n}: {change}: {held}");
        assert!(text(&bob.read().unwrap().value).starts_with("ERR wrong number"), "{n}");
        assert_eq!(text(&bob.read().unwrap().value), want, "{n}: {change}: {held}");
        assert_eq!(bob.read().unwrap().value, Value::Simple(b"PONG".to_vec()), "{n}");
        assert_eq!(text(&admin.line("GET k")), "good", "{n}: {change}: {held}");
    }
}

#[test]
fn a_paused_exec_is_checked_again_if_rights_changed() {
    let server = tern(&[]);
    let mut admin = server.client();
    for (change, want) in
        [("-set", "ACLs rules changed"), ("-exec", "no permissions to run the 'exec' command")]
    {
        admin.line("ACL SETUSER bob reset on >pw +@all ~*");
        let mut bob = server.client();
        for line in ["AUTH bob pw", "MULTI", "SET k evil", "PING"] {
            bob.line(line);
        }
        admin.line("CLIENT PAUSE 60000 WRITE");
        bob.send_raw(b"EXEC\r\n").unwrap();
        wait_for_blocked(&server, 1);
        admin.line(&format!("ACL SETUSER bob {change}"));
        admin.line("CLIENT UNPAUSE");
        let reply = bob.read().unwrap().value;
        let first = reply.items().map_or(&reply, |items| &items[0]);
        assert!(text(first).contains(want), "{change}: {reply:?}");
        assert_eq!(admin.line("EXISTS k").int(), Some(0), "{change}");
        assert_eq!(
            bob.line("PING"),
            Value::Simple(b"PONG".to_vec()),
            "{change}: the transaction is discarded"
        );
    }
}

#[test]
fn expired_keys_are_absent_and_stay_until_the_end() {
    let server = tern(&[]);
    let mut c = server.client();
    for line in ["MULTI", "SET a 1 PX 10", "SET b 1 PX 10", "CLIENT PAUSE 60000 WRITE", "EXEC"] {
        c.line(line);
    }
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(c.line("EXISTS a b").int(), Some(0));
    assert!(text(&c.line("INFO stats")).contains("\nexpired_keys:0\r\n"));
    c.line("CLIENT UNPAUSE");
    let since = Instant::now();
    while !text(&c.line("INFO stats")).contains("\nexpired_keys:2\r\n") {
        assert!(since.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn wrong_pause_arguments_are_refused() {
    let server = tern(&[]);
    let mut c = server.client();
    for (line, want) in [
        ("CLIENT PAUSE abc", "ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "ERR timeout is negative"),
        ("CLIENT PAUSE 9223372036854775807", "ERR timeout is out of range"),
        ("CLIENT PAUSE abc FOO", "ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT UNPAUSE x", "ERR wrong number of arguments for 'client|unpause' command"),
    ] {
        assert_eq!(text(&c.line(line)), want, "{line}");
    }
}
