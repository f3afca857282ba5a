//! SCAN, KEYS, RANDOMKEY: iterate over the records of a database, which are ordered by the hash of their key.
//!
//! SCAN's cursor is the top 48 bits of the hash at which the next call begins, plus one; 0 is both start and
//! end. It holds no state: any server can answer the next call, and a key that stays is returned exactly
//! once, because a page never ends between keys with the same 48 bits. 48 bits, because clients keep cursors
//! in doubles.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::keyspace::Scope;
use crate::keyspace::keys::MAX_REDIS_KEY;
use crate::keyspace::packed::Packed;
use crate::server::glob::{Case, Glob, matches_all};
use crate::server::pace::Pace;
use crate::server::reply::{Reply, Shape};
use crate::spec::{Count, Flags, Group, Row};
use crate::store::{Pairs, RangeOptions, Read, key_after};
use crate::types::object;
use crate::types::record::{Record, Stored};
use bytes::Bytes;

/// The most bytes of records that one page reads, including their values.
const PAGE_BYTES: usize = 1 << 20;
/// Names that KEYS compares before other tasks run.
const AT_A_TIME: usize = 256;
/// Bits of the hash below the cursor.
const LOW_BITS: u32 = 16;
/// Seeks of RANDOMKEY before it takes the first key in order.
const SEEKS: usize = 16;
/// Records that RANDOMKEY examines after a seek.
const SEEK_ROWS: usize = 32;

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[KEYS, RANDOMKEY, SCAN];

/// The options of SCAN, SSCAN and similar commands after the cursor.
#[derive(Debug, Clone)]
pub(crate) struct ScanOptions<'a> {
    /// MATCH; None if everything matches.
    pub(crate) pattern: Option<&'a Bytes>,
    /// COUNT, at least 1.
    pub(crate) count: usize,
    /// TYPE, in any case.
    pub(crate) type_name: Option<&'a Bytes>,
    /// NOVALUES.
    pub(crate) no_values: bool,
}

/// What a command iterates over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// The keys of a database.
    Keys,
    /// The members of a set.
    Members,
    /// The fields of a hash.
    Fields,
}

impl<'a> ScanOptions<'a> {
    /// Parses the remaining arguments.
    pub(crate) fn parse(args: &mut Args<'a>, of: Scanned) -> ArgResult<Self> {
        let mut options = ScanOptions { pattern: None, count: 10, type_name: None, no_values: false };
        while !args.is_empty() {
            if args.keyword("COUNT") {
                let count = args.int()?;
                options.count = usize::try_from(count).ok().filter(|n| *n > 0).ok_or(SYNTAX)?;
            } else if args.keyword("MATCH") {
                options.pattern = Some(args.next()?).filter(|p| !matches_all(p));
            } else if of == Scanned::Fields && args.keyword("NOVALUES") {
                options.no_values = true;
            } else if of == Scanned::Keys && args.keyword("TYPE") {
                options.type_name = Some(args.next()?);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    /// The filter that MATCH defines, for names or members of at most `longest` bytes.
    pub(crate) async fn filter(&self, longest: usize, pace: &mut Pace) -> Filter {
        match self.pattern {
            None => Filter(None),
            Some(pattern) => Filter(Some(Glob::read(pattern, Case::Exact, longest, pace).await)),
        }
    }
}

/// Steps of work ([`Pace`]) per name in addition to its pattern.
const NAME: usize = 1 << 7;

/// A filter by pattern; without a pattern, everything passes.
#[derive(Debug)]
pub(crate) struct Filter(Option<Glob>);

impl Filter {
    /// Whether a name or member passes.
    pub(crate) async fn passes(&self, text: &[u8], pace: &mut Pace) -> bool {
        pace.spend(NAME).await;
        match &self.0 {
            None => true,
            Some(glob) => glob.matches(text, pace).await,
        }
    }
}

/// Parses a cursor as C's `strtoul` does: a sign wraps, the empty text is 0, a zero byte ends it.
pub fn parse_cursor(raw: &[u8]) -> ArgResult<u64> {
    let raw = raw.split(|b| *b == 0).next().unwrap_or_default();
    let (negative, digits) = match raw {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let signed = raw.len() != digits.len();
    if (signed && digits.is_empty()) || !digits.iter().all(u8::is_ascii_digit) {
        return Err(INVALID_CURSOR);
    }
    let step = |n: u64, d: &u8| n.checked_mul(10)?.checked_add(u64::from(d - b'0'));
    let n = digits.iter().try_fold(0, step).ok_or(INVALID_CURSOR)?;
    Ok(if negative { n.wrapping_neg() } else { n })
}

const INVALID_CURSOR: ReplyError = ReplyError::new("ERR invalid cursor");

const SCAN: Command = Command::new(
    Row::new(Group::Generic, "scan", -2, "2.8.0")
        .flags(Flags::READONLY)
        .syntax("cursor [MATCH pattern] [COUNT count] [TYPE type]")
        .summary("Iterates over the keys, a few per call.")
        .count(Count::Option)
        .tips(&["nondeterministic_output", "request_policy:special"]),
    handler!(scan),
);

async fn scan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let cursor = parse_cursor(args.next()?)?;
    let options = ScanOptions::parse(&mut args, Scanned::Keys)?;
    let mut pace = Pace::default();
    let filter = options.filter(MAX_REDIS_KEY, &mut pace).await;
    let s = cx.scope()?;
    let (next, rows) = page(&s, cursor.saturating_sub(1), options.count).await?;
    let mut names = Vec::new();
    for (key, record) in rows {
        if !filter.passes(&key, &mut pace).await {
            continue;
        }
        let live = object::is_live(&s, &record, Read::Serializable).await?;
        if options.type_name.is_some() {
            // Redis looks a key up to see its type.
            cx.lookups.count(live);
        }
        let typed = |name: &Bytes| name.eq_ignore_ascii_case(record.value.type_name().as_bytes());
        if live && options.type_name.is_none_or(typed) {
            names.push(key);
        }
    }
    Ok(Reply::Array(vec![Reply::text(next.to_string()), Reply::bulks(names)]))
}

/// About `count` records from the hash group `group` (the top 48 bits) on, and the cursor after them.
async fn page(s: &Scope<'_>, group: u64, count: usize) -> Result<(u64, Vec<(Bytes, Record)>)> {
    let Some(from) = group_start(group) else { return Ok((0, Vec::new())) };
    let opts = RangeOptions { limit: count.saturating_add(1), bytes: PAGE_BYTES, reverse: false };
    let (from, end) = (s.db.record_from(from), s.db.records_end());
    let mut rows = s.tx.get_range(&from, &end, opts, Read::Serializable).await?;
    let last = rows.pairs.last().map(|(row, _)| group_of(s, row)).transpose()?;
    let cursor = match last {
        Some(last) if rows.more => {
            let first = rows.pairs.first().map(|(row, _)| group_of(s, row)).transpose()?;
            if first == Some(last) {
                rows = whole_group(s, last).await?;
                next_cursor(last + 1)
            } else {
                drop_group(s, &mut rows, last)?;
                next_cursor(last)
            }
        }
        _ => 0,
    };
    Ok((cursor, decode(s, rows)?))
}

fn group_start(group: u64) -> Option<u64> {
    (group >> (64 - LOW_BITS) == 0).then_some(group << LOW_BITS)
}

fn next_cursor(group: u64) -> u64 {
    if group_start(group).is_some() { group + 1 } else { 0 }
}

fn group_of(s: &Scope<'_>, row: &Bytes) -> Result<u64> {
    let (hash, _) = s.db.decode_record(row).ok_or_else(corrupt)?;
    Ok(hash >> LOW_BITS)
}

fn corrupt() -> StoreError {
    StoreError::Corrupt("a record has an invalid key".into())
}

/// Leaves the last group, which may be incomplete, to the next call.
fn drop_group(s: &Scope<'_>, rows: &mut Pairs, group: u64) -> Result<()> {
    while let Some((row, _)) = rows.pairs.last() {
        if group_of(s, row)? != group {
            break;
        }
        rows.pairs.pop();
    }
    Ok(())
}

/// A page of exactly one group: all of it, however large.
async fn whole_group(s: &Scope<'_>, group: u64) -> Result<Pairs> {
    let from = s.db.record_from(group << LOW_BITS);
    let end = group_start(group + 1).map_or(s.db.records_end(), |hash| s.db.record_from(hash));
    Ok(s.tx.get_range(&from, &end, RangeOptions::default(), Read::Serializable).await?)
}

fn decode(s: &Scope<'_>, rows: Pairs) -> Result<Vec<(Bytes, Record)>> {
    let decode = |(row, raw): (Bytes, Bytes)| {
        let (_, key) = s.db.decode_record(&row).ok_or_else(corrupt)?;
        Ok(Stored::decode(raw)?.into_record().map(|record| (key, record)))
    };
    rows.pairs.into_iter().filter_map(|row| decode(row).transpose()).collect()
}

const KEYS: Command = Command::new(
    Row::new(Group::Generic, "keys", 2, "1.0.0")
        .flags(Flags::READONLY.or(Flags::HEAVY))
        .syntax("pattern")
        .summary("Returns the names of all keys that match a pattern.")
        .categories(&["dangerous"])
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    handler!(keys),
);

async fn keys(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let mut pace = Pace::default();
    let pattern = Some(args.next()?).filter(|p| !matches_all(p));
    let filter = ScanOptions { pattern, count: 0, type_name: None, no_values: false }
        .filter(MAX_REDIS_KEY, &mut pace)
        .await;
    let s = cx.scope()?;
    let (mut from, end) = (s.db.record_from(0), s.db.records_end());
    let opts = RangeOptions { bytes: PAGE_BYTES, ..RangeOptions::default() };
    let mut names = Packed::default();
    loop {
        let rows = s.tx.get_range(&from, &end, opts, Read::Serializable).await?;
        let next = rows.pairs.last().filter(|_| rows.more).map(|(row, _)| key_after(row));
        for (n, (key, record)) in decode(&s, rows)?.into_iter().enumerate() {
            if n % AT_A_TIME == AT_A_TIME - 1 {
                tokio::task::yield_now().await;
            }
            let passes = filter.passes(&key, &mut pace).await;
            if passes && object::is_live(&s, &record, Read::Serializable).await? {
                names.push(&key);
            }
        }
        match next {
            Some(next) => from = next,
            None => return Ok(Reply::Packed(Shape::Single, names.into())),
        }
    }
}

const RANDOMKEY: Command = Command::new(
    Row::new(Group::Generic, "randomkey", 1, "1.0.0")
        .flags(Flags::READONLY)
        .summary("Returns the name of a random key.")
        .tips(&["request_policy:all_shards", "nondeterministic_output"]),
    handler!(randomkey),
);

/// The first key after a random hash. Reads are snapshot reads, because any key will do.
async fn randomkey(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    for _ in 0..SEEKS {
        let seed = cx.rng.u64();
        let s = cx.scope()?;
        let (start, end) = (s.db.record_from(0), s.db.records_end());
        let middle = s.db.record_from(seed);
        for (from, to) in [(&middle, &end), (&start, &middle)] {
            if let Some(key) = first_live(&s, from, to).await? {
                return Ok(Reply::Bulk(key));
            }
        }
    }
    // Few rows are keys: the rest are marks of watched keys, or expired keys.
    let s = cx.scope()?;
    let (mut from, end) = (s.db.record_from(0), s.db.records_end());
    loop {
        let opts = RangeOptions { bytes: PAGE_BYTES, ..RangeOptions::default() };
        let rows = s.tx.get_range(&from, &end, opts, Read::Snapshot).await?;
        let next = rows.pairs.last().filter(|_| rows.more).map(|(last, _)| key_after(last));
        match (first_of(&s, rows).await?, next) {
            (Some(key), _) => return Ok(Reply::Bulk(key)),
            (None, Some(next)) => from = next,
            (None, None) => return Ok(Reply::Nil),
        }
    }
}

async fn first_live(s: &Scope<'_>, from: &[u8], to: &[u8]) -> Result<Option<Bytes>> {
    let opts = RangeOptions { limit: SEEK_ROWS, bytes: PAGE_BYTES, reverse: false };
    first_of(s, s.tx.get_range(from, to, opts, Read::Snapshot).await?).await
}

async fn first_of(s: &Scope<'_>, rows: Pairs) -> Result<Option<Bytes>> {
    for (key, record) in decode(s, rows)? {
        if object::is_live(s, &record, Read::Snapshot).await? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_as_strtoul_reads_them() {
        for (raw, n) in [
            (&b""[..], 0),
            (b"0", 0),
            (b"007", 7),
            (b"+5", 5),
            (b"-1", u64::MAX),
            (b"18446744073709551615", u64::MAX),
            (b"12\x00x", 12),
        ] {
            assert_eq!(parse_cursor(raw), Ok(n), "{raw:?}");
        }
        for raw in [&b" 1"[..], b"1 ", b"x", b"1x", b"-", b"+", b"18446744073709551616", b"--1"] {
            assert_eq!(parse_cursor(raw), Err(INVALID_CURSOR), "{raw:?}");
        }
    }

    #[test]
    fn cursors_stay_below_two_to_the_53() {
        assert_eq!(next_cursor(0), 1);
        assert_eq!(next_cursor((1 << 48) - 1), 1 << 48);
        assert_eq!(next_cursor(1 << 48), 0);
    }
}
