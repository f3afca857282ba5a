//! What a script calls of the server: redis.call and the other functions of its table.

use super::convert;
use crate::commands::registry::table;
use crate::dispatch::{Call, Level, Noted, Runner};
use crate::env::aside;
use crate::error::{Error, ReplyError, Result, StoreError};
use crate::lua::{Answer, Watch, hex, sha1};
use crate::server::acl::{Denied, Rights, User};
use crate::server::reply::Reply;
use crate::server::{ClientState, Protocol, Server};
use crate::spec::{Entry, Flags, Waits, keys_of};
use bytes::Bytes;
use mlua::{Lua, Value};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

/// Why the attempt must end, whatever the script catches.
pub(super) enum End {
    /// A call failed so.
    Failed(Error),
    /// A handler panicked.
    Panicked,
}

impl End {
    pub(super) fn into_result(self) -> Option<Result<Reply>> {
        match self {
            End::Failed(e) => Some(Err(e)),
            End::Panicked => None,
        }
    }
}

/// The calls of one run.
pub(super) struct Calls<'a, 'b> {
    runner: &'a mut Runner<'b>,
    watch: Arc<Watch>,
    pub(super) noted: Noted,
    /// What SELECT changes: not the caller's.
    client: ClientState,
    user: Option<Arc<User>>,
    reads_only: bool,
    /// What the script has chosen by setresp.
    pub(super) protocol: Protocol,
    end: Option<End>,
    /// A tracking client would not be told of a change to what the script has read.
    is_late: bool,
}

const TOO_LONG: ReplyError =
    ReplyError::new("ERR the reply is too long for a script: at most 8 MB, ask for less at once");

const WRONG_NUMBER: &str = "Wrong number of args calling Redis command from script";

fn errors(line: &str) -> String {
    format!("ERR {line}")
}

impl<'a, 'b> Calls<'a, 'b> {
    pub(super) fn new(
        runner: &'a mut Runner<'b>,
        client: &ClientState,
        watch: &Arc<Watch>,
        reads_only: bool,
    ) -> Self {
        let mut rights = Rights::default();
        runner.server.acl.refresh(&mut rights, &client.user);
        let user = rights.restricted().cloned();
        let (client, protocol) = (ClientState { in_script: true, ..client.clone() }, Protocol::Resp2);
        let noted = Noted::default();
        Calls {
            runner,
            watch: watch.clone(),
            noted,
            client,
            user,
            reads_only,
            protocol,
            end: None,
            is_late: false,
        }
    }

    /// Why the attempt must end.
    pub(super) fn end(&mut self) -> Option<End> {
        let late = || self.is_late.then_some(End::Failed(StoreError::Conflict.into()));
        self.end.take().or_else(late)
    }

    pub(super) fn in_lane(&self) -> bool {
        self.runner.in_lane
    }

    pub(super) fn server(&self) -> &'b Server {
        self.runner.server
    }

    /// Answers a function of the script's table `redis`.
    pub(super) fn answer(&mut self, lua: &Lua, name: &str, given: &[Value]) -> mlua::Result<Answer> {
        // The instructions of a script do not count how long this takes.
        if self.watch.is_over() {
            return Ok(Answer::Stop);
        }
        let listed;
        let (plain, given) = match name.strip_suffix('*') {
            Some(plain @ ("call" | "pcall" | "acl_check_cmd")) => (plain, given),
            Some(plain) => {
                listed = in_table(given).collect::<mlua::Result<Vec<Value>>>()?;
                (plain, listed.as_slice())
            }
            None => (name, given),
        };
        match plain {
            "call" | "pcall" => {
                let answer = match arguments(name, given) {
                    Ok(argv) => {
                        let Some(reply) = self.command(argv) else { return Ok(Answer::Stop) };
                        convert::to_lua(lua, reply, self.protocol)?
                    }
                    // No command has counted it.
                    Err(line) => Err(convert::error(lua, errors(line).as_bytes(), false)?),
                };
                Ok(match answer {
                    Ok(value) => Answer::Value(value),
                    Err(error) if plain == "call" => Answer::Raise(error),
                    Err(error) => Answer::Value(Value::Table(error)),
                })
            }
            "acl_check_cmd" => self.may_run(lua, name, given),
            "setresp" => self.set_protocol(lua, given),
            "set_repl" => set_replication(lua, given),
            "sha1hex" => match given {
                // What is no text counts as none.
                [one] => {
                    let text = text(one).unwrap_or_default();
                    Ok(Answer::Value(Value::String(lua.create_string(hex(&sha1(&text)))?)))
                }
                _ => raised(lua, "wrong number of arguments"),
            },
            "error_reply" | "status_reply" => one_field(lua, plain, given),
            "log" => self.log(lua, given),
            _ => raised(lua, "unknown function"),
        }
    }

    /// Runs a command. None: the script must end.
    fn command(&mut self, argv: Vec<Bytes>) -> Option<Reply> {
        let (row, names) = match self.checked(&argv) {
            Ok(found) => found,
            Err((row, line)) => {
                let error = ReplyError::of(line);
                row.into_iter().for_each(|row| self.noted.refused(self.runner.server, row, &error));
                return Some(Reply::Error(error));
            }
        };
        let call = Call { row, argv, names, id: None };
        if self.in_lane() && call.is_heavy() {
            self.end = Some(End::Failed(Error::TooHeavy));
            return None;
        }
        self.client.protocol = self.protocol;
        if self.client.tracking.wants() && row.flags.has(Flags::READONLY) {
            match wait(&self.watch, self.runner.tx.read_version()) {
                Ok(version) => {
                    let keys = keys_of(row, &call.argv).unwrap_or_default();
                    let tracking = &self.server().tracking;
                    self.is_late |= !tracking.remember_late(self.client.id, &keys, version);
                }
                Err(e) => {
                    self.end = Some(End::Failed(e.into()));
                    return None;
                }
            }
        }
        let server = self.server();
        let shown = server.monitors.is_on().then(|| (self.client.db, call.argv.clone()));
        let begun = server.env.clock.monotonic();
        let result = match wait(&self.watch, self.runner.call(&call, &mut self.client, &[])) {
            Some(Err(Error::Reply(e))) => Some(Ok(Reply::Error(e))),
            result => result,
        };
        let error = match &result {
            Some(Ok(Reply::Error(e))) => Some(e),
            _ => None,
        };
        self.noted.call(server, row, server.env.clock.monotonic() - begun, error, shown);
        match result {
            Some(Ok(reply)) => Some(reply),
            // Nothing was written, and the script may ask for less.
            Some(Err(Error::Store(StoreError::ReplyTooLarge(_)))) => Some(Reply::Error(TOO_LONG)),
            Some(Err(e)) => {
                self.end = Some(End::Failed(e));
                None
            }
            None => {
                self.end = Some(End::Panicked);
                None
            }
        }
    }

    /// Whether the script may run a command. Err: the row, if there is one, and the error.
    fn checked(
        &self,
        argv: &[Bytes],
    ) -> std::result::Result<(&'static Entry, usize), (Option<&'static Entry>, String)> {
        let (row, names) = match table().resolve(argv) {
            Some(Ok(found)) => found,
            Some(Err(container)) if argv.len() == 1 => return Err((Some(container), errors(WRONG_NUMBER))),
            Some(Err(_)) | None => {
                return Err((None, errors("Unknown Redis command called from script")));
            }
        };
        match self.refusal(row, names, argv) {
            Some(line) => Err((Some(row), errors(&line))),
            None => Ok((row, names)),
        }
    }

    fn refusal(&self, row: &'static Entry, names: usize, argv: &[Bytes]) -> Option<String> {
        if !row.accepts(argv.len()) {
            return Some(WRONG_NUMBER.into());
        }
        let may_call_all = self.server().scripts.may_call_all.load(Ordering::Relaxed);
        // XREAD answers at once.
        let waits = !matches!(row.waits, Waits::No | Waits::Block);
        if row.flags.has(Flags::NOSCRIPT) && !may_call_all || waits {
            return Some("This Redis command is not allowed from script".into());
        }
        if let Some(Err(denied)) = self.user.as_ref().map(|user| user.check(row, argv, names)) {
            self.server().refused(&self.client, &self.client.user, Some(&denied), &label(row));
            let why = match denied {
                Denied::Command => "can't run this command or subcommand",
                Denied::Key(_) => "can't access at least one of the keys mentioned in the command arguments",
                Denied::Channel(_) => "can't publish to the channel mentioned in the command",
            };
            return Some(format!("The user executing the script {why}"));
        }
        let writes = row.is_write() || row.flags.has(Flags::PUBLISHES);
        (self.reads_only && writes).then(|| "Write commands are not allowed from read-only scripts.".into())
    }

    fn may_run(&self, lua: &Lua, name: &str, given: &[Value]) -> mlua::Result<Answer> {
        let argv = match arguments(name, given) {
            Ok(argv) => argv,
            Err(line) => return raised(lua, line),
        };
        let Some(Ok((row, names))) = table().resolve(&argv) else {
            return raised(lua, "Invalid command passed to redis.acl_check_cmd()");
        };
        let may = self.user.as_ref().is_none_or(|user| user.check(row, &argv, names).is_ok());
        Ok(Answer::Value(Value::Boolean(may)))
    }

    fn log(&mut self, lua: &Lua, given: &[Value]) -> mlua::Result<Answer> {
        let [level, parts @ ..] = given else {
            return raised(lua, "redis.log() requires two arguments or more.");
        };
        if parts.is_empty() {
            return raised(lua, "redis.log() requires two arguments or more.");
        }
        let Some(level) = lua.coerce_number(level.clone())? else {
            return raised(lua, "First argument must be a number (log level).");
        };
        let level = match level as i64 {
            0 => Level::Debug,
            1 => Level::Verbose,
            2 => Level::Notice,
            3 => Level::Warning,
            _ => return raised(lua, "Invalid log level."),
        };
        let parts: Vec<Bytes> = parts.iter().filter_map(text).collect();
        let line = parts.iter().map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join(" ");
        self.noted.line(level, line);
        Ok(Answer::Value(Value::Nil))
    }

    fn set_protocol(&mut self, lua: &Lua, given: &[Value]) -> mlua::Result<Answer> {
        let [version] = given else { return raised(lua, "redis.setresp() requires one argument.") };
        let version = lua.coerce_number(version.clone())?.unwrap_or_default() as i64;
        self.protocol = match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return raised(lua, "RESP version must be 2 or 3."),
        };
        Ok(Answer::Value(Value::Nil))
    }
}

fn label(row: &Entry) -> Bytes {
    Bytes::copy_from_slice(row.label.as_bytes())
}

fn raised(lua: &Lua, line: &str) -> mlua::Result<Answer> {
    Ok(Answer::Raise(convert::error(lua, errors(line).as_bytes(), false)?))
}

/// Many arguments come in a table, with their number.
fn in_table(given: &[Value]) -> impl Iterator<Item = mlua::Result<Value>> {
    let (table, count) = match given {
        [Value::Table(table), count] => (Some(table), count.as_usize().unwrap_or_default()),
        _ => (None, 0),
    };
    table.into_iter().flat_map(move |table| (1..=count).map(|n| table.raw_get(n)))
}

/// The arguments of a call. Those in a table are read one by one: Lua's values have few places outside of Lua.
fn arguments(name: &str, given: &[Value]) -> std::result::Result<Vec<Bytes>, &'static str> {
    if given.is_empty() {
        return Err("Please specify at least one argument for this redis lib call");
    }
    let wrong = "Lua redis lib command arguments must be strings or integers";
    if name.ends_with('*') {
        return in_table(given).map(|value| text(&value.ok()?)).map(|text| text.ok_or(wrong)).collect();
    }
    given.iter().map(|value| text(value).ok_or(wrong)).collect()
}

/// Whole numbers up to this one are written with all their digits, as Redis 7.2 and later do.
const MOST_WHOLE: u64 = 1 << 62;

/// An argument: a string, or a number as C's `%.17g`.
fn text(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(text) => Some(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(n) if n.unsigned_abs() <= MOST_WHOLE => Some(n.to_string().into()),
        Value::Integer(n) => Some(crate::lua::general(*n as f64, 17).into()),
        Value::Number(n) => Some(crate::lua::general(*n, 17).into()),
        _ => None,
    }
}

fn set_replication(lua: &Lua, given: &[Value]) -> mlua::Result<Answer> {
    let [flags] = given else { return raised(lua, "redis.set_repl() requires two arguments.") };
    let flags = lua.coerce_number(flags.clone())?.unwrap_or_default() as i64;
    if flags & !3 != 0 {
        return raised(lua, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
    }
    Ok(Answer::Value(Value::Nil))
}

/// redis.error_reply and redis.status_reply.
fn one_field(lua: &Lua, name: &str, given: &[Value]) -> mlua::Result<Answer> {
    let [Value::String(line)] = given else {
        let wrong = convert::error(lua, b"ERR wrong number or type of arguments", false)?;
        return Ok(Answer::Value(Value::Table(wrong)));
    };
    if name == "status_reply" {
        let table = lua.create_table()?;
        table.raw_set("ok", line)?;
        return Ok(Answer::Value(Value::Table(table)));
    }
    let line = line.as_bytes();
    let line = line.strip_prefix(b"-").unwrap_or(&line);
    let line = match line.contains(&b' ') {
        true => line.to_vec(),
        false => [b"ERR ", line].concat(),
    };
    let end = line.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    Ok(Answer::Value(Value::Table(convert::error(lua, line.get(..end).unwrap_or_default(), false)?)))
}

/// Runs a future to its end on this thread.
fn wait<F: Future>(watch: &Watch, future: F) -> F::Output {
    let mut future = pin!(tokio::task::coop::unconstrained(future));
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return output;
    }
    watch.away(|| aside(|| tokio::runtime::Handle::current().block_on(future)))
}
