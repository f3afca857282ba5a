//! Hazard: a client that waits for a list is not woken, is woken for nothing, or an element is lost or handed out
//! twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod claims;
mod many;
mod order;
mod ranked;
mod scene;
mod streams;
#[path = "../support/mod.rs"]
mod support;

use scene::{A_WHILE, Appearing, Taken, answer, begin, bulk, bulks, id, nil, server, text, wait_for_blocked};
use std::time::{Duration, Instant};
use support::resp::{Client, Value, request};
use support::rng::Rng;
use support::server::tern;

/// Whatever makes a list appear wakes who waits for it.
#[test]
fn every_change_that_makes_a_list_wakes() {
    let mut list = Appearing::new(&["RPUSH other a b"]);
    let mut ways = Appearing::ways("RPUSH k a b");
    ways.extend([
        vec!["LPUSH k b a"],
        vec!["SORT other BY nosort STORE k"],
        vec!["SADD k x", "SPOP k", "HSET k a b", "HDEL k a", "LPUSHX k x", "RPUSH k a b"],
        vec!["FLUSHALL", "LMOVE k k LEFT RIGHT", "RPUSH k a b"],
        vec!["RPUSH x a b", "LMOVE x k RIGHT LEFT", "LMOVE x k LEFT LEFT"],
    ]);
    for lines in &ways {
        for command in
            ["BLPOP k 0", "BLMPOP 0 2 none k LEFT", "BRPOP none k none 0", "BLMOVE k to LEFT LEFT 0"]
        {
            let (got, shown) = (list.woken(command, lines), format!("{command} {lines:?}"));
            let one = lines.contains(&"LMOVE x k LEFT LEFT");
            match command {
                _ if one => {}
                "BLPOP k 0" => assert_eq!(got, bulks(&["k", "a"]), "{shown}"),
                "BLMPOP 0 2 none k LEFT" => {
                    assert_eq!(got, Value::Array(vec![bulk("k"), bulks(&["a"])]), "{shown}");
                }
                "BRPOP none k none 0" => assert_eq!(got, bulks(&["k", "b"]), "{shown}"),
                _ => assert_eq!(got, bulk("a"), "{shown}"),
            }
            assert_eq!(list.admin.line("LLEN k"), Value::Int(1), "{shown}");
        }
    }
}

#[test]
fn what_is_no_list_wakes_nobody() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    begin(&mut waiter, "BLPOP k 0");
    wait_for_blocked(&mut admin, 1);
    for line in [
        "SET k x",
        "APPEND k y",
        "DEL k",
        "SADD k a",
        "RPUSH other a",
        "SELECT 1",
        "RPUSH k a",
        "SELECT 0",
        "FLUSHALL",
        "HSET k a b",
        "PEXPIRE k 1",
        "SWAPDB 0 1",
        "SWAPDB 0 1",
    ] {
        admin.line(line);
    }
    admin.run(&["RPUSH", "l", "a"]);
    admin.line("MULTI");
    admin.line("RENAME l k");
    admin.line("LPOP k");
    admin.line("EXEC");
    assert!(waiter.is_silent(A_WHILE));
    wait_for_blocked(&mut admin, 1);
    assert!(text(&admin.line("CLIENT LIST")).contains(" flags=b "));
    assert!(text(&admin.line("INFO clients")).contains("total_blocking_keys:1\r\n"));
    admin.line("RPUSH k z");
    assert_eq!(answer(&mut waiter), bulks(&["k", "z"]));
}

#[test]
fn who_waits_longest_is_served_first() {
    // Calls that name other keys first run in other lanes.
    let tern = tern(&["--appendfsync", "no", "--lanes", "4"]);
    let mut admin = tern.client();
    let mut waiters: Vec<Client> = (0..20).map(|_| tern.client()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        begin(waiter, ["BLPOP a k 0", "BLPOP k 0", "BLPOP k a k 0"][n % 3]);
        wait_for_blocked(&mut admin, n + 1);
    }
    let (gone, rest) = waiters.split_at_mut(1);
    let gone_id =
        text(&admin.line("CLIENT LIST")).lines().find(|l| l.contains("flags=b")).unwrap().to_owned();
    let gone_id = gone_id.split_once("id=").unwrap().1.split(' ').next().unwrap().to_owned();
    admin.line(&format!("CLIENT KILL ID {gone_id}"));
    assert!(gone[0].is_closed());
    wait_for_blocked(&mut admin, 19);
    for n in 1..6 {
        admin.line(&format!("RPUSH k {n}"));
        // Whoever comes now is behind the others.
        let mut late = tern.client();
        assert_eq!(late.line("BLPOP k 0.1"), nil(), "{n}");
    }
    let all: Vec<String> = (6..20).map(|n| n.to_string()).collect();
    admin.run(&["RPUSH", "k"].into_iter().chain(all.iter().map(String::as_str)).collect::<Vec<_>>());
    for (n, waiter) in rest.iter_mut().enumerate() {
        assert_eq!(answer(waiter), bulks(&["k", &(n + 1).to_string()]));
    }
}

#[test]
fn time_passes() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    for (line, ms) in [
        ("BLPOP k 0.2", 200),
        ("BRPOP k j 0.05", 50),
        ("BLMOVE k j LEFT LEFT 0.1", 100),
        ("BRPOPLPUSH k j 0.001", 1),
        ("BLMPOP 0.1 1 k RIGHT COUNT 5", 100),
        ("BLPOP k 0.0000001", 1),
    ] {
        let since = Instant::now();
        assert_eq!(waiter.line(line), nil(), "{line}");
        let took = since.elapsed();
        assert!(
            took >= Duration::from_millis(ms) && took < Duration::from_millis(ms + 2000),
            "{line} {took:?}"
        );
    }
    waiter.line("HELLO 3");
    assert_eq!(waiter.line("BLPOP k 0.01"), Value::Nil(b'_'));
    for (line, error) in [
        ("BLPOP k -1", "ERR timeout is negative"),
        ("BLPOP k x", "ERR timeout is not a float or out of range"),
        ("BLPOP k inf", "ERR timeout is out of range"),
        ("BLMPOP x 0 k LEFT", "ERR numkeys should be greater than 0"),
        ("BLMPOP x 1 k UP", "ERR syntax error"),
        ("BLMPOP x 1 k LEFT", "ERR timeout is not a float or out of range"),
        ("BLMOVE a b UP LEFT x", "ERR syntax error"),
        ("BLMOVE a b LEFT LEFT -0.1", "ERR timeout is negative"),
        ("BLPOP k", "ERR wrong number of arguments for 'blpop' command"),
    ] {
        assert_eq!(text(&waiter.line(line)), error, "{line}");
    }
    admin.line("SET s x");
    assert!(text(&waiter.line("BLPOP none s 0")).starts_with("WRONGTYPE"));
    let stats = text(&admin.line("INFO commandstats"));
    assert!(stats.contains("cmdstat_brpop:calls=1,"), "{stats}");
}

#[test]
fn nobody_waits_inside_a_transaction() {
    let tern = server();
    let mut client = tern.client();
    client.line("RPUSH k a b");
    for line in
        ["MULTI", "BLPOP none 0", "BLMOVE none k LEFT LEFT 0", "BLPOP k 0", "BLMPOP 0 1 none LEFT", "LLEN k"]
    {
        client.line(line);
    }
    let wanted = vec![nil(), Value::Nil(b'$'), bulks(&["k", "a"]), nil(), Value::Int(1)];
    assert_eq!(client.line("EXEC"), Value::Array(wanted));
    assert!(client.line("IDEMPOTENT 0123456789abcdef BLPOP k 0").is_error());
}

#[test]
fn unblock_kill_and_leave() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    let number = id(&mut waiter);
    assert_eq!(admin.line(&format!("CLIENT UNBLOCK {number}")), Value::Int(0));
    for (how, answer_is) in [
        ("", nil()),
        (" TIMEOUT", nil()),
        (" ERROR", Value::Error(b"UNBLOCKED client unblocked via CLIENT UNBLOCK".to_vec())),
    ] {
        begin(&mut waiter, "BLPOP k 0");
        wait_for_blocked(&mut admin, 1);
        assert_eq!(admin.line(&format!("CLIENT UNBLOCK {number}{how}")), Value::Int(1));
        assert_eq!(answer(&mut waiter), answer_is);
        assert_eq!(admin.line(&format!("CLIENT UNBLOCK {number}")), Value::Int(0));
    }
    begin(&mut waiter, "BLPOP k 0");
    wait_for_blocked(&mut admin, 1);
    admin.line(&format!("CLIENT KILL ID {number}"));
    wait_for_blocked(&mut admin, 0);
    // Who leaves takes nothing.
    for _ in 0..20 {
        let mut waiter = tern.client();
        begin(&mut waiter, "BLPOP k 0");
        wait_for_blocked(&mut admin, 1);
        drop(waiter);
        wait_for_blocked(&mut admin, 0);
        admin.line("RPUSH k a");
        assert_eq!(admin.line("LPOP k"), bulk("a"));
    }
    // Nor does a pause let a waiter run.
    let mut waiter = tern.client();
    begin(&mut waiter, "BLPOP k 0");
    wait_for_blocked(&mut admin, 1);
    admin.line("MULTI");
    admin.line("CLIENT PAUSE 60000 WRITE");
    admin.line("RPUSH k a");
    admin.line("EXEC");
    assert!(waiter.is_silent(Duration::from_millis(300)));
    admin.line("CLIENT UNPAUSE");
    assert_eq!(answer(&mut waiter), bulks(&["k", "a"]));
}

/// A pause holds a waiting command, but not its end.
#[test]
fn a_pause_does_not_keep_a_client() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    let number = id(&mut waiter);
    begin(&mut waiter, "BLPOP k 0");
    wait_for_blocked(&mut admin, 1);
    admin.line("CLIENT PAUSE 60000 WRITE");
    assert_eq!(admin.line(&format!("CLIENT UNBLOCK {number}")), Value::Int(1));
    assert_eq!(answer(&mut waiter), nil());
    admin.line("CLIENT UNPAUSE");
    begin(&mut waiter, "BLPOP k 0.3");
    wait_for_blocked(&mut admin, 1);
    for line in ["MULTI", "CLIENT PAUSE 60000 WRITE", "RPUSH k a", "EXEC"] {
        admin.line(line);
    }
    assert_eq!(answer(&mut waiter), nil());
    admin.line("CLIENT UNPAUSE");
    admin.line("DEL k");
    begin(&mut waiter, "BLPOP k 0");
    wait_for_blocked(&mut admin, 1);
    for line in ["MULTI", "CLIENT PAUSE 60000 WRITE", "RPUSH k a", "EXEC"] {
        admin.line(line);
    }
    admin.line(&format!("CLIENT KILL ID {number}"));
    wait_for_blocked(&mut admin, 0);
    assert_eq!(admin.line("LLEN k"), Value::Int(1));
}

/// UNBLOCK is not lost while the client looks.
#[test]
fn unblock_beside_changes() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    let number = id(&mut waiter);
    for n in 0..200 {
        begin(&mut waiter, "BLPOP k 0");
        wait_for_blocked(&mut admin, 1);
        let change = ["SET k x", "MULTI\r\nLPUSH k x\r\nLPOP k\r\nEXEC"][n % 2];
        begin(&mut admin, &format!("{change}\r\nCLIENT UNBLOCK {number}"));
        let replies = if n % 2 == 0 { 2 } else { 5 };
        let last = (0..replies).map(|_| answer(&mut admin)).last().unwrap();
        assert_eq!(last, Value::Int(1), "{n}");
        assert_eq!(answer(&mut waiter), nil(), "{n}");
        admin.line("DEL k");
    }
    let stats = text(&admin.line("INFO commandstats"));
    assert!(stats.contains("cmdstat_blpop:calls=200,"), "{stats}");
}

/// A client that does not read its messages keeps no other from its turn.
#[test]
fn a_client_that_is_stuck_keeps_nobody() {
    let tern = server();
    let (mut admin, mut stuck, mut next) = (tern.client(), tern.client(), tern.client());
    admin.line("CONFIG SET client-output-buffer-limit \"pubsub 0 0 0\"");
    stuck.line("HELLO 3");
    stuck.line("SUBSCRIBE news");
    begin(&mut stuck, "BLPOP k 0");
    wait_for_blocked(&mut admin, 1);
    let message = "m".repeat(1 << 20);
    (0..20).for_each(|_| drop(admin.run(&["PUBLISH", "news", &message])));
    std::thread::sleep(Duration::from_millis(200));
    begin(&mut next, "BLPOP k 0");
    wait_for_blocked(&mut admin, 2);
    admin.line("RPUSH k a");
    assert_eq!(answer(&mut next), bulks(&["k", "a"]));
    (0..20).for_each(|_| assert!(matches!(answer(&mut stuck), Value::Push(_))));
    admin.line("RPUSH k b");
    assert_eq!(answer(&mut stuck), bulks(&["k", "b"]));
}

/// A client whose time ends after it was stuck takes nothing: a pause holds, and a right that was taken away is gone.
#[test]
fn a_client_that_was_stuck_takes_nothing_late() {
    let tern = server();
    let (mut admin, mut stuck) = (tern.client(), tern.client());
    admin.line("CONFIG SET client-output-buffer-limit \"pubsub 0 0 0\"");
    admin.line("ACL SETUSER worker on nopass ~* &* +@all");
    for ends in [
        &["MULTI", "CLIENT PAUSE 60000 WRITE", "RPUSH k a", "EXEC"][..],
        &["ACL SETUSER worker -blpop", "RPUSH k a"],
    ] {
        stuck.line("HELLO 3 AUTH worker x");
        stuck.line("SUBSCRIBE news");
        begin(&mut stuck, "BLPOP k 1");
        wait_for_blocked(&mut admin, 1);
        let message = "m".repeat(1 << 20);
        (0..20).for_each(|_| drop(admin.run(&["PUBLISH", "news", &message])));
        std::thread::sleep(Duration::from_millis(200));
        ends.iter().for_each(|line| drop(admin.line(line)));
        (0..20).for_each(|_| assert!(matches!(answer(&mut stuck), Value::Push(_))));
        let got = answer(&mut stuck);
        assert!(got == Value::Nil(b'_') || got.is_error(), "{ends:?}: {got:?}");
        admin.line("CLIENT UNPAUSE");
        assert_eq!(admin.line("LLEN k"), Value::Int(1), "{ends:?}");
        admin.line("DEL k");
    }
}

/// Whoever asks for what is there gets it, whatever the time.
#[test]
fn what_is_there_is_taken_at_once() {
    let tern = server();
    let mut client = tern.client();
    for _ in 0..500 {
        client.line("RPUSH k a");
        assert_eq!(client.line("BLPOP none k 0.001"), bulks(&["k", "a"]));
    }
    let many: Vec<String> = (0..5000).map(|n| format!("none:{n}")).collect();
    let mut argv = vec!["BLPOP"];
    argv.extend(many.iter().map(String::as_str));
    argv.push("0");
    let refused = text(&client.run(&argv).value);
    assert!(refused.starts_with("ERR a command can wait for at most 4096 keys: "), "{refused}");
    argv[4000] = "k";
    client.line("RPUSH k a");
    assert_eq!(client.run(&argv).value, bulks(&["k", "a"]));
}

#[test]
fn requests_behind_a_waiting_one_wait() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    let mut pipeline =
        b"SET before 1\r\nBLPOP k 0\r\nSET after 1\r\nBLPOP k 0\r\nCLIENT REPLY SKIP\r\nBLPOP k 0\r\n"
            .to_vec();
    pipeline.extend(request(&["ECHO", &"x".repeat(3_000_000)]));
    pipeline.extend(b"PING\r\n");
    let mut other = tern.client();
    std::thread::scope(|scope| {
        scope.spawn(|| waiter.send_raw(&pipeline).unwrap());
        wait_for_blocked(&mut admin, 1);
        while admin.line("GET before") != bulk("1") {}
        assert_eq!(admin.line("EXISTS after"), Value::Int(0));
        admin.line("RPUSH k a");
        while admin.line("GET after") != bulk("1") {}
        wait_for_blocked(&mut admin, 1);
        admin.line("RPUSH k b");
        other.line("RPUSH k c");
    });
    let simple = |text: &str| Value::Simple(text.as_bytes().to_vec());
    assert_eq!(answer(&mut waiter), simple("OK"));
    assert_eq!(answer(&mut waiter), bulks(&["k", "a"]));
    assert_eq!(answer(&mut waiter), simple("OK"));
    assert_eq!(answer(&mut waiter), bulks(&["k", "b"]));
    assert_eq!(answer(&mut waiter).bytes().unwrap().len(), 3_000_000);
    assert_eq!(answer(&mut waiter), simple("PONG"));
    assert_eq!(admin.line("LLEN k"), Value::Int(0));
}

#[test]
fn messages_arrive_while_a_client_waits() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    waiter.line("HELLO 3");
    waiter.line("SUBSCRIBE news");
    waiter.line("CLIENT TRACKING ON");
    waiter.line("GET cached");
    begin(&mut waiter, "BLPOP k 0");
    wait_for_blocked(&mut admin, 1);
    assert_eq!(admin.line("PUBLISH news hello"), Value::Int(1));
    assert!(matches!(answer(&mut waiter), Value::Push(items) if items[2] == bulk("hello")));
    admin.line("SET cached 1");
    assert!(matches!(answer(&mut waiter), Value::Push(items) if items[0] == bulk("invalidate")));
    wait_for_blocked(&mut admin, 1);
    admin.line("RPUSH k a");
    assert_eq!(answer(&mut waiter), bulks(&["k", "a"]));
}

/// What is there when a command begins to wait is sent, too.
#[test]
fn messages_from_before_arrive() {
    let tern = server();
    let mut waiter = tern.client();
    waiter.line("HELLO 3");
    waiter.line("SUBSCRIBE news");
    for _ in 0..20 {
        begin(&mut waiter, "PUBLISH news hello\r\nBLPOP k 0");
        let both = [answer(&mut waiter), answer(&mut waiter)];
        assert!(both.contains(&Value::Int(1)), "{both:?}");
        assert!(both.iter().any(|value| matches!(value, Value::Push(items) if items[2] == bulk("hello"))));
        assert_eq!(tern.client().line("RPUSH k a"), Value::Int(1));
        assert_eq!(answer(&mut waiter), bulks(&["k", "a"]));
    }
}

#[test]
fn a_user_who_loses_the_right_gets_nothing() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    admin.line("ACL SETUSER bob on nopass +@all ~*");
    waiter.line("AUTH bob x");
    begin(&mut waiter, "BLPOP k 0");
    wait_for_blocked(&mut admin, 1);
    admin.line("ACL SETUSER bob -blpop");
    admin.line("RPUSH k a");
    assert!(text(&answer(&mut waiter)).starts_with("NOPERM"));
    assert_eq!(admin.line("LLEN k"), Value::Int(1));
}

/// Elements that each producer pushes.
const EACH: usize = 1500;

fn produce(mut client: Client, n: u64, mut rng: Rng) {
    for element in 0..EACH {
        let line = match rng.below(3) {
            0 => format!("RPUSH q{} {n}.{element}", rng.below(3)),
            1 => format!("LPUSH q{} {n}.{element}", rng.below(3)),
            _ => format!("RPUSH q0 {n}.{element}"),
        };
        assert!(!client.line(&line).is_error());
        if rng.below(20) == 0 {
            std::thread::sleep(Duration::from_millis(rng.below(5) as u64));
        }
    }
}

fn consume(mut client: Client, taken: &Taken, mut rng: Rng) {
    while !taken.is_over() {
        let line = match rng.below(4) {
            0 => "BLPOP q0 q1 q2 0.05".to_owned(),
            1 => "BRPOP q2 q1 q0 0.05".to_owned(),
            2 => {
                let [a, b] = [(); 2].map(|()| rng.below(3));
                format!("BLMPOP 0.05 2 q{a} q{b} RIGHT COUNT {}", 1 + rng.below(4))
            }
            _ => format!("BLMOVE q{} taken LEFT LEFT 0.05", rng.below(3)),
        };
        let elements: Vec<String> = match client.line(&line) {
            Value::Nil(_) => continue,
            // Whoever has moved one takes one.
            Value::Bulk(_) => vec![text(&client.line("RPOP taken"))],
            Value::Array(items) => match &items[1] {
                Value::Array(all) => all.iter().map(text).collect(),
                one => vec![text(one)],
            },
            other => panic!("{line}: {other:?}"),
        };
        elements.into_iter().for_each(|element| taken.take(element));
    }
}

/// Producers and consumers of several lists, and clients that leave while they wait.
#[test]
fn each_element_is_handed_out_once() {
    let (tern, seed) = (server(), Rng::any_seed());
    let taken = Taken::of(3 * EACH);
    support::say(&format!("waiting: TERN_SEED={seed}"));
    std::thread::scope(|scope| {
        for n in 0..3 {
            let (client, taken, rng) = (tern.client(), &taken, Rng::new(seed + n));
            scope.spawn(move || taken.part(|| produce(client, n, rng)));
        }
        for n in 0..8 {
            let (client, taken, rng) = (tern.client(), &taken, Rng::new(seed + 100 + n));
            scope.spawn(move || taken.part(|| consume(client, taken, rng)));
        }
        scope.spawn(|| {
            taken.part(|| {
                while !taken.is_over() {
                    let mut client = tern.client();
                    client.send_raw(b"BLPOP none q9 0\r\n").unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        });
    });
    taken.assert_all();
    let mut admin = tern.client();
    assert_eq!(admin.line("EXISTS q0 q1 q2 taken"), Value::Int(0));
    wait_for_blocked(&mut admin, 0);
}
