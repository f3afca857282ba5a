//! Sweep: removes the candidates that were not revived.

use super::{BATCH, Collector, Done, Halt, Step};
use crate::error::{StoreError, StoreResult};
use crate::keyspace::dictionary::collector::{State, decode_candidates, encode_candidates};
use crate::keyspace::dictionary::members;
use crate::keyspace::keys::root;
use crate::store::{RangeOptions, Read, Rest, Tx, key_after};
use roaring::RoaringTreemap;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Collector<'_> {
    /// Sweeps one batch in one transaction; after the last batch, begins the next epoch.
    pub(super) async fn sweep(&self, state: State) -> Done<Step> {
        let worked = loop {
            match self.try_sweep(&state).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                done => break done?,
            }
        };
        let Some(worked) = worked else {
            let tx = self.space.store.begin();
            let now = self.guard(&tx, &state).await?;
            return self.end_epoch(now).await;
        };
        self.rest(worked).await;
        Ok(Step::Worked)
    }

    /// Sweeps one batch. Returns how long that took; None if nothing is left.
    async fn try_sweep(&self, mine: &State) -> Done<Option<Duration>> {
        let start = self.now();
        let tx = self.space.store.begin();
        let mut state = self.guard(&tx, mine).await?;
        let (from, to) = root::all_candidates();
        let one = RangeOptions { limit: 1, ..RangeOptions::default() };
        let page = tx.get_range(&from, &to, one, Read::Serializable).await?;
        let Some((key, raw)) = page.pairs.first() else { return Ok(None) };
        let mut rest = decode_candidates(key, raw)?;
        let some: RoaringTreemap = rest.iter().take(self.pace.batch).collect();
        let unreferenced = &some - revived(&tx, &some).await?;
        let removed = members::remove(&tx, &unreferenced).await?;
        let before = rest.len();
        rest.remove_range(..removed.next.unwrap_or_else(|| some.max().map_or(0, |last| last + 1)));
        if rest.is_empty() {
            tx.clear(key)?;
        } else {
            tx.set(key, &encode_candidates(&rest)?)?;
        }
        state.collected += removed.count;
        state.swept += before - rest.len();
        tx.set(&root::collector(), &state.encode())?;
        let worked = self.now() - start;
        tx.commit().await?;
        let left = state.candidates.saturating_sub(state.swept);
        self.space.collector.candidates.store(left, Ordering::Relaxed);
        // Beyond that, a commit is mostly waiting for the disk or the network.
        Ok(Some(worked + worked.min(self.now() - start - worked)))
    }
}

/// The revived ids between the first and the last of `ids`. Serializable: if a transaction revives one of
/// them and commits first, this transaction conflicts.
async fn revived(tx: &Tx, ids: &RoaringTreemap) -> StoreResult<RoaringTreemap> {
    let (Some(first), Some(last)) = (ids.min(), ids.max()) else { return Ok(RoaringTreemap::new()) };
    let mut rest = Rest::of((root::revived(first).to_vec(), key_after(&root::revived(last))));
    let mut revived = RoaringTreemap::new();
    let opts = RangeOptions { limit: BATCH, ..RangeOptions::default() };
    while let Some(page) = rest.page(tx, opts, Read::Serializable).await? {
        for (key, _) in &page {
            let id = root::decode_in_collection(key);
            revived.insert(
                id.ok_or_else(|| StoreError::Corrupt("the row of a revived id has an invalid key".into()))?,
            );
        }
    }
    Ok(revived)
}
