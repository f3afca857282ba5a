//! The arguments of LMPOP and ZMPOP, and of their relatives that wait.

use super::args::{ArgResult, Args};
use crate::error::{ReplyError, SYNTAX};
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, KeySpec};
use bytes::Bytes;

/// Their keys, behind their number.
pub(crate) const TAKEN: &[KeySpec] =
    &[KeySpec { flags: &["RW", "access", "delete"], begin: 1, find: FindKeys::Keynum { step: 1 } }];

/// From where to take something.
pub(crate) struct Popped<'a, E> {
    pub(crate) keys: &'a [Bytes],
    pub(crate) end: E,
    /// How much at most.
    pub(crate) count: u64,
}

/// `numkeys key [key ...] end [COUNT count]`; `end` reads an end.
pub(crate) fn parse<'a, E>(
    args: &mut Args<'a>,
    end: impl FnOnce(&mut Args<'a>) -> ArgResult<E>,
) -> ArgResult<Popped<'a, E>> {
    let positive = |raw: &[u8]| parse_i64(raw).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let n = positive(args.next()?).ok_or(ReplyError::new("ERR numkeys should be greater than 0"))?;
    let keys = args.take(usize::try_from(n).unwrap_or(usize::MAX)).map_err(|_| SYNTAX)?;
    let end = end(args)?;
    let mut count = None;
    while !args.is_empty() {
        if count.is_some() || args.len() < 2 || !args.keyword("COUNT") {
            return Err(SYNTAX);
        }
        count = Some(positive(args.next()?).ok_or(ReplyError::new("ERR count should be greater than 0"))?);
    }
    Ok(Popped { keys, end, count: count.unwrap_or(1) })
}
