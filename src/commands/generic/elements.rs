//! What SSCAN and HSCAN share: the order of their checks, and the form of their replies.

use super::scan::{ScanOptions, Scanned, parse_cursor};
use crate::commands::args::Args;
use crate::commands::cx::Cx;
use crate::error::Result;
use crate::keyspace::Scope;
use crate::server::pace::Pace;
use crate::server::reply::Reply;
use crate::types::OneType;
use crate::types::object::Slot;
use bytes::Bytes;

/// A call that iterates over the elements of one key.
pub(crate) struct ElementScan<'a> {
    cursor: u64,
    options: ScanOptions<'a>,
}

impl<'a> ElementScan<'a> {
    /// Opens the key and reads the arguments. None if the key does not exist: its options are not checked
    /// then, as in Redis.
    pub(crate) async fn open<T: OneType>(
        cx: &Cx<'_>,
        s: &Scope<'_>,
        args: &mut Args<'a>,
        of: Scanned,
    ) -> Result<Option<(Slot, Self)>> {
        let key = args.next()?;
        let cursor = parse_cursor(args.next()?)?;
        let slot = cx.look_up_members(s, key).await?;
        if slot.of_type::<T>()?.is_none() {
            return Ok(None);
        }
        Ok(Some((slot, ElementScan { cursor, options: ScanOptions::parse(args, of)? })))
    }

    /// The cursor, and about how many elements to read.
    pub(crate) fn at(&self) -> (u64, usize) {
        (self.cursor, self.options.count)
    }

    /// Whether NOVALUES is absent.
    pub(crate) fn with_values(&self) -> bool {
        !self.options.no_values
    }

    /// The reply: the next cursor, and each element that MATCH passes, which has at most `longest` bytes, with
    /// its value if it has one.
    pub(crate) async fn page(
        &self,
        longest: usize,
        next: u64,
        elements: impl IntoIterator<Item = (Bytes, Option<Bytes>)>,
    ) -> Result<Reply> {
        let mut pace = Pace::default();
        let filter = self.options.filter(longest, &mut pace).await;
        let mut passed = Vec::new();
        for (element, value) in elements {
            if filter.passes(&element, &mut pace).await {
                passed.push(element);
                passed.extend(value);
            }
        }
        Ok(Reply::Array(vec![Reply::text(next.to_string()), Reply::bulks(passed)]))
    }
}

/// The reply of a key that does not exist.
pub(crate) fn no_elements() -> Reply {
    Reply::Array(vec![Reply::text("0"), Reply::Array(Vec::new())])
}
