//! Commands that are refused by design, so that who sends one learns why: what moves data from server to server has nothing to do
//! where the store does that, and what the store does for a backup or a cluster is not done again.

use super::args::Args;
use super::cluster::NO_CLUSTER;
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

const ADMIN: Flags = Flags::ADMIN.or(Flags::NOSCRIPT);
const STREAM: Flags = ADMIN.or(Flags::NO_ASYNC_LOADING).or(Flags::NO_MULTI);

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

const REPLICATION: Row = Row::of(Group::Server, NO_REPLICATION);
const OF_MODULE: Row = Row::of(Group::Server, NO_MODULES);
const OF_BACKUP: Row = Row::of(Group::Server, NO_BACKUP);
const OF_HOTKEYS: Row = Row::of(Group::Server, NO_HOTKEYS);

const MODULE: &[Row] = &[
    help!("module", Group::Server, "5.0.0"),
    OF_MODULE
        .row("list", 2, ADMIN, "4.0.0", "", "Lists modules. There are none.")
        .run_by(handler!(no_modules)),
    OF_MODULE.row("load", -3, LOADS, "4.0.0", "path [arg [arg ...]]", "Loads a module."),
    OF_MODULE.row(
        "loadex",
        -3,
        LOADS,
        "7.0.0",
        "path [configs: CONFIG name value [CONFIG name value ...]] [ARGS args [args ...]]",
        "Loads a module with options.",
    ),
    OF_MODULE.row("unload", 3, LOADS, "4.0.0", "name", "Unloads a module."),
];
const LOADS: Flags = ADMIN.or(Flags::NO_ASYNC_LOADING);
/// Of what reads a backup's state.
const TELLS: Flags = Flags::ADMIN.or(Flags::STALE);

const BACKUP: &[Row] = &[
    OF_BACKUP.row("abort", 2, ADMIN, "8.10.0", "", "Ends a backup that has begun."),
    OF_BACKUP.row("cleanup", 2, ADMIN, "8.10.0", "", "Removes the files of a backup."),
    help!("backup", Group::Server, "8.10.0"),
    OF_BACKUP.row("list", 2, TELLS, "8.10.0", "", "Lists the files of a backup."),
    OF_BACKUP.row("seal", 2, ADMIN, "8.10.0", "", "Finishes a backup."),
    OF_BACKUP.row("start", 2, ADMIN, "8.10.0", "", "Begins a backup."),
    OF_BACKUP.row("status", 2, TELLS, "8.10.0", "", "Says how far a backup is."),
];

const HOTKEYS: &[Row] = &[
    OF_HOTKEYS.row("get", 2, ADMIN, "8.6.0", "", "Returns the keys that are used most."),
    help!("hotkeys", Group::Server, "8.6.1"),
    OF_HOTKEYS.row("reset", 2, ADMIN, "8.6.0", "", "Forgets what was counted."),
    OF_HOTKEYS.row(
        "start",
        -2,
        ADMIN,
        "8.6.0",
        "METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] [SLOTS count slot [slot ...]]",
        "Begins to count the use of keys.",
    ),
    OF_HOTKEYS.row("stop", 2, ADMIN, "8.6.0", "", "Ends that."),
];

async fn no_modules(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Array(Vec::new()))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        keys: MOVED,
        ..Row::of(Group::Generic, NO_MIGRATE).row(
            "migrate",
            -6,
            Flags::WRITE.or(Flags::MOVABLEKEYS),
            "2.6.0",
            "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 username password] [KEYS key [key ...]]",
            "Moves keys to another server.",
        )
    },
    REPLICATION.row("sync", 1, STREAM, "1.0.0", "", "Asks for the stream of changes."),
    REPLICATION.row(
        "psync",
        -3,
        STREAM,
        "2.8.0",
        "replicationid offset",
        "Asks for the stream of changes from an offset on.",
    ),
    REPLICATION.row(
        "replconf",
        -1,
        ADMIN.or(Flags::LOADING).or(Flags::STALE).or(Flags::ALLOW_BUSY),
        "3.0.0",
        "[option value [option value ...]]",
        "Tells a master about a replica.",
    ),
    REPLICATION.row(
        "failover",
        -1,
        ADMIN.or(Flags::STALE),
        "6.2.0",
        "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
        "Makes a replica the master.",
    ),
    OF_BACKUP.container("backup", 2, "8.10.0", "Manages backups.", BACKUP),
    OF_HOTKEYS.container("hotkeys", -2, "8.6.0", "Finds the keys that are used most.", HOTKEYS),
    OF_MODULE.container("module", -2, "4.0.0", "Manages modules. There are none.", MODULE),
    Row::of(Group::Server, NO_CLUSTER).row(
        "trimslots",
        -5,
        Flags::WRITE,
        "8.4.0",
        "RANGES numranges startslot endslot [startslot endslot ...]",
        "Removes the keys of slots.",
    ),
];
