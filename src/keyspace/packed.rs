//! Many strings in two allocations.

/// See the module.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Packed {
    bytes: Vec<u8>,
    /// The end of each string in `bytes`.
    ends: Vec<usize>,
}

impl Packed {
    /// Adds a string.
    pub(crate) fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// The number of strings.
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

    /// Bytes of memory that it needs.
    pub(crate) fn held(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Gives back memory that it does not need.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// All strings.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(start, end)| self.bytes.get(start..*end))
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end);
        self.bytes.get(start..end)
    }

    /// Removes all strings; keeps the memory for reuse.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Packed {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut packed = Packed::default();
        strings.into_iter().for_each(|string| packed.push(string.as_ref()));
        packed
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
            for (n, s) in strings.into_iter().enumerate() {
                assert_eq!(packed.get(n), Some(s));
            }
            assert_eq!(packed.get(4), None);
            packed.clear();
            assert!(packed.is_empty() && packed.get(0).is_none());
        }
    }
}
