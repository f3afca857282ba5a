//! Paces long work: it runs in steps, and lets other tasks run between them.
//!
//! A step takes some nanoseconds: a byte of a pattern, a comparison. [`STEPS`] of them take about a
//! millisecond in a release build, so other tasks on the thread wait no longer than that. Work that cannot
//! pause runs on a thread of its own ([`beside`]).

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
    /// Steps until the next pause. A caller subtracts the steps it takes, and calls [`Pace::pause`] when none
    /// are left.
    pub(crate) fn left(&mut self) -> &mut usize {
        &mut self.left
    }

    /// Takes `steps`; pauses if they were used up.
    pub(crate) async fn spend(&mut self, steps: usize) {
        self.left = self.left.saturating_sub(steps);
        if self.left == 0 {
            self.pause().await;
        }
    }

    /// Lets other tasks run.
    pub(crate) async fn pause(&mut self) {
        yield_now().await;
        self.left = STEPS;
    }
}

/// Runs work that waits for disks or cannot pause on a thread of its own. Err: the server is stopping, or
/// `work` panicked.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let failed = |_| ReplyError::new("ERR the command could not be finished").into();
    spawn_blocking(work).await.map_err(failed)
}
