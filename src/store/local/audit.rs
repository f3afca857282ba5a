//! Checks RocksDB's own files before RocksDB opens them, because it continues where it must not and stops
//! where it need not:
//!
//! * It silently skips a page of zeros in a log where a record should begin, together with the rest of that
//!   block. It also ignores a missing end of a log although a later log continues. The resulting state never
//!   existed.
//! * It refuses a last write of which only some pages reached the disk (a loss of power) because of the
//!   checksum, just like damage of synced data.
//!
//! What to do depends on what is known to have been synced (`synced.rs`). Anything missing or incomplete
//! before that point is **damage**: nothing is opened, and the error names the file and the position. After
//! that point, what a loss of power leaves is a **torn write** that was never acknowledged: a missing or
//! zeroed end of a log or of the manifest, a hole of zeros before whole records, a log without its end before
//! a later one. RocksDB never sees it, because everything from there on is cut off ([`mend`]). If it is not
//! known what was synced, holes are damage, as are bytes that changed without becoming zeros, wherever they
//! are. Logs that the manifest calls flushed do not count: after a loss of power they can reappear in any
//! state.
//!
//! RocksDB opens a truncated manifest without its missing end, removes the tables named there, and the logs
//! that this end called flushed are gone. If it is not known how long the manifest was: an edit is one write,
//! of which a disk that is full or loses power keeps whole sectors. So a manifest that ends inside a record
//! and inside a sector is damaged: either the record's length is wrong, or the file was copied in part. A
//! manifest was also longer if the logs begin after what it knows.
//!
//! A log that is missing although the list of logs names it is reported before anything else (`logs.rs`).
//!
//! A log that is being written looks like one with a torn end, so a directory in use is rejected later, by
//! its lock.

use super::records::{Damage, Edit, End, SECTOR, edit, sequence, walk};
use super::synced::{self, Known};
use crate::error::{StoreError, StoreResult};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The effects of a loss of power.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Where the manifest ends inside a record: RocksDB was writing it, or its length is wrong, in which case
    /// RocksDB misses the next file it looks for.
    ends: Option<String>,
    /// Files to truncate where torn writes begin.
    cuts: Vec<(PathBuf, u64)>,
}

/// Rejects damage and cuts off torn writes. Returns where the manifest ends inside a record.
pub(super) fn mend(dir: &Path) -> StoreResult<Option<String>> {
    let found = audit(dir)?;
    if found.cuts.is_empty() {
        return Ok(found.ends);
    }
    let unavailable = |e: std::io::Error| {
        StoreError::Unavailable(format!("cannot truncate the torn write in {}: {e}", dir.display()))
    };
    // RocksDB's lock: nobody writes while it is held. Closing it releases the lock, even if this process has
    // the database open.
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join("LOCK"))
        .map_err(unavailable)?;
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| StoreError::Unavailable(format!("{} is in use by another process", dir.display())))?;
    let found = audit(dir)?;
    // The last file first, so that an interrupted run finds the torn write again.
    for (path, length) in found.cuts.iter().rev() {
        cut(path, *length).map_err(unavailable)?;
    }
    Ok(found.ends)
}

fn cut(path: &Path, length: u64) -> std::io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let lost = file.metadata()?.len().saturating_sub(length);
    file.set_len(length)?;
    file.sync_all()?;
    if lost > 0 {
        let path = path.display();
        tracing::warn!(file = %path, byte = length, lost, "truncated a torn write: data that had not been synced is lost");
    }
    Ok(())
}

/// Changes nothing.
fn audit(dir: &Path) -> StoreResult<Found> {
    let current = dir.join("CURRENT");
    let Some(name) = read(&current)? else { return Ok(Found::default()) };
    let name = String::from_utf8(name).ok().and_then(|n| n.strip_suffix('\n').map(str::to_owned));
    let name = name.and_then(|name| Some((synced::manifest_number(&name)?, name)));
    let Some((number, name)) = name else {
        return Err(refusal(&current, 0, "it does not name a manifest", None));
    };
    let manifest = dir.join(&name);
    let Some(bytes) = read(&manifest)? else {
        return Err(refusal(&manifest, 0, "the file CURRENT names it, but it is missing", None));
    };
    let synced = synced::read(dir);
    let sure = synced.as_ref().and_then(|synced| synced.manifest(number));
    let mut known = Some(Edit::default());
    let damage = walk(&bytes, &mut |_, raw| {
        known = known.and_then(|known| Some(known.max(edit(raw)?)));
        true
    });
    let logs = logs(dir, known.map_or(0, |known| known.log));
    let mut found = audit_manifest(&manifest, bytes.len(), damage, sure)?;
    let listed = known.map_or(Ok(()), |known| super::logs::check(dir, known.log));
    if damage.is_none() {
        listed.clone()?;
    }
    // If the length of the manifest is unknown, so is whether the logs or the manifest lost something.
    let synced = &synced.filter(|_| sure.is_some());
    let next = known.map(|known| known.sequence.saturating_add(1));
    // A log is removed once the manifest on disk says that it is flushed.
    if let Some((next, (first, at))) = next.zip(first_sequence(&logs)?)
        && first > next
    {
        let Some(cuts) = drop_from(&logs, at, synced.as_ref()).filter(|_| at > 0) else {
            let at = damage.map_or(bytes.len(), |damage| damage.at);
            return Err(refusal(
                &manifest,
                at,
                "records are missing there, because the logs begin later",
                None,
            ));
        };
        found.cuts.extend(cuts);
        return Ok(found);
    }
    // A manifest without its end may not know that a log is flushed.
    listed?;
    // A log that is being written may look wrong once.
    let synced = synced::read(dir);
    found.cuts.extend(audit_logs(&logs, synced.as_ref()).or_else(|_| audit_logs(&logs, synced.as_ref()))?);
    Ok(found)
}

/// `sure`: the length of the manifest at its last sync, if known.
fn audit_manifest(
    manifest: &Path,
    length: usize,
    damage: Option<Damage>,
    sure: Option<u64>,
) -> StoreResult<Found> {
    let whole = damage.map_or(length, |damage| damage.at);
    if let Some(sure) = sure.filter(|sure| (whole as u64) < *sure) {
        return Err(refusal(manifest, whole, &format!("{sure} bytes of it had been synced"), None));
    }
    let mut found = Found::default();
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
            found.cuts.push((manifest.to_path_buf(), at as u64));
        }
        Some(Damage { at, .. }) => return Err(refusal(manifest, at, "a checksum does not match", None)),
    }
    Ok(found)
}

/// The first sequence number in the logs, if they have a record, and the index of its log.
fn first_sequence(logs: &[PathBuf]) -> StoreResult<Option<(u64, usize)>> {
    let mut first = None;
    for (at, path) in logs.iter().enumerate() {
        walk(&read(path)?.unwrap_or_default(), &mut |_, record| {
            first = Some((sequence(record).0, at));
            false
        });
        if first.is_some() {
            break;
        }
    }
    Ok(first)
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
            gap = gap.or(next.filter(|next| *next != sequence).map(|_| at));
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
    path.file_name()?.to_str()?.strip_suffix(".log")?.parse().ok()
}

/// Logs that are not flushed, in the order in which they were written.
fn logs(dir: &Path, first: u64) -> Vec<PathBuf> {
    let paths = super::engine::names(dir).map(|name| dir.join(name));
    let mut numbers: Vec<(u64, PathBuf)> = paths.filter_map(|path| Some((number(&path)?, path))).collect();
    numbers.retain(|(number, _)| *number >= first);
    numbers.sort();
    numbers.into_iter().map(|(_, path)| path).collect()
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
    use super::*;

    /// A directory with a manifest of `edits`, cut to `length` bytes, and a log whose first number is
    /// `sequence`.
    fn manifest(
        edits: &[&[u8]],
        length: impl Fn(usize) -> usize,
        sequence: Option<u64>,
    ) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes: Vec<u8> = edits.iter().flat_map(|edit| record(WHOLE, edit)).collect();
        bytes.truncate(length(bytes.len()));
        std::fs::write(dir.path().join("CURRENT"), "MANIFEST-000001\n").unwrap();
        std::fs::write(dir.path().join("MANIFEST-000001"), bytes).unwrap();
        let log = sequence.map_or(Vec::new(), |sequence| record(WHOLE, &batch(sequence, 1, 10)));
        std::fs::write(dir.path().join("000003.log"), log).unwrap();
        dir
    }

    fn ends(at: usize) -> StoreResult<Found> {
        let ends = Some(format!("MANIFEST-000001 ends inside its record at byte {at}"));
        Ok(Found { ends, ..Found::default() })
    }

    #[test]
    fn a_manifest_may_end_inside_of_a_record_only_where_a_sector_ends() {
        let long = [&[1, 0x80 | 100, 7][..], &[b'c'; 1000 - 28]].concat();
        let edits: [&[u8]; 2] = [&[2, 3, 4, 9], &long];
        let said = |length: usize| audit(manifest(&edits, |_| length, None).path());
        assert_eq!(said(11), Ok(Found::default()));
        assert_eq!(said(SECTOR), ends(11));
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
                let found = audit(dir.path());
                if whole < sure {
                    let wanted = format!(
                        "MANIFEST-000001 is damaged at byte {whole}: {sure} bytes of it had been synced"
                    );
                    assert!(found.unwrap_err().to_string().contains(&wanted), "{length} of {sure}");
                } else {
                    assert_eq!(found, if whole < length { ends(whole) } else { Ok(Found::default()) });
                }
                // Zeros in place of the missing part.
                let manifest = dir.path().join("MANIFEST-000001");
                File::options().write(true).open(&manifest).unwrap().set_len(2 * all as u64).unwrap();
                let cuts = vec![(manifest, whole as u64)];
                let torn = Ok(Found { cuts, ..Found::default() });
                assert_eq!(
                    audit(dir.path()).map_err(drop),
                    if whole < sure { Err(()) } else { torn.map_err(|_: ()| ()) }
                );
            }
        }
    }

    #[test]
    fn logs_begin_where_the_manifest_ends() {
        let said = |edits: &[&[u8]], sequence| audit(manifest(edits, |all| all, Some(sequence)).path());
        let sound = || Ok(Found::default());
        assert_eq!(said(&[&[2, 3, 4, 9]], 10), sound());
        assert_eq!(said(&[&[2, 3, 4, 9]], 4), sound());
        assert_eq!(said(&[&[2, 3, 4, 9], &[4, 20]], 21), sound());
        let refused = said(&[&[2, 3, 4, 9]], 11).unwrap_err().to_string();
        assert!(refused.contains("MANIFEST-000001 is damaged at byte 11: records are missing there"));
        assert_eq!(said(&[&[2, 3, 4, 9], &[77]], 11), sound(), "a field that is not known");
        let most = [&[4][..], &[0xff; 9], &[1]].concat();
        assert_eq!(said(&[&most], u64::MAX), sound());
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
        torn.first(one, b"").refused(0, one);
        torn.first(one, zeros).refused(0, one);
        let alone = audit_logs(&torn.paths[..1], None);
        assert_eq!(alone, Ok(Vec::new()), "nothing goes on behind it");
        assert_eq!(logs(torn.dir.path(), 5), torn.paths[1..]);
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
        let logs = Logs::new(Some([0, 0, 0]));
        let dir = logs.dir.path();
        let known = Known { manifest: Some((1, 11)), ..Known::default() };
        std::fs::write(dir.join("CURRENT"), "MANIFEST-000001\n").unwrap();
        std::fs::write(dir.join("MANIFEST-000001"), record(WHOLE, &[2, 3, 4, 0])).unwrap();
        synced::write(dir, &known);
        let one = log().len() / 3;
        for broken_off in [false, true] {
            logs.first(one, &[&vec![0; one][..], &log()[2 * one..]].concat());
            if broken_off {
                File::create(&logs.paths[2]).unwrap();
            }
            assert_eq!(mend(dir), Ok(None));
            let lengths = logs.paths.each_ref().map(|path| path.metadata().unwrap().len());
            assert_eq!((lengths, logs.audit()), ([one as u64, 0, 0], Ok(Vec::new())));
        }
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
        let wanted = format!("000004.log is damaged at byte {one}: {} bytes of it had been synced", 2 * one);
        assert!(refused.contains(&wanted), "{refused}");
        assert!(refused.contains("remove the file TERN-SYNCED"), "{refused}");
    }
}
