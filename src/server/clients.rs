//! The registry of connected clients: CLIENT LIST, CLIENT KILL.
//!
//! A connection holds its [`ClientHandle`] and writes into it without locks, except for names that change rarely. What is
//! shown may be a moment old; nothing is decided by it but whom CLIENT KILL means.

use crate::telemetry::Telemetry;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;

/// How far `rbp` looks back, as in Redis.
const PEAK_MS: u64 = 5000;
/// Not a stranger.
const LOGGED_IN: u64 = u64::MAX;
/// No command yet.
const NO_COMMAND: u32 = u32::MAX;

/// What a client says or is told about itself; changes rarely.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// CLIENT SETNAME.
    pub name: String,
    /// The ACL user: any bytes.
    pub user: Bytes,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: String,
    /// CLIENT SETINFO LIB-VER.
    pub lib_ver: String,
    /// Selected database.
    pub db: u8,
    /// 2 or 3.
    pub resp: u8,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
}

/// One connected client, shared between its connection and the registry.
#[derive(Debug)]
pub struct ClientHandle {
    /// CLIENT ID.
    pub id: u64,
    /// The client's address.
    pub addr: String,
    /// The server's address that it connected to.
    pub laddr: String,
    /// The socket's number, -1 where there is none.
    pub fd: i32,
    connected: Duration,
    last_seen_ms: AtomicU64,
    /// Since when it should have logged in; [`LOGGED_IN`] where it has, or need not.
    stranger_since_ms: AtomicU64,
    identity: Mutex<Identity>,
    /// Commands queued by MULTI; -1 outside.
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
    /// CLIENT TRACKING: on, its redirection is broken, BCAST.
    tracking: [AtomicBool; 3],
    /// Where invalidations go; -1: tracking is off.
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
pub struct Peer {
    /// The client's address, `ip:port`.
    pub addr: String,
    /// The server's address, `ip:port`.
    pub laddr: String,
    /// The socket's number, -1 where there is none.
    pub fd: i32,
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
    /// The row at `index` is run for this client.
    pub fn on_command(&self, index: usize) {
        self.command.store(u32::try_from(index).unwrap_or(NO_COMMAND), Relaxed);
        self.commands.fetch_add(1, Relaxed);
    }
    /// A command was refused, of the row at `index` or of none.
    pub fn on_refusal(&self, index: Option<usize>) {
        let index = index.and_then(|index| u32::try_from(index).ok());
        self.command.store(index.unwrap_or(NO_COMMAND), Relaxed);
    }
    /// `n` bytes came at monotonic time `now`.
    pub fn on_read(&self, n: usize, now: Duration) {
        self.input_total.fetch_add(n as u64, Relaxed);
        let now = millis(now);
        self.last_seen_ms.store(now, Relaxed);
        if now.saturating_sub(self.reply_peak_since_ms.load(Relaxed)) >= PEAK_MS {
            self.reply_peak_since_ms.store(now, Relaxed);
            self.reply_peak.store(0, Relaxed);
        }
    }
    /// `n` bytes were sent.
    pub fn on_write(&self, n: usize) {
        self.output_total.fetch_add(n as u64, Relaxed);
    }
    /// Commands queued by MULTI and the bytes of their arguments, None outside a transaction.
    pub fn set_multi(&self, queued: Option<(usize, usize)>) {
        self.multi.store(queued.map_or(-1, |(n, _)| n as i64), Relaxed);
        self.queued.store(queued.map_or(0, |(_, bytes)| bytes as u64), Relaxed);
    }
    /// Bytes of the arguments of requests that were read and are not answered, without MULTI's queue.
    pub fn set_argv(&self, bytes: usize) {
        self.argv.store(bytes as u64, Relaxed);
    }
    /// The buffer of encoded replies: bytes in it, and its size.
    pub fn set_reply_buffer(&self, used: usize, size: usize) {
        self.reply_buffer.store(size as u64, Relaxed);
        if used as u64 > self.reply_peak.load(Relaxed) {
            self.reply_peak.store(used as u64, Relaxed);
        }
    }
    /// Replies that wait to be encoded, and the bytes that they hold.
    pub fn set_replies(&self, waiting: usize, bytes: usize) {
        self.replies.store(waiting as u64, Relaxed);
        self.reply_bytes.store(bytes as u64, Relaxed);
    }
    /// Messages that wait for it beside its replies, and the bytes that they hold.
    pub fn set_mail(&self, waiting: usize, bytes: usize) {
        self.mail.store(waiting as u64, Relaxed);
        self.mail_bytes.store(bytes as u64, Relaxed);
    }
    /// Whether it is between MULTI and EXEC.
    pub fn is_in_multi(&self) -> bool {
        self.multi.load(Relaxed) >= 0
    }
    /// Number of watched keys.
    pub fn set_watching(&self, keys: usize) {
        self.watching.store(keys as u32, Relaxed);
    }
    /// Channels, patterns and shard channels subscribed to.
    pub fn set_subscriptions(&self, counts: [usize; 3]) {
        for (cell, n) in self.subscriptions.iter().zip(counts) {
            cell.store(n as u32, Relaxed);
        }
    }
    /// Bytes of requests that are buffered, and room left in the buffer.
    pub fn set_query_buffer(&self, used: usize, free: usize) {
        self.query_used.store(used as u64, Relaxed);
        self.query_free.store(free as u64, Relaxed);
    }
    /// Bytes of encoded replies that are being written.
    pub fn set_output(&self, waiting: usize) {
        self.output.store(waiting as u64, Relaxed);
    }
    /// What the client is called, speaks and has selected.
    pub fn set_identity(&self, identity: Identity) {
        *self.identity.lock() = identity;
    }
    /// What was last set.
    pub fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }
    /// Whether it sees every command (MONITOR).
    pub fn set_monitor(&self, on: bool) {
        self.monitor.store(on, Relaxed);
    }
    /// CLIENT TRACKING: whether for prefixes, and the client to whom invalidations go, 0 for none. None: it is off.
    pub fn set_tracking(&self, on: Option<(bool, u64)>) {
        let [tracks, broken, bcast] = &self.tracking;
        tracks.store(on.is_some(), Relaxed);
        broken.store(false, Relaxed);
        bcast.store(on.is_some_and(|(bcast, _)| bcast), Relaxed);
        self.redirect.store(on.map_or(-1, |(_, to)| to as i64), Relaxed);
    }
    /// The client to whom invalidations went is not there any more.
    pub fn set_broken(&self) {
        let [_, broken, _] = &self.tracking;
        broken.store(true, Relaxed);
    }
    /// What was last set.
    pub fn is_broken(&self) -> bool {
        let [_, broken, _] = &self.tracking;
        broken.load(Relaxed)
    }
    /// Whether it has logged in as the same user as another one.
    pub fn is_of_user_of(&self, other: &ClientHandle) -> bool {
        let user = self.identity.lock().user.clone();
        other.identity.lock().user == user
    }
    /// The protocol that it speaks: 2 or 3.
    pub fn resp(&self) -> u8 {
        self.identity.lock().resp
    }
    /// To whom invalidations go; 0: to itself, -1: tracking is off.
    pub fn redirect(&self) -> i64 {
        self.redirect.load(Relaxed)
    }
    /// Whether a unit of its commands runs.
    pub fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Relaxed);
    }
    /// What was last set.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Relaxed)
    }
    /// Whether its commands wait for the end of a pause.
    pub fn set_blocked(&self, blocked: bool) {
        if self.blocked.load(Relaxed) != blocked {
            self.blocked.store(blocked, Relaxed);
        }
    }
    /// What was last set.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Relaxed)
    }
    /// It is alive at monotonic time `now`.
    pub fn touch(&self, now: Duration) {
        self.last_seen_ms.store(millis(now), Relaxed);
    }
    /// Monotonic time of the last sign of life.
    pub fn last_seen(&self) -> Duration {
        Duration::from_millis(self.last_seen_ms.load(Relaxed))
    }
    /// Whether it has to log in first, from the last sign of life on.
    pub fn set_stranger(&self, stranger: bool) {
        let since = if stranger { self.last_seen_ms.load(Relaxed) } else { LOGGED_IN };
        self.stranger_since_ms.store(since, Relaxed);
    }
    /// How long it has been asked to log in and has not.
    pub fn stranger_for(&self, now: Duration) -> Duration {
        let since = self.stranger_since_ms.load(Relaxed);
        if since == LOGGED_IN { Duration::ZERO } else { now.saturating_sub(Duration::from_millis(since + 1)) }
    }
    /// Seconds since it connected.
    pub fn age(&self, now: Duration) -> u64 {
        now.saturating_sub(self.connected).as_secs()
    }
    /// Whether it is subscribed to anything.
    pub fn is_subscribed(&self) -> bool {
        self.subscriptions.iter().any(|n| n.load(Relaxed) > 0)
    }
    /// Whether it watches any key.
    pub fn is_watching(&self) -> bool {
        self.watching.load(Relaxed) > 0
    }
    /// Asks the connection to close. It may be asked more than once.
    pub fn kill(&self) {
        self.killed.store(true, std::sync::atomic::Ordering::Release);
        self.wake.notify_waiters();
        self.wake.notify_one();
    }
    /// Whether it was asked to close.
    pub fn is_killed(&self) -> bool {
        self.killed.load(std::sync::atomic::Ordering::Acquire)
    }
    /// Returns once it was asked to close. Cancel safe.
    pub async fn killed(&self) {
        while !self.is_killed() {
            self.wake.notified().await;
        }
    }
    /// Tells the connection that there is mail for its client. It may be told more than once.
    pub fn ring(&self) {
        if !self.rung.swap(true, std::sync::atomic::Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }
    /// Whether the connection was told so since the last call.
    pub fn take_ring(&self) -> bool {
        self.is_rung() && self.rung.swap(false, std::sync::atomic::Ordering::AcqRel)
    }
    /// Whether [`ClientHandle::take_ring`] would find that it was.
    pub fn is_rung(&self) -> bool {
        self.rung.load(std::sync::atomic::Ordering::Acquire)
    }
    /// Returns after [`ClientHandle::kill`] or [`ClientHandle::ring`], at once where there was one since the last call: look
    /// which. For the connection alone.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
    /// Whether it connected from this machine.
    pub fn is_local(&self) -> bool {
        self.addr.parse::<SocketAddr>().is_ok_and(|a| a.ip().to_canonical().is_loopback())
    }
    /// Bytes of buffers, arguments and replies that are held for it, roughly.
    pub fn memory(&self) -> u64 {
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
    /// Most bytes in the buffer of replies, lately.
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
    /// The client's line in CLIENT LIST, without a line break.
    pub fn line(&self, now: Duration, telemetry: &Telemetry) -> String {
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
pub struct Clients {
    /// Ordered by id, as CLIENT LIST shows them.
    connected: Mutex<BTreeMap<u64, Arc<ClientHandle>>>,
    last_id: AtomicU64,
    count: AtomicU64,
}

impl Clients {
    /// Registers a client that connected at monotonic time `now`. Ids start at 1 and are never reused.
    pub fn connect(&self, peer: Peer, now: Duration) -> Arc<ClientHandle> {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let handle = Arc::new(ClientHandle::new(id, peer, now));
        self.connected.lock().insert(id, handle.clone());
        self.count.fetch_add(1, Relaxed);
        handle
    }
    /// Removes a client whose connection has ended.
    pub fn disconnect(&self, id: u64) {
        if self.connected.lock().remove(&id).is_some() {
            self.count.fetch_sub(1, Relaxed);
        }
    }
    /// How many are connected.
    pub fn len(&self) -> usize {
        self.count.load(Relaxed) as usize
    }
    /// True where none is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All that are connected now, by id.
    pub fn all(&self) -> Vec<Arc<ClientHandle>> {
        self.connected.lock().values().cloned().collect()
    }
    /// The client with this id.
    pub fn get(&self, id: u64) -> Option<Arc<ClientHandle>> {
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
