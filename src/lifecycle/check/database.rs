//! Checks one database: records with their values, the expiry index, the key counters, and unknown rows.

use super::objects::Owners;
use super::root::databases;
use super::{ATTEMPTS, Checker};
use crate::error::{StoreError, StoreResult};
use crate::keyspace::dictionary::known::KnownIds;
use crate::keyspace::keys::{MAX_REDIS_KEY, Oid, Prefix, SHARDS, hash, root, root::Garbage, shard};
use crate::store::{RangeOptions, Rest, prefix_end};
use crate::types::audit::{AuditView, Auditor, Findings, Problem};
use crate::types::object::{DUE_INDEXED, GHOST_INDEXED};
use crate::types::object_tags;
use crate::types::record::{Record, Stored};
use bytes::Bytes;
use parking_lot::Mutex;

/// The number of unknown rows shown.
const SHOWN: usize = 10;

/// Checks everything below `db`.
pub(super) async fn walk(checker: &mut Checker<'_>, db: Prefix) -> StoreResult<()> {
    let mut owners = Owners::from(Oid(0));
    let mut counts = [0u64; SHARDS as usize];
    let mut seen = |key: &Bytes, value: &Bytes| {
        if is_ghost(value) {
            return "marks of absent keys";
        }
        if let Some((hash, _)) = db.decode_record(key)
            && let Some(count) = counts.get_mut(usize::from(shard(hash)))
        {
            *count += 1;
        }
        owners.note(value);
        "keys"
    };
    let audit = async |view: &AuditView, known: &Mutex<KnownIds>, key: &Bytes, value: &Bytes| {
        record(view, known, db, key, value).await
    };
    checker.check_range(db.tagged(b'K'), &mut seen, audit).await?;
    owners.walk(checker, db).await?;
    let audit = async |view: &AuditView, _: &Mutex<KnownIds>, key: &Bytes, value: &Bytes| {
        expiry(view, db, key, value).await
    };
    checker.check_range(db.tagged(b'X'), &mut |_, _| "expiry rows", audit).await?;
    counters(checker, db, &counts).await?;
    unknown_rows(checker, db).await
}

async fn record(
    view: &AuditView,
    known: &Mutex<KnownIds>,
    db: Prefix,
    key: &Bytes,
    value: &Bytes,
) -> Findings {
    let Some((stored, name)) = db.decode_record(key) else {
        return Ok(vec![Problem::new(key, "the row of a record has an invalid key")]);
    };
    let row = match Stored::decode(value.clone()) {
        Ok(row) => row,
        Err(e) => return Ok(vec![Problem::new(key, e.to_string())]),
    };
    let mut problems = match &row {
        Stored::Record(record) => of_value(&Auditor { view, db, known }, key, record).await?,
        Stored::Ghost(_) => Vec::new(),
    };
    if stored != hash(&name) || name.len() > MAX_REDIS_KEY {
        problems.push(Problem::new(
            key,
            "the record is stored under the hash of another key: no command finds it",
        ));
    }
    for ms in row.times().into_iter().flatten() {
        if view.get(&db.expiry(ms, &name)).await?.is_none() {
            problems
                .push(Problem::new(key, format!("the expiry index has no row for the key's expiry at {ms}")));
        }
    }
    Ok(problems)
}

async fn of_value(auditor: &Auditor<'_>, key: &Bytes, record: &Record) -> Findings {
    let mut problems = record.value.audit(auditor, key).await?;
    if let Some(oid) = record.value.oid()
        && is_garbage(auditor.view, auditor.db, oid).await?
    {
        problems.push(Problem::new(
            key,
            "the key's object is also listed as garbage: its rows are going to be removed",
        ));
    }
    Ok(problems)
}

fn is_ghost(raw: &Bytes) -> bool {
    matches!(Stored::decode(raw.clone()), Ok(Stored::Ghost(_)))
}

/// Whether a garbage row names the object.
pub(super) async fn is_garbage(view: &AuditView, db: Prefix, oid: Oid) -> StoreResult<bool> {
    let rows = [Garbage::Object(db, oid), Garbage::Building(db, oid)].map(root::garbage);
    Ok(view.get_many(&rows).await?.iter().any(Option::is_some))
}

/// Checks that a row of the expiry index agrees with the key's record.
async fn expiry(view: &AuditView, db: Prefix, row: &Bytes, value: &[u8]) -> Findings {
    let Some((ms, name)) = db.decode_expiry(row).filter(|(ms, name)| db.expiry(*ms, name) == row[..]) else {
        return Ok(vec![Problem::new(row, "a row of the expiry index has an invalid key")]);
    };
    let stored = view.get(&db.record(&name)).await?.and_then(|raw| Stored::decode(raw).ok());
    let what = match stored.filter(|stored| stored.times().contains(&Some(ms))) {
        None => "a row of the expiry index matches no record",
        Some(Stored::Record(record)) if value == indexed(&record, ms) => return Ok(Vec::new()),
        Some(Stored::Ghost(_)) if value == GHOST_INDEXED => return Ok(Vec::new()),
        Some(_) => "a row of the expiry index has an invalid value",
    };
    Ok(vec![Problem::new(row, what)])
}

/// The value of a key's row in the expiry index at `ms`.
fn indexed(record: &Record, ms: u64) -> &'static [u8] {
    if record.expire_at == Some(ms) { &[] } else { DUE_INDEXED }
}

/// Checks that each shard's counter is the number of its records. A count gathered over pages may mix
/// versions: if it differs, the shard's records, which are adjacent, are counted again at one version.
async fn counters(checker: &mut Checker<'_>, db: Prefix, counts: &[u64]) -> StoreResult<()> {
    for (shard, count) in (0..SHARDS).zip(counts) {
        let view = checker.view().await?;
        let stored = view.get(&db.key_count(shard)).await?;
        if stored.is_some() {
            checker.count("counters of keys", 1);
        }
        if number(stored.as_deref()) != i64::try_from(*count).ok() {
            recount(checker, db, shard).await?;
        }
    }
    Ok(())
}

async fn recount(checker: &mut Checker<'_>, db: Prefix, shard: u8) -> StoreResult<()> {
    let row = db.key_count(shard);
    for _ in 0..ATTEMPTS {
        let view = checker.view().await?;
        match compare(&view, db, shard).await {
            Err(StoreError::TooOld) => {}
            problem => {
                checker.add_problems(problem?.map(|what| Problem::new(&row, what)));
                return Ok(());
            }
        }
    }
    checker.report.unchecked.push(row);
    Ok(())
}

async fn compare(view: &AuditView, db: Prefix, shard: u8) -> StoreResult<Option<String>> {
    let first = u64::from(shard) << 60;
    let end = if shard + 1 == SHARDS { db.records_end() } else { db.record_from(first + (1 << 60)) };
    let (mut rest, mut count) = (Rest::of((db.record_from(first), end)), 0);
    let opts = RangeOptions { bytes: 1 << 20, ..RangeOptions::default() };
    while let Some(page) = view.next(&mut rest, opts).await? {
        count += page.iter().filter(|(_, raw)| !is_ghost(raw)).count() as i64;
    }
    let stored = number(view.get(&db.key_count(shard)).await?.as_deref());
    let said = stored.map_or("invalid".to_owned(), |n| n.to_string());
    Ok((stored != Some(count)).then(|| format!("the counter is {said}, but the shard has {count} keys")))
}

fn number(raw: Option<&[u8]>) -> Option<i64> {
    raw.map_or(Some(0), |raw| raw.try_into().ok().map(i64::from_le_bytes))
}

/// The tags of the rows below a prefix, ascending.
fn tags() -> Vec<u8> {
    let mut tags = object_tags();
    tags.extend(*b"KXZ");
    tags.sort_unstable();
    tags
}

/// Reports rows with unknown tags, and counters of shards that do not exist.
async fn unknown_rows(checker: &mut Checker<'_>, db: Prefix) -> StoreResult<()> {
    let mut begin = db.as_bytes().to_vec();
    let gaps = tags().into_iter().map(|tag| db.tagged(tag)).chain([{
        let end = prefix_end(db.as_bytes());
        (end.clone(), end)
    }]);
    let opts = RangeOptions { limit: SHOWN, ..RangeOptions::default() };
    for (end, next) in gaps {
        let view = checker.view().await?;
        let page = view.page(&begin, &end, opts).await?;
        checker.add_problems(page.pairs.iter().map(|(row, _)| Problem::new(row, "an unknown kind of row")));
        begin = next;
    }
    let view = checker.view().await?;
    let (begin, end) = db.tagged(b'Z');
    let opts = RangeOptions { limit: usize::from(SHARDS) + SHOWN, ..opts };
    let counters = view.page(&begin, &end, opts).await?;
    let is_one = |row: &Bytes| (0..SHARDS).any(|shard| row[..] == db.key_count(shard)[..]);
    let others = counters.pairs.iter().filter(|(row, _)| !is_one(row));
    checker
        .add_problems(others.map(|(row, _)| Problem::new(row, "the counter of a shard that does not exist")));
    Ok(())
}

/// Whether `db` is still a database's prefix.
pub(super) async fn is_live(view: &AuditView, db: Prefix) -> StoreResult<bool> {
    Ok(databases(view).await?.iter().any(|(_, prefix)| *prefix == db))
}
