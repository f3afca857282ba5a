//! The libraries that Redis bundles with its Lua: cjson, cmsgpack, struct and bit.
//!
//! A function answers `true` and its results, or `false` and a message, which Lua raises: only there is the
//! position known with which a message begins. Nothing that a script can cause is an error of mlua, except
//! running out of memory: scripts would see it as userdata.
//!
//! Limits: a function cannot know by which name it was called, so messages have its name in the library.

mod bits;
mod json;
mod msgpack;
mod parse;
mod structs;
#[cfg(test)]
mod tests;

use mlua::{Error, Lua, LuaString, MultiValue, Table, Value};

pub(super) use json::Settings;

/// Slots of the stack that a function may fill in Redis' Lua.
const SLOTS: usize = 8000;
/// Results of a function together with its arguments: mlua needs a few slots of the stack itself.
const MOST_VALUES: usize = SLOTS - 16;
/// Bytes that a function may build, as many as Redis' default for the length of a string.
const LONGEST: usize = 64 << 20;

/// The libraries of one interpreter.
pub(super) struct Libraries {
    pub(super) cjson: Table,
    pub(super) cmsgpack: Table,
    pub(super) structs: Table,
    pub(super) bit: Table,
    /// The settings of cjson, which outlive a script until they are reset.
    pub(super) settings: Settings,
}

impl Libraries {
    /// Makes them, before the globals are hidden from scripts.
    pub(super) fn new(lua: &Lua) -> mlua::Result<Self> {
        let settings = Settings::default();
        Ok(Libraries {
            cjson: json::library(lua, &settings)?,
            cmsgpack: msgpack::library(lua)?,
            structs: structs::library(lua)?,
            bit: bits::library(lua)?,
            settings,
        })
    }
}

/// Why a function has no results.
enum Failure {
    /// What the script is told.
    Message(Vec<u8>),
    /// What mlua failed at.
    Lua(Error),
}

type Outcome<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Lua(error)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Failure::Message(message.into())
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure::Message(message.into())
    }
}

impl Failure {
    /// Tells that the stack was too small for `what`, if that is the reason.
    fn or_overflow(self, what: &str) -> Self {
        match self {
            Failure::Lua(Error::StackError) => format!("stack overflow ({what})").into(),
            other => other,
        }
    }
}

/// The arguments of a call, counted from 1.
struct Arguments {
    function: &'static str,
    values: MultiValue,
}

impl Arguments {
    fn len(&self) -> usize {
        self.values.len()
    }

    /// None where the call has no argument.
    fn get(&self, position: usize) -> Option<&Value> {
        self.values.get(position.checked_sub(1)?)
    }

    /// The argument, nil where there is none.
    fn value(&self, position: usize) -> Value {
        self.get(position).cloned().unwrap_or(Value::Nil)
    }

    /// A complaint about an argument.
    fn error(&self, position: usize, reason: impl AsRef<[u8]>) -> Failure {
        let mut message = format!("bad argument #{position} to '{}' (", self.function).into_bytes();
        message.extend_from_slice(reason.as_ref());
        message.push(b')');
        Failure::Message(message)
    }

    fn mismatch(&self, position: usize, expected: &str) -> Failure {
        let found = self.get(position).map_or("no value", type_name);
        self.error(position, format!("{expected} expected, got {found}"))
    }

    /// A number, or a string that is one.
    fn number(&self, lua: &Lua, position: usize) -> Outcome<f64> {
        lua.coerce_number(self.value(position))?.ok_or_else(|| self.mismatch(position, "number"))
    }

    /// A number without its fraction.
    fn integer(&self, lua: &Lua, position: usize) -> Outcome<i64> {
        Ok(truncated(self.number(lua, position)?))
    }

    /// As [`Arguments::integer`], where the argument may be absent or nil.
    fn integer_or(&self, lua: &Lua, position: usize, default: i64) -> Outcome<i64> {
        match self.get(position) {
            None | Some(Value::Nil) => Ok(default),
            Some(_) => self.integer(lua, position),
        }
    }

    /// A string, or a number as text.
    fn string(&self, lua: &Lua, position: usize) -> Outcome<LuaString> {
        lua.coerce_string(self.value(position))?.ok_or_else(|| self.mismatch(position, "string"))
    }
}

/// Adds a function to a library.
fn add<F>(lua: &Lua, library: &Table, name: &'static str, body: F) -> mlua::Result<()>
where
    F: Fn(&Lua, Arguments) -> Outcome<MultiValue> + Send + 'static,
{
    let function = lua.create_function(move |lua, values| {
        // The instructions of a script do not count how long this takes.
        if super::is_over(lua) {
            return Err(Error::runtime("the script must end"));
        }
        let outcome = body(lua, Arguments { function: name, values });
        match outcome {
            Ok(results) => ok(results),
            Err(failure) => fail(lua, failure),
        }
    })?;
    library.raw_set(name, function)
}

fn ok(mut results: MultiValue) -> mlua::Result<MultiValue> {
    results.push_front(Value::Boolean(true));
    Ok(results)
}

fn fail(lua: &Lua, failure: Failure) -> mlua::Result<MultiValue> {
    let message = match failure {
        Failure::Message(message) => message,
        Failure::Lua(error @ Error::MemoryError(_)) => return Err(error),
        // What remains is the stack: scripts can nest calls and hold values up to its limits.
        Failure::Lua(_) => b"stack overflow".to_vec(),
    };
    let message = Value::String(lua.create_string(message)?);
    Ok(MultiValue::from_iter([Value::Boolean(false), message]))
}

/// The only result of a function.
fn one(result: Value) -> Outcome<MultiValue> {
    Ok(MultiValue::from_iter([result]))
}

/// A string as the only result.
fn one_string(lua: &Lua, bytes: impl AsRef<[u8]>) -> Outcome<MultiValue> {
    one(Value::String(lua.create_string(bytes)?))
}

/// Fails once a function has built too much: nested tables can hold each other many times.
fn check_length(out: &[u8]) -> Outcome<()> {
    if out.len() > LONGEST { Err("the result is larger than 64 MB".into()) } else { Ok(()) }
}

/// Values that are written between two looks at whether the script must end.
const LOOKS: usize = 1024;

/// Fails if what a function builds is too long, or the script must end. `steps`: values written so far.
fn check_built(lua: &Lua, out: &[u8], steps: &mut usize) -> Outcome<()> {
    *steps += 1;
    if steps.is_multiple_of(LOOKS) && super::is_over(lua) {
        return Err("the script must end".into());
    }
    check_length(out)
}

/// What Lua calls the type of a value.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        Value::LightUserData(_) | Value::UserData(_) | Value::Error(_) | Value::Other(_) => "userdata",
    }
}

/// The bytes before the first NUL: where C ends a string.
fn c_string(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// As x86 converts a double: what is out of range is the least integer.
pub(crate) fn truncated(n: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&n) { n as i64 } else { i64::MIN }
}

/// As [`truncated`], for 32 bits.
fn truncated_i32(n: f64) -> i32 {
    i32::try_from(truncated(n)).unwrap_or(i32::MIN)
}

/// A number as C's `%.{digits}g` writes it.
pub(crate) fn general(n: f64, digits: usize) -> String {
    if n.is_nan() {
        return if n.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if n.is_infinite() {
        return if n < 0.0 { "-inf".into() } else { "inf".into() };
    }
    let digits = digits.max(1);
    // Most numbers are small integers, which need no rounding.
    if n.trunc() == n && n.abs() < 10f64.powi(digits.min(15) as i32) && n.to_bits() != (-0f64).to_bits() {
        return (n as i64).to_string();
    }
    let text = format!("{n:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or_default();
    if exponent < -4 || exponent >= digits as i64 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.unsigned_abs());
    }
    let decimals = (digits as i64 - 1 - exponent) as usize;
    without_zeros(&format!("{n:.decimals$}")).into()
}

/// Removes the zeros at the end of a fraction.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}
