//! What takes several sorted sets, or sets: ZUNION, ZINTER, ZDIFF and the commands derived from them.

use super::{stored, with_scores};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::env::{aside_of, free};
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Makes, Ranked, Row, one};
use crate::store::Read;
use crate::types::object::{self, Slot};
use crate::types::prebuilt;
use crate::types::set;
use crate::types::zset::{self, Entry, Pick, Places, Score};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::collections::{HashMap, HashSet};
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] =
    &[ZDIFF, ZDIFFSTORE, ZINTER, ZINTERCARD, ZINTERSTORE, ZUNION, ZUNIONSTORE];

const READS: Flags = Flags::READONLY.or(Flags::HEAVY).or(Flags::MOVABLEKEYS);
const STORES: Flags = Flags::WRITE.or(Flags::DENYOOM).or(Flags::HEAVY).or(Flags::MOVABLEKEYS);

const NUMBERED: &[KeySpec] =
    &[KeySpec { flags: &["RO", "access"], begin: 1, find: FindKeys::Keynum { step: 1 } }];
const STORED: &[KeySpec] = &[
    one(&["OW", "update"]),
    KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Keynum { step: 1 } },
];

const WEIGHED: &str = "numkeys key [key ...] [WEIGHTS weight [weight ...]] [<aggregate: AGGREGATE <SUM | MIN | MAX>>] [WITHSCORES]";
const WEIGHED_STORED: &str = "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [<aggregate: AGGREGATE <SUM | MIN | MAX>>]";

/// The score of a member of several sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // Infinities of both signs.
            Aggregate::Sum => number(a + b),
            Aggregate::Min if b < a => b,
            Aggregate::Max if b > a => b,
            Aggregate::Min | Aggregate::Max => a,
        }
    }

    /// The same with `b`, so many times.
    fn of_many(self, a: f64, b: f64, times: u64) -> f64 {
        let multiple = b * times as f64;
        let is_exact = |x: f64| x.trunc() == x && x.abs() < MAX_EXACT;
        match self {
            Aggregate::Min | Aggregate::Max if times > 0 => self.of(a, b),
            Aggregate::Sum if is_exact(a) && is_exact(b) && is_exact(multiple) && is_exact(a + multiple) => {
                a + multiple
            }
            // Each sum is rounded.
            Aggregate::Sum | Aggregate::Min | Aggregate::Max => (0..times).fold(a, |a, _| self.of(a, b)),
        }
    }
}

/// Integers below have no sum that is rounded.
const MAX_EXACT: f64 = (1u64 << 53) as f64;

/// What is not a number counts as 0.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The keys that a line names.
fn numbered<'a>(args: &mut Args<'a>, name: &str) -> ArgResult<&'a [Bytes]> {
    let n = parse_i64(args.next()?).ok_or(NOT_INTEGER)?;
    if n < 1 {
        return Err(ReplyError::of(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    args.take(usize::try_from(n).unwrap_or(usize::MAX)).map_err(|_| SYNTAX)
}

/// What else a line asks for.
struct Asked {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl Asked {
    fn parse(args: &mut Args<'_>, op: Ranked, n: usize, stores: bool) -> ArgResult<Self> {
        let mut asked = Asked { weights: vec![1.0; n], aggregate: Aggregate::Sum, with_scores: false };
        while !args.is_empty() {
            match () {
                () if op != Ranked::Difference && args.len() > n && args.keyword("WEIGHTS") => {
                    for weight in &mut asked.weights {
                        let wrong = ReplyError::new("ERR weight value is not a float");
                        *weight = super::number(args.next()?).ok_or(wrong)?;
                    }
                }
                () if op != Ranked::Difference && args.len() > 1 && args.keyword("AGGREGATE") => {
                    asked.aggregate = match () {
                        () if args.keyword("SUM") => Aggregate::Sum,
                        () if args.keyword("MIN") => Aggregate::Min,
                        () if args.keyword("MAX") => Aggregate::Max,
                        () => return Err(SYNTAX),
                    };
                }
                () if !stores && args.keyword("WITHSCORES") => asked.with_scores = true,
                () => return Err(SYNTAX),
            }
        }
        Ok(asked)
    }
}

/// A source: a sorted set, or a set, whose members have the score 1.
enum Source<'a> {
    Scored(Option<&'a zset::ZsetRep>),
    Plain(Option<&'a set::SetRep>),
}

impl<'a> Source<'a> {
    fn of(slot: &'a Slot) -> Result<Self> {
        match slot.zset() {
            Ok(rep) => Ok(Source::Scored(rep)),
            Err(_) => slot.set().map(Source::Plain),
        }
    }

    async fn len(&self, s: &Scope<'_>) -> Result<u64> {
        match self {
            Source::Scored(rep) => zset::len(s, *rep, Read::Serializable).await,
            Source::Plain(rep) => set::card(s, *rep).await,
        }
    }

    async fn all(&self, s: &Scope<'_>) -> Result<Vec<(Bytes, f64)>> {
        Ok(match self {
            Source::Scored(rep) => {
                let entries = zset::range(s, *rep, &Places::all(), Pick::ALL, usize::MAX).await?;
                entries.into_iter().map(|(member, score)| (member, score.number())).collect()
            }
            Source::Plain(rep) => {
                set::members(s, *rep).await?.into_iter().map(|member| (member, 1.0)).collect()
            }
        })
    }

    /// Its first members, none of a set.
    async fn some(&self, s: &Scope<'_>, n: usize) -> Result<Vec<Bytes>> {
        let Source::Scored(rep) = self else { return Ok(Vec::new()) };
        let pick = Pick { limit: n as u64, ..Pick::ALL };
        let some = zset::range(s, *rep, &Places::all(), pick, usize::MAX).await?;
        Ok(some.into_iter().map(|(member, _)| member).collect())
    }

    async fn scores(&self, s: &Scope<'_>, members: &[Bytes]) -> Result<Vec<Option<f64>>> {
        Ok(match self {
            Source::Scored(rep) => {
                // Its number of members, read before, conflicts with every change; so many rows would be too many.
                let scores = zset::scores_read(s, *rep, members, Read::Snapshot).await?;
                scores.into_iter().map(|score| score.map(Score::number)).collect()
            }
            Source::Plain(rep) => {
                let found = set::contains_many(s, *rep, members).await?;
                found.into_iter().map(|is_there| is_there.then_some(1.0)).collect()
            }
        })
    }
}

/// A source, and how it counts.
struct Weighed<'a> {
    key: &'a Bytes,
    source: Source<'a>,
    len: u64,
    weight: f64,
    /// How often it is named in a row.
    times: u64,
}

/// A source with at most this many times the members that are looked for is read as a whole. From memory, 100 000 of
/// 400 000 read whole took as long (141 ms) as 100 000 looked up in more (121 to 182 ms); two of a million, half as long.
const WHOLE: u64 = 4;
/// Members of a source that stand for all.
const SAMPLE: usize = 256;
/// Members that are looked up at once.
const AT_ONCE: usize = 1024;
/// Members for which there is room from the start. Not for more: a client may name one large set many times.
const ROOM: u64 = 2 << 20;
/// Keys that are opened at once.
const KEYS_AT_ONCE: usize = 64;
/// Sums that are made without a pause.
const SUMS: u64 = 1000;

/// Opens all keys before anything is decided: a wrong type is an error even if the result is empty anyway.
async fn open(cx: &Cx<'_>, s: &Scope<'_>, keys: &[Bytes]) -> Result<Vec<Slot>> {
    let mut slots: Vec<Slot> = Vec::with_capacity(keys.len());
    for some in keys.chunks(KEYS_AT_ONCE) {
        for slot in try_join_all(some.iter().map(|key| cx.look_up(s, key))).await? {
            Source::of(&slot)?;
            slots.push(slot);
        }
    }
    Ok(slots)
}

/// The sources of an operation, in the order in which they are read.
struct Sources<'a> {
    op: Ranked,
    sources: Vec<Weighed<'a>>,
    /// The members that it reads, at least.
    reads: u64,
}

impl<'a> Sources<'a> {
    async fn of(s: &Scope<'_>, op: Ranked, slots: &'a [Slot], weights: &[f64]) -> Result<Self> {
        let mut sources: Vec<Weighed> = Vec::with_capacity(slots.len());
        for (slot, weight) in slots.iter().zip(weights) {
            let source = Source::of(slot)?;
            let len = source.len(s).await?;
            sources.push(Weighed { key: &slot.key, source, len, weight: *weight, times: 1 });
        }
        if op == Ranked::Difference {
            let mut seen = HashSet::new();
            let mut is_first = true;
            sources.retain(|source| std::mem::take(&mut is_first) || seen.insert(source.key));
        } else {
            // As in Redis: the order decides about the last digit of a sum.
            sources.sort_by_key(|source| source.len);
            sources.dedup_by(|again, source| {
                let is_same = again.key == source.key && again.weight.to_bits() == source.weight.to_bits();
                source.times += if is_same { again.times } else { 0 };
                is_same
            });
        }
        let reads = if op == Ranked::Union {
            sources.iter().map(|source| source.len).sum()
        } else {
            sources.first().map_or(0, |source| source.len)
        };
        Ok(Sources { op, sources, reads })
    }

    /// The bytes that it reads, at least.
    fn cost(&self) -> u64 {
        self.reads.saturating_mul(super::ROW)
    }

    /// About how many members it leaves: by a sample, or at least so many of a union. 0: not many, or not known.
    async fn about(&self, s: &Scope<'_>) -> Result<u64> {
        let first = self.sources.split_first().filter(|_| self.reads > stored::MOST_AT_ONCE as u64);
        let Some((first, others)) = first else { return Ok(0) };
        if self.op == Ranked::Union {
            return Ok(self.sources.iter().map(|source| source.len).max().unwrap_or(0));
        }
        let sample = first.source.some(s, SAMPLE).await?;
        let (of, mut left) = (sample.len(), sample);
        for other in others {
            let mut found = other.source.scores(s, &left).await?.into_iter();
            left.retain(|_| found.next().flatten().is_some() == (self.op == Ranked::Intersection));
        }
        Ok(first.len * left.len() as u64 / of.max(1) as u64)
    }

    /// The members that it leaves, with their scores, in no order.
    async fn combine(self, s: &Scope<'_>, aggregate: Aggregate) -> Result<HashMap<Bytes, f64>> {
        let Sources { op, sources, reads } = self;
        let mut sources = sources.into_iter();
        let Some(first) = sources.next() else { return Ok(HashMap::new()) };
        // A table that grows is hashed again as a whole, and others wait for that.
        let mut found: HashMap<Bytes, f64> = HashMap::with_capacity(reads.min(ROOM) as usize);
        for (member, score) in first.source.all(s).await? {
            let score = number(score * first.weight);
            found.insert(member, aggregate.of_many(score, score, first.times - 1));
            pause(first.times).await;
        }
        for other in sources {
            match op {
                Ranked::Union => other.join(s, &mut found, aggregate).await?,
                _ if other.len <= (found.len() as u64).saturating_mul(WHOLE) => {
                    other.sift_whole(s, op, &mut found, aggregate).await?;
                }
                _ => other.sift(s, op, &mut found, aggregate).await?,
            }
        }
        Ok(found)
    }
}

impl Weighed<'_> {
    /// Adds its members to those of a union.
    async fn join(&self, s: &Scope<'_>, found: &mut HashMap<Bytes, f64>, aggregate: Aggregate) -> Result<()> {
        for (member, score) in self.source.all(s).await? {
            let score = number(score * self.weight);
            let of = |before: &mut f64| *before = aggregate.of_many(*before, score, self.times);
            let new = || aggregate.of_many(score, score, self.times - 1);
            found.entry(member).and_modify(of).or_insert_with(new);
            pause(self.times).await;
        }
        Ok(())
    }

    /// Leaves what an intersection with it, or a difference, leaves: reads all of it.
    async fn sift_whole(
        &self,
        s: &Scope<'_>,
        op: Ranked,
        found: &mut HashMap<Bytes, f64>,
        aggregate: Aggregate,
    ) -> Result<()> {
        let intersects = op == Ranked::Intersection;
        // What stays is moved to a table of its own.
        let mut both = HashMap::with_capacity(if intersects { found.len() } else { 0 });
        for (member, other) in self.source.all(s).await? {
            let Some(score) = found.remove(&member) else { continue };
            if intersects {
                both.insert(member, aggregate.of_many(score, other * self.weight, self.times));
            }
            pause(self.times).await;
        }
        if intersects {
            free(found.len(), std::mem::replace(found, both));
        }
        Ok(())
    }

    /// The same: looks for each member there.
    async fn sift(
        &self,
        s: &Scope<'_>,
        op: Ranked,
        found: &mut HashMap<Bytes, f64>,
        aggregate: Aggregate,
    ) -> Result<()> {
        let members: Vec<Bytes> = aside_of(found.len(), || found.keys().cloned().collect());
        for some in members.chunks(AT_ONCE) {
            for (member, other) in some.iter().zip(self.source.scores(s, some).await?) {
                match (op, other) {
                    (Ranked::Intersection, Some(other)) => {
                        // As in Redis, what is not a number makes the sum 0.
                        let other = other * self.weight;
                        let of = |score: &mut f64| *score = aggregate.of_many(*score, other, self.times);
                        found.entry(member.clone()).and_modify(of);
                        pause(self.times).await;
                    }
                    (Ranked::Intersection, None) | (_, Some(_)) => drop(found.remove(member)),
                    (_, None) => {}
                }
            }
            consume_budget().await;
        }
        Ok(())
    }
}

/// Lets others run after so many sums.
async fn pause(sums: u64) {
    if sums > SUMS { yield_now().await } else { consume_budget().await }
}

fn entries(found: HashMap<Bytes, f64>) -> impl Iterator<Item = Entry> {
    found.into_iter().filter_map(|(member, score)| Some((member, Score::new(score)?)))
}

async fn answer(cx: &mut Cx<'_>, mut args: Args<'_>, op: Ranked, name: &str) -> Result<Reply> {
    let keys = numbered(&mut args, name)?;
    let s = cx.scope()?;
    let slots = open(cx, &s, keys).await?;
    let asked = Asked::parse(&mut args, op, keys.len(), false)?;
    let sources = Sources::of(&s, op, &slots, &asked.weights).await?;
    cx.light(sources.cost())?;
    let found = sources.combine(&s, asked.aggregate).await?;
    let bytes: usize = found.keys().map(Bytes::len).sum();
    if bytes > cx.most_kept() {
        return Err(StoreError::ReplyTooLarge(bytes).into());
    }
    Ok(aside_of(found.len(), || {
        let mut all: Vec<Entry> = entries(found).collect();
        zset::sort(&mut all);
        match asked.with_scores {
            true => with_scores(all),
            false => Reply::bulks(all.into_iter().map(|(member, _)| member)),
        }
    }))
}

async fn store(cx: &mut Cx<'_>, mut args: Args<'_>, op: Ranked, name: &'static str) -> Result<Reply> {
    let (target, keys) = (args.next()?, numbered(&mut args, name)?);
    let s = cx.scope()?;
    let slots = open(cx, &s, keys).await?;
    let asked = Asked::parse(&mut args, op, keys.len(), true)?;
    let built = prebuilt::result(cx.prebuilt);
    let entries = match built {
        Some(_) => Vec::new(),
        None => {
            let sources = Sources::of(&s, op, &slots, &asked.weights).await?;
            cx.light(sources.cost())?;
            if cx.may_prebuild && sources.about(&s).await? > stored::MOST_AT_ONCE as u64 {
                return Err(StoreError::TooLarge.into());
            }
            let found = sources.combine(&s, asked.aggregate).await?;
            aside_of(found.len(), || entries(found).collect())
        }
    };
    stored::put(cx, &s, target, entries, name).await
}

/// The sources that the arguments after the destination name, and what an operation leaves of them. None if the
/// arguments are wrong.
pub(crate) async fn of_keys(
    s: &Scope<'_>,
    op: Ranked,
    mut args: Args<'_>,
) -> Result<Option<(Vec<Slot>, Vec<Entry>)>> {
    let Ok(keys) = numbered(&mut args, "") else { return Ok(None) };
    let Ok(asked) = Asked::parse(&mut args, op, keys.len(), true) else { return Ok(None) };
    let mut slots = Vec::with_capacity(keys.len());
    for key in keys {
        slots.push(object::open(s, key, Read::Snapshot).await?);
    }
    if slots.iter().any(|slot| Source::of(slot).is_err()) {
        return Ok(None);
    }
    let found = Sources::of(s, op, &slots, &asked.weights).await?.combine(s, asked.aggregate).await?;
    let entries = aside_of(found.len(), || entries(found).collect());
    Ok(Some((slots, entries)))
}

const ZUNION: Command = Command::new(
    Row::new(Group::SortedSet, "zunion", -3, "6.2.0")
        .flags(READS)
        .keys(NUMBERED)
        .syntax(WEIGHED)
        .types(&[("weight", "integer")])
        .summary("Returns the members that any of the sorted sets has."),
    handler!(zunion),
);

async fn zunion(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    answer(cx, args, Ranked::Union, "zunion").await
}

const ZINTER: Command = Command::new(
    Row::new(Group::SortedSet, "zinter", -3, "6.2.0")
        .flags(READS)
        .keys(NUMBERED)
        .syntax(WEIGHED)
        .types(&[("weight", "integer")])
        .summary("Returns the members that all sorted sets have."),
    handler!(zinter),
);

async fn zinter(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    answer(cx, args, Ranked::Intersection, "zinter").await
}

const ZDIFF: Command = Command::new(
    Row::new(Group::SortedSet, "zdiff", -3, "6.2.0")
        .flags(READS)
        .keys(NUMBERED)
        .syntax("numkeys key [key ...] [WITHSCORES]")
        .summary("Returns the members of the first sorted set that no other has."),
    handler!(zdiff),
);

async fn zdiff(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    answer(cx, args, Ranked::Difference, "zdiff").await
}

const ZUNIONSTORE: Command = Command::new(
    Row::new(Group::SortedSet, "zunionstore", -4, "2.0.0")
        .flags(STORES)
        .makes(Makes::Ranked(Ranked::Union))
        .keys(STORED)
        .syntax(WEIGHED_STORED)
        .types(&[("weight", "integer")])
        .summary("Stores the members that any of the sorted sets has."),
    handler!(zunionstore),
);

async fn zunionstore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    store(cx, args, Ranked::Union, "zunionstore").await
}

const ZINTERSTORE: Command = Command::new(
    Row::new(Group::SortedSet, "zinterstore", -4, "2.0.0")
        .flags(STORES)
        .makes(Makes::Ranked(Ranked::Intersection))
        .keys(STORED)
        .syntax(WEIGHED_STORED)
        .types(&[("weight", "integer")])
        .summary("Stores the members that all sorted sets have."),
    handler!(zinterstore),
);

async fn zinterstore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    store(cx, args, Ranked::Intersection, "zinterstore").await
}

const ZDIFFSTORE: Command = Command::new(
    Row::new(Group::SortedSet, "zdiffstore", -4, "6.2.0")
        .flags(STORES)
        .makes(Makes::Ranked(Ranked::Difference))
        .keys(STORED)
        .syntax("destination numkeys key [key ...]")
        .summary("Stores the members of the first sorted set that no other has."),
    handler!(zdiffstore),
);

async fn zdiffstore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    store(cx, args, Ranked::Difference, "zdiffstore").await
}

const ZINTERCARD: Command = Command::new(
    Row::new(Group::SortedSet, "zintercard", -3, "7.0.0")
        .flags(READS)
        .keys(NUMBERED)
        .syntax("numkeys key [key ...] [LIMIT limit]")
        .summary("Counts the members that all sorted sets have."),
    handler!(zintercard),
);

async fn zintercard(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let keys = numbered(&mut args, "zintercard")?;
    let s = cx.scope()?;
    let slots = open(cx, &s, keys).await?;
    let mut limit = 0;
    while !args.is_empty() {
        if args.len() < 2 || !args.keyword("LIMIT") {
            return Err(SYNTAX.into());
        }
        let raw = parse_i64(args.next()?).and_then(|n| u64::try_from(n).ok());
        limit = raw.ok_or(ReplyError::new("ERR LIMIT can't be negative"))?;
    }
    let sources = Sources::of(&s, Ranked::Intersection, &slots, &vec![1.0; keys.len()]).await?;
    cx.light(sources.cost())?;
    if limit == 0 {
        let found = sources.combine(&s, Aggregate::Sum).await?;
        let n = found.len();
        free(n, found);
        return Ok(Reply::Int(n as i64));
    }
    let Some((first, others)) = sources.sources.split_first() else { return Ok(Reply::Int(0)) };
    let members = first.source.all(&s).await?;
    let mut n = 0;
    for some in members.chunks(AT_ONCE) {
        let mut common: Vec<Bytes> = some.iter().map(|(member, _)| member.clone()).collect();
        for other in others {
            let mut found = other.source.scores(&s, &common).await?.into_iter();
            common.retain(|_| found.next().flatten().is_some());
        }
        n += common.len() as u64;
        if n >= limit {
            break;
        }
        consume_budget().await;
    }
    free(members.len(), members);
    Ok(Reply::Int(n.min(limit).cast_signed()))
}
