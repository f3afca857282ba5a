//! Rows of MULTI and its family. The session runs them (`session/transaction.rs`): they decide about what follows them.

use super::table::{Flags, Group, KeySpec, Row, Run, SessionOp, all};

const FLAGS: Flags =
    Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST).or(Flags::ALLOW_BUSY);

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("multi", 1, FLAGS, &[], "1.2.0", "", "Starts a transaction.", SessionOp::Multi),
    row(
        "exec",
        1,
        Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::SKIP_SLOWLOG),
        &[],
        "1.2.0",
        "",
        "Runs the commands of a transaction.",
        SessionOp::Exec,
    ),
    row("discard", 1, FLAGS, &[], "2.0.0", "", "Gives up a transaction.", SessionOp::Discard),
    row(
        "watch",
        -2,
        FLAGS,
        &[all(&["RO"])],
        "2.2.0",
        "key [key ...]",
        "Makes the next transaction depend on keys not changing.",
        SessionOp::Watch,
    ),
    row("unwatch", 1, FLAGS, &[], "2.2.0", "", "Forgets the watched keys.", SessionOp::Unwatch),
];

#[allow(clippy::too_many_arguments)]
const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    keys: &'static [KeySpec],
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
    op: SessionOp,
) -> Row {
    let run = Run::Session(op);
    Row { name, arity, flags, keys, group: Group::Transactions, since, syntax, summary, run, subs: &[] }
}
