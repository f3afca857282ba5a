//! Scripts that hold a thread take turns on half of the cores: however many there are, the rest of the server has cores, too.

use crate::env::Clock;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Thread, available_parallelism, current, park};
use std::time::Duration;

/// How long a turn is while others wait for theirs.
const LONGEST: Duration = Duration::from_millis(5);

/// Who runs, and who waits.
#[derive(Debug)]
pub(crate) struct Turns(Mutex<Queues>);

#[derive(Debug)]
struct Queues {
    /// Cores that nobody uses.
    free: usize,
    /// Those that wait for their first turn: they go first.
    first: VecDeque<Arc<Waiting>>,
    again: VecDeque<Arc<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    thread: Thread,
    is_given: AtomicBool,
}

impl Default for Turns {
    fn default() -> Self {
        let free = available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
        Turns(Mutex::new(Queues { free, first: VecDeque::new(), again: VecDeque::new() }))
    }
}

impl Turns {
    /// Waits for a turn; those whose `is_first` it is go first.
    pub(crate) fn take(self: Arc<Self>, clock: &Clock, is_first: bool) -> Turn {
        if let Some(waiting) = self.queue(is_first) {
            while !waiting.is_given.load(Ordering::Acquire) {
                park();
            }
        }
        Turn { turns: self, since: clock.monotonic() }
    }

    /// None: a core was free.
    fn queue(&self, is_first: bool) -> Option<Arc<Waiting>> {
        let queues = &mut *self.0.lock();
        if queues.free > 0 {
            queues.free -= 1;
            return None;
        }
        let waiting = Arc::new(Waiting { thread: current(), is_given: AtomicBool::new(false) });
        let queue = if is_first { &mut queues.first } else { &mut queues.again };
        queue.push_back(waiting.clone());
        Some(waiting)
    }

    fn somebody_waits(&self) -> bool {
        let queues = self.0.lock();
        !queues.first.is_empty() || !queues.again.is_empty()
    }
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    since: Duration,
}

impl Turn {
    /// Ends the turn. Returns where there are others.
    pub(super) fn end(self) -> Arc<Turns> {
        self.turns.clone()
    }

    /// Lets others run, if it was long enough.
    pub(super) fn passed_on(self, clock: &Clock) -> Turn {
        if clock.monotonic().saturating_sub(self.since) < LONGEST || !self.turns.somebody_waits() {
            return self;
        }
        self.end().take(clock, false)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let queues = &mut *self.turns.0.lock();
        match queues.first.pop_front().or_else(|| queues.again.pop_front()) {
            Some(next) => {
                next.is_given.store(true, Ordering::Release);
                next.thread.unpark();
            }
            None => queues.free += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    #[test]
    fn no_more_run_than_may_and_each_gets_its_turn() {
        let turns = Arc::new(Turns::default());
        let (most, clock) = (turns.0.lock().free, Env::system().clock);
        let (running, rounds) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 8]);
        let end = Instant::now() + Duration::from_millis(400);
        std::thread::scope(|scope| {
            for own in &rounds {
                scope.spawn(|| {
                    let mut turn = turns.clone().take(&clock, true);
                    while Instant::now() < end {
                        assert!(running.fetch_add(1, Ordering::SeqCst) < most);
                        own.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(1));
                        running.fetch_sub(1, Ordering::SeqCst);
                        turn = turn.passed_on(&clock);
                    }
                });
            }
        });
        assert!(rounds.iter().all(|own| own.load(Ordering::Relaxed) > 0), "{rounds:?}");
        let queues = turns.0.lock();
        assert!(queues.free == most && queues.first.is_empty() && queues.again.is_empty());
    }

    #[test]
    fn who_has_not_run_goes_first() {
        let turns = Arc::new(Turns::default());
        let clock = Env::system().clock;
        let most = turns.0.lock().free;
        let held: Vec<Turn> = (0..most).map(|_| turns.clone().take(&clock, true)).collect();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (n, is_first) in [false, false, true].into_iter().enumerate() {
                let (taken, clock, order) = (turns.clone(), &clock, &order);
                scope.spawn(move || {
                    let turn = taken.take(clock, is_first);
                    order.lock().push(n);
                    drop(turn);
                });
                let all_wait = || {
                    let queues = turns.0.lock();
                    queues.first.len() + queues.again.len() > n
                };
                while !all_wait() {
                    std::thread::yield_now();
                }
            }
            held.into_iter().take(1).for_each(drop);
        });
        assert_eq!(order.into_inner(), [2, 0, 1]);
    }
}
