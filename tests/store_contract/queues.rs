//! Transactions that take rows from the front or the back of a range, over and over, and write some in between: every
//! read equals a `BTreeMap`. An engine may jump over what its transaction removed. Prints its seed.

use crate::{Harness, contract};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tern::env::Rng;
use tern::store::{RangeOptions, Read, Tx};

contract! {
    what_a_transaction_takes_is_gone_and_what_it_adds_is_found
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const ROWS: u64 = 150;

fn key(n: u64) -> Vec<u8> {
    vec![b'q', n as u8]
}

/// Of the whole queue, mostly.
fn bounds(rng: &mut Rng) -> (u64, u64) {
    match rng.below(4) {
        0 => (rng.below(ROWS), rng.below(ROWS)),
        1 => (0, rng.below(ROWS)),
        _ => (0, ROWS),
    }
}

/// Reads some rows of a part, which must be those of the model.
async fn read(tx: &Tx, model: &Model, rng: &mut Rng) -> Vec<Vec<u8>> {
    let (begin, end) = bounds(rng);
    let limit = if rng.below(8) == 0 { rng.below(40) as usize } else { 1 + rng.below(3) as usize };
    let options = RangeOptions { limit, bytes: 0, reverse: rng.below(3) == 0 };
    let mode = if rng.below(2) == 0 { Read::Snapshot } else { Read::Serializable };
    let found = tx.get_range(&key(begin), &key(end), options, mode).await.unwrap();
    let more = found.more;
    let found: Vec<_> = found.pairs.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    let all = (begin..end).filter_map(|n| Some((key(n), model.get(&key(n))?.clone())));
    let mut expected: Vec<_> = all.collect();
    if options.reverse {
        expected.reverse();
    }
    expected.truncate(if limit == 0 { expected.len() } else { limit });
    assert_eq!(found, expected, "{begin}..{end} {options:?}");
    assert_eq!(more, limit > 0 && found.len() == limit, "{begin}..{end} {options:?}");
    // Of a long answer, those in the middle.
    let skipped = if found.len() > 3 { rng.below(4) as usize } else { 0 };
    let taken = found.len().saturating_sub(2 * skipped);
    found.into_iter().skip(skipped).take(taken).map(|(key, _)| key).collect()
}

async fn step(tx: &Tx, model: &mut Model, rng: &mut Rng, clears: bool) {
    let n = rng.below(ROWS);
    match rng.below(30) {
        0 => {
            tx.set(&key(n), b"set").unwrap();
            model.insert(key(n), b"set".to_vec());
        }
        1 => {
            tx.add(&key(n), &[1]).unwrap();
            let old = model.get(&key(n)).and_then(|value| value.first()).copied().unwrap_or(0);
            model.insert(key(n), vec![old.wrapping_add(1)]);
        }
        2 if clears => {
            let end = n + rng.below(5);
            tx.clear_range(&key(n), &key(end)).unwrap();
            (n..end).for_each(|n| drop(model.remove(&key(n))));
        }
        _ => {
            for taken in read(tx, model, rng).await {
                tx.clear_bulk(&taken).unwrap();
                model.remove(&taken);
            }
        }
    }
}

async fn what_a_transaction_takes_is_gone_and_what_it_adds_is_found(h: &Harness) {
    let seed = Rng::from_entropy().u64();
    println!("seed {seed}");
    let mut rng = Rng::seeded(seed);
    for round in 0..30 {
        let mut model = Model::new();
        let tx = h.begin();
        tx.clear_range(b"q", b"r").unwrap();
        for n in (0..ROWS).filter(|_| rng.below(4) > 0) {
            tx.set(&key(n), b"old").unwrap();
            model.insert(key(n), b"old".to_vec());
        }
        tx.commit().await.unwrap();
        let tx = h.begin();
        for _ in 0..200 {
            step(&tx, &mut model, &mut rng, round % 2 == 0).await;
        }
        tx.commit().await.unwrap();
        let tx = h.begin();
        let found = tx.get_range(b"q", b"r", RangeOptions::default(), Read::Snapshot).await.unwrap();
        let found: Model = found.pairs.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert_eq!(found, model);
    }
}

/// How long a transaction takes for some rounds of: a row in front of all others, and take the first two rows, one by one or
/// `at_once`.
async fn rounds(h: &Harness, (reverse, at_once): (bool, bool), n: u32) -> Duration {
    let key = |n: u32| [b"q", &n.to_be_bytes()[..]].concat();
    let (middle, rows) = (1 << 20, 20_000);
    let tx = h.begin();
    tx.clear_range(b"q", b"r").unwrap();
    (0..rows).for_each(|n| tx.set(&key(middle + n), b"").unwrap());
    tx.commit().await.unwrap();
    let tx = h.begin();
    let since = Instant::now();
    for round in 0..n {
        let outermost = if reverse { middle + rows + round } else { middle - 1 - round };
        let next = if reverse { middle + rows - 1 - round } else { middle + round };
        tx.set(&key(outermost), b"").unwrap();
        for expected in [outermost, next].map(key).chunks(if at_once { 2 } else { 1 }) {
            let options = RangeOptions { limit: expected.len(), bytes: 0, reverse };
            let found = tx.get_range(b"q", b"r", options, Read::Snapshot).await.unwrap().pairs;
            assert!(found.iter().map(|(found, _)| found).eq(expected), "round {round}: {found:?}");
            expected.iter().for_each(|key| tx.clear_bulk(key).unwrap());
        }
    }
    since.elapsed()
}

/// Hazard: a read walks over all that the transaction has taken, if something lies in front of that: sixteen times as
/// long for four times as many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taking_behind_new_rows_takes_a_time_a_row() {
    let h = Harness::local();
    for how in [(false, false), (true, false), (false, true), (true, true)] {
        let mut ratios = Vec::new();
        for _ in 0..3 {
            let few = rounds(&h, how, 500).await;
            let many = rounds(&h, how, 2000).await;
            ratios.push(many.as_secs_f64() / few.as_secs_f64());
        }
        println!("{how:?} {ratios:?}");
        assert!(ratios.iter().any(|ratio| *ratio < 8.0), "{ratios:?}");
    }
}
