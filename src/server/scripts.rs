//! What connections share of scripts: interpreters, the scripts that are known, and those that are running.

use crate::env::Clock;
use crate::error::{ReplyError, Result};
use crate::keyspace::keys::scripts::Digest;
use crate::lua::{Pool, Source, Turns, Watch};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The error for a script that does not compile.
pub(crate) fn invalid(message: Vec<u8>) -> ReplyError {
    let message = String::from_utf8_lossy(&message).into_owned();
    ReplyError::of(format!("ERR Error compiling script (new function): {message}"))
}

/// The error of an interpreter that cannot be made or used.
pub(crate) fn broken(e: impl std::fmt::Display) -> ReplyError {
    ReplyError::of(format!("ERR no interpreter for the script: {e}"))
}

/// Scripts that a server remembers, and bytes of their texts; beyond, those that were used longest ago are forgotten.
const MOST: usize = 2_000;
const MOST_BYTES: usize = 64 << 20;

/// Units with scripts that only read and run concurrently: the first time, and again if they took too long for that.
const SHORT: usize = 64;
const LONG: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// Interpreters.
    pub(crate) pool: Pool,
    /// Those that run beside the lanes take turns.
    pub(crate) turns: Arc<Turns>,
    /// Places of units with scripts that only read, which hold a thread: the runtime has some hundred of them.
    pub(crate) short: Semaphore,
    pub(crate) long: Semaphore,
    /// For tests: whether scripts may call commands that are refused to scripts.
    pub(crate) may_call_all: AtomicBool,
    known: Mutex<Known>,
    running: Mutex<Vec<Running>>,
}

impl Default for Scripts {
    fn default() -> Self {
        Scripts {
            pool: Pool::default(),
            turns: Arc::default(),
            short: Semaphore::new(SHORT),
            long: Semaphore::new(LONG),
            may_call_all: AtomicBool::default(),
            known: Mutex::default(),
            running: Mutex::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Known {
    scripts: HashMap<Digest, Remembered>,
    bytes: usize,
    /// Counts the uses.
    uses: u64,
}

#[derive(Debug)]
struct Remembered {
    source: Arc<Source>,
    /// The epoch in which it was known.
    epoch: u64,
    /// When it was used last, in uses of all.
    used: u64,
}

impl Known {
    fn add(&mut self, digest: Digest, source: &Arc<Source>, epoch: u64) {
        self.uses += 1;
        let new = Remembered { source: source.clone(), epoch, used: self.uses };
        self.bytes += source.text.len();
        if let Some(old) = self.scripts.insert(digest, new) {
            self.bytes -= old.source.text.len();
        }
        if self.scripts.len() > MOST || self.bytes > MOST_BYTES {
            self.forget_some();
        }
    }

    fn forget_some(&mut self) {
        let mut all: Vec<(u64, Digest)> =
            self.scripts.iter().map(|(digest, one)| (one.used, *digest)).collect();
        all.sort_unstable();
        for (_, digest) in all {
            if self.scripts.len() <= MOST / 10 * 9 && self.bytes <= MOST_BYTES / 10 * 9 {
                break;
            }
            if let Some(old) = self.scripts.remove(&digest) {
                self.bytes -= old.source.text.len();
            }
        }
    }
}

impl Scripts {
    /// A script that was sent or loaded in this epoch.
    pub(crate) fn find(&self, digest: &Digest, epoch: u64) -> Option<Arc<Source>> {
        let known = &mut *self.known.lock();
        known.uses += 1;
        let found = known.scripts.get_mut(digest).filter(|found| found.epoch == epoch)?;
        found.used = known.uses;
        Some(found.source.clone())
    }

    /// Whether a script is remembered, of any epoch, that says that it does not write.
    pub(crate) fn only_reads(&self, digest: &Digest) -> bool {
        self.known.lock().scripts.get(digest).is_some_and(|known| known.source.flags.no_writes)
    }

    /// Fails if a script does not compile.
    pub(crate) fn compile(&self, clock: &Clock, digest: &Digest, source: &Source) -> Result<()> {
        let mut interpreter = self.pool.take(clock).map_err(broken)?;
        let compiled = interpreter.compile(digest, source).map_err(broken)?;
        self.pool.put(interpreter);
        Ok(compiled.map_err(invalid)?)
    }

    /// Remembers a script, which is known in this epoch.
    pub(crate) fn learn(&self, digest: Digest, source: &Arc<Source>, epoch: u64) {
        self.known.lock().add(digest, source, epoch);
    }

    /// Forgets all scripts.
    pub(crate) fn forget(&self) {
        let known = std::mem::take(&mut *self.known.lock());
        crate::env::free(known.scripts.len(), known);
        self.pool.clear();
    }

    /// The number of scripts that are remembered, and the bytes of their texts.
    pub(crate) fn size(&self) -> (usize, usize) {
        let known = self.known.lock();
        (known.scripts.len(), known.bytes)
    }

    /// A script or a function begins, until the result is dropped.
    pub(crate) fn begin(&self, running: Running) -> Ends<'_> {
        let watch = running.watch.clone();
        self.running.lock().push(running);
        Ends { scripts: self, watch }
    }

    /// Ends all scripts that are running, or all functions. False if there are none.
    pub(crate) fn kill(&self, are_functions: bool) -> bool {
        let running = self.running.lock();
        let killed = running.iter().filter(|one| one.function.is_some() == are_functions);
        killed.map(|one| one.watch.kill()).count() > 0
    }

    /// The function that has been running for longest, with the command that called it and since when, by the
    /// monotonic clock.
    pub(crate) fn function(&self) -> Option<(String, Vec<Bytes>, Duration)> {
        let running = self.running.lock();
        running.iter().find_map(|one| one.function.clone().map(|(name, argv)| (name, argv, one.since)))
    }
}

/// A running script or function.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) watch: Arc<Watch>,
    /// By the monotonic clock.
    pub(crate) since: Duration,
    /// If it is a function: its name, and the command that called it.
    pub(crate) function: Option<(String, Vec<Bytes>)>,
}

/// Ends what is running when it is dropped.
#[derive(Debug)]
pub(crate) struct Ends<'a> {
    scripts: &'a Scripts,
    watch: Arc<Watch>,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.scripts.running.lock().retain(|one| !Arc::ptr_eq(&one.watch, &self.watch));
    }
}
