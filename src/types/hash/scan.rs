//! HSCAN: stateless, in the order of the fields' hashes.
//!
//! A page never ends between fields of one group ([`crate::types::cursor`]): a field that stays is returned exactly
//! once. A hash named listpack is returned at once, as in Redis, unless it has very many
//! fields.

use super::record::HashRep;
use super::rows::{self, Found, PAGE};
use super::{Pair, listpack};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::Oid;
use crate::store::Read;
use crate::types::cursor::{self, group, start};
use crate::types::object;
use bytes::Bytes;

/// The most fields of a hash named listpack that are returned at once, if it is in rows.
const SMALL: usize = 1024;

/// A page of about `count` fields, with values unless they are to be empty, and the next cursor.
pub async fn scan(
    s: &Scope<'_>,
    rep: Option<&HashRep>,
    (cursor, count): (u64, usize),
    with_values: bool,
) -> Result<(u64, Vec<Pair>)> {
    let (oid, count) = match rep {
        None => return Ok((0, Vec::new())),
        Some(HashRep::Listpack(raw)) => return Ok((0, listpack::pairs(raw)?)),
        Some(HashRep::Rows { oid, is_small: true, .. }) => (*oid, count.max(SMALL)),
        Some(HashRep::Rows { oid, is_small: false, .. }) => (*oid, count),
    };
    let Some(from) = start(cursor.saturating_sub(1)) else { return Ok((0, Vec::new())) };
    // In a transaction that writes, every change of the hash conflicts.
    object::count(s, oid, Read::Serializable).await?;
    let (begin, end) = (s.db.fields_from(oid, from), s.db.fields_end(oid));
    let page = rows::page(s.tx, s.db, (&begin, &end), (count.saturating_add(1), PAGE)).await?;
    let (mut fields, mut next) = (page.fields, 0);
    if page.next.is_some()
        && let Some(last) = fields.last().map(|(hash, ..)| group(*hash))
    {
        if fields.first().is_some_and(|(hash, ..)| group(*hash) == last) {
            fields = whole_group(s, oid, last).await?;
            next = cursor::of(last + 1);
        } else {
            fields.retain(|(hash, ..)| group(*hash) != last);
            next = cursor::of(last);
        }
    }
    let mut pairs = Vec::with_capacity(fields.len());
    for (_, field, held) in fields {
        if !held.is_alive(s)? {
            continue;
        }
        let value = if with_values { rows::value(s.tx, s.db, oid, held).await? } else { Bytes::new() };
        pairs.push([field, value]);
    }
    Ok((next, pairs))
}

/// All fields of a group, however many.
async fn whole_group(s: &Scope<'_>, oid: Oid, group: u64) -> Result<Vec<Found>> {
    let at = |group| start(group).map_or_else(|| s.db.fields_end(oid), |hash| s.db.fields_from(oid, hash));
    let (mut begin, end) = (at(group), at(group + 1));
    let mut fields = Vec::new();
    loop {
        let page = rows::page(s.tx, s.db, (&begin, &end), (0, PAGE)).await?;
        fields.extend(page.fields);
        match page.next {
            Some(next) => begin = next,
            None => return Ok(fields),
        }
    }
}
