//! A disk whose durable contents are known: the server runs above `synced.c`, which records every sync.

use crate::support::server::{Server, tern_command, try_start};
use crate::support::{program, skipped};
use crate::{ARGS, files};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names and inodes of a directory.
type Entries = BTreeMap<String, u64>;

/// The disk: a directory `data` and the record of its syncs.
pub struct Disk {
    home: PathBuf,
    shim: PathBuf,
    /// A planted mistake: no entry of the directory is ever durable.
    pub forgets_entries: bool,
}

impl Disk {
    /// Creates the disk in `home`; None, with a message, without a C compiler.
    pub fn new(home: &Path) -> Option<Self> {
        let Some(cc) = program("cc") else {
            skipped("losses of power: no C compiler", "apt-get install gcc");
            return None;
        };
        let shim = home.join("synced.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash/synced.c");
        let mut build = Command::new(cc);
        build.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).arg("-ldl");
        assert!(build.status().unwrap().success(), "synced.c does not compile");
        let disk = Disk { home: home.to_path_buf(), shim, forgets_entries: false };
        std::fs::create_dir(disk.links()).unwrap();
        std::fs::create_dir(disk.dir()).unwrap();
        Some(disk)
    }

    /// The server's data directory.
    pub fn dir(&self) -> PathBuf {
        self.home.join("data")
    }

    fn links(&self) -> PathBuf {
        self.home.join("links")
    }

    fn journal(&self) -> String {
        std::fs::read_to_string(self.home.join("synced")).unwrap_or_default()
    }

    /// Starts a server on it.
    pub fn start(&self, args: &[&str]) -> Server {
        let mut command = tern_command(&self.dir(), &[&ARGS[..], args].concat());
        command.env("LD_PRELOAD", &self.shim).env("TERN_SYNCED", self.home.join("synced"));
        command.env("TERN_LINKS", self.links()).env("TERN_GATE", self.gate());
        command.env("TERN_FULL", self.full());
        if self.forgets_entries {
            command.env("TERN_FORGETS_ENTRIES", "1");
        }
        try_start(command, &self.home.join("log")).unwrap_or_else(|e| panic!("{e:?}"))
    }

    fn full(&self) -> PathBuf {
        self.home.join("full")
    }

    /// Refuses space to files with `part` in their path, with an error after 0.3 s, until [`Disk::free`].
    pub fn fill(&self, part: &str) {
        std::fs::write(self.full(), part).unwrap();
    }

    /// Gives space again.
    pub fn free(&self) {
        std::fs::remove_file(self.full()).unwrap();
    }

    fn gate(&self) -> PathBuf {
        self.home.join("gate")
    }

    /// Makes the next sync of a file with `part` in its path fail, and its data is never durable. `mode`:
    /// whether the server still sees the data (kept) or not (gone).
    pub fn fail_a_sync(&self, part: &str, mode: &str) {
        std::fs::write(self.home.join("gate.new"), format!("{part} {mode}\n")).unwrap();
        std::fs::rename(self.home.join("gate.new"), self.gate()).unwrap();
    }

    /// Whether that sync has failed.
    pub fn has_failed(&self) -> bool {
        !self.gate().exists() && !self.gate().with_extension("failing").exists()
    }

    /// The number of durable bytes of each file, by inode.
    pub fn synced(&self) -> BTreeMap<u64, u64> {
        let mut synced = BTreeMap::<u64, u64>::new();
        for line in self.journal().lines().filter_map(|line| line.strip_prefix("F ")) {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            let length = synced.entry(words[1].parse().unwrap()).or_default();
            *length = (*length).max(words[0].parse().unwrap());
        }
        synced
    }

    /// The durable entries of the directory.
    fn entries(&self) -> Entries {
        let (mut entries, mut ours) = (Entries::new(), false);
        let dir = self.dir().display().to_string();
        for line in self.journal().lines() {
            if let Some(path) = line.strip_prefix("D ") {
                ours = path == dir;
                ours.then(|| entries.clear());
            } else if let Some(entry) = line.strip_prefix("E ").filter(|_| ours) {
                let (inode, name) = entry.split_once(' ').unwrap();
                entries.insert(name.to_owned(), inode.parse().unwrap());
            }
        }
        entries
    }

    /// Builds a directory as a power failure would leave it: for each entry created, renamed or removed since
    /// the directory was synced, `stays` decides whether the change is durable; `rest` returns what is left
    /// of a file with the given number of durable bytes.
    pub fn after_a_loss(
        &self,
        to: &Path,
        mut stays: impl FnMut() -> bool,
        mut rest: impl FnMut(&str, Vec<u8>, usize) -> Vec<u8>,
    ) -> usize {
        let (synced, old) = (self.synced(), self.entries());
        let now: Entries = files(&self.dir())
            .into_iter()
            .map(|file| {
                (file.file_name().unwrap().to_str().unwrap().to_owned(), file.metadata().unwrap().ino())
            })
            .collect();
        let names: BTreeSet<&String> = old.keys().chain(now.keys()).collect();
        let mut lost = 0;
        std::fs::create_dir_all(to).unwrap();
        for name in names {
            let (before, after) = (old.get(name), now.get(name));
            let is_new = before == after || stays();
            lost += usize::from(!is_new);
            let Some(inode) = (if is_new { after } else { before }) else { continue };
            let link = self.links().join(inode.to_string());
            let bytes = std::fs::read(if is_new { self.dir().join(name) } else { link }).unwrap();
            let sure = synced.get(inode).copied().unwrap_or_default().min(bytes.len() as u64);
            std::fs::write(to.join(name), rest(name, bytes, sure as usize)).unwrap();
        }
        lost
    }
}
