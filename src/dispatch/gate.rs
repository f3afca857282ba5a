//! Every check between a request and the code that runs it: one ordered list, driven by the row. Later code
//! trusts what has passed.
//!
//! The order and the texts are Redis' (`processCommand`): a client hears that a command does not exist, or
//! has the wrong number of arguments, before it is asked for a password. A command under an id (IDEMPOTENT)
//! passes the same gates as without one, and then those of [`under_id`], among them the user's permission to
//! use an id.

use crate::commands::binding::{Run, SessionOp};
use crate::commands::registry::{run_of, table};
use crate::commands::transactions::idempotent::{check_id, may_run};
use crate::error::ReplyError;
use crate::server::acl::{Denied, User};
use crate::spec::elsewhere;
use crate::spec::words::{MAX_QUOTED, quoted_up_to};
use crate::spec::{Entry, Flags, Form, PREFIX};
use bytes::Bytes;

/// The error for a command that is not allowed before AUTH.
const NOAUTH: ReplyError = ReplyError::new("NOAUTH Authentication required.");
/// The error for DEBUG if it is not allowed.
const NO_DEBUG: ReplyError = ReplyError::new(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
     local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);
/// The error for a command that is not allowed inside MULTI.
const NO_MULTI: ReplyError = ReplyError::new("ERR Command not allowed inside a transaction");
/// The error for a command under an id inside MULTI.
const ID_IN_MULTI: ReplyError =
    ReplyError::new("ERR inside a transaction only EXEC can have an id: IDEMPOTENT <id> EXEC");
/// The end of the error for a command that a subscriber may not send.
const ONLY_LISTENS: &str =
    "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";

/// The current state and rights of the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing<'a> {
    /// It has authenticated, or need not.
    pub(crate) authenticated: bool,
    /// It is between MULTI and EXEC.
    pub(crate) in_multi: bool,
    /// Whether `enable-debug-command` allows DEBUG from its address.
    pub(crate) may_debug: bool,
    /// The user whose rights to check; None: everything is allowed.
    pub(crate) rights: Option<&'a User>,
    /// It is subscribed in RESP2, where a reply could not be told from a message.
    pub(crate) only_listens: bool,
}

/// What the gates decided.
pub(crate) enum Decision {
    /// Run this row.
    Pass {
        /// The row.
        row: &'static Entry,
        /// The number of leading arguments that are names.
        names: usize,
        /// Whether an id and its command precede them ([`PREFIX`]).
        under_id: bool,
    },
    /// The user lacks this permission for this row.
    Deny(&'static Entry, Denied),
    /// Redis has this command, but this server does not.
    Missing(&'static str, ReplyError),
    /// Refused; with the row if the command exists.
    Refuse(Option<&'static Entry>, ReplyError),
    /// A browser was tricked into talking to the server: close without a reply.
    Attack,
}

/// A request whose row is known.
struct Request<'a> {
    row: &'static Entry,
    argv: &'a [Bytes],
    standing: Standing<'a>,
}

type Gate = fn(&Request<'_>) -> Result<(), ReplyError>;

/// In this order. To add a check, write a function and list it here.
const GATES: &[Gate] = &[arity, protected, authenticated, outside_multi, while_subscribed];

/// Finds the row of `argv` (not empty) and runs all gates.
pub(crate) fn check(argv: &[Bytes], standing: Standing<'_>) -> Decision {
    let (row, names) = match table().resolve(argv) {
        None => return unknown(argv, standing),
        Some(Err(container)) => return Decision::Refuse(Some(container), subcommand(container, argv)),
        Some(Ok(found)) => found,
    };
    if row.form == Form::Prefix {
        return under_id(row, argv, standing);
    }
    let request = Request { row, argv, standing };
    if let Some(e) = GATES.iter().find_map(|gate| gate(&request).err()) {
        return Decision::Refuse(Some(row), e);
    }
    match standing.rights.map_or(Ok(()), |user| user.check(row, argv, names)) {
        Ok(()) => Decision::Pass { row, names, under_id: false },
        Err(denied) => Decision::Deny(row, denied),
    }
}

/// Checks a command behind an id. Refuses commands for which a retry could not be answered.
fn under_id(prefix: &'static Entry, argv: &[Bytes], standing: Standing<'_>) -> Decision {
    let (id, inner) = match argv.split_at_checked(PREFIX) {
        Some(([_, id], inner)) if !inner.is_empty() => (id, inner),
        _ => return Decision::Refuse(Some(prefix), wrong_arity(prefix.name)),
    };
    if let Err(e) = check_id(id) {
        return Decision::Refuse(Some(prefix), e);
    }
    let decision = check(inner, standing);
    if matches!(decision, Decision::Pass { .. } | Decision::Deny(..))
        && let Some(user) = standing.rights
        && let Err(denied) = user.check(prefix, argv, 1)
    {
        return Decision::Deny(prefix, denied);
    }
    match decision {
        Decision::Pass { row, under_id: true, .. } => Decision::Refuse(Some(row), not_under_id(prefix.name)),
        Decision::Pass { row, .. } if !may_run(row, run_of(row)) => {
            Decision::Refuse(Some(row), not_under_id(&row.label))
        }
        Decision::Pass { row, .. }
            if standing.in_multi && !matches!(run_of(row), Run::Session(SessionOp::Exec)) =>
        {
            Decision::Refuse(Some(row), ID_IN_MULTI)
        }
        Decision::Pass { row, names, .. } => Decision::Pass { row, names, under_id: true },
        other => other,
    }
}

/// The error for a command that cannot run under an id.
pub(crate) fn not_under_id(label: &str) -> ReplyError {
    ReplyError::of(format!(
        "ERR '{label}' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can"
    ))
}

fn arity(r: &Request<'_>) -> Result<(), ReplyError> {
    if r.row.accepts(r.argv.len()) {
        return Ok(());
    }
    Err(wrong_arity(&r.row.label))
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
    if !r.standing.only_listens || r.row.flags.has(Flags::WHILE_SUBSCRIBED) {
        return Ok(());
    }
    Err(cannot_execute(&r.row.label))
}

fn cannot_execute(label: &str) -> ReplyError {
    ReplyError::of(format!("ERR Can't execute '{label}': {ONLY_LISTENS}"))
}

fn wrong_arity(label: &str) -> ReplyError {
    ReplyError::of(format!("ERR wrong number of arguments for '{label}' command"))
}

/// The error for a container without a subcommand, or with an unknown one.
fn subcommand(container: &Entry, argv: &[Bytes]) -> ReplyError {
    let Some(sub) = argv.get(1) else { return wrong_arity(container.name) };
    let name = container.name.to_ascii_uppercase();
    ReplyError::of(format!("ERR unknown subcommand '{}'. Try {name} HELP.", quoted_up_to(sub, MAX_QUOTED)))
}

fn unknown(argv: &[Bytes], standing: Standing<'_>) -> Decision {
    let (name, args) = argv.split_first().map(|(n, a)| (n.as_ref(), a)).unwrap_or_default();
    if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
        return Decision::Attack;
    }
    if let Some(name) = elsewhere::find(name).filter(|name| !name.contains('|')) {
        return match standing {
            // As for a command that exists.
            Standing { authenticated: false, .. } => Decision::Refuse(None, NOAUTH),
            Standing { only_listens: true, .. } => Decision::Refuse(None, cannot_execute(name)),
            _ => Decision::Missing(name, missing(name)),
        };
    }
    let mut list = String::new();
    for arg in args {
        if list.len() >= MAX_QUOTED {
            break;
        }
        list += &format!("'{}' ", quoted_up_to(arg, MAX_QUOTED - list.len()));
    }
    let name = quoted_up_to(name, MAX_QUOTED);
    Decision::Refuse(
        None,
        ReplyError::of(format!("ERR unknown command '{name}', with args beginning with: {list}")),
    )
}

/// Begins like Redis' error for an unknown command, because clients look for that text.
fn missing(name: &str) -> ReplyError {
    let name = name.to_ascii_uppercase();
    ReplyError::of(format!("ERR unknown command '{name}': Redis has it, this server does not have it yet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Standing<'_> =
        Standing { authenticated: true, in_multi: false, may_debug: true, rights: None, only_listens: false };

    /// The name of the row that passes, with `+` if it is under an id, or the first words of the error.
    fn said(line: &str, standing: Standing<'_>) -> String {
        let argv: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        match check(&argv, standing) {
            Decision::Pass { row, under_id, .. } => {
                format!("{}{}", row.label, if under_id { "+" } else { "" })
            }
            Decision::Deny(row, _) => format!("denied {}", row.name),
            Decision::Refuse(row, e) => {
                let words: Vec<&str> = e.0.split(' ').take(4).collect();
                format!("{}: {}", row.map_or("none", |row| row.name), words.join(" "))
            }
            Decision::Missing(name, e) => format!("missing {name}: {}", e.0),
            Decision::Attack => "attack".to_owned(),
        }
    }

    #[test]
    fn gates_are_asked_in_the_order_of_redis() {
        let worst = Standing {
            authenticated: false,
            in_multi: true,
            may_debug: false,
            rights: None,
            only_listens: true,
        };
        let asked = |standing| ["GET", "DEBUG jmap", "GET k", "WATCH k"].map(|line| said(line, standing));
        let (arity, debug) = ("get: ERR wrong number of", "debug: ERR DEBUG command not");
        assert_eq!(
            asked(worst),
            [arity, debug, "get: NOAUTH Authentication required.", "watch: NOAUTH Authentication required."]
        );
        let known = Standing { authenticated: true, ..worst };
        assert_eq!(
            asked(known),
            [arity, debug, "get: ERR Can't execute 'get':", "watch: ERR Can't execute 'watch':"]
        );
        let unsubscribed = Standing { only_listens: false, ..known };
        assert_eq!(asked(unsubscribed), [arity, debug, "get", "watch"]);
        assert_eq!(asked(OPEN), [arity, "debug", "get", "watch"]);
    }

    #[test]
    fn what_needs_no_login_and_what_a_subscriber_may_do() {
        let stranger = Standing { authenticated: false, ..OPEN };
        for line in ["AUTH p", "HELLO 3", "QUIT", "RESET"] {
            assert_eq!(said(line, stranger), line.split(' ').next().unwrap().to_lowercase());
        }
        let listens = Standing { only_listens: true, ..OPEN };
        for line in ["PING", "SUBSCRIBE c", "PUNSUBSCRIBE", "SSUBSCRIBE c", "QUIT", "RESET"] {
            assert_eq!(said(line, listens), line.split(' ').next().unwrap().to_lowercase());
        }
        for line in ["ECHO x", "AUTH p", "CLIENT ID", "MULTI", "PUBLISH c m"] {
            assert!(said(line, listens).contains("ERR Can't execute"), "{line}");
        }
    }

    #[test]
    fn an_unknown_command_is_reported_before_a_missing_login() {
        let stranger = Standing { authenticated: false, ..OPEN };
        assert_eq!(said("NOSUCH a", stranger), "none: ERR unknown command 'NOSUCH',");
        assert_eq!(
            ["vadd k f v", "VSIM", "xgroup|create"].map(|line| said(line, OPEN)),
            [
                "missing vadd: ERR unknown command 'VADD': Redis has it, this server does not have it yet",
                "missing vsim: ERR unknown command 'VSIM': Redis has it, this server does not have it yet",
                "none: ERR unknown command 'xgroup|create',"
            ]
        );
        assert_eq!(said("vadd k f v", stranger), "none: NOAUTH Authentication required.");
        let listens = Standing { only_listens: true, ..OPEN };
        assert_eq!(said("vadd k f v", listens), "none: ERR Can't execute 'vadd':");
        assert_eq!(said("CLIENT NOSUCH", stranger), "client: ERR unknown subcommand 'NOSUCH'.");
        assert_eq!(said("CLIENT", stranger), "client: ERR wrong number of");
        assert_eq!(["POST / HTTP", "Host: here"].map(|line| said(line, stranger)), ["attack"; 2]);
    }

    #[test]
    fn what_may_stand_behind_an_id() {
        assert_eq!(
            ["IDEMPOTENT id-0123456789abcdef INCR n", "IDEMPOTENT id-0123456789abcdef CLIENT ID"]
                .map(|l| said(l, OPEN)),
            ["incr+", "id: ERR 'client|id' cannot run"]
        );
        for line in ["IDEMPOTENT", "IDEMPOTENT id-0123456789abcdef"] {
            assert_eq!(said(line, OPEN), "idempotent: ERR wrong number of");
        }
        assert_eq!(
            said("IDEMPOTENT id-0123456789abcdef IDEMPOTENT id-0123456789abcdeg INCR n", OPEN),
            "incr: ERR 'idempotent' cannot run"
        );
        assert_eq!(said("IDEMPOTENT id-0123456789abcdef INCR", OPEN), "incr: ERR wrong number of");
        assert_eq!(
            said("IDEMPOTENT id-0123456789abcdef INCR n", Standing { authenticated: false, ..OPEN }),
            "incr: NOAUTH Authentication required."
        );
        let inside = Standing { in_multi: true, ..OPEN };
        assert_eq!(said("IDEMPOTENT id-0123456789abcdef INCR n", inside), "incr: ERR inside a transaction");
        assert_eq!(said("IDEMPOTENT id-0123456789abcdef EXEC", inside), "exec+");
    }

    #[test]
    fn rights_are_asked_last_and_of_the_prefix_too() {
        let mut user = User::new(table(), false);
        let limited = |user: &User, line: &str, authenticated| {
            said(line, Standing { authenticated, rights: Some(user), ..OPEN })
        };
        assert_eq!(limited(&user, "GET k", false), "get: NOAUTH Authentication required.");
        assert_eq!(limited(&user, "GET", true), "get: ERR wrong number of");
        assert_eq!(limited(&user, "GET k", true), "denied get");
        for rule in [&b"+get"[..], b"~k"] {
            user.apply(rule, false).unwrap();
        }
        assert_eq!(
            ["GET k", "GET other", "SET k v"].map(|l| limited(&user, l, true)),
            ["get", "denied get", "denied set"]
        );
        assert_eq!(limited(&user, "IDEMPOTENT id-0123456789abcdef GET k", true), "denied idempotent");
        user.apply(b"+idempotent", false).unwrap();
        assert_eq!(limited(&user, "IDEMPOTENT id-0123456789abcdef GET k", true), "get+");
        assert_eq!(limited(&user, "IDEMPOTENT id-0123456789abcdef SET k v", true), "denied set");
    }
}
