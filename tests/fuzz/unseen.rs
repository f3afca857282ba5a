//! Undetectable damage of stored rows, and why: the layout stores the fact once, or it does not matter. `tern
//! check` reports all other damage.
//!
//! The engine's checksums detect bytes that change below a row (`tests/crash`). Here whole rows are wrong, as
//! a bug of ours would leave them.

use bytes::Bytes;
use tern::keyspace::idempotency::IdempotencyRecord;
use tern::keyspace::keys::{Prefix, SHARDS, root, root::Garbage};
use tern::types::Value;
use tern::types::list::ListRep;
use tern::types::record::Stored;
use tern::types::set::chunk::Row;
use tern::types::set::rows::delta_value;

/// Rows by key.
pub type Rows = std::collections::BTreeMap<Bytes, Bytes>;

/// Why damage is undetectable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unseen {
    /// The bytes of a string, the members of a small set, the fields of a small hash, the elements of a small list,
    /// and the revision are stored only in the record; the value of a field of a large hash, an element of a large list,
    /// and an entry of a stream, only in its row or pieces. So are the last id and the history of a stream, the place of a
    /// group, the times of consumers and deliveries, and a consumer without pending entries.
    Value,
    /// The ids of a set are stored only in its chunks and deltas; their number is stored twice.
    Members,
    /// A missing piece of a long string, or a missing end of one, reads as zeroes: SETRANGE far beyond the
    /// end writes one piece.
    Zeroes,
    /// The version half of N, and of the count of a group's pending entries, is compared with a version that was seen before, and with no stored value.
    Version,
    /// The stamp of a sum of weights only tells a reader that the sum has changed; the epochs of scripts and of libraries,
    /// that these have.
    Stamp,
    /// Only hints in memory name the generation of a counted range.
    Generation,
    /// Only the sum of a database's counters has a meaning; a missing counter is 0.
    Keys,
    /// Numbers that the allocator will not give out any more: they are lost, but none is used twice.
    Numbers,
    /// Blocks of ids that are never given out, or a shard that has given out none.
    Blocks,
    /// The last databases, if they are empty: a server recreates them when it starts.
    NoDatabase,
    /// A server that has left, or that registers again with its next beat.
    Server,
    /// The number of a lane's last batch: it is read only while a commit is in doubt, and a server's lanes
    /// are its own.
    Lane,
    /// Garbage that is gone already.
    NoGarbage,
    /// A message to servers, or a subscription: none outlives its readers.
    Message,
    /// Intermediate results of the dictionary's collector: only it reads them, and its servers write them
    /// again.
    Collector,
    /// The command of an id, its reply and the selected database: stored only in the idempotency record.
    Answer,
    /// Another secret of the store works as well.
    Secret,
    /// Rows of a flushed database or of a removed object, which will be reclaimed.
    Removed,
}

/// All of them.
pub const ALL: &[Unseen] = &[
    Unseen::Value,
    Unseen::Members,
    Unseen::Zeroes,
    Unseen::Version,
    Unseen::Stamp,
    Unseen::Generation,
    Unseen::Keys,
    Unseen::Numbers,
    Unseen::Blocks,
    Unseen::NoDatabase,
    Unseen::Server,
    Unseen::Lane,
    Unseen::NoGarbage,
    Unseen::Message,
    Unseen::Collector,
    Unseen::Answer,
    Unseen::Secret,
    Unseen::Removed,
];

/// Keys whose rows differ, with the old and the new value.
pub fn changes(sound: &Rows, damaged: &Rows) -> Vec<(Bytes, Option<Bytes>, Option<Bytes>)> {
    let keys: std::collections::BTreeSet<&Bytes> = sound.keys().chain(damaged.keys()).collect();
    let one = |key: &&Bytes| ((*key).clone(), sound.get(*key).cloned(), damaged.get(*key).cloned());
    keys.iter().map(one).filter(|(_, before, after)| before != after).collect()
}

/// Why the damage is undetectable if the row at `key` was `before` and is `after` in `damaged`. None: it must
/// be reported.
pub fn why(
    [sound, damaged]: [&Rows; 2],
    key: &Bytes,
    before: Option<&Bytes>,
    after: Option<&Bytes>,
) -> Option<Unseen> {
    let (first, len) = (*key.first()?, key.len());
    let sized = |of: usize| after.is_none_or(|value| value.len() == of);
    let (unseen, fits) = match first {
        b'a' => (Unseen::Numbers, len == 5 && sized(8)),
        b'r' => (Unseen::Numbers, len == 5 && sized(0) && before.is_none()),
        b'q' => (Unseen::Blocks, len == 2 && sized(8)),
        b'd' => (Unseen::NoDatabase, after.is_none() && damaged.range(key.clone()..).next()?.0[0] != b'd'),
        b'i' => (Unseen::Server, len == 9),
        b'l' => (Unseen::Lane, len == 11 && sized(8)),
        b'g' => (Unseen::NoGarbage, is_no_garbage(sound, key, before)),
        b'p' => (Unseen::Message, true),
        b'e' => (Unseen::Collector, true),
        b'm' => {
            (Unseen::Secret, key[..] == root::secret() && after.is_some_and(|a| a.len() == 33 && a[0] == 1))
        }
        b's' => (Unseen::Stamp, matches!(key[1..], [0 | 4]) && after.is_some_and(|a| a.len() == 8)),
        b't' => (Unseen::Answer, is_same_idempotency_record(key, before?, after?)),
        0x80.. => return below_a_prefix([sound, damaged], key, before, after),
        _ => return None,
    };
    fits.then_some(unseen)
}

/// An idempotency record, or a piece of one, of the same length.
fn is_same_idempotency_record(key: &Bytes, before: &Bytes, after: &Bytes) -> bool {
    let head = |raw: &Bytes| IdempotencyRecord::decode(raw).ok().map(|r| (r.is_owned, r.at, r.len));
    match root::decode_idempotency(key) {
        Some((_, [])) => head(before).is_some() && head(before) == head(after),
        Some((_, [_, _])) => before.len() == after.len(),
        _ => false,
    }
}

/// A row that refers to something that does not exist.
fn is_no_garbage(sound: &Rows, key: &Bytes, before: Option<&Bytes>) -> bool {
    let Some(Garbage::Object(db, oid) | Garbage::Building(db, oid)) = root::decode_garbage(key) else {
        return false;
    };
    before.is_none()
        && [b'C', b'H', b'L', b'N', b'S', b'T'].iter().all(|tag| !has(sound, &db.object_rows(*tag, oid)))
}

fn has(rows: &Rows, prefix: &[u8]) -> bool {
    rows.range(Bytes::copy_from_slice(prefix)..).next().is_some_and(|(key, _)| key.starts_with(prefix))
}

fn below_a_prefix(
    [sound, damaged]: [&Rows; 2],
    key: &Bytes,
    before: Option<&Bytes>,
    after: Option<&Bytes>,
) -> Option<Unseen> {
    let db = Prefix::of_row(key)?;
    let is_garbage = |garbage: Garbage| sound.contains_key(&root::garbage(garbage)[..]);
    let removed = db.decode_oid(key).is_some_and(|oid| is_garbage(Garbage::Object(db, oid)));
    if removed || is_garbage(Garbage::Database(db)) {
        return Some(Unseen::Removed);
    }
    let own = key.get(db.as_bytes().len()..)?;
    let both = || Some((before?, after?));
    let (unseen, fits) = match own {
        [b'K', ..] => (Unseen::Value, is_same_record(before?, after?)?),
        [b'C', ..] => (Unseen::Zeroes, before.is_some()),
        [b'L', rest @ ..] => {
            let (before, after) = both()?;
            let is_inline = |raw: &Bytes| raw.first() == Some(&0);
            let same = rest.get(16)? == &1 || is_inline(before) && is_inline(after);
            (Unseen::Value, same && before.len() == after.len())
        }
        [b'H', rest @ ..] => {
            let (before, after) = both()?;
            let same = match rest.get(16)? {
                0 => before.first() == Some(&0) && after.first() == Some(&0),
                _ => before.len() == after.len(),
            };
            (Unseen::Value, same)
        }
        [b'N', ..] => {
            let (before, after) = both()?;
            (Unseen::Version, after.len() == 16 && before[..8] == after[..8])
        }
        [b'R', rest @ ..] => {
            let (before, after) = both()?;
            let is_count = rest.get(16)? == &2 && after.len() == 16;
            (Unseen::Generation, is_count && before[..8] == after[..8])
        }
        [b'S', rest @ ..] => match (rest.get(16)?, both()) {
            (0, both) => (Unseen::Members, is_same_number(rest, both?.0, both?.1)?),
            (1, _) => {
                let deltas = key.slice(..key.len() - rest.len() + 17);
                (Unseen::Members, more_added(sound, &deltas) == more_added(damaged, &deltas))
            }
            (2, both) => (Unseen::Stamp, both?.1.len() == 16 && both?.0[..8] == both?.1[..8]),
            _ => return None,
        },
        [b'T', rest @ ..] => return of_a_stream([sound, damaged], (key, rest), before, after),
        [b'Z', shard] if *shard < SHARDS => {
            let counters = key.slice(..key.len() - 1);
            (Unseen::Keys, counted(damaged, &counters).is_some_and(|n| Some(n) == counted(sound, &counters)))
        }
        _ => return None,
    };
    fits.then_some(unseen)
}

/// Two records that differ only in what nothing else tells.
fn is_same_record(before: &Bytes, after: &Bytes) -> Option<bool> {
    let [before, after] = [before, after].map(|raw| Stored::decode(raw.clone()).ok());
    let (before, after) = (before?, after?);
    let times = before.expire_at() == after.expire_at();
    let same = match (before.into_record(), after.into_record()) {
        (Some(before), Some(after)) => match (before.value, after.value) {
            // Its rows tell all of it.
            (Value::List(ListRep::Rows { extent: old, .. }), Value::List(ListRep::Rows { extent, .. })) => {
                old == extent
            }
            (Value::Stream(old), Value::Stream(new)) => {
                (old.oid, old.len, old.first) == (new.oid, new.len, new.first)
            }
            (before, after) => before.oid() == after.oid(),
        },
        (before, after) => before.is_none() && after.is_none(),
    };
    Some(same && times)
}

/// As [`below_a_prefix`], of a row of a stream: `rest` follows its tag.
fn of_a_stream(
    [sound, damaged]: [&Rows; 2],
    (key, rest): (&Bytes, &[u8]),
    before: Option<&Bytes>,
    after: Option<&Bytes>,
) -> Option<Unseen> {
    let kind = *rest.get(16)?;
    if kind == 5 && before.is_some() != after.is_some() {
        // Its number is in no other row.
        let group = key.slice(..key.len() - rest.len() + 17 + 8);
        return (!has_counts(sound, damaged, &group, before.or(after)?)).then_some(Unseen::Value);
    }
    let (before, after) = (before?, after?);
    let kept = match kind {
        0 if before.first() == Some(&0) => 1,
        0 => 9,
        // The number of a group or consumer, or of pending entries.
        2 | 3 | 5 | 6 => 8,
        1 => 0,
        _ => return None,
    };
    let same = before.get(..kept)? == after.get(..kept)?;
    let sized = before.len() == after.len() || kept == 1;
    (same && sized).then_some(if kind == 6 { Unseen::Version } else { Unseen::Value })
}

/// Whether another row names a consumer of a group: `rows` begins as its own one does, and ends before its name.
fn has_counts(sound: &Rows, damaged: &Rows, rows: &Bytes, consumer: &Bytes) -> bool {
    let Some(number) = consumer.first_chunk::<8>() else { return true };
    let mut count = rows.to_vec();
    let kind = count.len() - 9;
    count[kind] = 7;
    count.extend(u64::from_le_bytes(*number).to_be_bytes());
    let other = |of: &Rows| {
        let mut same = of.range(rows.clone()..).take_while(|(key, _)| key.starts_with(rows));
        same.any(|(_, value)| value.starts_with(number))
    };
    sound.contains_key(&count[..]) || damaged.contains_key(&count[..]) || other(sound) && other(damaged)
}

/// The number of deltas that add minus the number that remove.
fn more_added(rows: &Rows, deltas: &Bytes) -> i64 {
    let deltas = rows.range(deltas.clone()..).take_while(|(key, _)| key.starts_with(deltas));
    deltas.map(|(_, value)| if value[..] == *delta_value(true) { 1 } else { -1 }).sum()
}

/// The sum of a database's counters of keys; None if one is malformed.
fn counted(rows: &Rows, counters: &Bytes) -> Option<i64> {
    let counters = rows.range(counters.clone()..).take_while(|(key, _)| key.starts_with(counters));
    counters.map(|(_, value)| Some(i64::from_le_bytes(value[..].try_into().ok()?))).sum()
}

/// Two chunks at one place with the same successor and the same number of members.
fn is_same_number(rest: &[u8], before: &Bytes, after: &Bytes) -> Option<bool> {
    let first = u64::from_be_bytes(rest.get(17..)?.try_into().ok()?);
    let [before, after] = [before, after].map(|raw| {
        let row = Row::new(first, raw.clone()).ok()?;
        Some((row.next, row.ids().ok()?.len()))
    });
    Some(before? == after?)
}
