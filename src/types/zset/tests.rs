//! Sorted sets behave like a model, alone and with transactions beside each other; the audit finds a count that a
//! forgotten conflict has spoiled.

use super::*;
use crate::env::Rng;
use crate::error::Error;
use crate::exec::fixtures::World;
use crate::keyspace::uncounted::Uncounted;
use crate::store::Tx;
use std::cell::Cell;
use std::collections::BTreeMap;

const LIMITS: Limits = Limits { members: 4, length: 64 };
const KEY: Bytes = Bytes::from_static(b"k");

/// A planted mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Who adds to a count does not notice that its range moves.
    ForgetsMoves,
    /// Who uses a hint does not ask whether it is true.
    BelievesHints,
}

thread_local! {
    static PLANTED: Cell<Option<Mistake>> = const { Cell::new(None) };
}

pub(super) fn makes(mistake: Mistake) -> bool {
    PLANTED.get() == Some(mistake)
}

impl World {
    fn scope<'a>(&'a self, tx: &'a Tx) -> Scope<'a> {
        self.server.space.scope(tx, self.db)
    }
}

type Model = BTreeMap<Bytes, Score>;

/// Moves the counts that wait, as a batch does before it commits.
async fn count_all(s: &Scope<'_>) -> Result<()> {
    for ((_, oid), changes) in s.uncounted.into_iter().flat_map(Uncounted::take_all) {
        move_counts(s, oid, &changes).await?;
    }
    Ok(())
}

fn ordered(model: &Model) -> Vec<Entry> {
    let mut entries: Vec<Entry> = model.iter().map(|(member, score)| (member.clone(), *score)).collect();
    sort(&mut entries);
    entries
}

fn score(rng: &mut Rng) -> Score {
    let number = match rng.below(12) {
        0 => f64::INFINITY,
        1 => -0.0,
        2 => f64::NEG_INFINITY,
        n => (rng.below(100) as f64 - 50.0) / n as f64,
    };
    Score::new(number).unwrap()
}

/// Applies random changes in a transaction. Returns what it made of the members that it changed.
async fn some_changes(
    s: &Scope<'_>,
    rng: &mut Rng,
    members: u64,
    growing: bool,
) -> Result<Vec<(Bytes, Option<Score>)>> {
    let mut slot = object::open_members(s, &KEY).await?;
    let most = if rng.below(10) == 0 { 60 } else { 3 };
    let names: std::collections::BTreeSet<u64> = (0..=rng.below(most)).map(|_| rng.below(members)).collect();
    let names: Vec<Bytes> = names.iter().map(|n| Bytes::from(format!("m{n}"))).collect();
    let old = scores(s, slot.zset()?, &names).await?;
    let mut changes = Vec::new();
    for (member, from) in names.into_iter().zip(old) {
        let keeps = if growing { rng.below(5) > 0 } else { rng.below(5) == 0 };
        let to = keeps.then(|| score(rng));
        if from.is_some() || to.is_some() {
            changes.push(Change { member, from, to });
        }
    }
    change(s, &mut slot, LIMITS, &changes).await?;
    Ok(changes.into_iter().map(|change| (change.member, change.to)).collect())
}

async fn compare(s: &Scope<'_>, model: &Model, rng: &mut Rng) {
    let slot = object::open(s, &KEY, Read::Snapshot).await.unwrap();
    let rep = slot.zset().unwrap();
    let all = ordered(model);
    let n = all.len() as u64;
    assert_eq!(len(s, rep, Read::Snapshot).await.unwrap(), n);
    assert_eq!(rep.is_some(), n > 0);
    for _ in 0..6 {
        let member = Bytes::from(format!("m{}", rng.below(400)));
        let reverse = rng.below(2) == 0;
        let place = all.iter().position(|(name, _)| *name == member);
        let wanted = place.map(|place| if reverse { n - 1 - place as u64 } else { place as u64 });
        let found = rank(s, rep, &member, reverse).await.unwrap();
        assert_eq!(found.map(|(rank, _)| rank), wanted);
        let (low, high) = (score(rng), score(rng));
        let bound = |rng: &mut Rng, score| match rng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(score),
            _ => Bound::Included(score),
        };
        let (min, max) = (bound(rng, low), bound(rng, high));
        let above = |score: Score| match min {
            Bound::Unbounded => true,
            Bound::Excluded(min) => score > min,
            Bound::Included(min) => score >= min,
        };
        let below = |score: Score| match max {
            Bound::Unbounded => true,
            Bound::Excluded(max) => score < max,
            Bound::Included(max) => score <= max,
        };
        let mut wanted: Vec<Entry> =
            all.iter().filter(|(_, score)| above(*score) && below(*score)).cloned().collect();
        let places = Places::of_scores(min, max);
        assert_eq!(
            count(s, rep, &places, Read::Serializable).await.unwrap(),
            wanted.len() as u64,
            "{min:?} {max:?}"
        );
        let skip = if rng.below(2) == 0 { 0 } else { rng.below(n + 3) };
        let limit = if rng.below(2) == 0 { u64::MAX } else { rng.below(20) };
        if reverse {
            wanted.reverse();
        }
        let wanted: Vec<Entry> =
            wanted.into_iter().skip(skip as usize).take(limit.min(1 << 20) as usize).collect();
        let pick = Pick { reverse, skip, limit };
        let found = range(s, rep, &places, pick, usize::MAX).await.unwrap();
        assert_eq!(found, wanted, "{min:?} {max:?} {pick:?}");
    }
}

#[tokio::test]
async fn it_behaves_like_a_map_with_an_order() {
    let seed = Rng::from_entropy().u64();
    println!("TERN_SEED={seed}");
    let (w, mut rng, mut model) = (World::new().await, Rng::seeded(seed), Model::new());
    for step in 0..700 {
        let growing = step % 250 < 175;
        let (tx, uncounted) = (w.server.store.begin(), Uncounted::default());
        let together = rng.below(2) == 0;
        let s = Scope { uncounted: together.then_some(&uncounted), ..w.scope(&tx) };
        for _ in 0..=rng.below(5) {
            for (member, score) in some_changes(&s, &mut rng, 400, growing).await.unwrap() {
                match score {
                    Some(score) => drop(model.insert(member, score)),
                    None => drop(model.remove(&member)),
                }
            }
            // Changes wait behind some of the next ones, or for what reads counts.
            if rng.below(3) == 0 {
                compare(&s, &model, &mut rng).await;
            }
        }
        count_all(&s).await.unwrap();
        tx.commit().await.unwrap();
        compare(&w.scope(&w.server.store.begin()), &model, &mut rng).await;
        if step % 50 == 0 {
            assert_eq!(w.problems().await, [""; 0], "step {step}");
        }
    }
    assert_eq!(w.problems().await, [""; 0]);
}

/// Transactions beside each other: those that commit have changed the counts exactly. Returns the problems, and how
/// many transactions had conflicts.
async fn beside_each_other(seed: u64, steps: usize) -> (Vec<String>, usize) {
    let (w, mut rng, mut conflicts) = (World::new().await, Rng::seeded(seed), 0);
    let mut open: Vec<Tx> = Vec::new();
    for step in 0..steps {
        let (tx, uncounted, growing) = (w.server.store.begin(), Uncounted::default(), step % 200 < 130);
        let s = Scope { uncounted: (step % 3 > 0).then_some(&uncounted), ..w.scope(&tx) };
        let changes = async |s: &Scope<'_>, rng: &mut Rng| {
            for _ in 0..=step % 3 {
                some_changes(s, rng, 300, growing).await?;
            }
            count_all(s).await
        };
        if changes(&s, &mut rng).await.is_ok() {
            open.push(tx);
        }
        while open.len() > 3 || (rng.below(2) == 0 && !open.is_empty()) {
            let at = rng.below(open.len() as u64) as usize;
            match open.swap_remove(at).commit().await {
                Ok(_) => {}
                Err(StoreError::Conflict) => conflicts += 1,
                Err(e) => panic!("{e:?}"),
            }
        }
    }
    drop(open);
    (w.problems().await, conflicts)
}

#[tokio::test]
async fn counts_stay_exact_beside_each_other() {
    let seed = Rng::from_entropy().u64();
    println!("TERN_SEED={seed}");
    let (problems, conflicts) = beside_each_other(seed, 1500).await;
    assert_eq!(problems, [""; 0]);
    assert!(conflicts > 20, "{conflicts}");
}

#[tokio::test]
async fn mistakes_are_found() {
    for mistake in [Mistake::ForgetsMoves, Mistake::BelievesHints] {
        PLANTED.set(Some(mistake));
        let mut found = 0;
        for seed in 0..4 {
            let (problems, _) = beside_each_other(seed, 800).await;
            found += usize::from(problems.iter().any(|what| what.contains("a count of a sorted set")));
        }
        PLANTED.set(None);
        assert!(found > 0, "{mistake:?}");
    }
}

/// Adds members with random scores, a few at a time.
async fn fill(w: &World, members: u64) {
    let mut rng = Rng::seeded(5);
    let all: Vec<u64> = (0..members).collect();
    for some in all.chunks(20) {
        let tx = w.server.store.begin();
        let s = w.scope(&tx);
        let mut slot = object::open_members(&s, &KEY).await.unwrap();
        let mut come = |n: &u64| Change {
            member: Bytes::from(format!("m{n}")),
            from: None,
            to: Score::new(rng.below(1 << 20) as f64),
        };
        let changes: Vec<Change> = some.iter().map(&mut come).collect();
        change(&s, &mut slot, LIMITS, &changes).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// Removes these members in a transaction that is not committed yet.
async fn taking(w: &World, pick: impl Fn(usize) -> bool) -> Tx {
    let tx = w.server.store.begin();
    let s = w.scope(&tx);
    let mut slot = object::open_members(&s, &KEY).await.unwrap();
    let all = range(&s, slot.zset().unwrap(), &Places::all(), Pick::ALL, usize::MAX).await.unwrap();
    let gone = all.into_iter().enumerate().filter(|(n, _)| pick(*n));
    let gone = gone.map(|(_, (member, score))| Change { member, from: Some(score), to: None });
    change(&s, &mut slot, LIMITS, &gone.collect::<Vec<_>>()).await.unwrap();
    tx
}

#[tokio::test]
async fn a_queue_leaves_no_empty_ranges() {
    let w = World::new().await;
    fill(&w, 1500).await;
    for _ in 0..1480 {
        taking(&w, |n| n == 0).await.commit().await.unwrap();
    }
    let tx = w.server.store.begin();
    let s = w.scope(&tx);
    let slot = object::open(&s, &KEY, Read::Snapshot).await.unwrap();
    let Some(ZsetRep::Rows { oid, .. }) = slot.zset().unwrap() else { panic!() };
    for level in 0..counts::LEVELS {
        let (begin, end) = (s.db.ranked_boundary(*oid, level, &[]), s.db.ranked_boundaries_end(*oid, level));
        let page = tx.get_range(&begin, &end, RangeOptions::default(), Read::Snapshot).await.unwrap();
        assert!(page.pairs.len() <= 12, "{} ranges of level {level} for 20 members", page.pairs.len());
    }
    assert_eq!(w.problems().await, [""; 0]);
}

/// One that is written at once has the boundaries of one that grew.
#[tokio::test]
async fn a_new_one_has_all_its_counts() {
    let w = World::new().await;
    for n in [5, 40, 700, 3000] {
        let tx = w.server.store.begin();
        let s = w.scope(&tx);
        let mut slot = object::open_members(&s, &KEY).await.unwrap();
        let entry = |n: u64| (Bytes::from(format!("m{n:05}")), Score::new((n / 3) as f64).unwrap());
        replace(&s, &mut slot, LIMITS, (0..n).map(entry).collect()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(w.problems().await, [""; 0], "{n} members");
        let tx = w.server.store.begin();
        let s = w.scope(&tx);
        let slot = object::open(&s, &KEY, Read::Snapshot).await.unwrap();
        for rank in (0..n).step_by(7) {
            let found = super::rank(&s, slot.zset().unwrap(), &entry(rank).0, false).await.unwrap();
            assert_eq!(found.map(|(rank, _)| rank), Some(rank));
        }
    }
}

/// A range of few members conflicts with changes in it, however large the sorted set is.
#[tokio::test]
async fn a_small_range_of_a_large_one_conflicts_with_itself_alone() {
    let w = World::new().await;
    fill(&w, 500).await;
    for (score, commits) in [(-5.0, true), (3.0, false)] {
        let tx = w.server.store.begin();
        let s = w.scope(&tx);
        let slot = object::open_members(&s, &KEY).await.unwrap();
        let [min, max] = [2.0, 4.0].map(|score| Bound::Included(Score::new(score).unwrap()));
        let places = Places::of_scores(min, max);
        let rep = slot.zset().unwrap();
        let n = count(&s, rep, &places, Read::Snapshot).await.unwrap();
        assert!(stream::find(&s, &slot, (&places, Pick::ALL, n), true).await.unwrap().is_none());
        assert_eq!(range(&s, rep, &places, Pick::ALL, usize::MAX).await.unwrap().len() as u64, n);
        tx.set(b"zz", b"").unwrap();
        let other = w.server.store.begin();
        let o = w.scope(&other);
        let mut slot = object::open_members(&o, &KEY).await.unwrap();
        let come = Change { member: "new".into(), from: None, to: Score::new(score) };
        change(&o, &mut slot, LIMITS, std::slice::from_ref(&come)).await.unwrap();
        other.commit().await.unwrap();
        assert_eq!(tx.commit().await.is_ok(), commits, "{score}");
        let other = w.server.store.begin();
        let o = w.scope(&other);
        let mut slot = object::open_members(&o, &KEY).await.unwrap();
        let gone = Change { from: come.to, to: None, ..come };
        change(&o, &mut slot, LIMITS, &[gone]).await.unwrap();
        other.commit().await.unwrap();
    }
}

/// Two that empty a sorted set together: the second sees it, so that the key goes.
#[tokio::test]
async fn halves_that_go_at_once_take_the_key() {
    let w = World::new().await;
    fill(&w, 600).await;
    let halves = [taking(&w, |n| n % 2 == 0).await, taking(&w, |n| n % 2 == 1).await];
    let mut done = Vec::new();
    for half in halves {
        done.push(half.commit().await.is_ok());
    }
    assert_eq!(done, [true, false]);
    taking(&w, |_| true).await.commit().await.unwrap();
    let tx = w.server.store.begin();
    let s = w.scope(&tx);
    assert!(!object::open(&s, &KEY, Read::Snapshot).await.unwrap().exists());
}

#[tokio::test]
async fn damage_is_found() {
    let (w, mut rng) = (World::new().await, Rng::seeded(1));
    for _ in 0..60 {
        let tx = w.server.store.begin();
        some_changes(&w.scope(&tx), &mut rng, 100, true).await.unwrap();
        tx.commit().await.unwrap();
    }
    let tx = w.server.store.begin();
    let s = w.scope(&tx);
    let slot = object::open(&s, &KEY, Read::Snapshot).await.unwrap();
    let Some(ZsetRep::Rows { oid, .. }) = slot.zset().unwrap().cloned() else { panic!() };
    let Error::Store(StoreError::Corrupt(_)) =
        Ranks::of(&s, Oid(7)).await.unwrap().rank(b"").await.unwrap_err()
    else {
        panic!("an object without boundaries");
    };
    let member = range(&s, slot.zset().unwrap(), &Places::all(), Pick::ALL, usize::MAX).await.unwrap();
    let row = s.db.ranked_place(oid, &place_of(member[3].1, &member[3].0));
    tx.clear(&row).unwrap();
    tx.commit().await.unwrap();
    let problems = w.problems().await;
    for what in ["a count of a sorted set", "the members of a sorted set do not fit"] {
        assert!(problems.iter().any(|problem| problem.contains(what)), "{what}: {problems:?}");
    }
}
