//! Hazard: a client that waits for a sorted set is not woken, or is in the way of one that waits for a list under the
//! same name; or a member is lost or handed out twice.

use super::scene::{
    A_WHILE, Appearing, Taken, answer, begin, bulk, bulks, nil, server, text, wait_for_blocked,
};
use super::support::resp::{Client, Value};
use super::support::rng::Rng;
use super::support::server::tern;

fn scored(texts: &[&str]) -> Value {
    Value::Array(vec![bulk("k"), Value::Array(vec![bulks(texts)])])
}

/// Whatever makes a sorted set appear wakes who waits for it.
#[test]
fn every_change_that_makes_a_sorted_set_wakes() {
    let mut set = Appearing::new(&["ZADD other 1 a 2 b"]);
    let mut ways = Appearing::ways("ZADD k 1 a 2 b");
    ways.extend([
        vec!["MULTI", "ZINCRBY k 2 b", "ZINCRBY k 1 a", "EXEC"],
        vec!["MULTI", "RPUSH k x", "DEL k", "ZADD k 1 a 2 b", "EXEC"],
        vec!["ZUNIONSTORE k 1 other"],
        vec!["ZRANGESTORE k other 0 -1"],
        vec!["RPUSH k x", "RENAME other k"],
        vec!["RPUSH k x", "LPOP k", "ZADD k XX 1 a", "ZREM k a", "MULTI", "ZADD k 2 b 1 a", "EXEC"],
    ]);
    for lines in &ways {
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
            assert_eq!(set.woken(command, lines), wanted, "{command} {lines:?}");
            assert_eq!(set.admin.line("ZCARD k"), Value::Int(left), "{command} {lines:?}");
        }
    }
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
    let (taken, seed) = (Taken::of(3 * EACH), Rng::any_seed());
    super::support::say(&format!("waiting: TERN_SEED={seed}"));
    std::thread::scope(|scope| {
        for n in 0..6 {
            let (client, taken, rng) = (tern.client(), &taken, Rng::new(seed + n));
            scope.spawn(move || taken.part(|| pop(client, taken, rng)));
        }
        for n in 0..3 {
            let (mut client, taken, mut rng) = (tern.client(), &taken, Rng::new(seed + 100 + n));
            scope.spawn(move || {
                taken.part(|| {
                    for member in 0..EACH {
                        let line = format!("ZADD z{} {} {n}.{member}", rng.below(2), rng.below(9));
                        assert!(!client.line(&line).is_error());
                    }
                });
            });
        }
    });
    taken.assert_all();
    assert_eq!(tern.client().line("EXISTS z0 z1"), Value::Int(0));
}

fn pop(mut client: Client, taken: &Taken, mut rng: Rng) {
    while !taken.is_over() {
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
        match items[1].items() {
            Some(pairs) => pairs.iter().for_each(|pair| taken.take(text(&pair.items().unwrap()[0]))),
            None => taken.take(text(&items[1])),
        }
    }
}
