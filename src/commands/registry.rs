//! All commands: the families, in the order in which they are listed.

use super::binding::{Command, Run};
use crate::spec::{Entry, Table};
use std::sync::LazyLock;

use super::connection::{auth, client};
use super::generic::{dump, expire, inspect, scan, sort};
use super::server::{acl, command, config, debug, info, latency, lolwut, memory, monitor, refused, slowlog};
use super::set::algebra;
use super::transactions::idempotent;
use super::{
    bitmap, cluster, connection, generic, geo, hash, hyperloglog, list, pubsub, scripting, server, set,
    stream, string, transactions, zset,
};

/// All families.
const FAMILIES: &[&[Command]] = &[
    string::COMMANDS,
    bitmap::COMMANDS,
    hyperloglog::COMMANDS,
    generic::COMMANDS,
    inspect::COMMANDS,
    dump::COMMANDS,
    sort::COMMANDS,
    expire::COMMANDS,
    refused::COMMANDS,
    scripting::COMMANDS,
    scan::COMMANDS,
    set::COMMANDS,
    algebra::COMMANDS,
    hash::COMMANDS,
    hash::NUMBERS,
    hash::EXPIRY,
    hash::EXTENDED,
    list::COMMANDS,
    list::MOVES,
    list::WAITING,
    zset::COMMANDS,
    zset::RANGES,
    zset::DRAWS,
    zset::ALGEBRA,
    zset::POPS,
    zset::WAITING,
    geo::COMMANDS,
    geo::SEARCHES,
    stream::COMMANDS,
    stream::GROUPS,
    stream::PENDING,
    stream::CLAIMS,
    stream::DELETIONS,
    stream::INFO,
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
    #[cfg(test)]
    super::abacus::COMMANDS,
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

/// The code that runs a row of [`table`].
pub fn run_of(row: &Entry) -> Run {
    RUNS.get(row.index).copied().unwrap_or(Run::Nothing)
}
