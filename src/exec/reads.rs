//! Units that only read: on a snapshot, nothing committed. One read version serves the whole unit, so it is as serializable
//! as a transaction that writes.
//!
//! Where a read version costs a round trip ([`serve`]), units of different connections share one: those that are there when a
//! transaction begins. It asks for its version after that, so each of them sees what was committed before it came, on any
//! server. They read side by side, and each is answered when it is done; one that fails runs again alone. At most
//! [`GATHERING`] transactions are on their way to their first reads: what comes meanwhile is the next batch.

use super::batch::{Batch, Halt};
use super::gather::Gather;
use super::patience::Patience;
use super::prebuild::Prepared;
use super::{Done, Forced, Job, Unit};
use crate::error::StoreError;
use crate::keyspace::cluster::messages::Message;
use crate::server::reply::Reply;
use crate::server::{ClientState, Server};
use crate::telemetry::counters::Lookups;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Shared transactions whose first reads are under way.
const GATHERING: usize = 3;
/// Units that share one at most.
const MAX_TOGETHER: usize = 256;
/// Attempts at least, before a reader that is always too old gets the error: its read does not fit into 5 s.
const MAX_ATTEMPTS: u32 = 3;
/// Before another attempt at a store that cannot be reached, or refuses for load.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Runs what comes through `queue`, many units on a read version, until the queue ends.
pub(super) async fn serve(server: Arc<Server>, mut queue: mpsc::UnboundedReceiver<Job>) {
    let gathering = Arc::new(Semaphore::new(GATHERING));
    let mut gather = Gather::new(server.env.clock.clone(), MAX_TOGETHER);
    while let Ok(permit) = gathering.clone().acquire_owned().await {
        let mut jobs = Vec::new();
        if !gather.collect(&mut queue, &mut jobs).await {
            return;
        }
        tokio::spawn(together(server.clone(), jobs, permit));
    }
}

async fn together(server: Arc<Server>, jobs: Vec<Job>, permit: OwnedSemaphorePermit) {
    let Some(oldest) = jobs.first() else { return };
    let now = server.env.timeline.now();
    let tx = server.store.begin();
    Patience::new(&server, oldest.since).begin(&tx);
    let shared = Batch::new(&server, &tx, now, server.env.rng()).await;
    if let Ok(shared) = &shared {
        shared.prefetch(jobs.iter().map(|job| &job.unit)).await;
    }
    drop(permit);
    let each = jobs.into_iter().map(|Job { unit, since, answer, .. }| {
        let first = shared.as_ref().map(|shared| shared.sibling(server.env.rng())).map_err(Clone::clone);
        let server = &server;
        async move { answer.send(run(server, unit, since, Some(first)).await) }
    });
    join_all(each).await; // a client that is gone needs no answer
}

/// Runs a unit without writes that came at `since`; `first`: where it is tried first, or what came of that.
pub(super) async fn run(
    server: &Arc<Server>,
    unit: Unit,
    since: Duration,
    mut first: Option<Result<Batch<'_>, Halt>>,
) -> Done {
    let mut forced = Forced::default();
    let patience = if unit.is_about_the_server() { Patience::for_the_server } else { Patience::new };
    let mut patience = patience(server, since);
    for tries in 1.. {
        let mut client = unit.client.clone();
        let result = match first.take() {
            Some(Ok(mut shared)) => on(&mut shared, &unit, &mut client, &mut forced).await,
            Some(Err(halt)) => Err(halt),
            None => attempt(server, &unit, &mut client, &mut forced, &mut patience).await,
        };
        match result {
            Ok((replies, lookups, told)) => {
                tell(server, told).await;
                return Done::new(client, replies, lookups).of(unit);
            }
            Err(Halt::Rerun) => {}
            Err(Halt::Store(e)) if may_succeed(&e) && has_time(&patience, &e, tries) => {
                server.telemetry.on_retry(&e);
                patience.goes_on(&e);
                if tries > 1 || !e.is_retryable() {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            Err(Halt::Store(e)) => return without_store(server, unit, forced, patience, e).await,
            // Only who commits can be forgotten, and nobody queues behind a read.
            Err(Halt::Forgotten | Halt::TooHeavy) => break,
        }
    }
    failed(unit, StoreError::TooOld)
}

/// Answers a unit after the last attempt failed with `e`: what is about the server runs without any database, also where the store
/// is back by now, for the databases that were read last may have been flushed or swapped since; all else gets the error.
async fn without_store(
    server: &Arc<Server>,
    unit: Unit,
    mut forced: Forced,
    mut patience: Patience,
    e: StoreError,
) -> Done {
    let e = patience.verdict(e);
    if unit.is_about_the_server() && matches!(e, StoreError::Unavailable(_)) {
        let tx = server.store.begin();
        patience.begin(&tx);
        let nowhere = server.space.catalog.last().without_databases();
        let mut batch = Batch::with(server, &tx, server.env.rng(), nowhere);
        let mut client = unit.client.clone();
        if let Ok((replies, lookups, told)) = on(&mut batch, &unit, &mut client, &mut forced).await {
            tell(server, told).await;
            return Done::new(client, replies, lookups).of(unit);
        }
    }
    failed(unit, e)
}

/// The replies, the lookups, and what was told.
type Ran = (Option<Vec<Reply>>, Lookups, Vec<Message>);

/// Whether there is time for another attempt after number `tries` failed with `e`.
fn has_time(patience: &Patience, e: &StoreError, tries: u32) -> bool {
    !patience.is_over(e) || e.is_retryable() && tries < MAX_ATTEMPTS
}

async fn attempt(
    server: &Arc<Server>,
    unit: &Unit,
    client: &mut ClientState,
    forced: &mut Forced,
    patience: &mut Patience,
) -> Result<Ran, Halt> {
    let now = server.env.timeline.now();
    let tx = server.store.begin();
    patience.begin(&tx);
    let mut batch = Batch::new(server, &tx, now, server.env.rng()).await?;
    if server.store.prefers_prefetch() {
        batch.prefetch(std::iter::once(unit)).await;
    }
    on(&mut batch, unit, client, forced).await
}

async fn on(
    batch: &mut Batch<'_>,
    unit: &Unit,
    client: &mut ClientState,
    forced: &mut Forced,
) -> Result<Ran, Halt> {
    let replies = batch.unit(unit, client, forced, &Prepared::new()).await?;
    Ok((replies, batch.take_lookups(), batch.take_messages()))
}

/// What a unit tells that commits nothing. On a store of several servers that is only what PUBLISH does not say (a key was not
/// there): nobody waits for it.
async fn tell(server: &Arc<Server>, told: Vec<Message>) {
    if told.is_empty() || !server.space.bus.is_shared() {
        return server.tell(told).await;
    }
    let server = server.clone();
    tokio::spawn(async move {
        if let Err(e) = server.space.bus.tell(&told).await {
            tracing::debug!(?e, "messages of a unit that only reads");
        }
    });
}

/// Whether another attempt of what only reads can help.
pub(super) fn may_succeed(e: &StoreError) -> bool {
    e.is_retryable() || matches!(e, StoreError::Unavailable(_))
}

fn failed(unit: Unit, e: StoreError) -> Done {
    Done::refused(unit.client.clone(), unit.calls.len(), e.into()).of(unit)
}
