//! The storage of a shard: what is found, what stays, and what it takes.

use super::*;
use crate::env::Rng;
use std::collections::HashMap;

const BYTES: usize = 16 << 10;

fn hash(key: &[u8]) -> u64 {
    crate::store::writes::hash(key)
}

fn value(rng: &mut Rng, version: Version) -> Option<Bytes> {
    let length = match rng.below(10) {
        0 => return None,
        1 => INLINE as u64 + rng.below(500),
        2 => BYTES as u64,
        _ => rng.below(40),
    };
    Some(version.to_le_bytes().into_iter().cycle().take(length as usize).collect())
}

fn got(rows: &mut Rows, key: &[u8]) -> Option<(Version, Option<Bytes>)> {
    let found = rows.find(hash(key), key)?;
    Some((found.version, rows.value(found)))
}

/// Hazard: an overwritten, replaced or removed row is found, or one with another's bytes; long values pile up.
#[test]
fn finds_what_was_inserted_last_or_nothing() {
    let (mut rows, mut rng) = (Rows::new(BYTES), Rng::seeded(7));
    let (mut model, mut hits) = (HashMap::new(), 0);
    for version in 1..60_000 {
        let key = format!("key {}", rng.below(if version % 2 == 0 { 40 } else { 4000 })).into_bytes();
        if let Some(found) = got(&mut rows, &key) {
            assert_eq!(model.get(&key), Some(&found), "{}", key.escape_ascii());
            hits += 1;
        }
        if rng.below(20) == 0 {
            rows.remove(hash(&key));
            assert!(rows.find(hash(&key), &key).is_none());
            model.remove(&key);
        } else if rng.below(3) > 0 {
            let value = value(&mut rng, version);
            rows.insert(hash(&key), &key, version, value.as_ref().map(Given::from));
            let kept = rows.find(hash(&key), &key).is_some();
            assert_eq!(kept, value.as_ref().is_none_or(|v| v.len() < BYTES), "{version}");
            model.insert(key, (version, value));
        }
        assert!(rows.bytes() <= BYTES, "{version}");
    }
    assert!((10_000..50_000).contains(&hits), "{hits}");
    let long: usize = rows.long.iter().flatten().map(|long| OVERHEAD + long.value.len()).sum();
    assert_eq!(rows.long_bytes, long);
    assert_eq!(rows.used, rows.slots.iter().filter(|slot| **slot != 0).count());
    assert_eq!(rows.unused.len() + rows.long.iter().flatten().count(), rows.long.len());
}

/// Hazard: an empty slot looks like that of a hash that begins with zeroes.
#[test]
fn what_can_be_found_can_be_touched() {
    let mut rows = Rows::new(BYTES);
    for hash in [0, 1 << 4, 1 << 55, 1 << 56, u64::MAX] {
        assert_eq!(rows.touch_slots(hash), None, "{hash}");
        rows.insert(hash, &hash.to_be_bytes(), 1, None);
        let found = rows.find(hash, &hash.to_be_bytes()).map(|found| found.at);
        assert!(found.is_some() && rows.touch_slots(hash) == found, "{hash}");
        rows.remove(hash);
    }
}

#[test]
fn what_is_read_stays() {
    let mut rows = Rows::new(BYTES);
    let key = |n: u64| [n.to_be_bytes(); 5].concat();
    for n in 0..10_000u64 {
        rows.insert(hash(&key(n)), &key(n), n, None);
        assert_eq!(got(&mut rows, &key(0)), Some((0, None)), "{n}");
    }
    assert!(rows.find(hash(&key(1)), &key(1)).is_none());
}

/// Hazard: rows that all have room are copied about, and push one another out.
#[test]
fn reading_moves_nothing() {
    let mut rows = Rows::new(BYTES);
    let keys: Vec<_> = (0..200_u64).map(u64::to_be_bytes).collect();
    keys.iter().for_each(|key| rows.insert(hash(key), key, 1, None));
    let before = (rows.bytes(), rows.head);
    assert!(before.0 > BYTES / 3, "{before:?}");
    for _ in 0..10 {
        assert!(keys.iter().all(|key| got(&mut rows, key) == Some((1, None))));
        assert_eq!((rows.bytes(), rows.head), before);
    }
}

/// Hazard: long values, whose bytes are used up after few of them, push out short rows, many of them at once.
#[test]
fn long_values_push_out_long_values() {
    let mut rows = Rows::new(BYTES);
    let keys: Vec<_> = (0..200_u64).map(u64::to_be_bytes).collect();
    keys.iter().for_each(|key| rows.insert(hash(key), key, 1, None));
    let hot = Bytes::from_static(&[1; INLINE + 1]);
    let mut missed = 0;
    for n in 0..4_000_u64 {
        let key = (n + 1000).to_be_bytes();
        let value = Bytes::copy_from_slice(&[n as u8; INLINE + 50]);
        rows.insert(hash(&key), &key, 1, Some((&value).into()));
        assert_eq!(got(&mut rows, &key), Some((1, Some(value))));
        // What is read often stays, be it short or long, but for a few that are at the end of many that may stay.
        for key in &keys {
            if got(&mut rows, key).is_none() {
                missed += 1;
                rows.insert(hash(key), key, 1, None);
            }
        }
        if got(&mut rows, b"hot").is_none() {
            missed += 1;
            rows.insert(hash(b"hot"), b"hot", 1, Some((&hot).into()));
        }
        assert!(rows.long_bytes <= rows.most_long_bytes);
    }
    assert!(missed < 1000, "{missed} times in {}", 4_000 * 201);
    assert!(rows.long.len() <= rows.most_long_bytes / INLINE);
}

#[test]
fn a_table_without_room_keeps_nothing() {
    let mut rows = Rows::new(0);
    for n in 0..100u64 {
        let key = [&n.to_be_bytes()[..]; 20].concat();
        rows.insert(hash(&key), &key, n, Some(Given::Slice(&[7; 300])));
        assert!(rows.find(hash(&key), &key).is_none());
    }
}
