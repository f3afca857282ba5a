//! What a test breaks of the contract, to see that other tests notice: reads that lose their conflict or lie, versions that are
//! stale or torn, commits that are answered before they are done.
//!
//! It sits in [`super::faulty`], which no server opens. So the engines and everything above them run as they are built, the same
//! breach works on any engine that pins a version in `begin`, and production code has no switch for being wrong.

use super::{Read, Store, Tx};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many transactions ago an older version is.
const BEHIND: usize = 4;

/// Which version transactions read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sight {
    /// The newest, as the contract says.
    #[default]
    Newest,
    /// An older one, and conflicts are judged from there: serializable, but not what was committed last.
    Older,
    /// Point reads see an older one, while conflicts are judged as if it were the newest: a version that was published before
    /// its snapshot.
    Torn,
}

/// A breach. What a method leaves as it is, is done right.
pub trait Tamper: Send + Sync {
    /// What breaks a transaction that begins, where that depends on what the transaction does. None: this one, as all others.
    fn of_one(&self) -> Option<Arc<dyn Tamper>> {
        None
    }
    /// How `key` is really read.
    fn read(&self, _key: &[u8], read: Read) -> Read {
        read
    }
    /// What a point read answers.
    fn answer(&self, _key: &[u8], _read: Read, value: Option<Bytes>) -> Option<Bytes> {
        value
    }
    /// How a range that begins at `begin` is really read.
    fn range(&self, _begin: &[u8], read: Read) -> Read {
        read
    }
    /// How the metadata version is really read.
    fn metadata(&self) -> Read {
        Read::Serializable
    }
    /// Whether a read conflict that is asked for, from `begin` on, is noted.
    fn notes(&self, _begin: &[u8]) -> bool {
        true
    }
    /// Which version is read. Only where the engine pins it in `begin`.
    fn sight(&self) -> Sight {
        Sight::Newest
    }
    /// Whether a commit is answered before it is done.
    fn answers_early(&self) -> bool {
        false
    }
}

/// What a transaction reads.
pub(super) enum Seen {
    Now,
    Older(Tx),
    Torn(Tx),
}

/// The breach that is switched on.
#[derive(Default)]
pub(super) struct Tampering(Mutex<Option<On>>);

struct On {
    tamper: Arc<dyn Tamper>,
    /// Transactions that were begun ahead.
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
