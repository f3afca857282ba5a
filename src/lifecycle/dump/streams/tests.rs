//! Payloads of streams: those of Redis, those that contradict themselves, and hostile ones.

use super::super::read::{Refused, decode, kind};
use super::super::{crc, finish_as, weight};
use super::*;
use crate::types::Kind;
use crate::types::dumped::Dumped;
use futures_util::FutureExt;

const LONGEST: usize = 1 << 20;

/// Of redis-server 7.0.15: five entries of which two were deleted, a group of three consumers and three pending
/// entries, and one of none.
const SEVEN: &[u8] = b"\x13\x01\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01@``\0\0\0%\0\x03\x01\x02\x01\x02\x01\x81a\x02\
    \x81b\x02\0\x01\x02\x01\0\x01\0\x01\x01\x01\x83two\x04\x05\x01\x03\x01\0\x01\x01\x01\x02\x01\x85three\x06\x05\x01\0\
    \x01\0\x01\x02\x01\x01\x01\x81c\x02\x81x\x02\x06\x01\x02\x01\x01\x01\xdf\xff\x02\xc1,\x02\x04\x01\x05\x01\x03\x01\
    \x02\x01\xdf\xff\x02\x05\x01\x05\x01\x05\x01\xff\x03\x07\0\x05\x01\x07\0\x05\x02\x01g\x06\0\x81\xff\xff\xff\xff\xff\
    \xff\xff\xff\x03\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0h\xe5\xcf\x8b\x01\0\0\x07\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x03\
    \xc8FU)\xa2\x01\0\0\x01\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\0\xc9FU)\xa2\x01\0\0\x01\x03\x05alice\xc8FU)\xa2\x01\0\0\
    \x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x03\x03bob\xc9FU)\xa2\x01\0\0\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0\
    \0\0\x06\0\0\0\0\0\0\0\0\x04idle\xc8FU)\xa2\x01\0\0\0\x01h\x05\x03\x81\xff\xff\xff\xff\xff\xff\xff\xff\0\0\x0a\0a\
    \xd9\xcbv\x19Z\x92\x0a";
/// Of redis-server 8.6.3: three entries that two producers sent.
const EIGHT: &[u8] = b"\x1a\x01\x10\0\0\x01\xa2)H\xca\x16\0\0\0\0\0\0\0\x0033\0\0\0\x14\0\x03\x01\0\x01\x01\x01\x81f\x02\
    \0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\x02\x01\0\x01\x01\x01\x81v\x02\x04\x01\x02\x01\0\x01\x02\x01\x81v\x02\
    \x04\x01\xff\x03\x81\0\0\x01\xa2)H\xca\x16\x02\x81\0\0\x01\xa2)H\xca\x16\0\0\0\x03\0@d@d\x02\x05prod2\x02\x04iid1\
    \x81\0\0\x01\xa2)H\xca\x16\0\x04iid2\x81\0\0\x01\xa2)H\xca\x16\x01\x05prod3\x01\x04iid1\x81\0\0\x01\xa2)H\xca\x16\
    \x02\x03\x01\x0d\0>\x1b\x83\xda\xdfL\xb6c";

fn decoded(payload: &[u8]) -> Result<Whole, Refused> {
    assert_eq!(kind(payload), Some(Kind::Stream));
    match decode(payload, LONGEST).now_or_never().unwrap()? {
        Dumped::Stream(stream) => Ok(stream),
        other => panic!("{other:?}"),
    }
}

fn strings(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::from((*text).to_owned())).collect()
}

/// What [`SEVEN`] holds.
fn seven() -> Whole {
    let of = |ms, seq, texts: &[&str]| Entry::new(Id::new(ms, seq), &strings(texts));
    let pending =
        |ms, seq, time, count, consumer| WholePending { id: Id::new(ms, seq), time, count, consumer };
    let consumer =
        |name: &str, seen| WholeConsumer { name: Bytes::from(name.to_owned()), seen, active: Some(seen) };
    let (at, later) = (1_795_989_784_264, 1_795_989_784_265);
    let group = |name: &'static str, last, pending, consumers| WholeGroup {
        name: name.into(),
        last,
        read: None,
        pending,
        consumers,
    };
    Whole {
        entries: vec![
            of(5, 1, &["a", "1", "b", "two"]),
            of(5, 3, &["c", "x"]),
            of(6, 0, &["a", "300", "b", "4"]),
        ],
        last: Id::new(7, 0),
        max_deleted: Id::new(7, 0),
        added: 5,
        groups: vec![
            group(
                "g",
                Id::new(6, 0),
                vec![
                    pending(5, 1, 1_700_000_000_000, 7, 1),
                    pending(5, 3, at, 1, 0),
                    pending(6, 0, later, 1, 1),
                ],
                vec![consumer("alice", at), consumer("bob", later), consumer("idle", at)],
            ),
            group("h", Id::new(5, 3), vec![], vec![]),
        ],
    }
}

#[test]
fn streams_are_those_of_redis() {
    assert_eq!(decoded(SEVEN), Ok(seven()));
    assert_eq!(decoded(&of_stream(&seven())), Ok(seven()));
    let eight = decoded(EIGHT).unwrap();
    let ids: Vec<u64> = eight.entries.iter().map(|entry| entry.id.seq).collect();
    assert_eq!((ids, eight.added, eight.groups.len()), (vec![0, 1, 2], 3, 0));
    assert!(eight.entries.iter().all(|entry| entry.strings().eq(["f", "v"].map(str::as_bytes))));
    assert_eq!(decoded(&of_stream(&Whole::default())), Ok(Whole::default()));
}

/// Redis 5 counts nothing, and Redis 7.2 knows when a consumer was active.
#[test]
fn older_and_newer_forms() {
    let body = &SEVEN[..SEVEN.len() - 10];
    let head = body.windows(3).position(|bytes| bytes == b"\xff\x03\x07").unwrap() + 4;
    let (nodes, rest) = (&body[1..head], &body[head + 5..]);
    let groups = rest.windows(9).position(|bytes| bytes == b"\x81\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
    // The first group's number of entries read is left out; the last one is of the group h.
    let five = [&[15][..], nodes, &rest[..groups], &rest[groups + 9..rest.len() - 11], &[0, 0]].concat();
    let mut want = seven();
    (want.max_deleted, want.added) = (Id::MIN, 3);
    assert_eq!(decoded(&finish_as(five, 9)), Ok(want));
    let mut stream = seven();
    stream.groups[0].pending.clear();
    stream.groups[0].consumers.truncate(1);
    stream.groups.truncate(1);
    let mut newer = of_stream(&stream);
    newer.truncate(newer.len() - 10);
    newer[0] = 21;
    // The number of the consumer's pending entries follows the time.
    let end = newer.len() - 1;
    newer.splice(end..end, [0xff; 8]);
    stream.groups[0].consumers[0].active = None;
    assert_eq!(decoded(&finish_as(newer.clone(), 11)), Ok(stream.clone()));
    // Nobody has an entry that was given back.
    newer[0] = 27;
    newer.push(0);
    let tail = [1, 2, 0, 0, 0];
    assert_eq!(decoded(&finish_as([&newer[..], &tail].concat(), 14)), Ok(stream));
    *newer.last_mut().unwrap() = 1;
    let given_back = [&newer[..], &[0; 16], &tail].concat();
    assert_eq!(decoded(&finish_as(given_back, 14)), Err(Refused::Format));
}

#[test]
fn many_entries_come_back() {
    let mut stream = Whole { added: u64::MAX, last: Id::MAX, max_deleted: Id::new(9, 9), ..Whole::default() };
    for n in 0..1000_u64 {
        let fields = match n % 4 {
            0 => strings(&["name", "value"]),
            1 => strings(&["name", &n.to_string(), "", "-12"]),
            2 => strings(&["long", &"x".repeat(n as usize * 9)]),
            _ => strings(&["name", &"y".repeat(70)]),
        };
        stream.entries.push(Entry::new(Id::new(n * n, u64::MAX - n), &fields));
    }
    assert!(decode(&of_stream(&stream), 100 << 20).now_or_never().unwrap() == Ok(Dumped::Stream(stream)));
}

#[test]
fn what_contradicts_itself_is_refused() {
    assert_eq!(decoded(&of_stream(&seven())), Ok(seven()));
    type Change = fn(&mut Whole);
    let changes: [(&str, Change); 10] = [
        ("an id twice", |s| s.entries[1].id = s.entries[0].id),
        ("ids that descend", |s| s.entries.swap(0, 2)),
        ("the id 0-0", |s| s.entries[0].id = Id::MIN),
        ("an entry without fields", |s| s.entries[1].raw.clear()),
        ("a last id before that of an entry", |s| (s.last, s.max_deleted) = (Id::new(5, 9), Id::MIN)),
        ("a deleted id behind the last one", |s| s.max_deleted = Id::new(8, 0)),
        ("a group twice", |s| s.groups[1].name = "g".into()),
        ("a consumer twice", |s| s.groups[0].consumers[2].name = "bob".into()),
        ("a pending entry of nobody", |s| s.groups[0].pending[0].consumer = 9),
        ("a pending entry twice", |s| s.groups[0].pending[1].id = s.groups[0].pending[0].id),
    ];
    for (what, change) in changes {
        let mut stream = seven();
        change(&mut stream);
        assert_eq!(decoded(&of_stream(&stream)), Err(Refused::Format), "{what}");
    }
    assert_eq!(decoded(&finish(vec![15])), Err(Refused::Format));
}

/// Hazard: a small payload takes all memory, because it unpacks to names.
#[test]
fn names_count() {
    let (mut stream, name) = (seven(), |of: char| Bytes::from(of.to_string().repeat(LONGEST / 4)));
    stream.groups[0].name = name('g');
    stream.groups[1].name = name('h');
    stream.groups[0].consumers[0].name = name('c');
    assert_eq!(decoded(&of_stream(&stream)), Ok(stream.clone()));
    stream.groups[0].consumers[1].name = name('d');
    assert_eq!(decoded(&of_stream(&stream)), Err(Refused::Format));
    let mut groups = seven();
    let group = |n: usize| WholeGroup { name: n.to_string().into(), ..seven().groups[1].clone() };
    groups.groups = (0..10_000).map(group).collect();
    assert_eq!(decoded(&of_stream(&groups)), Err(Refused::Format));
}

/// A payload of one node with this number of entries that were not deleted.
fn of_node(node: &[u8], len: u64) -> Vec<u8> {
    let mut out = vec![STREAM_2];
    put_length(&mut out, 1);
    out.extend_from_slice(node);
    put_length(&mut out, len);
    // The last id, the first one, and the largest deleted one; how many were added; no groups.
    [Id::MAX, Id::MIN, Id::MIN].into_iter().for_each(|id| put_id(&mut out, id));
    [len, 0].into_iter().for_each(|n| put_length(&mut out, n));
    finish(out)
}

/// Hazard: what is read is in memory many times, because entries share names, or have short fields.
#[test]
fn entries_cost_what_they_take_in_memory() {
    let of = |n: u64, fields: &[Bytes]| -> Vec<Entry> {
        (1..=n).map(|n| Entry::new(Id::new(n, 0), fields)).collect()
    };
    let decoded = |payload: &[u8]| decode(payload, 300 << 10).now_or_never().unwrap();
    let entries = of(2000, &vec![Bytes::from_static(b"x"); 20]);
    let short = Whole { entries, last: Id::MAX, ..Whole::default() };
    assert!(decoded(&of_stream(&short)) == Ok(Dumped::Stream(short)));
    for (n, fits) in [(90, true), (110, false)] {
        let mut node = Vec::new();
        put_node(&mut node, &of(n, &[Bytes::from(vec![b'n'; 3000]), Bytes::from_static(b"x")]));
        assert!(node.len() < 10_000, "{}", node.len());
        assert_eq!(decoded(&of_node(&node, n)).is_ok(), fits, "{n}");
    }
}

/// Hazard: a small payload keeps a thread busy for seconds, because nothing of what was deleted counts as work.
#[tokio::test]
async fn other_tasks_run_while_deleted_entries_are_passed() {
    const MANY: usize = 20_000;
    let mut pack = Pack::default();
    [0, MANY as i64, 1].into_iter().for_each(|n| pack.number(n));
    pack.string(b"name");
    pack.number(0);
    for seq in 0..MANY as i64 {
        [DELETED | SAME_FIELDS, 0, seq, 7, elements(1, true)].into_iter().for_each(|n| pack.number(n));
    }
    let mut node = Vec::new();
    put_plain(&mut node, &Id::new(1, 0).to_bytes());
    put_plain(&mut node, &pack.finish());
    let payload = of_node(&node, 0);
    let mut reading = std::pin::pin!(decode(&payload, 100 << 20));
    let mut polls = 0;
    let read = std::future::poll_fn(|cx| {
        polls += 1;
        reading.as_mut().poll(cx)
    });
    assert!(matches!(read.await, Ok(Dumped::Stream(stream)) if stream.entries.is_empty()));
    // tokio lets a task take 128 such steps.
    assert!(polls > MANY / 256, "{polls}");
}

/// No input from others makes it panic, or takes memory out of proportion to the input.
#[test]
fn hostile_streams() {
    let mut rng = crate::env::Env::seeded(0, 17).rng();
    let (mut good, seeds) = (0, [SEVEN, EIGHT]);
    for round in 0..40_000 {
        let seed = seeds[round % seeds.len()];
        let mut payload = seed[..seed.len() - 8].to_vec();
        for _ in 0..rng.below(3) {
            let at = rng.below(payload.len() as u64 - 2) as usize;
            payload[at] = rng.u64() as u8;
        }
        _ = weight(&payload);
        payload.extend(crc::crc64(&payload).to_le_bytes());
        if let Ok(Dumped::Stream(stream)) = decode(&payload, 10_000).now_or_never().unwrap() {
            // What is taken is written and read again, except for when a consumer was active.
            let again = decoded(&of_stream(&stream)).unwrap();
            assert_eq!((again.entries, again.last), (stream.entries, stream.last));
            good += 1;
        }
    }
    assert!(good > 10_000, "{good}");
    let longest = SEVEN.len();
    assert_eq!(decode(SEVEN, longest).now_or_never().unwrap(), Err(Refused::Format), "too many elements");
}
