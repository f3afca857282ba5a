//! The high-contention allocator: short numbers, each handed out once, to many concurrent transactions.
//!
//! FoundationDB's directory layer has the same one. Rows:
//! ```text
//! a <start u32 BE>     -> i64 LE   numbers taken from the window that starts there (atomic add)
//! r <number u32 BE>    -> empty    the number is taken
//! ```
//! The newest window is `[start, start + size)` of 64, 1024 or 8192 numbers; it advances when half of it is
//! taken, so that a random candidate is free with a probability above one half.
//!
//! Why two transactions never get the same number:
//! * `r <candidate>` is read serializably, and its winner adds a write conflict on it: of two transactions
//!   that saw the candidate free, the second to commit fails.
//! * Everything else is read as a snapshot. A candidate that turns out to be taken is written again *without*
//!   a write conflict, so transactions that only read it do not fail. Counters move by atomic adds, so they
//!   fail no transaction either.
//! * A transaction whose snapshot is older than an advance may still take a number of the old window: rows
//!   below the window are removed only by the advance itself, whose range clear makes that transaction fail.

use super::keys::root;
use crate::env::Rng;
use crate::error::{Result, StoreError};
use crate::store::{RangeOptions, Read, Tx};

/// Takes a number that no committed transaction has taken; it is taken when `tx` commits.
pub async fn allocate(tx: &Tx, rng: &mut Rng) -> Result<u32> {
    loop {
        let start = current_window(tx).await?;
        if let Some(number) = pick(tx, rng, start).await? {
            return Ok(number);
        }
    }
}

/// The size of the window that starts at `start`.
fn window_size(start: u32) -> u32 {
    match start {
        0..255 => 64,
        255..65_535 => 1024,
        _ => 8192,
    }
}

/// The start of the newest window, with this allocation counted in it; advances a window that is half full.
async fn current_window(tx: &Tx) -> Result<u32> {
    let mut start = newest(tx).await?;
    let mut advanced = false;
    loop {
        if advanced {
            tx.clear_range(&root::window(0), &root::window(start))?;
            tx.clear_range(&root::candidate(0), &root::candidate(start))?;
        }
        tx.add(&root::window(start), &1i64.to_le_bytes())?;
        let count = tx.get(&root::window(start), Read::Snapshot).await?;
        if counted(count.as_deref()) < u64::from(window_size(start) / 2) {
            return Ok(start);
        }
        start = start
            .checked_add(window_size(start))
            .ok_or_else(|| StoreError::Corrupt("the allocator has no numbers left".into()))?;
        advanced = true;
    }
}

/// Draws candidates of the window until one is free; None if the window has advanced meanwhile.
async fn pick(tx: &Tx, rng: &mut Rng, start: u32) -> Result<Option<u32>> {
    loop {
        let offset = rng.below(u64::from(window_size(start)));
        let candidate = start.saturating_add(u32::try_from(offset).unwrap_or(0));
        let row = root::candidate(candidate);
        let taken = tx.get(&row, Read::Serializable).await?;
        tx.set_without_conflict(&row, &[])?;
        if newest(tx).await? > start {
            return Ok(None);
        }
        if taken.is_none() {
            tx.add_write_conflict(&row, &crate::store::key_after(&row))?;
            return Ok(Some(candidate));
        }
    }
}

async fn newest(tx: &Tx) -> Result<u32> {
    let opts = RangeOptions { limit: 1, reverse: true, ..RangeOptions::default() };
    let rows = tx.get_range(b"a", b"b", opts, Read::Snapshot).await?;
    let Some((key, _)) = rows.pairs.first() else { return Ok(0) };
    let start = key.get(1..5).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
    Ok(start.ok_or_else(|| StoreError::Corrupt("the allocator's window does not decode".into()))?)
}

fn counted(row: Option<&[u8]>) -> u64 {
    row.and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}
