//! One interpreter, and one run of a script in it.

use super::library::{self, FLAGS, LONGEST_DESCRIPTIONS, Library, MOST_FUNCTIONS, is_name};
use super::source::Source;
use super::watch::{Limits, NO_MEMORY, Watch};
use super::{libraries, patterns};
use crate::env::Clock;
use crate::keyspace::keys::scripts::Digest;
use crate::spec::REDIS_VERSION;
use bytes::Bytes;
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Value, Variadic, VmState};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The most bytes that an interpreter may use: beyond it, scripts fail with "not enough memory".
const MOST_MEMORY: usize = 256 << 20;
/// Outside of scripts there is no limit: below one, each value that is made is made in a protected call of its own, which
/// took a quarter of the instructions of a script of one command. What the server makes is as long as a reply may be, and counts
/// at the next call.
const NO_LIMIT: usize = 0;
/// An interpreter that uses more after its script is not kept.
const KEPT_MEMORY: usize = 16 << 20;
/// Instructions between two looks at whether the script must end: about half a microsecond, unless they join or compare long
/// strings. (What C does with long ones is looked at before: see `sandbox.lua`.)
const LOOKS: u32 = 200;
/// Scripts that an interpreter remembers compiled.
const COMPILED: usize = 512;
/// The functions of `redis` that the server answers: how they are called, and how if their arguments come in a table.
const FUNCTIONS: [(&str, &str); 9] = [
    ("call", "call*"),
    ("pcall", "pcall*"),
    ("acl_check_cmd", "acl_check_cmd*"),
    ("setresp", "setresp*"),
    ("set_repl", "set_repl*"),
    ("log", "log*"),
    ("sha1hex", "sha1hex*"),
    ("error_reply", "error_reply*"),
    ("status_reply", "status_reply*"),
];
/// What scripts and libraries are called in messages.
const SCRIPT: &str = "@user_script";
const LIBRARY: &str = "@user_function";
const TOO_MUCH: &str =
    "ERR Error registering functions: a library has at most 10000 functions, and 1 MB of descriptions";

/// What the server says to a call of a script.
pub(crate) enum Answer {
    /// The call returns this.
    Value(Value),
    /// The call raises this error.
    Raise(Table),
    /// The script must end.
    Stop,
}

/// Answers a call of a script: the function of `redis` that it names, and its arguments.
pub(crate) trait Server: FnMut(&Lua, &str, &[Value]) -> mlua::Result<Answer> {}

impl<F: FnMut(&Lua, &str, &[Value]) -> mlua::Result<Answer>> Server for F {}

/// What is run of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task<'a> {
    /// The script, with its keys and arguments.
    Script(&'a [Bytes], &'a [Bytes]),
    /// The library, which registers its functions.
    Load,
    /// The library's function of this name, with its keys and arguments.
    Function(&'a str, &'a [Bytes], &'a [Bytes]),
}

impl Task<'_> {
    /// What its text is called in messages.
    pub(crate) fn chunk(&self) -> &'static str {
        match self {
            Task::Script(..) => SCRIPT,
            Task::Load | Task::Function(..) => LIBRARY,
        }
    }
}

/// How a run ended.
pub(crate) enum Outcome {
    /// It returned this.
    Returned(Value),
    /// It failed with an error line, `source` and `line` if they are known.
    Failed {
        /// The error, with its code.
        error: Vec<u8>,
        /// Where it was raised.
        place: Option<(String, i64)>,
        /// A command has counted the error already.
        is_counted: bool,
    },
    /// It did not compile.
    Invalid(Vec<u8>),
    /// It was told to end.
    Stopped,
}

/// See the module.
pub(crate) struct Interpreter {
    lua: Lua,
    compiler: Function,
    enter: Function,
    enter_library: Function,
    compiled: HashMap<Digest, Function>,
    watch: Arc<Watch>,
    random: Arc<Mutex<Drand>>,
    settings: libraries::Settings,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interpreter").field("compiled", &self.compiled.len()).finish_non_exhaustive()
    }
}

impl Interpreter {
    pub(super) fn new(clock: Clock) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let watch = Arc::new(Watch::new(clock));
        let random = Arc::default();
        lua.set_app_data(watch.clone());
        let (host, settings) = host(&lua, &watch, &random)?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name("=sandbox");
        let (compiler, enter, enter_library) = sandbox.call(host)?;
        let seen = watch.clone();
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(LOOKS), move |_, _| {
            match seen.is_over() {
                true => Err(mlua::Error::runtime("the script must end")),
                false => Ok(VmState::Continue),
            }
        })?;
        Ok(Interpreter {
            lua,
            compiler,
            enter,
            enter_library,
            compiled: HashMap::new(),
            watch,
            random,
            settings,
        })
    }

    /// What ends the script that runs.
    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// Runs a script or a library. `server`: answers its calls.
    pub(crate) fn run(
        &mut self,
        (digest, text): (&Digest, &[u8]),
        task: Task<'_>,
        (limits, seed): (Limits, u32),
        server: &mut (dyn Server + Send),
    ) -> mlua::Result<Outcome> {
        self.watch.begin(limits);
        self.settings.reset();
        *self.random.lock() = Drand::of(seed);
        let code = match self.function((digest, text), task.chunk())? {
            Ok(code) => code,
            Err(message) => return Ok(Outcome::Invalid(message)),
        };
        let (keys, args) = match task {
            Task::Script(keys, args) | Task::Function(_, keys, args) => {
                (self.texts(keys)?, self.texts(args)?)
            }
            Task::Load => (self.texts(&[])?, self.texts(&[])?),
        };
        let most = limits.memory.map_or(MOST_MEMORY, |memory| self.lua.used_memory() + memory);
        let ended = self.lua.scope(|scope| {
            let server = scope.create_function_mut(|lua, (number, given): (i64, Variadic<Value>)| {
                // Replies count, too.
                if lua.used_memory() > most {
                    return Err(mlua::Error::MemoryError(NO_MEMORY.into()));
                }
                lua.set_memory_limit(NO_LIMIT)?;
                let answer = server(lua, name_of(number), &given).map(answered);
                lua.set_memory_limit(most)?;
                answer
            })?;
            self.lua.set_memory_limit(most)?;
            match task {
                Task::Script(..) => self.enter.call::<(bool, Value)>((code, server, keys, args)),
                Task::Load => self.enter_library.call((code, server)),
                Task::Function(name, ..) => self.enter_library.call((code, server, name, keys, args)),
            }
        });
        self.lua.set_memory_limit(NO_LIMIT)?;
        match &ended {
            Ok((false, error)) => _ = self.watch.ends(error),
            Err(e) if e.to_string().contains(NO_MEMORY) => {
                _ = self.watch.ends(&Value::Error(e.clone().into()))
            }
            _ => {}
        }
        let outcome = match ended {
            _ if self.watch.is_stopped() => Outcome::Stopped,
            Ok((true, value)) => Outcome::Returned(value),
            Ok((false, Value::Table(error))) => failed(&error)?,
            Ok((false, other)) => failed_with(other.to_string()?),
            Err(e) => failed_with(e.to_string()),
        };
        Ok(outcome)
    }

    /// Compiles a script. `Err(message)`: it cannot be compiled.
    pub(crate) fn compile(&mut self, digest: &Digest, source: &Source) -> mlua::Result<Result<(), Vec<u8>>> {
        self.watch.begin(Limits::default());
        Ok(self.function((digest, source.code()), SCRIPT)?.map(drop))
    }

    /// Whether it may run another script.
    pub(crate) fn is_fit(&self) -> bool {
        // Each collection halves the buffer in which Lua has joined strings.
        let is_small = || self.lua.used_memory() < KEPT_MEMORY;
        is_small() || (0..8).any(|_| self.lua.gc_collect().is_ok() && is_small())
    }

    /// Runs the code of a library, and returns it with its functions. `Err(line)`: why it cannot be loaded.
    pub(crate) fn load(&mut self, library: Library, limits: Limits) -> mlua::Result<Result<Library, String>> {
        let code = (&library.digest, library.source.code());
        let outcome =
            self.run(code, Task::Load, (limits, 0), &mut |_, _, _| Ok(Answer::Value(Value::Nil)))?;
        Ok(match outcome {
            Outcome::Returned(Value::Table(registered)) => match functions(&registered)? {
                Some(functions) if functions.is_empty() => Err("ERR No functions registered".into()),
                Some(functions) => Ok(Library { functions, ..library }),
                None => Err(TOO_MUCH.into()),
            },
            Outcome::Returned(_) => Err("ERR No functions registered".into()),
            Outcome::Invalid(message) => {
                Err(format!("ERR Error compiling function: {}", String::from_utf8_lossy(&message)))
            }
            Outcome::Failed { error, .. } => {
                Err(format!("ERR Error registering functions: {}", String::from_utf8_lossy(&error)))
            }
            Outcome::Stopped => Err("ERR Error registering functions: FUNCTION LOAD timeout".into()),
        })
    }

    fn texts(&self, texts: &[Bytes]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
        for text in texts {
            table.raw_push(self.lua.create_string(text)?)?;
        }
        Ok(table)
    }

    /// The code of a script or of a library, or why it does not compile.
    fn function(
        &mut self,
        (digest, text): (&Digest, &[u8]),
        chunk: &str,
    ) -> mlua::Result<Result<Function, Vec<u8>>> {
        if let Some(known) = self.compiled.get(digest) {
            return Ok(Ok(known.clone()));
        }
        let text = self.lua.create_string(text)?;
        self.lua.set_memory_limit(MOST_MEMORY)?;
        let made = self.compiler.call::<(Option<Function>, Option<LuaString>)>((text, chunk));
        self.lua.set_memory_limit(NO_LIMIT)?;
        match made? {
            (Some(function), _) => {
                if self.compiled.len() >= COMPILED {
                    self.compiled.clear();
                }
                self.compiled.insert(*digest, function.clone());
                Ok(Ok(function))
            }
            (None, message) => {
                Ok(Err(message.map(|message| message.as_bytes().to_vec()).unwrap_or_default()))
            }
        }
    }
}

/// The functions that a library has registered, by their names. None: too many, or with too long descriptions.
fn functions(registered: &Table) -> mlua::Result<Option<Vec<library::Function>>> {
    let (mut functions, mut bytes) = (Vec::new(), 0);
    for pair in registered.pairs::<String, Table>() {
        let (name, made) = pair?;
        let description: Option<LuaString> = made.raw_get("description")?;
        bytes += description.as_ref().map_or(0, |text| text.as_bytes().len());
        if functions.len() == MOST_FUNCTIONS || bytes > LONGEST_DESCRIPTIONS {
            return Ok(None);
        }
        let description = description.map(|text| Bytes::copy_from_slice(&text.as_bytes()));
        let flags: Table = made.raw_get("flags")?;
        let has = |flag: &&'static str| flags.raw_get(*flag).unwrap_or_default();
        let flags = FLAGS.into_iter().filter(has).collect();
        functions.push(library::Function { name, description, flags });
    }
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(functions))
}

/// What the sandbox calls the function of this number; see [`FUNCTIONS`].
fn name_of(number: i64) -> &'static str {
    let at = usize::try_from(number.unsigned_abs()).ok().and_then(|number| number.checked_sub(1));
    match at.and_then(|at| FUNCTIONS.get(at)) {
        Some((name, _)) if number > 0 => name,
        Some((_, name)) => name,
        None => "",
    }
}

fn answered(answer: Answer) -> (Option<&'static str>, Value) {
    match answer {
        Answer::Value(value) => (None, value),
        Answer::Raise(error) => (Some("raise"), Value::Table(error)),
        Answer::Stop => (Some("stop"), Value::Nil),
    }
}

fn failed(error: &Table) -> mlua::Result<Outcome> {
    let text = |name: &str| -> mlua::Result<Option<Vec<u8>>> {
        Ok(match error.raw_get::<Value>(name)? {
            Value::String(text) => Some(text.as_bytes().to_vec()),
            Value::Integer(n) => Some(n.to_string().into_bytes()),
            Value::Number(n) => Some(libraries::general(n, 14).into_bytes()),
            _ => None,
        })
    };
    let line: Option<i64> = error.raw_get("line").unwrap_or_default();
    let source = text("source")?.map(|source| String::from_utf8_lossy(&source).into_owned());
    Ok(Outcome::Failed {
        error: text("err")?.unwrap_or_else(|| b"ERR unknown error".to_vec()),
        place: source.zip(line),
        is_counted: error.raw_get("ignore_error_stats_update").unwrap_or_default(),
    })
}

fn failed_with(message: String) -> Outcome {
    Outcome::Failed { error: format!("ERR {message}").into_bytes(), place: None, is_counted: false }
}

/// What the sandbox gets.
fn host(
    lua: &Lua,
    watch: &Arc<Watch>,
    random: &Arc<Mutex<Drand>>,
) -> mlua::Result<(Table, libraries::Settings)> {
    let host = lua.create_table()?;
    let seen = watch.clone();
    host.raw_set("is_stopped", lua.create_function(move |_, error: Value| Ok(seen.ends(&error)))?)?;
    host.raw_set("stopped", "the script must end")?;
    host.raw_set("where", lua.create_function(located)?)?;
    host.raw_set("constants", constants(lua)?)?;
    host.raw_set("flags", FLAGS.to_vec())?;
    host.raw_set("functions", FUNCTIONS.map(|(name, _)| name).to_vec())?;
    host.raw_set("is_name", lua.create_function(|_, name: LuaString| Ok(is_name(&name.as_bytes())))?)?;
    let numbers = random.clone();
    host.raw_set("random", lua.create_function(move |_, ()| Ok(numbers.lock().next()))?)?;
    let numbers = random.clone();
    host.raw_set(
        "seed",
        lua.create_function(move |_, seed: f64| {
            *numbers.lock() = Drand::of(seed as i64 as u32);
            Ok(())
        })?,
    )?;
    let found = libraries::Libraries::new(lua)?;
    let seen = watch.clone();
    host.raw_set("patterns", patterns::table(lua, Arc::new(move || seen.is_over()))?)?;
    host.raw_set("cjson", found.cjson)?;
    host.raw_set("cmsgpack", found.cmsgpack)?;
    host.raw_set("struct", found.structs)?;
    host.raw_set("bit", found.bit)?;
    Ok((host, found.settings))
}

fn constants(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let numbers = [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", 3),
    ];
    numbers.into_iter().try_for_each(|(name, number)| table.raw_set(name, number))?;
    let parts = REDIS_VERSION.split('.').map(|part| part.parse::<i64>().unwrap_or_default());
    table.raw_set("REDIS_VERSION_NUM", parts.fold(0, |number, part| number << 8 | part))?;
    table.raw_set("REDIS_VERSION", REDIS_VERSION)?;
    Ok(table)
}

/// Numbers as Redis draws them for scripts: those of drand48, so that a seed gives the same ones.
#[derive(Debug, Clone, Copy, Default)]
struct Drand(u64);

impl Drand {
    fn of(seed: u32) -> Self {
        Drand(u64::from(seed) << 16 | 0x330E)
    }

    /// From 0 to below 1.
    fn next(&mut self) -> f64 {
        const MOST: u64 = i32::MAX as u64;
        self.0 = self.0.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
        ((self.0 >> 17) % MOST) as f64 / MOST as f64
    }
}

/// An error's text. What was called from the sandbox's own code was called from nowhere, as far as a script can see.
fn without_sandbox(text: &[u8]) -> &[u8] {
    let behind = || {
        let rest = text.strip_prefix(b"sandbox:")?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        rest.get(digits..)?.strip_prefix(b": ")
    };
    behind().unwrap_or(text)
}

/// The error of a script as a new table, with the place in the script where it was raised.
fn located(lua: &Lua, error: Value) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    match &error {
        Value::Table(given) => {
            for name in ["err", "ignore_error_stats_update"] {
                table.raw_set(name, given.raw_get::<Value>(name)?)?;
            }
        }
        other => {
            let text = match other {
                Value::String(text) => text.as_bytes().to_vec(),
                other => other.to_string()?.into_bytes(),
            };
            table.raw_set("err", lua.create_string([b"ERR ", without_sandbox(&text)].concat())?)?;
        }
    }
    let place = |level: usize| {
        lua.inspect_stack(level, |debug| {
            let source = debug.source().source.map(std::borrow::Cow::into_owned);
            (source, debug.current_line())
        })
    };
    let mut level = 1;
    while let Some((source, line)) = place(level) {
        if let Some((source, line)) = source.filter(|source| source == SCRIPT || source == LIBRARY).zip(line)
        {
            table.raw_set("source", source)?;
            table.raw_set("line", line)?;
            break;
        }
        level += 1;
    }
    Ok(table)
}
