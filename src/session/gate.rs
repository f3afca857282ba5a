//! Every check between a request and what runs it: one ordered list, driven by the row. What passes is trusted later.
//!
//! The order and the texts are Redis' (`processCommand`): a command that does not exist or has the wrong number of
//! arguments is told so before it is asked for a password.

use crate::commands::table::{self, Flags, Row};
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
/// Most bytes of names and arguments that an error repeats.
const MAX_QUOTED: usize = 128;

/// What the client may do now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Has authenticated, or need not.
    pub authenticated: bool,
    /// Between MULTI and EXEC.
    pub in_multi: bool,
    /// What `enable-debug-command` says to its address.
    pub may_debug: bool,
}

/// What the gates say.
pub(super) enum Verdict {
    /// Run this row; so many leading arguments are names.
    Pass(&'static Row, usize),
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
    standing: Standing,
}

type Gate = fn(&Request<'_>) -> Result<(), ReplyError>;

/// In this order. A further check is a function and an entry.
const GATES: &[Gate] = &[arity, protected, authenticated, outside_multi];

/// Finds the row of `argv` (not empty) and asks all gates.
pub(super) fn check(argv: &[Bytes], standing: Standing) -> Verdict {
    let (row, names) = match table::resolve(argv) {
        None => return unknown(argv),
        Some(Err(container)) => return Verdict::Refuse(Some(container), subcommand(container, argv)),
        Some(Ok(found)) => found,
    };
    let request = Request { row, argv, names, standing };
    match GATES.iter().find_map(|gate| gate(&request).err()) {
        None => Verdict::Pass(row, names),
        Some(e) => Verdict::Refuse(Some(row), e),
    }
}

fn arity(r: &Request<'_>) -> Result<(), ReplyError> {
    if r.row.accepts(r.argv.len()) {
        return Ok(());
    }
    let container = r.argv.first().filter(|_| r.names == 2).and_then(|name| table::lookup(name));
    let container = container.map(|c| format!("{}|", c.name)).unwrap_or_default();
    Err(wrong_arity(&format!("{container}{}", r.row.name)))
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

fn wrong_arity(label: &str) -> ReplyError {
    ReplyError::of(format!("ERR wrong number of arguments for '{label}' command"))
}

/// A container without a subcommand, or with one that it does not have.
fn subcommand(container: &Row, argv: &[Bytes]) -> ReplyError {
    let Some(sub) = argv.get(1) else { return wrong_arity(container.name) };
    let name = container.name.to_ascii_uppercase();
    ReplyError::of(format!("ERR unknown subcommand '{}'. Try {name} HELP.", quoted(sub, MAX_QUOTED)))
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
        list += &format!("'{}' ", quoted(arg, MAX_QUOTED - list.len()));
    }
    let name = quoted(name, MAX_QUOTED);
    Verdict::Refuse(
        None,
        ReplyError::of(format!("ERR unknown command '{name}', with args beginning with: {list}")),
    )
}

/// At most `max` bytes, up to the first NUL.
pub(super) fn quoted(raw: &[u8], max: usize) -> String {
    let raw = raw.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(raw.get(..max).unwrap_or(raw)).into_owned()
}
