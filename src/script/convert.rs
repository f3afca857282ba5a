//! Between replies and Lua's values, as Redis does it: a script sees replies as a client of RESP2 does, or of RESP3 after
//! `redis.setresp(3)`.

use crate::lua::{Watch, is_over, truncated};
use crate::server::Protocol;
use crate::server::doubles;
use crate::server::reply::Reply;
use bytes::Bytes;
use mlua::{Lua, Table, Value};

/// Levels of tables in a result.
const DEEPEST: usize = 128;

/// The error that a script sees.
pub(super) fn error(lua: &Lua, line: &[u8], is_counted: bool) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(line)?)?;
    if is_counted {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(table)
}

/// A reply as a script sees it. `Err(table)`: an error.
pub(super) fn to_lua(lua: &Lua, reply: Reply, protocol: Protocol) -> mlua::Result<Result<Value, Table>> {
    Ok(match reply {
        Reply::Error(e) => Err(error(lua, e.0.as_bytes(), true)?),
        reply => Ok(value(lua, reply, protocol == Protocol::Resp3)?),
    })
}

/// Pairs, each a list.
fn twos(lua: &Lua, pairs: Vec<(Reply, Reply)>, resp3: bool) -> mlua::Result<Value> {
    list(lua, pairs.into_iter().map(|(key, of)| Reply::Array(vec![key, of])).collect(), resp3)
}

fn value(lua: &Lua, reply: Reply, resp3: bool) -> mlua::Result<Value> {
    let text = |text: &[u8]| lua.create_string(text).map(Value::String);
    match reply {
        Reply::Ok => field(lua, "ok", text(b"OK")?),
        Reply::Simple(line) => field(lua, "ok", text(line.as_bytes())?),
        Reply::Error(e) => Ok(Value::Table(error(lua, e.0.as_bytes(), true)?)),
        Reply::Int(n) => Ok(Value::Number(n as f64)),
        Reply::Bulk(bytes) => text(&bytes),
        Reply::Nil | Reply::NilArray if resp3 => Ok(Value::Nil),
        Reply::Nil | Reply::NilArray => Ok(Value::Boolean(false)),
        Reply::Array(items) | Reply::Push(items) => list(lua, items, resp3),
        Reply::Message(items) => list(lua, items.to_vec(), resp3),
        Reply::Packed(shape, strings) => value(lua, Reply::unpacked(shape, &strings), resp3),
        Reply::Drawn(drawn) => {
            let all =
                drawn.iter().map(|[field, value]| (Reply::Bulk(field.clone()), Reply::Bulk(value.clone())));
            let all = match drawn.with_values() {
                true => Reply::Pairs(all.collect()),
                false => Reply::Array(all.map(|(field, _)| field).collect()),
            };
            value(lua, all, resp3)
        }
        Reply::Set(items) if resp3 => {
            let set = lua.create_table_with_capacity(0, items.len())?;
            for item in items {
                set.raw_set(value(lua, item, resp3)?, true)?;
            }
            field(lua, "set", Value::Table(set))
        }
        Reply::Set(items) => list(lua, items, resp3),
        Reply::Map(pairs) | Reply::Keyed(pairs) if resp3 => {
            let map = lua.create_table_with_capacity(0, pairs.len())?;
            for (key, of) in pairs {
                map.raw_set(value(lua, key, resp3)?, value(lua, of, resp3)?)?;
            }
            field(lua, "map", Value::Table(map))
        }
        Reply::Keyed(pairs) => twos(lua, pairs, resp3),
        Reply::Pairs(pairs) if resp3 => twos(lua, pairs, resp3),
        Reply::Map(pairs) | Reply::Pairs(pairs) => {
            list(lua, pairs.into_iter().flat_map(|(key, of)| [key, of]).collect(), resp3)
        }
        Reply::Double(number) if resp3 => field(lua, "double", Value::Number(number)),
        Reply::Double(number) => text(doubles::text(number).as_bytes()),
        Reply::Bool(yes) if resp3 => Ok(Value::Boolean(yes)),
        Reply::Bool(yes) => Ok(Value::Number(f64::from(u8::from(yes)))),
        Reply::Verbatim(bytes, format) if resp3 => {
            let verbatim = lua.create_table()?;
            verbatim.raw_set("string", text(&bytes)?)?;
            verbatim.raw_set("format", text(&format)?)?;
            field(lua, "verbatim_string", Value::Table(verbatim))
        }
        Reply::Verbatim(bytes, _) => text(&bytes),
        Reply::BigNumber(digits) if resp3 => field(lua, "big_number", text(digits.as_bytes())?),
        Reply::BigNumber(digits) => text(digits.as_bytes()),
        // Scripts see no attributes.
        Reply::Several(replies) => {
            match replies.into_iter().rfind(|reply| !matches!(reply, Reply::Attributes(_))) {
                Some(last) => value(lua, last, resp3),
                None => Ok(Value::Nil),
            }
        }
        Reply::Attributes(_) | Reply::Speaking(_) | Reply::None => Ok(Value::Nil),
        // Replies that are read while they are sent are not made for scripts.
        Reply::Members(_) | Reply::Items(_) | Reply::Long(_) | Reply::Dumped(_) => Ok(Value::Nil),
    }
}

fn field(lua: &Lua, name: &str, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

fn list(lua: &Lua, items: Vec<Reply>, resp3: bool) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(items.len(), 0)?;
    for (n, item) in (1..).zip(items) {
        if n % LOOKS == 0 && is_over(lua) {
            return Err(mlua::Error::runtime("the script must end"));
        }
        let item = value(lua, item, resp3)?;
        table.raw_set(n, item)?;
    }
    Ok(Value::Table(table))
}

/// What a script returned is too much, or takes too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

/// Values that are converted between two looks at whether the script must end.
const LOOKS: usize = 1024;
/// Bytes that a value counts for beside its text.
const EACH: usize = 32;

/// What a script returned, on its way to become a reply.
pub(super) struct Returned<'a> {
    /// The one that the script has chosen.
    pub(super) protocol: Protocol,
    pub(super) watch: &'a Watch,
    /// Bytes that may follow.
    pub(super) left: usize,
    steps: usize,
}

impl<'a> Returned<'a> {
    pub(super) fn new(protocol: Protocol, watch: &'a Watch, most: usize) -> Self {
        Returned { protocol, watch, left: most, steps: 0 }
    }

    /// The reply.
    pub(super) fn reply(&mut self, value: &Value) -> Result<Reply, TooMuch> {
        self.at(value, DEEPEST)
    }

    fn spend(&mut self, bytes: usize) -> Result<(), TooMuch> {
        self.steps += 1;
        self.left = self.left.checked_sub(bytes + EACH).ok_or(TooMuch)?;
        if self.steps.is_multiple_of(LOOKS) && self.watch.is_over() { Err(TooMuch) } else { Ok(()) }
    }

    fn at(&mut self, value: &Value, depth: usize) -> Result<Reply, TooMuch> {
        self.spend(0)?;
        Ok(match value {
            Value::String(text) => {
                self.spend(text.as_bytes().len())?;
                Reply::Bulk(bytes(text))
            }
            Value::Boolean(true) if self.protocol == Protocol::Resp2 => Reply::Int(1),
            Value::Boolean(false) if self.protocol == Protocol::Resp2 => Reply::Nil,
            Value::Boolean(yes) => Reply::Bool(*yes),
            Value::Integer(n) => Reply::Int(*n),
            Value::Number(n) => Reply::Int(truncated(*n)),
            Value::Table(table) => match depth.checked_sub(1) {
                Some(depth) => self.of_table(table, depth)?,
                None => Reply::Error(crate::error::ReplyError::new("ERR reached lua stack limit")),
            },
            Value::Nil
            | Value::LightUserData(_)
            | Value::Function(_)
            | Value::Thread(_)
            | Value::UserData(_)
            | Value::Error(_)
            | Value::Other(_) => Reply::Nil,
        })
    }

    fn of_table(&mut self, table: &Table, depth: usize) -> Result<Reply, TooMuch> {
        let get = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        let line = |text: &mlua::LuaString| text.to_string_lossy().replace(['\r', '\n'], " ");
        if let Value::String(text) = get("err") {
            return Ok(Reply::Error(crate::error::ReplyError::of(text.to_string_lossy())));
        }
        if let Value::String(text) = get("ok") {
            return Ok(Reply::Simple(line(&text).into()));
        }
        match get("double") {
            Value::Number(n) => return Ok(Reply::Double(n)),
            Value::Integer(n) => return Ok(Reply::Double(n as f64)),
            _ => {}
        }
        if let Value::String(text) = get("big_number") {
            return Ok(Reply::BigNumber(line(&text).into()));
        }
        if let Value::Table(verbatim) = get("verbatim_string")
            && let (Ok(Value::String(format)), Ok(Value::String(text))) =
                (verbatim.raw_get("format"), verbatim.raw_get("string"))
        {
            // As in Redis: its first bytes, and spaces if it is shorter.
            let format: Vec<u8> = format.as_bytes().iter().copied().take_while(|byte| *byte != 0).collect();
            let letter = |n: usize| format.get(n).copied().unwrap_or(b' ');
            return Ok(Reply::Verbatim(bytes(&text), [letter(0), letter(1), letter(2)]));
        }
        if let Value::Table(map) = get("map") {
            let pairs = map.pairs::<Value, Value>().filter_map(Result::ok);
            let pairs = pairs.map(|(key, of)| Ok((self.at(&key, depth)?, self.at(&of, depth)?)));
            return Ok(Reply::Map(pairs.collect::<Result<_, _>>()?));
        }
        if let Value::Table(set) = get("set") {
            let keys = set.pairs::<Value, Value>().filter_map(Result::ok);
            let keys = keys.map(|(key, _)| self.at(&key, depth));
            return Ok(Reply::Set(keys.collect::<Result<_, _>>()?));
        }
        let items = (1..).map(|n| table.raw_get::<Value>(n).unwrap_or(Value::Nil));
        let items = items.take_while(|item| !item.is_nil());
        let items = items.map(|item| self.at(&item, depth));
        Ok(Reply::Array(items.collect::<Result<_, _>>()?))
    }
}

fn bytes(text: &mlua::LuaString) -> Bytes {
    Bytes::copy_from_slice(&text.as_bytes())
}
