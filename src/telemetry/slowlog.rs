//! The slow log: the latest commands that took longer than `slowlog-log-slower-than`. In memory, of this
//! server only.
//!
//! An entry's time is that of its unit, from its first gate to its reply, commit included: commands of a
//! pipeline that ran in one transaction share it. Arguments are copied and truncated as in Redis, so an entry
//! takes at most 4 KB.

use crate::env::free;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// The most arguments of an entry; the last one then says how many are missing.
const MAX_ARGUMENTS: usize = 32;
/// The most bytes of an argument, before the note about the missing ones.
const MAX_ARGUMENT: usize = 128;

/// A slow command.
#[derive(Debug, Clone)]
pub struct SlowCommand {
    /// Its number since the server started.
    pub id: u64,
    /// When it was answered, in seconds since the Unix epoch.
    pub at: u64,
    /// Its duration in microseconds.
    pub took: u64,
    /// All arguments, truncated.
    pub argv: Vec<Bytes>,
    /// The client's address.
    pub addr: String,
    /// The client's name.
    pub name: Bytes,
}

/// The latest slow commands.
#[derive(Debug, Default)]
pub struct SlowLog(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// Newest first, so their numbers fall. Readers share the entries instead of copying, because every slow
    /// command waits for this lock.
    latest: VecDeque<Arc<SlowCommand>>,
    next: u64,
}

impl SlowLog {
    /// Adds and numbers `commands` in order; keeps the latest `most` of all.
    pub fn add(&self, commands: impl Iterator<Item = SlowCommand>, most: usize) {
        let mut entries = self.0.lock();
        for command in commands {
            let id = entries.next;
            entries.next += 1;
            entries.latest.push_front(Arc::new(SlowCommand { id, ..command }));
        }
        if entries.latest.len() > most {
            let old = entries.latest.split_off(most);
            drop(entries);
            free(old.len(), old);
        }
    }
    /// At most `count` entries with numbers below `end`, newest first.
    pub fn before(&self, end: u64, count: usize) -> Vec<Arc<SlowCommand>> {
        let entries = self.0.lock();
        let from = entries.latest.partition_point(|command| command.id >= end);
        entries.latest.range(from..).take(count).cloned().collect()
    }
    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().latest.len()
    }
    /// Removes all entries; the numbers continue.
    pub(crate) fn reset(&self) {
        let old = std::mem::take(&mut self.0.lock().latest);
        free(old.len(), old);
    }
}

/// A copy of `argv`, truncated to the limits of an entry.
pub(crate) fn cut(argv: &[Bytes]) -> Vec<Bytes> {
    if argv.len() <= MAX_ARGUMENTS {
        return argv.iter().map(cut_argument).collect();
    }
    let mut out: Vec<Bytes> = argv.iter().take(MAX_ARGUMENTS - 1).map(cut_argument).collect();
    out.push(format!("... ({} more arguments)", argv.len() - out.len()).into());
    out
}

fn cut_argument(arg: &Bytes) -> Bytes {
    match arg.split_at_checked(MAX_ARGUMENT) {
        Some((head, tail)) if !tail.is_empty() => {
            [head, format!("... ({} more bytes)", tail.len()).as_bytes()].concat().into()
        }
        // A copy: the argument may be a slice of a large read buffer.
        _ => Bytes::copy_from_slice(arg),
    }
}
