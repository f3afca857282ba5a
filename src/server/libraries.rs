//! The libraries of functions that this server remembers.

use super::Server;
use crate::error::{Error, ReplyError, Result};
use crate::keyspace::libraries;
use crate::lua::{Function, Library, Limits};
use crate::server::scripts::broken;
use crate::store::{Read, Tx};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How long the code of a library may run while it registers its functions.
pub(crate) const LOADS: Duration = Duration::from_millis(500);
/// The same for all libraries of a payload together.
const ALL_LOAD: Duration = Duration::from_secs(5);

/// All libraries, as a transaction sees them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shelf {
    epoch: u64,
    /// By their names.
    pub(crate) libraries: BTreeMap<String, Arc<Library>>,
    /// The library of each function, and its place there, by the function's name in lower case.
    functions: HashMap<String, (Arc<Library>, usize)>,
}

impl Shelf {
    /// A function: its library, and what it is. Case does not matter.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(&Arc<Library>, &Function)> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        let (library, at) = self.functions.get(&name)?;
        Some((library, library.functions.get(*at)?))
    }

    /// The number of functions.
    pub(crate) fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Bytes that are stored of them.
    pub(crate) fn bytes(&self) -> usize {
        self.libraries.values().map(|library| library.size()).sum()
    }

    /// Adds a library. Fails if another one has its name, or one of its functions.
    pub(crate) fn add(&mut self, library: Library) -> Result<()> {
        if self.libraries.contains_key(&library.name) {
            return Err(ReplyError::of(format!("ERR Library {} already exists", library.name)).into());
        }
        let library = Arc::new(library);
        let lower = |function: &Function| function.name.to_ascii_lowercase();
        for (at, function) in library.functions.iter().enumerate() {
            if self.functions.insert(lower(function), (library.clone(), at)).is_some() {
                return Err(ReplyError::of(format!("ERR Function {} already exists", function.name)).into());
            }
        }
        self.libraries.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes a library. False if there is none.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let Some(library) = self.libraries.remove(name) else { return false };
        library.functions.iter().for_each(|function| {
            self.functions.remove(&function.name.to_ascii_lowercase());
        });
        true
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Libraries(Mutex<Arc<Shelf>>);

impl Libraries {
    /// Remembers the libraries of an epoch.
    pub(crate) fn remember(&self, epoch: u64, shelf: Shelf) -> Arc<Shelf> {
        let shelf = Arc::new(Shelf { epoch, ..shelf });
        *self.0.lock() = shelf.clone();
        shelf
    }

    /// Whether a function is remembered, of any epoch, that says that it does not write.
    pub(crate) fn only_reads(&self, function: &[u8]) -> bool {
        self.0.lock().find(function).is_some_and(|(_, function)| function.no_writes())
    }

    /// The number of libraries and of functions that this server remembers.
    pub(crate) fn size(&self) -> (usize, usize) {
        let known = self.0.lock();
        (known.libraries.len(), known.functions())
    }

    /// The libraries that a transaction sees. What changes one conflicts with it. [`Error::TooHeavy`] in a lane, if they
    /// must be read: there may be many.
    pub(crate) async fn of(&self, tx: &Tx, in_lane: bool) -> Result<Arc<Shelf>> {
        let epoch = libraries::epoch(tx, Read::Serializable).await?;
        let known = self.0.lock().clone();
        if known.epoch == epoch {
            return Ok(known);
        } else if in_lane {
            return Err(Error::TooHeavy);
        }
        let mut shelf = Shelf::default();
        for stored in libraries::all(tx).await?.into_values() {
            let library = Library::decode(stored).ok_or_else(|| libraries::corrupt("a library"))?;
            shelf.add(library)?;
        }
        Ok(self.remember(epoch, shelf))
    }
}

/// Runs the code of libraries.
pub(crate) fn all_loaded(server: &Server, codes: impl IntoIterator<Item = Bytes>) -> Result<Vec<Library>> {
    let clock = &server.env.clock;
    let end = clock.monotonic() + ALL_LOAD;
    codes.into_iter().map(|code| loaded(server, code, end.saturating_sub(clock.monotonic()))).collect()
}

/// Runs the code of a library, which registers its functions.
pub(crate) fn loaded(server: &Server, code: Bytes, most: Duration) -> Result<Library> {
    let library = Library::parse(code)?;
    let clock = &server.env.clock;
    let turn = server.scripts.turns.clone().take(clock, false);
    let mut interpreter = server.scripts.pool.take(clock).map_err(broken)?;
    let watch = interpreter.watch().clone();
    let turn = watch.holds(turn);
    let limits = Limits { time: Some(most), memory: None };
    let loaded = interpreter.load(library, limits).map_err(broken)?;
    // Before somebody else gets the interpreter.
    drop(turn);
    if interpreter.is_fit() {
        server.scripts.pool.put(interpreter);
    }
    Ok(loaded.map_err(ReplyError::of)?)
}
