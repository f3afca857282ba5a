//! RESTORE: writes the value of a payload.

use super::read::kind;
use crate::config::Settings;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::dictionary::interner::check_length;
use crate::types::dumped::{Dumped, Field};
use crate::types::hash::Limits;
use crate::types::hash::expiry::Edit;
use crate::types::list::End;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::Object;
use crate::types::stream::dump as streams;
use crate::types::zset::Change;
use crate::types::{hash, list, set, string, zset};
use bytes::Bytes;
use std::collections::HashMap;

/// Fails if the value has an element that this store cannot hold.
pub fn check(value: &Dumped) -> Result<()> {
    match value {
        Dumped::Str(_) | Dumped::List(_) => Ok(()),
        Dumped::Set(members) => check_length(members),
        Dumped::Zset(entries) => entries.iter().try_for_each(|(member, _)| zset::check_member(member)),
        Dumped::Hash(pairs) => pairs.iter().try_for_each(|[field, _]| hash::check_field(field)),
        Dumped::Fields(fields) => fields.iter().try_for_each(|([field, _], _)| hash::check_field(field)),
        Dumped::Stream(stream) => streams::check(stream),
    }
}

/// The limits that decide about encodings.
#[derive(Debug, Clone, Copy)]
pub struct Encodings {
    /// Of hashes.
    pub hash: hash::Limits,
    /// Of lists.
    pub list: list::Limit,
    /// Of sorted sets.
    pub zset: zset::Limits,
}

impl Encodings {
    /// The limits that the options set.
    pub(crate) fn of(settings: &Settings) -> Self {
        Encodings {
            hash: hash::Limits::of(settings),
            list: list::Limit::of(settings),
            zset: zset::Limits::of(settings),
        }
    }
}

/// Makes the key hold `value`, which has passed [`check`].
pub async fn restore(
    s: &Scope<'_>,
    slot: &mut Slot,
    value: Dumped,
    limits: Encodings,
    expire_at: Option<u64>,
) -> Result<()> {
    match value {
        Dumped::Str(bytes) => return string::write(s, &[], slot, &bytes, expire_at).await,
        Dumped::Set(members) => {
            object::remove(s, slot)?;
            set::add(s, slot, &members).await?;
        }
        Dumped::Hash(pairs) => {
            object::remove(s, slot)?;
            hash::set(s, slot, limits.hash, &pairs).await?;
        }
        Dumped::List(elements) => {
            object::remove(s, slot)?;
            list::push(s, slot, limits.list, End::Right, &elements).await?;
        }
        Dumped::Fields(fields) => {
            object::remove(s, slot)?;
            restore_fields(s, slot, limits.hash, fields).await?;
        }
        Dumped::Zset(entries) => {
            object::remove(s, slot)?;
            let come = |(member, score)| Change { member, from: None, to: Some(score) };
            let changes: Vec<Change> = entries.into_iter().map(come).collect();
            zset::change(s, slot, limits.zset, &changes).await?;
        }
        Dumped::Stream(stream) => {
            object::remove(s, slot)?;
            streams::restore(s, slot, &stream).await?;
        }
    }
    match expire_at {
        Some(_) if slot.exists() => object::set_expiry(s, slot, expire_at),
        Some(_) | None => Ok(()),
    }
}

/// Sets the fields that have not expired; without any, the key does not exist.
async fn restore_fields(s: &Scope<'_>, slot: &mut Slot, limits: Limits, fields: Vec<Field>) -> Result<()> {
    let (mut pairs, mut expiries) = (Vec::new(), HashMap::new());
    for (pair, expire_at) in fields.into_iter().filter(|(_, at)| at.is_none_or(|at| at > s.now)) {
        let [field, _] = &pair;
        expiries.extend(expire_at.map(|at| (field.clone(), at)));
        pairs.push(pair);
    }
    if pairs.is_empty() {
        return Ok(());
    }
    hash::set(s, slot, limits, &pairs).await?;
    let names: Vec<Bytes> = expiries.keys().cloned().collect();
    let edit = |field: &Bytes| expiries.get(field).map_or(Edit::Keep, |at| Edit::ExpireAt(*at));
    hash::expiry::edit(s, slot, &names, |field, _| edit(field)).await
}

/// Like [`restore`], for a value that was prebuilt from `payload` because it exceeds a transaction.
pub async fn restore_prebuilt(
    s: &Scope<'_>,
    slot: &mut Slot,
    payload: &[u8],
    built: &Object,
    expire_at: Option<u64>,
) -> Result<()> {
    let Some(kind) = kind(payload) else {
        return Err(StoreError::Corrupt("a value was prebuilt from a payload without one".into()).into());
    };
    built.take(s, s).await?;
    object::put(s, slot, kind.prebuilt(built), expire_at)
}
