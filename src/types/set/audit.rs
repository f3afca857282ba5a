//! Checks that a set's rows fit together: [`super::rows`] and [`super::chunk`] list the invariants.

use super::SetRep;
use super::chunk::{self, Row};
use super::rows::{BUCKETS, SLACK, bucket, delta_value};
use super::small::{MAX_INTS, MAX_RAW, MAX_RAW_LEN, Small};
use crate::error::StoreResult;
use crate::keyspace::dictionary::ids::FIRST_INTEGER;
use crate::keyspace::dictionary::known::{INTEGERS_END, KnownIds};
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::{RangeOptions, Rest};
use crate::types::audit::{AuditView, Auditor, Findings, Problem};
use crate::types::object::Count;
use bytes::Bytes;
use parking_lot::Mutex;
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, HashSet};

const PAGE: RangeOptions = RangeOptions { limit: 0, bytes: 1 << 18, reverse: false };
/// The problem of a set that is stored in its record, if any.
pub(crate) fn small(rep: &SetRep) -> Option<String> {
    let set = match Small::decode(rep) {
        Ok(set) => set?,
        Err(_) => return Some("a set in its record does not decode".into()),
    };
    if set.encode().ok().as_ref() != Some(rep) {
        return Some("a set in its record is not in canonical form".into());
    }
    if let Small::Ints(ids) = &set
        && let Some(id) = ids.iter().find(|id| !(FIRST_INTEGER..INTEGERS_END).contains(id))
    {
        return Some(format!("an intset in its record holds the id {id:#x}, which is not an integer's"));
    }
    let fits = match &set {
        Small::Ints(ids) => ids.len() <= MAX_INTS as u64,
        Small::Raw(members) => members.len() <= MAX_RAW && members.iter().all(|m| m.len() <= MAX_RAW_LEN),
    };
    let members = set.members();
    let distinct = members.iter().collect::<HashSet<_>>().len() == members.len();
    let sound = fits && distinct && !set.is_empty();
    (!sound).then(|| "a set in its record is empty, too large for a record, or holds a member twice".into())
}

/// The problems of a chunked set.
pub(crate) async fn chunked(auditor: &Auditor<'_>, oid: Oid) -> Findings {
    let mut audit = Audit {
        view: auditor.view,
        db: auditor.db,
        oid,
        known: auditor.known,
        problems: Vec::new(),
        chunks: BTreeMap::new(),
        current: None,
        cardinality: 0,
        weights: BTreeMap::new(),
        sums: BTreeMap::new(),
    };
    audit.each_row().await?;
    audit.bounds();
    audit.count().await?;
    audit.weigh();
    Ok(audit.problems)
}

struct Chunk {
    next: Option<u64>,
    len: u64,
}

struct Audit<'a> {
    view: &'a AuditView,
    db: Prefix,
    oid: Oid,
    known: &'a Mutex<KnownIds>,
    problems: Vec<Problem>,
    chunks: BTreeMap<u64, Chunk>,
    /// The chunk that covered the last delta.
    current: Option<Row>,
    cardinality: i128,
    /// Weights by bucket and first id.
    weights: BTreeMap<(u8, u64), u64>,
    /// Sums of weights by bucket, without their stamps.
    sums: BTreeMap<u8, u64>,
}

impl Audit<'_> {
    fn report(&mut self, row: &[u8], what: impl Into<String>) {
        self.problems.push(Problem::new(row, what));
    }

    /// Reads the rows in key order: chunks, deltas, sums, weights.
    async fn each_row(&mut self) -> StoreResult<()> {
        let (begin, end) = self.db.set_rows(self.oid);
        let (head, mut rest) = (begin.len(), Rest::of((begin, end)));
        while let Some(page) = self.view.next(&mut rest, PAGE).await? {
            for (row, value) in &page {
                match row.get(head..).map(<[u8; 9]>::try_from) {
                    Some(Ok([kind, id @ ..])) => self.row(row, kind, u64::from_be_bytes(id), value).await?,
                    _ => self.report(row, "a row of a set has an invalid key"),
                }
            }
        }
        Ok(())
    }

    async fn row(&mut self, row: &[u8], kind: u8, id: u64, value: &Bytes) -> StoreResult<()> {
        match kind {
            0 => return self.chunk(row, id, value).await,
            1 => return self.delta(row, id, value).await,
            2 if id < u64::from(BUCKETS) => match value.first_chunk().filter(|_| value.len() == 16) {
                Some(sum) => drop(self.sums.insert(id as u8, u64::from_le_bytes(*sum))),
                None => self.report(row, "a sum of weights does not decode"),
            },
            0x10.. if kind - 0x10 < BUCKETS => match value[..].try_into() {
                Ok(weight) => drop(self.weights.insert((kind - 0x10, id), u64::from_le_bytes(weight))),
                Err(_) => self.report(row, "a weight does not decode"),
            },
            _ => self.report(row, "an unknown kind of row of a set"),
        }
        Ok(())
    }

    async fn chunk(&mut self, key: &[u8], first: u64, value: &Bytes) -> StoreResult<()> {
        let row = Row::new(first, value.clone());
        let decoded = row.and_then(|row| Ok((row.ids()?, row.count()?, row)));
        let Ok((ids, count, row)) = decoded else {
            self.chunks.insert(first, Chunk { next: None, len: 0 });
            self.report(key, "a chunk does not decode");
            return Ok(());
        };
        if count != ids.len() || row.size() != ids.serialized_size() {
            self.report(key, "a chunk reads differently in place and decoded");
        }
        if chunk::container(first) != first || ids.iter().any(|id| !row.covers(id)) {
            self.report(key, "a chunk holds ids outside its bounds");
        }
        if row.size() > chunk::MAX_BYTES {
            self.report(key, format!("a chunk has {} bytes, more than {}", row.size(), chunk::MAX_BYTES));
        }
        self.cardinality += i128::from(ids.len());
        self.chunks.insert(first, Chunk { next: row.next, len: ids.len() });
        self.known_ids(key, &ids).await
    }

    /// Every member has its bytes. An id that was interned after the dictionary was read is looked up. An id
    /// that a delta has removed is not a member; the dictionary may no longer have it.
    async fn known_ids(&mut self, key: &[u8], ids: &RoaringTreemap) -> StoreResult<()> {
        let missing = self.known.lock().missing(ids);
        for id in missing {
            if id < FIRST_INTEGER && self.view.member(id).await?.is_some() {
                continue;
            }
            let delta = self.view.get(&self.db.delta(self.oid, id)).await?;
            if delta.is_some_and(|delta| delta[..] == *delta_value(false)) {
                continue;
            }
            self.report(key, format!("the id {id:#x} has no member"));
        }
        Ok(())
    }

    async fn delta(&mut self, key: &[u8], id: u64, value: &[u8]) -> StoreResult<()> {
        let adds = value == delta_value(true);
        if !adds && value != delta_value(false) {
            self.report(key, "a delta does not decode");
            return Ok(());
        }
        self.cardinality += if adds { 1 } else { -1 };
        if self.current.as_ref().is_none_or(|row| !row.covers(id)) {
            self.current = self.load(id).await?;
        }
        let in_chunk = self.current.as_ref().and_then(|row| row.contains(id).ok());
        match in_chunk {
            None => self.report(key, "a delta belongs to no chunk"),
            Some(member) if member == adds => self.report(key, "a delta repeats what its chunk already says"),
            Some(_) => {}
        }
        self.known_ids(key, &RoaringTreemap::from_iter([id])).await
    }

    async fn load(&self, id: u64) -> StoreResult<Option<Row>> {
        let Some((first, _)) = self.chunks.range(..=id).next_back() else { return Ok(None) };
        let raw = self.view.get(&self.db.chunk(self.oid, *first)).await?;
        Ok(raw.and_then(|raw| Row::new(*first, raw).ok()).filter(|row| row.covers(id)))
    }

    /// Chunks begin at 0 and follow each other without a gap.
    fn bounds(&mut self) {
        let firsts: Vec<u64> = self.chunks.keys().copied().collect();
        if firsts.first() != Some(&0) {
            self.report(&self.db.chunk(self.oid, 0), "the set has no chunk at 0");
        }
        for (n, first) in firsts.iter().enumerate() {
            let (said, next) = (self.chunks.get(first).and_then(|c| c.next), firsts.get(n + 1).copied());
            if said != next {
                let row = self.db.chunk(self.oid, *first);
                self.report(
                    &row,
                    format!("a chunk names {} as the next one, which is {}", place(said), place(next)),
                );
            }
        }
    }

    /// N is the number of members in chunks and deltas.
    async fn count(&mut self) -> StoreResult<()> {
        let row = self.db.count(self.oid);
        let raw = self.view.get(&row).await?;
        let Some(count) = raw
            .as_deref()
            .map_or(Some(Count(0)), |raw| raw.try_into().ok().map(|b| Count(i128::from_le_bytes(b))))
        else {
            self.report(&row, "the member count is not 16 bytes");
            return Ok(());
        };
        if i128::from(count.cardinality()) != self.cardinality {
            self.report(
                &row,
                format!(
                    "the member count is {}, but the set has {} members",
                    count.cardinality(),
                    self.cardinality
                ),
            );
        }
        Ok(())
    }

    /// Each chunk has its weight, and each bucket the sum of its weights.
    fn weigh(&mut self) {
        let mut stored = std::mem::take(&mut self.weights);
        let mut sums: BTreeMap<u8, u64> = BTreeMap::new();
        for (first, chunk) in std::mem::take(&mut self.chunks) {
            let (bucket, weight) = (bucket(first), chunk.len + SLACK);
            *sums.entry(bucket).or_default() += weight;
            let said = stored.remove(&(bucket, first));
            if said != Some(weight) {
                let row = self.db.weight(self.oid, bucket, first);
                self.report(&row, format!("a chunk's weight is {}, not {weight}", or_missing(said)));
            }
        }
        for ((bucket, first), _) in stored {
            self.report(&self.db.weight(self.oid, bucket, first), "a weight belongs to no chunk");
        }
        for bucket in 0..BUCKETS {
            let (said, sum) = (self.sums.get(&bucket).copied(), sums.get(&bucket).copied());
            if said.unwrap_or(0) != sum.unwrap_or(0) {
                let row = self.db.weight_sum(self.oid, bucket);
                self.report(
                    &row,
                    format!("a bucket's sum of weights is {}, not {}", or_missing(said), sum.unwrap_or(0)),
                );
            }
        }
    }
}

/// The place of a chunk, for a report.
fn place(first: Option<u64>) -> String {
    first.map_or("none".to_owned(), |first| format!("{first:#x}"))
}

fn or_missing(number: Option<u64>) -> String {
    number.map_or("missing".to_owned(), |number| number.to_string())
}
