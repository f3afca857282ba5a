//! Units that only read: on a snapshot, in the caller's task, nothing committed. One read version serves the whole unit,
//! so it is as serializable as a transaction that writes.

use super::batch::{Batch, Halt};
use super::{Done, Forced, Unit};
use crate::commands::cx::{ClientState, Server};
use crate::commands::reply::Reply;
use crate::error::StoreError;
use crate::telemetry::counters::Lookups;
use std::time::Duration;

/// Attempts before a reader that is always too old gets the error: its read does not fit into 5 s.
const MAX_ATTEMPTS: u32 = 3;
/// Between two attempts at a store that cannot be reached.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a unit without writes.
pub(super) async fn run(server: &Server, unit: Unit) -> Done {
    let mut forced = Forced::default();
    let clock = &server.env.clock;
    let (start, patience) = (clock.monotonic(), server.config.get().patience());
    for tries in 1.. {
        let mut client = unit.client.clone();
        match attempt(server, &unit, &mut client, &mut forced).await {
            Ok((replies, lookups)) => return Done::new(client, replies, lookups),
            Err(Halt::Rerun) => {}
            Err(Halt::Store(e)) if e.is_retryable() && tries < MAX_ATTEMPTS => server.telemetry.on_retry(&e),
            Err(Halt::Store(StoreError::Unavailable(_))) if clock.monotonic() - start < patience => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(Halt::Store(e)) => return failed(unit, e),
            // Only who commits can be forgotten.
            Err(Halt::Forgotten) => break,
        }
    }
    failed(unit, StoreError::TooOld)
}

async fn attempt(
    server: &Server,
    unit: &Unit,
    client: &mut ClientState,
    forced: &mut Forced,
) -> Result<(Option<Vec<Reply>>, Lookups), Halt> {
    let tx = server.store.begin();
    let mut batch = Batch::new(server, &tx, server.env.rng()).await?;
    if server.store.prefers_prefetch() {
        batch.prefetch(std::iter::once(unit)).await;
    }
    let replies = batch.unit(unit, client, forced, &[]).await?;
    Ok((replies, batch.take_lookups()))
}

fn failed(unit: Unit, e: StoreError) -> Done {
    Done::refused(unit.client, unit.calls.len(), e.into())
}
