//! What the collector of the dictionary keeps in the store. `types::set::collect` has the protocol and why it is safe.
//!
//! ```text
//! e 00                  -> 01 | phase u8 | fourteen numbers u64 LE    the state
//! e 01 <first id BE>    -> treemap                                    ids of one block that are condemned, not yet removed
//! e 02 <prefix><oid>    -> empty                                      a set that was made while members are looked for
//! e 03 <instance BE>    -> epoch u64 LE                               whose replies need nothing that is removed in that epoch
//! e 04 <id BE>          -> empty                                      a condemned id that was given to a set: pardoned
//! ```
//! Every transaction of the collector reads `e 00` serializably, and does nothing where its owner or turn are others.
//! What writers must know of the state ([`Round`]) is read with the catalog and changes with the metadata version only.

use super::ids::BLOCK;
use crate::error::{StoreError, StoreResult};
use crate::keyspace::keys::root;
use crate::store::{Read, Tx};
use roaring::RoaringTreemap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FORMAT: u8 = 1;
const NUMBERS: usize = 14;

/// What the collector does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It looks for ids that seem to be in no set, and condemns them.
    Mark,
    /// It looks whether one of them is in a set after all.
    Settle,
    /// It waits for replies that may need them.
    Grace,
    /// It removes them.
    Sweep,
}

const PHASES: [Phase; 5] = [Phase::Idle, Phase::Mark, Phase::Settle, Phase::Grace, Phase::Sweep];

impl Phase {
    /// For people.
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

/// What a transaction that writes has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// Counts up with each beginning of [`Phase::Settle`]. What was found out about ids in another epoch is to be found out
    /// again before it is written.
    pub epoch: u64,
    /// The phase when the metadata version last changed: [`Phase::Settle`] and [`Phase::Grace`] begin with a change, and
    /// [`Phase::Sweep`] ends with one.
    pub phase: Phase,
    /// That metadata version.
    pub version: u64,
    /// The [generation](Tx::generation) of the store: it changes with the metadata version only. An epoch that the store has lost comes again.
    pub generation: u64,
}

impl Round {
    /// Whether sets that are made must be shown to the collector.
    pub(crate) fn is_settling(self) -> bool {
        self.phase == Phase::Settle
    }

    /// Whether ids are condemned: who gives one of them to a set pardons it.
    pub(crate) fn has_condemned(self) -> bool {
        matches!(self.phase, Phase::Settle | Phase::Grace | Phase::Sweep)
    }
}

/// The row `e 00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// What is done.
    pub phase: Phase,
    /// See [`Round::epoch`].
    pub epoch: u64,
    /// Counts up with each phase and each time somebody takes the work up: what was begun in an earlier turn is not applied.
    pub turn: u64,
    /// The server that does it.
    pub owner: u64,
    /// The ids of this epoch begin here.
    pub from: u64,
    /// And end before this.
    pub to: u64,
    /// Times that the whole dictionary was gone through.
    pub cycles: u64,
    /// Members that were in a set in the last cycle.
    pub live: u64,
    /// Members that were in none in the last cycle.
    pub dead: u64,
    /// As `live`, of the cycle under way.
    pub live_so_far: u64,
    /// As `dead`, of the cycle under way.
    pub dead_so_far: u64,
    /// Members removed since the store is there.
    pub collected: u64,
    /// Members to remove in this epoch.
    pub condemned: u64,
    /// Of those, how many were worked off.
    pub swept: u64,
    /// When the last cycle ended, in milliseconds since the Unix epoch by the clock of who did it; 0: there was none.
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
            self.condemned,
            self.swept,
            self.ended,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }

    /// Reads stored bytes.
    pub fn decode(raw: &[u8]) -> StoreResult<Self> {
        Self::parse(raw).ok_or_else(|| StoreError::Corrupt("state of the dictionary's collector".into()))
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
            condemned: next()?,
            swept: next()?,
            ended: next()?,
        })
    }

    /// What writers must know, at this metadata version, in this generation of the store.
    pub fn round(&self, version: u64, generation: u64) -> Round {
        Round { epoch: self.epoch, phase: self.phase, version, generation }
    }

    /// The state that `tx` sees.
    pub async fn read(tx: &Tx, read: Read) -> StoreResult<Self> {
        let raw = tx.get(&root::collector(), read).await?;
        Ok(raw.as_deref().map(State::decode).transpose()?.unwrap_or_default())
    }
}

/// The candidates of a block as a row.
pub fn encode_candidates(ids: &RoaringTreemap) -> StoreResult<Vec<u8>> {
    let mut out = Vec::with_capacity(ids.serialized_size());
    let written = ids.serialize_into(&mut out);
    written.map_err(|e| StoreError::Corrupt(format!("candidates not written: {e}")))?;
    Ok(out)
}

/// Reads a row of candidates: some ids, all of its block.
pub fn decode_candidates(key: &[u8], value: &[u8]) -> StoreResult<RoaringTreemap> {
    let first = root::decode_in_collection(key).filter(|first| first.is_multiple_of(BLOCK));
    let ids = RoaringTreemap::deserialize_from(value).ok();
    let within = |ids: &RoaringTreemap| Some((ids.min()? / BLOCK, ids.max()? / BLOCK));
    ids.filter(|ids| within(ids).is_some_and(|(a, b)| a == b && Some(a * BLOCK) == first))
        .ok_or_else(|| StoreError::Corrupt("candidates of the dictionary's collector".into()))
}

/// What this server does about it, for INFO; and what it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// A cycle was asked for.
    pub(crate) wanted: AtomicBool,
    /// Sets read in this phase.
    pub(crate) sets: AtomicU64,
    /// Candidates left in this phase.
    pub(crate) candidates: AtomicU64,
}

impl Notes {
    /// A phase begins.
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
                condemned: 7,
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
