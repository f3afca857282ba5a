//! Cursors of scans in the order of hashes: the top 52 bits of the hash at which the next page begins, plus one; 0 is
//! both start and end. So a client may keep one in a double.

/// Bits of a hash below the cursor.
const LOW_BITS: u32 = 12;

/// The elements that no page may divide: those whose hashes have the same top bits.
pub(super) fn group(hash: u64) -> u64 {
    hash >> LOW_BITS
}

/// The first hash of a group. None behind the last group.
pub(super) fn start(group: u64) -> Option<u64> {
    (group >> (64 - LOW_BITS) == 0).then_some(group << LOW_BITS)
}

/// The cursor of a page that begins with a group.
pub(super) fn of(group: u64) -> u64 {
    if start(group).is_some() { group + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_stay_below_two_to_the_53() {
        assert_eq!([of(0), of((1 << 52) - 1), of(1 << 52)], [1, 1 << 52, 0]);
        assert_eq!([start(0), start(1), start(1 << 52)], [Some(0), Some(1 << LOW_BITS), None]);
    }
}
