//! Which keys a transaction may consider alive, and until when.
//!
//! A transaction knows the time before it began ([`Lives::now`]) and the time when it knew its read version
//! ([`Lives::sure`]); they are equal if it begins quickly. A key whose expiry lies between them is uncertain:
//! the transaction begins again. So
//! * a transaction that finds a key expired does so at a time that had come when its snapshot was taken;
//! * a transaction that finds it alive knows that until then no client was told otherwise.
//!
//! A transaction that writes keeps the earliest expiry that it relied on, and claims the time before it while
//! it commits ([`crate::env::Timeline::claim`]). If the claim is refused, it runs again at a later time.
//!
//! So on an embedded store, whose servers share a process, time does not run backwards along the order of
//! transactions: once a client was told that a key has expired, no transaction that found it alive commits.
//! **On a cluster** each server has its own clock. There one server may consider a key alive after another
//! has called it expired, for as long as their clocks differ plus the duration of a commit. An unknown commit
//! that stays unresolved for `store-timeout` has no guarantee either.

use crate::env::{Claim, Timeline};
use crate::error::{StoreError, StoreResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The times of one transaction.
#[derive(Debug)]
pub(crate) struct Lives {
    /// Milliseconds since the Unix epoch: keys that expire at or before this have expired.
    pub(crate) now: u64,
    sure: u64,
    relied: AtomicU64,
}

impl Lives {
    /// The times of a transaction that began after `now` was read from the timeline, and whose version was
    /// fixed before `sure` was read.
    pub(crate) fn new(now: u64, sure: u64) -> Self {
        Lives { now, sure, relied: AtomicU64::new(u64::MAX) }
    }

    /// For read-only units that run beside each other on one transaction.
    pub(crate) fn again(&self) -> Self {
        Lives::new(self.now, self.sure)
    }

    /// The part that scopes need.
    pub(crate) fn life(&self) -> Life<'_> {
        Life { sure: self.sure, relied: Some(&self.relied) }
    }

    /// Hold the claim while the transaction commits and as long as its result is unknown. `Conflict` if a key
    /// that it considered alive has expired. `again`: an earlier attempt may have been applied, and still
    /// holds a claim.
    pub(crate) fn claim(&self, timeline: &Arc<Timeline>, again: bool) -> StoreResult<Option<Claim>> {
        let claim = if again { Timeline::claim_again } else { Timeline::claim };
        match self.relied.load(Ordering::Relaxed) {
            u64::MAX => Ok(None),
            until => claim(timeline, until).map(Some).ok_or(StoreError::Conflict),
        }
    }
}

/// The part of [`Lives`] that a scope needs. The default has no uncertain time and records nothing: for
/// transactions that commit nothing a client hears of.
#[derive(Debug, Clone, Copy, Default)]
pub struct Life<'a> {
    sure: u64,
    relied: Option<&'a AtomicU64>,
}

impl Life<'_> {
    /// Whether a key that expires at `at` is alive at `now`. `Conflict` if that is uncertain.
    pub(crate) fn is_alive(&self, at: u64, now: u64) -> StoreResult<bool> {
        if at <= now {
            return Ok(false);
        }
        if at <= self.sure {
            return Err(StoreError::Conflict);
        }
        if let Some(relied) = self.relied {
            relied.fetch_min(at, Ordering::Relaxed);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;

    #[test]
    fn what_is_relied_on_is_claimed() {
        let env = Env::seeded(100, 1);
        let lives = Lives::new(100, 102);
        assert!(lives.claim(&env.timeline, false).unwrap().is_none());
        let life = lives.life();
        assert_eq!((life.is_alive(100, 100), life.is_alive(110, 100)), (Ok(false), Ok(true)));
        assert_eq!(
            [101, 102].map(|at| life.is_alive(at, 100)),
            [Err(StoreError::Conflict), Err(StoreError::Conflict)]
        );
        assert_eq!(life.is_alive(120, 100), Ok(true));
        let claim = lives.claim(&env.timeline, false).unwrap();
        env.clock.advance(std::time::Duration::from_millis(50));
        assert_eq!(env.timeline.now(), 109);
        // The wall clock is past it, but its own claim holds the time.
        assert_eq!(lives.claim(&env.timeline, false).err(), Some(StoreError::Conflict));
        assert!(lives.claim(&env.timeline, true).unwrap().is_some());
        drop(claim);
        assert_eq!(env.timeline.now(), 150);
        assert_eq!(lives.claim(&env.timeline, true).err(), Some(StoreError::Conflict));
    }
}
