//! Scripts that were loaded: known to all servers of a store.
//!
//! A script's name is the digest of its text, so a server may remember one for ever; what changes is whether it is
//! *known*. SCRIPT FLUSH is a new epoch: a server takes a script that it remembers for known if it learned that in the epoch
//! which its transaction reads. Otherwise it looks for the script's row.
//!
//! The scripts in a store are bounded ([`MOST`], [`MOST_BYTES`]): whoever loads one too many removes those that were
//! loaded or used longest ago.

use super::keys::scripts::{Digest, ScriptRow};
use crate::error::{ReplyError, Result, StoreError};
use crate::store::{RangeOptions, Read, Tx};
use bytes::Bytes;

/// The longest text of a script that is loaded, in bytes.
pub(crate) const LONGEST: usize = 4 << 20;
/// The most scripts in a store, and bytes of their texts.
const MOST: u64 = if cfg!(test) { 20 } else { 10_000 };
const MOST_BYTES: u64 = 64 << 20;
/// Bytes of a text in one row.
pub(super) const PIECE: usize = 64 << 10;
/// Milliseconds after which the use of a script is recorded again.
const SELDOM: u64 = 24 * 3600 * 1000;

const TOO_LONG: ReplyError = ReplyError::new("ERR the script is too long to be loaded: at most 4 MB");

/// The row of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// When it was loaded or used, in milliseconds since 1970, within a day.
    pub used: u64,
    /// Bytes of its text.
    pub len: u32,
}

impl Header {
    /// The stored bytes.
    pub fn encode(&self) -> [u8; 12] {
        let mut row = [0; 12];
        let numbers = self.used.to_le_bytes().into_iter().chain(self.len.to_le_bytes());
        row.iter_mut().zip(numbers).for_each(|(to, from)| *to = from);
        row
    }

    /// Parses the stored bytes.
    pub fn decode(row: &[u8]) -> Option<Self> {
        let (used, len) = row.split_first_chunk()?;
        Some(Header { used: u64::from_le_bytes(*used), len: u32::from_le_bytes(len.try_into().ok()?) })
    }

    /// Whether its use should be recorded.
    pub(crate) fn is_old(&self, now: u64) -> bool {
        self.used.saturating_add(SELDOM) < now
    }
}

/// The scripts of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// How many there are.
    pub scripts: u64,
    /// Bytes of their texts.
    pub bytes: u64,
}

impl Total {
    /// The stored bytes.
    pub fn encode(&self) -> [u8; 16] {
        (u128::from(self.bytes) << 64 | u128::from(self.scripts)).to_le_bytes()
    }

    /// Parses the stored bytes.
    pub fn decode(row: &[u8]) -> Option<Self> {
        let both = u128::from_le_bytes(row.try_into().ok()?);
        Some(Total { scripts: both as u64, bytes: (both >> 64) as u64 })
    }
}

fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(format!("the rows of a script do not decode: {what}"))
}

/// The epoch that a transaction sees.
pub(crate) async fn epoch(tx: &Tx, read: Read) -> Result<u64> {
    let row = tx.get(&ScriptRow::Epoch.key(), read).await?;
    let epoch = row.map(|row| row[..].try_into().map(u64::from_le_bytes));
    Ok(epoch.transpose().map_err(|_| corrupt("the epoch"))?.unwrap_or_default())
}

/// The row of a script that was loaded.
pub(crate) async fn header(tx: &Tx, digest: &Digest, read: Read) -> Result<Option<Header>> {
    let row = tx.get(&ScriptRow::Script(*digest).key(), read).await?;
    Ok(row.map(|row| Header::decode(&row).ok_or_else(|| corrupt("its row"))).transpose()?)
}

/// The text of a script that was loaded.
pub(crate) async fn find(tx: &Tx, digest: &Digest, read: Read) -> Result<Option<(Header, Bytes)>> {
    let Some(header) = header(tx, digest, read).await? else { return Ok(None) };
    let (begin, end) = ScriptRow::pieces(Some(digest));
    let rows = tx.get_range(&begin, &end, RangeOptions::default(), Read::Snapshot).await?;
    let mut text = Vec::with_capacity(header.len as usize);
    rows.pairs.iter().for_each(|(_, piece)| text.extend_from_slice(piece));
    if text.len() != header.len as usize {
        return Err(corrupt("its text has another length").into());
    }
    Ok(Some((header, text.into())))
}

/// Stores a script, or records its use.
pub(crate) async fn load(tx: &Tx, digest: &Digest, text: &[u8], now: u64) -> Result<()> {
    let len = u32::try_from(text.len()).ok().filter(|_| text.len() <= LONGEST).ok_or(TOO_LONG)?;
    let loaded = Header { used: now, len };
    match header(tx, digest, Read::Serializable).await? {
        Some(known) if !known.is_old(now) => return Ok(()),
        Some(_) => return record_use(tx, digest, loaded),
        None => {}
    }
    let total = tx.get(&ScriptRow::Total.key(), Read::Serializable).await?;
    let total = total.map(|row| Total::decode(&row).ok_or_else(|| corrupt("the total"))).transpose()?;
    let mut total = total.unwrap_or_default();
    total.scripts += 1;
    total.bytes += u64::from(len);
    if total.scripts > MOST || total.bytes > MOST_BYTES {
        make_room(tx, &mut total).await?;
    }
    tx.set(&ScriptRow::Total.key(), &total.encode())?;
    record_use(tx, digest, loaded)?;
    for (n, piece) in (0..).zip(text.chunks(PIECE)) {
        tx.set(&ScriptRow::Piece(*digest, n).key(), piece)?;
    }
    Ok(())
}

/// Records when a script was used.
pub(crate) fn record_use(tx: &Tx, digest: &Digest, header: Header) -> Result<()> {
    Ok(tx.set(&ScriptRow::Script(*digest).key(), &header.encode())?)
}

/// Removes those that were used longest ago, until a tenth of the room is free.
async fn make_room(tx: &Tx, total: &mut Total) -> Result<()> {
    let (begin, end) = ScriptRow::scripts();
    let rows = tx.get_range(&begin, &end, RangeOptions::default(), Read::Serializable).await?;
    let all = rows.pairs.iter().map(|(key, row)| Some((Header::decode(row)?, ScriptRow::digest_of(key)?)));
    let mut all: Vec<(Header, Digest)> = all.collect::<Option<_>>().ok_or_else(|| corrupt("a row"))?;
    all.sort_unstable_by_key(|(header, _)| header.used);
    for (header, digest) in all {
        if total.scripts <= MOST / 10 * 9 && total.bytes <= MOST_BYTES / 10 * 9 {
            break;
        }
        tx.clear(&ScriptRow::Script(digest).key())?;
        let (begin, end) = ScriptRow::pieces(Some(&digest));
        tx.clear_range(&begin, &end)?;
        total.scripts = total.scripts.saturating_sub(1);
        total.bytes = total.bytes.saturating_sub(header.len.into());
    }
    Ok(())
}

/// Forgets all scripts.
pub(crate) async fn flush(tx: &Tx) -> Result<()> {
    // Each flush has an epoch of its own.
    let epoch = epoch(tx, Read::Serializable).await?;
    tx.set(&ScriptRow::Epoch.key(), &(epoch + 1).to_le_bytes())?;
    let ((begin, end), (from, to)) = (ScriptRow::scripts(), ScriptRow::pieces(None));
    tx.clear_range(&begin, &end)?;
    tx.clear_range(&from, &to)?;
    tx.clear(&ScriptRow::Total.key())?;
    Ok(())
}
