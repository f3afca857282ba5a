//! The stored state of the dictionary's collector. `types::set::collect` describes the protocol and proves it
//! safe.
//!
//! ```text
//! e 00                  -> 01 | phase u8 | fourteen numbers u64 LE  the state
//! e 01 <first id BE>    -> treemap                                  a block's candidates, not yet removed
//! e 02 <prefix><oid>    -> empty                                    a set made during Settle
//! e 03 <instance BE>    -> epoch u64 LE                             no reply needs what that epoch removes
//! e 04 <id BE>          -> empty                                    a candidate given to a set: revived
//! ```
//! Every transaction of the collector reads `e 00` serializably and does nothing if the owner or the turn has
//! changed. Writers read the part that they need ([`Round`]) with the catalog; it changes only with the
//! metadata version.

use super::ids::BLOCK;
use crate::error::{StoreError, StoreResult};
use crate::keyspace::keys::root;
use crate::store::{Read, Tx};
use roaring::RoaringTreemap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FORMAT: u8 = 1;
const NUMBERS: usize = 14;

/// The phases of the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// No collection is running.
    #[default]
    Idle,
    /// Looks for ids that seem to be in no set: the candidates for removal.
    Mark,
    /// Checks whether any candidate is in a set after all.
    Settle,
    /// Waits for replies that may still need the candidates.
    Grace,
    /// Removes the candidates.
    Sweep,
}

const PHASES: [Phase; 5] = [Phase::Idle, Phase::Mark, Phase::Settle, Phase::Grace, Phase::Sweep];

impl Phase {
    /// The name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Mark => "mark",
            Phase::Settle => "settle",
            Phase::Grace => "grace",
            Phase::Sweep => "sweep",
        }
    }
}

/// The part of the state that every writing transaction needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// Increases whenever [`Phase::Settle`] begins. A fact about ids that was read in another epoch must be
    /// read again before it is used in a write.
    pub epoch: u64,
    /// The phase when the metadata version last changed: [`Phase::Settle`] and [`Phase::Grace`] begin with a
    /// change, and [`Phase::Sweep`] ends with one.
    pub phase: Phase,
    /// That metadata version.
    pub version: u64,
    /// The store's [generation](Tx::generation), which changes only with the metadata version. An epoch that
    /// the store has lost is used again.
    pub generation: u64,
}

impl Round {
    /// Whether new sets must be reported to the collector.
    pub(crate) fn is_settling(self) -> bool {
        self.phase == Phase::Settle
    }

    /// Whether candidates may exist: a transaction that gives one of them to a set revives it.
    pub(crate) fn has_candidates(self) -> bool {
        matches!(self.phase, Phase::Settle | Phase::Grace | Phase::Sweep)
    }
}

/// The row `e 00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// The current phase.
    pub phase: Phase,
    /// See [`Round::epoch`].
    pub epoch: u64,
    /// Increases with each phase and each time a server takes up the work: nothing begun in an earlier turn
    /// is applied.
    pub turn: u64,
    /// The server that runs the collection.
    pub owner: u64,
    /// The first id of this epoch.
    pub from: u64,
    /// One past the last id of this epoch.
    pub to: u64,
    /// The number of completed passes over the whole dictionary.
    pub cycles: u64,
    /// Members that were in a set in the last cycle.
    pub live: u64,
    /// Members that were in no set in the last cycle.
    pub dead: u64,
    /// Like `live`, for the current cycle.
    pub live_so_far: u64,
    /// Like `dead`, for the current cycle.
    pub dead_so_far: u64,
    /// Members removed since the store was created.
    pub collected: u64,
    /// Members to remove in this epoch.
    pub candidates: u64,
    /// The number of those that the sweep has processed.
    pub swept: u64,
    /// The end of the last cycle in milliseconds since the Unix epoch, by the clock of the server that ran
    /// it; 0: none yet.
    pub ended: u64,
}

impl State {
    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let phase = PHASES.iter().position(|phase| *phase == self.phase).unwrap_or_default();
        let mut out = vec![FORMAT, phase as u8];
        for number in [
            self.epoch,
            self.turn,
            self.owner,
            self.from,
            self.to,
            self.cycles,
            self.live,
            self.dead,
            self.live_so_far,
            self.dead_so_far,
            self.collected,
            self.candidates,
            self.swept,
            self.ended,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }

    /// Parses the stored bytes.
    pub fn decode(raw: &[u8]) -> StoreResult<Self> {
        Self::parse(raw).ok_or_else(|| {
            StoreError::Corrupt("the state of the dictionary's collector does not decode".into())
        })
    }

    fn parse(raw: &[u8]) -> Option<Self> {
        let (&[format, phase], rest) = raw.split_first_chunk()?;
        if format != FORMAT || rest.len() != NUMBERS * 8 {
            return None;
        }
        let mut numbers = rest.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw));
        let mut next = || numbers.next();
        Some(State {
            phase: *PHASES.get(usize::from(phase))?,
            epoch: next()?,
            turn: next()?,
            owner: next()?,
            from: next()?,
            to: next()?,
            cycles: next()?,
            live: next()?,
            dead: next()?,
            live_so_far: next()?,
            dead_so_far: next()?,
            collected: next()?,
            candidates: next()?,
            swept: next()?,
            ended: next()?,
        })
    }

    /// The part that writers need, at this metadata version and in this generation of the store.
    pub fn round(&self, version: u64, generation: u64) -> Round {
        Round { epoch: self.epoch, phase: self.phase, version, generation }
    }

    /// The state that `tx` sees.
    pub async fn read(tx: &Tx, read: Read) -> StoreResult<Self> {
        let raw = tx.get(&root::collector(), read).await?;
        Ok(raw.as_deref().map(State::decode).transpose()?.unwrap_or_default())
    }
}

/// The row of a block's candidates.
pub fn encode_candidates(ids: &RoaringTreemap) -> StoreResult<Vec<u8>> {
    let mut out = Vec::with_capacity(ids.serialized_size());
    let written = ids.serialize_into(&mut out);
    written.map_err(|e| StoreError::Corrupt(format!("candidates cannot be serialized: {e}")))?;
    Ok(out)
}

/// Parses a row of candidates: at least one id, all of its block.
pub fn decode_candidates(key: &[u8], value: &[u8]) -> StoreResult<RoaringTreemap> {
    let first = root::decode_in_collection(key).filter(|first| first.is_multiple_of(BLOCK));
    let ids = RoaringTreemap::deserialize_from(value).ok();
    let within = |ids: &RoaringTreemap| Some((ids.min()? / BLOCK, ids.max()? / BLOCK));
    ids.filter(|ids| within(ids).is_some_and(|(a, b)| a == b && Some(a * BLOCK) == first))
        .ok_or_else(|| StoreError::Corrupt("candidates of the dictionary's collector do not decode".into()))
}

/// The collector's activity on this server, for INFO, and requests to run it.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// A cycle was requested.
    pub(crate) wanted: AtomicBool,
    /// Sets read in this phase.
    pub(crate) sets: AtomicU64,
    /// Candidates left in this phase.
    pub(crate) candidates: AtomicU64,
}

impl Notes {
    /// Resets the counters at the start of a phase.
    pub(crate) fn begin(&self, candidates: u64) {
        self.sets.store(0, Ordering::Relaxed);
        self.candidates.store(candidates, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_round_trip() {
        for phase in PHASES {
            let state = State {
                phase,
                epoch: 3,
                turn: 9,
                owner: u64::MAX,
                candidates: 7,
                ended: 5,
                ..State::default()
            };
            assert_eq!(State::decode(&state.encode()), Ok(state));
        }
        let raw = State::default().encode();
        for damaged in [&raw[1..], &raw[..raw.len() - 1], &[&raw[..1], &[5], &raw[2..]].concat()] {
            assert!(State::decode(damaged).is_err());
        }
    }
}
