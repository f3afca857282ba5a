//! Lets a test break the contract, to prove that other tests notice: reads that lose their conflict or return
//! a wrong value, stale or torn versions, commits that are answered before they are done.
//!
//! It is part of [`super::faulty`], which no server opens. So the engines and everything above them run
//! unmodified, the same breach works on every engine that pins a version in `begin`, and production code has
//! no switch for wrong behaviour.

use super::{Read, Store, Tx};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The age of an older version, in transactions.
const BEHIND: usize = 4;

/// The version that transactions read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sight {
    /// The newest, as the contract says.
    #[default]
    Newest,
    /// An older one, from which conflicts are checked too: serializable, but missing the latest commits.
    Older,
    /// Point reads see an older one, while conflicts are checked as if it were the newest: as if a version
    /// were published before its snapshot.
    Torn,
}

/// A breach of the contract. The default of every method is correct behaviour.
pub trait Tamper: Send + Sync {
    /// The breach for a transaction that begins, if it depends on the transaction. None: this one, for all
    /// transactions.
    fn of_one(&self) -> Option<Arc<dyn Tamper>> {
        None
    }
    /// The mode in which `key` is actually read.
    fn read(&self, _key: &[u8], read: Read) -> Read {
        read
    }
    /// The result of a point read.
    fn answer(&self, _key: &[u8], _read: Read, value: Option<Bytes>) -> Option<Bytes> {
        value
    }
    /// The mode in which a range that begins at `begin` is actually read.
    fn range(&self, _begin: &[u8], read: Read) -> Read {
        read
    }
    /// The mode in which the metadata version is actually read.
    fn metadata(&self) -> Read {
        Read::Serializable
    }
    /// Whether an explicit read conflict that starts at `begin` is recorded.
    fn notes(&self, _begin: &[u8]) -> bool {
        true
    }
    /// The version to read. Only on an engine that pins it in `begin`.
    fn sight(&self) -> Sight {
        Sight::Newest
    }
    /// The time before which a watch misses changes, as if it were registered so late.
    fn watches_after(&self) -> Option<Duration> {
        None
    }
    /// Whether a commit is answered before it is done.
    fn answers_early(&self) -> bool {
        false
    }
}

/// The version that a transaction reads.
pub(super) enum Seen {
    Now,
    Older(Tx),
    Torn(Tx),
}

/// The active breach.
#[derive(Default)]
pub(super) struct Tampering(Mutex<Option<On>>);

struct On {
    tamper: Arc<dyn Tamper>,
    /// Transactions begun in advance.
    ahead: VecDeque<Tx>,
}

impl Tampering {
    pub(super) fn set(&self, tamper: Option<Arc<dyn Tamper>>) {
        *self.0.lock() = tamper.map(|tamper| On { tamper, ahead: VecDeque::new() });
    }

    pub(super) fn begin(&self, inner: &Store) -> (Option<Arc<dyn Tamper>>, Seen) {
        let mut state = self.0.lock();
        let Some(on) = state.as_mut() else { return (None, Seen::Now) };
        let (tamper, sight) = (on.tamper.of_one().unwrap_or_else(|| on.tamper.clone()), on.tamper.sight());
        if sight == Sight::Newest {
            return (Some(tamper), Seen::Now);
        }
        on.ahead.push_back(inner.begin());
        let old = if on.ahead.len() > BEHIND { on.ahead.pop_front() } else { None };
        let seen = match old {
            None => Seen::Now,
            Some(old) if sight == Sight::Older => Seen::Older(old),
            Some(old) => Seen::Torn(old),
        };
        (Some(tamper), seen)
    }
}
