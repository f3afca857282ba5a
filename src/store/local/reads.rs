//! The reads of a transaction that can make it fail: points in one buffer (no allocation per key), and
//! ranges.

use super::layout;
use bytes::Bytes;

/// See the module. Keys are stored keys.
#[derive(Debug, Default)]
pub(super) struct Reads {
    keys: Vec<u8>,
    points: Vec<(u64, usize)>, // hash, end of the key in `keys`
    pub(super) ranges: Vec<(Bytes, Bytes)>,
    pub(super) metadata: bool,
    ranges_size: usize,
}

impl Reads {
    pub(super) fn point(&mut self, hash: u64, key: &[u8]) {
        self.keys.extend_from_slice(key);
        self.points.push((hash, self.keys.len()));
    }
    /// Adds a range. A range of one key is a point: the table of points answers it without searching written
    /// keys.
    pub(super) fn range(&mut self, begin: Bytes, end: Bytes) {
        if end.split_last() == Some((&0, &begin[..])) {
            return self.point(layout::hash(&begin), &begin);
        }
        self.ranges_size += begin.len() + end.len();
        self.ranges.push((begin, end));
    }
    /// Hashes and keys.
    pub(super) fn points(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut start = 0;
        self.points.iter().map(move |&(hash, end)| {
            let key = self.keys.get(start..end).unwrap_or_default();
            start = end;
            (hash, key)
        })
    }
    /// Bytes of the keys and ranges.
    pub(super) fn size(&self) -> usize {
        self.keys.len() + self.ranges_size
    }
}
