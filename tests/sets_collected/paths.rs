//! Single paths through the protocol, one hazard per test.

use crate::cluster::Cluster;
use crate::work::{member, members_of};
use crate::{cluster, cycles, look, pace, reclaim_whole, rows, state, until, waiting};
use bytes::Bytes;
use std::collections::BTreeSet;
use tern::error::{Error, StoreError};
use tern::keyspace::Scope;
use tern::keyspace::dictionary::collector::{Phase, Round, decode_candidates, encode_candidates};
use tern::keyspace::dictionary::forward::ids_of_row;
use tern::keyspace::dictionary::ids::BLOCK;
use tern::keyspace::keys::{Prefix, root};
use tern::server::reply::Reply;
use tern::store::{RangeOptions, Read, Tx};
use tern::types::object;
use tern::types::set;
use tern::types::set::collect::{Collector, Pace, Step};

fn argv(words: &str, members: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
    words.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).chain(members).collect()
}

/// A chunked set's members.
fn many(from: u64, n: u64) -> Vec<Bytes> {
    (from..from + n).map(|n| format!("{n:070}").into()).collect()
}

/// One phase on server `n`.
async fn step(c: &Cluster, n: usize) -> Step {
    Collector::new(c.space(n), pace()).step().await.unwrap()
}

async fn begin(c: &Cluster, n: usize) {
    Collector::new(c.space(n), pace()).begin().await.unwrap();
    assert_eq!(step(c, n).await, Step::Worked);
}

async fn forward(c: &Cluster, member: &Bytes) -> Option<Bytes> {
    c.store.begin().get(&root::forward(member), Read::Snapshot).await.unwrap()
}

/// Whether the collector would remove the member in the present state.
async fn is_candidate(c: &Cluster, member: &Bytes) -> bool {
    let id = ids_of_row(&forward(c, member).await.unwrap()).next().unwrap();
    let (tx, row) = (c.store.begin(), root::candidates(id - id % BLOCK));
    let Some(raw) = tx.get(&row, Read::Snapshot).await.unwrap() else { return false };
    let revived = tx.get(&root::revived(id), Read::Snapshot).await.unwrap();
    decode_candidates(&row, &raw).unwrap().contains(id) && revived.is_none()
}

async fn smembers(c: &Cluster, key: &str) -> BTreeSet<Bytes> {
    members_of(c, 0, c.line(0, &format!("SMEMBERS {key}")).await).await.unwrap()
}

/// Database 0 in a transaction of server 0 that saw `round`.
fn scope<'a>(c: &'a Cluster, tx: &'a Tx, db: Prefix, round: Round) -> Scope<'a> {
    Scope { now: 1_000, round, ..c.space(0).scope(tx, db) }
}

#[tokio::test]
async fn only_unreferenced_members_are_removed() {
    let c = cluster().await;
    let (kept, gone) = (many(0, 100), many(100, 100));
    c.run(0, argv("SADD a", [kept.clone(), gone.clone()].concat())).await;
    c.run(0, argv("SREM a", gone.clone())).await;
    cycles(&c, 1).await;
    let s = state(&c).await;
    assert_eq!((s.collected, s.live, s.dead, s.phase), (100, 100, 100, Phase::Idle));
    for member in &gone {
        assert_eq!(forward(&c, member).await, None);
    }
    assert_eq!(smembers(&c, "a").await, BTreeSet::from_iter(kept.clone()));
    // They can come back, under other ids.
    assert_eq!(c.run(1, argv("SADD a", gone.clone())).await, Reply::Int(100));
    assert_eq!(smembers(&c, "a").await.len(), 200);
    cycles(&c, 1).await;
    assert_eq!(state(&c).await.collected, 100);
    assert_eq!(c.run(2, argv("SREM a", gone)).await, Reply::Int(100));
}

#[tokio::test]
async fn a_member_that_comes_back_is_revived() {
    let c = cluster().await;
    let words = many(0, 8);
    for key in ["a", "b", "small"] {
        c.run(0, argv(&format!("SADD {key}"), many(100, 1))).await;
    }
    c.run(0, argv("SADD a", words.clone())).await;
    c.run(0, argv("SREM a", words.clone())).await;
    begin(&c, 0).await;
    assert_eq!(state(&c).await.phase, Phase::Settle);
    for word in &words {
        assert!(is_candidate(&c, word).await);
    }
    // Reading does not revive it.
    c.run(0, argv("SISMEMBER a", [words[0].clone()])).await;
    c.run(0, argv("SREM a", [words[0].clone()])).await;
    assert!(is_candidate(&c, &words[0]).await);
    c.run(0, argv("SADD a", [words[1].clone()])).await;
    assert!(!is_candidate(&c, &words[1]).await);
    // Settle and Grace end: reviving it later is early enough.
    assert_eq!(step(&c, 0).await, Step::Worked);
    assert_eq!(state(&c).await.phase, Phase::Grace);
    c.run(1, argv("SADD b", [words[2].clone()])).await;
    cycles(&c, 1).await;
    assert_eq!(state(&c).await.collected, 6);
    assert_eq!(smembers(&c, "a").await, BTreeSet::from_iter([many(100, 1)[0].clone(), words[1].clone()]));
    assert_eq!(smembers(&c, "b").await, BTreeSet::from_iter([many(100, 1)[0].clone(), words[2].clone()]));
}

/// Sweep goes by the revived ids, not by the rows of candidates alone: a member that came back after the
/// first of its transactions stays, with its row in both directions and with its id.
#[tokio::test]
async fn a_member_revived_during_the_sweep_stays() {
    let c = cluster().await;
    let words = many(10_000, 6000);
    c.run(0, argv("SADD b", many(5000, 300))).await;
    c.run(0, argv("SADD a", words.clone())).await;
    c.run(0, argv("SREM a", words.clone())).await;
    reclaim_whole(&c).await;
    begin(&c, 0).await;
    until(&c, pace(), |now| now.phase == Phase::Sweep).await;
    assert_eq!((step(&c, 0).await, state(&c).await.phase), (Step::Worked, Phase::Sweep));
    let mut left = Vec::new();
    for word in &words {
        left.extend(forward(&c, word).await.map(|row| (word.clone(), row)));
    }
    assert!(!left.is_empty() && left.len() < words.len(), "{} are left", left.len());
    // Also neighbours in one row of members, some of which are removed.
    let back: Vec<(Bytes, Bytes)> = left.iter().step_by(3).cloned().collect();
    let names: Vec<Bytes> = back.iter().map(|(word, _)| word.clone()).collect();
    assert_eq!(c.run(1, argv("SADD b", names.clone())).await, Reply::Int(names.len() as i64));
    cycles(&c, 1).await;
    assert_eq!(state(&c).await.collected, (words.len() - names.len()) as u64);
    for (word, row) in &back {
        let now = forward(&c, word).await.expect("the member must be in a set");
        let ids = [row, &now].map(|row| ids_of_row(row).collect::<Vec<_>>());
        assert_eq!(ids[0], ids[1]);
    }
    assert_eq!(smembers(&c, "b").await, many(5000, 300).into_iter().chain(names).collect());
    let gone = left.iter().filter(|(word, _)| !back.iter().any(|(kept, _)| kept == word));
    for (word, _) in gone {
        assert_eq!(forward(&c, word).await, None);
    }
}

#[tokio::test]
async fn a_union_that_takes_an_id_from_the_dictionary_revives_it() {
    let c = cluster().await;
    let dead = Bytes::from_static(b"short");
    c.run(0, argv("SADD a", many(0, 1))).await;
    c.run(0, argv("SADD a", [dead.clone()])).await;
    c.run(0, argv("SREM a", [dead.clone()])).await;
    // Stored in its record, not by its id.
    c.run(0, argv("SADD small", [dead.clone()])).await;
    begin(&c, 0).await;
    assert_eq!(step(&c, 0).await, Step::Worked);
    assert_eq!(state(&c).await.phase, Phase::Grace);
    assert!(is_candidate(&c, &dead).await);
    assert_eq!(c.line(1, "SUNIONSTORE b a small").await, Reply::Int(2));
    cycles(&c, 1).await;
    assert_eq!(smembers(&c, "b").await, BTreeSet::from_iter([dead, many(0, 1)[0].clone()]));
}

/// Makes a candidate of a member that a set holds, as a mark would that came before the set was read.
async fn make_candidate(c: &Cluster, member: &Bytes) {
    let tx = c.store.begin();
    let id = ids_of_row(&forward(c, member).await.unwrap()).next().unwrap();
    let block = root::candidates(id - id % BLOCK);
    let raw = tx.get(&block, Read::Snapshot).await.unwrap();
    let mut all = raw.map(|raw| decode_candidates(&block, &raw).unwrap()).unwrap_or_default();
    all.insert(id);
    tx.set(&block, &encode_candidates(&all).unwrap()).unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn an_early_mark_does_no_harm() {
    let c = cluster().await;
    let words = many(0, 20);
    c.run(0, argv("SADD a", words.clone())).await;
    c.run(0, argv("SREM a", words[5..].to_vec())).await;
    begin(&c, 0).await;
    make_candidate(&c, &words[0]).await;
    cycles(&c, 1).await;
    assert_eq!(state(&c).await.collected, 15);
    assert_eq!(smembers(&c, "a").await, BTreeSet::from_iter(words[..5].to_vec()));
}

/// A transaction's read of the epoch can conflict: otherwise the collector would not see a set created in it.
#[tokio::test]
async fn no_transaction_is_in_two_epochs() {
    let c = cluster().await;
    let words = many(0, 20);
    c.run(0, argv("SADD a", words.clone())).await;
    c.run(0, argv("SREM a", words[5..].to_vec())).await;
    for _ in ["Settle begins", "Settle ends"] {
        let tx = c.store.begin();
        c.space(1).catalog.load(&tx).await.unwrap();
        if state(&c).await.phase == Phase::Idle {
            begin(&c, 0).await;
        } else {
            assert_eq!(step(&c, 0).await, Step::Worked);
        }
        tx.set(b"d\xff", b"").unwrap();
        assert_eq!(tx.commit().await, Err(StoreError::Conflict));
    }
    assert_eq!(state(&c).await.phase, Phase::Grace);
}

#[tokio::test]
async fn a_set_copied_behind_the_collectors_back_is_seen() {
    let c = cluster().await;
    let words = many(0, 20);
    c.run(0, argv("SADD a", words.clone())).await;
    c.run(0, argv("SREM a", words[1..].to_vec())).await;
    begin(&c, 0).await;
    make_candidate(&c, &words[0]).await;
    for line in ["COPY a b", "DEL a", "SUNIONSTORE c b", "DEL b", "RENAME c d", "COPY d e DB 3"] {
        c.line(1, line).await;
        reclaim_whole(&c).await;
    }
    let (from, to) = root::all_made();
    assert_eq!(c.keys(&from, &to).await.len(), 3, "all sets must be seen");
    cycles(&c, 1).await;
    assert_eq!(state(&c).await.collected, 19);
    assert_eq!(smembers(&c, "d").await, BTreeSet::from_iter([words[0].clone()]));
}

#[tokio::test]
async fn a_reply_that_is_being_sent_keeps_its_members() {
    let c = cluster().await;
    let words = many(0, 1000);
    c.run(0, argv("SADD a", words.clone())).await;
    let reply = c.line(1, "SMEMBERS a").await;
    assert!(matches!(reply, Reply::Members(_)), "{reply:?}");
    c.line(0, "DEL a").await;
    reclaim_whole(&c).await;
    begin(&c, 0).await;
    assert_eq!(step(&c, 0).await, Step::Worked);
    let mut waiting = waiting(&c);
    for _ in 0..30 {
        look(&c, &mut waiting).await;
        assert_eq!(step(&c, 0).await, Step::Waits);
        tokio::time::sleep(pace().grace / 10).await;
    }
    assert_eq!(c.keys(b"e\x03", b"e\x04").await.len(), 2, "two servers have no such reply");
    assert_eq!(members_of(&c, 1, reply).await.unwrap(), BTreeSet::from_iter(words));
    waiting[1].look(c.space(1), &pace(), &c.store.begin(), &state(&c).await).await.unwrap();
    assert_eq!(step(&c, 0).await, Step::Worked);
    assert_eq!(state(&c).await.phase, Phase::Sweep);
    cycles(&c, 1).await;
    assert_eq!(state(&c).await.collected, 1000);
}

#[tokio::test]
async fn a_dead_owners_work_is_taken_up_in_every_phase() {
    for phase in [Phase::Mark, Phase::Settle, Phase::Grace, Phase::Sweep] {
        let mut c = cluster().await;
        c.run(1, argv("SADD a", many(0, 2000))).await;
        c.run(1, argv("SREM a", many(0, 1000))).await;
        Collector::new(c.space(0), pace()).begin().await.unwrap();
        until(&c, pace(), |now| now.phase == phase).await;
        assert_eq!(step(&c, 1).await, Step::Idle, "a live owner must keep its work");
        c.space(0).instances.leave().await.unwrap();
        c.members.remove(0);
        cycles(&c, 1).await;
        assert_eq!(state(&c).await.collected, 1000, "after {phase:?}");
        assert_eq!(smembers(&c, "a").await, BTreeSet::from_iter(many(1000, 1000)));
    }
}

#[tokio::test]
async fn a_replaced_owners_step_is_not_applied() {
    let c = cluster().await;
    c.run(1, argv("SADD a", many(0, 100))).await;
    c.run(1, argv("SREM a", many(0, 50))).await;
    begin(&c, 0).await;
    let before = state(&c).await;
    // The same server takes it up again, as after an error: a step of the previous turn finds that it has
    // lost.
    assert_eq!(step(&c, 0).await, Step::Worked);
    assert!(state(&c).await.turn >= before.turn + 2);
    cycles(&c, 1).await;
    assert_eq!(state(&c).await.collected, 50);
}

#[tokio::test]
async fn an_abandoned_cycle_leaves_nothing() {
    let c = cluster().await;
    c.run(1, argv("SADD a", many(0, 100))).await;
    c.run(1, argv("SREM a", many(0, 50))).await;
    begin(&c, 0).await;
    c.line(0, "COPY a b").await;
    Collector::new(c.space(1), pace()).abandon().await.unwrap();
    assert_eq!(state(&c).await.phase, Phase::Settle, "another server must not continue it");
    Collector::new(c.space(0), pace()).abandon().await.unwrap();
    assert_eq!((state(&c).await.phase, rows(&c, b"e", b"f").await), (Phase::Idle, 1));
    c.line(0, "COPY a c").await;
    assert_eq!(rows(&c, b"e", b"f").await, 1, "new sets must not be recorded any more");
    assert!(!is_candidate(&c, &many(0, 1)[0]).await);
    c.run(2, argv("SADD d", many(0, 2))).await;
    assert_eq!(rows(&c, b"e", b"f").await, 1, "nothing is revived any more");
    c.line(0, "DEL d").await;
    reclaim_whole(&c).await;
    cycles(&c, 1).await;
    assert_eq!(state(&c).await.collected, 50);
}

/// An interrupted Mark may have written ids outside the next Mark's stretch: Settle would not check them.
#[tokio::test]
async fn a_restarted_mark_discards_its_rows() {
    let c = cluster().await;
    let short = Pace { slice: 1, ..pace() };
    for n in 0..2 {
        // Each server has a block of its own.
        c.run(n, argv("SADD a", many(1000 * n as u64, 20))).await;
        c.run(n, argv("SREM a", many(1000 * n as u64 + 1, 19))).await;
    }
    Collector::new(c.space(0), short).begin().await.unwrap();
    let kept = BTreeSet::from([many(0, 1)[0].clone(), many(1000, 1)[0].clone()]);
    for member in &kept {
        make_candidate(&c, member).await;
    }
    until(&c, short, |now| now.phase == Phase::Idle).await;
    assert_eq!((smembers(&c, "a").await, state(&c).await.collected), (kept, 38));
}

/// A transaction that gives a candidate to one set after another writes that down once: otherwise the sweep
/// would conflict with each of them.
#[tokio::test]
async fn a_revived_id_is_written_once() {
    let c = cluster().await;
    c.run(0, argv("SADD a", many(0, 20))).await;
    c.run(0, argv("SREM a", many(1, 19))).await;
    begin(&c, 0).await;
    assert_eq!(c.run(1, argv("SADD a", many(1, 3))).await, Reply::Int(3));
    let tx = c.store.begin();
    let (from, to) = root::all_revived();
    let revived = tx.get_range(&from, &to, RangeOptions::default(), Read::Serializable).await.unwrap();
    assert_eq!(revived.pairs.len(), 3);
    for n in 0..3 {
        c.run(n, argv("SADD b", many(0, 4))).await;
        c.run(n, argv("SREM b", many(1, 2))).await;
    }
    tx.set(b"z", b"").unwrap();
    assert!(tx.commit().await.is_ok());
    cycles(&c, 1).await;
    assert_eq!((state(&c).await.collected, rows(&c, b"e", b"f").await), (16, 1));
}

#[tokio::test]
async fn ids_found_ahead_are_looked_up_again_in_another_epoch() {
    use tern::types::set::prebuild;
    let c = cluster().await;
    let words = many(0, 600);
    let ahead = prebuild::intern(c.space(0), &[&words]).await.unwrap().remove(0);
    let found = prebuild::find(c.space(0), &[&words]).await.unwrap().remove(0);
    let round = async || c.space(0).catalog.load(&c.store.begin()).await.unwrap().round;
    let before = round().await;
    assert!(ahead.hold_in(before) && found.hold_in(before));
    let lossy = Round { generation: before.generation + 1, ..before };
    assert!(!ahead.hold_in(lossy) && !found.hold_in(lossy), "the store may have lost the ids");
    cycles(&c, 1).await;
    let s = state(&c).await;
    assert_eq!(s.collected, 600, "no set may hold them yet");
    let after = round().await;
    assert!(!ahead.hold_in(after) && !found.hold_in(after));
    c.run(0, argv("SADD a", words.clone())).await;
    let tx = c.store.begin();
    let catalog = c.space(0).catalog.load(&tx).await.unwrap();
    let (db, round) = (catalog.prefix(0).unwrap(), catalog.round);
    let s = scope(&c, &tx, db, round);
    let mut slot = object::open_members(&s, &Bytes::from("a")).await.unwrap();
    let conflict = Err(Error::Store(StoreError::Conflict));
    assert_eq!(set::add_ids(&s, &mut slot, &words, &ahead).await, conflict);
    assert_eq!(set::remove_ids(&s, &mut slot, &words, &found).await, conflict);
    let again = prebuild::find(c.space(0), &[&words]).await.unwrap().remove(0);
    assert_eq!(set::remove_ids(&s, &mut slot, &words, &again).await, Ok(600));
}

/// Like a value that is built while an epoch ends.
#[tokio::test]
async fn an_object_built_in_another_epoch_is_not_swapped_in() {
    use tern::types::set::prebuild;
    let c = cluster().await;
    c.run(0, argv("SADD b", many(5000, 10))).await;
    c.run(0, argv("SREM b", many(5000, 1))).await;
    let db = c.space(0).catalog.load(&c.store.begin()).await.unwrap().prefix(0).unwrap();
    let built = prebuild::whole(c.space(0), db, &many(0, 600), 60_000).await.unwrap().unwrap();
    for fits in [true, false] {
        let tx = c.store.begin();
        let round = c.space(0).catalog.load(&tx).await.unwrap().round;
        let s = scope(&c, &tx, db, round);
        assert_eq!(built.try_take(&s, &s).await, Ok(fits));
        cycles(&c, 1).await;
    }
}

/// SREM of very many members looks them up before its transaction: a member that is collected and comes back
/// meanwhile has another id.
#[tokio::test]
async fn a_candidate_is_looked_up_again() {
    use tern::types::set::prebuild;
    let c = cluster().await;
    let words = many(0, 600);
    c.run(0, argv("SADD a", words.clone())).await;
    c.run(0, argv("SREM a", words[..300].to_vec())).await;
    begin(&c, 0).await;
    let found = prebuild::find(c.space(0), &[&words]).await.unwrap().remove(0);
    let epoch = state(&c).await.epoch;
    until(&c, pace(), |now| now.phase == Phase::Idle).await;
    assert_eq!((state(&c).await.collected, state(&c).await.epoch), (300, epoch));
    c.run(1, argv("SADD a", words.clone())).await;
    let tx = c.store.begin();
    let catalog = c.space(0).catalog.load(&tx).await.unwrap();
    let (db, round) = (catalog.prefix(0).unwrap(), catalog.round);
    let s = scope(&c, &tx, db, round);
    let mut slot = object::open_members(&s, &Bytes::from("a")).await.unwrap();
    assert_eq!(
        set::remove_ids(&s, &mut slot, &words, &found).await,
        Ok(600),
        "the new ids must be removed too"
    );
}

#[tokio::test]
async fn long_members_that_share_a_row_go_one_by_one() {
    let c = cluster().await;
    let (kept, gone) = (Bytes::from("k".repeat(700)), Bytes::from("g".repeat(700)));
    c.run(0, argv("SADD a", [kept.clone(), gone.clone(), member(1)])).await;
    c.run(0, argv("SREM a", [gone.clone(), member(1)])).await;
    begin(&c, 0).await;
    assert!(is_candidate(&c, &gone).await && !is_candidate(&c, &kept).await);
    c.run(0, argv("SADD a", [member(1)])).await;
    assert!(!is_candidate(&c, &member(1)).await);
    cycles(&c, 1).await;
    assert_eq!(forward(&c, &gone).await, None);
    assert_eq!(smembers(&c, "a").await, BTreeSet::from_iter([kept, member(1)]));
}
