//! Options: one table, read like redis.conf, from the file, then the arguments, then CONFIG SET.
//!
//! The values in force are one immutable [`Settings`] behind an atomic pointer: a request reads them without a lock and sees
//! either all or nothing of a CONFIG SET. What must react to a change (the store's sync policy, the log's level) is told
//! by the command that made it, because this module imports nothing.

mod codec;
mod events;
pub mod file;
mod read;
mod rewrite;
mod table;

pub use codec::{Allowed, AppendFsync, ClientAuth, LogLevel, MAX_PASSWORD, OutputLimit, OutputLimits};
pub use events::Events;
pub use read::{ConfigError, from_args, from_text};
pub use table::{Change, Opt, SECTIONS, Section, Settings, is_secret, lookup, options};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

impl Settings {
    /// How long a command is tried before its client hears that the store does not answer, or that others are always in
    /// its way.
    pub fn store_timeout(&self) -> Duration {
        Duration::from_millis(self.store_timeout.into())
    }
    /// Number of lanes: what `lanes` says, or what suits the machine.
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

/// Asked before options of its family change: it makes what they name ready, or says why it cannot.
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
    /// The option of this name, and what is wrong with it or its value.
    Invalid(String, String),
}

impl ConfigStore {
    /// Starts with `settings`, read from no file.
    pub fn new(settings: Settings) -> Self {
        ConfigStore { settings: ArcSwap::from_pointee(settings), file: None, writers: Mutex::default() }
    }
    /// Starts with `settings` that were read from `file`, which CONFIG REWRITE rewrites.
    pub fn from_file(settings: Settings, file: Option<PathBuf>) -> Self {
        ConfigStore { file, ..ConfigStore::new(settings) }
    }
    /// The values in force now.
    pub fn get(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }
    /// From now on a CONFIG SET of options whose names begin with `family` takes place only where `prepare` can make what the
    /// new values name ready. They are in force right after it has. There is one guardian at most.
    pub fn guard(
        &self,
        family: &'static str,
        prepare: impl Fn(&Settings) -> Result<(), String> + Send + 'static,
    ) {
        *self.writers.lock() = Some(Guardian { family, prepare: Box::new(prepare) });
    }
    /// The file that the server was started with.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
    /// Sets all of `pairs` or, on an error, none. Names match in any case. Returns the options that were named.
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
    pub fn matching(&self, matches: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let settings = self.get();
        options().filter(|o| matches(o.name)).map(|o| (o.name, o.show(&settings))).collect()
    }
    /// Writes the values in force into the file: comments, order and what did not change stay. `users`: the `user` lines that are
    /// to be in it, where they are not to stay either; one that is no text is refused.
    pub fn rewrite(&self, users: Option<&[Vec<u8>]>) -> Result<(), String> {
        let file = self.file().ok_or("The server is running without a config file")?;
        rewrite::rewrite(file, &self.get(), users)
    }
}
