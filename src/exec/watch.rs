//! WATCH: what EXEC is going to compare (`types::watched`), read in transactions of its own.
//!
//! Many keys are read in several transactions. Each key is compared with what it was when its own transaction read it, so a change
//! between two of them is noticed as any other.

use super::Executor;
use super::patience::Patience;
use super::reads;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::absent::AbsentGuard;
use crate::keyspace::keys::Prefix;
use crate::keyspace::life::Lives;
use crate::types::expire;
use crate::types::watched::{self, Fingerprint, Found};
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

/// What came of an attempt.
enum Attempt {
    /// In the order of the keys, and the store's generation.
    Seen(Vec<Fingerprint>, u64),
    /// Keys are to be removed first, because their time is over: the database's prefix, the time, their rows in the expiry index.
    Expired(Prefix, u64, Vec<Bytes>),
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
        let absent = &self.server.space.absent;
        let guards: Vec<AbsentGuard> = keys.iter().map(|key| absent.watch(db, key)).collect();
        let mut patience = Patience::new(&self.server, self.server.env.clock.monotonic());
        let (seen, generation) = loop {
            match self.try_watch(db, keys, &mut patience).await {
                Ok(Attempt::Seen(seen, generation)) => break (seen, generation),
                Ok(Attempt::Expired(prefix, now, rows)) if !patience.is_over(&StoreError::Conflict) => {
                    self.expire((db, prefix), now, &rows).await?;
                }
                Ok(Attempt::Expired(..)) => return Err(StoreError::Conflict.into()),
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

    async fn try_watch(&self, db: u8, keys: &[Bytes], patience: &mut Patience) -> Result<Attempt> {
        let now = self.server.env.timeline.now();
        let tx = self.server.store.begin();
        patience.begin(&tx);
        let catalog = self.server.space.catalog.load(&tx).await?;
        let prefix = catalog.prefixes.get(usize::from(db));
        let prefix = *prefix.ok_or(StoreError::Corrupt(format!("no prefix for database {db}")))?;
        let (round, space) = (catalog.round, &self.server.space);
        let lives = Lives::new(now, self.server.env.timeline.now());
        tx.runs_at(now);
        let scope =
            Scope { tx: &tx, db: prefix, number: db, now, round, space, outbox: None, life: lives.life() };
        let generation = tx.generation().await?;
        let (mut seen, mut expired) = (Vec::with_capacity(keys.len()), Vec::new());
        for key in keys {
            match watched::watch(&scope, key).await? {
                Found::Seen(print) => seen.push(print),
                Found::Expired(row) => expired.push(row.into()),
            }
        }
        if !expired.is_empty() {
            return Ok(Attempt::Expired(prefix, now, expired));
        }
        if tx.is_write() {
            tx.commit().await?;
        }
        Ok(Attempt::Seen(seen, generation))
    }

    /// Removes keys whose time is over, and tells so, as the expiry job does.
    async fn expire(&self, db: (u8, Prefix), now: u64, rows: &[Bytes]) -> Result<()> {
        let server = &self.server;
        let (mut told, _turn) = server.expiring().await;
        let swept = expire::sweep_rows(&server.space, db, now, rows, &mut told).await;
        server.told(&told.messages).await;
        swept
    }
}

/// Whether another attempt can help: also where nobody knows whether the ghosts were written, for the next one reads them.
fn may_succeed(e: &StoreError) -> bool {
    reads::may_succeed(e) || *e == StoreError::Unknown
}
