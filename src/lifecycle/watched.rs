//! WATCH: the fingerprint that it keeps of a key, which EXEC compares inside its own transaction.
//!
//! A key that exists has a revision, and a chunked set also the version half of `N`; neither comes back once
//! it has changed. An absent key has nothing to compare: created and removed again, it is absent as before,
//! yet Redis aborts that EXEC. So WATCH of an absent key writes a **ghost** into the key's own row: a record
//! of no type with a revision of its own.
//!
//! **Why it is exact, on one server and on many.** Only WATCH makes ghosts, each with a revision that no
//! other write has had. A transaction that creates the key reads the row anyway and overwrites it; removing
//! the key leaves nothing. So while the row holds the ghost with the revision that WATCH saw, no transaction
//! has created the key since the version at which WATCH read it, and EXEC reads the row serializably. In
//! every other state of the row, EXEC aborts.
//!
//! Two SWAPDBs bring a database's rows back, including revisions and ghosts. So each database number counts
//! its swaps ([`crate::keyspace::catalog`]): a fingerprint is valid only under the same count, and a ghost
//! only under the count stored in it.
//!
//! **Cost.** WATCH of an absent key commits a transaction, unless the key has a ghost already (several
//! clients share one), and writes two rows of about 30 bytes and twice the key's name; other commands pay
//! nothing. A ghost lives for [`LIFE`]; the server whose client watches it rewrites it before that ends
//! ([`renew`]), so a WATCH may last as long as its client likes. A ghost that is removed too early, because
//! its server stood still for that long or another server's clock is a minute ahead, aborts an EXEC
//! unnecessarily; the opposite never happens. So ghosts are removed by age, through the expiry index, and
//! need no leases.
//!
//! FLUSHDB and SWAPDB give a database other rows. They carry the ghosts of their own server's clients along
//! ([`carry`]), up to [`MOST_CARRIED`] per database. EXECs on other servers abort, where in Redis the EXEC of
//! a key that stayed absent runs.
//!
//! Alternatives considered: counting creations in the server's memory misses those of other servers and those
//! in flight; a counter of creations per shard aborts 95 of 100 EXECs at 10 000 creations a second; the
//! store's own watches may miss a value that changes and changes back; using the read version of WATCH for
//! EXEC is exact for five seconds only.

use crate::error::{Error, Result};
use crate::keyspace::catalog::Place;
use crate::keyspace::dictionary::collector::Round;
use crate::keyspace::keys::MAX_REDIS_KEY;
use crate::keyspace::watched_absent::Name;
use crate::keyspace::{Keyspace, Scope};
use crate::store::{Read, Tx};
use crate::types::object::{self, Slot};
use crate::types::record::{Ghost, Stored};
use bytes::Bytes;
use futures_util::future::join_all;

/// How long a ghost lives without being rewritten, in ms.
pub const LIFE: u64 = 60_000;
/// A ghost with less time left, in ms, is rewritten by the next WATCH, and by the server that keeps it.
const RENEWED_BELOW: u64 = 45_000;
/// The most ghosts that FLUSHDB and SWAPDB carry along per database.
const MOST_CARRIED: usize = 256;
/// The number of ghosts that one transaction renews.
const RENEWED_AT_ONCE: usize = 256;

/// The state of a key, as WATCH remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fingerprint {
    /// The key exists.
    Present {
        /// The record's revision.
        revision: u64,
        /// `N` of a chunked set; 0 for other values.
        count: i128,
        /// How often its database's number had been swapped.
        swaps: u64,
    },
    /// The key is absent: the ghost's revision.
    Absent(u64),
    /// The name is too long for any key.
    Impossible,
}

/// The fingerprint of a key in a database whose number was swapped `swaps` times; writes a ghost if the key
/// needs one. It may be compared only after the transaction has committed.
pub(crate) async fn watch(s: &Scope<'_>, swaps: u64, key: &Bytes) -> Result<Fingerprint> {
    let mut slot = object::open(s, key, Read::Serializable).await?;
    if let Some(print) = print(s, swaps, &slot).await? {
        if let Some(ghost) = slot.ghost().copied() {
            keep(s, &mut slot, ghost)?;
        }
        return Ok(print);
    }
    let revision = s.space.fresh.revision();
    object::put_ghost(s, &mut slot, Ghost { revision, swaps, expire_at: s.now.saturating_add(LIFE) })?;
    Ok(Fingerprint::Absent(revision))
}

/// Whether `key` is unchanged since WATCH saw it as `seen`.
pub(crate) async fn is_as(s: &Scope<'_>, swaps: u64, key: &Bytes, seen: Fingerprint) -> Result<bool> {
    let slot = object::open(s, key, Read::Serializable).await?;
    Ok(print(s, swaps, &slot).await? == Some(seen))
}

/// None: an absent key without a usable ghost.
async fn print(s: &Scope<'_>, swaps: u64, slot: &Slot) -> Result<Option<Fingerprint>> {
    if slot.key.len() > MAX_REDIS_KEY {
        return Ok(Some(Fingerprint::Impossible));
    }
    if let Some((revision, count)) = object::version(s, slot, Read::Serializable).await? {
        return Ok(Some(Fingerprint::Present { revision, count, swaps }));
    }
    let ghost = slot.ghost().filter(|ghost| ghost.swaps == swaps);
    Ok(ghost.map(|ghost| Fingerprint::Absent(ghost.revision)))
}

/// Rewrites the ghost unless it has long to live. Returns whether it did.
fn keep(s: &Scope<'_>, slot: &mut Slot, ghost: Ghost) -> Result<bool> {
    if ghost.expire_at >= s.now.saturating_add(RENEWED_BELOW) {
        return Ok(false);
    }
    object::put_ghost(s, slot, Ghost { expire_at: s.now.saturating_add(LIFE), ..ghost })?;
    Ok(true)
}

/// Rewrites the ghosts under the names, in several transactions. Returns the number rewritten.
pub async fn renew(space: &Keyspace, names: &[Name]) -> Result<usize> {
    let mut renewed = 0;
    for names in names.chunks(RENEWED_AT_ONCE) {
        renewed += match renew_some(space, names).await {
            Err(e) if may_repeat(&e) => renew_each(space, names).await?,
            done => done?,
        };
    }
    Ok(renewed)
}

fn may_repeat(e: &Error) -> bool {
    matches!(e, Error::Store(e) if e.is_retryable() || e.may_have_committed())
}

/// Renews each alone: if one of the keys is being created, the other ghosts live on.
async fn renew_each(space: &Keyspace, names: &[Name]) -> Result<usize> {
    let mut renewed = 0;
    for name in names.chunks(1) {
        match renew_some(space, name).await {
            Err(e) if may_repeat(&e) => {}
            done => renewed += done?,
        }
    }
    Ok(renewed)
}

async fn renew_some(space: &Keyspace, names: &[Name]) -> Result<usize> {
    let (tx, now) = (space.store.begin(), space.timeline.now());
    let catalog = space.catalog.load(&tx).await?;
    let mut renewed = 0;
    for (number, key) in names {
        let Some(place) = catalog.place(*number) else { continue };
        let s = Scope {
            tx: &tx,
            db: place.prefix,
            number: *number,
            now,
            round: Round::default(),
            space,
            outbox: None,
            uncounted: None,
            life: Default::default(),
        };
        let mut slot = object::open(&s, key, Read::Serializable).await?;
        if let Some(ghost) = slot.ghost().copied().filter(|ghost| ghost.swaps == place.swaps) {
            renewed += usize::from(keep(&s, &mut slot, ghost)?);
        }
    }
    if renewed > 0 {
        tx.commit().await?;
    }
    Ok(renewed)
}

/// The ghosts that this server's clients rely on in database `db`, which is at `place`.
pub(crate) async fn ghosts(tx: &Tx, space: &Keyspace, db: u8, place: Place) -> Result<Vec<(Bytes, Ghost)>> {
    let rows = space.watched_absent.of(db, MOST_CARRIED).into_iter().map(async |key| {
        let raw = tx.get(&place.prefix.record(&key), Read::Serializable).await?;
        Result::Ok(match raw.map(Stored::decode).transpose()? {
            Some(Stored::Ghost(ghost)) if ghost.swaps == place.swaps => Some((key, ghost)),
            Some(Stored::Ghost(_) | Stored::Record(_)) | None => None,
        })
    });
    join_all(rows).await.into_iter().filter_map(Result::transpose).collect()
}

/// Carries ghosts into `s`, the new place of their database: a key that is absent there too has not changed.
pub(crate) async fn carry(s: &Scope<'_>, swaps: u64, ghosts: Vec<(Bytes, Ghost)>) -> Result<()> {
    for (key, ghost) in ghosts {
        let mut slot = object::open(s, &key, Read::Serializable).await?;
        if !slot.exists() {
            object::put_ghost(s, &mut slot, Ghost { swaps, ..ghost })?;
        }
    }
    Ok(())
}
