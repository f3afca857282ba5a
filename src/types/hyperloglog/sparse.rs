//! Registers as runs of equal ranks.
//!
//! ```text
//! 00llllll           l+1 registers of rank 0      01llllll llllllll   l+1 registers of rank 0
//! 1vvvvvll           l+1 registers of rank v+1
//! ```
//! A run must be split when one of its registers grows, and neighbours joined into one run, exactly as Redis
//! does it: the bytes must be the same. A two-byte run that ends after its first byte counts as if a zero
//! byte followed, which is what Redis reads there.

use super::REGISTERS;
use std::fmt;

/// Most registers of rank 0 in a one-byte run.
const SHORT_ZEROES: usize = 64;
/// Most registers in a run of another rank.
const MAX_RUN: usize = 4;
/// Highest rank of a run.
const MAX_RANK: u8 = 32;
/// Runs to examine when equal neighbours are joined, from the one before the changed run on.
const JOINED: usize = 5;

/// A run of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Op {
    /// Their rank.
    pub(crate) rank: u8,
    /// Their number.
    pub(crate) run: usize,
    /// Its size in bytes.
    size: usize,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op { rank: 0, run, size: 1 } => write!(f, "z:{run}"),
            Op { rank: 0, run, .. } => write!(f, "Z:{run}"),
            Op { rank, run, .. } => write!(f, "v:{rank},{run}"),
        }
    }
}

/// The body of an empty HyperLogLog.
pub(super) fn empty() -> Vec<u8> {
    let mut body = Vec::new();
    push_zeroes(&mut body, REGISTERS);
    body
}

fn read(body: &[u8], at: usize) -> Option<Op> {
    let first = *body.get(at)?;
    let low = usize::from(first & 0x3f);
    Some(match first >> 6 {
        0 => Op { rank: 0, run: low + 1, size: 1 },
        1 => {
            let next = body.get(at + 1).copied().unwrap_or(0);
            Op { rank: 0, run: (low << 8 | usize::from(next)) + 1, size: 2 }
        }
        _ => Op { rank: (first >> 2 & 0x1f) + 1, run: usize::from(first & 3) + 1, size: 1 },
    })
}

/// All runs.
pub(super) fn ops(body: &[u8]) -> impl Iterator<Item = Op> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let op = read(body, at)?;
        at += op.size;
        Some(op)
    })
}

fn value(rank: u8, run: usize) -> u8 {
    0x80 | (rank.saturating_sub(1) & 0x1f) << 2 | (run.saturating_sub(1) & 3) as u8
}

fn push_zeroes(body: &mut Vec<u8>, run: usize) {
    let Some(low) = run.checked_sub(1) else { return };
    if run > SHORT_ZEROES {
        body.push(0x40 | (low >> 8) as u8);
    }
    body.push(low as u8);
}

fn push_run(body: &mut Vec<u8>, rank: u8, run: usize) {
    match (rank, run) {
        (0, _) => push_zeroes(body, run),
        (_, 0) => {}
        _ => body.push(value(rank, run)),
    }
}

/// The result of raising a register.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Raised {
    /// It was at least as high.
    No,
    /// It was lower.
    Yes,
    /// Impossible within the allowed bytes, or in this encoding.
    TooLong,
    /// No run holds the register.
    Broken,
}

/// The run that holds a register.
struct Found {
    op: Op,
    /// Its offset in the body.
    at: usize,
    /// The offset of the run before it.
    before: usize,
    /// The number of its first register.
    first: usize,
}

/// Bytes between two marks.
const APART: usize = 64;

/// A run: its offset, the offset of the run before it, and its first register.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    at: usize,
    before: usize,
    first: usize,
}

/// Some of the runs of one body, in order, so that raising many registers does not walk over half of the runs
/// each time.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<Mark>);

impl Marks {
    /// The run that holds `register`. Every added element is looked up here, so only the run found becomes an
    /// [`Op`].
    fn find(&mut self, body: &[u8], register: usize) -> Option<Found> {
        let mut next = self.0.partition_point(|mark| mark.first <= register);
        let from = next.checked_sub(1).and_then(|n| self.0.get(n)).copied().unwrap_or_default();
        let (Mark { mut at, mut before, mut first }, mut marked) = (from, from.at);
        let mut bytes = body.get(at..)?.iter();
        while let Some(&byte) = bytes.next() {
            let low = usize::from(byte & 0x3f);
            let (run, size) = match byte >> 6 {
                0 => (low + 1, 1),
                1 => ((low << 8 | usize::from(bytes.next().copied().unwrap_or(0))) + 1, 2),
                _ => ((low & 3) + 1, 1),
            };
            if at >= marked + APART {
                self.0.insert(next, Mark { at, before, first });
                (next, marked) = (next + 1, at);
            }
            if register < first + run {
                return Some(Found { op: read(body, at)?, at, before, first });
            }
            before = at;
            at += size;
            first += run;
        }
        None
    }

    /// Updates the marks after runs from `from` on have changed and the body went from `old` to `new` bytes.
    /// A change spans less than [`APART`] bytes.
    fn changed(&mut self, from: usize, old: usize, new: usize) {
        let kept = self.0.partition_point(|mark| mark.at <= from);
        let behind = self.0.partition_point(|mark| mark.at <= from + APART);
        self.0.drain(kept..behind);
        for mark in self.0.iter_mut().skip(kept) {
            mark.at = mark.at + new - old;
            mark.before = mark.before + new - old;
        }
    }
}

/// Raises a register to `rank`, in at most `longest` bytes. `marks` belong to this body, or are empty.
pub(super) fn raise(
    body: &mut Vec<u8>,
    marks: &mut Marks,
    register: usize,
    rank: u8,
    longest: usize,
) -> Raised {
    if rank > MAX_RANK {
        return Raised::TooLong;
    }
    let Some(Found { op, at, before, first }) = marks.find(body, register) else { return Raised::Broken };
    if op.rank >= rank {
        return Raised::No;
    }
    let mut new = Vec::with_capacity(5);
    push_run(&mut new, op.rank, register - first);
    new.push(value(rank, 1));
    push_run(&mut new, op.rank, first + op.run - 1 - register);
    let length = body.len() + new.len() - op.size;
    if new.len() > op.size && length > longest {
        return Raised::TooLong;
    }
    let (old, end) = (body.len(), body.len().min(at + op.size));
    body.splice(at..end, new);
    body.truncate(length); // a run that lacked its second byte
    join(body, before);
    marks.changed(before, old, body.len());
    Raised::Yes
}

/// Joins neighbours of the same rank, if one run can hold both.
fn join(body: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED {
        let Some(op) = read(body, at) else { return };
        let next = read(body, at + 1).filter(|next| op.rank > 0 && next.rank == op.rank);
        match next.filter(|next| op.run + next.run <= MAX_RUN) {
            Some(next) => {
                body.remove(at);
                if let Some(joined) = body.get_mut(at) {
                    *joined = value(op.rank, op.run + next.run);
                }
            }
            None => at += op.size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(body: &[u8]) -> String {
        ops(body).map(|op| op.to_string()).collect::<Vec<_>>().join(" ")
    }

    /// Raises one register of a body without marks.
    fn raise(body: &mut Vec<u8>, register: usize, rank: u8, longest: usize) -> Raised {
        super::raise(body, &mut Marks::default(), register, rank, longest)
    }

    #[test]
    fn marks_change_nothing() {
        let mut rng = crate::env::Env::seeded(0, 7).rng();
        for ranks in [1, 2, 32] {
            let (mut body, mut marked, mut marks) = (empty(), empty(), Marks::default());
            for n in 0..1500 {
                let (register, rank) = (rng.below(REGISTERS as u64) as usize, 1 + rng.below(ranks) as u8);
                // Some dense spots as well.
                let register = if n % 3 == 0 { register % 100 + 5000 } else { register };
                let done = raise(&mut body, register, rank, 1 << 20);
                assert_eq!(super::raise(&mut marked, &mut marks, register, rank, 1 << 20), done);
                assert_eq!(marked, body, "after {n}");
            }
            assert!(marks.0.is_sorted_by(|a, b| a.at < b.at && a.first < b.first));
            assert!(marks.0.len() > body.len() / (4 * APART), "{} marks in {}", marks.0.len(), body.len());
        }
    }

    #[test]
    fn runs_are_cut_and_joined() {
        let mut body = empty();
        for (register, rank, want) in [
            (100, 2, "Z:100 v:2,1 Z:16283"),
            (100, 1, "Z:100 v:2,1 Z:16283"),
            (101, 2, "Z:100 v:2,2 Z:16282"),
            (103, 2, "Z:100 v:2,2 z:1 v:2,1 Z:16280"),
            (102, 2, "Z:100 v:2,4 Z:16280"),
            (104, 2, "Z:100 v:2,4 v:2,1 Z:16279"),
            (101, 7, "Z:100 v:2,1 v:7,1 v:2,3 Z:16279"),
            (0, 32, "v:32,1 Z:99 v:2,1 v:7,1 v:2,3 Z:16279"),
            (50, 1, "v:32,1 z:49 v:1,1 z:49 v:2,1 v:7,1 v:2,3 Z:16279"),
            (16383, 1, "v:32,1 z:49 v:1,1 z:49 v:2,1 v:7,1 v:2,3 Z:16278 v:1,1"),
        ] {
            let grew = shown(&body) != want;
            let done = raise(&mut body, register, rank, 100);
            assert_eq!((done == Raised::Yes, shown(&body).as_str()), (grew, want));
        }
        assert_eq!(raise(&mut body, 7, 33, 100), Raised::TooLong);
        let full = body.len();
        assert_eq!(raise(&mut body, 7, 3, full), Raised::TooLong, "a run that is cut needs room");
        assert_eq!(raise(&mut body, 50, 3, full), Raised::Yes, "one that only changes does not");
        assert_eq!(raise(&mut body, REGISTERS, 1, 100), Raised::Broken);
    }

    #[test]
    fn a_run_without_its_second_byte() {
        let mut body = vec![0x7f];
        assert_eq!(shown(&body), "Z:16129");
        assert_eq!(raise(&mut body, 5, 1, 100), Raised::Yes);
        assert_eq!(body, [4, 0x80, 0x40 | 0x3e], "as Redis leaves it, one byte short again");
        assert_eq!(raise(&mut body, 16383, 1, 100), Raised::Broken);
    }
}
