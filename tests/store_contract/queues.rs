//! Transactions that take rows from the front or the back of a range, over and over, and write some in between: every
//! read equals a `BTreeMap`. An engine may jump over what its transaction removed. Prints its seed.

use crate::{Harness, contract};
use std::collections::BTreeMap;
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
    let options = RangeOptions { limit: 1 + rng.below(3) as usize, bytes: 0, reverse: rng.below(3) == 0 };
    let mode = if rng.below(2) == 0 { Read::Snapshot } else { Read::Serializable };
    let found = tx.get_range(&key(begin), &key(end), options, mode).await.unwrap();
    let found: Vec<_> = found.pairs.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    let all = (begin..end).filter_map(|n| Some((key(n), model.get(&key(n))?.clone())));
    let mut expected: Vec<_> = all.collect();
    if options.reverse {
        expected.reverse();
    }
    expected.truncate(options.limit);
    assert_eq!(found, expected, "{begin}..{end} {options:?}");
    found.into_iter().map(|(key, _)| key).collect()
}

async fn step(tx: &Tx, model: &mut Model, rng: &mut Rng) {
    let n = rng.below(ROWS);
    match rng.below(40) {
        0 => {
            tx.set(&key(n), b"set").unwrap();
            model.insert(key(n), b"set".to_vec());
        }
        1 => {
            tx.add(&key(n), &[1]).unwrap();
            let old = model.get(&key(n)).and_then(|value| value.first()).copied().unwrap_or(0);
            model.insert(key(n), vec![old.wrapping_add(1)]);
        }
        2 => {
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
    for _ in 0..30 {
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
            step(&tx, &mut model, &mut rng).await;
        }
        tx.commit().await.unwrap();
        let tx = h.begin();
        let found = tx.get_range(b"q", b"r", RangeOptions::default(), Read::Snapshot).await.unwrap();
        let found: Model = found.pairs.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert_eq!(found, model);
    }
}
