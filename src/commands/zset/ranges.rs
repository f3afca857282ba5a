//! Ranges of sorted sets, by rank, by score or by name: what is in them, how many, and what goes.

use super::{DELETED, MOST_REMOVED, READS, READS_FAST, ROW, remove, removed, stored, with_scores};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::contents::{On, read_kept};
use crate::commands::cx::Cx;
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::keyspace::Scope;
use crate::keyspace::packed::Packed;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, Flags, Group, KEY_RO, KeySpec, Makes, Ranked, Row, one};
use crate::store::Read;
use crate::types::contents;
use crate::types::items::Items;
use crate::types::object::{self, Slot};
use crate::types::prebuilt;
use crate::types::zset::stream::{FEW, rows_of};
use crate::types::zset::{self, Entry, Pick, Places, Score, ZsetRep};
use bytes::Bytes;
use std::ops::Bound;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[
    ZCOUNT,
    ZLEXCOUNT,
    ZRANGE,
    ZRANGEBYLEX,
    ZRANGEBYSCORE,
    ZRANGESTORE,
    ZREMRANGEBYLEX,
    ZREMRANGEBYRANK,
    ZREMRANGEBYSCORE,
    ZREVRANGE,
    ZREVRANGEBYLEX,
    ZREVRANGEBYSCORE,
];

/// More members, if these are all, are removed without reading them.
const SEVERAL: u64 = 256;

/// What decides about the members of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Name,
}

/// The two ends of a range.
enum Ends<'a> {
    Ranks(i64, i64),
    Scores(Bound<Score>, Bound<Score>),
    Names(Bound<&'a [u8]>, Bound<&'a [u8]>),
    /// No name is between these.
    Nothing,
}

fn score_bound(raw: &[u8]) -> ArgResult<Bound<Score>> {
    let (raw, bound): (_, fn(Score) -> Bound<Score>) = match raw.strip_prefix(b"(") {
        Some(rest) => (rest, Bound::Excluded),
        None => (raw, Bound::Included),
    };
    bound_number(raw).and_then(Score::new).map(bound).ok_or(ReplyError::new("ERR min or max is not a float"))
}

/// As C's `strtod` without hexadecimal numbers: what is too large is infinite, and nothing is 0.
fn bound_number(raw: &[u8]) -> Option<f64> {
    match raw {
        [] => Some(0.0),
        _ => std::str::from_utf8(raw).ok()?.parse().ok(),
    }
}

/// A name, or one end of all names.
enum Name<'a> {
    First,
    Last,
    At(Bound<&'a [u8]>),
}

fn name_bound(raw: &[u8]) -> ArgResult<Name<'_>> {
    match raw {
        b"-" => Ok(Name::First),
        b"+" => Ok(Name::Last),
        [b'[', name @ ..] => Ok(Name::At(Bound::Included(name))),
        [b'(', name @ ..] => Ok(Name::At(Bound::Excluded(name))),
        _ => Err(ReplyError::new("ERR min or max not valid string range item")),
    }
}

impl<'a> Ends<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> ArgResult<Self> {
        match by {
            By::Rank => {
                let [start, stop] = [min, max].map(|raw| parse_i64(raw).ok_or(NOT_INTEGER));
                Ok(Ends::Ranks(start?, stop?))
            }
            By::Score => Ok(Ends::Scores(score_bound(min)?, score_bound(max)?)),
            By::Name => {
                let min = match name_bound(min)? {
                    Name::First => Bound::Unbounded,
                    Name::At(bound) => bound,
                    Name::Last => {
                        name_bound(max)?;
                        return Ok(Ends::Nothing);
                    }
                };
                match name_bound(max)? {
                    Name::Last => Ok(Ends::Names(min, Bound::Unbounded)),
                    Name::At(max) => Ok(Ends::Names(min, max)),
                    Name::First => Ok(Ends::Nothing),
                }
            }
        }
    }

    /// The places between the ends, and which of their members to pick. None: nothing.
    async fn find(&self, s: &Scope<'_>, rep: Option<&ZsetRep>, pick: Pick) -> Result<Option<(Places, Pick)>> {
        Ok(match self {
            Ends::Nothing => None,
            Ends::Scores(min, max) => Some((Places::of_scores(*min, *max), pick)),
            Ends::Names(min, max) => Some((zset::names(s, rep, *min, *max).await?, pick)),
            Ends::Ranks(start, stop) => {
                let len = zset::len(s, rep, Read::Serializable).await?.cast_signed();
                let at = |n: i64| if n < 0 { n.saturating_add(len) } else { n };
                let (start, stop) = (at(*start).max(0), at(*stop).min(len - 1));
                let limit = stop.saturating_sub(start).saturating_add(1);
                (limit > 0).then(|| {
                    let (skip, limit) = (start.cast_unsigned(), limit.cast_unsigned());
                    (Places::all(), Pick { skip, limit, ..pick })
                })
            }
        })
    }
}

/// A range as a command names it.
struct Asked<'a> {
    ends: Ends<'a>,
    pick: Pick,
    with_scores: bool,
}

impl<'a> Asked<'a> {
    /// Reads two ends and options. In reverse, the higher end comes first, except for ranks. `all`: also the options
    /// that ZRANGE alone has.
    fn parse(args: &mut Args<'a>, mut by: By, mut reverse: bool, all: bool, stores: bool) -> ArgResult<Self> {
        let (first, second) = (args.next()?, args.next()?);
        let (mut with_scores, mut limit, mut sorted) = (false, None, false);
        while !args.is_empty() {
            match () {
                () if !stores && args.keyword("WITHSCORES") => with_scores = true,
                () if args.len() > 2 && args.keyword("LIMIT") => limit = Some((args.int()?, args.int()?)),
                () if all && !reverse && args.keyword("REV") => reverse = true,
                () if all && !sorted && args.keyword("BYSCORE") => (by, sorted) = (By::Score, true),
                () if all && !sorted && args.keyword("BYLEX") => (by, sorted) = (By::Name, true),
                () => return Err(SYNTAX),
            }
        }
        if limit.is_some_and(|(_, count)| count != -1) && by == By::Rank {
            return Err(ReplyError::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Name {
            return Err(ReplyError::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (min, max) = if reverse && by != By::Rank { (second, first) } else { (first, second) };
        let (skip, limit) = limit.unwrap_or((0, -1));
        let ends = Ends::parse(by, min, max)?;
        let limit = if skip < 0 { 0 } else { u64::try_from(limit).unwrap_or(u64::MAX) };
        let pick = Pick { reverse, skip: skip.max(0).cast_unsigned(), limit };
        Ok(Asked { ends, pick, with_scores })
    }
}

async fn range(cx: &Cx<'_>, mut args: Args<'_>, by: By, reverse: bool, all: bool) -> Result<Reply> {
    let key = args.next()?;
    let range = args.rest();
    let asked = Asked::parse(&mut args, by, reverse, all, false)?;
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, key).await?;
    let Some((places, pick)) = asked.ends.find(&s, slot.zset()?, asked.pick).await? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let members = at_most(&s, slot.zset()?, &places, pick).await?;
    if cx.may_stream
        && let Some(found) =
            zset::stream::find(&s, &slot, (&places, pick, members), asked.with_scores).await?
        && let Some(items) = Items::open(&s, &slot, found, cx.most_kept()).await?
    {
        return Ok(Reply::Items(items.into()));
    }
    cx.light(members.saturating_mul(ROW))?;
    let read = zset::range(&s, slot.zset()?, &places, pick, cx.most_kept());
    let Some(ZsetRep::Rows { oid, .. }) = slot.zset()? else {
        let entries = read.await?;
        return Ok(match asked.with_scores {
            true => with_scores(entries),
            false => Reply::bulks(entries.into_iter().map(|(member, _)| member)),
        });
    };
    let on = match asked.ends {
        Ends::Ranks(..) | Ends::Nothing => On::Value,
        Ends::Scores(..) | Ends::Names(..) => On::Rows(rows_of(s.db, *oid, &places)),
    };
    let name = [b'z', by as u8, u8::from(reverse)];
    let ranked = contents::Ranked { reverse: pick.reverse, with_scores: asked.with_scores };
    let read = async {
        let mut out = Packed::default();
        read.await?.iter().for_each(|(member, score)| ranked.push(member, *score, &mut out));
        Ok(Some(out))
    };
    let found = read_kept(&s, &slot, (&name, range, on), read).await?;
    Ok(Reply::Packed(ranked.shape(), found.unwrap_or_default()))
}

/// The number of members of a range; of few, a higher one.
async fn at_most(s: &Scope<'_>, rep: Option<&ZsetRep>, places: &Places, pick: Pick) -> Result<u64> {
    let most = zset::len(s, rep, Read::Snapshot).await?.min(pick.limit);
    if most <= FEW {
        return Ok(most);
    }
    Ok(zset::count(s, rep, places, Read::Snapshot).await?.saturating_sub(pick.skip).min(pick.limit))
}

/// Approximate bytes of a range in memory.
async fn weight(s: &Scope<'_>, rep: Option<&ZsetRep>, places: &Places, pick: Pick) -> Result<u64> {
    Ok(at_most(s, rep, places, pick).await?.saturating_mul(ROW))
}

const ZRANGE: Command = Command::new(
    Row::new(Group::SortedSet, "zrange", -4, "1.2.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key start stop [<sortby: BYSCORE | BYLEX>] [<rev: REV>] [LIMIT <limit: offset count>] [WITHSCORES]")
        .types(&[("start", "string"), ("stop", "string")])
        .summary("Returns the members of a range of ranks, scores or names."),
    handler!(zrange),
);

async fn zrange(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    range(cx, args, By::Rank, false, true).await
}

const ZREVRANGE: Command = Command::new(
    Row::new(Group::SortedSet, "zrevrange", -4, "1.2.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key start stop [WITHSCORES]")
        .deprecated("6.2.0", "`ZRANGE` with the `REV` argument")
        .summary("Returns the members of a range of ranks, from the highest score."),
    handler!(zrevrange),
);

async fn zrevrange(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    range(cx, args, By::Rank, true, false).await
}

const ZRANGEBYSCORE: Command = Command::new(
    Row::new(Group::SortedSet, "zrangebyscore", -4, "1.0.5")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key min max [WITHSCORES] [LIMIT <limit: offset count>]")
        .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument")
        .types(&[("min", "double"), ("max", "double")])
        .summary("Returns the members of a range of scores."),
    handler!(zrangebyscore),
);

async fn zrangebyscore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    range(cx, args, By::Score, false, false).await
}

const ZREVRANGEBYSCORE: Command = Command::new(
    Row::new(Group::SortedSet, "zrevrangebyscore", -4, "2.2.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key max min [WITHSCORES] [LIMIT <limit: offset count>]")
        .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments")
        .types(&[("min", "double"), ("max", "double")])
        .summary("Returns the members of a range of scores, from the highest."),
    handler!(zrevrangebyscore),
);

async fn zrevrangebyscore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    range(cx, args, By::Score, true, false).await
}

const ZRANGEBYLEX: Command = Command::new(
    Row::new(Group::SortedSet, "zrangebylex", -4, "2.8.9")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key min max [LIMIT <limit: offset count>]")
        .deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument")
        .summary("Returns the members of a range of names, where all scores are equal."),
    handler!(zrangebylex),
);

async fn zrangebylex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    range(cx, args, By::Name, false, false).await
}

const ZREVRANGEBYLEX: Command = Command::new(
    Row::new(Group::SortedSet, "zrevrangebylex", -4, "2.8.9")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key max min [LIMIT <limit: offset count>]")
        .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments")
        .summary("Returns the members of a range of names, from the last, where all scores are equal."),
    handler!(zrevrangebylex),
);

async fn zrevrangebylex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    range(cx, args, By::Name, true, false).await
}

/// A key that is overwritten, and one that is read.
pub(crate) const STORED: &[KeySpec] = &[
    one(&["OW", "update"]),
    KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Range { last: 0, step: 1 } },
];

const ZRANGESTORE: Command = Command::new(
    Row::new(Group::SortedSet, "zrangestore", -5, "6.2.0")
        .flags(Flags::WRITE.or(Flags::DENYOOM))
        .makes(Makes::Ranked(Ranked::Range))
        .keys(STORED)
        .syntax("dst src min max [<sortby: BYSCORE | BYLEX>] [<rev: REV>] [LIMIT <limit: offset count>]")
        .types(&[("dst", "key"), ("src", "key"), ("min", "string"), ("max", "string")])
        .summary("Stores the members of a range of ranks, scores or names."),
    handler!(zrangestore),
);

async fn zrangestore(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (target, key) = (args.next()?, args.next()?);
    let asked = Asked::parse(&mut args, By::Rank, false, true, true)?;
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, key).await?;
    let rep = slot.zset()?;
    let found = match asked.ends.find(&s, rep, asked.pick).await? {
        Some((places, pick)) if prebuilt::result(cx.prebuilt).is_none() => {
            cx.light(weight(&s, rep, &places, pick).await?)?;
            zset::range(&s, rep, &places, pick, usize::MAX).await?
        }
        Some(_) | None => Vec::new(),
    };
    stored::put(cx, &s, target, found, "zrangestore").await
}

/// The source that the arguments after the destination name, and its range. None if the arguments are wrong.
pub(crate) async fn of_key(s: &Scope<'_>, mut args: Args<'_>) -> Result<Option<(Vec<Slot>, Vec<Entry>)>> {
    let Ok(key) = args.next() else { return Ok(None) };
    let Ok(asked) = Asked::parse(&mut args, By::Rank, false, true, true) else { return Ok(None) };
    let slot = object::open(s, key, Read::Snapshot).await?;
    let Ok(rep) = slot.zset() else { return Ok(None) };
    let found = match asked.ends.find(s, rep, asked.pick).await? {
        Some((places, pick)) => zset::range(s, rep, &places, pick, usize::MAX).await?,
        None => Vec::new(),
    };
    Ok(Some((vec![slot], found)))
}

const ZCOUNT: Command = Command::new(
    Row::new(Group::SortedSet, "zcount", 4, "2.0.0")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .syntax("key min max")
        .types(&[("min", "double"), ("max", "double")])
        .summary("Returns the number of members of a range of scores."),
    handler!(zcount),
);

async fn zcount(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    count(cx, args, By::Score).await
}

const ZLEXCOUNT: Command = Command::new(
    Row::new(Group::SortedSet, "zlexcount", 4, "2.8.9")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .syntax("key min max")
        .summary("Returns the number of members of a range of names, where all scores are equal."),
    handler!(zlexcount),
);

async fn zlexcount(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    count(cx, args, By::Name).await
}

async fn count(cx: &Cx<'_>, mut args: Args<'_>, by: By) -> Result<Reply> {
    let (key, ends) = (args.next()?, Ends::parse(by, args.next()?, args.next()?)?);
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, key).await?;
    let n = match ends.find(&s, slot.zset()?, Pick::ALL).await? {
        Some((places, _)) => zset::count(&s, slot.zset()?, &places, Read::Serializable).await?,
        None => 0,
    };
    Ok(Reply::Int(n.cast_signed()))
}

const ZREMRANGEBYRANK: Command = Command::new(
    Row::new(Group::SortedSet, "zremrangebyrank", 4, "2.0.0")
        .flags(Flags::WRITE)
        .keys(DELETED)
        .syntax("key start stop")
        .summary("Removes the members of a range of ranks."),
    handler!(zremrangebyrank),
);

async fn zremrangebyrank(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    remove_range(cx, args, By::Rank, "zremrangebyrank").await
}

const ZREMRANGEBYSCORE: Command = Command::new(
    Row::new(Group::SortedSet, "zremrangebyscore", 4, "1.2.0")
        .flags(Flags::WRITE)
        .keys(DELETED)
        .syntax("key min max")
        .types(&[("min", "double"), ("max", "double")])
        .summary("Removes the members of a range of scores."),
    handler!(zremrangebyscore),
);

async fn zremrangebyscore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    remove_range(cx, args, By::Score, "zremrangebyscore").await
}

const ZREMRANGEBYLEX: Command = Command::new(
    Row::new(Group::SortedSet, "zremrangebylex", 4, "2.8.9")
        .flags(Flags::WRITE)
        .keys(DELETED)
        .syntax("key min max")
        .summary("Removes the members of a range of names, where all scores are equal."),
    handler!(zremrangebylex),
);

async fn zremrangebylex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    remove_range(cx, args, By::Name, "zremrangebylex").await
}

async fn remove_range(cx: &Cx<'_>, mut args: Args<'_>, by: By, event: &'static str) -> Result<Reply> {
    let key: &Bytes = args.next()?;
    let ends = Ends::parse(by, args.next()?, args.next()?)?;
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, key).await?;
    let Some((places, pick)) = ends.find(&s, slot.zset()?, Pick::ALL).await? else {
        return Ok(Reply::Int(0));
    };
    cx.light(weight(&s, slot.zset()?, &places, pick).await?)?;
    let (rep, all) = (slot.zset()?, zset::len(&s, slot.zset()?, Read::Snapshot).await?);
    let n = if all > SEVERAL && zset::count(&s, rep, &places, Read::Snapshot).await?.min(pick.limit) == all {
        // Without reading them.
        let n = zset::len(&s, rep, Read::Serializable).await?;
        object::remove(&s, &mut slot)?;
        n.cast_signed()
    } else {
        let most = Pick { limit: pick.limit.min(MOST_REMOVED + 1), ..pick };
        let gone: Vec<Entry> = zset::range(&s, rep, &places, most, usize::MAX).await?;
        if gone.len() as u64 > MOST_REMOVED {
            return Err(StoreError::TooLarge.into());
        }
        remove(cx, &s, &mut slot, &gone).await?
    };
    if n > 0 {
        removed(&s, &slot, event);
    }
    Ok(Reply::Int(n))
}
