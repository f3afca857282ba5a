//! A restored value larger than a transaction, built as [`crate::types::staged`] says.

use super::{Dumped, decode};
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::keys::Prefix;
use crate::types::set::stage as sets;
use crate::types::staged::{Object, Staged};
use crate::types::string;

/// Builds, in `db`, what RESTORE of `payload` leaves. None where it fits into a record, or is no value: let the command
/// answer that. `longest`: as for [`decode`]; `lease_ms`: as for staged values.
pub async fn stage(
    space: &Keyspace,
    db: Prefix,
    payload: &[u8],
    longest: usize,
    lease_ms: u64,
) -> Result<Option<Object>> {
    match decode(payload, longest) {
        Ok(Dumped::Str(bytes)) if bytes.len() > string::INLINE_MAX => {
            match string::stage(space, db, &bytes, lease_ms).await? {
                Staged::Argument(_, object) | Staged::Result(object) => Ok(Some(object)),
                Staged::Ids(_) => Ok(None),
            }
        }
        Ok(Dumped::Set(members)) => sets::whole(space, db, &members, lease_ms).await,
        _ => Ok(None),
    }
}
