//! The ids of the members that a command names, looked up before its transaction.

use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::dictionary::collector::Round;
use bytes::Bytes;
use roaring::RoaringTreemap;

/// Ids of the members that a command names.
#[derive(Debug, Clone, Default)]
pub struct Ids {
    pub(super) known: RoaringTreemap,
    /// Members that had no id when they were looked up, or whose id was a candidate for removal.
    pub(super) unknown: Vec<Bytes>,
    /// The dictionary's round when the lookup began.
    pub(super) round: Round,
}

impl Ids {
    /// Number of members.
    pub(crate) fn len(&self) -> u64 {
        self.known.len() + self.unknown.len() as u64
    }

    /// Whether they are still valid in `round`.
    pub fn hold_in(&self, round: Round) -> bool {
        (self.round.epoch, self.round.generation) == (round.epoch, round.generation)
    }

    /// Fails with [`StoreError::Conflict`] if they may no longer be valid: look them up again, then run
    /// again.
    pub(crate) fn check(&self, s: &Scope<'_>) -> Result<()> {
        if self.hold_in(s.round) { Ok(()) } else { Err(StoreError::Conflict.into()) }
    }
}
