//! Reads the members of all sets, and of the sets made while Settle runs.

use super::{Collector, Done, Halt};
use crate::error::StoreError;
use crate::keyspace::Scope;
use crate::keyspace::catalog::Place;
use crate::keyspace::dictionary::collector::State;
use crate::keyspace::keys::{Oid, Prefix, root};
use crate::store::{RangeOptions, Read, Tx, key_after};
use crate::types::object;
use crate::types::set::rows;
use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use roaring::RoaringTreemap;
use std::sync::atomic::Ordering;

/// Objects in one page; sets read at once over a network.
const PAGE: usize = 256;
const AT_ONCE: usize = 32;
/// Bytes of chunks that one transaction reads from a set.
const WINDOW: usize = 1 << 20;
/// Most newly made sets read at one version.
const LAST: usize = 64;

impl Collector<'_> {
    /// Strikes the members of all sets out of `left`.
    pub(super) async fn strike_all(&self, mine: &State, left: &Mutex<RoaringTreemap>) -> Done<()> {
        for db in self.databases().await? {
            let (mut begin, end) = db.tagged(b'N');
            loop {
                let start = self.now();
                let page = self.page(&begin, &end).await?;
                self.strike(
                    mine,
                    left,
                    page.iter().filter_map(|(key, _)| Some((db, db.decode_oid(key)?))).collect(),
                )
                .await?;
                self.rest(self.now() - start).await;
                match page.last() {
                    Some((key, _)) if page.len() == PAGE => begin = key_after(key),
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// The prefixes of all databases.
    async fn databases(&self) -> Done<Vec<Prefix>> {
        let rows = self.page(&root::database(0), &root::collector()).await?;
        let prefix = |(_, raw): &(Bytes, Bytes)| Some(Place::decode(raw)?.prefix);
        let all: Option<Vec<Prefix>> = rows.iter().map(prefix).collect();
        all.ok_or_else(|| StoreError::Corrupt("the prefix of a database does not decode".into()).into())
    }

    /// The first pairs of a range, at most [`PAGE`].
    async fn page(&self, begin: &[u8], end: &[u8]) -> Done<Vec<(Bytes, Bytes)>> {
        loop {
            let opts = RangeOptions { limit: PAGE, ..RangeOptions::default() };
            match self
                .space
                .store
                .begin()
                .get_range(begin, end, opts, Read::Snapshot)
                .await
                .map_err(Halt::from)
            {
                Err(Halt::Again) => tokio::task::yield_now().await,
                page => return Ok(page?.pairs),
            }
        }
    }

    /// Strikes out the members of some sets.
    async fn strike(&self, mine: &State, left: &Mutex<RoaringTreemap>, sets: Vec<(Prefix, Oid)>) -> Done<()> {
        let at_once = if self.space.store.prefers_prefetch() { AT_ONCE } else { 1 };
        for some in sets.chunks(at_once) {
            try_join_all(some.iter().map(|(db, oid)| self.strike_set(mine, left, *db, *oid))).await?;
            self.space.collector.sets.fetch_add(some.len() as u64, Ordering::Relaxed);
        }
        self.space.collector.candidates.store(left.lock().len(), Ordering::Relaxed);
        Ok(())
    }

    /// Strikes out one set, stretch by stretch, each in its own transaction.
    async fn strike_set(&self, mine: &State, left: &Mutex<RoaringTreemap>, db: Prefix, oid: Oid) -> Done<()> {
        let mut at = Some(mine.from);
        while let Some(from) = at.filter(|at| *at < mine.to) {
            let tx = self.space.store.begin();
            at = match self.strike_stretch(&tx, mine, left, (db, oid), from).await {
                Err(Halt::Again) => {
                    tokio::task::yield_now().await;
                    Some(from)
                }
                next => next?,
            };
        }
        Ok(())
    }

    /// Strikes out one stretch of a set. Returns the next id to read; None at the set's end, or if the set no
    /// longer exists.
    async fn strike_stretch(
        &self,
        tx: &Tx,
        mine: &State,
        left: &Mutex<RoaringTreemap>,
        (db, oid): (Prefix, Oid),
        from: u64,
    ) -> Done<Option<u64>> {
        let s: Scope<'_> = self.space.scope(tx, db);
        if object::count(&s, oid, Read::Snapshot).await?.cardinality() == 0 {
            return Ok(None);
        }
        let stretch = rows::stretch(&s, oid, from, Some(mine.to), WINDOW).await?;
        let ids = stretch.ids()?;
        *left.lock() -= ids;
        Ok(stretch.next)
    }

    /// Strikes out the members of sets made meanwhile, until a version exists at which all of them have been
    /// read.
    pub(super) async fn strike_made(&self, mine: &State, left: &Mutex<RoaringTreemap>) -> Done<()> {
        loop {
            match self.strike_last(mine, left).await {
                Ok(true) => return Ok(()),
                Ok(false) | Err(Halt::Again) => self.strike_some(mine, left).await?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads all newly made sets at one version. False if they are too many for that.
    async fn strike_last(&self, mine: &State, left: &Mutex<RoaringTreemap>) -> Done<bool> {
        let tx = self.space.store.begin();
        let (from, to) = root::all_made();
        let opts = RangeOptions { limit: LAST, ..RangeOptions::default() };
        let page = tx.get_range(&from, &to, opts, Read::Snapshot).await?;
        if page.more {
            return Ok(false);
        }
        for (key, _) in &page.pairs {
            let mut at = Some(mine.from);
            while let Some(from) = at.filter(|at| *at < mine.to) {
                at = self.strike_stretch(&tx, mine, left, made(key)?, from).await?;
            }
        }
        Ok(true)
    }

    /// Reads some of the newly made sets, then removes their rows.
    async fn strike_some(&self, mine: &State, left: &Mutex<RoaringTreemap>) -> Done<()> {
        let start = self.now();
        let (from, to) = root::all_made();
        let page = self.page(&from, &to).await?;
        let sets = page.iter().map(|(key, _)| made(key)).collect::<Done<Vec<_>>>()?;
        self.strike(mine, left, sets).await?;
        loop {
            match self.try_forget(mine, &page).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                result => break result?,
            }
        }
        self.rest(self.now() - start).await;
        Ok(())
    }

    async fn try_forget(&self, mine: &State, made: &[(Bytes, Bytes)]) -> Done<()> {
        let tx = self.space.store.begin();
        self.guard(&tx, mine).await?;
        made.iter().try_for_each(|(key, _)| tx.clear(key))?;
        tx.commit().await?;
        Ok(())
    }
}

fn made(key: &[u8]) -> Done<(Prefix, Oid)> {
    Ok(root::decode_made(key)
        .ok_or_else(|| StoreError::Corrupt("the row of a new set has an invalid key".into()))?)
}
