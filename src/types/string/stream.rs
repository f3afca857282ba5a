//! A long string that is read while it is sent, at the version at which its command ran.
//!
//! The command's transaction lives for five seconds; a client may take an hour. So all strings of one
//! transaction share a [`Holder`]. Once a second it begins a newer transaction, and checks there whether each
//! string has changed:
//! * Unchanged (the record has the same revision, and every change of a string writes the record): the rest
//!   is read from the newer transaction, whose pieces are the same. However slow the client, this takes no
//!   memory and pins no version.
//! * Changed: its old rows are read from the older transaction and kept until they have been sent, up to the
//!   number of bytes that `client-output-buffer-limit` allows. Zeroes take no memory in this case either.
//!
//! Strings that a transaction has written itself (in an EXEC) are in no version yet: those are read at once,
//! without their zeroes.
//!
//! If neither is possible (the store was away too long, or the limit is reached), [`Long::next`] fails, and
//! the connection ends, because its reply has begun.

use super::walk::{Stretch, Walk};
use crate::error::{Error, Result, StoreError, StoreResult};
use crate::keyspace::Scope;
use crate::keyspace::keys::Prefix;
use crate::store::{Read, Store, Tx};
use crate::types::object::Slot;
use crate::types::record::Stored;
use crate::types::refreshed::{Keeper, Refresh};
use crate::types::string::Str;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

/// Rows by their places in the string.
type Rows = Vec<(u64, Bytes)>;

/// Keeps strings readable: see the module.
#[derive(Clone)]
pub(crate) struct Holder(Arc<Shared>);

struct Shared {
    store: Store,
    /// The transaction that reads.
    tx: Mutex<Arc<Tx>>,
    /// Most bytes kept of each string that may have changed.
    most: usize,
    strings: Mutex<HashMap<(Prefix, Bytes), Weak<Source>>>,
    _keeper: Keeper,
    /// Held while the version changes, and while a string is checked for the first time.
    turn: tokio::sync::Mutex<()>,
}

/// A string that is being sent.
struct Source {
    value: Str,
    db: Prefix,
    key: Bytes,
    revision: u64,
    /// Its rows from before it changed.
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
    /// A holder for strings that `tx` reads. `most`: bytes to keep of each changed string.
    pub(crate) async fn new(store: Store, tx: &Tx, most: usize) -> StoreResult<Self> {
        let tx = Mutex::new(Arc::new(tx.again().await?));
        let (strings, turn) = Default::default();
        Ok(Holder(Arc::new_cyclic(|shared| {
            let _keeper = Keeper::of(Weak::clone(shared));
            Shared { store, tx, most, strings, _keeper, turn }
        })))
    }

    /// The bytes `start..end` of the string `value` that `slot` holds.
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
}

impl Refresh for Shared {
    async fn refresh(&self) -> Result<()> {
        let _turn = self.turn.lock().await;
        let strings: Vec<Arc<Source>> = {
            let mut strings = self.strings.lock();
            strings.retain(|_, source| source.strong_count() > 0);
            strings.values().filter_map(Weak::upgrade).collect()
        };
        let (old, new) = (self.tx(), Arc::new(self.store.begin()));
        let mut outcome = Ok(());
        for source in strings {
            if source.rows.get().is_some() {
                continue;
            }
            match source.is_unchanged(&new).await {
                Ok(true) => {}
                Ok(false) => drop(source.rows.set(source.read(&old, self.most).await)),
                Err(e) => outcome = Err(e.into()),
            }
            tokio::task::coop::consume_budget().await;
        }
        // An embedded store is not reopened as long as an old transaction has it open.
        if outcome.is_ok() || old.is_too_old().await && new.is_too_old().await {
            *self.tx.lock() = new;
        }
        outcome
    }
}

impl Source {
    async fn is_unchanged(&self, tx: &Tx) -> StoreResult<bool> {
        let Some(raw) = tx.get(&self.db.record(&self.key), Read::Snapshot).await? else { return Ok(false) };
        Ok(Stored::decode(raw)?.into_record().is_some_and(|record| record.revision == self.revision))
    }

    async fn read(&self, tx: &Tx, most: usize) -> StoreResult<Rows> {
        Walk::new(self.db, &self.value, 0, super::len(&self.value)).collect_rows(tx, most).await
    }
}

/// See the module. A clone continues from the same place.
#[derive(Clone)]
pub struct Long {
    len: u64,
    walk: Walk,
    source: Arc<Source>,
}

impl Long {
    /// The number of bytes at the beginning.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The next stretch; None at the end. A failed read loses nothing.
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
