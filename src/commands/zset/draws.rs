//! ZSCAN and ZRANDMEMBER.

use super::{READS, ROW, with_scores};
use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::generic::elements::{ElementScan, no_elements};
use crate::commands::generic::scan::Scanned;
use crate::env::Rng;
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::keys::MAX_RANKED;
use crate::server::doubles;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Count, Group, KEY_RO, Row};
use crate::store::Read;
use crate::types::zset::{self, Entry, Pick, Places, ZsetRep, scan as walk};
use bytes::Bytes;
use std::collections::HashSet;
use tokio::task::coop::consume_budget;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[ZRANDMEMBER, ZSCAN];

const OUT_OF_RANGE: ReplyError = ReplyError::new(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);
/// Most members that are drawn with repetitions.
const MAX_REPEATED: u64 = 1_000_000;
/// All members are read unless a smaller share of them is drawn: each draw reads about so many rows.
const SHARE: u64 = 128;

const ZSCAN: Command = Command::new(
    Row::new(Group::SortedSet, "zscan", -3, "2.8.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key cursor [MATCH pattern] [COUNT count]")
        .summary("Iterates over the members of a sorted set and their scores, a page per call.")
        .count(Count::Option)
        .tips(&["nondeterministic_output"]),
    handler!(zscan),
);

async fn zscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let opened = ElementScan::open::<ZsetRep>(cx, &s, &mut args, Scanned::Members).await?;
    let Some((slot, call)) = opened else { return Ok(no_elements()) };
    let (next, entries) = walk::scan(&s, slot.zset()?, call.at()).await?;
    let elements =
        entries.into_iter().map(|(member, score)| (member, Some(Bytes::from(doubles::text(score.number())))));
    call.page(MAX_RANKED, next, elements).await
}

const ZRANDMEMBER: Command = Command::new(
    Row::new(Group::SortedSet, "zrandmember", -2, "6.2.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key [<options: count [WITHSCORES]>]")
        .summary("Returns random members of a sorted set.")
        .count(Count::Second)
        .tips(&["nondeterministic_output"]),
    handler!(zrandmember),
);

async fn zrandmember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let mut rng = cx.rng.fork();
    let key = args.next()?;
    let count = match args.peek() {
        None => None,
        Some(raw) => match parse_i64(raw).ok_or(NOT_INTEGER)? {
            i64::MIN => return Err(OUT_OF_RANGE.into()),
            count => Some(count),
        },
    };
    let scored = match args.rest() {
        [] | [_] => false,
        [_, word] if word.eq_ignore_ascii_case(b"WITHSCORES") => true,
        _ => return Err(SYNTAX.into()),
    };
    if scored && count.is_some_and(|n| n.unsigned_abs() > i64::MAX as u64 / 2) {
        return Err(ReplyError::new("ERR value is out of range").into());
    }
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, key).await?;
    let rep = slot.zset()?;
    let len = zset::len(&s, rep, Read::Serializable).await?;
    let n = count.unwrap_or(1);
    if n < 0 && n.unsigned_abs() > MAX_REPEATED {
        let error = format!("ERR ZRANDMEMBER returns at most {MAX_REPEATED} members with repetitions");
        return Err(ReplyError::of(error).into());
    }
    let wanted = match n {
        _ if len == 0 => 0,
        n if n < 0 => n.unsigned_abs(),
        n => n.unsigned_abs().min(len),
    };
    cx.light(wanted.saturating_mul(ROW))?;
    let mut entries = match rep {
        _ if wanted == 0 => Vec::new(),
        Some(ZsetRep::Rows { oid, .. }) if wanted < len / SHARE => {
            let ranks = ranks(&mut rng, len, wanted, n < 0).await;
            zset::at(&s, *oid, &ranks).await?
        }
        _ => {
            cx.light(len.saturating_mul(ROW))?;
            let all = zset::range(&s, rep, &Places::all(), Pick::ALL, cx.most_kept()).await?;
            drawn(&mut rng, all, wanted as usize, n < 0).await
        }
    };
    Ok(match count {
        None => Reply::bulk_or_nil(entries.pop().map(|(member, _)| member)),
        Some(_) if scored => with_scores(entries),
        Some(_) => Reply::bulks(entries.into_iter().map(|(member, _)| member)),
    })
}

/// So many ranks below `len`: different ones, or with repetitions.
async fn ranks(rng: &mut Rng, len: u64, wanted: u64, repeated: bool) -> Vec<u64> {
    let (mut ranks, mut seen) = (Vec::new(), HashSet::new());
    while (ranks.len() as u64) < wanted {
        let rank = rng.below(len);
        if repeated || seen.insert(rank) {
            ranks.push(rank);
        }
        consume_budget().await;
    }
    ranks
}

/// So many of these: different ones, or with repetitions.
async fn drawn(rng: &mut Rng, mut all: Vec<Entry>, wanted: usize, repeated: bool) -> Vec<Entry> {
    let mut drawn = Vec::with_capacity(wanted);
    for n in 0..wanted {
        let from = if repeated { 0 } else { n };
        // Fewer than counted: a damaged store.
        let Some(left) = all.len().checked_sub(from).filter(|left| *left > 0) else { break };
        let at = from + rng.below(left as u64) as usize;
        drawn.extend(all.get(at).cloned());
        if !repeated {
            all.swap(n, at);
        }
        consume_budget().await;
    }
    drawn
}
