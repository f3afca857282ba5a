//! CLIENT on real connections: what others see of one, and how one ends another.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::{Duration, Instant};
use support::resp::{Client, Value};
use support::server::tern;

fn string(value: &Value) -> String {
    String::from_utf8(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}")).to_vec()).unwrap()
}

fn error(client: &mut Client, line: &str) -> String {
    let value = client.line(line);
    assert!(value.is_error(), "{line}: {value:?}");
    string(&value)
}

/// The value of `name` in a line of CLIENT LIST.
fn field(line: &str, name: &str) -> String {
    let word = line.split(' ').find_map(|w| w.strip_prefix(&format!("{name}=")));
    word.unwrap_or_else(|| panic!("no {name} in {line}")).to_owned()
}

#[test]
fn a_line_says_what_the_client_is() {
    let server = tern(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    let id = a.line("CLIENT ID").int().unwrap();
    assert_eq!(b.line("CLIENT ID").int().unwrap(), id + 1);
    a.line("CLIENT SETNAME anna");
    a.line("CLIENT SETINFO LIB-NAME my-lib");
    a.line("CLIENT SETINFO lib-ver 1.2");
    a.line("CLIENT NO-EVICT on");
    a.line("SELECT 3");
    a.line("WATCH k");
    a.line("MULTI");
    a.line("SET k v");
    let list = string(&b.line(&format!("CLIENT LIST ID {id}")));
    let line = list.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "one client: {list}");
    let names: Vec<&str> = line.split(' ').map(|w| w.split_once('=').unwrap().0).collect();
    let redis = "id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem multi-mem rbs \
                 rbp obl oll omem tot-mem events cmd user redir resp lib-name lib-ver";
    assert!(names.join(" ").starts_with(redis), "{line}");
    for (name, want) in [
        ("id", id.to_string().as_str()),
        ("addr", &a.address()),
        ("laddr", &format!("127.0.0.1:{}", server.port)),
        ("name", "anna"),
        ("flags", "xe"),
        ("db", "3"),
        ("multi", "1"),
        ("watch", "1"),
        ("cmd", "set"),
        ("user", "default"),
        ("resp", "2"),
        ("lib-name", "my-lib"),
        ("lib-ver", "1.2"),
    ] {
        assert_eq!(field(line, name), want, "{name} in {line}");
    }
    assert_eq!(a.line("DISCARD"), Value::Simple(b"OK".to_vec()));
    a.line("HELLO 3");
    let own = string(&a.line("CLIENT INFO"));
    assert_eq!((field(&own, "resp"), field(&own, "flags")), ("3".to_owned(), "e".to_owned()), "{own}");
}

#[test]
fn names_are_one_word() {
    let server = tern(&[]);
    let mut c = server.client();
    assert_eq!(c.line("CLIENT GETNAME"), Value::Nil(b'$'));
    for name in ["a b", "a\nb", "\u{e9}"] {
        let reply = c.run(&["CLIENT", "SETNAME", name]).value;
        assert_eq!(string(&reply), "ERR Client names cannot contain spaces, newlines or special characters.");
    }
    c.line("CLIENT SETNAME x");
    assert_eq!(string(&c.line("CLIENT GETNAME")), "x");
    assert!(c.run(&["CLIENT", "SETNAME", ""]).value == Value::Simple(b"OK".to_vec()));
    assert_eq!(c.line("CLIENT GETNAME"), Value::Nil(b'$'));
    assert_eq!(error(&mut c, "CLIENT SETINFO foo bar"), "ERR Unrecognized option 'foo'");
}

/// Waits until the server has noticed that a client is gone.
fn wait_for_count(c: &mut Client, want: usize) {
    let since = Instant::now();
    loop {
        let list = string(&c.line("CLIENT LIST"));
        if list.lines().count() == want {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(5), "still {list}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn kill_closes_whom_the_filter_means() {
    let server = tern(&[]);
    let mut judge = server.client();
    let killed = |victim: &mut Client| victim.drain().1;

    let mut victim = server.client();
    victim.line("PING");
    assert_eq!(judge.line(&format!("CLIENT KILL {}", victim.address())), Value::Simple(b"OK".to_vec()));
    assert!(killed(&mut victim));

    let mut victim = server.client();
    let id = victim.line("CLIENT ID").int().unwrap();
    assert_eq!(judge.line(&format!("CLIENT KILL ID {id} TYPE pubsub")).int(), Some(0));
    assert_eq!(judge.line(&format!("CLIENT KILL ID {id} TYPE normal USER default")).int(), Some(1));
    assert!(killed(&mut victim));
    wait_for_count(&mut judge, 1);

    let (mut one, mut two) = (server.client(), server.client());
    one.line("PING");
    two.line("PING");
    assert_eq!(judge.line("CLIENT KILL SKIPME yes LADDR 1.2.3.4:5").int(), Some(0));
    assert_eq!(judge.line("CLIENT KILL TYPE normal").int(), Some(2));
    assert!(killed(&mut one) && killed(&mut two));
    assert_eq!(string(&judge.line("PING")), "PONG");

    assert_eq!(judge.line("CLIENT KILL TYPE normal SKIPME no").int(), Some(1));
    assert!(killed(&mut judge), "a client that kills itself hears the answer first");
}

#[test]
fn kill_refuses_what_it_does_not_understand() {
    let server = tern(&[]);
    let mut c = server.client();
    for (line, want) in [
        ("CLIENT KILL 1.1.1.1:1", "ERR No such client"),
        ("CLIENT KILL ID 0", "ERR client-id should be greater than 0"),
        ("CLIENT KILL TYPE foo", "ERR Unknown client type 'foo'"),
        ("CLIENT KILL USER nobody", "ERR No such user 'nobody'"),
        ("CLIENT KILL SKIPME maybe", "ERR syntax error"),
        ("CLIENT KILL ID 1 TYPE", "ERR syntax error"),
        ("CLIENT LIST ID x", "ERR Invalid client ID"),
        ("CLIENT LIST foo", "ERR syntax error"),
        ("CLIENT NO-EVICT x", "ERR syntax error"),
        ("CLIENT REPLY x", "ERR syntax error"),
        ("CLIENT TRACKING maybe", "ERR syntax error"),
        ("CLIENT MAINT_NOTIFICATIONS ON", "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."),
    ] {
        assert_eq!(error(&mut c, line), want, "{line}");
    }
    // Redis prints them as C's strings. Found by `differential`.
    for (filter, want) in [("USER", "ERR No such user 'x'"), ("TYPE", "ERR Unknown client type 'x'")] {
        let reply = c.run(&[&b"CLIENT"[..], b"KILL", filter.as_bytes(), b"x\0y"]).value;
        assert_eq!(reply, Value::Error(want.into()), "{filter}");
    }
    assert_eq!(c.line("CLIENT UNBLOCK 99").int(), Some(0));
    assert_eq!(c.line("CLIENT GETREDIR").int(), Some(-1));
}

/// The line of client `id`, once `ready` says that it is so.
fn line_when(watcher: &mut Client, id: i64, ready: impl Fn(&str) -> bool) -> String {
    let since = Instant::now();
    loop {
        let line = string(&watcher.line(&format!("CLIENT LIST ID {id}")));
        let line = line.trim_end();
        if ready(line) {
            return line.to_owned();
        }
        assert!(since.elapsed() < Duration::from_secs(20), "still {line}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn number(line: &str, name: &str) -> u64 {
    field(line, name).parse().unwrap()
}

#[test]
fn memory_of_requests_is_shown() {
    let server = tern(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    let id = a.line("CLIENT ID").int().unwrap();
    let own = string(&a.line("CLIENT INFO"));
    assert_eq!(number(&own, "argv-mem"), "CLIENTINFO".len() as u64, "the command that runs: {own}");
    let idle = line_when(&mut b, id, |l| number(l, "argv-mem") == 0);
    assert_eq!((number(&idle, "qbuf"), number(&idle, "multi-mem")), (0, 0), "{idle}");
    assert!(number(&idle, "qbuf-free") > 0, "{idle}");
    a.line("MULTI");
    a.line("SET key value");
    let queued = line_when(&mut b, id, |l| number(l, "multi-mem") > 0);
    assert_eq!(number(&queued, "multi-mem"), "SETkeyvalue".len() as u64, "{queued}");
    let parts = ["qbuf", "qbuf-free", "argv-mem", "multi-mem", "rbs", "omem"];
    let rest = |l: &str| number(l, "tot-mem") - parts.map(|part| number(l, part)).iter().sum::<u64>();
    assert_eq!(rest(&idle), rest(&queued), "tot-mem is the sum\n{idle}\n{queued}");
    a.line("DISCARD");
    let half = b"*2\r\n$4\r\nECHO\r\n$100\r\nabc";
    a.send_raw(half).unwrap();
    let waiting = line_when(&mut b, id, |l| number(l, "qbuf") > 0);
    assert_eq!(number(&waiting, "qbuf"), half.len() as u64, "{waiting}");
    assert_eq!(number(&waiting, "multi-mem"), 0);
    a.send_raw(&[b'x'; 97]).unwrap();
    a.send_raw(b"\r\n").unwrap();
    assert_eq!(a.read().unwrap().value.bytes().unwrap().len(), 100);
    line_when(&mut b, id, |l| number(l, "qbuf") == 0);
}

#[test]
fn memory_of_replies_is_shown() {
    const VALUE: usize = 1 << 20;
    const GETS: usize = 64;
    let server = tern(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    let id = a.line("CLIENT ID").int().unwrap();
    a.run(&[b"SET".to_vec(), b"big".to_vec(), vec![b'v'; VALUE]]);
    let idle = line_when(&mut b, id, |l| number(l, "obl") == 0);
    assert!((5..=number(&idle, "rbs")).contains(&number(&idle, "rbp")), "{idle}");
    assert_eq!((number(&idle, "oll"), number(&idle, "omem"), field(&idle, "events").as_str()), (0, 0, "r"));
    let gets = b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(GETS);
    a.send_raw(&gets).unwrap();
    let slow = line_when(&mut b, id, |l| number(l, "obl") > 0 && number(l, "oll") > 0);
    let (replies, bytes) = (number(&slow, "oll"), number(&slow, "omem"));
    assert!(replies <= GETS as u64 && bytes >= replies * VALUE as u64, "{slow}");
    assert!(bytes < (replies + 1) * VALUE as u64 && number(&slow, "tot-mem") >= bytes, "{slow}");
    assert_eq!(field(&slow, "events"), "w");
    for _ in 0..GETS {
        assert_eq!(a.read().unwrap().value.bytes().unwrap().len(), VALUE);
    }
    let after = line_when(&mut b, id, |l| number(l, "obl") == 0);
    assert_eq!((number(&after, "oll"), number(&after, "omem")), (0, 0), "{after}");
    assert!(number(&after, "tot-mem") < VALUE as u64, "{after}");
}
