//! Commands that compare or tell how long entries have been pending: XREADGROUP with CLAIM, and XPENDING of a range. If
//! times are known as spans only, several entries may be those that were delivered longest ago: what the reply says
//! decides, and narrows the time of the command.

use super::commands::number;
use super::groups::{Group, Pending, missing, place};
use super::streams::{Stream, fields, id, read_of, text};
use super::{Answer, Now, Span, State};
use std::collections::{BTreeMap, BTreeSet};

/// Entries that are pending and exist, by the times of their last delivery.
type Pool = BTreeMap<u64, Span>;

/// What a consumer asks for: entries that have been pending for `min` at least, `most` of them at most.
#[derive(Clone, Copy)]
struct Asked {
    min: u64,
    most: usize,
    now: Span,
}

/// Whether a command is one of these.
pub(super) fn tells_time(argv: &[String]) -> bool {
    match argv[0].as_str() {
        "XREADGROUP" => argv.iter().any(|word| word == "CLAIM"),
        "XPENDING" => argv.len() > 3,
        _ => false,
    }
}

impl Asked {
    /// The time at which entries with these idle times are those that are claimed. None: at no time.
    fn fits(self, pool: &Pool, claimed: &[(u64, u64)]) -> Option<Span> {
        let Span { mut from, mut to } = self.now;
        let is_ordered = claimed.is_sorted_by(|(one, idle), (next, less)| (less, one) < (idle, next));
        if claimed.len() > self.most || !is_ordered || claimed.iter().any(|(_, idle)| *idle < self.min) {
            return None;
        }
        for (n, idle) in claimed {
            let delivered = pool.get(n)?;
            (from, to) = (from.max(delivered.from + idle), to.min(delivered.to + idle));
        }
        for (n, delivered) in pool.iter().filter(|(n, _)| claimed.iter().all(|(of, _)| of != *n)) {
            to = to.min(match claimed.last().filter(|_| claimed.len() == self.most) {
                // Others were delivered before.
                Some((last, idle)) => delivered.to + idle - u64::from(n < last),
                // Not long enough ago.
                None => delivered.to + self.min - 1,
            });
        }
        (from <= to).then_some(Span { from, to })
    }

    /// The sets of entries that may be claimed.
    fn sets(self, pool: &Pool) -> BTreeSet<BTreeSet<u64>> {
        let (mut found, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![BTreeSet::new()]);
        while let Some(set) = open.pop() {
            if !seen.insert(set.clone()) {
                continue;
            }
            let left = || pool.iter().filter(|(n, _)| !set.contains(*n));
            let is_full = set.len() == self.most;
            if is_full || left().all(|(_, delivered)| delivered.to + self.min > self.now.from) {
                found.insert(set.clone());
            }
            for (n, delivered) in left().filter(|_| !is_full) {
                let is_idle = delivered.from + self.min <= self.now.to;
                let is_behind = left().any(|(other, before)| (before.to, other) < (delivered.from, n));
                if is_idle && !is_behind {
                    open.push(set.iter().copied().chain([*n]).collect());
                }
            }
        }
        found
    }
}

/// The idle time and the number of deliveries at the end of what is said of an entry.
fn numbers(said: &Answer) -> Option<(u64, i64)> {
    match said {
        Answer::All(parts) => match parts[..] {
            [_, _, Answer::Int(idle), Answer::Int(count)] => Some((u64::try_from(idle).ok()?, count)),
            _ => None,
        },
        _ => None,
    }
}

/// What is said of the entries of one key.
fn entries_of(seen: &Answer) -> Option<&[Answer]> {
    let Answer::All(keys) = seen else { return None };
    let [Answer::All(parts)] = &keys[..] else { return None };
    let [_, Answer::All(entries)] = &parts[..] else { return None };
    Some(entries)
}

/// The number of an entry that is said to be of this id.
fn entry_of(said: &Answer) -> Option<u64> {
    let Answer::All(parts) = said else { return None };
    let Answer::Text(id) = parts.first()? else { return None };
    id.strip_prefix("0-")?.parse().ok()
}

impl State {
    /// The states after such a command.
    pub(super) fn run_with_time(&self, argv: &[String], seen: Option<&Answer>, now: Now) -> Vec<State> {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let (key, name) = place(&words);
        let before = self.stream(key, now);
        let has_key = before.is_some();
        let Some(stream) = before.filter(|stream| stream.groups.contains_key(name)) else {
            let right = seen.is_none_or(|seen| *seen == missing(&words, has_key));
            return if right { vec![self.clone()] } else { Vec::new() };
        };
        match words[..] {
            ["XPENDING", _, _, "-", "+", most] => {
                let right = seen.is_none_or(|seen| stream.groups[name].is_pending_as(most, seen, now.clock));
                if right { vec![self.clone()] } else { Vec::new() }
            }
            ["XREADGROUP", "GROUP", _, who, "COUNT", most, "CLAIM", min, "STREAMS", _, ">"] => {
                let asked = Asked { min: number(min) as u64, most: number(most) as usize, now: now.clock };
                let with = |stream: Stream| {
                    let mut next = self.clone();
                    next.put_stream(key, stream, now);
                    next
                };
                stream.claims((key, name, who), asked, seen).into_iter().map(with).collect()
            }
            _ => panic!("the model does not know {argv:?}"),
        }
    }
}

impl Group {
    /// Whether XPENDING may say that of the first entries.
    fn is_pending_as(&self, most: &str, seen: &Answer, now: Span) -> bool {
        let Answer::All(said) = seen else { return false };
        let Span { mut from, mut to } = now;
        for ((n, Pending { who, time, count }), said) in self.pending.iter().zip(said) {
            let Some((idle, _)) = numbers(said) else { return false };
            let wanted = [id(*n), text(who), Answer::Int(idle as i64), Answer::Int(*count)];
            if *said != Answer::All(wanted.to_vec()) {
                return false;
            }
            to = to.min(time.to + idle);
            // What was delivered later than now has been pending for no time.
            from = if idle > 0 { from.max(time.from + idle) } else { from };
        }
        from <= to && said.len() == self.pending.len().min(number(most) as usize)
    }
}

impl Stream {
    /// The streams after a consumer was given what it has claimed, and then new entries, if that is what was seen.
    fn claims(
        mut self,
        (key, name, who): (&str, &str, &str),
        asked: Asked,
        seen: Option<&Answer>,
    ) -> Vec<Stream> {
        let group = self.groups.get_mut(name).unwrap();
        group.consumers.insert(who.to_owned());
        let exists = |n: &u64| self.entries.contains_key(n);
        let pending = group.pending.iter().filter(|(n, _)| exists(n));
        let pool: Pool = pending.map(|(n, pending)| (*n, pending.time)).collect();
        let Some(seen) = seen else {
            let claimed = asked.sets(&pool).into_iter();
            return claimed.map(|set| self.claimed((name, who), asked, set.into_iter()).0).collect();
        };
        let said = match seen {
            Answer::Aborted => &[][..],
            seen => match entries_of(seen) {
                Some(entries) => entries,
                None => return Vec::new(),
            },
        };
        // New entries, which come last, were not delivered before.
        let old = |said: &Answer| {
            let (idle, count) = numbers(said)?;
            Some((entry_of(said)?, idle)).filter(|_| count > 0)
        };
        let claimed: Vec<(u64, u64)> = said.iter().map_while(old).collect();
        let Some(now) = asked.fits(&pool, &claimed) else { return Vec::new() };
        let ids = claimed.iter().map(|(n, _)| *n);
        let (next, found) = self.claimed((name, who), Asked { now, ..asked }, ids);
        let idle = claimed.iter().map(|(_, idle)| *idle as i64).chain(std::iter::repeat(0));
        let all = found.iter().zip(idle).map(|((n, value, count), idle)| {
            Answer::All(vec![id(*n), fields(value), Answer::Int(idle), Answer::Int(*count)])
        });
        if *seen == read_of(key, all.collect()) { vec![next] } else { Vec::new() }
    }

    /// After these were claimed and new ones delivered: and what the consumer got, with earlier deliveries.
    fn claimed(
        &self,
        (name, who): (&str, &str),
        asked: Asked,
        claimed: impl Iterator<Item = u64>,
    ) -> (Stream, Vec<(u64, String, i64)>) {
        let (mut next, mut found) = (self.clone(), Vec::new());
        let group = next.groups.get_mut(name).unwrap();
        for n in claimed {
            let pending = group.pending.get_mut(&n).unwrap();
            found.push((n, self.entries[&n].clone(), pending.count));
            *pending = Pending { who: who.to_owned(), time: asked.now, count: pending.count + 1 };
        }
        let new = self.after(group.last, asked.most - found.len());
        group.deliver(&new, who, (false, asked.now));
        found.extend(new.into_iter().map(|(n, value)| (n, value, 0)));
        (next, found)
    }
}
