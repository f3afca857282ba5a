//! HyperLogLogs: strings in Redis' own layout, byte for byte, so that GET, SET and DUMP can move them between
//! Redis and Tern.
//!
//! ```text
//! "HYLL" | encoding u8: 0 dense, 1 sparse | 3 bytes, not used | cardinality u64 LE | registers
//! ```
//! There are 16 384 registers: the low 14 bits of an element's hash select one, and it keeps the largest rank
//! (the position of the lowest 1 among the other 50 bits, counted from 1) that it has seen. The cardinality
//! is the last one computed; its top bit says that registers have changed since.
//!
//! Anybody can write any bytes with SET. So a body is trusted only as far as it has been read, and a broken
//! one is [`Corrupt`]. Each command notices the same damage as in Redis: `tests/differential` compares it.

mod dense;
mod estimate;
mod hash;
mod sparse;

use estimate::Histogram;
use sparse::{Marks, Raised};

/// The number of registers of each HyperLogLog.
pub(crate) const REGISTERS: usize = 1 << 14;

const MAGIC: &[u8; 4] = b"HYLL";
/// Bytes before the registers.
pub(crate) const HEADER: usize = 16;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// The longest string accepted as a HyperLogLog, in bytes. Valid sparse registers take at most two bytes
/// each; in a string from Redis, garbage may follow them.
pub(crate) const LONGEST: u64 = 1 << 20;
/// The bit in the last byte of the cardinality that marks it as out of date.
const STALE: u8 = 1 << 7;

/// The registers do not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// The largest ranks of one or more HyperLogLogs, register by register.
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

    /// The estimated number of distinct elements.
    pub fn estimate(&self) -> u64 {
        estimate::cardinality(&Histogram::of(&self.0))
    }

    /// Raises the ranks of `run` registers from `at` on. False if there are fewer registers.
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
    /// An empty HyperLogLog, sparse.
    pub fn new() -> Self {
        let mut header = [0; HEADER];
        for (to, from) in header.iter_mut().zip(MAGIC.iter().chain([&SPARSE])) {
            *to = *from;
        }
        HyperLogLog { header, body: sparse::empty() }
    }

    /// The HyperLogLog in a string. None if header or length do not match.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let begin = HyperLogLog::begin(bytes, bytes.len() as u64)?;
        Some(HyperLogLog { body: bytes.get(HEADER..)?.to_vec(), ..begin })
    }

    /// The HyperLogLog at the beginning of a string of `len` bytes, without its registers. None as for
    /// [`HyperLogLog::parse`].
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

    /// Marks the stored cardinality as out of date.
    pub(crate) fn invalidate(&mut self) {
        let [.., last] = &mut self.header;
        *last |= STALE;
    }

    /// An adder for many elements. `sparse_max` is the longest sparse string in bytes; a longer one becomes
    /// dense.
    pub fn adder(&mut self, sparse_max: usize) -> Adder<'_> {
        Adder { hll: self, marks: Marks::default(), longest: sparse_max.saturating_sub(HEADER) }
    }

    /// Converts to the dense encoding. Returns true if it was sparse.
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

    /// Raises `registers` to those of this HyperLogLog.
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

    /// Raises the registers of this HyperLogLog to `registers`.
    pub fn merge(&mut self, registers: &Registers, sparse_max: usize) -> Result<(), Corrupt> {
        let mut adder = self.adder(sparse_max);
        for (at, rank) in registers.ranks().enumerate().filter(|(_, rank)| *rank > 0) {
            adder.raise(at, rank)?;
        }
        self.invalidate();
        Ok(())
    }

    /// Computes and stores the number of distinct elements.
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

    /// The sparse registers in the format of PFDEBUG DECODE: `z:3 Z:100 v:2,1`. None if they are dense.
    pub fn decode(&self) -> Option<String> {
        let words: Vec<String> = sparse::ops(&self.body).map(|op| op.to_string()).collect();
        (!self.is_dense()).then(|| words.join(" "))
    }
}

/// Adds elements to one HyperLogLog.
pub struct Adder<'a> {
    hll: &'a mut HyperLogLog,
    marks: Marks,
    /// Most bytes of the sparse registers.
    longest: usize,
}

impl Adder<'_> {
    /// Adds an element. Returns true if a register grew.
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

    /// Both encodings hold the same registers and give the same estimate, from no element to far beyond the
    /// change of encoding.
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

    /// No input makes it panic, and a changed string still parses.
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
