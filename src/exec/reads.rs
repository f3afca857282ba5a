//! Read-only units: they run on a snapshot and commit nothing. One read version serves the whole unit, so it
//! is as serializable as a transaction that writes.
//!
//! If a read version costs a round trip ([`serve`]), units of different connections share one: all units that
//! are queued when a transaction begins. The transaction gets its read version afterwards, so each unit sees
//! everything that was committed before it arrived, on any server. The units read concurrently, and each is
//! answered when it is done; one that fails is retried alone. At most [`OPENING`] transactions are waiting
//! for their first reads; units that arrive meanwhile form the next batch.

use super::batch::{Batch, Halt};
use super::deadline::Deadline;
use super::group_commit::GroupCommit;
use super::prebuild::Prebuilds;
use super::unit::{Done, Forced, Job, Unit};
use crate::dispatch::Noted;
use crate::error::StoreError;
use crate::keyspace::cluster::messages::Message;
use crate::server::reply::Reply;
use crate::server::{ClientState, Server};
use crate::telemetry::counters::Lookups;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};

/// The most shared transactions whose first reads are in flight.
const OPENING: usize = 3;
/// The most units that share a transaction.
const MAX_TOGETHER: usize = 256;

/// Runs the units of `queue`, many per read version, until the queue ends.
pub(super) async fn serve(server: Arc<Server>, mut queue: mpsc::UnboundedReceiver<Job>) {
    let opening = Arc::new(Semaphore::new(OPENING));
    let mut group = GroupCommit::new(server.env.clock.clone(), MAX_TOGETHER);
    while let Ok(permit) = opening.clone().acquire_owned().await {
        let mut jobs = Vec::new();
        if !group.collect(&mut queue, &mut jobs).await {
            return;
        }
        tokio::spawn(run_together(server.clone(), jobs, permit));
    }
}

async fn run_together(server: Arc<Server>, jobs: Vec<Job>, permit: OwnedSemaphorePermit) {
    let Some(oldest) = jobs.first() else { return };
    let now = server.env.timeline.now();
    let tx = server.store.begin();
    Deadline::new(&server, oldest.since).begin(&tx);
    let shared = Batch::new(&server, &tx, now, server.env.rng()).await;
    if let Ok(shared) = &shared {
        shared.prefetch(jobs.iter().map(|job| &job.unit)).await;
    }
    drop(permit);
    let each = jobs.into_iter().map(|Job { unit, since, answer, .. }| {
        let first = shared.as_ref().map(|shared| Box::new(shared.sibling(server.env.rng())));
        let first = first.map_err(Clone::clone);
        let server = &server;
        async move { answer.send(run(server, unit, since, Some(first)).await) }
    });
    join_all(each).await; // a client that is gone needs no answer
}

/// Runs a unit without writes that arrived at `since`. `first` is the shared transaction to try first, or its
/// result; a unit without one has not waited for anything. What is rare is boxed: every connection's task reserves
/// space for all that it may await.
pub(super) async fn run(
    server: &Arc<Server>,
    unit: Unit,
    since: Duration,
    mut first: Option<Result<Box<Batch<'_>>, Halt>>,
) -> Done {
    let mut forced = Forced::default();
    let deadline = if first.is_some() { Deadline::new } else { Deadline::at_once };
    let mut deadline = deadline(server, since);
    if unit.is_about_the_server() {
        deadline = deadline.for_the_server();
    }
    let mut place = if unit.has_script() { Some(Place::short(server, &mut deadline).await) } else { None };
    loop {
        let mut client = unit.client.clone();
        let result = match first.take() {
            Some(Ok(mut shared)) => run_in(&mut shared, &unit, &mut client, &mut forced).await,
            Some(Err(halt)) => Err(halt),
            None => {
                let is_short = place.as_ref().is_some_and(|place| place.is_short);
                attempt(server, &unit, is_short, &mut client, &mut forced, &mut deadline).await
            }
        };
        match result {
            Ok((replies, lookups, noted, published)) => {
                publish(server, published).await;
                return Done::new(client, replies, lookups).noting(noted).answering(unit);
            }
            Err(Halt::Rerun | Halt::Uncounted) => {}
            Err(Halt::Store(e)) => {
                if let Err(e) = deadline.on_error(server, e).await {
                    return Box::pin(without_store(server, unit, forced, deadline, e)).await;
                }
            }
            Err(Halt::TooHeavy) if place.take().is_some_and(|place| place.is_short) => {
                forced.is_heavy = true;
                place = Some(Place::long(server, &mut deadline).await);
            }
            // Only a commit can be forgotten, and nothing queues behind a read.
            Err(Halt::Forgotten | Halt::TooHeavy) => return failed(unit, StoreError::TooOld),
        }
    }
}

/// Answers a unit for which the store is given up with `e`. Calls about the server run without any database,
/// even if the store is back by now: the databases that were last read may have been flushed or swapped
/// since. Everything else gets the error.
async fn without_store(
    server: &Arc<Server>,
    unit: Unit,
    mut forced: Forced,
    mut deadline: Deadline,
    e: StoreError,
) -> Done {
    if unit.is_about_the_server() && matches!(e, StoreError::Unavailable(_)) {
        let tx = server.store.begin();
        deadline.begin(&tx);
        let nowhere = server.space.catalog.last().without_databases();
        let mut batch = Batch::with_catalog(server, &tx, server.env.rng(), nowhere);
        let mut client = unit.client.clone();
        if let Ok((replies, lookups, noted, published)) =
            run_in(&mut batch, &unit, &mut client, &mut forced).await
        {
            publish(server, published).await;
            return Done::new(client, replies, lookups).noting(noted).answering(unit);
        }
    }
    failed(unit, e)
}

/// The right to hold a thread with a script that only reads. It runs as in a lane first, and if it is too heavy for that,
/// where fewer run at a time.
struct Place<'a> {
    is_short: bool,
    _permit: Option<SemaphorePermit<'a>>,
}

impl<'a> Place<'a> {
    async fn short(server: &'a Server, deadline: &mut Deadline) -> Self {
        Place { is_short: true, _permit: permit(server, &server.scripts.short, deadline).await }
    }
    async fn long(server: &'a Server, deadline: &mut Deadline) -> Self {
        Place { is_short: false, _permit: permit(server, &server.scripts.long, deadline).await }
    }
}

async fn permit<'a>(
    server: &Server,
    of: &'a Semaphore,
    deadline: &mut Deadline,
) -> Option<SemaphorePermit<'a>> {
    let clock = &server.env.clock;
    let waits = clock.monotonic();
    let permit = of.acquire().await.ok(); // it is never closed
    deadline.extend(clock.monotonic().saturating_sub(waits));
    permit
}

/// The replies, the lookups, what scripts called, and the messages.
type Ran = (Option<Vec<Reply>>, Lookups, Vec<Noted>, Vec<Message>);

async fn attempt(
    server: &Arc<Server>,
    unit: &Unit,
    is_short: bool,
    client: &mut ClientState,
    forced: &mut Forced,
    deadline: &mut Deadline,
) -> Result<Ran, Halt> {
    let now = server.env.timeline.now();
    let tx = server.store.begin();
    deadline.begin(&tx);
    let mut batch = Batch::new(server, &tx, now, server.env.rng()).await?;
    (batch.runner.in_lane, batch.runner.is_aside) = (is_short, is_short);
    if server.store.prefers_prefetch() {
        batch.prefetch(std::iter::once(unit)).await;
    }
    run_in(&mut batch, unit, client, forced).await
}

async fn run_in(
    batch: &mut Batch<'_>,
    unit: &Unit,
    client: &mut ClientState,
    forced: &mut Forced,
) -> Result<Ran, Halt> {
    // A single call with a single key has nothing to wait for at the same time.
    if unit.calls.len() > 1 || unit.calls.iter().any(|call| call.argv.len() > 2) {
        batch.touch(std::iter::once(unit));
    }
    let replies = batch.run_unit(unit, client, forced, &Prebuilds::new()).await?;
    Ok((replies, batch.take_lookups(), batch.take_noted(), batch.take_messages()))
}

/// Publishes the messages of a unit that commits nothing. On a shared store these are only messages other
/// than PUBLISH's (a missing key): nothing waits for them.
async fn publish(server: &Arc<Server>, published: Vec<Message>) {
    if published.is_empty() || !server.space.bus.is_shared() {
        return server.publish(published).await;
    }
    let server = server.clone();
    tokio::spawn(async move {
        if let Err(e) = server.space.bus.publish(&published).await {
            tracing::debug!(?e, "cannot publish the messages of a read-only unit");
        }
    });
}

fn failed(unit: Unit, e: StoreError) -> Done {
    Done::refused(unit.client.clone(), unit.calls.len(), e.into()).answering(unit)
}
