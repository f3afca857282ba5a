//! WATCH: what EXEC is going to compare (`lifecycle::watched`), read in transactions of its own.
//!
//! Many keys are read in several transactions. Each key is compared with what it was when its own transaction read it, so a change
//! between two of them is noticed as any other.

use super::Executor;
use super::attempt::speak;
use super::patience::Patience;
use super::reads;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::life::Lives;
use crate::keyspace::watched_absent::AbsentGuard;
use crate::lifecycle::watched::{self, Fingerprint};
use crate::server::telling::Tale;
use bytes::Bytes;

/// Keys that one transaction reads.
const AT_ONCE: usize = 256;

/// A key that WATCH remembers.
#[derive(Debug)]
pub struct Watched {
    /// Database number.
    pub db: u8,
    /// The key.
    pub key: Bytes,
    /// Its state at WATCH.
    pub seen: Fingerprint,
    /// Of the store, at WATCH: what was seen of another one may have never been there, and come again.
    pub generation: u64,
    /// Has an absent key's ghost kept.
    _guard: Option<AbsentGuard>,
}

#[cfg(test)]
impl Watched {
    /// A key that was not looked at.
    pub(crate) fn of_nothing(db: u8, key: Bytes) -> Self {
        Watched { db, key, seen: Fingerprint::Impossible, generation: 0, _guard: None }
    }
}

impl Executor {
    /// Reads what EXEC is to compare of `keys` in database `db`.
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
        let mut patience = Patience::new(&self.server, self.server.env.clock.monotonic());
        let (seen, generation) = loop {
            match self.try_watch(db, keys, &mut patience).await {
                Ok(seen) => break seen,
                Err(Error::Store(e)) if may_succeed(&e) && !patience.is_over(&e) => {
                    self.server.telemetry.on_retry(&e);
                    patience.goes_on(&e);
                    if e != StoreError::Conflict {
                        tokio::time::sleep(reads::PAUSE).await;
                    }
                }
                Err(Error::Store(e)) => return Err(patience.verdict(e).into()),
                Err(e) => return Err(e),
            }
        };
        for ((key, seen), guard) in keys.iter().zip(seen).zip(guards) {
            let guard = matches!(seen, Fingerprint::Absent(_)).then_some(guard);
            out.push(Watched { db, key: key.clone(), seen, generation, _guard: guard });
        }
        Ok(())
    }

    /// What is seen of the keys, in their order, and the store's generation. A key whose time is over is removed, and that is told.
    async fn try_watch(
        &self,
        db: u8,
        keys: &[Bytes],
        patience: &mut Patience,
    ) -> Result<(Vec<Fingerprint>, u64)> {
        let server = &self.server;
        let now = server.env.timeline.now();
        let tx = server.store.begin();
        patience.begin(&tx);
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
            life: lives.life(),
        };
        let generation = tx.generation().await?;
        let mut seen = Vec::with_capacity(keys.len());
        for key in keys {
            seen.push(watched::watch(&scope, place.swaps, key).await?);
        }
        if tx.is_write() {
            let told = Tale::of_one(outbox.take());
            let turn = speak(server, &tx, &told).await?;
            match tx.commit().await {
                // If it was committed, the next attempt finds nothing that it could tell, and who has the keys in a cache must hear.
                Err(e @ StoreError::Unknown) => {
                    if !told.is_empty() {
                        server.tracking.doubt();
                    }
                    return Err(e.into());
                }
                committed => server.tracking.committed(committed?),
            }
            server.told(told, turn).await.wait().await;
        }
        Ok((seen, generation))
    }
}

/// Whether another attempt can help: also where nobody knows whether the ghosts were written, for the next one reads them.
fn may_succeed(e: &StoreError) -> bool {
    reads::may_succeed(e) || *e == StoreError::Unknown
}
