//! Glob patterns, as Redis' `stringmatchlen` reads them: KEYS, SCAN, CONFIG GET, COMMAND LIST, PSUBSCRIBE.
//!
//! `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^a]`, `\x` the byte x. Its corners are part of the contract:
//! * bytes of a range compare as signed, and without case a range is ordered before it is lowered: `[Z-a]` is empty;
//! * `\` inside a class keeps the case; a class that is not closed ends with the pattern, so `[^` is any byte;
//! * a pattern that is not empty never matches the empty text, not even `*` (callers that list keys ask
//!   [`matches_all`] first).
//!
//! Every element but `*` takes exactly one byte, so only the last `*` is ever taken back: time is at most
//! text times pattern, also for `a*a*a*b`.

/// Whether `pattern` matches all of `text`; `nocase` ignores the case of ASCII letters.
pub fn matches(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut pat, mut rest) = (pattern, text);
    let mut star: Option<(&[u8], &[u8])> = None;
    while let Some((&byte, tail)) = rest.split_first() {
        if let [b'*', ..] = pat {
            pat = skip_stars(pat);
            if pat.is_empty() {
                return true;
            }
            star = Some((pat, rest));
            continue;
        }
        if let Some(next) = element(pat, byte, nocase) {
            (pat, rest) = (next, tail);
            continue;
        }
        let Some((after, [_, later @ ..])) = star else { return false };
        (pat, rest) = (after, later);
        star = Some((after, later));
    }
    skip_stars(pat).is_empty()
}

/// Whether the pattern is a single `*`: every key, the empty one too.
pub fn matches_all(pattern: &[u8]) -> bool {
    pattern == b"*"
}

fn skip_stars(mut pat: &[u8]) -> &[u8] {
    while let [b'*', tail @ ..] = pat {
        pat = tail;
    }
    pat
}

/// Matches one byte against the first element; the pattern behind it where it matches.
fn element(pat: &[u8], byte: u8, nocase: bool) -> Option<&[u8]> {
    let (literal, next) = match pat {
        [] => return None,
        [b'?', next @ ..] => return Some(next),
        [b'[', class @ ..] => {
            let (hit, next) = self::class(class, byte, nocase);
            return hit.then_some(next);
        }
        [b'\\', escaped, next @ ..] => (*escaped, next),
        [literal, next @ ..] => (*literal, next),
    };
    same(literal, byte, nocase).then_some(next)
}

/// Reads a class behind its `[`: whether `byte` is in it, and what follows its `]`.
fn class(pat: &[u8], byte: u8, nocase: bool) -> (bool, &[u8]) {
    let (negated, mut pat) = match pat {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut hit = false;
    loop {
        let (this, next) = match pat {
            [] => return (hit != negated, pat),
            [b'\\', escaped, next @ ..] => (*escaped == byte, next),
            [b']', next @ ..] => return (hit != negated, next),
            [from, b'-', to, next @ ..] => (in_range(*from, *to, byte, nocase), next),
            [literal, next @ ..] => (same(*literal, byte, nocase), next),
        };
        hit |= this;
        pat = next;
    }
}

fn in_range(a: u8, b: u8, byte: u8, nocase: bool) -> bool {
    let (low, high) = if a as i8 > b as i8 { (b, a) } else { (a, b) };
    let signed = |c: u8| (if nocase { c.to_ascii_lowercase() } else { c }) as i8;
    (signed(low)..=signed(high)).contains(&signed(byte))
}

fn same(a: u8, b: u8, nocase: bool) -> bool {
    a == b || (nocase && a.eq_ignore_ascii_case(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The recursive definition, without the short cut: exponential, but plain.
    fn reference(pat: &[u8], text: &[u8]) -> bool {
        match (pat, text) {
            ([], []) => true,
            ([b'*', p @ ..], _) => reference(p, text) || (!text.is_empty() && reference(pat, &text[1..])),
            (_, []) | ([], _) => false,
            (_, [byte, rest @ ..]) => element(pat, *byte, false).is_some_and(|next| reference(next, rest)),
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
            assert!(matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
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
            assert!(!matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
    }

    #[test]
    fn case() {
        assert!(matches(b"hELLo", b"HellO", true));
        assert!(matches(b"[A-C]", b"b", true));
        assert!(!matches(b"[Z-a]", b"z", true));
        assert!(!matches(b"[\\A]", b"a", true));
    }

    #[test]
    fn bytes_above_127_are_negative() {
        assert!(matches(b"[\xff-\x01]", b"\x00", false));
        assert!(!matches(b"[\x01-\xff]", b"\x7f", false));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"a*".repeat(2_000);
        let text = vec![b'a'; 20_000];
        assert!(!matches(&[pattern.clone(), b"b".to_vec()].concat(), &text, false));
        assert!(matches(&pattern, &text, false));
    }

    proptest! {
        #[test]
        fn agrees_with_the_recursive_definition(pattern in "[ab*?\\[\\]^\\\\-]{0,10}", text in "[ab\\]\\\\-]{1,8}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text, false), reference(pattern, text));
        }
    }
}
