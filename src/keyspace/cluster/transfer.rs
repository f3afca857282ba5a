//! Copies a whole store into an empty one, from any engine to any engine.
//!
//! Rows are copied unchanged, in key order, in transactions far below the limits. Servers' own rows (`i`,
//! `l`) are left out. During the copy the target has a marker row, whose value is the key to continue from: a
//! server refuses to open such a store (`catalog.rs` reads the marker in the transaction that opens). If
//! interrupted, run the copy again: it resumes. Every transaction on the target reads the marker serializably
//! and writes it, so that
//! * a commit with an unknown result cannot be applied late, over later writes;
//! * two copies into one target exclude each other, and so do a copy and a server that opens the empty store.
//!
//! **Verified.** At the end both sides are read again from first to last and their counts and checksums are
//! compared, before the marker is removed. That takes several transactions, but is as good as one version of
//! both, because nobody writes: the target has its marker; an embedded source is locked by its directory; a
//! shared source is refused while any server of it beats ([`heartbeat_within`]). If a source changes during
//! the copy all the same, the checksums differ, the marker stays, and the next run starts over.

use super::instances::{self, Instance};
use crate::error::{StoreError, StoreResult};
use crate::keyspace::keys::root;
use crate::store::{Failure, RangeOptions, Read, Retries, Store, Tx, key_after};
use bytes::Bytes;
use std::collections::HashMap;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// The bytes of rows in one transaction.
const STEP: usize = 1 << 20;
/// One past the last key that we use in any engine.
const END: &[u8] = &[0xff];
/// Version of the marker's value.
const FORMAT: u8 = 1;
/// Attempts at one step while the store's errors are retryable.
const ATTEMPTS: u32 = 100;

/// Why nothing was copied, or the copy is incomplete.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The source is empty.
    #[error("the source holds no data of Tern")]
    NoData,
    /// A server of the source is running.
    #[error("the source is in use by the server at {0}: stop all of its servers first")]
    InUse(String),
    /// The source is the target of an unfinished copy.
    #[error("the source is incomplete: a copy into it has not finished; run that copy again first")]
    HalfSource,
    /// The target holds data.
    #[error("the target is not empty: nothing was copied")]
    NotEmpty,
    /// Another copy wrote the marker.
    #[error("another copy into this target is running")]
    Another,
    /// The two sides differ.
    #[error(
        "the copy ({to}) differs from its source ({from}): the target is unusable; run the copy again to start over"
    )]
    Differs {
        /// The source.
        from: Tally,
        /// The target.
        to: Tally,
    },
    /// An error of an engine. The rows copied so far stay, and so does the marker.
    #[error("{0}; the target is incomplete: run the copy again, it resumes")]
    Store(#[from] StoreError),
}

/// The number of rows, and a checksum over them in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The number of rows.
    pub rows: u64,
    /// The bytes of keys and values.
    pub bytes: u64,
    /// Xxh3-128 over all keys and values with their lengths; 0 while rows are still being copied.
    pub(crate) checksum: u128,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rows of {} bytes, checksum {:032x}", self.rows, self.bytes, self.checksum)
    }
}

/// The current stage of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Copying rows.
    Copying,
    /// Reading the source again.
    ReadingSource,
    /// Reading the target.
    ReadingTarget,
}

/// Copies `from` into `to` and verifies. `progress` receives every step: the stage, and its tally in this
/// call.
pub async fn copy(
    from: &Store,
    to: &Store,
    progress: &mut dyn FnMut(Stage, Tally),
) -> Result<Tally, CopyError> {
    check_source(from).await?;
    let mut mark = begin(to).await?;
    let mut done = Tally::default();
    let mut page = read_page(from, &mark).await?;
    while !page.rows.is_empty() {
        let (written, next) =
            tokio::join!(write_page(to, &mark, &page), async { read_page(from, &page.next).await });
        written?;
        done.rows += page.rows.len() as u64;
        done.bytes += size(&page.rows);
        progress(Stage::Copying, done);
        mark = std::mem::replace(&mut page, next?).next;
    }
    let source = tally(from, &mut |done| progress(Stage::ReadingSource, done)).await?;
    let target = tally(to, &mut |done| progress(Stage::ReadingTarget, done)).await?;
    if source != target {
        replace_mark(to, &mark, Some(b"")).await?;
        return Err(CopyError::Differs { from: source, to: target });
    }
    replace_mark(to, &mark, None).await?;
    Ok(target)
}

/// A server whose row changes within `wait`, if any: then `store` is in use.
pub async fn heartbeat_within(store: &Store, wait: Duration) -> StoreResult<Option<Instance>> {
    let before: HashMap<u64, Instance> = instances::read(&store.begin()).await?.into_iter().collect();
    if before.is_empty() {
        return Ok(None);
    }
    tokio::time::sleep(wait).await;
    let after = instances::read(&store.begin()).await?;
    let changed = after.into_iter().find(|(id, row)| before.get(id) != Some(row));
    Ok(changed.map(|(_, row)| row))
}

/// Counts and checksums all rows that a copy includes.
pub async fn tally(store: &Store, progress: &mut dyn FnMut(Tally)) -> StoreResult<Tally> {
    let mut hash = Xxh3::new();
    let mut done = Tally::default();
    let mut from = Vec::new();
    loop {
        let page = read_page(store, &from).await?;
        if page.rows.is_empty() {
            return Ok(Tally { checksum: hash.digest128(), ..done });
        }
        for (key, value) in &page.rows {
            for part in [key, value] {
                hash.update(&(part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        done.rows += page.rows.len() as u64;
        done.bytes += size(&page.rows);
        progress(done);
        from = page.next;
    }
}

async fn check_source(from: &Store) -> Result<(), CopyError> {
    if from.is_shared()
        && let Some(server) = heartbeat_within(from, instances::Pace::of(from).alive).await?
    {
        return Err(CopyError::InUse(server.address));
    }
    let tx = from.begin();
    if tx.get(&root::half_copied(), Read::Snapshot).await?.is_some() {
        return Err(CopyError::HalfSource);
    }
    match tx.get(&root::database(0), Read::Snapshot).await? {
        Some(_) => Ok(()),
        None => Err(CopyError::NoData),
    }
}

/// The key to continue from. Marks an empty target; clears one whose copy must start over.
async fn begin(to: &Store) -> Result<Vec<u8>, CopyError> {
    let mut retries = Retries::new(ATTEMPTS).idempotent();
    loop {
        match try_begin(to).await {
            Err(e) => retries.on_error(e)?,
            begun => return begun,
        }
    }
}

async fn try_begin(to: &Store) -> Result<Vec<u8>, CopyError> {
    let tx = to.begin();
    let at = match tx.get(&root::half_copied(), Read::Serializable).await? {
        Some(raw) => decode_mark(&raw)?,
        None => {
            let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
            let any = tx.get_range(&[], END, opts, Read::Serializable).await?;
            if !any.pairs.is_empty() {
                return Err(CopyError::NotEmpty);
            }
            Vec::new()
        }
    };
    if at.is_empty() {
        tx.clear_range(&[], END)?;
        tx.set(&root::half_copied(), &encode_mark(&at))?;
        tx.commit().await?;
    }
    Ok(at)
}

/// Rows in order, without servers' own and the marker, and the key where the next page begins.
struct Page {
    rows: Vec<(Bytes, Bytes)>,
    next: Vec<u8>,
}

/// The next rows; none at the end.
async fn read_page(store: &Store, from: &[u8]) -> StoreResult<Page> {
    let mut next = from.to_vec();
    let mut retries = Retries::new(ATTEMPTS);
    loop {
        let opts = RangeOptions { bytes: STEP, ..RangeOptions::default() };
        let page = match store.begin().get_range(&next, END, opts, Read::Snapshot).await {
            Err(e) => {
                retries.on_error(e)?;
                continue;
            }
            Ok(page) => page,
        };
        if let Some((key, _)) = page.pairs.last() {
            next = key_after(key);
        }
        let rows: Vec<_> = page.pairs.into_iter().filter(|(key, _)| root::is_data(key)).collect();
        if !rows.is_empty() || !page.more {
            return Ok(Page { rows, next });
        }
    }
}

async fn write_page(to: &Store, mark: &[u8], page: &Page) -> Result<(), CopyError> {
    change(to, mark, Some(&page.next), |tx| page.rows.iter().try_for_each(|(key, value)| tx.set(key, value)))
        .await
}

/// Moves the marker or, with None, removes it: then servers may open the store.
async fn replace_mark(to: &Store, mark: &[u8], next: Option<&[u8]>) -> Result<(), CopyError> {
    change(to, mark, next, |tx| if next.is_none() { tx.bump_metadata_version() } else { Ok(()) }).await
}

/// One transaction on the target, exactly once: from marker `mark` to marker `next`.
async fn change(
    to: &Store,
    mark: &[u8],
    next: Option<&[u8]>,
    write: impl Fn(&Tx) -> StoreResult<()>,
) -> Result<(), CopyError> {
    let (mut retries, mut doubt) = (Retries::new(ATTEMPTS).idempotent(), false);
    loop {
        match try_change(to, mark, next, doubt, &write).await {
            Err(e) => {
                doubt |= e.store().is_some_and(StoreError::may_have_committed);
                retries.on_error(e)?;
            }
            changed => return changed,
        }
    }
}

/// `doubt`: an earlier attempt may have been applied.
async fn try_change(
    to: &Store,
    mark: &[u8],
    next: Option<&[u8]>,
    doubt: bool,
    write: impl Fn(&Tx) -> StoreResult<()>,
) -> Result<(), CopyError> {
    let tx = to.begin();
    let key = root::half_copied();
    let now = tx.get(&key, Read::Serializable).await?;
    let now = now.as_deref().map(decode_mark).transpose()?;
    if doubt && now.as_deref() == next {
        return Ok(());
    }
    if now.as_deref() != Some(mark) {
        return Err(CopyError::Another);
    }
    write(&tx)?;
    match next {
        Some(next) => tx.set(&key, &encode_mark(next))?,
        None => tx.clear(&key)?,
    }
    tx.commit().await?;
    Ok(())
}

impl Failure for CopyError {
    fn store(&self) -> Option<&StoreError> {
        match self {
            CopyError::Store(e) => Some(e),
            _ => None,
        }
    }
}

fn encode_mark(at: &[u8]) -> Vec<u8> {
    [&[FORMAT], at].concat()
}

fn decode_mark(raw: &[u8]) -> StoreResult<Vec<u8>> {
    let at = raw.strip_prefix(&[FORMAT]);
    at.map(<[u8]>::to_vec).ok_or_else(|| StoreError::Corrupt("the marker of a copy does not decode".into()))
}

fn size(rows: &[(Bytes, Bytes)]) -> u64 {
    rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
}
