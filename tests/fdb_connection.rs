//! Hazard: a server cannot reach a cluster that requires certificates, hangs if it is rejected, or loses the
//! cluster when its coordinators move.

#![cfg(feature = "fdb")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use support::fdb_cluster::{self, Cluster, Layout, Tls};
use support::resp::Value;
use support::server::{Server, assert_sound, tern_in, tern_that_says};

/// `store-timeout` of rejected servers, in ms.
const PATIENCE: u64 = 3000;
const PASSWORD: &str = "open-sesame";

fn openssl(dir: &Path, line: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(line.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority and a certificate that it signed, in `dir`.
fn certificates(dir: &Path) -> Tls {
    std::fs::create_dir_all(dir).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(dir, &format!("req -x509 {key} -keyout authority.key -out authority.pem -subj /CN=authority"));
    openssl(dir, &format!("req {key} -keyout node.key -out node.csr -subj /O=Tern/CN=node"));
    openssl(
        dir,
        "x509 -req -in node.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -out node.pem",
    );
    let [authority, certificate, key] = ["authority.pem", "node.pem", "node.key"].map(|f| dir.join(f));
    Tls { authority, certificate, key }
}

/// Options of a server that uses TLS to the cluster of `file`.
fn options(file: &Path, tls: &Tls) -> Vec<String> {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let mut options = vec!["--store".to_owned(), format!("fdb:{}", file.display())];
    let files = [
        ("--store-tls-ca-cert-file", &tls.authority),
        ("--store-tls-cert-file", &tls.certificate),
        ("--store-tls-key-file", &tls.key),
    ];
    options.extend(files.into_iter().flat_map(|(name, file)| [name.to_owned(), text(file)]));
    options
}

fn words(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

/// Starts a server that must give up by itself; returns its message, and the time it took.
fn refused(dir: &Path, options: &[String]) -> (String, Duration) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tern"));
    command.arg("--dir").arg(dir).args(options);
    let (port, patience) = (support::server::free_port().to_string(), PATIENCE.to_string());
    command.args(["--port", &port, "--store-timeout", &patience]);
    let since = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let output = wait(child);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    (said, since.elapsed())
}

/// A server that waits for its cluster logs `why` and answers clients with -LOADING meanwhile. Returns the
/// time until its message.
fn waits(options: &[&str], why: &str) -> (Server, Duration) {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tern"));
    let port = support::server::free_port();
    command.arg("--dir").arg(home.path()).args(options).args(["--port", &port.to_string()]);
    let since = Instant::now();
    let mut server = tern_that_says(&mut command, port, why);
    let took = since.elapsed();
    let Value::Error(line) = server.client().line("PING") else { panic!("it answers\n{}", server.log()) };
    assert!(line.starts_with(b"LOADING "), "{}", line.escape_ascii());
    let ping = Command::new(env!("CARGO_BIN_EXE_tern")).args(["ping", "--port", &port.to_string()]).output();
    assert!(!ping.unwrap().status.success() && server.is_running(), "a health check");
    (server, took)
}

/// The cluster is down when the server starts: the server waits, whichever step needs the cluster, and serves
/// once the cluster is up.
#[test]
fn a_server_waits_for_its_cluster() {
    let Some(mut cluster) = Cluster::start(Layout::Single, "waiting for the cluster") else { return };
    let home = tempfile::tempdir().unwrap();
    let store = format!("fdb:{}", cluster.cluster_file().display());
    let options = ["--store", &store, "--store-timeout", "1000"];
    let mut before = tern_in(&home.path().join("before"), &options);
    assert_eq!(before.client().line("SET k v"), Value::Simple(b"OK".to_vec()));
    assert!(before.terminate());
    cluster.kill(0);
    let (server, _) = waits(&options, "waiting for the cluster of");
    let mut early = server.client();
    assert!(matches!(early.line("GET k"), Value::Error(_)));
    cluster.revive(0);
    cluster.wait_until_available();
    let since = Instant::now();
    while !server.log().contains("is ready") {
        assert!(since.elapsed() < Duration::from_secs(30), "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(early.try_run(&["PING"]).is_err(), "a connection from before is closed");
    assert_eq!(server.client().line("GET k"), Value::Bulk(b"v".to_vec()));
}

/// Kills a process that does not end.
fn wait(mut child: Child) -> std::process::Output {
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() && since.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

#[test]
fn a_cluster_that_speaks_tls_is_reached_with_its_certificates_only() {
    if support::program("openssl").is_none() {
        return support::skipped("TLS to the cluster: no openssl", "apt-get install openssl");
    }
    let home = tempfile::tempdir().unwrap();
    let ours = certificates(&home.path().join("ours"));
    let Some(cluster) = Cluster::start_with(Layout::Single, Some(ours.clone()), "TLS to the cluster") else {
        return;
    };
    let file = cluster.cluster_file();
    assert!(std::fs::read_to_string(&file).unwrap().trim_end().ends_with(":tls"));

    let mut server = tern_in(&home.path().join("one"), &words(&options(&file, &ours)));
    let mut client = server.client();
    assert_eq!(client.line("SET k v"), Value::Simple(b"OK".to_vec()));
    assert_eq!(client.line("GET k"), Value::Bulk(b"v".to_vec()));
    assert!(server.terminate());

    // A key with a password, and a condition that the cluster's certificate meets.
    openssl(
        &home.path().join("ours"),
        &format!("pkcs8 -topk8 -v2 aes256 -in node.key -out locked.key -passout pass:{PASSWORD}"),
    );
    let locked = Tls { key: home.path().join("ours/locked.key"), ..ours.clone() };
    let mut more = options(&file, &locked);
    more.extend(["--store-tls-key-file-pass".into(), PASSWORD.into()]);
    more.extend(["--store-tls-verify-peers".into(), "Check.Valid=1,S.O=Tern".into()]);
    let mut server = tern_in(&home.path().join("two"), &words(&more));
    assert_eq!(server.client().line("GET k"), Value::Bulk(b"v".to_vec()));
    assert!(server.terminate());

    let theirs = certificates(&home.path().join("theirs"));
    let mut unmet = options(&file, &ours);
    unmet.extend(["--store-tls-verify-peers".into(), "Check.Valid=1,S.O=Other".into()]);
    let plain = vec!["--store".to_owned(), format!("fdb:{}", file.display())];
    let strangers = [
        ("another authority", options(&file, &Tls { authority: theirs.authority.clone(), ..ours.clone() })),
        (
            "another authority's certificate",
            options(&file, &Tls { authority: ours.authority.clone(), ..theirs }),
        ),
        ("an unmet condition", unmet),
        ("no certificate", plain),
    ];
    for (what, mut options) in strangers {
        options.extend(["--store-timeout".into(), PATIENCE.to_string()]);
        let (server, took) = waits(&words(&options), "speaks TLS");
        assert!(server.log().contains("store-tls-ca-cert-file"), "{what}: {}", server.log());
        let bounds = Duration::from_millis(PATIENCE * 9 / 10)..Duration::from_millis(PATIENCE * 5);
        assert!(bounds.contains(&took), "{what}: {took:?}");
    }
    let missing = Tls { key: PathBuf::from("/nowhere/node.key"), ..ours };
    let (said, _) = refused(&home.path().join("four"), &options(&file, &missing));
    assert!(said.contains("cannot read /nowhere/node.key"), "{said}");
}

/// The server has its own copy of the cluster file, as on another machine: only its own client library can
/// have updated it.
#[test]
fn a_server_follows_its_cluster_to_other_coordinators() {
    let Some(mut cluster) = Cluster::start(Layout::Double, "moving coordinators") else { return };
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("own.cluster");
    std::fs::copy(cluster.cluster_file(), &file).unwrap();
    let store = format!("fdb:{}", file.display());
    let options = ["--store", &store, "--store-namespace", &fdb_cluster::namespace()];
    let mut server = tern_in(&home.path().join("data"), &options);
    let read = || std::fs::read_to_string(&file).unwrap().lines().last().unwrap_or_default().to_owned();
    let before = read();
    let [left, kept] = [0, 1].map(|n| cluster.address_of(n));
    assert!(before.contains(&left) && before.contains(&kept), "{before}");

    let (stop, counted) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut client = server.client();
            while !stop.load(Ordering::Relaxed) {
                let reply = client.line("INCR n");
                counted.store(reply.int().unwrap_or_else(|| panic!("{reply:?}")), Ordering::Relaxed);
            }
        });
        let moves = |goal: i64| {
            let since = Instant::now();
            while counted.load(Ordering::Relaxed) < goal && !counting.is_finished() {
                assert!(since.elapsed() < Duration::from_secs(60), "stands at {counted:?}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        moves(10);
        let since = Instant::now();
        cluster.configure(&format!("coordinators {kept}"));
        while read().contains(&left) || !read().contains(&kept) {
            assert!(since.elapsed() < Duration::from_secs(60), "the file still says {}", read());
            std::thread::sleep(Duration::from_millis(50));
        }
        support::say(&format!("moved coordinators: in the server's file after {:?}", since.elapsed()));
        moves(counted.load(Ordering::Relaxed) + 10);
        // A coordinator that the old file named.
        cluster.kill(0);
        moves(counted.load(Ordering::Relaxed) + 100);
        stop.store(true, Ordering::Relaxed);
    });
    let counted = counted.into_inner();
    assert!(server.terminate());
    let server = tern_in(&home.path().join("again"), &options);
    assert_eq!(server.client().line("GET n"), Value::Bulk(counted.to_string().into_bytes()));
    assert_sound(home.path(), &options);
}
