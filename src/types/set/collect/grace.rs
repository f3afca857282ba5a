//! Grace: replies that are still being sent may need members of ids that no set holds any more.
//!
//! Such an id was read by a transaction that began before this server saw Grace, and so has ended
//! [`Pace::grace`] later, or by a reply that such a transaction began. A server that has seen Grace therefore
//! waits for [`Pace::grace`], and then until all replies that began before the end of that wait are sent;
//! then it writes `e 03 <instance> -> epoch`. Clocks are never compared: each server waits by its own.
//!
//! The collector continues once every registered server has written. A server that was taken for dead and
//! comes back may find that a member needed by one of its replies is gone. It sees this as damage and closes
//! that connection; it never sends another member instead, because ids are never reused.

use super::{Collector, Done, Halt, Pace, Step};
use crate::keyspace::Keyspace;
use crate::keyspace::cluster::instances;
use crate::keyspace::dictionary::collector::{Phase, State};
use crate::keyspace::keys::root;
use crate::store::{Read, Tx};
use std::time::Duration;

/// Epoch and generation of the store: after losing commits, the store may see the same epoch again.
type Name = (u64, u64);

/// The Grace that a server is in, as far as it knows.
#[derive(Debug, Default)]
pub struct Waiting {
    /// The current Grace, and the monotonic time at which it was first seen.
    since: Option<(Name, Duration)>,
    done: Option<Name>,
}

impl Waiting {
    /// Records that this server's replies need no candidate's member any more, once that is true. Call it
    /// regularly; `state` was read by `tx`, which began before this call.
    pub async fn look(&mut self, space: &Keyspace, pace: &Pace, tx: &Tx, state: &State) -> Done<()> {
        let name = (state.epoch, tx.generation().await?);
        if state.phase != Phase::Grace || self.done == Some(name) {
            return Ok(());
        }
        let now = space.clock.monotonic();
        let since = match self.since {
            Some((known, since)) if known == name => since,
            _ => self.since.insert((name, now)).1,
        };
        let end = since + pace.grace;
        if now < end || space.sending.oldest().is_some_and(|oldest| oldest <= end) {
            return Ok(());
        }
        let tx = space.store.begin();
        if tx.generation().await? == name.1 {
            tx.set(&root::streamed(space.instances.id()), &state.epoch.to_le_bytes())?;
            tx.commit().await?;
            self.done = Some(name);
        }
        Ok(())
    }
}

impl Collector<'_> {
    /// Begins Sweep once every registered server is done.
    pub(super) async fn end_grace(&self, state: State) -> Done<Step> {
        let next = State { phase: Phase::Sweep, turn: state.turn + 1, ..state };
        loop {
            match self.try_end_grace(&state, &next).await {
                Err(Halt::Again) => tokio::task::yield_now().await,
                done => return done,
            }
        }
    }

    async fn try_end_grace(&self, mine: &State, next: &State) -> Done<Step> {
        let tx = self.space.store.begin();
        let now = State::read(&tx, Read::Serializable).await?;
        if now == *next {
            return Ok(Step::Worked);
        }
        self.check(&tx, &now, mine).await?;
        for id in instances::registered(&tx).await? {
            let epoch = tx.get(&root::streamed(id), Read::Snapshot).await?;
            let epoch = epoch.and_then(|raw| raw[..].try_into().ok()).map(u64::from_le_bytes);
            if epoch != Some(mine.epoch) {
                return Ok(Step::Waits);
            }
        }
        tx.set(&root::collector(), &next.encode())?;
        tx.commit().await?;
        Ok(Step::Worked)
    }
}
