//! Rows of AUTH, HELLO, RESET and QUIT. The session runs them (`session/login.rs`), because they affect the
//! commands after them.

use crate::commands::binding::{Command, Run, SessionOp};
use crate::spec::{Flags, Group, Row, Secrets};

const FLAGS: Flags = Flags::NOSCRIPT
    .or(Flags::LOADING)
    .or(Flags::STALE)
    .or(Flags::FAST)
    .or(Flags::NO_AUTH)
    .or(Flags::ALLOW_BUSY);

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[AUTH, HELLO, RESET, QUIT];

const AUTH: Command = Command::new(
    Row::new(Group::Connection, "auth", -2, "1.0.0")
        .flags(FLAGS)
        .syntax("[username] password")
        .summary("Authenticates the connection.")
        .secrets(Secrets::From(1)),
    Run::Session(SessionOp::Auth),
);

const HELLO: Command = Command::new(
    Row::new(Group::Connection, "hello", -1, "6.0.0")
        .flags(FLAGS)
        .syntax("[arguments: protover [AUTH username password] [SETNAME clientname]]")
        .summary("Handshakes with the server and selects the protocol.")
        .secrets(Secrets::Login),
    Run::Session(SessionOp::Hello),
);

const RESET: Command = Command::new(
    Row::new(Group::Connection, "reset", 1, "6.2.0")
        .flags(FLAGS.or(Flags::WHILE_SUBSCRIBED))
        .summary("Resets the connection to its initial state."),
    Run::Session(SessionOp::Reset),
);

const QUIT: Command = Command::new(
    Row::new(Group::Connection, "quit", -1, "1.0.0")
        .flags(FLAGS.or(Flags::WHILE_SUBSCRIBED))
        .summary("Closes the connection.")
        .deprecated("7.2.0", "closing the connection"),
    Run::Session(SessionOp::Quit),
);
