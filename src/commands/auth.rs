//! Rows of AUTH, HELLO, RESET and QUIT. The session runs them (`session/login.rs`): they decide about what follows them.

use super::table::{Flags, Group, Row, Run, SessionOp};

const FLAGS: Flags = Flags::NOSCRIPT
    .or(Flags::LOADING)
    .or(Flags::STALE)
    .or(Flags::FAST)
    .or(Flags::NO_AUTH)
    .or(Flags::ALLOW_BUSY);

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("auth", -2, "1.0.0", "[username] password", "Authenticates the connection.", SessionOp::Auth),
    row(
        "hello",
        -1,
        "6.0.0",
        "[arguments: protover [AUTH username password] [SETNAME clientname]]",
        "Greets the server and chooses the protocol.",
        SessionOp::Hello,
    ),
    row("reset", 1, "6.2.0", "", "Makes the connection as new.", SessionOp::Reset),
    row("quit", -1, "1.0.0", "", "Closes the connection.", SessionOp::Quit),
];

const fn row(
    name: &'static str,
    arity: i32,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
    op: SessionOp,
) -> Row {
    Row {
        name,
        arity,
        flags: FLAGS,
        keys: &[],
        group: Group::Connection,
        since,
        syntax,
        summary,
        run: Run::Session(op),
        subs: &[],
    }
}
