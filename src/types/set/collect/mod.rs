//! The dictionary is collected: members that no set holds any more are removed, while everybody goes on.
//!
//! # The protocol
//!
//! One server at a time does it, the owner in the row `e 00` ([`crate::keyspace::dictionary::collector`]). An
//! epoch is about the ids of a stretch that fits into memory ([`SLICE`] blocks of them, nearly always all),
//! and has four phases:
//!
//! 1. **Mark.** List the stretch's ids; then read all sets and strike out what they hold. What is left, and has a member, *seems* to be in no set.
//!    Those ids are written down (rows `e 01`, a bitmap of a block each): they are **condemned** from the beginning of Settle on.
//! 2. **Settle** begins with `epoch + 1` and a new metadata version. Every writer reads that serializably (with the catalog), so no transaction
//!    is in both epochs. From here on whoever gives a condemned id to a set (`Interner::intern`) writes a row `e 04`: it is **pardoned**. So only who
//!    revives a dead member pays for the collection, with one write.
//!    All sets are read again, and what they hold is struck out from the condemned. Who puts a set
//!    under a key that the key did not have (*STORE, COPY, MOVE, RENAME, RESTORE, a set that outgrows its record: all through
//!    `object::put`) writes a row `e 02`; those sets are read too, until there is a version at which no row is unread. Then the phase ends,
//!    with a new metadata version again.
//! 3. **Grace.** Nobody can ask for these ids any more, except replies that are still being sent
//!    (`keyspace::sending`). Every registered server writes (`e 03`) that it has none of them left
//!    ([`grace`]).
//! 4. **Sweep.** What is condemned and not pardoned is removed: `f`, `b`, and the id from its row `e 01` in one transaction ([`sweep`]).
//!    The epoch ends with a new metadata version, and without pardons.
//!
//! # Why no member is lost
//!
//! An id X that is swept was in a row `e 01` at the version E with which Settle began, and had no row `e 04` when it was swept: the sweep
//! reads that serializably, and nobody removes such rows before the epoch ends. To show: X is in no set at the sweep or later.
//!
//! How can an id get into a set? (a) By its row `f`, in the transaction that adds it: SADD, SMOVE, RESTORE, a
//! set that outgrows its record, the raw members of a *STORE. All of these go through `intern`, with the
//! round that the transaction reads. After E that asks for pardons, and X is pardoned if it is still in its
//! row `e 01`, or was when this server last read that in this epoch (`keyspace::dictionary::condemned`). If
//! it is not, either Settle has struck it out: then it is not swept. Or a sweep has worked it off: then its
//! row `f` is gone, or was read before that sweep, which this transaction conflicts with; or it was pardoned
//! then, and is not swept any more. A transaction that pardons X and the sweep of X conflict, whichever
//! commits last: by the pardon that the one reads, or by the row `f` that the other reads. (b) From another
//! set that has it, in the same transaction, with a conflict on that set: *STORE, COPY, MOVE, and values that
//! were prebuilt from sources which the last transaction verifies. These make a **new object**. (c) By a row
//! `f` that was read in an earlier transaction: SADD and *STORE that intern ahead (`set::prebuild`). They
//! know the epoch of that transaction, and are refused (and done anew) in another one. What they add in the
//! same epoch is added before E, or after E by an `intern` after E, which would have pardoned X. (`find` does
//! not pardon: SREM takes only ids that are not condemned from an earlier transaction. A union takes ids by
//! `find` too; what was condemned of them it interns before it stores it.) A new id is given to a set by the
//! transaction that writes its rows `f` and `b`, or by (c). It is not condemned in that epoch: Mark read its
//! row `b`, so that was committed before E.
//!
//! Let V be the version at which no row `e 02` was unread, R the version at which this run of Settle began (E, or later where somebody took it up again). Suppose
//! object O holds X at V. By (a) and (c) X is never added to an object that is there, so O has held X since the later of its making and R. If O was made
//! before R, the walk over all objects (`N` rows; objects never move, RENAME moves records) came by it after R: X was seen. If it was made after R, its row
//! `e 02` was written with it, because its transaction read the metadata version of Settle; and that was read before or at V: X was seen. So
//! what is left at V is in no object at V; and after V it can get into one only from one that holds it (b): never again.
//! It does not matter that sets change while they are read: stretches are read as members (chunks and deltas of one version), never as rows.
//!
//! A member that comes back after its sweep gets another id. Ids are not used twice, so a chunk that still names X under a delta that removed it
//! means nothing.
//!
//! # Why no member is resurrected
//!
//! Who asks for X after the sweep finds no row `f`, and X is in no set. What was found by `find` before the sweep and is used after it (SREM of very many)
//! must not miss the member's new id: so it takes ids that are not condemned only, and their epoch is checked.
//!
//! # Crashes, several servers, unknown commits
//!
//! Every transaction here reads `e 00` serializably and goes on only with the owner and turn that it began with. Each phase, and each time that Mark or Settle are
//! begun again, takes a new turn: then nothing of the old one is applied, also not late. A phase that was broken off begins again
//! from what is stored: Mark from nothing (what it wrote is removed with the new turn: else what another stretch left would
//! be swept without having been settled), Settle from the rows of candidates, Sweep where it was. So does a phase in which the store lost commits
//! that it had acknowledged: a member that was removed may be in its set again, and a turn comes again. Therefore every transaction of a phase is of the
//! [generation](Tx::generation) in which it was claimed. A dead owner is replaced once it is not registered any more;
//! until then it waits for nobody else. Striking out too much only keeps a member until the next time.
//!
//! Damage stops it: of what cannot be read nobody knows whether it holds a member. The cycle is abandoned.
//!
//! # What it costs
//!
//! An id is read with its neighbours in Mark and Sweep (rows `b`, 16 members each), and removed by one blind write for its row `f`. Marks in the rows `f`
//! were tried before: reading and writing each of them twice took 4.7 minutes and more for five million ids, and a load of 29 000 short-lived members
//! a second was not kept up with (`bench/results/2026-11-21-collector.md`; what came of this in `2026-11-22-collector.md`).
//!
//! Bounds: [`SLICE`] blocks of 8 KiB in memory; transactions of [`BATCH`] members; of each stretch of time at most the share that
//! [`Pace::share`] says is spent working, where waiting for a commit is not work.

mod condemn;
pub mod grace;
mod scan;
mod sweep;

use crate::error::{Error, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::cluster::instances;
use crate::keyspace::dictionary::collector::{Phase, State};
use crate::keyspace::keys::root;
use crate::store::{MAX_AGE, Read, Tx};
use std::time::Duration;

/// Blocks of ids of an epoch.
pub(crate) const SLICE: usize = 4096;
/// Members of one transaction of the sweep.
const BATCH: usize = 2048;
/// One past the last interned id.
const IDS_END: u64 = 1 << 62;

/// How fast it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Percent of the time that it works, 1 to 100. It waits for commits in the rest of the time.
    pub share: u32,
    /// How old a transaction may be that still begins a reply: more than [`MAX_AGE`].
    pub grace: Duration,
    /// Blocks of ids of an epoch.
    pub slice: usize,
    /// Members that one transaction of the sweep removes at most.
    pub batch: usize,
}

impl Pace {
    /// Faster where more is dead than lives, as `state` knows it: dead members come at the speed of a load, and nothing else
    /// bounds how many there are.
    pub fn hurried(self, state: &State) -> Self {
        let (live, dead) = (state.live.max(1), state.dead.max(state.condemned));
        if dead <= live {
            return self;
        }
        let rest = u64::from(100 - self.share.clamp(1, 100)).saturating_mul(live) / dead;
        Pace { share: 100 - rest as u32, ..self }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Pace { share: 25, grace: MAX_AGE * 2, slice: SLICE, batch: BATCH }
    }
}

/// Why a step ended.
#[derive(Debug)]
pub enum Halt {
    /// Somebody else has taken the work up.
    Lost,
    /// Worth another attempt.
    Again,
    /// The store fails, or is damaged.
    Failed(Error),
}

impl From<StoreError> for Halt {
    fn from(e: StoreError) -> Self {
        if e.is_retryable() || e.may_have_committed() { Halt::Again } else { Halt::Failed(e.into()) }
    }
}

impl From<Error> for Halt {
    fn from(e: Error) -> Self {
        match e {
            Error::Store(e) => e.into(),
            e => Halt::Failed(e),
        }
    }
}

type Done<T> = Result<T, Halt>;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to do, or it is somebody else's.
    Idle,
    /// Others have to do something first.
    Waits,
    /// Something; there is more.
    Worked,
}

/// This server as a collector.
#[derive(Clone, Copy)]
pub struct Collector<'a> {
    space: &'a Keyspace,
    pace: Pace,
    /// Of the store, when the phase under way was claimed.
    generation: u64,
}

impl<'a> Collector<'a> {
    /// At `pace`.
    pub fn new(space: &'a Keyspace, pace: Pace) -> Self {
        Collector { space, pace, generation: 0 }
    }

    /// The state as it is now.
    pub async fn state(&self) -> Done<State> {
        Ok(State::read(&self.space.store.begin(), Read::Snapshot).await?)
    }

    /// Begins a cycle, where none is under way.
    pub async fn begin(&self) -> Done<()> {
        loop {
            match self.try_claim(true).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                result => return result.map(|_| ()),
            }
        }
    }

    /// Goes on with a cycle that is this server's, or nobody's any more: to the end of a phase, or one transaction of the
    /// sweep. May be dropped anywhere.
    pub async fn step(&self) -> Done<Step> {
        let claimed = loop {
            match self.try_claim(false).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                result => break result?,
            }
        };
        let Some((state, generation)) = claimed else { return Ok(Step::Idle) };
        let phase = Collector { generation, ..*self };
        match state.phase {
            Phase::Idle => Ok(Step::Idle),
            Phase::Mark => phase.mark(state).await,
            Phase::Settle => phase.settle(state).await,
            Phase::Grace => phase.end_grace(state).await,
            Phase::Sweep => phase.sweep(state).await,
        }
    }

    /// Gives up what this server has under way: marks stay, and mean nothing more until the next cycle.
    pub async fn abandon(&self) -> Done<()> {
        let tx = self.space.store.begin();
        let (state, generation) = (State::read(&tx, Read::Snapshot).await?, tx.generation().await?);
        if state.phase == Phase::Idle || state.owner != self.space.instances.id() {
            return Ok(());
        }
        let own = Collector { generation, ..*self };
        own.flip(&state, State { phase: Phase::Idle, ..state }, |tx| {
            clear_all(tx)?;
            tx.bump_metadata_version()
        })
        .await
    }

    /// The state, with a new turn where its phase begins again, and the store's generation. None where it is another server's.
    async fn try_claim(&self, begins: bool) -> Done<Option<(State, u64)>> {
        let tx = self.space.store.begin();
        let generation = tx.generation().await?;
        let (own, state) = (self.space.instances.id(), State::read(&tx, Read::Serializable).await?);
        let mut next = State { owner: own, turn: state.turn + 1, ..state };
        match state.phase {
            Phase::Idle if begins => {
                (next.phase, next.from, next.to) = (Phase::Mark, 0, 0);
                (next.live_so_far, next.dead_so_far) = (0, 0);
                (next.condemned, next.swept) = (0, 0);
            }
            Phase::Idle => return Ok(None),
            _ if begins => return Ok(None),
            _ if state.owner != own && instances::is_registered(&tx, state.owner).await? => return Ok(None),
            Phase::Grace | Phase::Sweep if state.owner == own => return Ok(Some((state, generation))),
            Phase::Mark => clear_all(&tx)?,
            _ => {}
        }
        tx.set(&root::collector(), &next.encode())?;
        tx.commit().await?;
        Ok(Some((next, generation)))
    }

    /// From `mine` to `next`, which gets a turn of its own, with what `also` writes. Exactly once.
    async fn flip(
        &self,
        mine: &State,
        next: State,
        also: impl Fn(&Tx) -> Result<(), StoreError>,
    ) -> Done<()> {
        let next = State { turn: mine.turn + 1, ..next };
        loop {
            match self.try_flip(mine, &next, &also).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                result => return result,
            }
        }
    }

    async fn try_flip(
        &self,
        mine: &State,
        next: &State,
        also: &impl Fn(&Tx) -> Result<(), StoreError>,
    ) -> Done<()> {
        let tx = self.space.store.begin();
        let now = State::read(&tx, Read::Serializable).await?;
        if now == *next {
            // An attempt whose result was unknown.
            return Ok(());
        }
        self.check(&tx, &now, mine).await?;
        also(&tx)?;
        tx.set(&root::collector(), &next.encode())?;
        tx.commit().await?;
        Ok(())
    }

    /// Refuses where somebody has taken up the work, or this server itself has begun it again, or what it saw may be lost.
    async fn check(&self, tx: &Tx, now: &State, mine: &State) -> Done<()> {
        let mine = (mine.owner, mine.turn, self.generation);
        if (now.owner, now.turn, tx.generation().await?) == mine { Ok(()) } else { Err(Halt::Lost) }
    }

    /// The first thing that each transaction does: see the module.
    async fn guard(&self, tx: &Tx, mine: &State) -> Done<State> {
        let now = State::read(tx, Read::Serializable).await?;
        self.check(tx, &now, mine).await?;
        Ok(now)
    }

    /// The next epoch's Mark, or the end of the cycle.
    async fn end_epoch(&self, state: State) -> Done<Step> {
        let mut next = State { condemned: 0, swept: 0, ..state };
        if state.to == IDS_END {
            (next.phase, next.cycles) = (Phase::Idle, state.cycles + 1);
            (next.live, next.dead) = (state.live_so_far, state.dead_so_far);
            next.ended = self.space.clock.now_ms();
        } else {
            (next.phase, next.from) = (Phase::Mark, state.to);
        }
        self.flip(&state, next, |tx| {
            clear_all(tx)?;
            if state.phase == Phase::Mark { Ok(()) } else { tx.bump_metadata_version() }
        })
        .await?;
        Ok(Step::Worked)
    }

    /// Rests as long as the share says after `took` of work.
    async fn rest(&self, took: Duration) {
        let share = self.pace.share.clamp(1, 100);
        let rest = took * (100 - share) / share;
        if rest > Duration::ZERO { tokio::time::sleep(rest).await } else { tokio::task::yield_now().await }
    }

    fn now(&self) -> Duration {
        self.space.clock.monotonic()
    }
}

/// Nothing is condemned any more, nor looked for.
fn clear_all(tx: &Tx) -> Result<(), StoreError> {
    for (from, to) in [root::all_candidates(), root::all_made(), root::all_streamed(), root::all_pardons()] {
        tx.clear_range(&from, &to)?;
    }
    Ok(())
}
