//! What a test sees of transactions on their way through [`super::faulty`]: which keys were read at which version, and how commits
//! ended. So a history's checker learns where in the order of versions an operation was done, and nothing above the store, nor
//! any engine, has to say so.

use super::{Tx, Version};
use crate::error::{StoreError, StoreResult};
use std::sync::Arc;

/// Who is told. Transactions are numbered in the order in which they began.
pub trait Observer: Send + Sync {
    /// Transaction `tx` begins.
    fn begins(&self, tx: u64);
    /// The commands of `tx` run at `now`, read from the clock before it began; it was `sure` when the version was known (ms since the Unix epoch).
    fn runs_at(&self, tx: u64, now: u64, sure: u64);
    /// Whether reads of `key` are to be told: that asks the engine for the read version.
    fn wants(&self, key: &[u8]) -> bool;
    /// `tx`, which reads `version`, has read `key`.
    fn has_read(&self, tx: u64, version: Version, key: &[u8]);
    /// The commit of `tx`, which wrote, is handed to the engine.
    fn commits(&self, tx: u64);
    /// How that ended.
    fn has_committed(&self, tx: u64, result: &StoreResult<Version>);
}

/// An observer and the transaction that it sees.
#[derive(Clone)]
pub(super) struct Observed {
    observer: Arc<dyn Observer>,
    tx: u64,
}

impl Observed {
    pub(super) fn begin(observer: Arc<dyn Observer>, tx: u64) -> Self {
        observer.begins(tx);
        Observed { observer, tx }
    }

    pub(super) fn runs_at(&self, now: u64, sure: u64) {
        self.observer.runs_at(self.tx, now, sure);
    }

    /// `key` has been read in `inner`.
    pub(super) async fn read(&self, inner: &Tx, key: &[u8]) -> StoreResult<()> {
        if self.observer.wants(key) {
            let version = Box::pin(inner.read_version()).await?;
            self.observer.has_read(self.tx, version, key);
        }
        Ok(())
    }

    /// Commits `inner`. Goes on also when the caller is gone, so that its end is seen.
    pub(super) async fn commit(self, inner: Tx) -> StoreResult<Version> {
        let Observed { observer, tx } = self;
        observer.commits(tx);
        let commit: super::faulty::Commit = Box::pin(inner.commit());
        let end = tokio::spawn(async move {
            let result = commit.await;
            observer.has_committed(tx, &result);
            result
        });
        end.await.unwrap_or(Err(StoreError::Unknown))
    }
}
