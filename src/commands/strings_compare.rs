//! Strings compared by their bytes or their digest: DELEX, DELIFEQ, DIGEST. SET's conditions are in `strings_set.rs`.

use super::args::Args;
use super::cx::Cx;
use super::reply::Reply;
use super::strings_set::{When, digest};
use crate::error::{ReplyError, Result, SYNTAX};
use crate::store::Read;
use crate::types::object;

/// Without a condition a value of any type goes; with one, only a string.
pub(super) async fn delex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    if args.len() == 1 || args.len() > 2 {
        return Err(ReplyError::new("ERR wrong number of arguments for 'delex' command").into());
    }
    let mut when = When::Present;
    if !args.is_empty() {
        when = When::comparison(&mut args)?.ok_or(SYNTAX)?;
    }
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let goes = slot.exists() && when.holds(cx, &slot).await?;
    Ok((goes && object::delete(&s, &mut slot)?).into())
}

/// Valkey's name for DELEX with IFEQ.
pub(super) async fn delifeq(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, value) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let goes = When::Equal(true, value).holds(cx, &slot).await?;
    Ok((goes && object::delete(&s, &mut slot)?).into())
}

pub(super) async fn show_digest(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    Ok(digest(&s, &slot).await?.map_or(Reply::Nil, Reply::text))
}
