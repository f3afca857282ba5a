//! Parses a pattern into its parts, in steps.

use super::{Case, Glob, Part};

/// Steps charged at the end of a class.
const CLASS: usize = 32;

/// A set of bytes, indexed by their signed value: that is how ranges are ordered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    fn place(byte: u8) -> (usize, u32) {
        let at = byte ^ 0x80;
        (usize::from(at >> 6), u32::from(at & 63))
    }
    pub(super) fn has(&self, byte: u8) -> bool {
        let (word, bit) = Self::place(byte);
        self.0.get(word).is_some_and(|w| w >> bit & 1 == 1)
    }
    fn put(&mut self, byte: u8, is_in: bool) {
        let (word, bit) = Self::place(byte);
        if let Some(word) = self.0.get_mut(word) {
            *word = *word & !(1 << bit) | u64::from(is_in) << bit;
        }
    }
    fn insert(&mut self, byte: u8) {
        self.put(byte, true);
    }
    /// Inserts all bytes from `low` to `high`, compared as signed.
    fn insert_range(&mut self, low: u8, high: u8) {
        let ((first, from), (last, to)) = (Self::place(low), Self::place(high));
        for (n, word) in self.0.iter_mut().enumerate() {
            let above = if n < first {
                0
            } else if n == first {
                u64::MAX << from
            } else {
                u64::MAX
            };
            let below = if n > last {
                0
            } else if n == last {
                u64::MAX >> (63 - to)
            } else {
                u64::MAX
            };
            *word |= above & below;
        }
    }
}

/// A class that is being parsed.
#[derive(Debug, Default)]
struct Class {
    negated: bool,
    /// The bytes as written; a byte in lower case is looked up here.
    exact: ByteSet,
    lowered: ByteSet,
}

impl Class {
    /// Parses the next item. Returns its length; 0 at the end of the class.
    fn read(&mut self, pattern: &[u8], case: Case) -> usize {
        match pattern {
            [] => 0,
            [b'\\', escaped, ..] => {
                self.exact.insert(*escaped);
                2
            }
            [b']', ..] => 0,
            [from, b'-', to, ..] => {
                let (low, high) = if *from as i8 > *to as i8 { (*to, *from) } else { (*from, *to) };
                match case {
                    Case::Exact => self.exact.insert_range(low, high),
                    Case::Ignored => {
                        self.lowered.insert_range(low.to_ascii_lowercase(), high.to_ascii_lowercase());
                    }
                }
                3
            }
            [literal, ..] => {
                match case {
                    Case::Exact => self.exact.insert(*literal),
                    Case::Ignored => self.lowered.insert(literal.to_ascii_lowercase()),
                }
                1
            }
        }
    }

    fn set(&self) -> ByteSet {
        let mut set = self.lowered.clone();
        // No byte in lower case is one of these: they are looked up in the other set.
        for upper in b'A'..=b'Z' {
            set.put(upper, self.lowered.has(upper.to_ascii_lowercase()));
        }
        for (word, exact) in set.0.iter_mut().zip(self.exact.0) {
            *word |= exact;
            *word ^= if self.negated { u64::MAX } else { 0 };
        }
        set
    }
}

/// Parses a pattern.
pub(super) struct Reader<'p> {
    rest: &'p [u8],
    class: Option<Class>,
    pub(super) glob: Glob,
}

impl<'p> Reader<'p> {
    pub(super) fn new(pattern: &'p [u8], case: Case, longest: usize) -> Self {
        let (parts, literals, classes) = (Vec::new(), Vec::new(), Vec::new());
        // The largest index of a literal.
        let longest = longest.min(u32::MAX as usize);
        let glob = Glob { case, parts, literals, classes, least: 0, grows: false, longest };
        Reader { rest: pattern, class: None, glob }
    }

    /// Continues for `steps` steps. Returns whether parsing has ended: nothing is left, or no text is long
    /// enough.
    pub(super) fn go_on(&mut self, steps: &mut usize) -> bool {
        while *steps > 0 {
            *steps -= 1;
            if let Some(class) = &mut self.class {
                let n = class.read(self.rest, self.glob.case);
                self.skip(if n == 0 { 1 } else { n });
                if n == 0 {
                    self.end_class();
                    *steps = steps.saturating_sub(CLASS);
                }
                continue;
            }
            let cut = self.glob.least > self.glob.longest || !self.glob.is_whole();
            if self.rest.is_empty() || cut {
                return true;
            }
            self.element();
        }
        false
    }

    fn skip(&mut self, n: usize) {
        self.rest = self.rest.get(n..).unwrap_or_default();
    }

    fn element(&mut self) {
        let (literal, n) = match self.rest {
            [b'*', ..] => {
                self.star();
                return self.skip(1);
            }
            [b'?', ..] => {
                self.any();
                return self.skip(1);
            }
            [b'[', class @ ..] => {
                let negated = class.starts_with(b"^");
                self.class = Some(Class { negated, ..Class::default() });
                return self.skip(if negated { 2 } else { 1 });
            }
            [b'\\', escaped, ..] => (*escaped, 2),
            [literal, ..] => (*literal, 1),
            [] => return,
        };
        self.literal(literal);
        self.skip(n);
    }

    fn literal(&mut self, byte: u8) {
        let glob = &mut self.glob;
        let at = glob.literals.len() as u32;
        glob.literals.push(if glob.case == Case::Ignored { byte.to_ascii_lowercase() } else { byte });
        match glob.parts.last_mut() {
            Some(Part::Literal(_, len)) => *len += 1,
            _ => glob.parts.push(Part::Literal(at, 1)),
        }
        glob.least += 1;
    }

    fn any(&mut self) {
        let parts = &mut self.glob.parts;
        match parts.as_mut_slice() {
            // `*?` equals `?*`.
            [.., Part::Any(n), Part::Star] | [.., Part::Any(n)] => *n += 1,
            [.., star @ Part::Star] => {
                *star = Part::Any(1);
                parts.push(Part::Star);
            }
            _ => parts.push(Part::Any(1)),
        }
        self.glob.least += 1;
    }

    fn star(&mut self) {
        self.glob.grows = true;
        if self.glob.parts.last() != Some(&Part::Star) {
            self.glob.parts.push(Part::Star);
        }
    }

    fn end_class(&mut self) {
        if let Some(class) = self.class.take() {
            self.glob.parts.push(Part::Class(self.glob.classes.len() as u32));
            self.glob.classes.push(class.set());
            self.glob.least += 1;
        }
    }
}
