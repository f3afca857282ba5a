//! All commands: the families, in the order in which they are listed.

use super::binding::{Command, Run};
use crate::spec::{Entry, Table};
use std::sync::LazyLock;

use super::{
    acl, auth, bitmaps, client, cluster, command, config, connection, debug, dump, expire, hyperloglog,
    idempotent, info, keys, keys_object, latency, lolwut, memory, monitor, pubsub, refused, scan, scripting,
    server, set_algebra, sets, slowlog, sort, strings, strings_newer, transactions,
};

/// All families.
const FAMILIES: &[&[Command]] = &[
    strings::COMMANDS,
    strings_newer::COMMANDS,
    bitmaps::COMMANDS,
    hyperloglog::COMMANDS,
    keys::COMMANDS,
    keys_object::COMMANDS,
    dump::COMMANDS,
    sort::COMMANDS,
    expire::COMMANDS,
    refused::COMMANDS,
    scripting::COMMANDS,
    scan::COMMANDS,
    sets::COMMANDS,
    set_algebra::COMMANDS,
    transactions::COMMANDS,
    idempotent::COMMANDS,
    auth::COMMANDS,
    acl::COMMANDS,
    connection::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    server::COMMANDS,
    pubsub::COMMANDS,
    lolwut::COMMANDS,
    debug::COMMANDS,
    memory::COMMANDS,
    slowlog::COMMANDS,
    latency::COMMANDS,
    monitor::COMMANDS,
    config::COMMANDS,
    command::COMMANDS,
    info::COMMANDS,
];

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(commands().map(|command| (command.row, subs(command).map(|sub| sub.row).collect())))
});

/// In the order of [`Table::all`].
static RUNS: LazyLock<Vec<Run>> = LazyLock::new(|| {
    commands()
        .flat_map(|command| std::iter::once(command).chain(subs(command)))
        .map(|command| command.run)
        .collect()
});

fn commands() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().copied().flatten()
}

fn subs(command: &'static Command) -> impl Iterator<Item = &'static Command> {
    command.subs.iter()
}

/// The rows of all commands.
pub fn table() -> &'static Table {
    &TABLE
}

/// What runs a row of [`table`].
pub fn run_of(row: &Entry) -> Run {
    RUNS.get(row.index).copied().unwrap_or(Run::Nothing)
}
