//! Checks idempotency records, their age index, and the counters of their size.

use super::{ATTEMPTS, Checker, PAGE};
use crate::error::{StoreError, StoreResult};
use crate::keyspace::idempotency::{Age, IdempotencyRecord, PIECE};
use crate::keyspace::keys::{IdempotencyName, Owner, hash, root, shard};
use crate::store::{RangeOptions, Rest};
use crate::types::audit::{AuditView, Problem};
use bytes::Bytes;
use std::collections::BTreeMap;

const UNCONFIRMED: &str = "a row of the age index matches no idempotency record";
const ALL: RangeOptions = RangeOptions { limit: 0, bytes: 0, reverse: false };

/// The damage to a row that begins with `t`, if any.
pub(super) async fn row(view: &AuditView, key: &Bytes, value: &Bytes) -> StoreResult<Option<String>> {
    if key.get(1) == Some(&1) || key[..] == root::all_idempotency_size() {
        let fits = value.len() == 8 && (key.get(1) == Some(&2) || key.len() == 18);
        return Ok((!fits).then(|| "the size of a user's idempotency records does not decode".into()));
    }
    match root::decode_idempotency(key) {
        Some((of, [])) => head(view, of, value).await,
        Some((of, [hi, lo])) => piece(view, of, u16::from_be_bytes([*hi, *lo]), value).await,
        _ => Ok(Some("the row of an idempotency record has an invalid key".into())),
    }
}

async fn head(view: &AuditView, of: IdempotencyName<'_>, value: &Bytes) -> StoreResult<Option<String>> {
    let record = IdempotencyRecord::decode(value).ok().filter(|r| r.is_owned == of.owner.is_some());
    let Some(record) = record else { return Ok(Some("an idempotency record does not decode".into())) };
    let age = view.get(&root::idempotency_age(record.at, of)).await?;
    if age.and_then(|raw| Age::decode(&raw)) != Some(Age::new(&record, of.id.len())) {
        return Ok(Some(
            "the age index has no matching row for an idempotency record: the record never expires as a whole"
                .into(),
        ));
    }
    if !record.has_pieces() {
        return Ok(None);
    }
    let (begin, end) = (root::idempotency_piece(of, 0), root::idempotency_pieces_end(of));
    let pieces = view.page(&begin, &end, ALL).await?.pairs;
    let len: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
    Ok((len != record.len as usize)
        .then(|| format!("a kept reply has {} bytes, but its pieces hold {len}", record.len)))
}

async fn piece(
    view: &AuditView,
    of: IdempotencyName<'_>,
    n: u16,
    piece: &[u8],
) -> StoreResult<Option<String>> {
    let head = view.get(&root::idempotency_record(of)).await?;
    let record =
        head.and_then(|raw| IdempotencyRecord::decode(&raw).ok()).filter(IdempotencyRecord::has_pieces);
    let Some(record) = record else {
        return Ok(Some("a piece of a kept reply belongs to no idempotency record".into()));
    };
    let expected = (record.len as usize).saturating_sub(usize::from(n) * PIECE).min(PIECE);
    Ok((piece.len() != expected)
        .then(|| format!("a piece of a kept reply has {} bytes instead of {expected}", piece.len())))
}

/// The damage to a row of the age index, if any.
pub(super) async fn age(view: &AuditView, key: &Bytes, value: &[u8]) -> StoreResult<Option<String>> {
    let Some(age) = Age::decode(value) else { return Ok(Some(UNCONFIRMED.into())) };
    let Some((ms, of)) = root::decode_idempotency_age(key, age.size.is_some()) else {
        return Ok(Some("a row of the age index has an invalid key".into()));
    };
    if key.get(1) != Some(&shard(hash(of.id))) {
        return Ok(Some("a row of the age index is in the wrong shard".into()));
    }
    let head = view.get(&root::idempotency_record(of)).await?;
    let record = head.and_then(|raw| IdempotencyRecord::decode(&raw).ok());
    let fits = record.is_some_and(|r| r.at == ms && age == Age::new(&r, of.id.len()));
    Ok((!fits).then(|| UNCONFIRMED.into()))
}

/// The size of each user's idempotency records, according to the age index.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Sizes(BTreeMap<Owner, i64>);

impl Sizes {
    /// Adds a row of the index.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        if let Some(size) = Age::decode(value).and_then(|age| age.size)
            && let Some((_, IdempotencyName { owner: Some(owner), .. })) =
                root::decode_idempotency_age(key, true)
        {
            *self.0.entry(owner).or_default() += i64::from(size);
        }
    }

    /// The counters that disagree.
    async fn compare(&self, view: &AuditView) -> StoreResult<Vec<Problem>> {
        let mut problems = Vec::new();
        let mut compare = |row: &[u8], said: i64, is: i64| {
            let what = || format!("the counter is {said} bytes, but the idempotency records take {is}");
            problems.extend((said != is).then(|| Problem::new(row, what())));
        };
        let number = |raw: &[u8]| raw.try_into().map_or(-1, i64::from_le_bytes);
        let mut left = self.0.clone();
        let mut rest = Rest::of((vec![b't', 1], root::all_idempotency_size().to_vec()));
        while let Some(page) = view.next(&mut rest, PAGE).await? {
            for (row, value) in &page {
                let owner = row.get(2..).and_then(|owner| owner.try_into().ok()).map(Owner);
                compare(row, number(value), owner.and_then(|owner| left.remove(&owner)).unwrap_or(0));
            }
        }
        left.iter().for_each(|(owner, is)| compare(&root::idempotency_size(*owner), 0, *is));
        let all = view.get(&root::all_idempotency_size()).await?;
        compare(&root::all_idempotency_size(), all.map_or(0, |raw| number(&raw)), self.0.values().sum());
        if !self.0.is_empty() && view.get(&root::secret()).await?.is_none() {
            problems.push(Problem::new(
                &root::secret(),
                "the store's secret is missing: no idempotency record can be found",
            ));
        }
        Ok(problems)
    }
}

/// Checks each user's counter, and that of all, against the size of the idempotency records. Sizes gathered
/// over pages may mix versions: if they differ, all records are counted again at one version.
pub(super) async fn sizes(checker: &mut Checker<'_>, gathered: Sizes) -> StoreResult<()> {
    let view = checker.view().await?;
    if gathered.compare(&view).await?.is_empty() {
        return Ok(());
    }
    for _ in 0..ATTEMPTS {
        let view = checker.view().await?;
        match again(&view).await {
            Err(StoreError::TooOld) => {}
            problems => {
                checker.add_problems(problems?);
                return Ok(());
            }
        }
    }
    checker.report.unchecked.push(root::all_idempotency_size().to_vec());
    Ok(())
}

async fn again(view: &AuditView) -> StoreResult<Vec<Problem>> {
    let (mut rest, mut sizes) = (Rest::under(vec![b'u']), Sizes::default());
    while let Some(page) = view.next(&mut rest, PAGE).await? {
        page.iter().for_each(|(key, value)| sizes.add(key, value));
    }
    sizes.compare(view).await
}
