//! Reads JSON as cjson does: it accepts numbers that only C knows, and does not check the bytes of strings.

use super::json::Options;
use super::{Outcome, SLOTS};
use mlua::{Error, Lua, LuaString, Table, Value};

/// The value of a text.
pub(super) fn json(lua: &Lua, text: &[u8], options: &Options) -> Outcome<Value> {
    if text.len() >= 2 && text.iter().take(2).any(|byte| *byte == 0) {
        return Err("JSON parser does not support UTF-16 or UTF-32".into());
    }
    Parser { lua, text, at: 0, options, open: Vec::new(), slots: 1 }.document()
}

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    /// What messages call it.
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(reason) => reason,
        }
    }
}

/// A token, and where it begins, or where its error is.
type Found = (Token, usize);

/// A table whose end is not yet read.
enum Open {
    /// The index of its last element.
    Array(Table, usize),
    /// The key of the value to come.
    Object(Table, Vec<u8>),
}

impl Open {
    /// Slots that it fills in Redis' stack.
    fn slots(&self) -> usize {
        match self {
            Open::Array(..) => 1,
            Open::Object(..) => 2,
        }
    }
}

/// Reads values. The tables that are open are listed, not called: a text may nest them deeply.
struct Parser<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    options: &'a Options,
    open: Vec<Open>,
    /// Slots of Redis' stack in use: they, too, limit how deeply tables are nested.
    slots: usize,
}

impl Parser<'_> {
    fn document(&mut self) -> Outcome<Value> {
        let mut token = self.token();
        loop {
            let value = match token.0 {
                Token::String(bytes) => Some(Value::String(self.lua.create_string(bytes)?)),
                Token::Number(n) => Some(Value::Number(n)),
                Token::Boolean(is) => Some(Value::Boolean(is)),
                Token::Null => Some(Value::NULL),
                Token::ObjectBegin => self.object()?,
                Token::ArrayBegin => self.array()?,
                Token::ObjectEnd
                | Token::ArrayEnd
                | Token::Colon
                | Token::Comma
                | Token::End
                | Token::Error(_) => return expected("value", &token),
            };
            if let Some(value) = value
                && let Some(value) = self.close(value)?
            {
                return match self.token() {
                    (Token::End, _) => Ok(value),
                    other => expected("the end", &other),
                };
            }
            token = self.token();
        }
    }

    /// Begins an object, up to its first value. Returns it if it has none.
    fn object(&mut self) -> Outcome<Option<Value>> {
        let table = self.table(3)?;
        match self.token() {
            (Token::ObjectEnd, _) => Ok(Some(Value::Table(table))),
            first => {
                let key = self.key(first)?;
                self.descend(Open::Object(table, key));
                Ok(None)
            }
        }
    }

    /// Begins an array. Returns it if it has no elements.
    fn array(&mut self) -> Outcome<Option<Value>> {
        let table = self.table(2)?;
        self.skip_spaces();
        if self.peek(0) == b']' {
            self.at += 1;
            return Ok(Some(Value::Table(table)));
        }
        self.descend(Open::Array(table, 0));
        Ok(None)
    }

    /// A table, if one more may be open. `slots`: as many as Redis then needs.
    fn table(&self, slots: usize) -> Outcome<Table> {
        let depth = self.open.len() + 1;
        let too_many = || format!("Found too many nested data structures ({depth}) at character {}", self.at);
        if depth > self.options.decode_max_depth as usize || self.slots + slots > SLOTS {
            return Err(too_many().into());
        }
        match self.lua.create_table() {
            Err(Error::StackError) => Err(too_many().into()),
            table => Ok(table?),
        }
    }

    fn descend(&mut self, open: Open) {
        self.slots += open.slots();
        self.open.push(open);
    }

    /// The name of a member, up to its value.
    fn key(&mut self, token: Found) -> Outcome<Vec<u8>> {
        let Token::String(key) = token.0 else {
            return expected("object key string", &token);
        };
        match self.token() {
            (Token::Colon, _) => Ok(key),
            other => expected("colon", &other),
        }
    }

    /// Puts a value into the innermost table, and this into the next if it ends here. Returns the outermost.
    fn close(&mut self, mut value: Value) -> Outcome<Option<Value>> {
        while let Some(innermost) = self.open.pop() {
            self.slots -= innermost.slots();
            value = match innermost {
                Open::Array(table, index) => {
                    table.raw_set(index + 1, value)?;
                    match self.token() {
                        (Token::ArrayEnd, _) => Value::Table(table),
                        (Token::Comma, _) => {
                            self.descend(Open::Array(table, index + 1));
                            return Ok(None);
                        }
                        other => return expected("comma or array end", &other),
                    }
                }
                Open::Object(table, key) => {
                    table.raw_set(LuaString::wrap(key), value)?;
                    match self.token() {
                        (Token::ObjectEnd, _) => Value::Table(table),
                        (Token::Comma, _) => {
                            let next = self.token();
                            let key = self.key(next)?;
                            self.descend(Open::Object(table, key));
                            return Ok(None);
                        }
                        other => return expected("comma or object end", &other),
                    }
                }
            };
        }
        Ok(Some(value))
    }

    /// The byte at an offset from here. The end is a NUL, and a NUL the end.
    fn peek(&self, offset: usize) -> u8 {
        self.text.get(self.at + offset).copied().unwrap_or_default()
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_spaces(&mut self) {
        while let b' ' | b'\t' | b'\n' | b'\r' = self.peek(0) {
            self.at += 1;
        }
    }

    fn token(&mut self) -> Found {
        self.skip_spaces();
        let begin = self.at;
        let single = match self.peek(0) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return (Token::End, begin),
            b'"' => return self.string().map_or_else(|e| (Token::Error(e), self.at), |s| (s, begin)),
            b'-' | b'0'..=b'9' | b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+' => {
                return (self.word(), begin);
            }
            _ => return (Token::Error("invalid token"), begin),
        };
        self.at += 1;
        (single, begin)
    }

    /// A number or a name. An error leaves the position.
    fn word(&mut self) -> Token {
        let is_number = matches!(self.peek(0), b'-' | b'0'..=b'9');
        let names = [("true", Token::Boolean(true)), ("false", Token::Boolean(false)), ("null", Token::Null)];
        for (name, token) in names {
            if self.rest().starts_with(name.as_bytes()) {
                self.at += name.len();
                return token;
            }
        }
        let (is_strange, is_allowed) = (is_strange(self.rest()), self.options.decode_invalid_numbers);
        match (is_number, is_strange, is_allowed) {
            (true, true, false) => Token::Error("invalid number"),
            (true, ..) | (false, true, true) => match number(self.rest()) {
                Some((n, len)) => {
                    self.at += len;
                    Token::Number(n)
                }
                None => Token::Error("invalid number"),
            },
            (false, ..) => Token::Error("invalid token"),
        }
    }

    /// A string; the position is behind it, or at the error.
    fn string(&mut self) -> Result<Token, &'static str> {
        self.at += 1;
        let mut string = Vec::new();
        loop {
            let plain = self.rest().iter().take_while(|byte| !matches!(byte, 0 | b'"' | b'\\')).count();
            string.extend(self.rest().iter().take(plain));
            self.at += plain;
            match self.peek(0) {
                b'"' => break,
                b'\\' => self.escape(&mut string)?,
                _ => return Err("unexpected end of string"),
            }
        }
        self.at += 1;
        Ok(Token::String(string))
    }

    fn escape(&mut self, string: &mut Vec<u8>) -> Result<(), &'static str> {
        let byte = match self.peek(1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 0x0c,
            b'r' => b'\r',
            b'u' => {
                let (c, len) = self.unicode().ok_or("invalid unicode escape code")?;
                string.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += len;
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        string.push(byte);
        self.at += 2;
        Ok(())
    }

    /// The character of one escape or of a pair of surrogates, and the length of these.
    fn unicode(&self) -> Option<(char, usize)> {
        let high = self.hex4(2)?;
        if high & 0xf800 != 0xd800 {
            return Some((char::from_u32(high)?, 6));
        }
        if high & 0x0400 != 0 || self.peek(6) != b'\\' || self.peek(7) != b'u' {
            return None;
        }
        let low = self.hex4(8)?;
        let code = (high & 0x3ff) << 10 | low & 0x3ff;
        if low & 0xfc00 == 0xdc00 { Some((char::from_u32(code + 0x10000)?, 12)) } else { None }
    }

    fn hex4(&self, offset: usize) -> Option<u32> {
        (offset..offset + 4).try_fold(0, |code, at| Some(code << 4 | char::from(self.peek(at)).to_digit(16)?))
    }
}

fn expected<T>(what: &str, (token, at): &Found) -> Outcome<T> {
    Err(format!("Expected {what} but found {} at character {}", token.name(), at + 1).into())
}

/// Whether a text begins as a number that C knows and JSON does not.
fn is_strange(text: &[u8]) -> bool {
    if text.first() == Some(&b'+') {
        return true;
    }
    match text.strip_prefix(b"-").unwrap_or(text) {
        [b'0', next, ..] => matches!(next, b'x' | b'X' | b'0'..=b'9'),
        text => begins(text, b"inf") || begins(text, b"nan"),
    }
}

/// Whether a text begins with a word, in capitals or not.
fn begins(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
}

/// The number that a text begins with, and its length, as C's strtod reads it.
fn number(text: &[u8]) -> Option<(f64, usize)> {
    let sign = text.iter().take(1).take_while(|byte| matches!(byte, b'+' | b'-')).count();
    let unsigned = text.get(sign..)?;
    let (n, len) = if begins(unsigned, b"infinity") {
        (f64::INFINITY, 8)
    } else if begins(unsigned, b"inf") {
        (f64::INFINITY, 3)
    } else if begins(unsigned, b"nan") {
        (f64::NAN.abs(), 3 + nan_label(unsigned.get(3..)?))
    } else {
        begins(unsigned, b"0x").then(|| hexadecimal(unsigned)).flatten().or_else(|| decimal(unsigned))?
    };
    Some((if text.starts_with(b"-") { -n } else { n }, sign + len))
}

/// The length of what may follow nan: a word in parentheses, which has no effect here.
fn nan_label(text: &[u8]) -> usize {
    let Some(label) = text.strip_prefix(b"(") else {
        return 0;
    };
    let word = label.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    if label.get(word) == Some(&b')') { word + 2 } else { 0 }
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let len = number_len(text, u8::is_ascii_digit, b'e')?;
    let n = std::str::from_utf8(text.get(..len)?).ok()?.parse().ok()?;
    Some((n, len))
}

/// The length of digits with a point and an exponent. None if it has no digit.
fn number_len(text: &[u8], is_digit: fn(&u8) -> bool, exponent: u8) -> Option<usize> {
    let digits =
        |at: usize, is_digit: fn(&u8) -> bool| text.iter().skip(at).take_while(|byte| is_digit(byte)).count();
    let whole = digits(0, is_digit);
    let fraction = if text.get(whole) == Some(&b'.') { digits(whole + 1, is_digit) } else { 0 };
    if whole + fraction == 0 {
        return None;
    }
    let len = whole + usize::from(text.get(whole) == Some(&b'.')) + fraction;
    if text.get(len).map(u8::to_ascii_lowercase) != Some(exponent) {
        return Some(len);
    }
    let sign = usize::from(matches!(text.get(len + 1), Some(b'+' | b'-')));
    match digits(len + 1 + sign, u8::is_ascii_digit) {
        0 => Some(len),
        power => Some(len + 1 + sign + power),
    }
}

/// A number that begins with 0x.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let text = text.get(2..)?;
    let len = number_len(text, u8::is_ascii_hexdigit, b'p')?;
    let (mut mantissa, mut exponent, mut rest, mut is_fraction) = (0u64, 0i64, 0u64, false);
    let mut bytes = text.iter().take(len);
    for byte in bytes.by_ref() {
        let Some(digit) = char::from(*byte).to_digit(16) else {
            if *byte == b'.' {
                is_fraction = true;
                continue;
            }
            break;
        };
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | u64::from(digit);
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            rest |= u64::from(digit);
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    let power: String = bytes.map(|byte| char::from(*byte)).collect();
    let most = if power.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
    let power =
        if power.is_empty() { 0 } else { power.parse().unwrap_or(most).clamp(-most.abs(), most.abs()) };
    Some((scaled(mantissa, rest != 0, exponent + power), len + 2))
}

/// `mantissa` times 2 to the `exponent`, rounded once. `has_rest`: the mantissa is a little larger.
fn scaled(mantissa: u64, has_rest: bool, exponent: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let zeros = mantissa.leading_zeros();
    let mantissa = u128::from(mantissa << zeros);
    // The exponent of the highest bit.
    let power = exponent - i64::from(zeros) + 63;
    // Subnormal numbers keep fewer bits.
    let dropped = 11 + (-1022 - power).max(0);
    if power > 1023 {
        return f64::INFINITY;
    } else if dropped > 64 {
        return 0.0;
    }
    let (kept, half) = ((mantissa >> dropped) as u64, 1u128 << (dropped - 1));
    let lost = mantissa & ((half << 1) - 1);
    let is_up = lost > half || lost == half && (has_rest || kept & 1 == 1);
    let biased = (power + 1022).max(0) as u64;
    // The highest bit adds 1 to the exponent, as does rounding up to the next power of 2.
    f64::from_bits((biased << 52) + kept + u64::from(is_up))
}
