//! Commands that are refused by design, with an error that says why: the store replicates and moves data, so
//! servers do not; and the store's own tools for backups and clusters are not duplicated.

use crate::commands::args::Args;
use crate::commands::binding::{Command, Run};
use crate::commands::cluster::NO_CLUSTER;
use crate::commands::cx::Cx;
use crate::error::Result;
use crate::server::reply::Reply;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Row};
use crate::{handler, help};

const NO_REPLICATION: Run = Run::Refuse(
    "ERR servers do not replicate each other: the store replicates, and any server on it accepts writes",
);
const NO_MIGRATE: Run = Run::Refuse(
    "ERR MIGRATE is not supported: servers on one store share its keys. Use tern copy for a whole store, DUMP and RESTORE for one key",
);

const ADMIN: Flags = Flags::ADMIN.or(Flags::NOSCRIPT);
const STREAM: Flags = ADMIN.or(Flags::NO_ASYNC_LOADING).or(Flags::NO_MULTI);

const MOVED: &[KeySpec] = &[
    KeySpec { flags: &["RW", "access", "delete"], begin: 3, find: FindKeys::Range { last: 0, step: 1 } },
    KeySpec { flags: &["RW", "access", "delete", "incomplete"], begin: 1, find: FindKeys::Unknown },
];

const NO_MODULES: Run = Run::Refuse("ERR modules are not supported: all commands are built in");
const NO_BACKUP: Run = Run::Refuse(
    "ERR BACKUP is not supported: use tern copy for a whole store, or FoundationDB's backup tools for a cluster",
);
const NO_HOTKEYS: Run = Run::Refuse(
    "ERR HOTKEYS is not supported: accesses to keys are not counted. SLOWLOG and LATENCY show slow commands, MONITOR shows all commands",
);

const MODULE_SUBS: &[Command] =
    &[help!("module", Group::Server, "5.0.0"), MODULE_LIST, MODULE_LOAD, MODULE_LOADEX, MODULE_UNLOAD];
const LOADS: Flags = ADMIN.or(Flags::NO_ASYNC_LOADING);
/// Flags of commands that read a backup's state.
const TELLS: Flags = Flags::ADMIN.or(Flags::STALE);

const BACKUP_SUBS: &[Command] = &[
    BACKUP_ABORT,
    BACKUP_CLEANUP,
    help!("backup", Group::Server, "8.10.0"),
    BACKUP_LIST,
    BACKUP_SEAL,
    BACKUP_START,
    BACKUP_STATUS,
];

const HOTKEYS_SUBS: &[Command] =
    &[HOTKEYS_GET, help!("hotkeys", Group::Server, "8.6.1"), HOTKEYS_RESET, HOTKEYS_START, HOTKEYS_STOP];

const MODULE_LIST: Command = Command::new(
    Row::new(Group::Server, "list", 2, "4.0.0")
        .flags(ADMIN)
        .summary("Lists loaded modules: always an empty list.")
        .tips(&["nondeterministic_output_order"]),
    handler!(no_modules),
);

async fn no_modules(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Array(Vec::new()))
}

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] =
    &[MIGRATE, SYNC, PSYNC, REPLCONF, FAILOVER, BACKUP, HOTKEYS, MODULE, TRIMSLOTS];

const MODULE_LOAD: Command = Command::new(
    Row::new(Group::Server, "load", -3, "4.0.0")
        .flags(LOADS)
        .syntax("path [arg [arg ...]]")
        .summary("Loads a module."),
    NO_MODULES,
);

const MODULE_LOADEX: Command = Command::new(
    Row::new(Group::Server, "loadex", -3, "7.0.0")
        .flags(LOADS)
        .syntax("path [configs: CONFIG name value [CONFIG name value ...]] [ARGS args [args ...]]")
        .summary("Loads a module with options."),
    NO_MODULES,
);

const MODULE_UNLOAD: Command = Command::new(
    Row::new(Group::Server, "unload", 3, "4.0.0").flags(LOADS).syntax("name").summary("Unloads a module."),
    NO_MODULES,
);

const BACKUP_ABORT: Command = Command::new(
    Row::new(Group::Server, "abort", 2, "8.10.0").flags(ADMIN).summary("Aborts a running backup."),
    NO_BACKUP,
);

const BACKUP_CLEANUP: Command = Command::new(
    Row::new(Group::Server, "cleanup", 2, "8.10.0").flags(ADMIN).summary("Removes the files of a backup."),
    NO_BACKUP,
);

const BACKUP_LIST: Command = Command::new(
    Row::new(Group::Server, "list", 2, "8.10.0").flags(TELLS).summary("Lists the files of a backup."),
    NO_BACKUP,
);

const BACKUP_SEAL: Command = Command::new(
    Row::new(Group::Server, "seal", 2, "8.10.0").flags(ADMIN).summary("Completes a backup."),
    NO_BACKUP,
);

const BACKUP_START: Command = Command::new(
    Row::new(Group::Server, "start", 2, "8.10.0").flags(ADMIN).summary("Starts a backup."),
    NO_BACKUP,
);

const BACKUP_STATUS: Command = Command::new(
    Row::new(Group::Server, "status", 2, "8.10.0").flags(TELLS).summary("Returns the progress of a backup."),
    NO_BACKUP,
);

const HOTKEYS_GET: Command = Command::new(
    Row::new(Group::Server, "get", 2, "8.6.0")
        .flags(ADMIN)
        .summary("Returns the most frequently used keys.")
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"]),
    NO_HOTKEYS,
);

const HOTKEYS_RESET: Command = Command::new(
    Row::new(Group::Server, "reset", 2, "8.6.0")
        .flags(ADMIN)
        .summary("Resets the counts.")
        .tips(&["request_policy:special"]),
    NO_HOTKEYS,
);

const HOTKEYS_START: Command = Command::new(
    Row::new(Group::Server, "start", -2, "8.6.0")
        .flags(ADMIN)
        .syntax(
            "METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] [SLOTS count \
             slot [slot ...]]",
        )
        .summary("Starts counting accesses to keys.")
        .tips(&["request_policy:special"]),
    NO_HOTKEYS,
);

const HOTKEYS_STOP: Command = Command::new(
    Row::new(Group::Server, "stop", 2, "8.6.0")
        .flags(ADMIN)
        .summary("Stops counting.")
        .tips(&["request_policy:special"]),
    NO_HOTKEYS,
);

const MIGRATE: Command = Command::new(
    Row::new(Group::Generic, "migrate", -6, "2.6.0")
        .flags(Flags::WRITE.or(Flags::MOVABLEKEYS))
        .keys(MOVED)
        .syntax(
            "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 \
             username password] [KEYS key [key ...]]",
        )
        .summary("Moves keys to another server.")
        .categories(&["dangerous"])
        .tips(&["nondeterministic_output"]),
    NO_MIGRATE,
);

const SYNC: Command = Command::new(
    Row::new(Group::Server, "sync", 1, "1.0.0").flags(STREAM).summary("Starts a replication stream."),
    NO_REPLICATION,
);

const PSYNC: Command = Command::new(
    Row::new(Group::Server, "psync", -3, "2.8.0")
        .flags(STREAM)
        .syntax("replicationid offset")
        .summary("Resumes a replication stream from an offset."),
    NO_REPLICATION,
);

const REPLCONF: Command = Command::new(
    Row::new(Group::Server, "replconf", -1, "3.0.0")
        .flags(ADMIN.or(Flags::LOADING).or(Flags::STALE).or(Flags::ALLOW_BUSY))
        .syntax("[option value [option value ...]]")
        .summary("Configures a replication stream.")
        .for_systems(),
    NO_REPLICATION,
);

const FAILOVER: Command = Command::new(
    Row::new(Group::Server, "failover", -1, "6.2.0")
        .flags(ADMIN.or(Flags::STALE))
        .syntax("[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]")
        .summary("Promotes a replica to master."),
    NO_REPLICATION,
);

const BACKUP: Command = Command::container(
    Row::new(Group::Server, "backup", 2, "8.10.0").summary("Manages backups."),
    BACKUP_SUBS,
);

const HOTKEYS: Command = Command::container(
    Row::new(Group::Server, "hotkeys", -2, "8.6.0").summary("Tracks the most frequently used keys."),
    HOTKEYS_SUBS,
);

const MODULE: Command = Command::container(
    Row::new(Group::Server, "module", -2, "4.0.0").summary("Manages modules. None can be loaded."),
    MODULE_SUBS,
);

const TRIMSLOTS: Command = Command::new(
    Row::new(Group::Server, "trimslots", -5, "8.4.0")
        .flags(Flags::WRITE)
        .syntax("RANGES numranges startslot endslot [startslot endslot ...]")
        .summary("Removes all keys in ranges of slots.")
        .categories(&["keyspace", "dangerous"]),
    NO_CLUSTER,
);
