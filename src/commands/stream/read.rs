//! XREAD.
//!
//! The handler answers nil if there is nothing. Who waits, and runs it again, is `exec::waiting`. Inside a transaction
//! nobody waits.

use super::{READS, Size, ids, read_entries};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::timeouts::milliseconds;
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, Flags, Group, KeySpec, ReadOption, Row, Waits, read_options};
use crate::types::stream::Id;
use crate::types::stream::range;
use bytes::Bytes;

const KEYS: &[KeySpec] = &[KeySpec { flags: &["RO", "access"], begin: 1, find: FindKeys::Streams }];

/// XREAD.
pub(super) const XREAD: Command = Command::new(
    Row::new(Group::Stream, "xread", -4, "5.0.0")
        .flags(READS.or(Flags::BLOCKING).or(Flags::MOVABLEKEYS))
        .keys(KEYS)
        .syntax("[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]")
        .waits(Waits::Block)
        .summary("Returns the entries of streams behind ids; waits until there are some if BLOCK says so."),
    handler!(xread),
);

/// What XREAD and XREADGROUP are asked.
pub(super) struct Asked<'a> {
    /// The group and the consumer.
    pub(super) group: Option<(&'a Bytes, &'a Bytes)>,
    /// The most entries of each stream.
    pub(super) count: u64,
    /// Whether deliveries are not to be acknowledged.
    pub(super) no_ack: bool,
    /// Since when entries must be pending to be delivered again, in milliseconds.
    pub(super) claim: Option<u64>,
    /// The keys.
    pub(super) keys: &'a [Bytes],
    /// As many ids.
    pub(super) ids: &'a [Bytes],
}

const NO_IDLE_TIME: ReplyError = ReplyError::new("ERR min-idle-time is not an integer or out of range");
const NEGATIVE: ReplyError = ReplyError::new("ERR min-idle-time must be a positive integer");

impl<'a> Asked<'a> {
    /// Parses the arguments; `of_group`: those of XREADGROUP.
    pub(super) fn parse(args: Args<'a>, of_group: bool) -> ArgResult<Self> {
        let only = |name: &str| match of_group {
            true => Ok(()),
            false => Err(ReplyError::of(format!(
                "ERR The {name} option is only supported by XREADGROUP. You called XREAD instead."
            ))),
        };
        let (mut group, mut count, mut no_ack, mut claim) = (None, u64::MAX, false, None);
        let mut streams = None;
        for (option, args) in read_options(args.rest()) {
            match (option, args) {
                (ReadOption::Block, [ms]) => drop(milliseconds(ms)?),
                (ReadOption::Count, [most]) => {
                    let most = u64::try_from(parse_i64(most).ok_or(NOT_INTEGER)?).ok();
                    count = most.filter(|n| *n > 0).unwrap_or(u64::MAX);
                }
                (ReadOption::Claim, [least]) => {
                    only("CLAIM")?;
                    let least = parse_i64(least).ok_or(NO_IDLE_TIME)?;
                    claim = Some(u64::try_from(least).map_err(|_| NEGATIVE)?);
                }
                (ReadOption::Group, [name, consumer]) => {
                    only("GROUP")?;
                    group = Some((name, consumer));
                }
                (ReadOption::NoAck, _) => {
                    only("NOACK")?;
                    no_ack = true;
                }
                (ReadOption::Streams, [_, ..]) => streams = Some(args),
                _ => return Err(SYNTAX),
            }
        }
        let streams = streams.ok_or(SYNTAX)?;
        if streams.len() % 2 != 0 {
            let name = if of_group { "XREADGROUP" } else { "XREAD" };
            return Err(ReplyError::of(format!(
                "ERR Unbalanced '{}' list of streams: for each stream key an ID{} must be specified.",
                name.to_lowercase(),
                if of_group { " or '>'" } else { ", '+', or '$'" }
            )));
        }
        if of_group && group.is_none() {
            return Err(ReplyError::new("ERR Missing GROUP option for XREADGROUP"));
        }
        let (keys, ids) = streams.split_at(streams.len() / 2);
        Ok(Asked { group, count, no_ack, claim, keys, ids })
    }
}

const NO_GROUP: ReplyError = ReplyError::new(
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
);

async fn xread(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let asked = Asked::parse(args, false)?;
    let s = cx.scope()?;
    let mut wanted = Vec::with_capacity(asked.keys.len());
    for (key, raw) in asked.keys.iter().zip(asked.ids) {
        let slot = cx.look_up(&s, key).await?;
        let rep = slot.stream()?;
        let id = match &raw[..] {
            b">" => return Err(NO_GROUP.into()),
            raw if ids::is_end(raw) => ids::end(&s, rep, raw).await?,
            raw => ids::parse(raw, 0)?,
        };
        wanted.push((key, slot, id));
    }
    let (mut found, mut size) = (Vec::new(), Size::default());
    for (key, slot, id) in &wanted {
        let (Some(rep), Some(from)) = (slot.stream()?, id.next()) else { continue };
        let span = (from, Id::MAX);
        if range::end(&s, rep, span, false).await?.is_some() {
            let entries = read_entries(cx, &s, slot, span, (asked.count, false), &mut size).await?;
            found.push((Reply::Bulk((*key).clone()), entries));
        }
    }
    Ok(if found.is_empty() { Reply::NilArray } else { Reply::Keyed(found) })
}
