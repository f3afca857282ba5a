//! Rows of MULTI and its family. The session runs them (`session/transaction.rs`), because they affect the
//! commands after them.

pub(crate) mod idempotent;

use crate::commands::binding::{Command, Run, SessionOp};
use crate::spec::{Flags, Group, Row, all};

const FLAGS: Flags =
    Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST).or(Flags::ALLOW_BUSY);

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[MULTI, EXEC, DISCARD, WATCH, UNWATCH];

const MULTI: Command = Command::new(
    Row::new(Group::Transactions, "multi", 1, "1.2.0").flags(FLAGS).summary("Starts a transaction."),
    Run::Session(SessionOp::Multi),
);

const EXEC: Command = Command::new(
    Row::new(Group::Transactions, "exec", 1, "1.2.0")
        .flags(Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::SKIP_SLOWLOG))
        .summary("Runs the queued commands of a transaction."),
    Run::Session(SessionOp::Exec),
);

const DISCARD: Command = Command::new(
    Row::new(Group::Transactions, "discard", 1, "2.0.0")
        .flags(FLAGS)
        .summary("Discards the queued commands of a transaction."),
    Run::Session(SessionOp::Discard),
);

const WATCH: Command = Command::new(
    Row::new(Group::Transactions, "watch", -2, "2.2.0")
        .flags(FLAGS)
        .keys(&[all(&["RO"])])
        .syntax("key [key ...]")
        .summary("Watches keys: the next transaction runs only if none of them changes."),
    Run::Session(SessionOp::Watch),
);

const UNWATCH: Command = Command::new(
    Row::new(Group::Transactions, "unwatch", 1, "2.2.0").flags(FLAGS).summary("Forgets the watched keys."),
    Run::Session(SessionOp::Unwatch),
);
