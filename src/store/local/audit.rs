//! Checks the manifest before RocksDB opens it, and the logs before they are replayed.
//!
//! What to do depends on what is known to have been synced (`synced.rs`). Anything missing or incomplete
//! before that point is **damage**: nothing is opened, and the error names the file and the position. After
//! that point, what a loss of power leaves is a **torn write** that was never acknowledged: a missing or
//! zeroed end of a log or of the manifest, a hole of zeros before whole records, a log without its end before
//! a later one. Everything from there on is cut off. If it is not known what was synced, holes are damage, as
//! are bytes that changed without becoming zeros, wherever they are. Logs that are drained do not count: after
//! a loss of power they can reappear.
//!
//! RocksDB opens a truncated manifest without its missing end and removes the tables named there, and the logs
//! that were drained to them are gone. If it is not known how long the manifest was: an edit is one write,
//! of which a disk that is full or loses power keeps whole sectors. So a manifest that ends inside a record
//! and inside a sector is damaged: either the record's length is wrong, or the file was copied in part. A
//! manifest was also longer if the logs note that more was drained than it knows, or begin after that.
//!
//! A log that is missing although the list of logs names it is reported before anything else (`logs.rs`).

use super::records::{Damage, End, SECTOR, last_sequence, sequence, walk};
use super::synced::{self, Known};
use super::wal::{self, Logged};
use crate::error::{StoreError, StoreResult};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The effects of a loss of power on the manifest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Where it ends inside a record: RocksDB was writing it, or its length is wrong, in which case RocksDB
    /// misses the next file it looks for.
    pub(super) ends: Option<String>,
    /// Whether it is known to be whole.
    pub(super) is_known: bool,
    /// The file, and where a torn write begins.
    cut: Option<(PathBuf, u64)>,
}

/// Rejects a damaged manifest and cuts off a torn write.
pub(super) fn mend(dir: &Path) -> StoreResult<Manifest> {
    let found = audit(dir)?;
    if found.cut.is_none() {
        return Ok(found);
    }
    // RocksDB's lock: nobody writes while it is held. Closing it releases the lock, even if this process has
    // the database open.
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join("LOCK"))
        .map_err(|e| untruncated(dir, &e))?;
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| StoreError::Unavailable(format!("{} is in use by another process", dir.display())))?;
    let found = audit(dir)?;
    if let Some((path, length)) = &found.cut {
        cut(path, *length).map_err(|e| untruncated(dir, &e))?;
    }
    Ok(found)
}

fn untruncated(dir: &Path, e: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot truncate the torn write in {}: {e}", dir.display()))
}

/// Truncates a file; removes it if nothing is left.
fn cut(path: &Path, length: u64) -> std::io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let lost = file.metadata()?.len().saturating_sub(length);
    file.set_len(length)?;
    file.sync_all()?;
    if length == 0 {
        std::fs::remove_file(path)?;
    }
    if lost > 0 {
        let path = path.display();
        tracing::warn!(file = %path, byte = length, lost, "truncated a torn write: data that had not been synced is lost");
    }
    Ok(())
}

/// Changes nothing.
fn audit(dir: &Path) -> StoreResult<Manifest> {
    let current = dir.join("CURRENT");
    let Some(name) = read(&current)? else { return Ok(Manifest::default()) };
    let name = String::from_utf8(name).ok().and_then(|n| n.strip_suffix('\n').map(str::to_owned));
    let name = name.and_then(|name| Some((synced::manifest_number(&name)?, name)));
    let Some((number, name)) = name else {
        return Err(refusal(&current, 0, "it does not name a manifest", None));
    };
    let manifest = dir.join(&name);
    // Before the manifest is read: another process may have the directory open.
    let drained = drained(dir);
    let Some(bytes) = read(&manifest)? else {
        return Err(refusal(&manifest, 0, "the file CURRENT names it, but it is missing", None));
    };
    let sure = synced::read(dir).and_then(|synced| synced.manifest(number));
    let mut known = Some(0);
    let damage = walk(&bytes, &mut |_, raw| {
        known = known.and_then(|known: u64| Some(known.max(last_sequence(raw)?)));
        true
    });
    let found = audit_manifest(&manifest, bytes.len(), damage, sure)?;
    if known.is_some_and(|known| known < drained) {
        let at = damage.map_or(bytes.len(), |damage| damage.at);
        let what = "records are missing there, because the logs note later tables";
        return Err(refusal(&manifest, at, what, None));
    }
    Ok(found)
}

/// RocksDB's sequence number up to which its rows are in tables, as far as the logs note it.
fn drained(dir: &Path) -> u64 {
    let mut drained = 0;
    for (_, path) in numbered(dir, 0) {
        let Ok(bytes) = std::fs::read(path) else { continue };
        walk(&bytes, &mut |_, record| {
            wal::replay(record, &mut |_, logged| {
                if let Logged::Drained(sequence) = logged {
                    drained = drained.max(sequence);
                }
            });
            true
        });
    }
    drained
}

/// Removes the logs before number `first`, which were drained.
pub(super) fn forget_logs(dir: &Path, first: u64) {
    for (_, path) in numbered(dir, 0).into_iter().filter(|(number, _)| *number < first) {
        let _ = std::fs::remove_file(path); // the next open tries again
    }
}

/// The logs from number `first` on, in order, without what a loss of power left of a torn write: that is cut
/// off. Rejects damage. `is_known`: whether the manifest is known to be whole. Only while the database is open,
/// which excludes other processes.
pub(super) fn logs(dir: &Path, first: u64, is_known: bool) -> StoreResult<Vec<(u64, PathBuf)>> {
    super::logs::check(dir, first)?;
    let synced = synced::read(dir);
    let logs = numbered(dir, first);
    let paths: Vec<PathBuf> = logs.iter().map(|(_, path)| path.clone()).collect();
    let cuts = match logs.first() {
        Some((number, path)) if *number > first => {
            let torn = drop_from(&paths, 0, synced.as_ref().filter(|_| is_known));
            torn.ok_or_else(|| refusal(path, 0, "the log before it is missing", paths.last()))?
        }
        _ => audit_logs(&paths, synced.as_ref())?,
    };
    let removed: Vec<PathBuf> = cuts.iter().filter(|cut| cut.1 == 0).map(|cut| cut.0.clone()).collect();
    super::logs::unlist(dir, &removed).map_err(|e| untruncated(dir, &e))?;
    // The last file first, so that an interrupted run finds the torn write again.
    for (path, length) in cuts.iter().rev() {
        cut(path, *length).map_err(|e| untruncated(dir, &e))?;
    }
    if !cuts.is_empty() {
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| untruncated(dir, &e))?;
    }
    Ok(logs.into_iter().filter(|(_, path)| path.exists()).collect())
}

/// `sure`: the length of the manifest at its last sync, if known.
fn audit_manifest(
    manifest: &Path,
    length: usize,
    damage: Option<Damage>,
    sure: Option<u64>,
) -> StoreResult<Manifest> {
    let whole = damage.map_or(length, |damage| damage.at);
    if let Some(sure) = sure.filter(|sure| (whole as u64) < *sure) {
        return Err(refusal(manifest, whole, &format!("{sure} bytes of it had been synced"), None));
    }
    let mut found = Manifest { is_known: sure.is_some(), ..Manifest::default() };
    match damage {
        None => {}
        Some(Damage { at, end: End::Cut }) if sure.is_some() || length.is_multiple_of(SECTOR) => {
            let name = manifest.file_name().unwrap_or_default().display();
            found.ends = Some(format!("{name} ends inside its record at byte {at}"));
        }
        Some(Damage { at, end: End::Cut }) => {
            return Err(refusal(manifest, at, "it ends inside a record", None));
        }
        Some(Damage { at, end: End::Zeros }) if sure.is_some() => {
            found.cut = Some((manifest.to_path_buf(), at as u64));
        }
        Some(Damage { at, .. }) => return Err(refusal(manifest, at, "a checksum does not match", None)),
    }
    Ok(found)
}

/// Cuts that empty the logs from index `from` on, if nothing in them was acknowledged.
fn drop_from(logs: &[PathBuf], from: usize, synced: Option<&Known>) -> Option<Vec<(PathBuf, u64)>> {
    let synced = synced?;
    let logs = logs.get(from..).unwrap_or_default();
    let torn = logs.iter().all(|log| number(log).is_none_or(|number| synced.log(number) == 0));
    torn.then(|| logs.iter().map(|log| (log.clone(), 0)).collect())
}

/// Returns the cuts to make.
fn audit_logs(logs: &[PathBuf], synced: Option<&Known>) -> StoreResult<Vec<(PathBuf, u64)>> {
    // The first log without its end, and its index.
    let mut torn: Option<(usize, Damage)> = None;
    let mut next = None;
    for (place, path) in logs.iter().enumerate() {
        let Some(bytes) = read(path)? else { continue };
        let (mut records, mut gap) = (0, None);
        let damage = walk(&bytes, &mut |at, record| {
            records += 1;
            let (sequence, after) = sequence(record);
            // A log is followed by another one only after a record.
            let follows = if place == 0 || records > 1 {
                next.is_none_or(|next| next == sequence)
            } else {
                next == Some(sequence)
            };
            gap = gap.or((!follows).then_some(at));
            next = Some(after);
            gap.is_none()
        });
        let cut = |place: usize, at: usize| {
            let rest = drop_from(logs, place + 1, synced)?;
            Some([(logs.get(place)?.clone(), at as u64)].into_iter().chain(rest).collect())
        };
        if let Some(at) = gap {
            // A log that continues where it should skips no number.
            let cuts = match torn {
                Some((torn, damage)) => cut(torn, damage.at),
                None => drop_from(logs, place, synced).filter(|_| at == 0),
            };
            let (path, at) =
                torn.and_then(|(torn, damage)| Some((logs.get(torn)?, damage.at))).unwrap_or((path, at));
            let what = "the data written there is missing, but later records are present";
            return cuts.ok_or_else(|| refusal(path, at, what, logs.last()));
        }
        // A log that continues after the whole records before it shows that nothing is missing.
        torn = torn.filter(|_| records == 0);
        let sure = synced.zip(number(path)).map_or(0, |(synced, number)| synced.log(number));
        let at = damage.map_or(bytes.len(), |damage| damage.at);
        if (at as u64) < sure {
            let what = format!("{sure} bytes of it had been synced");
            return Err(refusal(path, at, &what, logs.last()));
        }
        let wrong = match damage {
            Some(damage) if matches!(damage.end, End::GoesOn | End::Hole) => {
                if let Some(cuts) = cut(place, at).filter(|_| damage.end == End::Hole) {
                    return Ok(cuts);
                }
                "a checksum does not match, but whole records follow"
            }
            Some(damage) if damage.end == End::Wrong => "a checksum does not match",
            damage => {
                torn = torn.or(damage.map(|damage| (place, damage)));
                continue;
            }
        };
        return Err(refusal(path, at, wrong, logs.last()));
    }
    if let Some((log, damage)) = torn.filter(|(_, damage)| damage.end == End::Zeros)
        && let Some(log) = logs.get(log)
    {
        let (log, byte) = (log.display(), damage.at);
        tracing::warn!(%log, byte, "the log ends in a torn write: data that had not been synced is lost");
    }
    Ok(Vec::new())
}

fn read(path: &Path) -> StoreResult<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(StoreError::Unavailable(format!("cannot read {}: {e}", path.display()))),
    }
}

/// The number in a log's name.
fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(".wal")?.parse().ok()
}

/// The logs from number `first` on, in the order in which they were written.
fn numbered(dir: &Path, first: u64) -> Vec<(u64, PathBuf)> {
    let paths = super::directory::names(dir).map(|name| dir.join(name));
    let mut numbers: Vec<(u64, PathBuf)> = paths.filter_map(|path| Some((number(&path)?, path))).collect();
    numbers.retain(|(number, _)| *number >= first);
    numbers.sort();
    numbers
}

fn refusal(path: &Path, at: usize, what: &str, cut: Option<&PathBuf>) -> StoreError {
    let file = path.display();
    let advice = match cut {
        None => "Replace the directory with a backup.".to_owned(),
        Some(last) if last == path => format!(
            "Replace the directory with a backup, or give up everything written after that point: truncate -s {at} {file}, \
             remove the file TERN-SYNCED, then run tern check."
        ),
        Some(_) => format!(
            "Replace the directory with a backup, or give up everything written after that point: truncate -s {at} {file}, \
             move away the logs with higher numbers and the files TERN-LOGS and TERN-SYNCED, then run tern check."
        ),
    };
    StoreError::Corrupt(format!("{file} is damaged at byte {at}: {what}. {advice}"))
}

#[cfg(test)]
mod tests {
    use super::super::records::tests::{batch, log, record};
    use super::super::records::{HEADER, WHOLE};
    use super::super::synced::Lengths;
    use super::super::wal::{Log, Record};
    use super::*;

    /// A directory with a manifest of `edits`, cut to `length` bytes, and a log that notes `drained`.
    fn manifest(edits: &[&[u8]], length: impl Fn(usize) -> usize, drained: Option<u64>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes: Vec<u8> = edits.iter().flat_map(|edit| record(WHOLE, edit)).collect();
        bytes.truncate(length(bytes.len()));
        std::fs::write(dir.path().join("CURRENT"), "MANIFEST-000001\n").unwrap();
        std::fs::write(dir.path().join("MANIFEST-000001"), bytes).unwrap();
        let mut log = Log::create(dir.path(), 3, 0).unwrap();
        if let Some(drained) = drained {
            let mut note = Record::new(0);
            note.drained(drained);
            log.append(note).unwrap();
        }
        dir
    }

    fn found(ends: Option<usize>, is_known: bool) -> StoreResult<Manifest> {
        let ends = ends.map(|at| format!("MANIFEST-000001 ends inside its record at byte {at}"));
        Ok(Manifest { ends, is_known, cut: None })
    }

    #[test]
    fn a_manifest_may_end_inside_of_a_record_only_where_a_sector_ends() {
        let long = [&[1, 0x80 | 100, 7][..], &[b'c'; 1000 - 28]].concat();
        let edits: [&[u8]; 2] = [&[2, 3, 4, 9], &long];
        let said = |length: usize| audit(manifest(&edits, |_| length, None).path());
        assert_eq!(said(11), found(None, false));
        assert_eq!(said(SECTOR), found(Some(11), false));
        for length in [12, SECTOR - 1, SECTOR + 1, 11 + HEADER + long.len() - 1] {
            let refused = said(length).unwrap_err().to_string();
            assert!(refused.contains("MANIFEST-000001 is damaged at byte 11: it ends inside a record"));
        }
    }

    #[test]
    fn a_manifest_ends_anywhere_behind_what_was_synced_of_it_and_nowhere_in_front() {
        let edits: [&[u8]; 3] = [&[2, 3, 4, 9], &[4, 20], &[&[1, 0x80 | 100, 7][..], &[b'c'; 972]].concat()];
        let (first, second, all) = (11, 20, 20 + HEADER + 975);
        for sure in [0, first, second, all] {
            for length in [0, 1, first, first + 3, second, second + 1, SECTOR, all - 1, all] {
                let dir = manifest(&edits, |_| length, None);
                let synced = Known { manifest: Some((1, sure as u64)), ..Known::default() };
                synced::write(dir.path(), &synced);
                let whole = [all, second, first, 0].into_iter().find(|end| *end <= length).unwrap();
                let said = audit(dir.path());
                if whole < sure {
                    let wanted = format!(
                        "MANIFEST-000001 is damaged at byte {whole}: {sure} bytes of it had been synced"
                    );
                    assert!(said.unwrap_err().to_string().contains(&wanted), "{length} of {sure}");
                } else {
                    assert_eq!(said, found((whole < length).then_some(whole), true));
                }
                // Zeros in place of the missing part.
                let manifest = dir.path().join("MANIFEST-000001");
                File::options().write(true).open(&manifest).unwrap().set_len(2 * all as u64).unwrap();
                let cut = Some((manifest, whole as u64));
                let torn = Ok(Manifest { ends: None, is_known: true, cut });
                assert_eq!(
                    audit(dir.path()).map_err(drop),
                    if whole < sure { Err(()) } else { torn.map_err(|_: ()| ()) }
                );
            }
        }
    }

    #[test]
    fn a_manifest_knows_the_tables_that_the_logs_note() {
        let said = |edits: &[&[u8]], drained| audit(manifest(edits, |all| all, Some(drained)).path());
        assert_eq!(said(&[&[2, 3, 4, 9]], 9), found(None, false));
        assert_eq!(said(&[&[2, 3, 4, 9]], 4), found(None, false));
        assert_eq!(said(&[&[2, 3, 4, 9], &[4, 20]], 20), found(None, false));
        let refused = said(&[&[2, 3, 4, 9]], 10).unwrap_err().to_string();
        assert!(refused.contains("MANIFEST-000001 is damaged at byte 11: records are missing there"));
        assert_eq!(said(&[&[2, 3, 4, 9], &[77]], 10), found(None, false), "a field that is not known");
    }

    /// Logs 4, 7 and 9 with records of about 1000 bytes, numbered from 0, and the synced length of each.
    struct Logs {
        dir: tempfile::TempDir,
        paths: [PathBuf; 3],
        synced: Option<Known>,
    }

    impl Logs {
        fn new(synced: Option<[u64; 3]>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let paths = [4, 7, 9].map(|n| super::super::logs::path(dir.path(), n));
            std::fs::write(&paths[0], log()).unwrap();
            std::fs::write(&paths[1], record(WHOLE, &batch(6, 1, 10))).unwrap();
            std::fs::write(&paths[2], record(WHOLE, &batch(7, 1, 10))).unwrap();
            let logs = |synced: [u64; 3]| Lengths::from([(4, synced[0]), (7, synced[1]), (9, synced[2])]);
            let synced = synced.map(|synced| Known { logs: logs(synced), manifest: None });
            Logs { dir, paths, synced }
        }

        fn audit(&self) -> StoreResult<Vec<(PathBuf, u64)>> {
            audit_logs(&self.paths, self.synced.as_ref())
        }

        /// Cuts the first log and appends something.
        fn first(&self, length: usize, behind: &[u8]) -> &Self {
            std::fs::write(&self.paths[0], [&log()[..length], behind].concat()).unwrap();
            self
        }

        fn refused(&self, log: usize, at: usize) {
            let said = self.audit().unwrap_err().to_string();
            let wanted = format!("{} is damaged at byte {at}: ", self.paths[log].display());
            assert!(said.contains(&wanted), "{said}");
        }

        fn cuts(&self, cuts: &[(usize, usize)]) {
            let cuts = cuts.iter().map(|(log, at)| (self.paths[*log].clone(), *at as u64)).collect();
            assert_eq!(self.audit(), Ok(cuts));
        }
    }

    #[test]
    fn a_gap_between_logs_is_cut_off_unless_data_behind_it_was_synced() {
        let one = log().len() / 3;
        let zeros = &[0; 2000];
        for synced in [None, Some([0, 0, 0]), Some([one as u64, 0, 0]), Some([3 * one as u64, 17, 0])] {
            Logs::new(synced).cuts(&[]);
        }
        for logs in [Logs::new(None), Logs::new(Some([0, 1, 0])), Logs::new(Some([0, 0, 1]))] {
            logs.first(2 * one, b"").refused(1, 0);
            for behind in [&b"begun"[..], zeros] {
                logs.first(2 * one, behind).refused(0, 2 * one);
            }
        }
        let torn = Logs::new(Some([2 * one as u64, 0, 0]));
        torn.first(2 * one, b"").cuts(&[(1, 0), (2, 0)]);
        for behind in [&b"begun"[..], zeros] {
            torn.first(2 * one, behind).cuts(&[(0, 2 * one), (1, 0), (2, 0)]);
        }
        let lost = Logs::new(Some([0, 0, 0]));
        lost.first(0, b"").cuts(&[(1, 0), (2, 0)]);
        lost.first(0, zeros).cuts(&[(0, 0), (1, 0), (2, 0)]);
        for logs in [Logs::new(None), Logs::new(Some([0, 1, 0]))] {
            logs.first(0, b"").refused(1, 0);
            logs.first(0, zeros).refused(0, 0);
        }
        torn.first(one, b"").refused(0, one);
        torn.first(one, zeros).refused(0, one);
        let alone = audit_logs(&torn.paths[..1], None);
        assert_eq!(alone, Ok(Vec::new()), "nothing goes on behind it");
        let later: Vec<PathBuf> = numbered(torn.dir.path(), 5).into_iter().map(|(_, path)| path).collect();
        assert_eq!(later, torn.paths[1..]);
    }

    #[test]
    fn a_hole_is_cut_off_unless_data_behind_it_was_synced() {
        let one = log().len() / 3;
        let hole = [&vec![0; one][..], &log()[2 * one..]].concat();
        let changed = [&vec![9; one][..], &log()[2 * one..]].concat();
        for synced in [0, one as u64] {
            let logs = Logs::new(Some([synced, 0, 0]));
            logs.first(one, &hole).cuts(&[(0, one), (1, 0), (2, 0)]);
            logs.first(one, &changed).refused(0, one);
        }
        for synced in [None, Some([one as u64 + 1, 0, 0]), Some([one as u64, 0, 1])] {
            Logs::new(synced).first(one, &hole).refused(0, one);
        }
    }

    #[test]
    fn what_was_torn_is_cut_off_and_found_again_where_that_was_broken_off() {
        let known = Logs::new(Some([0, 0, 0]));
        let dir = known.dir.path();
        synced::write(dir, known.synced.as_ref().unwrap());
        let one = log().len() / 3;
        for broken_off in [false, true] {
            known.first(one, &[&vec![0; one][..], &log()[2 * one..]].concat());
            std::fs::write(&known.paths[1], record(WHOLE, &batch(6, 1, 10))).unwrap();
            if broken_off {
                let _ = std::fs::remove_file(&known.paths[2]);
            }
            assert_eq!(logs(dir, 4, true), Ok(vec![(4, known.paths[0].clone())]), "an empty log is removed");
            assert_eq!(known.paths[0].metadata().unwrap().len(), one as u64);
            assert!(!known.paths[1].exists() && !known.paths[2].exists());
        }
    }

    /// Hazard: the commits of a log are skipped although it is not drained.
    #[test]
    fn the_first_log_is_the_one_behind_those_that_were_drained() {
        for (synced, is_known) in
            [(None, true), (Some([0, 0, 0]), false), (Some([1, 0, 0]), true), (Some([0, 0, 1]), true)]
        {
            let known = Logs::new(synced);
            known.synced.as_ref().into_iter().for_each(|synced| synced::write(known.dir.path(), synced));
            let refused = logs(known.dir.path(), 3, is_known).unwrap_err().to_string();
            assert!(
                refused.contains("000004.wal is damaged at byte 0: the log before it is missing"),
                "{refused}"
            );
            assert!(known.paths.iter().all(|path| path.exists()));
        }
        let known = Logs::new(Some([0, 0, 0]));
        synced::write(known.dir.path(), known.synced.as_ref().unwrap());
        assert_eq!(logs(known.dir.path(), 9, true).unwrap().len(), 1);
        assert_eq!(logs(known.dir.path(), 3, true), Ok(Vec::new()), "nothing in them was acknowledged");
        assert!(known.paths.iter().all(|path| !path.exists()));
        forget_logs(known.dir.path(), 99);
        let known = Logs::new(None);
        forget_logs(known.dir.path(), 7);
        assert_eq!(known.paths.each_ref().map(|path| path.exists()), [false, true, true]);
    }

    #[test]
    fn what_was_synced_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = super::super::logs::path(dir.path(), 4);
        let (one, whole) = (log().len() / 3, log().len());
        let said = |bytes: &[u8], synced: usize| {
            std::fs::write(&path, bytes).unwrap();
            let logs = [(4, synced as u64), (9, 1)].into();
            audit_logs(std::slice::from_ref(&path), Some(&Known { logs, manifest: None }))
        };
        let zeros = |from: usize| [&log()[..from], &vec![0; whole - from]].concat();
        for synced in [0, one, 2 * one, whole] {
            for length in 0..=whole {
                // The end of its last whole record.
                let end = length / one * one;
                assert_eq!(said(&log()[..length], synced).is_ok(), end >= synced, "{length} of {synced}");
            }
            for from in [1, one, one + 20, whole - 1] {
                let end = from / one * one;
                assert_eq!(said(&zeros(from), synced).is_ok(), end >= synced, "zeros from {from}, {synced}");
            }
        }
        let refused = said(&log()[..one + 5], 2 * one).unwrap_err().to_string();
        let wanted = format!("000004.wal is damaged at byte {one}: {} bytes of it had been synced", 2 * one);
        assert!(refused.contains(&wanted), "{refused}");
        assert!(refused.contains("remove the file TERN-SYNCED"), "{refused}");
    }
}
