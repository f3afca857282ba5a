//! Keeps damaged lines from doing harm, and from what versions of Redis do not agree about.

use crate::generate::Argv;

/// A damaged line must not stop the oracle, make it close idle connections, or request everything that it
/// has.
pub fn harmless(argv: &mut Argv) {
    let stops = |words: &[Vec<u8>]| !words.iter().any(|w| w.eq_ignore_ascii_case(b"ABORT") || w == b"foo");
    match argv[0].as_slice() {
        b"SHUTDOWN" if stops(argv) => argv.push(b"foo".to_vec()),
        b"CONFIG" => argv.iter_mut().skip(1).for_each(|arg| match arg.as_slice() {
            b"1" | b"2" => *arg = b"0".to_vec(),
            b"*" => *arg = b"nosuch*".to_vec(),
            _ => {}
        }),
        b"BLPOP" | b"BRPOP" | b"BLMOVE" | b"BRPOPLPUSH" | b"BZPOPMIN" | b"BZPOPMAX" => {
            argv.iter_mut().skip(1).last().into_iter().for_each(briefly)
        }
        b"BLMPOP" | b"BZMPOP" => argv.iter_mut().skip(1).take(1).for_each(briefly),
        // Since 7.2.
        b"ZRANK" | b"ZREVRANK" => argv.truncate(3),
        b"ZCOUNT" | b"ZRANGE" | b"ZRANGEBYSCORE" | b"ZREVRANGEBYSCORE" | b"ZREMRANGEBYSCORE" => {
            argv.iter_mut().skip(2).for_each(decimal)
        }
        b"ZRANGESTORE" => argv.iter_mut().skip(3).for_each(decimal),
        // Refused by 7.0 alone: see `NEWER` in `table.rs`.
        b"COMMAND" if argv.len() == 3 && argv[1].starts_with(b"GETKEYS") => argv.push(b"a".to_vec()),
        b"COMMAND" => argv.iter_mut().skip(2).filter(|arg| *arg == b"*").for_each(|arg| arg.push(b'x')),
        _ => {}
    }
}

/// A time that a command may wait. (7.0 calls one that is out of range negative.)
fn briefly(timeout: &mut Vec<u8>) {
    if ![b"x" as &[u8], b"-1", b"abc", b""].contains(&&timeout[..]) {
        *timeout = b"0.001".to_vec();
    }
}

/// An end of a range that all versions read: 7.0 takes the empty word, what follows a NUL, space in front and
/// hexadecimal digits for numbers or their end, later versions do not.
fn decimal(end: &mut Vec<u8>) {
    let number = end.strip_prefix(b"(").unwrap_or(end);
    let is_odd = number.contains(&0) || number.starts_with(b"0x");
    if number.is_empty() || number[0].is_ascii_whitespace() || is_odd {
        *end = b"0".to_vec();
    }
}

/// A damaged line must not give a key an expiry that passes during the test.
pub fn far_expiry(argv: &mut Argv) {
    let timed: &[&[u8]] = &[b"SET", b"GETEX", b"SETEX", b"PSETEX", b"EXPIRE", b"PEXPIRE", b"RESTORE"];
    if !timed.contains(&argv[0].as_slice()) {
        return;
    }
    for arg in argv.iter_mut().skip(2) {
        let near = std::str::from_utf8(arg).ok().and_then(|s| s.parse::<i64>().ok());
        if near.is_some_and(|n| (1..10_000).contains(&n)) {
            *arg = b"0".to_vec();
        }
    }
}
