//! SLOWLOG: slow commands, see `telemetry::slowlog`.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::server::pace::Pace;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Flags, Group, Row};
use crate::telemetry::slowlog::SlowCommand;
use crate::{handler, help};

/// The container.
pub(crate) const COMMANDS: &[Command] = &[SLOWLOG];

const SUBS: &[Command] = &[SLOWLOG_GET, help!("slowlog", Group::Server, "6.2.0"), SLOWLOG_LEN, SLOWLOG_RESET];

const SLOWLOG: Command = Command::container(
    Row::new(Group::Server, "slowlog", -2, "2.2.12").summary("Manages the slow log."),
    SUBS,
);

/// The default number of entries that GET shows.
const SHOWN: usize = 10;
/// Entries that are visited together.
const PAGE: usize = 64;
/// Steps of work ([`Pace`]) per entry.
const ENTRY: usize = 1 << 7;

const SLOWLOG_GET: Command = Command::new(
    Row::new(Group::Server, "get", -2, "2.2.12")
        .flags(Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE))
        .syntax("[count]")
        .summary("Returns the latest entries of the slow log: 10 by default, all with -1.")
        .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
    handler!(get),
);

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

const SLOWLOG_LEN: Command = Command::new(
    Row::new(Group::Server, "len", 2, "2.2.12")
        .flags(Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE))
        .summary("Returns the number of entries in the slow log.")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    handler!(len),
);

async fn len(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.server.telemetry.slow.len() as i64))
}

const SLOWLOG_RESET: Command = Command::new(
    Row::new(Group::Server, "reset", 2, "2.2.12")
        .flags(Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE))
        .summary("Clears the slow log.")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    handler!(reset),
);

async fn reset(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    cx.server.telemetry.slow.reset();
    Ok(Reply::Ok)
}
