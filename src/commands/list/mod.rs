//! List commands. Those that wait have a file of their own.

mod moves;
mod waiting;

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::contents::{On, read_kept};
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{NO_SUCH_KEY, NOT_INTEGER, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::lifecycle::idempotency::MAX_REPLY;
use crate::server::reply::{Reply, Shape};
use crate::spec::words::parse_i64;
use crate::spec::{Count, Flags, Group, KEY_META, KEY_RO, KEY_RW, KEY_TAKEN, KeySpec, Makes, Row, one};
use crate::store::Read;
use crate::types::items::Items;
use crate::types::list::edit::{self, Inserted};
use crate::types::list::{self, End, Limit, ListRep};
use crate::types::object::{self, Slot};
use crate::types::prebuilt;
use bytes::Bytes;
pub(crate) use moves::COMMANDS as MOVES;
pub(crate) use waiting::COMMANDS as WAITING;

const READS: Flags = Flags::READONLY;
const GROWS: Flags = Flags::WRITE.or(Flags::DENYOOM);
const GROWS_FAST: Flags = GROWS.or(Flags::FAST);
const WRITES_FAST: Flags = Flags::WRITE.or(Flags::FAST);

const INSERTED: &[KeySpec] = &[one(&["RW", "insert"])];
const DELETED: &[KeySpec] = &[one(&["RW", "delete"])];

/// Approximate bytes of an element in memory, for [`Cx::light`].
const ROW: u64 = 64;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] =
    &[LINDEX, LINSERT, LLEN, LPOP, LPOS, LPUSH, LPUSHX, LRANGE, LREM, LSET, LTRIM, RPOP, RPUSH, RPUSHX];

fn limit(cx: &Cx<'_>) -> Limit {
    Limit::of(&cx.server.config.get())
}

/// Opens a key for a command that changes its list.
async fn open(s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
    object::open(s, key, Read::Serializable).await
}

const LPUSH: Command = Command::new(
    Row::new(Group::List, "lpush", -3, "1.0.0")
        .flags(GROWS_FAST)
        .keys(INSERTED)
        .syntax("key element [element ...]")
        .makes(Makes::PushedLeft)
        .summary("Puts elements before the first one of a list; creates it if the key does not exist."),
    handler!(lpush),
);

async fn lpush(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    push(cx, args, End::Left, false).await
}

const RPUSH: Command = Command::new(
    Row::new(Group::List, "rpush", -3, "1.0.0")
        .flags(GROWS_FAST)
        .keys(INSERTED)
        .syntax("key element [element ...]")
        .makes(Makes::PushedRight)
        .summary("Puts elements behind the last one of a list; creates it if the key does not exist."),
    handler!(rpush),
);

async fn rpush(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    push(cx, args, End::Right, false).await
}

const LPUSHX: Command = Command::new(
    Row::new(Group::List, "lpushx", -3, "2.2.0")
        .flags(GROWS_FAST)
        .keys(INSERTED)
        .syntax("key element [element ...]")
        .makes(Makes::PushedLeft)
        .summary("Puts elements before the first one of a list if the list exists."),
    handler!(lpushx),
);

async fn lpushx(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    push(cx, args, End::Left, true).await
}

const RPUSHX: Command = Command::new(
    Row::new(Group::List, "rpushx", -3, "2.2.0")
        .flags(GROWS_FAST)
        .keys(INSERTED)
        .syntax("key element [element ...]")
        .makes(Makes::PushedRight)
        .summary("Puts elements behind the last one of a list if the list exists."),
    handler!(rpushx),
);

async fn rpushx(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    push(cx, args, End::Right, true).await
}

/// The event of a push.
fn pushed(end: End) -> &'static str {
    match end {
        End::Left => "lpush",
        End::Right => "rpush",
    }
}

async fn push(cx: &Cx<'_>, mut args: Args<'_>, end: End, if_exists: bool) -> Result<Reply> {
    let (s, key) = (cx.scope()?, args.next()?);
    let mut slot = open(&s, key).await?;
    if slot.list()?.is_none() && if_exists {
        return Ok(Reply::Int(0));
    }
    let elements = args.rest();
    cx.light(elements.iter().map(|element| element.len() as u64 + ROW).sum())?;
    let len = match prebuilt::result(cx.prebuilt) {
        Some(built) => list::prebuild::put_changed(&s, &mut slot, built).await?,
        None => list::push(&s, &mut slot, limit(cx), end, elements).await?,
    };
    s.notify(Events::LIST, pushed(end), key);
    Ok(Reply::Int(len.cast_signed()))
}

const LPOP: Command = Command::new(
    Row::new(Group::List, "lpop", -2, "1.0.0")
        .flags(WRITES_FAST)
        .keys(KEY_TAKEN)
        .syntax("key [count]")
        .count(Count::Second)
        .summary("Removes the first elements of a list and returns them."),
    handler!(lpop),
);

async fn lpop(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop(cx, args, End::Left, "lpop").await
}

const RPOP: Command = Command::new(
    Row::new(Group::List, "rpop", -2, "1.0.0")
        .flags(WRITES_FAST)
        .keys(KEY_TAKEN)
        .syntax("key [count]")
        .count(Count::Second)
        .summary("Removes the last elements of a list and returns them."),
    handler!(rpop),
);

async fn rpop(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop(cx, args, End::Right, "rpop").await
}

/// The event of a pop.
fn popped(end: End) -> &'static str {
    match end {
        End::Left => "lpop",
        End::Right => "rpop",
    }
}

async fn pop(cx: &Cx<'_>, mut args: Args<'_>, end: End, name: &str) -> Result<Reply> {
    let key = args.next()?;
    let count = match args.rest() {
        [] => None,
        [count] => {
            let wrong = ReplyError::new("ERR value is out of range, must be positive");
            Some(parse_i64(count).and_then(|n| u64::try_from(n).ok()).ok_or(wrong)?)
        }
        _ => return Err(ReplyError::of(format!("ERR wrong number of arguments for '{name}' command")).into()),
    };
    let s = cx.scope()?;
    let mut slot = open(&s, key).await?;
    if slot.list()?.is_none() {
        return Ok(if count.is_some() { Reply::NilArray } else { Reply::Nil });
    }
    let elements = take(cx, &s, &mut slot, end, count.unwrap_or(1)).await?;
    Ok(match count {
        None => Reply::bulk_or_nil(elements.into_iter().next()),
        Some(_) => Reply::bulks(elements),
    })
}

/// Call this before a pop of `n` elements.
async fn weigh_at(cx: &Cx<'_>, s: &Scope<'_>, rep: Option<&ListRep>, end: End, n: u64) -> Result<()> {
    weigh(cx, rep, n)?;
    match rep {
        Some(rep) => cx.light(list::bytes_at(s, rep, end, n).await?),
        None => Ok(()),
    }
}

/// Removes elements from an end and publishes that.
async fn take(cx: &Cx<'_>, s: &Scope<'_>, slot: &mut Slot, end: End, count: u64) -> Result<Vec<Bytes>> {
    weigh_at(cx, s, slot.list()?, end, count).await?;
    let elements = list::pop(s, slot, limit(cx), end, count).await?;
    if !elements.is_empty() {
        s.notify(Events::LIST, popped(end), &slot.key);
        emptied(s, slot);
    }
    Ok(elements)
}

/// Publishes that the key has gone, if it has.
fn emptied(s: &Scope<'_>, slot: &Slot) {
    if !slot.exists() {
        s.notify(Events::GENERIC, "del", &slot.key);
    }
}

/// Call this before work on `n` elements of a list.
fn weigh(cx: &Cx<'_>, rep: Option<&ListRep>, n: u64) -> Result<()> {
    match rep {
        Some(ListRep::Rows { extent, .. }) => {
            let n = n.min(extent.len);
            cx.light((extent.bytes / extent.len.max(1)).saturating_add(ROW).saturating_mul(n))
        }
        Some(ListRep::Listpack(_)) | None => Ok(()),
    }
}

/// Call this before a command that walks through a list.
fn weigh_all(cx: &Cx<'_>, rep: Option<&ListRep>) -> Result<()> {
    weigh(cx, rep, u64::MAX)
}

const LLEN: Command = Command::new(
    Row::new(Group::List, "llen", 2, "1.0.0")
        .flags(READS.or(Flags::FAST))
        .keys(KEY_META)
        .syntax("key")
        .summary("Returns the length of a list."),
    handler!(llen),
);

async fn llen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    Ok(Reply::Int(list::len(slot.list()?)?.cast_signed()))
}

const LINDEX: Command = Command::new(
    Row::new(Group::List, "lindex", 3, "1.0.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key index")
        .summary("Returns an element of a list by its index."),
    handler!(lindex),
);

async fn lindex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    let Some(rep) = slot.list()? else { return Ok(Reply::Nil) };
    let Some(found) = list::find(&s, rep, args.int()?).await? else { return Ok(Reply::Nil) };
    cx.light(found.len())?;
    Ok(Reply::Bulk(found.read(&s).await?))
}

const LSET: Command = Command::new(
    Row::new(Group::List, "lset", 4, "1.0.0")
        .flags(GROWS)
        .keys(KEY_RW)
        .syntax("key index element")
        .makes(Makes::ElementSet)
        .summary("Replaces an element of a list by its index."),
    handler!(lset),
);

async fn lset(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (s, key) = (cx.scope()?, args.next()?);
    let mut slot = open(&s, key).await?;
    if slot.list()?.is_none() {
        return Err(NO_SUCH_KEY.into());
    }
    let (index, element) = (args.int()?, args.next()?);
    let found = match prebuilt::result(cx.prebuilt) {
        Some(built) => list::prebuild::put_changed(&s, &mut slot, built).await? > 0,
        None => list::set(&s, &mut slot, limit(cx), index, element).await?,
    };
    if !found {
        return Err(ReplyError::new("ERR index out of range").into());
    }
    s.notify(Events::LIST, "lset", key);
    Ok(Reply::Ok)
}

const LRANGE: Command = Command::new(
    Row::new(Group::List, "lrange", 4, "1.0.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key start stop")
        .summary("Returns elements of a list by their indices."),
    handler!(lrange),
);

async fn lrange(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (s, key) = (cx.scope()?, args.next()?);
    let asked = args.rest();
    let numbers = (args.int()?, args.int()?);
    let slot = cx.look_up(&s, key).await?;
    let rep = slot.list()?;
    if cx.may_stream
        && let Some(found) = list::stream::find(&s, &slot, numbers).await?
        && let Some(items) = Items::open(&s, &slot, found, cx.most_kept()).await?
    {
        return Ok(Reply::Items(items.into()));
    }
    weigh(cx, rep, list::count_in(rep, numbers)?)?;
    let most = if cx.may_stream { usize::MAX } else { MAX_REPLY };
    let read = list::packed(&s, rep, numbers, most);
    Ok(match read_kept(&s, &slot, (b"lrange", asked, On::Value), read).await? {
        Some(found) => Reply::Packed(Shape::Single, found),
        None => Reply::bulks(list::range(&s, rep, numbers, most).await?),
    })
}

const LINSERT: Command = Command::new(
    Row::new(Group::List, "linsert", 5, "2.2.0")
        .flags(GROWS)
        .keys(INSERTED)
        .syntax("key <where: BEFORE | AFTER> pivot element")
        .makes(Makes::Inserted)
        .summary("Inserts an element before or after another element of a list."),
    handler!(linsert),
);

async fn linsert(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let before = match () {
        () if args.keyword("BEFORE") => true,
        () if args.keyword("AFTER") => false,
        () => return Err(SYNTAX.into()),
    };
    let (pivot, element) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = open(&s, key).await?;
    weigh_all(cx, slot.list()?)?;
    let inserted = match prebuilt::result(cx.prebuilt) {
        Some(built) => Inserted::Length(list::prebuild::put_changed(&s, &mut slot, built).await?),
        None => edit::insert(&s, &mut slot, limit(cx), (before, pivot), element).await?,
    };
    Ok(Reply::Int(match inserted {
        Inserted::NoKey => 0,
        Inserted::NoPivot => -1,
        Inserted::Length(len) => {
            s.notify(Events::LIST, "linsert", key);
            len.cast_signed()
        }
    }))
}

const LREM: Command = Command::new(
    Row::new(Group::List, "lrem", 4, "1.0.0")
        .flags(Flags::WRITE)
        .keys(DELETED)
        .syntax("key count element")
        .makes(Makes::ElementsRemoved)
        .summary("Removes elements that are equal to a given one from a list."),
    handler!(lrem),
);

async fn lrem(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, count, element) = (args.next()?, not_lowest(args.int()?)?, args.next()?);
    let s = cx.scope()?;
    let mut slot = open(&s, key).await?;
    weigh_all(cx, slot.list()?)?;
    let removed = match prebuilt::result(cx.prebuilt) {
        Some(built) => {
            let before = list::len(slot.list()?)?;
            before - list::prebuild::put_changed(&s, &mut slot, built).await?
        }
        None => edit::remove(&s, &mut slot, limit(cx), count, element).await?,
    };
    if removed > 0 {
        s.notify(Events::LIST, "lrem", key);
        emptied(&s, &slot);
    }
    Ok(Reply::Int(removed.cast_signed()))
}

const LTRIM: Command = Command::new(
    Row::new(Group::List, "ltrim", 4, "1.0.0")
        .flags(Flags::WRITE)
        .keys(DELETED)
        .syntax("key start stop")
        .makes(Makes::Trimmed)
        .summary("Removes the elements of a list that are not in a range of indices."),
    handler!(ltrim),
);

async fn ltrim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, numbers) = (args.next()?, (args.int()?, args.int()?));
    let s = cx.scope()?;
    let mut slot = open(&s, key).await?;
    if slot.list()?.is_none() {
        return Ok(Reply::Ok);
    }
    match prebuilt::result(cx.prebuilt) {
        Some(built) => drop(list::prebuild::put_changed(&s, &mut slot, built).await?),
        None => {
            let kept = list::count_in(slot.list()?, numbers)?;
            let len = list::len(slot.list()?)?;
            weigh(cx, slot.list()?, kept.min(len - kept))?;
            edit::trim(&s, &mut slot, limit(cx), numbers).await?;
        }
    }
    s.notify(Events::LIST, "ltrim", key);
    emptied(&s, &slot);
    Ok(Reply::Ok)
}

const LPOS: Command = Command::new(
    Row::new(Group::List, "lpos", -3, "6.0.6")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key element [RANK rank] [COUNT num-matches] [MAXLEN len]")
        .summary("Returns the indices of elements that are equal to a given one."),
    handler!(lpos),
);

async fn lpos(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, element) = (args.next()?, args.next()?);
    let (mut rank, mut count, mut among) = (1, None, 0);
    while !args.is_empty() {
        let followed = args.len() > 1;
        match () {
            () if followed && args.keyword("RANK") => rank = rank_of(args.next()?)?,
            () if followed && args.keyword("COUNT") => {
                count = Some(not_negative(args.next()?, "ERR COUNT can't be negative")?);
            }
            () if followed && args.keyword("MAXLEN") => {
                among = not_negative(args.next()?, "ERR MAXLEN can't be negative")?;
            }
            () => return Err(SYNTAX.into()),
        }
    }
    let s = cx.scope()?;
    let slot = cx.look_up(&s, key).await?;
    weigh_all(cx, slot.list()?)?;
    let found = edit::positions(&s, slot.list()?, element, (rank, count.unwrap_or(1), among)).await?;
    let mut found = found.into_iter().map(|index| Reply::Int(index.cast_signed()));
    Ok(match count {
        Some(_) => Reply::Array(found.collect()),
        None => found.next().unwrap_or(Reply::Nil),
    })
}

fn rank_of(raw: &[u8]) -> Result<i64> {
    match parse_i64(raw).ok_or(NOT_INTEGER)? {
        0 => Err(ReplyError::new(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to \
             start from the end of the list",
        )
        .into()),
        rank => not_lowest(rank),
    }
}

/// Refuses the only number whose opposite is none.
fn not_lowest(n: i64) -> Result<i64> {
    match n {
        i64::MIN => Err(ReplyError::new(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )
        .into()),
        n => Ok(n),
    }
}

fn not_negative(raw: &[u8], wrong: &'static str) -> Result<u64> {
    Ok(parse_i64(raw).and_then(|n| u64::try_from(n).ok()).ok_or(ReplyError::new(wrong))?)
}
