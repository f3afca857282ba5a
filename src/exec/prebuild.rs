//! Prebuilds what exceeds a transaction, before the unit that needs it runs.
//!
//! * Arguments: strings are built, members of SADD get their ids, those of SREM are looked up. Only if the
//!   arguments of a unit exceed one transaction together.
//! * Large results (of *STORE, BITOP, COPY, MOVE, RESTORE, and of SADD, SREM, HSET and HDEL of a set or hash
//!   that is rewritten as a whole): built once an attempt has found that they do not fit. Not if an earlier command of the unit
//!   may change one of their inputs: then the command gets the error that names the limit, before anything is
//!   written. A RESTORE whose payload declares a large value is not tried first.
//!
//! Objects that no command took over are abandoned, so that their rows are reclaimed soon.

use crate::commands::outgrows::{self, LargeResult};
use crate::dispatch::Call;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::catalog::Catalog;
use crate::keyspace::dictionary::collector::Round;
use crate::keyspace::dictionary::interner;
use crate::keyspace::keys::Prefix;
use crate::lifecycle::{copy, dump};
use crate::server::Server;
use crate::spec::words::parse_i64;
use crate::spec::{Effect, Group, Makes, keys_of, written_keys};
use crate::store::MAX_TRANSACTION;
use crate::types::Kind;
use crate::types::hash::prebuild as hashes;
use crate::types::list::prebuild as lists;
use crate::types::prebuilt::{self, Object, Prebuilt};
use crate::types::set::prebuild as sets;
use crate::types::set::small::{MAX_INTS, may_be_small};
use crate::types::stream::prebuild as streams;
use crate::types::string::combine;
use crate::types::string::{DIRECT_MAX, INLINE_MAX, prebuild, prebuild_change};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};

/// How long a prebuilt object waits for its command, in ms: longer than any unit is retried.
const LEASE_MS: u64 = 60_000;
/// Attempts at building from keys that others change meanwhile.
const MAX_ATTEMPTS: usize = 10;
/// Attempts at building from what takes longer to read than a transaction may last: it may have been a busy moment.
const MAX_TOO_OLD: usize = 2;
/// Bytes that interning a unit's members may write in its own transaction.
const DIRECT_MEMBERS: usize = MAX_TRANSACTION / 2;

/// The weight of a value with rows that RESTORE writes in its own transaction.
const MOST_RESTORED: usize = 1 << 20;

/// What was prebuilt, for each call of a unit.
pub(super) type Prebuilds = Vec<Vec<Prebuilt>>;

/// Which parts of a unit to prebuild.
#[derive(Debug, Clone, Copy)]
struct Parts {
    strings: bool,
    members: bool,
    results: bool,
    /// Values to restore that surely exceed a transaction, or would hold others.
    restored: bool,
}

impl Parts {
    fn of(calls: &[Call], results: bool) -> Self {
        let members = calls.iter().flat_map(|c| outgrows::members(c.row, &c.argv));
        Parts {
            strings: calls.iter().map(Call::bytes).sum::<usize>() > DIRECT_MAX,
            members: interner::room(members) > DIRECT_MEMBERS,
            results: results && calls.iter().any(Call::can_be_prebuilt),
            restored: calls.iter().any(is_large_restore),
        }
    }
}

/// Whether to prebuild the value of a RESTORE before it is tried, so that it is decompressed once.
fn is_large_restore(call: &Call) -> bool {
    let Some(LargeResult::Restored(payload)) = outgrows::large_result(call.row, &call.argv) else {
        return false;
    };
    // The pieces of a string are few; the rows of others are many, and commits wait for each other.
    let most = if dump::kind(payload) == Some(Kind::Str) { DIRECT_MAX } else { MOST_RESTORED };
    dump::weight(payload) > most as u64
}

/// Prebuilds what `calls` need, of which the first runs in database `db`; their large results only if
/// `results`. Call it again after a conflict, once [`abandon_unused`] has removed what may be stale.
pub(super) async fn for_calls(
    server: &Server,
    mut db: u8,
    calls: &[Call],
    results: bool,
    prebuilds: &mut Prebuilds,
) -> Result<()> {
    let parts = Parts::of(calls, results);
    if !(parts.strings || parts.members || parts.results || parts.restored) {
        return Ok(());
    }
    let tx = server.store.begin();
    let catalog = server.space.catalog.load(&tx).await?;
    drop(tx);
    prebuilds.resize_with(calls.len(), Vec::new);
    forget_old_ids(prebuilds, catalog.round);
    if parts.members || parts.results {
        resolve_members(server, calls, parts, prebuilds).await?;
    }
    let mut written = Written::default();
    for (call, prebuilt) in calls.iter().zip(prebuilds) {
        if let Some(selected) = selected(call) {
            db = selected;
        }
        let results = parts.results && written.is_disjoint(call) || parts.restored && is_large_restore(call);
        let parts = Parts { results, ..parts };
        prebuild_call(server, &catalog, db, call, parts, prebuilt).await?;
        written.add(call);
    }
    Ok(())
}

/// Finds the ids of the members that the calls name and that have none so far: of all calls in few
/// transactions. Skips members that may fit into the record of their set, unless that was tried.
async fn resolve_members(
    server: &Server,
    calls: &[Call],
    parts: Parts,
    prebuilds: &mut Prebuilds,
) -> Result<()> {
    let mut named: HashMap<&Bytes, (usize, Vec<&[Bytes]>)> = HashMap::new();
    for (key, members) in calls.iter().filter_map(named_members) {
        let (n, all) = named.entry(key).or_default();
        *n += members.len();
        all.push(members);
    }
    named.retain(|_, (n, all)| parts.results || !may_be_small(*n, all.iter().copied().flatten()));
    for removed in [false, true] {
        let (mut named_by, mut places) = (Vec::new(), Vec::new());
        for (call, prebuilt) in calls.iter().zip(prebuilds.iter_mut()) {
            let Some((key, members)) = named_members(call) else { continue };
            let result = outgrows::large_result(call.row, &call.argv);
            let fits = matches!(result, Some(LargeResult::Removed(_))) == removed;
            if fits && named.contains_key(key) && prebuilt::ids(prebuilt).is_none() {
                named_by.push(members);
                places.push(prebuilt);
            }
        }
        let ids = match named_by.is_empty() {
            true => Vec::new(),
            false if removed => sets::find(&server.space, &named_by).await?,
            false => sets::intern(&server.space, &named_by).await?,
        };
        places.into_iter().zip(ids).for_each(|(prebuilt, ids)| prebuilt.push(Prebuilt::Ids(ids)));
    }
    Ok(())
}

/// The key of a call that adds or removes members, and those.
fn named_members(call: &Call) -> Option<(&Bytes, &[Bytes])> {
    let members = outgrows::members(call.row, &call.argv);
    Some((call.argv.get(1)?, members)).filter(|_| !members.is_empty())
}

/// Removes ids of another epoch of the dictionary's collection, or that the store may have lost.
fn forget_old_ids(prebuilds: &mut Prebuilds, round: Round) {
    for prebuilt in prebuilds {
        prebuilt.retain(|prebuilt| !matches!(prebuilt, Prebuilt::Ids(ids) if !ids.hold_in(round)));
    }
}

/// Abandons the objects that no command took over. Ids stay, as long as their epoch does.
pub(super) async fn abandon_unused(server: &Server, prebuilds: &mut Prebuilds) {
    for prebuilt in prebuilds.iter_mut() {
        for object in prebuilt.iter().filter_map(Prebuilt::object) {
            if let Err(e) = prebuilt::abandon(&server.space, object).await {
                tracing::debug!(?e, "cannot abandon a prebuilt object: it is reclaimed when its lease ends");
            }
        }
        prebuilt.retain(|prebuilt| prebuilt.object().is_none());
    }
}

/// The database that a SELECT inside the unit changes to.
fn selected(call: &Call) -> Option<u8> {
    let index = call.argv.get(1).filter(|_| call.row.effect == Effect::Selects)?;
    u8::try_from(parse_i64(index)?).ok()
}

/// What the calls so far may change. The names decide, whatever database they are in.
#[derive(Default)]
struct Written<'a> {
    keys: HashSet<&'a Bytes>,
    /// A call whose keys are not known, such as FLUSHALL.
    anything: bool,
}

impl<'a> Written<'a> {
    /// Whether they may change none of the call's keys.
    fn is_disjoint(&self, call: &Call) -> bool {
        let own = || keys_of(call.row, &call.argv).unwrap_or_default();
        !self.anything && !own().iter().any(|key| self.keys.contains(key))
    }

    /// Adds what one more call may change.
    fn add(&mut self, call: &'a Call) {
        if call.row.is_write() {
            self.anything |= call.row.keys.is_empty() || keys_of(call.row, &call.argv).is_none();
            self.keys.extend(written_keys(call.row, &call.argv));
        }
    }
}

async fn prebuild_call(
    server: &Server,
    catalog: &Catalog,
    db: u8,
    call: &Call,
    parts: Parts,
    prebuilt: &mut Vec<Prebuilt>,
) -> Result<()> {
    let Some(prefix) = catalog.prefix(db) else { return Ok(()) };
    if parts.strings && call.row.group == Group::String && call.row.is_write() {
        prebuild_strings(server, prefix, call, prebuilt).await?;
    }
    let Some(result) = outgrows::large_result(call.row, &call.argv) else { return Ok(()) };
    if !parts.results {
        return Ok(());
    }
    let mut too_old = 0;
    for _ in 0..MAX_ATTEMPTS {
        match prebuild_result(server, catalog, prefix, result, prebuilt).await {
            Err(Error::Store(StoreError::Conflict)) => {}
            Err(Error::Store(StoreError::TooOld)) if too_old + 1 < MAX_TOO_OLD => too_old += 1,
            built => return built.map(|built| prebuilt.extend(built.map(Prebuilt::Result))),
        }
    }
    Err(StoreError::Conflict.into())
}

async fn prebuild_result(
    server: &Server,
    catalog: &Catalog,
    db: Prefix,
    result: LargeResult<'_>,
    prebuilt: &[Prebuilt],
) -> Result<Option<Object>> {
    let space = &server.space;
    match result {
        LargeResult::Combined(op, keys) => sets::combination(space, db, op, keys, LEASE_MS).await,
        LargeResult::Bits(op, keys) => combine::prebuild(space, db, op, keys, LEASE_MS).await,
        // A change of few members fits.
        LargeResult::Added(key) => match prebuilt::ids(prebuilt).filter(|ids| ids.len() > MAX_INTS as u64) {
            Some(ids) => sets::addition(space, db, key, ids, LEASE_MS).await,
            None => Ok(None),
        },
        LargeResult::Removed(key) => {
            match prebuilt::ids(prebuilt).filter(|ids| ids.len() > MAX_INTS as u64) {
                Some(ids) => sets::removal(space, db, key, ids, LEASE_MS).await,
                None => Ok(None),
            }
        }
        LargeResult::FieldsSet(key, pairs) if hashes::may_exceed(pairs.as_flattened()) => {
            hashes::change(space, db, key, (pairs, &[]), LEASE_MS).await
        }
        LargeResult::FieldsRemoved(key, fields) if hashes::may_exceed(fields) => {
            hashes::change(space, db, key, (&[], fields), LEASE_MS).await
        }
        LargeResult::FieldsSet(..) | LargeResult::FieldsRemoved(..) => Ok(None),
        LargeResult::ListChanged(key, change) => lists::change(space, db, key, change, LEASE_MS).await,
        LargeResult::EntryAdded(key, args) => match outgrows::large_entry(args) {
            Some(entry) => streams::addition(space, db, key, entry, LEASE_MS).await,
            None => Ok(None),
        },
        LargeResult::Ranked(operation, args) => {
            outgrows::prebuild_ranked(space, catalog, db, operation, args, LEASE_MS).await
        }
        LargeResult::Copied(key, to) => match to.map_or(Some(db), |to| catalog.prefix(to)) {
            Some(to) => copy::prebuild(space, (db, to), key, LEASE_MS).await,
            None => Ok(None),
        },
        LargeResult::Restored(payload) => {
            let longest = server.config.get().proto_max_bulk_len;
            dump::prebuild(space, db, payload, longest, LEASE_MS).await
        }
    }
}

async fn prebuild_strings(
    server: &Server,
    db: Prefix,
    call: &Call,
    prebuilt: &mut Vec<Prebuilt>,
) -> Result<()> {
    let large = call.argv.iter().skip(2).filter(|a| a.len() > INLINE_MAX);
    for argument in large {
        let offset = match call.row.makes {
            Makes::Appended => Some(None),
            Makes::Patched => {
                call.argv.get(2).and_then(|o| parse_i64(o)).and_then(|o| u64::try_from(o).ok()).map(Some)
            }
            _ => None,
        };
        prebuilt.extend(match (offset, call.argv.get(1)) {
            (Some(offset), Some(key)) => prebuild_continuation(server, db, key, offset, argument).await?,
            _ => Some(prebuild_string(server, db, argument).await?),
        });
    }
    Ok(())
}

/// Builds a string, again if the store may have lost some of it.
async fn prebuild_string(server: &Server, db: Prefix, argument: &Bytes) -> Result<Prebuilt> {
    for _ in 0..MAX_ATTEMPTS {
        match prebuild(&server.space, db, argument, LEASE_MS).await {
            Err(Error::Store(StoreError::Conflict)) => {}
            other => return other,
        }
    }
    Err(StoreError::Conflict.into())
}

/// Builds the continuation of a string, again if the string changed meanwhile.
async fn prebuild_continuation(
    server: &Server,
    db: Prefix,
    key: &Bytes,
    offset: Option<u64>,
    patch: &Bytes,
) -> Result<Option<Prebuilt>> {
    for _ in 0..MAX_ATTEMPTS {
        match prebuild_change(&server.space, db, key, offset, patch, LEASE_MS).await {
            Err(Error::Store(StoreError::Conflict)) => {}
            other => return other,
        }
    }
    Err(StoreError::Conflict.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::{call, unit};

    #[test]
    fn what_is_prebuilt_depends_on_the_arguments_of_all_calls() {
        let parts = |calls: &[Call], results| {
            let Parts { strings, members, results, restored } = Parts::of(calls, results);
            [strings, members, results, restored]
        };
        let calls = unit(&["SUNIONSTORE d a b", "SET k v"]).calls;
        assert_eq!(parts(&calls, false), [false; 4]);
        assert_eq!(parts(&calls, true), [false, false, true, false]);
        assert_eq!(parts(&calls[1..], true), [false; 4]);
        let mut long = call("SET k v");
        long.argv[2] = vec![b'x'; DIRECT_MAX / 2].into();
        assert!(!parts(&[long.clone()], false)[0]);
        assert!(parts(&[long.clone(), long], false)[0], "together they exceed what one writes directly");
        let mut many = call("SADD s");
        many.argv.extend((0..DIRECT_MEMBERS / 20).map(|n| Bytes::from(format!("member:{n}"))));
        assert!(parts(&[many], false)[1]);
    }

    #[test]
    fn a_result_is_not_prebuilt_from_keys_that_an_earlier_call_may_change() {
        let calls = unit(&[
            "SET a v",
            "GET b",
            "FLUSHALL",
            "SUNIONSTORE d a b",
            "SUNIONSTORE a c",
            "SUNIONSTORE d b c",
        ])
        .calls;
        let mut written = Written::default();
        let disjoint = |written: &Written<'_>| [3, 4, 5].map(|n| written.is_disjoint(&calls[n]));
        assert_eq!(disjoint(&written), [true; 3]);
        written.add(&calls[0]);
        assert_eq!(disjoint(&written), [false, false, true]);
        written.add(&calls[1]);
        assert_eq!(disjoint(&written), [false, false, true], "a read changes nothing");
        written.add(&calls[2]);
        assert_eq!(disjoint(&written), [false; 3]);
    }

    #[test]
    fn a_select_inside_a_unit_is_followed() {
        assert_eq!(
            ["SELECT 3", "SELECT 300", "SELECT x", "GET 3"].map(|line| selected(&call(line))),
            [Some(3), None, None, None]
        );
    }
}
