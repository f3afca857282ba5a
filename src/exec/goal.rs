//! What a call that waits waits for at its keys.
//!
//! For a list or sorted set: that it exists. For a stream: an entry behind an id, which each call names for itself; or one
//! that a group has yet to deliver, or that has been pending there for long (CLAIM): such a client has a queue of its own, and
//! looks again when it may be so. XCLAIM can make an entry look older than it is: then it is found later. Whoever waits for a group hears of an error as soon as there is one: its group or its
//! key may go.

use crate::commands::stream::ids;
use crate::dispatch::Call;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::server::waiters::{PAUSE, Whose};
use crate::spec::streams;
use crate::store::{Read, Retries};
use crate::types::Kind;
use crate::types::object::{self, Slot};
use crate::types::stream::groups::{self, Place};
use crate::types::stream::{Id, StreamRep, claim, range};
use bytes::Bytes;
use std::collections::HashMap;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(super) enum Goal {
    /// A value.
    Value,
    /// Entries of streams behind these ids.
    Entries(HashMap<Bytes, Id>),
    /// Entries that the group of this name has yet to deliver; and those that have been pending there for so many
    /// milliseconds.
    Group(Bytes, Option<u64>),
}

impl Goal {
    /// What `call` waits for, once [`resolve`] has read the ids that it does not name.
    pub(super) fn of(call: &Call, kind: Option<Kind>) -> Self {
        if kind != Some(Kind::Stream) {
            return Goal::Value;
        }
        if let Some(name) = ids::group(&call.argv) {
            return Goal::Group(name.clone(), ids::min_idle(&call.argv));
        }
        let mut wanted = HashMap::new();
        let (keys, ids) = streams(&call.argv);
        for (key, raw) in keys.iter().zip(ids) {
            // What is no id is an error of the call.
            let id = ids::parse(raw, 0).unwrap_or(Id::MAX);
            wanted.entry(key.clone()).and_modify(|old: &mut Id| *old = id.min(*old)).or_insert(id);
        }
        Goal::Entries(wanted)
    }

    /// Whose queue at a key the client enters: those who wait for the same take turns.
    pub(super) fn whose(&self, client: u64) -> Whose {
        match self {
            Goal::Value => Whose::All,
            Goal::Entries(_) | Goal::Group(_, Some(_)) => Whose::Client(client),
            Goal::Group(name, None) => Whose::Group(Bytes::copy_from_slice(name)),
        }
    }

    /// How many elements a key has for the client; 0 if the client is to wait.
    pub(super) async fn seen(&self, s: &Scope<'_>, slot: &Slot, kind: Option<Kind>) -> Result<u64> {
        let value = slot.record().map(|record| &record.value).filter(|value| Some(value.kind()) == kind);
        match self {
            Goal::Value => match value {
                Some(value) => value.len(s, Read::Snapshot).await,
                None => Ok(0),
            },
            Goal::Entries(wanted) => match (slot.stream(), wanted.get(&slot.key)) {
                (Ok(Some(rep)), Some(id)) => Ok(u64::from(has_behind(s, rep, *id).await?)),
                _ => Ok(0),
            },
            Goal::Group(name, min_idle) => {
                let Ok(Some(rep)) = slot.stream() else { return Ok(1) };
                let Some(group) = groups::find(s, rep.oid, name).await? else { return Ok(1) };
                let at = Place { oid: rep.oid, group: group.number };
                let has_any = has_behind(s, rep, group.last).await?
                    || min_idle.is_some() && claim::has_idle(s, rep, at, min_idle.unwrap_or(0)).await?;
                Ok(u64::from(has_any))
            }
        }
    }

    /// How long after the time of the transaction a key may have something without any change.
    pub(super) async fn due(&self, s: &Scope<'_>, slot: &Slot) -> Result<Option<Duration>> {
        let (Goal::Group(name, Some(min_idle)), Ok(Some(rep))) = (self, slot.stream()) else {
            return Ok(None);
        };
        let Some(group) = groups::find(s, rep.oid, name).await? else { return Ok(None) };
        let at = Place { oid: rep.oid, group: group.number };
        let ms = claim::until_idle(s, at, *min_idle).await?;
        Ok(Some(Duration::from_millis(ms).max(PAUSE)))
    }

    /// A row besides the record whose change may be what the client waits for.
    pub(super) fn row(&self, s: &Scope<'_>, slot: &Slot) -> Option<Vec<u8>> {
        match (self, slot.stream()) {
            (Goal::Group(name, _), Ok(Some(rep))) => Some(s.db.group(rep.oid, name)),
            _ => None,
        }
    }
}

async fn has_behind(s: &Scope<'_>, rep: &StreamRep, id: Id) -> Result<bool> {
    let Some(next) = id.next().filter(|next| *next <= rep.last) else { return Ok(false) };
    Ok(range::end(s, rep, (next, Id::MAX), false).await?.is_some())
}

/// Replaces the ids of a call that name the end of a stream by what they mean now: it waits for what comes behind that.
pub(super) async fn resolve(server: &crate::server::Server, db: u8, call: &mut Call) -> Result<()> {
    let (keys, ids) = streams(&call.argv);
    if ids::group(&call.argv).is_some() || !ids.iter().any(|id| ids::is_end(id)) {
        return Ok(());
    }
    let (begin, mut retries) = (call.argv.len() - ids.len(), Retries::new(ATTEMPTS));
    let found = loop {
        match ends(server, db, (keys, ids)).await {
            Ok(found) => break found,
            Err(e) => retries.on_error(e)?,
        }
    };
    for (arg, id) in call.argv.iter_mut().skip(begin).zip(found) {
        if let Some(id) = id {
            *arg = id.to_string().into();
        }
    }
    Ok(())
}

/// Attempts at reading the ends of streams.
const ATTEMPTS: u32 = 20;

async fn ends(
    server: &crate::server::Server,
    db: u8,
    (keys, ids): (&[Bytes], &[Bytes]),
) -> Result<Vec<Option<Id>>> {
    let tx = server.store.begin();
    let place = server.space.catalog.load(&tx).await?.place(db);
    let gone = || StoreError::Unavailable("the database catalog has not been read yet".into());
    let s = server.space.scope(&tx, place.ok_or_else(gone)?.prefix);
    let mut found = Vec::with_capacity(ids.len());
    for (key, raw) in keys.iter().zip(ids) {
        found.push(match ids::is_end(raw) {
            false => None,
            true => {
                let slot = object::open(&s, key, Read::Snapshot).await?;
                // What is no stream has no entries: it is an error of the call, unless it becomes one before.
                Some(ids::end(&s, slot.stream().ok().flatten(), raw).await?)
            }
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::{World, call, unit};

    #[test]
    fn the_last_group_is_waited_for() {
        let call = call("xreadgroup group nosuch a group g c block 0 streams k >");
        let goal = Goal::of(&call, Some(Kind::Stream));
        assert!(matches!(&goal, Goal::Group(name, None) if name == "g"), "{goal:?}");
    }

    /// A key may become a stream between the time when its end was asked for and the call.
    #[tokio::test]
    async fn the_end_of_what_is_no_stream_is_before_all_entries() {
        let w = World::new().await;
        w.exec.run(unit(&["set k v"])).await;
        let mut call = call("xread block 0 streams k none $ +");
        resolve(&w.server, 0, &mut call).await.unwrap();
        assert_eq!(call.argv[6..], ["0-0", "0-0"]);
    }
}
