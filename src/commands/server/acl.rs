//! ACL's subcommands. None shares its window with others: the commands after it are checked under the rules
//! that it set.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::file::replace;
use crate::env::aside;
use crate::error::{ReplyError, Result};
use crate::server::AfterReply;
use crate::server::acl::Acl;
use crate::server::acl::log::Refusal;
use crate::server::acl::selector::{Denied, RuleError, Selector, word};
use crate::server::acl::user::{DEFAULT, User};
use crate::server::clients::ClientHandle;
use crate::server::pace::{Pace, beside};
use crate::server::reply::Reply;
use crate::server::subscribers::SubscriptionKind;
use crate::spec::words::{MAX_QUOTED, quoted, quoted_up_to};
use crate::spec::{CATEGORIES, Effect, Entry, Flags, Form, Group, PREFIX, Row, Secrets, categories};
use crate::{handler, help};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

const OPEN: Flags = Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::HEAVY);
const ADMIN: Flags = OPEN.or(Flags::ADMIN);
/// The container.
pub(crate) const COMMANDS: &[Command] = &[ACL];

const SUBS: &[Command] = &[
    ACL_CAT,
    ACL_DELUSER,
    ACL_DRYRUN,
    ACL_GENPASS,
    ACL_GETUSER,
    help!("acl", Group::Server, "6.0.0"),
    ACL_LIST,
    ACL_LOAD,
    ACL_LOG,
    ACL_SAVE,
    ACL_SETUSER,
    ACL_USERS,
    ACL_WHOAMI,
];

const ACL: Command = Command::container(
    Row::new(Group::Server, "acl", -2, "6.0.0").summary("Manages users and their permissions."),
    SUBS,
);

const NO_FILE: ReplyError = ReplyError::new(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
);
const NOT_SAVED: ReplyError = ReplyError::new(
    "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
);
const BAD_BITS: ReplyError = ReplyError::new(
    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
);
/// The default number of entries that LOG shows.
const SHOWN: i64 = 10;
/// Steps of work ([`Pace`]) per entry of the log.
const ENTRY: usize = 1 << 6;

const ACL_WHOAMI: Command = Command::new(
    Row::new(Group::Server, "whoami", 2, "6.0.0")
        .flags(OPEN)
        .summary("Returns the name of the user this connection is authenticated as."),
    handler!(whoami),
);

async fn whoami(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Bulk(cx.client.user.clone()))
}

const ACL_USERS: Command = Command::new(
    Row::new(Group::Server, "users", 2, "6.0.0").flags(ADMIN).summary("Lists the names of all users."),
    handler!(users),
);

async fn users(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::bulks(cx.server.acl.all().into_iter().map(|(name, _)| name)))
}

const ACL_LIST: Command = Command::new(
    Row::new(Group::Server, "list", 2, "6.0.0")
        .flags(ADMIN)
        .summary("Returns all users as lines of a configuration file."),
    handler!(list),
);

async fn list(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::bulks(cx.server.acl.lines().into_iter().map(Bytes::from)))
}

const ACL_CAT: Command = Command::new(
    Row::new(Group::Server, "cat", -2, "6.0.0")
        .flags(OPEN)
        .syntax("[category]")
        .summary("Lists the categories, or the commands of one."),
    handler!(cat),
);

async fn cat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let wanted = match args.rest() {
        [] => return Ok(Reply::Array(CATEGORIES.iter().map(|c| Reply::bulk_static(c)).collect())),
        [one] => one,
        _ => return Err(args.no_such_form().into()),
    };
    let Some(category) = CATEGORIES.iter().find(|c| wanted.eq_ignore_ascii_case(c.as_bytes())) else {
        let wanted = quoted_up_to(wanted, MAX_QUOTED);
        return Err(ReplyError::of(format!("ERR Unknown category '{wanted}'")).into());
    };
    let rows = cx.server.table.all().filter(|row| categories(row).contains(category));
    Ok(Reply::Array(rows.map(|row| Reply::text(row.label.clone())).collect()))
}

const ACL_SETUSER: Command = Command::new(
    Row::new(Group::Server, "setuser", -3, "6.0.0")
        .flags(ADMIN)
        .syntax("username [rule [rule ...]]")
        .summary("Creates or changes a user.")
        .secrets(Secrets::From(2)),
    handler!(setuser),
);

async fn setuser(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let name = args.next()?;
    word(name).map_err(|e| match e {
        RuleError::TooLong => ReplyError::of(format!("ERR {}", e.text())),
        _ => ReplyError::new("ERR Usernames can't contain spaces or null characters"),
    })?;
    let all_channels = cx.server.config.get().acl_pubsub_default;
    let set = aside(|| cx.server.acl.set_user(name, args.rest(), all_channels));
    set.map_err(|e| ReplyError::of(format!("ERR {}", e.text())))?;
    close_subscribers(cx);
    Ok(Reply::Ok)
}

const ACL_DELUSER: Command = Command::new(
    Row::new(Group::Server, "deluser", -3, "6.0.0")
        .flags(ADMIN)
        .syntax("username [username ...]")
        .summary("Deletes users and closes their connections.")
        .effect(Effect::Closes),
    handler!(deluser),
);

async fn deluser(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    if args.rest().contains(&DEFAULT) {
        return Err(ReplyError::new("ERR The 'default' user cannot be removed").into());
    }
    if !others(cx, args.rest()).is_empty() {
        cx.may_wait()?;
    }
    let removed = cx.server.acl.remove(args.rest());
    close_connections(cx, &removed).await;
    Ok(Reply::Int(removed.len() as i64))
}

/// The connections of these users, without the client's own.
fn others(cx: &Cx<'_>, users: &[Bytes]) -> Vec<Arc<ClientHandle>> {
    let mut clients = cx.server.clients.all();
    clients.retain(|client| client.id != cx.client.id && users.contains(&client.identity().user));
    clients
}

/// Closes the connections of users that no longer exist; the client's own after its reply.
async fn close_connections(cx: &mut Cx<'_>, users: &[Bytes]) {
    cx.close(others(cx, users)).await;
    if users.contains(&cx.client.user) {
        cx.client.after_reply = AfterReply::Close;
    }
}

/// Closes the connections with subscriptions that their user may no longer have.
fn close_subscribers(cx: &Cx<'_>) {
    let acl = &cx.server.acl;
    cx.server.subscribers.part_from(|client, kind, name| {
        let user = acl.get(&client.identity().user);
        user.is_some_and(|user| !user.allows_channel(name, kind == SubscriptionKind::Pattern))
    });
}

const ACL_GETUSER: Command = Command::new(
    Row::new(Group::Server, "getuser", 3, "6.0.0")
        .flags(ADMIN)
        .syntax("username")
        .summary("Describes a user."),
    handler!(getuser),
);

async fn getuser(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let Some(user) = cx.server.acl.get(args.next()?) else { return Ok(Reply::Nil) };
    let Some((own, others)) = user.selectors().split_first() else { return Ok(Reply::Nil) };
    let flags = user.flags().into_iter().map(Reply::bulk_static);
    let passwords = user.passwords.iter().map(|p| Reply::text(p.clone()));
    let mut facts = vec![
        (Reply::bulk_static("flags"), Reply::Set(flags.collect())),
        (Reply::bulk_static("passwords"), Reply::Array(passwords.collect())),
    ];
    facts.extend(describe(own));
    let others = others.iter().map(|s| Reply::Map(describe(s).into()));
    facts.push((Reply::bulk_static("selectors"), Reply::Array(others.collect())));
    Ok(Reply::Map(facts))
}

fn describe(selector: &Selector) -> [(Reply, Reply); 3] {
    [
        (Reply::bulk_static("commands"), Reply::Bulk(selector.show_commands().into())),
        (Reply::bulk_static("keys"), Reply::Bulk(selector.show_keys().into())),
        (Reply::bulk_static("channels"), Reply::Bulk(selector.show_channels().into())),
    ]
}

const ACL_GENPASS: Command = Command::new(
    Row::new(Group::Server, "genpass", -2, "6.0.0")
        .flags(OPEN)
        .syntax("[bits]")
        .summary("Returns a random password."),
    handler!(genpass),
);

async fn genpass(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let bits = match args.len() {
        0 => 256,
        1 => args.int()?,
        _ => return Err(args.no_such_form().into()),
    };
    let bits = usize::try_from(bits).ok().filter(|bits| (1..=4096).contains(bits)).ok_or(BAD_BITS)?;
    let digits = bits.div_ceil(4);
    let secret = cx
        .server
        .env
        .secret(digits.div_ceil(2))
        .ok_or(ReplyError::new("ERR the system's random number generator does not answer"))?;
    let text: String = secret.iter().map(|b| format!("{b:02x}")).collect();
    Ok(Reply::text(text.get(..digits).unwrap_or(&text)))
}

const ACL_LOAD: Command = Command::new(
    Row::new(Group::Server, "load", 2, "6.0.0")
        .flags(ADMIN)
        .summary("Reloads the users from aclfile.")
        .effect(Effect::Closes),
    handler!(load),
);

async fn load(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let settings = cx.server.config.get().clone();
    if settings.aclfile.is_empty() {
        return Err(NO_FILE.into());
    }
    cx.may_wait()?;
    let table = cx.server.table;
    let read = beside(move || Acl::read_file(table, &settings)).await?;
    let gone = cx.server.acl.replace(read.map_err(|why| ReplyError::of(format!("ERR {why}")))?);
    close_connections(cx, &gone).await;
    close_subscribers(cx);
    Ok(Reply::Ok)
}

const ACL_SAVE: Command = Command::new(
    Row::new(Group::Server, "save", 2, "6.0.0").flags(ADMIN).summary("Saves the users to aclfile."),
    handler!(save),
);

async fn save(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let file = cx.server.config.get().aclfile.clone();
    if file.is_empty() {
        return Err(NO_FILE.into());
    }
    let alone = cx.server.saving.clone().lock_owned().await;
    let lines = cx.server.acl.lines();
    let saved = beside(move || {
        let _alone = alone;
        let text: Vec<u8> = lines.into_iter().flat_map(|line| [line, vec![b'\n']]).flatten().collect();
        replace(Path::new(&file), &text).inspect_err(|error| tracing::warn!(%error, file, "ACL SAVE"))
    });
    saved.await?.map_err(|_| NOT_SAVED)?;
    Ok(Reply::Ok)
}

const ACL_LOG: Command = Command::new(
    Row::new(Group::Server, "log", -2, "6.0.0")
        .flags(ADMIN)
        .syntax("[operation: count | RESET]")
        .summary("Returns recent refusals, or clears them."),
    handler!(log),
);

async fn log(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let count = match args.rest() {
        [] => SHOWN,
        [word] if word.eq_ignore_ascii_case(b"reset") => {
            cx.server.acl.log.reset();
            return Ok(Reply::Ok);
        }
        [_] => args.int()?.max(0),
        _ => return Err(args.no_such_form().into()),
    };
    let latest = cx.server.acl.log.latest(usize::try_from(count).unwrap_or(usize::MAX));
    let (mut shown, mut pace) = (Vec::with_capacity(latest.len()), Pace::default());
    for refusal in latest {
        shown.push(show(&refusal, cx.now));
        pace.spend(ENTRY).await;
    }
    Ok(Reply::Array(shown))
}

fn show(r: &Refusal, now: u64) -> Reply {
    let number = |n: u64| Reply::Int(i64::try_from(n).unwrap_or(i64::MAX));
    let facts = [
        ("count", Reply::Int(r.count)),
        ("reason", Reply::bulk_static(r.reason.text())),
        ("context", Reply::bulk_static(r.context.text())),
        ("object", Reply::Bulk(r.object.clone())),
        ("username", Reply::Bulk(r.user.clone())),
        ("age-seconds", Reply::Double(now.saturating_sub(r.updated) as f64 / 1000.0)),
        ("client-info", Reply::Bulk(r.client.clone())),
        ("entry-id", number(r.id)),
        ("timestamp-created", number(r.created)),
        ("timestamp-last-updated", number(r.updated)),
    ];
    Reply::Map(facts.into_iter().map(|(name, fact)| (Reply::bulk_static(name), fact)).collect())
}

const ACL_DRYRUN: Command = Command::new(
    Row::new(Group::Server, "dryrun", -4, "7.0.0")
        .flags(ADMIN)
        .syntax("username command [arg [arg ...]]")
        .summary("Tests whether a user may run a command, without running it.")
        .secrets(Secrets::Line(3)),
    handler!(dryrun),
);

async fn dryrun(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let name = args.next()?;
    let Some(user) = cx.server.acl.get(name) else {
        let name = quoted(name);
        return Err(ReplyError::of(format!("ERR User '{name}' not found")).into());
    };
    let (prefix, argv) = match cx.server.table.resolve(args.rest()) {
        Some(Ok((row, 1))) if row.form == Form::Prefix => {
            (Some(row), args.rest().get(PREFIX..).unwrap_or_default())
        }
        _ => (None, args.rest()),
    };
    let found = match (cx.server.table.resolve(argv), argv) {
        // A container without a subcommand has too few arguments.
        (Some(Err(container)), [_]) => Some((container, 1)),
        (found, _) => found.and_then(|found| found.ok()),
    };
    let Some((row, names)) = found else {
        let name = argv.first().map(|n| quoted(n)).unwrap_or_default();
        return Err(ReplyError::of(format!("ERR Command '{name}' not found")).into());
    };
    if !row.accepts(argv.len()) {
        return Err(
            ReplyError::of(format!("ERR wrong number of arguments for '{}' command", row.label)).into()
        );
    }
    if let Some(prefix) = prefix
        && user.check(prefix, args.rest(), 1).is_err()
    {
        return Ok(dry_run(&user, prefix, args.rest(), 1));
    }
    Ok(dry_run(&user, row, argv, names))
}

fn dry_run(user: &User, row: &Entry, argv: &[Bytes], names: usize) -> Reply {
    let may_not = |what: &str, name: &[u8], kind: &str| {
        let name = quoted(name);
        Reply::text(format!("This user has no permissions to {what} the '{name}' {kind}"))
    };
    match aside(|| user.check(row, argv, names)) {
        Ok(()) => Reply::Ok,
        Err(Denied::Command) => may_not("run", row.label.as_bytes(), "command"),
        Err(Denied::Key(key)) => may_not("access", &key, "key"),
        Err(Denied::Channel(channel)) => may_not("access", &channel, "channel"),
    }
}
