//! The input and output of auditing a type's rows: `tern check` passes each value an [`AuditView`] and
//! collects its [`Problem`]s.
//!
//! A view is one version of a store, for as long as that version can be read.
//!
//! A transaction lives for five seconds. If nobody writes (`tern check` is the only user of an embedded store
//! that it has opened), the next transaction reads the same version, and a view lasts indefinitely. If
//! somebody writes, the view returns [`StoreError::TooOld`], and everything read through it must be read
//! again: its answers never mix two versions.

use crate::error::{StoreError, StoreResult};
use crate::keyspace::dictionary::known::KnownIds;
use crate::keyspace::dictionary::members;
use crate::keyspace::keys::{Prefix, root};
use crate::store::{Pairs, RangeOptions, Read, Rest, Store, Tx, Version};
use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use std::sync::Arc;

/// Attempts at a read that the engine rejects as too old. (An injected fault may do so a few times.)
const ATTEMPTS: usize = 20;

/// A problem that the audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The row.
    pub row: Vec<u8>,
    /// The problem.
    pub what: String,
}

impl Problem {
    /// A problem of `row`.
    pub(crate) fn new(row: &[u8], what: impl Into<String>) -> Self {
        Problem { row: row.to_vec(), what: what.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.row.escape_ascii(), self.what)
    }
}

/// The problems found in a row.
pub(crate) type Findings = StoreResult<Vec<Problem>>;

/// See the module.
pub(crate) struct AuditView {
    store: Store,
    tx: Mutex<Arc<Tx>>,
    /// The version that it reads.
    pub(crate) version: Version,
}

/// The context for auditing the rows of one database.
pub struct Auditor<'a> {
    /// The version to audit.
    pub(crate) view: &'a AuditView,
    /// The database.
    pub(crate) db: Prefix,
    /// The ids that have a member, as known so far.
    pub(crate) known: &'a Mutex<KnownIds>,
}

impl AuditView {
    /// A view of the store's current version.
    pub(crate) async fn open(store: &Store) -> StoreResult<Self> {
        let (tx, version) = begin(store).await?;
        Ok(AuditView { store: store.clone(), tx: Mutex::new(Arc::new(tx)), version })
    }

    /// The value under `key`.
    pub(crate) async fn get(&self, key: &[u8]) -> StoreResult<Option<Bytes>> {
        for _ in 0..ATTEMPTS {
            let tx = self.tx.lock().clone();
            match tx.get(key, Read::Snapshot).await {
                Err(StoreError::TooOld) => self.renew().await?,
                answer => return answer,
            }
        }
        Err(StoreError::TooOld)
    }

    /// The values of `keys`, in the same order.
    pub(crate) async fn get_many(&self, keys: &[Vec<u8>]) -> StoreResult<Vec<Option<Bytes>>> {
        try_join_all(keys.iter().map(|key| self.get(key))).await
    }

    /// The member of an id.
    pub(crate) async fn member(&self, id: u64) -> StoreResult<Option<Bytes>> {
        let keys = [root::members(members::group(id)).to_vec(), root::member(id).to_vec()];
        let mut rows = self.get_many(&keys).await?;
        let (own, group) = (rows.pop().flatten(), rows.pop().flatten());
        Ok(members::found(id, group, own))
    }

    /// The first pairs of a range.
    pub(crate) async fn page(&self, begin: &[u8], end: &[u8], opts: RangeOptions) -> StoreResult<Pairs> {
        for _ in 0..ATTEMPTS {
            let tx = self.tx.lock().clone();
            match tx.get_range(begin, end, opts, Read::Snapshot).await {
                Err(StoreError::TooOld) => self.renew().await?,
                answer => return answer,
            }
        }
        Err(StoreError::TooOld)
    }

    /// The next page of what is left of a range. None: nothing is left.
    pub(crate) async fn next(
        &self,
        rest: &mut Rest,
        opts: RangeOptions,
    ) -> StoreResult<Option<Vec<(Bytes, Bytes)>>> {
        let Some((begin, end)) = rest.range() else { return Ok(None) };
        let page = self.page(begin, end, opts).await?;
        rest.pass(&page);
        Ok(Some(page.pairs))
    }

    async fn renew(&self) -> StoreResult<()> {
        let (tx, version) = begin(&self.store).await?;
        if version != self.version {
            return Err(StoreError::TooOld);
        }
        *self.tx.lock() = Arc::new(tx);
        Ok(())
    }
}

async fn begin(store: &Store) -> StoreResult<(Tx, Version)> {
    let mut tries = 0;
    loop {
        let tx = store.begin();
        match tx.read_version().await {
            Err(StoreError::TooOld) if tries < ATTEMPTS => tries += 1,
            version => return Ok((tx, version?)),
        }
    }
}
