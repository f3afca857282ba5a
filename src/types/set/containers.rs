//! Builds a treemap from whole containers by writing its serialized bytes ([`view`](super::view) has the
//! format): Roaring itself takes ids one by one, and checks after each whether its container should change
//! its kind.

use super::view::{MAX_ARRAY, NO_OFFSETS, NO_RUNS, Part, WITH_RUNS};
use crate::error::{Result, StoreError};
use roaring::RoaringTreemap;

/// The bits of a container, lowest first.
pub(crate) type Bits = [u64; 1 << 10];

/// The bits of an empty container.
pub(crate) const NO_BITS: Bits = [0; 1 << 10];

/// See the module. Containers are added in ascending order of `high`, their ids without the last 16 bits.
#[derive(Debug)]
pub(crate) struct Containers {
    /// A treemap's bytes: the number of bitmaps, then the finished bitmaps.
    raw: Vec<u8>,
    bitmaps: u64,
    /// The bitmap under construction: the high half of its ids, and its parts.
    half: u32,
    heads: Vec<[u8; 4]>,
    runs: Vec<bool>,
    offsets: Vec<u32>,
    body: Vec<u8>,
}

impl Containers {
    /// A builder with room for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut raw = Vec::with_capacity(bytes);
        raw.extend([0; 8]);
        let (heads, runs, offsets, body) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Containers { raw, bitmaps: 0, half: 0, heads, runs, offsets, body }
    }

    /// Adds ascending members.
    pub(crate) fn members(&mut self, high: u64, members: &[u16]) {
        match members.len() as u32 {
            0 => {}
            len @ 1..=MAX_ARRAY => {
                self.head(high, len, false);
                extend(&mut self.body, members.iter().map(|member| member.to_le_bytes()));
            }
            len => {
                let mut bits = NO_BITS;
                members.iter().for_each(|member| set(&mut bits, *member, true));
                self.many(high, len, &bits);
            }
        }
    }

    /// Adds the members whose bit is set. Uses `room`.
    pub(crate) fn bits(&mut self, high: u64, bits: &Bits, room: &mut Vec<u16>) {
        let len = bits.iter().map(|word| word.count_ones()).sum();
        if len <= MAX_ARRAY {
            members(bits, room);
            return self.members(high, room);
        }
        self.many(high, len, bits);
    }

    /// Adds more members than an array can hold.
    fn many(&mut self, high: u64, len: u32, bits: &Bits) {
        self.head(high, len, false);
        extend(&mut self.body, bits.iter().map(|word| word.to_le_bytes()));
    }

    /// Adds a container of another treemap.
    pub(crate) fn part(&mut self, part: &Part<'_>) {
        self.head(part.high, part.len, part.runs);
        self.body.extend_from_slice(part.raw);
    }

    fn head(&mut self, high: u64, len: u32, runs: bool) {
        let half = (high >> 16) as u32;
        if half != self.half {
            self.end_bitmap();
            self.half = half;
        }
        self.heads.push(((len - 1) << 16 | u32::from(high as u16)).to_le_bytes());
        self.runs.push(runs);
        self.offsets.push(self.body.len() as u32);
    }

    fn end_bitmap(&mut self) {
        let n = self.heads.len();
        if n == 0 {
            return;
        }
        let raw = &mut self.raw;
        raw.extend(self.half.to_le_bytes());
        let begin = raw.len();
        let with_runs = self.runs.contains(&true);
        if with_runs {
            raw.extend(((n as u32 - 1) << 16 | WITH_RUNS).to_le_bytes());
            let byte = |some: &[bool]| some.iter().rev().fold(0, |byte, runs| byte << 1 | u8::from(*runs));
            raw.extend(self.runs.chunks(8).map(byte));
        } else {
            extend(raw, [NO_RUNS, n as u32].into_iter().map(u32::to_le_bytes));
        }
        extend(raw, self.heads.drain(..));
        if !with_runs || n > NO_OFFSETS {
            let body = (raw.len() - begin + 4 * n) as u32;
            extend(raw, self.offsets.iter().map(|offset| (body + offset).to_le_bytes()));
        }
        raw.append(&mut self.body);
        self.runs.clear();
        self.offsets.clear();
        self.bitmaps += 1;
    }

    /// The treemap's bytes.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.end_bitmap();
        self.raw.iter_mut().zip(self.bitmaps.to_le_bytes()).for_each(|(slot, byte)| *slot = byte);
        self.raw
    }

    /// The treemap. Fails if members were not added in order.
    pub(crate) fn treemap(self) -> Result<RoaringTreemap> {
        let found = RoaringTreemap::deserialize_from(&self.into_bytes()[..]);
        Ok(found
            .map_err(|e| StoreError::Corrupt(format!("an array container of a set does not decode: {e}")))?)
    }
}

/// Sets or clears a member's bit.
pub(crate) fn set(bits: &mut Bits, member: u16, to: bool) {
    if let Some(word) = bits.get_mut(usize::from(member / 64)) {
        let bit = 1 << (member % 64);
        *word = if to { *word | bit } else { *word & !bit };
    }
}

/// Sets `members` to the members whose bit is set, ascending.
pub(crate) fn members(bits: &Bits, members: &mut Vec<u16>) {
    members.clear();
    for (n, word) in bits.iter().enumerate() {
        let mut word = *word;
        while word != 0 {
            members.push(n as u16 * 64 + word.trailing_zeros() as u16);
            word &= word - 1;
        }
    }
}

fn extend<const N: usize>(raw: &mut Vec<u8>, values: impl ExactSizeIterator<Item = [u8; N]>) {
    let begin = raw.len();
    raw.resize(begin + N * values.len(), 0);
    let slots = raw.get_mut(begin..).unwrap_or_default().as_chunks_mut().0;
    slots.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Members of the containers of a few bitmaps: few, the most of an array, one more, all.
    fn containers() -> impl Strategy<Value = Vec<(u64, Vec<u16>)>> {
        let high = prop_oneof![0u64..3, (1u64 << 16) - 2..(1 << 16) + 2, (1u64 << 48) - 2..1 << 48];
        let len = prop_oneof![0u32..100, 4_090u32..4_100, Just(1 << 16)];
        let members = (len, 1u32..13).prop_map(|(len, step)| {
            let step = if len * step > 1 << 16 { 1 } else { step };
            (0..len).map(|n| (n * step) as u16).collect()
        });
        proptest::collection::btree_map(high, members, 0..6).prop_map(Vec::from_iter)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn puts_together_what_it_is_given(all in containers(), as_bits in any::<bool>()) {
            let (mut built, mut room) = (Containers::with_capacity(0), Vec::new());
            for (high, members) in &all {
                if as_bits {
                    let mut bits = NO_BITS;
                    members.iter().for_each(|member| set(&mut bits, *member, true));
                    built.bits(*high, &bits, &mut room);
                } else {
                    built.members(*high, members);
                }
            }
            let ids = |(high, members): &(u64, Vec<u16>)| {
                let high = high << 16;
                members.iter().map(|member| high | u64::from(*member)).collect::<Vec<_>>()
            };
            let built = built.treemap().unwrap();
            prop_assert_eq!(&built, &all.iter().flat_map(ids).collect::<RoaringTreemap>());
            prop_assert!(built.bitmaps().all(|(_, bitmap)| !bitmap.is_empty()));
        }
    }
}
