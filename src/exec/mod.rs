//! Units and how they run: writes through lanes, reads on a snapshot.
//!
//! * A **unit** is what arrived together on one connection: a pipeline window, or an EXEC. It runs in one transaction.
//! * A unit that only reads runs where it is, on a snapshot, and commits nothing ([`reads`]).
//! * A unit that writes goes to the **lane** of its first key's hash ([`lane`]). A lane drains its queue, runs what is there
//!   in one transaction, commits once, then answers all; while it commits, the next batch collects.
//! * A **heavy** unit (row flag, or arguments of about a MB) runs in a transaction of its own with a slot of its own,
//!   so that nobody queues behind it. What only turns out to be heavy by what is stored (`Cx::light`) is found in a lane, before its
//!   first write, and passed on to there.
//!
//! A call or an EXEC with an **id** runs once for that id, see [`idempotency`]; it may write, whatever its row says.
//!
//! A unit that runs into others again and again fences its keys ([`crate::keyspace::cluster::fences`]): units that write them wait before
//! they are queued.
//!
//! What commands tell others (PUBLISH, changes of keys) is told once their transaction has committed, in the order of commits: see
//! `server::subscribers`.
//!
//! Every batch that writes also writes its number to the slot's key `l`, and conflicts with every other writer of that
//! key: see [`attempt`] for why that makes an unknown commit exactly-once.

mod attempt;
mod batch;
mod gather;
mod idempotency;
mod lane;
mod patience;
mod prebuild;
mod reads;
pub mod slow;
mod tracked;
mod watch;

use crate::dispatch::Call;
use crate::env::free;
use crate::error::{Error, ReplyError};
use crate::keyspace::cluster::fences::DATABASES;
use crate::keyspace::keys::hash;
use crate::server::monitor;
use crate::server::reply::Reply;
use crate::server::{ClientState, Server};
use crate::spec::{Flags, keys_of, written_keys};
use crate::telemetry::Outcome;
use crate::telemetry::counters::Lookups;
use attempt::{Attempts, Slot};
use bytes::Bytes;
use lane::Lane;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
pub use watch::Watched;

/// Weight of a unit beyond which it does not ride in a lane, as [`Call::is_heavy`] of a call.
const HEAVY_UNIT: usize = 5 << 18;
/// Weight beyond which a unit's work is done aside: to look at each argument, or byte, takes longer than others should wait.
pub const LARGE: usize = 1 << 20;
/// Heavy units that run at once.
const HEAVY_SLOTS: usize = 8;

/// What arrived together on one connection: a pipeline window, or an EXEC. Runs in one transaction.
pub struct Unit {
    /// In order.
    pub calls: Vec<Call>,
    /// The client's state; comes back changed in [`Done`].
    pub client: ClientState,
    /// EXEC only: compared inside the transaction before the first command runs.
    pub watches: Vec<Watched>,
    /// True for EXEC: `client.in_exec` is set while it runs.
    pub exec: bool,
    /// EXEC only: the client's id, under which all of it runs once. Its calls then have none.
    pub id: Option<Bytes>,
}

impl Unit {
    fn writes(&self) -> bool {
        self.id.is_some() || self.calls.iter().any(|c| c.row.is_write() || c.id.is_some())
    }

    /// Whether it sends messages.
    fn tells(&self) -> bool {
        self.calls.iter().any(|c| c.row.flags.has(Flags::TELLS))
    }

    /// Whether it is about this server and not about what is stored: such commands (Redis' flag for those that a replica
    /// without its master answers) are answered while the store is away, too.
    fn is_about_the_server(&self) -> bool {
        let about = |c: &Call| c.row.flags.has(Flags::STALE) && c.row.keys.is_empty();
        !self.exec && self.watches.is_empty() && self.calls.iter().all(about)
    }

    /// The ids of its calls or its own.
    fn ids(&self) -> impl Iterator<Item = &Bytes> {
        self.id.iter().chain(self.calls.iter().filter_map(|c| c.id.as_ref()))
    }

    /// Hashes of the keys that it may read or write.
    fn touched(&self) -> Vec<u64> {
        let named = self.calls.iter().filter_map(|c| keys_of(c.row, &c.argv)).flatten();
        named.chain(self.watches.iter().map(|w| &w.key)).map(|key| hash(key)).collect()
    }

    /// Hashes of the keys that it may write; what writes and names none is about databases.
    fn written(&self) -> Vec<u64> {
        let writes = || self.calls.iter().filter(|c| c.row.is_write());
        let keys = writes().flat_map(|c| written_keys(c.row, &c.argv)).map(|key| hash(key));
        let databases = writes().any(|c| c.row.keys.is_empty()).then_some(DATABASES);
        keys.chain(databases).collect()
    }

    fn weight(&self) -> usize {
        self.calls.iter().map(Call::weight).sum()
    }

    fn is_heavy(&self) -> bool {
        self.calls.iter().any(Call::is_heavy) || self.weight() > HEAVY_UNIT
    }

    /// Where the unit queues: the hash of its first key (0 without one), so that writers of one key share a lane.
    fn first_hash(&self) -> u64 {
        let first = |c: &Call| c.argv.get(c.row.keys.first()?.begin).map(|k| hash(k));
        self.calls.iter().find_map(first).unwrap_or(0)
    }
}

/// A finished unit.
pub struct Done {
    /// The client's state after the unit.
    pub client: ClientState,
    /// One reply a call that ran; None where a watched key had changed and nothing ran.
    pub replies: Option<Vec<Reply>>,
    /// The calls that ran.
    pub ran: Vec<Call>,
    /// Calls that did not run, because the replies before them are to be written first.
    pub rest: Vec<Call>,
    /// Why the unit as a whole failed in the store; `replies` then repeats it for each call.
    pub refused: Option<ReplyError>,
    /// Keys that its commands looked up.
    pub lookups: Lookups,
    /// Members that it gave an id.
    made: u64,
    /// Messages that it tells.
    told: usize,
}

impl Done {
    fn new(client: ClientState, replies: Option<Vec<Reply>>, lookups: Lookups) -> Self {
        Done { client, replies, ran: Vec::new(), rest: Vec::new(), refused: None, lookups, made: 0, told: 0 }
    }

    /// A unit of `calls` commands that failed as a whole.
    fn refused(client: ClientState, calls: usize, e: Error) -> Self {
        let error = e.into_reply();
        let replies = Some(vec![Reply::Error(error.clone()); calls]);
        Done { refused: Some(error), ..Done::new(client, replies, Lookups::default()) }
    }

    /// With the calls of `unit`, whose answer this is: those that have a reply, and those that have none.
    fn of(mut self, mut unit: Unit) -> Self {
        let ran = self.replies.as_ref().map_or(usize::MAX, Vec::len);
        if ran < unit.calls.len() {
            self.rest = unit.calls.split_off(ran);
        }
        self.ran = unit.calls;
        free(unit.watches.len(), unit.watches);
        self
    }
}

/// Answers that are fixed: what failed in the store after it may have written must not run again.
#[derive(Default)]
struct Forced {
    /// Of single calls.
    calls: Vec<(usize, Reply)>,
    /// Of calls that acted on the server itself, which no attempt that is given up takes back, with what they left of the client's state.
    acted: Vec<(usize, Reply, ClientState)>,
    /// Of the unit as a whole.
    unit: Option<ReplyError>,
    /// A lane has passed it on, for what its first call, or a call of its EXEC, finds stored, or for a fence that it has to wait for. A
    /// pipeline's unit ends behind that call.
    is_heavy: bool,
    /// What does not fit the transaction may be built before it runs again: no answer is fixed for that.
    may_build: bool,
}

impl Forced {
    /// Whether a pipeline's unit may end before call `n`: none behind has acted, which would act again as a call that did not run.
    fn may_end_before(&self, n: usize) -> bool {
        self.acted.iter().all(|(at, ..)| *at < n)
    }

    /// The answer of call `n`, which changes `client` as the call did.
    fn call(&self, n: usize, client: &mut ClientState) -> Option<Reply> {
        if let Some((_, reply, after)) = self.acted.iter().find(|(at, ..)| *at == n) {
            *client = after.clone();
            return Some(reply.clone());
        }
        self.calls.iter().find(|(at, _)| *at == n).map(|(_, reply)| reply.clone())
    }
}

/// A unit on its way through a lane.
struct Job {
    unit: Unit,
    /// When it came, by the monotonic clock.
    since: Duration,
    forced: Forced,
    answer: oneshot::Sender<Done>,
}

/// Runs units.
pub struct Executor {
    server: Arc<Server>,
    lanes: Vec<Lane>,
    heavy: Lane,
    /// Where units that only read share transactions.
    reads: Option<Lane>,
}

impl Executor {
    /// Starts the lanes of `server`.
    pub fn new(server: Arc<Server>) -> Self {
        let (lanes, clock) = (server.config.get().lane_count(), &server.env.clock);
        let attempts = |n: usize| Attempts::new(server.clone(), Slot::new(server.space.fresh.instance(), n));
        let heavy = Lane::spawn(clock, (lanes..lanes + HEAVY_SLOTS).map(attempts).collect());
        let lane = |n: usize| Lane::spawn(clock, vec![attempts(n).passing_on(heavy.queue())]);
        Executor {
            lanes: (0..lanes).map(lane).collect(),
            heavy,
            reads: server.store.prefers_prefetch().then(|| Lane::of_reads(server.clone())),
            server: server.clone(),
        }
    }

    /// What all connections share.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Runs a unit to its end. A unit that writes goes on also when the caller is dropped.
    ///
    /// The latency counted for each of its commands is the unit's: from here to its answer, commit included. What it waits for the
    /// collector of the dictionary ([`crate::keyspace::dictionary::backpressure`]) is counted there.
    pub async fn run(&self, mut unit: Unit) -> Done {
        tracked::remember(&self.server, &mut unit).await;
        let clock = &self.server.env.clock;
        let start = clock.monotonic();
        let db = unit.client.db;
        let done = self.route(unit, start).await;
        self.count(&done, clock.monotonic() - start);
        if self.server.tracking.is_on() {
            self.server.tracking.trim(&self.server).await;
        }
        if self.server.monitors.is_on() {
            let replies = done.replies.iter().flatten();
            let ran = done.ran.iter().zip(replies).map(|(c, reply)| (c.row, c.argv.as_slice(), reply));
            monitor::feed(&self.server, &done.client, db, ran);
        }
        self.server.space.backpressure.wait(done.made).await;
        done
    }

    fn count(&self, done: &Done, took: Duration) {
        let telemetry = &self.server.telemetry;
        let tracked = self.server.config.get().latency_tracking;
        telemetry.on_lookups(done.lookups);
        for (call, reply) in done.ran.iter().zip(done.replies.iter().flatten()) {
            let outcome = match reply {
                Reply::Error(e) => {
                    telemetry.error(e.code());
                    Outcome::Failed
                }
                _ => Outcome::Done,
            };
            telemetry.command(call.row.index, took, tracked, outcome);
        }
        if done.replies.is_some() {
            slow::note(&self.server, &done.client, &done.ran, took);
        }
    }

    async fn route(&self, unit: Unit, mut since: Duration) -> Done {
        let told_by_store = self.server.space.bus.is_shared() && unit.tells();
        if !unit.writes() && !told_by_store {
            let together = !unit.is_heavy() && !unit.is_about_the_server();
            return match self.reads.as_ref().filter(|_| together) {
                Some(lane) => lane.run(unit, since).await,
                None => reads::run(&self.server, unit, since, None).await,
            };
        }
        if self.server.space.fences.pass(|| unit.written()).await {
            // That was no time in which the store was silent.
            since = self.server.env.clock.monotonic();
        }
        let lane = if unit.is_heavy() {
            &self.heavy
        } else {
            let n = unit.first_hash() as usize % self.lanes.len();
            self.lanes.get(n).unwrap_or(&self.heavy)
        };
        lane.run(unit, since).await
    }
}

/// What tests run.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::{Done, Forced, Job, Unit};
    use crate::commands::registry::table;
    use crate::dispatch::Call;
    use crate::server::ClientState;
    use bytes::Bytes;
    use std::time::Duration;
    use tokio::sync::oneshot;

    /// One command, whose words stand between spaces.
    pub(crate) fn call(line: &str) -> Call {
        let argv: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let (row, names) = table().resolve(&argv).and_then(Result::ok).unwrap();
        Call { row, argv, names, id: None }
    }

    /// A pipeline of a new client.
    pub(crate) fn unit(lines: &[&str]) -> Unit {
        let client = ClientState::new(Default::default(), true);
        let calls = lines.iter().map(|line| call(line)).collect();
        Unit { calls, client, watches: Vec::new(), exec: false, id: None }
    }

    /// A unit on its way, which came at `since`, and where its answer arrives.
    pub(super) fn job(unit: Unit, since: Duration) -> (Job, oneshot::Receiver<Done>) {
        let (answer, heard) = oneshot::channel();
        (Job { unit, since, forced: Forced::default(), answer }, heard)
    }
}
