//! SORT and SORT_RO of sets: by number, by bytes, by what other keys hold.
//!
//! STORE is refused: what it makes is a list. `->` in a pattern names a field of a hash, and there are none, so such a
//! weight or value is missing. Bytes are compared as they are, in no language's order.

use super::args::{ArgResult, Args};
use super::cx::Cx;
use super::float;
use super::reply::Reply;
use super::table::{self, FindKeys, Flags, Group, KeySpec, Row, one};
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::types::{set, string};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::cmp::Ordering;

const SORTED: KeySpec = one(&["RO", "access"]);
const PATTERNS: KeySpec = KeySpec { flags: &["RO", "access"], begin: 1, find: FindKeys::Unknown };
const STORED: KeySpec = KeySpec { flags: &["OW", "update"], begin: 1, find: FindKeys::Stored };

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "sort",
        arity: -2,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::MOVABLEKEYS).or(Flags::HEAVY),
        keys: &[SORTED, PATTERNS, STORED],
        group: Group::Generic,
        since: "1.0.0",
        syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] [STORE destination]",
        summary: "Returns the members of a set in order. STORE, which makes a list, is refused.",
        run: handler!(sort),
        subs: &[],
    },
    Row {
        name: "sort_ro",
        arity: -2,
        flags: Flags::READONLY.or(Flags::MOVABLEKEYS).or(Flags::HEAVY),
        keys: &[SORTED, PATTERNS],
        group: Group::Generic,
        since: "7.0.0",
        syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
        summary: "Returns the members of a set in order.",
        run: handler!(sort_ro),
        subs: &[],
    },
];

const NO_LISTS: ReplyError =
    ReplyError::new("ERR SORT with STORE makes a list: this server has strings and sets only");
const NO_NUMBER: ReplyError = ReplyError::new("ERR One or more scores can't be converted into double");
const NO_BY: ReplyError =
    ReplyError::new("ERR BY option of SORT denied due to insufficient ACL permissions.");
const NO_GET: ReplyError =
    ReplyError::new("ERR GET option of SORT denied due to insufficient ACL permissions.");
/// Keys read at once.
const AT_ONCE: usize = 256;

#[derive(Debug, Default)]
struct Options<'a> {
    by: Option<&'a Bytes>,
    /// BY with a pattern that names no key of a member.
    unsorted: bool,
    descending: bool,
    alpha: bool,
    limit: Option<(i64, i64)>,
    get: Vec<&'a Bytes>,
    store: bool,
}

impl<'a> Options<'a> {
    fn parse(mut args: Args<'a>, may_store: bool) -> ArgResult<Self> {
        let mut options = Options::default();
        while !args.is_empty() {
            let followed = args.len() - 1;
            if args.keyword("ASC") {
                options.descending = false;
            } else if args.keyword("DESC") {
                options.descending = true;
            } else if args.keyword("ALPHA") {
                options.alpha = true;
            } else if followed >= 2 && args.keyword("LIMIT") {
                options.limit = Some((args.int()?, args.int()?));
            } else if followed >= 1 && may_store && args.keyword("STORE") {
                args.next()?;
                options.store = true;
            } else if followed >= 1 && args.keyword("BY") {
                let pattern = args.next()?;
                options.by = Some(pattern);
                options.unsorted |= !pattern.contains(&b'*');
            } else if followed >= 1 && args.keyword("GET") {
                options.get.push(args.next()?);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    /// The part of `all` that LIMIT asks for.
    fn limited<'m, T>(&self, all: &'m [T]) -> &'m [T] {
        let (offset, count) = self.limit.unwrap_or((0, -1));
        let rest = all.get(offset.clamp(0, all.len() as i64) as usize..).unwrap_or_default();
        let count = usize::try_from(count).unwrap_or(rest.len()).min(rest.len());
        rest.get(..count).unwrap_or_default()
    }
}

async fn sort(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    sorted(cx, args, true).await
}

async fn sort_ro(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    sorted(cx, args, false).await
}

async fn sorted(cx: &Cx<'_>, mut args: Args<'_>, may_store: bool) -> Result<Reply> {
    let key = args.next()?;
    let options = Options::parse(args, may_store)?;
    check_patterns(cx, &options, if may_store { "sort" } else { "sort_ro" })?;
    let s = cx.scope()?;
    let slot = cx.look_up(&s, key).await?;
    let rep = slot.set()?;
    if options.store {
        return Err(NO_LISTS.into());
    }
    let mut members = set::members(&s, rep).await?;
    if !options.unsorted {
        members = in_order(cx, &s, members, &options).await?;
    }
    let members = options.limited(&members);
    if options.get.is_empty() {
        return Ok(Reply::bulks(members.iter().cloned()));
    }
    let wanted = members.iter().flat_map(|member| options.get.iter().map(move |get| (*get, member)));
    let found = values(cx, &s, &wanted.collect::<Vec<_>>()).await?;
    Ok(Reply::Array(found.into_iter().map(Reply::bulk_or_nil).collect()))
}

/// BY and GET may name any key, so they need the right to read all.
fn check_patterns(cx: &Cx<'_>, options: &Options<'_>, name: &str) -> ArgResult<()> {
    let by = options.by.is_some_and(|pattern| pattern.contains(&b'*'));
    let user = cx.server.acl.get(&cx.client.user);
    let may =
        || table::lookup(name.as_bytes()).is_some_and(|row| user.is_some_and(|u| u.reads_all_keys(row, 1)));
    match () {
        () if !by && options.get.is_empty() || may() => Ok(()),
        () if by => Err(NO_BY),
        () => Err(NO_GET),
    }
}

async fn in_order(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    members: Vec<Bytes>,
    options: &Options<'_>,
) -> Result<Vec<Bytes>> {
    let weights = match options.by {
        Some(by) => values(cx, s, &members.iter().map(|m| (by, m)).collect::<Vec<_>>()).await?,
        None => members.iter().cloned().map(Some).collect(),
    };
    let turn = |order: Ordering| if options.descending { order.reverse() } else { order };
    if options.alpha {
        let mut all: Vec<_> = weights.into_iter().zip(members).collect();
        all.sort_by(|(a, _), (b, _)| turn(a.cmp(b)));
        return Ok(all.into_iter().map(|(_, member)| member).collect());
    }
    let scores = weights.iter().map(|weight| weight.as_ref().map_or(Some(0.0), |raw| score(raw)));
    let scores: Vec<f64> = scores.collect::<Option<_>>().ok_or(NO_NUMBER)?;
    let mut all: Vec<_> = scores.into_iter().zip(members).collect();
    all.sort_by(|(x, a), (y, b)| turn(x.partial_cmp(y).unwrap_or(Ordering::Equal).then_with(|| a.cmp(b))));
    Ok(all.into_iter().map(|(_, member)| member).collect())
}

/// What C's `strtod` makes of a text up to its first zero byte, if all of it is a number that a double holds.
fn score(raw: &[u8]) -> Option<f64> {
    let text = raw.split(|b| *b == 0).next()?.trim_ascii_start();
    if text.is_empty() {
        return (raw.first().is_none_or(|b| *b == 0)).then_some(0.0);
    }
    let (sign, unsigned) = match text {
        [b'-', rest @ ..] => (-1.0, rest),
        [b'+', rest @ ..] => (1.0, rest),
        rest => (1.0, rest),
    };
    if let [b'0', b'x' | b'X', hex @ ..] = unsigned {
        return float::parse_hex_double(hex).map(|number| sign * number);
    }
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok()?;
    let named = text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
    (!number.is_nan() && (number.is_finite() || named)).then_some(number)
}

/// What the patterns name for the members: `#` the member itself, else the string under the key that the pattern is with
/// the member in the place of its first `*`.
async fn values(cx: &Cx<'_>, s: &Scope<'_>, wanted: &[(&Bytes, &Bytes)]) -> Result<Vec<Option<Bytes>>> {
    let mut found = Vec::with_capacity(wanted.len());
    for some in wanted.chunks(AT_ONCE) {
        found.extend(try_join_all(some.iter().map(|(pattern, member)| value(cx, s, pattern, member))).await?);
    }
    Ok(found)
}

async fn value(cx: &Cx<'_>, s: &Scope<'_>, pattern: &Bytes, member: &Bytes) -> Result<Option<Bytes>> {
    if pattern.as_ref() == b"#" {
        return Ok(Some(member.clone()));
    }
    let Some((before, after)) =
        pattern.iter().position(|b| *b == b'*').and_then(|at| pattern.split_at_checked(at))
    else {
        return Ok(None);
    };
    let after = after.get(1..).unwrap_or_default();
    let arrow = after.windows(2).position(|two| two == b"->").filter(|at| at + 2 < after.len());
    let name = after.get(..arrow.unwrap_or(after.len())).unwrap_or_default();
    let slot = cx.look_up(s, &Bytes::from([before, member, name].concat())).await?;
    match slot.string() {
        Ok(Some(value)) if arrow.is_none() => string::read(s, value).await.map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_as_c_does() {
        for (raw, number) in
            [("", 0.0), ("1", 1.0), (" 7", 7.0), ("-1.5e2", -150.0), ("+3", 3.0), ("inf", f64::INFINITY)]
        {
            assert_eq!(score(raw.as_bytes()), Some(number), "{raw}");
        }
        for (raw, number) in [("0x10", 16.0), (" -0X1p-1", -0.5), ("+0x.8", 0.5), ("0x0", 0.0)] {
            assert_eq!(score(raw.as_bytes()), Some(number), "{raw}");
        }
        for raw in ["a", "1 ", "nan", "1e400", "1x", " ", "0x", "0xg", "0x1p", "0x1p9999", "--0x1"] {
            assert_eq!(score(raw.as_bytes()), None, "{raw}");
        }
        assert_eq!(score(b"\x00abc"), Some(0.0));
    }

    #[test]
    fn limits() {
        let of = |limit| Options { limit, ..Options::default() }.limited(&[1, 2, 3]).to_vec();
        assert_eq!(of(None), [1, 2, 3]);
        assert_eq!(of(Some((1, 1))), [2]);
        assert_eq!(of(Some((-5, 2))), [1, 2]);
        assert_eq!(of(Some((1, -1))), [2, 3]);
        assert_eq!(of(Some((9, 9))), [] as [i32; 0]);
        assert_eq!(of(Some((0, 0))), [] as [i32; 0]);
    }
}
