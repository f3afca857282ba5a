//! The library bit: operations on the low 32 bits of numbers.

use super::{Arguments, Outcome, add, one, one_string};
use mlua::{Lua, MultiValue, Table, Value};

/// Added to a number, it leaves the integer in the low bits of the double, rounded to even.
const ROUND: f64 = 6_755_399_441_055_744.0;

type Unary = fn(u32) -> u32;
type Binary = fn(u32, u32) -> u32;

/// Of one number.
const UNARY: [(&str, Unary); 3] = [("tobit", |a| a), ("bnot", |a| !a), ("bswap", u32::swap_bytes)];
/// Of one number or more.
const FOLDS: [(&str, Binary); 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
/// Of a number and how far it is shifted.
const SHIFTS: [(&str, Binary); 5] = [
    ("lshift", u32::wrapping_shl),
    ("rshift", u32::wrapping_shr),
    ("arshift", |a, by| (a as i32).wrapping_shr(by) as u32),
    ("rol", |a, by| a.rotate_left(by & 31)),
    ("ror", |a, by| a.rotate_right(by & 31)),
];

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    for (name, operation) in UNARY {
        add(lua, &library, name, move |lua, args| result(operation(operand(lua, &args, 1)?)))?;
    }
    for (name, operation) in FOLDS {
        add(lua, &library, name, move |lua, args| {
            // The order decides which of several bad arguments is told.
            let first = operand(lua, &args, 1)?;
            let rest = (2..=args.len()).rev();
            result(
                rest.map(|position| operand(lua, &args, position))
                    .try_fold(first, |folded, next| Ok::<_, super::Failure>(operation(folded, next?)))?,
            )
        })?;
    }
    for (name, operation) in SHIFTS {
        add(lua, &library, name, move |lua, args| {
            result(operation(operand(lua, &args, 1)?, operand(lua, &args, 2)?))
        })?;
    }
    add(lua, &library, "tohex", |lua, args| to_hex(lua, &args))?;
    Ok(library)
}

fn operand(lua: &Lua, args: &Arguments, position: usize) -> Outcome<u32> {
    Ok((args.number(lua, position)? + ROUND).to_bits() as u32)
}

fn result(bits: u32) -> Outcome<MultiValue> {
    one(Value::Integer(i64::from(bits as i32)))
}

/// The second argument: how many digits, in capitals if it is negative.
fn to_hex(lua: &Lua, args: &Arguments) -> Outcome<MultiValue> {
    let bits = operand(lua, args, 1)?;
    let digits = if args.len() < 2 { 8 } else { operand(lua, args, 2)? as i32 };
    let all = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    let absent = 8usize.saturating_sub(digits.unsigned_abs() as usize);
    one_string(lua, all.get(absent..).unwrap_or_default())
}
