//! One task waits for all watches of the keys that clients wait for.
//!
//! With a task for each key, those that fire together (a flushed database, a client with thousands of keys) would fill the
//! queues of the runtime, and the tasks of other clients would wait behind them for seconds. This one handles a few of
//! them before others have their turn.

use super::waiters::{Key, Waiters};
use crate::store::Watch;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The watches of a key. Whoever drops it is no longer told.
#[derive(Debug)]
pub(super) struct Watched {
    watches: Arc<Mutex<Vec<Watch>>>,
    task: AbortHandle,
}

impl Watched {
    /// Whether one of them has fired, and nobody was told yet.
    pub(super) fn has_fired(&self) -> bool {
        self.watches.lock().iter().any(|watch| !watch.is_empty() || watch.is_terminated())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How long the task lives on while nothing is watched.
const LINGERS: Duration = Duration::from_secs(1);

/// The task that waits. It begins with the first watches, and ends some time after the last ones.
#[derive(Debug, Default)]
pub(super) struct Watcher(Option<UnboundedSender<Abortable<Fires>>>);

impl Watcher {
    /// Has [`Waiters::fire`] called for the key once one of its watches has fired.
    pub(super) fn watch(&mut self, key: Key, watches: Vec<Watch>, waiters: &Arc<Waiters>) -> Watched {
        let (task, registration) = AbortHandle::new_pair();
        let watches = Arc::new(Mutex::new(watches));
        let fires = Abortable::new(Fires { key: Some(key), watches: watches.clone() }, registration);
        let unsent = match &self.0 {
            Some(task) => task.send(fires).err().map(|e| e.0),
            None => Some(fires),
        };
        if let Some(fires) = unsent {
            let (sender, receiver) = unbounded_channel();
            tokio::spawn(wait(receiver, Arc::downgrade(waiters)));
            // The receiver is there until the task has run.
            _ = sender.send(fires);
            self.0 = Some(sender);
        }
        Watched { watches, task }
    }
}

async fn wait(mut new: UnboundedReceiver<Abortable<Fires>>, waiters: Weak<Waiters>) {
    let mut watched = FuturesUnordered::new();
    loop {
        let is_idle = watched.is_empty();
        tokio::select! {
            biased;
            fires = new.recv() => match fires {
                Some(fires) => watched.push(fires),
                None => return,
            },
            Some(fired) = watched.next() => {
                if let (Ok(key), Some(waiters)) = (fired, waiters.upgrade()) {
                    waiters.fire(&key);
                }
            }
            () = tokio::time::sleep(LINGERS), if is_idle => {
                if waiters.upgrade().is_none_or(|waiters| waiters.end_watcher(|| new.is_empty())) {
                    return;
                }
            }
        }
    }
}

/// Returns the key once one of its watches has fired, also if somebody has seen that before.
struct Fires {
    key: Option<Key>,
    watches: Arc<Mutex<Vec<Watch>>>,
}

impl Future for Fires {
    type Output = Key;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Key> {
        let is_ready = |watch: &mut Watch| watch.is_terminated() || Pin::new(watch).poll(cx).is_ready();
        let has_fired = self.watches.lock().iter_mut().any(is_ready);
        if has_fired { self.key.take().map_or(Poll::Pending, Poll::Ready) } else { Poll::Pending }
    }
}
