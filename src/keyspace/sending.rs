//! Replies in progress whose members are still ids: their number, and when the oldest began.
//!
//! A reply of many members is a bitmap of the ids that its command found. They are resolved to members piece
//! by piece, each piece in a transaction of its own, as fast as the client takes them: that may be hours
//! after the command. By then no set need hold them any more, but their rows `b` must still exist.
//!
//! **For code that removes rows of the dictionary:** an id can have been read before the moment after which
//! no set held it any more only by a transaction, at most [`MAX_AGE`](crate::store::MAX_AGE) old, or by a
//! reply that such a transaction began. So the id may be removed once that time has passed since that moment,
//! and [`Sending::oldest`] is later than its end, or None. Every server knows its own replies only. On a
//! shared store, each server must publish its oldest, and a silent one counts with the last value that it
//! published until it is known to be dead.

use crate::env::Clock;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sending {
    clock: Clock,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    begun: u64,
    /// When each began, by the monotonic clock: later numbers did not begin earlier.
    since: BTreeMap<u64, Duration>,
}

/// A reply in progress; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SendingGuard {
    sending: Arc<Sending>,
    number: u64,
}

impl Sending {
    /// No replies yet.
    pub(crate) fn new(clock: Clock) -> Self {
        Sending { clock, running: Mutex::default() }
    }

    /// Begins a reply.
    pub(crate) fn begin(self: &Arc<Self>) -> SendingGuard {
        let mut running = self.running.lock();
        let number = running.begun;
        running.begun += 1;
        running.since.insert(number, self.clock.monotonic());
        SendingGuard { sending: self.clone(), number }
    }

    /// The number of replies in progress.
    pub(crate) fn count(&self) -> usize {
        self.running.lock().since.len()
    }

    /// When the oldest reply in progress began, by the monotonic clock.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.running.lock().since.values().next().copied()
    }
}

impl SendingGuard {
    /// The current time, by the clock that dates the replies' beginnings.
    pub(crate) fn now(&self) -> Duration {
        self.sending.clock.monotonic()
    }
}

impl Drop for SendingGuard {
    fn drop(&mut self) {
        self.sending.running.lock().since.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;

    #[test]
    fn the_oldest_that_runs_counts() {
        let clock = Env::seeded(1_000, 1).clock;
        let sending = Arc::new(Sending::new(clock.clone()));
        assert_eq!((sending.count(), sending.oldest()), (0, None));
        let start = clock.monotonic();
        let first = sending.begin();
        clock.advance(Duration::from_secs(1));
        let second = sending.begin();
        assert_eq!((sending.count(), sending.oldest()), (2, Some(start)));
        drop(first);
        assert_eq!((sending.count(), sending.oldest()), (1, Some(start + Duration::from_secs(1))));
        drop(second);
        assert_eq!((sending.count(), sending.oldest()), (0, None));
    }
}
