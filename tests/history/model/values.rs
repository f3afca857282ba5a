//! Values in the model, small enough that a search may keep thousands of states: members as bits, long
//! strings as runs.
//!
//! Words of commands are equally short. `i<n>+<count>` stands for that many integers, each of which fills a
//! container of its own, so that a few hundred of them are a chunk; `~<letter><count>` for a letter repeated
//! that often, so that a few words are pieces of a string.

use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// The first bit and the number of the members that are named by a letter, and of the integers.
const NAMES: [(char, usize, usize); 2] = [('x', 0, 16), ('m', 16, 1008)];
const INTEGERS: usize = 1024;
/// Integer `n` is `n << CONTAINER`.
const CONTAINER: u32 = 16;
/// Longer replies, in bytes, are compared as runs.
const SHORT: usize = 64;

/// A member's bit among all that a history may have.
fn place(name: &str) -> usize {
    if let Ok(integer) = name.parse::<usize>() {
        assert_eq!(integer % (1 << CONTAINER), 0, "a member that no client adds: {name}");
        return INTEGERS + (integer >> CONTAINER);
    }
    let found = NAMES.iter().find_map(|(letter, from, most)| {
        let n: usize = name.strip_prefix(*letter)?.parse().ok()?;
        (n < *most).then_some(from + n)
    });
    found.unwrap_or_else(|| panic!("a member that no client adds: {name}"))
}

fn name(place: usize) -> String {
    if place >= INTEGERS {
        return ((place - INTEGERS) << CONTAINER).to_string();
    }
    let (letter, from, _) = NAMES.iter().rfind(|(_, from, _)| *from <= place).unwrap();
    format!("{letter}{}", place - from)
}

/// The first integer and the number of integers of a word that stands for several.
fn integers(word: &str) -> Option<(usize, usize)> {
    let (first, count) = word.strip_prefix('i')?.split_once('+')?;
    Some((first.parse().ok()?, count.parse().ok()?))
}

/// The arguments sent for a word.
pub fn sent(word: &str) -> Vec<Vec<u8>> {
    if let Some((first, count)) = integers(word) {
        return (first..first + count).map(|n| (n << CONTAINER).to_string().into_bytes()).collect();
    }
    match Text::of_word(word) {
        Some(text) => vec![text.bytes()],
        None => vec![word.as_bytes().to_vec()],
    }
}

/// A set's members, one bit each, without zeroes at the end.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Members(Vec<u64>);

impl Members {
    /// The members of words, as [`sent`] sends them.
    pub fn of<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let mut members = Members::default();
        for place in words.into_iter().flat_map(places) {
            members.set(place, true);
        }
        members
    }

    fn set(&mut self, place: usize, there: bool) {
        let (at, bit) = (place / 64, 1 << (place % 64));
        if there {
            self.0.resize(self.0.len().max(at + 1), 0);
            self.0[at] |= bit;
        } else if let Some(word) = self.0.get_mut(at) {
            *word &= !bit;
            self.trim();
        }
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn has(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word & 1 << (place % 64) != 0)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.has(place(name))
    }

    /// For each member of a word whether it is in the set.
    pub fn which(&self, word: &str) -> Vec<bool> {
        places(word).into_iter().map(|place| self.has(place)).collect()
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn names(&self) -> Vec<String> {
        (0..self.0.len() * 64).filter(|place| self.has(*place)).map(name).collect()
    }

    pub fn union(&self, other: &Self) -> Self {
        self.with(other, |a, b| a | b)
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & b)
    }

    pub fn difference(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & !b)
    }

    fn with(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        let word = |set: &Self, at: usize| set.0.get(at).copied().unwrap_or(0);
        let words = (0..self.0.len().max(other.0.len())).map(|at| combine(word(self, at), word(other, at)));
        let mut members = Members(words.collect());
        members.trim();
        members
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

fn places(word: &str) -> Vec<usize> {
    match integers(word) {
        Some((first, count)) => (INTEGERS + first..INTEGERS + first + count).collect(),
        None => vec![place(word)],
    }
}

/// A string as runs of equal bytes; neighbouring runs differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Text(Vec<(u8, usize)>);

impl Text {
    /// The text of a word, as [`sent`] sends it.
    pub fn new(word: &str) -> Self {
        Self::of_word(word).unwrap_or_else(|| Self::of(word.as_bytes()))
    }

    fn of_word(word: &str) -> Option<Self> {
        let (letter, count) = word.strip_prefix('~')?.split_at_checked(1)?;
        let mut text = Text::default();
        text.push(letter.as_bytes()[0], count.parse().ok()?);
        Some(text)
    }

    pub fn of(bytes: &[u8]) -> Self {
        let mut text = Text::default();
        bytes.chunk_by(|a, b| a == b).for_each(|run| text.push(run[0], run.len()));
        text
    }

    fn push(&mut self, byte: u8, n: usize) {
        match self.0.last_mut() {
            _ if n == 0 => {}
            Some((last, run)) if *last == byte => *run += n,
            _ => self.0.push((byte, n)),
        }
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, n)| n).sum()
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|(byte, n)| std::iter::repeat_n(*byte, *n)).collect()
    }

    /// The bytes from `from` up to `to`, as far as they exist.
    pub fn range(&self, from: usize, to: usize) -> Self {
        let (mut at, mut part) = (0, Text::default());
        for (byte, n) in &self.0 {
            part.push(*byte, to.min(at + n).saturating_sub(from.max(at)));
            at += n;
        }
        part
    }

    /// With `patch` at `offset`, after zeroes where it was shorter. An empty patch changes nothing.
    pub fn patched(&self, offset: usize, patch: &Self) -> Self {
        if patch.0.is_empty() {
            return self.clone();
        }
        let mut text = self.range(0, offset);
        text.push(0, offset.saturating_sub(self.len()));
        let behind = self.range(offset + patch.len(), self.len());
        patch.0.iter().chain(&behind.0).for_each(|(byte, n)| text.push(*byte, *n));
        text
    }

    /// Combined bit by bit, as long as the longer one; the shorter one continues with zeroes.
    pub fn combined(&self, other: &Self, combine: fn(u8, u8) -> u8) -> Self {
        let (mut text, mut at) = (Text::default(), 0);
        let (ours, theirs) = (self.ends(), other.ends());
        let byte =
            |runs: &[(usize, u8)], at| runs.iter().find(|(end, _)| *end > at).map_or(0, |(_, byte)| *byte);
        let mut borders: Vec<usize> = ours.iter().chain(&theirs).map(|(end, _)| *end).collect();
        borders.sort_unstable();
        for end in borders {
            text.push(combine(byte(&ours, at), byte(&theirs, at)), end - at);
            at = end;
        }
        text
    }

    /// The end of each run, and its byte.
    fn ends(&self) -> Vec<(usize, u8)> {
        let mut end = 0;
        let run = |(byte, n): &(u8, usize)| {
            end += n;
            (end, *byte)
        };
        self.0.iter().map(run).collect()
    }

    /// The reply of DIGEST.
    pub fn digest(&self) -> String {
        format!("{:016x}", xxh3_64(&self.bytes()))
    }

    pub fn number(&self) -> i64 {
        String::from_utf8(self.bytes()).unwrap().parse().unwrap()
    }

    /// For messages and comparisons: a long text as its runs.
    pub fn shown(&self) -> String {
        if self.len() <= SHORT {
            return String::from_utf8_lossy(&self.bytes()).into_owned();
        }
        self.0.iter().map(|(byte, n)| format!("{byte:02x}*{n} ")).collect()
    }
}
