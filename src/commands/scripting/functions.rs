//! FUNCTION: libraries of functions.

use super::{NOTHING_RUNS, flush};
use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::env::aside;
use crate::error::{ReplyError, Result};
use crate::keyspace::libraries::{self, MOST, MOST_BYTES, NO_ROOM};
use crate::lifecycle::dump::{self, Refused};
use crate::lua::{Library, MOST_FUNCTIONS, sha1};
use crate::server::glob::{Case, Glob};
use crate::server::libraries::{LOADS, Shelf, all_loaded, loaded};
use crate::server::pace::Pace;
use crate::server::reply::Reply;
use crate::spec::words::quoted;
use crate::spec::{Flags, Group, Row};
use crate::store::Read;
use crate::{handler, help};
use bytes::Bytes;
use std::sync::Arc;

const OF_FUNCTIONS: &str = "Manages functions.";

const KILLS: Flags = Flags::NOSCRIPT.or(Flags::ALLOW_BUSY);
const CHANGES: Flags = Flags::WRITE.or(Flags::NOSCRIPT);
/// What registers functions runs their library, which may take long.
const ADDS: Flags = CHANGES.or(Flags::DENYOOM).or(Flags::HEAVY);
const READS: Flags = Flags::NOSCRIPT.or(Flags::HEAVY);

pub(super) const FUNCTION: Command =
    Command::container(Row::new(Group::Scripting, "function", -2, "7.0.0").summary(OF_FUNCTIONS), SUBS);

const SUBS: &[Command] =
    &[DELETE, DUMP, FLUSH, help!("function", Group::Scripting, "7.0.0"), KILL, LIST, LOAD, RESTORE, STATS];

async fn shelf(cx: &Cx<'_>) -> Result<Arc<Shelf>> {
    cx.server.libraries.of(cx.tx, cx.in_lane).await
}

/// Begins another epoch, with these libraries, which this server need not read again.
fn renew(cx: &Cx<'_>, shelf: Shelf) -> Result<()> {
    let epoch = 1 + cx.server.env.rng().below(u64::MAX);
    libraries::renew(cx.tx, epoch)?;
    cx.server.libraries.remember(epoch, shelf);
    Ok(())
}

fn has_room(shelf: &Shelf) -> Result<()> {
    let fits =
        shelf.libraries.len() <= MOST && shelf.bytes() <= MOST_BYTES && shelf.functions() <= MOST_FUNCTIONS;
    if fits { Ok(()) } else { Err(NO_ROOM.into()) }
}

fn put(cx: &Cx<'_>, library: &Library) -> Result<()> {
    let stored = library.encode();
    libraries::put(cx.tx, &library.name, (&sha1(&stored), &stored))
}

const LOAD: Command = Command::new(
    Row::new(Group::Scripting, "load", -3, "7.0.0")
        .flags(ADDS)
        .syntax("[REPLACE] function-code")
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(load),
);

async fn load(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let mut replaces = false;
    while args.len() > 1 {
        if !args.keyword("REPLACE") {
            let option = String::from_utf8_lossy(args.next()?);
            return Err(ReplyError::of(format!("ERR Unknown option given: {option}")).into());
        }
        replaces = true;
    }
    let code = Bytes::copy_from_slice(args.next()?);
    let name = Library::parse(code.clone())?.name;
    let mut shelf = Shelf::clone(&*shelf(cx).await?);
    let was_there = shelf.remove(&name);
    if was_there && !replaces {
        return Err(ReplyError::of(format!("ERR Library '{name}' already exists")).into());
    }
    let library = aside(|| loaded(cx.server, code, LOADS))?;
    shelf.add(library.clone())?;
    has_room(&shelf)?;
    if was_there {
        libraries::remove(cx.tx, &name)?;
    }
    put(cx, &library)?;
    renew(cx, shelf)?;
    Ok(Reply::text(name))
}

const DELETE: Command = Command::new(
    Row::new(Group::Scripting, "delete", 3, "7.0.0")
        .flags(CHANGES.or(Flags::HEAVY))
        .syntax("library-name")
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(delete),
);

async fn delete(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let name = String::from_utf8_lossy(args.next()?).into_owned();
    let mut shelf = Shelf::clone(&*shelf(cx).await?);
    if !shelf.remove(&name) {
        return Err(ReplyError::new("ERR Library not found").into());
    }
    libraries::remove(cx.tx, &name)?;
    renew(cx, shelf)?;
    Ok(Reply::Ok)
}

const FLUSH: Command = Command::new(
    Row::new(Group::Scripting, "flush", -2, "7.0.0")
        .flags(CHANGES)
        .syntax("[flush-type: ASYNC | SYNC]")
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(function_flush),
);

async fn function_flush(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    if args.len() > 1 {
        return Err(args.no_such_form().into());
    }
    let reply = flush(args, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")?;
    libraries::epoch(cx.tx, Read::Serializable).await?;
    libraries::clear(cx.tx)?;
    renew(cx, Shelf::default())?;
    Ok(reply)
}

const LIST: Command = Command::new(
    Row::new(Group::Scripting, "list", -2, "7.0.0")
        .flags(READS)
        .syntax("[LIBRARYNAME library-name-pattern] [WITHCODE]")
        .summary(OF_FUNCTIONS)
        .tips(&["nondeterministic_output_order"]),
    handler!(list),
);

async fn list(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (mut pattern, mut with_code) = (None, false);
    while let Some(word) = args.peek() {
        if !with_code && args.keyword("WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && args.keyword("LIBRARYNAME") {
            pattern =
                Some(args.next().map_err(|_| ReplyError::new("ERR library name argument was not given"))?);
        } else {
            let word = quoted(word);
            return Err(ReplyError::of(format!("ERR Unknown argument {word}")).into());
        }
    }
    let mut pace = Pace::default();
    let glob = match pattern {
        Some(pattern) => Some(Glob::read(pattern, Case::Ignored, usize::MAX, &mut pace).await),
        None => None,
    };
    let shelf = shelf(cx).await?;
    let mut found = Vec::new();
    for library in shelf.libraries.values() {
        let is_wanted = match &glob {
            Some(glob) => glob.matches(library.name.as_bytes(), &mut pace).await,
            None => true,
        };
        if is_wanted {
            found.push(shown(library, with_code));
        }
    }
    Ok(Reply::Array(found))
}

fn shown(library: &Library, with_code: bool) -> Reply {
    let word = Reply::bulk_static;
    let functions = library.functions.iter().map(|function| {
        let flags = function.flags.iter().map(|flag| Reply::Simple((*flag).into())).collect();
        Reply::Map(vec![
            (word("name"), Reply::text(function.name.clone())),
            (word("description"), function.description.clone().map_or(Reply::Nil, Reply::Bulk)),
            (word("flags"), Reply::Set(flags)),
        ])
    });
    let mut shown = vec![
        (word("library_name"), Reply::text(library.name.clone())),
        (word("engine"), word("LUA")),
        (word("functions"), Reply::Array(functions.collect())),
    ];
    if with_code {
        shown.push((word("library_code"), Reply::Bulk(library.source.text.clone())));
    }
    Reply::Map(shown)
}

const DUMP: Command = Command::new(
    Row::new(Group::Scripting, "dump", 2, "7.0.0").flags(READS).summary(OF_FUNCTIONS),
    handler!(dump),
);

async fn dump(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let shelf = shelf(cx).await?;
    let codes: Vec<Bytes> = shelf.libraries.values().map(|library| library.source.text.clone()).collect();
    Ok(Reply::Bulk(dump::of_libraries(&codes).into()))
}

const RESTORE: Command = Command::new(
    Row::new(Group::Scripting, "restore", -3, "7.0.0")
        .flags(ADDS)
        .syntax("serialized-value [policy: FLUSH | APPEND | REPLACE]")
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(restore),
);

async fn restore(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    if args.len() > 2 {
        return Err(args.no_such_form().into());
    }
    let payload = args.next()?;
    let (flushes, replaces) = (args.keyword("FLUSH"), args.keyword("REPLACE"));
    if !flushes && !replaces && !args.is_empty() && !args.keyword("APPEND") {
        return Err(ReplyError::new(
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
        )
        .into());
    }
    let codes = dump::libraries(payload, (MOST, MOST_BYTES)).await.map_err(refused)?;
    let new = aside(|| all_loaded(cx.server, codes))?;
    let stored = shelf(cx).await?;
    let mut shelf = if flushes { Shelf::default() } else { Shelf::clone(&stored) };
    let mut replaced = Vec::new();
    for library in &new {
        let was_there = shelf.remove(&library.name);
        if was_there && !replaces {
            return Err(ReplyError::of(format!("ERR Library {} already exists", library.name)).into());
        }
        replaced.extend(was_there.then_some(&library.name));
    }
    new.iter().try_for_each(|library| shelf.add(library.clone()))?;
    has_room(&shelf)?;
    if flushes {
        libraries::clear(cx.tx)?;
    }
    replaced.into_iter().try_for_each(|name| libraries::remove(cx.tx, name))?;
    new.iter().try_for_each(|library| put(cx, library))?;
    renew(cx, shelf)?;
    Ok(Reply::Ok)
}

fn refused(refused: Refused) -> ReplyError {
    match refused {
        Refused::Checksum => ReplyError::new("ERR DUMP payload version or checksum are wrong"),
        Refused::Format => ReplyError::new("ERR failed loading functions payload"),
        Refused::Type(_) => ReplyError::new("ERR given type is not a function"),
    }
}

const STATS: Command = Command::new(
    Row::new(Group::Scripting, "stats", 2, "7.0.0").flags(KILLS).summary(OF_FUNCTIONS).tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ]),
    handler!(stats),
);

async fn stats(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let shelf = shelf(cx).await?;
    let word = Reply::bulk_static;
    let running = cx.server.scripts.function().map_or(Reply::Nil, |(name, argv, since)| {
        let took = cx.server.env.clock.monotonic().saturating_sub(since);
        Reply::Map(vec![
            (word("name"), Reply::text(name)),
            (word("command"), Reply::bulks(argv)),
            (word("duration_ms"), Reply::Int(took.as_millis() as i64)),
        ])
    });
    let counts = Reply::Map(vec![
        (word("libraries_count"), Reply::Int(shelf.libraries.len() as i64)),
        (word("functions_count"), Reply::Int(shelf.functions() as i64)),
    ]);
    let engines = Reply::Map(vec![(word("LUA"), counts)]);
    Ok(Reply::Map(vec![(word("running_script"), running), (word("engines"), engines)]))
}

const KILL: Command = Command::new(
    Row::new(Group::Scripting, "kill", 2, "7.0.0")
        .flags(KILLS)
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    handler!(kill),
);

async fn kill(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    if cx.server.scripts.kill(true) {
        return Ok(Reply::Ok);
    }
    Err(ReplyError::new(NOTHING_RUNS).into())
}
