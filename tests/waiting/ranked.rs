//! Hazard: a client that waits for a sorted set is not woken, or is in the way of one that waits for a list under the
//! same name; or a member is lost or handed out twice.

use super::support::resp::{Client, Value};
use super::support::rng::Rng;
use super::support::server::tern;
use super::{A_WHILE, answer, begin, bulk, bulks, nil, server, text, wait_for_blocked};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

fn scored(texts: &[&str]) -> Value {
    Value::Array(vec![bulk("k"), Value::Array(vec![bulks(texts)])])
}

/// Whatever makes a sorted set appear wakes who waits for it.
#[test]
fn every_change_that_makes_a_sorted_set_wakes() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    admin.line("ZADD other 1 a 2 b");
    let payload = admin.line("DUMP other").bytes().unwrap().to_vec();
    for lines in [
        &["ZADD k 1 a 2 b"][..],
        &["MULTI", "ZINCRBY k 2 b", "ZINCRBY k 1 a", "EXEC"],
        &["MULTI", "RPUSH k x", "DEL k", "ZADD k 1 a 2 b", "EXEC"],
        &["COPY other k"],
        &["RENAME other k"],
        &["ZUNIONSTORE k 1 other"],
        &["ZRANGESTORE k other 0 -1"],
        &["SELECT 1", "ZADD k 1 a 2 b", "MOVE k 0", "SELECT 0"],
        &["SELECT 1", "ZADD k 1 a 2 b", "SWAPDB 0 1", "SELECT 0"],
        &["RPUSH k x", "RENAME other k"],
        &["RPUSH k x", "LPOP k", "ZADD k XX 1 a", "ZREM k a", "MULTI", "ZADD k 2 b 1 a", "EXEC"],
        &["FLUSHALL", "ZADD k 1 a 2 b"],
        &["RESTORE"],
    ] {
        for (command, wanted, left) in [
            ("BZPOPMIN k 0", bulks(&["k", "a", "1"]), 1),
            ("BZPOPMAX none k none 0", bulks(&["k", "b", "2"]), 1),
            ("BZMPOP 0 2 none k MAX", scored(&["b", "2"]), 1),
            (
                "BZMPOP 0 1 k MIN COUNT 5",
                Value::Array(vec![bulk("k"), Value::Array(vec![bulks(&["a", "1"]), bulks(&["b", "2"])])]),
                0,
            ),
        ] {
            admin.line("FLUSHALL");
            admin.line("ZADD other 1 a 2 b");
            begin(&mut waiter, command);
            wait_for_blocked(&mut admin, 1);
            for line in lines {
                let reply = match *line {
                    "RESTORE" => admin.run(&[&b"RESTORE"[..], b"k", b"0", &payload]).value,
                    line => admin.line(line),
                };
                assert!(!reply.is_error(), "{line}: {reply:?}");
            }
            assert_eq!(answer(&mut waiter), wanted, "{command} {lines:?}");
            wait_for_blocked(&mut admin, 0);
            assert_eq!(admin.line("ZCARD k"), Value::Int(left), "{command} {lines:?}");
        }
    }
    assert!(text(&admin.line("INFO clients")).contains("total_blocking_keys:0\r\n"));
}

/// Clients that wait for a list and for a sorted set under one name, in any order.
#[test]
fn lists_and_sorted_sets_are_waited_for_side_by_side() {
    let tern = server();
    let mut admin = tern.client();
    let mut waiters: Vec<Client> = (0..6).map(|_| tern.client()).collect();
    for round in 0..20 {
        for (n, waiter) in waiters.iter_mut().enumerate() {
            begin(waiter, if (n + round) % 2 == 0 { "BLPOP k other 0" } else { "BZPOPMIN k 0" });
            wait_for_blocked(&mut admin, n + 1);
        }
        assert!(text(&admin.line("INFO clients")).contains("total_blocking_keys:2\r\n"));
        let (lists, sorted): (Vec<_>, Vec<_>) =
            waiters.iter_mut().enumerate().partition(|(n, _)| (n + round) % 2 == 0);
        assert_eq!(admin.line("SET k x"), Value::Simple(b"OK".to_vec()));
        assert_eq!(admin.line("DEL k"), Value::Int(1));
        let (mut lists, mut sorted): (Vec<_>, Vec<_>) = (lists, sorted);
        for n in 0..3 {
            let (list, zset) = (&mut lists[n].1, &mut sorted[n].1);
            let push = |admin: &mut Client| admin.line(&format!("RPUSH k {n}"));
            let add = |admin: &mut Client| admin.line(&format!("ZADD k {n} m{n}"));
            if round % 3 == 0 {
                push(&mut admin);
                assert_eq!(answer(list), bulks(&["k", &n.to_string()]));
                assert!(n > 0 || zset.is_silent(A_WHILE));
                add(&mut admin);
                assert_eq!(answer(zset), bulks(&["k", &format!("m{n}"), &n.to_string()]));
            } else {
                add(&mut admin);
                assert_eq!(answer(zset), bulks(&["k", &format!("m{n}"), &n.to_string()]));
                assert!(n > 0 || round > 2 || list.is_silent(A_WHILE));
                push(&mut admin);
                assert_eq!(answer(list), bulks(&["k", &n.to_string()]));
            }
        }
        wait_for_blocked(&mut admin, 0);
    }
}

#[test]
fn what_a_call_that_waits_answers() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    for line in ["BZPOPMIN k 0.01", "BZPOPMAX k j 0.001", "BZMPOP 0.01 2 k j MIN COUNT 5"] {
        assert_eq!(waiter.line(line), nil(), "{line}");
    }
    for (line, error) in [
        ("BZPOPMIN k -1", "ERR timeout is negative"),
        ("BZPOPMAX k x", "ERR timeout is not a float or out of range"),
        ("BZMPOP x 0 k MIN", "ERR numkeys should be greater than 0"),
        ("BZMPOP x 1 k LEFT", "ERR syntax error"),
        ("BZMPOP x 1 k MIN", "ERR timeout is not a float or out of range"),
        ("BZMPOP 1 1 k MIN COUNT 0", "ERR count should be greater than 0"),
        ("BZPOPMIN k", "ERR wrong number of arguments for 'bzpopmin' command"),
    ] {
        assert_eq!(text(&waiter.line(line)), error, "{line}");
    }
    admin.line("RPUSH l x");
    assert!(text(&waiter.line("BZPOPMIN none l 0")).starts_with("WRONGTYPE"));
    admin.line("ZADD k 1 a 2 b 3 c 4 d");
    for line in ["MULTI", "BZPOPMIN none 0", "BZPOPMIN none k 0", "BZMPOP 0 1 none MIN", "ZCARD k"] {
        admin.line(line);
    }
    let wanted = vec![nil(), bulks(&["k", "a", "1"]), nil(), Value::Int(3)];
    assert_eq!(admin.line("EXEC"), Value::Array(wanted));
    waiter.line("HELLO 3");
    assert_eq!(waiter.line("BZPOPMIN none 0.01"), Value::Nil(b'_'));
    let scored = |member: &str, score: &str| vec![bulk(member), Value::Double(score.to_owned())];
    let wanted = [vec![bulk("k")], scored("b", "2")].concat();
    assert_eq!(waiter.line("BZPOPMIN k 0"), Value::Array(wanted));
    let wanted = vec![bulk("k"), Value::Array(vec![Value::Array(scored("d", "4"))])];
    assert_eq!(waiter.line("BZMPOP 0 1 k MAX"), Value::Array(wanted));
}

/// Members that each of three clients adds.
const EACH: usize = 400;

/// Clients add members to two sorted sets while others wait there, for one or for several at a time.
#[test]
fn every_member_is_handed_out_once() {
    let tern = tern(&["--appendfsync", "no", "--lanes", "4"]);
    let (taken, got) = (Mutex::new(BTreeSet::new()), AtomicUsize::new(0));
    let seed = Rng::any_seed();
    std::thread::scope(|scope| {
        for n in 0..6 {
            let (tern, taken, got) = (&tern, &taken, &got);
            scope.spawn(move || {
                let (mut client, mut rng) = (tern.client(), Rng::new(seed + n));
                while got.load(SeqCst) < 3 * EACH {
                    let line = match rng.below(4) {
                        0 => "BZPOPMIN z0 z1 0.05".to_owned(),
                        1 => "BZPOPMAX z1 0.05".to_owned(),
                        2 => "BZPOPMIN z0 0.05".to_owned(),
                        _ => format!("BZMPOP 0.05 2 z1 z0 MAX COUNT {}", 1 + rng.below(4)),
                    };
                    let reply = client.line(&line);
                    let Some(items) = reply.items() else {
                        assert_eq!(reply, nil(), "{line}");
                        continue;
                    };
                    let members: Vec<String> = match items[1].items() {
                        Some(pairs) => pairs.iter().map(|pair| text(&pair.items().unwrap()[0])).collect(),
                        None => vec![text(&items[1])],
                    };
                    for member in members {
                        assert!(taken.lock().unwrap().insert(member.clone()), "seed {seed}: {member} twice");
                        got.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        for n in 0..3 {
            let tern = &tern;
            scope.spawn(move || {
                let (mut client, mut rng) = (tern.client(), Rng::new(seed + 100 + n));
                for member in 0..EACH {
                    client.line(&format!("ZADD z{} {} {n}.{member}", rng.below(2), rng.below(9)));
                }
            });
        }
    });
    assert_eq!(taken.lock().unwrap().len(), 3 * EACH, "seed {seed}");
    assert_eq!(tern.client().line("EXISTS z0 z1"), Value::Int(0));
}
