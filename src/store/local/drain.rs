//! Moving full layers of recent rows to RocksDB.
//!
//! ```text
//! Committer --begin--> Shelf (layers) <--drop the oldest-- a thread of its own
//! ```
//!
//! The oldest layer goes first, in five steps: its log is synced; its rows are written to RocksDB's
//! memtable, with the number of the log, and entered into the value cache; the memtable is flushed to a table;
//! views without the layer are published; its log is removed. After a crash between any two
//! of these, the log is replayed: its rows say the same as those that had been moved. (An open moves what it
//! replays before anything else: after a failed sync, what can be read from a log may never reach the disk.)
//!
//! The log is synced first because a table may reach the disk before it: a loss of power must not keep rows
//! and lose commits before them.
//!
//! What a layer removed becomes a tombstone only if RocksDB may have the key. If RocksDB cannot write, for
//! lack of room, the thread tries again until it can; commits go on until [`MOST_FULL`] layers wait.

use super::Core;
use super::cleared::Cleared;
use super::engine::Engine;
use super::recent::Layer;
use super::snapshot::{Layers, Published, SnapshotView};
use crate::store::Version;
use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

/// Layers that may wait to be drained before commits wait.
const MOST_FULL: usize = 1;
/// How often a failed drain is tried again, and a waiting commit looks.
const RETRY: Duration = Duration::from_millis(100);
/// How often drained layers are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How often a commit looks before a drain that fails is an error.
const PATIENCE: u32 = 60;

/// The layers of an open database, for the committer and the thread that drains them.
pub(super) struct Shelf {
    layers: ArcSwap<Layers>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Why the last drain failed.
    trouble: Option<String>,
    is_closed: bool,
}

impl Shelf {
    /// `log`: the number of the new log; `since`: the first version of its commits.
    pub(super) fn new(engine: Arc<Engine>, log: u64, since: Version) -> Self {
        let recent = vec![Arc::new(Layer::new(log, since))];
        let layers = ArcSwap::from_pointee(Layers::newest(engine, recent));
        let (state, changed) = Default::default();
        Shelf { layers, state, changed }
    }

    pub(super) fn layers(&self) -> Arc<Layers> {
        self.layers.load_full()
    }

    /// The layer of new commits.
    pub(super) fn newest(&self) -> Option<Arc<Layer>> {
        self.layers.load().recent.first().cloned()
    }

    /// Begins another layer, for commits of `since` and later. Only for the committer.
    pub(super) fn begin(&self, log: u64, since: Version) {
        let newest = Arc::new(Layer::new(log, since));
        self.layers.rcu(|layers| layers.with(newest.clone()));
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Whether the next layer may have to wait.
    pub(super) fn is_crowded(&self) -> bool {
        self.layers.load().recent.len() > MOST_FULL
    }

    /// Waits until another layer may begin.
    pub(super) fn wait_for_room(&self) -> Result<(), String> {
        self.wait_for(MOST_FULL, PATIENCE)
    }

    /// Waits until at most `most` layers are left; fails if that takes `patience` tries and drains fail.
    pub(super) fn wait_for(&self, most: usize, patience: u32) -> Result<(), String> {
        let mut state = self.state.lock();
        let mut tries = 0;
        while self.layers.load().recent.len() > most {
            if state.is_closed {
                return Err("the store is being closed".into());
            }
            tries += u32::from(self.changed.wait_for(&mut state, RETRY).timed_out());
            if tries >= patience
                && let Some(trouble) = state.trouble.clone().or_else(|| self.layers().engine().trouble())
            {
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// Ends the thread, which lets go of the database.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Nothing can be drained.
    pub(super) fn fail(&self, trouble: String) {
        self.state.lock().trouble = Some(trouble);
    }

    fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// The oldest layer and the layers, once it is full. None: the shelf is closed. Frees those `drained` ones
    /// that no view has any more.
    fn next(&self, drained: &mut Vec<Arc<Layer>>) -> Option<(Arc<Layers>, Arc<Layer>)> {
        let sweep = |drained: &mut Vec<Arc<Layer>>| drained.retain(|layer| Arc::strong_count(layer) > 1);
        sweep(drained);
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            let layers = self.layers();
            if layers.recent.len() > 1
                && let Some(oldest) = layers.recent.last().cloned()
            {
                return Some((layers, oldest));
            }
            drop(layers);
            if drained.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            self.changed.wait_for(&mut state, SWEEP);
            MutexGuard::unlocked(&mut state, || sweep(drained));
        }
    }
}

/// The body of the thread.
pub(super) fn run(core: &Core, shelf: &Shelf) {
    let _guard = FailOnPanic { core, shelf };
    // Freed by this thread, which has the time, once no view has them.
    let mut drained: Vec<Arc<Layer>> = Vec::new();
    while let Some((layers, oldest)) = shelf.next(&mut drained) {
        let outcome = drain(core, shelf, layers.engine(), &oldest);
        drop(layers);
        let mut state = shelf.state.lock();
        match outcome {
            Ok(()) => {
                state.trouble = None;
                shelf.changed.notify_all();
                drained.push(oldest);
            }
            Err(trouble) if !state.is_closed => {
                if state.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(
                        reason = trouble,
                        "recent commits cannot be moved to tables yet; they are in the log"
                    );
                }
                state.trouble = Some(trouble);
                shelf.changed.wait_for(&mut state, RETRY);
            }
            Err(_) => return,
        }
    }
}

/// If the thread panics, the database is opened again: its logs have everything.
struct FailOnPanic<'a> {
    core: &'a Core,
    shelf: &'a Shelf,
}

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shelf.close();
            self.core.fail("the thread that moves commits to tables has failed".into());
        }
    }
}

fn drain(core: &Core, shelf: &Shelf, engine: &Arc<Engine>, layer: &Layer) -> Result<(), String> {
    if let Err(failure) = engine.sync_earlier() {
        core.fail(failure.clone());
        shelf.close();
        return Err(failure);
    }
    let values = &core.values;
    engine.take(layer, &mut |changes| {
        values.drained(changes);
        if shelf.is_closed() { Err("the store is being closed".into()) } else { Ok(()) }
    })?;
    for Cleared { begin, end, version } in layer.all_cleared() {
        values.cleared(&begin, &end, version);
    }
    shelf.layers.rcu(|layers| layers.without_oldest());
    publish(core, engine, shelf);
    engine.forget_log(layer.log);
    Ok(())
}

/// Replaces the layers that new transactions read, at the same version. The layers are loaded after the state
/// that they replace: so they have every layer that it has.
pub(super) fn publish(core: &Core, engine: &Arc<Engine>, shelf: &Shelf) {
    core.published.rcu(|published| match &published.view {
        Ok(view) if Arc::ptr_eq(view.engine(), engine) => {
            let view = Ok(SnapshotView::new(shelf.layers(), published.version));
            Arc::new(Published { view, ..Published::clone(published) })
        }
        _ => published.clone(),
    });
}
