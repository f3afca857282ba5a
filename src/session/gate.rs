//! Every check between a request and what runs it: one ordered list, driven by the row. What passes is trusted later.
//!
//! The order and the texts are Redis' (`processCommand`): a command that does not exist or has the wrong number of
//! arguments is told so before it is asked for a password. A command under an id (IDEMPOTENT) passes the same gates as
//! without, and then those of [`under_id`]: among them the user's permission to use one.

use crate::commands::acl::{Denied, User};
use crate::commands::args::{MAX_QUOTED, quoted_up_to};
use crate::commands::idempotent::{check_id, may_run};
use crate::commands::table::{self, Flags, PREFIX, Row, Run, SessionOp};
use crate::error::ReplyError;
use bytes::Bytes;

/// A command that is not allowed before AUTH.
const NOAUTH: ReplyError = ReplyError::new("NOAUTH Authentication required.");
/// DEBUG where it is not allowed.
const NO_DEBUG: ReplyError = ReplyError::new(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
     local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);
/// A command that is not allowed inside MULTI.
const NO_MULTI: ReplyError = ReplyError::new("ERR Command not allowed inside a transaction");
/// A command under an id inside MULTI.
const ID_IN_MULTI: ReplyError =
    ReplyError::new("ERR inside a transaction only EXEC has an id: IDEMPOTENT <id> EXEC");
/// Why a subscriber's command is refused.
const ONLY_LISTENS: &str =
    "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";

/// What the client may do now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    /// Has authenticated, or need not.
    pub authenticated: bool,
    /// Between MULTI and EXEC.
    pub in_multi: bool,
    /// What `enable-debug-command` says to its address.
    pub may_debug: bool,
    /// Whose rights are to be looked at; None: all is allowed.
    pub rights: Option<&'a User>,
    /// It is subscribed, and in RESP2 nothing could tell a reply from a message.
    pub only_listens: bool,
}

/// What the gates say.
pub(super) enum Verdict {
    /// Run this row.
    Pass {
        /// The row.
        row: &'static Row,
        /// So many leading arguments are names.
        names: usize,
        /// An id and its command stand in front of them ([`PREFIX`]).
        under_id: bool,
    },
    /// The user may not do this with this row.
    Deny(&'static Row, Denied),
    /// Refused, where the command exists with its row.
    Refuse(Option<&'static Row>, ReplyError),
    /// A browser was made to talk to us: close without a word.
    Attack,
}

/// A request whose row is known.
struct Request<'a> {
    row: &'static Row,
    argv: &'a [Bytes],
    names: usize,
    standing: Standing<'a>,
}

type Gate = fn(&Request<'_>) -> Result<(), ReplyError>;

/// In this order. A further check is a function and an entry.
const GATES: &[Gate] = &[arity, protected, authenticated, outside_multi, while_subscribed];

/// Finds the row of `argv` (not empty) and asks all gates.
pub(super) fn check(argv: &[Bytes], standing: Standing<'_>) -> Verdict {
    let (row, names) = match table::resolve(argv) {
        None => return unknown(argv),
        Some(Err(container)) => return Verdict::Refuse(Some(container), subcommand(container, argv)),
        Some(Ok(found)) => found,
    };
    if matches!(row.run, Run::Prefix) {
        return under_id(row, argv, standing);
    }
    let request = Request { row, argv, names, standing };
    if let Some(e) = GATES.iter().find_map(|gate| gate(&request).err()) {
        return Verdict::Refuse(Some(row), e);
    }
    match standing.rights.map_or(Ok(()), |user| user.check(row, argv, names)) {
        Ok(()) => Verdict::Pass { row, names, under_id: false },
        Err(denied) => Verdict::Deny(row, denied),
    }
}

/// What the gates say of the command behind an id. It is refused where no retry could be answered for it.
fn under_id(prefix: &'static Row, argv: &[Bytes], standing: Standing<'_>) -> Verdict {
    let (id, inner) = match argv.split_at_checked(PREFIX) {
        Some(([_, id], inner)) if !inner.is_empty() => (id, inner),
        _ => return Verdict::Refuse(Some(prefix), wrong_arity(prefix.name)),
    };
    if let Err(e) = check_id(id) {
        return Verdict::Refuse(Some(prefix), e);
    }
    let verdict = check(inner, standing);
    if matches!(verdict, Verdict::Pass { .. } | Verdict::Deny(..))
        && let Some(user) = standing.rights
        && let Err(denied) = user.check(prefix, argv, 1)
    {
        return Verdict::Deny(prefix, denied);
    }
    match verdict {
        Verdict::Pass { row, under_id: true, .. } => Verdict::Refuse(Some(row), not_under_id(prefix.name)),
        Verdict::Pass { row, names, .. } if !may_run(row) => {
            Verdict::Refuse(Some(row), not_under_id(&label(row, names, inner)))
        }
        Verdict::Pass { row, .. }
            if standing.in_multi && !matches!(row.run, Run::Session(SessionOp::Exec)) =>
        {
            Verdict::Refuse(Some(row), ID_IN_MULTI)
        }
        Verdict::Pass { row, names, .. } => Verdict::Pass { row, names, under_id: true },
        other => other,
    }
}

/// The refusal of a command that cannot have an id.
pub(super) fn not_under_id(label: &str) -> ReplyError {
    ReplyError::of(format!("ERR '{label}' cannot run under an id: it changes more than data"))
}

fn arity(r: &Request<'_>) -> Result<(), ReplyError> {
    if r.row.accepts(r.argv.len()) {
        return Ok(());
    }
    Err(wrong_arity(&label(r.row, r.names, r.argv)))
}

fn protected(r: &Request<'_>) -> Result<(), ReplyError> {
    if r.standing.may_debug || !r.row.flags.has(Flags::PROTECTED) { Ok(()) } else { Err(NO_DEBUG) }
}

fn authenticated(r: &Request<'_>) -> Result<(), ReplyError> {
    if r.standing.authenticated || r.row.flags.has(Flags::NO_AUTH) { Ok(()) } else { Err(NOAUTH) }
}

fn outside_multi(r: &Request<'_>) -> Result<(), ReplyError> {
    if r.standing.in_multi && r.row.flags.has(Flags::NO_MULTI) { Err(NO_MULTI) } else { Ok(()) }
}

fn while_subscribed(r: &Request<'_>) -> Result<(), ReplyError> {
    use SessionOp::{Quit, Reset, Subscribe, Unsubscribe};
    let allowed = matches!(r.row.run, Run::Session(Subscribe(_) | Unsubscribe(_) | Quit | Reset));
    if !r.standing.only_listens || allowed || r.row.name == "ping" {
        return Ok(());
    }
    let label = label(r.row, r.names, r.argv);
    Err(ReplyError::of(format!("ERR Can't execute '{label}': {ONLY_LISTENS}")))
}

/// The row's name, of a subcommand with its container's.
pub(super) fn label(row: &Row, names: usize, argv: &[Bytes]) -> String {
    let container = argv.first().filter(|_| names == 2).and_then(|name| table::lookup(name));
    let container = container.map(|c| format!("{}|", c.name)).unwrap_or_default();
    format!("{container}{}", row.name)
}

fn wrong_arity(label: &str) -> ReplyError {
    ReplyError::of(format!("ERR wrong number of arguments for '{label}' command"))
}

/// A container without a subcommand, or with one that it does not have.
fn subcommand(container: &Row, argv: &[Bytes]) -> ReplyError {
    let Some(sub) = argv.get(1) else { return wrong_arity(container.name) };
    let name = container.name.to_ascii_uppercase();
    ReplyError::of(format!("ERR unknown subcommand '{}'. Try {name} HELP.", quoted_up_to(sub, MAX_QUOTED)))
}

fn unknown(argv: &[Bytes]) -> Verdict {
    let (name, args) = argv.split_first().map(|(n, a)| (n.as_ref(), a)).unwrap_or_default();
    if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
        return Verdict::Attack;
    }
    let mut list = String::new();
    for arg in args {
        if list.len() >= MAX_QUOTED {
            break;
        }
        list += &format!("'{}' ", quoted_up_to(arg, MAX_QUOTED - list.len()));
    }
    let name = quoted_up_to(name, MAX_QUOTED);
    Verdict::Refuse(
        None,
        ReplyError::of(format!("ERR unknown command '{name}', with args beginning with: {list}")),
    )
}
