//! Delivers entries to a consumer of a group: new ones, its own again, or those of others.
//!
//! One call delivers at most [`MOST`] entries of all its streams, and stops behind the one that reaches [`MOST_BYTES`] or
//! [`ROOM`], so that it fits into a transaction and into memory: a client that asks for more gets the rest with its next call.

use super::StreamRep;
use super::consumers::Asked;
use super::entry::{self, Entry};
use super::groups::{self, Group, Place};
use super::pending::{self, Ledger, Pending};
use super::range;
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::Id;
use crate::keyspace::reads;
use crate::store::{MAX_TRANSACTION, key_after};
use std::collections::{BinaryHeap, HashMap};
use tokio::task::coop::consume_budget;

/// The most entries of one call.
pub(crate) const MOST: u64 = 1 << 14;
/// Bytes of entries behind which a call stops.
const MOST_BYTES: u64 = 16 << 20;
/// Pending entries read at once.
const STEP: usize = 256;
/// The entries that XAUTOCLAIM looks at, for each that it may return.
const ATTEMPTS: u64 = 10;

/// Bytes of a transaction behind which a call stops, and those that an entry takes of it at most: what its rows and the
/// conflicts on them hold, and what the engine counts besides for each of so many rows, with keys of so many bytes.
const ROOM: u64 = MAX_TRANSACTION as u64 / 10 * 9;
const CHANGE: u64 = 512;
const ROWS: usize = 3;
const KEY: usize = 64;

/// What a call has read so far, of all its streams.
pub(crate) struct Weight<F> {
    bytes: u64,
    entries: u64,
    /// Those of which nothing is written yet.
    unwritten: u64,
    /// None as soon as something is written.
    weigh: Option<F>,
}

impl<F: Fn(u64) -> Result<()>> Weight<F> {
    /// Nothing yet. `weigh` is shown the bytes that were found so far, before anything is written, and may fail.
    pub(crate) fn new(weigh: F) -> Self {
        Weight { bytes: 0, entries: 0, unwritten: 0, weigh: Some(weigh) }
    }

    /// What was read so far is written: from now on nothing may fail.
    pub(crate) fn written(&mut self) {
        self.unwritten = 0;
        self.weigh = None;
    }

    fn add(&mut self, bytes: u64) -> Result<()> {
        self.bytes += bytes + entry::ROW;
        self.entries += 1;
        self.unwritten += 1;
        self.weigh.as_ref().map_or(Ok(()), |weigh| weigh(self.bytes))
    }

    /// Whether the call has to stop. Never before its first entry.
    pub(crate) fn is_full(&self, s: &Scope<'_>) -> bool {
        let change = || CHANGE + (ROWS * s.tx.overhead(KEY)) as u64;
        let taken = || s.tx.size() as u64 + self.unwritten * change();
        let is_much = || self.entries >= MOST || self.bytes >= MOST_BYTES || taken() >= ROOM;
        self.entries > 0 && is_much()
    }
}

/// A consumer that asks for entries of a stream.
pub(crate) struct Asking<'a> {
    /// The stream.
    pub(crate) rep: &'a StreamRep,
    /// The group.
    pub(crate) at: Place,
    /// The consumer. What is done here is noted in it; its row is yet to be written.
    pub(crate) asked: Asked,
}

impl Asking<'_> {
    /// An entry, if it is there when this transaction commits.
    async fn entry(&self, s: &Scope<'_>, id: Id) -> Result<Option<Entry>> {
        let row = s.db.entry(self.rep.oid, id);
        s.tx.add_read_conflict(&row, &key_after(&row))?;
        range::get(s, self.rep, id).await
    }

    /// Whether there is an entry, as [`Asking::entry`].
    async fn exists(&self, s: &Scope<'_>, id: Id) -> Result<bool> {
        let row = s.db.entry(self.rep.oid, id);
        s.tx.add_read_conflict(&row, &key_after(&row))?;
        Ok(range::find(s, self.rep, id).await?.is_some())
    }

    /// Reads rows of entries that will be read one after the other, if that saves round trips.
    async fn fetch(&self, s: &Scope<'_>, ids: impl Iterator<Item = Id>) -> Result<()> {
        Ok(reads::fetch(s.tx, ids.map(|id| s.db.entry(self.rep.oid, id))).await?)
    }

    /// New entries of a group, `count` at most, which become pending unless `noack`. The group's row is written.
    pub(crate) async fn deliver<F: Fn(u64) -> Result<()>>(
        &mut self,
        s: &Scope<'_>,
        (name, mut group): (&[u8], Group),
        (count, noack): (u64, bool),
        weight: &mut Weight<F>,
    ) -> Result<Vec<Entry>> {
        let found = self.new_entries(s, group.last, count.min(MOST), weight).await?;
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return Ok(found) };
        for entry in &found {
            group.advance(self.rep, entry.id);
        }
        groups::put(s, self.rep.oid, name, &group)?;
        if noack {
            return Ok(found);
        }
        // XGROUP SETID may have led back to entries that are pending.
        let mut walk = pending::Walk::new(self.at, (first.id, last.id), 0);
        let (mut ledger, mut old) = (Ledger::new(self.at), walk.next(s).await?);
        let new = Pending { consumer: self.asked.consumer.number, time: s.now, count: 1 };
        for entry in &found {
            while old.is_some_and(|(id, _)| id < entry.id) {
                old = walk.next(s).await?;
            }
            let before = old.filter(|(id, _)| *id == entry.id).map(|(_, pending)| pending);
            ledger.put(s, entry.id, before.as_ref(), &new)?;
            consume_budget().await;
        }
        ledger.settle(s)?;
        self.asked.consumer.active = Some(s.now);
        Ok(found)
    }

    /// Entries behind an id, and a conflict with whatever changes which these are.
    async fn new_entries<F: Fn(u64) -> Result<()>>(
        &self,
        s: &Scope<'_>,
        after: Id,
        count: u64,
        weight: &mut Weight<F>,
    ) -> Result<Vec<Entry>> {
        let Some(from) = after.next() else { return Ok(Vec::new()) };
        let (mut found, mut is_full) = (Vec::new(), count == 0 || weight.is_full(s));
        if is_full {
            return Ok(found);
        }
        let mut walk = range::Walk::new(s, self.rep, (from, Id::MAX), false);
        while !is_full {
            let limit = count as usize - found.len();
            let Some(page) = walk.next(s, limit).await? else { break };
            for (id, held) in page {
                weight.add(held.len())?;
                found.push(walk.read(s, id, held).await?);
                is_full = found.len() as u64 >= count || weight.is_full(s);
                if is_full {
                    break;
                }
            }
        }
        let begin = s.db.entry(self.rep.oid, from);
        let end = match found.last() {
            Some(last) if is_full => key_after(&s.db.entry(self.rep.oid, last.id)),
            Some(_) | None => s.db.entries_end(self.rep.oid),
        };
        s.tx.add_read_conflict(&begin, &end)?;
        Ok(found)
    }

    /// The consumer's own pending entries from an id on. All but those that were deleted, which have no fields, are
    /// delivered again.
    pub(crate) async fn again<F: Fn(u64) -> Result<()>>(
        &self,
        s: &Scope<'_>,
        from: Id,
        count: u64,
        weight: &mut Weight<F>,
    ) -> Result<Vec<Entry>> {
        let (mut found, mut next) = (Vec::<Entry>::new(), Some(from));
        let count = count.min(MOST) as usize;
        while let Some(from) = next.filter(|_| found.len() < count && !weight.is_full(s)) {
            let limit = (count - found.len()).min(STEP);
            let page = pending::owned(s, self.at, self.asked.consumer.number, from, limit).await?;
            next = page.next;
            self.fetch(s, page.ids.iter().copied()).await?;
            for id in page.ids {
                if weight.is_full(s) {
                    break;
                }
                let entry = self.entry(s, id).await?.unwrap_or(Entry { id, raw: Default::default() });
                weight.add(entry.raw.len() as u64)?;
                found.push(entry);
                consume_budget().await;
            }
        }
        pending::fetch(s, self.at, found.iter().map(|entry| entry.id)).await?;
        let mut ledger = Ledger::new(self.at);
        for entry in found.iter().filter(|entry| !entry.raw.is_empty()) {
            if let Some(old) = pending::get(s, self.at, entry.id).await? {
                let new = Pending { time: s.now, count: old.count.saturating_add(1), ..old };
                ledger.put(s, entry.id, Some(&old), &new)?;
            }
            consume_budget().await;
        }
        ledger.settle(s)?;
        Ok(found)
    }
}

/// What a look at the pending entries of a group found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Idle {
    /// Whether an entry has been pending for long enough, and was not deleted.
    pub(crate) is_any: bool,
    /// Unless there is one, milliseconds until there may be one.
    pub(crate) left: u64,
    /// Entries that it read: of the group, and of the stream.
    pub(crate) passed: u64,
}

/// Looks for an entry of a group that has been pending for at least `min_idle` milliseconds. A snapshot.
pub(crate) async fn idle(s: &Scope<'_>, rep: &StreamRep, at: Place, min_idle: u64) -> Result<Idle> {
    let mut idle = Idle { is_any: false, left: min_idle, passed: 0 };
    let Some(until) = s.now.checked_sub(min_idle) else { return Ok(idle) };
    let mut times = pending::Times::new(s, at);
    while let Some(page) = times.next(s).await? {
        idle.passed += page.len() as u64;
        for places in page.chunks(STEP) {
            let (old, new): (Vec<_>, Vec<_>) = places.iter().partition(|(time, _)| *time <= until);
            idle.left = new.iter().map(|(time, _)| time - until).chain([idle.left]).min().unwrap_or(0);
            reads::fetch(s.tx, old.iter().map(|(_, id)| s.db.entry(rep.oid, *id))).await?;
            for (_, id) in old {
                idle.passed += 1;
                if range::find(s, rep, id).await?.is_some() {
                    return Ok(Idle { is_any: true, ..idle });
                }
                consume_budget().await;
            }
        }
    }
    Ok(idle)
}

/// The `most` entries of a group that were delivered longest ago, at `until` at the latest, and were not deleted; by the times
/// and their ids. A snapshot.
async fn oldest(
    s: &Scope<'_>,
    rep: &StreamRep,
    at: Place,
    (until, most): (u64, usize),
) -> Result<Vec<(u64, Id)>> {
    let (mut times, mut found) = (pending::Times::new(s, at), BinaryHeap::new());
    while let Some(page) = times.next(s).await? {
        for places in page.chunks(STEP) {
            let is_wanted = |found: &BinaryHeap<(u64, Id)>, place: &(u64, Id)| {
                place.0 <= until && (found.len() < most || found.peek().is_some_and(|last| place < last))
            };
            let wanted: Vec<_> = places.iter().filter(|place| is_wanted(&found, place)).copied().collect();
            reads::fetch(s.tx, wanted.iter().map(|(_, id)| s.db.entry(rep.oid, *id))).await?;
            for place in wanted {
                if is_wanted(&found, &place) && range::find(s, rep, place.1).await?.is_some() {
                    found.push(place);
                }
                if found.len() > most {
                    found.pop();
                }
                consume_budget().await;
            }
        }
    }
    Ok(found.into_sorted_vec())
}

/// How XCLAIM and XAUTOCLAIM take entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    /// Milliseconds since its last delivery that an entry must have.
    pub(crate) min_idle: u64,
    /// When it is said to be delivered.
    pub(crate) time: u64,
    /// How often it is said to have been delivered. None: once more than before, unless its id alone is returned.
    pub(crate) count: Option<u64>,
    /// Whether an entry that is not pending becomes so.
    pub(crate) force: bool,
    /// Whether ids alone are returned.
    pub(crate) just_id: bool,
}

/// What was claimed.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    /// The entries: without fields if ids alone were asked for.
    pub(crate) entries: Vec<Entry>,
    /// Entries that were deleted. They are no longer pending.
    pub(crate) deleted: Vec<Id>,
    /// Where the next call goes on.
    pub(crate) next: Option<Id>,
}

impl Claim {
    /// What an entry that was pending as `old` says becomes. None: it does not change.
    fn of(&self, consumer: u64, old: Option<&Pending>, now: u64) -> Option<Pending> {
        let before = match old {
            Some(old) if old.idle(now) < self.min_idle => return None,
            Some(old) => old.count,
            None if self.force => 1,
            None => return None,
        };
        let count = self.count.unwrap_or(before.saturating_add(u64::from(!self.just_id)));
        Some(Pending { consumer, time: self.time, count })
    }
}

/// An entry that is about to change: how it was, and how it will be; None: it goes.
type Change = (Id, Option<Pending>, Option<Pending>);

impl Asking<'_> {
    /// Looks at an entry that is pending as `old` says, and notes what becomes of it.
    async fn claim_one<F: Fn(u64) -> Result<()>>(
        &self,
        s: &Scope<'_>,
        claim: &Claim,
        (id, old): (Id, Option<Pending>),
        (claimed, changes, weight): (&mut Claimed, &mut Vec<Change>, &mut Weight<F>),
    ) -> Result<()> {
        let entry = match claim.just_id {
            true => self.exists(s, id).await?.then(|| Entry { id, raw: Default::default() }),
            false => self.entry(s, id).await?,
        };
        weight.add(entry.as_ref().map_or(0, |entry| entry.raw.len() as u64))?;
        let Some(entry) = entry else {
            if old.is_some() {
                claimed.deleted.push(id);
                changes.push((id, old, None));
            }
            return Ok(());
        };
        if let Some(new) = claim.of(self.asked.consumer.number, old.as_ref(), s.now) {
            changes.push((id, old, Some(new)));
            claimed.entries.push(entry);
        }
        Ok(())
    }

    /// Writes what was noted.
    fn settle(&mut self, s: &Scope<'_>, changes: Vec<Change>) -> Result<()> {
        let mut ledger = Ledger::new(self.at);
        for (id, old, new) in changes {
            match (old, new) {
                (old, Some(new)) => {
                    ledger.put(s, id, old.as_ref(), &new)?;
                    self.asked.consumer.active = Some(s.now);
                }
                (Some(old), None) => ledger.remove(s, id, old.consumer)?,
                (None, None) => {}
            }
        }
        ledger.settle(s)
    }

    /// Takes the entries of these ids.
    pub(crate) async fn claim(
        &mut self,
        s: &Scope<'_>,
        claim: &Claim,
        ids: &[Id],
        weigh: impl Fn(u64) -> Result<()> + Send,
    ) -> Result<Claimed> {
        let (mut claimed, mut changes, mut weight) =
            (Claimed::default(), Vec::<Change>::new(), Weight::new(weigh));
        let mut noted: HashMap<Id, Option<Pending>> = HashMap::new();
        for (n, id) in ids.iter().enumerate() {
            if n % STEP == 0 {
                let some = ids.iter().skip(n).take(STEP).copied();
                pending::fetch(s, self.at, some.clone()).await?;
                self.fetch(s, some).await?;
            }
            let old = match noted.get(id) {
                Some(old) => *old,
                None => pending::get(s, self.at, *id).await?,
            };
            let before = changes.len();
            self.claim_one(s, claim, (*id, old), (&mut claimed, &mut changes, &mut weight)).await?;
            let new = changes.get(before).map_or(old, |(.., new)| *new);
            noted.insert(*id, new);
            consume_budget().await;
        }
        self.settle(s, changes)?;
        Ok(claimed)
    }

    /// Takes entries from an id on, `count` at most, those that were deleted included.
    pub(crate) async fn claim_from(
        &mut self,
        s: &Scope<'_>,
        claim: &Claim,
        (from, count): (Id, u64),
        weigh: impl Fn(u64) -> Result<()> + Send,
    ) -> Result<Claimed> {
        let (mut claimed, mut changes, mut weight) = (Claimed::default(), Vec::new(), Weight::new(weigh));
        let (mut attempts, mut next) = (count.saturating_mul(ATTEMPTS), Some(from));
        'all: while let Some(from) = next {
            let limit = STEP.min(attempts as usize + 1);
            let page = pending::page(s, self.at, (from, Id::MAX), (limit, false)).await?;
            self.fetch(s, page.entries.iter().map(|(id, _)| *id)).await?;
            for (id, old) in page.entries {
                if attempts == 0 || changes.len() as u64 >= count || weight.is_full(s) {
                    claimed.next = Some(id);
                    break 'all;
                }
                attempts -= 1;
                let parts = (&mut claimed, &mut changes, &mut weight);
                self.claim_one(s, claim, (id, Some(old)), parts).await?;
                consume_budget().await;
            }
            next = page.next;
        }
        self.settle(s, changes)?;
        Ok(claimed)
    }

    /// Takes the entries that have been pending for at least `min_idle` milliseconds, `count` at most: those first that were
    /// delivered longest ago. Returns how they were pending, too. Those that were deleted stay.
    pub(crate) async fn claim_idle<F: Fn(u64) -> Result<()>>(
        &mut self,
        s: &Scope<'_>,
        (min_idle, count): (u64, u64),
        weight: &mut Weight<F>,
    ) -> Result<Vec<(Entry, Pending)>> {
        let Some(until) = s.now.checked_sub(min_idle) else { return Ok(Vec::new()) };
        let most = count.min(MOST) as usize;
        let (places, mut found) = (oldest(s, self.rep, self.at, (until, most)).await?, Vec::new());
        for some in places.chunks(STEP) {
            pending::fetch(s, self.at, some.iter().map(|(_, id)| *id)).await?;
            self.fetch(s, some.iter().map(|(_, id)| *id)).await?;
            for (_, id) in some {
                if weight.is_full(s) {
                    break;
                }
                let Some(old) = pending::get(s, self.at, *id).await? else { continue };
                let Some(entry) = self.entry(s, *id).await? else { continue };
                weight.add(entry.raw.len() as u64)?;
                found.push((entry, old));
                consume_budget().await;
            }
        }
        let new = |old: &Pending| {
            let (consumer, count) = (self.asked.consumer.number, old.count.saturating_add(1));
            Pending { consumer, time: s.now, count }
        };
        let changes = found.iter().map(|(entry, old)| (entry.id, Some(*old), Some(new(old)))).collect();
        self.settle(s, changes)?;
        Ok(found)
    }
}
