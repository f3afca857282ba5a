//! A disk that fails on command: the seam through which tests reach what follows a failed write or sync.
//!
//! A failed write leaves nothing of its batch in the log; a failed sync leaves all of it there, unsynced. After either
//! the disk stays broken, so the engine cannot reopen, until [`DiskFaults::heal`].

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

const HEALTHY: u8 = 0;
const FAIL_WRITE: u8 = 1;
const FAIL_SYNC: u8 = 2;
const BROKEN: u8 = 3;

/// See the module. Healthy until told otherwise.
#[derive(Debug, Default)]
pub struct DiskFaults(AtomicU8);

impl DiskFaults {
    /// The next batch is not written.
    pub fn fail_next_write(&self) {
        self.0.store(FAIL_WRITE, Ordering::Release);
    }
    /// The next sync of the log fails.
    pub fn fail_next_sync(&self) {
        self.0.store(FAIL_SYNC, Ordering::Release);
    }
    /// The disk works again.
    pub fn heal(&self) {
        self.0.store(HEALTHY, Ordering::Release);
    }
    pub(super) fn on_write(&self) -> io::Result<()> {
        self.on(FAIL_WRITE)
    }
    pub(super) fn on_sync(&self) -> io::Result<()> {
        self.on(FAIL_SYNC)
    }
    /// What a probe of the disk says.
    pub(super) fn probe(&self) -> io::Result<()> {
        self.on(BROKEN)
    }
    fn on(&self, stage: u8) -> io::Result<()> {
        let broken = self.0.compare_exchange(stage, BROKEN, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if broken || self.0.load(Ordering::Acquire) == BROKEN {
            return Err(io::Error::other("injected: no space left on device"));
        }
        Ok(())
    }
}
