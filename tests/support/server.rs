//! Starts and stops servers: the `tern` binary of this build, and redis-server if it is installed.

pub use super::fdb_cluster::ports::free_port;
use super::resp::{Client, Value};
use super::{fdb_cluster, program, skipped};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const START: Duration = Duration::from_secs(60);

/// A running server. Killed when dropped.
pub struct Server {
    child: Child,
    /// Its port.
    pub port: u16,
    log: PathBuf,
    _home: Option<TempDir>,
}

/// Starts `tern` in a temporary directory.
pub fn tern(args: &[&str]) -> Server {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let mut server = tern_in(&dir, args);
    server._home = Some(home);
    server
}

/// Starts `tern` on a given data directory.
pub fn tern_in(dir: &Path, args: &[&str]) -> Server {
    std::fs::create_dir_all(dir).unwrap();
    start(tern_command(dir, args), &dir.with_extension("log"), None)
}

/// The server under test. `TERN_BINARY` names another build, or redis-server itself, which must pass too.
pub fn binary() -> PathBuf {
    std::env::var_os("TERN_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_tern").into()).into()
}

/// The command by which `tern_in` starts it.
pub fn tern_command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    on_store(&mut command, dir, args);
    command
}

/// The exit status and output of `tern check` for such a store.
pub fn tern_check(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tern"));
    on_store(command.arg("check"), dir, args);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

fn on_store(command: &mut Command, dir: &Path, args: &[&str]) {
    command.arg("--dir").arg(dir).args(args);
    if fdb_cluster::wanted() && !args.contains(&"--store") {
        // The directory's name stands for its data here.
        let store = format!("fdb:{}", fdb_cluster::required().display());
        command.args(["--store", &store]).arg("--store-namespace").arg(dir);
    }
}

/// Fails if `tern check` finds damage in the store of a server started with these options. An embedded store
/// must not be in use.
pub fn assert_sound(dir: &Path, args: &[&str]) {
    let (status, said) = tern_check(dir, args);
    assert_eq!(status, Some(0), "{said}");
}

/// Debian's redis-server without persistence, or None, with a message, if it is missing.
pub fn redis(dependent: &str) -> Option<Server> {
    let Some(binary) = program("redis-server") else {
        skipped(&format!("{dependent}: no redis-server"), "apt-get install redis-server");
        return None;
    };
    Some(redis_of(&binary))
}

/// A redis-server 8.6, which the CI script installs beside the distribution's, or None, with a message, if it
/// is missing. Other releases answer differently.
pub fn newer_redis(dependent: &str) -> Option<Server> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let named = std::env::var_os("TERN_NEWER_REDIS").map(PathBuf::from);
    let binary = named.or_else(|| Some(cache?.join("tern/redis-newer/redis-server")));
    let version = |binary: &PathBuf| {
        let said = Command::new(binary).arg("--version").output().ok()?.stdout;
        Some(String::from_utf8_lossy(&said).into_owned())
    };
    match binary.filter(|binary| version(binary).is_some_and(|said| said.starts_with("Redis server v=8.6.")))
    {
        Some(binary) => Some(redis_of(&binary)),
        None => {
            let how = "bash .ci/run fetches it, or TERN_NEWER_REDIS=<redis-server 8.6>";
            skipped(&format!("{dependent}: no redis-server 8.6"), how);
            None
        }
    }
}

fn redis_of(binary: &Path) -> Server {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary);
    command
        .args(["--save", "", "--appendonly", "no", "--appendfsync", "no", "--loglevel", "warning", "--dir"])
        .arg(home.path());
    let log = home.path().join("redis.log");
    start(command, &log, Some(home))
}

fn start(command: Command, log: &Path, home: Option<TempDir>) -> Server {
    let mut server = try_start(command, log).unwrap_or_else(|e| panic!("{e:?}"));
    server._home = home;
    server
}

/// A server that exited instead of serving.
#[derive(Debug)]
pub struct Refused {
    /// Its exit status; None if a signal ended it.
    pub status: Option<i32>,
    /// Its output.
    pub said: String,
}

/// Starts a server that may refuse to start.
pub fn try_start(mut command: Command, log: &Path) -> Result<Server, Refused> {
    let port = free_port();
    let output = File::create(log).unwrap();
    let child = command
        .args(["--port", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let mut server = Server { child, port, log: log.to_path_buf(), _home: None };
    server.wait_until_it_answers()?;
    Ok(server)
}

/// Starts `command` and waits until its log reports that it is ready: `port` need not speak plain RESP.
pub fn tern_on(command: &mut Command, port: u16) -> Server {
    tern_that_says(command, port, "is ready")
}

/// Starts `command` and waits until its log contains `what`.
pub fn tern_that_says(command: &mut Command, port: u16, what: &str) -> Server {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("tern.log");
    let output = File::create(&log).unwrap();
    let child =
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
    let mut server = Server { child, port, log, _home: Some(home) };
    let since = Instant::now();
    while !server.log().contains(what) {
        assert!(server.is_running() && since.elapsed() < START, "no '{what}':\n{}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    server
}

impl Server {
    fn wait_until_it_answers(&mut self) -> Result<(), Refused> {
        let since = Instant::now();
        while since.elapsed() < START {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Err(Refused { status: status.code(), said: self.log() });
            }
            if answers(self.port) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not answer:\n{}", self.log());
    }
    /// The last lines of its log.
    pub fn log(&self) -> String {
        let all = self.whole_log();
        let lines: Vec<&str> = all.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
    /// Its whole log.
    pub fn whole_log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(self.port).unwrap_or_else(|e| panic!("connect: {e}\n{}", self.log()))
    }
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    /// Its resident memory in bytes.
    pub fn resident(&self) -> usize {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }
    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
    /// Sends SIGTERM and waits: true if it exited cleanly within 20 s.
    pub fn terminate(&mut self) -> bool {
        let sent = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status();
        assert!(sent.unwrap().success(), "kill -TERM");
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(20) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

/// Any reply will do: if a password is set, PING is refused.
fn answers(port: u16) -> bool {
    let Ok(mut client) = Client::connect(port) else { return false };
    client.set_timeout(Duration::from_secs(2));
    match client.try_run(&["PING"]).map(|r| r.value) {
        Ok(Value::Error(line)) => !line.starts_with(b"LOADING"),
        Ok(_) => true,
        Err(_) => false,
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
