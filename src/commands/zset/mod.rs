//! Sorted set commands: members and their scores. Ranges, and what takes several keys, have files of their own.

mod ahead;
mod algebra;
mod draws;
mod pops;
mod ranges;
mod stored;
#[cfg(test)]
mod tests;
mod waiting;

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{NOT_FLOAT, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, KEY_META, KEY_RO, KEY_RW, KeySpec, Row, Scores, one};
use crate::store::{MAX_TRANSACTION, Read};
use crate::types::object::{self, Slot};
use crate::types::zset::{self, Change, Entry, Limits, Score};
pub(crate) use ahead::ahead;
pub(crate) use algebra::{COMMANDS as ALGEBRA, of_keys};
use bytes::Bytes;
pub(crate) use draws::COMMANDS as DRAWS;
pub(crate) use pops::COMMANDS as POPS;
pub(crate) use ranges::{COMMANDS as RANGES, STORED as RANGE_STORED, of_key};
use std::collections::HashMap;
pub(crate) use stored::put;
pub(crate) use waiting::COMMANDS as WAITING;

const READS: Flags = Flags::READONLY;
const READS_FAST: Flags = READS.or(Flags::FAST);
const WRITES_FAST: Flags = Flags::WRITE.or(Flags::FAST);
const GROWS_FAST: Flags = WRITES_FAST.or(Flags::DENYOOM);

const DELETED: &[KeySpec] = &[one(&["RW", "delete"])];
const TAKEN: &[KeySpec] = &[one(&["RW", "access", "delete"])];

/// More members cannot be removed in one transaction, unless these are all: each has two rows.
const MOST_REMOVED: u64 = MAX_TRANSACTION as u64 / 100;
/// Approximate bytes of a member in memory, for [`Cx::light`].
pub(crate) const ROW: u64 = 128;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[ZADD, ZCARD, ZINCRBY, ZMSCORE, ZRANK, ZREM, ZREVRANK, ZSCORE];

const NAN: ReplyError = ReplyError::new("ERR resulting score is not a number (NaN)");

fn limits(cx: &Cx<'_>) -> Limits {
    Limits::of(&cx.server.config.get())
}

/// A score, as C's `strtod` reads it.
fn score(raw: &[u8]) -> ArgResult<Score> {
    number(raw).and_then(Score::new).ok_or(NOT_FLOAT)
}

/// As Redis' `string2d`: no space, no NaN, neither overflow nor underflow.
pub(crate) fn number(raw: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(raw).ok()?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(hex) = unsigned.strip_prefix("0x").or(unsigned.strip_prefix("0X")) {
        let number = crate::commands::float::parse_hex_double(hex.as_bytes())?;
        return Some(if text.starts_with('-') { -number } else { number });
    }
    let is_infinite = ["inf", "infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name));
    let number: f64 = text.parse().ok()?;
    let digits = unsigned.split(['e', 'E']).next().unwrap_or_default();
    let is_lost = number == 0.0 && digits.bytes().any(|digit| (b'1'..=b'9').contains(&digit));
    (!number.is_nan() && !is_lost && number.is_infinite() == is_infinite).then_some(number)
}

/// Announces that members went, and the key with the last one.
fn removed(s: &Scope<'_>, slot: &Slot, event: &'static str) {
    s.notify(Events::ZSET, event, &slot.key);
    if !slot.exists() {
        s.notify(Events::GENERIC, "del", &slot.key);
    }
}

/// Members and scores in turn: an array in RESP2, one of pairs in RESP3.
fn with_scores(entries: Vec<Entry>) -> Reply {
    let pair = |(member, score): Entry| (Reply::Bulk(member), Reply::Double(score.number()));
    Reply::Pairs(entries.into_iter().map(pair).collect())
}

/// The options of ZADD.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Adding {
    pub(crate) if_absent: bool,
    pub(crate) if_present: bool,
    if_greater: bool,
    if_less: bool,
    pub(crate) counts_changed: bool,
    increments: bool,
}

impl Adding {
    fn parse(args: &mut Args<'_>) -> Self {
        let mut options = Adding::default();
        loop {
            match () {
                () if args.keyword("NX") => options.if_absent = true,
                () if args.keyword("XX") => options.if_present = true,
                () if args.keyword("GT") => options.if_greater = true,
                () if args.keyword("LT") => options.if_less = true,
                () if args.keyword("CH") => options.counts_changed = true,
                () if args.keyword("INCR") => options.increments = true,
                () => return options,
            }
        }
    }

    fn check(&self, pairs: usize) -> ArgResult<()> {
        let exclusive =
            [self.if_absent, self.if_greater, self.if_less].into_iter().filter(|set| *set).count();
        match () {
            () if self.if_absent && self.if_present => {
                Err(ReplyError::new("ERR XX and NX options at the same time are not compatible"))
            }
            () if exclusive > 1 => {
                Err(ReplyError::new("ERR GT, LT, and/or NX options at the same time are not compatible"))
            }
            () if self.increments && pairs > 1 => {
                Err(ReplyError::new("ERR INCR option supports a single increment-element pair"))
            }
            () => Ok(()),
        }
    }

    /// The score that a member with the score `old` gets. None: it stays as it is.
    fn apply(&self, old: Option<Score>, given: Score) -> ArgResult<Option<Score>> {
        let Some(old) = old else { return Ok((!self.if_present).then_some(given)) };
        if self.if_absent {
            return Ok(None);
        }
        let new = match self.increments {
            true => Score::new(old.number() + given.number()).ok_or(NAN)?,
            false => given,
        };
        let refused = self.if_greater && new <= old || self.if_less && new >= old;
        Ok((!refused).then_some(new))
    }
}

const ZADD: Command = Command::new(
    Row::new(Group::SortedSet, "zadd", -4, "1.2.0")
        .flags(GROWS_FAST)
        .keys(KEY_RW)
        .scores(Scores::Given)
        .syntax("key [<condition: NX | XX>] [<comparison: GT | LT>] [<change: CH>] [<increment: INCR>] <data: score member> [score member ...]")
        .types(&[("score", "double")])
        .summary("Adds members to a sorted set, or changes their scores."),
    handler!(zadd),
);

async fn zadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let options = Adding::parse(&mut args);
    let (pairs, rest) = args.rest().as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(SYNTAX.into());
    }
    options.check(pairs.len())?;
    let pairs: Vec<(&Bytes, Score)> =
        pairs.iter().map(|[raw, member]| Ok((member, score(raw)?))).collect::<ArgResult<_>>()?;
    add(cx, key, &options, &pairs, "zadd").await
}

const ZINCRBY: Command = Command::new(
    Row::new(Group::SortedSet, "zincrby", 4, "1.2.0")
        .flags(GROWS_FAST)
        .keys(crate::spec::KEY_CHANGED)
        .scores(Scores::Added)
        .syntax("key increment member")
        .summary("Adds a number to the score of a member; 0 if there is none."),
    handler!(zincrby),
);

async fn zincrby(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    // As ZADD, it takes such a word for an option.
    if Adding::parse(&mut args) != Adding::default() {
        return Err(SYNTAX.into());
    }
    let (by, member) = (score(args.next()?)?, args.next()?);
    let options = Adding { increments: true, ..Adding::default() };
    add(cx, key, &options, &[(member, by)], "zincr").await
}

/// Adds members, or changes their scores.
pub(crate) async fn add(
    cx: &Cx<'_>,
    key: &Bytes,
    options: &Adding,
    pairs: &[(&Bytes, Score)],
    event: &'static str,
) -> Result<Reply> {
    cx.light(pairs.iter().map(|(member, _)| member.len() as u64 + ROW).sum())?;
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, key).await?;
    let names: Vec<Bytes> = pairs.iter().map(|(member, _)| Bytes::clone(member)).collect();
    let old = zset::scores(&s, slot.zset()?, &names).await?;
    let mut now: HashMap<&Bytes, (Option<Score>, Option<Score>)> = HashMap::new();
    let (mut new, mut changed, mut last) = (0, 0, None);
    for ((member, given), old) in pairs.iter().zip(old) {
        let place = now.entry(member).or_insert((old, old));
        last = options.apply(place.1, *given)?;
        if let Some(score) = last {
            new += i64::from(place.1.is_none());
            changed += i64::from(place.1.is_some_and(|before| before != score));
            // The other zero is no change.
            place.1 = place.1.filter(|before| *before == score).or(Some(score));
        }
    }
    let changes = now.into_iter().filter(|(_, (from, to))| from != to);
    let changes: Vec<Change> =
        changes.map(|(member, (from, to))| Change { member: member.clone(), from, to }).collect();
    if !changes.is_empty() {
        zset::change(&s, &mut slot, limits(cx), &changes).await?;
    }
    if new + changed > 0 {
        let event = if options.increments { "zincr" } else { event };
        s.notify(Events::ZSET, event, key);
    }
    Ok(match options.increments {
        true => last.map_or(Reply::Nil, |score| Reply::Double(score.number())),
        false if options.counts_changed => Reply::Int(new + changed),
        false => Reply::Int(new),
    })
}

const ZREM: Command = Command::new(
    Row::new(Group::SortedSet, "zrem", -3, "1.2.0")
        .flags(WRITES_FAST)
        .keys(DELETED)
        .scores(Scores::All)
        .syntax("key member [member ...]")
        .summary("Removes members from a sorted set; removing the last one deletes the key."),
    handler!(zrem),
);

async fn zrem(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, args.next()?).await?;
    cx.light(args.rest().iter().map(|member| member.len() as u64 + ROW).sum())?;
    let old = zset::scores(&s, slot.zset()?, args.rest()).await?;
    let found: HashMap<&Bytes, Score> =
        args.rest().iter().zip(old).filter_map(|(member, score)| Some((member, score?))).collect();
    let gone = |(member, score): (&Bytes, Score)| (member.clone(), score);
    let gone: Vec<Entry> = found.into_iter().map(gone).collect();
    let n = remove(cx, &s, &mut slot, &gone).await?;
    if n > 0 {
        removed(&s, &slot, "zrem");
    }
    Ok(Reply::Int(n))
}

/// Removes members that exist. Returns their number.
async fn remove(cx: &Cx<'_>, s: &Scope<'_>, slot: &mut Slot, gone: &[Entry]) -> Result<i64> {
    if !gone.is_empty() {
        let goes = |(member, score): &Entry| Change { member: member.clone(), from: Some(*score), to: None };
        let changes: Vec<Change> = gone.iter().map(goes).collect();
        zset::change(s, slot, limits(cx), &changes).await?;
    }
    Ok(gone.len() as i64)
}

const ZCARD: Command = Command::new(
    Row::new(Group::SortedSet, "zcard", 2, "1.2.0")
        .flags(READS_FAST)
        .keys(KEY_META)
        .syntax("key")
        .summary("Returns the number of members of a sorted set."),
    handler!(zcard),
);

async fn zcard(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    Ok(Reply::Int(zset::len(&s, slot.zset()?, Read::Serializable).await?.cast_signed()))
}

const ZSCORE: Command = Command::new(
    Row::new(Group::SortedSet, "zscore", 3, "1.2.0")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .scores(Scores::One)
        .syntax("key member")
        .summary("Returns the score of a member."),
    handler!(zscore),
);

async fn zscore(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    let scores = zset::scores(&s, slot.zset()?, args.rest()).await?;
    Ok(or_nil(scores.into_iter().next().flatten()))
}

fn or_nil(score: Option<Score>) -> Reply {
    score.map_or(Reply::Nil, |score| Reply::Double(score.number()))
}

const ZMSCORE: Command = Command::new(
    Row::new(Group::SortedSet, "zmscore", -3, "6.2.0")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .scores(Scores::All)
        .syntax("key member [member ...]")
        .summary("Returns the scores of several members."),
    handler!(zmscore),
);

async fn zmscore(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    cx.light(args.rest().iter().map(|member| member.len() as u64 + ROW).sum())?;
    let scores = zset::scores(&s, slot.zset()?, args.rest()).await?;
    Ok(Reply::Array(scores.into_iter().map(or_nil).collect()))
}

const ZRANK: Command = Command::new(
    Row::new(Group::SortedSet, "zrank", -3, "2.0.0")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .scores(Scores::One)
        .syntax("key member [WITHSCORE]")
        .summary("Returns the rank of a member, counted from the lowest score."),
    handler!(zrank),
);

async fn zrank(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    rank(cx, args, false).await
}

const ZREVRANK: Command = Command::new(
    Row::new(Group::SortedSet, "zrevrank", -3, "2.0.0")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .scores(Scores::One)
        .syntax("key member [WITHSCORE]")
        .summary("Returns the rank of a member, counted from the highest score."),
    handler!(zrevrank),
);

async fn zrevrank(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    rank(cx, args, true).await
}

async fn rank(cx: &Cx<'_>, mut args: Args<'_>, reverse: bool) -> Result<Reply> {
    let (key, member) = (args.next()?, args.next()?);
    if args.len() > 1 {
        let name = if reverse { "zrevrank" } else { "zrank" };
        return Err(ReplyError::of(format!("ERR wrong number of arguments for '{name}' command")).into());
    }
    let with_score = args.keyword("WITHSCORE");
    args.end()?;
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, key).await?;
    let found = zset::rank(&s, slot.zset()?, member, reverse).await?;
    Ok(match found {
        None if with_score => Reply::NilArray,
        None => Reply::Nil,
        Some((rank, score)) if with_score => {
            Reply::Array(vec![Reply::Int(rank.cast_signed()), Reply::Double(score.number())])
        }
        Some((rank, _)) => Reply::Int(rank.cast_signed()),
    })
}
