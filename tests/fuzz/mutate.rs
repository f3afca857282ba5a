//! Mutants of a corpus. Blind to coverage: see `main.rs`.

use crate::choices::Choices;

/// The longest mutant in bytes.
const LONGEST: usize = 64 << 10;
/// Bytes that decoders treat specially.
const SPECIAL: [u8; 16] =
    [0, 1, 2, 3, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xfe, 0xff, b'\r', b'\n', b'$', b'*', b'"'];

/// Applies one to eight changes to an input of the corpus.
pub fn mutant(choices: &mut Choices<'_>, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = corpus[choices.below(corpus.len())].clone();
    for _ in 0..=choices.below(8) {
        change(&mut input, choices, corpus);
    }
    input.truncate(LONGEST);
    input
}

fn change(input: &mut Vec<u8>, choices: &mut Choices<'_>, corpus: &[Vec<u8>]) {
    let at = choices.below(input.len() + 1);
    let span = at..(at + choices.below(9)).min(input.len());
    match choices.below(9) {
        0 => input.truncate(at),
        1 => input.insert(at, choices.next() as u8),
        2 => drop(input.drain(span)),
        3 => {
            let copy = input[span].to_vec();
            input.splice(at..at, copy);
        }
        4 => {
            let other = &corpus[choices.below(corpus.len())];
            let from = choices.below(other.len() + 1);
            input.splice(at.., other[from..].iter().copied());
        }
        5 => {
            let word = choices.next() >> choices.below(64);
            let bytes = if choices.below(2) == 0 { word.to_le_bytes() } else { word.to_be_bytes() };
            let width = [1, 2, 4, 8][choices.below(4)];
            input.iter_mut().skip(at).zip(&bytes[..width]).for_each(|(to, from)| *to = *from);
        }
        kind => {
            let Some(byte) = input.get_mut(at) else { return };
            *byte = match kind {
                6 => *byte ^ 1 << choices.below(8),
                7 => SPECIAL[choices.below(SPECIAL.len())],
                _ => byte.wrapping_add(choices.below(5) as u8).wrapping_sub(2),
            };
        }
    }
}
