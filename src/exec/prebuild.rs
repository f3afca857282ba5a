//! What exceeds a transaction is prepared before the unit that needs it runs.
//!
//! * Arguments: strings are built, members of SADD get their ids, those of SREM are looked up. Only where a unit's arguments
//!   exceed one transaction together.
//! * Outcomes (of *STORE, BITOP, COPY, MOVE, RESTORE, of SADD and SREM of a set that is rewritten all over): built once an attempt has
//!   found that they do not fit. Not where an earlier command of the unit may change what one is made of: that command gets the
//!   error that names the limit, before anything is written. A RESTORE that says itself that it is too large is not tried first.
//!
//! What no command took over is given up, so that its rows are reclaimed soon.

use crate::commands::outgrows::{self, Outcome};
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
use crate::types::prebuilt::{self, Object, Prebuilt};
use crate::types::set::prebuild as sets;
use crate::types::set::small::{MAX_INTS, may_be_small};
use crate::types::string::combine;
use crate::types::string::{DIRECT_MAX, INLINE_MAX, prebuild, prebuild_change};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};

/// How long what was built waits for its command, in ms: longer than any unit is tried.
const LEASE_MS: u64 = 60_000;
/// Attempts at building from what others change meanwhile.
const MAX_ATTEMPTS: usize = 10;
/// Bytes that interning a unit's members may write in its own transaction.
const DIRECT_MEMBERS: usize = MAX_TRANSACTION / 2;

/// What was prepared, for each call of a unit.
pub(super) type Prepared = Vec<Vec<Prebuilt>>;

/// What of a unit is prepared.
#[derive(Debug, Clone, Copy)]
struct Plan {
    strings: bool,
    members: bool,
    outcomes: bool,
    /// Outcomes that surely exceed a transaction.
    restored: bool,
}

impl Plan {
    fn of(calls: &[Call], outcomes: bool) -> Self {
        let members = calls.iter().flat_map(|c| outgrows::members(c.row, &c.argv));
        Plan {
            strings: calls.iter().map(Call::bytes).sum::<usize>() > DIRECT_MAX,
            members: interner::room(members) > DIRECT_MEMBERS,
            outcomes: outcomes && calls.iter().any(Call::can_be_built),
            restored: calls.iter().any(is_large_restore),
        }
    }
}

/// Whether what a RESTORE leaves is built before it is tried, so that it is decompressed once.
fn is_large_restore(call: &Call) -> bool {
    matches!(outgrows::outcome(call.row, &call.argv), Some(Outcome::Restored(payload)) if dump::weight(payload) > DIRECT_MAX as u64)
}

/// Prepares what `calls` need, of which the first runs in database `db`; `outcomes`: also those. To be called again after a conflict, when what was built has been
/// given up: it may be stale.
pub(super) async fn prepare(
    server: &Server,
    mut db: u8,
    calls: &[Call],
    outcomes: bool,
    prepared: &mut Prepared,
) -> Result<()> {
    let plan = Plan::of(calls, outcomes);
    if !(plan.strings || plan.members || plan.outcomes || plan.restored) {
        return Ok(());
    }
    let tx = server.store.begin();
    let catalog = server.space.catalog.load(&tx).await?;
    drop(tx);
    prepared.resize_with(calls.len(), Vec::new);
    forget_old_ids(prepared, catalog.round);
    if plan.members || plan.outcomes {
        members(server, calls, plan, prepared).await?;
    }
    let mut written = Written::default();
    for (call, prebuilt) in calls.iter().zip(prepared) {
        if let Some(selected) = selected(call) {
            db = selected;
        }
        let outcomes = plan.outcomes && written.spares(call) || plan.restored && is_large_restore(call);
        let plan = Plan { outcomes, ..plan };
        for_call(server, &catalog, db, call, plan, prebuilt).await?;
        written.by(call);
    }
    Ok(())
}

/// Finds the ids of the members that the calls name and that have none so far: of all calls in few transactions. Not of members
/// that may fit into their set's record, unless that was tried.
async fn members(server: &Server, calls: &[Call], plan: Plan, prepared: &mut Prepared) -> Result<()> {
    let mut named: HashMap<&Bytes, (usize, Vec<&[Bytes]>)> = HashMap::new();
    for (key, members) in calls.iter().filter_map(named_members) {
        let (n, all) = named.entry(key).or_default();
        *n += members.len();
        all.push(members);
    }
    named.retain(|_, (n, all)| plan.outcomes || !may_be_small(*n, all.iter().copied().flatten()));
    for removed in [false, true] {
        let (mut named_by, mut places) = (Vec::new(), Vec::new());
        for (call, prebuilt) in calls.iter().zip(prepared.iter_mut()) {
            let Some((key, members)) = named_members(call) else { continue };
            let outcome = outgrows::outcome(call.row, &call.argv);
            let fits = matches!(outcome, Some(Outcome::Removed(_))) == removed;
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

/// Ids of another epoch of the dictionary's collection, or that the store may have lost, are found anew.
fn forget_old_ids(prepared: &mut Prepared, round: Round) {
    for prebuilt in prepared {
        prebuilt.retain(|prebuilt| !matches!(prebuilt, Prebuilt::Ids(ids) if !ids.hold_in(round)));
    }
}

/// Gives up what was built and no command took over. Ids stay, as long as their epoch does.
pub(super) async fn give_up(server: &Server, prepared: &mut Prepared) {
    for prebuilt in prepared.iter_mut() {
        for object in prebuilt.iter().filter_map(Prebuilt::object) {
            if let Err(e) = prebuilt::abandon(&server.space, object).await {
                tracing::debug!(?e, "what was abandoned is reclaimed when its lease ends");
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
    /// A call that names no key, such as FLUSHALL.
    anything: bool,
}

impl<'a> Written<'a> {
    /// None of the call's keys.
    fn spares(&self, call: &Call) -> bool {
        let own = || keys_of(call.row, &call.argv).unwrap_or_default();
        !self.anything && !own().iter().any(|key| self.keys.contains(key))
    }

    /// One more call.
    fn by(&mut self, call: &'a Call) {
        if call.row.is_write() {
            let written = written_keys(call.row, &call.argv);
            self.anything |= written.is_empty();
            self.keys.extend(written);
        }
    }
}

async fn for_call(
    server: &Server,
    catalog: &Catalog,
    db: u8,
    call: &Call,
    plan: Plan,
    prebuilt: &mut Vec<Prebuilt>,
) -> Result<()> {
    let Some(prefix) = catalog.prefix(db) else { return Ok(()) };
    if plan.strings && call.row.group == Group::String && call.row.is_write() {
        strings(server, prefix, call, prebuilt).await?;
    }
    let Some(outcome) = outgrows::outcome(call.row, &call.argv) else { return Ok(()) };
    for _ in 0..if plan.outcomes { MAX_ATTEMPTS } else { 0 } {
        match build(server, catalog, prefix, outcome, prebuilt).await {
            Err(Error::Store(StoreError::Conflict | StoreError::TooOld)) => {}
            built => return built.map(|built| prebuilt.extend(built.map(Prebuilt::Result))),
        }
    }
    if plan.outcomes { Err(StoreError::Conflict.into()) } else { Ok(()) }
}

async fn build(
    server: &Server,
    catalog: &Catalog,
    db: Prefix,
    outcome: Outcome<'_>,
    prebuilt: &[Prebuilt],
) -> Result<Option<Object>> {
    let space = &server.space;
    match outcome {
        Outcome::Combined(op, keys) => sets::combination(space, db, op, keys, LEASE_MS).await,
        Outcome::Bits(op, keys) => combine::prebuild(space, db, op, keys, LEASE_MS).await,
        // What a few members change fits.
        Outcome::Added(key) => match prebuilt::ids(prebuilt).filter(|ids| ids.len() > MAX_INTS as u64) {
            Some(ids) => sets::addition(space, db, key, ids, LEASE_MS).await,
            None => Ok(None),
        },
        Outcome::Removed(key) => match prebuilt::ids(prebuilt).filter(|ids| ids.len() > MAX_INTS as u64) {
            Some(ids) => sets::removal(space, db, key, ids, LEASE_MS).await,
            None => Ok(None),
        },
        Outcome::Copied(key, to) => match to.map_or(Some(db), |to| catalog.prefix(to)) {
            Some(to) => copy::prebuild(space, (db, to), key, LEASE_MS).await,
            None => Ok(None),
        },
        Outcome::Restored(payload) => {
            let longest = server.config.get().proto_max_bulk_len;
            dump::prebuild(space, db, payload, longest, LEASE_MS).await
        }
    }
}

async fn strings(server: &Server, db: Prefix, call: &Call, prebuilt: &mut Vec<Prebuilt>) -> Result<()> {
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
            (Some(offset), Some(key)) => continued(server, db, key, offset, argument).await?,
            _ => Some(whole(server, db, argument).await?),
        });
    }
    Ok(())
}

/// Builds a string; again where the store may have lost some of it.
async fn whole(server: &Server, db: Prefix, argument: &Bytes) -> Result<Prebuilt> {
    for _ in 0..MAX_ATTEMPTS {
        match prebuild(&server.space, db, argument, LEASE_MS).await {
            Err(Error::Store(StoreError::Conflict)) => {}
            other => return other,
        }
    }
    Err(StoreError::Conflict.into())
}

/// Builds the continuation of a string; again where it changed meanwhile.
async fn continued(
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
    fn what_is_prepared_depends_on_the_arguments_of_all_calls() {
        let plan = |calls: &[Call], outcomes| {
            let Plan { strings, members, outcomes, restored } = Plan::of(calls, outcomes);
            [strings, members, outcomes, restored]
        };
        let calls = unit(&["SUNIONSTORE d a b", "SET k v"]).calls;
        assert_eq!(plan(&calls, false), [false; 4]);
        assert_eq!(plan(&calls, true), [false, false, true, false]);
        assert_eq!(plan(&calls[1..], true), [false; 4]);
        let mut long = call("SET k v");
        long.argv[2] = vec![b'x'; DIRECT_MAX / 2].into();
        assert!(!plan(&[long.clone()], false)[0]);
        assert!(plan(&[long.clone(), long], false)[0], "together they exceed what one writes directly");
        let mut many = call("SADD s");
        many.argv.extend((0..DIRECT_MEMBERS / 20).map(|n| Bytes::from(format!("member:{n}"))));
        assert!(plan(&[many], false)[1]);
    }

    #[test]
    fn an_outcome_is_not_built_of_what_an_earlier_call_may_change() {
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
        let spares = |written: &Written<'_>| [3, 4, 5].map(|n| written.spares(&calls[n]));
        assert_eq!(spares(&written), [true; 3]);
        written.by(&calls[0]);
        assert_eq!(spares(&written), [false, false, true]);
        written.by(&calls[1]);
        assert_eq!(spares(&written), [false, false, true], "a read changes nothing");
        written.by(&calls[2]);
        assert_eq!(spares(&written), [false; 3]);
    }

    #[test]
    fn a_select_inside_a_unit_is_followed() {
        assert_eq!(
            ["SELECT 3", "SELECT 300", "SELECT x", "GET 3"].map(|line| selected(&call(line))),
            [Some(3), None, None, None]
        );
    }
}
