//! The library cmsgpack: MessagePack, in its version without extensions and binary strings.

use super::{Arguments, Failure, MOST_VALUES, Outcome, SLOTS, add, check_built, one_string, truncated};
use mlua::{Lua, MultiValue, Table, Value};

/// Tables in tables that are packed; a table below is nil.
const MOST_NESTED: usize = 16;
/// What fills the stack when values are unpacked.
const OVERFLOW: &str = "too many return values at once; use unpack_one or unpack_limit instead.";

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    add(lua, &library, "pack", |lua, args| pack(lua, &args))?;
    add(lua, &library, "unpack", |lua, args| unpack(lua, &args, args.len(), 0, 0))?;
    add(lua, &library, "unpack_one", |lua, args| {
        let offset = args.integer_or(lua, 2, 0)?;
        unpack(lua, &args, 1, 1, offset)
    })?;
    add(lua, &library, "unpack_limit", |lua, args| {
        let limit = args.integer(lua, 2)?;
        let offset = args.integer_or(lua, 3, 0)?;
        unpack(lua, &args, 1, limit, offset)
    })?;
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    library.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    library.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(library)
}

fn pack(lua: &Lua, args: &Arguments) -> Outcome<MultiValue> {
    if args.len() == 0 {
        return Err(args.error(0, "MessagePack pack needs input."));
    }
    if 2 * args.len() > SLOTS {
        return Err(args.error(0, "Too many arguments for MessagePack pack."));
    }
    let mut packer = Packer { lua, out: Vec::new(), steps: 0 };
    for value in &args.values {
        packer.put(value, 0)?;
    }
    one_string(lua, packer.out)
}

/// Writes values.
struct Packer<'a> {
    lua: &'a Lua,
    out: Vec<u8>,
    steps: usize,
}

impl Packer<'_> {
    /// Calls itself no deeper than [`MOST_NESTED`].
    fn put(&mut self, value: &Value, level: usize) -> Outcome<()> {
        match value {
            Value::String(string) => put_string(&mut self.out, &string.as_bytes()),
            Value::Boolean(is) => self.out.push(if *is { 0xc3 } else { 0xc2 }),
            Value::Integer(n) => put_integer(&mut self.out, *n),
            Value::Number(n) => put_number(&mut self.out, *n),
            Value::Table(table) if level < MOST_NESTED => self.put_table(table, level)?,
            Value::Nil | Value::Table(_) | Value::LightUserData(_) | Value::Function(_) => {
                self.out.push(0xc0)
            }
            Value::Thread(_) | Value::UserData(_) | Value::Error(_) | Value::Other(_) => self.out.push(0xc0),
        }
        check_built(self.lua, &self.out, &mut self.steps)
    }

    fn put_table(&mut self, table: &Table, level: usize) -> Outcome<()> {
        let (mut entries, mut max, mut is_array) = (0u32, 0i32, true);
        for pair in table.pairs::<Value, bool>() {
            let index = match pair?.0 {
                Value::Integer(n) => i32::try_from(n).ok().filter(|n| *n > 0),
                _ => None,
            };
            is_array &= index.is_some();
            max = max.max(index.unwrap_or_default());
            entries = entries.saturating_add(1);
        }
        if is_array && max.unsigned_abs() == entries {
            put_len(&mut self.out, entries, 0x90, 0xdc);
            for index in 1..=entries {
                self.put(&table.raw_get(index)?, level + 1)?;
            }
        } else {
            put_len(&mut self.out, entries, 0x80, 0xde);
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.put(&key, level + 1)?;
                self.put(&value, level + 1)?;
            }
        }
        Ok(())
    }
}

/// The number of elements of an array or a map: small ones have it in the first byte.
fn put_len(out: &mut Vec<u8>, len: u32, small: u8, large: u8) {
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(len @ ..=15), _) => out.push(small | len),
        (_, Ok(len)) => put_tagged(out, large, len.to_be_bytes()),
        (_, Err(_)) => put_tagged(out, large + 1, len.to_be_bytes()),
    }
}

fn put_tagged<const N: usize>(out: &mut Vec<u8>, tag: u8, bytes: [u8; N]) {
    out.push(tag);
    out.extend_from_slice(&bytes);
}

fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    match (u8::try_from(string.len()), u16::try_from(string.len())) {
        (Ok(len @ ..=31), _) => out.push(0xa0 | len),
        (Ok(len), _) => put_tagged(out, 0xd9, [len]),
        (_, Ok(len)) => put_tagged(out, 0xda, len.to_be_bytes()),
        (_, Err(_)) => put_tagged(out, 0xdb, (string.len() as u32).to_be_bytes()),
    }
    out.extend_from_slice(string);
}

/// The shortest integer, or else the shortest float.
fn put_number(out: &mut Vec<u8>, n: f64) {
    if n.is_finite() && truncated(n) as f64 == n {
        put_integer(out, truncated(n));
    } else if f64::from(n as f32) == n {
        put_tagged(out, 0xca, (n as f32).to_be_bytes());
    } else {
        put_tagged(out, 0xcb, n.to_be_bytes());
    }
}

fn put_integer(out: &mut Vec<u8>, n: i64) {
    if let Ok(n) = u64::try_from(n) {
        match (u8::try_from(n), u16::try_from(n), u32::try_from(n)) {
            (Ok(n @ ..=127), ..) => out.push(n),
            (Ok(n), ..) => put_tagged(out, 0xcc, [n]),
            (_, Ok(n), _) => put_tagged(out, 0xcd, n.to_be_bytes()),
            (.., Ok(n)) => put_tagged(out, 0xce, n.to_be_bytes()),
            (.., Err(_)) => put_tagged(out, 0xcf, n.to_be_bytes()),
        }
    } else {
        match (i8::try_from(n), i16::try_from(n), i32::try_from(n)) {
            (Ok(n @ -32..), ..) => out.push(n as u8),
            (Ok(n), ..) => put_tagged(out, 0xd0, n.to_be_bytes()),
            (_, Ok(n), _) => put_tagged(out, 0xd1, n.to_be_bytes()),
            (.., Ok(n)) => put_tagged(out, 0xd2, n.to_be_bytes()),
            (.., Err(_)) => put_tagged(out, 0xd3, n.to_be_bytes()),
        }
    }
}

/// Unpacks up to `limit` values from `offset`; all if both are 0, and otherwise says first where they end.
/// `held`: arguments that stay on Redis' stack.
fn unpack(lua: &Lua, args: &Arguments, held: usize, limit: i64, offset: i64) -> Outcome<MultiValue> {
    let input = args.string(lua, 1)?;
    let input = input.as_bytes();
    if offset < 0 || limit < 0 {
        // Redis, too, tells the length where it says limit.
        let (offset, len) = (offset as i32, input.len() as i32);
        let message = format!("Invalid request to unpack with offset of {offset} and limit of {len}.");
        return Err(message.into());
    }
    let Some(rest) = usize::try_from(offset).ok().and_then(|offset| input.get(offset..)) else {
        let (offset, len) = (offset as i32, input.len() as i32);
        return Err(format!("Start offset {offset} greater than input length {len}.").into());
    };
    let is_all = limit == 0 && offset == 0;
    let limit = if is_all { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    let (mut decoder, mut values) = (Decoder { rest, slots: held.max(1) }, MultiValue::new());
    while !decoder.rest.is_empty() && values.len() < limit {
        let value = decoder.value(lua).map_err(|failure| failure.or_overflow(OVERFLOW))?;
        values.push_back(value);
        decoder.slots += 1;
        if args.len() + values.len() > MOST_VALUES {
            return Err(overflow());
        }
    }
    if !is_all {
        let left = decoder.rest.len();
        let next = if left == 0 { -1 } else { (input.len() - left) as i64 };
        values.push_front(Value::Integer(next));
    }
    Ok(values)
}

fn overflow() -> Failure {
    format!("stack overflow ({OVERFLOW})").into()
}

fn missing() -> Failure {
    "Missing bytes in input.".into()
}

/// What begins in the input.
enum Item {
    Value(Value),
    /// Elements that follow.
    Array(u32),
    /// Pairs that follow.
    Map(u32),
}

/// A table that still misses elements.
struct Open {
    table: Table,
    /// Elements or pairs to come.
    left: u32,
    is_map: bool,
    /// The index of the last element of an array.
    index: i64,
    /// The key of a pair whose value is to come.
    key: Option<Value>,
}

impl Open {
    /// Adds the next element, key or value.
    fn put(&mut self, value: Value) -> Outcome<()> {
        if !self.is_map {
            self.index += 1;
            self.left -= 1;
            return Ok(self.table.raw_set(self.index, value)?);
        }
        let Some(key) = self.key.take() else {
            self.key = Some(value);
            return Ok(());
        };
        self.left -= 1;
        match key {
            Value::Nil => Err("table index is nil".into()),
            Value::Number(n) if n.is_nan() => Err("table index is NaN".into()),
            key => Ok(self.table.raw_set(key, value)?),
        }
    }

    /// Slots that it fills in Redis' stack.
    fn slots(&self) -> usize {
        1 + usize::from(!self.is_map || self.key.is_some())
    }
}

/// Reads values. The tables that are open are listed, not called: an input may nest them deeply.
struct Decoder<'a> {
    rest: &'a [u8],
    /// Slots of Redis' stack in use: they limit what an input may hold.
    slots: usize,
}

impl Decoder<'_> {
    fn value(&mut self, lua: &Lua) -> Outcome<Value> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let (left, is_map) = match self.item(lua)? {
                Item::Value(value) => match self.close(&mut open, value)? {
                    Some(value) => return Ok(value),
                    None => continue,
                },
                Item::Array(len) => (len, false),
                Item::Map(len) => (len, true),
            };
            let table = lua.create_table()?;
            if !is_map && self.slots + 2 > SLOTS {
                return Err("stack overflow (in function mp_decode_to_lua_array)".into());
            }
            if left > 0 {
                let opened = Open { table, left, is_map, index: 0, key: None };
                self.slots += opened.slots();
                open.push(opened);
            } else if let Some(value) = self.close(&mut open, Value::Table(table))? {
                return Ok(value);
            }
        }
    }

    /// Puts a value into the innermost table, and this into the next if complete. Returns the outermost.
    fn close(&mut self, open: &mut Vec<Open>, mut value: Value) -> Outcome<Option<Value>> {
        while let Some(mut inner) = open.pop() {
            self.slots -= inner.slots();
            inner.put(value)?;
            if inner.left > 0 {
                self.slots += inner.slots();
                open.push(inner);
                return Ok(None);
            }
            value = Value::Table(inner.table);
        }
        Ok(Some(value))
    }

    fn item(&mut self, lua: &Lua) -> Outcome<Item> {
        let [tag] = self.array()?;
        if self.slots + 1 > SLOTS {
            return Err(overflow());
        }
        let value = match tag {
            0x00..=0x7f => Value::Integer(i64::from(tag)),
            0x80..=0x8f => return Ok(Item::Map(u32::from(tag & 0x0f))),
            0x90..=0x9f => return Ok(Item::Array(u32::from(tag & 0x0f))),
            0xa0..=0xbf => self.string(lua, u32::from(tag & 0x1f))?,
            0xc0 => Value::Nil,
            0xc2 | 0xc3 => Value::Boolean(tag == 0xc3),
            0xca => Value::Number(f64::from(f32::from_be_bytes(self.array()?))),
            0xcb => Value::Number(f64::from_be_bytes(self.array()?)),
            0xcc => Value::Integer(i64::from(u8::from_be_bytes(self.array()?))),
            0xcd => Value::Integer(i64::from(self.u16()?)),
            0xce => Value::Integer(i64::from(self.u32()?)),
            // Lua's integers have a sign.
            0xcf | 0xd3 => Value::Integer(i64::from_be_bytes(self.array()?)),
            0xd0 => Value::Integer(i64::from(i8::from_be_bytes(self.array()?))),
            0xd1 => Value::Integer(i64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => Value::Integer(i64::from(i32::from_be_bytes(self.array()?))),
            0xd9 => {
                let len = u8::from_be_bytes(self.array()?);
                self.string(lua, u32::from(len))?
            }
            0xda => {
                let len = self.u16()?;
                self.string(lua, u32::from(len))?
            }
            0xdb => {
                let len = self.u32()?;
                self.string(lua, len)?
            }
            0xdc => return Ok(Item::Array(u32::from(self.u16()?))),
            0xdd => return Ok(Item::Array(self.u32()?)),
            0xde => return Ok(Item::Map(u32::from(self.u16()?))),
            0xdf => return Ok(Item::Map(self.u32()?)),
            0xe0..=0xff => Value::Integer(i64::from(tag as i8)),
            0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => return Err("Bad data format in input.".into()),
        };
        Ok(Item::Value(value))
    }

    fn array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(missing)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn u16(&mut self) -> Outcome<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Outcome<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn string(&mut self, lua: &Lua, len: u32) -> Outcome<Value> {
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or_else(missing)?;
        self.rest = rest;
        Ok(Value::String(lua.create_string(bytes)?))
    }
}
