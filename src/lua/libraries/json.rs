//! The library cjson: its settings, and how it writes JSON. [`parse`](super::parse) reads it.

use super::{
    Arguments, Failure, Outcome, SLOTS, add, c_string, check_built, general, one, one_string, parse,
};
use super::{truncated_i32, type_name};
use mlua::{Error, Function, Lua, MultiValue, Table, Value};
use parking_lot::Mutex;
use std::sync::Arc;

const BOOLEANS: [&str; 2] = ["off", "on"];
const INVALID_NUMBERS: [&str; 3] = ["off", "on", "null"];

/// What scripts can set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// Whether an array with many holes becomes an object. Otherwise it is an error.
    sparse_convert: bool,
    /// Indexes for each element from which an array has many holes. 0: there are never many.
    sparse_ratio: i32,
    /// The last index up to which holes do not matter.
    sparse_safe: i32,
    encode_max_depth: i32,
    pub(super) decode_max_depth: i32,
    number_precision: i32,
    /// Has no effect: each call has a buffer of its own.
    keep_buffer: bool,
    /// An index into [`INVALID_NUMBERS`].
    encode_invalid_numbers: usize,
    pub(super) decode_invalid_numbers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1000,
            decode_max_depth: 1000,
            number_precision: 14,
            keep_buffer: true,
            encode_invalid_numbers: 0,
            decode_invalid_numbers: true,
        }
    }
}

/// The settings of a library, which its functions share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings(Arc<Mutex<Options>>);

impl Settings {
    /// Sets what the library began with.
    pub(crate) fn reset(&self) {
        *self.0.lock() = Options::default();
    }

    fn options(&self) -> Options {
        *self.0.lock()
    }
}

/// The functions, whose settings these are. The globals must still be Lua's own.
pub(super) fn library(lua: &Lua, settings: &Settings) -> mlua::Result<Table> {
    with_next(lua, settings, lua.globals().raw_get("next")?)
}

/// `next`: Lua's function. Scripts that make libraries may see other globals.
fn with_next(lua: &Lua, settings: &Settings, next: Function) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let (own, its) = (settings.clone(), next.clone());
    add(lua, &library, "encode", move |lua, args| encode(lua, &args, &its, own.options()))?;
    let own = settings.clone();
    add(lua, &library, "decode", move |lua, args| decode(lua, &args, own.options()))?;
    add(lua, &library, "new", move |lua, _| {
        one(Value::Table(with_next(lua, &Settings::default(), next.clone())?))
    })?;
    let setters: [(&str, Setter); 7] = [
        ("encode_sparse_array", encode_sparse_array),
        ("encode_max_depth", |lua, args, set| integer(lua, args, 1, &mut set.encode_max_depth, 1..=i32::MAX)),
        ("decode_max_depth", |lua, args, set| integer(lua, args, 1, &mut set.decode_max_depth, 1..=i32::MAX)),
        ("encode_number_precision", |lua, args, set| {
            integer(lua, args, 1, &mut set.number_precision, 1..=14)
        }),
        ("encode_keep_buffer", |lua, args, set| boolean(lua, args, &mut set.keep_buffer)),
        ("encode_invalid_numbers", |lua, args, set| {
            choice(lua, args, 1, &mut set.encode_invalid_numbers, &INVALID_NUMBERS)
        }),
        ("decode_invalid_numbers", |lua, args, set| boolean(lua, args, &mut set.decode_invalid_numbers)),
    ];
    for (name, setter) in setters {
        let (settings, most) = (settings.clone(), if name == "encode_sparse_array" { 3 } else { 1 });
        add(lua, &library, name, move |lua, args| {
            if args.len() > most {
                return Err(args.error(most + 1, "found too many arguments"));
            }
            setter(lua, &args, &mut settings.0.lock())
        })?;
    }
    library.raw_set("null", Value::NULL)?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    Ok(library)
}

/// Sets what the arguments say, and returns what is set.
type Setter = fn(&Lua, &Arguments, &mut Options) -> Outcome<MultiValue>;

fn encode_sparse_array(lua: &Lua, args: &Arguments, set: &mut Options) -> Outcome<MultiValue> {
    let mut results = MultiValue::new();
    let mut convert = usize::from(set.sparse_convert);
    results.extend(choice(lua, args, 1, &mut convert, &BOOLEANS)?);
    set.sparse_convert = convert == 1;
    results.extend(integer(lua, args, 2, &mut set.sparse_ratio, 0..=i32::MAX)?);
    results.extend(integer(lua, args, 3, &mut set.sparse_safe, 0..=i32::MAX)?);
    Ok(results)
}

fn integer(
    lua: &Lua,
    args: &Arguments,
    position: usize,
    setting: &mut i32,
    allowed: std::ops::RangeInclusive<i32>,
) -> Outcome<MultiValue> {
    if !args.value(position).is_nil() {
        let value = args.integer(lua, position)? as i32;
        if !allowed.contains(&value) {
            let (min, max) = (allowed.start(), allowed.end());
            // Redis always names the first argument.
            return Err(args.error(1, format!("expected integer between {min} and {max}")));
        }
        *setting = value;
    }
    one(Value::Integer(i64::from(*setting)))
}

fn boolean(lua: &Lua, args: &Arguments, setting: &mut bool) -> Outcome<MultiValue> {
    let mut chosen = usize::from(*setting);
    let results = choice(lua, args, 1, &mut chosen, &BOOLEANS)?;
    *setting = chosen == 1;
    Ok(results)
}

/// One of several names. The first two are also false and true.
fn choice(
    lua: &Lua,
    args: &Arguments,
    position: usize,
    setting: &mut usize,
    names: &[&str],
) -> Outcome<MultiValue> {
    match args.value(position) {
        Value::Nil => {}
        Value::Boolean(is) => *setting = usize::from(is),
        _ => {
            let name = args.string(lua, position)?;
            let name = name.as_bytes();
            let name = c_string(&name);
            let found = names.iter().position(|known| known.as_bytes() == name);
            let unknown = || args.error(position, [b"invalid option '", name, b"'"].concat());
            *setting = found.ok_or_else(unknown)?;
        }
    }
    match names.get(*setting) {
        Some(name) if *setting > 1 => one_string(lua, name),
        _ => one(Value::Boolean(*setting == 1)),
    }
}

fn decode(lua: &Lua, args: &Arguments, options: Options) -> Outcome<MultiValue> {
    if args.len() != 1 {
        return Err(args.error(1, "expected 1 argument"));
    }
    let json = args.string(lua, 1)?;
    one(parse::json(lua, &json.as_bytes(), &options)?)
}

fn encode(lua: &Lua, args: &Arguments, next: &Function, options: Options) -> Outcome<MultiValue> {
    if args.len() != 1 {
        return Err(args.error(1, "expected 1 argument"));
    }
    let mut writer = Writer { lua, next, options, out: Vec::new(), open: Vec::new(), slots: 1, steps: 0 };
    let written = writer.document(&args.value(1));
    written.map_err(|failure| match failure {
        // mlua holds fewer tables at once than Redis' stack.
        Failure::Lua(Error::StackError) => writer.too_deep(),
        other => other,
    })?;
    one_string(lua, writer.out)
}

/// A table that is not yet written to its end.
enum Open {
    Array {
        table: Table,
        /// The index of the last element written.
        index: i32,
        len: i32,
    },
    Object {
        table: Table,
        /// The last key written, nil at the beginning.
        key: Value,
    },
}

impl Open {
    /// Slots that it fills in Redis' stack.
    fn slots(&self) -> usize {
        match self {
            Open::Array { .. } => 1,
            Open::Object { .. } => 2,
        }
    }
}

/// Writes values. The tables that are open are listed, not called: scripts may nest them deeply.
struct Writer<'a> {
    lua: &'a Lua,
    /// Lua's function, which goes on where a nested table has interrupted; mlua's iterators borrow the table.
    next: &'a Function,
    options: Options,
    out: Vec<u8>,
    open: Vec<Open>,
    /// Slots of Redis' stack in use: they, too, limit how deeply tables are nested.
    slots: usize,
    steps: usize,
}

impl Writer<'_> {
    fn document(&mut self, value: &Value) -> Outcome<()> {
        self.value(value)?;
        while let Some(innermost) = self.open.pop() {
            check_built(self.lua, &self.out, &mut self.steps)?;
            self.slots -= innermost.slots();
            match innermost {
                Open::Array { table, index, len } => self.element(table, index, len)?,
                Open::Object { table, key } => self.member(table, key)?,
            }
        }
        Ok(())
    }

    fn resume(&mut self, open: Open) {
        self.slots += open.slots();
        self.open.push(open);
    }

    /// Writes the element behind `index`, or the end of the array.
    fn element(&mut self, table: Table, index: i32, len: i32) -> Outcome<()> {
        if index == len {
            self.out.push(b']');
            return Ok(());
        }
        if index > 0 {
            self.out.push(b',');
        }
        let value: Value = table.raw_get(index + 1)?;
        self.resume(Open::Array { table, index: index + 1, len });
        self.value(&value)
    }

    /// Writes the member behind `key`, or the end of the object.
    fn member(&mut self, table: Table, key: Value) -> Outcome<()> {
        let is_first = key.is_nil();
        let (key, value): (Value, Value) = self.next.call((&table, key))?;
        if key.is_nil() {
            self.out.push(b'}');
            return Ok(());
        }
        if !is_first {
            self.out.push(b',');
        }
        match &key {
            Value::String(name) => self.string(&name.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                self.out.push(b'"');
                self.value(&key)?;
                self.out.push(b'"');
            }
            Value::Nil
            | Value::Boolean(_)
            | Value::LightUserData(_)
            | Value::Table(_)
            | Value::Function(_)
            | Value::Thread(_)
            | Value::UserData(_)
            | Value::Error(_)
            | Value::Other(_) => {
                return refuse(&key, "table key must be a number or string");
            }
        }
        self.out.push(b':');
        self.resume(Open::Object { table, key });
        self.value(&value)
    }

    /// Writes a value; of a table, the beginning.
    fn value(&mut self, value: &Value) -> Outcome<()> {
        match value {
            Value::String(string) => self.string(&string.as_bytes()),
            Value::Integer(n) => return self.number(value, *n as f64),
            Value::Number(n) => return self.number(value, *n),
            Value::Boolean(is) => self.out.extend_from_slice(if *is { b"true" } else { b"false" }),
            Value::Table(table) => return self.table(table),
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.extend_from_slice(b"null"),
            Value::LightUserData(_)
            | Value::Function(_)
            | Value::Thread(_)
            | Value::UserData(_)
            | Value::Error(_)
            | Value::Other(_) => return refuse(value, "type not supported"),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table) -> Outcome<()> {
        let (depth, most) = (self.open.len() + 1, self.options.encode_max_depth as usize);
        if depth > most || self.slots + 3 > SLOTS {
            return Err(self.too_deep());
        }
        match self.array_len(table)? {
            Some(len @ 1..) => {
                self.out.push(b'[');
                self.resume(Open::Array { table: table.clone(), index: 0, len });
            }
            Some(_) | None => {
                self.out.push(b'{');
                self.resume(Open::Object { table: table.clone(), key: Value::Nil });
            }
        }
        Ok(())
    }

    fn too_deep(&self) -> Failure {
        format!("Cannot serialise, excessive nesting ({})", self.open.len() + 1).into()
    }

    /// The last index of an array, None for an object.
    fn array_len(&self, table: &Table) -> Outcome<Option<i32>> {
        let (mut max, mut items) = (0i32, 0i32);
        for pair in table.pairs::<Value, bool>() {
            let index = match pair?.0 {
                Value::Integer(n) => n as f64,
                Value::Number(n) => n,
                _ => return Ok(None),
            };
            if index.floor() != index || index < 1.0 {
                return Ok(None);
            }
            if index > f64::from(max) {
                max = truncated_i32(index);
            }
            items = items.wrapping_add(1);
        }
        let Options { sparse_convert, sparse_ratio, sparse_safe, .. } = self.options;
        if sparse_ratio > 0 && max > items.wrapping_mul(sparse_ratio) && max > sparse_safe {
            if sparse_convert {
                return Ok(None);
            }
            return Err("Cannot serialise table: excessively sparse array".into());
        }
        Ok(Some(max))
    }

    fn number(&mut self, value: &Value, n: f64) -> Outcome<()> {
        match self.options.encode_invalid_numbers {
            0 if !n.is_finite() => return refuse(value, "must not be NaN or Inf"),
            1 if n.is_nan() => self.out.extend_from_slice(b"nan"),
            2 if !n.is_finite() => self.out.extend_from_slice(b"null"),
            _ => self.out.extend(general(n, self.options.number_precision as usize).bytes()),
        }
        Ok(())
    }

    fn string(&mut self, string: &[u8]) {
        self.out.push(b'"');
        for byte in string {
            let short = match byte {
                b'"' | b'\\' | b'/' => *byte,
                0x08 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                0x0c => b'f',
                b'\r' => b'r',
                0x00..=0x1f | 0x7f => {
                    self.out.extend(format!("\\u{byte:04x}").bytes());
                    continue;
                }
                _ => {
                    self.out.push(*byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', short]);
        }
        self.out.push(b'"');
    }
}

fn refuse<T>(value: &Value, reason: &str) -> Outcome<T> {
    Err(format!("Cannot serialise {}: {reason}", type_name(value)).into())
}
