//! What is read while it is sent moves to newer transactions: one lives for five seconds, and a client may take an hour.

use crate::error::Result;
use std::sync::Weak;
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long one version is used.
const REFRESH: Duration = Duration::from_secs(1);

pub(super) trait Refresh: Send + Sync + 'static {
    /// Moves to a newer version. If the store does not answer, the next call tries again.
    fn refresh(&self) -> impl Future<Output = Result<()>> + Send;
}

/// The task that refreshes its owner. It ends with its owner; a refresh under way finishes first.
pub(super) struct Keeper(AbortHandle);

impl Keeper {
    pub(super) fn of<T: Refresh>(owner: Weak<T>) -> Self {
        Keeper(tokio::spawn(keep(owner)).abort_handle())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn keep(owner: Weak<impl Refresh>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let Some(owner) = owner.upgrade() else { return };
        if let Err(e) = owner.refresh().await {
            tracing::debug!(?e, "what is being sent");
        }
    }
}
