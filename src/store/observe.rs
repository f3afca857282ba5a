//! Lets a test observe transactions in [`super::faulty`]: which keys were read at which version, and how
//! commits ended. So a history checker learns at which version an operation took effect, without help from
//! any engine or from code above the store.

use super::{Tx, Version};
use crate::error::{StoreError, StoreResult};
use std::sync::Arc;

/// Receives the events. Transactions are numbered in the order in which they began.
pub trait Observer: Send + Sync {
    /// Transaction `tx` begins.
    fn begins(&self, tx: u64);
    /// The commands of `tx` run at `now`, read from the clock before `tx` began; the clock had reached `sure`
    /// when the read version was known (ms since the Unix epoch).
    fn runs_at(&self, tx: u64, now: u64, sure: u64);
    /// Whether to report reads of `key`: that asks the engine for the read version.
    fn wants(&self, key: &[u8]) -> bool;
    /// `tx`, whose read version is `version`, has read `key`.
    fn has_read(&self, tx: u64, version: Version, key: &[u8]);
    /// The commit of `tx`, which has writes, was handed to the engine.
    fn commits(&self, tx: u64);
    /// The result of that commit.
    fn has_committed(&self, tx: u64, result: &StoreResult<Version>);
}

/// An observer and the transaction that it observes.
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

    /// Reports that `key` was read in `inner`.
    pub(super) async fn read(&self, inner: &Tx, key: &[u8]) -> StoreResult<()> {
        if self.observer.wants(key) {
            let version = Box::pin(inner.read_version()).await?;
            self.observer.has_read(self.tx, version, key);
        }
        Ok(())
    }

    /// Commits `inner`. Continues even if the caller is gone, so that the result is reported.
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
