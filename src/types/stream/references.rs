//! The groups of a stream that still refer to an entry, for commands that delete entries with regard to them (KEEPREF, DELREF,
//! ACKED).

use super::groups::{self, Group, Place};
use super::pending::{self, Ledger};
use super::range::{self, Span};
use super::{StreamRep, entry};
use crate::error::Result;
use crate::keyspace::keys::{Id, Oid};
use crate::keyspace::{Scope, reads};
use bytes::Bytes;
use std::collections::HashSet;
use tokio::task::coop::consume_budget;

/// Pending entries that are looked at together.
const STEP: usize = 256;

/// What becomes of the groups' references to an entry that is to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// They stay.
    #[default]
    Keep,
    /// They are deleted, too.
    Delete,
    /// The entry stays as long as there are any: until every group has delivered it, and it was acknowledged wherever it was
    /// delivered.
    Acked,
}

/// All groups of a stream, and the changes of their pending entries that [`References::settle`] completes.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct References {
    groups: Vec<(Place, Group, Ledger)>,
}

impl References {
    /// The groups, read serializably. `weigh` is shown the bytes of their rows read so far, and may fail.
    pub(crate) async fn load(s: &Scope<'_>, oid: Oid, weigh: impl Fn(u64) -> Result<()>) -> Result<Self> {
        let (mut groups, mut bytes) = (Vec::new(), 0);
        let add = |name: Bytes, group: Group| {
            bytes += name.len() as u64 + entry::ROW;
            let at = Place { oid, group: group.number };
            groups.push((at, group, Ledger::new(at)));
            weigh(bytes)
        };
        groups::each(s, oid, add).await?;
        Ok(References { groups })
    }

    /// Bytes of the rows that tell of `n` entries what refers to them, theirs included.
    pub(crate) fn bytes(&self, n: u64) -> u64 {
        n.saturating_mul(entry::ROW).saturating_mul(self.groups.len() as u64 + 1)
    }

    /// Every entry behind this one is yet to be delivered by a group.
    pub(super) fn delivered(&self) -> Id {
        self.groups.iter().map(|(_, group, _)| group.last).min().unwrap_or(Id::MAX)
    }

    /// The ids of a span that are pending in a group.
    pub(super) async fn pending(&self, s: &Scope<'_>, (from, to): Span) -> Result<HashSet<Id>> {
        let mut found = HashSet::new();
        for (at, ..) in &self.groups {
            let mut walk = pending::Walk::new(*at, (from, to), 0);
            while let Some((id, _)) = walk.next(s).await? {
                found.insert(id);
            }
        }
        Ok(found)
    }

    /// Reads rows of entries that will be asked for one after the other, if that saves round trips.
    pub(crate) async fn fetch(&self, s: &Scope<'_>, ids: &[Id]) -> Result<()> {
        for (at, ..) in &self.groups {
            pending::fetch(s, *at, ids.iter().copied()).await?;
        }
        Ok(())
    }

    /// Whether a group has yet to deliver an entry, or it is pending in one.
    pub(crate) async fn has(&self, s: &Scope<'_>, id: Id) -> Result<bool> {
        if self.groups.iter().any(|(_, group, _)| id > group.last) {
            return Ok(true);
        }
        for (at, ..) in &self.groups {
            if pending::get(s, *at, id).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes an entry from the pending ones of all groups.
    pub(crate) async fn delete(&mut self, s: &Scope<'_>, id: Id) -> Result<()> {
        for (at, _, ledger) in &mut self.groups {
            if let Some(old) = pending::get(s, *at, id).await? {
                ledger.remove(s, id, old.consumer)?;
            }
        }
        Ok(())
    }

    /// Deletes the entries that a span of a stream has from the pending ones of all groups.
    pub(super) async fn delete_in(&mut self, s: &Scope<'_>, rep: &StreamRep, (from, to): Span) -> Result<()> {
        for (at, _, ledger) in &mut self.groups {
            let mut next = Some(from);
            while let Some(from) = next {
                let page = pending::page(s, *at, (from, to), (STEP, false)).await?;
                reads::fetch(s.tx, page.entries.iter().map(|(id, _)| s.db.entry(rep.oid, *id))).await?;
                for (id, old) in page.entries {
                    if range::find(s, rep, id).await?.is_some() {
                        ledger.remove(s, id, old.consumer)?;
                    }
                    consume_budget().await;
                }
                next = page.next;
            }
        }
        Ok(())
    }

    /// Writes the counts.
    pub(crate) fn settle(self, s: &Scope<'_>) -> Result<()> {
        self.groups.into_iter().try_for_each(|(_, _, ledger)| ledger.settle(s))
    }
}
