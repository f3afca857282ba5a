//! One client's session: turns requests into replies, without a socket.
//!
//! * [`Session::take`] takes requests one by one and passes them through the gates ([`gate`]). Consecutive
//!   commands form one unit, a **window**, until it is full or until a request must see the effect of
//!   everything before it: a session command, a heavy call, CLIENT REPLY.
//! * [`Session::run`] runs the window, then the request that ended it, and leaves exactly one reply for each
//!   request, in order; [`Reply::None`] has no bytes.
//! * Replies of a window are held until they are written, so a window with large replies makes the next one
//!   smaller. A window with very large replies is interrupted, and continues once they have been written.

mod login;
mod pause;
mod permissions;
mod subscriptions;
mod tracking;
mod transaction;
mod waiting;

use crate::commands::binding::{Run, SessionOp};
use crate::commands::registry::run_of;
use crate::commands::server::debug;
use crate::commands::timeouts;
use crate::config::Allowed;
use crate::dispatch::Call;
use crate::dispatch::gate::{self, Decision, Standing};
use crate::env::{aside, each_aside};
use crate::error::ReplyError;
use crate::exec::{Done, Executor, LARGE, Unit, slow};
use crate::server::acl::Rights;
use crate::server::monitor;
use crate::server::reply::Reply;
use crate::server::{AfterReply, ClientState, Protocol, ReplyMode};
use crate::spec::{Effect, Entry, Form, PREFIX};
use crate::telemetry::Outcome;
use crate::telemetry::offences::Offence;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use subscriptions::Subscriptions;
use transaction::{Multi, Watches};
use waiting::Waiting;

/// The most requests in a window, and the size of the first one.
const MAX_WINDOW: usize = 1024;
const FIRST_WINDOW: usize = 128;
/// The same for a client that has not logged in.
const STRANGERS_WINDOW: usize = 16;
/// Weight of calls at which a window is full: with one more call it still runs in a lane.
const MAX_WINDOW_WEIGHT: usize = 3 << 18;
/// Bytes of replies above which the next window shrinks, and below which it may grow.
const MUCH: usize = 1 << 20;
const LITTLE: usize = 64 << 10;
/// Arguments of a call that is checked aside, because visiting each of them takes time.
const MANY_ARGUMENTS: usize = 10_000;
/// Bytes of a call that is checked aside if its names are matched against a user's patterns.
const LONG_NAMES: usize = 4 << 10;

/// Whether a session can take more requests before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// It can.
    More,
    /// Call [`Session::run`] first.
    Full,
}

/// The request that runs after the window.
enum Next {
    /// A session command.
    Op(SessionOp, Call),
    /// A command that is a unit of its own.
    Alone(Call),
    /// A command that waits until there is something to have, for at most this long (None: for ever).
    Wait(Call, Option<Duration>),
}

/// Requests that were taken and have not run yet.
#[derive(Default)]
struct Window {
    calls: Vec<Call>,
    /// Bytes of the arguments in `calls`, and their weight.
    bytes: usize,
    weight: usize,
    /// Replies that are already known, each with the number of calls before it.
    fixed: Vec<(usize, Reply)>,
    /// The last call is CLIENT REPLY, which decides whether it is answered itself.
    ends_in_reply_mode: bool,
}

impl Window {
    fn len(&self) -> usize {
        self.calls.len() + self.fixed.len()
    }

    /// Splits off the rest of the window after everything but `calls` has run. Keeps the fixed replies that
    /// are due now.
    fn split_off(&mut self, ran: usize, calls: Vec<Call>) -> Window {
        let due = self.fixed.partition_point(|(at, _)| *at <= ran);
        let mut fixed = self.fixed.split_off(due);
        fixed.iter_mut().for_each(|(at, _)| *at -= ran);
        Window {
            bytes: calls.iter().map(Call::bytes).sum(),
            weight: calls.iter().map(Call::weight).sum(),
            calls,
            fixed,
            ends_in_reply_mode: std::mem::take(&mut self.ends_in_reply_mode),
        }
    }
}

/// The session of one client.
pub(crate) struct Session {
    executor: Arc<Executor>,
    client: Box<ClientState>,
    window: Window,
    /// The number of requests that a window may hold now.
    limit: usize,
    next: Option<Next>,
    /// The command that waits.
    waiting: Option<Box<Waiting>>,
    multi: Option<Multi>,
    watches: Watches,
    subscriptions: Subscriptions,
    replies: Vec<Reply>,
    /// Bytes held by `replies`, except errors and QUEUED.
    weight: usize,
    closing: bool,
    /// Fixed for the connection: neither `enable-debug-command` nor its address changes.
    may_debug: bool,
    rights: Rights,
    /// Generation of the users when the oldest request that has not run passed the gates.
    checked: u64,
}

impl Session {
    /// Creates a session for a new client.
    pub(crate) fn new(executor: Arc<Executor>, client: ClientState) -> Self {
        let may_debug = match executor.server().config.get().enable_debug_command {
            Allowed::No => false,
            Allowed::Local => client.handle.is_local(),
            Allowed::Yes => true,
        };
        executor.server().tracking.enter(&client.mailbox);
        Session {
            executor,
            client: Box::new(client),
            window: Window::default(),
            limit: FIRST_WINDOW,
            next: None,
            waiting: None,
            multi: None,
            watches: Watches::default(),
            subscriptions: Subscriptions::default(),
            replies: Vec::new(),
            weight: 0,
            closing: false,
            may_debug,
            rights: Rights::default(),
            checked: 0,
        }
    }

    /// Takes a request with at least one argument.
    pub(crate) fn take(&mut self, argv: Vec<Bytes>) -> Room {
        self.executor.server().acl.refresh(&mut self.rights, &self.client.user);
        if !self.is_waiting() {
            self.checked = self.rights.generation();
        }
        let bytes = || argv.iter().map(Bytes::len).sum::<usize>();
        if argv.len() > MANY_ARGUMENTS || self.rights.restricted().is_some() && bytes() > LONG_NAMES {
            aside(|| self.check(argv))
        } else {
            self.check(argv)
        }
    }

    fn check(&mut self, mut argv: Vec<Bytes>) -> Room {
        let standing = Standing {
            authenticated: self.is_authenticated(),
            in_multi: self.multi.is_some(),
            may_debug: self.may_debug,
            rights: self.rights.restricted().map(|user| &**user),
            only_listens: self.client.protocol == Protocol::Resp2 && self.client.handle.is_subscribed(),
        };
        match gate::check(&argv, standing) {
            Decision::Pass { row, names, under_id } => {
                self.client.handle.on_command(row.index);
                let id = if under_id { argv.drain(..PREFIX).next_back() } else { None };
                self.accept(Call { row, argv, names, id })
            }
            Decision::Deny(row, denied) => {
                self.client.handle.on_refusal(Some(row.index));
                let reply = self.deny(row, &denied, &argv);
                self.fix(reply)
            }
            Decision::Missing(name, error) => {
                self.executor.server().telemetry.missing(name);
                self.reject(None, error)
            }
            Decision::Refuse(row, error) => {
                if let Some(row) = row {
                    self.executor.server().telemetry.rejected(row.index);
                }
                self.reject(row, error)
            }
            Decision::Attack => {
                let what = || "HTTP sent to the server: connection closed".to_owned();
                self.executor.server().complain(&self.client.handle, Offence::CrossProtocol, what);
                self.closing = true;
                Room::Full
            }
        }
    }

    /// Rejects a request; `row` is that of its command if the command exists.
    fn reject(&mut self, row: Option<&'static Entry>, error: ReplyError) -> Room {
        self.executor.server().telemetry.error(error.code());
        // For an unknown subcommand, only its container is known.
        let shown = row.filter(|row| row.form != Form::Container);
        self.client.handle.on_refusal(shown.map(|row| row.index));
        let reply = self.refuse(row.map(run_of), error);
        self.fix(reply)
    }

    /// Runs the window or, if it is empty, the request that ended it. The replies are then in
    /// [`Session::replies`]. Encode them before calling this again, because the request that ends a window
    /// may change the protocol.
    pub(crate) async fn run(&mut self) {
        if self.is_large() {
            // Boxed, because every connection's task reserves space for everything that it may await.
            each_aside(Box::pin(self.run_next())).await
        } else {
            self.run_next().await
        }
    }

    /// Whether the next run is large enough to delay others while it is inspected.
    fn is_large(&self) -> bool {
        let next = match &self.next {
            _ if self.window.len() > 0 => self.window.weight,
            Some(Next::Op(SessionOp::Exec | SessionOp::Discard | SessionOp::Reset, _)) => self.queued(),
            Some(Next::Op(_, call) | Next::Alone(call) | Next::Wait(call, _)) => call.weight(),
            None => 0,
        };
        next > LARGE
    }

    async fn run_next(&mut self) {
        self.client.handle.set_argv(self.taken());
        let may_run = self.wait_out_pause().await;
        if !self.begin_to_run() {
            (self.window, self.next) = Default::default();
        } else if self.window.len() > 0 {
            self.run_window(may_run).await;
        } else if let Some(next) = self.next.take() {
            match next {
                Next::Op(op, call) => self.run_op(op, &call).await,
                Next::Alone(call) => {
                    self.push(call);
                    self.run_window(usize::MAX).await;
                }
                Next::Wait(call, timeout) => self.wait(call, timeout).await,
            }
        }
        let handle = &self.client.handle;
        handle.set_busy(false);
        handle.set_argv(self.taken());
        handle.set_multi(self.multi.as_ref().map(|m| (m.len(), m.bytes())));
        handle.set_watching(self.watches.len());
        match self.client.after_reply {
            AfterReply::GoOn => {}
            AfterReply::Close => self.closing = true,
            AfterReply::Excess(bytes) => {
                self.client.after_reply = AfterReply::GoOn;
                // If CLIENT REPLY suppressed the reply, nothing waits.
                if self.weight > 0 {
                    self.weight = self.weight.max(bytes);
                }
            }
            AfterReply::Panic => debug::fail("DEBUG PANIC CONNECTION"),
        }
    }

    /// Marks the client as busy, which the caller ends. False if it was killed: whoever did that may have been answered, so
    /// nothing runs, whether it arrived before or since.
    fn begin_to_run(&mut self) -> bool {
        // In this order: see `ClientHandle::kill_first`.
        self.client.handle.set_busy(true);
        let may_run = !self.client.handle.is_killed();
        self.closing |= !may_run;
        may_run
    }

    /// Whether a request was taken that has not run.
    pub(crate) fn is_waiting(&self) -> bool {
        self.window.len() > 0 || self.next.is_some()
    }

    /// Bytes of arguments that were taken and have not run.
    fn taken(&self) -> usize {
        let next = match &self.next {
            Some(Next::Op(_, call) | Next::Alone(call) | Next::Wait(call, _)) => call.bytes(),
            None => self.waiting.as_ref().map_or(0, |waiting| waiting.call().bytes()),
        };
        self.window.bytes + next
    }

    /// The replies to write, in order.
    pub(crate) fn replies(&mut self) -> std::vec::Drain<'_, Reply> {
        self.weight = 0;
        self.replies.drain(..)
    }

    /// Appends about `most` bytes of the client's mail to the replies. False if it has none.
    pub(crate) fn take_mail(&mut self, most: usize) -> bool {
        if !self.client.handle.take_ring() {
            return false;
        }
        let mail = self.client.mailbox.take(most);
        self.weight += mail.iter().map(Reply::weight).sum::<usize>();
        self.replies.extend(mail);
        !self.replies.is_empty()
    }

    /// Approximate size of the waiting replies.
    pub(crate) fn waiting(&self) -> usize {
        self.weight
    }

    /// The client's current protocol: encode [`Session::replies`] in it.
    pub(crate) fn protocol(&self) -> Protocol {
        self.client.protocol
    }

    /// Whether the client has authenticated, or need not.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.client.authenticated || self.executor.server().acl.is_open()
    }

    /// Whether the connection is to be closed once the replies are written.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Bytes queued for EXEC.
    pub(crate) fn queued(&self) -> usize {
        self.multi.as_ref().map_or(0, Multi::held)
    }

    /// Accepts a command that passed the gates: queues it in MULTI, adds it to the window, or keeps it for
    /// after the window.
    fn accept(&mut self, call: Call) -> Room {
        if let Some(multi) = self.multi.as_mut().filter(|_| !transaction::acts_inside_multi(&call)) {
            multi.queue(call);
            return self.fix(transaction::QUEUED);
        }
        match run_of(call.row) {
            Run::Session(op) => self.next = Some(Next::Op(op, call)),
            Run::Refuse(line) => {
                let error = ReplyError::new(line);
                let telemetry = &self.executor.server().telemetry;
                telemetry.error(error.code());
                telemetry.rejected(call.row.index);
                return self.fix(Reply::Error(error));
            }
            // What runs under an id answers at once: its first answer is kept.
            _ if call.id.is_none()
                && let Some(timeout) = timeouts::of(call.row, &call.argv) =>
            {
                self.next = Some(Next::Wait(call, timeout))
            }
            _ if call.is_heavy() => self.next = Some(Next::Alone(call)),
            _ => return self.push(call),
        }
        Room::Full
    }

    fn push(&mut self, call: Call) -> Room {
        let w = &mut self.window;
        w.bytes += call.bytes();
        w.weight += call.weight();
        w.ends_in_reply_mode = call.row.effect == Effect::Mutes;
        // Commands behind CLIENT PAUSE are paused, and those behind the end of their connection do not run.
        let is_last = matches!(call.row.effect, Effect::Pauses | Effect::Closes);
        w.calls.push(call);
        if is_last { Room::Full } else { self.room() }
    }

    fn fix(&mut self, reply: Reply) -> Room {
        self.window.fixed.push((self.window.calls.len(), reply));
        self.room()
    }

    fn room(&self) -> Room {
        let w = &self.window;
        // A window's replies are held. A client that has not logged in gets only errors, which cost it
        // nothing.
        let limit = if self.is_authenticated() { self.limit } else { STRANGERS_WINDOW };
        let full = w.len() >= limit || w.weight >= MAX_WINDOW_WEIGHT || w.ends_in_reply_mode;
        if full { Room::Full } else { Room::More }
    }

    /// Runs the first `may_run` calls of the window, with the fixed replies between them.
    async fn run_window(&mut self, may_run: usize) {
        let mut window = std::mem::take(&mut self.window);
        if window.len() == 0 {
            return;
        }
        let before = self.begin_reply();
        let mut calls = std::mem::take(&mut window.calls);
        let held = calls.split_off(may_run.min(calls.len()));
        let (ran, mut rest) = if calls.is_empty() { Default::default() } else { self.execute(calls).await };
        rest.extend(held);
        if !rest.is_empty() {
            self.window = window.split_off(ran.len(), rest);
        }
        self.weight = ran.iter().map(Reply::weight).sum();
        self.limit = next_limit(self.limit, self.weight);
        if window.fixed.is_empty()
            && before == ReplyMode::On
            && !window.ends_in_reply_mode
            && self.replies.is_empty()
        {
            self.replies = ran;
        } else {
            self.merge(before, ran, window.fixed, window.ends_in_reply_mode);
        }
        self.end_reply();
    }

    /// Returns the replies of the calls that ran, and the calls that did not.
    async fn execute(&mut self, calls: Vec<Call>) -> (Vec<Reply>, Vec<Call>) {
        let unit = Unit { calls, client: self.client.clone(), watches: Vec::new(), exec: false, id: None };
        let done = self.run_unit(unit).await;
        (done.replies.unwrap_or_default(), done.rest)
    }

    async fn run_unit(&mut self, unit: Unit) -> Done {
        let mut done = self.executor.run(unit).await;
        std::mem::swap(&mut self.client, &mut done.client);
        done
    }

    /// Inserts the fixed replies between those of the commands that ran, and drops those that CLIENT REPLY
    /// suppresses.
    fn merge(
        &mut self,
        before: ReplyMode,
        ran: Vec<Reply>,
        fixed: Vec<(usize, Reply)>,
        ends_in_reply_mode: bool,
    ) {
        let total = ran.len() + fixed.len();
        let (mut ran, mut fixed) = (ran.into_iter().enumerate().peekable(), fixed.into_iter().peekable());
        let mut mode = before;
        for slot in 1..=total {
            let first_ran = ran.peek().map_or(usize::MAX, |(n, _)| *n);
            let reply = match fixed.next_if(|(at, _)| *at <= first_ran) {
                Some((_, reply)) => reply,
                None => ran.next().map_or(Reply::None, |(_, reply)| reply),
            };
            if slot == total && ends_in_reply_mode {
                mode = self.client.reply;
            }
            if mode == ReplyMode::On {
                self.replies.push(reply);
            } else if mode == ReplyMode::Skip {
                mode = ReplyMode::On;
            }
        }
    }

    async fn run_op(&mut self, op: SessionOp, call: &Call) {
        let before = self.begin_reply();
        let executor = self.executor.clone();
        let (telemetry, clock) = (&executor.server().telemetry, &executor.server().env.clock);
        let start = clock.monotonic();
        let reply = self.op(op, call).await;
        let outcome = match &reply {
            Reply::Error(e) => {
                telemetry.error(e.code());
                Outcome::Failed
            }
            _ => Outcome::Done,
        };
        if self.multi.is_none() && !tracking::is_of_tracking(call) {
            self.client.tracking.caching = false;
        }
        let took = clock.monotonic() - start;
        let tracked = executor.server().config.get().latency_tracking;
        telemetry.command(call.row.index, took, tracked, outcome);
        slow::note(executor.server(), &self.client, std::slice::from_ref(call), took);
        if executor.server().monitors.is_on() {
            let ran = monitor::Ran { row: call.row, argv: &call.argv, reply: &reply, called: Vec::new() };
            let ran = std::iter::once(ran);
            monitor::feed(executor.server(), &self.client, self.client.db, ran);
        }
        // RESET cancels OFF, but is itself the reply that SKIP suppresses.
        let mode =
            if op == SessionOp::Reset && before == ReplyMode::Off { self.client.reply } else { before };
        if mode == ReplyMode::On || reply.is_push() {
            self.weight = reply.weight();
            self.replies.push(reply);
        }
        self.end_reply();
    }

    async fn op(&mut self, op: SessionOp, call: &Call) -> Reply {
        let args = call.argv.get(call.names..).unwrap_or_default();
        match op {
            SessionOp::Multi => self.multi(),
            SessionOp::Exec => self.exec(call.id.clone()).await,
            SessionOp::Discard => self.discard(),
            SessionOp::Watch => self.watch(args).await,
            SessionOp::Unwatch => self.unwatch(),
            SessionOp::Auth => self.auth(call),
            SessionOp::Hello => self.hello(call),
            SessionOp::Reset => self.reset().await,
            SessionOp::Quit => {
                self.closing = true;
                Reply::Ok
            }
            SessionOp::Tracking => self.tracking(args).await,
            SessionOp::Caching => self.caching(args),
            SessionOp::Subscribe(kind) => self.subscribe(kind, args, true).await,
            SessionOp::Unsubscribe(kind) => self.unsubscribe(kind, args, true).await,
        }
    }

    /// The mode for the next replies: CLIENT REPLY SKIP applies to the first of them.
    fn begin_reply(&mut self) -> ReplyMode {
        if self.client.reply == ReplyMode::SkipNext {
            self.client.reply = ReplyMode::Skip;
        }
        self.client.reply
    }

    fn end_reply(&mut self) {
        if self.client.reply == ReplyMode::Skip {
            self.client.reply = ReplyMode::On;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.drop_subscriptions();
        self.executor.server().tracking.leave(&self.client.mailbox);
        self.client.mailbox.close();
    }
}

/// The limit of the next window after one whose replies weighed `weight` bytes.
fn next_limit(limit: usize, weight: usize) -> usize {
    match weight {
        MUCH.. => (limit / 4).max(1),
        LITTLE.. => limit,
        _ => (limit * 2).min(MAX_WINDOW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::World;

    /// Hazard: the requests of a client are read between the kill and its connection's next turn, and run after CLIENT KILL was answered.
    #[tokio::test]
    async fn a_killed_client_runs_nothing_that_was_read() {
        let World { exec: executor, .. } = &World::new().await;
        for line in ["INCR k", "BLPOP l 0", "CLIENT ID", "MULTI", "SELECT 1"] {
            for is_killed in [false, true] {
                let client = ClientState::new(Default::default(), true);
                let mut session = Session::new(executor.clone(), client.clone());
                session.take(line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect());
                if is_killed {
                    client.handle.kill();
                }
                session.run().await;
                let did = session.replies().len() > 0 || session.is_blocked();
                assert_eq!(
                    (did, session.is_closing(), session.is_waiting()),
                    (!is_killed, is_killed, false),
                    "{line}"
                );
            }
        }
    }
}
