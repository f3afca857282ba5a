//! What a script may use, and whether it must end.

use super::turns::Turn;
use crate::env::Clock;
use mlua::Value;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Lua's error for want of memory.
pub(super) const NO_MEMORY: &str = "not enough memory";

/// Says that a running script must end: SCRIPT KILL, or because others wait for its lane.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Clock,
    stopped: AtomicBool,
    killed: AtomicBool,
    /// Whether it has the limits of a lane: it ends where it gets no more memory, instead of failing so.
    is_short: AtomicBool,
    /// Milliseconds of the clock after which the script is stopped; 0: never.
    until: AtomicU64,
    /// Its turn, if it takes turns with others. Only the script's own thread locks this.
    turn: Mutex<Option<Turn>>,
}

/// A script that takes turns with others, until this is dropped.
pub(crate) struct InTurns<'a>(&'a Watch);

impl Drop for InTurns<'_> {
    fn drop(&mut self) {
        self.0.turn.lock().take();
    }
}

impl Watch {
    pub(super) fn new(clock: Clock) -> Self {
        let (stopped, killed, is_short, until, turn) = Default::default();
        Watch { clock, stopped, killed, is_short, until, turn }
    }

    pub(super) fn begin(&self, limits: Limits) {
        self.is_short.store(limits.memory.is_some(), Ordering::Relaxed);
        let until = limits.time.map_or(0, |most| self.now() + most.as_millis() as u64 + 1);
        self.until.store(until, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
        self.killed.store(false, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.clock.monotonic().as_millis() as u64
    }

    /// The script has this turn, and then takes turns with others.
    pub(crate) fn holds(&self, turn: Turn) -> InTurns<'_> {
        *self.turn.lock() = Some(turn);
        InTurns(self)
    }

    /// Waits for the store: others have the turn meanwhile. In a lane, where time is short, it counts for a tenth: a script of
    /// some calls ends there.
    pub(crate) fn away<T>(&self, wait: impl FnOnce() -> T) -> T {
        let turn = self.turn.lock().take();
        let (turns, began) = (turn.map(Turn::end), self.now());
        let result = wait();
        let is_first = self.is_short.load(Ordering::Relaxed);
        if is_first {
            self.until.fetch_add((self.now() - began) * 9 / 10, Ordering::Relaxed);
        }
        if let Some(turns) = turns {
            self.waiting(|| turns.take(&self.clock, is_first));
        }
        result
    }

    /// Waits for a turn, which is not time of the script.
    fn waiting(&self, next: impl FnOnce() -> Turn) {
        let began = self.now();
        *self.turn.lock() = Some(next());
        if self.until.load(Ordering::Relaxed) > 0 {
            self.until.fetch_add(self.now() - began, Ordering::Relaxed);
        }
    }

    /// Ends the script at its next look.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
    }

    /// Whether it was killed.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// Whether the script was ended.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends the script, whatever it catches.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Looks at an error of the script. Whether the script must end.
    pub(super) fn ends(&self, error: &Value) -> bool {
        let is_of_memory = match error {
            Value::String(text) => *text == NO_MEMORY,
            // The host's functions fail so only for want of memory.
            Value::Error(_) => true,
            _ => false,
        };
        if is_of_memory && self.is_short.load(Ordering::Relaxed) {
            self.stop();
        }
        self.is_over()
    }

    /// Looks at the clock, and lets others have their turn. Whether the script must end.
    pub(crate) fn is_over(&self) -> bool {
        let turn = self.turn.lock().take();
        if let Some(turn) = turn {
            self.waiting(|| turn.passed_on(&self.clock));
        }
        let until = self.until.load(Ordering::Relaxed);
        if self.is_killed() || until > 0 && self.now() > until {
            self.stop();
        }
        self.stopped.load(Ordering::Relaxed)
    }
}

/// What a run may use. Beyond either it is stopped.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// How long it may run.
    pub(crate) time: Option<Duration>,
    /// Bytes of memory. None: as many as an interpreter may use; beyond, the script fails.
    pub(crate) memory: Option<usize>,
}
