//! Grace: replies that are still being sent may need members of ids that no set holds any more.
//!
//! What read such an id is a transaction that began before this server saw Grace, so no older than [`Pace::grace`] from then on, or a reply
//! that such a transaction began. So a server that has seen Grace waits for [`Pace::grace`], and until all replies that began before its end
//! are through; then it writes `e 03 <instance> -> epoch`. Nobody compares clocks: each waits by its own.
//!
//! The collector goes on once every registered server has. A server that was taken for dead and comes back may find that a member is gone
//! which a reply of it needs. It is told so as damage, and closes that connection; it never sends another member, because ids are not used twice.

use super::{Collector, Done, Halt, Pace, Step};
use crate::keyspace::Keyspace;
use crate::keyspace::cluster::instances;
use crate::keyspace::dictionary::collector::{Phase, State};
use crate::keyspace::keys::root;
use crate::store::{Read, Tx};
use std::time::Duration;

/// Epoch and generation of the store: an epoch that it has lost comes again.
type Name = (u64, u64);

/// What a server remembers of the Grace that it is in.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Which, and when it was first seen by the monotonic clock.
    since: Option<(Name, Duration)>,
    done: Option<Name>,
}

impl Waiting {
    /// Says that this server's replies need nothing more, once that is so. To be called now and then; `state` is what was read
    /// by `tx`, which began before this call.
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
    /// Sweep begins once all servers have said so.
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
