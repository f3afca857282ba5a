//! Publish and subscribe. The session runs what subscribes (`session/subscriptions.rs`); who hears what is in `subscribers.rs`.

use super::args::{ArgResult, Args};
use super::cx::Cx;
use super::glob::{Case, Glob};
use super::pace::Pace;
use super::reply::Reply;
use super::subscribers::Kind;
use super::table::{FindKeys, Flags, Group, KeySpec, Row, Run, SessionOp, one};
use crate::error::{ReplyError, Result};
use crate::keyspace::messages::Message;
use crate::{handler, help};
use bytes::Bytes;

const TOO_LONG: ReplyError =
    ReplyError::new("ERR the pattern has more than 262144 wildcards and classes: use fewer");

const ASKS: Flags = Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE);
const SUBSCRIBES: Flags = ASKS.or(Flags::NOSCRIPT);
const PUBLISHES: Flags = ASKS.or(Flags::FAST).or(Flags::TELLS);

/// Redis Cluster finds a shard channel's node as a key's.
const SHARD: &[KeySpec] = &[one(&["not_key"])];
const SHARDS: &[KeySpec] =
    &[KeySpec { flags: &["not_key"], begin: 1, find: FindKeys::Range { last: -1, step: 1 } }];

const BASE: Row = Row {
    name: "",
    arity: 2,
    flags: ASKS,
    keys: &[],
    group: Group::Pubsub,
    since: "2.8.0",
    syntax: "",
    summary: "",
    run: Run::Container,
    subs: &[],
};

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "psubscribe",
        arity: -2,
        flags: SUBSCRIBES,
        since: "2.0.0",
        syntax: "pattern [pattern ...]",
        summary: "Listens to all channels whose names match patterns.",
        run: Run::Session(SessionOp::Subscribe(Kind::Pattern)),
        ..BASE
    },
    Row {
        name: "publish",
        arity: 3,
        flags: PUBLISHES,
        since: "2.0.0",
        syntax: "channel message",
        summary: "Sends a message to those who listen to a channel; counts those of this server.",
        run: handler!(publish),
        ..BASE
    },
    Row {
        name: "pubsub",
        arity: -2,
        flags: Flags::NONE,
        summary: "Looks at this server's channels.",
        subs: SUBS,
        ..BASE
    },
    Row {
        name: "punsubscribe",
        arity: -1,
        flags: SUBSCRIBES,
        since: "2.0.0",
        syntax: "[pattern [pattern ...]]",
        summary: "No longer listens to the channels of patterns, or of any pattern.",
        run: Run::Session(SessionOp::Unsubscribe(Kind::Pattern)),
        ..BASE
    },
    Row {
        name: "spublish",
        arity: 3,
        flags: PUBLISHES,
        keys: SHARD,
        since: "7.0.0",
        syntax: "shardchannel message",
        summary: "Sends a message to those who listen to a shard channel; counts those of this server.",
        run: handler!(spublish),
        ..BASE
    },
    Row {
        name: "ssubscribe",
        arity: -2,
        flags: SUBSCRIBES,
        keys: SHARDS,
        since: "7.0.0",
        syntax: "shardchannel [shardchannel ...]",
        summary: "Listens to shard channels.",
        run: Run::Session(SessionOp::Subscribe(Kind::Shard)),
        ..BASE
    },
    Row {
        name: "subscribe",
        arity: -2,
        flags: SUBSCRIBES,
        since: "2.0.0",
        syntax: "channel [channel ...]",
        summary: "Listens to channels.",
        run: Run::Session(SessionOp::Subscribe(Kind::Channel)),
        ..BASE
    },
    Row {
        name: "sunsubscribe",
        arity: -1,
        flags: SUBSCRIBES,
        keys: SHARDS,
        since: "7.0.0",
        syntax: "[shardchannel [shardchannel ...]]",
        summary: "No longer listens to shard channels, or to any.",
        run: Run::Session(SessionOp::Unsubscribe(Kind::Shard)),
        ..BASE
    },
    Row {
        name: "unsubscribe",
        arity: -1,
        flags: SUBSCRIBES,
        since: "2.0.0",
        syntax: "[channel [channel ...]]",
        summary: "No longer listens to channels, or to any.",
        run: Run::Session(SessionOp::Unsubscribe(Kind::Channel)),
        ..BASE
    },
];

const SUBS: &[Row] = &[
    Row {
        name: "channels",
        arity: -2,
        syntax: "[pattern]",
        summary: "Lists the channels that somebody listens to on this server.",
        run: handler!(channels),
        ..BASE
    },
    help!("pubsub", Group::Pubsub, "6.2.0"),
    Row {
        name: "numpat",
        summary: "Counts the patterns that somebody listens to on this server.",
        run: handler!(numpat),
        ..BASE
    },
    Row {
        name: "numsub",
        arity: -2,
        syntax: "[channel [channel ...]]",
        summary: "Counts who listens to channels on this server, not by a pattern.",
        run: handler!(numsub),
        ..BASE
    },
    Row {
        name: "shardchannels",
        arity: -2,
        since: "7.0.0",
        syntax: "[pattern]",
        summary: "Lists the shard channels that somebody listens to on this server.",
        run: handler!(shardchannels),
        ..BASE
    },
    Row {
        name: "shardnumsub",
        arity: -2,
        since: "7.0.0",
        syntax: "[shardchannel [shardchannel ...]]",
        summary: "Counts who listens to shard channels on this server.",
        run: handler!(shardnumsub),
        ..BASE
    },
];

async fn publish(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (channel, payload) = (args.next()?, args.next()?);
    let [name, payload] = own(channel, payload);
    cx.outbox.publish(Message::Channel(name, payload));
    Ok(receivers(cx, Kind::Channel, channel).await)
}

async fn spublish(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (channel, payload) = (args.next()?, args.next()?);
    let [name, payload] = own(channel, payload);
    cx.outbox.publish(Message::Shard(name, payload));
    Ok(receivers(cx, Kind::Shard, channel).await)
}

/// Steps of work ([`Pace`]) that a name costs that is counted.
const NAME: usize = 1 << 6;

/// Bytes that a message may hold of the buffer that its request was read into, beside its own.
const BUFFER: usize = 64 << 10;

/// A channel and a message that wait for receivers, who may be slow. They are slices of the buffer of a request: short ones are
/// copied, for they would hold all of it and be counted as little. A long one is most of it.
fn own(channel: &Bytes, payload: &Bytes) -> [Bytes; 2] {
    let own = |text: &Bytes, other: &Bytes| {
        let is_most = text.len() > BUFFER && text.len() >= other.len();
        if is_most { text.clone() } else { Bytes::copy_from_slice(text) }
    };
    [own(channel, payload), own(payload, channel)]
}

async fn receivers(cx: &Cx<'_>, kind: Kind, channel: &Bytes) -> Reply {
    Reply::Int(cx.server.subscribers.receivers(kind, channel).await as i64)
}

async fn channels(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    list(cx, Kind::Channel, args).await
}

async fn shardchannels(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    list(cx, Kind::Shard, args).await
}

async fn list(cx: &Cx<'_>, kind: Kind, args: Args<'_>) -> Result<Reply> {
    let pattern = match args.rest() {
        [] => None,
        [pattern] => Some(read_pattern(pattern, &mut Pace::default()).await?),
        _ => return Err(args.no_such_form().into()),
    };
    Ok(Reply::bulks(cx.server.subscribers.matching(kind, pattern.as_ref()).await))
}

/// A pattern of channels. Their names may have any length.
pub async fn read_pattern(pattern: &[u8], pace: &mut Pace) -> ArgResult<Glob> {
    let glob = Glob::read(pattern, Case::Exact, usize::MAX, pace).await;
    if glob.is_whole() { Ok(glob) } else { Err(TOO_LONG) }
}

async fn numsub(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(counts(cx, Kind::Channel, args).await)
}

async fn shardnumsub(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(counts(cx, Kind::Shard, args).await)
}

async fn counts(cx: &Cx<'_>, kind: Kind, args: Args<'_>) -> Reply {
    let (mut counts, mut pace) = (Vec::with_capacity(args.len() * 2), Pace::default());
    for name in args.rest() {
        let count = cx.server.subscribers.count(kind, name);
        counts.extend([Reply::Bulk(name.clone()), Reply::Int(count as i64)]);
        pace.spend(NAME).await;
    }
    Reply::Array(counts)
}

async fn numpat(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.server.subscribers.names(Kind::Pattern) as i64))
}
