//! Commands on keys of any type, and on whole databases. Commands that move a value to another key are in
//! `moves.rs`.

pub(super) mod dump;
pub(crate) mod elements;
pub(super) mod expire;
pub(super) mod inspect;
pub(super) mod moves;
pub mod scan;
pub(super) mod sort;

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::keyspace::catalog;
use crate::keyspace::keys::SHARDS;
use crate::lifecycle::watched;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Flags, Group, KEY_META, KEYS_RM, KeySpec, Makes, Row, all, one};
use crate::store::{MAX_TRANSACTION, RangeOptions, Read};
use crate::types::object;
use crate::types::record::Ghost;
use bytes::Bytes;

/// The weight of a ghost that is carried over ([`Cx::light`]): reading and writing its row, as often as a
/// pipeline flushes.
const GHOST: u64 = 256 << 10;

/// Keys to remove before other tasks run.
const AT_A_TIME: usize = 256;

const SEVERAL: &[KeySpec] = &[all(&["RO"])];
const MOVED: &[KeySpec] = &[one(&["RW", "access", "update"])];

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[
    moves::COPY,
    DBSIZE,
    DEL,
    EXISTS,
    FLUSHALL,
    FLUSHDB,
    MOVE,
    moves::RENAME,
    moves::RENAMENX,
    SWAPDB,
    TOUCH,
    TYPE,
    UNLINK,
];

const MOVE: Command = Command::new(
    Row::new(Group::Generic, "move", 3, "1.0.0")
        .flags(Flags::WRITE.or(Flags::FAST).or(Flags::HEAVY))
        .keys(MOVED)
        .syntax("key db")
        .summary("Moves a key to another database.")
        .makes(Makes::Move),
    handler!(moves::r#move),
);

const TYPE: Command = Command::new(
    Row::new(Group::Generic, "type", 2, "1.0.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(KEY_META)
        .syntax("key")
        .summary("Returns the type of a key's value."),
    handler!(r#type),
);

const DEL: Command = Command::new(
    Row::new(Group::Generic, "del", -2, "1.0.0")
        .flags(Flags::WRITE)
        .keys(KEYS_RM)
        .syntax("key [key ...]")
        .summary("Removes keys.")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]),
    handler!(del),
);

const UNLINK: Command = Command::new(
    Row::new(Group::Generic, "unlink", -2, "4.0.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(KEYS_RM)
        .syntax("key [key ...]")
        .summary("Removes keys, like DEL.")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]),
    handler!(del),
);

async fn del(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut removed = 0;
    for (n, key) in args.rest().iter().enumerate() {
        if n % AT_A_TIME == AT_A_TIME - 1 {
            // A removal that cannot fit fails before all of it was tried.
            if s.tx.is_write() && s.tx.size() > MAX_TRANSACTION {
                return Err(StoreError::TooLarge.into());
            }
            tokio::task::yield_now().await;
        }
        let mut slot = object::open(&s, key, Read::Serializable).await?;
        removed += i64::from(object::delete(&s, &mut slot)?);
    }
    Ok(Reply::Int(removed))
}

const EXISTS: Command = Command::new(
    Row::new(Group::Generic, "exists", -2, "1.0.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(SEVERAL)
        .syntax("key [key ...]")
        .summary("Counts the keys that exist.")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]),
    handler!(exists),
);

const TOUCH: Command = Command::new(
    Row::new(Group::Generic, "touch", -2, "3.2.1")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(SEVERAL)
        .syntax("key [key ...]")
        .summary("Counts the keys that exist, like EXISTS.")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]),
    handler!(exists),
);

async fn exists(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut found = 0;
    for key in args.rest() {
        found += i64::from(cx.look_up(&s, key).await?.exists());
    }
    Ok(Reply::Int(found))
}

async fn r#type(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let slot = cx.look_up(&cx.scope()?, args.next()?).await?;
    Ok(Reply::Simple(slot.record().map_or("none", |r| r.value.type_name()).into()))
}

const DBSIZE: Command = Command::new(
    Row::new(Group::Server, "dbsize", 1, "1.0.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .summary("Returns the number of keys in the database.")
        .categories(&["keyspace"])
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    handler!(dbsize),
);

/// Counts rows, including expired keys that no job has removed yet, as Redis does.
async fn dbsize(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let (from, to) = (s.db.key_count(0), s.db.key_count(SHARDS));
    let rows = s.tx.get_range(&from, &to, RangeOptions::default(), Read::Serializable).await?;
    let counts = rows.pairs.iter().filter_map(|(_, raw)| raw.first_chunk());
    Ok(Reply::Int(counts.map(|raw| i64::from_le_bytes(*raw)).sum::<i64>().max(0)))
}

const FLUSHDB: Command = Command::new(
    Row::new(Group::Server, "flushdb", -1, "1.0.0")
        .flags(Flags::WRITE)
        .syntax("[flush-type: ASYNC | SYNC]")
        .summary("Removes all keys of the database.")
        .categories(&["keyspace", "dangerous"])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(flushdb),
);

async fn flushdb(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    flush_mode(args)?;
    flush(cx, &[cx.client.db]).await
}

const FLUSHALL: Command = Command::new(
    Row::new(Group::Server, "flushall", -1, "1.0.0")
        .flags(Flags::WRITE)
        .syntax("[flush-type: ASYNC | SYNC]")
        .summary("Removes all keys of all databases.")
        .categories(&["keyspace", "dangerous"])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(flushall),
);

async fn flushall(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    flush_mode(args)?;
    let all: Vec<u8> = cx.catalog.prefixes().map(|(db, _)| db).collect();
    flush(cx, &all).await
}

async fn flush(cx: &mut Cx<'_>, databases: &[u8]) -> Result<Reply> {
    let ghosts = ghosts(cx, databases).await?;
    for db in databases {
        *cx.catalog = catalog::flush(cx.tx, cx.rng, cx.catalog, *db).await?;
    }
    carry(cx, ghosts).await?;
    cx.outbox.flushed();
    Ok(Reply::Ok)
}

/// The ghosts of each database.
type Ghosts = Vec<(u8, Vec<(Bytes, Ghost)>)>;

/// The ghosts that watchers of absent keys rely on, to be carried over: only a few in a lane.
async fn ghosts(cx: &Cx<'_>, databases: &[u8]) -> Result<Ghosts> {
    let mut all = Vec::with_capacity(databases.len());
    for db in databases {
        all.push((*db, watched::ghosts(cx.tx, &cx.server.space, *db, cx.place(*db)?).await?));
    }
    let many = all.iter().map(|(_, ghosts)| ghosts.len() as u64).sum::<u64>();
    cx.light(many * GHOST)?;
    Ok(all)
}

/// Carries ghosts over.
async fn carry(cx: &Cx<'_>, ghosts: Ghosts) -> Result<()> {
    for (db, ghosts) in ghosts {
        watched::carry(&cx.scope_of(db)?, cx.place(db)?.swaps, ghosts).await?;
    }
    Ok(())
}

/// ASYNC and SYNC are the same here: both take effect at once and leave the work to a job.
fn flush_mode(mut args: Args<'_>) -> Result<()> {
    if args.len() > 1 {
        return Err(SYNTAX.into());
    }
    let _ = args.keyword("SYNC") || args.keyword("ASYNC");
    Ok(args.end()?)
}

const SWAPDB: Command = Command::new(
    Row::new(Group::Server, "swapdb", 3, "4.0.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .syntax("index1 index2")
        .summary("Swaps two databases.")
        .categories(&["keyspace", "dangerous"]),
    handler!(swapdb),
);

async fn swapdb(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let mut index = |which: &str| {
        let n = parse_i64(args.next()?).and_then(|n| i32::try_from(n).ok());
        n.ok_or_else(|| ReplyError::of(format!("ERR invalid {which} DB index")))
    };
    let (a, b) = (index("first")?, index("second")?);
    let (a, b) = (moves::existing_database(cx, a)?, moves::existing_database(cx, b)?);
    if a == b {
        return Ok(Reply::Ok);
    }
    let ghosts = ghosts(cx, &[a, b]).await?;
    *cx.catalog = catalog::swap(cx.tx, cx.catalog, a, b)?;
    carry(cx, ghosts).await?;
    cx.outbox.flushed();
    Ok(Reply::Ok)
}
