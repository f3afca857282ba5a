//! A cluster may start after its servers do, or be away for a while: a server waits for it.

use std::path::Path;
use std::time::Duration;
use tern::env::Clock;
use tern::error::{Error, StoreError};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two lines in the log.
const REMIND: Duration = Duration::from_secs(60);

/// Tries until what serves the data at `place` answers, whatever it says.
pub async fn until_it_answers<T, E: Clone + Into<Error>>(
    clock: &Clock,
    place: &Path,
    attempt: impl AsyncFn() -> Result<T, E>,
) -> Result<T, E> {
    let mut told: Option<Duration> = None;
    loop {
        let e = match attempt().await {
            Ok(opened) => return Ok(opened),
            Err(e) => e,
        };
        let Error::Store(StoreError::Unavailable(why)) = e.clone().into() else { return Err(e) };
        if told.is_none_or(|at| clock.monotonic() >= at + REMIND) {
            tracing::warn!("waiting for the cluster of {}: {why}", place.display());
            told = Some(clock.monotonic());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
