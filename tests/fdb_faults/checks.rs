//! The conditions after a test: each answered command is applied once, each unknown one at most once, each
//! refused one never. Pure functions of the clients' results and of the stored values.

use crate::load::{Event, Op, Outcome, TOKEN};
use crate::support::resp::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A problem that a check finds.
pub type Finding = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err(what()) }
}

fn number(event: &Event) -> Result<Option<i64>, String> {
    match &event.outcome {
        Outcome::Done(Value::Int(n)) => Ok(Some(*n)),
        Outcome::Done(other) => Err(format!("{event:?} answered {other:?}")),
        _ => Ok(None),
    }
}

fn unknowns(events: &[&Event]) -> i64 {
    events.iter().filter(|e| e.outcome == Outcome::Unknown).count() as i64
}

/// INCR: `kept` is the counter.
pub fn counted(events: &[&Event], kept: i64) -> Finding {
    let mut replies = Vec::new();
    for event in events {
        replies.extend(number(event)?.map(|n| (n, event.start, event.end)));
    }
    let (answered, unknown) = (replies.len() as i64, unknowns(events));
    ensure((answered..=answered + unknown).contains(&kept), || {
        format!("{answered} answered and {unknown} unknown, but the counter is {kept}")
    })?;
    in_order(replies)
}

/// GET of a counter: it includes every increment answered before, and none requested later.
pub fn read(reads: &[&Event], events: &[&Event]) -> Finding {
    for read in reads {
        let Outcome::Done(reply) = &read.outcome else { continue };
        let seen = strings(reply).first().map_or(Ok(0), |text| text.parse::<i64>());
        let seen = seen.map_err(|_| format!("{read:?}"))?;
        for event in events {
            let Some(n) = number(event)? else { continue };
            ensure(n <= seen || event.end >= read.start, || format!("{read:?} does not see {event:?}"))?;
            ensure(n > seen || event.start <= read.end, || {
                format!("{read:?} sees a later increment: {event:?}")
            })?;
        }
    }
    Ok(())
}

/// Replies of one counter or log: all differ, and none that began after another's end is smaller.
fn in_order(mut replies: Vec<(i64, Duration, Duration)>) -> Finding {
    replies.sort();
    let mut latest = Duration::ZERO;
    for (at, (n, start, end)) in replies.iter().enumerate() {
        ensure(at == 0 || replies[at - 1].0 != *n, || format!("{n} was answered twice"))?;
        ensure(*end >= latest, || format!("{n} was answered before a smaller number was asked for"))?;
        latest = latest.max(*start);
    }
    Ok(())
}

/// APPEND: `kept` is the string. Each token with its outcome; a reply is the length after it.
pub fn appended(events: &[(&str, &Event)], kept: &str) -> Finding {
    let stored: Vec<&str> = kept.as_bytes().chunks(TOKEN).map(|c| std::str::from_utf8(c).unwrap()).collect();
    let mut places = BTreeMap::new();
    for (at, token) in stored.iter().enumerate() {
        let before = places.insert(*token, at);
        ensure(before.is_none(), || format!("{token} was appended twice"))?;
    }
    let mut replies = Vec::new();
    for (token, event) in events {
        let place = places.remove(token);
        match number(event)? {
            Some(length) => {
                let end = place.map(|at| ((at + 1) * TOKEN) as i64);
                ensure(end == Some(length), || format!("{token}: {event:?}, but it ends at {end:?}"))?;
                replies.push((length, event.start, event.end));
            }
            None => ensure(place.is_none() || event.outcome == Outcome::Unknown, || {
                format!("{token}: {event:?}, but it was appended")
            })?,
        }
    }
    ensure(places.is_empty(), || format!("no client appended {places:?}"))?;
    in_order(replies)
}

/// EXEC of two INCR and an APPEND: `kept` are the counters and the string.
pub fn paired(events: &[(&str, &Event)], kept: (i64, i64, &str)) -> Finding {
    let (a, b, log) = kept;
    let tokens = log.len() / TOKEN;
    ensure(a == b && a == tokens as i64, || format!("applied in part: {a}, {b}, {tokens} tokens"))?;
    let mut lengths = Vec::new();
    for (token, event) in events {
        let mut event = (*event).clone();
        if let Outcome::Done(reply) = &event.outcome {
            let items: Vec<i64> = reply.items().unwrap_or_default().iter().filter_map(Value::int).collect();
            let [a, b, length] = items[..] else { return Err(format!("{event:?}")) };
            ensure(a == b && length == a * TOKEN as i64, || {
                format!("an EXEC must see one state: {event:?}")
            })?;
            event.outcome = Outcome::Done(Value::Int(length));
        }
        lengths.push((*token, event));
    }
    let lengths: Vec<(&str, &Event)> = lengths.iter().map(|(token, event)| (*token, event)).collect();
    appended(&lengths, log)
}

/// The strings of a reply: one, none, or an array of them.
fn strings(reply: &Value) -> Vec<String> {
    let items = reply.items().map_or(std::slice::from_ref(reply), |items| items);
    items.iter().filter_map(Value::bytes).map(|b| String::from_utf8_lossy(b).into_owned()).collect()
}

/// Items that are put in and taken out: SADD and SPOP, SET NX and GETDEL.
#[derive(Default)]
struct Things {
    /// Put in for certain; perhaps.
    sure: BTreeSet<String>,
    maybe: BTreeSet<String>,
    /// Taken out, or still stored.
    seen: BTreeSet<String>,
    /// The number of unknown commands that may have taken something out.
    lost: usize,
}

impl Things {
    fn put(&mut self, names: impl IntoIterator<Item = String>, outcome: &Outcome) {
        match outcome {
            Outcome::Done(_) => self.sure.extend(names),
            Outcome::Unknown => self.maybe.extend(names),
            Outcome::Refused(_) => {}
        }
    }
    fn see(&mut self, names: impl IntoIterator<Item = String>) -> Finding {
        for name in names {
            let put = self.sure.contains(&name) || self.maybe.contains(&name);
            ensure(put, || format!("{name} was never put in, or refused"))?;
            let once = self.seen.insert(name.clone());
            ensure(once, || format!("{name} was taken out twice, or taken out and is still stored"))?;
        }
        Ok(())
    }
    fn finding(self) -> Finding {
        let missing: Vec<&String> = self.sure.difference(&self.seen).collect();
        ensure(missing.len() <= self.lost, || {
            format!("{} are missing, expected at most {}: {missing:?}", missing.len(), self.lost)
        })
    }
}

/// SADD and SPOP: `kept` are the members.
pub fn pooled(events: &[&Event], kept: &[String]) -> Finding {
    let mut things = Things::default();
    for event in events {
        if let Op::Add(_, members) = &event.op {
            let added = number(event)?;
            ensure(added.is_none_or(|n| n == members.len() as i64), || {
                format!("{event:?}: every member is new")
            })?;
            things.put(members.iter().cloned(), &event.outcome);
        }
    }
    for event in events {
        match (&event.op, &event.outcome) {
            (Op::Pop(_, most), Outcome::Done(reply)) => {
                let popped = strings(reply);
                ensure(popped.len() <= *most, || format!("{event:?}"))?;
                things.see(popped)?;
            }
            (Op::Pop(_, most), Outcome::Unknown) => things.lost += most,
            _ => {}
        }
    }
    things.see(kept.iter().cloned())?;
    things.finding()
}

/// SET NX and GETDEL: `kept` is the content of the box.
pub fn boxed(events: &[&Event], kept: Option<String>) -> Finding {
    let mut things = Things::default();
    for event in events {
        match (&event.op, &event.outcome) {
            (Op::Put(..), Outcome::Done(Value::Nil(_))) => {}
            (Op::Put(_, token), outcome) => things.put([token.clone()], outcome),
            _ => {}
        }
    }
    for event in events {
        match (&event.op, &event.outcome) {
            (Op::Take(_), Outcome::Done(reply)) => things.see(strings(reply))?,
            (Op::Take(_), Outcome::Unknown) => things.lost += 1,
            _ => {}
        }
    }
    things.see(kept)?;
    things.finding()
}

/// SMOVE: `kept` are the members of both homes. Each member has one client, so its events are ordered.
pub fn moved(events: &[&Event], kept: &[BTreeSet<String>; 2]) -> Finding {
    const NOWHERE: usize = 2;
    let mut places: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for event in events {
        let (Op::Home(member) | Op::Move(_, member)) = &event.op else { continue };
        let to = if let Op::Move(to, _) = &event.op { *to } else { 0 };
        let place = places.entry(member).or_insert_with(|| BTreeSet::from([NOWHERE]));
        match number(event)? {
            Some(changed) => {
                ensure(changed == 1, || format!("{event:?} found nothing to do"))?;
                *place = BTreeSet::from([to]);
            }
            None if event.outcome == Outcome::Unknown => drop(place.insert(to)),
            None => {}
        }
    }
    for (member, possible) in &places {
        let found: Vec<usize> = (0..2).filter(|n| kept[*n].contains(*member)).collect();
        let place = found.first().copied().unwrap_or(NOWHERE);
        ensure(found.len() < 2 && possible.contains(&place), || {
            format!("{member} is in {found:?}, may be in {possible:?}")
        })?;
    }
    let stray = kept.iter().flatten().find(|m| !places.contains_key(m.as_str()));
    ensure(stray.is_none(), || format!("no client added {stray:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(op: Op, at: u64, outcome: Outcome) -> Event {
        let second = Duration::from_secs(1);
        Event { op, start: second * at as u32, end: second * at as u32 + second / 2, outcome }
    }
    fn done(n: i64) -> Outcome {
        Outcome::Done(Value::Int(n))
    }
    fn bulk(text: &str) -> Outcome {
        Outcome::Done(Value::Bulk(text.into()))
    }
    fn refused() -> Outcome {
        Outcome::Refused("ERR the store is unavailable".into())
    }

    #[test]
    fn a_wrong_counter_is_found() {
        let incr = |at, outcome| event(Op::Incr(0), at, outcome);
        let all = [incr(0, done(1)), incr(1, Outcome::Unknown), incr(2, done(2)), incr(3, refused())];
        let all: Vec<&Event> = all.iter().collect();
        assert_eq!(counted(&all, 2), Ok(()));
        assert_eq!(counted(&all, 3), Ok(()));
        assert!(counted(&all, 1).is_err(), "an INCR was lost");
        assert!(counted(&all, 4).is_err(), "an INCR was applied twice, or a refused one");
        let (a, b) = (incr(0, done(2)), incr(1, done(1)));
        assert!(counted(&[&a, &b], 2).is_err(), "a reply from the past");
        assert!(counted(&[&a, &a], 2).is_err(), "one reply twice");

        let get = |at, text| event(Op::Read(0), at, bulk(text));
        let (before, after) = (incr(0, done(1)), incr(2, done(2)));
        assert_eq!(read(&[&get(1, "1"), &get(3, "2")], &[&before, &after]), Ok(()));
        assert!(read(&[&get(1, "0")], &[&before, &after]).is_err(), "a stale read");
        assert!(read(&[&get(1, "2")], &[&before, &after]).is_err(), "a read of the future");
    }

    #[test]
    fn a_wrong_log_is_found() {
        let [a, b, c] = ["00-000001", "00-000002", "00-000003"];
        let append = |token: &str, at, outcome| event(Op::Append(0, token.into()), at, outcome);
        let (first, second) = (append(a, 0, done(9)), append(b, 1, Outcome::Unknown));
        let third = append(c, 2, refused());
        let all = [(a, &first), (b, &second), (c, &third)];
        assert_eq!(appended(&all, a), Ok(()));
        assert_eq!(appended(&all, &format!("{a}{b}")), Ok(()));
        for wrong in ["", b, &format!("{b}{a}"), &format!("{a}{b}{b}"), &format!("{a}{c}"), "99-000001"] {
            assert!(appended(&all, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_torn_exec_is_found() {
        let reply = |a, b, length| Outcome::Done(Value::Array([a, b, length].map(Value::Int).into()));
        let exec = |outcome| event(Op::Exec(0, "00-000001".into()), 0, outcome);
        let all = |event: &Event, kept| paired(&[("00-000001", event)], kept);
        assert_eq!(all(&exec(reply(1, 1, 9)), (1, 1, "00-000001")), Ok(()));
        assert_eq!(all(&exec(Outcome::Unknown), (0, 0, "")), Ok(()));
        assert!(all(&exec(reply(1, 1, 9)), (1, 0, "00-000001")).is_err());
        assert!(all(&exec(reply(1, 2, 9)), (1, 1, "00-000001")).is_err());
        assert!(all(&exec(reply(1, 1, 9)), (0, 0, "")).is_err());
    }

    #[test]
    fn a_wrong_pool_or_box_is_found() {
        let add = |name: &str, outcome| event(Op::Add(0, vec![name.into()]), 0, outcome);
        let pop = |outcome| event(Op::Pop(0, 1), 1, outcome);
        let all = [add("a", done(1)), add("b", Outcome::Unknown), add("c", refused()), pop(bulk("a"))];
        let all: Vec<&Event> = all.iter().collect();
        let pool = |kept: &[&str]| pooled(&all, &kept.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>());
        assert_eq!((pool(&[]), pool(&["b"])), (Ok(()), Ok(())));
        assert!(pool(&["a"]).is_err() && pool(&["c"]).is_err());
        let lost = pop(Outcome::Unknown);
        assert!(pooled(&all[..1], &[]).is_err(), "a member is lost");
        assert_eq!(pooled(&[all[0], &lost], &[]), Ok(()));
        assert!(pooled(&[all[0], all[3], all[3]], &[]).is_err(), "a member popped twice");

        let put = event(Op::Put(0, "a".into()), 0, Outcome::Done(Value::Simple("OK".into())));
        let take = event(Op::Take(0), 1, bulk("a"));
        assert_eq!((boxed(&[&put], Some("a".into())), boxed(&[&put, &take], None)), (Ok(()), Ok(())));
        assert!(boxed(&[&put], None).is_err() && boxed(&[&put, &take], Some("a".into())).is_err());
    }

    #[test]
    fn a_wrong_move_is_found() {
        let home = event(Op::Home("a".into()), 0, done(1));
        let go = |outcome| event(Op::Move(1, "a".into()), 1, outcome);
        let at = |first: &[&str], second: &[&str]| {
            [first, second].map(|s| s.iter().map(|m| (*m).to_owned()).collect::<BTreeSet<_>>())
        };
        assert_eq!(moved(&[&home, &go(done(1))], &at(&[], &["a"])), Ok(()));
        assert_eq!(moved(&[&home, &go(Outcome::Unknown)], &at(&["a"], &[])), Ok(()));
        assert!(moved(&[&home, &go(done(1))], &at(&["a"], &[])).is_err());
        assert!(moved(&[&home, &go(refused())], &at(&[], &["a"])).is_err());
        assert!(moved(&[&home, &go(Outcome::Unknown)], &at(&["a"], &["a"])).is_err());
        assert!(moved(&[&home, &go(Outcome::Unknown)], &at(&[], &[])).is_err());
        assert!(moved(&[&home, &go(done(0))], &at(&[], &["a"])).is_err());
    }
}
