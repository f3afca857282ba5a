//! Mark finds the ids that seem to be in no set; Settle decides which of them really are.

use super::{Collector, Done, Halt, IDS_END, Step};
use crate::error::StoreError;
use crate::keyspace::dictionary::collector::{Phase, State, decode_candidates, encode_candidates};
use crate::keyspace::dictionary::ids::BLOCK;
use crate::keyspace::dictionary::members;
use crate::keyspace::keys::root;
use crate::store::{RangeOptions, Read, Rest, Retries, Tx};
use parking_lot::Mutex;
use roaring::RoaringTreemap;

/// Most rows of candidates written in one transaction.
const ROWS: usize = 64;

/// Mark's count of the members of its stretch.
#[derive(Default)]
struct Found {
    candidates: u64,
    others: u64,
}

impl Collector<'_> {
    /// Makes candidates of the ids that seem to be in no set. Then Settle begins, or the next epoch if there
    /// are none.
    pub(super) async fn mark(&self, mut state: State) -> Done<Step> {
        let (places, end) = self.places(state.from).await?;
        state.to = end;
        self.space.collector.begin(places.len());
        let blocks: Vec<u64> = blocks_of(&places);
        let left = Mutex::new(places);
        self.strike_all(&state, &left).await?;
        let found = self.write_candidates(&state, blocks, &left.into_inner()).await?;
        state.live_so_far += found.others;
        if found.candidates == 0 {
            return self.end_epoch(state).await;
        }
        let next =
            State { phase: Phase::Settle, epoch: state.epoch + 1, candidates: found.candidates, ..state };
        self.flip(&state, next, Tx::bump_metadata_version).await?;
        Ok(Step::Worked)
    }

    /// The ids of the next stretch, and its end. Within a block, ids beyond the last one that has a member
    /// are left out: no member has them yet. (An id that is not committed yet may seem dead; Settle finds
    /// it.)
    async fn places(&self, from: u64) -> Done<(RoaringTreemap, u64)> {
        let (mut ids, mut blocks, mut at) = (RoaringTreemap::new(), 0, from);
        loop {
            let start = self.now();
            let Some((first, last)) = self.next_block(at).await? else { return Ok((ids, IDS_END)) };
            if blocks == self.pace.slice {
                return Ok((ids, first - first % BLOCK));
            }
            ids.insert_range(first..=last);
            blocks += 1;
            at = first - first % BLOCK + BLOCK;
            self.rest(self.now() - start).await;
        }
    }

    /// The first id and about the last id with a member, in the first block from `at` on that has any member.
    async fn next_block(&self, at: u64) -> Done<Option<(u64, u64)>> {
        loop {
            let tx = self.space.store.begin();
            match try_next_block(&tx, at).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                found => return found,
            }
        }
    }

    /// Writes those of `unreferenced` that have a member as candidates.
    async fn write_candidates(
        &self,
        mine: &State,
        blocks: Vec<u64>,
        unreferenced: &RoaringTreemap,
    ) -> Done<Found> {
        let (mut found, mut rows) = (Found::default(), Vec::with_capacity(ROWS));
        for first in blocks {
            let present = self.present(first).await?;
            let own = &present & unreferenced;
            found.candidates += own.len();
            found.others += present.len() - own.len();
            if !own.is_empty() {
                rows.push((first, own));
            }
            if rows.len() == ROWS {
                self.put_candidates(mine, &rows).await?;
                rows.clear();
            }
        }
        self.put_candidates(mine, &rows).await?;
        Ok(found)
    }

    /// The ids of a block that have a member.
    async fn present(&self, first: u64) -> Done<RoaringTreemap> {
        let (mut all, mut at) = (RoaringTreemap::new(), Some(first));
        while let Some(from) = at {
            let start = self.now();
            let tx = self.space.store.begin();
            match members::present(&tx, from, first + BLOCK).await.map_err(Halt::from) {
                Err(Halt::Again) => tokio::task::yield_now().await,
                page => {
                    let (ids, next) = page?;
                    all.extend(ids);
                    at = next.filter(|next| *next < first + BLOCK);
                }
            }
            self.rest(self.now() - start).await;
        }
        Ok(all)
    }

    /// Writes the candidates of some blocks; a block without candidates has no row.
    async fn put_candidates(&self, mine: &State, blocks: &[(u64, RoaringTreemap)]) -> Done<()> {
        loop {
            match self.try_put_candidates(mine, blocks).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                done => return done,
            }
        }
    }

    async fn try_put_candidates(&self, mine: &State, blocks: &[(u64, RoaringTreemap)]) -> Done<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let tx = self.space.store.begin();
        self.guard(&tx, mine).await?;
        for (first, ids) in blocks {
            if ids.is_empty() {
                tx.clear(&root::candidates(*first))?;
            } else {
                tx.set(&root::candidates(*first), &encode_candidates(ids)?)?;
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// Strikes out the ids that a set holds after all; then Grace begins.
    pub(super) async fn settle(&self, state: State) -> Done<Step> {
        let before = self.candidates().await?;
        let mut all = RoaringTreemap::new();
        before.iter().for_each(|(_, ids)| all |= ids);
        self.space.collector.begin(all.len());
        let left = Mutex::new(all);
        self.strike_all(&state, &left).await?;
        self.strike_made(&state, &left).await?;
        let left = left.into_inner();
        let struck = |(first, ids): &(u64, RoaringTreemap)| {
            let rest = ids & &left;
            (rest.len() < ids.len()).then_some((*first, rest))
        };
        let changed: Vec<(u64, RoaringTreemap)> = before.iter().filter_map(struck).collect();
        for some in changed.chunks(ROWS) {
            self.put_candidates(&state, some).await?;
        }
        let (dead, saved) = (left.len(), state.candidates.saturating_sub(left.len()));
        let next = State {
            phase: Phase::Grace,
            candidates: dead,
            dead_so_far: state.dead_so_far + dead,
            live_so_far: state.live_so_far + saved,
            ..state
        };
        self.flip(&state, next, |tx| {
            let (from, to) = root::all_made();
            tx.clear_range(&from, &to)?;
            tx.bump_metadata_version()
        })
        .await?;
        Ok(Step::Worked)
    }

    /// All candidates by block.
    async fn candidates(&self) -> Done<Vec<(u64, RoaringTreemap)>> {
        let (begin, end) = root::all_candidates();
        let mut rest = Rest::of((begin.to_vec(), end.to_vec()));
        let (mut all, mut retries) = (Vec::new(), Retries::endless());
        while let Some((begin, end)) = rest.range() {
            let opts = RangeOptions { limit: ROWS, ..RangeOptions::default() };
            // Not in the `match`, which would keep the transaction.
            let page = self.space.store.begin().get_range(begin, end, opts, Read::Snapshot).await;
            let page = match page {
                Ok(page) => page,
                Err(e) => {
                    retries.on_error(e)?;
                    continue;
                }
            };
            for (key, raw) in &page.pairs {
                let first = root::decode_in_collection(key);
                let first = first
                    .ok_or_else(|| StoreError::Corrupt("a row of candidates has an invalid key".into()))?;
                all.push((first, decode_candidates(key, raw)?));
            }
            rest.pass(&page);
        }
        Ok(all)
    }
}

/// The first id of each block that contains some of `ids`, which are stretches of blocks.
fn blocks_of(ids: &RoaringTreemap) -> Vec<u64> {
    let (mut firsts, mut at) = (Vec::new(), ids.min());
    while let Some(id) = at {
        let first = id - id % BLOCK;
        firsts.push(first);
        let mut rest = ids.iter();
        rest.advance_to(first + BLOCK);
        at = rest.next();
    }
    firsts
}

async fn try_next_block(tx: &Tx, at: u64) -> Done<Option<(u64, u64)>> {
    let one = RangeOptions { limit: 1, ..RangeOptions::default() };
    let next = tx.get_range(&root::member(at), &root::member(IDS_END), one, Read::Snapshot).await?;
    let Some((first, _)) = next.pairs.first().map(|(key, _)| id_of(key)).transpose()? else {
        return Ok(None);
    };
    let (begin, end) = (root::member(first), root::member(first - first % BLOCK + BLOCK));
    let back = RangeOptions { reverse: true, ..one };
    let last = tx.get_range(&begin, &end, back, Read::Snapshot).await?;
    let last = last.pairs.first().map(|(key, _)| id_of(key)).transpose()?;
    Ok(Some((first, last.map_or(first, |(_, last)| last))))
}

/// The first and the last id that a row `b` can hold.
fn id_of(key: &[u8]) -> Done<(u64, u64)> {
    let id = key.get(1..9).and_then(|raw| raw.try_into().ok()).map(u64::from_be_bytes);
    let id = id.ok_or_else(|| StoreError::Corrupt("a row of members has an invalid key".into()))?;
    Ok((id, if key.len() > 9 { id + members::GROUP - 1 } else { id }))
}
