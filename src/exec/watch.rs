//! WATCH: reads the state that EXEC is going to compare (`lifecycle::watched`), in transactions of its own.
//!
//! Many keys are read in several transactions. Each key is compared with its state in the transaction that
//! read it, so a change between two of these transactions is noticed like any other.

use super::deadline::Deadline;
use super::executor::Executor;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::life::Lives;
use crate::keyspace::watched_absent::AbsentGuard;
use crate::lifecycle::watched::{self, Fingerprint};
use crate::server::publisher::Publication;
use bytes::Bytes;

/// Keys per transaction.
const AT_ONCE: usize = 256;

/// A key that WATCH remembers.
#[derive(Debug)]
pub struct Watched {
    /// Database number.
    pub(crate) db: u8,
    /// The key.
    pub(crate) key: Bytes,
    /// Its state at WATCH.
    pub(crate) seen: Fingerprint,
    /// The store's generation at WATCH: a state seen in another generation may have been lost, and come back.
    pub(crate) generation: u64,
    /// Keeps the ghost of an absent key.
    _guard: Option<AbsentGuard>,
}

#[cfg(test)]
impl Watched {
    /// A key that was not read.
    pub(crate) fn of_nothing(db: u8, key: Bytes) -> Self {
        Watched { db, key, seen: Fingerprint::Impossible, generation: 0, _guard: None }
    }
}

impl Executor {
    /// Reads what EXEC is to compare for `keys` in database `db`.
    pub async fn watch(&self, db: u8, keys: &[Bytes]) -> Result<Vec<Watched>> {
        let mut out = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AT_ONCE) {
            self.watch_some(db, keys, &mut out).await?;
        }
        Ok(out)
    }

    async fn watch_some(&self, db: u8, keys: &[Bytes], out: &mut Vec<Watched>) -> Result<()> {
        let absent = &self.server.space.watched_absent;
        let guards: Vec<AbsentGuard> = keys.iter().map(|key| absent.watch(db, key)).collect();
        let mut deadline = Deadline::new(&self.server, self.server.env.clock.monotonic());
        let (seen, generation) = loop {
            match self.try_watch(db, keys, &mut deadline).await {
                Ok(seen) => break seen,
                // Also if it is unknown whether the ghosts were written: the next attempt reads them.
                Err(Error::Store(e)) => deadline.on_error(&self.server, e).await?,
                Err(e) => return Err(e),
            }
        };
        for ((key, seen), guard) in keys.iter().zip(seen).zip(guards) {
            let guard = matches!(seen, Fingerprint::Absent(_)).then_some(guard);
            out.push(Watched { db, key: key.clone(), seen, generation, _guard: guard });
        }
        Ok(())
    }

    /// Reads the state of the keys, in order, and the store's generation. Removes expired keys and publishes
    /// their expiry.
    async fn try_watch(
        &self,
        db: u8,
        keys: &[Bytes],
        deadline: &mut Deadline,
    ) -> Result<(Vec<Fingerprint>, u64)> {
        let server = &self.server;
        let now = server.env.timeline.now();
        let tx = server.store.begin();
        deadline.begin(&tx);
        let catalog = server.space.catalog.load(&tx).await?;
        let place = catalog.place(db).ok_or(StoreError::Corrupt(format!("no prefix for database {db}")))?;
        let sure = server.env.timeline.now();
        let lives = Lives::new(now, sure);
        tx.runs_at(now, sure);
        let outbox = server.outbox(&catalog);
        let scope = Scope {
            tx: &tx,
            db: place.prefix,
            number: db,
            now,
            round: catalog.round,
            space: &server.space,
            outbox: Some(&outbox),
            uncounted: None,
            life: lives.life(),
        };
        let generation = tx.generation().await?;
        let mut seen = Vec::with_capacity(keys.len());
        for key in keys {
            seen.push(watched::watch(&scope, place.swaps, key).await?);
        }
        if tx.is_write() {
            let published = Publication::of_one(outbox.take());
            let turn = server.take_turn(&tx, &published).await?;
            match tx.commit().await {
                // If it was committed, the next attempt finds nothing to publish, but clients that cache the
                // keys must be told.
                Err(e @ StoreError::Unknown) => {
                    if !published.is_empty() {
                        server.tracking.doubt();
                    }
                    return Err(e.into());
                }
                committed => server.tracking.committed(committed?),
            }
            server.publish_in(published, turn).await.wait().await;
        }
        Ok((seen, generation))
    }
}
