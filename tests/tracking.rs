//! Hazard: CLIENT TRACKING notifies the wrong client, too rarely, in the wrong protocol or before the reply;
//! or it continues after it was switched off. `tracking_caches.rs` tests its promises about caches.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;
use support::fdb_cluster;
use support::resp::{Client, Value, request};
use support::server::{Server, redis, tern};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn names(names: &[&str]) -> Value {
    Value::Array(names.iter().map(|n| bulk(n)).collect())
}

fn invalidate(keys: &[&str]) -> Value {
    Value::Push(vec![bulk("invalidate"), names(keys)])
}

fn message(what: Value) -> Value {
    Value::Array(vec![bulk("message"), bulk("__redis__:invalidate"), what])
}

fn all_may_have() -> Value {
    Value::Push(vec![bulk("invalidate"), Value::Nil(b'_')])
}

fn next(client: &mut Client) -> Value {
    client.read().unwrap().value
}

/// A tracking client in RESP3.
fn tracker(server: &Server, options: &str) -> Client {
    let mut client = server.client();
    client.line("HELLO 3");
    assert_eq!(client.line(&format!("CLIENT TRACKING ON{options}")), ok());
    client
}

/// Fails if a client received anything: a change that it must hear of is made after that.
fn nothing_else(client: &mut Client, other: &mut Client) {
    client.line("CLIENT TRACKING OFF");
    assert_eq!(client.line("CLIENT TRACKING ON BCAST PREFIX end"), ok());
    other.line("SET end 1");
    assert_eq!(next(client), invalidate(&["end"]));
}

fn info(client: &mut Client, name: &str) -> u64 {
    let text = client.run(&["INFO", "everything"]).value;
    let text = String::from_utf8_lossy(text.bytes().unwrap()).into_owned();
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).expect(name).parse().unwrap()
}

/// A word of CLIENT INFO.
fn word(client: &mut Client, name: &str) -> String {
    let line = client.line("CLIENT INFO");
    let line = String::from_utf8_lossy(line.bytes().unwrap()).into_owned();
    line.split(' ').find_map(|w| w.strip_prefix(name)?.strip_prefix('=')).expect(name).to_owned()
}

#[test]
fn a_client_that_read_a_key_hears_once_of_its_change() {
    let server = tern(&[]);
    let (mut client, mut other) = (tracker(&server, ""), server.client());
    other.line("MSET a 1 b 2 c 3");
    other.line("SADD s x y");
    assert_eq!(client.line("MGET a b"), names(&["1", "2"]));
    assert_eq!(client.line("SCARD s"), Value::Int(2));
    other.line("SET c 4");
    other.line("SET a 5");
    other.line("SET a 6");
    assert_eq!(next(&mut client), invalidate(&["a"]));
    other.line("DEL b");
    assert_eq!(next(&mut client), invalidate(&["b"]));
    other.line("SADD s z");
    assert_eq!(next(&mut client), invalidate(&["s"]));
    nothing_else(&mut client, &mut other);
}

#[test]
fn a_clients_own_change_is_published_after_the_reply() {
    let server = tern(&[]);
    let mut client = tracker(&server, "");
    client.line("SET a 1");
    client.line("GET a");
    assert_eq!(client.line("INCR a"), Value::Int(2));
    assert_eq!(next(&mut client), invalidate(&["a"]));
    client.line("GET a");
    let all: Vec<u8> = ["MULTI", "INCR a", "GET b", "FLUSHDB", "EXEC"]
        .iter()
        .flat_map(|l| request(&[l.split(' ').collect::<Vec<_>>()].concat()))
        .collect();
    client.send_raw(&all).unwrap();
    let replies: Vec<Value> = (0..5).map(|_| next(&mut client)).collect();
    assert_eq!(replies[4], Value::Array(vec![Value::Int(3), Value::Nil(b'_'), ok()]));
    let mut pushed = vec![next(&mut client)];
    while pushed.last() != Some(&all_may_have()) {
        pushed.push(next(&mut client));
    }
    assert!(pushed.contains(&invalidate(&["a"])), "{pushed:?}");
}

#[test]
fn an_invalidation_precedes_the_replies_after_its_change() {
    if fdb_cluster::wanted() {
        return; // On a cluster, a change arrives when this server has read it from the store.
    }
    let server = tern(&["--io-threads", "1"]);
    let (mut client, mut other) = (tracker(&server, ""), server.client());
    // Connections take turns, so that the request arrives before the woken one has had its turn.
    for _ in 0..8 {
        let (mut busy, pings) = (server.client(), request(&["PING"]).repeat(500));
        std::thread::spawn(
            move || {
                while busy.send_raw(&pings).is_ok() && (0..500).all(|_| busy.read().is_ok()) {}
            },
        );
    }
    for round in 0..100 {
        client.line("GET a");
        other.line("INCR a");
        client.send(&["PING"]).unwrap();
        let both = [next(&mut client), next(&mut client)];
        assert_eq!(both, [invalidate(&["a"]), Value::Simple(b"PONG".to_vec())], "{round}");
    }
}

#[test]
fn flushes_and_swaps_are_published_as_null() {
    let server = tern(&[]);
    let (mut client, mut other) = (tracker(&server, ""), server.client());
    for line in ["FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1"] {
        other.line("SET a 1");
        client.line("GET a");
        other.line(line);
        assert_eq!(next(&mut client), all_may_have(), "{line}");
        assert_eq!(info(&mut other, "tracking_total_keys"), 0);
    }
    other.line("MULTI");
    other.line("FLUSHDB");
    other.line("DISCARD");
    nothing_else(&mut client, &mut other);
}

#[test]
fn an_expired_key_is_invalidated() {
    let server = tern(&[]);
    let (mut client, mut other) = (tracker(&server, ""), server.client());
    other.line("SET a 1 PX 50");
    other.line("SET b 1");
    client.line("MGET a b");
    assert_eq!(next(&mut client), invalidate(&["a"]));
    other.line("EXPIRE b 100");
    assert_eq!(next(&mut client), invalidate(&["b"]), "a change of the expiry must invalidate");
    nothing_else(&mut client, &mut other);
}

#[test]
fn a_prefix_hears_of_each_of_its_keys_once_per_transaction() {
    let server = tern(&[]);
    let (mut client, mut other) = (tracker(&server, " BCAST PREFIX a: PREFIX b:"), server.client());
    for line in
        ["MULTI", "SET a:1 1", "APPEND a:1 1", "SET c:1 1", "DEL a:1", "SADD b:1 x", "SET a:2 1", "EXEC"]
    {
        other.line(line);
    }
    assert_eq!(next(&mut client), invalidate(&["a:1", "a:2"]));
    assert_eq!(next(&mut client), invalidate(&["b:1"]));
    assert_eq!(client.line("CLIENT TRACKING ON BCAST PREFIX c:"), ok());
    other.line("SET c:1 2");
    assert_eq!(next(&mut client), invalidate(&["c:1"]));
    assert_eq!(info(&mut other, "tracking_total_prefixes"), 3);
    other.line("FLUSHALL");
    assert_eq!(next(&mut client), all_may_have());
    client.line("CLIENT TRACKING OFF");
    assert_eq!(info(&mut other, "tracking_total_prefixes"), 0);
    assert_eq!(client.line("CLIENT TRACKING ON BCAST"), ok());
    other.line("SET x 2");
    assert_eq!(next(&mut client), invalidate(&["x"]));
    nothing_else(&mut client, &mut other);
}

#[test]
fn noloop_suppresses_a_clients_own_changes() {
    let server = tern(&[]);
    let mut other = server.client();
    for mode in [" NOLOOP", " NOLOOP BCAST"] {
        let mut client = tracker(&server, mode);
        client.line("MGET mine theirs");
        client.line("SET mine 1");
        other.line("SET theirs 1");
        assert_eq!(next(&mut client), invalidate(&["theirs"]), "{mode}");
        other.line("SET mine 2");
        assert_eq!(next(&mut client), invalidate(&["mine"]), "{mode}: the others' changes");
        nothing_else(&mut client, &mut other);
    }
}

#[test]
fn optin_and_optout_choose_the_next_command_or_transaction() {
    let server = tern(&[]);
    let mut other = server.client();
    let tracked = |client: &mut Client, other: &mut Client, reads: &[&str]| -> Vec<String> {
        reads.iter().for_each(|line| drop(client.line(line)));
        other.line("MSET a 1 b 1 c 1 end 1");
        let mut received = Vec::new();
        loop {
            let Value::Push(parts) = next(client) else { panic!("no push") };
            let name = parts[1].items().unwrap()[0].bytes().unwrap().to_vec();
            let name = String::from_utf8(name).unwrap();
            if name == "end" {
                received.sort();
                return received;
            }
            received.push(name);
        }
    };
    let mut client = tracker(&server, " OPTIN");
    let end = ["CLIENT CACHING YES", "GET end"];
    let mut reads = |reads: &[&str]| tracked(&mut client, &mut other, &[reads, &end].concat());
    assert!(reads(&["GET a"]).is_empty());
    assert_eq!(reads(&["CLIENT CACHING YES", "GET a", "GET b"]), ["a"]);
    assert_eq!(reads(&["CLIENT CACHING YES", "CLIENT ID", "GET a"]), ["a"], "CLIENT must not count");
    assert!(reads(&["CLIENT CACHING YES", "PING", "GET a"]).is_empty());
    assert_eq!(reads(&["CLIENT CACHING YES", "MULTI", "GET a", "GET b", "EXEC", "GET c"]), ["a", "b"]);
    assert_eq!(reads(&["MULTI", "CLIENT CACHING YES", "GET b", "EXEC", "GET c"]), ["b"]);
    assert!(reads(&["CLIENT CACHING YES", "MULTI", "GET b", "DISCARD", "GET c"]).is_empty());
    let [of_a, of_b] = ["a", "b"].map(|key| format!("EVAL return(redis.call('GET',KEYS[1])) 1 {key}"));
    assert_eq!(reads(&["CLIENT CACHING YES", &of_a, &of_b]), ["a"]);
    let mut client = tracker(&server, " OPTOUT");
    let mut reads = |reads: &[&str]| tracked(&mut client, &mut other, &[reads, &["GET end"]].concat());
    assert_eq!(reads(&["CLIENT CACHING NO", "GET a", "GET b"]), ["b"]);
    assert_eq!(reads(&["CLIENT CACHING NO", "MULTI", "GET a", "EXEC", "GET b"]), ["b"]);
    assert_eq!(reads(&["CLIENT CACHING NO", &of_a, &of_b]), ["b"]);
}

#[test]
fn tracking_switched_on_in_a_transaction_covers_its_reads() {
    let server = tern(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.line("HELLO 3");
    for line in ["MULTI", "CLIENT TRACKING ON", "GET a"] {
        client.line(line);
    }
    assert_eq!(client.line("EXEC"), Value::Array(vec![ok(), Value::Nil(b'_')]));
    other.line("SET a 1");
    assert_eq!(next(&mut client), invalidate(&["a"]));
    client.line("WATCH w");
    other.line("SET w 1");
    for line in ["MULTI", "CLIENT TRACKING OFF", "EXEC"] {
        client.line(line);
    }
    assert_eq!(client.line("CLIENT GETREDIR"), Value::Int(0), "the transaction must not run");
    client.line("GET a");
    other.line("SET a 2");
    assert_eq!(next(&mut client), invalidate(&["a"]));
}

#[test]
fn invalidations_are_redirected_in_either_protocol() {
    let server = tern(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let (mut second, mut third) = (server.client(), tracker(&server, ""));
    let ids = [second.line("CLIENT ID").int().unwrap(), third.line("CLIENT ID").int().unwrap()];
    second.line("SUBSCRIBE __redis__:invalidate");
    assert_eq!(client.line(&format!("CLIENT TRACKING ON REDIRECT {}", ids[0])), ok());
    assert_eq!(client.line("CLIENT GETREDIR"), Value::Int(ids[0]));
    assert_eq!(
        [word(&mut client, "flags"), word(&mut client, "redir")],
        ["t".to_owned(), ids[0].to_string()]
    );
    client.line("GET a");
    other.line("SET a 1");
    assert_eq!(next(&mut second), message(names(&["a"])));
    other.line("FLUSHALL");
    assert_eq!(next(&mut second), message(Value::Nil(b'$')));
    assert_eq!(next(&mut third), all_may_have());
    client.line(&format!("CLIENT TRACKING ON REDIRECT {}", ids[1]));
    client.line("GET a");
    other.line("SET a 1");
    assert_eq!(next(&mut third), invalidate(&["a"]));
}

#[test]
fn a_redirection_to_a_client_that_left_is_reported_broken() {
    let server = tern(&[]);
    let (mut client, mut other, mut target) = (server.client(), server.client(), server.client());
    client.line("HELLO 3");
    let id = target.line("CLIENT ID").int().unwrap();
    assert_eq!(client.line(&format!("CLIENT TRACKING ON REDIRECT {id} BCAST")), ok());
    assert_eq!(word(&mut client, "flags"), "tB");
    target.line("QUIT");
    drop(target);
    while !matches!(other.line(&format!("CLIENT LIST ID {id}")).bytes(), Some(b"" | b"\n")) {
        std::thread::sleep(Duration::from_millis(1));
    }
    other.line("SET a 1");
    assert_eq!(next(&mut client), Value::Push(vec![bulk("tracking-redir-broken"), Value::Int(id)]));
    assert_eq!(word(&mut client, "flags"), "tRB");
    let info = client.line("CLIENT TRACKINGINFO");
    let flags = Value::Set(["on", "bcast", "broken_redirect"].map(bulk).to_vec());
    assert_eq!(info.items().unwrap()[1], flags);
    let line = format!("CLIENT TRACKING ON REDIRECT {id} BCAST");
    assert_eq!(
        client.line(&line),
        Value::Error(b"ERR The client ID you want redirect to does not exist".to_vec())
    );
}

const NO_CLIENT: &[u8] = b"ERR The client ID you want redirect to does not exist";

/// A connection of a user with all permissions.
fn client_of_user(server: &Server, name: &str) -> Client {
    let mut client = server.client();
    client.line(&format!("ACL SETUSER {name} on >pw ~* &* +@all"));
    assert_eq!(client.line(&format!("AUTH {name} pw")), ok());
    client
}

#[test]
fn invalidations_go_to_connections_of_the_same_user_only() {
    let server = tern(&[]);
    let (mut ann, mut bob, mut bobs) =
        (client_of_user(&server, "ann"), client_of_user(&server, "bob"), client_of_user(&server, "bob"));
    let ids = [&mut ann, &mut bobs].map(|client| client.line("CLIENT ID").int().unwrap());
    for options in ["", " BCAST"] {
        let refused = bob.line(&format!("CLIENT TRACKING ON REDIRECT {}{options}", ids[0]));
        assert_eq!(refused, Value::Error(NO_CLIENT.to_vec()), "the error must be that of a missing client");
    }
    assert_eq!(bob.line("CLIENT GETREDIR"), Value::Int(-1));
    for line in ["MULTI", &format!("CLIENT TRACKING ON REDIRECT {}", ids[0])] {
        bob.line(line);
    }
    assert_eq!(bob.line("EXEC"), Value::Array(vec![Value::Error(NO_CLIENT.to_vec())]));
    assert_eq!(bob.line(&format!("CLIENT TRACKING ON REDIRECT {}", ids[1])), ok());
}

#[test]
fn a_redirection_breaks_if_either_side_changes_its_user() {
    let server = tern(&[]);
    let mut other = server.client();
    drop(client_of_user(&server, "ann"));
    for target_changes in [true, false] {
        let (mut client, mut target) = (client_of_user(&server, "bob"), client_of_user(&server, "bob"));
        let id = target.line("CLIENT ID").int().unwrap();
        [&mut client, &mut target].into_iter().for_each(|c| drop(c.line("HELLO 3")));
        assert_eq!(client.line(&format!("CLIENT TRACKING ON BCAST REDIRECT {id}")), ok());
        other.line("SET a 1");
        assert_eq!(next(&mut target), invalidate(&["a"]));
        if target_changes { &mut target } else { &mut client }.line("AUTH ann pw");
        other.line("SET a 2");
        let broken = Value::Push(vec![bulk("tracking-redir-broken"), Value::Int(id)]);
        assert_eq!(next(&mut client), broken);
        assert_eq!(word(&mut client, "flags"), "tRB");
        assert_eq!(target.line("PING"), Value::Simple(b"PONG".to_vec()), "nothing may be sent there");
    }
}

#[test]
fn the_client_that_asked_for_too_much_is_closed_not_the_receiver() {
    let server = tern(&["--client-output-buffer-limit", "pubsub 2mb 0 0"]);
    let (mut client, mut target, mut other) = (server.client(), server.client(), server.client());
    let id = target.line("CLIENT ID").int().unwrap();
    target.line("SUBSCRIBE __redis__:invalidate news");
    target.read().unwrap();
    assert_eq!(client.line(&format!("CLIENT TRACKING ON BCAST REDIRECT {id}")), ok());
    // Few enough that a cluster publishes their names: it sends null for more than 256 kB.
    let pairs = (0..25).flat_map(|n| [format!("{n:03}{}", "x".repeat(8000)), String::new()]);
    let argv: Vec<String> = std::iter::once("MSET".to_owned()).chain(pairs).collect();
    let mut received = 0;
    while info(&mut other, "client_output_buffer_limit_disconnections") == 0 {
        assert_eq!(other.run(&argv).value, ok());
        received += 1;
        assert!(received < 200, "unread messages must be bounded");
    }
    // Its own messages take all the room that it may have.
    for _ in 0..15 {
        assert_eq!(other.run(&["PUBLISH", "news", &"y".repeat(100_000)]).value, Value::Int(1));
    }
    assert!(client.drain().1, "the client that asked must be closed");
    let mut news = 0;
    while news < 15 {
        let message = next(&mut target);
        news += usize::from(message.items().is_some_and(|items| items[1] == bulk("news")));
    }
    assert_eq!(info(&mut other, "client_output_buffer_limit_disconnections"), 1);
}

#[test]
fn keys_evicted_from_the_table_are_invalidated() {
    let server = tern(&["--tracking-table-max-keys", "100"]);
    let (mut client, mut other) = (tracker(&server, ""), server.client());
    let mut received = Vec::new();
    for n in 0..150 {
        client.send(&["GET", &format!("key:{n}")]).unwrap();
        while let Value::Push(parts) = next(&mut client) {
            received.push(parts[1].clone());
        }
    }
    assert_eq!(info(&mut other, "tracking_total_keys"), 100);
    assert_eq!(info(&mut other, "tracking_total_items"), 100);
    other.line("CONFIG SET tracking-table-max-keys 10");
    while received.len() < 140 {
        let Value::Push(parts) = next(&mut client) else { panic!("no push") };
        received.push(parts[1].clone());
    }
    received.sort();
    received.dedup();
    assert_eq!(received.len(), 140);
    assert_eq!(info(&mut other, "tracking_total_keys"), 10);
    nothing_else(&mut client, &mut other);
}

#[test]
fn tracking_ends_with_reset_off_and_the_connection() {
    let server = tern(&[]);
    let mut other = server.client();
    assert_eq!(info(&mut other, "tracking_clients"), 0);
    let mut clients: Vec<Client> = (0..3).map(|_| tracker(&server, "")).collect();
    clients.iter_mut().for_each(|client| drop(client.line("GET a")));
    assert_eq!(info(&mut other, "tracking_clients"), 3);
    assert_eq!([info(&mut other, "tracking_total_keys"), info(&mut other, "tracking_total_items")], [1, 3]);
    clients[0].line("RESET");
    clients[1].line("CLIENT TRACKING OFF");
    assert_eq!(clients[0].line("CLIENT GETREDIR"), Value::Int(-1));
    assert_eq!(word(&mut clients[1], "redir"), "-1");
    drop(clients.pop());
    while info(&mut other, "tracking_clients") > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(info(&mut other, "tracking_total_keys"), 0, "no tracked key may be left");
    other.line("SET a 1");
    clients[0].line("HELLO 3");
    nothing_else(&mut clients[0], &mut other);
    nothing_else(&mut clients[1], &mut other);
}

/// One client's lines; the server refuses many.
#[rustfmt::skip]
const LINES: &[&str] = &[
    "CLIENT TRACKING", "CLIENT TRACKING maybe", "CLIENT TRACKING maybe BCAST x", "CLIENT TRACKING on what",
    "CLIENT TRACKING off what", "CLIENT TRACKING on REDIRECT", "CLIENT TRACKING on REDIRECT x",
    "CLIENT TRACKING on REDIRECT 0", "CLIENT TRACKING on REDIRECT -1", "CLIENT TRACKING on REDIRECT 99999999",
    "CLIENT TRACKING off REDIRECT 99999999", "CLIENT TRACKING on PREFIX", "CLIENT TRACKING on PREFIX a",
    "CLIENT TRACKING off PREFIX a", "CLIENT TRACKING on BCAST OPTIN", "CLIENT TRACKING on OPTIN OPTOUT",
    "CLIENT TRACKING on BCAST PREFIX foo PREFIX foobar", "CLIENT TRACKING on BCAST PREFIX foobar PREFIX foo",
    "CLIENT CACHING", "CLIENT CACHING yes", "CLIENT CACHING what", "CLIENT CACHING yes no", "CLIENT GETREDIR",
    "CLIENT TRACKINGINFO", "CLIENT TRACKING on", "CLIENT CACHING yes", "CLIENT CACHING no", "CLIENT CACHING what",
    "CLIENT TRACKING on BCAST", "CLIENT TRACKING on OPTIN", "CLIENT TRACKING on OPTOUT", "CLIENT CACHING yes",
    "CLIENT CACHING yes", "CLIENT CACHING no", "CLIENT TRACKINGINFO", "GET k", "CLIENT TRACKINGINFO",
    "CLIENT TRACKING on OPTOUT NOLOOP", "CLIENT TRACKING on NOLOOP", "CLIENT TRACKING on OPTOUT NOLOOP",
    "CLIENT CACHING yes", "CLIENT CACHING no", "CLIENT TRACKINGINFO", "CLIENT TRACKING on OPTIN",
    "CLIENT GETREDIR", "CLIENT TRACKING off", "CLIENT TRACKING on bcast prefix b: prefix a: noloop",
    "CLIENT TRACKING on bcast prefix b:c", "CLIENT TRACKING on bcast prefix b", "CLIENT TRACKING on bcast prefix b:",
    "CLIENT TRACKING on", "CLIENT TRACKING on bcast prefix c:", "CLIENT TRACKINGINFO", "CLIENT TRACKING off",
    "MULTI", "CLIENT TRACKING on OPTIN", "CLIENT CACHING yes", "CLIENT TRACKING on BCAST", "GET k", "EXEC",
    "CLIENT TRACKINGINFO", "MULTI", "CLIENT TRACKING off", "EXEC", "CLIENT TRACKINGINFO", "CLIENT GETREDIR",
    "CLIENT TRACKING on", "RESET", "CLIENT TRACKINGINFO", "QUIT",
];

#[test]
fn a_tracking_client_is_answered_as_by_redis() {
    let Some(redis) = redis("tracking beside Redis") else { return };
    let tern = tern(&[]);
    for hello in ["PING", "HELLO 3"] {
        let [ours, theirs] = [&tern, &redis].map(|server| {
            let mut client = server.client();
            client.line(hello);
            LINES.iter().map(|line| (*line, sorted(client.line(line)))).collect::<Vec<_>>()
        });
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            assert_eq!(ours, theirs);
        }
    }
}

/// Prefixes and flags come in any order.
fn sorted(mut value: Value) -> Value {
    if let Value::Map(items) | Value::Array(items) | Value::Set(items) = &mut value {
        let taken = std::mem::take(items);
        *items = taken.into_iter().map(sorted).collect();
        if items.iter().all(|item| matches!(item, Value::Bulk(_))) {
            items.sort();
        }
    }
    value
}

/// A tracking client's messages while it changes its protocol and another client writes keys that it read.
fn while_it_says_hello(server: &Server) -> Vec<String> {
    const STEPS: [(bool, &str); 23] = [
        (true, "SET k 1"),
        (false, "CLIENT TRACKING ON"),
        (false, "GET k"),
        (true, "SET k 2"),
        (false, "HELLO 3"),
        (false, "CLIENT TRACKINGINFO"),
        (true, "SET k 3"),
        (false, "GET k"),
        (true, "SET k 4"),
        (false, "GET k"),
        (false, "HELLO 2"),
        (false, "CLIENT TRACKINGINFO"),
        (true, "SET k 5"),
        (false, "HELLO 3"),
        (true, "SET k 6"),
        (false, "GET k"),
        (false, "HELLO 2"),
        (false, "HELLO 3"),
        (true, "SET k 7"),
        (false, "GET k"),
        (false, "HELLO 3"),
        (true, "SET k 8"),
        (false, "CLIENT TRACKING OFF"),
    ];
    let (mut client, mut other) = (server.client(), server.client());
    let mut seen = Vec::new();
    for (by_other, line) in STEPS {
        let words: Vec<&str> = line.split(' ').collect();
        if by_other {
            other.run(&words);
            // On a cluster a change arrives through the log.
            std::thread::sleep(Duration::from_millis(if fdb_cluster::wanted() { 300 } else { 10 }));
            continue;
        }
        // Everything up to the reply of the ECHO after it; a greeting names the server.
        client.send_raw(&[request(&words), request(&["ECHO", line])].concat()).unwrap();
        loop {
            let value = next(&mut client);
            if value == bulk(line) {
                break;
            }
            let greets = line.starts_with("HELLO") && !matches!(value, Value::Push(_) | Value::Simple(_));
            let shown = if greets { "a greeting".to_owned() } else { format!("{value:?}") };
            seen.push(format!("{line}: {shown}"));
        }
    }
    seen
}

#[test]
fn hello_leaves_tracking_on_as_in_redis() {
    let Some(redis) = redis("HELLO beside Redis") else { return };
    let (expected, seen) = (while_it_says_hello(&redis), while_it_says_hello(&tern(&[])));
    assert_eq!(seen, expected);
    let received = seen.iter().filter(|line| line.contains("invalidate")).count();
    assert!(received >= 3, "{seen:?}");
}

/// An overlong name never changes, so it would be tracked for ever.
#[test]
fn overlong_names_are_not_tracked() {
    let server = tern(&[]);
    let (mut reader, mut other) = (tracker(&server, ""), server.client());
    let names: Vec<String> = (0..100).map(|n| format!("{n:0>9000}")).collect();
    for name in &names {
        reader.run(&["GET", name]);
    }
    assert_eq!(info(&mut other, "tracking_total_keys"), 0);
    reader.run(&["GET", "short"]);
    assert_eq!(info(&mut other, "tracking_total_keys"), 1);
}

/// A table of this many names has a bounded size, however long they are.
#[test]
fn long_names_fill_the_table_sooner() {
    let server = tern(&["--tracking-table-max-keys", "1000"]);
    let (mut reader, mut other) = (tracker(&server, ""), server.client());
    for n in 0..500 {
        reader.send(&["GET".into(), format!("{n:0>8000}")]).unwrap();
    }
    let (mut replies, mut received) = (0, 0);
    while replies < 500 {
        match next(&mut reader) {
            Value::Push(_) => received += 1,
            _ => replies += 1,
        }
    }
    let kept = info(&mut other, "tracking_total_keys");
    assert!((50..=64).contains(&kept), "{kept} names of 8000 bytes");
    while received < 500 - kept {
        assert!(matches!(next(&mut reader), Value::Push(_)), "evicted names must be invalidated");
        received += 1;
    }
    // One command may read more keys than the table holds.
    let many: Vec<String> = std::iter::once("MGET".into()).chain((0..5000).map(|n| n.to_string())).collect();
    reader.send(&many).unwrap();
    while !matches!(next(&mut reader), Value::Array(_)) {}
    let kept = info(&mut other, "tracking_total_keys");
    assert!((900..=1000).contains(&kept), "{kept} names");
}
