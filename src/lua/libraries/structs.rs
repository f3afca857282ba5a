//! The library struct: numbers and strings as the bytes of C's types.
//!
//! | option | value |
//! |---|---|
//! | `b` `B` `h` `H` `l` `L` `T` `i` `I`, the last two with a size | an integer of 1, 2, 8, 8 or 4 bytes |
//! | `f` `d` | a float, a double |
//! | `s`, `c` with a size | a string that ends with NUL, a string of this size |
//! | `x` | a byte that is no value |
//! | `<` `>` `!` with a size, space | the order of bytes, the alignment, nothing |

use super::{Arguments, Failure, MOST_VALUES, Outcome, add, c_string, check_length, one, one_string};
use mlua::{Lua, MultiValue, Table, Value};

/// The largest integer, in bytes.
const MOST_BYTES: i32 = 32;
/// The alignment of `!` without a size.
const ALIGNMENT: i32 = 8;
const SHORT: &str = "data string too short";
const OVERFLOW: &str = "too many results";

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    add(lua, &library, "pack", pack)?;
    add(lua, &library, "unpack", |lua, args| unpack(lua, &args).map_err(|e| e.or_overflow(OVERFLOW)))?;
    add(lua, &library, "size", |lua, args| size(lua, &args))?;
    Ok(library)
}

/// What remains of a format, and what its options so far have set.
struct Format<'a> {
    rest: &'a [u8],
    is_big: bool,
    align: i32,
}

impl<'a> Format<'a> {
    fn new(format: &'a [u8]) -> Self {
        Format { rest: c_string(format), is_big: false, align: 1 }
    }

    fn option(&mut self) -> Option<u8> {
        let (option, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*option)
    }

    /// The number that comes next.
    fn number(&mut self, default: i32) -> Outcome<i32> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at_checked(digits).unwrap_or_default();
        if digits.is_empty() {
            return Ok(default);
        }
        self.rest = rest;
        let push = |n: i32, digit: &u8| n.checked_mul(10)?.checked_add(i32::from(digit - b'0'));
        digits.iter().try_fold(0, push).ok_or_else(|| "integral size overflow".into())
    }

    /// The bytes of an option's value; 0 where the option has none, or a string decides.
    fn size(&mut self, option: u8) -> Outcome<usize> {
        Ok(match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)? as usize,
            b'i' | b'I' => match self.number(4)? {
                size if size <= MOST_BYTES => size as usize,
                size => {
                    let limit = format!("integral size {size} is larger than limit of {MOST_BYTES}");
                    return Err(limit.into());
                }
            },
            _ => 0,
        })
    }

    /// The bytes between a position and the next at which the value may be. For sizes that are no power of 2,
    /// Redis computes something else, and so does this.
    fn padding(&self, position: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.align as usize);
        size.wrapping_sub(position & (size - 1)) & (size - 1)
    }

    /// An option without a value.
    fn control(&mut self, args: &Arguments, option: u8) -> Outcome<()> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => match self.number(ALIGNMENT)? {
                align if align > 0 && align & (align - 1) == 0 => self.align = align,
                align => return Err(format!("alignment {align} is not a power of 2").into()),
            },
            _ => return Err(args.error(1, [b"invalid format option '", &[option][..], b"'"].concat())),
        }
        Ok(())
    }

    fn ordered<const N: usize>(&self, mut little: [u8; N]) -> [u8; N] {
        if self.is_big {
            little.reverse();
        }
        little
    }
}

/// As x86 converts a double to an unsigned integer, when C does not say how.
fn unsigned(n: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if n >= HALF { (super::truncated(n - HALF) as u64) ^ (1 << 63) } else { super::truncated(n) as u64 }
}

fn put_integer(out: &mut Vec<u8>, n: f64, size: usize, is_big: bool) {
    let value = if n < 0.0 { super::truncated(n) as u64 } else { unsigned(n) };
    let (bytes, begin) = (value.to_le_bytes(), out.len());
    // Larger integers end with zeros, even if negative.
    out.extend(bytes.into_iter().chain(std::iter::repeat(0)).take(size));
    if is_big {
        out.get_mut(begin..).unwrap_or_default().reverse();
    }
}

fn integer(bytes: &[u8], is_big: bool, is_signed: bool) -> f64 {
    let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = if is_big { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) };
    if !is_signed {
        return value as f64;
    }
    // The shift wraps as on x86, which shows for sizes without a sign bit among the 64.
    let sign = u64::MAX.wrapping_shl((bytes.len() as u32).wrapping_mul(8).wrapping_sub(1));
    let value = if value & sign == 0 { value } else { value | sign };
    value as i64 as f64
}

fn pack(lua: &Lua, mut args: Arguments) -> Outcome<MultiValue> {
    let format = args.string(lua, 1)?;
    let format = format.as_bytes();
    let (mut format, mut out, mut position) = (Format::new(&format), Vec::new(), 1);
    // Redis finds nil behind the arguments.
    args.values.push_back(Value::Nil);
    while let Some(option) = format.option() {
        let size = format.size(option)?;
        out.resize(out.len() + format.padding(out.len(), option, size), 0);
        match option {
            b'x' => out.push(0),
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                position += 1;
                put_integer(&mut out, args.number(lua, position)?, size, format.is_big);
            }
            b'f' => {
                position += 1;
                let float = args.number(lua, position)? as f32;
                out.extend_from_slice(&format.ordered(float.to_le_bytes()));
            }
            b'd' => {
                position += 1;
                out.extend_from_slice(&format.ordered(args.number(lua, position)?.to_le_bytes()));
            }
            b'c' | b's' => {
                position += 1;
                put_string(lua, &args, position, option, size, &mut out)?;
            }
            _ => format.control(&args, option)?,
        }
        check_length(&out)?;
    }
    one_string(lua, out)
}

fn put_string(
    lua: &Lua,
    args: &Arguments,
    position: usize,
    option: u8,
    size: usize,
    out: &mut Vec<u8>,
) -> Outcome<()> {
    let string = args.string(lua, position)?;
    let string = string.as_bytes();
    let size = if size == 0 { string.len() } else { size };
    // Redis has counted the argument already.
    let part = string.get(..size).ok_or_else(|| args.error(position + 1, "string too short"))?;
    out.extend_from_slice(part);
    if option == b's' {
        out.push(0);
    }
    Ok(())
}

/// The values in a string, and the position behind them.
struct Unpacked<'a> {
    data: &'a [u8],
    at: usize,
    values: Vec<Value>,
}

impl Unpacked<'_> {
    fn bytes(&self, args: &Arguments, size: usize) -> Outcome<&[u8]> {
        let rest = self.data.get(self.at..).and_then(|rest| rest.get(..size));
        rest.ok_or_else(|| args.error(2, SHORT))
    }

    fn array<const N: usize>(&self, args: &Arguments) -> Outcome<[u8; N]> {
        self.bytes(args, N)?.try_into().map_err(|_| args.error(2, SHORT))
    }

    /// The size that the value before a string gives it.
    fn taken_size(&mut self, lua: &Lua) -> Outcome<usize> {
        let size = self.values.pop().map(|value| lua.coerce_number(value)).transpose()?.flatten();
        let missing = || Failure::from("format 'c0' needs a previous size");
        size.map(|n| unsigned(n) as usize).ok_or_else(missing)
    }
}

fn unpack(lua: &Lua, args: &Arguments) -> Outcome<MultiValue> {
    let (format, data) = (args.string(lua, 1)?, args.string(lua, 2)?);
    let (format, data) = (format.as_bytes(), data.as_bytes());
    let offset = args.integer_or(lua, 3, 1)? as usize;
    let at = offset.checked_sub(1).ok_or_else(|| args.error(3, "offset must be 1 or greater"))?;
    let (mut format, mut found) = (Format::new(&format), Unpacked { data: &data, at, values: Vec::new() });
    while let Some(option) = format.option() {
        let mut size = format.size(option)?;
        found.at = found.at.wrapping_add(format.padding(found.at, option, size));
        found.bytes(args, size)?;
        if args.len() + found.values.len() + 2 > MOST_VALUES {
            return Err(format!("stack overflow ({OVERFLOW})").into());
        }
        let value = match option {
            b'x' => None,
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let bytes = found.bytes(args, size)?;
                Some(Value::Number(integer(bytes, format.is_big, option.is_ascii_lowercase())))
            }
            b'f' => {
                let float = f32::from_le_bytes(format.ordered(found.array(args)?));
                Some(Value::Number(f64::from(float)))
            }
            b'd' => Some(Value::Number(f64::from_le_bytes(format.ordered(found.array(args)?)))),
            b'c' => {
                size = if size == 0 { found.taken_size(lua)? } else { size };
                Some(Value::String(lua.create_string(found.bytes(args, size)?)?))
            }
            b's' => {
                let rest = found.data.get(found.at..).unwrap_or_default();
                let end = rest.iter().position(|byte| *byte == 0).ok_or("unfinished string in data")?;
                size = end + 1;
                Some(Value::String(lua.create_string(found.bytes(args, end)?)?))
            }
            _ => {
                format.control(args, option)?;
                None
            }
        };
        found.values.extend(value);
        found.at = found.at.wrapping_add(size);
    }
    found.values.push(Value::Integer(found.at.wrapping_add(1) as i64));
    Ok(found.values.into())
}

fn size(lua: &Lua, args: &Arguments) -> Outcome<MultiValue> {
    let format = args.string(lua, 1)?;
    let format = format.as_bytes();
    let (mut format, mut at) = (Format::new(&format), 0usize);
    while let Some(option) = format.option() {
        let size = format.size(option)?;
        at = at.wrapping_add(format.padding(at, option, size));
        match option {
            b's' => return Err(args.error(1, "option 's' has no fixed size")),
            b'c' if size == 0 => return Err(args.error(1, "option 'c0' has no fixed size")),
            // Letters that are no option are none here, as in Redis.
            _ if option.is_ascii_alphanumeric() => {}
            _ => format.control(args, option)?,
        }
        at = at.wrapping_add(size);
    }
    one(Value::Integer(at as i64))
}
