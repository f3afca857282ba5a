//! CLIENT on real connections: what others see of a client, and how one ends another.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::{Duration, Instant};
use support::resp::{Client, Value};
use support::server::{Server, tern};

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
fn a_line_describes_its_client() {
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
    let info = "cannot contain spaces, newlines or special characters.";
    for (line, want) in [
        ("CLIENT SETINFO lib-name x\ny", format!("ERR lib-name {info}")),
        ("CLIENT SETINFO LIB-NAME x\x7f", format!("ERR LIB-NAME {info}")),
        ("CLIENT SETINFO Lib-Ver \u{e9}", format!("ERR Lib-Ver {info}")),
    ] {
        assert_eq!(error(&mut c, line), want);
    }
    let (long, longer) = ("x".repeat(1024), "x".repeat(1025));
    assert_eq!(c.run(&["CLIENT", "SETNAME", &long]).value, Value::Simple(b"OK".to_vec()));
    assert_eq!(
        string(&c.run(&["CLIENT", "SETNAME", &longer]).value),
        "ERR Client names cannot be longer than 1024 bytes: this one has 1025"
    );
    assert_eq!(string(&c.line("CLIENT GETNAME")), long, "the old name must stay");
}

/// Waits until the server has noticed that a client has gone.
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
fn kill_closes_the_clients_its_filter_selects() {
    let server = tern(&[]);
    let mut admin = server.client();
    let killed = |victim: &mut Client| victim.drain().1;

    let mut victim = server.client();
    victim.line("PING");
    assert_eq!(admin.line(&format!("CLIENT KILL {}", victim.address())), Value::Simple(b"OK".to_vec()));
    assert!(killed(&mut victim));

    let mut victim = server.client();
    let id = victim.line("CLIENT ID").int().unwrap();
    assert_eq!(admin.line(&format!("CLIENT KILL ID {id} TYPE pubsub")).int(), Some(0));
    assert_eq!(admin.line(&format!("CLIENT KILL ID {id} TYPE normal USER default")).int(), Some(1));
    assert!(killed(&mut victim));
    wait_for_count(&mut admin, 1);

    let (mut one, mut two) = (server.client(), server.client());
    one.line("PING");
    two.line("PING");
    assert_eq!(admin.line("CLIENT KILL SKIPME yes LADDR 1.2.3.4:5").int(), Some(0));
    assert_eq!(admin.line("CLIENT KILL TYPE normal").int(), Some(2));
    assert!(killed(&mut one) && killed(&mut two));
    assert_eq!(string(&admin.line("PING")), "PONG");
    let mut three = server.client();
    let three_id = three.line("CLIENT ID").int().unwrap();
    admin.send_raw(format!("CLIENT KILL ID {three_id}\r\n").repeat(2).as_bytes()).unwrap();
    let counts: Vec<Value> = (0..2).map(|_| admin.read().unwrap().value).collect();
    assert_eq!(counts, [Value::Int(1), Value::Int(0)], "it is killed once");

    assert_eq!(admin.line("CLIENT KILL TYPE normal SKIPME no").int(), Some(1));
    assert!(killed(&mut admin), "a client that kills itself must get the reply first");
}

/// Three kinds of clients, named by a letter each: a plain one, a subscriber, and one of another user.
struct Kinds([(char, Client, i64); 3]);

impl Kinds {
    fn connect(server: &Server) -> Self {
        Kinds(['p', 'l', 'b'].map(|name| {
            let mut client = server.client();
            let id = client.line("CLIENT ID").int().unwrap();
            match name {
                'l' => drop(client.line("SUBSCRIBE channel")),
                'b' => drop(client.line("AUTH bob x")),
                _ => {}
            }
            (name, client, id)
        }))
    }

    /// `line` with `@p` replaced by client ids, `%p` by client addresses, and `%here` by the server's
    /// address.
    fn filled_in(&self, line: &str, server: &Server) -> String {
        let here = line.replace("%here", &format!("127.0.0.1:{}", server.port));
        self.0.iter().fold(here, |line, (name, client, id)| {
            line.replace(&format!("@{name}"), &id.to_string()).replace(&format!("%{name}"), &client.address())
        })
    }

    /// The letters of the clients that still answer.
    fn alive(&mut self) -> String {
        self.0
            .iter_mut()
            .filter_map(|(name, client, _)| client.try_run(&["PING"]).ok().map(|_| *name))
            .collect()
    }
}

#[test]
fn kill_closes_clients_that_meet_all_conditions() {
    let server = tern(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on nopass +@all ~* &*");
    for (filter, left) in [
        ("ID @p", "lb"),
        ("ID @p @l", "b"),
        ("ID @p ID @l", "pb"),
        ("ID 99999999", "plb"),
        ("TYPE pubsub", "pb"),
        ("TYPE normal SKIPME yes", "l"),
        ("TYPE master", "plb"),
        ("TYPE replica", "plb"),
        ("type SLAVE", "plb"),
        ("USER bob", "pl"),
        ("USER default", "b"),
        ("USER default TYPE pubsub", "pb"),
        ("USER bob ID @p", "plb"),
        ("ADDR %p", "lb"),
        ("ADDR %p ID @l", "plb"),
        ("ADDR %p LADDR %here", "lb"),
        ("LADDR %p", "plb"),
        ("LADDR %here TYPE normal USER bob", "pl"),
        ("LADDR %here", ""),
        ("MAXAGE 1000", "plb"),
        ("ID @p MAXAGE 1000", "plb"),
        ("SKIPME yes", ""),
    ] {
        let mut kinds = Kinds::connect(&server);
        let killed = admin.line(&kinds.filled_in(&format!("CLIENT KILL {filter}"), &server)).int();
        assert_eq!((kinds.alive().as_str(), killed), (left, Some(3 - left.len() as i64)), "{filter}");
        drop(kinds);
        wait_for_count(&mut admin, 1);
    }
    let mut old = server.client();
    old.line("PING");
    std::thread::sleep(Duration::from_millis(2100));
    let mut kinds = Kinds::connect(&server);
    assert_eq!(admin.line("CLIENT KILL MAXAGE 2").int(), Some(1));
    assert_eq!((kinds.alive().as_str(), old.drain().1), ("plb", true));
    let own = admin.address();
    assert_eq!(admin.line(&format!("CLIENT KILL ADDR {own}")).int(), Some(0), "not itself");
    assert_eq!(
        admin.line(&format!("CLIENT KILL {own}")),
        Value::Simple(b"OK".to_vec()),
        "the old form must kill the caller too"
    );
    assert!(admin.drain().1);
}

/// A client's commands do not run after the reply to the client that killed it.
#[test]
fn a_killed_client_does_nothing_more() {
    let server = tern(&[]);
    let (mut admin, mut victim) = (server.client(), server.client());
    let id = victim.line("CLIENT ID").int().unwrap();
    victim.line("MULTI");
    victim.line("SET k v");
    assert_eq!(admin.line(&format!("CLIENT KILL ID {id}")).int(), Some(1));
    assert!(victim.try_run(&["EXEC"]).is_err());
    assert_eq!(admin.line("EXISTS k").int(), Some(0));
}

/// Nor is it listed behind that reply, though its connection may end later.
#[test]
fn a_killed_client_is_not_listed() {
    let server = tern(&[]);
    let mut admin = server.client();
    for round in 0..20 {
        let mut victims: Vec<Client> = (0..20).map(|_| server.client()).collect();
        let ids: Vec<String> =
            victims.iter_mut().map(|victim| victim.line("CLIENT ID").int().unwrap().to_string()).collect();
        let ids = ids.join(" ");
        admin
            .send_raw(
                format!("CLIENT KILL ID {ids}\r\nCLIENT LIST ID {ids}\r\nCLIENT LIST\r\nINFO clients\r\n")
                    .as_bytes(),
            )
            .unwrap();
        let mut next = || admin.read().unwrap().value;
        assert_eq!(next().int(), Some(20));
        assert_eq!(string(&next()), "", "round {round}");
        assert_eq!(string(&next()).lines().count(), 1, "round {round}");
        assert!(string(&next()).contains("connected_clients:1\r\n"), "round {round}");
    }
}

/// Nor does anything that runs meanwhile change something after the reply, and what is sent behind it in one go sees all.
#[test]
fn what_a_killed_client_runs_has_ended_before_the_reply() {
    let server = tern(&["--appendfsync", "no"]);
    let mut admin = server.client();
    let count = |admin: &mut Client| string(&admin.line("GET n"));
    let script =
        r#"EVAL "for i=1,5000 do redis.call('get','x') end redis.call('incr','n')" 0"#.to_owned() + "\r\n";
    let exec = "MULTI\r\nINCR n\r\nINCR n\r\nEXEC\r\n";
    let both = [script.as_str(), exec];
    for (n, (requests, by_user)) in
        [false, true].into_iter().flat_map(|by| both.map(|r| (r, by))).cycle().take(24).enumerate()
    {
        admin.line("SET n 0");
        admin.line("ACL SETUSER victim on nopass +@all ~* &*");
        let mut victim = server.client();
        let id = victim.line("CLIENT ID").int().unwrap();
        victim.line("AUTH victim any");
        victim.send_raw(requests.repeat(400).as_bytes()).unwrap();
        while count(&mut admin) == "0" {}
        let kill = if by_user { "ACL DELUSER victim".to_owned() } else { format!("CLIENT KILL ID {id}") };
        let at_once = n % 3 != 0;
        if at_once {
            admin.send_raw(format!("{kill}\r\nGET n\r\n").as_bytes()).unwrap();
        } else {
            admin.send_raw(format!("{kill}\r\n").as_bytes()).unwrap();
        }
        assert_eq!(admin.read().unwrap().value.int(), Some(1));
        let then = if at_once { string(&admin.read().unwrap().value) } else { count(&mut admin) };
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(count(&mut admin), then, "{requests}, round {n}, {kill}");
    }
}

/// Hazard: the socket is closed first, and a client that connects again meets what its last connection left.
#[test]
fn nothing_is_left_of_a_client_that_has_seen_the_end() {
    let server = &tern(&["--io-threads", "2"]);
    let leave = |thread: usize| {
        let mut watcher = server.client();
        for round in 0..2000 {
            let mut leaver = server.client();
            let id = leaver.line("CLIENT ID").int().unwrap();
            leaver.send_raw(format!("SUBSCRIBE {thread}\r\nQUIT\r\n").as_bytes()).unwrap();
            assert!(leaver.drain().1, "closed");
            let subscribers = watcher.line(&format!("PUBSUB NUMSUB {thread}"));
            let list = watcher.line(&format!("CLIENT LIST ID {id}"));
            assert_eq!(subscribers.items().unwrap()[1].int(), Some(0), "round {round}");
            assert_eq!(string(&list), "", "round {round}");
        }
    };
    std::thread::scope(|threads| {
        for thread in 0..8 {
            threads.spawn(move || leave(thread));
        }
    });
}

/// Hazard: CLIENT KILL answers while its clients are still subscribed and tracking, and what follows counts them.
#[test]
fn nothing_is_left_of_killed_clients_when_it_is_said() {
    let server = &tern(&["--io-threads", "2"]);
    let mut killer = server.client();
    for round in 0..100 {
        let mut others: Vec<_> = (0..5).map(|_| server.client()).collect();
        for other in &mut others {
            other.line("HELLO 3");
            other.line("CLIENT TRACKING ON");
            other.line("SUBSCRIBE channel");
        }
        let (kill, exec) = ("CLIENT KILL TYPE pubsub", round % 2 == 0);
        let kill = if exec { format!("MULTI\r\n{kill}\r\nPUBLISH channel x\r\nEXEC") } else { kill.into() };
        let lines = format!("{kill}\r\nPUBSUB NUMSUB channel\r\nPUBLISH channel x\r\nINFO clients\r\n");
        killer.send_raw(lines.as_bytes()).unwrap();
        let skipped = if exec { 3 } else { 0 };
        (0..skipped).for_each(|_| drop(killer.read().unwrap().value));
        let killed = killer.read().unwrap().value;
        if exec {
            assert_eq!(killed.items().unwrap()[0].int(), Some(5), "round {round}");
        } else {
            assert_eq!(killed.int(), Some(5), "round {round}");
        }
        assert_eq!(killer.read().unwrap().value.items().unwrap()[1].int(), Some(0), "round {round}");
        assert_eq!(killer.read().unwrap().value.int(), Some(0), "round {round}");
        assert!(string(&killer.read().unwrap().value).contains("tracking_clients:0"), "round {round}");
    }
}

/// Hazard: what a client sent behind a command that closes its connection runs, and nobody is told.
#[test]
fn behind_the_end_of_its_connection_nothing_of_a_client_runs() {
    let server = tern(&[]);
    let mut other = server.client();
    other.line("ACL SETUSER bob on nopass +@all ~* &*");
    for (kill, reply) in [
        ("CLIENT KILL ID @ SKIPME no", "+OK\r\n:1\r\n"),
        ("CLIENT KILL USER bob ID @ SKIPME no", "+OK\r\n:1\r\n"),
        ("ACL DELUSER bob", "+OK\r\n:1\r\n"),
        ("SHUTDOWN", "+OK\r\n"),
    ] {
        let mut client = server.client();
        let id = client.line("CLIENT ID").int().unwrap();
        if kill.contains("bob") {
            client.line("AUTH bob x");
        }
        let kill = kill.replace('@', &id.to_string());
        client.send_raw(format!("SET a {id}\r\n{kill}\r\nSET b {id}\r\nINCR n\r\n").as_bytes()).unwrap();
        assert_eq!(client.drain(), (reply.into(), true), "{kill}");
        if kill != "SHUTDOWN" {
            assert_eq!(string(&other.line("GET a")), id.to_string());
            assert_eq!(other.line("EXISTS b n").int(), Some(0));
        }
    }
}

#[test]
fn a_list_has_the_clients_its_filters_select() {
    let server = tern(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on nopass +@all ~* &*");
    let own = admin.line("CLIENT ID").int().unwrap();
    let kinds = Kinds::connect(&server);
    let letter = |line: &str| {
        let id: i64 = field(line, "id").parse().unwrap();
        kinds.0.iter().find(|(_, _, other)| *other == id).map_or('j', |(name, ..)| *name)
    };
    for (filter, want) in [
        ("", "jplb"),
        (" TYPE normal", "jpb"),
        (" type PubSub", "l"),
        (" TYPE master", ""),
        (" TYPE slave", ""),
        (" TYPE replica", ""),
        (" ID @b", "b"),
        (" ID @b @p @b", "bpb"),
        (" ID 99999999 @l 0", "l"),
        (&format!(" ID -{own}"), ""),
    ] {
        let list = string(&admin.line(&kinds.filled_in(&format!("CLIENT LIST{filter}"), &server)));
        assert_eq!(list.lines().map(letter).collect::<String>(), want, "{filter}");
    }
}

#[test]
fn a_line_shows_the_last_command() {
    let server = tern(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    let id = a.line("CLIENT ID").int().unwrap();
    let mut shown = |name: &str| field(string(&b.line(&format!("CLIENT LIST ID {id}"))).trim_end(), name);
    for (line, cmd, flags) in [
        ("CLIENT NO-EVICT on", "client|no-evict", "e"),
        ("CLIENT NO-TOUCH on", "client|no-touch", "eT"),
        ("CLIENT NO-EVICT off", "client|no-evict", "T"),
        ("CLIENT NO-TOUCH OFF", "client|no-touch", "N"),
        ("GET", "get", "N"),
        ("CLIENT LIST x", "client|list", "N"),
        ("CLIENT NOSUCH", "NULL", "N"),
        ("PING", "ping", "N"),
        ("NOSUCH", "NULL", "N"),
    ] {
        a.line(line);
        assert_eq!((shown("cmd").as_str(), shown("flags").as_str()), (cmd, flags), "{line}");
    }
}

#[test]
fn replies_are_kept_back() {
    let server = tern(&[]);
    let mut c = server.client();
    for lines in [
        &["CLIENT REPLY OFF", "PING", "CLIENT REPLY SKIP", "PING", "PING", "CLIENT REPLY x", "NOSUCH"][..],
        &["CLIENT REPLY SKIP", "PING"],
        &["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING"],
        &["CLIENT REPLY SKIP", "CLIENT REPLY OFF", "PING", "PING"],
    ] {
        lines.iter().for_each(|line| c.send(&line.split(' ').collect::<Vec<_>>()).unwrap());
        assert_eq!(string(&c.line("CLIENT REPLY ON")), "OK", "the first reply after {lines:?}");
        assert_eq!(string(&c.line("ECHO a")), "a");
    }
}

#[test]
fn tracking_is_described() {
    let server = tern(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    let id = b.line("CLIENT ID").int().unwrap();
    let mut info = |line: &str| {
        a.line(line);
        let info = a.line("CLIENT TRACKINGINFO");
        let [_, flags, _, redirect, _, prefixes] = info.items().unwrap() else { panic!("{info:?}") };
        let words = |value: &Value| value.items().unwrap().iter().map(string).collect::<Vec<_>>().join(" ");
        (words(flags), redirect.int().unwrap(), words(prefixes))
    };
    let to = |options: &str| format!("CLIENT TRACKING on REDIRECT {id}{options}");
    for (line, flags, prefixes) in [
        (to(" OPTIN"), "on optin", ""),
        ("CLIENT CACHING yes".into(), "on optin caching-yes", ""),
        ("PING".into(), "on optin", ""),
        ("CLIENT TRACKING off".into(), "off", ""),
        (to(" OPTOUT NOLOOP"), "on optout noloop", ""),
        ("CLIENT CACHING no".into(), "on optout caching-no noloop", ""),
        ("CLIENT TRACKING off".into(), "off", ""),
        (to(" BCAST PREFIX a PREFIX b"), "on bcast", "a b"),
        ("RESET".into(), "off", ""),
        (to(""), "on", ""),
    ] {
        let redirect = if flags == "off" { -1 } else { id };
        assert_eq!(info(&line), (flags.into(), redirect, prefixes.into()), "{line}");
    }
    assert_eq!(info("GET k").0, "on");
    drop(b);
    wait_for_count(&mut server.client(), 2);
    server.client().line("SET k v");
    assert_eq!(info("PING").0, "on broken_redirect");
}

#[test]
fn kill_refuses_bad_arguments() {
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
        ("CLIENT NO-TOUCH x", "ERR syntax error"),
        ("CLIENT LIST TYPE foo", "ERR Unknown client type 'foo'"),
        ("CLIENT LIST TYPE foo bar", "ERR syntax error"),
        ("CLIENT LIST ID", "ERR syntax error"),
        ("CLIENT UNBLOCK x y", "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        ("CLIENT UNBLOCK x ERROR", "ERR value is not an integer or out of range"),
        ("CLIENT KILL MAXAGE 0", "ERR maxage should be greater than 0"),
        ("CLIENT KILL MAXAGE x", "ERR maxage is not an integer or out of range"),
        ("CLIENT TRACKING maybe", "ERR syntax error"),
        ("CLIENT MAINT_NOTIFICATIONS ON", "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."),
    ] {
        assert_eq!(error(&mut c, line), want, "{line}");
    }
    // Redis prints them as C strings. Found by `differential`.
    for (filter, want) in [("USER", "ERR No such user 'x'"), ("TYPE", "ERR Unknown client type 'x'")] {
        let reply = c.run(&[&b"CLIENT"[..], b"KILL", filter.as_bytes(), b"x\0y"]).value;
        assert_eq!(reply, Value::Error(want.into()), "{filter}");
    }
    assert_eq!(c.line("CLIENT UNBLOCK 99").int(), Some(0));
    assert_eq!(c.line("CLIENT GETREDIR").int(), Some(-1));
}

/// The line of client `id`, once `ready` holds.
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
    assert_eq!(number(&own, "argv-mem"), "CLIENTINFO".len() as u64, "the running command must count: {own}");
    let idle = line_when(&mut b, id, |l| number(l, "argv-mem") == 0);
    assert_eq!((number(&idle, "qbuf"), number(&idle, "multi-mem")), (0, 0), "{idle}");
    assert!(number(&idle, "qbuf-free") > 0, "{idle}");
    a.line("MULTI");
    a.line("SET key value");
    let queued = line_when(&mut b, id, |l| number(l, "multi-mem") > 0);
    assert_eq!(number(&queued, "multi-mem"), "SETkeyvalue".len() as u64, "{queued}");
    let parts = ["qbuf", "qbuf-free", "argv-mem", "multi-mem", "rbs", "omem"];
    let rest = |l: &str| number(l, "tot-mem") - parts.map(|part| number(l, part)).iter().sum::<u64>();
    assert_eq!(rest(&idle), rest(&queued), "tot-mem must be the sum\n{idle}\n{queued}");
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
