//! Verifies a whole store: every row decodes, belongs to something, and agrees with the rows that repeat its
//! facts. `tern check` runs this from the command line.
//!
//! **One version.** Each row is checked in one [`AuditView`], together with everything that it is compared
//! with, so every reported problem existed at one version, even while servers write. Each page is read in a
//! view of its own: a walk over a large store takes longer than a transaction lives. An embedded store has no
//! other user, so all views read one version. Facts that span many rows (counters of keys, objects without an
//! owner) are gathered over pages, and what seems wrong is checked again ([`objects`], [`database`]). A row
//! that changes faster than it can be read at one version is reported as not checked, never as damaged.
//!
//! **Memory.** A page, the first ids of one set's chunks, the ids of the dictionary as a bitmap, and the
//! owners of [`objects::WINDOW`] objects at a time: a store with more objects is read several times.
//!
//! The check cannot see damage to facts that the layout stores once: the bytes of a value, the ids of a set,
//! and a missing piece of a long string, which means zeroes, so its loss looks like SETRANGE.
//! `tests/fuzz/unseen.rs` has the whole list, and a test that damages each kind of row in each way and finds
//! nothing else unseen. The engine's checksums detect bytes that change below a row.

pub(crate) mod database;
mod idempotency;
pub(crate) mod objects;
pub(crate) mod root;
mod scripts;

use crate::error::{StoreError, StoreResult};
use crate::keyspace::dictionary::known::KnownIds;
use crate::keyspace::keys::{self, Prefix};
use crate::store::{RangeOptions, Rest, Store, Version};
use crate::types::audit::{AuditView, Findings, Problem};
use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The rows and bytes of a page.
const PAGE: RangeOptions = RangeOptions { limit: 1024, bytes: 1 << 18, reverse: false };
/// Rows checked at once: a networked engine answers their reads together.
const AT_ONCE: usize = 64;
/// Attempts to check a row that changes while it is read.
const ATTEMPTS: usize = 5;
/// Problems kept in a report; further ones are only counted.
const KEPT: usize = 1000;

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The first and the last version read. Equal: the store was read at one version.
    pub(crate) versions: (Version, Version),
    /// Rows read, by kind.
    pub rows: BTreeMap<&'static str, u64>,
    /// The problems found, at most 1000.
    pub problems: Vec<Problem>,
    /// The number of problems that are not in `problems`.
    pub(crate) more: u64,
    /// Rows that changed faster than they could be read at one version.
    pub unchecked: Vec<Vec<u8>>,
}

impl Report {
    /// Whether no problem was found.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for problem in &self.problems {
            writeln!(f, "damaged: {problem}")?;
        }
        for row in &self.unchecked {
            writeln!(f, "not checked, because it changes too fast: {}", row.escape_ascii())?;
        }
        let counted: Vec<String> = self.rows.iter().map(|(what, n)| format!("{n} {what}")).collect();
        let (first, last) = self.versions;
        let at =
            if first == last { format!("version {first}") } else { format!("versions {first} to {last}") };
        writeln!(f, "read at {at}: {}", counted.join(", "))?;
        match self.problems.len() as u64 + self.more {
            0 => write!(f, "sound"),
            1 => write!(f, "damaged: 1 problem; restore the store from a backup"),
            n => write!(f, "damaged: {n} problems; restore the store from a backup"),
        }
    }
}

/// Why a store could not be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The store is empty.
    #[error("the store holds no data of Tern")]
    NoData,
    /// An error of an engine.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads all of `store`. `progress` receives the kind of the rows being read and the number of rows read so
/// far.
pub async fn check(
    store: &Store,
    progress: &mut (dyn FnMut(&'static str, u64) + Send),
) -> Result<Report, CheckError> {
    let view = AuditView::open(store).await?;
    if view.get(&keys::root::database(0)).await?.is_none() {
        return Err(CheckError::NoData);
    }
    let report = Report { versions: (view.version, view.version), ..Report::default() };
    let mut checker = Checker { store, known: Mutex::default(), report, progress, done: 0 };
    root::walk(&mut checker).await?;
    for (_, prefix) in root::databases(&AuditView::open(store).await?).await? {
        database::walk(&mut checker, prefix).await?;
    }
    root::walk_prefixes(&mut checker).await?;
    Ok(checker.report)
}

/// A running check.
pub(crate) struct Checker<'a> {
    store: &'a Store,
    /// Ids that have a member.
    known: Mutex<KnownIds>,
    report: Report,
    progress: &'a mut (dyn FnMut(&'static str, u64) + Send),
    done: u64,
}

impl Checker<'_> {
    /// A view for a page. Yields first: an embedded engine never waits, and other tasks need their turn.
    async fn view(&mut self) -> StoreResult<AuditView> {
        tokio::task::yield_now().await;
        let view = AuditView::open(self.store).await?;
        self.report.versions.1 = view.version;
        Ok(view)
    }

    /// Adds problems to the report.
    fn add_problems(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            if self.report.problems.len() < KEPT {
                self.report.problems.push(problem);
            } else {
                self.report.more += 1;
            }
        }
    }

    fn count(&mut self, what: &'static str, rows: usize) {
        *self.report.rows.entry(what).or_default() += rows as u64;
        self.done += rows as u64;
        (self.progress)(what, self.done);
    }

    /// Reads the range page by page and checks every row in the view in which it was read. `seen` receives
    /// every row.
    async fn check_range(
        &mut self,
        range: (Vec<u8>, Vec<u8>),
        seen: &mut (dyn FnMut(&Bytes, &Bytes) -> &'static str + Send),
        audit: impl AsyncFn(&AuditView, &Mutex<KnownIds>, &Bytes, &Bytes) -> Findings,
    ) -> StoreResult<()> {
        let mut rest = Rest::of(range);
        while let Some((begin, end)) = rest.range() {
            let view = self.view().await?;
            let page = view.page(begin, end, PAGE).await?;
            rest.pass(&page);
            for rows in page.pairs.chunks(AT_ONCE) {
                let findings = join_all(rows.iter().map(|(k, v)| audit(&view, &self.known, k, v))).await;
                for ((key, value), found) in rows.iter().zip(findings) {
                    self.count(seen(key, value), 1);
                    match found {
                        Err(StoreError::TooOld) => self.check_row(key, &audit).await?,
                        found => self.add_problems(found?),
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks a row whose page's view ended before the row was checked.
    async fn check_row(
        &mut self,
        key: &Bytes,
        audit: &impl AsyncFn(&AuditView, &Mutex<KnownIds>, &Bytes, &Bytes) -> Findings,
    ) -> StoreResult<()> {
        for _ in 0..ATTEMPTS {
            let view = self.view().await?;
            let found = match view.get(key).await {
                Ok(None) => return Ok(()),
                Ok(Some(value)) => audit(&view, &self.known, key, &value).await,
                Err(e) => Err(e),
            };
            match found {
                Err(StoreError::TooOld) => {}
                found => {
                    self.add_problems(found?);
                    return Ok(());
                }
            }
        }
        self.report.unchecked.push(key.to_vec());
        Ok(())
    }
}

/// A database's number and prefix.
pub(crate) type Database = (u8, Prefix);
