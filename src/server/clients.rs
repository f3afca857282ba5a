//! The registry of connected clients: CLIENT LIST, CLIENT KILL.
//!
//! A connection holds its [`ClientHandle`] and writes into it without locks, except for names that rarely
//! change. The values shown may be slightly out of date; nothing depends on them except which clients CLIENT
//! KILL selects. Whether a client is busy or was killed is exact: CLIENT KILL promises that nothing runs after it.

use crate::telemetry::Telemetry;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use std::time::Duration;
use tokio::sync::Notify;

/// How often it is asked whether a killed client is gone.
const SETTLES: Duration = Duration::from_millis(1);

/// The window of `rbp`, as in Redis.
const PEAK_MS: u64 = 5000;
/// The client has logged in, or need not.
const LOGGED_IN: u64 = u64::MAX;
/// No command yet.
const NO_COMMAND: u32 = u32::MAX;

/// Properties that a client sets about itself; rarely change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The name set by CLIENT SETNAME.
    pub(crate) name: String,
    /// The ACL user, which may be any bytes.
    pub(crate) user: Bytes,
    /// CLIENT SETINFO LIB-NAME.
    pub(crate) lib_name: String,
    /// CLIENT SETINFO LIB-VER.
    pub(crate) lib_ver: String,
    /// The selected database.
    pub(crate) db: u8,
    /// 2 or 3.
    pub(crate) resp: u8,
    /// CLIENT NO-EVICT.
    pub(crate) no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub(crate) no_touch: bool,
}

/// One connected client, shared between its connection and the registry.
#[derive(Debug)]
pub struct ClientHandle {
    /// CLIENT ID.
    pub(crate) id: u64,
    /// The client's address.
    pub(crate) addr: String,
    /// The server's address that it connected to.
    pub(crate) laddr: String,
    /// The socket's file descriptor; -1 without one.
    pub(crate) fd: i32,
    connected: Duration,
    last_seen_ms: AtomicU64,
    /// When the client was first expected to log in; [`LOGGED_IN`] if it has, or need not.
    stranger_since_ms: AtomicU64,
    identity: Mutex<Identity>,
    /// The number of commands queued by MULTI; -1 outside.
    multi: AtomicI64,
    watching: AtomicU32,
    subscriptions: [AtomicU32; 3],
    query_used: AtomicU64,
    query_free: AtomicU64,
    argv: AtomicU64,
    queued: AtomicU64,
    reply_buffer: AtomicU64,
    reply_peak: AtomicU64,
    reply_peak_since_ms: AtomicU64,
    output: AtomicU64,
    replies: AtomicU64,
    reply_bytes: AtomicU64,
    command: AtomicU32,
    commands: AtomicU64,
    input_total: AtomicU64,
    output_total: AtomicU64,
    mail: AtomicU64,
    mail_bytes: AtomicU64,
    busy: AtomicBool,
    monitor: AtomicBool,
    /// CLIENT TRACKING: on, broken redirection, BCAST.
    tracking: [AtomicBool; 3],
    /// The client that gets the invalidations; -1: tracking is off.
    redirect: AtomicI64,
    blocked: AtomicBool,
    rung: AtomicBool,
    killed: AtomicBool,
    wake: Notify,
}

impl Default for ClientHandle {
    fn default() -> Self {
        ClientHandle::new(0, Peer::default(), Duration::ZERO)
    }
}

/// Both ends of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    /// The client's address, `ip:port`.
    pub(crate) addr: String,
    /// The server's address, `ip:port`.
    pub(crate) laddr: String,
    /// The socket's file descriptor; -1 without one.
    pub(crate) fd: i32,
}

impl ClientHandle {
    fn new(id: u64, peer: Peer, now: Duration) -> Self {
        ClientHandle {
            id,
            addr: peer.addr,
            laddr: peer.laddr,
            fd: peer.fd,
            connected: now,
            last_seen_ms: AtomicU64::new(millis(now)),
            stranger_since_ms: AtomicU64::new(LOGGED_IN),
            identity: Mutex::new(Identity {
                user: Bytes::from_static(b"default"),
                resp: 2,
                ..Identity::default()
            }),
            multi: AtomicI64::new(-1),
            watching: AtomicU32::new(0),
            subscriptions: Default::default(),
            query_used: AtomicU64::new(0),
            query_free: AtomicU64::new(0),
            argv: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            reply_buffer: AtomicU64::new(0),
            reply_peak: AtomicU64::new(0),
            reply_peak_since_ms: AtomicU64::new(millis(now)),
            output: AtomicU64::new(0),
            replies: AtomicU64::new(0),
            reply_bytes: AtomicU64::new(0),
            command: AtomicU32::new(NO_COMMAND),
            commands: AtomicU64::new(0),
            input_total: AtomicU64::new(0),
            output_total: AtomicU64::new(0),
            mail: AtomicU64::new(0),
            mail_bytes: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            monitor: AtomicBool::new(false),
            tracking: Default::default(),
            redirect: AtomicI64::new(-1),
            blocked: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }
    /// Records that the row at `index` runs for this client.
    pub(crate) fn on_command(&self, index: usize) {
        self.command.store(u32::try_from(index).unwrap_or(NO_COMMAND), Relaxed);
        self.commands.fetch_add(1, Relaxed);
    }
    /// Records that a command was refused, of the row at `index` or of none.
    pub(crate) fn on_refusal(&self, index: Option<usize>) {
        let index = index.and_then(|index| u32::try_from(index).ok());
        self.command.store(index.unwrap_or(NO_COMMAND), Relaxed);
    }
    /// Records that `n` bytes arrived at monotonic time `now`.
    pub(crate) fn on_read(&self, n: usize, now: Duration) {
        self.input_total.fetch_add(n as u64, Relaxed);
        let now = millis(now);
        self.last_seen_ms.store(now, Relaxed);
        if now.saturating_sub(self.reply_peak_since_ms.load(Relaxed)) >= PEAK_MS {
            self.reply_peak_since_ms.store(now, Relaxed);
            self.reply_peak.store(0, Relaxed);
        }
    }
    /// Records that `n` bytes were sent.
    pub(crate) fn on_write(&self, n: usize) {
        self.output_total.fetch_add(n as u64, Relaxed);
    }
    /// Sets the number of commands queued by MULTI and the bytes of their arguments; None outside a
    /// transaction.
    pub(crate) fn set_multi(&self, queued: Option<(usize, usize)>) {
        self.multi.store(queued.map_or(-1, |(n, _)| n as i64), Relaxed);
        self.queued.store(queued.map_or(0, |(_, bytes)| bytes as u64), Relaxed);
    }
    /// Sets the bytes of the arguments of requests that were read but not answered, without MULTI's queue.
    pub(crate) fn set_argv(&self, bytes: usize) {
        self.argv.store(bytes as u64, Relaxed);
    }
    /// Sets the bytes in the buffer of encoded replies, and the buffer's size.
    pub(crate) fn set_reply_buffer(&self, used: usize, size: usize) {
        self.reply_buffer.store(size as u64, Relaxed);
        if used as u64 > self.reply_peak.load(Relaxed) {
            self.reply_peak.store(used as u64, Relaxed);
        }
    }
    /// Sets the number and bytes of replies that are not encoded yet.
    pub(crate) fn set_replies(&self, waiting: usize, bytes: usize) {
        self.replies.store(waiting as u64, Relaxed);
        self.reply_bytes.store(bytes as u64, Relaxed);
    }
    /// Sets the number and bytes of messages that wait beside the replies.
    pub(crate) fn set_mail(&self, waiting: usize, bytes: usize) {
        self.mail.store(waiting as u64, Relaxed);
        self.mail_bytes.store(bytes as u64, Relaxed);
    }
    /// Whether the client is between MULTI and EXEC.
    pub(crate) fn is_in_multi(&self) -> bool {
        self.multi.load(Relaxed) >= 0
    }
    /// Sets the number of watched keys.
    pub(crate) fn set_watching(&self, keys: usize) {
        self.watching.store(keys as u32, Relaxed);
    }
    /// Sets the numbers of subscribed channels, patterns and shard channels.
    pub(crate) fn set_subscriptions(&self, counts: [usize; 3]) {
        for (cell, n) in self.subscriptions.iter().zip(counts) {
            cell.store(n as u32, Relaxed);
        }
    }
    /// Sets the buffered bytes of requests, and the free space in the buffer.
    pub(crate) fn set_query_buffer(&self, used: usize, free: usize) {
        self.query_used.store(used as u64, Relaxed);
        self.query_free.store(free as u64, Relaxed);
    }
    /// Sets the bytes of encoded replies that are being written.
    pub(crate) fn set_output(&self, waiting: usize) {
        self.output.store(waiting as u64, Relaxed);
    }
    /// Sets the client's names, protocol and database.
    pub(crate) fn set_identity(&self, identity: Identity) {
        *self.identity.lock() = identity;
    }
    /// The identity last set.
    pub(crate) fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }
    /// Sets whether the client sees every command (MONITOR).
    pub(crate) fn set_monitor(&self, on: bool) {
        self.monitor.store(on, Relaxed);
    }
    /// Sets CLIENT TRACKING: whether it is in BCAST mode, and the client that gets the invalidations, 0 for
    /// itself. None: tracking is off.
    pub(crate) fn set_tracking(&self, on: Option<(bool, u64)>) {
        let [tracks, broken, bcast] = &self.tracking;
        tracks.store(on.is_some(), Relaxed);
        broken.store(false, Relaxed);
        bcast.store(on.is_some_and(|(bcast, _)| bcast), Relaxed);
        self.redirect.store(on.map_or(-1, |(_, to)| to as i64), Relaxed);
    }
    /// Records that the client to which invalidations were redirected is gone.
    pub(crate) fn set_broken(&self) {
        let [_, broken, _] = &self.tracking;
        broken.store(true, Relaxed);
    }
    /// Whether the redirection is broken.
    pub(crate) fn is_broken(&self) -> bool {
        let [_, broken, _] = &self.tracking;
        broken.load(Relaxed)
    }
    /// Whether both clients are logged in as the same user.
    pub(crate) fn is_of_user_of(&self, other: &ClientHandle) -> bool {
        let user = self.identity.lock().user.clone();
        other.identity.lock().user == user
    }
    /// The client's protocol: 2 or 3.
    pub(crate) fn resp(&self) -> u8 {
        self.identity.lock().resp
    }
    /// The client that gets the invalidations; 0: itself, -1: tracking is off.
    pub(crate) fn redirect(&self) -> i64 {
        self.redirect.load(Relaxed)
    }
    /// Sets whether the client's commands are running.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, SeqCst);
    }
    /// Whether the client's commands are running.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(SeqCst)
    }
    /// Sets whether the client's commands wait, for a pause to end or for a key.
    pub(crate) fn set_blocked(&self, blocked: bool) {
        if self.blocked.load(Relaxed) != blocked {
            self.blocked.store(blocked, Relaxed);
        }
    }
    /// Whether the client's commands wait, for a pause to end or for a key.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Relaxed)
    }
    /// Records activity at monotonic time `now`.
    pub(crate) fn touch(&self, now: Duration) {
        self.last_seen_ms.store(millis(now), Relaxed);
    }
    /// Monotonic time of the last activity.
    pub(crate) fn last_seen(&self) -> Duration {
        Duration::from_millis(self.last_seen_ms.load(Relaxed))
    }
    /// Sets whether the client still has to log in, counted from its last activity.
    pub(crate) fn set_stranger(&self, stranger: bool) {
        let since = if stranger { self.last_seen_ms.load(Relaxed) } else { LOGGED_IN };
        self.stranger_since_ms.store(since, Relaxed);
    }
    /// How long the client has been expected to log in.
    pub(crate) fn stranger_for(&self, now: Duration) -> Duration {
        let since = self.stranger_since_ms.load(Relaxed);
        if since == LOGGED_IN { Duration::ZERO } else { now.saturating_sub(Duration::from_millis(since + 1)) }
    }
    /// Seconds since it connected.
    pub(crate) fn age(&self, now: Duration) -> u64 {
        now.saturating_sub(self.connected).as_secs()
    }
    /// Whether the client has any subscription.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscriptions.iter().any(|n| n.load(Relaxed) > 0)
    }
    /// Whether the client watches any key.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching.load(Relaxed) > 0
    }
    /// Asks the connection to close. May be called more than once.
    pub(crate) fn kill(&self) {
        self.kill_first();
    }
    /// The same. Whether it was the first time. If the client is not busy afterwards, nothing of it
    /// runs any more: it marks itself as busy before it asks whether it was killed.
    pub(crate) fn kill_first(&self) -> bool {
        let is_first = !self.killed.swap(true, SeqCst);
        self.wake.notify_waiters();
        self.wake.notify_one();
        is_first
    }
    /// Whether the connection was asked to close.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(SeqCst)
    }
    /// Returns once the connection was asked to close. Cancel safe.
    pub(crate) async fn killed(&self) {
        while !self.is_killed() {
            self.wake.notified().await;
        }
    }
    /// Wakes the connection because its client has mail. May be called more than once.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, std::sync::atomic::Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }
    /// Whether the connection was woken since the last call.
    pub(crate) fn take_ring(&self) -> bool {
        self.is_rung() && self.rung.swap(false, std::sync::atomic::Ordering::AcqRel)
    }
    /// Whether [`ClientHandle::take_ring`] would return true.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(std::sync::atomic::Ordering::Acquire)
    }
    /// Returns after [`ClientHandle::kill`] or [`ClientHandle::ring`], at once if either was called since the
    /// last time; check which. Only the connection may call this.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }
    /// Whether the client connected from this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.addr.parse::<SocketAddr>().is_ok_and(|a| a.ip().to_canonical().is_loopback())
    }
    /// Approximate bytes of buffers, arguments and replies held for the client.
    pub(crate) fn memory(&self) -> u64 {
        let held = [
            &self.query_used,
            &self.query_free,
            &self.argv,
            &self.queued,
            &self.reply_buffer,
            &self.reply_bytes,
            &self.mail_bytes,
        ];
        size_of::<Self>() as u64 + held.iter().map(|b| b.load(Relaxed)).sum::<u64>()
    }
    /// The recent peak of the reply buffer, in bytes.
    fn reply_peak(&self, now: Duration) -> u64 {
        let since = self.last_seen_ms.load(Relaxed).max(self.reply_peak_since_ms.load(Relaxed));
        if millis(now).saturating_sub(since) >= PEAK_MS { 0 } else { self.reply_peak.load(Relaxed) }
    }
    fn flags(&self, identity: &Identity) -> String {
        let [tracks, broken, bcast] = self.tracking.each_ref().map(|flag| flag.load(Relaxed));
        let flags = [
            (self.monitor.load(Relaxed), 'O'),
            (self.is_subscribed(), 'P'),
            (self.multi.load(Relaxed) >= 0, 'x'),
            (self.is_blocked(), 'b'),
            (tracks, 't'),
            (broken, 'R'),
            (bcast, 'B'),
            (self.is_killed(), 'A'),
            (identity.no_evict, 'e'),
            (identity.no_touch, 'T'),
        ];
        let set: String = flags.iter().filter(|(on, _)| *on).map(|(_, c)| *c).collect();
        if set.is_empty() { "N".into() } else { set }
    }
    /// The client's line in CLIENT LIST, without a newline.
    pub(crate) fn line(&self, now: Duration, telemetry: &Telemetry) -> String {
        let identity = self.identity();
        let load = |n: &AtomicU64| n.load(Relaxed);
        let [sub, psub, ssub] = self.subscriptions.each_ref().map(|n| n.load(Relaxed));
        let idle = now.saturating_sub(self.last_seen()).as_secs();
        let mut out = format!("id={} addr={} laddr={} fd={}", self.id, self.addr, self.laddr, self.fd);
        let _ = write!(
            out,
            " name={} age={} idle={idle} flags={} db={} sub={sub} psub={psub} ssub={ssub} multi={} watch={}",
            identity.name,
            self.age(now),
            self.flags(&identity),
            identity.db,
            self.multi.load(Relaxed),
            self.watching.load(Relaxed),
        );
        let _ = write!(
            out,
            " qbuf={} qbuf-free={} argv-mem={} multi-mem={} rbs={} rbp={} obl={} oll={} omem={} tot-mem={} events={} cmd={}",
            load(&self.query_used),
            load(&self.query_free),
            load(&self.argv),
            load(&self.queued),
            load(&self.reply_buffer),
            self.reply_peak(now),
            load(&self.output),
            load(&self.replies) + load(&self.mail),
            load(&self.reply_bytes) + load(&self.mail_bytes),
            self.memory(),
            if load(&self.output) > 0 { "w" } else { "r" },
            telemetry.label(self.command.load(Relaxed) as usize),
        );
        let _ = write!(
            out,
            " user={} redir={} resp={} lib-name={} lib-ver={} tot-net-in={} tot-net-out={} tot-cmds={}",
            String::from_utf8_lossy(&identity.user),
            self.redirect(),
            identity.resp,
            identity.lib_name,
            identity.lib_ver,
            load(&self.input_total),
            load(&self.output_total),
            load(&self.commands),
        );
        out
    }
}

fn millis(t: Duration) -> u64 {
    u64::try_from(t.as_millis()).unwrap_or(u64::MAX)
}

/// All connected clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Ordered by id, as CLIENT LIST shows them.
    connected: Mutex<BTreeMap<u64, Arc<ClientHandle>>>,
    last_id: AtomicU64,
    count: AtomicU64,
}

impl Clients {
    /// Registers a client that connected at monotonic time `now`. Ids start at 1 and are never reused.
    pub(crate) fn connect(&self, peer: Peer, now: Duration) -> Arc<ClientHandle> {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let handle = Arc::new(ClientHandle::new(id, peer, now));
        self.connected.lock().insert(id, handle.clone());
        self.count.fetch_add(1, Relaxed);
        handle
    }
    /// Removes a client whose connection has ended.
    pub(crate) fn disconnect(&self, id: u64) {
        if self.connected.lock().remove(&id).is_some() {
            self.count.fetch_sub(1, Relaxed);
        }
    }
    /// Returns once nothing of a killed client runs and it has left its channels, or once `by` was killed: it may run until
    /// then because it waits for `by`. Cancel safe.
    pub(crate) async fn gone(&self, client: &ClientHandle, by: &ClientHandle) {
        while (client.is_busy() || self.get(client.id).is_some()) && !by.is_killed() {
            tokio::time::sleep(SETTLES).await;
        }
    }
    /// The number of connected clients.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed) as usize
    }
    /// All connected clients, by id.
    pub(crate) fn all(&self) -> Vec<Arc<ClientHandle>> {
        self.connected.lock().values().cloned().collect()
    }
    /// The same without those that were asked to close: lists of clients leave them out.
    pub(crate) fn staying(&self) -> Vec<Arc<ClientHandle>> {
        let mut clients = self.all();
        clients.retain(|client| !client.is_killed());
        clients
    }
    /// The client with this id.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<ClientHandle>> {
        self.connected.lock().get(&id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_the_reply_buffer_is_that_of_the_last_seconds() {
        let client = ClientHandle::default();
        let at = Duration::from_millis;
        client.on_read(10, at(100));
        client.set_reply_buffer(500, 1024);
        client.set_reply_buffer(20, 1024);
        assert_eq!(client.reply_peak(at(200)), 500);
        assert_eq!(client.reply_peak(at(100 + PEAK_MS)), 0, "of an idle client");
        client.on_read(10, at(4900));
        assert_eq!(client.reply_peak(at(5000)), 500);
        client.on_read(10, at(5000));
        client.set_reply_buffer(20, 1024);
        assert_eq!(client.reply_peak(at(5001)), 20, "of a busy one");
    }
}
