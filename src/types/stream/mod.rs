//! Streams: entries by id, and groups of consumers that share them.
//!
//! A row an entry ([`entry`]); a long one in pieces. XADD, XDEL, XTRIM and XSETID rewrite the record, which therefore
//! carries all conflicts of entries: operations that write need a slot from a serializable open, and those that read see one
//! version through it. A stream may be empty: the key stays.

pub(crate) mod add;
mod ahead;
mod audit;
pub(crate) mod claim;
pub(crate) mod consumers;
pub(crate) mod dump;
pub(crate) mod entry;
pub(crate) mod groups;
pub(crate) mod pending;
pub(crate) mod prebuild;
pub(crate) mod range;
mod record;
pub(crate) mod references;
pub(crate) mod sent;
pub(crate) mod trim;
pub(crate) mod whole;

pub use crate::keyspace::keys::Id;
pub(crate) use ahead::{Ahead, prefetch};
pub use record::StreamRep;
pub(crate) use record::put;

use crate::error::Result;
use crate::keyspace::Scope;
use references::Policy;
use trim::Trim;

/// Whether a group of the stream refers to an entry that is added, and `trim` keeps that.
pub(crate) async fn has_groups(s: &Scope<'_>, rep: &StreamRep, trim: &Trim) -> Result<bool> {
    Ok(trim.policy == Policy::Acked && groups::exist(s, rep.oid).await?)
}
