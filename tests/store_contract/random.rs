//! Random programs against a `BTreeMap`: alone, and concurrent ones replayed in the order of their commit
//! versions. Each prints its seed; `TERN_SEED` runs one seed only.

use crate::Harness;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use tern::env::Rng;
use tern::error::{StoreError, StoreResult};
use tern::store::faulty::{FaultRates, Faulty};
use tern::store::{Pairs, RangeOptions, Read, Store, Tx, Version, key_after};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// An operation of a program, with its result.
#[derive(Debug, Clone)]
enum Op {
    Get(Vec<u8>, Read, Option<Vec<u8>>),
    Ahead(Vec<u8>, Vec<u8>, Read, Option<Vec<u8>>),
    /// Of keys with so many last bytes of their own.
    Among(Vec<u8>, usize, Read, Option<Vec<u8>>),
    /// Of keys that may be read again.
    Bulk(Vec<Vec<u8>>, bool, Read, Vec<Option<Vec<u8>>>),
    Range(Vec<u8>, Vec<u8>, RangeOptions, Read, Rows, bool),
    Kept(Vec<u8>, Vec<u8>, Read, Rows),
    Set(Vec<u8>, Vec<u8>),
    Clear(Vec<u8>),
    ClearRange(Vec<u8>, Vec<u8>),
    Add(Vec<u8>, Vec<u8>),
    Max(Vec<u8>, Vec<u8>),
}

fn key(rng: &mut Rng) -> Vec<u8> {
    let mut key = vec![b'a' + rng.below(3) as u8];
    for _ in 0..rng.below(3) {
        key.push([0, b'm', 0xff][rng.below(3) as usize]);
    }
    key
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    (0..rng.below(5)).map(|_| rng.below(256) as u8).collect()
}

fn op(rng: &mut Rng, read: Read) -> Op {
    match rng.below(15) {
        0..2 => Op::Get(key(rng), read, None),
        2 => Op::Ahead(key(rng), key(rng), read, None),
        3..5 => {
            let options = RangeOptions {
                limit: [0, 1, 3][rng.below(3) as usize],
                bytes: [0, 0, 9][rng.below(3) as usize],
                reverse: rng.below(2) == 0,
            };
            Op::Range(key(rng), key(rng), options, read, Vec::new(), false)
        }
        5..8 => Op::Set(key(rng), bytes(rng)),
        8 => Op::Clear(key(rng)),
        9 => Op::ClearRange(key(rng), key(rng)),
        10 => Op::Add(key(rng), bytes(rng)),
        // Few ranges, so that they are asked for again.
        11 => {
            let begin = key(rng)[..1].to_vec();
            Op::Kept(begin.clone(), vec![begin[0] + 1], read, Vec::new())
        }
        12 => Op::Among(key(rng), 1 + rng.below(2) as usize, read, None),
        13 => {
            let keys = (0..rng.below(5)).map(|_| key(rng)).collect();
            Op::Bulk(keys, rng.below(2) == 0, read, Vec::new())
        }
        _ => Op::Max(key(rng), bytes(rng)),
    }
}

/// Runs one operation on the store and records its result.
async fn run(tx: &Tx, op: &mut Op) -> StoreResult<()> {
    match op {
        Op::Get(key, read, seen) => *seen = tx.get(key, *read).await?.map(|v| v.to_vec()),
        Op::Ahead(key, end, read, seen) => {
            *seen = tx.get_ahead(key, end).await?.map(|v| v.to_vec());
            if *read == Read::Serializable {
                tx.add_read_conflict(key, &key_after(key))?;
            }
        }
        Op::Among(key, tail, read, seen) => {
            *seen = tx.get_among(key, *tail, *read).await?.map(|v| v.to_vec())
        }
        Op::Bulk(keys, again, read, seen) => {
            let found = tx.get_bulk(keys, *read, *again).await?;
            *seen = found.into_iter().map(|row| row.map(|v| v.to_vec())).collect();
        }
        Op::Range(begin, end, options, read, seen, more) => {
            let found: Pairs = tx.get_range(begin, end, *options, *read).await?;
            let vec = |b: Bytes| b.to_vec();
            *seen = found.pairs.into_iter().map(|(k, v)| (vec(k), vec(v))).collect();
            *more = found.more;
        }
        Op::Kept(begin, end, read, seen) => {
            seen.clear();
            tx.visit_kept((begin, end), end, &mut |key, value| seen.push((key.to_vec(), value.to_vec())))
                .await?;
            if *read == Read::Serializable {
                tx.add_read_conflict(begin, end)?;
            }
        }
        Op::Set(key, value) => tx.set(key, value)?,
        Op::Clear(key) => tx.clear(key)?,
        Op::ClearRange(begin, end) => tx.clear_range(begin, end)?,
        Op::Add(key, delta) => tx.add(key, delta)?,
        Op::Max(key, operand) => tx.max(key, operand)?,
    }
    Ok(())
}

/// Runs the operation on the model, which must give the same result.
fn replay(model: &mut Model, op: &Op, check: bool) {
    match op {
        Op::Get(key, _, seen) | Op::Ahead(key, _, _, seen) | Op::Among(key, _, _, seen) if check => {
            assert_eq!(model.get(key), seen.as_ref(), "{op:?}")
        }
        Op::Bulk(keys, _, _, seen) if check => {
            let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
            assert_eq!(seen, &expected, "{op:?}");
        }
        Op::Range(begin, end, options, _, seen, more) if check => {
            let (expected, expected_more) = model_range(model, begin, end, *options);
            assert_eq!((seen, *more), (&expected, expected_more), "{op:?}");
        }
        Op::Kept(begin, end, _, seen) if check => {
            assert_eq!(seen, &model_range(model, begin, end, RangeOptions::default()).0, "{op:?}");
        }
        Op::Set(key, value) => drop(model.insert(key.clone(), value.clone())),
        Op::Clear(key) => drop(model.remove(key)),
        Op::ClearRange(begin, end) => model.retain(|k, _| !(begin <= k && k < end)),
        Op::Add(key, delta) => atomic(model, key, delta, add),
        Op::Max(key, operand) => atomic(model, key, operand, u128::max),
        Op::Get(..) | Op::Ahead(..) | Op::Among(..) | Op::Bulk(..) | Op::Range(..) | Op::Kept(..) => {}
    }
}

fn add(a: u128, b: u128) -> u128 {
    a.wrapping_add(b)
}

/// Operands are shorter than 16 bytes here, so the model computes with integers.
fn atomic(model: &mut Model, key: &[u8], operand: &[u8], f: impl Fn(u128, u128) -> u128) {
    let number = |bytes: &[u8]| {
        let mut wide = [0; 16];
        let n = operand.len().min(bytes.len());
        wide[..n].copy_from_slice(&bytes[..n]);
        u128::from_le_bytes(wide)
    };
    let old = number(model.get(key).map_or(&[][..], |v| v));
    let new = f(old, number(operand)).to_le_bytes();
    model.insert(key.to_vec(), new[..operand.len()].to_vec());
}

fn model_range(model: &Model, begin: &[u8], end: &[u8], o: RangeOptions) -> (Rows, bool) {
    if begin >= end {
        return (Vec::new(), false);
    }
    let inside = model.range::<[u8], _>((Included(begin), Excluded(end)));
    let mut pairs: Vec<_> = inside.map(|(k, v)| (k.clone(), v.clone())).collect();
    if o.reverse {
        pairs.reverse();
    }
    let mut bytes = 0;
    let full = pairs.iter().enumerate().position(|(i, (k, v))| {
        bytes += k.len() + v.len();
        (o.limit > 0 && i + 1 >= o.limit) || (o.bytes > 0 && bytes >= o.bytes)
    });
    if let Some(last) = full {
        pairs.truncate(last + 1);
    }
    (pairs, full.is_some())
}

async fn stored(store: &Store) -> Model {
    let all = RangeOptions::default();
    let found =
        crate::read_retrying(store, async |tx| tx.get_range(b"", b"\xff", all, Read::Snapshot).await).await;
    found.pairs.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

fn seeds(n: u64) -> Vec<u64> {
    let fixed = std::env::var("TERN_SEED").ok().and_then(|s| s.parse().ok());
    let fresh = Rng::from_entropy().u64() % 1_000_000_000;
    fixed.map_or((0..n).map(|i| fresh + i).collect(), |seed| vec![seed])
}

#[tokio::test]
async fn programs_alone_equal_the_model() {
    for seed in seeds(40) {
        alone(&Harness::local(), seed).await;
    }
}

#[cfg(feature = "fdb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_alone_equal_the_model_on_fdb() {
    for seed in seeds(10) {
        crate::on_cluster(async |h: &Harness| alone(h, seed).await).await;
    }
}

async fn alone(h: &Harness, seed: u64) {
    println!("seed {seed}");
    let mut rng = Rng::seeded(seed);
    let mut model = Model::new();
    for _ in 0..60 {
        let tx = h.begin();
        let mut inside = model.clone();
        for _ in 0..rng.below(20) {
            let read = if rng.below(2) == 0 { Read::Snapshot } else { Read::Serializable };
            let mut op = op(&mut rng, read);
            run(&tx, &mut op).await.unwrap();
            replay(&mut inside, &op, true);
        }
        if rng.below(5) > 0 {
            tx.commit().await.unwrap();
            model = inside;
        }
    }
    assert_eq!(stored(&h.store).await, model, "seed {seed}");
}

/// One committed program.
struct Done {
    read: Version,
    committed: Version,
    ops: Vec<Op>,
}

/// Every serializable read must match the state just before the commit, every snapshot read that of the read
/// version.
fn check_history(mut history: Vec<Done>, found: &Model, seed: u64) {
    history.sort_by_key(|done| done.committed);
    let mut states = vec![(0, Model::new())];
    for done in &history {
        let newest = &states.last().unwrap().1;
        let at = states.partition_point(|(version, _)| *version <= done.read) - 1;
        let (mut now, mut then) = (newest.clone(), states[at].1.clone());
        for op in &done.ops {
            let serializable = matches!(
                op,
                Op::Get(_, Read::Serializable, _)
                    | Op::Ahead(_, _, Read::Serializable, _)
                    | Op::Among(_, _, Read::Serializable, _)
                    | Op::Bulk(_, _, Read::Serializable, _)
                    | Op::Kept(_, _, Read::Serializable, _)
                    | Op::Range(_, _, _, Read::Serializable, ..)
            );
            replay(&mut now, op, serializable);
            replay(&mut then, op, true);
        }
        states.push((done.committed, now));
    }
    assert_eq!(found, &states.last().unwrap().1, "seed {seed}");
}

async fn client(store: Store, mut rng: Rng, programs: usize) -> (Vec<Done>, u64) {
    let (mut done, mut conflicts) = (Vec::new(), 0);
    while done.len() < programs {
        let tx = store.begin();
        let read = tx.read_version().await.unwrap();
        let mut ops = Vec::new();
        for _ in 0..1 + rng.below(6) {
            // Effects of earlier own writes can make a snapshot read look like the past: both are checked.
            let mode = if rng.below(4) == 0 { Read::Snapshot } else { Read::Serializable };
            let mut op = op(&mut rng, mode);
            run(&tx, &mut op).await.unwrap();
            ops.push(op);
            if rng.below(3) == 0 {
                tokio::task::yield_now().await;
            }
        }
        let write = tx.is_write();
        match tx.commit().await {
            Ok(committed) if write => done.push(Done { read, committed, ops }),
            Ok(_) => {}
            Err(e) => {
                assert_eq!(e, StoreError::Conflict);
                conflicts += 1;
            }
        }
    }
    (done, conflicts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_programs_equal_their_serial_replay() {
    let mut all_conflicts = 0;
    for seed in seeds(25) {
        println!("seed {seed}");
        let h = if seed % 2 == 0 { Harness::local() } else { Harness::delayed() };
        let mut rng = Rng::seeded(seed);
        let clients: Vec<_> = (0..8).map(|_| tokio::spawn(client(h.store.clone(), rng.fork(), 40))).collect();
        let mut history = Vec::new();
        for client in clients {
            let (done, conflicts) = client.await.unwrap();
            history.extend(done);
            all_conflicts += conflicts;
        }
        check_history(history, &stored(&h.store).await, seed);
    }
    assert!(all_conflicts > 100, "only {all_conflicts} conflicts: this proves nothing");
}

/// Under every fault: each transaction takes the next number of one sequence and records its program's
/// outcome under it, so that the stored rows reveal the place of an unknown commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_faults_every_increment_takes_a_place_of_its_own() {
    let mut met = [0; 3];
    for seed in seeds(4) {
        println!("seed {seed}");
        let h = Harness::wrapped(|store| Store::Faulty(Faulty::new(store, seed, FaultRates::mixed())));
        let clients: Vec<_> = (0..4u8).map(|id| tokio::spawn(sequencer(h.store.clone(), id, 30))).collect();
        for client in clients {
            client.await.unwrap();
        }
        let Store::Faulty(faulty) = &h.store else { unreachable!() };
        faulty.set_rates(FaultRates::default());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await; // the late ones
        let rows = stored(&h.store).await;
        let places: Vec<_> = rows.iter().filter(|(k, _)| k[0] == b'p').map(|(_, v)| v.clone()).collect();
        let distinct: std::collections::BTreeSet<_> = places.iter().collect();
        assert_eq!(distinct.len(), places.len(), "only one attempt of a step may be applied");
        assert_eq!(places.len(), 120, "each step must be applied once");
        let n = u32::from_be_bytes(rows[&b"seq"[..]][..].try_into().unwrap());
        assert_eq!(n, 120);
        let counts = faulty.counts();
        for (sum, n) in met.iter_mut().zip([counts.unknown_applied, counts.unknown_lost, counts.conflicts]) {
            *sum += n;
        }
    }
    // One seed alone may meet none of a kind.
    assert!(met.iter().all(|n| *n > 0), "applied, lost, conflicts: {met:?}");
}

/// Steps of one client: `p<place>` -> (client, step). A step is done once its mark `m<client><step>` exists.
async fn sequencer(store: Store, id: u8, steps: u8) {
    for step in 0..steps {
        let mark = [b'm', id, step];
        loop {
            let attempt = async {
                let tx = store.begin();
                if tx.get(&mark, Read::Serializable).await?.is_some() {
                    return Ok(());
                }
                let seq = tx.get(b"seq", Read::Serializable).await?;
                let next = seq.map_or(0, |n| u32::from_be_bytes(n[..].try_into().unwrap())) + 1;
                tx.set(b"seq", &next.to_be_bytes())?;
                tx.set(&[b"p", &next.to_be_bytes()[..]].concat(), &[id, step])?;
                tx.set(&mark, b"")?;
                tx.commit().await.map(drop)
            };
            match attempt.await {
                Ok(()) => break,
                Err(e) => assert!(e.is_retryable() || e == StoreError::Unknown, "{e}"),
            }
        }
    }
}
