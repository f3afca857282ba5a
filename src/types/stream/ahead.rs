//! Reading ahead, for engines behind a network: what calls about groups will read, in a round for each step instead of a
//! round for each call and step. The transaction answers repeated reads itself.

use super::StreamRep;
use super::groups::{self, Group, PAGE, Place};
use super::range;
use crate::error::{Result, StoreResult};
use crate::keyspace::keys::{Id, MAX_NAME};
use crate::keyspace::{Scope, reads};
use crate::store::{RangeOptions, Read, key_after};
use crate::types::object;
use futures_util::future::{try_join, try_join_all};
use std::collections::{BTreeMap, BTreeSet};

/// Rows that are read ahead for all calls on a group.
const MOST: usize = 512;
/// New entries that are read ahead. A transaction keeps so many of any size; more would be read twice.
const MOST_NEW: u64 = 128;

/// What a call is going to do with a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ahead<'a> {
    /// The name of the group.
    pub(crate) group: &'a [u8],
    /// The name of the consumer.
    pub(crate) consumer: Option<&'a [u8]>,
    /// Entries of which it reads whether they are pending.
    pub(crate) pending: Vec<Id>,
    /// Entries that it reads.
    pub(crate) entries: Vec<Id>,
    /// The most new entries that it may deliver.
    pub(crate) new: u64,
}

/// Reads what these calls will read of a stream whose record has been read.
pub(crate) async fn prefetch(s: &Scope<'_>, key: &[u8], asked: &[Ahead<'_>]) -> Result<()> {
    let Some(rep) = object::ahead::<StreamRep>(s, key).await? else { return Ok(()) };
    let mut by_name: BTreeMap<&[u8], Vec<&Ahead<'_>>> = BTreeMap::new();
    for one in asked.iter().filter(|one| one.group.len() <= MAX_NAME) {
        by_name.entry(one.group).or_default().push(one);
    }
    try_join_all(by_name.iter().map(|(name, asked)| of_group(s, &rep, name, asked))).await?;
    Ok(())
}

async fn of_group(s: &Scope<'_>, rep: &StreamRep, name: &[u8], asked: &[&Ahead<'_>]) -> Result<()> {
    let Some(group) = groups::ahead(s, rep.oid, name).await? else { return Ok(()) };
    let at = Place { oid: rep.oid, group: group.number };
    let consumers =
        asked.iter().filter_map(|one| one.consumer).map(|name| s.db.consumer(at.oid, at.group, name));
    let pending = asked.iter().flat_map(|one| &one.pending).map(|id| s.db.pending(at.oid, at.group, *id));
    let entries = asked.iter().flat_map(|one| &one.entries).map(|id| s.db.entry(at.oid, *id));
    let rows: BTreeSet<Vec<u8>> = consumers.chain(pending).chain(entries).take(MOST).collect();
    let new = asked.iter().fold(0, |sum: u64, one| sum.saturating_add(one.new));
    let new = if new <= MOST_NEW { new as usize } else { 0 };
    try_join(reads::fetch(s.tx, rows.into_iter()), new_entries(s, rep, (at, &group), new)).await?;
    Ok(())
}

/// The entries that the group has not delivered, and those of them that are pending because XGROUP SETID led back.
async fn new_entries(
    s: &Scope<'_>,
    rep: &StreamRep,
    (at, group): (Place, &Group),
    limit: usize,
) -> StoreResult<()> {
    let Some(from) = group.last.next().filter(|_| limit > 0) else { return Ok(()) };
    let Some((begin, end)) = range::rows(s, rep, (from, Id::MAX)) else { return Ok(()) };
    let [from, to] = [from, rep.last].map(|id| s.db.pending(at.oid, at.group, id));
    let opts = RangeOptions { limit, bytes: PAGE, reverse: false };
    let entries = s.tx.get_range(&begin, &end, opts, Read::Snapshot);
    let to = key_after(&to);
    try_join(entries, s.tx.get_range(&from, &to, opts, Read::Snapshot)).await?;
    Ok(())
}
