//! BITOP: combines strings bit by bit, piece by piece. Pieces that no source has cost nothing: where they
//! imply a result of zeroes, they are skipped.
//!
//! A result is written in the command's transaction if it fits ([`combine`]); otherwise [`prebuild`] builds
//! it, as [`crate::types::prebuilt`] describes. Other tasks get a turn after each piece that takes time.

use super::walk::{STEP, own_piece};
use super::{INLINE_MAX, PIECE, inline, is_zero, len, piece_of};
use crate::error::{Error, Result, StoreError, StoreResult};
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::{Keyspace, Scope};
use crate::store::{MAX_TRANSACTION, RangeOptions, Read, Tx};
use crate::types::Value;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::{self, Builder, Object, Row};
use crate::types::string::Str;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use tokio::task::yield_now;

/// BITOP's operations. Those that treat their first source differently are from Redis 8.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BitOp {
    /// One where all sources have a one.
    And,
    /// One where any source has a one.
    Or,
    /// One where an odd number of sources have a one.
    Xor,
    /// One where the only source has a zero.
    Not,
    /// One where the first source has a one and no other has.
    Diff,
    /// One where the first source has a zero and any other has a one.
    Diff1,
    /// One where the first source and any other have a one.
    AndOr,
    /// One where exactly one source has a one.
    One,
}

impl BitOp {
    /// Whether the operation needs at least two sources.
    pub(crate) fn needs_two(self) -> bool {
        matches!(self, BitOp::Diff | BitOp::Diff1 | BitOp::AndOr)
    }
}

/// A source's effect on a result bit. The bit is one if every [`Role::Limits`] source has a one, enough
/// [`Role::Adds`] sources (if there are any) have one, and no [`Role::Clears`] source has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The result has ones only where this source has.
    Limits,
    /// Its ones are counted; the operation decides how many make a one.
    Adds,
    /// The result has no ones where this source has.
    Clears,
}

/// Approximate bytes that all sources together read ahead.
const AHEAD: usize = 16 * STEP;

/// One of the strings to combine.
struct Source {
    role: Role,
    rows: Option<(Prefix, Oid)>,
    len: u64,
    /// Pieces that are read but not yet used, ascending.
    ahead: VecDeque<(u32, Bytes)>,
    /// All pieces before this one have been read.
    seen: u32,
}

impl Source {
    fn new(db: Prefix, role: Role, value: &Str) -> Self {
        let (rows, ahead) = match (value, inline(value)) {
            (Str::Pieces { oid, .. }, _) => (Some((db, *oid)), VecDeque::new()),
            (_, Some(bytes)) => (None, VecDeque::from([(0, bytes.clone())])),
            (_, None) => (None, VecDeque::new()),
        };
        let seen = if rows.is_some() { 0 } else { u32::MAX };
        Source { role, rows, len: len(value), ahead, seen }
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

    /// Piece `n`, after a call of [`Source::next`]. None: zeroes.
    fn piece(&self, n: u32) -> Option<&Bytes> {
        self.ahead.front().filter(|(at, _)| *at == n).map(|(_, bytes)| bytes)
    }
}

/// The distinct sources, each with the number of times it was named. Sources with the same pieces are the
/// same.
fn distinct(sources: &[Option<Str>]) -> Vec<(&Str, usize)> {
    let mut places: HashMap<Oid, usize> = HashMap::new();
    let mut distinct: Vec<(&Str, usize)> = Vec::with_capacity(sources.len());
    for value in sources.iter().flatten() {
        let end = distinct.len();
        let at = pieces(value).map_or(end, |oid| *places.entry(oid).or_insert(end));
        match distinct.get_mut(at) {
            Some((_, times)) => *times += 1,
            None => distinct.push((value, 1)),
        }
    }
    distinct
}

/// The object id of the string's pieces. None: the string is in its record, which has been read.
fn pieces(value: &Str) -> Option<Oid> {
    match value {
        Str::Pieces { oid, .. } => Some(*oid),
        Str::Inline(_) | Str::Made { .. } => None,
    }
}

/// The sources to read, with their roles. Empty if the result is all zeroes.
fn roles(op: BitOp, sources: &[Option<Str>]) -> Vec<(Role, &Str)> {
    let all = |role| distinct(sources).into_iter().map(move |(value, _)| (role, value));
    let roles: Vec<(Role, &Str)> = match op {
        BitOp::And if sources.iter().any(Option::is_none) => Vec::new(),
        BitOp::And => all(Role::Limits).collect(),
        BitOp::Or => all(Role::Adds).collect(),
        BitOp::Xor => {
            let odd = distinct(sources).into_iter().filter(|(_, times)| times % 2 == 1);
            odd.map(|(value, _)| (Role::Adds, value)).collect()
        }
        BitOp::Not => return all(Role::Clears).collect(),
        BitOp::One => {
            let role = |times| if times == 1 { Role::Adds } else { Role::Clears };
            distinct(sources).into_iter().map(|(value, times)| (role(times), value)).collect()
        }
        BitOp::Diff | BitOp::Diff1 | BitOp::AndOr => against_the_first(op, sources),
    };
    if roles.iter().all(|(role, _)| *role == Role::Clears) { Vec::new() } else { roles }
}

/// [`roles`] for an operation that treats its first source differently.
fn against_the_first(op: BitOp, sources: &[Option<Str>]) -> Vec<(Role, &Str)> {
    let Some((first, others)) = sources.split_first() else { return Vec::new() };
    let (own, theirs) = match op {
        BitOp::Diff1 => (Role::Clears, Role::Adds),
        BitOp::AndOr => (Role::Limits, Role::Adds),
        _ => (Role::Limits, Role::Clears),
    };
    let (first, others) = (first.as_ref(), distinct(others));
    let is_first =
        |value| first.is_some_and(|first| pieces(first).is_some() && pieces(first) == pieces(value));
    let again = others.iter().any(|(value, _)| is_first(value));
    let first = first.map(|value| (own, value));
    match op {
        BitOp::AndOr if again => first.into_iter().collect(),
        BitOp::AndOr if others.is_empty() => Vec::new(),
        BitOp::Diff if again => Vec::new(),
        _ if first.is_none() && own == Role::Limits => Vec::new(),
        _ => {
            let others = others.into_iter().filter(|(value, _)| !is_first(value));
            first.into_iter().chain(others.map(|(value, _)| (theirs, value))).collect()
        }
    }
}

/// The pieces of a combination, one after another.
struct Combination {
    op: BitOp,
    sources: Vec<Source>,
    /// Bytes of the result.
    total: u64,
    /// The next piece.
    next: u32,
}

impl Combination {
    /// As long as the longest source; a missing one is empty. A string that is named twice is read once.
    fn new(db: Prefix, op: BitOp, sources: &[Option<Str>]) -> Self {
        let total = sources.iter().flatten().map(len).max().unwrap_or(0);
        let sources = roles(op, sources).into_iter().map(|(role, value)| Source::new(db, role, value));
        Combination { op, sources: sources.collect(), total, next: 0 }
    }

    /// The next piece that is not all zeroes, and its number.
    async fn next(&mut self, tx: &Tx) -> StoreResult<Option<(u32, Vec<u8>)>> {
        let step = (AHEAD / self.sources.len().max(1)).clamp(1, STEP);
        loop {
            let begin = u64::from(self.next) * PIECE as u64;
            if begin >= self.total {
                return Ok(None);
            }
            let place = self.place(tx, step).await?;
            if place > self.next {
                self.next = place;
                yield_now().await;
                continue;
            }
            let n = self.next;
            for (at, source) in self.sources.iter_mut().enumerate() {
                if source.role == Role::Clears {
                    source.next(tx, n, step).await?;
                    breathe(at).await;
                }
            }
            self.next += 1;
            let bytes = self.piece(n, (self.total - begin).min(PIECE as u64) as usize).await;
            yield_now().await;
            if !is_zero(&bytes) {
                return Ok(Some((n, bytes)));
            }
        }
    }

    /// The first piece, from the next one on, that may not be all zeroes according to the pieces read ahead.
    async fn place(&mut self, tx: &Tx, step: usize) -> StoreResult<u32> {
        if self.sources.is_empty() {
            return Ok(u32::MAX);
        }
        let (mut limit, mut added) = (self.next, None);
        for (at, source) in self.sources.iter_mut().enumerate() {
            match source.role {
                Role::Limits => {
                    limit = limit.max(source.next(tx, self.next, step).await?.unwrap_or(u32::MAX));
                }
                Role::Adds => {
                    let first = source.next(tx, self.next, step).await?.unwrap_or(u32::MAX);
                    added = Some(added.map_or(first, |added: u32| added.min(first)));
                }
                Role::Clears => {}
            }
            breathe(at).await;
        }
        Ok(added.map_or(limit, |added| added.max(limit)))
    }

    async fn piece(&self, n: u32, length: usize) -> Vec<u8> {
        let mut out = vec![0xff; length];
        // The bits where enough of the adding sources have a one, and those where more than one has, which
        // only ONE needs.
        let (mut added, mut twice) =
            (vec![0; length], vec![0; if self.op == BitOp::One { length } else { 0 }]);
        for (at, source) in self.sources.iter().enumerate() {
            let piece = source.piece(n).map_or(&[][..], |bytes| bytes);
            match source.role {
                Role::Limits => {
                    lay(&mut out, piece, |a, b| a & b);
                    out.iter_mut().skip(piece.len()).for_each(|byte| *byte = 0);
                }
                Role::Adds if self.op == BitOp::Xor => lay(&mut added, piece, |a, b| a ^ b),
                Role::Adds => {
                    twice.iter_mut().zip(&added).zip(piece).for_each(|((to, a), b)| *to |= a & b);
                    lay(&mut added, piece, |a, b| a | b);
                }
                Role::Clears => lay(&mut out, piece, |a, b| a & !b),
            }
            breathe(at).await;
        }
        if self.sources.iter().any(|source| source.role == Role::Adds) {
            lay(&mut out, &added, |a, b| a & b);
        }
        lay(&mut out, &twice, |a, b| a & !b);
        out
    }
}

/// Yields to other tasks after every few sources.
async fn breathe(source: usize) {
    if source % 64 == 63 {
        yield_now().await;
    }
}

fn lay(out: &mut [u8], piece: &[u8], f: impl Fn(u8, u8) -> u8) {
    out.iter_mut().zip(piece).for_each(|(to, from)| *to = f(*to, *from));
}

/// Most stored bytes that a combination of `sources` processes.
pub(crate) fn weight(sources: &[Option<Str>]) -> u64 {
    sources.iter().flatten().map(len).fold(0, u64::saturating_add)
}

/// Makes `target` the combination of `sources`, as long as the longest; shorter ones are padded with zeroes.
/// An empty result removes the key. The expiry is dropped. Returns the length in bytes. Fails with
/// [`StoreError::TooLarge`] if the non-zero pieces exceed a transaction: then [`prebuild`] builds it.
pub(crate) async fn combine(
    s: &Scope<'_>,
    prebuilt: &[prebuilt::Prebuilt],
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
    if let Some(built) = prebuilt::result(prebuilt) {
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

/// Builds the combination of the strings under `keys` in database `db`. None if one of them is not a string
/// or the result is short: let the command handle that. Fails with [`StoreError::Conflict`] if one changed
/// meanwhile.
pub async fn prebuild(
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
        versions.push(prebuilt::Source::of(&s, &slot).await?);
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
        while bytes < prebuilt::STEP {
            match combination.next(&tx).await {
                Ok(Some((n, piece))) => {
                    bytes += piece.len();
                    rows.push(Row { key: db.piece(oid, n), at: None, bytes: Cow::Owned(piece) });
                }
                Ok(None) => break,
                // A newer transaction continues; the pieces read so far remain valid.
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

    fn pieces_of(oid: u32) -> Option<Str> {
        Some(Str::Pieces { oid: Oid(oid.into()), len: 1 << 20 })
    }

    #[tokio::test]
    async fn a_piece_is_what_its_bytes_say() {
        let three = || vec![&[0b1111_0000, 0xff, 1][..], &[0b0011_1100], &[0b0101_0101, 0x0f]];
        let table = [
            (BitOp::And, vec![&[0xff, 0x0f][..], &[0x3c]], vec![0x3c, 0]),
            (BitOp::Or, vec![&[0x80], &[1, 2, 3], &[4]], vec![0x85, 2, 3]),
            (BitOp::Xor, vec![&[1], &[3, 7], &[1]], vec![3, 7]),
            (BitOp::Not, vec![&[0, 0xf0]], vec![0xff, 0x0f]),
            (BitOp::Diff, three(), vec![0b1000_0000, 0xf0, 1]),
            (BitOp::Diff1, three(), vec![0b0000_1101, 0, 0]),
            (BitOp::AndOr, three(), vec![0b0111_0000, 0x0f, 0]),
            (BitOp::One, three(), vec![0b1000_1001, 0xf0, 1]),
            (BitOp::One, vec![&[1], &[3], &[5], &[8]], vec![0b1110]),
        ];
        for (op, sources, want) in table {
            let sources: Vec<_> = sources.iter().map(|bytes| inline_of(bytes)).collect();
            let combination = Combination::new(Prefix::from_number(1), op, &sources);
            assert_eq!(combination.piece(0, combination.total as usize).await, want, "{op:?}");
        }
    }

    /// The rows read for the strings a, b and c, each in pieces, and for missing ones.
    #[test]
    fn a_source_that_changes_nothing_is_not_read() {
        let table: [(BitOp, &str, &str); 24] = [
            (BitOp::And, "aab", "&a &b"),
            (BitOp::And, "a_", ""),
            (BitOp::Or, "abba_", "+a +b"),
            (BitOp::Xor, "abaca", "+a +b +c"),
            (BitOp::Xor, "aba", "+b"),
            (BitOp::Xor, "aa", ""),
            (BitOp::Not, "a", "-a"),
            (BitOp::One, "abc_", "+a +b +c"),
            (BitOp::One, "abab", ""),
            (BitOp::One, "aabcc", "-a +b -c"),
            (BitOp::Diff, "abbc", "&a -b -c"),
            (BitOp::Diff, "a_", "&a"),
            (BitOp::Diff, "aba", ""),
            (BitOp::Diff, "_ab", ""),
            (BitOp::Diff1, "abbc", "-a +b +c"),
            (BitOp::Diff1, "aab", "-a +b"),
            (BitOp::Diff1, "aa_", ""),
            (BitOp::Diff1, "_ab", "+a +b"),
            (BitOp::Diff1, "a_", ""),
            (BitOp::AndOr, "abcb", "&a +b +c"),
            (BitOp::AndOr, "aba", "&a"),
            (BitOp::AndOr, "a__", ""),
            (BitOp::AndOr, "_ab", ""),
            (BitOp::AndOr, "_", ""),
        ];
        for (op, sources, want) in table {
            let named = |name: char| if name == '_' { None } else { pieces_of(name.into()) };
            let sources: Vec<_> = sources.chars().map(named).collect();
            let read: Vec<String> = roles(op, &sources)
                .into_iter()
                .map(|(role, value)| {
                    let name = ['a', 'b', 'c'].into_iter().find(|name| named(*name).as_ref() == Some(value));
                    let sign = match role {
                        Role::Limits => '&',
                        Role::Adds => '+',
                        Role::Clears => '-',
                    };
                    format!("{sign}{}", name.unwrap())
                })
                .collect();
            assert_eq!(read.join(" "), want, "{op:?} of {sources:?}");
        }
    }
}
