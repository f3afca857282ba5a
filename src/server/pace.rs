//! Pace of long work: it is done in steps, and between them others run.
//!
//! A step is what takes some nanoseconds: a byte of a pattern, a comparison. [`STEPS`] of them take about a millisecond in a
//! release build, so whoever shares the thread waits no longer than that. Work that cannot pause is done on a thread of its own ([`beside`]).

use crate::error::{ReplyError, Result};
use tokio::task::{spawn_blocking, yield_now};

/// Steps between two pauses.
const STEPS: usize = 1 << 15;

/// Counts steps, and pauses after [`STEPS`] of them.
#[derive(Debug)]
pub struct Pace {
    left: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { left: STEPS }
    }
}

impl Pace {
    /// Steps until the next pause. Who takes some subtracts them, and calls [`Pace::pause`] where none are left.
    pub fn left(&mut self) -> &mut usize {
        &mut self.left
    }

    /// Takes `steps`; pauses where that was the last one.
    pub async fn spend(&mut self, steps: usize) {
        self.left = self.left.saturating_sub(steps);
        if self.left == 0 {
            self.pause().await;
        }
    }

    /// Lets others run.
    pub async fn pause(&mut self) {
        yield_now().await;
        self.left = STEPS;
    }
}

/// Runs what waits for disks, or cannot pause, on a thread of its own. Err: the server is stopping, or `work` panicked.
pub async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let failed = |_| ReplyError::new("ERR the command could not be finished").into();
    spawn_blocking(work).await.map_err(failed)
}
