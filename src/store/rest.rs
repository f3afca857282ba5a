//! A range that is read page by page.

use super::{Pairs, RangeOptions, Read, Tx, key_after, prefix_end};
use crate::error::StoreResult;
use bytes::Bytes;

/// What is left to read of a range, forwards.
#[derive(Debug, Clone)]
pub struct Rest {
    begin: Vec<u8>,
    end: Vec<u8>,
    is_done: bool,
}

impl Rest {
    /// All rows from the first key to before the second.
    pub fn of((begin, end): (Vec<u8>, Vec<u8>)) -> Self {
        Rest { begin, end, is_done: false }
    }

    /// All rows whose keys begin with `prefix`.
    pub fn under(prefix: Vec<u8>) -> Self {
        let end = prefix_end(&prefix);
        Rest::of((prefix, end))
    }

    /// The keys of it. None: nothing is left.
    pub fn range(&self) -> Option<(&[u8], &[u8])> {
        (!self.is_done).then_some((&self.begin, &self.end))
    }

    /// Takes away what has been read: a page from its beginning.
    pub fn pass(&mut self, page: &Pairs) {
        match page.pairs.last() {
            Some((key, _)) if page.more => self.begin = key_after(key),
            _ => self.is_done = true,
        }
    }

    /// Reads the next page. None: nothing is left.
    pub async fn page(
        &mut self,
        tx: &Tx,
        opts: RangeOptions,
        read: Read,
    ) -> StoreResult<Option<Vec<(Bytes, Bytes)>>> {
        let Some((begin, end)) = self.range() else { return Ok(None) };
        let page = tx.get_range(begin, end, opts, read).await?;
        self.pass(&page);
        Ok(Some(page.pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_passed() {
        let page = |keys: &[&'static str], more| Pairs {
            pairs: keys.iter().map(|key| (Bytes::from_static(key.as_bytes()), Bytes::new())).collect(),
            more,
        };
        let mut rest = Rest::under(b"k".to_vec());
        assert_eq!(rest.range(), Some((&b"k"[..], &b"l"[..])));
        rest.pass(&page(&["k1", "k2"], true));
        assert_eq!(rest.range(), Some((&b"k2\0"[..], &b"l"[..])));
        rest.pass(&page(&["k3"], false));
        assert_eq!(rest.range(), None);
        let mut empty = Rest::of((b"a".to_vec(), b"b".to_vec()));
        empty.pass(&page(&[], false));
        assert_eq!(empty.range(), None);
    }
}
