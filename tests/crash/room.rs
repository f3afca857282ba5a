//! A place with little space: a small file system, or a limit on the size of files where mounting is not
//! allowed.

use crate::ARGS;
use crate::support::server::{Server, tern_command, try_start};
use crate::support::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SIZE: u64 = 24 << 20;
const BALLAST: usize = 12 << 20;
/// The longest file in 512-byte blocks, as in `ulimit -f`.
const BLOCKS: u64 = 4096;

/// A mounted tmpfs. Unmounted when dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// A file system of `bytes`; None if this user may not mount.
    pub fn new(at: &Path, bytes: u64) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        run("mount", &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"], at)
            .then(|| Mount(at.to_owned()))
    }
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// Forbids or allows writing.
    pub fn read_only(&self, yes: bool) -> bool {
        run("mount", &["-o", if yes { "remount,ro" } else { "remount,rw" }], &self.0)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[], &self.0);
    }
}

fn run(program: &str, args: &[&str], at: &Path) -> bool {
    let status =
        Command::new(program).args(args).arg(at).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}

/// The place.
pub enum Room {
    /// A small file system, filled by a ballast file beside the data.
    Disk { mount: Mount },
    /// A limit: no file may grow beyond [`BLOCKS`].
    Files { dir: PathBuf },
}

impl Room {
    /// A small file system, or a limit where mounting is impossible.
    pub fn new(home: &Path) -> Option<Self> {
        let place = home.join("small");
        if let Some(mount) = Mount::new(&place, SIZE) {
            std::fs::write(place.join("ballast"), vec![1; BALLAST]).unwrap();
            return Some(Room::Disk { mount });
        }
        let allowed =
            Command::new("prlimit").args(["--fsize", "--pid", &std::process::id().to_string()]).output();
        if allowed.is_ok_and(|o| o.status.success()) {
            return Some(Room::Files { dir: place });
        }
        skipped(
            "a full disk: cannot mount a tmpfs and there is no prlimit",
            "run as root, or apt-get install util-linux",
        );
        None
    }
    /// A description for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Room::Disk { .. } => "a small file system",
            Room::Files { .. } => "a limit on the size of files",
        }
    }
    /// The data directory.
    pub fn dir(&self) -> PathBuf {
        match self {
            Room::Disk { mount } => mount.0.join("data"),
            Room::Files { dir } => dir.join("data"),
        }
    }
    /// Starts a server under the limit.
    pub fn start(&self, log: &Path) -> Server {
        std::fs::create_dir_all(self.dir()).unwrap();
        let tern = tern_command(&self.dir(), &ARGS);
        let command = match self {
            Room::Disk { .. } => tern,
            Room::Files { .. } => {
                let mut limited = Command::new("sh");
                let script = format!("trap '' XFSZ; ulimit -S -f {BLOCKS}; exec \"$@\"");
                limited.args(["-c", &script, "limited"]).arg(tern.get_program()).args(tern.get_args());
                limited
            }
        };
        try_start(command, log).unwrap_or_else(|e| panic!("{e:?}"))
    }
    /// Gives space.
    pub fn free(&self, server: &Server) {
        match self {
            Room::Disk { mount } => std::fs::remove_file(mount.0.join("ballast")).unwrap(),
            Room::Files { .. } => {
                let pid = server.pid().to_string();
                let freed = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status();
                assert!(freed.unwrap().success(), "prlimit");
            }
        }
    }
}
