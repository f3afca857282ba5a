//! Glob patterns, as Redis' `stringmatchlen` reads them: KEYS, SCAN, CONFIG GET, COMMAND LIST, PSUBSCRIBE, rules of users.
//!
//! `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^a]`, `\x` the byte x. Its corners are part of the contract:
//! * bytes of a range compare as signed, and without case a range is ordered before it is lowered: `[Z-a]` is empty;
//! * `\` inside a class keeps the case; a class that is not closed ends with the pattern, so `[^` is any byte;
//! * a pattern that is not empty never matches the empty text, not even `*` (callers that list keys ask
//!   [`matches_all`] first).
//!
//! A pattern is read once ([`Glob`]): runs of bytes, of `?`, of `*`, and classes as sets of 256 bits. So what a text costs does not
//! depend on how long a class is. Every part but `*` takes a fixed number of bytes, so only the last `*` is ever taken back: a text
//! costs at most its length times the longest stretch without `*`, also for `a*a*a*b`, and no stretch is longer than the text.
//!
//! Both reading and matching count their steps, and pause between them ([`Pace`]): a pattern of megabytes, or a text, holds nobody.
//!
//! Redis gives up after 1000 stars and says that nothing matches; here all of them count.

mod read;

use super::pace::Pace;
use read::{ByteSet, Reader};

/// Literal bytes that are compared in one step.
const AT_ONCE: usize = 16;
/// Parts of a pattern at most. One for texts of 100 kB, as members have at most, cannot need more.
const MOST_PARTS: usize = 1 << 18;

/// Whether the pattern is a single `*`: every key, the empty one too.
pub fn matches_all(pattern: &[u8]) -> bool {
    pattern == b"*"
}

/// Whether letters of both cases are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    Exact,
    /// ASCII letters are.
    Ignored,
}

/// A part of a pattern. Small, because a pattern may have a part for each of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Bytes of [`Glob::literals`]: from this one on, so many.
    Literal(u32, u32),
    /// So many bytes, whatever they are.
    Any(u32),
    /// One byte of a set, by its place in [`Glob::classes`].
    Class(u32),
    /// Any number of bytes.
    Star,
}

/// A pattern that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    case: Case,
    parts: Vec<Part>,
    /// Lower case where case is ignored.
    literals: Vec<u8>,
    classes: Vec<ByteSet>,
    /// Bytes of the shortest text that matches, and whether longer ones may. Where that is more than `longest`, reading ended there.
    least: usize,
    grows: bool,
    /// Bytes of the longest text that is asked about.
    longest: usize,
}

impl Glob {
    /// Reads a pattern in one go: for short ones. Texts have `longest` bytes at most.
    pub fn new(pattern: &[u8], case: Case, longest: usize) -> Self {
        let mut reader = Reader::new(pattern, case, longest);
        let mut steps = usize::MAX;
        reader.go_on(&mut steps);
        reader.glob
    }

    /// Reads a pattern for texts of `longest` bytes at most.
    pub async fn read(pattern: &[u8], case: Case, longest: usize, pace: &mut Pace) -> Self {
        let mut reader = Reader::new(pattern, case, longest);
        while !reader.go_on(pace.left()) {
            pace.pause().await;
        }
        reader.glob
    }

    /// Whether it matches all of `text`.
    pub async fn matches(&self, text: &[u8], pace: &mut Pace) -> bool {
        let mut matching = Matching::new(self, text);
        loop {
            match matching.go_on(pace.left()) {
                Some(matches) => return matches,
                None => pace.pause().await,
            }
        }
    }

    /// Whether it matches all of `text`, and that is known after `steps`.
    pub fn matches_within(&self, text: &[u8], mut steps: usize) -> bool {
        Matching::new(self, text).go_on(&mut steps) == Some(true)
    }

    /// Whether all of the pattern counts. One of more than a quarter of a million parts is cut, and matches nothing; that takes a text
    /// longer than keys and members are.
    pub fn is_whole(&self) -> bool {
        self.parts.len() <= MOST_PARTS
    }

    fn fits(&self, len: usize) -> bool {
        // Not even `*` matches the empty text.
        let exactly = len == self.least && (len > 0 || self.parts.is_empty());
        len <= self.longest && self.is_whole() && (exactly || self.grows && len > self.least)
    }
}

/// A text that is being matched.
struct Matching<'g> {
    glob: &'g Glob,
    text: &'g [u8],
    /// What comes next.
    next: Place,
    /// The part behind the last star, where it was tried last.
    star: Option<Place>,
}

/// Where a part is tried.
#[derive(Clone, Copy)]
struct Place {
    part: usize,
    at: usize,
    /// Bytes that this part and those behind it take at least.
    needs: usize,
}

impl<'g> Matching<'g> {
    fn new(glob: &'g Glob, text: &'g [u8]) -> Self {
        Matching { glob, text, next: Place { part: 0, at: 0, needs: glob.least }, star: None }
    }

    /// Goes on for about so many steps. Returns whether it matches; None where that is not known yet.
    fn go_on(&mut self, steps: &mut usize) -> Option<bool> {
        if !self.glob.fits(self.text.len()) {
            return Some(false);
        }
        while *steps > 0 {
            let Place { part, at, needs } = self.next;
            let rest = self.text.get(at..).unwrap_or_default();
            let (taken, cost) = match self.glob.parts.get(part) {
                None if rest.is_empty() => return Some(true),
                None => (None, 1),
                Some(Part::Star) if part + 1 == self.glob.parts.len() => return Some(true),
                Some(Part::Star) => {
                    self.next.part += 1;
                    self.star = Some(self.next);
                    continue;
                }
                Some(Part::Any(n)) => (Some(*n as usize).filter(|n| *n <= rest.len()), 1),
                Some(Part::Class(n)) => (self.class(*n as usize, rest).then_some(1), 1),
                Some(Part::Literal(from, len)) => {
                    let literals = self.glob.literals.get(*from as usize..).unwrap_or_default();
                    let literal = literals.get(..*len as usize).unwrap_or_default();
                    (self.begins(rest, literal).then_some(literal.len()), 1 + literal.len() / AT_ONCE)
                }
            };
            *steps = steps.saturating_sub(cost);
            self.next = match (taken, &mut self.star) {
                (Some(n), _) => Place { part: part + 1, at: at + n, needs: needs.saturating_sub(n) },
                (None, Some(star)) if star.at + star.needs < self.text.len() => {
                    star.at += 1;
                    *star
                }
                (None, _) => return Some(false),
            };
        }
        None
    }

    fn class(&self, n: usize, rest: &[u8]) -> bool {
        let class = self.glob.classes.get(n);
        rest.first().zip(class).is_some_and(|(byte, class)| class.has(*byte))
    }

    fn begins(&self, rest: &[u8], literal: &[u8]) -> bool {
        let Some(first) = rest.get(..literal.len()) else { return false };
        match self.glob.case {
            Case::Exact => first == literal,
            Case::Ignored => first.eq_ignore_ascii_case(literal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
        Glob::new(pattern, case, usize::MAX).matches_within(text, usize::MAX)
    }

    /// The definition as Redis documents it, read from the text of the pattern again for each byte: exponential, but plain.
    fn reference(pat: &[u8], text: &[u8], case: Case) -> bool {
        if text.is_empty() && !pat.is_empty() {
            return false;
        }
        by_definition(pat, text, case)
    }

    fn by_definition(pat: &[u8], text: &[u8], case: Case) -> bool {
        let same = |a: u8, b: u8| a == b || case == Case::Ignored && a.eq_ignore_ascii_case(&b);
        match (pat, text) {
            ([], []) => true,
            ([b'*', p @ ..], _) => {
                by_definition(p, text, case) || !text.is_empty() && by_definition(pat, &text[1..], case)
            }
            (_, []) | ([], _) => false,
            ([b'?', p @ ..], [_, rest @ ..]) => by_definition(p, rest, case),
            ([b'[', p @ ..], [byte, rest @ ..]) => {
                let (negated, p) = if p.first() == Some(&b'^') { (true, &p[1..]) } else { (false, p) };
                let (hit, p) = class(p, *byte, case);
                hit != negated && by_definition(p, rest, case)
            }
            ([b'\\', escaped, p @ ..], [byte, rest @ ..]) => {
                same(*escaped, *byte) && by_definition(p, rest, case)
            }
            ([literal, p @ ..], [byte, rest @ ..]) => same(*literal, *byte) && by_definition(p, rest, case),
        }
    }

    fn class(mut pat: &[u8], byte: u8, case: Case) -> (bool, &[u8]) {
        let lower = |c: u8| if case == Case::Ignored { c.to_ascii_lowercase() } else { c };
        let mut hit = false;
        loop {
            let this;
            (this, pat) = match pat {
                [] => return (hit, pat),
                [b'\\', escaped, next @ ..] => (*escaped == byte, next),
                [b']', next @ ..] => return (hit, next),
                [a, b'-', b, next @ ..] => {
                    let (low, high) = if *a as i8 > *b as i8 { (*b, *a) } else { (*a, *b) };
                    let byte = lower(byte) as i8;
                    (lower(low) as i8 <= byte && byte <= lower(high) as i8, next)
                }
                [literal, next @ ..] => (lower(*literal) == lower(byte), next),
            };
            hit |= this;
        }
    }

    #[test]
    fn examples() {
        for (pattern, text) in [
            ("", ""),
            ("a", "a"),
            ("?", "x"),
            ("*", "x"),
            ("a*", "a"),
            ("a**", "a"),
            ("*b*", "abc"),
            ("h[ae]llo", "hello"),
            ("h[^e]llo", "hallo"),
            ("h[b-a]llo", "hallo"),
            ("[^", "x"),
            ("[^]", "x"),
            ("[a", "a"),
            ("[a-", "-"),
            ("[\\]]", "]"),
            ("\\*", "*"),
            ("\\", "\\"),
            ("*\\", "a\\"),
            ("a-c", "a-c"),
            ("[a-]-]", "^"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes(), Case::Exact), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("*", ""),
            ("?", ""),
            ("a", "A"),
            ("[]", "a"),
            ("[]a]", "a"),
            ("[", "["),
            ("a?", "a"),
            ("*a", "b"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes(), Case::Exact), "{pattern} {text}");
        }
    }

    #[test]
    fn case() {
        assert!(matches(b"hELLo", b"HellO", Case::Ignored));
        assert!(matches(b"[A-C]", b"b", Case::Ignored));
        assert!(!matches(b"[Z-a]", b"z", Case::Ignored));
        assert!(!matches(b"[\\A]", b"a", Case::Ignored));
    }

    #[test]
    fn bytes_above_127_are_negative() {
        assert!(matches(b"[\xff-\x01]", b"\x00", Case::Exact));
        assert!(!matches(b"[\x01-\xff]", b"\x7f", Case::Exact));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"a*".repeat(2_000);
        let text = vec![b'a'; 20_000];
        assert!(!matches(&[pattern.clone(), b"b".to_vec()].concat(), &text, Case::Exact));
        assert!(matches(&pattern, &text, Case::Exact));
    }

    /// A pattern may have no part that the text has no byte for, so the text bounds what is kept of it, and what a step can cost.
    #[test]
    fn what_no_text_can_have_is_not_read() {
        let glob = Glob::new(&b"?a[xy]".repeat(1 << 20), Case::Exact, 8192);
        assert!(glob.parts.len() <= 8193 && glob.classes.len() <= 8193);
        assert!(!glob.matches_within(&b"zax".repeat(8192 / 3), usize::MAX));
        let never = Glob::new(&b"?a".repeat(MOST_PARTS), Case::Exact, usize::MAX);
        assert!(!never.is_whole() && never.parts.len() < MOST_PARTS + 3);
        assert!(Glob::new(&b"a".repeat(MOST_PARTS * 2), Case::Exact, usize::MAX).is_whole());
    }

    #[test]
    fn a_long_class_costs_a_text_one_step() {
        let class = [&b"*["[..], &b"b-cd\\e".repeat(1 << 18), b"]*x"].concat();
        let glob = Glob::new(&class, Case::Exact, usize::MAX);
        let text = [&b"a".repeat(1000)[..], b"ex"].concat();
        assert!(glob.matches_within(&text, 4000));
        assert!(!glob.matches_within(&text, 100), "too few steps: not known");
    }

    /// 100 kB, as a member may have, against the worst pattern for it.
    #[test]
    fn steps_are_the_text_times_the_longest_stretch() {
        let pattern = [b"*", &b"?".repeat(3)[..], &b"[ab]".repeat(500), b"c"].concat();
        let glob = Glob::new(&pattern, Case::Exact, usize::MAX);
        let text = b"a".repeat(2000);
        let mut steps = usize::MAX;
        assert_eq!(Matching::new(&glob, &text).go_on(&mut steps), Some(false));
        assert!(usize::MAX - steps <= (2000 - 503) * 504, "{}", usize::MAX - steps);
    }

    #[tokio::test]
    async fn long_work_pauses() {
        let mut pace = Pace::default();
        let others = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let turns = others.clone();
        let other = tokio::spawn(async move {
            loop {
                turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let seen = || others.load(std::sync::atomic::Ordering::Relaxed);
        let pattern = [b"*", &b"[a-c]".repeat(1 << 12)[..], b"d"].concat();
        let glob = Glob::read(&pattern, Case::Exact, usize::MAX, &mut pace).await;
        let reading = seen();
        assert!(reading >= 2, "{reading} turns");
        assert!(!glob.matches(&b"a".repeat((1 << 12) + 200), &mut pace).await);
        assert!(seen() >= reading + 10, "{} turns", seen() - reading);
        other.abort();
    }

    fn bytes_of(alphabet: &'static [u8], most: usize) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(proptest::sample::select(alphabet), 0..most)
    }

    const OF_PATTERNS: &[u8] = b"abBZz0*?[]^\\-\0\x7f\x80\xff";
    const OF_TEXTS: &[u8] = b"abBZz0]^\\-*\0\x7f\x80\xff";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn agrees_with_the_definition(
            pattern in bytes_of(OF_PATTERNS, 12),
            text in bytes_of(OF_TEXTS, 9),
            nocase: bool,
            steps in 1..5_usize,
        ) {
            let case = if nocase { Case::Ignored } else { Case::Exact };
            let wanted = reference(&pattern, &text, case);
            prop_assert_eq!(matches(&pattern, &text, case), wanted);
            // For texts of this length only, and in pieces.
            let mut reader = Reader::new(&pattern, case, text.len());
            while !reader.go_on(&mut steps.clone()) {}
            let mut matching = Matching::new(&reader.glob, &text);
            let answer = loop {
                if let Some(answer) = matching.go_on(&mut steps.clone()) {
                    break answer;
                }
            };
            prop_assert_eq!(answer, wanted);
        }

        #[test]
        fn any_byte_of_any_range(a: u8, b: u8, byte: u8, nocase: bool, negated: bool) {
            let case = if nocase { Case::Ignored } else { Case::Exact };
            let pattern = if negated { vec![b'[', b'^', a, b'-', b] } else { vec![b'[', a, b'-', b] };
            prop_assert_eq!(matches(&pattern, &[byte], case), reference(&pattern, &[byte], case));
        }
    }
}
