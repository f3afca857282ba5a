//! Clients of streams one after the other, written by hand: both checkers accept the right answers and no others.

use super::model::{Answer, Op};
use super::record::History;
use super::replay::replay;
use super::search::{Event, Finding, parts, search_parts};
use super::witness::{Trace, Transaction};
use std::collections::BTreeSet;

/// A call: its time, its words, its answer, and answers that would be wrong.
type Call = (u64, &'static str, &'static str, &'static [&'static str]);

/// `[ ]` are arrays, `:` is before numbers; `nil` is the string, `none` the array.
fn said(line: &str) -> Answer {
    let mut open = vec![Vec::new()];
    for word in line.split(' ') {
        let answer = match word {
            "[" => {
                open.push(Vec::new());
                continue;
            }
            "]" => Answer::All(open.pop().unwrap()),
            "OK" => Answer::Ok,
            "nil" => Answer::Nil,
            "none" => Answer::Aborted,
            word => match word.strip_prefix(':') {
                Some(n) => Answer::Int(n.parse().unwrap()),
                None => Answer::Text(word.to_owned()),
            },
        };
        open.last_mut().unwrap().push(answer);
    }
    open.pop().unwrap().pop().unwrap()
}

fn event(n: usize, line: &str, answer: Answer, (time, doubt): (u64, u64)) -> Event {
    let op = Op::One(line.split(' ').map(str::to_owned).collect());
    let (called, returned) = (2 * n as u64, 2 * n as u64 + 1);
    let clocks = time - doubt..=time + doubt;
    Event { client: 0, op, answer: Some(answer), called, returned, after: None, unit: n, clocks }
}

fn are_good(calls: &[Call], last: &str, doubt: u64) -> [bool; 2] {
    let answer = |n: usize, right| if n + 1 == calls.len() { last } else { right };
    let numbered = calls.iter().enumerate();
    let events: Vec<Event> = numbered
        .map(|(n, (time, line, right, _))| event(n, line, said(answer(n, right)), (*time, doubt)))
        .collect();
    let (wrote, whole) = (true, BTreeSet::new());
    let transactions = calls.iter().enumerate().map(|(n, (time, ..))| {
        let (version, units) = (n as u64, vec![n]);
        Transaction { version, wrote, units, whole: whole.clone(), clocks: vec![*time], sure: *time }
    });
    let trace = Trace { transactions: transactions.collect(), ..Trace::default() };
    let found = search_parts(parts(&events));
    let repeated = replay(&History { events, trace: Some(trace), ..History::default() }).unwrap();
    [found, repeated].map(|finding| match finding {
        Finding::Serializable => true,
        Finding::Broken(..) => false,
        Finding::Undecided => panic!("undecided"),
    })
}

/// With times that are known, and with some that are not: these show only in the wrong answers that begin with `?`.
fn follow(calls: &[Call]) {
    for n in 1..=calls.len() {
        let (_, line, right, wrong) = calls[n - 1];
        for doubt in [0, 2] {
            assert_eq!(are_good(&calls[..n], right, doubt), [true; 2], "{line}: {right}");
            for wrong in wrong {
                let depends = wrong.starts_with('?') && doubt > 0;
                let good = are_good(&calls[..n], wrong.trim_start_matches("? "), doubt);
                assert_eq!(good, [depends, false], "{line}: {wrong}, {doubt} ms in doubt");
            }
        }
    }
}

/// Two groups that have delivered nothing of four entries.
const BEGIN: &[Call] = &[
    (1000, "XGROUP CREATE f0 g 0 MKSTREAM", "OK", &[]),
    (1000, "XGROUP CREATE f0 h 0 MKSTREAM", "OK", &[]),
    (1000, "XADD f0 0-* f a", "0-1", &["0-2"]),
    (1000, "XADD f0 0-* f b", "0-2", &["0-1"]),
    (1000, "XADD f0 0-* f c", "0-3", &[]),
    (1000, "XADD f0 0-* f d", "0-4", &[]),
];

/// What consumers of one group claim from each other.
const CLAIMS: &[Call] = &[
    (1000, "XREADGROUP GROUP g c0 COUNT 1 STREAMS f0 >", "[ [ f0 [ [ 0-1 [ f a ] ] ] ] ]", &["none"]),
    (1010, "XREADGROUP GROUP g c1 COUNT 1 STREAMS f0 >", "[ [ f0 [ [ 0-2 [ f b ] ] ] ] ]", &[]),
    (
        1015,
        "XREADGROUP GROUP g c1 COUNT 1 CLAIM 10 STREAMS f0 >",
        "[ [ f0 [ [ 0-1 [ f a ] :15 :1 ] ] ] ]",
        &[
            "none",
            "? [ [ f0 [ [ 0-1 [ f a ] :14 :1 ] ] ] ]",
            "[ [ f0 [ [ 0-1 [ f a ] :15 :2 ] ] ] ]",
            "[ [ f0 [ [ 0-1 [ f b ] :15 :1 ] ] ] ]",
            "[ [ f0 [ [ 0-2 [ f b ] :5 :1 ] ] ] ]",
            "[ [ f0 [ [ 0-2 [ f b ] :10 :1 ] ] ] ]",
            "[ [ f0 [ [ 0-3 [ f c ] :0 :0 ] ] ] ]",
        ],
    ),
    (
        1020,
        "XPENDING f0 g - + 99",
        "[ [ 0-1 c1 :5 :2 ] [ 0-2 c1 :10 :1 ] ]",
        &[
            "[ ]",
            "[ [ 0-1 c1 :5 :2 ] ]",
            "[ [ 0-1 c0 :5 :2 ] [ 0-2 c1 :10 :1 ] ]",
            "[ [ 0-1 c1 :5 :1 ] [ 0-2 c1 :10 :1 ] ]",
            "? [ [ 0-1 c1 :6 :2 ] [ 0-2 c1 :10 :1 ] ]",
            "[ [ 0-1 c1 :5 :2 ] [ 0-2 c1 :20 :1 ] ]",
        ],
    ),
    (
        1030,
        "XREADGROUP GROUP g c2 COUNT 3 CLAIM 0 STREAMS f0 >",
        "[ [ f0 [ [ 0-2 [ f b ] :20 :1 ] [ 0-1 [ f a ] :15 :2 ] [ 0-3 [ f c ] :0 :0 ] ] ] ]",
        &[
            "[ [ f0 [ [ 0-1 [ f a ] :15 :2 ] [ 0-2 [ f b ] :20 :1 ] [ 0-3 [ f c ] :0 :0 ] ] ] ]",
            "[ [ f0 [ [ 0-2 [ f b ] :20 :1 ] [ 0-3 [ f c ] :0 :0 ] ] ] ]",
            "[ [ f0 [ [ 0-2 [ f b ] :20 :1 ] [ 0-1 [ f a ] :15 :2 ] ] ] ]",
            "[ [ f0 [ [ 0-2 [ f b ] :20 :1 ] [ 0-1 [ f a ] :15 :2 ] [ 0-4 [ f d ] :0 :0 ] ] ] ]",
        ],
    ),
    (1030, "XCLAIM f0 g c0 600000 0-1", "[ ]", &["[ [ 0-1 [ f a ] ] ]"]),
    (1030, "XCLAIM f0 g c0 0 0-4", "[ ]", &["[ [ 0-4 [ f d ] ] ]"]),
    (1030, "XCLAIM f0 g c0 0 0-4 IDLE 5 FORCE JUSTID", "[ 0-4 ]", &["[ ]"]),
    (1030, "XPENDING f0 g - + 1", "[ [ 0-1 c2 :0 :3 ] ]", &["[ [ 0-1 c0 :0 :3 ] ]", "[ ]"]),
    (1030, "XDEL f0 0-2", ":1", &[":0"]),
    (
        1030,
        "XREADGROUP GROUP g c2 STREAMS f0 0",
        "[ [ f0 [ [ 0-1 [ f a ] ] [ 0-2 none ] [ 0-3 [ f c ] ] ] ] ]",
        &["[ [ f0 [ [ 0-1 [ f a ] ] [ 0-3 [ f c ] ] ] ] ]"],
    ),
    (
        1030,
        "XAUTOCLAIM f0 g c0 0 0-0 COUNT 2",
        "[ 0-3 [ [ 0-1 [ f a ] ] ] [ 0-2 ] ]",
        &["[ 0-0 [ [ 0-1 [ f a ] ] ] [ 0-2 ] ]", "[ 0-3 [ [ 0-1 [ f a ] ] ] [ ] ]", "[ 0-0 [ ] [ ] ]"],
    ),
    (
        1030,
        "XPENDING f0 g",
        "[ :3 0-1 0-4 [ [ c0 2 ] [ c2 1 ] ] ]",
        &["[ :4 0-1 0-4 [ [ c0 2 ] [ c2 2 ] ] ]"],
    ),
    (1030, "XGROUP DELCONSUMER f0 g c2", ":1", &[":0", ":2"]),
    (1030, "XGROUP CREATECONSUMER f0 g c1", ":0", &[":1"]),
    (1030, "XGROUP CREATECONSUMER f0 g c2", ":1", &[":0"]),
    (1030, "XPENDING f0 g", "[ :2 0-1 0-4 [ [ c0 2 ] ] ]", &["[ :3 0-1 0-4 [ [ c0 2 ] [ c2 1 ] ] ]"]),
    (1030, "XGROUP DESTROY f0 g", ":1", &[":0"]),
    (1030, "XACK f0 g 0-1", ":0", &[":1"]),
];

#[test]
fn entries_are_claimed() {
    follow(&[BEGIN, CLAIMS].concat());
}

/// What is deleted with regard to both groups.
const DELETIONS: &[Call] = &[
    (1000, "XTRIM f0 MAXLEN 1 ACKED", ":0", &[":3", ":1"]),
    (1000, "XREADGROUP GROUP g c0 COUNT 1 STREAMS f0 >", "[ [ f0 [ [ 0-1 [ f a ] ] ] ] ]", &[]),
    (
        1000,
        "XREADGROUP GROUP g c0 COUNT 9 NOACK STREAMS f0 >",
        "[ [ f0 [ [ 0-2 [ f b ] ] [ 0-3 [ f c ] ] [ 0-4 [ f d ] ] ] ] ]",
        &[],
    ),
    (1000, "XACKDEL f0 g ACKED IDS 1 0-1", "[ :2 ]", &["[ :1 ]", "[ :-1 ]"]),
    (1000, "XACKDEL f0 g ACKED IDS 1 0-1", "[ :-1 ]", &["[ :1 ]", "[ :2 ]"]),
    (1000, "XDELEX f0 ACKED IDS 1 0-4", "[ :2 ]", &["[ :1 ]", "[ :-1 ]"]),
    (
        1000,
        "XREADGROUP GROUP h c0 COUNT 3 STREAMS f0 >",
        "[ [ f0 [ [ 0-1 [ f a ] ] [ 0-2 [ f b ] ] [ 0-3 [ f c ] ] ] ] ]",
        &[],
    ),
    (1000, "XACK f0 h 0-2", ":1", &[":0"]),
    (1000, "XTRIM f0 MAXLEN 1 ACKED", ":1", &[":0", ":2", ":3"]),
    (
        1000,
        "XRANGE f0 - +",
        "[ [ 0-1 [ f a ] ] [ 0-3 [ f c ] ] [ 0-4 [ f d ] ] ]",
        &["[ [ 0-2 [ f b ] ] [ 0-3 [ f c ] ] [ 0-4 [ f d ] ] ]"],
    ),
    (1000, "XADD f0 DELREF MAXLEN 3 0-* f e", "0-5", &[]),
    (1000, "XPENDING f0 h", "[ :1 0-3 0-3 [ [ c0 1 ] ] ]", &["[ :2 0-1 0-3 [ [ c0 2 ] ] ]"]),
    (1000, "XTRIM f0 MAXLEN 2", ":1", &[":0"]),
    (1000, "XPENDING f0 h", "[ :1 0-3 0-3 [ [ c0 1 ] ] ]", &["[ :0 nil nil none ]"]),
    (1000, "XACKDEL f0 h KEEPREF IDS 1 0-3", "[ :1 ]", &["[ :-1 ]", "[ :2 ]"]),
    (1000, "XDELEX f0 DELREF IDS 1 0-3", "[ :-1 ]", &["[ :1 ]"]),
    (1000, "XDELEX f0 DELREF IDS 1 0-5", "[ :1 ]", &["[ :-1 ]"]),
    (1000, "XLEN f0", ":1", &[":2"]),
];

#[test]
fn entries_stay_as_long_as_groups_need_them() {
    follow(&[BEGIN, DELETIONS].concat());
}
