//! A long string that is read while it is sent, at the version at which its command ran.
//!
//! The command's transaction lives for five seconds, a client may take an hour. So all strings of one transaction share a
//! [`Holder`]. Once a second it begins a newer transaction, and asks there whether each string is still what it was:
//! * it is (the record has the revision that it had, and every change of a string writes the record): what follows is read from the
//!   newer transaction, whose pieces are the same. However long the client takes, this costs no memory and pins no version;
//! * it is not: the rows that it had are read from the older transaction and kept until they have been sent, at most as many
//!   bytes as `client-output-buffer-limit` allows. Zeroes take no memory then either.
//!
//! What a transaction has written itself (in an EXEC) is in no version yet: those strings are read at once, without their zeroes.
//!
//! Where neither can be done (the store was away too long, the limit is reached), [`Long::next`] says so, and the connection ends: its
//! reply has begun.

use super::walk::{Stretch, Walk};
use crate::error::{Error, Result, StoreError, StoreResult};
use crate::keyspace::Scope;
use crate::keyspace::keys::Prefix;
use crate::store::{Read, Store, Tx};
use crate::types::object::Slot;
use crate::types::record::Stored;
use crate::types::string::Str;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long one version is read.
const REFRESH: Duration = Duration::from_secs(1);

/// Rows by their places in the string.
type Rows = Vec<(u64, Bytes)>;

/// Keeps strings readable: see the module.
#[derive(Clone)]
pub(crate) struct Holder(Arc<Shared>);

struct Shared {
    store: Store,
    /// What is read from.
    tx: Mutex<Arc<Tx>>,
    /// Of a string that may have changed, at most so many bytes are kept.
    most: usize,
    strings: Mutex<HashMap<(Prefix, Bytes), Weak<Source>>>,
    /// What changes over to newer versions.
    keeper: OnceLock<AbortHandle>,
    /// Held while the version changes, and while a string is looked at for the first time.
    turn: tokio::sync::Mutex<()>,
}

/// A string that is being sent.
struct Source {
    value: Str,
    db: Prefix,
    key: Bytes,
    revision: u64,
    /// What it had before it changed.
    rows: OnceLock<StoreResult<Rows>>,
    /// None: its rows have been read.
    shared: Option<Arc<Shared>>,
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holder").finish_non_exhaustive()
    }
}

impl Holder {
    /// For strings that `tx` reads. `most`: bytes of changed strings that it may keep, each.
    pub(crate) async fn new(store: Store, tx: &Tx, most: usize) -> StoreResult<Self> {
        let tx = Mutex::new(Arc::new(tx.again().await?));
        let (strings, turn, keeper) = Default::default();
        let shared = Arc::new(Shared { store, tx, most, strings, keeper, turn });
        let _ = shared.keeper.set(tokio::spawn(keep(Arc::downgrade(&shared))).abort_handle());
        Ok(Holder(shared))
    }

    /// The bytes `start..end` of the string `value`, which `slot` holds.
    pub(crate) async fn open(
        &self,
        s: &Scope<'_>,
        slot: &Slot,
        value: &Str,
        (start, end): (u64, u64),
    ) -> Result<Long> {
        let walk = Walk::new(s.db, value, start, end);
        let source = self.source(s, slot, value).await?;
        Ok(Long { len: walk.left(), walk, source })
    }

    async fn source(&self, s: &Scope<'_>, slot: &Slot, value: &Str) -> Result<Arc<Source>> {
        let _turn = self.0.turn.lock().await;
        let name = (s.db, slot.key.clone());
        let revision = slot.record().map_or(0, |record| record.revision);
        if let Some(known) = self.0.strings.lock().get(&name).and_then(Weak::upgrade)
            && known.revision == revision
        {
            return Ok(known);
        }
        let (db, key) = name.clone();
        let mut source =
            Source { value: value.clone(), db, key, revision, rows: OnceLock::new(), shared: None };
        if source.is_unchanged(&self.0.tx()).await? {
            source.shared = Some(self.0.clone());
            let source = Arc::new(source);
            self.0.strings.lock().insert(name, Arc::downgrade(&source));
            return Ok(source);
        }
        let rows = source.read(s.tx, self.0.most).await?;
        let _ = source.rows.set(Ok(rows));
        Ok(Arc::new(source))
    }
}

impl Shared {
    fn tx(&self) -> Arc<Tx> {
        self.tx.lock().clone()
    }

    /// Changes over to a newer version; where the store does not answer, the next call tries again.
    async fn refresh(&self) -> StoreResult<()> {
        let _turn = self.turn.lock().await;
        let strings: Vec<Arc<Source>> = {
            let mut strings = self.strings.lock();
            strings.retain(|_, source| source.strong_count() > 0);
            strings.values().filter_map(Weak::upgrade).collect()
        };
        let (old, new) = (self.tx(), Arc::new(self.store.begin()));
        for source in strings {
            if source.rows.get().is_none() && !source.is_unchanged(&new).await? {
                let rows = source.read(&old, self.most).await;
                let _ = source.rows.set(rows);
            }
            tokio::task::coop::consume_budget().await;
        }
        *self.tx.lock() = new;
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.abort();
        }
    }
}

async fn keep(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Err(e) = shared.refresh().await {
            tracing::debug!(?e, "strings that are being sent");
        }
    }
}

impl Source {
    async fn is_unchanged(&self, tx: &Tx) -> StoreResult<bool> {
        let Some(raw) = tx.get(&self.db.record(&self.key), Read::Snapshot).await? else { return Ok(false) };
        Ok(Stored::decode(&raw)?.into_record().is_some_and(|record| record.revision == self.revision))
    }

    async fn read(&self, tx: &Tx, most: usize) -> StoreResult<Rows> {
        Walk::new(self.db, &self.value, 0, super::len(&self.value)).collect_rows(tx, most).await
    }
}

/// See the module. A clone goes on where this one stands.
#[derive(Clone)]
pub struct Long {
    len: u64,
    walk: Walk,
    source: Arc<Source>,
}

impl Long {
    /// Bytes that there were at the beginning.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What comes next; None at the end. Nothing is lost where it cannot be read now.
    pub async fn next(&mut self) -> Result<Option<Stretch>> {
        let lost = |e: &StoreError| Error::Store(e.clone());
        if let Some(rows) = self.source.rows.get() {
            return Ok(self.walk.next_of(rows.as_ref().map_err(lost)?));
        }
        match &self.source.shared {
            Some(shared) => Ok(self.walk.next(&shared.tx()).await?),
            None => Ok(None),
        }
    }
}

impl std::fmt::Debug for Long {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Long").field("len", &self.len).field("at", &self.walk.at()).finish_non_exhaustive()
    }
}

impl PartialEq for Long {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source) && (self.len, self.walk.at()) == (other.len, other.walk.at())
    }
}
