//! Watches of keys. Owned by the committer; fired after a batch is published, so that a woken task sees it.

use crate::store::writes::Writes;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use tokio::sync::oneshot::Sender;

/// See the module. Keys are stored keys.
#[derive(Default)]
pub(super) struct Watches {
    waiting: BTreeMap<Bytes, Vec<Sender<()>>>,
    len: usize,
    swept: usize,
}

impl Watches {
    pub(super) fn add(&mut self, key: Bytes, sender: Sender<()>) {
        self.waiting.entry(key).or_default().push(sender);
        self.len += 1;
        if self.len > 2 * self.swept + 64 {
            self.sweep();
        }
    }

    /// Fires the watches of keys that `writes` changes.
    pub(super) fn fire(&mut self, writes: &Writes) {
        if self.waiting.is_empty() {
            return;
        }
        for key in writes.ops.keys() {
            self.wake(key);
        }
        for (begin, end) in writes.cleared.iter() {
            let inside = self.waiting.range::<[u8], _>((Included(&begin[..]), Excluded(&end[..])));
            let inside: Vec<Bytes> = inside.map(|(k, _)| k.clone()).collect();
            inside.iter().for_each(|key| self.wake(key));
        }
    }

    /// Fires all watches, because it is unknown what has changed.
    pub(super) fn fire_all(&mut self) {
        for sender in std::mem::take(self).waiting.into_values().flatten() {
            let _ = sender.send(());
        }
    }

    fn wake(&mut self, key: &[u8]) {
        for sender in self.waiting.remove(key).into_iter().flatten() {
            self.len -= 1;
            let _ = sender.send(()); // the receiver may have given up
        }
    }

    /// Drops watches that nobody waits for; at most once per doubling.
    fn sweep(&mut self) {
        self.waiting.retain(|_, senders| {
            senders.retain(|s| !s.is_closed());
            !senders.is_empty()
        });
        self.len = self.waiting.values().map(Vec::len).sum();
        self.swept = self.len;
    }
}
