//! Options: one table, parsed like redis.conf: from the file, then the arguments, then CONFIG SET.
//!
//! The current values are one immutable [`Settings`] behind an atomic pointer: a request reads them without a
//! lock and sees all or nothing of a CONFIG SET. The command that changes an option notifies the code that
//! must react (the store's sync policy, the log level), because this module imports nothing.

mod codec;
mod events;
pub(crate) mod file;
mod read;
mod rewrite;
mod table;

pub use codec::{Allowed, AppendFsync, ClientAuth, LogLevel, MAX_PASSWORD, OutputLimit, OutputLimits};
pub use events::Events;
pub use read::{ConfigError, from_args, from_text};
pub(crate) use table::named;
pub use table::{Change, Opt, SECTIONS, Section, Settings, is_secret, lookup, options};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

impl Settings {
    /// How long a command is retried before its client is told that the store does not answer, or that
    /// conflicts persist.
    pub fn store_timeout(&self) -> Duration {
        Duration::from_millis(self.store_timeout.into())
    }
    /// The number of lanes: `lanes`, or a default for this machine.
    pub fn lane_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if self.lanes > 0 { self.lanes } else { cores().div_ceil(2) }
    }
}

/// The options of a server: read on every request, replaced by CONFIG SET.
#[derive(Debug, Default)]
pub struct ConfigStore {
    settings: ArcSwap<Settings>,
    file: Option<PathBuf>,
    writers: Mutex<Option<Guardian>>,
}

type Prepare = Box<dyn Fn(&Settings) -> Result<(), String> + Send>;

/// Called before options of its family change: prepares what they name, or returns why it cannot.
struct Guardian {
    family: &'static str,
    prepare: Prepare,
}

impl std::fmt::Debug for Guardian {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Guardian({})", self.family)
    }
}

/// Why a CONFIG SET changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetError {
    /// No option has this name.
    Unknown(String),
    /// The option's name, and what is wrong with it or its value.
    Invalid(String, String),
}

impl ConfigStore {
    /// Starts with `settings` that were not read from a file.
    pub fn new(settings: Settings) -> Self {
        ConfigStore { settings: ArcSwap::from_pointee(settings), file: None, writers: Mutex::default() }
    }
    /// Starts with `settings` read from `file`, which CONFIG REWRITE rewrites.
    pub fn from_file(settings: Settings, file: Option<PathBuf>) -> Self {
        ConfigStore { file, ..ConfigStore::new(settings) }
    }
    /// The current values.
    pub fn get(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }
    /// From now on a CONFIG SET of options whose names begin with `family` succeeds only if `prepare` can
    /// prepare what the new values name. They take effect right after it. At most one guardian is possible.
    pub(crate) fn guard(
        &self,
        family: &'static str,
        prepare: impl Fn(&Settings) -> Result<(), String> + Send + 'static,
    ) {
        *self.writers.lock() = Some(Guardian { family, prepare: Box::new(prepare) });
    }
    /// The file with which the server was started.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
    /// Sets all of `pairs` or, on an error, none. Names match in any case. Returns the options that were set.
    pub fn set(&self, pairs: &[(String, String)]) -> Result<Vec<&'static Opt>, SetError> {
        let guardian = self.writers.lock();
        let mut next = Settings::clone(&self.get());
        let mut named: Vec<&'static Opt> = Vec::with_capacity(pairs.len());
        for (name, _) in pairs {
            let opt = lookup(name).ok_or_else(|| SetError::Unknown(name.clone()))?;
            let refuse = |why: &str| Err(SetError::Invalid(name.clone(), why.into()));
            match opt.change {
                _ if named.iter().any(|o| o.name == opt.name) => {
                    return refuse("duplicate parameter");
                }
                Change::Start | Change::Given => return refuse("can't set immutable config"),
                Change::Runtime | Change::Restart | Change::Fixed => named.push(opt),
            }
        }
        for ((name, value), opt) in pairs.iter().zip(&named) {
            let before = opt.show(&next);
            opt.set_text(&mut next, value).map_err(|why| SetError::Invalid(name.clone(), why))?;
            if opt.change == Change::Restart && opt.show(&next) != before {
                return Err(SetError::Invalid(name.clone(), "can't set immutable config".into()));
            }
        }
        if let Some(guardian) = &*guardian
            && let Some(opt) = named.iter().find(|opt| opt.name.starts_with(guardian.family))
        {
            (guardian.prepare)(&next).map_err(|why| SetError::Invalid(opt.name.into(), why))?;
        }
        self.settings.store(Arc::new(next));
        Ok(named)
    }
    /// Names and values of the options that match any of the patterns, in the table's order.
    pub(crate) fn matching(&self, matches: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let settings = self.get();
        let shown = named().filter(|(name, _)| matches(name));
        shown.map(|(name, opt)| (name, opt.show(&settings))).collect()
    }
    /// Writes the current values into the file, keeping comments, order and unchanged lines. `users`: the
    /// `user` lines to write, None to keep those in the file; fails for a line that is not text.
    pub fn rewrite(&self, users: Option<&[Vec<u8>]>) -> Result<(), String> {
        let file = self.file().ok_or("The server is running without a config file")?;
        rewrite::rewrite(file, &self.get(), users)
    }
}
