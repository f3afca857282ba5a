//! Decompression of LZF, the format of Marc Lehmann's liblzf.
//!
//! ```text
//! 000LLLLL                    L+1 bytes follow
//! LLLooooo oooooooo           L+2 bytes from o+1 bytes back (L is 1 to 6)
//! 111ooooo LLLLLLLL oooooooo  L+9 bytes from o+1 bytes back
//! ```

/// The `length` bytes that `raw` stands for. None where it stands for more, fewer, or nothing.
pub(super) fn decompress(raw: &[u8], length: usize) -> Option<Vec<u8>> {
    // A reference of three bytes makes at most 264: no length reserves more than the input can fill.
    let mut out = Vec::with_capacity(length.min(raw.len().saturating_mul(88)));
    let mut raw = raw.iter().copied();
    while let Some(control) = raw.next() {
        let count = match control >> 5 {
            0 => {
                let before = out.len();
                let literals = usize::from(control) + 1;
                out.extend(raw.by_ref().take(literals));
                if out.len() - before != literals || out.len() > length {
                    return None;
                }
                continue;
            }
            7 => usize::from(raw.next()?) + 9,
            short => usize::from(short) + 2,
        };
        let back = (usize::from(control & 0x1f) << 8 | usize::from(raw.next()?)) + 1;
        if out.len() + count > length {
            return None;
        }
        copy_back(&mut out, back, count)?;
    }
    (out.len() == length).then_some(out)
}

/// Appends `count` bytes that begin `back` bytes before the end; they may reach into what is appended.
fn copy_back(out: &mut Vec<u8>, back: usize, count: usize) -> Option<()> {
    let from = out.len().checked_sub(back)?;
    for at in from..from + count {
        let byte = *out.get(at)?;
        out.push(byte);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_references() {
        assert_eq!(decompress(&[2, b'a', b'b', b'c'], 3).unwrap(), b"abc");
        assert_eq!(decompress(&[0, b'a', 0x20, 0], 4).unwrap(), b"aaaa");
        assert_eq!(decompress(&[1, b'a', b'b', 0xe0, 1, 1], 12).unwrap(), b"abababababab");
        assert_eq!(decompress(&[], 0).unwrap(), b"");
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
            assert_eq!(decompress(raw, length), None, "{raw:?}");
        }
    }
}
