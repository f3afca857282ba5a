//! Decompression of LZF, the format of Marc Lehmann's liblzf, in steps: the output is handed on, and only as
//! much of it is kept as a reference can reach back to.
//!
//! ```text
//! 000LLLLL                    L+1 bytes follow
//! LLLooooo oooooooo           L+2 bytes from o+1 bytes back (L is 1 to 6)
//! 111ooooo LLLLLLLL oooooooo  L+9 bytes from o+1 bytes back
//! ```

/// How far back a reference can reach.
const WINDOW: usize = 1 << 13;

/// The decompression of a string.
pub(super) struct Unpacker<'a> {
    raw: &'a [u8],
    /// Bytes still to be produced.
    left: usize,
    /// The latest output.
    out: Vec<u8>,
    /// How much of it was handed on.
    given: usize,
}

impl<'a> Unpacker<'a> {
    /// Decompresses `raw`, which stands for `length` bytes.
    pub(super) fn new(raw: &'a [u8], length: usize) -> Self {
        Unpacker { raw, left: length, out: Vec::new(), given: 0 }
    }

    /// The next bytes, about `step` of them; empty at the end. None if `raw` is malformed, or stands for more
    /// or fewer bytes than announced.
    pub(super) fn next(&mut self, step: usize) -> Option<&[u8]> {
        self.out.drain(..self.given.saturating_sub(WINDOW));
        self.given = self.out.len();
        while self.out.len() - self.given < step && !self.raw.is_empty() {
            self.instruction()?;
        }
        let made = self.out.get(self.given..)?;
        self.given = self.out.len();
        (!made.is_empty() || self.left == 0).then_some(made)
    }

    fn instruction(&mut self) -> Option<()> {
        let control = self.byte()?;
        let count = match control >> 5 {
            0 => {
                let (literals, rest) = self.raw.split_at_checked(usize::from(control) + 1)?;
                self.raw = rest;
                self.left = self.left.checked_sub(literals.len())?;
                self.out.extend_from_slice(literals);
                return Some(());
            }
            7 => usize::from(self.byte()?) + 9,
            short => usize::from(short) + 2,
        };
        let back = (usize::from(control & 0x1f) << 8 | usize::from(self.byte()?)) + 1;
        self.left = self.left.checked_sub(count)?;
        self.copy_back(back, count)
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.raw.split_first()?;
        self.raw = rest;
        Some(*byte)
    }

    /// Appends `count` bytes that begin `back` bytes before the end; they may overlap the appended bytes.
    fn copy_back(&mut self, back: usize, count: usize) -> Option<()> {
        let from = self.out.len().checked_sub(back)?;
        let mut left = count;
        while left > 0 {
            // The appended bytes continue as their source does.
            let some = left.min(self.out.len() - from);
            self.out.extend_from_within(from..from + some);
            left -= some;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decompress(raw: &[u8], length: usize, step: usize) -> Option<Vec<u8>> {
        let (mut unpacker, mut out) = (Unpacker::new(raw, length), Vec::new());
        loop {
            match unpacker.next(step)? {
                [] => return Some(out),
                made => out.extend_from_slice(made),
            }
        }
    }

    #[test]
    fn literals_and_references() {
        for step in [1, 5, 100] {
            assert_eq!(decompress(&[2, b'a', b'b', b'c'], 3, step).unwrap(), b"abc");
            assert_eq!(decompress(&[0, b'a', 0x20, 0], 4, step).unwrap(), b"aaaa");
            assert_eq!(decompress(&[1, b'a', b'b', 0xe0, 1, 1], 12, step).unwrap(), b"abababababab");
            assert_eq!(decompress(&[], 0, step).unwrap(), b"");
        }
    }

    #[test]
    fn references_reach_back_over_what_was_given() {
        // `b`, `a` up to 8192 bytes, then three bytes from there: the whole window back.
        let mut raw = vec![0, b'b'];
        raw.extend([0, b'a']);
        let mut made = 2;
        while made + 264 <= 8192 {
            raw.extend([0xe0, 255, 0]);
            made += 264;
        }
        let rest = 8192 - made;
        raw.extend((0..rest).flat_map(|_| [0, b'a']));
        raw.extend([0x20 | 0x1f, 0xff]);
        let out = decompress(&raw, 8195, 7).unwrap();
        assert_eq!((out.len(), out[0], &out[8190..]), (8195, b'b', &b"aabaa"[..]));
    }

    #[test]
    fn broken() {
        for (raw, length) in [
            (&[2, b'a', b'b'][..], 3),
            (&[2, b'a', b'b', b'c'], 2),
            (&[2, b'a', b'b', b'c'], 4),
            (&[0x20, 0], 3),
            (&[0, b'a', 0x20, 1], 4),
            (&[0, b'a', 0x20], 4),
            (&[0, b'a', 0xe0], 10),
            (&[0, b'a', 0x20, 0], 3),
        ] {
            assert_eq!(decompress(raw, length, 100), None, "{raw:?}");
        }
    }
}
