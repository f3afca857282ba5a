//! Publish and subscribe. The session runs the subscribing commands (`session/subscriptions.rs`);
//! [`crate::server::subscribers`] delivers messages.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::{Command, Run, SessionOp};
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::keyspace::cluster::messages::Message;
use crate::server::glob::{Case, Glob};
use crate::server::pace::Pace;
use crate::server::reply::Reply;
use crate::server::subscribers::SubscriptionKind;
use crate::spec::{Channels, FindKeys, Flags, Group, KeySpec, Row, one};
use crate::{handler, help};
use bytes::Bytes;

const TOO_LONG: ReplyError = ReplyError::new("ERR the pattern has more than 262144 wildcards and classes");

const ASKS: Flags = Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE);
const SUBSCRIBES: Flags = ASKS.or(Flags::NOSCRIPT).or(Flags::WHILE_SUBSCRIBED);
const PUBLISHES: Flags = ASKS.or(Flags::FAST).or(Flags::PUBLISHES);

/// Redis Cluster maps a shard channel to a node like a key.
const SHARD: &[KeySpec] = &[one(&["not_key"])];
const SHARDS: &[KeySpec] =
    &[KeySpec { flags: &["not_key"], begin: 1, find: FindKeys::Range { last: -1, step: 1 } }];

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] =
    &[PSUBSCRIBE, PUBLISH, PUBSUB, PUNSUBSCRIBE, SPUBLISH, SSUBSCRIBE, SUBSCRIBE, SUNSUBSCRIBE, UNSUBSCRIBE];

const SUBS: &[Command] = &[
    PUBSUB_CHANNELS,
    help!("pubsub", Group::Pubsub, "6.2.0"),
    PUBSUB_NUMPAT,
    PUBSUB_NUMSUB,
    PUBSUB_SHARDCHANNELS,
    PUBSUB_SHARDNUMSUB,
];

const PSUBSCRIBE: Command = Command::new(
    Row::new(Group::Pubsub, "psubscribe", -2, "2.0.0")
        .flags(SUBSCRIBES)
        .syntax("pattern [pattern ...]")
        .summary("Subscribes to all channels that match the patterns.")
        .channels(Channels::Patterns),
    Run::Session(SessionOp::Subscribe(SubscriptionKind::Pattern)),
);

const PUBSUB: Command = Command::container(
    Row::new(Group::Pubsub, "pubsub", -2, "2.8.0").summary("Inspects this server's Pub/Sub channels."),
    SUBS,
);

const PUNSUBSCRIBE: Command = Command::new(
    Row::new(Group::Pubsub, "punsubscribe", -1, "2.0.0")
        .flags(SUBSCRIBES)
        .syntax("[pattern [pattern ...]]")
        .summary("Unsubscribes from the patterns, or from all patterns."),
    Run::Session(SessionOp::Unsubscribe(SubscriptionKind::Pattern)),
);

const SSUBSCRIBE: Command = Command::new(
    Row::new(Group::Pubsub, "ssubscribe", -2, "7.0.0")
        .flags(SUBSCRIBES)
        .keys(SHARDS)
        .syntax("shardchannel [shardchannel ...]")
        .summary("Subscribes to shard channels.")
        .channels(Channels::All),
    Run::Session(SessionOp::Subscribe(SubscriptionKind::Shard)),
);

const SUBSCRIBE: Command = Command::new(
    Row::new(Group::Pubsub, "subscribe", -2, "2.0.0")
        .flags(SUBSCRIBES)
        .syntax("channel [channel ...]")
        .summary("Subscribes to channels.")
        .channels(Channels::All),
    Run::Session(SessionOp::Subscribe(SubscriptionKind::Channel)),
);

const SUNSUBSCRIBE: Command = Command::new(
    Row::new(Group::Pubsub, "sunsubscribe", -1, "7.0.0")
        .flags(SUBSCRIBES)
        .keys(SHARDS)
        .syntax("[shardchannel [shardchannel ...]]")
        .summary("Unsubscribes from the shard channels, or from all of them."),
    Run::Session(SessionOp::Unsubscribe(SubscriptionKind::Shard)),
);

const UNSUBSCRIBE: Command = Command::new(
    Row::new(Group::Pubsub, "unsubscribe", -1, "2.0.0")
        .flags(SUBSCRIBES)
        .syntax("[channel [channel ...]]")
        .summary("Unsubscribes from the channels, or from all of them."),
    Run::Session(SessionOp::Unsubscribe(SubscriptionKind::Channel)),
);

const PUBLISH: Command = Command::new(
    Row::new(Group::Pubsub, "publish", 3, "2.0.0")
        .flags(PUBLISHES)
        .syntax("channel message")
        .summary("Publishes a message to a channel; returns the number of receivers on this server.")
        .channels(Channels::First),
    handler!(publish),
);

async fn publish(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (channel, payload) = (args.next()?, args.next()?);
    let [name, payload] = own(channel, payload);
    cx.outbox.publish(Message::Channel(name, payload));
    Ok(receivers(cx, SubscriptionKind::Channel, channel).await)
}

const SPUBLISH: Command = Command::new(
    Row::new(Group::Pubsub, "spublish", 3, "7.0.0")
        .flags(PUBLISHES)
        .keys(SHARD)
        .syntax("shardchannel message")
        .summary("Publishes a message to a shard channel; returns the number of receivers on this server.")
        .channels(Channels::First),
    handler!(spublish),
);

async fn spublish(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (channel, payload) = (args.next()?, args.next()?);
    let [name, payload] = own(channel, payload);
    cx.outbox.publish(Message::Shard(name, payload));
    Ok(receivers(cx, SubscriptionKind::Shard, channel).await)
}

/// Steps of work ([`Pace`]) to count one name.
const NAME: usize = 1 << 6;

/// The most bytes of its request's buffer that a message may keep alive beyond its own.
const BUFFER: usize = 64 << 10;

/// A channel and a message that wait for receivers, which may be slow. They are slices of a request's buffer.
/// Short ones are copied, because they would keep all of it alive while counting as little; a long one is
/// most of the buffer.
fn own(channel: &Bytes, payload: &Bytes) -> [Bytes; 2] {
    let own = |text: &Bytes, other: &Bytes| {
        let is_most = text.len() > BUFFER && text.len() >= other.len();
        if is_most { text.clone() } else { Bytes::copy_from_slice(text) }
    };
    [own(channel, payload), own(payload, channel)]
}

async fn receivers(cx: &Cx<'_>, kind: SubscriptionKind, channel: &Bytes) -> Reply {
    if !cx.outbox.is_heard() {
        // Clients that have subscribed meanwhile did so after this transaction's version: they do not receive the message.
        return Reply::Int(0);
    }
    Reply::Int(cx.server.subscribers.receivers(kind, channel).await as i64)
}

const PUBSUB_CHANNELS: Command = Command::new(
    Row::new(Group::Pubsub, "channels", -2, "2.8.0")
        .flags(ASKS)
        .syntax("[pattern]")
        .summary("Lists the channels with subscribers on this server."),
    handler!(channels),
);

async fn channels(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    list(cx, SubscriptionKind::Channel, args).await
}

const PUBSUB_SHARDCHANNELS: Command = Command::new(
    Row::new(Group::Pubsub, "shardchannels", -2, "7.0.0")
        .flags(ASKS)
        .syntax("[pattern]")
        .summary("Lists the shard channels with subscribers on this server."),
    handler!(shardchannels),
);

async fn shardchannels(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    list(cx, SubscriptionKind::Shard, args).await
}

async fn list(cx: &Cx<'_>, kind: SubscriptionKind, args: Args<'_>) -> Result<Reply> {
    let pattern = match args.rest() {
        [] => None,
        [pattern] => Some(read_pattern(pattern, &mut Pace::default()).await?),
        _ => return Err(args.no_such_form().into()),
    };
    Ok(Reply::bulks(cx.server.subscribers.matching(kind, pattern.as_ref()).await))
}

/// Parses a pattern of channels, whose names may have any length.
pub(crate) async fn read_pattern(pattern: &[u8], pace: &mut Pace) -> ArgResult<Glob> {
    let glob = Glob::read(pattern, Case::Exact, usize::MAX, pace).await;
    if glob.is_whole() { Ok(glob) } else { Err(TOO_LONG) }
}

const PUBSUB_NUMSUB: Command = Command::new(
    Row::new(Group::Pubsub, "numsub", -2, "2.8.0")
        .flags(ASKS)
        .syntax("[channel [channel ...]]")
        .summary("Counts the subscribers of channels on this server, without patterns."),
    handler!(numsub),
);

async fn numsub(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(counts(cx, SubscriptionKind::Channel, args).await)
}

const PUBSUB_SHARDNUMSUB: Command = Command::new(
    Row::new(Group::Pubsub, "shardnumsub", -2, "7.0.0")
        .flags(ASKS)
        .syntax("[shardchannel [shardchannel ...]]")
        .summary("Counts the subscribers of shard channels on this server."),
    handler!(shardnumsub),
);

async fn shardnumsub(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(counts(cx, SubscriptionKind::Shard, args).await)
}

async fn counts(cx: &Cx<'_>, kind: SubscriptionKind, args: Args<'_>) -> Reply {
    let (mut counts, mut pace) = (Vec::with_capacity(args.len() * 2), Pace::default());
    for name in args.rest() {
        let count = cx.server.subscribers.count(kind, name);
        counts.extend([Reply::Bulk(name.clone()), Reply::Int(count as i64)]);
        pace.spend(NAME).await;
    }
    Reply::Array(counts)
}

const PUBSUB_NUMPAT: Command = Command::new(
    Row::new(Group::Pubsub, "numpat", 2, "2.8.0")
        .flags(ASKS)
        .summary("Counts the patterns with subscribers on this server."),
    handler!(numpat),
);

async fn numpat(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.server.subscribers.names(SubscriptionKind::Pattern) as i64))
}
