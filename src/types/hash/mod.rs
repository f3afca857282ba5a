//! Hashes: two encodings, one set of operations.
//!
//! | where | when |
//! |---|---|
//! | in the record ([`listpack`]) | within the limits of the options `hash-max-listpack-*`, and at most 4 KiB |
//! | a row a field ([`rows`]) | the rest |
//!
//! OBJECT ENCODING answers by the options' limits alone: a hash within them keeps the name listpack in rows, too.
//!
//! Operations take a [`Scope`] (one database in one transaction) and the slot from [`object::open_members`];
//! those that write need a slot from a serializable open. Reads conflict as finely as the answer
//! allows: a read of fields with changes of these fields, a read of the whole hash with every change (through
//! N). A hash that becomes empty loses its key. Fields may expire ([`expiry`]).

mod audit;
pub mod expiry;
mod listpack;
pub(crate) mod prebuild;
mod record;
mod rows;
pub mod sample;
pub mod scan;
pub mod stream;

use crate::config::Settings;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{MAX_FIELD, Oid};
use crate::keyspace::packed::Packed;
use crate::keyspace::reads::get_many as get_rows;
use crate::store::Read;
use crate::types::Value;
use crate::types::contents::Parts;
use crate::types::dumped::Field;
use crate::types::object::{self, Slot};
use bytes::Bytes;
pub use record::HashRep;
pub(crate) use rows::check_field;
use rows::{Content, Held};
use std::collections::{BTreeMap, BTreeSet};

/// A field and its value.
pub type Pair = [Bytes; 2];

/// The number of remaining fields up to which a removal reads N serializably, to see the hash become empty.
const SMALL: u64 = 256;
/// Bytes of rows up to which a hash is read at once for a reply.
const FEW: usize = 64 << 10;

/// The limits of the encoding listpack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most fields.
    pub fields: usize,
    /// The longest field or value, in bytes.
    pub length: usize,
}

impl Limits {
    /// The limits that the options set.
    pub(crate) fn of(settings: &Settings) -> Self {
        Limits { fields: settings.hash_max_listpack_entries, length: settings.hash_max_listpack_value }
    }

    fn allow_pairs(self, pairs: &[Pair]) -> bool {
        pairs.iter().flatten().all(|part| part.len() <= self.length)
    }
}

/// The value of a field that exists.
#[derive(Debug, Clone)]
pub enum Found {
    /// The value itself.
    Here(Bytes),
    /// A long value, which has yet to be read.
    Long(Long),
}

/// A long value of a hash.
#[derive(Debug, Clone)]
pub struct Long {
    oid: Oid,
    held: Held,
}

impl Found {
    fn of(oid: Oid, held: Held) -> Self {
        match held.content {
            Content::Inline(value) => Found::Here(value),
            Content::Pieces { .. } => Found::Long(Long { oid, held }),
        }
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Found::Here(value) => value.len() as u64,
            Found::Long(long) => long.held.len(),
        }
    }

    /// The value.
    pub async fn read(self, s: &Scope<'_>) -> Result<Bytes> {
        match self {
            Found::Here(value) => Ok(value),
            Found::Long(Long { oid, held }) => rows::value(s.tx, s.db, oid, held).await,
        }
    }
}

/// The value of `field`, if it exists.
pub async fn find(s: &Scope<'_>, rep: Option<&HashRep>, field: &Bytes) -> Result<Option<Found>> {
    match rep {
        None => Ok(None),
        Some(HashRep::Listpack(raw)) => {
            Ok(listpack::find(raw, field)?.map(|value| Found::Here(raw.slice_ref(value))))
        }
        Some(HashRep::Rows { oid, .. }) => {
            let held = rows::alive(s, rows::get_held(s, *oid, field).await?)?;
            Ok(held.map(|held| Found::of(*oid, held)))
        }
    }
}

/// As [`find`], for each of `fields`.
pub async fn find_many(s: &Scope<'_>, rep: Option<&HashRep>, fields: &[Bytes]) -> Result<Vec<Option<Found>>> {
    let oid = match rep {
        None => return Ok(vec![None; fields.len()]),
        Some(HashRep::Listpack(raw)) => {
            let found = |field: &Bytes| {
                Ok(listpack::find(raw, field)?.map(|value| Found::Here(raw.slice_ref(value))))
            };
            return fields.iter().map(found).collect();
        }
        Some(HashRep::Rows { oid, .. }) => *oid,
    };
    let held = rows::get_all_held(s, oid, &Vec::from_iter(fields)).await?.into_iter();
    held.map(|held| Ok(rows::alive(s, held)?.map(|held| Found::of(oid, held)))).collect()
}

/// The length in bytes of the value of `field`; None if there is no such field.
pub async fn length(s: &Scope<'_>, rep: Option<&HashRep>, field: &Bytes) -> Result<Option<u64>> {
    Ok(find(s, rep, field).await?.map(|found| found.len()))
}

/// Reads ahead, in one round, what [`find`], [`set`] and [`remove`] of these fields will read of a hash whose
/// record has been read. For engines behind a network: the transaction answers repeated reads itself.
pub(crate) async fn prefetch(s: &Scope<'_>, key: &[u8], fields: &[&Bytes]) -> Result<()> {
    let Some(HashRep::Rows { oid, .. }) = object::ahead(s, key).await? else { return Ok(()) };
    let possible = fields.iter().filter(|field| field.len() <= MAX_FIELD);
    let rows: BTreeSet<Vec<u8>> = possible.map(|field| s.db.field(oid, field)).collect();
    let rows: Vec<Vec<u8>> = rows.into_iter().chain([s.db.count(oid)]).collect();
    get_rows(s.tx, &rows, Read::Snapshot).await?;
    Ok(())
}

/// Number of fields, without those that have expired.
pub async fn len(s: &Scope<'_>, rep: Option<&HashRep>, read: Read) -> Result<u64> {
    match rep {
        None => Ok(0),
        Some(HashRep::Listpack(raw)) => listpack::len(raw),
        Some(HashRep::Rows { oid, due, .. }) => {
            let rows = object::count(s, *oid, read).await?.cardinality();
            Ok(rows.saturating_sub(expiry::expired(s, *oid, *due).await?))
        }
    }
}

/// Sets fields, which then do not expire; the last value of each counts. Returns the number of new ones.
/// WRONGTYPE if the key holds another type.
pub async fn set(s: &Scope<'_>, slot: &mut Slot, limits: Limits, pairs: &[Pair]) -> Result<u64> {
    set_fields(s, slot, limits, pairs, false).await
}

/// As [`set`], but fields that exist keep their expiries.
pub async fn set_values(s: &Scope<'_>, slot: &mut Slot, limits: Limits, pairs: &[Pair]) -> Result<u64> {
    set_fields(s, slot, limits, pairs, true).await
}

async fn set_fields(
    s: &Scope<'_>,
    slot: &mut Slot,
    limits: Limits,
    pairs: &[Pair],
    keeps_expiry: bool,
) -> Result<u64> {
    object::check_name(&slot.key)?;
    slot.hash()?;
    pairs.iter().try_for_each(|[field, _]| rows::check_field(field))?;
    let raw = match slot.hash()? {
        None => Bytes::new(),
        Some(HashRep::Listpack(raw)) => raw.clone(),
        Some(HashRep::Rows { oid, is_small, due }) => {
            let at = (*oid, *is_small, *due);
            return set_rows(s, slot, at, limits, (pairs, keeps_expiry)).await;
        }
    };
    let old = listpack::decode(&raw)?;
    let before = old.len();
    let grown = listpack::grow(old, pairs);
    let new = (grown.len() - before) as u64;
    let is_small = grown.len() <= limits.fields && limits.allow_pairs(pairs);
    let bytes: usize = grown.iter().map(|pair| listpack::size(*pair)).sum();
    let rep = if is_small && bytes <= listpack::MAX_BYTES {
        HashRep::Listpack(listpack::encode(&grown))
    } else {
        HashRep::Rows { oid: rows::create(s, &grown)?, is_small, due: None }
    };
    put(s, slot, rep)?;
    Ok(new)
}

async fn set_rows(
    s: &Scope<'_>,
    slot: &mut Slot,
    (oid, is_small, due): (Oid, bool, Option<u64>),
    limits: Limits,
    (pairs, keeps_expiry): (&[Pair], bool),
) -> Result<u64> {
    let new = rows::put(s, oid, pairs, keeps_expiry).await?;
    let stays = async || -> Result<bool> {
        let fields = object::count(s, oid, Read::Snapshot).await?.cardinality();
        Ok(limits.allow_pairs(pairs) && fields <= limits.fields as u64)
    };
    if is_small && !stays().await? {
        put(s, slot, HashRep::Rows { oid, is_small: false, due })?;
    }
    s.changed(&slot.key);
    Ok(new)
}

fn put(s: &Scope<'_>, slot: &mut Slot, rep: HashRep) -> Result<()> {
    let expire_at = slot.expire_at();
    object::put(s, slot, Value::Hash(rep), expire_at)
}

/// Removes `fields`; without the last one the key goes. Returns the number removed.
pub async fn remove(s: &Scope<'_>, slot: &mut Slot, fields: &[Bytes]) -> Result<u64> {
    let raw = match slot.hash()? {
        None => return Ok(0),
        Some(HashRep::Rows { oid, .. }) => {
            let oid = *oid;
            return remove_rows(s, slot, oid, fields).await;
        }
        Some(HashRep::Listpack(raw)) => raw.clone(),
    };
    let mut pairs = listpack::decode(&raw)?;
    let before = pairs.len();
    pairs.retain(|(field, _)| !fields.iter().any(|gone| gone == field));
    let gone = (before - pairs.len()) as u64;
    match gone {
        0 => {}
        _ if pairs.is_empty() => drop(object::remove(s, slot)?),
        _ => put(s, slot, HashRep::Listpack(listpack::encode(&pairs)))?,
    }
    Ok(gone)
}

async fn remove_rows(s: &Scope<'_>, slot: &mut Slot, oid: Oid, fields: &[Bytes]) -> Result<u64> {
    let held = rows::get_all_held(s, oid, &Vec::from_iter(fields)).await?;
    let found = fields.iter().zip(held);
    let mut gone = BTreeMap::new();
    for (field, held) in found {
        if let Some(held) = rows::alive(s, held)? {
            gone.insert(field, held);
        }
    }
    let n = gone.len() as u64;
    if n > 0 {
        take_rows(s, slot, oid, gone).await?;
    }
    Ok(n)
}

/// Removes fields that exist; without the last one the key goes.
async fn take_rows(s: &Scope<'_>, slot: &mut Slot, oid: Oid, gone: BTreeMap<&Bytes, Held>) -> Result<()> {
    let n = gone.len() as u64;
    let left = object::count(s, oid, Read::Snapshot).await?.cardinality().saturating_sub(n);
    if (left <= SMALL || left <= n) && object::count(s, oid, Read::Serializable).await?.cardinality() == n {
        object::remove(s, slot)?;
        return Ok(());
    }
    rows::remove(s, oid, gone)?;
    s.changed(&slot.key);
    Ok(())
}

/// All fields with their values, which are empty unless `with_values`: in the order of their hashes, or as
/// they came. With a conflict on every change of the hash. Fails if they have more than `most` bytes.
pub async fn all(s: &Scope<'_>, rep: Option<&HashRep>, with_values: bool, most: usize) -> Result<Vec<Pair>> {
    let oid = match rep {
        None => return Ok(Vec::new()),
        Some(HashRep::Listpack(raw)) => return listpack::pairs(raw),
        Some(HashRep::Rows { oid, .. }) => *oid,
    };
    let mut pairs = Vec::new();
    each(s, oid, with_values, most, |pair, _| pairs.push(pair)).await?;
    Ok(pairs)
}

/// As [`all`], the parts that a reply has.
pub async fn packed(s: &Scope<'_>, rep: Option<&HashRep>, parts: Parts, most: usize) -> Result<Packed> {
    let mut out = Packed::default();
    match rep {
        None => {}
        Some(HashRep::Listpack(raw)) => listpack::copy(raw, parts, &mut out)?,
        Some(HashRep::Rows { oid, .. }) => {
            let take = |[field, value]: Pair, _| parts.push(&field, &value, &mut out);
            each(s, *oid, parts != Parts::Fields, most, take).await?;
        }
    }
    Ok(out)
}

/// As [`all`] with values, each with its expiry.
async fn all_fields(s: &Scope<'_>, rep: &HashRep, most: usize) -> Result<Vec<Field>> {
    let mut fields = Vec::new();
    match rep {
        HashRep::Listpack(raw) => fields.extend(listpack::pairs(raw)?.into_iter().map(|pair| (pair, None))),
        HashRep::Rows { oid, .. } => {
            each(s, *oid, true, most, |pair, expire_at| fields.push((pair, expire_at))).await?;
        }
    }
    Ok(fields)
}

/// Passes all fields that exist to `take`, with their expiries.
async fn each(
    s: &Scope<'_>,
    oid: Oid,
    with_values: bool,
    most: usize,
    mut take: impl FnMut(Pair, Option<u64>) + Send,
) -> Result<()> {
    object::count(s, oid, Read::Serializable).await?;
    let (mut begin, end) = (s.db.fields_from(oid, 0), s.db.fields_end(oid));
    let mut bytes = 0;
    loop {
        let page = rows::page(s.tx, s.db, (&begin, &end), (0, rows::PAGE)).await?;
        for (_, field, held) in page.fields {
            if !held.is_alive(s)? {
                continue;
            }
            bytes += field.len() + if with_values { held.len() as usize } else { 0 };
            if bytes > most {
                return Err(StoreError::ReplyTooLarge(bytes).into());
            }
            let expire_at = held.expire_at;
            let value = if with_values { rows::value(s.tx, s.db, oid, held).await? } else { Bytes::new() };
            take([field, value], expire_at);
        }
        match page.next {
            Some(next) => begin = next,
            None => return Ok(()),
        }
        tokio::task::yield_now().await;
    }
}

/// What [`all_of_few`] has read.
pub(crate) enum Few {
    /// All fields.
    All(Packed),
    /// Some of many fields, which had so many bytes each, with their values.
    More(u64),
}

/// As [`packed`], if that is a short read.
pub(crate) async fn all_of_few(s: &Scope<'_>, rep: Option<&HashRep>, parts: Parts) -> Result<Few> {
    let Some(HashRep::Rows { oid, .. }) = rep else {
        return packed(s, rep, parts, usize::MAX).await.map(Few::All);
    };
    let with_values = parts != Parts::Fields;
    let (begin, end) = (s.db.fields_from(*oid, 0), s.db.fields_end(*oid));
    let page = rows::page(s.tx, s.db, (&begin, &end), (0, FEW)).await?;
    let is_short = |(_, _, held): &rows::Found| !with_values || matches!(held.content, Content::Inline(_));
    if page.next.is_some() || !page.fields.iter().all(is_short) {
        let value = |held: &Held| if with_values { held.len() } else { 0 };
        let bytes: u64 = page.fields.iter().map(|(_, field, held)| field.len() as u64 + value(held)).sum();
        return Ok(Few::More(bytes / (page.fields.len() as u64).max(1)));
    }
    object::count(s, *oid, Read::Serializable).await?;
    let mut out = Packed::default();
    for (_, field, held) in page.fields {
        if !held.is_alive(s)? {
            continue;
        }
        match held.content {
            Content::Inline(value) => parts.push(&field, &value, &mut out),
            Content::Pieces { .. } => parts.push(&field, &[], &mut out),
        }
    }
    Ok(Few::All(out))
}
