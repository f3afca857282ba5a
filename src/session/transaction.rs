//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! A command that a gate refuses aborts the transaction; a command that fails when it runs does not. EXEC's
//! unit carries the fingerprints of the watched keys, which are compared inside its transaction: so WATCH
//! notices every change, made by any server, even a SET of the same bytes.
//!
//! `IDEMPOTENT <id> EXEC` is an EXEC whose unit has that id. Every queued command must be one that can run
//! under an id.

use super::Session;
use super::tracking::is_of_tracking;
use crate::commands::binding::{Run, SessionOp};
use crate::commands::registry::run_of;
use crate::commands::transactions::idempotent::may_run;
use crate::dispatch::Call;
use crate::dispatch::gate::not_under_id;
use crate::env::free;
use crate::error::ReplyError;
use crate::exec::{Done, Unit, Watched};
use crate::server::Protocol;
use crate::server::reply::Reply;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::HashSet;

/// The reply to a command inside MULTI.
pub(super) const QUEUED: Reply = Reply::Simple(Cow::Borrowed("QUEUED"));
const NESTED: ReplyError = ReplyError::new("ERR MULTI calls can not be nested");
const EXEC_ALONE: ReplyError = ReplyError::new("ERR EXEC without MULTI");
const DISCARD_ALONE: ReplyError = ReplyError::new("ERR DISCARD without MULTI");
const WATCH_INSIDE: ReplyError = ReplyError::new("ERR WATCH inside MULTI is not allowed");
const ABORTED: ReplyError = ReplyError::new("EXECABORT Transaction discarded because of previous errors.");

/// A transaction that is being queued.
#[derive(Default)]
pub(super) struct Multi {
    calls: Vec<Call>,
    spoilt: bool,
    arguments: usize,
    bytes: usize,
}

impl Multi {
    /// Queues a command. Copies its arguments: they may wait for long, and each would keep a whole read
    /// buffer alive.
    pub(super) fn queue(&mut self, mut call: Call) {
        for arg in &mut call.argv {
            self.arguments += 1;
            self.bytes += arg.len();
            *arg = Bytes::copy_from_slice(arg);
        }
        self.calls.push(call);
    }

    /// The queued commands.
    pub(super) fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The number of queued commands.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Bytes of its arguments.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of memory that it holds.
    pub(super) fn held(&self) -> usize {
        self.bytes + self.arguments * size_of::<Bytes>()
    }
}

impl Drop for Multi {
    fn drop(&mut self) {
        free(self.arguments, std::mem::take(&mut self.calls));
    }
}

/// Whether a session command runs at once inside MULTI instead of being queued.
pub(super) fn acts_inside_multi(call: &Call) -> bool {
    use SessionOp::{Discard, Exec, Multi, Quit, Reset, Watch};
    matches!(run_of(call.row), Run::Session(Multi | Exec | Discard | Watch | Quit | Reset))
}

/// The keys that a client watches.
#[derive(Default)]
pub(super) struct Watches {
    keys: Vec<Watched>,
    names: HashSet<(u8, Bytes)>,
}

impl Drop for Watches {
    fn drop(&mut self) {
        let (keys, names) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.names));
        free(names.len(), (keys, names));
    }
}

impl Watches {
    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Those of `keys` in database `db` that are not watched yet, each once. They are copied: they are kept
    /// for long, and each would keep a whole read buffer alive.
    fn missing(&self, db: u8, keys: &[Bytes]) -> Vec<Bytes> {
        let mut seen = HashSet::new();
        let new =
            |key: &&Bytes| !self.names.contains(&(db, Bytes::clone(key))) && seen.insert(Bytes::clone(key));
        keys.iter().filter(new).map(|key| Bytes::copy_from_slice(key)).collect()
    }

    fn extend(&mut self, watched: Vec<Watched>) {
        self.names.extend(watched.iter().map(|w| (w.db, w.key.clone())));
        self.keys.extend(watched);
    }
}

impl Session {
    /// The reply to a command that a gate refused. A refused EXEC ends the transaction.
    pub(super) fn refuse(&mut self, run: Option<Run>, error: ReplyError) -> Reply {
        if let Some(Run::Session(SessionOp::Exec)) = run {
            self.forget_transaction();
            return spoilt(&error);
        }
        if let Some(multi) = &mut self.multi {
            multi.spoilt = true;
        }
        Reply::Error(error)
    }

    pub(super) fn multi(&mut self) -> Reply {
        if self.multi.is_some() {
            return Reply::Error(NESTED);
        }
        self.multi = Some(Multi::default());
        Reply::Ok
    }

    pub(super) fn discard(&mut self) -> Reply {
        if self.multi.is_none() {
            return Reply::Error(DISCARD_ALONE);
        }
        self.forget_transaction();
        Reply::Ok
    }

    /// Resets the state to that before MULTI and WATCH.
    pub(super) fn forget_transaction(&mut self) {
        self.multi = None;
        self.watches = Watches::default();
    }

    pub(super) async fn watch(&mut self, keys: &[Bytes]) -> Reply {
        if self.multi.is_some() {
            return Reply::Error(WATCH_INSIDE);
        }
        let db = self.client.db;
        let new = self.watches.missing(db, keys);
        match self.executor.watch(db, &new).await {
            Ok(watched) => {
                self.watches.extend(watched);
                Reply::Ok
            }
            Err(e) => Reply::Error(e.into_reply()),
        }
    }

    pub(super) fn unwatch(&mut self) -> Reply {
        self.watches = Watches::default();
        Reply::Ok
    }

    /// Runs EXEC; `id` is that of `IDEMPOTENT <id> EXEC`.
    pub(super) async fn exec(&mut self, id: Option<Bytes>) -> Reply {
        let Some(mut multi) = self.multi.take() else { return Reply::Error(EXEC_ALONE) };
        let watches = std::mem::take(&mut std::mem::take(&mut self.watches).keys);
        if multi.spoilt {
            return Reply::Error(ABORTED);
        }
        if let Some(refused) =
            id.as_ref().and_then(|_| multi.calls.iter().find(|c| !may_run(c.row, run_of(c.row))))
        {
            return spoilt(&not_under_id(&refused.row.label));
        }
        let total = multi.calls.len();
        let (ours, calls) = split(std::mem::take(&mut multi.calls), |call| self.no_longer_allowed(call));
        let tracking: Vec<Call> = ours.iter().filter_map(|(_, ours)| ours.of_tracking()).collect();
        let (ahead, before) = self.track_ahead(&tracking).await;
        let ran = match self.run_exec(calls, watches, id).await {
            Ok(ran) => ran,
            Err(instead) => {
                self.track_as(before);
                return instead;
            }
        };
        let (mut ours, mut ran, mut ahead) =
            (ours.into_iter().peekable(), ran.into_iter(), ahead.into_iter());
        let mut replies = Vec::with_capacity(total);
        for at in 0..total {
            let before = self.client.protocol;
            let reply = match ours.next_if(|(n, _)| *n == at) {
                Some((_, Ours::Run(call))) if is_of_tracking(&call) => ahead.next().unwrap_or(Reply::None),
                Some((_, Ours::Run(call))) => self.inside_exec(&call).await,
                Some((_, Ours::Denied(reply))) => reply,
                None => never_none(ran.next().unwrap_or(Reply::None)),
            };
            if self.client.protocol != before {
                speak_before(&mut replies, before);
            }
            replies.push(reply);
        }
        Reply::Array(replies)
    }

    /// Returns the replies of `calls`, or EXEC's reply if a watched key has changed or the store failed.
    async fn run_exec(
        &mut self,
        calls: Vec<Call>,
        watches: Vec<Watched>,
        id: Option<Bytes>,
    ) -> Result<Vec<Reply>, Reply> {
        if calls.is_empty() && watches.is_empty() && id.is_none() {
            return Ok(Vec::new());
        }
        let unit = Unit { calls, client: self.client.clone(), watches, exec: true, id };
        let Done { replies, refused, ran, .. } = self.run_unit(unit).await;
        free(ran.iter().map(|call| call.argv.len()).sum(), ran);
        match (replies, refused) {
            (_, Some(error)) => Err(Reply::Error(error)),
            (replies, None) => replies.ok_or(Reply::NilArray),
        }
    }

    /// Runs a queued command that the executor does not run. These commands touch no key, so their order
    /// among the others shows only in the replies.
    async fn inside_exec(&mut self, call: &Call) -> Reply {
        let args = call.argv.get(call.names..).unwrap_or_default();
        match run_of(call.row) {
            Run::Session(SessionOp::Auth) => self.auth(call),
            Run::Session(SessionOp::Hello) => self.hello(call),
            Run::Session(SessionOp::Subscribe(kind)) => self.subscribe(kind, args, false).await,
            Run::Session(SessionOp::Unsubscribe(kind)) => self.unsubscribe(kind, args, false).await,
            Run::Refuse(line) => Reply::Error(ReplyError::new(line)),
            // UNWATCH: EXEC has already done it.
            _ => Reply::Ok,
        }
    }
}

/// The reply to an EXEC that is refused because of `error`.
fn spoilt(error: &ReplyError) -> Reply {
    let why = error.0.strip_prefix("ERR ").unwrap_or(&error.0);
    Reply::Error(ReplyError::of(format!("EXECABORT Transaction discarded because of: {why}")))
}

/// A queued command that the executor does not run.
enum Ours {
    /// The session runs it.
    Run(Call),
    /// It does not run: the user has lost the right.
    Denied(Reply),
}

impl Ours {
    fn of_tracking(&self) -> Option<Call> {
        match self {
            Ours::Run(call) if is_of_tracking(call) => Some(call.clone()),
            _ => None,
        }
    }
}

/// Splits a queue into the calls that the session answers, with their positions, and those that the executor
/// runs.
fn split(queue: Vec<Call>, denied: impl Fn(&Call) -> Option<Reply>) -> (Vec<(usize, Ours)>, Vec<Call>) {
    let (mut ours, mut calls) = (Vec::new(), Vec::with_capacity(queue.len()));
    for (at, call) in queue.into_iter().enumerate() {
        if let Some(reply) = denied(&call) {
            ours.push((at, Ours::Denied(reply)));
            continue;
        }
        match run_of(call.row) {
            Run::Session(_) | Run::Refuse(_) => ours.push((at, Ours::Run(call))),
            _ => calls.push(call),
        }
    }
    (ours, calls)
}

/// HELLO has changed the protocol in an EXEC: the replies so far are in the one `before`, as in Redis.
fn speak_before(replies: &mut [Reply], before: Protocol) {
    let is_of_earlier = |reply: &Reply| matches!(reply, Reply::Several(all) if matches!(all.first(), Some(Reply::Speaking(_))));
    for reply in replies.iter_mut().rev().take_while(|reply| !is_of_earlier(reply)) {
        let said = std::mem::replace(reply, Reply::None);
        *reply = Reply::Several(vec![Reply::Speaking(Some(before)), said, Reply::Speaking(None)]);
    }
}

/// An element of an array cannot be left out, so CLIENT REPLY OFF inside EXEC is answered.
fn never_none(reply: Reply) -> Reply {
    if reply == Reply::None { Reply::Ok } else { reply }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::call;

    #[test]
    fn what_is_queued_is_counted_and_copied() {
        let line = Bytes::from_static(b"a long buffer that an argument was cut from");
        let mut multi = Multi::default();
        let mut set = call("SET k v");
        set.argv[2] = line.slice(2..6);
        multi.queue(set);
        multi.queue(call("GET k"));
        assert_eq!((multi.len(), multi.bytes()), (2, 3 + 1 + 4 + 3 + 1));
        assert_eq!(multi.held(), multi.bytes() + 5 * size_of::<Bytes>());
        assert_eq!(multi.calls()[0].argv[2], "long");
        assert!(multi.calls()[0].argv[2].is_unique(), "it holds no other bytes");
    }

    #[test]
    fn a_key_is_watched_once_in_each_database() {
        let mut watches = Watches::default();
        let [a, b] = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        assert_eq!(watches.missing(0, &[a.clone(), b.clone(), a.clone()]), [a.clone(), b.clone()]);
        watches.extend(vec![Watched::of_nothing(0, a.clone())]);
        assert_eq!(watches.missing(0, &[b.clone(), a.clone()]), [b]);
        assert_eq!(watches.missing(1, std::slice::from_ref(&a)), [a]);
        assert_eq!(watches.len(), 1);
    }

    #[test]
    fn the_session_answers_its_own_and_what_is_denied_in_their_places() {
        let queue = ["SET a 1", "AUTH p", "GET a", "DEL b", "SUBSCRIBE c"].map(call).into();
        let denied = |call: &Call| (call.row.name == "get").then_some(Reply::Nil);
        let (ours, calls) = split(queue, denied);
        let ours: Vec<_> = ours
            .iter()
            .map(|(at, ours)| match ours {
                Ours::Run(call) => (*at, call.row.name),
                Ours::Denied(_) => (*at, "denied"),
            })
            .collect();
        assert_eq!(ours, [(1, "auth"), (2, "denied"), (4, "subscribe")]);
        assert_eq!(calls.iter().map(|call| call.row.name).collect::<Vec<_>>(), ["set", "del"]);
    }

    #[test]
    fn an_exec_says_why_it_is_refused() {
        let said = |e: &'static str| spoilt(&ReplyError::new(e));
        let error = |e: &'static str| Reply::Error(ReplyError::new(e));
        assert_eq!(said("ERR wrong"), error("EXECABORT Transaction discarded because of: wrong"));
        assert_eq!(said("NOAUTH no"), error("EXECABORT Transaction discarded because of: NOAUTH no"));
        assert_eq!([never_none(Reply::None), never_none(Reply::Nil)], [Reply::Ok, Reply::Nil]);
    }
}
