//! Groups of the model: what each consumer has, and for how long.

use crate::support::resp::Value;
use crate::{Id, Stream, World, bulk, entries, entry, fact, ids, int, nil, parse, read_of, show};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds that no test lasts.
pub const LONG: &str = "10000000";
const LONGER: &str = "100000000";

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    owner: String,
    idle_for_long: bool,
    times: i64,
}

#[derive(Clone, Default, Debug, PartialEq)]
pub struct Group {
    pub last: Id,
    pub pending: BTreeMap<Id, Pending>,
    pub consumers: BTreeSet<String>,
}

impl World {
    pub fn create(&mut self, key: &str) {
        let (group, mut stream) = (self.group(), self.stream(key));
        let (word, last) = match self.rng.below(3) {
            0 => ("$".to_owned(), stream.last),
            1 => ("0".to_owned(), (0, 0)),
            _ => (show(self.id(&stream)), (0, 0)),
        };
        let last = if word.contains('-') { parse(&word) } else { last };
        let got = self.line(&format!("XGROUP CREATE {key} {group} {word} MKSTREAM"));
        if stream.groups.contains_key(&group) {
            assert_eq!(got, Value::Error("BUSYGROUP Consumer Group name already exists".into()));
            return;
        }
        assert_eq!(got, Value::Simple("OK".into()));
        stream.groups.insert(group, Group { last, ..Group::default() });
        self.models.insert(key.to_owned(), stream);
    }

    /// The rarer ways to change a group.
    pub fn change_group(&mut self, key: &str) {
        let (name, who, mut stream) = (self.group(), self.consumer(), self.stream(key));
        let some = self.id(&stream);
        let Some(group) = stream.groups.get_mut(&name) else { return };
        match self.rng.below(5) {
            0 => {
                let got = self.line(&format!("XGROUP CREATECONSUMER {key} {name} {who}"));
                assert_eq!(got, int(group.consumers.insert(who).into()));
            }
            1 | 2 => {
                let got = self.line(&format!("XGROUP DELCONSUMER {key} {name} {who}"));
                let before = group.pending.len();
                group.pending.retain(|_, pending| pending.owner != who);
                group.consumers.remove(&who);
                assert_eq!(got, int(before - group.pending.len()));
            }
            3 => {
                assert_eq!(
                    self.line(&format!("XGROUP SETID {key} {name} {}", show(some))),
                    Value::Simple("OK".into())
                );
                group.last = some;
            }
            _ => {
                assert_eq!(self.line(&format!("XGROUP DESTROY {key} {name}")), int(1));
                stream.groups.remove(&name);
            }
        }
        self.keep(key, stream);
    }

    /// XREADGROUP of what nobody had.
    pub fn deliver(&mut self, key: &str) {
        let (name, who, (count, most)) = (self.group(), self.consumer(), self.count());
        let (ack, mut stream) = (self.rng.one_in(8), self.stream(key));
        let noack = if ack { " NOACK" } else { "" };
        let got = self.line(&format!("XREADGROUP GROUP {name} {who}{count}{noack} STREAMS {key} >"));
        let Some(group) = stream.groups.get_mut(&name) else {
            let error = format!(
                "NOGROUP No such key '{key}' or consumer group '{name}' in XREADGROUP with GROUP option"
            );
            assert_eq!(got, Value::Error(error.into()));
            return;
        };
        let last = group.last;
        let found: Vec<_> = stream.entries.iter().filter(|(id, _)| **id > last).take(most).collect();
        let want = if found.is_empty() { nil() } else { read_of(key, entries(found.iter().copied())) };
        assert_eq!(got, want);
        group.consumers.insert(who.clone());
        for (id, _) in found {
            group.last = *id;
            // An id that was delivered before belongs to its new consumer.
            if !ack {
                group.pending.insert(*id, Pending { owner: who.clone(), idle_for_long: false, times: 1 });
            }
        }
        self.keep(key, stream);
    }

    /// XREADGROUP of what a consumer had.
    pub fn deliver_again(&mut self, key: &str) {
        let (name, who, (count, most)) = (self.group(), self.consumer(), self.count());
        let mut stream = self.stream(key);
        let after = self.id(&stream);
        let Some(group) = stream.groups.get_mut(&name) else { return };
        let got = self.line(&format!("XREADGROUP GROUP {name} {who}{count} STREAMS {key} {}", show(after)));
        group.consumers.insert(who.clone());
        let mut rows = Vec::new();
        let of = group.pending.iter_mut().filter(|(id, pending)| **id > after && pending.owner == who);
        for (id, pending) in of.take(most) {
            let Some(fields) = stream.entries.get(id) else {
                rows.push(Value::Array(vec![bulk(show(*id)), nil()]));
                continue;
            };
            rows.push(entry((id, fields)));
            (pending.idle_for_long, pending.times) = (false, pending.times + 1);
        }
        assert_eq!(got, read_of(key, Value::Array(rows)));
        self.keep(key, stream);
    }

    /// Ids among those that are pending.
    pub fn pending_ids(&mut self, stream: &Stream, name: &str) -> Vec<Id> {
        let mut some = self.some_ids(stream);
        if let Some(group) = stream.groups.get(name).filter(|group| !group.pending.is_empty()) {
            let all: Vec<Id> = group.pending.keys().copied().collect();
            some.extend((0..3).map(|_| all[self.rng.below(all.len())]));
        }
        some
    }

    pub fn acknowledge(&mut self, key: &str) {
        let (name, mut stream) = (self.group(), self.stream(key));
        let some = self.pending_ids(&stream, &name);
        let words: Vec<String> = some.iter().map(|id| show(*id)).collect();
        let got = self.line(&format!("XACK {key} {name} {}", words.join(" ")));
        let mut count = 0;
        if let Some(group) = stream.groups.get_mut(&name) {
            count = some.iter().filter(|id| group.pending.remove(id).is_some()).count();
        }
        assert_eq!(got, int(count));
        self.keep(key, stream);
    }

    pub fn claim(&mut self, key: &str) {
        let (name, who, mut stream) = (self.group(), self.consumer(), self.stream(key));
        let some = self.pending_ids(&stream, &name);
        let Some(group) = stream.groups.get_mut(&name) else { return };
        let (long, aged, force, just) =
            (self.rng.one_in(3), self.rng.one_in(3), self.rng.one_in(3), self.rng.one_in(3));
        let retries = self.rng.one_in(4).then(|| self.rng.below(9) as i64);
        let words: Vec<String> = some.iter().map(|id| show(*id)).collect();
        let mut line =
            format!("XCLAIM {key} {name} {who} {} {}", if long { LONG } else { "0" }, words.join(" "));
        line += &retries.map_or(String::new(), |n| format!(" RETRYCOUNT {n}"));
        for (is_there, word) in
            [(aged, format!("IDLE {LONGER}")), (force, "FORCE".into()), (just, "JUSTID".into())]
        {
            line += &if is_there { format!(" {word}") } else { String::new() };
        }
        let got = self.line(&line);
        // Also one that claims nothing.
        group.consumers.insert(who.clone());
        let mut rows = Vec::new();
        for id in some {
            let Some(fields) = stream.entries.get(&id) else {
                group.pending.remove(&id);
                continue;
            };
            let old = group.pending.get(&id).cloned();
            if old.is_none() && !force || long && old.as_ref().is_some_and(|old| !old.idle_for_long) {
                continue;
            }
            // An entry that is forced counts as delivered once before.
            let times = old.map_or(1, |old| old.times);
            let times = retries.unwrap_or(if just { times } else { times + 1 });
            group.pending.insert(id, Pending { owner: who.clone(), idle_for_long: aged, times });
            rows.push(if just { bulk(show(id)) } else { entry((&id, fields)) });
        }
        assert_eq!(got, Value::Array(rows), "{line}");
        self.keep(key, stream);
    }

    pub fn claim_idle(&mut self, key: &str) {
        let (name, who, mut stream) = (self.group(), self.consumer(), self.stream(key));
        let (start, long, just) = (self.id(&stream), self.rng.one_in(3), self.rng.one_in(3));
        let mut left = 1 + self.rng.below(5);
        let Some(group) = stream.groups.get_mut(&name) else { return };
        let min_idle = if long { LONG } else { "0" };
        let line = format!("XAUTOCLAIM {key} {name} {who} {min_idle} {} COUNT {left}", show(start));
        let got = self.line(&format!("{line}{}", if just { " JUSTID" } else { "" }));
        group.consumers.insert(who.clone());
        let (mut tries, mut rows, mut gone, mut next) = (left * 10, Vec::new(), Vec::new(), (0, 0));
        let all: Vec<Id> = group.pending.range(start..).map(|(id, _)| *id).collect();
        for id in all {
            if tries == 0 || left == 0 {
                next = id;
                break;
            }
            tries -= 1;
            let Some(fields) = stream.entries.get(&id) else {
                group.pending.remove(&id);
                gone.push(id);
                left -= 1;
                continue;
            };
            let pending = group.pending.get_mut(&id).unwrap();
            if long && !pending.idle_for_long {
                continue;
            }
            let times = pending.times + i64::from(!just);
            *pending = Pending { owner: who.clone(), idle_for_long: false, times };
            rows.push(if just { bulk(show(id)) } else { entry((&id, fields)) });
            left -= 1;
        }
        assert_eq!(got, Value::Array(vec![bulk(show(next)), Value::Array(rows), ids(gone)]), "{line}");
        self.keep(key, stream);
    }

    pub fn check_group(&mut self, key: &str, name: &str, group: &Group) {
        let listed = self.line(&format!("XPENDING {key} {name} - + 1000000"));
        let row = |row: &Value| {
            let cells = row.items().unwrap();
            (cells[0].clone(), cells[1].clone(), cells[2].int() >= Some(10_000_000), cells[3].clone())
        };
        let got: Vec<_> = listed.items().unwrap().iter().map(row).collect();
        let want = group
            .pending
            .iter()
            .map(|(id, p)| (bulk(show(*id)), bulk(&p.owner), p.idle_for_long, Value::Int(p.times)));
        assert_eq!(got, want.collect::<Vec<_>>());
        let consumers = self.line(&format!("XINFO CONSUMERS {key} {name}"));
        let of = |who: &str| group.pending.values().filter(|pending| pending.owner == who).count();
        let got: Vec<_> = consumers
            .items()
            .unwrap()
            .iter()
            .map(|facts| (fact(facts, "name"), fact(facts, "pending")))
            .collect();
        let want: Vec<_> = group.consumers.iter().map(|who| (bulk(who), int(of(who)))).collect();
        assert_eq!(got, want);
        let owners = group.consumers.iter().filter(|who| of(who) > 0);
        let owners = owners.map(|who| Value::Array(vec![bulk(who), bulk(of(who).to_string())])).collect();
        let end = |id: Option<&Id>| id.map_or(Value::Nil(b'$'), |id| bulk(show(*id)));
        let ends = [end(group.pending.keys().next()), end(group.pending.keys().next_back())];
        let owners = if group.pending.is_empty() { nil() } else { Value::Array(owners) };
        let [first, last] = ends;
        let want = Value::Array(vec![int(group.pending.len()), first, last, owners]);
        assert_eq!(self.line(&format!("XPENDING {key} {name}")), want);
    }
}
