//! Splits a line into words as Redis' `sdssplitargs` does: inline commands, lines of a configuration file, the first line of
//! a script.
//!
//! `"..."` supports `\n \r \t \b \a \xHH` and takes any other escaped byte literally; `'...'` supports only
//! `\'`. A closing quote must end its word. A NUL ends the line.

use bytes::{Bytes, BytesMut};

/// The line's words; none for a blank line. Err: unbalanced quotes.
pub(crate) fn split(line: &[u8]) -> Result<Vec<Bytes>, Unbalanced> {
    let line = line.split(|b| *b == 0).next().unwrap_or_default();
    let mut words = Vec::new();
    let mut rest = skip_spaces(line);
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        words.push(word.freeze());
        rest = skip_spaces(after);
    }
    Ok(words)
}

/// A quote was not closed, or something followed a closing one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unbalanced;

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t'..=b'\r')
}

fn skip_spaces(line: &[u8]) -> &[u8] {
    let n = line.iter().take_while(|b| is_space(**b)).count();
    line.get(n..).unwrap_or_default()
}

/// The word at the beginning of `rest`, and the remainder.
fn word(mut rest: &[u8]) -> Result<(BytesMut, &[u8]), Unbalanced> {
    let mut arg = BytesMut::new();
    while let Some((b, after)) = rest.split_first() {
        match b {
            b' ' | b'\n' | b'\r' | b'\t' => break,
            b'"' => return double_quoted(after, arg),
            b'\'' => return single_quoted(after, arg),
            b => arg.extend_from_slice(&[*b]),
        }
        rest = after;
    }
    Ok((arg, rest))
}

fn double_quoted(mut rest: &[u8], mut arg: BytesMut) -> Result<(BytesMut, &[u8]), Unbalanced> {
    loop {
        let (byte, after) = match rest {
            [b'\\', b'x', hi, lo, after @ ..] if hi.is_ascii_hexdigit() && lo.is_ascii_hexdigit() => {
                (hex(*hi) << 4 | hex(*lo), after)
            }
            [b'\\', escaped, after @ ..] => (unescape(*escaped), after),
            [b'"', after @ ..] => return closed(arg, after),
            [b, after @ ..] => (*b, after),
            [] => return Err(Unbalanced),
        };
        arg.extend_from_slice(&[byte]);
        rest = after;
    }
}

fn single_quoted(mut rest: &[u8], mut arg: BytesMut) -> Result<(BytesMut, &[u8]), Unbalanced> {
    loop {
        let (byte, after) = match rest {
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [b'\'', after @ ..] => return closed(arg, after),
            [b, after @ ..] => (*b, after),
            [] => return Err(Unbalanced),
        };
        arg.extend_from_slice(&[byte]);
        rest = after;
    }
}

fn closed(arg: BytesMut, after: &[u8]) -> Result<(BytesMut, &[u8]), Unbalanced> {
    match after.first() {
        Some(b) if !is_space(*b) => Err(Unbalanced),
        _ => Ok((arg, after)),
    }
}

fn unescape(b: u8) -> u8 {
    match b {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &[u8]) -> Vec<Vec<u8>> {
        split(line).unwrap().into_iter().map(|b| b.to_vec()).collect()
    }

    #[test]
    fn words_quotes_and_escapes() {
        assert_eq!(args(b"  set  k\tv \r"), [b"set", &b"k"[..], b"v"]);
        assert_eq!(args(br#"a "b c" 'd e' x"y""#), [b"a", &b"b c"[..], b"d e", b"xy"]);
        assert_eq!(args(br#""\x41\n\q\"" '\'\n'"#), [&b"A\nq\""[..], br"'\n"]);
        assert_eq!(args(br#""\xZZ""#), [&b"xZZ"[..]]);
        assert_eq!(args(br#""" ''"#), [&b""[..], b""]);
        assert_eq!(args(b"a\x0bb"), [&b"a\x0bb"[..]]);
        assert_eq!(args(b"a\0b"), [&b"a"[..]]);
        assert!(args(b" \t ").is_empty());
    }

    #[test]
    fn unbalanced_quotes() {
        for line in [&br#""a"#[..], b"'a", br#""a"b"#, b"'a'b", br#""a\""#, b"\"a\0\""] {
            assert_eq!(split(line), Err(Unbalanced), "{line:?}");
        }
    }
}
