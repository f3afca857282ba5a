//! Binds a command's row, which is data ([`crate::spec`]), to the function that runs it.

use crate::commands::args::Args;
use crate::commands::cx::Cx;
use crate::error::Result;
use crate::server::reply::Reply;
use crate::server::subscribers::SubscriptionKind;
use crate::spec::{Form, Row};
use std::future::Future;
use std::pin::Pin;

/// A handler's future: one box per command, none per read.
pub(crate) type CommandFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply>> + Send + 'a>>;
/// A handler.
pub(crate) type Handler = for<'a> fn(&'a mut Cx<'_>, Args<'a>) -> CommandFuture<'a>;

/// Turns an `async fn(&mut Cx<'_>, Args<'_>) -> Result<Reply>` into a [`Run::Handler`].
#[macro_export]
macro_rules! handler {
    ($f:path) => {{
        fn boxed<'a>(
            cx: &'a mut $crate::commands::cx::Cx<'_>,
            args: $crate::commands::args::Args<'a>,
        ) -> $crate::commands::binding::CommandFuture<'a> {
            Box::pin($f(cx, args))
        }
        $crate::commands::binding::Run::Handler(boxed)
    }};
}

/// Commands that the session runs itself, because they affect the commands after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOp {
    /// MULTI.
    Multi,
    /// EXEC.
    Exec,
    /// DISCARD.
    Discard,
    /// WATCH.
    Watch,
    /// UNWATCH.
    Unwatch,
    /// AUTH.
    Auth,
    /// HELLO.
    Hello,
    /// RESET.
    Reset,
    /// QUIT.
    Quit,
    /// CLIENT TRACKING.
    Tracking,
    /// CLIENT CACHING.
    Caching,
    /// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE.
    Subscribe(SubscriptionKind),
    /// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE.
    Unsubscribe(SubscriptionKind),
}

/// How a command names its script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// By its text.
    Text,
    /// By the digest of its text.
    Digest,
    /// It is a function, by its name.
    Function,
}

/// How a command names its script, and what this may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptOp {
    /// What the command has of it.
    pub(crate) named: Named,
    /// It may not write.
    pub(crate) reads_only: bool,
}

/// The code that runs a row.
#[derive(Clone, Copy)]
pub enum Run {
    /// A function on a transaction.
    Handler(Handler),
    /// A script, in the transaction that the command runs in.
    Script(ScriptOp),
    /// The session.
    Session(SessionOp),
    /// Refused by design, with this error.
    Refuse(&'static str),
    /// It does not run itself; its subcommands do, or the command line behind it.
    Nothing,
}

/// A row and what runs it.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// The row.
    pub(crate) row: Row,
    /// The code that runs it.
    pub(crate) run: Run,
    /// Its subcommands.
    pub(crate) subs: &'static [Command],
}

impl Command {
    /// A command without subcommands.
    pub(crate) const fn new(row: Row, run: Run) -> Command {
        Command { row, run, subs: &[] }
    }
    /// A container: only its subcommands run.
    pub(crate) const fn container(row: Row, subs: &'static [Command]) -> Command {
        Command { row: row.form(Form::Container), run: Run::Nothing, subs }
    }
    /// A command that has subcommands and also runs without one.
    pub(crate) const fn with(self, subs: &'static [Command]) -> Command {
        Command { subs, ..self }
    }
}
