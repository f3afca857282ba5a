//! What a call that waits waits for at its keys.
//!
//! For a list or sorted set: that it exists. For a stream: an entry behind an id, which each call names for itself; or one
//! that a group has yet to deliver, or that has been pending there for long (CLAIM): such a client has a queue of its own, and
//! looks again when it may be so. XCLAIM can make an entry look older than it is: then it is found later. A look that reads many
//! pending entries in vain, such as those that were deleted, is not repeated at once, even if something changes: [`Claims`].
//! Whoever waits for a group hears of an error as soon as there is one: its group or its key may go.

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
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(super) enum Goal {
    /// A value.
    Value,
    /// Entries of streams behind these ids.
    Entries(HashMap<Bytes, Id>),
    /// Entries that the group of this name has yet to deliver; and those that have been pending there for long.
    Group(Bytes, Option<Claims>),
}

/// Pending entries that a look may read without a rest behind it.
const MANY: u64 = 4096;
/// The longest rest behind a look.
const LONGEST: Duration = Duration::from_secs(1);

/// Entries that have been pending for long. Behind each look in a row that has read [`MANY`] in vain, the client rests twice as
/// long, up to [`LONGEST`].
#[derive(Debug)]
pub(super) struct Claims {
    /// Milliseconds.
    min_idle: u64,
    /// The last look at each key, in vain.
    looks: Mutex<HashMap<Bytes, Look>>,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at: Place,
    time: u64,
    /// Until then the client rests. The same as `time` if it does not.
    rested: u64,
    /// When there may be something.
    due: u64,
}

impl Claims {
    fn new(min_idle: u64) -> Self {
        Claims { min_idle, looks: Mutex::default() }
    }

    /// Whether a group has an entry that has been pending for long enough, as far as it is looked now.
    async fn has_any(&self, s: &Scope<'_>, key: &Bytes, rep: &StreamRep, at: Place) -> Result<bool> {
        let before = self.looks.lock().get(key).copied().filter(|look| look.at == at);
        if before.is_some_and(|look| (look.time..look.rested).contains(&s.now)) {
            return Ok(false);
        }
        let idle = claim::idle(s, rep, at, self.min_idle).await?;
        if idle.is_any {
            self.looks.lock().remove(key);
            return Ok(true);
        }
        let pause = Duration::from_millis(before.map_or(0, |look| look.rested - look.time)).max(PAUSE);
        let pause = if idle.passed > MANY { (2 * pause).min(LONGEST) } else { Duration::ZERO };
        let (time, rested) = (s.now, s.now.saturating_add(pause.as_millis() as u64));
        let due = time.saturating_add(idle.left).max(rested);
        self.looks.lock().insert(key.clone(), Look { at, time, rested, due });
        Ok(false)
    }

    /// How long after a time a key may have something without any change.
    fn left(&self, key: &Bytes, now: u64) -> Duration {
        let due = self.looks.lock().get(key).map_or(now, |look| look.due);
        Duration::from_millis(due.saturating_sub(now)).max(PAUSE)
    }
}

impl Goal {
    /// What `call` waits for, once [`resolve`] has read the ids that it does not name.
    pub(super) fn of(call: &Call, kind: Option<Kind>) -> Self {
        if kind != Some(Kind::Stream) {
            return Goal::Value;
        }
        if let Some(name) = ids::group(&call.argv) {
            return Goal::Group(name.clone(), ids::min_idle(&call.argv).map(Claims::new));
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
            Goal::Group(name, claims) => {
                let Ok(Some(rep)) = slot.stream() else { return Ok(1) };
                let Some(group) = groups::find(s, rep.oid, name).await? else { return Ok(1) };
                let at = Place { oid: rep.oid, group: group.number };
                let has_new = has_behind(s, rep, group.last).await?;
                let has_old = match claims {
                    Some(claims) if !has_new => claims.has_any(s, &slot.key, rep, at).await?,
                    Some(_) | None => false,
                };
                Ok(u64::from(has_new || has_old))
            }
        }
    }

    /// How long after the time of the transaction a key, in which [`Goal::seen`] has found nothing, may have something without
    /// any change.
    pub(super) fn due(&self, s: &Scope<'_>, slot: &Slot) -> Option<Duration> {
        match self {
            Goal::Group(_, Some(claims)) if slot.exists() => Some(claims.left(&slot.key, s.now)),
            Goal::Value | Goal::Entries(_) | Goal::Group(..) => None,
        }
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
    use crate::exec::unit::Unit;

    #[test]
    fn the_last_group_is_waited_for() {
        let call = call("xreadgroup group nosuch a group g c block 0 streams k >");
        let goal = Goal::of(&call, Some(Kind::Stream));
        assert!(matches!(&goal, Goal::Group(name, None) if name == "g"), "{goal:?}");
    }

    /// Hazard: a client that waits reads the same deleted entries again and again, fifty times a second.
    #[tokio::test]
    async fn long_looks_in_vain_are_followed_by_rests() {
        const ENTRIES: u64 = 3000;
        let w = World::new().await;
        w.add_entries("k", ENTRIES).await;
        let all: Vec<String> = (1..=ENTRIES).map(|n| n.to_string()).collect();
        let deleted = format!("xdel k {}", all.join(" "));
        let deliver = "xreadgroup group g c streams k >";
        let lines = ["xgroup create k g 0", deliver, &deleted];
        w.exec.run(Unit { exec: true, ..unit(&lines) }).await;
        let goal = Goal::of(&call("xreadgroup group g d block 0 claim 0 streams k >"), Some(Kind::Stream));
        let look = async |now: u64| {
            let tx = w.server.store.begin();
            let mut s = w.server.space.scope(&tx, w.db);
            s.now = now;
            let slot = object::open(&s, &Bytes::from_static(b"k"), Read::Snapshot).await.unwrap();
            let seen = goal.seen(&s, &slot, Some(Kind::Stream)).await.unwrap();
            (seen, goal.due(&s, &slot).unwrap().as_millis() as u64)
        };
        let mut now = w.env.timeline.now();
        let mut rests = Vec::new();
        for _ in 0..7 {
            let (seen, due) = look(now).await;
            assert_eq!(seen, 0);
            rests.push(due);
            // A change does not shorten a rest.
            assert_eq!(look(now + due / 2).await, (0, (due - due / 2).max(20)));
            now += due;
        }
        assert_eq!(rests, [40, 80, 160, 320, 640, 1000, 1000]);
        w.exec.run(unit(&["xadd k 9999-0 a b", deliver])).await;
        assert_eq!(look(now).await.0, 1);
        // What is found ends the rests, and so does a short look.
        w.exec.run(unit(&["xack k g 9999-0"])).await;
        assert_eq!(look(now).await, (0, 40));
        w.exec.run(unit(&["xgroup delconsumer k g c"])).await;
        assert_eq!(look(now + 40).await, (0, 20));
        w.exec.run(unit(&["xadd k 10000-0 a b", deliver])).await;
        assert_eq!(look(now + 41).await.0, 1);
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
