//! COMMAND: what the table says about commands. HELP of every container is derived from its rows, too.

use super::args::Args;
use super::command_docs::docs_of;
use super::command_info::{categories, flag_words, info_of};
use super::cx::Cx;
use super::glob::{Case, Glob};
use super::key_flags::key_flags;
use super::pace::Pace;
use super::reply::Reply;
use super::syntax::without_names;
use super::table::{self, Flags, Group, KeySpec, PREFIX, Row, Run};
use crate::error::{ReplyError, Result, SYNTAX};
use crate::{handler, help};
use bytes::Bytes;

const BASE: Row = Row {
    name: "command",
    arity: -2,
    flags: Flags::LOADING.or(Flags::STALE),
    keys: &[],
    group: Group::Server,
    since: "2.8.13",
    syntax: "",
    summary: "Returns what is known about all commands.",
    run: Run::Container,
    subs: &[],
};

/// The container's row; without a subcommand it runs itself.
pub const ROWS: &[Row] = &[Row { arity: -1, run: handler!(all), subs: SUBS, ..BASE }];

const SUBS: &[Row] = &[
    Row { name: "count", arity: 2, summary: "Counts the commands.", run: handler!(count), ..BASE },
    Row {
        name: "docs",
        since: "7.0.0",
        syntax: "[command-name [command-name ...]]",
        summary: "Returns summaries and arguments of commands.",
        run: handler!(docs),
        ..BASE
    },
    Row {
        name: "getkeys",
        arity: -3,
        syntax: "command [arg [arg ...]]",
        summary: "Returns the keys in a command line.",
        run: handler!(getkeys),
        ..BASE
    },
    Row {
        name: "getkeysandflags",
        arity: -3,
        since: "7.0.0",
        syntax: "command [arg [arg ...]]",
        summary: "Returns the keys in a command line and what is done with each.",
        run: handler!(getkeysandflags),
        ..BASE
    },
    help!("command", Group::Server, "5.0.0"),
    Row {
        name: "info",
        syntax: "[command-name [command-name ...]]",
        summary: "Returns arity, flags, keys and categories of commands.",
        run: handler!(info),
        ..BASE
    },
    Row {
        name: "list",
        since: "7.0.0",
        syntax: "[FILTERBY <filterby: MODULE module-name | ACLCAT category | PATTERN pattern>]",
        summary: "Returns the names of commands.",
        run: handler!(list),
        ..BASE
    },
];

/// The row called `name`: of a subcommand `container|sub`. With the name that it is shown under.
pub(super) fn find(name: &[u8]) -> Option<(String, &'static Row)> {
    let mut parts = name.splitn(2, |b| *b == b'|');
    let row = table::lookup(parts.next()?)?;
    match parts.next() {
        None => Some((row.name.into(), row)),
        Some(sub) => {
            let sub = row.subs.iter().find(|r| sub.eq_ignore_ascii_case(r.name.as_bytes()))?;
            Some((format!("{}|{}", row.name, sub.name), sub))
        }
    }
}

async fn all(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let (mut all, mut pace) = (Vec::new(), Pace::default());
    for row in table::rows() {
        all.push(info_of(row.name, row));
        described(&mut pace, row).await;
    }
    Ok(Reply::Array(all))
}

async fn count(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(table::rows().count() as i64))
}

/// Names that INFO and DOCS take: some times as many as there are. What is said of each is a hundred times as long as its name.
const MOST_NAMES: usize = 1024;
/// Steps of work ([`Pace`]) that the description of a row takes, with each of its subcommands.
const DESCRIPTION: usize = 1 << 9;

/// The rows of these names, in their order.
fn named<'a>(names: &'a [Bytes]) -> Result<impl Iterator<Item = Option<(String, &'static Row)>> + 'a> {
    if names.len() > MOST_NAMES {
        return Err(ReplyError::of(format!("ERR at most {MOST_NAMES} names can be asked for at once")).into());
    }
    Ok(names.iter().map(|name| find(name)))
}

/// Lets others come first while rows are described.
async fn described(pace: &mut Pace, row: &Row) {
    pace.spend(DESCRIPTION * (1 + row.subs.len())).await;
}

async fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    if args.is_empty() {
        return all(cx, args).await;
    }
    let (mut all, mut pace) = (Vec::with_capacity(args.len().min(MOST_NAMES)), Pace::default());
    for found in named(args.rest())? {
        let Some((label, row)) = found else {
            all.push(Reply::Nil);
            continue;
        };
        all.push(info_of(&label, row));
        described(&mut pace, row).await;
    }
    Ok(Reply::Array(all))
}

async fn docs(_cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let found: Vec<(String, &Row)> = match args.rest() {
        [] => table::rows().map(|row| (row.name.to_owned(), row)).collect(),
        names => named(names)?.flatten().collect(),
    };
    let (mut all, mut pace) = (Vec::with_capacity(found.len()), Pace::default());
    for (label, row) in found {
        let docs = docs_of(&label, row);
        all.push((Reply::text(label), docs));
        described(&mut pace, row).await;
    }
    Ok(Reply::Map(all))
}

async fn list(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let names = |keep: &dyn Fn(&str, &Row) -> bool| {
        Reply::Array(
            table::labelled()
                .filter(|(label, row)| keep(label, row))
                .map(|(label, _)| Reply::text(label))
                .collect(),
        )
    };
    if args.is_empty() {
        return Ok(names(&|_, _| true));
    }
    if !args.keyword("FILTERBY") || args.len() != 2 {
        return Err(SYNTAX.into());
    }
    let (by, value) = (args.next()?, args.next()?);
    match by.to_ascii_lowercase().as_slice() {
        b"module" => Ok(names(&|_, _| false)),
        b"pattern" => {
            let longest = table::labelled().map(|(label, _)| label.len()).max().unwrap_or(0);
            let mut pace = Pace::default();
            let glob = Glob::read(value, Case::Ignored, longest, &mut pace).await;
            Ok(names(&|label, _| glob.matches_within(label.as_bytes(), longest * longest)))
        }
        b"aclcat" => Ok(names(&|label, row| {
            categories(label, row).iter().any(|c| value.eq_ignore_ascii_case(c.as_bytes()))
        })),
        _ => Err(SYNTAX.into()),
    }
}

/// The row of a command line and where each key is, or the error that COMMAND GETKEYS answers.
fn keys(argv: &[Bytes]) -> Result<Vec<(&Bytes, &'static KeySpec)>> {
    let row = match table::resolve(argv) {
        Some(Ok((row, _))) if matches!(row.run, Run::Prefix) => {
            return keys(argv.get(PREFIX..).unwrap_or_default());
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
        found.extend(table::keys_at(spec, argv).ok_or(invalid.clone())?.map(|key| (key, spec)));
    }
    // A script may do without keys.
    if found.is_empty() && row.group != Group::Scripting { Err(invalid.into()) } else { Ok(found) }
}

async fn getkeys(_cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let keys = keys(args.rest())?;
    Ok(Reply::bulks(keys.into_iter().map(|(key, _)| key.clone())))
}

async fn getkeysandflags(_cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let keys = keys(args.rest())?;
    let one = |(key, spec): (&Bytes, &KeySpec)| {
        let flags = key_flags(spec, args.rest());
        Reply::Array(vec![Reply::Bulk(key.clone()), flag_words(flags.iter().copied())])
    };
    Ok(Reply::Array(keys.into_iter().map(one).collect()))
}

/// The row HELP of a container: its name, its group, and which version of Redis has its HELP first.
#[macro_export]
macro_rules! help {
    ($container:literal, $group:expr, $since:literal) => {{
        use $crate::commands::{args, command, cx, reply, table};
        async fn help(_: &mut cx::Cx<'_>, _: args::Args<'_>) -> $crate::error::Result<reply::Reply> {
            Ok(command::help_of($container))
        }
        let flags = table::Flags::LOADING.or(table::Flags::STALE);
        let row = table::Row::of($group, $crate::handler!(help));
        row.row("help", 2, flags, $since, "", "Lists the subcommands.")
    }};
}

/// HELP of the container `name`: each subcommand with its arguments and its summary.
pub(super) fn help_of(name: &str) -> Reply {
    let upper = name.to_ascii_uppercase();
    let mut lines = vec![format!("{upper} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for row in table::lookup(name.as_bytes()).map_or(&[][..], |row| row.subs) {
        lines.push(
            format!("{} {}", row.name.to_ascii_uppercase(), without_names(row.syntax)).trim_end().to_owned(),
        );
        lines.push(format!("    {}", row.summary));
    }
    Reply::Array(lines.into_iter().map(|line| Reply::Simple(line.into())).collect())
}
