//! SORT and SORT_RO of sets and lists: by number, by bytes, or by the values of other keys.
//!
//! A pattern `key->field` names a field of a hash. Bytes are compared as they are, without a locale.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::float;
use crate::config::Events;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::keyspace::keys::MAX_REDIS_KEY;
use crate::server::reply::Reply;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Row, one};
use crate::store::Read;
use crate::types::list::{Limit, ListRep};
use crate::types::object::{self, Slot};
use crate::types::zset::{self, Pick, Places, ZsetRep};
use crate::types::{Value, hash, list, set, string};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicUsize, Ordering as AtomicOrdering};
use tokio::task::yield_now;

const SORTED: KeySpec = one(&["RO", "access"]);
const PATTERNS: KeySpec = KeySpec { flags: &["RO", "access"], begin: 1, find: FindKeys::Unknown };
const STORED: KeySpec = KeySpec { flags: &["OW", "update"], begin: 1, find: FindKeys::Stored };

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[SORT, SORT_RO];

const TOO_MANY: ReplyError = ReplyError::new(
    "ERR the result of GET would take more memory than proto-max-bulk-len: request fewer elements",
);
const TOO_MUCH: ReplyError =
    ReplyError::new("ERR the values that BY or GET reads exceed proto-max-bulk-len in total");
const NO_NUMBER: ReplyError = ReplyError::new("ERR One or more scores can't be converted into double");
const NO_BY: ReplyError =
    ReplyError::new("ERR BY option of SORT denied due to insufficient ACL permissions.");
const NO_GET: ReplyError =
    ReplyError::new("ERR GET option of SORT denied due to insufficient ACL permissions.");
/// Elements that are sorted, or merged, before other tasks run: about a millisecond.
const STEP: usize = 2048;
/// The most bytes of a pattern that may name a key and its field.
const LONGEST_PATTERN: usize = 2 * MAX_REDIS_KEY;
/// Keys read concurrently.
const AT_ONCE: usize = 256;

#[derive(Debug, Default)]
struct SortOptions<'a> {
    by: Option<&'a Bytes>,
    /// BY with a pattern that does not depend on the member.
    unsorted: bool,
    descending: bool,
    alpha: bool,
    limit: Option<(i64, i64)>,
    get: Vec<&'a Bytes>,
    store: Option<&'a Bytes>,
}

impl<'a> SortOptions<'a> {
    fn parse(mut args: Args<'a>, may_store: bool) -> ArgResult<Self> {
        let mut options = SortOptions::default();
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
                options.store = Some(args.next()?);
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

    /// The part of `len` elements that LIMIT selects.
    fn range(&self, len: u64) -> std::ops::Range<u64> {
        let (offset, count) = self.limit.unwrap_or((0, -1));
        let start = u64::try_from(offset).unwrap_or(0).min(len);
        start..start + u64::try_from(count).unwrap_or(len).min(len - start)
    }
}

const SORT: Command = Command::new(
    Row::new(Group::Generic, "sort", -2, "1.0.0")
        .flags(Flags::WRITE.or(Flags::DENYOOM).or(Flags::MOVABLEKEYS).or(Flags::HEAVY))
        .keys(&[SORTED, PATTERNS, STORED])
        .syntax(
            "key [BY by-pattern] [LIMIT offset count] [GET get-pattern [GET get-pattern ...]] \
             [order: ASC | DESC] [sorting: ALPHA] [STORE destination]",
        )
        .summary("Returns the elements of a set, a list or a sorted set in order, or stores them.")
        .categories(&["set", "sortedset", "list", "dangerous"]),
    handler!(sort),
);

async fn sort(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    sorted(cx, args, true).await
}

const SORT_RO: Command = Command::new(
    Row::new(Group::Generic, "sort_ro", -2, "7.0.0")
        .flags(Flags::READONLY.or(Flags::MOVABLEKEYS).or(Flags::HEAVY))
        .keys(&[SORTED, PATTERNS])
        .syntax(
            "key [BY by-pattern] [LIMIT offset count] [GET get-pattern [GET get-pattern ...]] \
             [order: ASC | DESC] [sorting: ALPHA]",
        )
        .summary("Returns the elements of a set, a list or a sorted set in order.")
        .categories(&["set", "sortedset", "list", "dangerous"]),
    handler!(sort_ro),
);

async fn sort_ro(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    sorted(cx, args, false).await
}

async fn sorted(cx: &Cx<'_>, mut args: Args<'_>, may_store: bool) -> Result<Reply> {
    let key = args.next()?;
    let mut options = SortOptions::parse(args, may_store)?;
    check_patterns(cx, &options, if may_store { "sort" } else { "sort_ro" })?;
    let s = cx.scope()?;
    let slot = cx.look_up(&s, key).await?;
    let mut members = match (slot.list(), slot.zset()) {
        (Ok(Some(rep)), _) => elements(cx, &s, rep, &mut options).await?,
        (_, Ok(Some(rep))) => ranked(cx, &s, rep, &mut options).await?,
        _ => {
            let members = set::members(&s, slot.set()?).await?;
            if (options.store.is_some() || cx.client.in_script) && options.unsorted {
                // A set has no order to store, nor one that a script may rely on.
                (options.unsorted, options.alpha, options.by) = (false, true, None);
            }
            members
        }
    };
    if !options.unsorted {
        members = in_order(cx, &s, members, &options).await?;
    }
    let range = options.range(members.len() as u64);
    let members = members.get(range.start as usize..range.end as usize).unwrap_or_default();
    if options.get.is_empty() {
        return match options.store {
            Some(target) => store(cx, &s, target, members).await,
            None => Ok(Reply::bulks(members.iter().cloned())),
        };
    }
    let count = members.len().saturating_mul(options.get.len());
    if count.saturating_mul(size_of::<Reply>()) > cx.server.config.get().proto_max_bulk_len {
        return Err(TOO_MANY.into());
    }
    let (mut found, mut stored) = (Vec::with_capacity(count), Vec::new());
    let (gets, bytes) = (options.get.as_slice(), AtomicUsize::new(0));
    for some in members.chunks((AT_ONCE / gets.len()).max(1)) {
        for gets in gets.chunks(AT_ONCE) {
            let wanted: Vec<_> = some.iter().flat_map(|m| gets.iter().map(move |get| (*get, m))).collect();
            if options.store.is_some() {
                stored.extend(
                    values(cx, &s, &wanted, &bytes).await?.into_iter().map(Option::unwrap_or_default),
                );
                continue;
            }
            found.extend(
                try_join_all(wanted.iter().map(|(pattern, m)| got(cx, &s, pattern, m, &bytes))).await?,
            );
        }
    }
    match options.store {
        Some(target) => store(cx, &s, target, &stored).await,
        None => Ok(Reply::Array(found)),
    }
}

/// The elements of a list in their order. If they are not to be sorted: as DESC asks, and only those that LIMIT
/// selects.
async fn elements(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    rep: &ListRep,
    options: &mut SortOptions<'_>,
) -> Result<Vec<Bytes>> {
    let (most, len) = (cx.server.config.get().proto_max_bulk_len, list::len(Some(rep))?);
    let mut range = 0..len;
    if options.unsorted {
        range = options.range(len);
        options.limit = None;
        if options.descending {
            range = len - range.end..len - range.start;
        }
    }
    let mut elements = list::slice(s, rep, range, most).await?;
    if options.unsorted && options.descending {
        elements.reverse();
    }
    Ok(elements)
}

/// The members of a sorted set by their scores. If they are not to be sorted: as DESC asks, and only those that
/// LIMIT selects.
async fn ranked(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    rep: &ZsetRep,
    options: &mut SortOptions<'_>,
) -> Result<Vec<Bytes>> {
    let mut pick = Pick::ALL;
    if options.unsorted {
        let range = options.range(zset::len(s, Some(rep), Read::Serializable).await?);
        options.limit = None;
        pick = Pick {
            reverse: options.descending,
            skip: range.start,
            limit: range.end.saturating_sub(range.start),
        };
    }
    let most = cx.server.config.get().proto_max_bulk_len;
    let entries = zset::range(s, Some(rep), &Places::all(), pick, most).await?;
    Ok(entries.into_iter().map(|(member, _)| member).collect())
}

/// Makes the key hold a list of these elements; without any it goes.
async fn store(cx: &Cx<'_>, s: &Scope<'_>, key: &Bytes, elements: &[Bytes]) -> Result<Reply> {
    let mut slot = object::open(s, key, Read::Serializable).await?;
    if elements.is_empty() {
        if slot.exists() {
            object::remove(s, &mut slot)?;
            s.notify(Events::GENERIC, "del", key);
        }
        return Ok(Reply::Int(0));
    }
    let list = list::of(s, Limit::of(&cx.server.config.get()), elements).await?;
    object::put(s, &mut slot, Value::List(list), None)?;
    s.notify(Events::LIST, "sortstore", key);
    Ok(Reply::Int(elements.len() as i64))
}

/// BY and GET may name any key, so they require permission to read all keys.
fn check_patterns(cx: &Cx<'_>, options: &SortOptions<'_>, name: &str) -> ArgResult<()> {
    let by = options.by.is_some_and(|pattern| pattern.contains(&b'*'));
    let user = cx.server.acl.get(&cx.client.user);
    let may = || {
        cx.server
            .table
            .lookup(name.as_bytes())
            .is_some_and(|row| user.is_some_and(|u| u.reads_all_keys(row, 1)))
    };
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
    options: &SortOptions<'_>,
) -> Result<Vec<Bytes>> {
    let turn = |order: Ordering| if options.descending { order.reverse() } else { order };
    let weights = match options.by {
        Some(by) => {
            let wanted: Vec<_> = members.iter().map(|m| (by, m)).collect();
            values(cx, s, &wanted, &AtomicUsize::new(0)).await?
        }
        None if options.alpha => return Ok(in_steps(members, |a, b| turn(a.cmp(b))).await),
        None => members.iter().cloned().map(Some).collect(),
    };
    if options.alpha {
        let all = weights.into_iter().zip(members).collect();
        return Ok(firsts(in_steps(all, |(a, _): &(Option<Bytes>, _), (b, _)| turn(a.cmp(b))).await));
    }
    let mut all = Vec::with_capacity(members.len());
    for (weight, member) in weights.into_iter().zip(members) {
        all.push((weight.map_or(Some(0.0), |raw| score(&raw)).ok_or(NO_NUMBER)?, member));
        if all.len().is_multiple_of(STEP) {
            yield_now().await;
        }
    }
    let order = |(x, a): &(f64, Bytes), (y, b): &(f64, Bytes)| {
        turn(x.partial_cmp(y).unwrap_or(Ordering::Equal).then_with(|| a.cmp(b)))
    };
    Ok(firsts(in_steps(all, order).await))
}

fn firsts<W>(all: Vec<(W, Bytes)>) -> Vec<Bytes> {
    all.into_iter().map(|(_, member)| member).collect()
}

/// Sorts, yielding to other tasks every [`STEP`] elements. The sort is stable.
async fn in_steps<T>(all: Vec<T>, order: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    let (mut rest, mut runs) = (all.into_iter(), Vec::new());
    while rest.len() > 0 {
        let mut run: Vec<T> = rest.by_ref().take(STEP).collect();
        run.sort_by(&order);
        runs.push(run);
        yield_now().await;
    }
    while runs.len() > 1 {
        let mut round = runs.into_iter();
        let mut longer = Vec::with_capacity(round.len().div_ceil(2));
        while let Some(first) = round.next() {
            longer.push(match round.next() {
                Some(second) => merged(first, second, &order).await,
                None => first,
            });
        }
        runs = longer;
    }
    runs.pop().unwrap_or_default()
}

async fn merged<T>(a: Vec<T>, b: Vec<T>, order: &impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    let mut all = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        all.extend(if order(x, y) == Ordering::Greater { b.next() } else { a.next() });
        if all.len().is_multiple_of(STEP) {
            yield_now().await;
        }
    }
    all.extend(a);
    all.extend(b);
    all
}

/// The result of C's `strtod` on the text up to its first zero byte, if all of it is a number that a double
/// can hold.
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

/// The values that patterns name for members. All are held in memory, so their size is bounded. `bytes`: the total of
/// all strings so far.
async fn values(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    wanted: &[(&Bytes, &Bytes)],
    bytes: &AtomicUsize,
) -> Result<Vec<Option<Bytes>>> {
    let mut found = Vec::with_capacity(wanted.len());
    for some in wanted.chunks(AT_ONCE) {
        let some = some.iter().map(|(pattern, member)| value(cx, s, pattern, member, bytes));
        found.extend(try_join_all(some).await?);
    }
    Ok(found)
}

async fn value(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    pattern: &Bytes,
    member: &Bytes,
    bytes: &AtomicUsize,
) -> Result<Option<Bytes>> {
    if pattern.as_ref() == b"#" {
        return Ok(Some(member.clone()));
    }
    let Some((slot, field)) = named(cx, s, pattern, member).await? else { return Ok(None) };
    if let Some(field) = field {
        return field_value(cx, s, &slot, &field, bytes).await;
    }
    let Ok(Some(value)) = slot.string() else { return Ok(None) };
    within(cx, bytes, string::len(value))?;
    string::read(s, value).await.map(Some)
}

/// The value of a field; None if the key holds no hash.
async fn field_value(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    slot: &Slot,
    field: &Bytes,
    bytes: &AtomicUsize,
) -> Result<Option<Bytes>> {
    let Ok(Some(rep)) = slot.hash() else { return Ok(None) };
    let Some(found) = hash::find(s, Some(rep), field).await? else { return Ok(None) };
    within(cx, bytes, found.len())?;
    found.read(s).await.map(Some)
}

/// Adds `len` to the `bytes` that are held in memory, and fails if they are too many.
fn within(cx: &Cx<'_>, bytes: &AtomicUsize, len: u64) -> Result<()> {
    let len = len as usize;
    if bytes.fetch_add(len, AtomicOrdering::Relaxed) + len > cx.server.config.get().proto_max_bulk_len {
        return Err(TOO_MUCH.into());
    }
    Ok(())
}

/// The value that GET reads for a member.
async fn got(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    pattern: &Bytes,
    member: &Bytes,
    bytes: &AtomicUsize,
) -> Result<Reply> {
    if pattern.as_ref() == b"#" {
        return Ok(Reply::Bulk(member.clone()));
    }
    match named(cx, s, pattern, member).await? {
        Some((slot, Some(field))) => field_value(cx, s, &slot, &field, bytes).await.map(Reply::bulk_or_nil),
        Some((slot, None)) if slot.string().is_ok() => cx.bulk(s, &slot).await,
        _ => Ok(Reply::Nil),
    }
}

/// The key that results from replacing the pattern's first `*` by the member, and the field that the pattern
/// names behind `->`. None if it has no `*`.
async fn named(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    pattern: &Bytes,
    member: &Bytes,
) -> Result<Option<(Slot, Option<Bytes>)>> {
    // No key has such a long name, and searching the pattern for each member would take long.
    if pattern.len() > LONGEST_PATTERN {
        return Ok(None);
    }
    let Some((before, after)) =
        pattern.iter().position(|b| *b == b'*').and_then(|at| pattern.split_at_checked(at))
    else {
        return Ok(None);
    };
    let after = after.get(1..).unwrap_or_default();
    let arrow = after.windows(2).position(|two| two == b"->").filter(|at| at + 2 < after.len());
    let name = after.get(..arrow.unwrap_or(after.len())).unwrap_or_default();
    let field = arrow.and_then(|at| after.get(at + 2..)).map(|field| pattern.slice_ref(field));
    let slot = cx.look_up_members(s, &Bytes::from([before, member, name].concat())).await?;
    Ok(Some((slot, field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn steps_sort_as_one_sort_does() {
        for len in [0, 1, 2, STEP - 1, STEP, STEP + 1, 3 * STEP, 7 * STEP + 5, 8 * STEP] {
            // The sort is stable.
            let all: Vec<(usize, usize)> = (0..len).map(|n| (n * 7_919 % 1009, n)).collect();
            let mut want = all.clone();
            want.sort_by(|(a, _), (b, _)| b.cmp(a));
            assert!(in_steps(all, |(a, _), (b, _)| b.cmp(a)).await == want, "{len}");
        }
    }

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
        let of = |limit| SortOptions { limit, ..SortOptions::default() }.range(3);
        assert_eq!(of(None), 0..3);
        assert_eq!(of(Some((1, 1))), 1..2);
        assert_eq!(of(Some((-5, 2))), 0..2);
        assert_eq!(of(Some((1, -1))), 1..3);
        assert_eq!(of(Some((9, 9))), 3..3);
        assert_eq!(of(Some((0, 0))), 0..0);
        assert_eq!(of(Some((2, i64::MAX))), 2..3);
    }
}
