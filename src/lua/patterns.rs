//! string.find, string.match, string.gmatch and string.gsub of Lua 5.1, made so that a script in them can be
//! ended.
//!
//! What C does in one call cannot be interrupted, and may take for ever or all of the stack. Here every loop
//! counts its steps ([`Watch`]), and nothing recurses (`matching`).
//!
//! Functions answer as those of the other libraries do, and `glue.lua` raises their errors. Nothing that a
//! script can cause is an error of mlua, except running out of memory.
//!
//! Limits: what scripts call are functions of Lua. If a script returns such a call (a tail call), its line is
//! lost, so that messages have no position, and methods are named and counted like functions.

mod matching;
#[cfg(test)]
mod tests;

use super::libraries::{truncated, type_name};
use matching::{Captured, Fault, Found, Matcher, Steps, find_plain, is_plain};
use mlua::{Error, Function, Lua, LuaString, MultiValue, Table, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What scripts call, in Lua.
const GLUE: &str = include_str!("patterns/glue.lua");
/// Steps between two looks at whether the script must end: a few microseconds.
const LOOKS: usize = 1000;
/// Bytes that string.gsub may build outside of Lua's memory, as many as Redis' default for the length of a
/// string.
const LONGEST: usize = 64 << 20;
/// Bytes that are copied in the time of a step.
const BYTES_A_STEP: usize = 64;
/// Bytes of a pattern that are read in the time of a step.
const PATTERN_A_STEP: usize = 8;

/// The functions, for one interpreter. `is_over`: whether the script must end; it is asked often and must be
/// fast.
///
/// To be called before anything in the globals is hidden or replaced.
pub(super) fn table(lua: &Lua, is_over: Arc<dyn Fn() -> bool + Send + Sync>) -> mlua::Result<Table> {
    let watch = Arc::new(Watch { is_over, left: AtomicUsize::new(LOOKS) });
    let host = lua.create_table()?;
    host.raw_set("find", function(lua, &watch, "find", |call| find(call, true))?)?;
    host.raw_set("match", function(lua, &watch, "match", |call| find(call, false))?)?;
    host.raw_set("texts", function(lua, &watch, "gmatch", texts)?)?;
    host.raw_set("substitute", function(lua, &watch, "gsub", substitute)?)?;
    host.raw_set("next_match", next_match(lua, &watch)?)?;
    host.raw_set("next_piece", next_piece(lua, &watch)?)?;
    lua.load(GLUE).set_name("=patterns").call(host)
}

/// Says whether the script must end. Steps are counted from one call to the next: short calls add up.
struct Watch {
    is_over: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Steps until the next look.
    left: AtomicUsize,
}

impl Watch {
    fn count(&self) -> Count<'_> {
        Count { left: self.left.load(Ordering::Relaxed), is_over: &*self.is_over, kept: &self.left }
    }
}

/// The steps of one call.
struct Count<'a> {
    left: usize,
    is_over: &'a dyn Fn() -> bool,
    kept: &'a AtomicUsize,
}

impl Count<'_> {
    #[cold]
    fn look(&mut self) -> Result<(), Fault> {
        self.left = LOOKS;
        if (self.is_over)() { Err(Fault::Over) } else { Ok(()) }
    }
}

impl Steps for Count<'_> {
    fn charge(&mut self, steps: usize) -> Result<(), Fault> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.look(),
        }
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.kept.store(self.left, Ordering::Relaxed);
    }
}

/// Why a function has no results.
enum Failure {
    /// What the script is told, after its position.
    Message(String),
    /// The script must end.
    Over,
    /// What mlua failed at.
    Lua(Error),
}

type Outcome<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Lua(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Message(message) => Failure::Message(message.into()),
            Fault::Over => Failure::Over,
        }
    }
}

/// One call of a function: its arguments are taken one after the other.
struct Call<'a> {
    lua: &'a Lua,
    watch: &'a Watch,
    function: &'static str,
    values: <MultiValue as IntoIterator>::IntoIter,
    taken: usize,
}

impl Call<'_> {
    /// The next argument. None where there is none, not even nil.
    fn take(&mut self) -> Option<Value> {
        self.taken += 1;
        self.values.next()
    }

    /// A string, or a number as text.
    fn text(&mut self) -> Outcome<LuaString> {
        let value = match self.take() {
            Some(Value::String(text)) => return Ok(text),
            other => other,
        };
        let text = match &value {
            Some(number) => self.lua.coerce_string(number.clone())?,
            None => None,
        };
        text.ok_or_else(|| self.mismatch("string", value.as_ref()))
    }

    /// A number without its fraction, or a string that is one. None where the argument is absent or nil.
    fn integer(&mut self) -> Outcome<Option<i64>> {
        match self.take() {
            None | Some(Value::Nil) => Ok(None),
            Some(Value::Integer(n)) => Ok(Some(n)),
            Some(other) => match self.lua.coerce_number(other.clone())? {
                Some(n) => Ok(Some(truncated(n))),
                None => Err(self.mismatch("number", Some(&other))),
            },
        }
    }

    fn mismatch(&self, expected: &str, found: Option<&Value>) -> Failure {
        let found = found.map_or("no value", type_name);
        self.bad_argument(self.taken, &format!("{expected} expected, got {found}"))
    }

    /// A complaint about an argument. It has the name by which the script called the function.
    fn bad_argument(&self, position: usize, reason: &str) -> Failure {
        // At 0 is the function of Rust, at 1 the one that a script calls, and before it what a tail call has
        // left.
        let called = self.lua.inspect_stack(1, |debug| {
            let names = debug.names();
            names.name.map(|name| (name.into_owned(), names.name_what == Some("method")))
        });
        let is_tail = || self.lua.inspect_stack(2, |debug| debug.source().what == "tail") == Some(true);
        let (name, position) = match called.flatten() {
            Some((name, true)) if position == 1 => {
                return Failure::Message(format!("calling '{name}' on bad self ({reason})"));
            }
            Some((name, is_method)) => (name, position - usize::from(is_method)),
            None if is_tail() => (self.function.into(), position),
            None => ("?".into(), position),
        };
        Failure::Message(format!("bad argument #{position} to '{name}' ({reason})"))
    }
}

/// A function for `glue.lua`.
fn function(
    lua: &Lua,
    watch: &Arc<Watch>,
    name: &'static str,
    body: impl Fn(Call) -> Outcome<Vec<Value>> + Send + 'static,
) -> mlua::Result<Function> {
    let watch = watch.clone();
    lua.create_function(move |lua, values: MultiValue| {
        let call = Call { lua, watch: &watch, function: name, values: values.into_iter(), taken: 0 };
        answer(lua, body(call))
    })
}

/// What `glue.lua` gets. Results begin with a place that is kept for `true`.
fn answer(lua: &Lua, outcome: Outcome<Vec<Value>>) -> mlua::Result<MultiValue> {
    let (how, message) = match outcome {
        Ok(results) => return Ok(MultiValue::from_vec(results)),
        Err(Failure::Message(message)) => (Value::Boolean(false), message),
        Err(Failure::Over) => (Value::Nil, "the script must end".into()),
        Err(Failure::Lua(Error::StackError)) => (Value::Boolean(false), "stack overflow".into()),
        Err(Failure::Lua(error)) => return Err(error),
    };
    Ok(MultiValue::from_vec(vec![how, Value::String(lua.create_string(message)?)]))
}

/// Results that begin with those given.
fn results<const N: usize>(first: [Value; N]) -> Vec<Value> {
    let mut results = Vec::with_capacity(N + 3);
    results.push(Value::Boolean(true));
    results.extend(first);
    results
}

/// string.find and string.match.
fn find(mut call: Call, is_find: bool) -> Outcome<Vec<Value>> {
    let (text, pattern) = (call.text()?, call.text()?);
    let init = call.integer()?.unwrap_or(1);
    let is_asked = call.take().is_some_and(|value| !matches!(value, Value::Nil | Value::Boolean(false)));
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = start(init, text.len());
    let mut steps = call.watch.count();
    steps.charge(pattern.len() / PATTERN_A_STEP)?;
    if is_find && (is_asked || is_plain(&pattern)) {
        let found = find_plain(&text, from, &pattern, &mut steps)?;
        return Ok(match found {
            Some(at) => results([offset(at + 1), offset(at + pattern.len())]),
            None => results([Value::Nil]),
        });
    }
    let mut matcher = Matcher::new(&text, &pattern, true, steps);
    let Some(found) = matcher.search(from)? else {
        return Ok(results([Value::Nil]));
    };
    let mut results = if is_find { results([offset(found.from + 1), offset(found.to)]) } else { results([]) };
    let count = matcher.values(!is_find);
    add_values(call.lua, &mut matcher, found, count, &mut results)?;
    Ok(results)
}

/// The arguments of string.gmatch.
fn texts(mut call: Call) -> Outcome<Vec<Value>> {
    let (text, pattern) = (call.text()?, call.text()?);
    Ok(results([Value::String(text), Value::String(pattern)]))
}

/// The next match of string.gmatch: where the one after it begins, and its values. Nothing if there is none.
fn next_match(lua: &Lua, watch: &Arc<Watch>) -> mlua::Result<Function> {
    let watch = watch.clone();
    lua.create_function(move |lua, (text, pattern, at): (LuaString, LuaString, usize)| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let searched = || -> Outcome<Vec<Value>> {
            let mut matcher = matcher(&text, &pattern, false, &watch)?;
            let Some(found) = matcher.search(at)? else {
                return Ok(results([]));
            };
            let mut results = results([offset(after(found))]);
            let count = matcher.values(true);
            add_values(lua, &mut matcher, found, count, &mut results)?;
            Ok(results)
        };
        answer(lua, searched())
    })
}

/// The next match of string.gsub, as [`next_match`], with its bounds before its values. `has_all`: with all
/// of its values, else with the first one.
fn next_piece(lua: &Lua, watch: &Arc<Watch>) -> mlua::Result<Function> {
    let watch = watch.clone();
    lua.create_function(move |lua, (text, pattern, at, has_all): (LuaString, LuaString, usize, bool)| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let searched = || -> Outcome<Vec<Value>> {
            let mut matcher = matcher(&text, &pattern, true, &watch)?;
            if matcher.is_anchored() && at > 0 {
                return Ok(results([]));
            }
            let Some(found) = matcher.search(at)? else {
                return Ok(results([]));
            };
            let mut results = results([offset(after(found)), offset(found.from), offset(found.to)]);
            let count = if has_all { matcher.values(true) } else { 1 };
            add_values(lua, &mut matcher, found, count, &mut results)?;
            Ok(results)
        };
        answer(lua, searched())
    })
}

/// string.gsub: the number of matches and the result. Where `glue.lua` must call or look up what replaces
/// them: nil and the arguments.
fn substitute(mut call: Call) -> Outcome<Vec<Value>> {
    let (text, pattern) = (call.text()?, call.text()?);
    let given = call.take();
    let most = call.integer()?.map_or(text.as_bytes().len() as i64 + 1, |most| most) as i32;
    let replacement = match given {
        Some(Value::String(replacement)) => Some(replacement),
        Some(number @ (Value::Integer(_) | Value::Number(_))) => call.lua.coerce_string(number)?,
        Some(other @ (Value::Table(_) | Value::Function(_))) => {
            let most = Value::Integer(most.into());
            return Ok(results([Value::Nil, Value::String(text), Value::String(pattern), other, most]));
        }
        None
        | Some(
            Value::Nil
            | Value::Boolean(_)
            | Value::LightUserData(_)
            | Value::Thread(_)
            | Value::UserData(_)
            | Value::Error(_)
            | Value::Other(_),
        ) => None,
    };
    let Some(replacement) = replacement else {
        return Err(call.bad_argument(3, "string/function/table expected"));
    };
    let (text, pattern, replacement) = (text.as_bytes(), pattern.as_bytes(), replacement.as_bytes());
    let mut matcher = matcher(&text, &pattern, true, call.watch)?;
    let mut built = Built(Vec::with_capacity(text.len().min(LONGEST)));
    let (mut count, mut at, mut done) = (0, 0, 0);
    while count < most {
        let Some(found) = matcher.search(at)? else { break };
        built.add(text.get(done..found.from).unwrap_or_default(), matcher.steps())?;
        built.replacement(&replacement, &mut matcher, found)?;
        (count, at, done) = (count + 1, after(found), found.to);
        if matcher.is_anchored() {
            break;
        }
    }
    built.add(text.get(done..).unwrap_or_default(), matcher.steps())?;
    let built = Value::String(call.lua.create_string(&built.0)?);
    Ok(results([Value::Integer(count.into()), built]))
}

/// What string.gsub has built.
struct Built(Vec<u8>);

impl Built {
    fn add(&mut self, bytes: &[u8], steps: &mut Count) -> Outcome<()> {
        steps.charge(bytes.len() / BYTES_A_STEP)?;
        if self.0.len() + bytes.len() > LONGEST {
            return Err(Failure::Message("the result is larger than 64 MB".into()));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// A replacement with what it names of a match. At its end, an escape stands before C's NUL.
    fn replacement(&mut self, text: &[u8], matcher: &mut Matcher<Count>, found: Found) -> Outcome<()> {
        let mut rest = text;
        while let Some(escape) = rest.iter().position(|byte| *byte == b'%') {
            let (literal, escaped) = rest.split_at(escape);
            self.add(literal, matcher.steps())?;
            matcher.steps().charge(1)?;
            let byte = escaped.get(1).copied().unwrap_or_default();
            match byte {
                b'0' => {
                    let whole = matcher.whole(found);
                    self.add(whole, matcher.steps())?;
                }
                b'1'..=b'9' => match matcher.value(usize::from(byte - b'1'), found)? {
                    Captured::Text(text) => self.add(text, matcher.steps())?,
                    Captured::Position(at) => self.add(at.to_string().as_bytes(), matcher.steps())?,
                },
                other => self.add(&[other], matcher.steps())?,
            }
            rest = escaped.get(2..).unwrap_or_default();
        }
        self.add(rest, matcher.steps())
    }
}

fn matcher<'a>(
    text: &'a [u8],
    pattern: &'a [u8],
    has_anchor: bool,
    watch: &'a Watch,
) -> Outcome<Matcher<'a, Count<'a>>> {
    let mut steps = watch.count();
    steps.charge(pattern.len() / PATTERN_A_STEP)?;
    Ok(Matcher::new(text, pattern, has_anchor, steps))
}

fn add_values(
    lua: &Lua,
    matcher: &mut Matcher<Count>,
    found: Found,
    count: usize,
    results: &mut Vec<Value>,
) -> Outcome<()> {
    for index in 0..count {
        let value = match matcher.value(index, found)? {
            Captured::Position(at) => offset(at),
            Captured::Text(text) => {
                matcher.steps().charge(text.len() / BYTES_A_STEP)?;
                Value::String(lua.create_string(text)?)
            }
        };
        results.push(value);
    }
    Ok(())
}

/// Where the search goes on after a match: after one that is empty, a character further.
fn after(found: Found) -> usize {
    if found.to > found.from { found.to } else { found.to + 1 }
}

/// Where a search begins: `init` counts from 1, or from the end if it is negative.
fn start(init: i64, length: usize) -> usize {
    let length = length as i64;
    let from = if init < 0 { init.saturating_add(length).saturating_add(1) } else { init };
    from.saturating_sub(1).clamp(0, length) as usize
}

fn offset(n: usize) -> Value {
    Value::Integer(n as i64)
}
