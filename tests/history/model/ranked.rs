//! Sorted sets as numbers that sort as their places do, and the effect of commands on them.
//!
//! Scores are small integers. Members are named `k000` to `k998`, so that names sort as their numbers do;
//! behind these comes one that is too long for a record.

use super::commands::{int, number};
use super::values::Text;
use super::{Answer, Held, Now, State, Value};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The member that is too long for a record, and its length.
const LONG: u32 = 999;
const LENGTH: usize = 80;
/// Bits of a member's number below its score.
const BITS: u32 = 10;
const NUMBER: u32 = (1 << BITS) - 1;
/// What is added to a score, so that no negative one is stored.
const BIAS: i64 = 1 << 20;

/// The options of ZADD.
const OPTIONS: [&str; 6] = ["NX", "XX", "GT", "LT", "CH", "INCR"];

/// The name of the member that is too long for a record: a sorted set that has had it is in rows.
pub fn long() -> String {
    name(LONG)
}

/// The name of a member.
pub fn name(member: u32) -> String {
    if member == LONG { "p".repeat(LENGTH) } else { format!("k{member:03}") }
}

fn member(name: &str) -> u32 {
    match name.strip_prefix('k') {
        Some(digits) => digits.parse().unwrap(),
        None if name == long() => LONG,
        None => panic!("a member that no client adds: {name}"),
    }
}

/// A score and a member.
type Place = (i64, u32);

/// The places of members, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Ranked(Vec<u32>);

impl Ranked {
    fn places(&self) -> Vec<Place> {
        self.0.iter().map(|packed| unpacked(*packed)).collect()
    }

    fn rank(&self, member: u32) -> Option<usize> {
        self.0.iter().position(|packed| packed & NUMBER == member)
    }

    fn score(&self, member: u32) -> Option<i64> {
        self.rank(member).map(|rank| unpacked(self.0[rank]).0)
    }

    /// Gives a member a score, or removes it.
    fn set(&mut self, member: u32, score: Option<i64>) {
        if let Some(rank) = self.rank(member) {
            self.0.remove(rank);
        }
        if let Some(score) = score {
            let packed = packed((score, member));
            self.0.insert(self.0.partition_point(|other| *other < packed), packed);
        }
    }

    /// Those of the scores from `min` to `max`.
    fn between(&self, min: &str, max: &str) -> Vec<Place> {
        let end = |word: &str, inwards: i64| match word.strip_prefix('(') {
            Some(score) => number(score) + inwards,
            None => number(word),
        };
        let scores = end(min, 1)..=end(max, -1);
        self.places().into_iter().filter(|(score, _)| scores.contains(score)).collect()
    }

    /// The range that the words of ZRANGE behind the key name.
    fn range(&self, words: &[&str]) -> Vec<Place> {
        let [first, second, options @ ..] = words else { panic!("no range: {words:?}") };
        let in_order = |mut places: Vec<Place>| {
            if options.contains(&"REV") {
                places.reverse();
            }
            places
        };
        let found = match (options.contains(&"BYSCORE"), options.contains(&"REV")) {
            (true, false) => self.between(first, second),
            (true, true) => in_order(self.between(second, first)),
            (false, _) => {
                let at = |word| {
                    let n = number(word);
                    if n < 0 { n + self.0.len() as i64 } else { n }
                };
                let (start, stop) = (at(first).max(0), at(second));
                let some = (stop - start + 1).max(0) as usize;
                in_order(self.places()).into_iter().skip(start as usize).take(some).collect()
            }
        };
        match options.iter().position(|word| *word == "LIMIT") {
            Some(at) => {
                let [skipped, most] = [1, 2].map(|n| number(options[at + n]) as usize);
                found.into_iter().skip(skipped).take(most).collect()
            }
            None => found,
        }
    }
}

fn packed((score, member): Place) -> u32 {
    u32::try_from(score + BIAS).unwrap() << BITS | member
}

fn unpacked(packed: u32) -> Place {
    (i64::from(packed >> BITS) - BIAS, packed & NUMBER)
}

impl State {
    pub(super) fn apply_to_ranked(&mut self, words: &[&str], now: Now) -> Answer {
        let key = words[1];
        let before = self.ranked(key, now);
        match words {
            ["ZADD", _, words @ ..] => {
                let options = words.iter().take_while(|word| OPTIONS.contains(word)).count();
                let (options, pairs) = words.split_at(options);
                self.add(key, (options, pairs), now)
            }
            ["ZINCRBY", _, by, member] => self.add(key, (&["INCR"], &[by, member]), now),
            ["ZREM", _, members @ ..] => {
                let gone = found(&before, members);
                self.without(key, &before, &gone, now)
            }
            ["ZPOPMIN" | "ZPOPMAX", _, count @ ..] => {
                let last = count.first().map_or(0, |count| number(count) - 1).to_string();
                let range: &[&str] = &["0", &last, "REV"];
                let gone = before.range(if words[0] == "ZPOPMAX" { range } else { &range[..2] });
                self.without(key, &before, &gone, now);
                match count {
                    [] => {
                        Answer::All(gone.first().map_or(Vec::new(), |(score, member)| {
                            vec![named(*member), Answer::Score(*score)]
                        }))
                    }
                    _ => scored(&gone),
                }
            }
            ["ZREMRANGEBYRANK", _, range @ ..] => {
                let gone = before.range(range);
                self.without(key, &before, &gone, now)
            }
            ["ZREMRANGEBYSCORE", _, min, max] => {
                let gone = before.between(min, max);
                self.without(key, &before, &gone, now)
            }
            ["ZUNIONSTORE", _, "2", a, b, aggregate @ ..] => self.unite(key, [a, b], aggregate, now),
            words => read(&before, words),
        }
    }

    fn add(&mut self, key: &str, (options, pairs): (&[&str], &[&str]), now: Now) -> Answer {
        let before = self.ranked(key, now);
        let mut after = Ranked::clone(&before);
        let has = |option| options.contains(&option);
        let (mut new, mut changed, mut last) = (0, 0, None);
        for pair in pairs.chunks(2) {
            let (given, member) = (number(pair[0]), member(pair[1]));
            let old = after.score(member);
            let score = if has("INCR") { old.unwrap_or(0) + given } else { given };
            let stays = match old {
                None => has("XX"),
                Some(old) => has("NX") || has("GT") && score <= old || has("LT") && score >= old,
            };
            last = (!stays).then_some(score);
            if let Some(score) = last {
                new += usize::from(old.is_none());
                changed += usize::from(old.is_some_and(|old| old != score));
                after.set(member, Some(score));
            }
        }
        self.replace(key, &before, after, now);
        match () {
            () if has("INCR") => last.map_or(Answer::Nil, Answer::Score),
            () if has("CH") => int(new + changed),
            () => int(new),
        }
    }

    /// Removes members that a sorted set has. The answer is their number.
    fn without(&mut self, key: &str, before: &Ranked, gone: &[Place], now: Now) -> Answer {
        let mut after = before.clone();
        gone.iter().for_each(|(_, member)| after.set(*member, None));
        self.replace(key, before, after, now);
        int(gone.len())
    }

    /// ZUNIONSTORE, which replaces the key, whatever it holds.
    fn unite(&mut self, to: &str, sources: [&str; 2], aggregate: &[&str], now: Now) -> Answer {
        let mut all = Ranked::default();
        for (score, member) in sources.iter().flat_map(|key| self.ranked(key, now).places()) {
            let combined = match (all.score(member), aggregate) {
                (None, _) => score,
                (Some(other), []) => other + score,
                (Some(other), ["AGGREGATE", "MIN"]) => other.min(score),
                (Some(other), ["AGGREGATE", "MAX"]) => other.max(score),
                (Some(_), other) => panic!("the model does not know {other:?}"),
            };
            all.set(member, Some(combined));
        }
        let n = all.0.len();
        if n > 0 {
            self.put(to, Value::Ranked(Held::new(all)), None);
        } else if self.live(to, now).is_some() {
            self.remove(to);
        }
        int(n)
    }

    fn ranked(&self, key: &str, now: Now) -> Rc<Ranked> {
        match self.live(key, now).map(|e| &e.value) {
            None => Rc::default(),
            Some(Value::Ranked(ranked)) => ranked.0.clone(),
            Some(
                Value::Text(_) | Value::Members(_) | Value::Fields(_) | Value::Elements(_) | Value::Stream(_),
            ) => {
                panic!("{key} is no sorted set")
            }
        }
    }

    /// Without members, the key goes.
    fn replace(&mut self, key: &str, before: &Ranked, after: Ranked, now: Now) {
        match () {
            () if after == *before => {}
            () if after.0.is_empty() => self.remove(key),
            () => self.put(key, Value::Ranked(Held::new(after)), self.expiry(key, now)),
        }
    }
}

/// Those of the members that a sorted set has.
fn found(ranked: &Ranked, names: &[&str]) -> Vec<Place> {
    let members: BTreeSet<u32> = names.iter().map(|name| member(name)).collect();
    members.into_iter().filter_map(|member| Some((ranked.score(member)?, member))).collect()
}

/// The answer of a command that changes nothing.
fn read(ranked: &Ranked, words: &[&str]) -> Answer {
    let score = |name: &str| ranked.score(member(name)).map_or(Answer::Nil, Answer::Score);
    match words {
        ["ZCARD", _] => int(ranked.0.len()),
        ["ZSCORE", _, name] => score(name),
        ["ZMSCORE", _, names @ ..] => Answer::All(names.iter().map(|name| score(name)).collect()),
        ["ZRANK" | "ZREVRANK", _, name, with_score @ ..] => {
            let member = member(name);
            let (rank, score) = match ranked.rank(member) {
                Some(rank) => (rank, score(name)),
                None if with_score.is_empty() => return Answer::Nil,
                None => return Answer::Aborted,
            };
            let rank = int(if words[0] == "ZREVRANK" { ranked.0.len() - 1 - rank } else { rank });
            if with_score.is_empty() { rank } else { Answer::All(vec![rank, score]) }
        }
        ["ZCOUNT", _, min, max] => int(ranked.between(min, max).len()),
        ["ZRANGE", _, range @ ..] => {
            let found = ranked.range(range);
            match range.contains(&"WITHSCORES") {
                true => scored(&found),
                false => Answer::All(found.iter().map(|(_, member)| named(*member)).collect()),
            }
        }
        other => panic!("the model does not know {other:?}"),
    }
}

fn named(member: u32) -> Answer {
    Answer::text(&Text::of(name(member).as_bytes()))
}

fn scored(places: &[Place]) -> Answer {
    Answer::scored(places.iter().map(|(score, member)| (name(*member), *score)).collect())
}
