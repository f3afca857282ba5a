//! Permissions of the server's files: private to this user, except for directories that the administrator
//! created.

use rustix::fs::Mode;
use rustix::process::umask;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Makes every file that this process creates private (0600, directories 0700), regardless of the inherited
/// umask; this includes RocksDB's files. Call it at the start, while the process has one thread.
pub fn keep_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Creates `path` and its parents if needed. An existing directory is left unchanged, because its permissions
/// are the administrator's; the log warns if other users can read it.
pub fn make(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o007 != 0 {
        tracing::warn!(
            "other users can read the data directory {}: run chmod o-rwx on it (new files in it are private)",
            path.display()
        );
    }
    Ok(())
}
