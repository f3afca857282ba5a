//! Reads files that options name: only regular ones, of bounded size. Also replaces a file.
//!
//! A client that may set options may name any path. A FIFO would block the reader forever, a device would
//! never end or react to being opened, and either would be read while others wait. So anything but a regular
//! file is rejected before it is opened, and again afterwards, in case it was exchanged; opening does not
//! block.
//!
//! A regular file may still be slow, on a network disk. While clients are served, it is read where that
//! blocks no worker.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The most bytes of a text file: options, users.
pub(crate) const TEXT: u64 = 16 << 20;
/// The most bytes of a file of certificates or keys. All authorities of a system take a quarter of it.
pub(crate) const PEM: u64 = 1 << 20;

/// Linux: do not wait for the other end of a FIFO.
const O_NONBLOCK: i32 = 0o4000;

/// Reads a regular file of at most `most` bytes. Fails with the reason in the error's text.
pub(crate) fn read(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    check(&fs::metadata(file)?, most)?;
    let opened = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(file)?;
    check(&opened.metadata()?, most)?;
    let mut bytes = Vec::new();
    opened.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_long(most)) } else { Ok(bytes) }
}

/// Like [`read`], for UTF-8.
pub(crate) fn read_text(file: &Path) -> io::Result<String> {
    String::from_utf8(read(file, TEXT)?).map_err(|_| io::Error::other("not UTF-8"))
}

/// Replaces the contents of `file`: after a crash it holds either the old or the new bytes. A new file is
/// private, because it may hold secrets. Do not call it concurrently for one file.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".rewrite");
    let new = file.with_file_name(name);
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    if let Ok(old) = fs::metadata(file) {
        out.set_permissions(old.permissions())?;
    }
    out.write_all(bytes)?;
    out.sync_all()?;
    fs::rename(&new, file)
}

fn check(found: &Metadata, most: u64) -> io::Result<()> {
    if !found.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if found.len() > most { Err(too_long(most)) } else { Ok(()) }
}

fn too_long(most: u64) -> io::Error {
    io::Error::other(format!("longer than {most} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, file) = (dir.path().join("fifo"), dir.path().join("file"));
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for odd in [fifo.as_path(), dir.path(), Path::new("/dev/zero")] {
            assert_eq!(read(odd, PEM).unwrap_err().to_string(), "not a regular file", "{odd:?}");
        }
        fs::write(&file, b"12345678").unwrap();
        assert_eq!(read(&file, 8).unwrap(), b"12345678");
        assert_eq!(read(&file, 7).unwrap_err().to_string(), "longer than 7 bytes");
        // The size of such files is reported as 0.
        assert_eq!(read(Path::new("/proc/self/maps"), 7).unwrap_err().to_string(), "longer than 7 bytes");
        assert_eq!(read(&dir.path().join("none"), PEM).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
