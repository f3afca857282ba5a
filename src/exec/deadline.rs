//! The retry deadline: whether a client's unit is tried again after an attempt failed, and for how long. A lane's
//! batch, a read and a WATCH all ask here; background work asks `store::retry`.
//!
//! **The store does not answer**: `store-timeout` from the unit's arrival. Time spent queued behind units
//! that got no answer counts, so that all of them fail after about that time (an eighth more at most), not
//! one after the other.
//!
//! **Conflicts, or a transaction that is too old**: `store-timeout` from the first attempt, so that a server
//! that was itself suspended for a while still runs what it finds in its queues. The attempt that was under
//! way during the suspension is too old by then and may have used up its time: it is retried once.
//!
//! **Which error.** A command too slow for a transaction first fails as too old and then, with less time
//! left, as unanswered. Its client is told that the command is too slow, not that the store is silent. An
//! attempt that is too old although it was short is no slow command: FoundationDB reports this for every
//! transaction overtaken by a recovery, and under load. Its client is told that the store is unavailable.

use crate::env::Clock;
use crate::error::StoreError;
use crate::server::Server;
use crate::store::{MAX_AGE, Tx};
use std::time::Duration;

/// How long to wait for the store before answering a unit that does not need it.
const SHORT: Duration = Duration::from_secs(1);
/// Attempts before a unit that runs alone gets the error of a store that answers: a transaction that is always
/// too old does not fit into 5 s.
const MIN_ATTEMPTS: u32 = 3;
/// The pause before retrying a store that is unreachable or rejects transactions because of load.
const PAUSE: Duration = Duration::from_millis(20);

/// The retry deadline of units that are tried together.
pub(super) struct Deadline {
    clock: Clock,
    /// `store-timeout`.
    timeout: Duration,
    /// When the first attempt began.
    began: Duration,
    /// When the oldest unit arrived.
    since: Duration,
    /// When the current attempt began.
    attempt: Duration,
    /// An attempt was too old because it took too long.
    slow: bool,
    /// An attempt took as long as a transaction may last.
    long: bool,
    /// An attempt got no answer.
    away: bool,
    /// The attempts that another one followed.
    failed: u32,
}

impl Deadline {
    /// Starts the first attempt at units of which the oldest arrived at `since`.
    pub(super) fn new(server: &Server, since: Duration) -> Self {
        Deadline::begun(server, since, server.env.clock.monotonic())
    }

    /// Starts the first attempt at a unit that arrived just now, at `since`.
    pub(super) fn at_once(server: &Server, since: Duration) -> Self {
        Deadline::begun(server, since, since)
    }

    fn begun(server: &Server, since: Duration, began: Duration) -> Self {
        let clock = server.env.clock.clone();
        let timeout = server.config.get().store_timeout();
        let (slow, long, away) = (false, false, false);
        Deadline { clock, timeout, began, since, attempt: began, slow, long, away, failed: 0 }
    }

    /// For a unit that can be answered without the store.
    pub(super) fn for_the_server(self) -> Self {
        Deadline { timeout: self.timeout.min(SHORT), ..self }
    }

    /// Whether another attempt at a batch follows one that failed with `e`: it can help, if only because a batch
    /// that is too large can be split, and there is time for it. Records that it follows.
    pub(super) fn retries(&mut self, server: &Server, e: &StoreError) -> bool {
        let follows = (may_succeed(e) || *e == StoreError::TooLarge) && !self.is_over(e);
        if follows {
            self.note_retry(server, e);
        }
        follows
    }

    /// After an attempt at a unit that runs alone failed with `e`: returns once the next may begin, or with the
    /// error for the client.
    pub(super) async fn on_error(&mut self, server: &Server, e: StoreError) -> Result<(), StoreError> {
        let is_early = e.is_retryable() && self.failed + 1 < MIN_ATTEMPTS;
        if !may_succeed(&e) || self.is_over(&e) && !is_early {
            return Err(self.final_error(e));
        }
        self.note_retry(server, &e);
        if self.failed > 1 || !e.is_retryable() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Whether no time is left for another attempt after one failed with `e`.
    fn is_over(&self, e: &StoreError) -> bool {
        let from = if unanswered(e) { self.since } else { self.began };
        if e.is_retryable() && !self.long && self.was_long() {
            return false;
        }
        self.clock.monotonic() >= from + self.timeout
    }

    /// Whether to tell a unit that arrived at `since` that the attempt failed with `e`.
    pub(super) fn is_over_for(&self, since: Duration, e: &StoreError) -> bool {
        !unanswered(e) || self.clock.monotonic() >= since + self.timeout
    }

    /// Extends the deadline by `time` spent waiting for other units.
    pub(super) fn extend(&mut self, time: Duration) {
        self.began += time;
        self.since += time;
    }

    /// How long a store that does not answer is still waited for.
    pub(super) fn left(&self) -> Duration {
        self.left_at(self.clock.monotonic())
    }

    fn left_at(&self, now: Duration) -> Duration {
        (self.since + self.timeout).saturating_sub(now)
    }

    /// Records that another attempt follows one that failed with `e`.
    fn note_retry(&mut self, server: &Server, e: &StoreError) {
        server.telemetry.on_retry(e);
        self.note(e);
    }

    fn note(&mut self, e: &StoreError) {
        self.failed += 1;
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

    /// The error for the client after the last attempt failed with `e`.
    pub(super) fn final_error(&self, e: StoreError) -> StoreError {
        match e {
            StoreError::TooOld if !self.slow && !self.was_slow(&e) => StoreError::Unavailable(
                "it is recovering or overloaded: new transactions are rejected as too old".into(),
            ),
            StoreError::Unavailable(_) if self.slow => StoreError::TooOld,
            // The time was lost to the store, not to other writers.
            StoreError::Conflict if self.away => StoreError::Unavailable(
                "it did not answer for most of store-timeout, and other clients have changed the same keys since".into(),
            ),
            e => e,
        }
    }

    /// Begins an attempt. Limits its transaction to the time left if that is notably less than the store's
    /// default, but never to less than an eighth of `store-timeout`, within which a healthy store answers.
    pub(super) fn begin(&mut self, tx: &Tx) {
        self.attempt = self.clock.monotonic();
        let left = self.left_at(self.attempt);
        if left < self.timeout / 8 * 7 || self.timeout <= SHORT {
            tx.limit(left.max(self.timeout / 8));
        }
    }
}

/// Whether another attempt at the same can help.
fn may_succeed(e: &StoreError) -> bool {
    e.is_retryable() || unanswered(e)
}

fn unanswered(e: &StoreError) -> bool {
    e.is_away() || e.may_have_committed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline() -> Deadline {
        let (clock, zero) = (Clock::manual(0), Duration::ZERO);
        let timeout = Duration::from_secs(10);
        Deadline {
            clock,
            timeout,
            began: zero,
            since: zero,
            attempt: zero,
            slow: false,
            long: false,
            away: false,
            failed: 0,
        }
    }

    fn silent() -> StoreError {
        StoreError::Unavailable("no answer within store-timeout".into())
    }

    #[test]
    fn which_errors_another_attempt_helps_against() {
        use StoreError::*;
        for e in [Conflict, TooOld, Unknown, Unavailable(String::new())] {
            assert!(may_succeed(&e), "{e:?}");
        }
        for e in [TooLarge, Corrupt(String::new()), ReadOnly(String::new()), ReplyTooLarge(1), KeyTooLarge(1)]
        {
            assert!(!may_succeed(&e), "{e:?}");
        }
    }

    #[test]
    fn a_slow_command_does_not_blame_a_silent_store() {
        let mut deadline = deadline();
        deadline.note(&StoreError::Conflict);
        assert_eq!(deadline.final_error(silent()), silent());
        deadline.clock.advance(MAX_AGE);
        assert_eq!(deadline.final_error(StoreError::TooOld), StoreError::TooOld);
        deadline.note(&StoreError::TooOld);
        assert_eq!(deadline.final_error(silent()), StoreError::TooOld);
        assert_eq!(deadline.final_error(StoreError::TooLarge), StoreError::TooLarge);
    }

    #[test]
    fn a_conflict_after_an_outage_blames_the_store() {
        let mut deadline = deadline();
        assert_eq!(deadline.final_error(StoreError::Conflict), StoreError::Conflict);
        deadline.note(&silent());
        assert!(matches!(deadline.final_error(StoreError::Conflict), StoreError::Unavailable(_)));
    }

    #[test]
    fn an_attempt_during_a_suspension_is_retried_once() {
        let mut deadline = deadline();
        deadline.clock.advance(Duration::from_secs(30));
        for e in [StoreError::TooOld, StoreError::Conflict] {
            assert!(!deadline.is_over(&e), "{e}");
        }
        assert!(deadline.is_over(&silent()) && deadline.is_over(&StoreError::Unknown));
        deadline.note(&StoreError::TooOld);
        deadline.attempt = deadline.clock.monotonic();
        assert!(deadline.is_over(&StoreError::Conflict) && deadline.is_over(&StoreError::TooOld));
        deadline.clock.advance(MAX_AGE);
        assert!(deadline.is_over(&StoreError::TooOld), "a slow command");
    }

    #[test]
    fn an_attempt_too_old_at_once_blames_the_store() {
        let mut deadline = deadline();
        deadline.clock.advance(MAX_AGE / 5);
        deadline.note(&StoreError::TooOld);
        assert!(matches!(deadline.final_error(StoreError::TooOld), StoreError::Unavailable(_)));
        assert_eq!(deadline.final_error(silent()), silent());
    }
}
