//! Stores that break their contract about sorted sets.

use super::breaches::{kind, tag};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tern::store::Read;
use tern::store::tamper::Tamper;

/// The tag of a sorted set's rows, and the kind of those where moves of a boundary conflict.
const RANKED: u8 = b'R';
const MOVE: u8 = 3;

/// Members of a sorted set are read without a conflict.
pub struct NoScoreConflict;
impl Tamper for NoScoreConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == RANKED { Read::Snapshot } else { read }
    }
}

/// Ranks are read without a conflict, unlike all else that depends on the number of members: a rank is read
/// straight after the member.
#[derive(Default)]
pub struct NoRankConflict {
    /// Whether the transaction has just read a member.
    member: AtomicBool,
}

impl Tamper for NoRankConflict {
    fn of_one(&self) -> Option<Arc<dyn Tamper>> {
        Some(Arc::new(NoRankConflict::default()))
    }
    fn read(&self, key: &[u8], read: Read) -> Read {
        let is_member = tag(key) == RANKED && read == Read::Serializable;
        let follows = self.member.swap(is_member, Ordering::Relaxed);
        if tag(key) == b'N' && follows { Read::Snapshot } else { read }
    }
}

/// Changes of a sorted set's counts do not conflict with the division of the counted range.
pub struct NoMoveConflict;
impl Tamper for NoMoveConflict {
    fn notes(&self, begin: &[u8]) -> bool {
        !(tag(begin) == RANKED && kind(begin) == Some(MOVE))
    }
}
