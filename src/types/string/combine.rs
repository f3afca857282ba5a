//! BITOP: strings combined bit by bit, piece by piece. Pieces that no source has cost nothing: where a result of zeroes follows
//! from that, they are jumped over.
//!
//! A result is written in the command's transaction where that can hold it ([`combine`]); else [`stage`] builds it, as
//! [`crate::types::staged`] says. Others get their turn after each piece that takes time.

use super::walk::{STEP, own_piece};
use super::{INLINE_MAX, PIECE, inline, is_zero, len, piece_of};
use crate::error::{Error, Result, StoreError, StoreResult};
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::record::{Str, Value};
use crate::keyspace::{Keyspace, Scope};
use crate::store::{MAX_TRANSACTION, RangeOptions, Read, Tx};
use crate::types::object::{self, Slot};
use crate::types::staged::{self, Builder, Object, Row};
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use tokio::task::yield_now;

/// BITOP's operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitOp {
    /// Ones where all have ones.
    And,
    /// Ones where any has one.
    Or,
    /// Ones where an odd number have ones.
    Xor,
    /// Ones where the only source has zeroes.
    Not,
}

/// Bytes that all sources together read ahead, about.
const AHEAD: usize = 16 * STEP;

/// One of the strings that are combined.
struct Source {
    rows: Option<(Prefix, Oid)>,
    len: u64,
    /// Pieces that were read and are not used yet, ascending.
    ahead: VecDeque<(u32, Bytes)>,
    /// All pieces before it were read.
    seen: u32,
}

impl Source {
    fn new(db: Prefix, value: &Str) -> Self {
        let (rows, ahead) = match (value, inline(value)) {
            (Str::Pieces { oid, .. }, _) => (Some((db, *oid)), VecDeque::new()),
            (_, Some(bytes)) => (None, VecDeque::from([(0, bytes.clone())])),
            (_, None) => (None, VecDeque::new()),
        };
        let seen = if rows.is_some() { 0 } else { u32::MAX };
        Source { rows, len: len(value), ahead, seen }
    }

    /// The number of its first piece from `n` on. None: it has no more.
    async fn next(&mut self, tx: &Tx, n: u32, step: usize) -> StoreResult<Option<u32>> {
        while self.ahead.front().is_some_and(|(at, _)| *at < n) {
            self.ahead.pop_front();
        }
        if self.ahead.is_empty()
            && let Some((db, oid)) = self.rows
            && self.seen <= piece_of(self.len.saturating_sub(1))
        {
            let (from, to) = (db.piece(oid, self.seen.max(n)), db.pieces_end(oid));
            let opts = RangeOptions { bytes: step, ..RangeOptions::default() };
            let page = tx.get_range(&from, &to, opts, Read::Snapshot).await?;
            for (row, bytes) in page.pairs {
                self.ahead.push_back((own_piece(db, oid, &row, &bytes)?, bytes));
            }
            let last = self.ahead.back().filter(|_| page.more);
            self.seen = last.map_or(u32::MAX, |(n, _)| n.saturating_add(1));
        }
        Ok(self.ahead.front().map(|(n, _)| *n))
    }

    /// Piece `n`, after [`Source::next`]. None: zeroes.
    fn piece(&self, n: u32) -> Option<&Bytes> {
        self.ahead.front().filter(|(at, _)| *at == n).map(|(_, bytes)| bytes)
    }
}

/// The pieces of a combination, one after the other.
struct Combination {
    op: BitOp,
    sources: Vec<Source>,
    /// Bytes of the result.
    total: u64,
    /// The piece that comes next.
    next: u32,
}

impl Combination {
    /// As long as the longest source; a missing one is empty. Sources that are the same string twice are read once.
    fn new(db: Prefix, op: BitOp, sources: &[Option<Str>]) -> Self {
        let total = sources.iter().flatten().map(len).max().unwrap_or(0);
        let one_is_missing = op == BitOp::And && sources.iter().any(Option::is_none);
        let mut times: HashMap<Oid, usize> = HashMap::new();
        let (mut distinct, mut ahead) = (Vec::new(), Vec::new());
        for source in sources.iter().flatten().filter(|_| !one_is_missing) {
            match source {
                Str::Pieces { oid, .. } => {
                    let times = times.entry(*oid).or_default();
                    *times += 1;
                    if *times == 1 {
                        distinct.push((*oid, source));
                    }
                }
                Str::Inline(_) | Str::Made { .. } => ahead.push(Source::new(db, source)),
            }
        }
        let counts = |oid| op != BitOp::Xor || times.get(oid).is_some_and(|times| times % 2 == 1);
        let read = distinct.iter().filter(|(oid, _)| counts(oid)).map(|(_, value)| Source::new(db, value));
        Combination { op, sources: read.chain(ahead).collect(), total, next: 0 }
    }

    /// The next piece that is not all zeroes, and its number.
    async fn next(&mut self, tx: &Tx) -> StoreResult<Option<(u32, Vec<u8>)>> {
        let step = (AHEAD / self.sources.len().max(1)).clamp(1, STEP);
        loop {
            let begin = u64::from(self.next) * PIECE as u64;
            if begin >= self.total {
                return Ok(None);
            }
            let mut there = self.op == BitOp::Not;
            let mut jump = None;
            for (at, source) in self.sources.iter_mut().enumerate() {
                let first = source.next(tx, self.next, step).await?.unwrap_or(u32::MAX);
                there |= first == self.next;
                jump = match (jump, self.op) {
                    (None, _) => Some(first),
                    (Some(jump), BitOp::And) => Some(first.max(jump)),
                    (Some(jump), _) => Some(first.min(jump)),
                };
                breathe(at).await;
            }
            let jump = jump.unwrap_or(u32::MAX);
            if !there || self.op == BitOp::And && jump > self.next {
                self.next = jump;
                yield_now().await;
                continue;
            }
            let n = self.next;
            self.next += 1;
            let bytes = self.piece(n, (self.total - begin).min(PIECE as u64) as usize).await;
            yield_now().await;
            if !is_zero(&bytes) {
                return Ok(Some((n, bytes)));
            }
        }
    }

    async fn piece(&self, n: u32, length: usize) -> Vec<u8> {
        let mut pieces = self.sources.iter().map(|source| source.piece(n).map_or(&[][..], |bytes| bytes));
        let mut out = pieces.next().unwrap_or_default().to_vec();
        out.resize(length, 0);
        if self.op == BitOp::Not {
            out.iter_mut().for_each(|byte| *byte = !*byte);
        }
        for (at, piece) in pieces.enumerate() {
            breathe(at).await;
            match self.op {
                BitOp::And => {
                    lay(&mut out, piece, |a, b| a & b);
                    out.iter_mut().skip(piece.len()).for_each(|byte| *byte = 0);
                }
                BitOp::Or => lay(&mut out, piece, |a, b| a | b),
                BitOp::Xor | BitOp::Not => lay(&mut out, piece, |a, b| a ^ b),
            }
        }
        out
    }
}

/// Lets others come first after every few sources.
async fn breathe(source: usize) {
    if source % 64 == 63 {
        yield_now().await;
    }
}

fn lay(out: &mut [u8], piece: &[u8], f: impl Fn(u8, u8) -> u8) {
    out.iter_mut().zip(piece).for_each(|(to, from)| *to = f(*to, *from));
}

/// Stored bytes that a combination of `sources` works through at most.
pub fn weight(sources: &[Option<Str>]) -> u64 {
    sources.iter().flatten().map(len).fold(0, u64::saturating_add)
}

/// Makes `target` the combination of `sources`, as long as the longest; shorter ones go on with zeroes. Without a byte
/// the key is removed. Its expiry goes. Returns the length in bytes. [`StoreError::TooLarge`]: what is not zero exceeds a
/// transaction, and is to be built by [`stage`].
pub async fn combine(
    s: &Scope<'_>,
    staged: &[staged::Staged],
    target: &mut Slot,
    op: BitOp,
    sources: &[Option<Str>],
) -> Result<u64> {
    let mut combination = Combination::new(s.db, op, sources);
    let total = combination.total;
    if total == 0 {
        object::remove(s, target)?;
        return Ok(0);
    }
    object::check_name(&target.key)?;
    if let Some(built) = staged::result(staged) {
        built.take(s, s).await?;
        let value = Str::Pieces { oid: built.oid(), len: built.len() };
        object::put(s, target, Value::Str(value), None)?;
        return Ok(built.len());
    }
    let value = if total <= INLINE_MAX as u64 {
        let bytes = combination.next(s.tx).await?.map_or_else(|| vec![0; total as usize], |(_, bytes)| bytes);
        Str::Made { bytes: bytes.into(), raw: true }
    } else {
        let oid = s.space.fresh.oid();
        while let Some((n, bytes)) = combination.next(s.tx).await? {
            s.tx.set(&s.db.piece(oid, n), &bytes)?;
            if s.tx.size() > MAX_TRANSACTION {
                return Err(StoreError::TooLarge.into());
            }
        }
        Str::Pieces { oid, len: total }
    };
    object::put(s, target, Value::Str(value), None)?;
    Ok(total)
}

/// Builds the combination of the strings under `keys` in database `db`. None where one of them is no string, or the result is short:
/// let the command answer that. [`StoreError::Conflict`]: one changed meanwhile.
pub async fn stage(
    space: &Keyspace,
    db: Prefix,
    op: BitOp,
    keys: &[Bytes],
    lease_ms: u64,
) -> Result<Option<Object>> {
    let tx = space.store.begin();
    let s = space.scope(&tx, db);
    let (mut sources, mut versions) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
    for key in keys {
        let slot = object::open(&s, key, Read::Snapshot).await?;
        match slot.string() {
            Ok(value) => sources.push(value.cloned()),
            Err(_) => return Ok(None),
        }
        versions.push(staged::Source::of(&s, &slot).await?);
    }
    let mut combination = Combination::new(db, op, &sources);
    if combination.total <= INLINE_MAX as u64 {
        return Ok(None);
    }
    let mut builder = Builder::new(space, db, versions, lease_ms);
    let (db, oid) = builder.place();
    loop {
        let tx = space.store.begin();
        let s = space.scope(&tx, db);
        builder.check(&s).await?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while bytes < staged::STEP {
            match combination.next(&tx).await {
                Ok(Some((n, piece))) => {
                    bytes += piece.len();
                    rows.push(Row { key: db.piece(oid, n), at: None, bytes: Cow::Owned(piece) });
                }
                Ok(None) => break,
                // Read on by a younger transaction: what was read stays.
                Err(StoreError::TooOld) => break,
                Err(e) => return Err(Error::Store(e)),
            }
        }
        builder.write(&rows).await?;
        if u64::from(combination.next) * PIECE as u64 >= combination.total {
            return Ok(Some(builder.done(combination.total)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inline_of(bytes: &[u8]) -> Option<Str> {
        Some(Str::Inline(Bytes::copy_from_slice(bytes)))
    }

    #[tokio::test]
    async fn a_piece_is_what_its_bytes_say() {
        let table = [
            (BitOp::And, vec![&[0xff, 0x0f][..], &[0x3c]], vec![0x3c, 0]),
            (BitOp::Or, vec![&[0x80], &[1, 2, 3], &[4]], vec![0x85, 2, 3]),
            (BitOp::Xor, vec![&[1], &[3, 7], &[1]], vec![3, 7]),
            (BitOp::Not, vec![&[0, 0xf0]], vec![0xff, 0x0f]),
        ];
        for (op, sources, want) in table {
            let sources: Vec<_> = sources.iter().map(|bytes| inline_of(bytes)).collect();
            let combination = Combination::new(Prefix::from_number(1), op, &sources);
            assert_eq!(combination.piece(0, combination.total as usize).await, want, "{op:?}");
        }
    }
}
