//! All rows, found by name.

use super::{Flags, Form, Row};
use bytes::Bytes;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;
use xxhash_rust::xxh3::xxh3_64;

/// A row in the table.
#[derive(Debug)]
pub struct Entry {
    row: Row,
    /// Its name in statistics: `get`, `client|id`.
    pub label: String,
    /// Its index in [`Table::all`].
    pub index: usize,
    /// Its subcommands.
    pub subs: Vec<&'static Entry>,
}

impl Deref for Entry {
    type Target = Row;
    fn deref(&self) -> &Row {
        &self.row
    }
}

impl Entry {
    /// Its subcommand with this name, in any case.
    pub(crate) fn sub(&self, name: &[u8]) -> Option<&'static Entry> {
        self.subs.iter().copied().find(|sub| name.eq_ignore_ascii_case(sub.name.as_bytes()))
    }
}

/// See the module. A process has one, which is never dropped.
pub struct Table {
    all: Vec<&'static Entry>,
    commands: Vec<&'static Entry>,
    by_name: HashMap<Name, &'static Entry, BuildHasherDefault<NameHasher>>,
}

/// A name in lower case, padded with zeroes: of one length, it is compared and hashed in a few instructions.
type Name = [u8; 32];

fn name(name: &[u8]) -> Option<Name> {
    let mut padded = [0; 32];
    padded.get_mut(..name.len())?.copy_from_slice(name);
    padded.make_ascii_lowercase();
    Some(padded)
}

/// Hashes a name at once: the crate's hasher keeps a kilobyte of state for what may follow.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes);
    }
    fn write_usize(&mut self, _len: usize) {}
}

impl Table {
    /// A table of these commands, each with its subcommands.
    pub(crate) fn new(rows: impl Iterator<Item = (Row, Vec<Row>)>) -> Self {
        let (mut all, mut commands) = (Vec::new(), Vec::new());
        for (row, subs) in rows {
            let first = all.len();
            let entry = |at: usize, label: String, row: Row, subs| -> &'static Entry {
                Box::leak(Box::new(Entry { row, label, index: first + at, subs }))
            };
            let label = |sub: &Row| format!("{}|{}", row.name, sub.name);
            let inherited = |sub: Row| {
                if row.flags.has(Flags::KEEPS_CACHING) {
                    sub.flags(sub.flags.or(Flags::KEEPS_CACHING))
                } else {
                    sub
                }
            };
            let subs: Vec<_> = subs
                .iter()
                .enumerate()
                .map(|(n, sub)| entry(n + 1, label(sub), inherited(*sub), Vec::new()))
                .collect();
            let command = entry(0, row.name.to_owned(), row, subs.clone());
            commands.push(command);
            all.push(command);
            all.extend(subs);
        }
        let by_name =
            commands.iter().filter_map(|entry| Some((name(entry.name.as_bytes())?, *entry))).collect();
        Table { all, commands, by_name }
    }

    /// All commands, in the order of their families.
    pub fn commands(&self) -> impl Iterator<Item = &'static Entry> {
        self.commands.iter().copied()
    }

    /// All commands, each followed by its subcommands.
    pub fn all(&self) -> impl Iterator<Item = &'static Entry> {
        self.all.iter().copied()
    }

    /// The length of [`Table::all`].
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The command with this name, in any case.
    pub fn lookup(&self, called: &[u8]) -> Option<&'static Entry> {
        self.by_name.get(&name(called)?).copied().filter(|entry| entry.name.len() == called.len())
    }

    /// The row of the prefix that runs a command once (IDEMPOTENT).
    pub(crate) fn prefix(&self) -> Option<&'static Entry> {
        self.commands().find(|row| row.form == Form::Prefix)
    }

    /// The row with this label, in any case; a subcommand's label is `container|sub`.
    pub(crate) fn find(&self, label: &[u8]) -> Option<&'static Entry> {
        let mut parts = label.splitn(2, |b| *b == b'|');
        let row = self.lookup(parts.next()?)?;
        parts.next().map_or(Some(row), |sub| row.sub(sub))
    }

    /// The row of `argv`, and how many leading arguments are names: a container's subcommand is found by its
    /// second. `Err(container)`: the subcommand is unknown (or missing). A prefix is found as such; what it
    /// runs begins at [`super::PREFIX`].
    pub fn resolve(&self, argv: &[Bytes]) -> Option<Result<(&'static Entry, usize), &'static Entry>> {
        let row = self.lookup(argv.first()?)?;
        if row.subs.is_empty() {
            return Some(Ok((row, 1)));
        }
        let Some(name) = argv.get(1) else {
            return Some(if row.form == Form::Container { Err(row) } else { Ok((row, 1)) });
        };
        Some(match row.sub(name) {
            Some(sub) => Ok((sub, 2)),
            None if row.form == Form::Prefix => Ok((row, 1)),
            None => Err(row),
        })
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("rows", &self.all.len()).finish_non_exhaustive()
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Table {}
