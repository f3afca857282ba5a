//! HyperLogLogs: strings that count distinct elements without storing them. Semantics and texts are Redis
//! 7.0's.
//!
//! PFCOUNT of one key caches the count in the string ([`Flags::KEEPS`]), as Redis does: the next PFCOUNT only
//! reads it, and clients that WATCH the key see a change.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::quoted;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Row, all, one};
use crate::store::Read;
use crate::types::Value;
use crate::types::hyperloglog::{Corrupt, HEADER, HyperLogLog, LONGEST, REGISTERS, Registers};
use crate::types::object::{self, Slot};
use crate::types::string;
use crate::types::string::Str;
use bytes::Bytes;
use tokio::task::yield_now;

const ADDED: &[KeySpec] = &[one(&["RW", "insert"])];
const COUNTED: &[KeySpec] = &[all(&["RW", "access"])];
const MERGED: &[KeySpec] = &[
    one(&["RW", "access", "insert"]),
    KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Range { last: -1, step: 1 } },
];
const DEBUGGED: &[KeySpec] =
    &[KeySpec { flags: &["RW", "access"], begin: 2, find: FindKeys::Range { last: 0, step: 1 } }];
const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[PFADD, PFCOUNT, PFDEBUG, PFMERGE, PFSELFTEST];

const NOT_ONE: ReplyError = ReplyError::new("WRONGTYPE Key is not a valid HyperLogLog string value.");
const BROKEN: ReplyError = ReplyError::new("INVALIDOBJ Corrupted HLL object detected");

impl From<Corrupt> for crate::error::Error {
    fn from(_: Corrupt) -> Self {
        BROKEN.into()
    }
}

/// The HyperLogLog under a key. None if the key does not exist. A string whose header shows that it is none
/// is not read further.
async fn read(s: &Scope<'_>, slot: &Slot) -> Result<Option<HyperLogLog>> {
    let Some(value) = slot.string()? else { return Ok(None) };
    begin(s, value).await?;
    if string::len(value) > LONGEST {
        return Err(BROKEN.into());
    }
    let bytes = string::read(s, value).await?;
    Ok(Some(HyperLogLog::parse(&bytes).ok_or(NOT_ONE)?))
}

/// The header, which shows whether a string is a HyperLogLog, and its cached count.
async fn begin(s: &Scope<'_>, value: &Str) -> Result<HyperLogLog> {
    let header = string::read_range(s, value, 0, HEADER as u64).await?;
    Ok(HyperLogLog::begin(&header, string::len(value)).ok_or(NOT_ONE)?)
}

/// Redis leaves it `raw`.
async fn write(s: &Scope<'_>, slot: &mut Slot, hll: &HyperLogLog) -> Result<()> {
    let (bytes, expiry) = (Bytes::from(hll.bytes()), slot.expire_at());
    if bytes.len() > string::INLINE_MAX {
        return string::write(s, &[], slot, &bytes, expiry).await;
    }
    object::put(s, slot, Value::Str(Str::Made { bytes, raw: true }), expiry)
}

fn sparse_max(cx: &Cx<'_>) -> usize {
    cx.server.config.get().hll_sparse_max_bytes
}

const PFADD: Command = Command::new(
    Row::new(Group::HyperLogLog, "pfadd", -2, "2.8.9")
        .flags(WRITES.or(Flags::FAST))
        .keys(ADDED)
        .syntax("key [element [element ...]]")
        .summary("Adds elements to a HyperLogLog; creates it if the key does not exist."),
    handler!(pfadd),
);

/// As in Redis, elements before the one at which the value turns out to be corrupt stay counted.
async fn pfadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = object::open(&s, args.next()?, Read::Serializable).await?;
    cx.light(slot.string()?.map_or(0, string::len))?;
    let old = read(&s, &slot).await?;
    let mut changed = old.is_none();
    let mut hll = old.unwrap_or_default();
    let mut adder = hll.adder(sparse_max(cx));
    let added: std::result::Result<(), Corrupt> = args.rest().iter().try_for_each(|element| {
        changed |= adder.add(element)?;
        Ok(())
    });
    if changed {
        if added.is_ok() {
            hll.invalidate();
        }
        write(&s, &mut slot, &hll).await?;
        s.notify(Events::STRING, "pfadd", &slot.key);
    }
    added?;
    Ok(changed.into())
}

const PFCOUNT: Command = Command::new(
    Row::new(Group::HyperLogLog, "pfcount", -2, "2.8.9")
        .flags(Flags::READONLY.or(Flags::KEEPS))
        .keys(COUNTED)
        .syntax("key [key ...]")
        .summary("Estimates the number of distinct elements in the union of HyperLogLogs."),
    handler!(pfcount),
);

async fn pfcount(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    if let [key] = args.rest() {
        return count_one(cx, &s, key).await;
    }
    let mut registers = Registers::default();
    for key in args.rest() {
        let slot = cx.look_up(&s, key).await?;
        if let Some(hll) = read(&s, &slot).await? {
            hll.merge_into(&mut registers)?;
            yield_now().await;
        }
    }
    Ok(Reply::Int(registers.estimate() as i64))
}

async fn count_one(cx: &Cx<'_>, s: &Scope<'_>, key: &Bytes) -> Result<Reply> {
    let mut slot = cx.look_up(s, key).await?;
    let Some(value) = slot.string()? else { return Ok(Reply::Int(0)) };
    if let Some(number) = begin(s, value).await?.cached() {
        return Ok(Reply::Int(number as i64));
    }
    let Some(mut hll) = read(s, &slot).await? else { return Ok(Reply::Int(0)) };
    let number = hll.count()?;
    write(s, &mut slot, &hll).await?;
    Ok(Reply::Int(number as i64))
}

const PFMERGE: Command = Command::new(
    Row::new(Group::HyperLogLog, "pfmerge", -2, "2.8.9")
        .flags(WRITES)
        .keys(MERGED)
        .syntax("destkey [sourcekey [sourcekey ...]]")
        .summary("Merges HyperLogLogs into one."),
    handler!(pfmerge),
);

async fn pfmerge(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let (mut registers, mut dense, mut target) = (Registers::default(), false, None);
    let mut weight = 0;
    for key in args.rest() {
        let slot = cx.look_up(&s, key).await?;
        weight += slot.string()?.map_or(0, string::len);
        cx.light(weight)?;
        let hll = read(&s, &slot).await?;
        if let Some(hll) = &hll {
            yield_now().await;
            dense |= hll.is_dense();
            hll.merge_into(&mut registers)?;
        }
        target.get_or_insert((slot, hll));
    }
    let Some((mut slot, old)) = target else { return Ok(Reply::Ok) };
    object::check_name(&slot.key)?;
    let mut hll = old.unwrap_or_default();
    if dense {
        hll.make_dense()?;
    }
    hll.merge(&registers, sparse_max(cx))?;
    write(&s, &mut slot, &hll).await?;
    s.notify(Events::STRING, "pfadd", &slot.key);
    Ok(Reply::Ok)
}

const PFDEBUG: Command = Command::new(
    Row::new(Group::HyperLogLog, "pfdebug", 3, "2.8.9")
        .flags(WRITES.or(Flags::ADMIN))
        .keys(DEBUGGED)
        .syntax("<DECODE | ENCODING | GETREG | TODENSE> key")
        .summary("Shows how a HyperLogLog is stored, for tests.")
        .for_systems(),
    handler!(pfdebug),
);

async fn pfdebug(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (what, key) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let found = read(&s, &slot).await?;
    let mut hll = found.ok_or(ReplyError::new("ERR The specified key does not exist"))?;
    Ok(match what.to_ascii_lowercase().as_slice() {
        b"encoding" => Reply::Simple(if hll.is_dense() { "dense" } else { "sparse" }.into()),
        b"decode" => {
            let text = hll.decode().ok_or(ReplyError::new("ERR HLL encoding is not sparse"))?;
            Reply::text(text)
        }
        b"todense" => densify(&s, &mut slot, &mut hll).await?.into(),
        b"getreg" => {
            densify(&s, &mut slot, &mut hll).await?;
            let mut registers = Registers::default();
            hll.merge_into(&mut registers)?;
            Reply::Array(registers.ranks().map(|rank| Reply::Int(rank.into())).collect())
        }
        _ => {
            let what = quoted(what);
            return Err(ReplyError::of(format!("ERR Unknown PFDEBUG subcommand '{what}'")).into());
        }
    })
}

/// True if it was sparse.
async fn densify(s: &Scope<'_>, slot: &mut Slot, hll: &mut HyperLogLog) -> Result<bool> {
    let was_sparse = hll.make_dense()?;
    if was_sparse {
        write(s, slot, hll).await?;
    }
    Ok(was_sparse)
}

/// Elements of the self-test. Redis takes ten million, and blocks for seconds.
const TESTED: u64 = 100_000;
/// Elements of a self-test between yields to other tasks.
const TESTED_AT_ONCE: u64 = 1000;

const PFSELFTEST: Command = Command::new(
    Row::new(Group::HyperLogLog, "pfselftest", 1, "2.8.9")
        .flags(Flags::ADMIN)
        .summary("Tests the accuracy of the estimates with random elements.")
        .for_systems(),
    handler!(pfselftest),
);

/// Sparse and dense forms must agree, within the promised standard error of 1.04 / sqrt(registers).
async fn pfselftest(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let (mut sparse, mut dense) = (HyperLogLog::new(), HyperLogLog::new());
    dense.make_dense()?;
    let (seed, sparse_max) = (cx.rng.u64(), sparse_max(cx));
    let mut checkpoint = 1;
    for n in 1..=TESTED {
        let element = (n ^ seed).to_le_bytes();
        sparse.adder(sparse_max).add(&element)?;
        dense.adder(sparse_max).add(&element)?;
        if n == checkpoint {
            check_estimates(n, sparse.count()?, dense.count()?)?;
            checkpoint *= 10;
        }
        if n.is_multiple_of(TESTED_AT_ONCE) {
            yield_now().await;
        }
    }
    Ok(Reply::Ok)
}

/// Six standard errors, but at least one element: two of ten elements may share a register.
fn check_estimates(elements: u64, sparse: u64, dense: u64) -> Result<()> {
    let allowed = (elements as f64 * 6.0 * 1.04 / (REGISTERS as f64).sqrt()).ceil() as u64;
    if sparse != dense {
        return Err(ReplyError::new("ERR TESTFAILED dense/sparse disagree").into());
    }
    if dense.abs_diff(elements) > allowed.max(1) {
        let line = format!("ERR TESTFAILED Too big error: {dense} for {elements} elements");
        return Err(ReplyError::of(line).into());
    }
    Ok(())
}
