//! Which tasks hold a transaction of the embedded engine: counted, and checked, in debug builds only.
//!
//! A store that reopens after a failed sync waits until the transactions from before are gone. A task that
//! holds one and meanwhile retries another piece of work for as long as the store refuses it waits for
//! itself, for ever. So [`Retries::endless`](super::Retries::endless) is for tasks that hold none.

/// One transaction, counted for the task that began it until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    #[cfg(debug_assertions)]
    task: Option<tokio::task::Id>,
}

#[cfg(not(debug_assertions))]
mod count {
    impl super::Held {
        pub(in crate::store) fn begin() -> Self {
            super::Held {}
        }

        pub(in crate::store) fn hand_over(&mut self) {}
    }

    pub(in crate::store) fn must_be_none() {}
}

#[cfg(debug_assertions)]
mod count {
    use super::Held;
    use parking_lot::Mutex;
    use std::collections::BTreeMap;
    use tokio::task::{Id, try_id};

    static HELD: Mutex<BTreeMap<Id, usize>> = Mutex::new(BTreeMap::new());

    impl Held {
        pub(in crate::store) fn begin() -> Self {
            let task = try_id();
            if let Some(task) = task {
                *HELD.lock().entry(task).or_default() += 1;
            }
            Held { task }
        }

        /// Counts it for no task any more.
        pub(in crate::store) fn hand_over(&mut self) {
            let Some(task) = self.task.take() else { return };
            let mut held = HELD.lock();
            if let Some(n) = held.get_mut(&task) {
                *n -= 1;
                if *n == 0 {
                    held.remove(&task);
                }
            }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            self.hand_over();
        }
    }

    /// The number of transactions that the task running here has begun and that still live. 0 outside tasks.
    pub(super) fn by_this_task() -> usize {
        try_id().and_then(|task| HELD.lock().get(&task).copied()).unwrap_or_default()
    }

    /// Panics if the task running here holds a transaction.
    pub(in crate::store) fn must_be_none() {
        assert_eq!(by_this_task(), 0, "the store may wait for what this task holds");
    }
}

pub(super) use count::must_be_none;

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::Held;
    use super::count::by_this_task;

    #[tokio::test]
    async fn a_transaction_counts_for_the_task_that_began_it() {
        let counted = tokio::spawn(async {
            let first = Held::begin();
            let second = Held::begin();
            let both = by_this_task();
            drop(second);
            (both, by_this_task(), first)
        });
        let (both, one, first) = counted.await.unwrap();
        assert_eq!((both, one, by_this_task()), (2, 1, 0));
        drop(first);
        assert!(tokio::spawn(async { by_this_task() }).await.unwrap() == 0);
    }
}
