//! Who may read what the server writes: this user alone, but for what the administrator has made.

use rustix::fs::Mode;
use rustix::process::umask;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Makes every file that this process creates its user's alone (0600, directories 0700), whatever umask it was started with: also those
/// that RocksDB creates. For the process's begin, while it has one thread.
pub fn keep_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Makes `path` with what leads to it, where it is missing. One that there is stays as it is: its rights are the administrator's, who
/// hears of it where others may look into it.
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
