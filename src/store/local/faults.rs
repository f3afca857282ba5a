//! A disk that fails on command: the seam through which tests exercise failed writes and syncs.
//!
//! A failed write leaves nothing of its batch in the log. A failed sync leaves all of it there, unsynced, or
//! nothing of it ([`DiskFaults::forget_unsynced`]), like a kernel that drops pages it could not write. After
//! either the disk stays broken, so that the engine cannot reopen, until [`DiskFaults::heal`].

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

const HEALTHY: u8 = 0;
const FAIL_WRITE: u8 = 1;
const FAIL_SYNC: u8 = 2;
const BROKEN: u8 = 3;

/// The lengths of logs in bytes, by file name.
pub(super) type Lengths = BTreeMap<String, u64>;

/// See the module. Healthy until told otherwise.
#[derive(Debug, Default)]
pub struct DiskFaults {
    stage: AtomicU8,
    forgets: AtomicBool,
    /// The length of each log that is certainly on disk.
    synced: Mutex<Lengths>,
}

impl DiskFaults {
    /// Makes the next batch fail to be written.
    pub fn fail_next_write(&self) {
        self.stage.store(FAIL_WRITE, Ordering::Release);
    }
    /// Makes the next sync of the log fail.
    pub fn fail_next_sync(&self) {
        self.stage.store(FAIL_SYNC, Ordering::Release);
    }
    /// Makes every reopening after a failure find the log without what was written after its last sync.
    pub fn forget_unsynced(&self) {
        self.forgets.store(true, Ordering::Release);
    }
    /// Repairs the disk.
    pub fn heal(&self) {
        self.stage.store(HEALTHY, Ordering::Release);
    }
    pub(super) fn on_write(&self) -> io::Result<()> {
        self.on(FAIL_WRITE)
    }
    pub(super) fn on_sync(&self) -> io::Result<()> {
        self.on(FAIL_SYNC)
    }
    /// The result of probing the disk.
    pub(super) fn probe(&self) -> io::Result<()> {
        self.on(BROKEN)
    }
    /// Records a successful sync of logs that had these lengths before it.
    pub(super) fn synced(&self, lengths: Lengths) {
        let mut synced = self.synced.lock();
        for (name, length) in lengths {
            let known = synced.entry(name).or_default();
            *known = length.max(*known);
        }
    }
    /// The database in `dir` has been closed and is about to be reopened.
    pub(super) fn on_reopen(&self, dir: &Path) -> io::Result<()> {
        let mut synced = self.synced.lock();
        if self.forgets.load(Ordering::Acquire) {
            for name in lengths(dir).into_keys() {
                let log = std::fs::File::options().write(true).open(dir.join(&name))?;
                log.set_len(synced.get(&name).copied().unwrap_or_default())?;
            }
        }
        synced.clear();
        Ok(())
    }
    fn on(&self, stage: u8) -> io::Result<()> {
        let broken = self.stage.compare_exchange(stage, BROKEN, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if broken || self.stage.load(Ordering::Acquire) == BROKEN {
            return Err(io::Error::other("injected: no space left on device"));
        }
        Ok(())
    }
}

/// The lengths of the logs in `dir`.
pub(super) fn lengths(dir: &Path) -> Lengths {
    let logs = super::directory::names(dir).filter(|name| name.ends_with(".wal"));
    logs.filter_map(|name| Some((name.clone(), std::fs::metadata(dir.join(name)).ok()?.len()))).collect()
}
