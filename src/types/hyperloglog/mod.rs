//! HyperLogLogs: strings in Redis' own layout, byte for byte, so that GET, SET and DUMP move them between the two.
//!
//! ```text
//! "HYLL" | encoding u8: 0 dense, 1 sparse | 3 bytes, not used | cardinality u64 LE | registers
//! ```
//! There are 16 384 registers: the low 14 bits of an element's hash choose one, and it keeps the largest rank (the
//! number of the lowest 1 among the other 50 bits, counted from 1) that it has seen. The cardinality is the last one
//! that was computed; its top bit says that registers have changed since.
//!
//! Anybody can write any bytes with SET. So a body is trusted no further than it is read, and what is found broken is
//! [`Corrupt`]. Which breakage is noticed by which command is Redis' too: `tests/differential` compares it.

mod dense;
mod estimate;
mod hash;
mod sparse;

use estimate::Histogram;
use sparse::{Marks, Raised};

/// Registers of each HyperLogLog.
pub(crate) const REGISTERS: usize = 1 << 14;

const MAGIC: &[u8; 4] = b"HYLL";
/// Bytes before the registers.
pub(crate) const HEADER: usize = 16;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// Longest string that is taken for one, in bytes. Sparse registers that decode take two bytes each at most; behind those of a string
/// of Redis there may be garbage.
pub(crate) const LONGEST: u64 = 1 << 20;
/// In the last byte of the cardinality: it is out of date.
const STALE: u8 = 1 << 7;

/// The registers do not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// The largest ranks of some HyperLogLogs, register by register.
pub struct Registers(Box<[u8; REGISTERS]>);

impl Default for Registers {
    fn default() -> Self {
        Registers(Box::new([0; REGISTERS]))
    }
}

impl Registers {
    /// All ranks.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().copied()
    }

    /// The estimated number of different elements.
    pub fn estimate(&self) -> u64 {
        estimate::cardinality(&Histogram::of(&self.0))
    }

    /// Raises the ranks of `run` registers from `at` on. False where there are not as many.
    fn raise(&mut self, at: usize, run: usize, rank: u8) -> bool {
        let Some(registers) = self.0.get_mut(at..at + run) else { return false };
        registers.iter_mut().for_each(|r| *r = rank.max(*r));
        true
    }
}

/// One HyperLogLog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HyperLogLog {
    header: [u8; HEADER],
    body: Vec<u8>,
}

impl HyperLogLog {
    /// An empty one, sparse.
    pub fn new() -> Self {
        let mut header = [0; HEADER];
        for (to, from) in header.iter_mut().zip(MAGIC.iter().chain([&SPARSE])) {
            *to = *from;
        }
        HyperLogLog { header, body: sparse::empty() }
    }

    /// The one in a string. None where the string is none by its header and length.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let begin = HyperLogLog::begin(bytes, bytes.len() as u64)?;
        Some(HyperLogLog { body: bytes.get(HEADER..)?.to_vec(), ..begin })
    }

    /// The one that a string of `len` bytes begins with, without its registers. None as from [`HyperLogLog::parse`].
    pub(crate) fn begin(header: &[u8], len: u64) -> Option<Self> {
        let hll = HyperLogLog { header: *header.first_chunk()?, body: Vec::new() };
        let sized = match hll.encoding() {
            DENSE => len == (HEADER + dense::SIZE) as u64,
            encoding => encoding == SPARSE,
        };
        (header.starts_with(MAGIC) && sized).then_some(hll)
    }

    /// The string.
    pub fn bytes(&self) -> Vec<u8> {
        [self.header.as_slice(), &self.body].concat()
    }

    /// Whether every register has its own six bits.
    pub fn is_dense(&self) -> bool {
        self.encoding() == DENSE
    }

    fn encoding(&self) -> u8 {
        let [_, _, _, _, encoding, ..] = self.header;
        encoding
    }

    /// The cardinality, if nothing has changed since it was computed.
    pub fn cached(&self) -> Option<u64> {
        let cardinality = u64::from_le_bytes(*self.header.last_chunk::<8>()?);
        let [.., last] = self.header;
        (last & STALE == 0).then_some(cardinality)
    }

    /// Marks the kept cardinality as out of date.
    pub(crate) fn invalidate(&mut self) {
        let [.., last] = &mut self.header;
        *last |= STALE;
    }

    /// To add many elements. `sparse_max`: the longest sparse string in bytes; what would be longer becomes dense.
    pub fn adder(&mut self, sparse_max: usize) -> Adder<'_> {
        Adder { hll: self, marks: Marks::default(), longest: sparse_max.saturating_sub(HEADER) }
    }

    /// Gives every register its own bits. True where they had not.
    pub fn make_dense(&mut self) -> Result<bool, Corrupt> {
        if self.is_dense() {
            return Ok(false);
        }
        let mut registers = Registers::default();
        self.merge_into(&mut registers)?;
        self.body = dense::encode(&registers.0);
        let [_, _, _, _, encoding, ..] = &mut self.header;
        *encoding = DENSE;
        Ok(true)
    }

    /// Raises `registers` to this one's.
    pub fn merge_into(&self, registers: &mut Registers) -> Result<(), Corrupt> {
        if self.is_dense() {
            dense::merge_into(&self.body, &mut registers.0);
            return Ok(());
        }
        let mut at = 0;
        for op in sparse::ops(&self.body) {
            if !registers.raise(at, op.run, op.rank) {
                return Err(Corrupt);
            }
            at += op.run;
        }
        if at == REGISTERS { Ok(()) } else { Err(Corrupt) }
    }

    /// Raises this one's registers to `registers`.
    pub fn merge(&mut self, registers: &Registers, sparse_max: usize) -> Result<(), Corrupt> {
        let mut adder = self.adder(sparse_max);
        for (at, rank) in registers.ranks().enumerate().filter(|(_, rank)| *rank > 0) {
            adder.raise(at, rank)?;
        }
        self.invalidate();
        Ok(())
    }

    /// Computes the number of different elements, and keeps it.
    pub fn count(&mut self) -> Result<u64, Corrupt> {
        let cardinality = estimate::cardinality(&self.histogram()?);
        if let Some(kept) = self.header.last_chunk_mut::<8>() {
            *kept = cardinality.to_le_bytes();
        }
        Ok(cardinality)
    }

    fn histogram(&self) -> Result<Histogram, Corrupt> {
        if self.is_dense() {
            let mut registers = Registers::default();
            dense::merge_into(&self.body, &mut registers.0);
            return Ok(Histogram::of(&registers.0));
        }
        let (mut histogram, mut at) = (Histogram::new(), 0);
        for op in sparse::ops(&self.body) {
            at += op.run;
            if at > REGISTERS {
                return Err(Corrupt);
            }
            histogram.add(op.rank, op.run as u32);
        }
        if at == REGISTERS { Ok(histogram) } else { Err(Corrupt) }
    }

    /// The sparse registers as PFDEBUG DECODE writes them: `z:3 Z:100 v:2,1`. None where they are dense.
    pub fn decode(&self) -> Option<String> {
        let words: Vec<String> = sparse::ops(&self.body).map(|op| op.to_string()).collect();
        (!self.is_dense()).then(|| words.join(" "))
    }
}

/// Adds elements to one HyperLogLog.
pub struct Adder<'a> {
    hll: &'a mut HyperLogLog,
    marks: Marks,
    /// Most bytes of sparse registers.
    longest: usize,
}

impl Adder<'_> {
    /// Adds an element. True where a register grew.
    pub fn add(&mut self, element: &[u8]) -> Result<bool, Corrupt> {
        let (register, rank) = hash::place(element);
        self.raise(register, rank)
    }

    /// Raises a register to `rank`.
    fn raise(&mut self, register: usize, rank: u8) -> Result<bool, Corrupt> {
        let hll = &mut *self.hll;
        if !hll.is_dense() {
            match sparse::raise(&mut hll.body, &mut self.marks, register, rank, self.longest) {
                Raised::No => return Ok(false),
                Raised::Yes => {
                    hll.invalidate();
                    return Ok(true);
                }
                Raised::Broken => return Err(Corrupt),
                Raised::TooLong => hll.make_dense().map(drop)?,
            }
        }
        Ok(dense::raise(&mut hll.body, register, rank))
    }
}

impl Default for HyperLogLog {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPARSE_MAX: usize = 3000;

    /// Both encodings hold the same registers and estimate the same, from no element to far over the change.
    #[test]
    fn sparse_and_dense_agree() {
        let (mut sparse, mut dense) = (HyperLogLog::new(), HyperLogLog::new());
        dense.make_dense().unwrap();
        for n in 0..3000u32 {
            let element = n.to_string();
            let grew = sparse.adder(SPARSE_MAX).add(element.as_bytes()).unwrap();
            assert_eq!(dense.adder(SPARSE_MAX).add(element.as_bytes()).unwrap(), grew, "{n}");
            assert_eq!(sparse.count(), dense.count(), "{n}");
        }
        assert!(sparse.is_dense(), "3000 elements are too many for 3000 bytes");
        let estimated = dense.count().unwrap();
        assert!(estimated.abs_diff(3000) < 100, "{estimated}");
    }

    #[test]
    fn round_trip() {
        let mut hll = HyperLogLog::new();
        hll.adder(SPARSE_MAX).add(b"a").unwrap();
        assert_eq!(HyperLogLog::parse(&hll.bytes()), Some(hll.clone()));
        assert_eq!(hll.cached(), None);
        assert_eq!(hll.count(), Ok(1));
        assert_eq!(hll.cached(), Some(1));
        hll.make_dense().unwrap();
        assert_eq!(hll.cached(), Some(1), "the same elements");
        assert_eq!(hll.bytes().len(), 12_304);
        assert_eq!(HyperLogLog::parse(&hll.bytes()), Some(hll));
    }

    #[test]
    fn merged_as_if_added() {
        let (mut a, mut b, mut all) = (HyperLogLog::new(), HyperLogLog::new(), HyperLogLog::new());
        for n in 0..400u32 {
            let element = n.to_le_bytes();
            if n % 3 == 0 { &mut a } else { &mut b }.adder(SPARSE_MAX).add(&element).unwrap();
            all.adder(SPARSE_MAX).add(&element).unwrap();
        }
        let mut registers = Registers::default();
        a.merge_into(&mut registers).unwrap();
        b.merge_into(&mut registers).unwrap();
        assert_eq!(Ok(registers.estimate()), all.count());
        a.merge(&registers, SPARSE_MAX).unwrap();
        assert_eq!(a.count(), all.count());
    }

    /// No bytes make it panic, and what is changed still parses.
    #[test]
    fn hostile_bodies() {
        let mut rng = crate::env::Env::seeded(0, 3).rng();
        for _ in 0..3000 {
            let mut hll = HyperLogLog::new();
            (0..rng.below(300)).for_each(|_| _ = hll.adder(SPARSE_MAX).add(&rng.u64().to_le_bytes()));
            let mut bytes = hll.bytes();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.u64() as u8;
            }
            bytes.truncate(bytes.len() - rng.below(3) as usize);
            let Some(mut hll) = HyperLogLog::parse(&bytes) else { continue };
            let _ = hll.adder(SPARSE_MAX).add(b"x");
            let _ = (hll.count(), hll.decode(), hll.merge_into(&mut Registers::default()));
            let _ = hll.make_dense();
            assert_eq!(HyperLogLog::parse(&hll.bytes()), Some(hll));
        }
    }
}
