//! Watches of keys. Owned by the committer; fired after a batch is published, so that a woken task sees it.

use crate::store::key_after;
use crate::store::writes::Writes;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included, Unbounded};
use tokio::sync::oneshot::Sender;

/// See the module. Keys are stored keys.
#[derive(Default)]
pub(super) struct Watches {
    waiting: BTreeMap<Bytes, Watchers>,
    /// The last key at which watches that nobody waits for were looked for.
    swept: Bytes,
    /// What is left of ranges that were cleared: their watches have yet to be fired.
    cleared: VecDeque<(Bytes, Bytes)>,
}

/// The watches of a key.
#[derive(Default)]
struct Watchers {
    senders: Vec<Sender<()>>,
    /// At most how many were left when those that nobody waits for were last dropped.
    left: usize,
}

/// Keys that are swept for each that is added: commits wait for it, so it is never done for all at once.
const SWEPT: usize = 2;

/// Keys in cleared ranges whose watches are fired at once: the tasks that they wake run before others get their turn.
const FIRED: usize = 250;

impl Watchers {
    /// Adds a watch, and drops those that nobody waits for, at most once per doubling.
    fn add(&mut self, sender: Sender<()>) {
        self.senders.push(sender);
        if self.senders.len() > 2 * self.left + 8 {
            self.senders.retain(|sender| !sender.is_closed());
            self.left = self.senders.len();
        }
    }

    /// Whether nobody waits. Drops only what comes last, in constant time for each.
    fn are_gone(&mut self) -> bool {
        while self.senders.pop_if(|sender| sender.is_closed()).is_some() {}
        self.left = self.left.min(self.senders.len());
        self.senders.is_empty()
    }
}

impl Watches {
    pub(super) fn add(&mut self, key: Bytes, sender: Sender<()>) {
        self.waiting.entry(key).or_default().add(sender);
        self.sweep();
    }

    /// Drops watches that nobody waits for, at the keys that come next.
    fn sweep(&mut self) {
        let after = (Excluded(std::mem::take(&mut self.swept)), Unbounded);
        let mut gone = Vec::new();
        for (key, watchers) in self.waiting.range_mut(after).take(SWEPT) {
            self.swept = key.clone();
            if watchers.are_gone() {
                gone.push(key.clone());
            }
        }
        gone.iter().for_each(|key| drop(self.waiting.remove(key)));
    }

    /// Fires the watches of keys that `writes` sets or removes. Those of ranges that it clears are up to
    /// [`Watches::fire_some`].
    pub(super) fn fire(&mut self, writes: &Writes) {
        if self.waiting.is_empty() {
            return;
        }
        for (key, _) in writes.ops.iter() {
            self.wake(key);
        }
        self.cleared.extend(writes.cleared.iter().map(|(begin, end)| (begin.clone(), end.clone())));
    }

    /// Fires watches of cleared ranges, some at a time. Returns whether there are more.
    pub(super) fn fire_some(&mut self) -> bool {
        let mut left = FIRED;
        while left > 0
            && let Some((begin, end)) = self.cleared.pop_front()
        {
            let inside = self.waiting.range::<[u8], _>((Included(&begin[..]), Excluded(&end[..])));
            let inside: Vec<Bytes> = inside.take(left).map(|(key, _)| key.clone()).collect();
            inside.iter().for_each(|key| self.wake(key));
            left -= inside.len();
            if let Some(last) = inside.last().filter(|_| left == 0) {
                self.cleared.push_front((key_after(last).into(), end));
            }
        }
        !self.cleared.is_empty()
    }

    /// Fires all watches, because it is unknown what has changed.
    pub(super) fn fire_all(&mut self) {
        for sender in std::mem::take(self).waiting.into_values().flat_map(|watchers| watchers.senders) {
            let _ = sender.send(());
        }
    }

    fn wake(&mut self, key: &[u8]) {
        for sender in self.waiting.remove(key).into_iter().flat_map(|watchers| watchers.senders) {
            let _ = sender.send(()); // the receiver may have given up
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::{Receiver, channel};

    fn added(watches: &mut Watches, key: usize) -> Receiver<()> {
        let (sender, receiver) = channel();
        watches.add(Bytes::from(format!("{key:05}")), sender);
        receiver
    }

    fn held(watches: &Watches) -> usize {
        watches.waiting.values().map(|watchers| watchers.senders.len()).sum()
    }

    #[test]
    fn what_nobody_waits_for_does_not_pile_up() {
        let mut watches = Watches::default();
        let kept: Vec<Receiver<()>> = (0..1000).map(|n| added(&mut watches, n)).collect();
        for round in 0..20 {
            for n in 0..5000 {
                drop(added(&mut watches, n));
                drop(added(&mut watches, 77));
            }
            assert!(held(&watches) < 12_000, "round {round}: {}", held(&watches));
        }
        drop(kept);
        let last = (0..12_000).map(|_| added(&mut watches, 1)).collect::<Vec<_>>().len();
        assert!(held(&watches) < last + 20, "{}", held(&watches));
    }

    #[test]
    fn a_cleared_range_is_fired_some_at_a_time() {
        let mut watches = Watches::default();
        let mut kept: Vec<Receiver<()>> = (0..5000).map(|n| added(&mut watches, n)).collect();
        let mut writes = Writes::default();
        assert!(writes.clear_range(Bytes::from_static(b"00100"), Bytes::from_static(b"04900")).is_ok());
        watches.fire(&writes);
        let mut fired = || kept.iter_mut().filter_map(|receiver| receiver.try_recv().ok()).count();
        let mut times = vec![fired()];
        while watches.fire_some() {
            times.push(fired());
        }
        times.push(fired());
        assert_eq!(times.remove(0), 0);
        assert_eq!(times, [vec![250; 19], vec![50]].concat());
    }

    #[test]
    fn who_waits_is_woken_whatever_was_swept() {
        let mut watches = Watches::default();
        let mut kept: Vec<Receiver<()>> = (0..1000).map(|n| added(&mut watches, n)).collect();
        (0..10_000).for_each(|n| drop(added(&mut watches, n % 2000)));
        for n in 0..1000 {
            watches.wake(format!("{n:05}").as_bytes());
        }
        assert!(kept.iter_mut().all(|receiver| receiver.try_recv().is_ok()));
    }
}
