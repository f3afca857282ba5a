//! CLIENT PAUSE and UNPAUSE: whether commands wait (`commands/connection/client_pause.rs`). This server only:
//! other servers on its store go on.
//!
//! The session checks before each window (`session::pause`), so a transaction in which a pause begins runs to
//! its end. Expired keys are absent as always, but are not removed during a pause.

use crate::env::Clock;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Which commands wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Paused {
    /// Commands that write.
    Writes,
    /// All commands except CLIENT UNPAUSE.
    All,
}

/// Which commands wait, and until when.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// False if nothing is paused: then nothing else is read.
    on: AtomicBool,
    until: Mutex<Option<(Paused, Duration)>>,
    changed: Notify,
}

impl Pause {
    /// The current pause, and its end on the monotonic clock.
    pub(crate) fn now(&self, clock: &Clock) -> Option<(Paused, Duration)> {
        if !self.on.load(Ordering::Acquire) {
            return None;
        }
        let now = clock.monotonic();
        let mut until = self.until.lock();
        if until.is_some_and(|(_, end)| end <= now) {
            self.set(&mut until, None);
        }
        *until
    }
    /// Begins or extends a pause: the later end and the stricter kind apply.
    pub(crate) fn begin(&self, kind: Paused, length: Duration, clock: &Clock) {
        let end = clock.monotonic().saturating_add(length);
        let running = self.now(clock);
        let (kind, end) = running.map_or((kind, end), |(k, e)| (k.max(kind), e.max(end)));
        self.set(&mut self.until.lock(), Some((kind, end)));
    }
    /// Ends the pause.
    pub(crate) fn end(&self) {
        self.set(&mut self.until.lock(), None);
    }
    /// Returns some time after the pause has changed, possibly at once.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
    fn set(&self, until: &mut Option<(Paused, Duration)>, new: Option<(Paused, Duration)>) {
        *until = new;
        self.on.store(new.is_some(), Ordering::Release);
        self.changed.notify_waiters();
    }
}
