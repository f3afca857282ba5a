//! Groups of consumers of a stream, and the effect of commands on them. What depends on how long entries have been pending
//! is in [`super::claims`].

use super::commands::{int, number};
use super::streams::{Stream, entry, fields, id, read_of, shown, text};
use super::{Answer, Now, Span, State};
use std::collections::{BTreeMap, BTreeSet};

/// The last entry that was delivered, those that were not acknowledged, and the consumers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) last: u64,
    pub(super) pending: BTreeMap<u64, Pending>,
    pub(super) consumers: BTreeSet<String>,
}

/// Who has an entry, when it was delivered last, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) who: String,
    pub(super) time: Span,
    pub(super) count: i64,
}

/// An idle time that no entry reaches. Where a command is modelled with an exact order of times, the only other one is 0.
const NEVER_IDLE: &str = "600000";

const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.";

/// What XCLAIM and XAUTOCLAIM do to an entry that is pending as `old` says, at a time. None: nothing.
fn taken(old: Option<&Pending>, (min, options): (&str, &[&str]), who: &str, now: Span) -> Option<Pending> {
    assert!(["0", NEVER_IDLE].contains(&min), "the model does not know {min}");
    let has = |word| options.contains(&word);
    let before = match old {
        Some(_) if min == NEVER_IDLE => return None,
        Some(old) => old.count,
        None if has("FORCE") => 1,
        None => return None,
    };
    let idle = options.iter().position(|word| *word == "IDLE").map_or(0, |at| number(options[at + 1]) as u64);
    let time = Span { from: now.from - idle, to: now.to - idle };
    Some(Pending { who: who.to_owned(), time, count: before + i64::from(!has("JUSTID")) })
}

fn claimed(entries: &[(u64, String)], just_id: bool) -> Answer {
    if just_id { Answer::All(entries.iter().map(|(n, _)| id(*n)).collect()) } else { shown(entries) }
}

impl Group {
    /// New entries for a consumer.
    pub(super) fn deliver(&mut self, found: &[(u64, String)], who: &str, (noack, now): (bool, Span)) {
        self.last = found.last().map_or(self.last, |(last, _)| *last);
        if !noack {
            let new = Pending { who: who.to_owned(), time: now, count: 1 };
            self.pending.extend(found.iter().map(|(n, _)| (*n, new.clone())));
        }
    }

    /// All that a consumer has from the first on, delivered again unless it was deleted.
    fn again(&mut self, entries: &BTreeMap<u64, String>, who: &str, now: Span) -> Vec<Answer> {
        let own = self.pending.iter_mut().filter(|(_, pending)| pending.who == who);
        let one = |(n, pending): (&u64, &mut Pending)| match entries.get(n) {
            Some(value) => {
                (pending.time, pending.count) = (now, pending.count + 1);
                Answer::All(vec![id(*n), fields(value)])
            }
            None => Answer::All(vec![id(*n), Answer::Aborted]),
        };
        own.map(one).collect()
    }

    fn claim(
        &mut self,
        entries: &BTreeMap<u64, String>,
        (n, who): (u64, &str),
        how: (&str, &[&str]),
        now: Span,
    ) -> Vec<(u64, String)> {
        let Some(value) = entries.get(&n) else {
            self.pending.remove(&n);
            return Vec::new();
        };
        let new = taken(self.pending.get(&n), how, who, now);
        let is_taken = new.is_some();
        self.pending.extend(new.map(|new| (n, new)));
        if is_taken { vec![(n, value.clone())] } else { Vec::new() }
    }

    /// As XAUTOCLAIM: it looks at ten entries for each that it may return.
    fn claim_from(
        &mut self,
        entries: &BTreeMap<u64, String>,
        (who, from, most): (&str, u64, usize),
        how: (&str, &[&str]),
        now: Span,
    ) -> Answer {
        let (mut found, mut deleted, mut attempts) = (Vec::new(), Vec::new(), 10 * most);
        let mut next = 0;
        for n in self.pending.range(from..).map(|(n, _)| *n).collect::<Vec<_>>() {
            if attempts == 0 || found.len() + deleted.len() == most {
                next = n;
                break;
            }
            attempts -= 1;
            if !entries.contains_key(&n) {
                deleted.push(id(n));
            }
            found.extend(self.claim(entries, (n, who), how, now));
        }
        let just_id = how.1.contains(&"JUSTID");
        Answer::All(vec![id(next), claimed(&found, just_id), Answer::All(deleted)])
    }

    fn summary(&self) -> Answer {
        let end = |end: Option<(&u64, &Pending)>| end.map_or(Answer::Nil, |(n, _)| id(*n));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        self.pending.values().for_each(|pending| *counts.entry(&pending.who).or_default() += 1);
        let counts: Vec<Answer> =
            counts.iter().map(|(who, n)| Answer::All(vec![text(who), text(&n.to_string())])).collect();
        let counts = if counts.is_empty() { Answer::Aborted } else { Answer::All(counts) };
        let (first, last) = (self.pending.first_key_value(), self.pending.last_key_value());
        Answer::All(vec![int(self.pending.len()), end(first), end(last), counts])
    }
}

/// The key and the group of a command.
pub(super) fn place<'w>(words: &[&'w str]) -> (&'w str, &'w str) {
    match words {
        ["XREADGROUP", "GROUP", group, .., key, _] => (key, group),
        ["XGROUP", _, key, group, ..] | [_, key, group, ..] => (key, group),
        other => panic!("the model does not know {other:?}"),
    }
}

/// The answer where there is no such group.
pub(super) fn missing(words: &[&str], has_key: bool) -> Answer {
    let (key, group) = place(words);
    match words[0] {
        "XACK" => int(0),
        "XACKDEL" => Answer::All(vec![Answer::Int(-1)]),
        "XGROUP" if !has_key => Answer::Error(NO_KEY.into()),
        "XGROUP" if words[1] == "DESTROY" => int(0),
        "XGROUP" => Answer::Error(format!("NOGROUP No such consumer group '{group}' for key name '{key}'")),
        name => {
            let with = if name == "XREADGROUP" { " in XREADGROUP with GROUP option" } else { "" };
            Answer::Error(format!("NOGROUP No such key '{key}' or consumer group '{group}'{with}"))
        }
    }
}

impl State {
    pub(super) fn apply_to_group(&mut self, words: &[&str], now: Now) -> Answer {
        let (key, name) = place(words);
        let before = self.stream(key, now);
        if let ["XGROUP", "CREATE", ..] = words {
            let mut stream = before.unwrap_or_default();
            if stream.groups.contains_key(name) {
                return Answer::Error("BUSYGROUP Consumer Group name already exists".into());
            }
            stream.groups.insert(name.to_owned(), Group::default());
            self.put_stream(key, stream, now);
            return Answer::Ok;
        }
        let has_key = before.is_some();
        let Some(before) = before.filter(|stream| stream.groups.contains_key(name)) else {
            return missing(words, has_key);
        };
        let mut after = before.clone();
        let answer = after.apply_to_group(words, now.clock);
        if after != before {
            self.put_stream(key, after, now);
        }
        answer
    }
}

impl Stream {
    fn apply_to_group(&mut self, words: &[&str], now: Span) -> Answer {
        let (key, name) = place(words);
        let Stream { entries, groups, .. } = self;
        let group = groups.get_mut(name).unwrap();
        if let ["XREADGROUP", _, _, who, ..] | ["XCLAIM" | "XAUTOCLAIM", _, _, who, ..] = words {
            group.consumers.insert((*who).to_owned());
        }
        match words {
            ["XREADGROUP", _, _, who, "COUNT", most, rest @ .., "STREAMS", _, ">"] => {
                let found = self.after(self.groups[name].last, number(most) as usize);
                self.groups.get_mut(name).unwrap().deliver(&found, who, (rest == ["NOACK"], now));
                read_of(
                    key,
                    found.iter().map(|(n, value)| Answer::All(vec![id(*n), fields(value)])).collect(),
                )
            }
            ["XREADGROUP", _, _, who, "STREAMS", _, "0"] => {
                Answer::All(vec![Answer::All(vec![text(key), Answer::All(group.again(entries, who, now))])])
            }
            ["XACK", _, _, id] => int(usize::from(group.pending.remove(&entry(id)).is_some())),
            ["XACKDEL", _, _, policy, "IDS", "1", id] => {
                let is_pending = group.pending.remove(&entry(id)).is_some();
                // It counts as deleted even if it was before.
                let said = if is_pending { self.delete(entry(id), policy).max(1) } else { -1 };
                Answer::All(vec![Answer::Int(said)])
            }
            ["XCLAIM", _, _, who, min, id, options @ ..] => {
                let found = group.claim(entries, (entry(id), who), (min, options), now);
                claimed(&found, options.contains(&"JUSTID"))
            }
            ["XAUTOCLAIM", _, _, who, min, from, "COUNT", most, options @ ..] => {
                group.claim_from(entries, (who, entry(from), number(most) as usize), (min, options), now)
            }
            ["XPENDING", _, _] => group.summary(),
            ["XGROUP", "DESTROY", ..] => {
                groups.remove(name);
                int(1)
            }
            ["XGROUP", "CREATECONSUMER", _, _, who] => {
                int(usize::from(group.consumers.insert((*who).to_owned())))
            }
            ["XGROUP", "DELCONSUMER", _, _, who] => {
                let pending = group.pending.len();
                group.pending.retain(|_, pending| pending.who != *who);
                group.consumers.remove(*who);
                int(pending - group.pending.len())
            }
            other => panic!("the model does not know {other:?}"),
        }
    }
}
