//! SSCAN: stateless, in the order of ids.
//!
//! The cursor is a **position**: ids mapped in order to numbers below 2^53, so that a client may store it in
//! a double or a signed integer. A page begins with the first id at or after its cursor and ends between two
//! positions, so any server can continue from it, whatever was added, removed or folded in between: a member
//! that is present all the time is returned exactly once, and each page but the last advances. Small sets are
//! returned at once, as Redis returns its small encodings.
//!
//! ```text
//! positions             ids                                       ids of one position
//! 0 ..                  interned, 2^43 positions a shard:
//!     first half            of the shard's first 2^26 blocks         1
//!     second half           of later blocks                          4096
//! 2^51 ..               integers:
//!     2^50 - 2^40           below -2^51                              2048
//!     2^52                  -2^51 .. 2^51                            1
//!     2^50 - 2^40           above                                    2048
//! ```
//! So a page has `count` members, or up to 4095 more: if more than 10^15 members were ever made, or in a set
//! of closely spaced integers far from 0. Ids that share a position are always in one container, hence in one
//! chunk.

use super::{Set, rows};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::dictionary::ids::FIRST_INTEGER;
use crate::store::Read;
use crate::types::object;
use crate::types::set::SetRep;
use bytes::Bytes;

/// The number of positions of interned ids.
const INTERNED: u64 = 1 << 51;
/// Bits of an interned id below its shard, and bits of its position below its shard.
const SHARD_BITS: u32 = 54;
const SHARD_POSITION_BITS: u32 = 43;
/// The number of a shard's ids that have a position each, and the bits of the later ids that share one.
const SHARD_NEAR: u64 = 1 << 42;
const SHARD_SHARED_BITS: u32 = 12;
/// Integer ids, counted from the first: their number; those from `LOW` to `HIGH` have a position each.
const INTEGERS: u64 = 1 << 62;
const LOW: u64 = (1 << 61) - (1 << 51);
const HIGH: u64 = (1 << 61) + (1 << 51);
const SHARED_BITS: u32 = 11;
/// The number of positions for integers below `LOW`, and for those below `HIGH`.
const BELOW_LOW: u64 = LOW >> SHARED_BITS;
const BELOW_HIGH: u64 = BELOW_LOW + (HIGH - LOW);
/// The number of all positions.
const POSITIONS: u64 = INTERNED + BELOW_HIGH + ((INTEGERS - HIGH) >> SHARED_BITS);

/// The position of an id; it never decreases as ids increase.
fn position(id: u64) -> u64 {
    match id.checked_sub(FIRST_INTEGER).map(|n| n.min(INTEGERS - 1)) {
        Some(n) if n < LOW => INTERNED + (n >> SHARED_BITS),
        Some(n) if n < HIGH => INTERNED + BELOW_LOW + (n - LOW),
        Some(n) => INTERNED + BELOW_HIGH + ((n - HIGH) >> SHARED_BITS),
        None => {
            let id = id.min(INTEGERS - 1);
            let n = id & ((1 << SHARD_BITS) - 1);
            let far = n.saturating_sub(SHARD_NEAR) >> SHARD_SHARED_BITS;
            (id >> SHARD_BITS << SHARD_POSITION_BITS) + n.min(SHARD_NEAR) + far
        }
    }
}

/// The smallest id at this position or a later one, if any.
fn first_id(position: u64) -> Option<u64> {
    if let Some(n) = position.checked_sub(INTERNED) {
        let id = match n {
            _ if position >= POSITIONS => return None,
            n if n < BELOW_LOW => n << SHARED_BITS,
            n if n < BELOW_HIGH => n - BELOW_LOW + LOW,
            n => ((n - BELOW_HIGH) << SHARED_BITS) + HIGH,
        };
        return Some(FIRST_INTEGER + id);
    }
    let n = position & ((1 << SHARD_POSITION_BITS) - 1);
    let far = n.saturating_sub(SHARD_NEAR) << SHARD_SHARED_BITS;
    // After the last id of a shard come a few positions without an id.
    let n = (n.min(SHARD_NEAR) + far).min(1 << SHARD_BITS);
    Some((position >> SHARD_POSITION_BITS << SHARD_BITS) + n)
}

/// About `count` members from `cursor` on, and the next cursor: 0 at the end.
pub async fn scan(
    s: &Scope<'_>,
    rep: Option<&SetRep>,
    cursor: u64,
    count: usize,
) -> Result<(u64, Vec<Bytes>)> {
    let oid = match Set::of(rep)? {
        Set::Small(small) => return Ok((0, small.members())),
        Set::Chunked(oid) => oid,
    };
    // In a transaction that writes, every change of the set conflicts.
    object::count(s, oid, Read::Serializable).await?;
    let mut ids: Vec<u64> = Vec::new();
    let mut at = first_id(cursor);
    while let Some(lo) = at.filter(|_| ids.len() < count) {
        let stretch = rows::stretch(s, oid, lo, None, 1).await?;
        let all = stretch.ids()?;
        let mut found = all.iter().peekable();
        ids.extend(found.by_ref().take(count - ids.len()));
        let last = ids.last().map(|id| position(*id));
        while let Some(id) = found.next_if(|id| Some(position(*id)) == last) {
            ids.push(id);
        }
        at = found.next().or(stretch.next);
    }
    Ok((at.map_or(0, position), s.space.ids.resolve(s.tx, &ids).await?))
}

#[cfg(test)]
mod tests {
    use super::super::chunk::container;
    use super::*;
    use proptest::prelude::*;

    /// Possible ids, near the borders of the table above and anywhere.
    fn ids() -> impl Strategy<Value = u64> {
        let shard = (0u64..256).prop_map(|shard| shard << SHARD_BITS);
        let border = prop_oneof![Just(0), Just(SHARD_NEAR), Just((1u64 << SHARD_BITS) - 5000), 0u64..1 << 54];
        let interned =
            (shard, border, 0u64..5000).prop_map(|(shard, n, more)| shard + (n + more) % (1 << 54));
        let border = prop_oneof![Just(0), Just(LOW), Just(1u64 << 61), Just(HIGH), 0..INTEGERS];
        let integer = (border, 0u64..10_000)
            .prop_map(|(n, more)| FIRST_INTEGER + (n + more).saturating_sub(5000).min(INTEGERS - 1));
        prop_oneof![interned, integer]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn positions_keep_the_order_and_lead_back(a in ids(), b in ids(), d in 0u64..5000) {
            for (a, b) in [(a, b), (a, a.saturating_add(d)), (a, a.saturating_add(1))] {
                let (low, high) = (a.min(b), a.max(b));
                prop_assert!(position(low) <= position(high), "{low:#x} {high:#x}");
            }
            let here = position(a);
            prop_assert!(here < 1 << 53);
            let first = first_id(here).unwrap();
            prop_assert!(first <= a && position(first) == here, "{a:#x}: {first:#x}");
            prop_assert!(container(first) == container(a), "one chunk has all of a position");
            prop_assert!(a - first < 4096);
            prop_assert!(first == 0 || position(first - 1) < here);
            // The next position, if any, belongs to a larger id.
            prop_assert!(first_id(here + 1).is_none_or(|next| next > a));
        }
    }

    #[test]
    fn usual_ids_have_a_position_each() {
        for id in [0, 1, SHARD_NEAR - 2, 255 << SHARD_BITS, FIRST_INTEGER + LOW, FIRST_INTEGER + HIGH - 2] {
            assert_eq!(position(id) + 1, position(id + 1), "{id:#x}");
        }
    }

    #[test]
    fn all_positions_are_small() {
        const { assert!(POSITIONS <= 1 << 53) };
        assert_eq!(position((1 << 62) - 1) >> 51, 0);
        assert_eq!(position(u64::MAX), POSITIONS - 1);
        assert_eq!(first_id(POSITIONS), None);
        assert_eq!(first_id(u64::MAX), None);
        assert_eq!(first_id(0), Some(0));
        assert_eq!(first_id(INTERNED), Some(FIRST_INTEGER));
    }
}
