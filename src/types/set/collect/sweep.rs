//! Sweep: what still bears its mark is removed.

use super::{BATCH, Collector, Done, Halt, Step, check, guard};
use crate::keyspace::collector::{State, decode_candidates, encode_candidates};
use crate::keyspace::ids;
use crate::keyspace::keys::root;
use crate::keyspace::members;
use crate::keyspace::reads::get_many;
use crate::store::{RangeOptions, Read, Tx};
use roaring::RoaringTreemap;
use std::sync::atomic::Ordering;

impl Collector<'_> {
    /// One transaction of it; the next epoch after the last.
    pub(super) async fn sweep(&self, state: State) -> Done<Step> {
        let start = self.now();
        let more = loop {
            match self.try_sweep(&state).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                done => break done?,
            }
        };
        if !more {
            let now = self.state().await?;
            check(&now, &state)?;
            return self.end_epoch(now).await;
        }
        self.rest(self.now() - start).await;
        Ok(Step::Worked)
    }

    /// False where nothing is left.
    async fn try_sweep(&self, mine: &State) -> Done<bool> {
        let tx = self.space.store.begin();
        let mut state = guard(&tx, mine).await?;
        let (from, to) = root::all_candidates();
        let one = RangeOptions { limit: 1, ..RangeOptions::default() };
        let page = tx.get_range(&from, &to, one, Read::Serializable).await?;
        let Some((key, raw)) = page.pairs.first() else { return Ok(false) };
        let mut rest = decode_candidates(key, raw)?;
        let some: Vec<u64> = rest.iter().take(BATCH).collect();
        let removed = remove(&tx, &some).await?;
        rest -= RoaringTreemap::from_iter(&some);
        if rest.is_empty() {
            tx.clear(key)?;
        } else {
            tx.set(key, &encode_candidates(&rest)?)?;
        }
        state.collected += removed;
        state.swept += some.len() as u64;
        tx.set(&root::collector(), &state.encode())?;
        tx.commit().await?;
        let left = state.condemned.saturating_sub(state.swept);
        self.space.collector.candidates.store(left, Ordering::Relaxed);
        Ok(true)
    }
}

/// Removes those of `ids` that still bear their mark. How many they were.
async fn remove(tx: &Tx, ids: &[u64]) -> Done<u64> {
    let found = members::present(tx, ids).await?;
    let keys: Vec<Vec<u8>> = found.iter().map(|(_, member)| root::forward(member)).collect();
    // Long members may share a row: each reads what the one before has written.
    get_many(tx, &keys, Read::Serializable).await?;
    let mut removed = Vec::with_capacity(found.len());
    for ((id, _), key) in found.iter().zip(&keys) {
        let row = tx.get(key, Read::Serializable).await?.unwrap_or_default();
        let Some(rest) = ids::without_condemned(&row, *id) else { continue };
        if rest.is_empty() {
            tx.clear(key)?;
        } else {
            tx.set(key, &rest)?;
        }
        removed.push(*id);
    }
    members::remove(tx, &removed).await?;
    Ok(removed.len() as u64)
}
