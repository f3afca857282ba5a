//! HRANDFIELD: random fields.
//!
//! A draw from rows seeks a random hash and picks one of the next [`WINDOW`] fields: a field behind a gap is
//! then favoured by at most the mean of that many gaps, not by its own. The window wraps around. A hash is read
//! whole instead if at least a third of it is to be drawn (with repetitions: as many as it has), or [`MANY`] fields
//! and a twentieth, or if a draw meets only fields that have expired.
//!
//! A transaction that writes relies on what was drawn: that it still exists, and after a whole read or many
//! draws on every change.

use super::record::HashRep;
use super::rows::{self, Content, Held};
use super::{Pair, all, len, listpack};
use crate::env::Rng;
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::Oid;
use crate::keyspace::reads::get_many;
use crate::store::Read;
use crate::types::object;
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::collections::HashSet;

/// The fields among which a seek picks.
const WINDOW: usize = 16;
/// So many draws in a row that repeat a field: then the rest is drawn from all fields.
const REPEATS: usize = 64;
/// Seeks at a time.
const SEEKS: u64 = 64;
/// From so many draws on, the whole is read for a smaller share, and a transaction relies on all of it.
const MANY: u64 = 1024;
/// Draws from what was read, and their clean-up, before other tasks run.
const AT_A_TIME: usize = 4096;

/// Fields drawn, in the order of the draws; with their values, if these were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    pairs: Vec<Pair>,
    /// The draws as places in `pairs`. None: each of them once, in this order.
    places: Option<Vec<u32>>,
    with_values: bool,
}

impl Drawn {
    /// The number of draws.
    pub(crate) fn len(&self) -> usize {
        self.places.as_ref().map_or(self.pairs.len(), Vec::len)
    }

    /// Whether values were asked for.
    pub fn with_values(&self) -> bool {
        self.with_values
    }

    /// The field and value of a draw.
    pub(crate) fn get(&self, nth: usize) -> Option<&Pair> {
        match &self.places {
            Some(places) => self.pairs.get(*places.get(nth)? as usize),
            None => self.pairs.get(nth),
        }
    }

    /// The fields and values of all draws.
    pub fn iter(&self) -> impl Iterator<Item = &Pair> {
        (0..self.len()).filter_map(|nth| self.get(nth))
    }

    /// Bytes of all draws, about.
    pub(crate) fn size(&self) -> usize {
        let bytes: usize = self.pairs.iter().flatten().map(Bytes::len).sum();
        match self.len() {
            draws if self.places.is_some() => bytes / self.pairs.len().max(1) * draws,
            _ => bytes,
        }
    }
}

/// Up to `n` different fields, in random order.
pub async fn distinct(
    s: &Scope<'_>,
    rep: &HashRep,
    n: u64,
    with_values: bool,
    rng: &mut Rng,
) -> Result<Drawn> {
    let (oid, fields) = match rep {
        HashRep::Listpack(raw) => return shuffled(listpack::pairs(raw)?, n, with_values, rng).await,
        HashRep::Rows { oid, .. } => (*oid, len(s, Some(rep), Read::Snapshot).await?),
    };
    let whole =
        async |rng| shuffled(all(s, Some(rep), with_values, usize::MAX).await?, n, with_values, rng).await;
    if n >= fields / 3 || n >= MANY && n >= fields / 20 {
        return whole(rng).await;
    }
    let (mut seen, mut drawn, mut repeats) = (HashSet::new(), Vec::new(), 0);
    while (drawn.len() as u64) < n {
        let Some(some) = draw(s, oid, n - drawn.len() as u64, rng).await? else { return whole(rng).await };
        for (field, held) in some {
            if seen.insert(field.clone()) {
                drawn.push((field, held));
                repeats = 0;
            } else {
                repeats += 1;
            }
        }
        if repeats >= REPEATS {
            return whole(rng).await;
        }
    }
    finished(s, oid, drawn, with_values).await
}

/// `n` fields, with repetitions.
pub async fn repeated(
    s: &Scope<'_>,
    rep: &HashRep,
    n: u64,
    with_values: bool,
    rng: &mut Rng,
) -> Result<Drawn> {
    let (oid, fields) = match rep {
        HashRep::Listpack(raw) => return with_repetitions(listpack::pairs(raw)?, n, with_values, rng).await,
        HashRep::Rows { oid, .. } => (*oid, len(s, Some(rep), Read::Snapshot).await?),
    };
    let whole = async |rng| {
        with_repetitions(all(s, Some(rep), with_values, usize::MAX).await?, n, with_values, rng).await
    };
    if n >= fields || n >= MANY && n >= fields / 20 {
        return whole(rng).await;
    }
    let mut drawn = Vec::new();
    while (drawn.len() as u64) < n {
        let Some(some) = draw(s, oid, n - drawn.len() as u64, rng).await? else { return whole(rng).await };
        drawn.extend(some);
    }
    finished(s, oid, drawn, with_values).await
}

/// Reads the values of what was drawn, and conflicts with its removal.
async fn finished(s: &Scope<'_>, oid: Oid, drawn: Vec<(Bytes, Held)>, with_values: bool) -> Result<Drawn> {
    if drawn.len() as u64 >= MANY {
        object::count(s, oid, Read::Serializable).await?;
    } else {
        let rows: Vec<Vec<u8>> = drawn.iter().map(|(field, _)| s.db.field(oid, field)).collect();
        get_many(s.tx, &rows, Read::Serializable).await?;
    }
    let mut pairs = Vec::with_capacity(drawn.len());
    for (field, held) in drawn {
        let value = match held.content {
            _ if !with_values => Bytes::new(),
            Content::Inline(value) => value,
            Content::Pieces { .. } => rows::value(s.tx, s.db, oid, held).await?,
        };
        pairs.push([field, value]);
    }
    Ok(Drawn { pairs, places: None, with_values })
}

/// Fields near random hashes: up to `most`, and up to [`SEEKS`]. None if none of those near one of them exists: they
/// may all have expired.
async fn draw(s: &Scope<'_>, oid: Oid, most: u64, rng: &mut Rng) -> Result<Option<Vec<(Bytes, Held)>>> {
    let points: Vec<[u64; 2]> = (0..most.min(SEEKS)).map(|_| [rng.u64(), rng.u64()]).collect();
    Ok(try_join_all(points.into_iter().map(|point| near(s, oid, point))).await?.into_iter().collect())
}

/// One of the fields that follow a hash.
async fn near(s: &Scope<'_>, oid: Oid, [hash, pick]: [u64; 2]) -> Result<Option<(Bytes, Held)>> {
    let (first, middle, end) = (s.db.fields_from(oid, 0), s.db.fields_from(oid, hash), s.db.fields_end(oid));
    let mut window = rows::page(s.tx, s.db, (&middle, &end), (WINDOW, 0)).await?.fields;
    if window.len() < WINDOW {
        let missing = WINDOW - window.len();
        window.extend(rows::page(s.tx, s.db, (&first, &middle), (missing, 0)).await?.fields);
    }
    let mut alive = Vec::with_capacity(window.len());
    for found in window {
        if found.2.is_alive(s)? {
            alive.push(found);
        }
    }
    let Some(place) = pick.checked_rem(alive.len() as u64) else { return Ok(None) };
    let (_, field, held) = alive.swap_remove(place as usize);
    Ok(Some((field, held)))
}

async fn shuffled(mut pairs: Vec<Pair>, n: u64, with_values: bool, rng: &mut Rng) -> Result<Drawn> {
    let n = usize::try_from(n).unwrap_or(usize::MAX).min(pairs.len());
    for place in 0..n {
        let other = place + rng.below((pairs.len() - place) as u64) as usize;
        pairs.swap(place, other);
        breathe(place).await;
    }
    while pairs.len() > n {
        pairs.pop();
        breathe(pairs.len()).await;
    }
    Ok(Drawn { pairs, places: None, with_values })
}

async fn with_repetitions(pairs: Vec<Pair>, n: u64, with_values: bool, rng: &mut Rng) -> Result<Drawn> {
    let mut places = Vec::new();
    for nth in 0..if pairs.is_empty() { 0 } else { n as usize } {
        places.push(rng.below(pairs.len() as u64) as u32);
        breathe(nth).await;
    }
    Ok(Drawn { pairs, places: Some(places), with_values })
}

/// Yields to other tasks now and then in a loop of short steps; `nth` is the step's number.
async fn breathe(nth: usize) {
    if nth % AT_A_TIME == AT_A_TIME - 1 {
        tokio::task::yield_now().await;
    }
}
