//! Commands on keys of any type, and on whole databases. What moves a value to another key is in `keys_moves.rs`.

use super::args::{Args, parse_i64};
use super::cx::Cx;
use super::keys_moves as moves;
use super::reply::Reply;
use super::table::{FindKeys, Flags, Group, KEY_META, KEYS_RM, KeySpec, Row, all, one};
use crate::error::{ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::keyspace::catalog;
use crate::keyspace::keys::SHARDS;
use crate::keyspace::record::Ghost;
use crate::store::{MAX_TRANSACTION, RangeOptions, Read};
use crate::types::{object, watched};
use bytes::Bytes;

/// What a ghost weighs that is taken along ([`Cx::light`]): reading and writing its row, as often as a pipeline flushes.
const GHOST: u64 = 256 << 10;

/// Keys that are removed before others have their turn.
const AT_A_TIME: usize = 256;

const SEVERAL: &[KeySpec] = &[all(&["RO"])];
const MOVED: &[KeySpec] = &[one(&["RW", "access", "update"])];
const RENAMED: &[KeySpec] = &[one(&["RW", "access", "delete"]), second(&["OW", "update"])];
const RENAMED_NEW: &[KeySpec] = &[one(&["RW", "access", "delete"]), second(&["OW", "insert"])];
const COPIED: &[KeySpec] = &[one(&["RO", "access"]), second(&["OW", "update"])];

const fn second(flags: &'static [&'static str]) -> KeySpec {
    KeySpec { flags, begin: 2, find: FindKeys::Range { last: 0, step: 1 } }
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "copy",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::HEAVY),
        keys: COPIED,
        group: Group::Generic,
        since: "6.2.0",
        syntax: "source destination [DB destination-db] [REPLACE]",
        summary: "Copies a key's value to another key.",
        run: handler!(moves::copy),
        subs: &[],
    },
    Row {
        name: "dbsize",
        arity: 1,
        flags: Flags::READONLY.or(Flags::FAST),
        keys: &[],
        group: Group::Server,
        since: "1.0.0",
        syntax: "",
        summary: "Returns the number of keys in the database.",
        run: handler!(dbsize),
        subs: &[],
    },
    Row {
        name: "del",
        arity: -2,
        flags: Flags::WRITE,
        keys: KEYS_RM,
        group: Group::Generic,
        since: "1.0.0",
        syntax: "key [key ...]",
        summary: "Removes keys.",
        run: handler!(del),
        subs: &[],
    },
    Row {
        name: "exists",
        arity: -2,
        flags: Flags::READONLY.or(Flags::FAST),
        keys: SEVERAL,
        group: Group::Generic,
        since: "1.0.0",
        syntax: "key [key ...]",
        summary: "Counts how many of the keys exist.",
        run: handler!(exists),
        subs: &[],
    },
    Row {
        name: "flushall",
        arity: -1,
        flags: Flags::WRITE,
        keys: &[],
        group: Group::Server,
        since: "1.0.0",
        syntax: "[flush-type: ASYNC | SYNC]",
        summary: "Removes all keys of all databases.",
        run: handler!(flushall),
        subs: &[],
    },
    Row {
        name: "flushdb",
        arity: -1,
        flags: Flags::WRITE,
        keys: &[],
        group: Group::Server,
        since: "1.0.0",
        syntax: "[flush-type: ASYNC | SYNC]",
        summary: "Removes all keys of the database.",
        run: handler!(flushdb),
        subs: &[],
    },
    Row {
        name: "move",
        arity: 3,
        flags: Flags::WRITE.or(Flags::FAST).or(Flags::HEAVY),
        keys: MOVED,
        group: Group::Generic,
        since: "1.0.0",
        syntax: "key db",
        summary: "Moves a key to another database.",
        run: handler!(moves::r#move),
        subs: &[],
    },
    Row {
        name: "rename",
        arity: 3,
        flags: Flags::WRITE,
        keys: RENAMED,
        group: Group::Generic,
        since: "1.0.0",
        syntax: "key newkey",
        summary: "Renames a key; what newkey held is gone.",
        run: handler!(moves::rename),
        subs: &[],
    },
    Row {
        name: "renamenx",
        arity: 3,
        flags: Flags::WRITE.or(Flags::FAST),
        keys: RENAMED_NEW,
        group: Group::Generic,
        since: "1.0.0",
        syntax: "key newkey",
        summary: "Renames a key if newkey does not exist.",
        run: handler!(moves::renamenx),
        subs: &[],
    },
    Row {
        name: "swapdb",
        arity: 3,
        flags: Flags::WRITE.or(Flags::FAST),
        keys: &[],
        group: Group::Server,
        since: "4.0.0",
        syntax: "index1 index2",
        summary: "Swaps two databases.",
        run: handler!(swapdb),
        subs: &[],
    },
    Row {
        name: "touch",
        arity: -2,
        flags: Flags::READONLY.or(Flags::FAST),
        keys: SEVERAL,
        group: Group::Generic,
        since: "3.2.1",
        syntax: "key [key ...]",
        summary: "Counts how many of the keys exist, as EXISTS.",
        run: handler!(exists),
        subs: &[],
    },
    Row {
        name: "type",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        keys: KEY_META,
        group: Group::Generic,
        since: "1.0.0",
        syntax: "key",
        summary: "Returns the type of a key's value.",
        run: handler!(r#type),
        subs: &[],
    },
    Row {
        name: "unlink",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        keys: KEYS_RM,
        group: Group::Generic,
        since: "4.0.0",
        syntax: "key [key ...]",
        summary: "Removes keys, as DEL.",
        run: handler!(del),
        subs: &[],
    },
];

async fn del(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut removed = 0;
    for (n, key) in args.rest().iter().enumerate() {
        if n % AT_A_TIME == AT_A_TIME - 1 {
            // What cannot fit is refused before all of it was tried.
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

/// Counts rows, also of keys past their expiry that no job has removed yet; as Redis does.
async fn dbsize(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let (from, to) = (s.db.key_count(0), s.db.key_count(SHARDS));
    let rows = s.tx.get_range(&from, &to, RangeOptions::default(), Read::Serializable).await?;
    let counts = rows.pairs.iter().filter_map(|(_, raw)| raw.first_chunk());
    Ok(Reply::Int(counts.map(|raw| i64::from_le_bytes(*raw)).sum::<i64>().max(0)))
}

async fn flushdb(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    flush_mode(args)?;
    flush(cx, &[cx.client.db]).await
}

async fn flushall(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    flush_mode(args)?;
    let all: Vec<u8> = cx.catalog.prefixes().map(|(db, _)| db).collect();
    flush(cx, &all).await
}

async fn flush(cx: &mut Cx<'_>, databases: &[u8]) -> Result<Reply> {
    let ghosts = ghosts(cx, databases).await?;
    for db in databases {
        cx.catalog = catalog::flush(cx.tx, cx.rng, &cx.catalog, *db).await?;
    }
    carry(cx, ghosts).await?;
    cx.outbox.flushed();
    Ok(Reply::Ok)
}

/// Of a database each.
type Ghosts = Vec<(u8, Vec<(Bytes, Ghost)>)>;

/// What the watchers of absent keys rely on, to be taken along: a few in a lane.
async fn ghosts(cx: &Cx<'_>, databases: &[u8]) -> Result<Ghosts> {
    let mut all = Vec::with_capacity(databases.len());
    for db in databases {
        all.push((*db, watched::ghosts(cx.tx, &cx.server.space, *db, cx.place(*db)?).await?));
    }
    let many = all.iter().map(|(_, ghosts)| ghosts.len() as u64).sum::<u64>();
    cx.light(many * GHOST)?;
    Ok(all)
}

/// Takes them along.
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
    cx.catalog = catalog::swap(cx.tx, &cx.catalog, a, b)?;
    carry(cx, ghosts).await?;
    cx.outbox.flushed();
    Ok(Reply::Ok)
}
