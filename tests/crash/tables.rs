//! Hazard: a table of the store is cut off or removed, and its keys seem absent, or an older value of them is
//! served from another table.
//!
//! If this happens while the server is stopped, no server starts, and the error names the table. If it
//! happens under a running server, each reply is right or an error that reports corrupt data, also once the
//! rest is compacted.

use crate::history;
use crate::support::resp::Value;
use crate::support::say;
use crate::support::server::{Server, tern_command, tern_in, try_start};
use crate::{ARGS, copy, files, name};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const STEPS: usize = 200;
/// Keeps nothing in memory.
const COLD: [&str; 6] =
    ["--store-cache-size", "1mb", "--store-value-cache-size", "0", "--store-write-buffer-size", "256kb"];

/// The errors of a store that has met damage in its own work: RocksDB accepts no more writes, and the damaged
/// store cannot be reopened.
const SAYS: [&str; 3] = ["corrupt data", "MISCONF", "commit result unknown"];

/// A stopped store with several tables.
fn directory(dir: &Path) -> Vec<PathBuf> {
    for run in 0..4 {
        let mut server = tern_in(dir, &[&ARGS[..], &COLD].concat());
        history::steps(&mut server.client(), run * STEPS / 4 + 1, (run + 1) * STEPS / 4);
        assert!(server.terminate());
    }
    let tables: Vec<PathBuf> =
        files(dir).into_iter().filter(|file| file.extension().is_some_and(|e| e == "sst")).collect();
    assert!(!tables.is_empty());
    tables
}

/// Lengths to which a table is cut: inside its blocks, inside its footer, and nothing.
fn lengths(length: u64) -> [u64; 6] {
    [0, 1, length / 3, length - 4096.min(length - 1), length - 20, length - 1]
}

fn cut(table: &Path, length: u64) {
    std::fs::File::options().write(true).open(table).unwrap().set_len(length).unwrap();
}

#[test]
fn a_store_with_a_truncated_or_missing_table_does_not_start() {
    let home = tempfile::tempdir().unwrap();
    let sound = home.path().join("sound");
    let mut refused = 0;
    for table in directory(&sound) {
        let dir = home.path().join("damaged");
        let ways = lengths(table.metadata().unwrap().len()).map(Some).into_iter().chain([None]);
        for way in ways {
            copy(&sound, &dir);
            let table = dir.join(name(&table));
            match way {
                Some(length) => cut(&table, length),
                None => std::fs::remove_file(&table).unwrap(),
            }
            let said = try_start(tern_command(&dir, &ARGS), &dir.with_extension("log"));
            let said = said.err().unwrap_or_else(|| panic!("{way:?} bytes of {table:?} are served"));
            assert!(said.status == Some(1) && said.said.contains(&name(&table)), "{way:?}: {said:?}");
            refused += 1;
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    say(&format!("  {refused} tables cut off or removed: none started"));
}

/// The number of keys refused, with the text of each refusal; all other keys are right.
fn refused(server: &Server, says: &[&str]) -> usize {
    let wanted = history::after(STEPS);
    let mut refused = 0;
    for (key, found) in history::read_each(&mut server.client()) {
        match found {
            Ok(found) => assert_eq!(found.as_ref(), wanted.get(&key), "{key}"),
            Err(e) => {
                assert!(says.iter().any(|part| e.contains(part)), "{key}: {e}");
                refused += 1;
            }
        }
    }
    refused
}

#[test]
fn a_table_truncated_or_removed_under_a_server_is_never_served_wrong() {
    let home = tempfile::tempdir().unwrap();
    let sound = home.path().join("sound");
    let tables = directory(&sound);
    let mut outcomes = Vec::new();
    for part in [0, 1, 2, 3, 9] {
        let dir = home.path().join("running");
        copy(&sound, &dir);
        let server = tern_in(&dir, &[&ARGS[..], &COLD, &["--store-timeout", "1000"]].concat());
        for table in &tables {
            let table = dir.join(name(table));
            match (part, table.exists()) {
                (_, false) => {}
                (9, _) => std::fs::remove_file(&table).unwrap(),
                _ => cut(&table, table.metadata().unwrap().len() * part / 4),
            }
        }
        outcomes.push((part, refused(&server, &["corrupt data"])));
        // Writes create tables, which are compacted with the damaged ones. Then writes fail, and the store is
        // not reopened.
        let writes = (0..40).map(|n| server.client().line(&format!("SET more:{n} {}", "x".repeat(60_000))));
        let heard: Vec<String> = writes.filter(Value::is_error).map(|e| format!("{e:?}")).collect();
        let clear = |said: &String| SAYS.iter().any(|part| said.contains(part));
        assert!(heard.iter().all(clear), "{heard:?}");
        let since = Instant::now();
        refused(&server, &SAYS[..1]);
        assert!(
            since.elapsed() < Duration::from_secs(2),
            "no client waits for damaged data: {:?}",
            since.elapsed()
        );
        drop(server);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    say(&format!("  (quarters left, or 9 for removed; keys refused): {outcomes:?}"));
    assert!(outcomes[0].1 > 0, "an empty table must cause refusals: {outcomes:?}");
    assert_eq!(outcomes[4].1, 0, "an open table can be read after its removal");
}
