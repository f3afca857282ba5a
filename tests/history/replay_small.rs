//! Histories and transactions written by hand: the replay accepts and rejects the right ones.

use super::model::{Answer, Op};
use super::record::{History, Ticks};
use super::replay::replay;
use super::search::{Event, Finding, NEVER};
use super::witness::{Trace, Transaction, Witness, mark};
use std::collections::BTreeSet;
use tern::keyspace::keys::Prefix;
use tern::store::Version;
use tern::store::observe::Observer;

fn one(unit: usize, line: &str, answer: Option<Answer>, called: u64, returned: u64) -> Event {
    let op = Op::One(line.split(' ').map(str::to_owned).collect());
    Event { client: unit, op, answer, called, returned, after: None, unit, clocks: 0..=0 }
}

fn wrote(version: u64, units: &[usize]) -> Transaction {
    Transaction {
        version,
        wrote: true,
        units: units.to_vec(),
        whole: BTreeSet::new(),
        clocks: vec![0],
        sure: 0,
    }
}

fn read(version: u64, units: &[usize]) -> Transaction {
    Transaction { wrote: false, ..wrote(version, units) }
}

/// A history in which no client of a pipeline left.
fn history(events: &[Event], transactions: &[Transaction]) -> History {
    let trace = Trace { transactions: transactions.to_vec(), ..Trace::default() };
    History { events: events.to_vec(), trace: Some(trace), ..History::default() }
}

fn is_good(events: &[Event], transactions: &[Transaction]) -> bool {
    is_good_history(&history(events, transactions))
}

fn is_good_history(history: &History) -> bool {
    match replay(history).unwrap() {
        Finding::Serializable => true,
        Finding::Broken(..) => false,
        Finding::Undecided => panic!("undecided"),
    }
}

fn text(value: &str) -> Option<Answer> {
    Some(Answer::Text(value.into()))
}

const OK: Option<Answer> = Some(Answer::Ok);
const NIL: Option<Answer> = Some(Answer::Nil);

#[test]
fn answers_follow_the_order_of_versions() {
    let both = [one(0, "SET k 1", OK, 1, 10), one(1, "GET k", text("1"), 1, 10)];
    assert!(is_good(&both, &[wrote(7, &[0]), read(7, &[1])]));
    assert!(!is_good(&both, &[read(6, &[1]), wrote(7, &[0])]), "a value that is not yet written");
    let old = [one(0, "SET k 1", OK, 1, 10), one(1, "GET k", NIL, 1, 10)];
    assert!(is_good(&old, &[read(6, &[1]), wrote(7, &[0])]));
    assert!(!is_good(&old, &[wrote(7, &[0]), read(8, &[1])]), "an order that only the search accepts");
}

#[test]
fn versions_respect_time() {
    let apart = [one(0, "GET a", NIL, 1, 2), one(1, "GET a", NIL, 3, 4)];
    assert!(is_good(&apart, &[read(5, &[0]), read(6, &[1])]));
    assert!(is_good(&apart, &[read(5, &[0, 1])]));
    assert!(!is_good(&apart, &[read(4, &[1]), read(5, &[0])]), "a stale read that no value reveals");
    let write = [one(0, "GET a", NIL, 1, 2), one(1, "SET b 1", OK, 3, 4)];
    assert!(!is_good(&write, &[wrote(5, &[1]), read(5, &[0])]), "a write seen before its call");
    let at_once = [one(0, "GET a", NIL, 1, 4), one(1, "GET a", NIL, 3, 4)];
    assert!(is_good(&at_once, &[read(4, &[1]), read(5, &[0])]));
}

#[test]
fn a_lost_or_doubled_update_is_found() {
    let add = |unit, answer| one(unit, "INCRBY c 1", Some(Answer::Int(answer)), 1, 10);
    assert!(is_good(&[add(0, 1), add(1, 2)], &[wrote(5, &[0]), wrote(6, &[1])]));
    assert!(!is_good(&[add(0, 1), add(1, 1)], &[wrote(5, &[0]), wrote(6, &[1])]));
    assert!(!is_good(&[add(0, 1), add(1, 2)], &[wrote(5, &[0]), wrote(6, &[1]), wrote(7, &[1])]));
    let twice = [add(0, 2), one(1, "GET c", text("2"), 11, 12)];
    assert!(!is_good(&twice, &[wrote(5, &[0]), read(5, &[1])]));
}

/// Hazard: a correct history is called broken, because a watch outlives the EXEC that ended it.
#[test]
fn an_exec_that_was_refused_ends_its_watches() {
    let event = |unit, op, answer, called| Event { op, unit, ..one(0, "-", answer, called, called + 1) };
    let watch = |unit, key: &str, called| event(unit, Op::Watch(key.into()), OK, called);
    let exec =
        |unit, answer, called| event(unit, Op::Exec(vec![vec!["GET".into(), "n".into()]]), answer, called);
    let set = |called| Event { client: 9, ..one(9, "SET k 1", OK, called, called + 1) };
    let refused = || Some(Answer::All(vec![Answer::Error("ERR transaction too old: x".into())]));
    let got = || Some(Answer::All(vec![Answer::Nil]));
    let plain = [watch(0, "k", 1), exec(1, refused(), 3), set(5), exec(2, got(), 7)];
    assert!(is_good(&plain, &[read(4, &[0]), wrote(5, &[9]), read(5, &[2])]));
    let other = [watch(0, "k", 1), exec(1, refused(), 3), set(5), watch(3, "o", 7), exec(2, got(), 9)];
    assert!(is_good(&other, &[read(4, &[0]), wrote(5, &[9]), read(5, &[3]), read(5, &[2])]));
    // The watches after it count.
    let again = [exec(1, refused(), 1), watch(0, "k", 3), set(5), watch(3, "o", 7), exec(2, got(), 9)];
    assert!(!is_good(&again, &[read(4, &[0]), wrote(5, &[9]), read(5, &[3]), read(5, &[2])]));
}

#[test]
fn answered_operations_were_committed() {
    assert!(!is_good(&[one(0, "SET k 1", OK, 1, 2)], &[]), "nowhere");
    assert!(!is_good(&[one(0, "SET k 1", OK, 1, 2)], &[read(5, &[0])]), "not committed");
    assert!(is_good(
        &[one(0, "SETNX k 1", Some(Answer::Int(0)), 3, 4), one(1, "SET k 2", OK, 1, 2)],
        &[wrote(5, &[1]), read(5, &[0])]
    ));
    let nothing = Some(Answer::All(Vec::new()));
    assert!(!is_good(&[one(0, "ZPOPMIN z", nothing, 1, 2)], &[]), "an empty array is no refusal");
    let refused = Some(Answer::Error("ERR transaction too old: x".into()));
    assert!(is_good(&[one(0, "SET k 1", refused, 1, 2)], &[]));
}

/// A transaction reads the clock before it begins: until its version is fixed, others may remove keys that
/// have expired since.
#[test]
fn reads_see_the_time_when_their_version_was_fixed() {
    let at = |transaction, now, sure| Transaction { clocks: vec![now], sure, ..transaction };
    let after = |line, answer, now, sure| {
        let events =
            [one(0, "SET k 1 PX 10", OK, 1, 2), one(1, line, answer, 3, 4), one(2, "GET k", NIL, 5, 6)];
        is_good(
            &events,
            &[at(wrote(5, &[0]), 0, 0), at(wrote(6, &[1]), now, sure), at(read(7, &[2]), 20, 20)],
        )
    };
    assert!(after("GET k", NIL, 9, 10) && after("GET k", text("1"), 9, 9));
    assert!(!after("GET k", text("1"), 9, 10) && !after("GET k", NIL, 9, 9));
    // Its expiry counts from the clock reading.
    assert!(after("GETEX k PX 11", text("1"), 9, 9) && !after("GETEX k PX 12", text("1"), 9, 9));
}

#[test]
fn refused_operations_were_not_committed() {
    let refused = || Some(Answer::Error("ERR the store is unavailable".into()));
    let add = [one(0, "INCRBY c 1", refused(), 1, 2)];
    assert!(is_good(&add, &[]) && is_good(&add, &[read(5, &[0])]));
    assert!(!is_good(&add, &[wrote(5, &[0])]), "also if no operation reads it afterwards");
}

#[test]
fn an_open_operation_counts_where_it_was_committed() {
    let open = one(0, "SET k 1", None, 1, NEVER);
    let reader = |answer| one(1, "GET k", answer, 5, 6);
    assert!(is_good(&[open.clone(), reader(NIL)], &[read(4, &[1])]));
    assert!(!is_good(&[open.clone(), reader(NIL)], &[wrote(4, &[0]), read(4, &[1])]));
    assert!(is_good(&[open.clone(), reader(text("1"))], &[wrote(4, &[0]), read(4, &[1])]));
    assert!(!is_good(&[open, reader(text("1"))], &[read(4, &[1])]));
}

/// The server ends a pipeline's unit early when it takes long. What is left runs in the next transaction, or
/// never if the client has gone; a client that stayed knows how far its pipeline went.
#[test]
fn a_pipeline_whose_client_left_may_have_ended_early() {
    let first = one(0, "SET a 1", None, 1, NEVER);
    let second = Event { after: Some(0), ..one(0, "SET b 1", None, 1, NEVER) };
    let seen = |a, b, left: &[usize], whole: &[usize]| {
        let events = [first.clone(), second.clone(), one(1, "GET a", a, 5, 6), one(2, "GET b", b, 5, 6)];
        let pipeline = Transaction { whole: whole.iter().copied().collect(), ..wrote(4, &[0]) };
        let transactions = [pipeline, read(4, &[1]), read(4, &[2])];
        is_good_history(&History { left: left.iter().copied().collect(), ..history(&events, &transactions) })
    };
    let written = || text("1");
    for (a, b) in [(written(), written()), (written(), NIL), (NIL, NIL)] {
        assert!(seen(a, b, &[0], &[]));
    }
    assert!(!seen(NIL, written(), &[0], &[]), "the first operation is missing");
    for (left, whole) in [(&[][..], &[][..]), (&[0], &[0]), (&[], &[0])] {
        assert!(seen(written(), written(), left, whole));
        assert!(!seen(written(), NIL, left, whole), "the client stayed, or the end was reached");
    }
}

#[test]
fn commits_of_one_version_may_stand_in_any_order() {
    let set = |unit: usize| one(unit, &format!("SET k {unit}"), OK, 1, 10);
    let last = |value: &str, at| one(at as usize, "GET k", text(value), at, at + 1);
    let transactions = [wrote(5, &[0]), wrote(5, &[1]), wrote(5, &[2]), read(5, &[20]), read(6, &[30])];
    let events = |a: &str, b: &str| [set(0), set(1), set(2), last(a, 20), last(b, 30)];
    for value in ["0", "1", "2"] {
        assert!(is_good(&events(value, value), &transactions));
    }
    assert!(!is_good(&events("0", "1"), &transactions), "all readers must agree on one order");
}

#[test]
fn a_transaction_sees_one_time() {
    let set = one(0, "SET k 1 PX 10", OK, 1, 2);
    let two = |first, second| {
        let second = Event { after: Some(1), ..one(1, "GET k", second, 3, 4) };
        [set.clone(), one(1, "GET k", first, 3, 4), second]
    };
    let trace = [wrote(5, &[0]), Transaction { clocks: vec![9, 10], ..read(5, &[1]) }];
    assert!(is_good(&two(text("1"), text("1")), &trace) && is_good(&two(NIL, NIL), &trace));
    assert!(!is_good(&two(text("1"), NIL), &trace));
}

#[test]
fn a_commit_of_unknown_outcome_is_undecided() {
    let trace = Trace { doubtful: [0].into(), ..Trace::default() };
    let events = vec![one(0, "SET k 1", OK, 1, 2)];
    let history = History { events, trace: Some(trace), ..History::default() };
    assert_eq!(replay(&history), Some(Finding::Undecided));
    assert_eq!(replay(&History { trace: None, ..history }), None);
}

/// A key that was absent at WATCH and came and went since aborts the EXEC, whichever client was told.
#[test]
fn an_exec_whose_absent_key_came_and_went_is_aborted() {
    let watch = Event { op: Op::Watch("k".into()), ..one(0, "GET k", OK, 1, 2) };
    let calls = vec!["SET k 1".split(' ').map(str::to_owned).collect()];
    let exec = |answer| Event { client: 0, op: Op::Exec(calls.clone()), ..one(1, "GET k", answer, 9, 10) };
    let reader = |answer| one(2, "GET k", answer, 11, 12);
    let (set, del) = (one(3, "SET k 2", OK, 3, 4), one(4, "DEL k", Some(Answer::Int(1)), 5, 6));
    let (ran, aborted) = (Some(Answer::All(vec![Answer::Ok])), Some(Answer::Aborted));
    let quiet = [wrote(3, &[0]), wrote(6, &[1]), read(6, &[2])];
    assert!(is_good(&[watch.clone(), exec(ran.clone()), reader(text("1"))], &quiet));
    assert!(!is_good(&[watch.clone(), exec(aborted.clone()), reader(NIL)], &quiet), "aborted for nothing");
    let between = [wrote(3, &[0]), wrote(4, &[3]), wrote(5, &[4]), wrote(6, &[1]), read(6, &[2])];
    let all = |exec, seen| [watch.clone(), exec, reader(seen), set.clone(), del.clone()];
    assert!(is_good(&all(exec(aborted), NIL), &between));
    assert!(!is_good(&all(exec(ran), text("1")), &between), "the key came and went");
    let open = |seen| all(Event { returned: NEVER, ..exec(None) }, seen);
    assert!(is_good(&open(NIL), &between));
    assert!(!is_good(&open(text("1")), &between), "whichever client was told");
}

#[test]
fn the_witness_sees_units_where_commands_run() {
    let witness = Witness::new(Ticks::default());
    let row = Prefix::from_number(1).record(mark(7).as_bytes());
    let reads = |tx: u64, version: u64, runs: bool| {
        witness.begins(tx);
        if runs {
            witness.runs_at(tx, 5, 6);
        }
        witness.has_read(tx, version, &row);
    };
    reads(1, 10, true);
    // The ghost of a mark that a WATCH named is renewed later.
    reads(2, 20, false);
    let trace = witness.trace(&BTreeSet::from([7]));
    let seen: Vec<(Version, Vec<usize>)> =
        trace.transactions.into_iter().map(|t| (t.version, t.units)).collect();
    assert_eq!(seen, [(10, vec![7])]);
}
