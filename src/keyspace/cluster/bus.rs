//! The message bus between servers that share a store.
//!
//! * **Listeners** have a row `p 00 <instance>`, with a bit for messages and one for changes of keys
//!   (`server::tracking`). A bit is set with the server's first client that needs it, and cleared some
//!   seconds after the last one. Both move the metadata version: so every transaction knows at no cost
//!   whether anybody listens, and one that was in flight when the first listener came runs again. Without
//!   listeners nothing is written or read.
//! * **Messages** are one stamped row per commit (several if long), written by the transaction itself. So
//!   messages are in the store if and only if their transaction is, in commit order, and all servers read
//!   them in that order.
//! * **Reading** continues behind the last row that was read, then waits for `p 01`, to which every such
//!   commit adds one, or for [`Bus::ring`]. A server reads all messages, whatever its subscribers want, as
//!   the nodes of a Redis Cluster do.
//! * **Subscribers** receive what is committed after the version that [`Bus::listen`] returns and nothing
//!   older, even if their server still has to read older messages.
//! * **Collection**: a job removes rows that are about a minute old; `p 02` says how far. A server that was
//!   away for longer, or was taken for dead, notices when it reads on ([`Heard::Missed`]), and disconnects
//!   its subscribers. While its row was gone nobody wrote for it, so it never writes that row again without
//!   checking that it still existed.
//!
//! An embedded store has one server, which delivers to its own clients without any of this. But the metadata
//! version moves there too when the first client wants changes of keys, so that transactions in flight that
//! would not publish them run again.

use super::messages::{LISTENS, Message, Origin, TRACKS, decode, encode};
use crate::error::{StoreError, StoreResult};
use crate::keyspace::catalog::Catalog;
use crate::keyspace::keys::root;
use crate::store::{RangeOptions, Read, Retries, Store, Tx, Version, Watch, key_after};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The most bytes of messages in a row.
const PIECE: usize = 90_000;
/// The bytes of one read.
const PAGE: usize = 1 << 20;
/// Attempts to publish outside a command's transaction.
const ATTEMPTS: u32 = 5;
/// The limit of one read, for a store that does not answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of changed keys in a commit; beyond that, it publishes that all keys may have changed.
const MANY: usize = 256 << 10;

/// Writes a transaction's messages.
pub(crate) fn write<'m>(tx: &Tx, messages: impl Iterator<Item = &'m Message> + Clone) -> StoreResult<()> {
    let changed = |m: &Message| if let Message::Changed(_, key) = m { key.len() + 32 } else { 0 };
    let raw = if messages.clone().map(changed).sum::<usize>() > MANY {
        let others = encode(messages.filter(|m| !m.is_of_tracking()));
        [others, encode([Message::Flushed(Origin::default())].iter())].concat()
    } else {
        encode(messages)
    };
    for (n, piece) in (0u32..).zip(raw.chunks(PIECE)) {
        tx.set_stamped(&root::messages(), &n.to_be_bytes(), piece)?;
    }
    tx.add(&root::bell(), &1u64.to_le_bytes())
}

/// Removes the row of a listener that no longer exists.
pub(super) async fn forget(tx: &Tx, instance: u64) -> StoreResult<()> {
    let row = root::listener(instance);
    if tx.get(&row, Read::Serializable).await?.is_some() {
        tx.clear(&row)?;
        tx.bump_metadata_version()?;
    }
    Ok(())
}

/// The position up to which a server has read.
#[derive(Debug)]
struct Cursor {
    from: Vec<u8>,
    /// The pieces read so far of a commit's messages, and its stamp.
    pieces: Vec<u8>,
    stamp: Vec<u8>,
    version: Version,
}

/// The result of [`Bus::hear`].
pub enum Heard {
    /// Messages with their commit versions.
    Messages(Vec<(Version, Message)>),
    /// No messages until the watch fires.
    Nothing(Watch),
    /// Some messages can no longer be read.
    Missed,
}

/// This server's end of the bus.
pub struct Bus {
    store: Store,
    instance: u64,
    /// Where to continue reading; None while this server does not listen.
    cursor: tokio::sync::Mutex<Option<Cursor>>,
    /// The bits that this server listens to; changes with `cursor` locked.
    wants: AtomicU8,
    interested: AtomicUsize,
    /// How often messages were missed.
    missed: AtomicUsize,
    /// Messages were missed, and [`Bus::hear`] has yet to report it. Changes with `cursor` locked.
    unsaid: AtomicBool,
    bell: Notify,
}

/// While it exists, this server does not stop listening.
pub(crate) struct Interest<'a>(&'a Bus);

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        self.0.interested.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Bus {
    /// The bus of the server `instance`, which does not listen yet.
    pub(crate) fn new(store: &Store, instance: u64) -> Self {
        Bus {
            store: store.clone(),
            instance,
            cursor: tokio::sync::Mutex::default(),
            wants: AtomicU8::new(0),
            interested: AtomicUsize::new(0),
            missed: AtomicUsize::new(0),
            unsaid: AtomicBool::new(false),
            bell: Notify::new(),
        }
    }

    /// Whether several servers may share the store.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// The bits that anybody listens to, for a transaction that sees `catalog`. Call it after reading the
    /// catalog.
    pub(crate) fn heard(&self, catalog: &Catalog) -> u8 {
        match self.is_shared() {
            true => catalog.listening,
            false => LISTENS | self.wants(),
        }
    }

    /// The bits that this server listens to.
    pub fn wants(&self) -> u8 {
        self.wants.load(Ordering::SeqCst)
    }

    /// Hold this from before [`Bus::listen`] until the subscription is entered.
    pub(crate) fn interest(&self) -> Interest<'_> {
        self.interested.fetch_add(1, Ordering::SeqCst);
        Interest(self)
    }

    /// Listens to `what` from now on: everything committed after the returned version will be heard.
    pub async fn listen(&self, what: u8) -> StoreResult<Version> {
        if !self.is_shared() {
            return self.listen_alone(what).await;
        }
        let mut cursor = self.cursor.lock().await;
        let wants = self.wants() | what;
        if cursor.is_some() && wants == self.wants() {
            let tx = self.store.begin();
            return tx.read_version().await;
        }
        let version = match self.register(cursor.as_ref(), wants).await? {
            Some(version) => version,
            None => {
                self.lose(&mut cursor);
                self.register(None, wants).await?.unwrap_or_default()
            }
        };
        self.wants.store(wants, Ordering::SeqCst);
        let from = root::messages_after(version);
        cursor.get_or_insert(Cursor { from, pieces: Vec::new(), stamp: Vec::new(), version });
        drop(cursor);
        self.ring();
        Ok(version)
    }

    /// Transactions that begin from now on publish changes; those that have begun run again.
    async fn listen_alone(&self, what: u8) -> StoreResult<Version> {
        let _one = self.cursor.lock().await;
        if what & TRACKS > self.wants() {
            self.wants.store(TRACKS, Ordering::SeqCst);
            if let Err(e) = self.register(None, TRACKS).await {
                self.wants.store(0, Ordering::SeqCst);
                return Err(e);
            }
            self.ring();
        }
        Ok(0)
    }

    /// Writes what this server listens to into its row. None, without a write, if it has been listening with
    /// `cursor` but was taken for dead, so that it has missed messages.
    async fn register(&self, cursor: Option<&Cursor>, wants: u8) -> StoreResult<Option<Version>> {
        let before = cursor.map(|_| self.wants());
        let mut retries = Retries::endless().idempotent();
        loop {
            match self.try_register(before, wants).await {
                Err(e) => retries.on_error(e)?,
                registered => return registered,
            }
        }
    }

    /// None if the row lacks bits of `before` that are still wanted.
    async fn try_register(&self, before: Option<u8>, wants: u8) -> StoreResult<Option<Version>> {
        let tx = self.store.begin();
        if self.is_shared() {
            let own = root::listener(self.instance);
            if let Some(before) = before {
                let row = tx.get(&own, Read::Serializable).await?;
                // An attempt with an unknown result may have removed the bits that are no longer wanted.
                if is_lost(row, before & wants) {
                    return Ok(None);
                }
            }
            tx.set(&own, &[wants])?;
        }
        tx.bump_metadata_version()?;
        tx.commit().await.map(Some)
    }

    /// Stops listening after missed messages; [`Bus::hear`] will report it.
    fn lose(&self, cursor: &mut Option<Cursor>) {
        *cursor = None;
        self.wants.store(0, Ordering::SeqCst);
        self.missed.fetch_add(1, Ordering::SeqCst);
        self.unsaid.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Whether [`Bus::hear`] has nothing to do until somebody listens.
    pub fn is_idle(&self) -> bool {
        self.wants() == 0 && !self.unsaid.load(Ordering::SeqCst)
    }

    /// Stops listening to what `wanted` does not return, unless somebody holds an `Interest`. Code that adds
    /// bits to `wanted` must hold one first.
    pub async fn relax(&self, wanted: impl Fn() -> u8) -> StoreResult<()> {
        let mut cursor = self.cursor.lock().await;
        let wants = self.wants() & wanted();
        if self.interested.load(Ordering::SeqCst) > 0 || wants == self.wants() {
            return Ok(());
        }
        if !self.is_shared() {
            self.wants.store(wants, Ordering::SeqCst);
        } else if wants > 0 {
            match self.register(cursor.as_ref(), wants).await? {
                Some(_) => self.wants.store(wants, Ordering::SeqCst),
                None => self.lose(&mut cursor),
            }
        } else {
            let tx = self.store.begin();
            forget(&tx, self.instance).await?;
            tx.commit().await?;
            self.wants.store(0, Ordering::SeqCst);
            *cursor = None;
        }
        Ok(())
    }

    /// Wakes the reader: there may be messages.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Returns after [`Bus::ring`].
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// How often this server has missed messages. A subscriber for which this number differs between before
    /// it listened and after it subscribed may have missed some, too.
    pub fn missed(&self) -> usize {
        self.missed.load(Ordering::SeqCst)
    }

    /// The messages since the last call, one page at a time. After [`Heard::Missed`] this server listens only
    /// if somebody has called [`Bus::listen`] since.
    pub async fn hear(&self) -> StoreResult<Heard> {
        let mut guard = self.cursor.lock().await;
        if self.unsaid.swap(false, Ordering::SeqCst) {
            return Ok(Heard::Missed);
        }
        let Some(cursor) = guard.as_mut() else { return Ok(Heard::Missed) };
        let tx = self.store.begin();
        tx.limit(PATIENCE);
        let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
        let (own, collected, end) = (root::listener(self.instance), root::collected(), root::messages_end());
        let (own, collected, page) = tokio::try_join!(
            tx.get(&own, Read::Snapshot),
            tx.get(&collected, Read::Snapshot),
            tx.get_range(&cursor.from, &end, opts, Read::Snapshot),
        )?;
        let lost = is_lost(own, self.wants());
        if lost || collected.is_some_and(|last| last[..] >= cursor.from[..]) {
            self.lose(&mut guard);
            self.unsaid.store(false, Ordering::SeqCst);
            return Ok(Heard::Missed);
        }
        if page.pairs.is_empty() && cursor.pieces.is_empty() {
            let watch = tx.watch(&root::bell())?;
            tx.commit().await?;
            return Ok(Heard::Nothing(watch));
        }
        let mut messages = Vec::new();
        for (key, piece) in &page.pairs {
            cursor.take(key, piece, &mut messages)?;
        }
        if !page.more {
            cursor.finish(&mut messages)?;
        }
        Ok(Heard::Messages(messages))
    }

    /// Publishes messages that belong to no command's transaction. They may be lost if the store fails.
    pub(crate) async fn publish(&self, messages: &[Message]) -> StoreResult<()> {
        let mut retries = Retries::new(ATTEMPTS);
        loop {
            let tx = self.store.begin();
            write(&tx, messages.iter())?;
            match tx.commit().await {
                Err(e) => retries.on_error(e)?,
                Ok(_) => {
                    self.ring();
                    return Ok(());
                }
            }
        }
    }

    /// The last row of messages.
    pub async fn last(&self) -> StoreResult<Option<Bytes>> {
        let opts = RangeOptions { limit: 1, reverse: true, ..RangeOptions::default() };
        let (from, to) = (root::messages(), root::messages_end());
        let page = self.store.begin().get_range(&from, &to, opts, Read::Snapshot).await?;
        Ok(page.pairs.into_iter().next().map(|(key, _)| key))
    }

    /// Removes the rows up to `last`, and records that for servers that read late.
    pub(crate) async fn collect(&self, last: &[u8]) -> StoreResult<()> {
        let tx = self.store.begin();
        let before = tx.get(&root::collected(), Read::Serializable).await?;
        if before.is_some_and(|before| before[..] >= last[..]) {
            return Ok(());
        }
        tx.set(&root::collected(), last)?;
        tx.clear_range(&root::messages(), &key_after(last))?;
        tx.commit().await.map(|_| ())
    }
}

/// Whether a listener's row is missing or lacks bits that the listener wants.
fn is_lost(row: Option<Bytes>, wants: u8) -> bool {
    row.and_then(|bits| bits.first().copied()).is_none_or(|bits| bits & wants != wants)
}

impl Cursor {
    /// Takes a row; if it is of another commit, the messages before it are complete.
    fn take(&mut self, key: &[u8], piece: &[u8], to: &mut Vec<(Version, Message)>) -> StoreResult<()> {
        let (version, stamp) = root::decode_message(key).ok_or_else(corrupt)?;
        if self.stamp != stamp {
            self.finish(to)?;
            (self.stamp, self.version) = (stamp.to_vec(), version);
        }
        self.pieces.extend_from_slice(piece);
        self.from = key_after(key);
        Ok(())
    }

    fn finish(&mut self, to: &mut Vec<(Version, Message)>) -> StoreResult<()> {
        let raw = Bytes::from(std::mem::take(&mut self.pieces));
        let messages = decode(raw).ok_or_else(corrupt)?;
        to.extend(messages.into_iter().map(|message| (self.version, message)));
        Ok(())
    }
}

fn corrupt() -> StoreError {
    StoreError::Corrupt("a row of messages does not decode".into())
}

/// The ages of rows, for the job that collects them: when each was first seen as the last row.
#[derive(Debug, Default)]
pub(crate) struct Ages(Mutex<Vec<(Duration, Bytes)>>);

impl Ages {
    /// Records that `last` is the last row at `now`. Returns the newest row seen at least `age` ago, once.
    pub(crate) fn see(&self, now: Duration, last: Option<Bytes>, age: Duration) -> Option<Bytes> {
        let mut seen = self.0.lock();
        if let Some(last) = last.filter(|last| seen.last().is_none_or(|(_, known)| known != last)) {
            seen.push((now, last));
        }
        let old = seen.partition_point(|(at, _)| now.saturating_sub(*at) >= age);
        seen.drain(..old).next_back().map(|(_, row)| row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_old_once_it_was_seen_long_ago() {
        let (ages, age) = (Ages::default(), Duration::from_secs(60));
        let see =
            |now, row: Option<&'static str>| ages.see(Duration::from_secs(now), row.map(Bytes::from), age);
        assert_eq!(see(0, None), None);
        assert_eq!(see(30, Some("a")), None);
        assert_eq!(see(60, Some("b")), None);
        assert_eq!(see(90, Some("b")), Some(Bytes::from("a")));
        assert_eq!(see(119, Some("c")), None);
        assert_eq!(see(200, None), Some(Bytes::from("c")));
        assert_eq!(see(300, None), None);
    }
}
