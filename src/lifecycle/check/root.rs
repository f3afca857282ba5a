//! Checks the rows of the whole store: allocator, databases, dictionary, servers, garbage, idempotency
//! records.

use super::idempotency::{self, Sizes};
use super::{Checker, Database, scripts};
use crate::error::StoreResult;
use crate::keyspace::catalog::Place;
use crate::keyspace::cluster::instances::Instance;
use crate::keyspace::dictionary::collector::{self, State};
use crate::keyspace::dictionary::forward::ids_of_row;
use crate::keyspace::dictionary::ids::{BLOCK, FIRST_INTEGER, MAX_MEMBER, integer_id};
use crate::keyspace::dictionary::known::KnownIds;
use crate::keyspace::dictionary::members;
use crate::keyspace::keys::{MAX_INLINE_MEMBER, Prefix, root, root::Garbage};
use crate::keyspace::secret::Secret;
use crate::store::{RangeOptions, key_after, prefix_end};
use crate::types::audit::{AuditView, Findings, Problem};
use bytes::Bytes;
use parking_lot::Mutex;

/// The number of blocks of ids in a shard.
const BLOCKS: u64 = 1 << 38;
const ONE: RangeOptions = RangeOptions { limit: 1, bytes: 0, reverse: false };
const ALL: RangeOptions = RangeOptions { limit: 0, bytes: 0, reverse: false };

/// Checks all rows in front of the databases' rows.
pub(super) async fn walk(checker: &mut Checker<'_>) -> StoreResult<()> {
    let mut sizes = Sizes::default();
    let mut name = |key: &Bytes, value: &Bytes| match key.first() {
        Some(b'b') => "rows of ids",
        Some(b'e') => "rows of the dictionary's collector",
        Some(b'f') => "members",
        Some(b'g') => "garbage rows",
        Some(b't') => "idempotency records and their pieces",
        Some(b'u') => {
            sizes.add(key, value);
            "ages of idempotency records"
        }
        _ => "other rows",
    };
    checker.check_range((Vec::new(), vec![0x80]), &mut name, row).await?;
    idempotency::sizes(checker, sizes).await
}

/// The databases in a view.
pub(super) async fn databases(view: &AuditView) -> StoreResult<Vec<Database>> {
    let rows = view.page(b"d", b"e", ALL).await?;
    let one = |(key, value): &(Bytes, Bytes)| Some((*key.get(1)?, Place::decode(value)?.prefix));
    Ok(rows.pairs.iter().filter_map(one).collect())
}

/// Checks that every prefix with rows below it belongs to a database, or belonged to one and is garbage.
pub(super) async fn walk_prefixes(checker: &mut Checker<'_>) -> StoreResult<()> {
    let mut at = vec![0x80];
    loop {
        let view = checker.view().await?;
        let page = view.page(&at, &[0xff], ONE).await?;
        let Some((row, _)) = page.pairs.first() else { return Ok(()) };
        let Some(prefix) = Prefix::of_row(row) else {
            checker.add_problems([Problem::new(row, "a row under no valid database prefix")]);
            at = key_after(row);
            continue;
        };
        let live = databases(&view).await?.iter().any(|(_, p)| *p == prefix);
        if !live && view.get(&root::garbage(Garbage::Database(prefix))).await?.is_none() {
            checker.add_problems([Problem::new(
                row,
                "rows of a database that does not exist and is not listed as garbage: they are never removed",
            )]);
        }
        at = prefix_end(prefix.as_bytes());
    }
}

async fn row(view: &AuditView, known: &Mutex<KnownIds>, key: &Bytes, value: &Bytes) -> Findings {
    let problem = match key.first() {
        Some(b'a') => sized(key, 5, value, 8, "a window of the allocator"),
        Some(b'r') => sized(key, 5, value, 0, "a number of the allocator"),
        Some(b'd') => database(view, key, value).await?,
        Some(b'q') => lease(key, value),
        Some(b'b') => return members_row(view, known, key, value).await,
        Some(b'e') => collectors(key, value),
        Some(b'f') => return forward(view, key, value).await,
        Some(b'g') => garbage(view, key, value).await?,
        Some(b'i') => instance(key, value),
        Some(b'l') => sized(key, 11, value, 8, "a lane"),
        Some(b'm') if key[..] == root::half_copied() => {
            Some("a `tern copy` into this store has not finished: run it again".into())
        }
        Some(b'm') if key[..] == root::secret() => {
            Secret::decode(value).is_none().then(|| "the store's secret does not decode".into())
        }
        Some(b'p') => (!is_message_row(key, value)).then(|| "a row of messages does not decode".into()),
        Some(b's') => scripts::row(view, key, value).await?,
        Some(b't') => idempotency::row(view, key, value).await?,
        Some(b'u') => idempotency::age(view, key, value).await?,
        _ => Some("an unknown kind of row".to_owned()),
    };
    Ok(problem.map(|what| Problem::new(key, what)).into_iter().collect())
}

fn is_message_row(key: &[u8], value: &[u8]) -> bool {
    match key.get(1) {
        Some(0) => key.len() == 10 && value.len() == 1,
        Some(1) => key == root::bell() && value.len() == 8,
        Some(2) => key == root::collected() && root::decode_message(value).is_some(),
        Some(4) => key == root::fence_bell() && value.len() == 8,
        Some(5) => key.len() == 12 && !value.is_empty() && value.len().is_multiple_of(8),
        _ => root::decode_message(key).is_some() && !value.is_empty(),
    }
}

fn sized(key: &[u8], key_len: usize, value: &[u8], len: usize, what: &str) -> Option<String> {
    let fits = key.len() == key_len && value.len() == len;
    (!fits).then(|| {
        format!("{what} has an invalid length: {} bytes of key, {} of value", key.len(), value.len())
    })
}

/// Checks that a database's prefix is its own, that the allocator cannot hand it out again, and that database
/// numbers are consecutive.
async fn database(view: &AuditView, key: &[u8], value: &[u8]) -> StoreResult<Option<String>> {
    let Some(Place { prefix, .. }) = Place::decode(value).filter(|_| key.len() == 2) else {
        return Ok(Some("the row of a database holds no valid prefix".into()));
    };
    let number = prefix.number();
    if databases(view).await?.iter().filter(|(_, other)| *other == prefix).count() > 1 {
        return Ok(Some(format!("two databases have the prefix {number}")));
    }
    if view.get(&root::garbage(Garbage::Database(prefix))).await?.is_some() {
        return Ok(Some("the database is also listed as garbage: its rows are going to be removed".into()));
    }
    let before = key.get(1).and_then(|number| number.checked_sub(1));
    if let Some(before) = before
        && view.get(&root::database(before)).await?.is_none()
    {
        return Ok(Some(format!("the numbers of the databases have a gap: database {before} is missing")));
    }
    is_free(view, prefix).await
}

/// Checks that a prefix cannot be handed out while rows exist below it or are still to be removed.
async fn is_free(view: &AuditView, prefix: Prefix) -> StoreResult<Option<String>> {
    let number = prefix.number();
    let newest = view.page(b"a", b"b", RangeOptions { reverse: true, ..ONE }).await?;
    let start = newest
        .pairs
        .first()
        .and_then(|(key, _)| key.get(1..5)?.try_into().ok())
        .map_or(0, u32::from_be_bytes);
    let taken = number < start || view.get(&root::candidate(number)).await?.is_some();
    Ok((!taken).then(|| format!("the allocator could hand out the prefix {number} again")))
}

fn lease(key: &[u8], value: &[u8]) -> Option<String> {
    let next = u64_of(value).filter(|next| key.len() == 2 && *next <= BLOCKS);
    next.is_none().then(|| "a shard's next block of ids is out of range".into())
}

fn u64_of(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_le_bytes)
}

/// Checks that members and their ids match.
async fn members_row(view: &AuditView, known: &Mutex<KnownIds>, key: &[u8], row: &[u8]) -> Findings {
    let Some(entries) = members::entries(key, row) else {
        return Ok(vec![Problem::new(key, "an invalid id, or invalid members of a group of ids")]);
    };
    let mut problems = Vec::new();
    for (id, member) in entries {
        let what = entry(view, known, id, member).await?;
        problems.extend(what.map(|what| Problem::new(key, what)));
    }
    Ok(problems)
}

/// Checks that an id is leased, and that the dictionary leads from its member back to it.
async fn entry(
    view: &AuditView,
    known: &Mutex<KnownIds>,
    id: u64,
    member: &[u8],
) -> StoreResult<Option<String>> {
    if id >= 1 << 62 {
        return Ok(Some("an invalid id".into()));
    }
    known.lock().insert(id);
    if member.len() > MAX_MEMBER || integer_id(member).is_some() {
        return Ok(Some("a member that the dictionary must not hold: an integer, or too long".into()));
    }
    let keys = [root::lease((id >> 54) as u8).to_vec(), root::forward(member)];
    let rows = view.get_many(&keys).await?;
    let [lease, forward] = rows.as_slice() else { return Ok(None) };
    let next = lease.as_deref().and_then(u64_of).unwrap_or(0);
    if id / BLOCK % BLOCKS >= next {
        return Ok(Some(format!("the id {id:#x} was never leased: the next block of its shard is {next}")));
    }
    let leads_back = forward.as_deref().is_some_and(|row| ids_of_row(row).any(|found| found == id));
    Ok((!leads_back).then(|| format!("the dictionary does not map the member to its id {id:#x}")))
}

/// Checks that the ids of a member, or of all long members with one hash, belong to them.
async fn forward(view: &AuditView, key: &[u8], value: &[u8]) -> Findings {
    let short = key.get(1) == Some(&0);
    let whole = if short { value.len() == 8 } else { !value.is_empty() && value.len().is_multiple_of(8) };
    if !whole || (!short && key.len() != 18) || key.len() > MAX_INLINE_MEMBER + 2 {
        return Ok(vec![Problem::new(key, "a row of the dictionary does not decode: it holds no ids")]);
    }
    let mut problems = Vec::new();
    for id in ids_of_row(value) {
        let member = view.member(id).await?;
        let what = match member {
            _ if id >= FIRST_INTEGER => "the dictionary maps a member to the id of an integer",
            None => "the dictionary maps a member to an id without a member",
            Some(member) if root::forward(&member) != key => {
                "the dictionary maps a member to the id of another"
            }
            Some(_) => continue,
        };
        problems.push(Problem::new(key, format!("{what}: {id:#x}")));
    }
    Ok(problems)
}

/// Checks that the collector's rows decode, and that candidates are interned ids of the block that their row
/// is for.
fn collectors(key: &[u8], value: &[u8]) -> Option<String> {
    let fits = match key.get(1) {
        Some(0) => key == root::collector() && State::decode(value).is_ok(),
        Some(1) => collector::decode_candidates(key, value).is_ok(),
        Some(2) => root::decode_made(key).is_some() && value.is_empty(),
        Some(3) => root::decode_in_collection(key).is_some() && value.len() == 8,
        Some(4) => root::decode_in_collection(key).is_some_and(|id| id < FIRST_INTEGER) && value.is_empty(),
        _ => false,
    };
    (!fits).then(|| "a row of the dictionary's collector does not decode".into())
}

async fn garbage(view: &AuditView, key: &Bytes, value: &[u8]) -> StoreResult<Option<String>> {
    match root::decode_garbage(key) {
        Some(Garbage::Database(prefix)) if value.is_empty() => is_free(view, prefix).await,
        Some(Garbage::Building(..)) if value.len() == 8 => Ok(None),
        Some(Garbage::Object(..)) if value.is_empty() => Ok(None),
        _ => Ok(Some("a garbage row does not decode: what it names is never removed".into())),
    }
}

fn instance(key: &[u8], value: &[u8]) -> Option<String> {
    let fits = key.len() == 9 && Instance::decode(value).is_ok();
    (!fits).then(|| "a server's row does not decode".into())
}
