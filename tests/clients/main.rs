//! Third-party programs: client libraries in their languages (`libraries`), queues of tasks
//! and jobs (`celery`, `jobs`),
//! libraries that work by scripts (`scripted`) or keep sessions (`sessions`), redis-cli in its modes, redis-benchmark. A missing program is skipped with a message.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod celery;
mod jobs;
mod libraries;
mod scripted;
mod sessions;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::server::{Server, tern};
use support::{program, skipped};

/// The time limit of every program.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs a program with `input` to its end.
fn run(command: Command, input: &[u8]) -> Output {
    run_until(command, input, |_| false)
}

/// Runs a program with `input` to its end or until its output is `enough`, for at most [`PATIENCE`].
fn run_until(mut command: Command, input: &[u8], enough: impl Fn(&str) -> bool) -> Output {
    let (shown, errors) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let stdio = |file: &tempfile::NamedTempFile| Stdio::from(file.reopen().unwrap());
    let mut child =
        command.stdin(Stdio::piped()).stdout(stdio(&shown)).stderr(stdio(&errors)).spawn().expect("starts");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let read = |file: &tempfile::NamedTempFile| std::fs::read(file.path()).unwrap();
    let since = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let late = since.elapsed() > PATIENCE;
        if late || enough(&String::from_utf8_lossy(&read(&shown))) {
            let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
            assert!(!late, "{command:?} does not end: {}", String::from_utf8_lossy(&read(&shown)));
            break child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    feeder.join().unwrap();
    Output { status, stdout: read(&shown), stderr: read(&errors) }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A tool of Debian's redis-tools, connected to a server's port.
fn tool(name: &str, server: &Server, args: &[&str]) -> Option<Command> {
    let Some(path) = program(name) else {
        skipped(&format!("{name}: not installed"), "apt-get install redis-tools");
        return None;
    };
    let mut command = Command::new(path);
    command.args(["-p", &server.port.to_string()]).args(args);
    Some(command)
}

/// redis-cli that flushes each line although it writes to a pipe.
fn unbuffered(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new("stdbuf");
    command.args(["-oL", "redis-cli", "-p", &server.port.to_string()]).args(args);
    command
}

fn fill(server: &Server) {
    let mut client = server.client();
    for i in 0..500 {
        client.run(&["SET".to_owned(), format!("key:{i}"), "x".repeat(i)]);
    }
    let members = (0..400).map(|i| format!("member{i}"));
    client.run(&["SADD".to_owned(), "aset".to_owned()].into_iter().chain(members).collect::<Vec<_>>());
}

/// On a terminal (of `script`), as a person uses it: COMMAND DOCS at the start, hints, formatted replies.
#[test]
fn redis_cli_on_a_terminal() {
    let server = tern(&[]);
    let Some(cli) = tool("redis-cli", &server, &[]) else { return };
    let Some(script) = program("script") else {
        return skipped("redis-cli on a terminal: no script", "apt-get install bsdutils");
    };
    for flags in ["", " -3"] {
        let mut command = Command::new(script.clone());
        let line = format!("{}{flags} -p {}", cli.get_program().to_string_lossy(), server.port);
        command.args(["-q", "-e", "-c", &line, "/dev/null"]).env("TERM", "dumb");
        let typed = "SET greeting \"hello world\"\nGET greeting\nDEL s\nSADD s a b\nSMEMBERS s\nHELP SADD\nINCR greeting\nexit\n";
        let output = run(command, typed.as_bytes());
        let shown = text(&output);
        for expected in
            ["OK", "\"hello world\"", "(integer) 2", "(error) ERR value is not an integer", "summary:"]
        {
            assert!(shown.contains(expected), "no {expected} in\n{shown}");
        }
    }
}

#[test]
fn redis_cli_modes() {
    let server = tern(&["--appendfsync", "no"]);
    fill(&server);
    let cli = |args: &[&str]| Some(text(&run(tool("redis-cli", &server, args)?, b"")));
    let Some(scanned) = cli(&["--scan", "--pattern", "key:*"]) else { return };
    assert_eq!(scanned.lines().count(), 500, "{scanned}");
    let big = cli(&["--bigkeys"]).unwrap();
    assert!(big.contains("Biggest string found") && big.contains("key:499"), "{big}");
    assert!(big.contains("Biggest    set found") && big.contains("has 400 members"), "{big}");
    let is_row = |line: &str| line.starts_with("501 ") && line.split_whitespace().count() >= 6;
    let stat =
        run_until(unbuffered(&server, &["--stat", "-i", "0.05"]), b"", |shown| shown.lines().any(is_row));
    assert!(text(&stat).lines().any(is_row), "{}", text(&stat));
    let latency = cli(&["--latency", "--raw", "-i", "0.2"]).unwrap();
    let numbers = latency.split_whitespace().filter(|word| word.parse::<f64>().is_ok()).count();
    assert!(numbers >= 4, "{latency}");
    let csv = cli(&["--csv", "MGET", "key:1", "none", "key:2"]).unwrap();
    assert_eq!(csv.trim(), "\"x\",NULL,\"xx\"");
    let json = cli(&["-3", "--json", "SMEMBERS", "key:1"]).unwrap();
    assert!(json.contains("WRONGTYPE"), "{json}");
}

#[test]
fn redis_cli_shows_messages() {
    for flags in [&[][..], &["-3"]] {
        // Its own server: the redis-cli that was ended before would count as a receiver for a moment.
        let server = tern(&[]);
        if tool("redis-cli", &server, &[]).is_none() {
            return;
        }
        let args = [flags, &["--csv", "SUBSCRIBE", "news", "weather"]].concat();
        let command = unbuffered(&server, &args);
        let expected = ["\"subscribe\",\"weather\",2", "\"message\",\"news\",\"hello\""];
        let all = move |shown: &str| expected.iter().all(|line| shown.contains(line));
        let listens = std::thread::spawn(move || text(&run_until(command, b"", all)));
        let mut client = server.client();
        let since = Instant::now();
        while client.line("PUBLISH news hello").int() != Some(1) {
            assert!(since.elapsed() < PATIENCE);
        }
        let shown = listens.join().unwrap();
        assert!(all(&shown), "{shown}");
    }
}

#[test]
fn redis_cli_pipe_loads_in_bulk() {
    let server = tern(&["--appendfsync", "no"]);
    let Some(command) = tool("redis-cli", &server, &["--pipe"]) else { return };
    let input: Vec<u8> = (0..20_000)
        .flat_map(|i| support::resp::request(&["SET".to_owned(), format!("k{i}"), i.to_string()]))
        .collect();
    let shown = text(&run(command, &input));
    assert!(shown.contains("errors: 0, replies: 20000"), "{shown}");
    assert_eq!(server.client().line("DBSIZE").int(), Some(20_000));
    assert_eq!(server.client().line("GET k19999").bytes(), Some(b"19999".as_slice()));
}

/// All that its default run does in 7.0: later ones need streams, too.
fn benchmark(pipeline: &str) {
    let server = tern(&["--appendfsync", "no"]);
    let tests = "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange,mset";
    let options = ["-q", "-n", "10000", "-r", "10000", "-t", tests, "-P", pipeline];
    let Some(command) = tool("redis-benchmark", &server, &options) else { return };
    let output = run(command, b"");
    let shown = text(&output).replace('\r', "\n");
    assert!(output.status.success(), "{shown}");
    let names = tests.split(',').filter(|name| !["ping", "lrange"].contains(name)).map(str::to_uppercase);
    let lranges = ["LRANGE_100", "LRANGE_300", "LRANGE_500", "LRANGE_600"];
    for name in ["PING_INLINE", "PING_MBULK"].into_iter().chain(lranges).map(str::to_owned).chain(names) {
        let is_its =
            |line: &str| line.split([' ', ':']).next() == Some(&name) && line.contains("requests per second");
        assert!(shown.lines().any(|line| is_its(line.trim_start())), "no result of {name} in\n{shown}");
    }
    let complaints = ["error", "Error", "ERR", "WARNING"];
    assert!(!complaints.iter().any(|word| shown.contains(word)), "{shown}");
}

#[test]
fn redis_benchmark_one_at_a_time() {
    benchmark("1");
}

#[test]
fn redis_benchmark_pipelined() {
    benchmark("16");
}

/// `tern --help` and SIGTERM: the parts of a server's life that no client sees.
#[test]
fn sigterm_ends_the_server_cleanly() {
    let mut server = tern(&[]);
    server.client().line("SET a b");
    assert!(server.terminate(), "exit status\n{}", server.log());
}
