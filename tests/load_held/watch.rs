//! A process' resources, seen from outside and by its own INFO, and whether they have grown.

use crate::info;
use crate::support::server::Server;
use std::fmt;
use std::path::Path;

/// The allowed growth of resident memory between the second quarter and the last, as a fraction and in bytes.
/// The bytes allow for tables and their caches: in a short run these still fill, by 15 MB of 60 in half a
/// minute.
const SHORT: (f64, f64) = (0.10, 24e6);
const LONG: (f64, f64) = (0.05, 12e6);
/// The number of samples, one per second, of a run that is no longer short.
const WARM: usize = 240;

/// One sample.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Bytes.
    pub resident: u64,
    /// Bytes that the store reports to hold in memory.
    pub store: u64,
    /// Bytes on disk.
    pub disk: u64,
    pub threads: u64,
    pub tasks: u64,
    pub clients: u64,
    pub sockets: u64,
    /// Open files, including sockets.
    pub descriptors: u64,
    /// Open files that are deleted: their space is not free.
    pub deleted: u64,
    pub panics: u64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        write!(
            f,
            "{:.1} MB resident ({:.1} the store's), {:.1} MB on disk, {} threads, {} tasks, {} clients, {} descriptors, \
             {} of them sockets, {} deleted",
            mb(self.resident),
            mb(self.store),
            mb(self.disk),
            self.threads,
            self.tasks,
            self.clients,
            self.descriptors,
            self.sockets,
            self.deleted
        )
    }
}

/// Takes a sample. The connection that it uses is one of the clients.
pub fn sample(server: &Server) -> Sample {
    let text = info(&mut server.client(), "everything");
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("INFO has no {name}")).parse().unwrap()
    };
    let process = format!("/proc/{}", server.pid());
    let open = open_files(Path::new(&process));
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
    let count = |what: &dyn Fn(&str) -> bool| open.iter().filter(|name| what(name)).count() as u64;
    Sample {
        resident: server.resident() as u64,
        store: field("store_memory_bytes"),
        disk: field("store_disk_bytes"),
        threads: threads.trim().parse().unwrap(),
        tasks: field("tasks"),
        clients: field("connected_clients"),
        sockets: count(&|name| name.starts_with("socket:")),
        descriptors: open.len() as u64,
        deleted: count(&|name| name.ends_with("(deleted)")),
        panics: field("panics"),
    }
}

fn open_files(process: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(process.join("fd")).unwrap();
    let target = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).ok();
    entries.flatten().filter_map(target).map(|path| path.display().to_string()).collect()
}

/// The median of each figure.
pub fn median(samples: &[Sample]) -> Sample {
    let middle = |figure: &dyn Fn(&Sample) -> u64| {
        let mut all: Vec<u64> = samples.iter().map(figure).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    Sample {
        resident: middle(&|s| s.resident),
        store: middle(&|s| s.store),
        disk: middle(&|s| s.disk),
        threads: middle(&|s| s.threads),
        tasks: middle(&|s| s.tasks),
        clients: middle(&|s| s.clients),
        sockets: middle(&|s| s.sockets),
        descriptors: middle(&|s| s.descriptors),
        deleted: middle(&|s| s.deleted),
        panics: middle(&|s| s.panics),
    }
}

/// The figures that have grown between the second quarter and the last, or should be zero.
pub fn grown(samples: &[Sample]) -> Vec<String> {
    let quarter = samples.len() / 4;
    let (early, late) = (median(&samples[quarter..2 * quarter]), median(&samples[3 * quarter..]));
    let mut wrong = Vec::new();
    let (growth, sway) = if samples.len() < WARM { SHORT } else { LONG };
    let mut limit = |what: &str, early: u64, late: u64, sway: f64| {
        if late as f64 > early as f64 * (1.0 + growth) + sway {
            wrong.push(format!("{what} grew from {early} to {late}"));
        }
    };
    limit("resident memory", early.resident, late.resident, sway);
    limit("threads", early.threads, late.threads, 4.0);
    limit("tasks", early.tasks, late.tasks, 100.0);
    limit("descriptors of files", early.descriptors - early.sockets, late.descriptors - late.sockets, 64.0);
    limit("deleted files held open", early.deleted, late.deleted, 16.0);
    limit("panics", 0, samples.iter().map(|s| s.panics).max().unwrap_or_default(), 0.0);
    wrong
}

#[test]
fn growth_is_noticed_and_fluctuation_is_not() {
    let flat = |resident| Sample { resident, descriptors: 50, sockets: 10, ..Sample::default() };
    let steady: Vec<Sample> = (0..40).map(|n| flat(200_000_000 + n % 7 * 1_000_000)).collect();
    assert_eq!(grown(&steady), [""; 0]);
    let leak: Vec<Sample> = (0..40).map(|n| flat(200_000_000 + n * 3_000_000)).collect();
    assert_eq!(grown(&leak).len(), 1, "memory: {:?}", grown(&leak));
    let slow = |samples: u64| -> Vec<Sample> {
        (0..samples).map(|n| flat(100_000_000 + n * 40_000_000 / samples)).collect()
    };
    assert_eq!((grown(&slow(40)).len(), grown(&slow(300)).len()), (0, 1), "20 MB: caches fill, or a leak");
    let files = |n: u64| Sample {
        descriptors: 50 + n * 10,
        deleted: n * 4,
        panics: n / 39,
        tasks: n * 20,
        ..flat(1)
    };
    let files: Vec<Sample> = (0..40).map(files).collect();
    assert_eq!(grown(&files).len(), 4, "{:?}", grown(&files));
}
