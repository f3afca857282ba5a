//! Reads of short ranges that will be read again.

use super::{RangeOptions, Tx, key_after};
use crate::error::StoreResult;
use tokio::task::coop::consume_budget;

/// Bytes that are read at once.
const PAGE: usize = 1 << 18;

impl Tx {
    /// A snapshot read of a range for its rows before `until`: passes every key and value to `each`. The embedded engine
    /// keeps the whole range in memory if it is short; then all its rows are passed.
    pub async fn visit_kept(
        &self,
        (begin, end): (&[u8], &[u8]),
        until: &[u8],
        each: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> StoreResult<()> {
        let options = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
        let mut begin = match self {
            Tx::Local(t) => t.visit_kept(begin, end, options, each).await?,
            Tx::Faulty(t) => return t.visit_kept((begin, end), until, each).await,
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => begin.to_vec(),
        };
        while begin[..] < *until {
            let mut last = Vec::new();
            let mut one = |row: &[u8], value: &[u8]| {
                last.clear();
                last.extend_from_slice(row);
                each(row, value);
            };
            if !self.visit(&begin, until, options, &mut one).await? {
                break;
            }
            begin = key_after(&last);
            consume_budget().await;
        }
        Ok(())
    }
}
