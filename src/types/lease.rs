//! The lease of an object under construction: the value of its garbage row.
//!
//! A builder that continues an object, and a command that takes one over, both read and write the object's
//! `g` row. So an object is either reclaimed or alive, never both, whenever the reclaimer acts. The lease
//! only keeps a builder from being disturbed, and needs no clock shared by two servers:
//! * the value is the end of the lease by the *builder's own monotonic clock* ([`until`]), or [`GIVEN_UP`];
//! * the object id names the builder's server. That server compares the value with its own clock: this frees
//!   the rows of a failed task;
//! * every other server checks whether the builder is still registered (`keyspace::cluster::instances`), in
//!   the same transaction. A server registers before it builds, and is removed once it has left or is surely
//!   dead. So an unregistered server no longer builds, or it was taken for dead: then its next step fails and
//!   its command runs again.

use crate::error::{StoreError, StoreResult};
use crate::keyspace::cluster::instances;
use crate::keyspace::keys::Oid;
use crate::keyspace::{Fresh, Keyspace};
use crate::store::Tx;

/// The value of a row whose builder has given up.
pub(crate) const GIVEN_UP: [u8; 8] = [0; 8];

/// The value of the row of an object that this server builds: it is not reclaimed for `ms` milliseconds.
pub(crate) fn until(space: &Keyspace, ms: u64) -> [u8; 8] {
    monotonic_ms(space).saturating_add(ms).max(1).to_le_bytes()
}

/// Whether the object whose row has this value is no longer being built.
pub(crate) async fn is_over(space: &Keyspace, tx: &Tx, oid: Oid, lease: &[u8]) -> StoreResult<bool> {
    let end = lease
        .try_into()
        .map_err(|_| StoreError::Corrupt("the lease in a garbage row does not decode".into()))?;
    let builder = Fresh::maker(oid);
    if lease == GIVEN_UP {
        Ok(true)
    } else if builder == space.fresh.instance() {
        Ok(u64::from_le_bytes(end) <= monotonic_ms(space))
    } else {
        Ok(!instances::is_registered(tx, builder).await?)
    }
}

fn monotonic_ms(space: &Keyspace) -> u64 {
    u64::try_from(space.clock.monotonic().as_millis()).unwrap_or(u64::MAX)
}
