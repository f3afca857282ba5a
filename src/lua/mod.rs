//! Lua 5.1 as scripts see it: the interpreters, and what each of them offers.
//!
//! An interpreter runs one script at a time. What scripts can reach of it never changes (`sandbox.lua`), so it serves one
//! script after the other, whoever sent it. Interpreters are kept in a [`Pool`]; there are as many as scripts have run at
//! once.
//!
//! A script calls the server by a function that [`Interpreter::run`] gets. Plain Lua 5.1 cannot yield inside of pcall,
//! metamethods and iterators, so a call returns only with its answer.

mod interpreter;
mod libraries;
mod library;
mod patterns;
mod source;
#[cfg(test)]
mod tests;
mod turns;
mod watch;

pub(crate) use interpreter::{Answer, Interpreter, Outcome, Task};
pub(crate) use libraries::{general, truncated};
pub(crate) use library::{Function, Library, MOST_FUNCTIONS};
pub(crate) use source::{Source, hex, parse_hex, sha1};
pub(crate) use turns::{Turn, Turns};
pub(crate) use watch::{Limits, Watch};

use crate::env::Clock;
use parking_lot::Mutex;

/// Whether the script that runs must end. Asked in long loops.
pub(crate) fn is_over(lua: &mlua::Lua) -> bool {
    lua.app_data_ref::<std::sync::Arc<Watch>>().is_some_and(|watch| watch.is_over())
}

/// Interpreters that are kept while no script needs them.
const KEPT: usize = 16;

/// The interpreters that no script is using.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<Interpreter>>);

impl Pool {
    /// An interpreter, perhaps a new one.
    pub(crate) fn take(&self, clock: &Clock) -> mlua::Result<Interpreter> {
        let kept = self.0.lock().pop();
        match kept {
            Some(kept) => Ok(kept),
            None => Interpreter::new(clock.clone()),
        }
    }

    /// Keeps an interpreter for the next script.
    pub(crate) fn put(&self, interpreter: Interpreter) {
        let mut kept = self.0.lock();
        if kept.len() < KEPT {
            kept.push(interpreter);
        }
    }

    /// Drops all, and what they remember.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}
