//! Many strings in one allocation, read once from the first to the last.

/// See the module.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Packed {
    bytes: Vec<u8>,
    /// The end of each string in `bytes`.
    ends: Vec<usize>,
    /// The number of strings taken.
    taken: usize,
}

impl Packed {
    /// Adds a string.
    pub(crate) fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// The number of strings, taken or not.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The total bytes of all strings.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// All strings, taken or not.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(start, end)| self.bytes.get(start..*end))
    }

    /// The next string.
    pub fn take(&mut self) -> Option<&[u8]> {
        let end = *self.ends.get(self.taken)?;
        let start = self.taken.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end);
        self.taken += 1;
        self.bytes.get(start..end)
    }

    /// Removes all strings; keeps the memory for reuse.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let strings = [&b"a"[..], b"", b"long", b""];
        let mut packed = Packed::default();
        for _ in 0..2 {
            strings.iter().for_each(|s| packed.push(s));
            assert_eq!((packed.len(), packed.size()), (4, 5));
            assert!(packed.iter().eq(strings));
            for s in strings {
                assert_eq!(packed.take(), Some(s));
            }
            assert_eq!(packed.take(), None);
            packed.clear();
            assert!(packed.is_empty() && packed.take().is_none());
        }
    }
}
