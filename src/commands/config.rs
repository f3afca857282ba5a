//! CONFIG: the options while the server runs, and who must hear of a change.

use super::args::{Args, quoted};
use super::cx::{Cx, Server};
use super::glob::{Case, Glob};
use super::pace::{Pace, beside};
use super::reply::Reply;
use super::table::{Flags, Group, Row, Run};
use crate::config::{AppendFsync, OPTIONS, SetError, lookup};
use crate::error::{ReplyError, Result, SYNTAX};
use crate::store::Fsync;
use crate::{handler, help};
use std::collections::BTreeSet;

const ADMIN: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE);
const BASE: Row = Row {
    name: "config",
    arity: 2,
    flags: ADMIN,
    keys: &[],
    group: Group::Server,
    since: "2.0.0",
    syntax: "",
    summary: "Looks at and changes options.",
    run: Run::Container,
    subs: &[],
};

/// The container's row.
pub const ROWS: &[Row] = &[Row { arity: -2, flags: Flags::NONE, subs: SUBS, ..BASE }];

const SUBS: &[Row] = &[
    Row {
        name: "get",
        arity: -3,
        syntax: "parameter [parameter ...]",
        summary: "Returns the options whose names match any of the patterns.",
        run: handler!(get),
        ..BASE
    },
    help!("config", Group::Server, "5.0.0"),
    Row {
        name: "resetstat",
        summary: "Starts all statistics again from zero.",
        run: handler!(resetstat),
        ..BASE
    },
    Row {
        name: "rewrite",
        since: "2.8.0",
        summary: "Makes the configuration file say what is in force.",
        run: handler!(rewrite),
        ..BASE
    },
    Row {
        name: "set",
        arity: -4,
        syntax: "<data: parameter value> [parameter value ...]",
        summary: "Changes options, all or none.",
        run: handler!(set),
        ..BASE
    },
];

async fn get(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let (mut names, mut pace) = (BTreeSet::new(), Pace::default());
    let longest = OPTIONS.iter().map(|opt| opt.name.len()).max().unwrap_or(0);
    for pattern in args.rest() {
        if let Some(opt) = std::str::from_utf8(pattern).ok().and_then(lookup) {
            names.insert(opt.name);
            pace.spend(1 << 8).await;
            continue;
        }
        let glob = Glob::read(pattern, Case::Ignored, longest, &mut pace).await;
        for opt in OPTIONS {
            if glob.matches(opt.name.as_bytes(), &mut pace).await {
                names.insert(opt.name);
            }
        }
        pace.spend(OPTIONS.len()).await;
    }
    let found = cx.server.config.matching(|name| names.contains(name));
    Ok(Reply::Map(
        found.into_iter().map(|(name, value)| (Reply::bulk_static(name), Reply::text(value))).collect(),
    ))
}

async fn set(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    if !args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let text = |raw: &[u8]| String::from_utf8(raw.to_vec()).map_err(|_| not_text(raw));
    let mut pairs = Vec::with_capacity(args.len() / 2);
    for pair in args.rest().chunks_exact(2) {
        let [name, value] = pair else { continue };
        pairs.push((text(name)?, text(value)?));
    }
    // Files that options name are read.
    let config = cx.server.config.clone();
    let changed = beside(move || config.set(&pairs)).await?.map_err(refused)?;
    for opt in changed {
        apply(cx.server, opt.name);
    }
    Ok(Reply::Ok)
}

fn not_text(raw: &[u8]) -> ReplyError {
    let raw = String::from_utf8_lossy(raw);
    ReplyError::of(format!("ERR CONFIG SET failed - '{raw}' is not valid UTF-8"))
}

fn refused(e: SetError) -> ReplyError {
    ReplyError::of(match e {
        SetError::Unknown(name) => {
            let name = quoted(name.as_bytes());
            format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'")
        }
        SetError::Invalid(name, why) => {
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
        }
    })
}

/// Tells those who keep a copy of an option. All others read it when they need it.
fn apply(server: &Server, option: &str) {
    let settings = server.config.get();
    match option {
        "appendfsync" => server.store.set_fsync(fsync(settings.appendfsync)),
        "requirepass" => server.acl.set_default_password(&settings.requirepass),
        "loglevel" => server.telemetry.log.set_level(settings.loglevel.filter()),
        _ => {}
    }
}

/// The store's word for `appendfsync`.
pub fn fsync(option: AppendFsync) -> Fsync {
    match option {
        AppendFsync::Always => Fsync::Always,
        AppendFsync::EverySec => Fsync::EverySec,
        AppendFsync::No => Fsync::No,
    }
}

async fn resetstat(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    cx.server.telemetry.reset();
    Ok(Reply::Ok)
}

async fn rewrite(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let has_file = !cx.server.config.get().aclfile.is_empty();
    let alone = cx.server.saving.clone().lock_owned().await;
    let users = cx.server.acl.defined().filter(|_| !has_file);
    let config = cx.server.config.clone();
    let failed = |why: String| match config.file() {
        None => ReplyError::of(format!("ERR {why}")),
        Some(_) => ReplyError::of(format!("ERR Rewriting config file: {why}")),
    };
    let writer = config.clone();
    let written = beside(move || {
        let _alone = alone;
        writer.rewrite(users.as_deref())
    });
    written.await?.map_err(failed)?;
    Ok(Reply::Ok)
}
