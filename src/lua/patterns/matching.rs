//! The matcher: what `match` of lstrlib.c does, without its recursion.
//!
//! Where C calls itself to try the rest of a pattern, this notes how to go on if the rest does not match. A
//! pattern has no loops but those of single characters, so there is at most one note for each of its items.
//! The native stack does not grow, and the heap only with the pattern.
//!
//! Every loop charges its steps. What is charged for stands in a fixed proportion to the time that it takes,
//! also where one step goes through many bytes: a set, a captured text.

/// Captures that a pattern may have.
const MOST_CAPTURES: usize = 32;
/// Notes that a match may need: 2 MB. C would recurse as deep.
const MOST_NOTES: usize = 1 << 16;
/// Steps of which one character costs a part: going through a run of them is faster than a step.
const CHARACTERS_A_STEP: usize = 4;
/// Bytes that are compared or searched in the time of a step.
const BYTES_A_STEP: usize = 64;
/// Characters between two charges.
const BLOCK: usize = 4096;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The pattern is wrong. Only parts that were reached are looked at, as in C.
    Message(&'static str),
    /// The script must end.
    Over,
}

/// What steps are charged to. `Err`: the script must end.
pub(super) trait Steps {
    /// Takes the steps from those left until the next look.
    fn charge(&mut self, steps: usize) -> Result<(), Fault>;
}

/// A captured text or position; positions count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Captured<'a> {
    Text(&'a [u8]),
    Position(usize),
}

/// What was matched, as offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) from: usize,
    pub(super) to: usize,
}

#[derive(Clone, Copy)]
enum Extent {
    Open,
    Position,
    Length(usize),
}

#[derive(Clone, Copy)]
struct Capture {
    from: usize,
    extent: Extent,
}

/// How to go on when the rest of the pattern did not match.
enum Note {
    /// Of a greedy run: try the rest at `item` one character earlier, but not before `least`.
    Shorter { at: usize, least: usize, item: usize },
    /// Of a lazy run: take one more character of the item that goes from `item` to `end`.
    Longer { at: usize, item: usize, end: usize },
    /// Leave out an optional character.
    Without { at: usize, item: usize },
    /// Forget the last capture.
    Opened,
    /// Open this capture again.
    Closed(usize),
}

/// Where a match is: an offset in the text, and one in the pattern.
struct Place {
    at: usize,
    item: usize,
}

enum Progress {
    Next(Place),
    Failed,
    Ended(usize),
}

fn next(at: usize, item: usize) -> Result<Progress, Fault> {
    Ok(Progress::Next(Place { at, item }))
}

/// What a character is held against.
#[derive(Clone, Copy)]
enum Single<'a> {
    Any,
    Byte(u8),
    Class(u8),
    Set(Set<'a>),
}

impl Single<'_> {
    fn holds(self, byte: u8) -> bool {
        match self {
            Single::Any => true,
            Single::Byte(one) => one == byte,
            Single::Class(class) => is_in_class(byte, class),
            Single::Set(set) => set.holds(byte),
        }
    }

    /// How many times as long it takes as other characters do.
    fn cost(self) -> usize {
        match self {
            Single::Any | Single::Byte(_) | Single::Class(_) => 1,
            Single::Set(set) => 1 + set.members.len() / 4,
        }
    }
}

/// What stands between `[` or `[^` and `]`.
#[derive(Clone, Copy)]
struct Set<'a> {
    members: &'a [u8],
    is_negated: bool,
}

impl Set<'_> {
    fn holds(self, byte: u8) -> bool {
        let mut rest = self.members;
        loop {
            let (is_member, after) = match rest {
                [] => return self.is_negated,
                [b'%', class, after @ ..] => (is_in_class(byte, *class), after),
                // In `[a-%%]` the escape has lost its character to a range: C then reads the bracket.
                [b'%'] => (is_in_class(byte, b']'), &[][..]),
                [low, b'-', high, after @ ..] => ((*low..=*high).contains(&byte), after),
                [one, after @ ..] => (*one == byte, after),
            };
            if is_member {
                return !self.is_negated;
            }
            rest = after;
        }
    }
}

/// Classes of ASCII, as in C's own locale. What is no class stands for itself.
fn is_in_class(byte: u8, class: u8) -> bool {
    let is_member = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_member == class.is_ascii_lowercase()
}

/// A pattern in a text. It keeps the captures of the last match.
pub(super) struct Matcher<'a, S> {
    text: &'a [u8],
    /// Without a NUL, and without the anchor.
    pattern: &'a [u8],
    is_anchored: bool,
    captures: [Capture; MOST_CAPTURES],
    level: usize,
    notes: Vec<Note>,
    steps: S,
}

impl<'a, S: Steps> Matcher<'a, S> {
    /// Of a whole pattern. `has_anchor`: whether `^` at its start is one, which it is not in string.gmatch.
    pub(super) fn new(text: &'a [u8], pattern: &'a [u8], has_anchor: bool, steps: S) -> Self {
        let pattern = c_string(pattern);
        let (pattern, is_anchored) = match pattern {
            [b'^', rest @ ..] if has_anchor => (rest, true),
            _ => (pattern, false),
        };
        let captures = [Capture { from: 0, extent: Extent::Open }; MOST_CAPTURES];
        Matcher { text, pattern, is_anchored, captures, level: 0, notes: Vec::new(), steps }
    }

    pub(super) fn is_anchored(&self) -> bool {
        self.is_anchored
    }

    /// For the caller's own work.
    pub(super) fn steps(&mut self) -> &mut S {
        &mut self.steps
    }

    /// The first match that begins at `from` or later; only there if the pattern is anchored.
    pub(super) fn search(&mut self, from: usize) -> Result<Option<Found>, Fault> {
        for from in from..=self.text.len() {
            if let Some(to) = self.match_at(from)? {
                return Ok(Some(Found { from, to }));
            }
            if self.is_anchored {
                break;
            }
        }
        Ok(None)
    }

    /// The whole text of a match.
    pub(super) fn whole(&self, found: Found) -> &'a [u8] {
        between(self.text, found.from, found.to)
    }

    /// How many values the last match gives. `or_whole`: without captures it gives its whole text.
    pub(super) fn values(&self, or_whole: bool) -> usize {
        if self.level == 0 && or_whole { 1 } else { self.level }
    }

    /// A value of the last match, counted from 0.
    pub(super) fn value(&self, index: usize, found: Found) -> Result<Captured<'a>, Fault> {
        let Some(capture) = self.captures.get(index).filter(|_| index < self.level) else {
            return match index {
                0 => Ok(Captured::Text(self.whole(found))),
                _ => Err(Fault::Message("invalid capture index")),
            };
        };
        match capture.extent {
            Extent::Open => Err(Fault::Message("unfinished capture")),
            Extent::Position => Ok(Captured::Position(capture.from + 1)),
            Extent::Length(length) => {
                Ok(Captured::Text(between(self.text, capture.from, capture.from + length)))
            }
        }
    }

    /// The end of the match that begins at `from`.
    fn match_at(&mut self, from: usize) -> Result<Option<usize>, Fault> {
        self.level = 0;
        self.notes.clear();
        let mut place = Place { at: from, item: 0 };
        loop {
            self.steps.charge(1)?;
            place = match self.step(place)? {
                Progress::Next(place) => place,
                Progress::Ended(to) => return Ok(Some(to)),
                Progress::Failed => match self.retry()? {
                    Some(place) => place,
                    None => return Ok(None),
                },
            };
        }
    }

    /// Matches one item of the pattern.
    fn step(&mut self, Place { at, item }: Place) -> Result<Progress, Fault> {
        match (self.byte(item), self.byte(item + 1)) {
            (0, _) => Ok(Progress::Ended(at)),
            (b'(', b')') => self.open(at, item + 2, Extent::Position),
            (b'(', _) => self.open(at, item + 1, Extent::Open),
            (b')', _) => self.close(at, item + 1),
            (b'$', 0) if at == self.text.len() => Ok(Progress::Ended(at)),
            (b'$', 0) => Ok(Progress::Failed),
            (b'%', b'b') => self.balance(at, item + 2),
            (b'%', b'f') => self.frontier(at, item + 2),
            (b'%', digit @ b'0'..=b'9') => self.again(at, item + 2, digit),
            _ => self.characters(at, item),
        }
    }

    /// Matches a character, with what says how many of it.
    fn characters(&mut self, at: usize, item: usize) -> Result<Progress, Fault> {
        let (single, end) = self.single(item)?;
        let matches = self.is_at(single, at)?;
        match self.byte(end) {
            b'?' if matches => {
                self.note(Note::Without { at, item: end + 1 })?;
                next(at + 1, end + 1)
            }
            b'?' => next(at, end + 1),
            b'*' => self.greedy(at, single, end + 1),
            b'+' if matches => self.greedy(at + 1, single, end + 1),
            b'-' => {
                self.note(Note::Longer { at, item, end })?;
                next(at, end + 1)
            }
            b'+' => Ok(Progress::Failed),
            _ if matches => next(at + 1, end),
            _ => Ok(Progress::Failed),
        }
    }

    /// Takes as many characters as there are.
    fn greedy(&mut self, least: usize, single: Single<'a>, item: usize) -> Result<Progress, Fault> {
        let text = self.text.get(least..).unwrap_or_default();
        let cost = single.cost();
        let mut at = least;
        for block in text.chunks((BLOCK / cost).max(1)) {
            let taken = block.iter().position(|byte| !single.holds(*byte)).unwrap_or(block.len());
            self.steps.charge(taken * cost / CHARACTERS_A_STEP)?;
            at += taken;
            if taken < block.len() {
                break;
            }
        }
        if at > least {
            self.note(Note::Shorter { at, least, item })?;
        }
        next(at, item)
    }

    fn open(&mut self, at: usize, item: usize, extent: Extent) -> Result<Progress, Fault> {
        let Some(capture) = self.captures.get_mut(self.level) else {
            return Err(Fault::Message("too many captures"));
        };
        *capture = Capture { from: at, extent };
        self.level += 1;
        self.note(Note::Opened)?;
        next(at, item)
    }

    fn close(&mut self, at: usize, item: usize) -> Result<Progress, Fault> {
        let taken = self.captures.iter_mut().take(self.level).enumerate();
        let mut open = taken.filter(|(_, capture)| matches!(capture.extent, Extent::Open));
        let Some((index, capture)) = open.next_back() else {
            return Err(Fault::Message("invalid pattern capture"));
        };
        capture.extent = Extent::Length(at - capture.from);
        self.note(Note::Closed(index))?;
        next(at, item)
    }

    /// Matches what a capture has matched.
    fn again(&mut self, at: usize, item: usize, digit: u8) -> Result<Progress, Fault> {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = index.and_then(|index| self.captures.get(..self.level)?.get(index));
        let Some(Capture { from, extent }) = capture.copied() else {
            return Err(Fault::Message("invalid capture index"));
        };
        let length = match extent {
            Extent::Open => return Err(Fault::Message("invalid capture index")),
            // C takes it for a text that is longer than any.
            Extent::Position => return Ok(Progress::Failed),
            Extent::Length(length) => length,
        };
        let rest = self.text.get(at..).unwrap_or_default();
        if rest.len() < length {
            return Ok(Progress::Failed);
        }
        self.steps.charge(length / BYTES_A_STEP)?;
        if rest.starts_with(between(self.text, from, from + length)) {
            next(at + length, item)
        } else {
            Ok(Progress::Failed)
        }
    }

    /// `%b`: `item` is at its two characters.
    fn balance(&mut self, at: usize, item: usize) -> Result<Progress, Fault> {
        let (opening, closing) = (self.byte(item), self.byte(item + 1));
        if opening == 0 || closing == 0 {
            return Err(Fault::Message("unbalanced pattern"));
        }
        let [first, rest @ ..] = self.text.get(at..).unwrap_or_default() else {
            return Ok(Progress::Failed);
        };
        if *first != opening {
            return Ok(Progress::Failed);
        }
        let (mut end, mut depth) = (at + 1, 1usize);
        for block in rest.chunks(BLOCK) {
            self.steps.charge(block.len().min(BLOCK / 8) / CHARACTERS_A_STEP)?;
            for byte in block {
                end += 1;
                if *byte == closing {
                    depth -= 1;
                    if depth == 0 {
                        return next(end, item + 2);
                    }
                } else if *byte == opening {
                    depth += 1;
                }
            }
        }
        Ok(Progress::Failed)
    }

    /// `%f`: `item` is at its set. Before and after the text stands a NUL.
    fn frontier(&mut self, at: usize, item: usize) -> Result<Progress, Fault> {
        if self.byte(item) != b'[' {
            return Err(Fault::Message("missing '[' after '%f' in pattern"));
        }
        let (set, end) = self.set(item)?;
        self.steps.charge(Single::Set(set).cost() / CHARACTERS_A_STEP)?;
        let byte = |at: Option<usize>| at.and_then(|at| self.text.get(at)).copied().unwrap_or_default();
        if !set.holds(byte(at.checked_sub(1))) && set.holds(byte(Some(at))) {
            next(at, end)
        } else {
            Ok(Progress::Failed)
        }
    }

    /// Where to go on after a failure, if there is anywhere.
    fn retry(&mut self) -> Result<Option<Place>, Fault> {
        while let Some(note) = self.notes.pop() {
            match note {
                Note::Shorter { at, least, item } => {
                    let at = at.saturating_sub(1);
                    if at > least {
                        self.note(Note::Shorter { at, least, item })?;
                    }
                    return Ok(Some(Place { at, item }));
                }
                Note::Longer { at, item, end } => {
                    let (single, _) = self.single(item)?;
                    if self.is_at(single, at)? {
                        self.note(Note::Longer { at: at + 1, item, end })?;
                        return Ok(Some(Place { at: at + 1, item: end + 1 }));
                    }
                }
                Note::Without { at, item } => return Ok(Some(Place { at, item })),
                Note::Opened => self.level -= 1,
                Note::Closed(index) => {
                    if let Some(capture) = self.captures.get_mut(index) {
                        capture.extent = Extent::Open;
                    }
                }
            }
        }
        Ok(None)
    }

    fn note(&mut self, note: Note) -> Result<(), Fault> {
        if self.notes.len() >= MOST_NOTES {
            return Err(Fault::Message("pattern too complex"));
        }
        self.notes.push(note);
        Ok(())
    }

    /// A byte of the pattern, 0 after its end.
    fn byte(&self, item: usize) -> u8 {
        self.pattern.get(item).copied().unwrap_or_default()
    }

    fn is_at(&mut self, single: Single<'a>, at: usize) -> Result<bool, Fault> {
        self.steps.charge(single.cost() / CHARACTERS_A_STEP)?;
        Ok(self.text.get(at).is_some_and(|byte| single.holds(*byte)))
    }

    /// What a character is held against, and where that ends in the pattern.
    fn single(&self, item: usize) -> Result<(Single<'a>, usize), Fault> {
        match self.byte(item) {
            b'.' => Ok((Single::Any, item + 1)),
            b'%' => match self.byte(item + 1) {
                0 => Err(Fault::Message("malformed pattern (ends with '%')")),
                class => Ok((Single::Class(class), item + 2)),
            },
            b'[' => self.set(item).map(|(set, end)| (Single::Set(set), end)),
            byte => Ok((Single::Byte(byte), item + 1)),
        }
    }

    /// The set that begins at a bracket, and where it ends. A bracket is a member if it comes first.
    fn set(&self, item: usize) -> Result<(Set<'a>, usize), Fault> {
        let is_negated = self.byte(item + 1) == b'^';
        let first = item + 1 + usize::from(is_negated);
        let mut end = first;
        loop {
            end += match (self.byte(end), self.byte(end + 1)) {
                (0, _) => return Err(Fault::Message("malformed pattern (missing ']')")),
                (b'%', escaped) if escaped != 0 => 2,
                _ => 1,
            };
            if self.byte(end) == b']' {
                return Ok((Set { members: between(self.pattern, first, end), is_negated }, end + 1));
            }
        }
    }
}

/// Whether C's string.find takes a pattern as it stands: it has no special characters.
pub(super) fn is_plain(pattern: &[u8]) -> bool {
    !c_string(pattern).iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// Finds a text in another, from an offset on.
pub(super) fn find_plain(
    text: &[u8],
    from: usize,
    sought: &[u8],
    steps: &mut impl Steps,
) -> Result<Option<usize>, Fault> {
    let [first, ..] = sought else {
        return Ok(Some(from));
    };
    let Some(last) = text.len().checked_sub(sought.len()) else {
        return Ok(None);
    };
    let mut at = from;
    while let Some(window) = text.get(at..=last).filter(|window| !window.is_empty()) {
        match find_byte(window, *first, steps)? {
            None => break,
            Some(offset) => at += offset,
        }
        steps.charge(1 + sought.len() / BYTES_A_STEP)?;
        if text.get(at..).is_some_and(|rest| rest.starts_with(sought)) {
            return Ok(Some(at));
        }
        at += 1;
    }
    Ok(None)
}

/// Blocks are looked through without branches: that is fast.
fn find_byte(text: &[u8], byte: u8, steps: &mut impl Steps) -> Result<Option<usize>, Fault> {
    for (index, block) in text.chunks(BYTES_A_STEP).enumerate() {
        steps.charge(1)?;
        if block.iter().fold(false, |any, one| any | (*one == byte)) {
            return Ok(block.iter().position(|one| *one == byte).map(|at| index * BYTES_A_STEP + at));
        }
    }
    Ok(None)
}

fn between(bytes: &[u8], from: usize, to: usize) -> &[u8] {
    bytes.get(from..to).unwrap_or_default()
}

/// The bytes before the first NUL: where C ends a string.
fn c_string(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
