//! A FoundationDB cluster for one test binary: fdbserver processes on free ports of 127.0.0.1 in a temporary
//! directory.
//!
//! One cluster serves all tests of a binary, each in a namespace of its own. fdbserver is looked up in
//! `$FDB_HOME/bin`, `/opt/fdb/bin` and on PATH. The processes know their parent, and end with the test
//! binary.
//!
//! `TERN_TEST_STORE=fdb` makes the tests that take their store from `rig`, `sets_world` or `support` run on
//! such a cluster. `TERN_TEST_FDB_LAYOUT=double` makes it three processes.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../support/ports.rs"]
pub mod ports;

use ports::free_port;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const START: Duration = Duration::from_secs(90);
/// fdbcli's messages once a configuration has been reached.
const SUCCESSES: [&str; 3] = ["Database created", "Coordination state changed", "No change"];
/// Its error message if an earlier attempt that seemed to fail has succeeded.
const DONE_BEFORE: &str = "already exists";

/// The layout of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One process, in memory.
    Single,
    /// Three processes, each datum on two of them, on disk.
    Double,
}

/// Running processes. Killed when dropped.
pub struct Cluster {
    processes: Vec<Process>,
    binaries: PathBuf,
    home: TempDir,
    tls: Option<Tls>,
    /// The address at which the one process listens, if it differs from the published one.
    listens: Option<u16>,
}

/// PEM files for TLS between all processes.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The authority that signed the certificates.
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

struct Process {
    child: Child,
    port: u16,
}

/// The cluster shared by this binary's tests, or None, with a message, if fdbserver is missing.
pub fn shared(dependent: &str) -> Option<&'static Cluster> {
    found(dependent)?;
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    let layout = match std::env::var("TERN_TEST_FDB_LAYOUT").as_deref() {
        Ok("double") => Layout::Double,
        _ => Layout::Single,
    };
    SHARED.get_or_init(|| Cluster::start(layout, dependent)).as_ref()
}

/// A new namespace.
pub fn namespace() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether the tests run on FoundationDB.
pub fn wanted() -> bool {
    std::env::var("TERN_TEST_STORE").is_ok_and(|store| store == "fdb")
}

/// The shared cluster's file, for a run requested with `TERN_TEST_STORE`: then fdbserver must exist.
pub fn required() -> PathBuf {
    shared("TERN_TEST_STORE=fdb").expect("TERN_TEST_STORE=fdb needs an fdbserver").cluster_file()
}

#[cfg(feature = "fdb")]
pub async fn open(
    cluster_file: PathBuf,
    namespace: String,
    clock: tern::env::Clock,
) -> tern::error::StoreResult<tern::store::Store> {
    let timeout = Duration::from_secs(10);
    let tls = tern::store::fdb::FdbTls::default();
    let options = tern::store::fdb::FdbOptions { cluster_file, namespace, timeout, tls, clock };
    tern::store::fdb::Fdb::open(options).await.map(tern::store::Store::Fdb)
}

/// A new store on the shared cluster.
#[cfg(feature = "fdb")]
pub async fn fresh() -> tern::store::Store {
    open(required(), namespace(), tern::env::Clock::System).await.unwrap()
}

fn binaries() -> Option<PathBuf> {
    let named = std::env::var_os("FDB_HOME").map(PathBuf::from);
    let homes = named.into_iter().chain([PathBuf::from("/opt/fdb")]).map(|home| home.join("bin"));
    let whole = |dir: &PathBuf| dir.join("fdbserver").is_file() && dir.join("fdbcli").is_file();
    let path = std::env::var_os("PATH").unwrap_or_default();
    homes.chain(std::env::split_paths(&path)).find(whole)
}

/// The folder of fdbserver, or None, with a message, if it is missing.
fn found(dependent: &str) -> Option<PathBuf> {
    let found = binaries();
    if found.is_none() {
        let how = "install the server 7.3 into /opt/fdb, or set FDB_HOME";
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("unnamed");
        let _ = writeln!(std::io::stderr().lock(), "SKIPPED: {test}: {dependent}: no FoundationDB ({how})");
    }
    found
}

impl Cluster {
    /// A cluster of its own, or None, with a message, if fdbserver is missing.
    pub fn start(layout: Layout, dependent: &str) -> Option<Self> {
        Self::start_with(layout, None, dependent)
    }

    /// Such a cluster, which uses TLS if files for that are given.
    pub fn start_with(layout: Layout, tls: Option<Tls>, dependent: &str) -> Option<Self> {
        let binaries = found(dependent)?;
        let home = tempfile::tempdir().unwrap();
        let ports: Vec<u16> =
            (0..if layout == Layout::Single { 1 } else { 3 }).map(|_| free_port()).collect();
        let mut cluster = Cluster { processes: Vec::new(), binaries, home, tls, listens: None };
        cluster.launch(&ports, layout);
        Some(cluster)
    }

    /// One process that listens at `listens` but publishes the address `published`, so that something in the
    /// test stands in between.
    pub fn start_behind(published: u16, listens: u16, dependent: &str) -> Option<Self> {
        let binaries = found(dependent)?;
        let home = tempfile::tempdir().unwrap();
        let mut cluster =
            Cluster { processes: Vec::new(), binaries, home, tls: None, listens: Some(listens) };
        cluster.launch(&[published], Layout::Single);
        Some(cluster)
    }

    fn launch(&mut self, ports: &[u16], layout: Layout) {
        let coordinator = self.address(ports[0]);
        std::fs::write(self.cluster_file(), format!("tern:tern@{coordinator}")).unwrap();
        for port in ports {
            let child = self.spawn(*port);
            self.processes.push(Process { child, port: *port });
        }
        match layout {
            Layout::Single => self.configure("configure new single memory"),
            Layout::Double => {
                self.configure("configure new double ssd");
                // Each process is a coordinator, so that the cluster survives the loss of any one.
                self.configure("coordinators auto");
            }
        }
    }

    fn spawn(&self, port: u16) -> Child {
        let data = self.home.path().join(port.to_string());
        std::fs::create_dir_all(&data).unwrap();
        let mut command = Command::new(self.binaries.join("fdbserver"));
        command.args(["-p", &self.address(port), "--parentpid", &std::process::id().to_string()]);
        self.add_tls(&mut command);
        if let Some(listens) = self.listens {
            command.args(["-l", &self.address(listens)]);
        }
        command.arg("-C").arg(self.cluster_file()).arg("-d").arg(&data).arg("-L").arg(self.home.path());
        // Each process is a zone, so that three of them can keep two copies.
        command.args(["-i", &format!("{port:032x}"), "--knob_disable_posix_kernel_aio=1"]);
        // By default a cluster takes no more writes when less than 5 % of its disk is free. These databases need no share of a large one.
        command.args(["--knob_min_available_space_ratio=0.0", "--knob_available_space_ratio_cutoff=0.0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    fn address(&self, port: u16) -> String {
        format!("127.0.0.1:{port}{}", if self.tls.is_some() { ":tls" } else { "" })
    }

    fn add_tls(&self, command: &mut Command) {
        if let Some(tls) = &self.tls {
            command.arg("--tls_certificate_file").arg(&tls.certificate);
            command.arg("--tls_key_file").arg(&tls.key).arg("--tls_ca_file").arg(&tls.authority);
        }
    }

    /// Runs an fdbcli command that changes the cluster, until it succeeds.
    pub fn configure(&self, line: &str) {
        let since = Instant::now();
        while since.elapsed() < START {
            let (done, output) = self.cli(line);
            let succeeded = done && SUCCESSES.iter().any(|line| output.contains(line));
            if succeeded || output.contains(DONE_BEFORE) {
                self.wait_until_available();
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("'{line}' did not succeed: {}", self.cli("status details").1);
    }

    /// Runs an fdbcli command; returns whether it succeeded, and its output.
    pub fn cli(&self, line: &str) -> (bool, String) {
        let mut command = Command::new(self.binaries.join("fdbcli"));
        command.arg("-C").arg(self.cluster_file()).args(["--timeout", "5", "--exec", line]);
        self.add_tls(&mut command);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Waits until the cluster reports that it is available.
    pub fn wait_until_available(&self) {
        let since = Instant::now();
        while !self.cli("status minimal").1.contains("The database is available") {
            assert!(since.elapsed() < START, "unavailable: {}", self.cli("status details").1);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The cluster file for clients.
    pub fn cluster_file(&self) -> PathBuf {
        self.home.path().join("fdb.cluster")
    }
    /// The directory of data and logs.
    pub fn home(&self) -> &Path {
        self.home.path()
    }
    /// Number of processes.
    pub fn len(&self) -> usize {
        self.processes.len()
    }
    /// The address of process `n`.
    pub fn address_of(&self, n: usize) -> String {
        self.address(self.processes[n].port)
    }
    /// Whether process `n` runs.
    pub fn is_running(&mut self, n: usize) -> bool {
        self.processes[n].child.try_wait().unwrap().is_none()
    }
    /// Sends SIGKILL to process `n` and restarts it on its files.
    pub fn restart(&mut self, n: usize) {
        self.kill(n);
        self.processes[n].child = self.spawn(self.processes[n].port);
    }
    /// Sends SIGKILL to process `n`.
    pub fn kill(&mut self, n: usize) {
        let child = &mut self.processes[n].child;
        let _ = child.kill();
        let _ = child.wait();
    }
    /// Sends SIGSTOP to process `n`, and SIGCONT after `time`, even if this process has ended by then.
    pub fn pause(&self, n: usize, time: Duration) -> Pause {
        let script = "kill -STOP \"$1\"; sleep \"$2\"; kill -CONT \"$1\"";
        let (pid, seconds) = (self.processes[n].child.id().to_string(), time.as_secs_f64().to_string());
        let mut command = Command::new("sh");
        command.args(["-c", script, "pause", &pid, &seconds]).stdin(Stdio::null());
        Pause(command.spawn().unwrap())
    }
    /// Restarts process `n`.
    pub fn revive(&mut self, n: usize) {
        self.processes[n].child = self.spawn(self.processes[n].port);
    }
}

/// A pause under way; waits for its end when dropped.
#[must_use]
pub struct Pause(Child);

impl Drop for Pause {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.len()).for_each(|n| self.kill(n));
    }
}
