//! Publish and subscribe. The session runs what subscribes (`session/subscriptions.rs`); who hears what is in `subscribers.rs`.

use super::args::Args;
use super::cx::Cx;
use super::reply::Reply;
use super::subscribers::Kind;
use super::table::{FindKeys, Flags, Group, KeySpec, Row, Run, SessionOp, one};
use crate::error::Result;
use crate::keyspace::messages::Message;
use crate::{handler, help};
use bytes::Bytes;

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
    cx.outbox.publish(Message::Channel(channel.clone(), payload.clone()));
    Ok(receivers(cx, Kind::Channel, channel))
}

async fn spublish(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (channel, payload) = (args.next()?, args.next()?);
    cx.outbox.publish(Message::Shard(channel.clone(), payload.clone()));
    Ok(receivers(cx, Kind::Shard, channel))
}

fn receivers(cx: &Cx<'_>, kind: Kind, channel: &Bytes) -> Reply {
    Reply::Int(cx.server.subscribers.receivers(kind, channel) as i64)
}

async fn channels(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    list(cx, Kind::Channel, args)
}

async fn shardchannels(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    list(cx, Kind::Shard, args)
}

fn list(cx: &Cx<'_>, kind: Kind, args: Args<'_>) -> Result<Reply> {
    let pattern = match args.rest() {
        [] => None,
        [pattern] => Some(&pattern[..]),
        _ => return Err(args.no_such_form().into()),
    };
    Ok(Reply::bulks(cx.server.subscribers.matching(kind, pattern)))
}

async fn numsub(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(counts(cx, Kind::Channel, args))
}

async fn shardnumsub(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(counts(cx, Kind::Shard, args))
}

fn counts(cx: &Cx<'_>, kind: Kind, args: Args<'_>) -> Reply {
    let of = |name: &Bytes| Reply::Int(cx.server.subscribers.count(kind, name) as i64);
    Reply::Array(args.rest().iter().flat_map(|name| [Reply::Bulk(name.clone()), of(name)]).collect())
}

async fn numpat(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.server.subscribers.names(Kind::Pattern) as i64))
}
