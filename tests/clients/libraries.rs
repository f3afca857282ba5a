//! Client libraries, each driven by a real program in its own language in this folder.
//!
//! A program is called with `PORT PASSWORD PROTOCOL CONTROL` after its own arguments. It prints one line per
//! case, which ends with the case's name, and exits with 1 at the first failure. To have the server killed
//! and restarted on its directory and port, it creates the file `CONTROL/restart` and waits for
//! `CONTROL/restarted`. This file compiles the programs in compiled languages without the network: the CI
//! script has fetched what they need, or the test is skipped.

use crate::support::server::{free_port, tern_command, tern_on};
use crate::support::{Missing, made_once, program, skipped};
use crate::{run, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// The cases of every program.
const CASES: [&str; 8] =
    ["names", "values", "pipelines", "transactions", "collections", "scans", "messages", "starting_again"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// A directory for compiled programs.
fn output(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name)
}

/// Where the CI script installs `name`.
fn installed(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    cache.map(|cache| cache.join("tern").join(name)).filter(|path| path.exists())
}

/// Libraries that cache values in RESP3 until an invalidation arrives; fred passes invalidations to its
/// caller. Their programs run the case `cached` too.
const CACHES: [&str; 8] =
    ["redis-py", "redis", "rueidis", "jedis", "lettuce", "redisson", "redis-rs", "fred"];

/// Runs a library's program with all its cases.
fn drive(command: Command, protocol: &str) {
    let shown = drive_to_end(command, protocol, &CASES);
    let says = |line: String| shown.lines().any(|l| l == line);
    for library in CACHES.iter().filter(|library| says(format!("{library} RESP3: names"))) {
        assert!(says(format!("{library} RESP3: cached")), "no cached in\n{shown}");
    }
}

/// Runs a program against a server, and restarts the server when the program asks for it. Returns what the
/// program printed: at least these cases.
pub fn drive_to_end(mut command: Command, protocol: &str, cases: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    let port = free_port();
    let start = || {
        let options = ["--port", &port.to_string(), "--appendfsync", "no", "--requirepass", "sesame"];
        tern_on(&mut tern_command(&home.path().join("data"), &options), port)
    };
    let mut server = start();
    let control = home.path().to_path_buf();
    command.args([&port.to_string(), "sesame", protocol]).arg(&control);
    let program = std::thread::spawn(move || run(command, b""));
    while !program.is_finished() && !control.join("restart").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    let server = start();
    std::fs::write(control.join("restarted"), "").unwrap();
    let output = program.join().unwrap();
    let shown = text(&output);
    assert!(output.status.success(), "{shown}\n{}", server.log());
    for case in cases {
        assert!(shown.lines().any(|l| l.ends_with(&format!(": {case}"))), "no {case} in\n{shown}");
    }
    shown
}

fn missing<T>(what: &'static str, how_to_get_it: &'static str) -> Result<T, Missing> {
    Err(Missing { what, how_to_get_it })
}

/// Whether a command succeeds; its output is ignored.
fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a compiler, which must succeed.
fn compile(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}\n{}", text(&output));
}

/// A script beside this file, in a Python that has redis-py and a module.
pub fn python(module: &str, script: &str) -> Option<Command> {
    let named = std::env::var_os("TERN_PYTHON").map(PathBuf::from);
    let candidates = [named, installed("venv").map(|venv| venv.join("bin/python")), program("python3")];
    let imports = format!("import redis, {module}");
    let has_it = |python: &PathBuf| succeeds(Command::new(python).args(["-c", &imports]));
    let Some(found) = candidates.into_iter().flatten().find(has_it) else {
        let how = "python3 -m venv ~/.cache/tern/venv && ~/.cache/tern/venv/bin/pip install 'celery[redis]' django-redis flask-session rq";
        skipped(&format!("the Python module {module}: not installed"), how);
        return None;
    };
    let mut command = Command::new(found);
    // Keeps compiled modules out of the source folder.
    command.arg(source(script)).env("PYTHONDONTWRITEBYTECODE", "1");
    Some(command)
}

fn redis_py(script: &str, protocol: &str) {
    let Some(command) = python("redis", script) else { return };
    drive(command, protocol);
}

#[test]
fn redis_py_in_resp2() {
    redis_py("python.py", "2");
}

#[test]
fn redis_py_in_resp3() {
    redis_py("python.py", "3");
}

#[test]
fn redis_py_asyncio_in_resp2() {
    redis_py("asynchronous.py", "2");
}

#[test]
fn redis_py_asyncio_in_resp3() {
    redis_py("asynchronous.py", "3");
}

/// A script beside this file, in a Node that has ioredis or node-redis and the other packages.
pub fn node_script(script: &str, library: &str, others: &[&str]) -> Option<Command> {
    let has_all = |m: &PathBuf| others.iter().chain([&library]).all(|package| m.join(package).is_dir());
    let modules = installed("node").map(|node| node.join("node_modules")).filter(has_all);
    let Some((node, modules)) = program("node").zip(modules) else {
        let how = "npm install --prefix ~/.cache/tern/node ioredis redis rate-limiter-flexible express-session connect-redis bullmq";
        skipped(&format!("{script} with the Node client {library}: not installed"), how);
        return None;
    };
    let mut command = Command::new(node);
    command.env("NODE_PATH", modules).arg(source(script)).arg(library);
    Some(command)
}

/// ioredis or node-redis.
fn node(library: &str, protocol: &str) {
    let Some(command) = node_script("node.cjs", library, &[]) else { return };
    drive(command, protocol);
}

#[test]
fn ioredis_in_resp2() {
    node("ioredis", "2");
}

#[test]
fn ioredis_in_resp3() {
    node("ioredis", "3");
}

#[test]
fn node_redis_in_resp2() {
    node("redis", "2");
}

#[test]
fn node_redis_in_resp3() {
    node("redis", "3");
}

/// hiredis compiled into the program, if its sources and a C compiler exist.
fn hiredis_program() -> Result<PathBuf, Missing> {
    let library = installed("hiredis").or_else(|| installed("redis-suite/deps/hiredis"));
    let Some((cc, library)) = program("cc").zip(library) else {
        return missing(
            "hiredis: no sources or no C compiler",
            "install_hiredis of .ci/run: its sources in ~/.cache/tern/hiredis, and apt-get install gcc",
        );
    };
    let parts = ["alloc", "async", "hiredis", "net", "read", "sds", "sockcompat"];
    let parts = parts.map(|part| library.join(part).with_extension("c"));
    std::fs::create_dir_all(output("")).unwrap();
    let program = output("hiredis");
    compile(
        Command::new(cc).arg("-o").arg(&program).arg("-I").arg(&library).arg(source("hiredis.c")).args(parts),
    );
    Ok(program)
}

fn hiredis(protocol: &str) {
    static PROGRAM: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
    let Some(program) = made_once(&PROGRAM, hiredis_program) else { return };
    drive(Command::new(program), protocol);
}

#[test]
fn hiredis_in_resp2() {
    hiredis("2");
}

#[test]
fn hiredis_in_resp3() {
    hiredis("3");
}

/// A directory with the compiled Go programs, if Go is new enough and its cache has their modules.
fn go_programs() -> Result<PathBuf, Missing> {
    let go = || {
        let mut go = Command::new("go");
        go.current_dir(source("go")).env("GOPROXY", "off").env("GOFLAGS", "-mod=readonly");
        go
    };
    if !succeeds(go().args(["mod", "download"])) {
        return missing(
            "go-redis, rueidis, redsync and redis_rate: no Go or no modules",
            "Go 1.26 or one that fetches it, and: cd tests/clients/go && go mod download",
        );
    }
    let programs = output("go");
    std::fs::create_dir_all(&programs).unwrap();
    let all = ["./goredis", "./rueidis", "./scripted"];
    compile(go().args(["build", "-buildvcs=false", "-o"]).arg(&programs).args(all));
    Ok(programs)
}

pub fn go_program(name: &str) -> Option<Command> {
    static PROGRAMS: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
    Some(Command::new(made_once(&PROGRAMS, go_programs)?.join(name)))
}

fn go(name: &str, protocol: &str) {
    let Some(command) = go_program(name) else { return };
    drive(command, protocol);
}

#[test]
fn go_redis_in_resp2() {
    go("goredis", "2");
}

#[test]
fn go_redis_in_resp3() {
    go("goredis", "3");
}

#[test]
fn rueidis_in_resp2() {
    go("rueidis", "2");
}

#[test]
fn rueidis_in_resp3() {
    go("rueidis", "3");
}

/// The class path of the Java programs in a folder, which share another's files, if a JDK exists.
fn java_programs(folder: &str, shared: &[&str]) -> Result<String, Missing> {
    let sources = source(folder);
    let pom = |dir: &Path| std::fs::read(dir.join("pom.xml")).unwrap_or_default();
    // Libraries fetched for another pom.xml do not count.
    let libraries = installed(folder).filter(|dir| pom(dir) == pom(&sources));
    let Some((javac, libraries)) = program("javac").filter(|_| program("java").is_some()).zip(libraries)
    else {
        return missing(
            "jedis, lettuce, redisson or spring: no JDK or no libraries",
            "apt-get install default-jdk-headless maven, then install_java_clients of .ci/run",
        );
    };
    let files = std::fs::read_dir(&sources).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|f| f.extension().is_some_and(|e| e == "java"));
    let files: Vec<PathBuf> = files.chain(shared.iter().map(|file| source(file))).collect();
    let (classes, jars) = (output(folder), libraries.join("jars").join("*"));
    compile(Command::new(javac).arg("-d").arg(&classes).arg("-cp").arg(&jars).args(files));
    Ok(format!("{}:{}", classes.display(), jars.display()))
}

fn java_class(classes: &str, class: &str) -> Command {
    let mut command = Command::new("java");
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", classes, class]);
    command
}

pub fn java_program(class: &str) -> Option<Command> {
    static CLASSES: OnceLock<Result<String, Missing>> = OnceLock::new();
    Some(java_class(made_once(&CLASSES, || java_programs("java", &[]))?, class))
}

/// A program with Spring's libraries, which want another lettuce than the other Java programs.
pub fn spring_program(class: &str) -> Option<Command> {
    static CLASSES: OnceLock<Result<String, Missing>> = OnceLock::new();
    Some(java_class(made_once(&CLASSES, || java_programs("spring", &["java/Program.java"]))?, class))
}

fn java(class: &str, protocol: &str) {
    let Some(command) = java_program(class) else { return };
    drive(command, protocol);
}

#[test]
fn jedis_in_resp2() {
    java("WithJedis", "2");
}

#[test]
fn jedis_in_resp3() {
    java("WithJedis", "3");
}

#[test]
fn lettuce_in_resp2() {
    java("WithLettuce", "2");
}

#[test]
fn lettuce_in_resp3() {
    java("WithLettuce", "3");
}

#[test]
fn redisson_in_resp2() {
    java("WithRedisson", "2");
}

#[test]
fn redisson_in_resp3() {
    java("WithRedisson", "3");
}

/// A directory with the compiled Rust programs, if Cargo's cache has their dependencies.
fn rust_programs() -> Result<PathBuf, Missing> {
    let target = output("rust");
    let cargo = |command: &str| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([command, "--locked", "--offline", "--manifest-path"]).arg(source("rust/Cargo.toml"));
        // Tern's own cargo settings do not apply to this package.
        cargo.env("CARGO_TARGET_DIR", &target).env_remove("RUSTFLAGS");
        cargo
    };
    if !succeeds(&mut cargo("fetch")) {
        return missing("redis-rs and fred: not downloaded", "cd tests/clients/rust && cargo fetch --locked");
    }
    compile(&mut cargo("build"));
    Ok(target.join("debug"))
}

fn rust(name: &str, protocol: &str) {
    static PROGRAMS: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
    let Some(programs) = made_once(&PROGRAMS, rust_programs) else { return };
    drive(Command::new(programs.join(name)), protocol);
}

#[test]
fn redis_rs_in_resp2() {
    rust("redis_rs", "2");
}

#[test]
fn redis_rs_in_resp3() {
    rust("redis_rs", "3");
}

#[test]
fn fred_in_resp2() {
    rust("fred", "2");
}

#[test]
fn fred_in_resp3() {
    rust("fred", "3");
}
