//! A unit: the commands that run in one transaction, and their result.

use super::Watched;
use crate::commands::binding::Run;
use crate::commands::registry::run_of;
use crate::dispatch::{Call, Noted};
use crate::env::free;
use crate::error::{Error, ReplyError};
use crate::keyspace::cluster::fences::DATABASES;
use crate::keyspace::keys::hash;
use crate::server::ClientState;
use crate::server::reply::Reply;
use crate::spec::{Flags, keys_of, written_keys};
use crate::telemetry::counters::Lookups;
use bytes::Bytes;
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// Weight of a unit, as in [`Call::is_heavy`], beyond which it does not run in a lane.
const HEAVY_UNIT: usize = 5 << 18;
/// Weight beyond which a unit's work runs aside: visiting each argument, or each byte, takes longer than
/// others should wait.
pub const LARGE: usize = 1 << 20;

/// Whether a call runs a script.
pub(super) fn runs_script(call: &Call) -> bool {
    matches!(run_of(call.row), Run::Script(_))
}

/// The calls that arrive together on one connection, a pipeline window or an EXEC. Run in one transaction.
pub struct Unit {
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// The client's state; comes back changed in [`Done`]. Boxed, because units move from hand to hand.
    pub client: Box<ClientState>,
    /// EXEC only: compared inside the transaction before the first command runs.
    pub watches: Vec<Watched>,
    /// True for EXEC: `client.in_exec` is set while it runs.
    pub exec: bool,
    /// EXEC only: the client's id, under which the whole EXEC runs once. Its calls then have none.
    pub id: Option<Bytes>,
}

impl Unit {
    pub(super) fn writes(&self) -> bool {
        self.id.is_some() || self.calls.iter().any(|c| c.row.is_write() || c.id.is_some())
    }

    /// Whether it publishes messages.
    pub(super) fn publishes(&self) -> bool {
        self.calls.iter().any(|c| c.row.flags.has(Flags::PUBLISHES))
    }

    /// Whether it runs a script.
    pub(super) fn has_script(&self) -> bool {
        self.calls.iter().any(runs_script)
    }

    /// Whether it is about this server and not about stored data. Such commands (Redis' flag for those that a
    /// replica without its master answers) are answered even while the store is unavailable.
    pub(super) fn is_about_the_server(&self) -> bool {
        let about = |c: &Call| c.row.flags.has(Flags::STALE) && c.row.keys.is_empty();
        !self.exec && self.watches.is_empty() && self.calls.iter().all(about)
    }

    /// The ids of its calls, or its own.
    pub(super) fn ids(&self) -> impl Iterator<Item = &Bytes> {
        self.id.iter().chain(self.calls.iter().filter_map(|c| c.id.as_ref()))
    }

    /// Hashes of the keys that it may read or write.
    pub(super) fn touched(&self) -> Vec<u64> {
        let named = self.calls.iter().filter_map(|c| keys_of(c.row, &c.argv)).flatten();
        named.chain(self.watches.iter().map(|w| &w.key)).map(|key| hash(key)).collect()
    }

    /// Hashes of the keys that it may write; a call that writes without naming keys is about databases.
    pub(super) fn written(&self) -> Vec<u64> {
        let writes = || self.calls.iter().filter(|c| c.row.is_write());
        let keys = writes().flat_map(|c| written_keys(c.row, &c.argv)).map(|key| hash(key));
        let databases = writes().any(|c| c.row.keys.is_empty()).then_some(DATABASES);
        keys.chain(databases).collect()
    }

    /// Whether it touches some of these keys and no other, and writes no other than those.
    pub(super) fn is_within(&self, keys: &HashSet<u64>, writes: &HashSet<u64>) -> bool {
        let touched = self.touched();
        let all = |some: &[u64], of: &HashSet<u64>| some.iter().all(|key| of.contains(key));
        !touched.is_empty() && all(&touched, keys) && all(&self.written(), writes)
    }

    pub(super) fn weight(&self) -> usize {
        self.calls.iter().map(Call::weight).sum()
    }

    pub(super) fn is_heavy(&self) -> bool {
        self.calls.iter().any(Call::is_heavy) || self.weight() > HEAVY_UNIT
    }

    /// Selects the lane: the hash of its first key (0 without one), so that writers of one key share a
    /// lane.
    pub(super) fn first_hash(&self) -> u64 {
        let first = |c: &Call| c.row.keys.first()?.first(&c.argv).map(|k| hash(k));
        self.calls.iter().find_map(first).unwrap_or(0)
    }
}

/// A finished unit.
pub struct Done {
    /// The client's state after the unit.
    pub client: Box<ClientState>,
    /// One reply for each call that ran; None if a watched key had changed and nothing ran.
    pub replies: Option<Vec<Reply>>,
    /// The calls that ran.
    pub ran: Vec<Call>,
    /// Calls that did not run, because the replies before them have to be written first.
    pub rest: Vec<Call>,
    /// Why the unit as a whole failed in the store; `replies` then repeats this for each call.
    pub(crate) refused: Option<ReplyError>,
    /// Keys that its commands looked up.
    pub(crate) lookups: Lookups,
    /// What its scripts called, a script after the other.
    pub(super) noted: Vec<Noted>,
    /// The number of members that it gave an id.
    pub(super) made: u64,
    /// The number of messages that it publishes.
    pub(super) published: usize,
}

impl Done {
    pub(super) fn new(client: Box<ClientState>, replies: Option<Vec<Reply>>, lookups: Lookups) -> Self {
        Done {
            client,
            replies,
            ran: Vec::new(),
            rest: Vec::new(),
            refused: None,
            lookups,
            noted: Vec::new(),
            made: 0,
            published: 0,
        }
    }

    /// A unit of `calls` commands that failed as a whole.
    pub(super) fn refused(client: Box<ClientState>, calls: usize, e: Error) -> Self {
        let error = e.into_reply();
        let replies = Some(vec![Reply::Error(error.clone()); calls]);
        Done { refused: Some(error), ..Done::new(client, replies, Lookups::default()) }
    }

    /// With what its scripts called.
    pub(super) fn noting(self, noted: Vec<Noted>) -> Self {
        Done { noted, ..self }
    }

    /// Distributes the calls of `unit`, which this answers, into those with a reply and those without.
    pub(super) fn answering(mut self, mut unit: Unit) -> Self {
        let ran = self.replies.as_ref().map_or(usize::MAX, Vec::len);
        if ran < unit.calls.len() {
            self.rest = unit.calls.split_off(ran);
        }
        self.ran = unit.calls;
        free(unit.watches.len(), unit.watches);
        self
    }
}

/// Replies that are fixed: a call that failed in the store after it may have written must not run again.
#[derive(Default)]
pub(super) struct Forced {
    /// Replies of single calls.
    pub(super) calls: Vec<(usize, Reply)>,
    /// Replies of calls that acted on the server itself, which abandoning an attempt cannot undo, with the
    /// client state that they left.
    pub(super) acted: Vec<(usize, Reply, ClientState)>,
    /// The error of the unit as a whole.
    pub(super) unit: Option<ReplyError>,
    /// A lane has passed the unit on, because of what its first call, or a call of its EXEC, finds stored, or
    /// because of a fence to wait for. A pipeline's unit ends after that call.
    pub(super) is_heavy: bool,
    /// Whatever does not fit the transaction may be prebuilt before the unit runs again: no reply is fixed
    /// for it.
    pub(super) may_prebuild: bool,
}

impl Forced {
    /// Whether a pipeline's unit may end before call `n`: not if a later call has acted, because it would
    /// then act again as a call that did not run.
    pub(super) fn may_end_before(&self, n: usize) -> bool {
        self.acted.iter().all(|(at, ..)| *at < n)
    }

    /// The reply of call `n`; changes `client` as the call did.
    pub(super) fn reply_of(&self, n: usize, client: &mut ClientState) -> Option<Reply> {
        if let Some((_, reply, after)) = self.acted.iter().find(|(at, ..)| *at == n) {
            *client = after.clone();
            return Some(reply.clone());
        }
        self.calls.iter().find(|(at, _)| *at == n).map(|(_, reply)| reply.clone())
    }
}

/// A unit on its way through a lane.
pub(super) struct Job {
    pub(super) unit: Unit,
    /// When it arrived, by the monotonic clock.
    pub(super) since: Duration,
    pub(super) forced: Forced,
    pub(super) answer: oneshot::Sender<Done>,
}

/// The queues of units that are too heavy for a lane: those with scripts have their own.
pub(super) struct Beside {
    pub(super) heavy: UnboundedSender<Job>,
    pub(super) scripts: UnboundedSender<Job>,
}

impl Beside {
    /// Passes a job on.
    pub(super) fn send(&self, job: Job) {
        let queue = if job.unit.has_script() { &self.scripts } else { &self.heavy };
        let _ = queue.send(job); // refused: the server is stopping
    }
}
