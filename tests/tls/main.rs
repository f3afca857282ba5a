//! Hazard: a client gets in without the required certificate, a bad certificate stops the server or its other
//! clients, or a renewed one needs a restart. Driven with redis-cli and redis-benchmark, as users do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod authority;
#[path = "../support/mod.rs"]
mod support;

use authority::{Authority, Files};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::resp::Value;
use support::server::{Server, binary, free_port, tern_in};
use tempfile::TempDir;

/// An authority's certificates and a data directory.
struct World {
    home: TempDir,
    ours: Authority,
    server: Files,
}

/// None, with a message, if a program is missing.
fn world(what: &str) -> Option<World> {
    for (program, package) in [("openssl", "openssl"), ("redis-cli", "redis-tools")] {
        if support::program(program).is_none() {
            support::skipped(&format!("{what}: no {program}"), &format!("apt-get install {package}"));
            return None;
        }
    }
    let home = tempfile::tempdir().unwrap();
    let ours = Authority::new(&home.path().join("ours"));
    let server = ours.sign("server");
    Some(World { home, ours, server })
}

impl World {
    fn options(&self, tls_port: u16) -> Vec<String> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let pairs = [
            ("--tls-port", tls_port.to_string()),
            ("--tls-cert-file", text(&self.server.certificate)),
            ("--tls-key-file", text(&self.server.key)),
            ("--tls-ca-cert-file", text(&self.ours.certificate)),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// A server that listens with TLS and, for the test's own commands, without.
    fn start(&self, more: &[&str]) -> (Server, u16) {
        let port = free_port();
        let options = self.options(port);
        let args: Vec<&str> = options.iter().map(String::as_str).chain(more.iter().copied()).collect();
        (tern_in(&self.home.path().join("data"), &args), port)
    }

    /// redis-cli's options for its certificate and its authority.
    fn cli(&self, port: u16, shown: Option<&Files>, line: &str) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["--tls", "-p", &port.to_string(), "--cacert"]).arg(&self.ours.certificate);
        if let Some(files) = shown {
            command.arg("--cert").arg(&files.certificate).arg("--key").arg(&files.key);
        }
        said(&command.args(line.split(' ')).output().unwrap())
    }
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// Waits until one of the last lines of the server's log contains `words`.
fn wait_for_line(server: &Server, words: &str) {
    let since = Instant::now();
    while !server.log().contains(words) {
        assert!(since.elapsed() < Duration::from_secs(15), "no '{words}' in\n{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_client_with_a_certificate_of_the_authority_is_served() {
    let Some(world) = world("TLS with client certificates") else { return };
    let (tern, port) = world.start(&[]);
    let client = world.ours.sign("client");
    assert_eq!(world.cli(port, Some(&client), "SET k v"), "OK");
    assert_eq!(world.cli(port, Some(&client), "GET k"), "v");
    let large = "x".repeat(100_000);
    assert_eq!(world.cli(port, Some(&client), &format!("SET large {large}")), "OK");
    assert_eq!(world.cli(port, Some(&client), "GET large"), large);
    assert_eq!(
        tern.client().line("GET k"),
        Value::Bulk(b"v".to_vec()),
        "the other port must serve the same data"
    );

    let theirs = Authority::new(&world.home.path().join("theirs"));
    let denied = [("no certificate", None), ("another authority's", Some(theirs.sign("client")))];
    for (what, shown) in &denied {
        let said = world.cli(port, shown.as_ref(), "GET k");
        assert!(said.contains("rror") && !said.contains("\nv"), "{what}: {said}");
    }
    wait_for_line(&tern, "TLS handshake: peer sent no certificates");
    wait_for_line(&tern, "TLS handshake: invalid peer certificate: UnknownIssuer");
    assert_eq!(world.cli(port, Some(&client), "GET k"), "v", "others must not be disturbed");
}

#[test]
fn a_client_rejects_a_server_of_another_authority() {
    let Some(world) = world("TLS: a wrong server") else { return };
    let (_tern, port) = world.start(&["--tls-auth-clients", "no"]);
    assert_eq!(world.cli(port, None, "PING"), "PONG");
    let theirs = Authority::new(&world.home.path().join("theirs"));
    let mut command = Command::new("redis-cli");
    command.args(["--tls", "-p", &port.to_string(), "--cacert"]).arg(&theirs.certificate).arg("PING");
    let said = said(&command.output().unwrap());
    assert!(said.contains("certificate verify failed"), "{said}");
}

#[test]
fn optional_and_no_require_less_and_still_verify() {
    let Some(world) = world("TLS: tls-auth-clients") else { return };
    let theirs = Authority::new(&world.home.path().join("theirs")).sign("client");
    let client = world.ours.sign("client");
    let (tern, port) = world.start(&["--tls-auth-clients", "optional"]);
    assert_eq!(world.cli(port, None, "PING"), "PONG");
    assert_eq!(world.cli(port, Some(&client), "PING"), "PONG");
    assert!(world.cli(port, Some(&theirs), "PING").contains("rror"), "a wrong certificate must be refused");
    let mut admin = tern.client();
    assert_eq!(admin.line("CONFIG SET tls-auth-clients no"), Value::Simple(b"OK".to_vec()));
    assert_eq!(world.cli(port, Some(&theirs), "PING"), "PONG", "no certificate may be requested");
    assert_eq!(admin.line("CONFIG SET tls-auth-clients yes"), Value::Simple(b"OK".to_vec()));
    assert!(world.cli(port, None, "PING").contains("rror"));
    assert_eq!(world.cli(port, Some(&client), "PING"), "PONG");
}

#[test]
fn a_directory_of_authorities_is_read() {
    let Some(world) = world("TLS: tls-ca-cert-dir") else { return };
    let theirs = Authority::new(&world.home.path().join("theirs"));
    let dir = world.home.path().join("authorities");
    std::fs::create_dir(&dir).unwrap();
    std::fs::copy(&theirs.certificate, dir.join("theirs.pem")).unwrap();
    std::fs::write(dir.join("README"), "not a certificate").unwrap();
    let (_tern, port) = world.start(&["--tls-ca-cert-dir", dir.to_str().unwrap()]);
    assert_eq!(world.cli(port, Some(&theirs.sign("client")), "PING"), "PONG");
    assert_eq!(world.cli(port, Some(&world.ours.sign("client")), "PING"), "PONG");
}

#[test]
fn only_the_named_protocols_are_spoken() {
    let Some(world) = world("TLS: tls-protocols") else { return };
    let (tern, port) = world.start(&["--tls-auth-clients", "no", "--tls-protocols", "TLSv1.3"]);
    let speaks = |version: &str| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), version]);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("BEGIN CERTIFICATE")
    };
    assert_eq!((speaks("-tls1_3"), speaks("-tls1_2")), (true, false));
    let mut admin = tern.client();
    assert_eq!(
        admin.run(&["CONFIG", "SET", "tls-protocols", "TLSv1.2"]).value,
        Value::Simple(b"OK".to_vec())
    );
    assert_eq!((speaks("-tls1_3"), speaks("-tls1_2")), (false, true));
    assert_eq!(admin.run(&["CONFIG", "SET", "tls-protocols", ""]).value, Value::Simple(b"OK".to_vec()));
    assert_eq!((speaks("-tls1_3"), speaks("-tls1_2")), (true, true));
    let Value::Error(why) = admin.run(&["CONFIG", "SET", "tls-protocols", "TLSv1.1"]).value else { panic!() };
    assert!(String::from_utf8_lossy(&why).contains("unknown protocol 'TLSv1.1': use TLSv1.2 or TLSv1.3"));
}

#[test]
fn a_renewed_certificate_takes_effect_and_a_broken_one_does_not() {
    let Some(world) = world("TLS: renewal") else { return };
    let (tern, port) = world.start(&["--tls-auth-clients", "no"]);
    let mut admin = tern.client();
    let serial = || {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &format!("127.0.0.1:{port}")]);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find_map(|l| l.split_once("CN = ")).map(|(_, name)| name.to_owned()).unwrap_or(text)
    };
    assert_eq!(serial(), "server");
    let old = std::fs::read(&world.server.certificate).unwrap();
    // Renewed in place.
    let renewed = world.ours.sign("renewed");
    std::fs::copy(&renewed.certificate, &world.server.certificate).unwrap();
    let own = world.server.certificate.to_str().unwrap();
    let Value::Error(why) = admin.run(&["CONFIG", "SET", "tls-cert-file", own]).value else { panic!() };
    let why = String::from_utf8_lossy(&why);
    assert!(why.starts_with("ERR CONFIG SET failed (possibly related to argument 'tls-cert-file')"), "{why}");
    assert!(why.contains("Unable to update TLS configuration: the certificate and the key"), "{why}");
    assert_eq!(serial(), "server", "the old certificate must stay if the key does not match");
    std::fs::copy(&renewed.key, &world.server.key).unwrap();
    assert_eq!(admin.run(&["CONFIG", "SET", "tls-cert-file", own]).value, Value::Simple(b"OK".to_vec()));
    assert_eq!(serial(), "renewed");
    // New paths, both at once; or one of them, to a missing file.
    std::fs::write(&world.server.certificate, old).unwrap();
    let other = world.ours.sign("other");
    let files = [other.certificate.to_str().unwrap(), other.key.to_str().unwrap()];
    let both = ["CONFIG", "SET", "tls-cert-file", files[0], "tls-key-file", files[1]];
    assert_eq!(admin.run(&both).value, Value::Simple(b"OK".to_vec()));
    assert_eq!(serial(), "other");
    let Value::Error(why) = admin.line("CONFIG SET tls-key-file /nowhere/key.pem") else { panic!() };
    assert!(String::from_utf8_lossy(&why).contains("cannot read /nowhere/key.pem"));
    let Value::Array(shown) = admin.line("CONFIG GET tls-key-file") else { panic!() };
    assert_eq!(shown[1].bytes(), Some(files[1].as_bytes()), "a refused setting must not take effect");
    assert_eq!(world.cli(port, None, "PING"), "PONG");
}

/// The message of a start that must fail. A FIFO or device never ends: the server must not wait for it.
#[test]
fn only_files_are_read() {
    let Some(world) = world("TLS: odd files") else { return };
    let (tern, _) = world.start(&["--tls-auth-clients", "no"]);
    let (mut admin, mut other) = (tern.client(), tern.client());
    admin.set_timeout(Duration::from_secs(5));
    let fifo = world.home.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let large = world.home.path().join("large");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let fifo = fifo.to_str().unwrap();
    for (file, why) in [
        (fifo, "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("/dev/tty", "not a regular file"),
        (large.to_str().unwrap(), "longer than 1048576 bytes"),
    ] {
        for option in ["tls-ca-cert-file", "tls-cert-file", "tls-key-file"] {
            let set = ["CONFIG", "SET", option, file, "tls-auth-clients", "optional"];
            let Value::Error(said) = admin.run(&set).value else { panic!("{option} {file}") };
            let said = String::from_utf8_lossy(&said);
            assert!(said.contains(why), "{said}");
        }
    }
    // A directory may contain anything.
    let dir = world.home.path().to_str().unwrap();
    assert!(admin.run(&["CONFIG", "SET", "tls-ca-cert-dir", dir]).value == Value::Simple(b"OK".to_vec()));
    assert_eq!(other.line("PING"), Value::Simple(b"PONG".to_vec()));
}

fn refused(world: &World, change: &[&str]) -> String {
    let mut options = world.options(free_port());
    options.extend(change.iter().map(|s| (*s).to_owned()));
    let mut command = Command::new(binary());
    command.args(["--port", &free_port().to_string(), "--dir"]).arg(world.home.path().join("none"));
    let output = command.args(options).output().unwrap();
    assert!(!output.status.success());
    said(&output)
}

#[test]
fn unusable_options_are_reported_at_the_start() {
    let Some(world) = world("TLS: bad options") else { return };
    let locked = world.ours.locked(&world.server);
    let theirs = Authority::new(&world.home.path().join("theirs")).sign("server");
    let key = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let (locked, other) = (key(&locked), key(&theirs.key));
    let cases: &[(&[&str], &str)] = &[
        (&["--tls-cert-file", ""], "tls-cert-file must be set"),
        (&["--tls-key-file", ""], "tls-key-file must be set"),
        (&["--tls-key-file", "/nowhere.pem"], "cannot read /nowhere.pem"),
        (&["--tls-key-file", "Cargo.toml"], "Cargo.toml contains no private key in PEM format"),
        (&["--tls-cert-file", "Cargo.toml"], "Cargo.toml contains no certificate in PEM format"),
        (&["--tls-key-file", &other], "the certificate and the key cannot be used"),
        (&["--tls-key-file", &locked], "is protected by a password"),
        (&["--tls-key-file-pass", "secret"], "supports is ''"),
        (&["--tls-ca-cert-file", ""], "tls-ca-cert-file or tls-ca-cert-dir must be set"),
        (&["--tls-ca-cert-dir", "/nowhere"], "cannot read /nowhere"),
        (&["--tls-protocols", "SSLv3"], "use TLSv1.2 or TLSv1.3"),
    ];
    for (change, expected) in cases {
        let said = refused(&world, change);
        assert!(said.contains(expected), "{change:?}: {said}");
    }
}

#[test]
fn port_0_serves_tls_only() {
    let Some(world) = world("TLS only") else { return };
    let (port, plain) = (free_port(), free_port());
    let file = world.home.path().join("tern.conf");
    let options = world.options(port);
    let lines: Vec<String> =
        options.chunks(2).map(|p| format!("{} {}", p[0].trim_start_matches("--"), p[1])).collect();
    let dir = world.home.path().join("data");
    std::fs::write(&file, format!("port 0\ndir {}\n{}\n", dir.display(), lines.join("\n"))).unwrap();
    let mut tern = support::server::tern_on(Command::new(binary()).arg(&file), port);
    let client = world.ours.sign("client");
    assert_eq!(world.cli(port, Some(&client), "PING"), "PONG");
    assert!(world.cli(port, Some(&client), "INFO server").contains(&format!("tcp_port:{port}")));
    let log = tern.log();
    assert!(
        log.contains(&format!("ready on 127.0.0.1:{port}")) && !log.contains(&plain.to_string()),
        "{log}"
    );
    // A health check.
    let ping = Command::new(binary()).arg("ping").arg(&file).output().unwrap();
    assert_eq!((said(&ping).as_str(), ping.status.success()), ("PONG", true));
    assert!(!tern.log().contains("TLS handshake"), "{}", tern.log());
    assert!(tern.terminate(), "{}", tern.log());
    let ping = Command::new(binary()).arg("ping").arg(&file).output().unwrap();
    assert!(!ping.status.success() && said(&ping).contains("no answer from"), "{}", said(&ping));
}

#[test]
fn a_plaintext_client_is_closed_with_a_line_in_the_log() {
    let Some(world) = world("TLS: plaintext") else { return };
    let (tern, port) = world.start(&["--tls-auth-clients", "no"]);
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.windows(4).any(|w| w == b"PONG"), "{answer:?}");
    wait_for_line(&tern, "TLS handshake: received corrupt message");
    assert_eq!(world.cli(port, None, "PING"), "PONG");
    // A client that leaves before it sends anything, as load balancers do, is not logged.
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    // A flood leaves few lines, and all are counted.
    for _ in 0..200 {
        let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
        plain.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let _ = plain.read_to_end(&mut Vec::new());
    }
    assert!(!tern.log().contains("eof"), "{}", tern.log());
    let lines = tern.log().matches("TLS handshake").count();
    assert!((1..=20).contains(&lines), "{lines} lines");
    assert_eq!(world.cli(port, None, "PING"), "PONG");
}

#[test]
fn a_handshake_has_a_time_limit_and_counts_as_a_client() {
    let Some(world) = world("TLS: silent clients") else { return };
    let (tern, port) = world.start(&["--tls-auth-clients", "no", "--maxclients", "4"]);
    let since = Instant::now();
    let mut silent: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(200));
    let mut client = tern.client();
    assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()), "others must be served meanwhile");
    assert_ne!(world.cli(port, None, "PING"), "PONG", "a fifth client must be refused");
    for stream in &mut silent {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0);
    }
    let took = since.elapsed();
    assert!((8..20).contains(&took.as_secs()), "{took:?}");
    wait_for_line(&tern, "no handshake within 10 seconds");
    assert_eq!(world.cli(port, None, "PING"), "PONG");
}

#[test]
fn a_load_over_tls_is_answered() {
    let Some(world) = world("TLS under load") else { return };
    if support::program("redis-benchmark").is_none() {
        return support::skipped("TLS under load: no redis-benchmark", "apt-get install redis-tools");
    }
    let (tern, port) = world.start(&[]);
    let client = world.ours.sign("client");
    let mut command = Command::new("redis-benchmark");
    command.args(["--tls", "-p", &port.to_string(), "--cacert"]).arg(&world.ours.certificate);
    command.arg("--cert").arg(&client.certificate).arg("--key").arg(&client.key);
    command.args(["-q", "-c", "20", "-n", "4000", "-P", "8", "-d", "3000", "-t", "set,get,sadd,mset"]);
    let output = command.output().unwrap();
    let said = said(&output).replace('\r', "\n");
    assert!(output.status.success() && !said.contains("rror"), "{said}");
    for test in ["SET:", "GET:", "SADD:", "MSET"] {
        assert!(
            said.lines().any(|l| l.starts_with(test) && l.contains("requests per second")),
            "{test} in {said}"
        );
    }
    assert_eq!(tern.client().line("PING"), Value::Simple(b"PONG".to_vec()));
    // Kills clients, and stops while they are connected.
    let mut tern = tern;
    assert!(tern.terminate(), "{}", tern.log());
}
