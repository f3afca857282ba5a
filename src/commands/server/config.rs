//! CONFIG: reads and changes the options at runtime, and notifies the code that depends on them.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::{AppendFsync, SetError, named};
use crate::error::{ReplyError, Result, SYNTAX};
use crate::server::Server;
use crate::server::glob::{Case, Glob};
use crate::server::pace::{Pace, beside};
use crate::server::reply::Reply;
use crate::spec::words::quoted;
use crate::spec::{Flags, Group, Row, Secrets};
use crate::store::Fsync;
use crate::{handler, help};
use std::collections::BTreeSet;

const ADMIN: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE);
/// The container.
pub(crate) const COMMANDS: &[Command] = &[CONFIG];

const SUBS: &[Command] =
    &[CONFIG_GET, help!("config", Group::Server, "5.0.0"), CONFIG_RESETSTAT, CONFIG_REWRITE, CONFIG_SET];

const CONFIG: Command = Command::container(
    Row::new(Group::Server, "config", -2, "2.0.0").summary("Reads and changes the configuration."),
    SUBS,
);

const CONFIG_GET: Command = Command::new(
    Row::new(Group::Server, "get", -3, "2.0.0")
        .flags(ADMIN)
        .syntax("parameter [parameter ...]")
        .summary("Returns the options that match any of the patterns."),
    handler!(get),
);

async fn get(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let (mut names, mut pace) = (BTreeSet::new(), Pace::default());
    let longest = named().map(|(name, _)| name.len()).max().unwrap_or(0);
    for pattern in args.rest() {
        if let Some((name, _)) = named().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(pattern)) {
            names.insert(name);
            pace.spend(1 << 8).await;
            continue;
        }
        let glob = Glob::read(pattern, Case::Ignored, longest, &mut pace).await;
        for (name, _) in named() {
            if glob.matches(name.as_bytes(), &mut pace).await {
                names.insert(name);
            }
        }
        pace.spend(named().count()).await;
    }
    let found = cx.server.config.matching(|name| names.contains(name));
    Ok(Reply::Map(
        found.into_iter().map(|(name, value)| (Reply::bulk_static(name), Reply::text(value))).collect(),
    ))
}

const CONFIG_SET: Command = Command::new(
    Row::new(Group::Server, "set", -4, "2.0.0")
        .flags(ADMIN)
        .syntax("<data: parameter value> [parameter value ...]")
        .summary("Changes options: all of them or none.")
        .secrets(Secrets::Options)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    handler!(set),
);

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
    // Reads the files that options name.
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

/// Notifies code that keeps a copy of an option. All other code reads the option when it needs it.
fn apply(server: &Server, option: &str) {
    let settings = server.config.get();
    match option {
        "appendfsync" => server.store.set_fsync(fsync(settings.appendfsync)),
        "requirepass" => server.acl.set_default_password(&settings.requirepass),
        "loglevel" => server.telemetry.log.set_level(settings.loglevel.filter()),
        _ => {}
    }
}

/// The store's form of `appendfsync`.
pub fn fsync(option: AppendFsync) -> Fsync {
    match option {
        AppendFsync::Always => Fsync::Always,
        AppendFsync::EverySec => Fsync::EverySec,
        AppendFsync::No => Fsync::No,
    }
}

const CONFIG_RESETSTAT: Command = Command::new(
    Row::new(Group::Server, "resetstat", 2, "2.0.0").flags(ADMIN).summary("Resets all statistics to zero."),
    handler!(resetstat),
);

async fn resetstat(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    cx.server.telemetry.reset();
    Ok(Reply::Ok)
}

const CONFIG_REWRITE: Command = Command::new(
    Row::new(Group::Server, "rewrite", 2, "2.8.0")
        .flags(ADMIN)
        .summary("Rewrites the configuration file to match the current configuration."),
    handler!(rewrite),
);

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
