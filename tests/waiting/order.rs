//! Who gets what, and who is told so.

use super::scene::{A_WHILE, answer, begin, bulk, bulks, id, nil, server, text, wait_for_blocked};
use super::support::resp::Value;
use super::support::server::tern;
use std::time::Duration;

/// Hazard: CLIENT UNBLOCK says that it has ended the waiting of a client that gets an element, or leaves one waiting
/// although it says so.
#[test]
fn unblock_says_what_became_of_the_client() {
    let tern = tern(&["--appendfsync", "always"]);
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    let number = id(&mut waiter);
    let mut unblocked = [0, 0];
    for n in 0..60 {
        begin(&mut waiter, "BLPOP k 0");
        wait_for_blocked(&mut admin, 1);
        admin.line("RPUSH k a");
        std::thread::sleep(Duration::from_micros(n % 20 * 100));
        let said = admin.line(&format!("CLIENT UNBLOCK {number} ERROR")).int().unwrap();
        let answer = answer(&mut waiter);
        match said {
            1 => {
                assert_eq!(answer, Value::Error(b"UNBLOCKED client unblocked via CLIENT UNBLOCK".to_vec()));
                assert_eq!(admin.line("LPOP k"), bulk("a"), "{n}");
            }
            _ => {
                assert_eq!(answer, bulks(&["k", "a"]), "{n}");
                assert_eq!(admin.line("LLEN k"), Value::Int(0));
            }
        }
        unblocked[said as usize] += 1;
    }
    assert!(unblocked[0] > 0, "{unblocked:?}");
}

/// Hazard: CLIENT UNBLOCK waits in the lane in which the client takes its element, or in a transaction.
#[test]
fn unblock_waits_for_nobody_who_waits_for_it() {
    let tern = tern(&["--appendfsync", "always"]);
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    let number = id(&mut waiter);
    for n in 0..40 {
        begin(&mut waiter, "BLPOP k 0");
        wait_for_blocked(&mut admin, 1);
        let line = format!("CLIENT UNBLOCK {number}");
        let since = std::time::Instant::now();
        let lines = match n % 2 {
            0 => vec!["RPUSH k a", &line, "LLEN k"],
            _ => vec!["MULTI", "RPUSH k a", &line, "EXEC", "LLEN k"],
        };
        begin(&mut admin, &lines.join("\r\n"));
        let left = lines.iter().map(|_| answer(&mut admin)).last().unwrap();
        let is_taken = answer(&mut waiter) != nil();
        // What is left was there before the client took it, or the client got nothing.
        assert!(left == Value::Int(1) || is_taken, "{n}: {left:?}");
        assert_eq!(admin.line("DEL k"), Value::Int(i64::from(!is_taken)), "{n}");
        assert!(since.elapsed() < Duration::from_millis(900), "{n}: {:?}", since.elapsed());
    }
}

/// Hazard: a call that takes more than fits into its lane is overtaken by the next one.
#[test]
fn who_takes_many_is_not_overtaken() {
    const MANY: usize = 20_000;
    let tern = server();
    let (mut admin, mut greedy, mut next) = (tern.client(), tern.client(), tern.client());
    for (wait, one, add) in [
        ("BLMPOP 0 1 k LEFT COUNT 1000000", "BLPOP k 0", "RPUSH k"),
        ("BZMPOP 0 1 z MIN COUNT 1000000", "BZPOPMIN z 0", "ZADD z"),
    ] {
        begin(&mut greedy, wait);
        wait_for_blocked(&mut admin, 1);
        begin(&mut next, one);
        wait_for_blocked(&mut admin, 2);
        let score = if add == "ZADD z" { "1 " } else { "" };
        let all: Vec<String> = (0..MANY).map(|n| format!("{score}e{n:06}")).collect();
        assert_eq!(admin.line(&format!("{add} {}", all.join(" "))), Value::Int(MANY as i64));
        let Value::Array(got) = answer(&mut greedy) else { panic!("{wait}") };
        let Value::Array(elements) = &got[1] else { panic!("{wait}") };
        assert_eq!(elements.len(), MANY, "{wait}");
        assert!(next.is_silent(A_WHILE), "{one}");
        admin.line(&format!("{add} {score}last"));
        let Value::Array(got) = answer(&mut next) else { panic!("{one}") };
        assert_eq!(text(&got[1]), "last");
    }
}
