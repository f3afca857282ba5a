//! Prebuilds a restored value that is larger than a transaction, as [`crate::types::prebuilt`] describes. A
//! string is written while it is decompressed, without its zeroes: a few MB of it are in memory.

use super::decode;
use super::read::{STEP, parts};
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::keys::Prefix;
use crate::types::dumped::Dumped;
use crate::types::hash::prebuild as hashes;
use crate::types::list::prebuild as lists;
use crate::types::prebuilt::{self, Object};
use crate::types::set::prebuild as sets;
use crate::types::stream::dump::check;
use crate::types::stream::prebuild as streams;
use crate::types::zset::prebuild as zsets;
use crate::types::{Kind, string};
use tokio::task::yield_now;

/// Builds in `db` the value of RESTORE's `payload`. None if it fits into a record or is malformed: the
/// command replies to that. `longest`: as for [`decode`]; `lease_ms`: as for every prebuilt value.
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
            Ok(Dumped::Hash(pairs)) => {
                hashes::whole(space, db, pairs.iter().map(|pair| (pair, None)), lease_ms).await
            }
            Ok(Dumped::Fields(fields)) => {
                let fields = fields.iter().map(|(pair, expire_at)| (pair, *expire_at));
                hashes::whole(space, db, fields, lease_ms).await
            }
            Ok(Dumped::List(elements)) => lists::whole(space, db, &elements, lease_ms).await,
            Ok(Dumped::Zset(entries)) => zsets::whole(space, db, entries, Vec::new(), lease_ms).await,
            Ok(Dumped::Stream(stream)) if check(&stream).is_ok() => {
                streams::whole(space, db, &stream, lease_ms).await
            }
            Ok(Dumped::Str(_) | Dumped::Stream(_)) | Err(_) => Ok(None),
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
