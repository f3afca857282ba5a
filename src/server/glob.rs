//! Glob patterns, as Redis' `stringmatchlen` reads them: KEYS, SCAN, CONFIG GET, COMMAND LIST, PSUBSCRIBE,
//! ACL rules.
//!
//! `*` matches any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^a]` one byte of a class, `\x` the byte x. The
//! corner cases are part of the contract:
//!
//! * Ranges compare bytes as signed; when case is ignored, a range is ordered before it is converted to lower
//!   case, so `[Z-a]` is empty.
//! * `\` inside a class keeps the case. An unclosed class ends with the pattern, so `[^` matches any byte.
//! * A non-empty pattern never matches the empty text, not even `*` (callers that list keys call
//!   [`matches_all`] first).
//!
//! A pattern is parsed once ([`Glob`]) into runs of literal bytes, of `?`, of `*`, and classes as sets of 256
//! bits, so the cost of a match does not depend on the length of a class. Every part except `*` takes a fixed
//! number of bytes, so matching only ever backtracks to the last `*`: a match costs at most the length of the
//! text times the longest stretch without `*`, even for `a*a*a*b`, and no stretch is longer than the text.
//!
//! Parsing and matching count their steps and pause between them ([`Pace`]), so a pattern or text of
//! megabytes blocks nobody.
//!
//! Redis gives up after 1000 stars and reports no match; Tern has no such limit.

mod read;

use super::pace::Pace;
use read::{ByteSet, Reader};

/// Literal bytes compared per step.
const AT_ONCE: usize = 16;
/// The most parts of a pattern. A pattern for texts of 100 kB, the longest that members have, cannot need
/// more.
const MOST_PARTS: usize = 1 << 18;

/// Whether the pattern is a single `*`, which matches every key, even the empty one.
pub(crate) fn matches_all(pattern: &[u8]) -> bool {
    pattern == b"*"
}

/// Whether matching ignores case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Case matters.
    Exact,
    /// ASCII letters match in either case.
    Ignored,
}

/// A part of a pattern. Small, because a pattern may have one for each of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Bytes of [`Glob::literals`]: the first, and the number of bytes.
    Literal(u32, u32),
    /// This number of arbitrary bytes.
    Any(u32),
    /// One byte of a class, by its index in [`Glob::classes`].
    Class(u32),
    /// Any number of bytes.
    Star,
}

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    case: Case,
    parts: Vec<Part>,
    /// In lower case if case is ignored.
    literals: Vec<u8>,
    classes: Vec<ByteSet>,
    /// Length of the shortest text that matches, and whether longer ones may. If the length exceeds
    /// `longest`, parsing stopped there.
    least: usize,
    grows: bool,
    /// Length of the longest text to be matched.
    longest: usize,
}

impl Glob {
    /// Parses a short pattern without pausing. Texts have at most `longest` bytes.
    pub fn new(pattern: &[u8], case: Case, longest: usize) -> Self {
        let mut reader = Reader::new(pattern, case, longest);
        let mut steps = usize::MAX;
        reader.go_on(&mut steps);
        reader.glob
    }

    /// Parses a pattern for texts of at most `longest` bytes.
    pub(crate) async fn read(pattern: &[u8], case: Case, longest: usize, pace: &mut Pace) -> Self {
        let mut reader = Reader::new(pattern, case, longest);
        while !reader.go_on(pace.left()) {
            pace.pause().await;
        }
        reader.glob
    }

    /// Whether the pattern matches all of `text`.
    pub(crate) async fn matches(&self, text: &[u8], pace: &mut Pace) -> bool {
        let mut matching = Matching::new(self, text);
        loop {
            match matching.go_on(pace.left()) {
                Some(matches) => return matches,
                None => pace.pause().await,
            }
        }
    }

    /// Whether the pattern matches all of `text` and this is known within `steps`.
    pub fn matches_within(&self, text: &[u8], mut steps: usize) -> bool {
        Matching::new(self, text).go_on(&mut steps) == Some(true)
    }

    /// Whether the whole pattern was parsed. A pattern of more than a quarter of a million parts is cut and
    /// matches nothing; only a text longer than any key or member could match it.
    pub(crate) fn is_whole(&self) -> bool {
        self.parts.len() <= MOST_PARTS
    }

    fn fits(&self, len: usize) -> bool {
        // Not even `*` matches the empty text.
        let exactly = len == self.least && (len > 0 || self.parts.is_empty());
        len <= self.longest && self.is_whole() && (exactly || self.grows && len > self.least)
    }
}

/// A match in progress.
struct Matching<'g> {
    glob: &'g Glob,
    text: &'g [u8],
    /// The next position.
    next: Place,
    /// The part after the last star, and where it was last tried.
    star: Option<Place>,
}

/// A position: a part, and where in the text to try it.
#[derive(Clone, Copy)]
struct Place {
    part: usize,
    at: usize,
    /// The least number of bytes that this part and the later ones take.
    needs: usize,
}

impl<'g> Matching<'g> {
    fn new(glob: &'g Glob, text: &'g [u8]) -> Self {
        Matching { glob, text, next: Place { part: 0, at: 0, needs: glob.least }, star: None }
    }

    /// Continues for about `steps` steps. Returns whether the pattern matches; None if that is not known yet.
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

    /// The definition as documented by Redis, parsing the pattern again for each byte: exponential, but
    /// simple.
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

    /// A pattern cannot have a part for which the text has no byte, so the text bounds the memory of the
    /// pattern and the cost of a step.
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

    /// 100 kB, the longest member, against the worst pattern for it.
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
            // Only for texts of this length, and in pieces.
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
