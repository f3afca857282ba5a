//! SLOWLOG: the commands that took long, see `telemetry::slowlog`.

use super::args::{Args, parse_i64};
use super::cx::Cx;
use super::pace::Pace;
use super::reply::Reply;
use super::table::{Flags, Group, Row, Run};
use crate::error::{ReplyError, Result};
use crate::telemetry::slowlog::SlowCommand;
use crate::{handler, help};

const BASE: Row = Row {
    name: "slowlog",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    keys: &[],
    group: Group::Server,
    since: "2.2.12",
    syntax: "",
    summary: "Shows the commands that took long.",
    run: Run::Container,
    subs: &[],
};

/// The container's row.
pub const ROWS: &[Row] = &[Row { arity: -2, flags: Flags::NONE, subs: SUBS, ..BASE }];

const SUBS: &[Row] = &[
    Row {
        name: "get",
        arity: -2,
        syntax: "[count]",
        summary: "Returns the latest slow commands, 10 or as many as are asked for; -1 means all.",
        run: handler!(get),
        ..BASE
    },
    help!("slowlog", Group::Server, "6.2.0"),
    Row { name: "len", summary: "Counts the slow commands that are kept.", run: handler!(len), ..BASE },
    Row { name: "reset", summary: "Forgets them.", run: handler!(reset), ..BASE },
];

/// What GET shows unless it is told how many.
const SHOWN: usize = 10;
/// Entries that are looked at together.
const PAGE: usize = 64;
/// Steps of work ([`Pace`]) that an entry costs.
const ENTRY: usize = 1 << 7;

async fn get(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let count = match args.rest() {
        [] => SHOWN,
        [count] => match parse_i64(count).filter(|n| *n >= -1) {
            Some(n) => usize::try_from(n).unwrap_or(usize::MAX),
            None => return Err(ReplyError::new("ERR count should be greater than or equal to -1").into()),
        },
        _ => return Err(args.no_such_form().into()),
    };
    let (mut entries, mut pace, mut end) = (Vec::new(), Pace::default(), u64::MAX);
    while entries.len() < count {
        let page = cx.server.telemetry.slow.before(end, PAGE.min(count - entries.len()));
        let Some(last) = page.last() else { break };
        end = last.id;
        for command in page {
            entries.push(entry(&command));
            pace.spend(ENTRY).await;
        }
    }
    Ok(Reply::Array(entries))
}

fn entry(command: &SlowCommand) -> Reply {
    let number = |n: u64| Reply::Int(i64::try_from(n).unwrap_or(i64::MAX));
    Reply::Array(vec![
        number(command.id),
        number(command.at),
        number(command.took),
        Reply::bulks(command.argv.iter().cloned()),
        Reply::text(command.addr.clone()),
        Reply::Bulk(command.name.clone()),
    ])
}

async fn len(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.server.telemetry.slow.len() as i64))
}

async fn reset(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    cx.server.telemetry.slow.reset();
    Ok(Reply::Ok)
}
