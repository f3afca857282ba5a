//! String commands. SCAFFOLD: GET only, as an example of a row and its function.

use super::args::Args;
use super::cx::Cx;
use super::reply::Reply;
use super::table::{Flags, Group, KEY_RO, Row};
use crate::error::Result;
use crate::handler;
use crate::keyspace::record::Str;
use crate::store::Read;
use crate::types::object;

/// Rows of this family.
pub const ROWS: &[Row] = &[Row {
    name: "get",
    arity: 2,
    flags: Flags::READONLY.or(Flags::FAST),
    keys: KEY_RO,
    group: Group::String,
    since: "1.0.0",
    syntax: "key",
    summary: "Returns the string value of a key.",
    run: handler!(get),
    subs: &[],
}];

async fn get(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let slot = object::open(&cx.scope()?, args.next()?, Read::Serializable).await?;
    Ok(match slot.string()? {
        Some(Str::Inline(b)) => Reply::Bulk(b.clone()),
        _ => Reply::Nil,
    })
}
