//! CLUSTER and its relatives. Any server can answer for any key, so Tern has no cluster mode. The subcommands
//! are rows because a client with a malformed request must be told so first, as by Redis without cluster
//! mode.

use crate::commands::binding::{Command, Run};
use crate::spec::{Flags, Group, Row};

const ASKS: Flags = Flags::STALE;
const MANAGES: Flags = Flags::ADMIN.or(Flags::STALE);
const CHANGES: Flags = MANAGES.or(Flags::NO_ASYNC_LOADING);
const OPEN: Flags = Flags::LOADING.or(Flags::STALE);

/// The error of its commands.
pub(super) const NO_CLUSTER: Run = Run::Refuse("ERR This instance has cluster support disabled");
/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[ASKING, CLUSTER, READONLY, READWRITE];

const SLOT: &str = "slot";
const NODE: &str = "node-id";
const SLOTS: &str = "slot [slot ...]";
const RANGES: &str = "<range: start-slot end-slot> [start-slot end-slot ...]";

const SUBS: &[Command] = &[
    CLUSTER_ADDSLOTS,
    CLUSTER_ADDSLOTSRANGE,
    CLUSTER_BUMPEPOCH,
    CLUSTER_COUNT_FAILURE_REPORTS,
    CLUSTER_COUNTKEYSINSLOT,
    CLUSTER_DELSLOTS,
    CLUSTER_DELSLOTSRANGE,
    CLUSTER_FAILOVER,
    CLUSTER_FLUSHSLOTS,
    CLUSTER_FORGET,
    CLUSTER_GETKEYSINSLOT,
    CLUSTER_HELP,
    CLUSTER_INFO,
    CLUSTER_KEYSLOT,
    CLUSTER_LINKS,
    CLUSTER_MEET,
    CLUSTER_MYID,
    CLUSTER_NODES,
    CLUSTER_REPLICAS,
    CLUSTER_REPLICATE,
    CLUSTER_RESET,
    CLUSTER_SAVECONFIG,
    CLUSTER_SET_CONFIG_EPOCH,
    CLUSTER_SETSLOT,
    CLUSTER_SHARDS,
    CLUSTER_SLAVES,
    CLUSTER_SLOTS,
];

const ASKING: Command = Command::new(
    Row::new(Group::Cluster, "asking", 1, "3.0.0")
        .flags(Flags::FAST)
        .summary("Follows a redirection in a cluster.")
        .categories(&["connection"]),
    NO_CLUSTER,
);

const CLUSTER: Command = Command::container(
    Row::new(Group::Cluster, "cluster", -2, "3.0.0")
        .summary("Manages a cluster. Refused: without cluster mode, every server answers for every key."),
    SUBS,
);

const READONLY: Command = Command::new(
    Row::new(Group::Cluster, "readonly", 1, "3.0.0")
        .flags(OPEN.or(Flags::FAST))
        .summary("Allows reads from a replica in a cluster.")
        .categories(&["connection"]),
    NO_CLUSTER,
);

const READWRITE: Command = Command::new(
    Row::new(Group::Cluster, "readwrite", 1, "3.0.0")
        .flags(OPEN.or(Flags::FAST))
        .summary("Ends READONLY.")
        .categories(&["connection"]),
    NO_CLUSTER,
);

const CLUSTER_ADDSLOTS: Command = Command::new(
    Row::new(Group::Cluster, "addslots", -3, "3.0.0")
        .flags(CHANGES)
        .syntax(SLOTS)
        .summary("Assigns slots to this node."),
    NO_CLUSTER,
);

const CLUSTER_ADDSLOTSRANGE: Command = Command::new(
    Row::new(Group::Cluster, "addslotsrange", -4, "7.0.0")
        .flags(CHANGES)
        .syntax(RANGES)
        .summary("Assigns ranges of slots to this node."),
    NO_CLUSTER,
);

const CLUSTER_BUMPEPOCH: Command = Command::new(
    Row::new(Group::Cluster, "bumpepoch", 2, "3.0.0")
        .flags(CHANGES)
        .summary("Advances the configuration epoch.")
        .tips(&["nondeterministic_output"]),
    NO_CLUSTER,
);

const CLUSTER_COUNT_FAILURE_REPORTS: Command = Command::new(
    Row::new(Group::Cluster, "count-failure-reports", 3, "3.0.0")
        .flags(MANAGES)
        .syntax(NODE)
        .summary("Counts the nodes that report a node as failing.")
        .tips(&["nondeterministic_output"]),
    NO_CLUSTER,
);

const CLUSTER_COUNTKEYSINSLOT: Command = Command::new(
    Row::new(Group::Cluster, "countkeysinslot", 3, "3.0.0")
        .flags(ASKS)
        .syntax(SLOT)
        .summary("Counts the keys of a slot."),
    NO_CLUSTER,
);

const CLUSTER_DELSLOTS: Command = Command::new(
    Row::new(Group::Cluster, "delslots", -3, "3.0.0")
        .flags(CHANGES)
        .syntax(SLOTS)
        .summary("Removes slots from this node."),
    NO_CLUSTER,
);

const CLUSTER_DELSLOTSRANGE: Command = Command::new(
    Row::new(Group::Cluster, "delslotsrange", -4, "7.0.0")
        .flags(CHANGES)
        .syntax(RANGES)
        .summary("Removes ranges of slots from this node."),
    NO_CLUSTER,
);

const CLUSTER_FAILOVER: Command = Command::new(
    Row::new(Group::Cluster, "failover", -2, "3.0.0")
        .flags(CHANGES)
        .syntax("[options: FORCE | TAKEOVER]")
        .summary("Promotes a replica to master."),
    NO_CLUSTER,
);

const CLUSTER_FLUSHSLOTS: Command = Command::new(
    Row::new(Group::Cluster, "flushslots", 2, "3.0.0")
        .flags(CHANGES)
        .summary("Removes all slots from this node."),
    NO_CLUSTER,
);

const CLUSTER_FORGET: Command = Command::new(
    Row::new(Group::Cluster, "forget", 3, "3.0.0")
        .flags(CHANGES)
        .syntax(NODE)
        .summary("Removes a node from the cluster."),
    NO_CLUSTER,
);

const CLUSTER_GETKEYSINSLOT: Command = Command::new(
    Row::new(Group::Cluster, "getkeysinslot", 4, "3.0.0")
        .flags(ASKS)
        .syntax("slot count")
        .summary("Returns keys of a slot.")
        .tips(&["nondeterministic_output"]),
    NO_CLUSTER,
);

const CLUSTER_HELP: Command = Command::new(
    Row::new(Group::Cluster, "help", 2, "5.0.0").flags(OPEN).summary("Lists the subcommands."),
    NO_CLUSTER,
);

const CLUSTER_INFO: Command = Command::new(
    Row::new(Group::Cluster, "info", 2, "3.0.0")
        .flags(ASKS)
        .summary("Returns the state of the cluster.")
        .tips(&["nondeterministic_output"]),
    NO_CLUSTER,
);

const CLUSTER_KEYSLOT: Command = Command::new(
    Row::new(Group::Cluster, "keyslot", 3, "3.0.0")
        .flags(ASKS)
        .syntax("key")
        .summary("Returns the slot of a key."),
    NO_CLUSTER,
);

const CLUSTER_LINKS: Command = Command::new(
    Row::new(Group::Cluster, "links", 2, "7.0.0")
        .flags(ASKS)
        .summary("Lists the connections between nodes.")
        .tips(&["nondeterministic_output"]),
    NO_CLUSTER,
);

const CLUSTER_MEET: Command = Command::new(
    Row::new(Group::Cluster, "meet", -4, "3.0.0")
        .flags(CHANGES)
        .syntax("ip port [cluster-bus-port]")
        .summary("Joins two nodes."),
    NO_CLUSTER,
);

const CLUSTER_MYID: Command = Command::new(
    Row::new(Group::Cluster, "myid", 2, "3.0.0").flags(ASKS).summary("Returns the id of this node."),
    NO_CLUSTER,
);

const CLUSTER_NODES: Command = Command::new(
    Row::new(Group::Cluster, "nodes", 2, "3.0.0")
        .flags(ASKS)
        .summary("Describes all nodes.")
        .tips(&["nondeterministic_output"]),
    NO_CLUSTER,
);

const CLUSTER_REPLICAS: Command = Command::new(
    Row::new(Group::Cluster, "replicas", 3, "5.0.0")
        .flags(MANAGES)
        .syntax(NODE)
        .summary("Lists the replicas of a master.")
        .tips(&["nondeterministic_output"]),
    NO_CLUSTER,
);

const CLUSTER_REPLICATE: Command = Command::new(
    Row::new(Group::Cluster, "replicate", 3, "3.0.0")
        .flags(CHANGES)
        .syntax(NODE)
        .summary("Makes this node a replica."),
    NO_CLUSTER,
);

const CLUSTER_RESET: Command = Command::new(
    Row::new(Group::Cluster, "reset", -2, "3.0.0")
        .flags(MANAGES.or(Flags::NOSCRIPT))
        .syntax("[reset-type: HARD | SOFT]")
        .summary("Resets this node."),
    NO_CLUSTER,
);

const CLUSTER_SAVECONFIG: Command = Command::new(
    Row::new(Group::Cluster, "saveconfig", 2, "3.0.0")
        .flags(CHANGES)
        .summary("Writes the nodes' configuration to disk."),
    NO_CLUSTER,
);

const CLUSTER_SET_CONFIG_EPOCH: Command = Command::new(
    Row::new(Group::Cluster, "set-config-epoch", 3, "3.0.0")
        .flags(CHANGES)
        .syntax("config-epoch")
        .summary("Sets the epoch of a new node."),
    NO_CLUSTER,
);

const CLUSTER_SETSLOT: Command = Command::new(
    Row::new(Group::Cluster, "setslot", -4, "3.0.0")
        .flags(CHANGES)
        .syntax("slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>")
        .summary("Assigns a slot to a node."),
    NO_CLUSTER,
);

const CLUSTER_SHARDS: Command = Command::new(
    Row::new(Group::Cluster, "shards", 2, "7.0.0")
        .flags(ASKS)
        .summary("Returns slots and nodes by shard.")
        .tips(&["nondeterministic_output"]),
    NO_CLUSTER,
);

const CLUSTER_SLAVES: Command = Command::new(
    Row::new(Group::Cluster, "slaves", 3, "3.0.0")
        .flags(MANAGES)
        .syntax(NODE)
        .summary("The old name of REPLICAS.")
        .tips(&["nondeterministic_output"])
        .deprecated("5.0.0", "CLUSTER REPLICAS"),
    NO_CLUSTER,
);

const CLUSTER_SLOTS: Command = Command::new(
    Row::new(Group::Cluster, "slots", 2, "3.0.0")
        .flags(ASKS)
        .summary("Returns the mapping from slots to nodes.")
        .tips(&["nondeterministic_output"])
        .deprecated("7.0.0", "CLUSTER SHARDS"),
    NO_CLUSTER,
);
