//! A restored value larger than a transaction, built as [`crate::types::prebuilt`] says. A string is written
//! as it is decompressed, without its zeroes: what is held of it is a few MB.

use super::decode;
use super::read::{STEP, parts};
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::keys::Prefix;
use crate::types::dumped::Dumped;
use crate::types::prebuilt::{self, Object};
use crate::types::set::prebuild as sets;
use crate::types::{Kind, string};
use tokio::task::yield_now;

/// Builds, in `db`, what RESTORE of `payload` leaves. None where it fits into a record, or is no value: let the command
/// answer that. `longest`: as for [`decode`]; `lease_ms`: as for every value that is built.
pub async fn prebuild(
    space: &Keyspace,
    db: Prefix,
    payload: &[u8],
    longest: usize,
    lease_ms: u64,
) -> Result<Option<Object>> {
    if super::kind(payload) != Some(Kind::Str) {
        return match decode(payload, longest).await {
            Ok(Dumped::Set(members)) => sets::whole(space, db, &members, lease_ms).await,
            Ok(Dumped::Str(_)) | Err(_) => Ok(None),
        };
    }
    let Ok(Some((mut parts, length))) = parts(payload, longest).await else { return Ok(None) };
    if length <= string::INLINE_MAX {
        return Ok(None);
    }
    let mut writing = string::Writing::new(space, db, lease_ms);
    let sound = loop {
        match parts.next(STEP) {
            Some([]) => break true,
            Some(part) => writing.push(part).await?,
            None => break false,
        }
        yield_now().await;
    };
    let object = writing.done().await?;
    if !sound {
        prebuilt::abandon(space, &object).await?;
    }
    Ok(sound.then_some(object))
}
