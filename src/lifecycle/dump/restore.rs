//! RESTORE: writes the value of a payload.

use super::read::kind;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::types::dumped::Dumped;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::Object;
use crate::types::{set, string};

/// Makes the key hold `value`.
pub async fn restore(s: &Scope<'_>, slot: &mut Slot, value: Dumped, expire_at: Option<u64>) -> Result<()> {
    match value {
        Dumped::Str(bytes) => string::write(s, &[], slot, &bytes, expire_at).await,
        Dumped::Set(members) => {
            object::remove(s, slot)?;
            set::add(s, slot, &members).await?;
            match expire_at {
                Some(_) => object::set_expiry(s, slot, expire_at),
                None => Ok(()),
            }
        }
    }
}

/// Like [`restore`], for a value that was prebuilt from `payload` because it exceeds a transaction.
pub async fn restore_prebuilt(
    s: &Scope<'_>,
    slot: &mut Slot,
    payload: &[u8],
    built: &Object,
    expire_at: Option<u64>,
) -> Result<()> {
    let Some(kind) = kind(payload) else {
        return Err(StoreError::Corrupt("a value was prebuilt from a payload without one".into()).into());
    };
    built.take(s, s).await?;
    object::put(s, slot, kind.prebuilt(built), expire_at)
}
