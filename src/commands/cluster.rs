//! CLUSTER and its relatives: any server can answer for any key, so there is no cluster mode. The subcommands are rows
//! because a client that asks in a wrong form must be told so first, as by Redis without cluster mode.

use super::table::{Flags, Group, Row, Run};

const ASKS: Flags = Flags::STALE;
const MANAGES: Flags = Flags::ADMIN.or(Flags::STALE);
const CHANGES: Flags = MANAGES.or(Flags::NO_ASYNC_LOADING);
const OPEN: Flags = Flags::LOADING.or(Flags::STALE);

/// Why its commands are refused.
pub(super) const NO_CLUSTER: Run = Run::Refuse("ERR This instance has cluster support disabled");
const BASE: Row = Row::of(Group::Cluster, NO_CLUSTER);

/// Rows of this family.
pub const ROWS: &[Row] = &[
    BASE.row("asking", 1, Flags::FAST, "3.0.0", "", "Follows a redirection in a cluster."),
    BASE.container(
        "cluster",
        -2,
        "3.0.0",
        "Manages a cluster. There is no cluster mode: every server can answer for every key.",
        SUBS,
    ),
    BASE.row("readonly", 1, OPEN.or(Flags::FAST), "3.0.0", "", "Allows reads from a replica in a cluster."),
    BASE.row("readwrite", 1, OPEN.or(Flags::FAST), "3.0.0", "", "Ends READONLY."),
];

const SLOT: &str = "slot";
const NODE: &str = "node-id";
const SLOTS: &str = "slot [slot ...]";
const RANGES: &str = "<range: start-slot end-slot> [start-slot end-slot ...]";

const SUBS: &[Row] = &[
    BASE.row("addslots", -3, CHANGES, "3.0.0", SLOTS, "Gives slots to this node."),
    BASE.row("addslotsrange", -4, CHANGES, "7.0.0", RANGES, "Gives ranges of slots to this node."),
    BASE.row("bumpepoch", 2, CHANGES, "3.0.0", "", "Moves the configuration's epoch on."),
    BASE.row("count-failure-reports", 3, MANAGES, "3.0.0", NODE, "Counts who reports a node as failing."),
    BASE.row("countkeysinslot", 3, ASKS, "3.0.0", SLOT, "Counts the keys of a slot."),
    BASE.row("delslots", -3, CHANGES, "3.0.0", SLOTS, "Takes slots from this node."),
    BASE.row("delslotsrange", -4, CHANGES, "7.0.0", RANGES, "Takes ranges of slots from this node."),
    BASE.row("failover", -2, CHANGES, "3.0.0", "[options: FORCE | TAKEOVER]", "Makes a replica the master."),
    BASE.row("flushslots", 2, CHANGES, "3.0.0", "", "Takes all slots from this node."),
    BASE.row("forget", 3, CHANGES, "3.0.0", NODE, "Removes a node from the cluster."),
    BASE.row("getkeysinslot", 4, ASKS, "3.0.0", "slot count", "Returns keys of a slot."),
    BASE.row("help", 2, OPEN, "5.0.0", "", "Lists the subcommands."),
    BASE.row("info", 2, ASKS, "3.0.0", "", "Returns the state of the cluster."),
    BASE.row("keyslot", 3, ASKS, "3.0.0", "key", "Returns the slot of a key."),
    BASE.row("links", 2, ASKS, "7.0.0", "", "Lists the connections between nodes."),
    BASE.row("meet", -4, CHANGES, "3.0.0", "ip port [cluster-bus-port]", "Joins two nodes."),
    BASE.row("myid", 2, ASKS, "3.0.0", "", "Returns the name of this node."),
    BASE.row("nodes", 2, ASKS, "3.0.0", "", "Describes all nodes."),
    BASE.row("replicas", 3, MANAGES, "5.0.0", NODE, "Lists the replicas of a master."),
    BASE.row("replicate", 3, CHANGES, "3.0.0", NODE, "Makes this node a replica."),
    BASE.row(
        "reset",
        -2,
        MANAGES.or(Flags::NOSCRIPT),
        "3.0.0",
        "[reset-type: HARD | SOFT]",
        "Forgets the cluster.",
    ),
    BASE.row("saveconfig", 2, CHANGES, "3.0.0", "", "Writes the nodes' configuration to disk."),
    BASE.row("set-config-epoch", 3, CHANGES, "3.0.0", "config-epoch", "Sets the epoch of a new node."),
    BASE.row(
        "setslot",
        -4,
        CHANGES,
        "3.0.0",
        "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
        "Binds a slot to a node.",
    ),
    BASE.row("shards", 2, ASKS, "7.0.0", "", "Returns slots and nodes by shard."),
    BASE.row("slaves", 3, MANAGES, "3.0.0", NODE, "Is the old name of REPLICAS."),
    BASE.row("slots", 2, ASKS, "3.0.0", "", "Returns which nodes serve which slots."),
];
