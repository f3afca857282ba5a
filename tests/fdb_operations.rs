//! Hazard: servers of one cluster do not notice a dead one, disturb each other's clients when they restart,
//! or a store copied to the cluster and back differs.

#![cfg(feature = "fdb")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::fdb_cluster::{self, Cluster};
use support::resp::{Client, Value};
use support::server::{Server, assert_sound, tern_in};
use tempfile::TempDir;

/// Servers that share a namespace.
struct Fleet {
    store: String,
    namespace: String,
    home: TempDir,
    servers: Vec<Server>,
}

impl Fleet {
    fn new(cluster: &Cluster, size: usize) -> Self {
        let store = format!("fdb:{}", cluster.cluster_file().display());
        let home = tempfile::tempdir().unwrap();
        let mut fleet = Fleet { store, namespace: fdb_cluster::namespace(), home, servers: Vec::new() };
        for _ in 0..size {
            let server = fleet.start();
            fleet.servers.push(server);
        }
        fleet
    }

    fn start(&self) -> Server {
        let dir = self.home.path().join(format!("server-{}", support::server::free_port()));
        tern_in(&dir, &["--store", &self.store, "--store-namespace", &self.namespace])
    }

    /// A field of INFO on server `n`.
    fn info(&self, n: usize, name: &str) -> u64 {
        let Value::Bulk(text) = self.servers[n].client().line("INFO everything") else { panic!("no INFO") };
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }

    /// The number of servers whose rows server `n` knows.
    fn rows(&self, n: usize) -> usize {
        let Value::Bulk(text) = self.servers[n].client().line("INFO tern") else { panic!("no INFO") };
        String::from_utf8(text).unwrap().lines().filter(|l| l.starts_with("instance_")).count()
    }

    /// Works while its servers run.
    fn assert_sound(&self) {
        assert_sound(self.home.path(), &["--store", &self.store, "--store-namespace", &self.namespace]);
    }

    fn copy(&self, from: &str, to: &str) -> Output {
        let args = ["copy", "--from", from, "--to", to, "--store-namespace", &self.namespace];
        Command::new(env!("CARGO_BIN_EXE_tern")).args(args).output().unwrap()
    }
}

fn wait(what: &str, patience: u64, is_so: impl Fn() -> bool) -> Duration {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(patience), "{what}: not within {patience} s");
        std::thread::sleep(Duration::from_millis(100));
    }
    since.elapsed()
}

#[test]
fn a_dead_server_is_noticed_and_its_rows_are_removed() {
    let Some(cluster) = fdb_cluster::shared("death of a server") else { return };
    let mut fleet = Fleet::new(cluster, 3);
    wait("all servers must see each other", 10, || (0..3).all(|n| fleet.info(n, "instances_alive") == 3));
    assert_eq!(fleet.servers[2].client().line("INCR n"), Value::Int(1));
    fleet.servers[2].kill();
    let noticed = wait("the dead server must get no work", 15, || {
        (0..2).all(|n| fleet.info(n, "instances_alive") == 2)
    });
    let buried = wait("its rows must be removed", 40, || (0..2).all(|n| fleet.rows(n) == 2));
    support::say(&format!("a killed server: noticed after {noticed:?}, its rows removed {buried:?} later"));
    assert!(
        noticed + buried > Duration::from_secs(10),
        "its rows must not be removed while its commits may be in flight"
    );
    assert!(fleet.servers[1].terminate());
    wait("a clean stop must be noticed at once", 5, || fleet.rows(0) == 1);
    assert_eq!(fleet.servers[0].client().line("INCR n"), Value::Int(2));
    fleet.assert_sound();
}

#[test]
fn idle_servers_load_the_cluster_little_and_share_expiry() {
    const IDLE: u64 = 5;
    let Some(cluster) = fdb_cluster::shared("idle servers") else { return };
    let fleet = Fleet::new(cluster, 2);
    wait("all servers must see each other", 10, || (0..2).all(|n| fleet.info(n, "instances_alive") == 2));
    let asked = || -> [u64; 3] {
        ["store_read_versions", "store_ranges_read", "store_commits"].map(|name| fleet.info(0, name))
    };
    let before = asked();
    std::thread::sleep(Duration::from_secs(IDLE));
    let after = asked();
    let each = [0, 1, 2].map(|n| (after[n] - before[n]) as f64 / IDLE as f64);
    support::say(&format!("an idle server a second: {each:.1?} read versions, range reads, commits"));
    assert!(each[0] < 20.0 && each[1] < 60.0 && each[2] < 3.0, "{each:?}");
    let mut client = fleet.servers[0].client();
    for n in 0..600 {
        assert_eq!(client.line(&format!("SET key:{n} v PX 50")), Value::Simple(b"OK".to_vec()));
    }
    wait("expired keys must be removed", 20, || fleet.servers[1].client().line("DBSIZE") == Value::Int(0));
    let removed = [0, 1].map(|n| fleet.info(n, "expired_keys"));
    assert_eq!(removed.iter().sum::<u64>(), 600, "{removed:?}");
    assert!(removed.iter().all(|n| *n > 50), "{removed:?}");
}

#[test]
fn a_store_is_moved_to_the_cluster_and_back() {
    let Some(cluster) = fdb_cluster::shared("tern copy") else { return };
    let fleet = Fleet::new(cluster, 0);
    let (old, back) = (fleet.home.path().join("old"), fleet.home.path().join("back"));
    let place = |dir: &std::path::Path| format!("local:{}", dir.display());
    let mut server = tern_in(&old, &["--appendfsync", "no", "--store", &place(&old)]);
    let mut client = server.client();
    for n in 0..50 {
        let value = vec![b'a' + (n % 26) as u8; 100_000];
        client.run(&[b"SET".to_vec(), format!("long:{n}").into(), value]);
        client.line(&format!("SADD set:{n} a b {n}"));
    }
    assert!(server.terminate());
    let there = fleet.copy(&place(&old), &fleet.store);
    assert!(there.status.success(), "{there:?}");
    let again = fleet.copy(&place(&old), &fleet.store);
    assert!(
        !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("not empty"),
        "{again:?}"
    );
    let mut server = fleet.start();
    assert_eq!(server.client().line("STRLEN long:49"), Value::Int(100_000));
    assert_eq!(server.client().line("DBSIZE"), Value::Int(100));
    let used = fleet.copy(&fleet.store, &place(&back));
    assert!(!used.status.success() && String::from_utf8_lossy(&used.stderr).contains("in use"), "{used:?}");
    assert!(server.terminate());
    let returned = fleet.copy(&fleet.store, &place(&back));
    assert!(returned.status.success(), "{returned:?}");
    assert_eq!(there.stdout, returned.stdout, "all three stores must have the same count and checksum");
    assert_sound(&back, &["--store", &place(&back)]);
    let server = tern_in(&back, &["--store", &place(&back)]);
    assert_eq!(
        server.client().line("SMISMEMBER set:7 a 7 8"),
        Value::Array([1, 1, 0].map(Value::Int).to_vec())
    );
}

/// Each client repeats unanswered commands on the next server under one id, and counts acknowledgements.
#[test]
fn a_rolling_restart_fails_no_command_of_a_client_that_reconnects() {
    const CLIENTS: usize = 4;
    let Some(cluster) = fdb_cluster::shared("rolling restart") else { return };
    let mut fleet = Fleet::new(cluster, 3);
    let ports: Vec<AtomicUsize> = fleet.servers.iter().map(|s| AtomicUsize::new(s.port.into())).collect();
    let stop = AtomicBool::new(false);
    let one = |n: usize| -> usize {
        let (mut at, mut done) = (n, 0);
        let mut client: Option<Client> = None;
        while !stop.load(Ordering::Relaxed) {
            let id = format!("client-{n}-command-{done:08}");
            loop {
                let port = ports[at % ports.len()].load(Ordering::Relaxed) as u16;
                let reply = match &mut client {
                    Some(client) => client.try_run(&["IDEMPOTENT", &id, "INCR", "n"]).ok(),
                    None => {
                        client = Client::connect(port).ok();
                        at += usize::from(client.is_none());
                        continue;
                    }
                };
                match reply.map(|r| r.value) {
                    Some(Value::Int(_)) => break,
                    Some(other) => panic!("a client sees {other:?}"),
                    None => (client, at) = (None, at + 1),
                }
            }
            done += 1;
        }
        done
    };
    let acknowledged: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(move || one(n))).collect();
        let mut stopped = Vec::new();
        for (n, port) in ports.iter().enumerate() {
            std::thread::sleep(Duration::from_millis(500));
            stopped.push(fleet.servers[n].terminate());
            fleet.servers[n] = fleet.start();
            port.store(fleet.servers[n].port.into(), Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        assert!(stopped.into_iter().all(|cleanly| cleanly));
        clients.into_iter().map(|c| c.join().unwrap()).sum()
    });
    assert!(acknowledged > 0);
    let counted = fleet.servers[0].client().line("GET n");
    assert_eq!(counted, Value::Bulk(acknowledged.to_string().into_bytes()), "each command must run once");
    fleet.assert_sound();
}
