//! Collects the dictionary's garbage: removes members that no set holds any more, while all servers keep
//! running.
//!
//! # The protocol
//!
//! One server at a time collects: the owner named in the row `e 00`
//! ([`crate::keyspace::dictionary::collector`]). An epoch covers a stretch of ids that fits into memory
//! ([`SLICE`] blocks, nearly always all ids) and has four phases:
//!
//! 1. **Mark** lists the ids of the stretch, then reads all sets and strikes out the ids they hold. An id
//!    that remains and has a member *seems* to be in no set. Mark writes these ids down (rows `e 01`, one
//!    bitmap per block): from the beginning of Settle on they are the **candidates** for removal.
//! 2. **Settle** begins with `epoch + 1` and a new metadata version. Every writer reads that version
//!    serializably (with the catalog), so no transaction is in both epochs. From here on, a transaction that
//!    gives a candidate to a set (`Interner::intern`) writes a row `e 04`: the id is **revived**. So only
//!    reviving a dead member costs a write.
//!    Settle reads all sets again and strikes out the candidates that a set holds. A transaction
//!    that puts a set under a key that did not have it (*STORE, COPY, MOVE, RENAME, RESTORE, a set that
//!    outgrows its record: all through `object::put`) writes a row `e 02`; Settle reads those sets too, until
//!    a version exists at which no such row is unread. It ends with another new metadata version.
//! 3. **Grace.** Nobody can ask for the remaining ids any more, except replies that are still being sent
//!    (`keyspace::sending`). Every registered server writes (`e 03`) that it has no such reply left
//!    ([`grace`]).
//! 4. **Sweep** removes the candidates that were not revived: `f`, `b`, and the id from its row
//!    `e 01`, in one transaction ([`sweep`]). The epoch ends with a new metadata version, and all rows `e 04`
//!    are removed.
//!
//! # Why no member is lost
//!
//! Let X be an id that is swept. It was in a row `e 01` at version E, with which Settle began, and it had no
//! row `e 04` when it was swept: the sweep reads that row serializably, and nobody removes such rows before
//! the epoch ends. To show: at the sweep and later, X is in no set.
//!
//! A set can get an id in three ways:
//!
//! * (a) From its row `f`, in the transaction that adds it: SADD, SMOVE, RESTORE, a set that outgrows its
//!   record, the raw members of a *STORE. All of these go through `intern`, with the round that the
//!   transaction reads. After E, `intern` revives X if X is still in its row `e 01`, or was when this server
//!   last read that row in this epoch (`keyspace::dictionary::candidates`). If X is no longer there, either
//!   Settle struck it out, and then it is not swept; or a sweep has processed it. In the latter case its row
//!   `f` is gone, or was read before that sweep, with which this transaction then conflicts; or X was
//!   revived at that time and is no longer swept. A transaction that revives X and the sweep of X conflict,
//!   whichever commits last: the sweep reads the row `e 04`, and the other transaction reads the row `f`.
//! * (b) From another set that has it, in the same transaction, with a conflict on that set: *STORE, COPY,
//!   MOVE, and values prebuilt from sources that the last transaction verifies. These make a **new object**.
//! * (c) From a row `f` that was read in an earlier transaction: SADD and *STORE that intern ahead
//!   (`set::prebuild`). They remember the epoch of that transaction; in another epoch they are refused, and
//!   start over. An id that they add in the same epoch is added before E, or it is added after E by an
//!   `intern` after E, which would have revived X. (`find` does not revive. SREM therefore takes from an
//!   earlier transaction only ids that are not candidates. A union also takes ids from `find`; it interns the
//!   candidates among them before it stores them.)
//!
//! A new id is given to a set by the transaction that writes its rows `f` and `b`, or by (c). It is no
//! candidate in that epoch: Mark reads row `b` before it lists an id, so that row was committed before E.
//!
//! Let V be the version at which no row `e 02` was unread, and R the version at which this run of Settle
//! began (E, or later if Settle was begun again). Suppose object O holds X at V. By (a) and (c), X is never
//! added to an existing object, so O has held X since O was made or since R, whichever is later. If O was
//! made before R, the walk over all objects (`N` rows; objects never move, RENAME moves records) reached it
//! after R and saw X. If it was made after R, its transaction had read the metadata version of Settle and
//! wrote a row `e 02` together with O; that row was read at or before V, so X was seen. Hence an id that
//! remains at V is in no object at V; after V, an object could get it only from another that holds it (b):
//! never again.
//! Sets may change while they are read: stretches are read as members (chunks and deltas of one version),
//! never as rows.
//!
//! A member that comes back after its sweep gets another id. Ids are never reused, so a chunk that still
//! names X under a delta that removed it does no harm.
//!
//! # Why no member is resurrected
//!
//! After the sweep, a transaction that asks for X finds no row `f`, and X is in no set. A command that called
//! `find` before the sweep and uses the result after it (SREM with very many members) must not miss the
//! member's new id: it takes only ids that are not candidates, and its epoch is checked.
//!
//! # Crashes, several servers, unknown commits
//!
//! Every transaction here reads `e 00` serializably and continues only with the owner and turn with which it
//! began. Each phase takes a new turn, and so does each new start of Mark or Settle: after that, no
//! transaction of the old turn is applied, however late. An interrupted phase begins again from the stored
//! rows: Mark from nothing (the new turn removes the rows it wrote, because rows left from another stretch
//! would be swept without having been settled), Settle from the rows of candidates, Sweep where it stopped.
//! The same holds for a phase during which the store lost acknowledged commits: a removed member may be in
//! its set again, and a turn may be taken twice. Therefore every transaction of a phase belongs to the
//! [generation](Tx::generation) in which the phase was claimed. A dead owner is replaced once it is no longer
//! registered; until then the collection stands still. Striking out too many ids only keeps their members
//! until the next cycle.
//!
//! Damage ends the cycle: nobody can tell which members an unreadable set holds.
//!
//! # What it costs
//!
//! Mark and Sweep read an id with its neighbours (rows `b`, 16 members each); removing it takes one blind
//! write to its row `f`. Marks in the rows `f` were tried before: reading and writing each row twice took at
//! least 4.7 minutes for five million ids, and could not keep up with a load of 29 000 short-lived members a
//! second (`bench/results/2026-11-21-collector.md`; the result of this design is in
//! `2026-11-22-collector.md`).
//!
//! Bounds: [`SLICE`] blocks of 8 KiB in memory; transactions of [`BATCH`] members; at most [`Pace::share`] of
//! the time is spent working, where a commit counts for no longer than the work before it.

pub mod grace;
mod mark;
mod scan;
mod sweep;

use crate::error::{Error, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::cluster::instances;
use crate::keyspace::dictionary::collector::{Phase, State};
use crate::keyspace::keys::root;
use crate::store::{MAX_AGE, Read, Tx};
use std::time::Duration;

/// Most blocks of ids in one epoch.
pub(crate) const SLICE: usize = 4096;
/// Most members in one transaction of the sweep.
const BATCH: usize = 2048;
/// One past the last interned id.
const IDS_END: u64 = 1 << 62;

/// How fast the collector works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Percentage of the time spent working, 1 to 100; the collector rests for the remainder.
    pub share: u32,
    /// The greatest age at which a transaction can still begin a reply: more than [`MAX_AGE`].
    pub grace: Duration,
    /// Most blocks of ids in one epoch.
    pub slice: usize,
    /// Most members that one transaction of the sweep removes.
    pub batch: usize,
}

impl Pace {
    /// Faster if, according to `state`, more members are dead than alive: they die as fast as clients write,
    /// and nothing else bounds their number.
    pub fn hurried(self, state: &State) -> Self {
        let (live, dead) = (state.live.max(1), state.dead.max(state.candidates));
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
    /// Another server has taken over.
    Lost,
    /// Try again.
    Again,
    /// The store fails or is damaged.
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

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing to do, or another server's work.
    Idle,
    /// Other servers have to act first.
    Waits,
    /// Worked, and more is left.
    Worked,
}

/// This server's collector.
#[derive(Clone, Copy)]
pub struct Collector<'a> {
    space: &'a Keyspace,
    pace: Pace,
    /// The store's generation when the current phase was claimed.
    generation: u64,
}

impl<'a> Collector<'a> {
    /// A collector that works at `pace`.
    pub fn new(space: &'a Keyspace, pace: Pace) -> Self {
        Collector { space, pace, generation: 0 }
    }

    /// The current state.
    pub async fn state(&self) -> Done<State> {
        Ok(State::read(&self.space.store.begin(), Read::Snapshot).await?)
    }

    /// Begins a cycle, unless one is under way.
    pub async fn begin(&self) -> Done<()> {
        loop {
            match self.try_claim(true).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                result => return result.map(|_| ()),
            }
        }
    }

    /// Continues a cycle that belongs to this server or to nobody any more: to the end of a phase, or for one
    /// transaction of the sweep. May be dropped at any await.
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

    /// Abandons this server's cycle, and removes its marks.
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

    /// The state, with a new turn if its phase begins again, and the store's generation. None if another
    /// server owns it.
    async fn try_claim(&self, begins: bool) -> Done<Option<(State, u64)>> {
        let tx = self.space.store.begin();
        let generation = tx.generation().await?;
        let (own, state) = (self.space.instances.id(), State::read(&tx, Read::Serializable).await?);
        let mut next = State { owner: own, turn: state.turn + 1, ..state };
        match state.phase {
            Phase::Idle if begins => {
                (next.phase, next.from, next.to) = (Phase::Mark, 0, 0);
                (next.live_so_far, next.dead_so_far) = (0, 0);
                (next.candidates, next.swept) = (0, 0);
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

    /// Moves from `mine` to `next` exactly once, with a new turn and the writes of `also`.
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
            // An attempt with an unknown result was committed.
            return Ok(());
        }
        self.check(&tx, &now, mine).await?;
        also(&tx)?;
        tx.set(&root::collector(), &next.encode())?;
        tx.commit().await?;
        Ok(())
    }

    /// Fails if another server has taken over, if this server has begun the phase again, or if the store may
    /// have lost commits.
    async fn check(&self, tx: &Tx, now: &State, mine: &State) -> Done<()> {
        let mine = (mine.owner, mine.turn, self.generation);
        if (now.owner, now.turn, tx.generation().await?) == mine { Ok(()) } else { Err(Halt::Lost) }
    }

    /// The first call of each transaction: see the module.
    async fn guard(&self, tx: &Tx, mine: &State) -> Done<State> {
        let now = State::read(tx, Read::Serializable).await?;
        self.check(tx, &now, mine).await?;
        Ok(now)
    }

    /// Begins Mark of the next epoch, or ends the cycle.
    async fn end_epoch(&self, state: State) -> Done<Step> {
        let mut next = State { candidates: 0, swept: 0, ..state };
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

    /// Rests after `took` of work, as long as the share demands.
    async fn rest(&self, took: Duration) {
        let share = self.pace.share.clamp(1, 100);
        let rest = took * (100 - share) / share;
        if rest > Duration::ZERO { tokio::time::sleep(rest).await } else { tokio::task::yield_now().await }
    }

    fn now(&self) -> Duration {
        self.space.clock.monotonic()
    }
}

/// Removes all candidates, revived ids and the other rows of an epoch.
fn clear_all(tx: &Tx) -> Result<(), StoreError> {
    for (from, to) in [root::all_candidates(), root::all_made(), root::all_streamed(), root::all_revived()] {
        tx.clear_range(&from, &to)?;
    }
    Ok(())
}
