//! ACL LOG: recent refusals. The same refusal within a minute is counted, not added again.

use crate::env::free;
use crate::keyspace::keys::MAX_REDIS_KEY;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Milliseconds within which equal refusals share an entry, and the number of entries searched for one.
const TOGETHER: u64 = 60_000;
const LOOKED_AT: usize = 10;

/// The most bytes of a name that an entry keeps: as many as a key can have. The refused client chooses the
/// names, and they are kept in memory.
const MAX_NAME: usize = MAX_REDIS_KEY;

/// The part of a name to keep, copied because it may be a slice of a buffer.
pub fn kept(name: &[u8]) -> Bytes {
    Bytes::copy_from_slice(name.get(..MAX_NAME).unwrap_or(name))
}

/// The reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A wrong user or password.
    Auth,
    /// The command is not allowed.
    Command,
    /// A key is not allowed.
    Key,
    /// A channel is not allowed.
    Channel,
}

impl Reason {
    /// The reason as ACL LOG shows it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Reason::Auth => "auth",
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
        }
    }
}

/// Where a refused command came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// From a client.
    TopLevel,
    /// From a client, inside MULTI or EXEC.
    Multi,
    /// From a script.
    Lua,
}

impl Context {
    /// The context as ACL LOG shows it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// One refusal, or several equal ones.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Its number, from 0.
    pub id: u64,
    /// How often it occurred.
    pub count: i64,
    /// The reason.
    pub reason: Reason,
    /// Where the command came from.
    pub context: Context,
    /// The command, key or channel.
    pub object: Bytes,
    /// The user.
    pub user: Bytes,
    /// The first time, in milliseconds since the Unix epoch.
    pub created: u64,
    /// The last time.
    pub updated: u64,
    /// The last client's line in CLIENT LIST.
    pub client: Bytes,
}

impl Refusal {
    fn is_same(&self, other: &Refusal) -> bool {
        self.reason == other.reason
            && self.context == other.context
            && self.object == other.object
            && self.user == other.user
            && self.updated.abs_diff(other.updated) <= TOGETHER
    }
}

/// The latest refusals.
#[derive(Debug, Default)]
pub struct AclLog(Mutex<(VecDeque<Arc<Refusal>>, u64)>);

impl AclLog {
    /// Adds a refusal; keeps at most `most` entries.
    pub fn add(&self, new: Refusal, most: usize) {
        let mut log = self.0.lock();
        let (entries, next) = &mut *log;
        let known = entries.iter().take(LOOKED_AT).position(|old| old.is_same(&new));
        let entry = match known.and_then(|at| entries.remove(at)) {
            Some(old) => Refusal { count: old.count + 1, id: old.id, created: old.created, ..new },
            None => {
                *next += 1;
                Refusal { id: *next - 1, ..new }
            }
        };
        entries.push_front(Arc::new(entry));
        if entries.len() > most {
            let old = entries.split_off(most);
            drop(log);
            free(old.len(), old);
        }
    }
    /// The latest refusals, at most `count`, newest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<Arc<Refusal>> {
        self.0.lock().0.iter().take(count).cloned().collect()
    }
    /// Removes all entries.
    pub(crate) fn reset(&self) {
        let old = std::mem::take(&mut self.0.lock().0);
        free(old.len(), old);
    }
}
