//! Options. SCAFFOLD of the interface: the table of options is written by the helper for start and wire.

use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;

/// `appendfsync`: when OK means on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendFsync {
    /// Every acknowledged write is on disk.
    Always,
    /// Synced once a second.
    EverySec,
    /// Left to the operating system.
    No,
}

/// The values in force.
#[derive(Debug, Clone)]
pub struct Settings {
    /// TCP port; 0 listens on none.
    pub port: u16,
    /// Data directory.
    pub dir: String,
    /// When OK means on disk.
    pub appendfsync: AppendFsync,
    /// Empty: no password.
    pub requirepass: String,
    /// Number of databases.
    pub databases: u8,
    /// Longest bulk string in bytes.
    pub proto_max_bulk_len: usize,
    /// Number of lanes.
    pub lanes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            port: 6379,
            dir: "./data".into(),
            appendfsync: AppendFsync::Always,
            requirepass: String::new(),
            databases: 16,
            proto_max_bulk_len: 512 << 20,
            lanes: 2,
        }
    }
}

/// The options of a server: read on every request, replaced by CONFIG SET.
#[derive(Debug, Default)]
pub struct ConfigStore {
    settings: ArcSwap<Settings>,
}

impl ConfigStore {
    /// Starts with `settings`.
    pub fn new(settings: Settings) -> Self {
        ConfigStore { settings: ArcSwap::from_pointee(settings) }
    }
    /// The values in force now.
    pub fn get(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }
}
