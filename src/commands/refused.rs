//! Commands that are refused by design, so that who sends one learns why: what moves data from server to server has nothing to do
//! where the store does that.

use super::table::{FindKeys, Flags, Group, KeySpec, Row, Run};

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
];
