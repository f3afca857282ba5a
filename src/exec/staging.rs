//! Prepares whatever exceeds a transaction before the unit that needs it runs.
//!
//! * Arguments: strings are built, members of SADD get their ids, and members of SREM are looked up. Only if
//!   a unit's arguments together exceed one transaction.
//! * Outcomes (of *STORE, BITOP, COPY, MOVE, RESTORE, and of SADD and SREM on a set that is rewritten
//!   completely): built after an attempt has found that they do not fit. Not if an earlier command of the
//!   unit may change their inputs: then the command fails with the error that names the limit, before
//!   anything is written. A RESTORE that is known to be too large is not tried first.
//!
//! Whatever no command takes over is abandoned, so that its rows are reclaimed soon.

use crate::commands::large::{self, Outcome};
use crate::dispatch::Call;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::catalog::Catalog;
use crate::keyspace::collector::Round;
use crate::keyspace::ids;
use crate::keyspace::keys::Prefix;
use crate::server::Server;
use crate::spec::words::parse_i64;
use crate::spec::{Effect, Group, Makes, keys_of, written_keys};
use crate::store::MAX_TRANSACTION;
use crate::types::set::small::{MAX_INTS, may_be_small};
use crate::types::set::stage as sets;
use crate::types::staged::{self, Object, Staged};
use crate::types::string::combine;
use crate::types::string::{DIRECT_MAX, INLINE_MAX, stage, stage_change};
use crate::types::{copy, dump};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};

/// How long staged data waits for its command, in ms: longer than any unit is retried.
const LEASE_MS: u64 = 60_000;
/// Attempts at building from inputs that others change meanwhile.
const MAX_ATTEMPTS: usize = 10;
/// Bytes that interning a unit's members may write in the unit's own transaction.
const DIRECT_MEMBERS: usize = MAX_TRANSACTION / 2;

/// The staged data of each call of a unit.
pub(super) type Prepared = Vec<Vec<Staged>>;

/// Which parts of a unit to prepare.
#[derive(Debug, Clone, Copy)]
struct Plan {
    strings: bool,
    members: bool,
    outcomes: bool,
    /// Outcomes that certainly exceed a transaction.
    restored: bool,
}

impl Plan {
    fn of(calls: &[Call], outcomes: bool) -> Self {
        let members = calls.iter().flat_map(|c| large::members(c.row, &c.argv));
        Plan {
            strings: calls.iter().map(Call::bytes).sum::<usize>() > DIRECT_MAX,
            members: ids::room(members) > DIRECT_MEMBERS,
            outcomes: outcomes && calls.iter().any(Call::can_be_built),
            restored: calls.iter().any(is_large_restore),
        }
    }
}

/// Whether the result of a RESTORE is built before the command is tried, so that it is decompressed only
/// once.
fn is_large_restore(call: &Call) -> bool {
    matches!(large::outcome(call.row, &call.argv), Some(Outcome::Restored(payload)) if dump::weight(payload) > DIRECT_MAX as u64)
}

/// Prepares what `calls` need; the first of them runs in database `db`. With `outcomes`, also prepares their
/// outcomes. Call it again after a conflict, once the old staging has been abandoned, because it may be
/// stale.
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
    for (call, staged) in calls.iter().zip(prepared) {
        if let Some(selected) = selected(call) {
            db = selected;
        }
        let outcomes = plan.outcomes && written.spares(call) || plan.restored && is_large_restore(call);
        let plan = Plan { outcomes, ..plan };
        for_call(server, &catalog, db, call, plan, staged).await?;
        written.by(call);
    }
    Ok(())
}

/// Interns the members that the calls name and that have no id yet, for all calls in few transactions. Skips
/// members that may fit into their set's record, unless that was tried.
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
        for (call, staged) in calls.iter().zip(prepared.iter_mut()) {
            let Some((key, members)) = named_members(call) else { continue };
            let outcome = large::outcome(call.row, &call.argv);
            let fits = matches!(outcome, Some(Outcome::Removed(_))) == removed;
            if fits && named.contains_key(key) && staged::ids(staged).is_none() {
                named_by.push(members);
                places.push(staged);
            }
        }
        let ids = match named_by.is_empty() {
            true => Vec::new(),
            false if removed => sets::find(&server.space, &named_by).await?,
            false => sets::intern(&server.space, &named_by).await?,
        };
        places.into_iter().zip(ids).for_each(|(staged, ids)| staged.push(Staged::Ids(ids)));
    }
    Ok(())
}

/// The key of a call that adds or removes members, and those members.
fn named_members(call: &Call) -> Option<(&Bytes, &[Bytes])> {
    let members = large::members(call.row, &call.argv);
    Some((call.argv.get(1)?, members)).filter(|_| !members.is_empty())
}

/// Drops staged ids of another epoch of the dictionary's collection, or that the store may have lost: they
/// are looked up again.
fn forget_old_ids(prepared: &mut Prepared, round: Round) {
    for staged in prepared {
        staged.retain(|staged| !matches!(staged, Staged::Ids(ids) if !ids.hold_in(round)));
    }
}

/// Abandons what was built and no command took over. Ids stay valid as long as their epoch.
pub(super) async fn give_up(server: &Server, prepared: &mut Prepared) {
    for staged in prepared.iter_mut() {
        for object in staged.iter().filter_map(Staged::object) {
            if let Err(e) = staged::abandon(&server.space, object).await {
                tracing::debug!(?e, "abandoned staging is reclaimed when its lease ends");
            }
        }
        staged.retain(|staged| staged.object().is_none());
    }
}

/// The database that a SELECT inside the unit switches to.
fn selected(call: &Call) -> Option<u8> {
    let index = call.argv.get(1).filter(|_| call.row.effect == Effect::Selects)?;
    u8::try_from(parse_i64(index)?).ok()
}

/// The keys that the calls so far may change, by name, in any database.
#[derive(Default)]
struct Written<'a> {
    keys: HashSet<&'a Bytes>,
    /// A call that names no key, such as FLUSHALL, may change anything.
    anything: bool,
}

impl<'a> Written<'a> {
    /// Whether none of the call's keys may have changed.
    fn spares(&self, call: &Call) -> bool {
        let own = || keys_of(call.row, &call.argv).unwrap_or_default();
        !self.anything && !own().iter().any(|key| self.keys.contains(key))
    }

    /// Adds a call.
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
    staged: &mut Vec<Staged>,
) -> Result<()> {
    let Some(prefix) = catalog.prefix(db) else { return Ok(()) };
    if plan.strings && call.row.group == Group::String && call.row.is_write() {
        strings(server, prefix, call, staged).await?;
    }
    let Some(outcome) = large::outcome(call.row, &call.argv) else { return Ok(()) };
    for _ in 0..if plan.outcomes { MAX_ATTEMPTS } else { 0 } {
        match build(server, catalog, prefix, outcome, staged).await {
            Err(Error::Store(StoreError::Conflict | StoreError::TooOld)) => {}
            built => return built.map(|built| staged.extend(built.map(Staged::Result))),
        }
    }
    if plan.outcomes { Err(StoreError::Conflict.into()) } else { Ok(()) }
}

async fn build(
    server: &Server,
    catalog: &Catalog,
    db: Prefix,
    outcome: Outcome<'_>,
    staged: &[Staged],
) -> Result<Option<Object>> {
    let space = &server.space;
    match outcome {
        Outcome::Combined(op, keys) => sets::combination(space, db, op, keys, LEASE_MS).await,
        Outcome::Bits(op, keys) => combine::stage(space, db, op, keys, LEASE_MS).await,
        // A change by a few members fits.
        Outcome::Added(key) => match staged::ids(staged).filter(|ids| ids.len() > MAX_INTS as u64) {
            Some(ids) => sets::addition(space, db, key, ids, LEASE_MS).await,
            None => Ok(None),
        },
        Outcome::Removed(key) => match staged::ids(staged).filter(|ids| ids.len() > MAX_INTS as u64) {
            Some(ids) => sets::removal(space, db, key, ids, LEASE_MS).await,
            None => Ok(None),
        },
        Outcome::Copied(key, to) => match to.map_or(Some(db), |to| catalog.prefix(to)) {
            Some(to) => copy::stage(space, (db, to), key, LEASE_MS).await,
            None => Ok(None),
        },
        Outcome::Restored(payload) => {
            let longest = server.config.get().proto_max_bulk_len;
            dump::stage(space, db, payload, longest, LEASE_MS).await
        }
    }
}

async fn strings(server: &Server, db: Prefix, call: &Call, staged: &mut Vec<Staged>) -> Result<()> {
    let large = call.argv.iter().skip(2).filter(|a| a.len() > INLINE_MAX);
    for argument in large {
        let offset = match call.row.makes {
            Makes::Appended => Some(None),
            Makes::Patched => {
                call.argv.get(2).and_then(|o| parse_i64(o)).and_then(|o| u64::try_from(o).ok()).map(Some)
            }
            _ => None,
        };
        staged.extend(match (offset, call.argv.get(1)) {
            (Some(offset), Some(key)) => continued(server, db, key, offset, argument).await?,
            _ => Some(whole(server, db, argument).await?),
        });
    }
    Ok(())
}

/// Builds a string; retries if the store may have lost part of it.
async fn whole(server: &Server, db: Prefix, argument: &Bytes) -> Result<Staged> {
    for _ in 0..MAX_ATTEMPTS {
        match stage(&server.space, db, argument, LEASE_MS).await {
            Err(Error::Store(StoreError::Conflict)) => {}
            other => return other,
        }
    }
    Err(StoreError::Conflict.into())
}

/// Builds the continuation of a string; retries if the string changed meanwhile.
async fn continued(
    server: &Server,
    db: Prefix,
    key: &Bytes,
    offset: Option<u64>,
    patch: &Bytes,
) -> Result<Option<Staged>> {
    for _ in 0..MAX_ATTEMPTS {
        match stage_change(&server.space, db, key, offset, patch, LEASE_MS).await {
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
