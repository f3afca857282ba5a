//! Waits for a cluster, which may start after its servers or be unavailable for a while.

use std::path::Path;
use std::time::Duration;
use tern::env::Clock;
use tern::error::{Error, StoreError};

/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// Interval between log lines.
const REMIND: Duration = Duration::from_secs(60);

/// Retries until the store at `place` answers, with whatever result.
pub async fn until_it_answers<T, E: Clone + Into<Error>>(
    clock: &Clock,
    place: &Path,
    attempt: impl AsyncFn() -> Result<T, E>,
) -> Result<T, E> {
    let mut logged: Option<Duration> = None;
    loop {
        let e = match attempt().await {
            Ok(opened) => return Ok(opened),
            Err(e) => e,
        };
        let Error::Store(StoreError::Unavailable(why)) = e.clone().into() else { return Err(e) };
        if logged.is_none_or(|at| clock.monotonic() >= at + REMIND) {
            tracing::warn!("waiting for the cluster of {}: {why}", place.display());
            logged = Some(clock.monotonic());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
