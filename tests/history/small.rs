//! Histories written by hand: the search accepts and rejects the right ones.

use super::model::values::Members;
use super::model::{Answer, Op};
use super::search::{Event, Finding, NEVER, parts, search_parts, search_with};

fn one(client: usize, line: &str, answer: Option<Answer>, called: u64, returned: u64) -> Event {
    let op = Op::One(line.split(' ').map(str::to_owned).collect());
    Event { client, op, answer, called, returned, after: None, unit: 0, clocks: 0..=0 }
}

fn text(value: &str) -> Option<Answer> {
    Some(Answer::Text(value.into()))
}

const OK: Option<Answer> = Some(Answer::Ok);

fn is_good(events: &[Event]) -> bool {
    match search_parts(parts(events)) {
        Finding::Serializable => true,
        Finding::Broken(..) => false,
        Finding::Undecided => panic!("undecided"),
    }
}

#[test]
fn a_read_after_a_write_sees_it() {
    let write = one(0, "SET k 1", OK, 1, 2);
    assert!(is_good(&[write.clone(), one(1, "GET k", text("1"), 3, 4)]));
    assert!(!is_good(&[write, one(1, "GET k", Some(Answer::Nil), 3, 4)]));
}

#[test]
fn overlapping_operations_may_go_either_way_but_only_one() {
    let write = one(0, "SET k 1", OK, 1, 10);
    let new = one(1, "GET k", text("1"), 2, 3);
    let old = |called| one(1, "GET k", Some(Answer::Nil), called, called + 1);
    assert!(is_good(&[write.clone(), old(2), one(1, "GET k", text("1"), 4, 5)]));
    assert!(!is_good(&[write, new, old(4)]), "a read of the old value after the new one");
}

#[test]
fn a_lost_update_is_found() {
    let add = |client, answer| one(client, "INCRBY c 1", Some(Answer::Int(answer)), 1, 10);
    assert!(is_good(&[add(0, 1), add(1, 2)]));
    assert!(!is_good(&[add(0, 1), add(1, 1)]));
    assert!(!is_good(&[add(0, 1), one(1, "GET c", text("2"), 11, 12)]), "applied twice");
}

#[test]
fn an_open_operation_may_have_happened_or_not_or_later() {
    let open = one(0, "SET k 1", None, 1, NEVER);
    let nil = |at| one(1, "GET k", Some(Answer::Nil), at, at + 1);
    let there = |at| one(1, "GET k", text("1"), at, at + 1);
    assert!(is_good(&[open.clone(), nil(5)]));
    assert!(is_good(&[open.clone(), nil(5), there(7)]));
    assert!(!is_good(&[open.clone(), there(5), nil(7)]));
    assert!(
        !is_good(&[nil(0), there(2), one(0, "SET k 1", None, 5, NEVER)]),
        "a write seen before it was sent"
    );
}

#[test]
fn a_pipeline_keeps_its_order() {
    let first = one(0, "SET k 1", OK, 1, 10);
    let second = Event { after: Some(0), ..one(0, "SET k 2", OK, 1, 10) };
    let then = |value| one(1, "GET k", text(value), 11, 12);
    assert!(is_good(&[first.clone(), second.clone(), then("2")]));
    assert!(!is_good(&[first, second, then("1")]));
}

#[test]
fn an_exec_is_one_step_and_watch_guards_it() {
    let exec = |answer, called| {
        let calls = ["GET k", "SET k 2"].map(|l| l.split(' ').map(str::to_owned).collect()).to_vec();
        Event { op: Op::Exec(calls), answer: Some(answer), ..one(0, "GET k", None, called, called + 1) }
    };
    let all = |first: Answer| Answer::All(vec![first, Answer::Ok]);
    let watch = |at| Event { op: Op::Watch("k".into()), ..one(0, "GET k", OK, at, at + 1) };
    let set = |at| one(1, "SET k 1", OK, at, at + 1);
    let one_text = || Answer::Text("1".into());
    assert!(is_good(&[set(1), watch(3), exec(all(one_text()), 5)]));
    assert!(is_good(&[set(1), watch(3), set(5), exec(Answer::Aborted, 7)]), "a SET of equal bytes");
    assert!(!is_good(&[set(1), watch(3), set(5), exec(all(one_text()), 7)]));
    assert!(!is_good(&[set(1), watch(3), exec(Answer::Aborted, 5)]), "aborted for nothing");
    let reader = one(1, "GET k", text("1"), 20, 21);
    assert!(!is_good(&[set(1), exec(all(one_text()), 5), reader]), "the EXEC's write is lost");
}

#[test]
fn an_exec_is_refused_as_a_whole_or_not_at_all() {
    let calls = ["SET k 2", "SET j 2"].map(|l| l.split(' ').map(str::to_owned).collect()).to_vec();
    let exec = |answers| Event {
        op: Op::Exec(calls.clone()),
        answer: Some(Answer::All(answers)),
        ..one(0, "GET k", None, 1, 2)
    };
    let refused = || Answer::Error("ERR conflict with another transaction".into());
    let reader = |key: &str, answer| one(1, &format!("GET {key}"), answer, 3, 4);
    let nil = || Some(Answer::Nil);
    assert!(is_good(&[exec(vec![refused(), refused()]), reader("k", nil()), reader("j", nil())]));
    assert!(!is_good(&[exec(vec![refused(), Answer::Ok]), reader("k", nil()), reader("j", text("2"))]));
    assert!(!is_good(&[exec(vec![Answer::Ok, refused()])]), "whatever is read later");
}

#[test]
fn a_broken_part_counts_after_an_undecided_one() {
    let long =
        vec![one(0, "SET k 1", OK, 1, 5), one(1, "SET k 2", OK, 1, 5), one(2, "GET k", text("2"), 6, 7)];
    let broken = vec![one(0, "GET j", text("1"), 1, 2)];
    assert_eq!(search_with(vec![long.clone()], 0), Finding::Undecided);
    assert!(search_with(vec![broken.clone()], 0).is_broken());
    assert!(search_with(vec![long.clone(), broken.clone()], 0).is_broken());
    assert!(search_parts(vec![long, broken]).is_broken());
}

#[test]
fn expiry_goes_by_the_clock_of_the_operation() {
    let set = one(0, "SET k 1 PX 10", OK, 1, 2);
    let at = |clocks, answer| Event { clocks, ..one(1, "GET k", answer, 3, 4) };
    assert!(is_good(&[set.clone(), at(9..=9, text("1"))]));
    assert!(!is_good(&[set.clone(), at(9..=9, Some(Answer::Nil))]), "gone too early");
    assert!(!is_good(&[set.clone(), at(10..=10, text("1"))]), "there too long");
    assert!(is_good(&[set.clone(), at(9..=10, text("1"))]) && is_good(&[set, at(9..=10, Some(Answer::Nil))]));
}

/// A client has seen that the key has expired; an operation that began before that, and read an earlier time,
/// may not find it alive.
#[test]
fn time_does_not_run_backwards() {
    let set = one(0, "SET k 1 PX 10", OK, 1, 2);
    let reader = |clocks, answer| Event { clocks, ..one(1, "GET k", answer, 4, 5) };
    for (line, answer) in [("PERSIST k", Answer::Int(1)), ("GETEX k PX 90", Answer::Text("1".into()))] {
        let late = Event { clocks: 9..=9, ..one(2, line, Some(answer), 3, 6) };
        assert!(is_good(&[set.clone(), reader(9..=9, text("1")), late.clone()]), "{line}");
        assert!(
            is_good(&[set.clone(), reader(11..=11, text("1")), late.clone()]),
            "{line}: the key lives on"
        );
        assert!(!is_good(&[set.clone(), reader(11..=11, Some(Answer::Nil)), late]), "{line}");
    }
    // The expiry of another key shows the time as well.
    let other = one(0, "SET j 1 PX 5", OK, 1, 2);
    let exec = |clocks, answer| Event {
        op: Op::Exec(vec![vec!["EXISTS".into(), "j".into()], vec!["EXISTS".into(), "k".into()]]),
        clocks,
        ..one(3, "GET j", Some(answer), 7, 8)
    };
    let counts = |j, k| Answer::All(vec![Answer::Int(j), Answer::Int(k)]);
    let all = |clocks, answer| {
        [set.clone(), other.clone(), reader(11..=11, Some(Answer::Nil)), exec(clocks, answer)]
    };
    assert!(is_good(&all(4..=11, counts(0, 0))));
    assert!(!is_good(&all(4..=11, counts(1, 0))), "the first key expired before the second");
}

/// Also if an EXEC found the old key expired, which may have been removed at a later time than its clock
/// reading.
#[test]
fn an_execs_write_outlives_the_expired_key() {
    let set = one(0, "SET k 1 PX 10", OK, 1, 2);
    let calls = ["PERSIST k", "SET k 2 PX 1", "GET k"].map(|l| l.split(' ').map(str::to_owned).collect());
    let answers = vec![Answer::Int(0), Answer::Ok, Answer::Text("2".into())];
    let op = Op::Exec(calls.to_vec());
    let exec = Event { op, clocks: 5..=20, ..one(1, "GET k", Some(Answer::All(answers)), 3, 4) };
    let reader = |now| Event { clocks: now..=now, ..one(2, "GET k", text("2"), 5, 6) };
    assert!(is_good(&[set.clone(), exec.clone(), reader(20)]) && !is_good(&[set, exec, reader(21)]));
}

/// A read that sees one key expired may return first, and yet have to follow an operation that found another
/// key alive.
#[test]
fn a_read_that_shows_a_later_time_may_come_later() {
    let keys = |line: &str| one(0, line, OK, 1, 2);
    let both = vec![vec!["EXISTS".to_owned(), "k".to_owned()], vec!["EXISTS".to_owned(), "j".to_owned()]];
    let exec =
        Event { op: Op::Exec(both), ..one(0, "GET k", Some(Answer::All(vec![Answer::Int(1); 2])), 3, 4) };
    let late = Event { clocks: 11..=11, ..one(1, "GET k", Some(Answer::Nil), 6, 7) };
    let alive =
        |called| Event { clocks: 8..=8, ..one(2, "PERSIST j", Some(Answer::Int(1)), called, called + 3) };
    let all =
        |called| [keys("SET k 1 PX 10"), keys("SET j 1 PX 9"), exec.clone(), late.clone(), alive(called)];
    assert!(is_good(&all(5)) && is_good(&all(6)));
    assert!(!is_good(&all(8)), "time runs backwards");
}

#[test]
fn times_are_given_in_seconds_and_kept() {
    let at =
        |clocks, line: &str, answer, called| Event { clocks, ..one(1, line, answer, called, called + 1) };
    let alive = |now, called| at(now..=now, "EXISTS k", Some(Answer::Int(1)), called);
    let over = |now, called| at(now..=now, "EXISTS k", Some(Answer::Int(0)), called);
    let set = one(0, "SET k 1 EX 2", OK, 1, 2);
    assert!(
        is_good(&[set.clone(), alive(1999, 3), over(2000, 5)]) && !is_good(&[set.clone(), alive(2000, 3)])
    );
    let kept = at(1000..=1000, "SET k 2 KEEPTTL", OK, 3);
    assert!(is_good(&[set.clone(), kept.clone(), alive(1999, 5), over(2000, 7)]));
    assert!(!is_good(&[set.clone(), kept, alive(2000, 5)]));
    let again = |line, answer| at(1000..=1000, line, answer, 3);
    for (line, answer) in [("EXPIRE k 2", Answer::Int(1)), ("GETEX k EX 2", Answer::Text("1".into()))] {
        let again = again(line, Some(answer));
        assert!(is_good(&[set.clone(), again.clone(), alive(2999, 5), over(3000, 7)]), "{line}");
        assert!(!is_good(&[set.clone(), again, over(2999, 5)]), "{line}");
    }
}

/// Whatever keys its own commands use.
#[test]
fn an_exec_touches_its_watched_keys() {
    let set = one(0, "SET k 1 PX 10", OK, 1, 2);
    let watch = Event { op: Op::Watch("k".into()), clocks: 5..=5, ..one(1, "GET k", OK, 3, 4) };
    let exec = |clocks, answer| Event {
        op: Op::Exec(vec![vec!["EXISTS".into(), "j".into()]]),
        clocks,
        ..one(1, "GET j", Some(answer), 5, 6)
    };
    let all = |clocks, answer| [set.clone(), watch.clone(), exec(clocks, answer)];
    let ran = || Answer::All(vec![Answer::Int(0)]);
    assert!(is_good(&all(8..=12, Answer::Aborted)) && is_good(&all(8..=12, ran())));
    assert!(!is_good(&all(8..=9, Answer::Aborted)), "the key is still there");
    assert!(!is_good(&all(10..=12, ran())), "the key has expired");
}

#[test]
fn databases_are_swapped_and_emptied_as_a_whole() {
    let set = one(0, "SET 1/k 1", OK, 1, 2);
    let swap = one(1, "SWAPDB 1/ 2/", OK, 3, 4);
    let get = |key: &str, answer, at| one(2, &format!("GET {key}"), answer, at, at + 1);
    let nil = || Some(Answer::Nil);
    assert!(is_good(&[set.clone(), swap.clone(), get("2/k", text("1"), 5), get("1/k", nil(), 7)]));
    assert!(!is_good(&[set.clone(), swap.clone(), get("1/k", text("1"), 5)]));
    let late = one(0, "SET 1/k 1", OK, 1, 10);
    assert!(is_good(&[late.clone(), swap.clone(), get("2/k", nil(), 11), get("1/k", text("1"), 13)]));
    assert!(
        !is_good(&[late, swap, get("2/k", nil(), 11), get("1/k", nil(), 13)]),
        "the key is in neither database"
    );
    assert!(!is_good(&[set, one(1, "FLUSHDB 1/", OK, 3, 4), get("1/k", text("1"), 5)]));
}

#[test]
fn an_id_has_one_answer() {
    let add = |client, answer| one(client, "ONCE id INCRBY c 1", Some(Answer::Int(answer)), 1, 10);
    let get = |value| one(2, "GET c", text(value), 11, 12);
    assert!(is_good(&[add(0, 1), add(1, 1), get("1")]));
    assert!(!is_good(&[add(0, 1), add(1, 2), get("2")]), "the command ran twice");
    let forget = one(3, "FORGET id", Some(Answer::Int(1)), 1, 10);
    assert!(is_good(&[add(0, 1), add(1, 2), forget, get("2")]));
}

#[test]
fn members_have_ranks_by_score_and_then_by_name() {
    let add = one(0, "ZADD z 2 k000 1 k002 1 k001", Some(Answer::Int(3)), 1, 2);
    let rank = |name: &str, rank| one(1, &format!("ZRANK z {name}"), Some(Answer::Int(rank)), 3, 4);
    assert!(is_good(&[add.clone(), rank("k001", 0), rank("k002", 1), rank("k000", 2)]));
    assert!(!is_good(&[add.clone(), rank("k002", 0)]));
    let below = one(2, "ZADD z 0 k003", Some(Answer::Int(1)), 1, 10);
    assert!(
        is_good(&[add.clone(), below.clone(), rank("k001", 0)])
            && is_good(&[add.clone(), below, rank("k001", 1)])
    );
    let answers = [
        ("ZREVRANK z k001 WITHSCORE", Answer::All(vec![Answer::Int(2), Answer::Score(1)])),
        ("ZRANK z k003 WITHSCORE", Answer::Aborted),
        ("ZCOUNT z (1 2", Answer::Int(1)),
        ("ZRANGE z 2 (1 BYSCORE REV WITHSCORES", Answer::Scored(vec![("k000".into(), 2)])),
        ("ZRANGE z -2 -1 REV WITHSCORES", Answer::Scored(vec![("k002".into(), 1), ("k001".into(), 1)])),
        ("ZRANGE z 1 9 BYSCORE LIMIT 1 1 WITHSCORES", Answer::Scored(vec![("k002".into(), 1)])),
        ("ZADD z GT CH 1 k000 3 k001", Answer::Int(1)),
        ("ZADD z NX INCR 1 k000", Answer::Nil),
        ("ZADD z XX 1 k007", Answer::Int(0)),
        ("ZMSCORE z k001 k007", Answer::All(vec![Answer::Score(3), Answer::Nil])),
        ("ZPOPMAX z 1", Answer::Scored(vec![("k001".into(), 3)])),
        ("ZREMRANGEBYRANK z 0 -1", Answer::Int(2)),
        ("ZPOPMIN z", Answer::All(Vec::new())),
    ];
    let line =
        |(n, (line, answer)): (u64, (&str, Answer))| one(0, line, Some(answer), 20 + 2 * n, 21 + 2 * n);
    assert!(is_good(&std::iter::once(add).chain((0..).zip(answers).map(line)).collect::<Vec<_>>()));
}

#[test]
fn a_popped_member_was_in_the_set() {
    let add = one(0, "SADD s x0 x1", Some(Answer::Int(2)), 1, 2);
    let pop = |member: &str, at| one(0, "SPOP s", text(member), at, at + 1);
    assert!(is_good(&[add.clone(), pop("x0", 3), pop("x1", 5), one(0, "SPOP s", Some(Answer::Nil), 7, 8)]));
    assert!(!is_good(&[add.clone(), pop("x0", 3), pop("x0", 5)]));
    let open = one(1, "SPOP s", None, 3, NEVER);
    assert!(is_good(&[add, open, one(0, "SMEMBERS s", Some(Answer::Members(Members::of(["x1"]))), 5, 6)]));
}

#[test]
fn parts_hold_operations_that_share_keys() {
    let events = [
        one(0, "GET a", Some(Answer::Nil), 1, 2),
        one(0, "MSET b 1 c 1", OK, 3, 4),
        one(0, "GET c", text("1"), 5, 6),
        one(0, "RENAME a d", Some(Answer::Error("ERR no such key".into())), 7, 8),
    ];
    let sizes: Vec<usize> = parts(&events).iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 2]);
    assert!(is_good(&events));
}
