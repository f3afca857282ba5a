//! Reads a serialized `RoaringTreemap` in place: to look up one member of a chunk, nothing needs to be built.
//!
//! ```text
//! treemap    number u64 | (high half of the ids u32 | bitmap)*                   all numbers little-endian
//! bitmap     12346 u32 | n u32            | heads | offsets            | containers       no runs
//!            12347 u16 | n - 1 u16 | runs | heads | [offsets if n > 3] | containers       runs: a bit a container
//! heads      n * (key u16 | members - 1 u16)           offsets    n * u32, from the bitmap's start
//! container  runs: number u16, (start u16 | length - 1 u16)*
//!            else up to 4096 members: u16 each         else 8 KiB of bits
//! ```
//! None, everywhere: the bytes are not a treemap. Parts that the answer does not need are not checked.

/// The first 4 bytes of a bitmap without runs.
pub(crate) const NO_RUNS: u32 = 12_346;
/// The first 2 bytes of a bitmap with runs.
pub(crate) const WITH_RUNS: u32 = 12_347;
/// A bitmap with runs and at most this many containers has no offsets.
pub(crate) const NO_OFFSETS: usize = 3;
/// Most members of an array container.
pub(crate) const MAX_ARRAY: u32 = 4_096;
const BITS_BYTES: usize = 8 << 10;

/// The last 16 bits of ids, little-endian, ascending.
pub(crate) type Array<'a> = &'a [[u8; 2]];

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreemapView<'a> {
    bitmaps: u64,
    raw: &'a [u8],
}

impl<'a> TreemapView<'a> {
    /// A view of serialized bytes.
    pub(crate) fn new(mut raw: &'a [u8]) -> Option<Self> {
        let bitmaps = u64::from_le_bytes(*take(&mut raw, 8)?.first_chunk()?);
        Some(TreemapView { bitmaps, raw })
    }

    /// The bitmaps, each with the high half of its ids.
    fn bitmaps(self) -> impl Iterator<Item = Option<(u64, Bitmap<'a>)>> {
        let mut raw = self.raw;
        (0..self.bitmaps).map(move |_| {
            let high = u32_at(take(&mut raw, 4)?, 0)?;
            let bitmap = Bitmap::new(raw)?;
            take(&mut raw, bitmap.end()?)?;
            Some((u64::from(high) << 32, bitmap))
        })
    }

    /// The containers, ascending.
    pub(crate) fn parts(self) -> Option<Vec<Part<'a>>> {
        let mut found = Vec::new();
        for bitmap in self.bitmaps() {
            let (high, bitmap) = bitmap?;
            for (n, head) in bitmap.heads.iter().enumerate() {
                let (begin, end) = bitmap.place(n)?;
                let high = high >> 16 | u64::from(Bitmap::key(head));
                let (len, runs) = (bitmap.members(n)?, bitmap.has_runs(n));
                found.push(Part { high, len, runs, raw: bitmap.raw.get(begin..end)? });
            }
        }
        Some(found)
    }

    /// Whether `id` is a member.
    pub(crate) fn contains(self, id: u64) -> Option<bool> {
        let high = id >> 32 << 32;
        let mut raw = self.raw;
        for _ in 0..self.bitmaps {
            let found = u64::from(u32_at(take(&mut raw, 4)?, 0)?) << 32;
            if found > high {
                return Some(false);
            }
            let bitmap = Bitmap::new(raw)?;
            if found == high {
                return bitmap.contains(id as u32);
            }
            take(&mut raw, bitmap.end()?)?;
        }
        Some(false)
    }

    /// Number of members.
    pub(crate) fn count(self) -> Option<u64> {
        self.bitmaps().map(|bitmap| Some(bitmap?.1.len())).sum()
    }

    /// The member with `rank` smaller ones; the inner None: the treemap has no more than `rank` members.
    pub(crate) fn select(self, mut rank: u64) -> Option<Option<u64>> {
        for bitmap in self.bitmaps() {
            let (high, bitmap) = bitmap?;
            let len = bitmap.len();
            if rank < len {
                return Some(Some(high | u64::from(bitmap.select(rank)?)));
            }
            rank -= len;
        }
        Some(None)
    }
}

/// A container as it is stored.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The ids without their last 16 bits.
    pub(crate) high: u64,
    /// Number of members.
    pub(crate) len: u32,
    /// Whether it is a run container.
    pub(crate) runs: bool,
    /// Its bytes.
    pub(crate) raw: &'a [u8],
}

impl<'a> Part<'a> {
    /// The members, if it is an array container.
    pub(crate) fn array(&self) -> Option<Array<'a>> {
        (!self.runs && self.len <= MAX_ARRAY).then_some(self.raw.as_chunks().0)
    }
}

/// One bitmap; `raw` may extend beyond it.
#[derive(Clone, Copy)]
struct Bitmap<'a> {
    raw: &'a [u8],
    runs: &'a [u8],
    heads: &'a [[u8; 4]],
    offsets: Option<&'a [[u8; 4]]>,
    /// Offset of the containers.
    body: usize,
}

impl<'a> Bitmap<'a> {
    fn new(raw: &'a [u8]) -> Option<Self> {
        let mut rest = raw;
        let cookie = u32_at(take(&mut rest, 4)?, 0)?;
        let (n, runs) = match cookie & 0xffff {
            WITH_RUNS => {
                let n = (cookie >> 16) as usize + 1;
                (n, take(&mut rest, n.div_ceil(8))?)
            }
            NO_RUNS => (u32_at(take(&mut rest, 4)?, 0)? as usize, &[][..]),
            _ => return None,
        };
        let heads = take(&mut rest, n.checked_mul(4)?)?.as_chunks().0;
        let offsets = match runs.is_empty() || n > NO_OFFSETS {
            true => Some(take(&mut rest, n * 4)?.as_chunks().0),
            false => None,
        };
        Some(Bitmap { raw, runs, heads, offsets, body: raw.len() - rest.len() })
    }

    fn members(&self, n: usize) -> Option<u32> {
        let [_, _, a, b] = self.heads.get(n)?;
        Some(u32::from(u16::from_le_bytes([*a, *b])) + 1)
    }

    fn key(head: &[u8; 4]) -> u16 {
        let [a, b, _, _] = head;
        u16::from_le_bytes([*a, *b])
    }

    fn has_runs(&self, n: usize) -> bool {
        self.runs.get(n / 8).is_some_and(|byte| byte >> (n % 8) & 1 == 1)
    }

    /// The start and end of container `n`.
    fn place(&self, n: usize) -> Option<(usize, usize)> {
        let begin = match self.offsets {
            Some(offsets) => u32::from_le_bytes(*offsets.get(n)?) as usize,
            None if n == 0 => self.body,
            None => self.place(n - 1)?.1,
        };
        let size = match self.members(n)? {
            _ if self.has_runs(n) => 2 + 4 * usize::from(u16_at(self.raw, begin)?),
            members if members <= MAX_ARRAY => 2 * members as usize,
            _ => BITS_BYTES,
        };
        Some((begin, begin.checked_add(size)?))
    }

    fn end(&self) -> Option<usize> {
        match self.heads.len().checked_sub(1) {
            None => Some(self.body),
            Some(last) => Some(self.place(last)?.1),
        }
    }

    fn len(&self) -> u64 {
        (0..self.heads.len()).filter_map(|n| self.members(n)).map(u64::from).sum()
    }

    fn container(&self, n: usize) -> Option<Container<'a>> {
        let (begin, end) = self.place(n)?;
        let raw = self.raw.get(begin..end)?;
        Some(match self.members(n)? {
            _ if self.has_runs(n) => Container::Runs(raw.get(2..)?.as_chunks().0),
            members if members <= MAX_ARRAY => Container::Array(raw.as_chunks().0),
            _ => Container::Bits(raw),
        })
    }

    fn contains(&self, low: u32) -> Option<bool> {
        let key = (low >> 16) as u16;
        match self.heads.binary_search_by_key(&key, Self::key) {
            Ok(n) => Some(self.container(n)?.contains(low as u16)),
            Err(_) => Some(false),
        }
    }

    fn select(&self, mut rank: u64) -> Option<u32> {
        for (n, head) in self.heads.iter().enumerate() {
            let members = u64::from(self.members(n)?);
            if rank < members {
                let low = self.container(n)?.select(rank as u32)?;
                return Some(u32::from(Self::key(head)) << 16 | u32::from(low));
            }
            rank -= members;
        }
        None
    }
}

enum Container<'a> {
    Runs(&'a [[u8; 4]]),
    Array(Array<'a>),
    Bits(&'a [u8]),
}

impl Container<'_> {
    fn contains(&self, id: u16) -> bool {
        match self {
            Container::Array(ids) => ids.binary_search_by_key(&id, |raw| u16::from_le_bytes(*raw)).is_ok(),
            Container::Bits(bits) => {
                bits.get(usize::from(id / 8)).is_some_and(|byte| byte >> (id % 8) & 1 == 1)
            }
            Container::Runs(runs) => {
                let after = runs.partition_point(|run| start_and_rest(run).0 <= id);
                let run = after.checked_sub(1).and_then(|n| runs.get(n)).map(start_and_rest);
                run.is_some_and(|(start, rest)| id.checked_sub(start).is_some_and(|at| at <= rest))
            }
        }
    }

    fn select(&self, mut rank: u32) -> Option<u16> {
        match self {
            Container::Array(ids) => Some(u16::from_le_bytes(*ids.get(rank as usize)?)),
            Container::Bits(bits) => {
                for (n, word) in bits.as_chunks().0.iter().enumerate() {
                    let mut word = u64::from_le_bytes(*word);
                    if rank < word.count_ones() {
                        (0..rank).for_each(|_| word &= word - 1);
                        return Some(n as u16 * 64 + word.trailing_zeros() as u16);
                    }
                    rank -= word.count_ones();
                }
                None
            }
            Container::Runs(runs) => {
                for (start, rest) in runs.iter().map(start_and_rest) {
                    if rank <= u32::from(rest) {
                        return start.checked_add(rank as u16);
                    }
                    rank -= u32::from(rest) + 1;
                }
                None
            }
        }
    }
}

/// The start of a run, and the number of members after the first.
fn start_and_rest(run: &[u8; 4]) -> (u16, u16) {
    let [a, b, c, d] = run;
    (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]))
}

fn take<'a>(raw: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = raw.split_at_checked(n)?;
    *raw = tail;
    Some(head)
}

fn u16_at(raw: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*raw.get(at..)?.first_chunk()?))
}

fn u32_at(raw: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*raw.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use roaring::RoaringTreemap;

    /// Stretches of ids, dense and scattered, so that all kinds of containers and bitmaps occur together.
    fn treemaps() -> impl Strategy<Value = RoaringTreemap> {
        let begin = prop_oneof![0u64..1 << 20, 0u64..1 << 34, any::<u64>()];
        let step = prop_oneof![Just(1u64), 2u64..20, Just(66_000), 1u64 << 31..1 << 33];
        let stretches = proptest::collection::vec((begin, 1u64..9_000, step), 0..10);
        (stretches, any::<bool>()).prop_map(|(stretches, optimize)| {
            let mut ids = RoaringTreemap::new();
            for (begin, n, step) in stretches {
                let n = if step > 1 << 16 { n % 100 } else { n };
                ids.extend((0..n).filter_map(|k| begin.checked_add(k * step)));
            }
            if optimize {
                ids.optimize();
            }
            ids
        })
    }

    fn bytes(ids: &RoaringTreemap) -> Vec<u8> {
        let mut raw = Vec::new();
        ids.serialize_into(&mut raw).unwrap();
        raw
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn answers_as_the_treemap_does(ids in treemaps(), others in proptest::collection::vec(any::<u64>(), 20)) {
            let raw = bytes(&ids);
            let view = TreemapView::new(&raw).unwrap();
            prop_assert_eq!(view.count(), Some(ids.len()));
            let step = (ids.len() as usize / 500).max(1);
            for (rank, id) in ids.iter().enumerate().step_by(step) {
                prop_assert_eq!(view.contains(id), Some(true));
                prop_assert_eq!(view.select(rank as u64), Some(Some(id)));
                for near in [id.wrapping_sub(1), id.wrapping_add(1), id ^ 1 << 16, id ^ 1 << 32] {
                    prop_assert_eq!(view.contains(near), Some(ids.contains(near)));
                }
            }
            for id in others {
                prop_assert_eq!(view.contains(id), Some(ids.contains(id)));
            }
            prop_assert_eq!(view.select(ids.len()), Some(None));
            let parts = view.parts().unwrap();
            prop_assert_eq!(parts.iter().map(|part| u64::from(part.len)).sum::<u64>(), ids.len());
            let mut left = ids.iter();
            for part in &parts {
                let here: Vec<u64> = left.by_ref().take(part.len as usize).collect();
                prop_assert!(here.iter().all(|id| id >> 16 == part.high));
                if let Some(array) = part.array() {
                    let whole = array.iter().map(|id| part.high << 16 | u64::from(u16::from_le_bytes(*id)));
                    prop_assert_eq!(Vec::from_iter(whole), here);
                }
            }
        }

        #[test]
        fn damaged_bytes_do_not_panic(ids in treemaps(), cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut raw = bytes(&ids);
            let at = at.index(raw.len());
            raw[at] = byte;
            raw.truncate(cut.index(raw.len() + 1));
            if let Some(view) = TreemapView::new(&raw) {
                for id in ids.iter().take(50) {
                    let _ = (view.contains(id), view.select(id % 1000), view.count(), view.parts().is_some());
                }
            }
        }
    }

    #[test]
    fn cut_bytes_are_seen() {
        let ids: RoaringTreemap = (0..10).map(|n| n << 33).collect();
        let raw = bytes(&ids);
        assert_eq!(TreemapView::new(&raw[..raw.len() - 1]).unwrap().contains(9 << 33), None);
        assert!(TreemapView::new(&raw[..7]).is_none());
    }
}
