//! This server's view of the ids that the collector may remove in its epoch (`types::set::collect`).
//!
//! They are stored in rows `e 01`, one per block of ids. After an epoch has begun, ids only disappear from
//! these rows, and an id that has disappeared is not removed in that epoch any more, or has already been
//! removed. So a cached row remains valid to the epoch's end: it can only list too many ids. The cache is
//! keyed by the metadata version, which changes whenever an epoch begins or ends, and when a store that lost
//! its last commits is opened again.

use super::collector::{Round, decode_candidates};
use super::ids::{BLOCK, FIRST_INTEGER};
use crate::error::StoreResult;
use crate::keyspace::keys::root;
use crate::keyspace::reads::get_many;
use crate::store::{Read, Tx};
use parking_lot::Mutex;
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Blocks cached, of at most 8 KiB each.
const BLOCKS: usize = 1024;

type Blocks = BTreeMap<u64, Arc<RoaringTreemap>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Candidates(Mutex<(u64, Blocks)>);

impl Candidates {
    /// Those of `ids` that may be removed, or might have been when this server read the rows.
    pub(crate) async fn among(
        &self,
        tx: &Tx,
        round: Round,
        ids: impl Iterator<Item = u64> + Clone,
    ) -> StoreResult<RoaringTreemap> {
        if !round.has_candidates() {
            return Ok(RoaringTreemap::new());
        }
        let ids = ids.filter(|id| *id < FIRST_INTEGER);
        let blocks = self.blocks(tx, round, ids.clone().map(first).collect()).await?;
        Ok(ids.filter(|id| blocks.get(&first(*id)).is_some_and(|ids| ids.contains(*id))).collect())
    }

    /// Empties the cache.
    pub(crate) fn clear(&self) {
        *self.0.lock() = (0, Blocks::new());
    }

    async fn blocks(&self, tx: &Tx, round: Round, firsts: BTreeSet<u64>) -> StoreResult<Blocks> {
        let mut found = self.known(round, &firsts);
        let unknown: Vec<u64> = firsts.into_iter().filter(|first| !found.contains_key(first)).collect();
        let keys: Vec<[u8; 10]> = unknown.iter().map(|first| root::candidates(*first)).collect();
        for ((first, key), raw) in unknown.iter().zip(&keys).zip(get_many(tx, &keys, Read::Snapshot).await?) {
            let ids = raw.map(|raw| decode_candidates(key, &raw)).transpose()?.unwrap_or_default();
            let ids = Arc::new(ids);
            self.learn(round, *first, &ids);
            found.insert(*first, ids);
        }
        Ok(found)
    }

    fn known(&self, round: Round, firsts: &BTreeSet<u64>) -> Blocks {
        let held = self.0.lock();
        if held.0 != round.version {
            return Blocks::new();
        }
        firsts.iter().filter_map(|first| Some((*first, held.1.get(first)?.clone()))).collect()
    }

    fn learn(&self, round: Round, first: u64, ids: &Arc<RoaringTreemap>) {
        let mut held = self.0.lock();
        if held.0 < round.version || held.1.len() >= BLOCKS {
            *held = (round.version, Blocks::new());
        }
        if held.0 == round.version {
            held.1.insert(first, ids.clone());
        }
    }
}

fn first(id: u64) -> u64 {
    id - id % BLOCK
}
