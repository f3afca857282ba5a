//! Scripts: EVAL and its relatives. A script is a call like any other; what it calls runs in the transaction of its unit.
//!
//! * **Exactly once.** The executor runs a script again after a conflict, with nothing of the first run left: an
//!   interpreter keeps nothing of a script, and what its calls have done is gone with the transaction.
//! * **A call returns with its answer.** Lua 5.1 cannot leave a script inside of pcall or a metamethod, so a call waits
//!   where it is. Most calls on the embedded engine need not wait at all and are polled once. The others block their
//!   thread, which tokio replaces meanwhile.
//! * **Errors after writes keep the writes**, as in Redis. An error of the store ends the script, whatever it catches, and
//!   with it the attempt.
//! * **Lanes are free soon.** In a lane a script is stopped beyond [`IN_LANE`] and runs again beside the lanes, on a thread that tokio
//!   replaces. One that only reads begins beside the lanes, with the same bounds. There scripts take turns on half of the cores
//!   ([`crate::lua::Turns`]), and each kind has its own places, so that they hold only each other.

mod calls;
mod convert;

use crate::commands::binding::{Named, ScriptOp};
use crate::dispatch::{Call, Noted, Runner};
use crate::env::aside;
use crate::error::{Error, NOT_INTEGER, ReplyError, Result};
use crate::keyspace::keys::scripts::Digest;
use crate::keyspace::scripts;
use crate::lua::{Interpreter, Library, Limits, Outcome, Source, Task, Turn, Watch, hex, parse_hex, sha1};
use crate::server::reply::Reply;
use crate::server::scripts::{Running, broken, invalid};
use crate::server::{ClientState, Server};
use crate::spec::words::parse_i64;
use crate::store::Read;
use bytes::Bytes;
use calls::Calls;
use convert::{Returned, TooMuch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// What a script may use in a lane: long strings make single instructions long.
const IN_LANE: Limits = Limits { time: Some(Duration::from_millis(5)), memory: Some(1 << 20) };
/// What a script may be given in a lane, in bytes: an instruction may take as long as its longest argument asks for.
const LARGE: usize = 64 << 10;
const NO_SCRIPT: ReplyError = ReplyError::new("NOSCRIPT No matching script. Please use EVAL.");
/// Bytes that a script may return.
const LONGEST: usize = 256 << 20;
const RETURNS_TOO_MUCH: ReplyError = ReplyError::new("ERR the script returned more than 256 MB");
const MAY_WRITE: ReplyError =
    ReplyError::new("ERR Can not execute a script with write flag using *_ro command.");
const BAD_COUNT: ReplyError = ReplyError::new("ERR Bad number of keys provided");
const KILLED: &str = "ERR Script killed by user with SCRIPT KILL.";
const FUNCTION_KILLED: &str = "ERR Script killed by user with FUNCTION KILL.";
const TOO_LONG: &str =
    "ERR the script was ended, and its writes undone: it ran longer than busy-reply-threshold allows.";

/// Runs a script. None: a handler that it called panicked.
pub(crate) async fn run(
    runner: &mut Runner<'_>,
    op: ScriptOp,
    call: &Call,
    client: &ClientState,
) -> Option<Result<Reply>> {
    runner.noted.push(Noted::default());
    match begin(runner, op, call).await {
        Ok((script, parts)) => entered(runner, call, &script, parts, client),
        Err(e) => Some(Err(e)),
    }
}

/// Whether a script or a function says that it only reads, as far as this server knows.
pub(crate) fn only_reads(server: &Server, op: ScriptOp, call: &Call) -> bool {
    let Some(given) = call.argv.get(1) else { return false };
    op.reads_only
        || match op.named {
            Named::Text => Source::parse(given.clone()).is_ok_and(|source| source.flags.no_writes),
            Named::Digest => parse_hex(given).is_some_and(|digest| server.scripts.only_reads(&digest)),
            Named::Function => server.libraries.only_reads(given),
        }
}

/// A script or a function that may run.
struct Script {
    digest: Digest,
    code: Code,
    reads_only: bool,
}

/// What runs.
enum Code {
    /// The script, and the epoch that its transaction sees if this server is to remember it for that.
    Script(Arc<Source>, Option<u64>),
    /// A function of a library, by its name there.
    Function(Arc<Library>, String),
}

impl Script {
    fn source(&self) -> &Source {
        match &self.code {
            Code::Script(source, _) => source,
            Code::Function(library, _) => &library.source,
        }
    }

    /// What messages call it.
    fn name(&self) -> String {
        match &self.code {
            Code::Script(..) => hex(&self.digest),
            Code::Function(_, name) => name.clone(),
        }
    }

    /// How others see that it runs.
    fn running(&self, watch: &Arc<Watch>, call: &Call, server: &Server) -> Running {
        let (watch, since) = (watch.clone(), server.env.clock.monotonic());
        let function = match &self.code {
            Code::Script(..) => None,
            Code::Function(_, name) => Some((name.clone(), call.argv.clone())),
        };
        Running { watch, since, function }
    }

    /// The error when it was ended.
    fn ended(&self, watch: &Watch) -> Error {
        let why = match (watch.is_killed(), &self.code) {
            (true, Code::Script(..)) => KILLED,
            (true, Code::Function(..)) => FUNCTION_KILLED,
            (false, _) => TOO_LONG,
        };
        Error::Undone(ReplyError::of(format!("{why} script: {}", self.name())))
    }
}

/// The names and the other arguments that a script gets.
type Parts<'a> = (&'a [Bytes], &'a [Bytes]);

async fn begin<'a>(runner: &Runner<'_>, op: ScriptOp, call: &'a Call) -> Result<(Script, Parts<'a>)> {
    let [_, text, count, rest @ ..] = call.argv.as_slice() else {
        return Err(ReplyError::new("ERR wrong number of arguments").into());
    };
    // As in Redis, before all else.
    let function = match op.named {
        Named::Function => Some(function(runner, text).await?),
        Named::Digest if text.len() != 2 * size_of::<Digest>() => return Err(NO_SCRIPT.into()),
        Named::Digest | Named::Text => None,
    };
    let not_a_number = if function.is_some() { BAD_COUNT } else { NOT_INTEGER };
    let count = parse_i64(count).ok_or(not_a_number)?;
    let keys = usize::try_from(count).map_err(|_| ReplyError::new("ERR Number of keys can't be negative"))?;
    let more = ReplyError::new("ERR Number of keys can't be greater than number of args");
    let parts = rest.split_at_checked(keys).ok_or(more)?;
    let script = match function {
        Some(function) if op.reads_only && !function.reads_only => return Err(MAY_WRITE.into()),
        Some(function) => function,
        None => script(runner, op, text).await?,
    };
    Ok((script, parts))
}

async fn script(runner: &Runner<'_>, op: ScriptOp, text: &Bytes) -> Result<Script> {
    let by_digest = op.named == Named::Digest;
    let epoch = scripts::epoch(runner.tx, Read::Snapshot).await?;
    let digest = if by_digest { parse_hex(text).ok_or(NO_SCRIPT)? } else { sha1(text) };
    let known = runner.server.scripts.find(&digest, epoch);
    let is_known = known.is_some();
    let source = match known {
        Some(known) => known,
        None if by_digest => loaded(runner, op, &digest, epoch).await?,
        None => Arc::new(Source::parse(text.clone())?),
    };
    if op.reads_only && !source.flags.is_silent && !source.flags.no_writes {
        // Perhaps it would not run at all.
        runner.server.scripts.compile(&runner.server.env.clock, &digest, &source)?;
        runner.server.scripts.learn(digest, &source, epoch);
        return Err(MAY_WRITE.into());
    }
    let reads_only = op.reads_only || source.flags.no_writes;
    Ok(Script { digest, code: Code::Script(source, (!is_known).then_some(epoch)), reads_only })
}

async fn function(runner: &Runner<'_>, name: &[u8]) -> Result<Script> {
    let shelf = runner.server.libraries.of(runner.tx, runner.in_lane).await?;
    let (library, function) = shelf.find(name).ok_or(ReplyError::new("ERR Function not found"))?;
    let code = Code::Function(library.clone(), function.name.clone());
    Ok(Script { digest: library.digest, code, reads_only: function.no_writes() })
}

/// A script that was loaded by this server long ago, or by another one.
async fn loaded(runner: &Runner<'_>, op: ScriptOp, digest: &Digest, epoch: u64) -> Result<Arc<Source>> {
    // Its use may be recorded: not after others have removed it.
    let read = if op.reads_only { Read::Snapshot } else { Read::Serializable };
    let (header, text) = scripts::find(runner.tx, digest, read).await?.ok_or(NO_SCRIPT)?;
    if header.is_old(runner.lives.now) && !op.reads_only {
        scripts::record_use(runner.tx, digest, scripts::Header { used: runner.lives.now, ..header })?;
    }
    let source = Arc::new(Source::parse(text)?);
    runner.server.scripts.learn(*digest, &source, epoch);
    Ok(source)
}

fn entered(
    runner: &mut Runner<'_>,
    call: &Call,
    script: &Script,
    parts: Parts<'_>,
    client: &ClientState,
) -> Option<Result<Reply>> {
    let (server, in_lane) = (runner.server, runner.in_lane);
    if in_lane && call.argv.iter().map(Bytes::len).sum::<usize>() > LARGE {
        return Some(Err(Error::TooHeavy));
    }
    if in_lane && !runner.is_aside {
        return entered_with(runner, call, script, parts, client, None);
    }
    // It may take long: tokio gives this thread's other tasks to another one.
    aside(|| {
        let turn = server.scripts.turns.clone().take(&server.env.clock, in_lane);
        entered_with(runner, call, script, parts, client, Some(turn))
    })
}

fn entered_with(
    runner: &mut Runner<'_>,
    call: &Call,
    script: &Script,
    parts: Parts<'_>,
    client: &ClientState,
    turn: Option<Turn>,
) -> Option<Result<Reply>> {
    let server = runner.server;
    let mut interpreter = match server.scripts.pool.take(&server.env.clock) {
        Ok(interpreter) => interpreter,
        Err(e) => return Some(Err(broken(e).into())),
    };
    let watch = interpreter.watch().clone();
    let turn = turn.map(|turn| watch.holds(turn));
    // A reply that is streamed, or a value that is built outside, is the unit's.
    let before = (runner.may_stream, runner.may_prebuild);
    (runner.may_stream, runner.may_prebuild) = (false, false);
    let longest = server.config.get().busy_reply_threshold;
    let beside = Limits { time: (longest > 0).then(|| Duration::from_millis(longest)), memory: None };
    let limits = if runner.in_lane { IN_LANE } else { beside };
    let mut calls = Calls::new(runner, client, &watch, script.reads_only);
    let mut run = || run_in(&mut interpreter, script, call, parts, limits, &mut calls);
    let result = catch_unwind(AssertUnwindSafe(&mut run));
    let noted = calls.noted;
    if let Some(last) = runner.noted.last_mut() {
        *last = noted;
    }
    (runner.may_stream, runner.may_prebuild) = before;
    // Before somebody else gets the interpreter.
    drop(turn);
    if result.is_ok() && interpreter.is_fit() {
        server.scripts.pool.put(interpreter);
    }
    result.ok().flatten()
}

fn run_in(
    interpreter: &mut Interpreter,
    script: &Script,
    call: &Call,
    (keys, args): Parts<'_>,
    limits: Limits,
    calls: &mut Calls<'_, '_>,
) -> Option<Result<Reply>> {
    let (digest, source, watch) = (&script.digest, script.source(), interpreter.watch().clone());
    let server = calls.server();
    // In a lane it ends soon.
    let _running = (!calls.in_lane()).then(|| server.scripts.begin(script.running(&watch, call, server)));
    let seed = server.env.rng().below(1 << 32) as u32;
    let task = match &script.code {
        Code::Script(..) => Task::Script(keys, args),
        Code::Function(_, name) => Task::Function(name, keys, args),
    };
    let outcome = interpreter.run((digest, source.code()), task, (limits, seed), &mut |lua, name, given| {
        calls.answer(lua, name, given)
    });
    if let (Code::Script(source, Some(epoch)), false) =
        (&script.code, matches!(outcome, Ok(Outcome::Invalid(_))))
    {
        server.scripts.learn(*digest, source, *epoch);
    }
    if let Some(end) = calls.end() {
        return end.into_result();
    }
    Some(match outcome {
        Ok(Outcome::Returned(value)) => {
            let most = limits.memory.unwrap_or(LONGEST);
            match Returned::new(calls.protocol, &watch, most).reply(&value) {
                Ok(reply) => Ok(reply),
                Err(TooMuch) if calls.in_lane() => return Some(Err(Error::TooHeavy)),
                Err(TooMuch) if watch.is_over() => Err(script.ended(&watch)),
                Err(TooMuch) => Ok(Reply::Error(RETURNS_TOO_MUCH)),
            }
        }
        Ok(Outcome::Failed { error, place, is_counted }) => {
            calls.noted.error_is_counted = is_counted;
            let mut line = String::from_utf8_lossy(&error).into_owned();
            let (chunk, at) = place.unwrap_or_else(|| (task.chunk().to_owned(), line_of_call(source.code())));
            line += &format!(" script: {}, on {chunk}:{at}.", script.name());
            Ok(Reply::Error(ReplyError::of(line)))
        }
        Ok(Outcome::Invalid(message)) => Err(invalid(message).into()),
        Ok(Outcome::Stopped) if calls.in_lane() => Err(Error::TooHeavy),
        Ok(Outcome::Stopped) => Err(script.ended(&watch)),
        Err(e) => Ok(Reply::Error(ReplyError::of(format!("ERR {e}")))),
    })
}

/// The line of a call that a script returns, and that so is not on Lua's stack: the only one that it can be, or -1.
fn line_of_call(code: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(code);
    let mut returns = (1..).zip(text.lines()).filter(|(_, line)| line.contains("return"));
    match (returns.next(), returns.next()) {
        (Some((at, _)), None) => at,
        _ => -1,
    }
}
