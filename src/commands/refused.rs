//! Commands that are refused by design, so that who sends one learns why: what moves data from server to server has nothing to do
//! where the store does that, and what the store does for a backup or a cluster is not done again.

use super::args::Args;
use super::cx::Cx;
use super::reply::Reply;
use super::table::{FindKeys, Flags, Group, KeySpec, Row, Run};
use crate::error::Result;
use crate::{handler, help};

const NO_REPLICATION: Run = Run::Refuse(
    "ERR there is no replication between servers: the store replicates, and any server on it can be written to",
);
const NO_MIGRATE: Run = Run::Refuse(
    "ERR MIGRATE is not supported: servers on one store share its keys; tern copy moves a whole store, DUMP and RESTORE one key",
);

const BASE: Row = Row {
    name: "",
    arity: 1,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT),
    keys: &[],
    group: Group::Server,
    since: "",
    syntax: "",
    summary: "",
    run: NO_REPLICATION,
    subs: &[],
};
const STREAM: Flags = BASE.flags.or(Flags::NO_ASYNC_LOADING).or(Flags::NO_MULTI);

const MOVED: &[KeySpec] = &[
    KeySpec { flags: &["RW", "access", "delete"], begin: 3, find: FindKeys::Range { last: 0, step: 1 } },
    KeySpec { flags: &["RW", "access", "delete", "incomplete"], begin: 1, find: FindKeys::Unknown },
];

const NO_MODULES: Run = Run::Refuse("ERR modules are not supported: all commands of this server are its own");
const NO_BACKUP: Run = Run::Refuse(
    "ERR BACKUP is not supported: tern copy copies a whole store, and a cluster has its own backup tools",
);
const NO_HOTKEYS: Run = Run::Refuse(
    "ERR HOTKEYS is not supported: keys are not counted; SLOWLOG and LATENCY show what takes long, MONITOR all commands",
);
const NO_SLOTS: Run = Run::Refuse("ERR This instance has cluster support disabled");

/// A subcommand, or a container of some.
const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
    run: Run,
) -> Row {
    Row { name, arity, flags, since, syntax, summary, run, ..BASE }
}

const MODULE: &[Row] = &[
    help!("module", Group::Server, "5.0.0"),
    row("list", 2, BASE.flags, "4.0.0", "", "Lists modules. There are none.", handler!(no_modules)),
    row("load", -3, LOADS, "4.0.0", "path [arg [arg ...]]", "Loads a module.", NO_MODULES),
    row(
        "loadex",
        -3,
        LOADS,
        "7.0.0",
        "path [CONFIG name value [CONFIG name value ...]] [ARGS args [args ...]]",
        "Loads a module with options.",
        NO_MODULES,
    ),
    row("unload", 3, LOADS, "4.0.0", "name", "Unloads a module.", NO_MODULES),
];
const LOADS: Flags = BASE.flags.or(Flags::NO_ASYNC_LOADING);
/// Of what reads a backup's state.
const TELLS: Flags = Flags::ADMIN.or(Flags::STALE);

const BACKUP: &[Row] = &[
    row("abort", 2, BASE.flags, "8.10.0", "", "Ends a backup that has begun.", NO_BACKUP),
    row("cleanup", 2, BASE.flags, "8.10.0", "", "Removes the files of a backup.", NO_BACKUP),
    help!("backup", Group::Server, "8.10.0"),
    row("list", 2, TELLS, "8.10.0", "", "Lists the files of a backup.", NO_BACKUP),
    row("seal", 2, BASE.flags, "8.10.0", "", "Finishes a backup.", NO_BACKUP),
    row("start", 2, BASE.flags, "8.10.0", "", "Begins a backup.", NO_BACKUP),
    row("status", 2, TELLS, "8.10.0", "", "Says how far a backup is.", NO_BACKUP),
];

const HOTKEYS: &[Row] = &[
    row("get", 2, BASE.flags, "8.6.0", "", "Returns the keys that are used most.", NO_HOTKEYS),
    help!("hotkeys", Group::Server, "8.6.1"),
    row("reset", 2, BASE.flags, "8.6.0", "", "Forgets what was counted.", NO_HOTKEYS),
    row(
        "start",
        -2,
        BASE.flags,
        "8.6.0",
        "METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] [SLOTS count slot [slot ...]]",
        "Begins to count the use of keys.",
        NO_HOTKEYS,
    ),
    row("stop", 2, BASE.flags, "8.6.0", "", "Ends that.", NO_HOTKEYS),
];

/// A container.
const fn container(
    name: &'static str,
    arity: i32,
    since: &'static str,
    summary: &'static str,
    subs: &'static [Row],
) -> Row {
    Row { subs, ..row(name, arity, Flags::NONE, since, "", summary, Run::Container) }
}

async fn no_modules(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Array(Vec::new()))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "migrate",
        arity: -6,
        flags: Flags::WRITE.or(Flags::MOVABLEKEYS),
        keys: MOVED,
        group: Group::Generic,
        since: "2.6.0",
        syntax: "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 username password] [KEYS key [key ...]]",
        summary: "Moves keys to another server.",
        run: NO_MIGRATE,
        ..BASE
    },
    Row { name: "sync", flags: STREAM, since: "1.0.0", summary: "Asks for the stream of changes.", ..BASE },
    Row {
        name: "psync",
        arity: -3,
        flags: STREAM,
        since: "2.8.0",
        syntax: "replicationid offset",
        summary: "Asks for the stream of changes from an offset on.",
        ..BASE
    },
    Row {
        name: "replconf",
        arity: -1,
        flags: BASE.flags.or(Flags::LOADING).or(Flags::STALE).or(Flags::ALLOW_BUSY),
        since: "3.0.0",
        syntax: "[option value [option value ...]]",
        summary: "Tells a master about a replica.",
        ..BASE
    },
    Row {
        name: "failover",
        arity: -1,
        flags: BASE.flags.or(Flags::STALE),
        since: "6.2.0",
        syntax: "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
        summary: "Makes a replica the master.",
        ..BASE
    },
    container("backup", 2, "8.10.0", "Manages backups.", BACKUP),
    container("hotkeys", -2, "8.6.0", "Finds the keys that are used most.", HOTKEYS),
    container("module", -2, "4.0.0", "Manages modules. There are none.", MODULE),
    row(
        "trimslots",
        -5,
        Flags::WRITE,
        "8.4.0",
        "RANGES numranges startslot endslot [startslot endslot ...]",
        "Removes the keys of slots.",
        NO_SLOTS,
    ),
];
