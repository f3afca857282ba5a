//! How long a unit is tried: `store-timeout` from its arrival where the store does not answer, so that waiting behind others
//! that got no answer counts too. Their error then comes after about that time (an eighth more at most), not after each one's
//! turn.
//!
//! A command too slow for a transaction is first too old, and then, with less time, not answered in time: it hears what is the
//! matter with it, not that the store is silent. An attempt that was too old while it was young is no slow command: FoundationDB
//! says so of every transaction that a recovery has overtaken, or for load. Its client hears that the store is unavailable.
//!
//! What only runs into others (conflicts, a transaction too old) has that time from its first attempt: a server that was itself
//! stopped for a while still does what it finds in its queues. What was under way then has become too old, and may have used up all of
//! its time: it is tried once more.

use crate::env::Clock;
use crate::error::StoreError;
use crate::server::Server;
use crate::store::{MAX_AGE, Tx};
use std::time::Duration;

/// How long the store is waited for by what can be answered without it.
const SHORT: Duration = Duration::from_secs(1);

/// Of units that are tried together.
pub(super) struct Deadline {
    clock: Clock,
    /// `store-timeout`.
    whole: Duration,
    /// When the first attempt began.
    began: Duration,
    /// When the oldest unit came.
    since: Duration,
    /// When the attempt under way began.
    attempt: Duration,
    /// An attempt was too old because it took so long.
    slow: bool,
    /// An attempt took as long as a transaction may last.
    long: bool,
    /// An attempt was not answered.
    away: bool,
}

impl Deadline {
    /// Now begins the first attempt at units of which the oldest came at `since`.
    pub(super) fn new(server: &Server, since: Duration) -> Self {
        let clock = server.env.clock.clone();
        let began = clock.monotonic();
        let whole = server.config.get().store_timeout();
        Deadline { clock, whole, began, since, attempt: began, slow: false, long: false, away: false }
    }

    /// Of a unit that has an answer without the store.
    pub(super) fn for_the_server(server: &Server, since: Duration) -> Self {
        let deadline = Deadline::new(server, since);
        Deadline { whole: deadline.whole.min(SHORT), ..deadline }
    }

    /// Whether there is no time for another attempt after one that failed with `e`.
    pub(super) fn is_over(&self, e: &StoreError) -> bool {
        let from = if unanswered(e) { self.since } else { self.began };
        if e.is_retryable() && !self.long && self.was_long() {
            return false;
        }
        self.clock.monotonic() >= from + self.whole
    }

    /// Whether a unit that came at `since` is to hear that the attempt failed with `e`.
    pub(super) fn is_over_for(&self, since: Duration, e: &StoreError) -> bool {
        !unanswered(e) || self.clock.monotonic() >= since + self.whole
    }

    /// It waited that long for others without trying, which does not count.
    pub(super) fn extend(&mut self, time: Duration) {
        self.began += time;
        self.since += time;
    }

    /// Another attempt follows one that failed with `e`.
    pub(super) fn goes_on(&mut self, e: &StoreError) {
        self.slow |= self.was_slow(e);
        self.long |= self.was_long();
        self.away |= unanswered(e);
    }

    fn was_slow(&self, e: &StoreError) -> bool {
        *e == StoreError::TooOld && self.was_long()
    }

    fn was_long(&self) -> bool {
        self.clock.monotonic().saturating_sub(self.attempt) >= MAX_AGE * 4 / 5
    }

    /// What a client hears after the last attempt failed with `e`.
    pub(super) fn verdict(&self, e: StoreError) -> StoreError {
        match e {
            StoreError::TooOld if !self.slow && !self.was_slow(&e) => StoreError::Unavailable(
                "it is recovering or overloaded: new transactions are rejected as too old".into(),
            ),
            StoreError::Unavailable(_) if self.slow => StoreError::TooOld,
            // What took its time was not the others.
            StoreError::Conflict if self.away => StoreError::Unavailable(
                "it did not answer for most of store-timeout, and other clients have changed the same keys since".into(),
            ),
            e => e,
        }
    }

    /// An attempt begins. Keeps it inside what is left, where that is notably less than the store gives each. It always has an
    /// eighth of `store-timeout`, in which a store that is well answers.
    pub(super) fn begin(&mut self, tx: &Tx) {
        self.attempt = self.clock.monotonic();
        let left = (self.since + self.whole).saturating_sub(self.attempt);
        if left < self.whole / 8 * 7 || self.whole <= SHORT {
            tx.limit(left.max(self.whole / 8));
        }
    }
}

fn unanswered(e: &StoreError) -> bool {
    matches!(e, StoreError::Unavailable(_) | StoreError::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline() -> Deadline {
        let (clock, zero) = (Clock::manual(0), Duration::ZERO);
        let whole = Duration::from_secs(10);
        Deadline {
            clock,
            whole,
            began: zero,
            since: zero,
            attempt: zero,
            slow: false,
            long: false,
            away: false,
        }
    }

    fn silent() -> StoreError {
        StoreError::Unavailable("no answer within store-timeout".into())
    }

    #[test]
    fn who_was_too_slow_is_not_told_that_the_store_is_silent() {
        let mut deadline = deadline();
        deadline.goes_on(&StoreError::Conflict);
        assert_eq!(deadline.verdict(silent()), silent());
        deadline.clock.advance(MAX_AGE);
        assert_eq!(deadline.verdict(StoreError::TooOld), StoreError::TooOld);
        deadline.goes_on(&StoreError::TooOld);
        assert_eq!(deadline.verdict(silent()), StoreError::TooOld);
        assert_eq!(deadline.verdict(StoreError::TooLarge), StoreError::TooLarge);
    }

    #[test]
    fn who_waited_for_the_store_is_not_told_of_others() {
        let mut deadline = deadline();
        assert_eq!(deadline.verdict(StoreError::Conflict), StoreError::Conflict);
        deadline.goes_on(&silent());
        assert!(matches!(deadline.verdict(StoreError::Conflict), StoreError::Unavailable(_)));
    }

    #[test]
    fn what_was_under_way_while_the_server_stood_still_is_tried_once_more() {
        let mut deadline = deadline();
        deadline.clock.advance(Duration::from_secs(30));
        for e in [StoreError::TooOld, StoreError::Conflict] {
            assert!(!deadline.is_over(&e), "{e}");
        }
        assert!(deadline.is_over(&silent()) && deadline.is_over(&StoreError::Unknown));
        deadline.goes_on(&StoreError::TooOld);
        deadline.attempt = deadline.clock.monotonic();
        assert!(deadline.is_over(&StoreError::Conflict) && deadline.is_over(&StoreError::TooOld));
        deadline.clock.advance(MAX_AGE);
        assert!(deadline.is_over(&StoreError::TooOld), "a slow command");
    }

    #[test]
    fn who_was_too_old_at_once_is_told_that_the_store_is_at_fault() {
        let mut deadline = deadline();
        deadline.clock.advance(MAX_AGE / 5);
        deadline.goes_on(&StoreError::TooOld);
        assert!(matches!(deadline.verdict(StoreError::TooOld), StoreError::Unavailable(_)));
        assert_eq!(deadline.verdict(silent()), silent());
    }
}
