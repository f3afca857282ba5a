//! Hazard: a server starts where it must not, harms the files that it finds, or does not say what is wrong.

use crate::history;
use crate::room::Mount;
use crate::support::server::{Refused, Server, assert_sound, tern_check, tern_command, tern_in, try_start};
use crate::support::{say, skipped};
use crate::{ARGS, files};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The message of a server that must not start in `dir`.
fn refused(dir: &Path, home: &Path) -> Refused {
    try_start(tern_command(dir, &ARGS), &home.join("refused.log"))
        .err()
        .expect("the server must refuse to start")
}

fn holds(server: &Server, steps: usize) {
    let found = history::read(&mut server.client()).unwrap();
    history::check(&found, steps, steps).unwrap();
}

#[test]
fn a_second_server_on_a_directory_is_refused_and_the_first_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let mut first = tern_in(&dir, &ARGS);
    history::steps(&mut first.client(), 1, 50);
    for _ in 0..3 {
        let second = refused(&dir, home.path());
        assert_eq!(second.status, Some(1), "{}", second.said);
        assert!(second.said.contains("is in use by another process"), "{}", second.said);
        assert!(second.said.contains(&dir.display().to_string()), "{}", second.said);
        let (status, said) = tern_check(&dir, &ARGS);
        assert!(status == Some(2) && said.contains("is in use by another process"), "{status:?} {said}");
    }
    history::steps(&mut first.client(), 51, 100);
    first.kill();
    let again = tern_in(&dir, &ARGS);
    holds(&again, 100);
    drop(again);
    assert_sound(&dir, &ARGS);
}

/// A directory whose files may be read but not written; undone when dropped.
enum ReadOnly<'a> {
    Mount(&'a Mount),
    Rights(&'a Path),
}

impl<'a> ReadOnly<'a> {
    fn new(mount: Option<&'a Mount>, dir: &'a Path) -> Option<Self> {
        match mount {
            Some(mount) => mount.read_only(true).then_some(ReadOnly::Mount(mount)),
            None => {
                rights(dir, 0o555, 0o444);
                // Root may write in spite of the mode.
                let may_write = std::fs::write(dir.join("PROBE"), "").is_ok();
                let this = ReadOnly::Rights(dir);
                (!may_write).then_some(this)
            }
        }
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        match self {
            ReadOnly::Mount(mount) => drop(mount.read_only(false)),
            ReadOnly::Rights(dir) => rights(dir, 0o755, 0o644),
        }
    }
}

fn rights(dir: &Path, of_dir: u32, of_files: u32) {
    let set =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(dir, 0o755);
    files(dir).iter().for_each(|file| set(file, of_files));
    set(dir, of_dir);
}

#[test]
fn a_read_only_directory_is_refused_and_left_unchanged() {
    let home = tempfile::tempdir().unwrap();
    let mount = Mount::new(&home.path().join("disk"), 64 << 20);
    let dir = home.path().join("disk/data");
    let mut server = tern_in(&dir, &ARGS);
    history::steps(&mut server.client(), 1, 100);
    server.kill();
    let before: Vec<_> = files(&dir);
    let Some(read_only) = ReadOnly::new(mount.as_ref(), &dir) else {
        return skipped(
            "a read-only directory: root without mounts",
            "run as another user, or with the right to mount",
        );
    };
    let said = refused(&dir, home.path());
    let (status, check) = tern_check(&dir, &ARGS);
    drop(read_only);
    say(&format!("  a read-only directory: {}", said.said));
    assert_eq!(said.status, Some(1));
    for text in [&said.said, &check] {
        assert!(text.contains(&dir.display().to_string()), "{text}");
        assert!(text.contains("Read-only file system") || text.contains("Permission denied"), "{text}");
    }
    assert_eq!(status, Some(2), "{check}");
    assert_eq!(files(&dir), before, "the refused server left files behind");
    let server = tern_in(&dir, &ARGS);
    holds(&server, 100);
    drop(server);
    assert_sound(&dir, &ARGS);
}

#[test]
fn a_path_that_is_no_directory_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for dir in [file.clone(), file.join("below")] {
        let refused = refused(&dir, home.path());
        assert_eq!(refused.status, Some(1));
        assert!(refused.said.contains(&dir.display().to_string()), "{}", refused.said);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x");
}
