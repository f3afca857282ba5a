//! COMMAND: describes the commands in the table. HELP of every container is also derived from its rows.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::server::command_docs::docs_of;
use crate::commands::server::command_info::{flag_words, info_of};
use crate::commands::server::syntax::without_names;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::server::glob::{Case, Glob};
use crate::server::pace::Pace;
use crate::server::reply::Reply;
use crate::spec::{Entry, Flags, Form, Group, PREFIX, Row, Secrets, Table, categories, keys_at};
use crate::{handler, help};
use bytes::Bytes;

/// The container, which also runs without a subcommand.
pub(crate) const COMMANDS: &[Command] = &[COMMAND];

const SUBS: &[Command] = &[
    COMMAND_COUNT,
    COMMAND_DOCS,
    COMMAND_GETKEYS,
    COMMAND_GETKEYSANDFLAGS,
    help!("command", Group::Server, "5.0.0", &["connection"]),
    COMMAND_INFO,
    COMMAND_LIST,
];

const COMMAND: Command = Command::new(
    Row::new(Group::Server, "command", -1, "2.8.13")
        .flags(Flags::LOADING.or(Flags::STALE))
        .summary("Describes all commands.")
        .categories(&["connection"])
        .tips(&["nondeterministic_output_order"]),
    handler!(all),
)
.with(SUBS);

async fn all(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let (mut all, mut pace) = (Vec::new(), Pace::default());
    for row in cx.server.table.commands() {
        all.push(info_of(row));
        described(&mut pace, row).await;
    }
    Ok(Reply::Array(all))
}

const COMMAND_COUNT: Command = Command::new(
    Row::new(Group::Server, "count", 2, "2.8.13")
        .flags(Flags::LOADING.or(Flags::STALE))
        .summary("Returns the number of commands.")
        .categories(&["connection"]),
    handler!(count),
);

async fn count(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.server.table.commands().count() as i64))
}

/// The most names that INFO and DOCS accept: several times the number of commands. A description is a hundred
/// times as long as its name.
const MOST_NAMES: usize = 1024;
/// Steps of work ([`Pace`]) to describe a row with its subcommands.
const DESCRIPTION: usize = 1 << 9;

/// The rows with these names, in order.
fn named<'a>(
    table: &'a Table,
    names: &'a [Bytes],
) -> Result<impl Iterator<Item = Option<&'static Entry>> + 'a> {
    if names.len() > MOST_NAMES {
        return Err(ReplyError::of(format!("ERR at most {MOST_NAMES} names are allowed per call")).into());
    }
    Ok(names.iter().map(|name| table.find(name)))
}

/// Yields to other tasks while rows are described.
async fn described(pace: &mut Pace, row: &Entry) {
    pace.spend(DESCRIPTION * (1 + row.subs.len())).await;
}

const COMMAND_INFO: Command = Command::new(
    Row::new(Group::Server, "info", -2, "2.8.13")
        .flags(Flags::LOADING.or(Flags::STALE))
        .syntax("[command-name [command-name ...]]")
        .summary("Returns the arity, flags, keys and categories of commands.")
        .categories(&["connection"])
        .tips(&["nondeterministic_output_order"]),
    handler!(info),
);

async fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    if args.is_empty() {
        return all(cx, args).await;
    }
    let (mut all, mut pace) = (Vec::with_capacity(args.len().min(MOST_NAMES)), Pace::default());
    for found in named(cx.server.table, args.rest())? {
        let Some(row) = found else {
            all.push(Reply::Nil);
            continue;
        };
        all.push(info_of(row));
        described(&mut pace, row).await;
    }
    Ok(Reply::Array(all))
}

const COMMAND_DOCS: Command = Command::new(
    Row::new(Group::Server, "docs", -2, "7.0.0")
        .flags(Flags::LOADING.or(Flags::STALE))
        .syntax("[command-name [command-name ...]]")
        .summary("Returns the summaries and arguments of commands.")
        .categories(&["connection"])
        .tips(&["nondeterministic_output_order"]),
    handler!(docs),
);

async fn docs(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let table = cx.server.table;
    let found: Vec<&Entry> = match args.rest() {
        [] => table.commands().collect(),
        names => named(table, names)?.flatten().collect(),
    };
    let (mut all, mut pace) = (Vec::with_capacity(found.len()), Pace::default());
    for row in found {
        all.push((Reply::text(row.label.clone()), docs_of(row)));
        described(&mut pace, row).await;
    }
    Ok(Reply::Map(all))
}

const COMMAND_LIST: Command = Command::new(
    Row::new(Group::Server, "list", -2, "7.0.0")
        .flags(Flags::LOADING.or(Flags::STALE))
        .syntax("[FILTERBY <filterby: MODULE module-name | ACLCAT category | PATTERN pattern>]")
        .summary("Returns the names of commands.")
        .categories(&["connection"])
        .tips(&["nondeterministic_output_order"]),
    handler!(list),
);

async fn list(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let table = cx.server.table;
    let names = |keep: &dyn Fn(&Entry) -> bool| {
        Reply::Array(table.all().filter(|row| keep(row)).map(|row| Reply::text(row.label.clone())).collect())
    };
    if args.is_empty() {
        return Ok(names(&|_| true));
    }
    if !args.keyword("FILTERBY") || args.len() != 2 {
        return Err(SYNTAX.into());
    }
    let (by, value) = (args.next()?, args.next()?);
    match by.to_ascii_lowercase().as_slice() {
        b"module" => Ok(names(&|_| false)),
        b"pattern" => {
            let longest = table.all().map(|row| row.label.len()).max().unwrap_or(0);
            let mut pace = Pace::default();
            let glob = Glob::read(value, Case::Ignored, longest, &mut pace).await;
            Ok(names(&|row| glob.matches_within(row.label.as_bytes(), longest * longest)))
        }
        b"aclcat" => {
            Ok(names(&|row| categories(row).iter().any(|c| value.eq_ignore_ascii_case(c.as_bytes()))))
        }
        _ => Err(SYNTAX.into()),
    }
}

/// The keys of a command line and how they are used, or the error of COMMAND GETKEYS.
fn keys<'a>(table: &Table, argv: &'a [Bytes]) -> Result<Vec<(&'a Bytes, &'static [&'static str])>> {
    let row = match table.resolve(argv) {
        Some(Ok((row, _))) if row.form == Form::Prefix => {
            return keys(table, argv.get(PREFIX..).unwrap_or_default());
        }
        Some(Ok((row, _))) => row,
        _ => return Err(ReplyError::new("ERR Invalid command specified").into()),
    };
    if row.keys.is_empty() {
        return Err(ReplyError::new("ERR The command has no key arguments").into());
    }
    if !row.accepts(argv.len()) {
        return Err(ReplyError::new("ERR Invalid number of arguments specified for command").into());
    }
    let invalid = ReplyError::new("ERR Invalid arguments specified for command");
    let mut found = Vec::new();
    for spec in row.keys {
        found.extend(keys_at(spec, argv).ok_or(invalid.clone())?.map(|key| (key, row.key_flags(spec, argv))));
    }
    if found.is_empty() && !row.flags.has(Flags::NO_MANDATORY_KEYS) { Err(invalid.into()) } else { Ok(found) }
}

const COMMAND_GETKEYS: Command = Command::new(
    Row::new(Group::Server, "getkeys", -3, "2.8.13")
        .flags(Flags::LOADING.or(Flags::STALE))
        .syntax("command [arg [arg ...]]")
        .summary("Returns the keys in a command line.")
        .secrets(Secrets::Line(2))
        .categories(&["connection"]),
    handler!(getkeys),
);

async fn getkeys(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let keys = keys(cx.server.table, args.rest())?;
    Ok(Reply::bulks(keys.into_iter().map(|(key, _)| key.clone())))
}

const COMMAND_GETKEYSANDFLAGS: Command = Command::new(
    Row::new(Group::Server, "getkeysandflags", -3, "7.0.0")
        .flags(Flags::LOADING.or(Flags::STALE))
        .syntax("command [arg [arg ...]]")
        .summary("Returns the keys in a command line, and how the command uses each.")
        .secrets(Secrets::Line(2))
        .categories(&["connection"]),
    handler!(getkeysandflags),
);

async fn getkeysandflags(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let keys = keys(cx.server.table, args.rest())?;
    let one = |(key, flags): (&Bytes, &[&'static str])| {
        Reply::Array(vec![Reply::Bulk(key.clone()), flag_words(flags.iter().copied())])
    };
    Ok(Reply::Array(keys.into_iter().map(one).collect()))
}

/// HELP of a container: its name, its group, the Redis version that introduced its HELP, and additional
/// categories.
#[macro_export]
macro_rules! help {
    ($container:literal, $group:expr, $since:literal) => {
        $crate::help!($container, $group, $since, &[])
    };
    ($container:literal, $group:expr, $since:literal, $categories:expr) => {{
        use $crate::commands::server::command;
        use $crate::commands::{args, binding, cx};
        use $crate::server::reply;
        use $crate::spec::{Flags, Row};
        async fn help(cx: &mut cx::Cx<'_>, _: args::Args<'_>) -> $crate::error::Result<reply::Reply> {
            Ok(command::help_of(cx.server.table, $container))
        }
        let row = Row::new($group, "help", 2, $since).flags(Flags::LOADING.or(Flags::STALE));
        let row = row.summary("Lists the subcommands.").categories($categories);
        binding::Command::new(row, $crate::handler!(help))
    }};
}

/// HELP of the container `name`: each subcommand with its arguments and its summary.
pub(in crate::commands) fn help_of(table: &Table, name: &str) -> Reply {
    let upper = name.to_ascii_uppercase();
    let mut lines = vec![format!("{upper} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for row in table.lookup(name.as_bytes()).into_iter().flat_map(|row| &row.subs) {
        let line = format!("{} {}", row.name.to_ascii_uppercase(), without_names(row.syntax));
        lines.push(line.trim_end().to_owned());
        lines.push(format!("    {}", row.summary));
    }
    Reply::Array(lines.into_iter().map(|line| Reply::Simple(line.into())).collect())
}
