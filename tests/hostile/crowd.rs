//! Many connections: slow senders, half-closed ones, idle ones, short-lived ones, or more than there are
//! descriptors.

use crate::support::resp::{Client, Value};
use crate::support::server::{Server, binary, free_port, tern, tern_on};
use crate::support::{program, say, skipped};
use crate::witness::{FEW, Witness, tried};
use crate::{assert_unharmed, descriptors, info, lines_with};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// Descriptors that this process keeps for itself.
const OWN: usize = 300;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Raises the limit of open files as far as possible, also for child processes, and returns it.
fn open_files() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).unwrap();
    }
    limit.current.map_or(usize::MAX, |n| n as usize)
}

fn wait_for_clients(client: &mut Client, n: u64) {
    let since = Instant::now();
    while info(client, "clients", "connected_clients") > n {
        assert!(since.elapsed() < Duration::from_secs(20), "at most {n} clients may stay");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn slow_senders_cost_others_nothing() {
    tried(|| {
        let tern = tern(&[]);
        let witness = Witness::start(&tern);
        let before = tern.resident();
        let mut slow: Vec<TcpStream> = (0..500).map(|_| connect(&tern)).collect();
        let request = b"*3\r\n$3\r\nSET\r\n$4\r\nslow\r\n$5\r\nvalue\r\n";
        for byte in request.chunks(1) {
            slow.iter_mut().for_each(|s| s.write_all(byte).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        let grown = tern.resident().saturating_sub(before);
        for stream in &mut slow {
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"+OK\r\n");
        }
        witness.was_served(FEW, "500 slow senders");
        say(&format!("500 slow senders: {grown} bytes"));
        assert!(grown < 20 << 20, "{grown} bytes for 500 slow senders");
        assert_unharmed(&tern);
    });
}

#[test]
fn half_closed_clients_get_their_answers_and_leave_nothing() {
    tried(|| {
        let tern = tern(&[]);
        let mut admin = tern.client();
        admin.run(&[&b"SET"[..], b"large", &vec![b'v'; 200_000]]);
        let (before, clients) = (descriptors(&tern), info(&mut admin, "clients", "connected_clients"));
        let witness = Witness::start(&tern);
        for round in 0..300 {
            let mut stream = connect(&tern);
            stream.write_all(&b"INCR half\r\nGET large\r\n".repeat(3)).unwrap();
            match round % 3 {
                // Sends no more, and reads everything.
                0 => {
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).unwrap();
                    assert!(answer.len() > 600_000, "{} bytes", answer.len());
                }
                // Sends no more, reads a little, and leaves while the rest is being written.
                1 => {
                    stream.shutdown(Shutdown::Write).unwrap();
                    stream.read_exact(&mut [0; 100]).unwrap();
                }
                // Sends half a request, then nothing.
                _ => {
                    stream.write_all(b"*2\r\n$3\r\nGET\r\n$5\r\nla").unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    stream.read_to_end(&mut Vec::new()).unwrap();
                }
            }
        }
        assert_eq!(admin.line("GET half"), Value::Bulk(b"900".to_vec()), "the commands sent must have run");
        witness.was_served(FEW, "300 half-closed clients");
        wait_for_clients(&mut admin, clients);
        let after = descriptors(&tern);
        assert!(after <= before + 8, "{before} descriptors before, {after} after");
        assert_unharmed(&tern);
    });
}

#[test]
fn ten_thousand_idle_connections_are_cheap() {
    tried(|| {
        let n = 10_000;
        if open_files() < n + OWN {
            return skipped("10 000 idle connections: the limit of open files", "ulimit -Hn 20000");
        }
        let tern = tern(&["--maxclients", "20000"]);
        let mut admin = tern.client();
        let (before, clients) = (tern.resident(), info(&mut admin, "clients", "connected_clients"));
        let witness = Witness::start(&tern);
        let mut idle = Vec::with_capacity(n);
        for _ in 0..n {
            let mut stream = connect(&tern);
            stream.write_all(b"PING\r\n").unwrap();
            idle.push(stream);
        }
        for stream in &mut idle {
            stream.read_exact(&mut [0; 7]).unwrap();
        }
        assert!(info(&mut admin, "clients", "connected_clients") >= n as u64);
        let each = tern.resident().saturating_sub(before) / n;
        say(&format!("{n} idle connections: {each} bytes of memory each"));
        assert!(each < 24 << 10, "{each} bytes a connection");
        witness.was_served(FEW, "10 000 idle connections");
        drop(idle);
        wait_for_clients(&mut admin, clients);
        assert_unharmed(&tern);
    });
}

#[test]
fn clients_that_come_and_go_leave_nothing() {
    tried(|| {
        let tern = tern(&[]);
        let mut admin = tern.client();
        let (before, clients) = (descriptors(&tern), info(&mut admin, "clients", "connected_clients"));
        let witness = Witness::start(&tern);
        for n in 0..3000 {
            let mut stream = connect(&tern);
            if n % 2 == 0 {
                stream.write_all(b"PING\r\n").unwrap();
            }
        }
        wait_for_clients(&mut admin, clients + 1);
        witness.was_served(FEW, "3000 clients that come and go");
        wait_for_clients(&mut admin, clients);
        let after = descriptors(&tern);
        assert!(after <= before + 8, "{before} descriptors before, {after} after");
        assert_unharmed(&tern);
    });
}

/// The store opens files too: clients must not take the last descriptor from it.
#[test]
fn more_clients_than_descriptors_do_not_starve_the_store() {
    tried(|| {
        if program("sh").is_none() {
            return skipped("clients beyond the limit of descriptors: no sh", "apt-get install dash");
        }
        let home = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = Command::new("sh");
        let line = "ulimit -n 1000; exec \"$0\" --port \"$1\" --dir \"$2\" --store-write-buffer-size 64kb";
        command.args(["-c", line]).arg(binary()).arg(port.to_string()).arg(home.path().join("data"));
        let tern = tern_on(&mut command, port);
        let witness = Witness::start(&tern);
        let mut crowd: Vec<TcpStream> = (0..1200).map(|_| connect(&tern)).collect();
        let mut refused = 0;
        for stream in &mut crowd {
            let mut answer = [0; 7];
            stream.write_all(b"PING\r\n").ok();
            if stream.read_exact(&mut answer).is_err() || &answer != b"+PONG\r\n" {
                refused += 1;
            }
        }
        assert!((200..1200).contains(&refused), "{refused} of 1200 were refused");
        witness.was_served(FEW, "1200 clients and 1000 descriptors");
        // Table files are written and opened while the crowd stays.
        let mut stream = crowd.swap_remove(0);
        let value = "x".repeat(10_000);
        for n in 0..100 {
            stream.write_all(format!("SET filler:{n} {value}\r\n").as_bytes()).unwrap();
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"+OK\r\n", "{}", tern.log());
        }
        assert_eq!(lines_with(&tern, "accept failed"), 0, "{}", tern.log());
        assert!((1..=20).contains(&lines_with(&tern, "connection refused")), "{}", tern.log());
        drop((crowd, stream));
        std::thread::sleep(Duration::from_millis(300));
        assert_unharmed(&tern);
    });
}

/// Clients of the metrics port are unauthenticated: their connections must take no descriptor from clients
/// and the store.
#[test]
fn a_crowd_at_the_metrics_port_starves_no_client() {
    tried(|| {
        if program("sh").is_none() {
            return skipped("a crowd at the metrics port: no sh", "apt-get install dash");
        }
        let home = tempfile::tempdir().unwrap();
        let (port, metrics) = (free_port(), free_port());
        let mut command = Command::new("sh");
        let line = "ulimit -n 800; exec \"$0\" --port \"$1\" --metrics-port \"$2\" --dir \"$3\" \
                --store-write-buffer-size 64kb --tcp-backlog 2000";
        command.args(["-c", line]).arg(binary()).args([port.to_string(), metrics.to_string()]);
        let tern = tern_on(command.arg(home.path().join("data")), port);
        let before = descriptors(&tern);
        let witness = Witness::start(&tern);
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], metrics));
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        let crowd: Vec<TcpStream> = (0..1000).filter_map(|_| connect()).collect();
        assert!(crowd.len() > 200, "only {} metrics connections were accepted", crowd.len());
        std::thread::sleep(Duration::from_millis(300));
        let taken = descriptors(&tern).saturating_sub(before);
        say(&format!("{taken} descriptors for {} silent connections", crowd.len()));
        assert!(taken <= 40, "{taken} descriptors for {} silent connections", crowd.len());
        // Clients connect, and the store writes and opens tables.
        let mut clients: Vec<Client> = (0..20).map(|_| tern.client()).collect();
        let value = "x".repeat(10_000);
        for n in 0..200 {
            let reply = clients[n % 20].line(&format!("SET filler:{n} {value}"));
            assert_eq!(reply, Value::Simple(b"OK".to_vec()), "{}", tern.log());
        }
        witness.was_served(FEW, "1000 silent connections at the metrics port and 800 descriptors");
        assert_eq!(lines_with(&tern, "accept failed"), 0, "{}", tern.log());
        drop(crowd);
        let mut scrape = TcpStream::connect(address).unwrap();
        scrape.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        scrape.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        scrape.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
        assert_unharmed(&tern);
    });
}

/// A client that has not logged in is entitled to little memory.
#[test]
fn unauthenticated_clients_take_little_memory() {
    tried(|| {
        let tern = tern(&["--requirepass", "secret"]);
        let mut admin = tern.client();
        admin.line("AUTH secret");
        let argument = [&b"$16384\r\n"[..], &[b'x'; 16384], b"\r\n"].concat();
        let auth = |n: usize| {
            let head = format!("*{}\r\n$4\r\nAUTH\r\n", n + 1).into_bytes();
            let mut request = [head, argument.repeat(n)].concat();
            request.truncate(request.len() - 3);
            request
        };
        let errors = b"no_such_command_whatever_it_is_that_somebody_tries_here and some arguments of it\r\n";
        for (what, request, most, times) in [
            ("a long password", auth(2), 80, FEW),
            ("nine long arguments", auth(9), 24, FEW),
            ("a long line", vec![b'x'; 60_000], 24, FEW),
            ("errors", errors.repeat(300), 44, 60),
        ] {
            let witness = Witness::with({
                let mut c = tern.client();
                c.line("AUTH secret");
                c
            });
            let before = tern.resident();
            let mut strangers: Vec<TcpStream> = (0..200).map(|_| connect(&tern)).collect();
            for stream in &mut strangers {
                stream.set_nonblocking(true).unwrap();
                // In pieces, as over a network; the server may have closed the connection.
                for piece in request.chunks(16_000) {
                    let _ = stream.write(piece);
                }
            }
            // A debug build takes more than a second for the errors: the maximum memory meanwhile counts.
            let looks = (0..30).map(|_| {
                std::thread::sleep(Duration::from_millis(100));
                tern.resident()
            });
            let each = looks.max().unwrap().saturating_sub(before) / strangers.len();
            say(&format!("{what}, not logged in: {each} bytes of memory each"));
            assert!(each < most << 10, "{what}: {each} bytes a connection");
            witness.was_served(times, what);
        }
        let mut last = connect(&tern);
        let name = [&b"*3\r\n$4\r\nAUTH\r\n"[..], &argument, &argument].concat();
        last.write_all(&name).unwrap();
        let mut answer = [0; 10];
        last.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"-WRONGPASS", "a long name and password must be accepted");
    });
}

#[test]
fn a_silent_client_of_the_metrics_port_is_closed_within_seconds() {
    let metrics = free_port();
    let tern = tern(&["--metrics-port", &metrics.to_string()]);
    for request in [&b""[..], b"GET /metrics HTTP/1.1\r\nHost:", &[b'x'; 9000]] {
        let since = Instant::now();
        let mut stream = TcpStream::connect(("127.0.0.1", metrics)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        stream.write_all(request).ok();
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        assert!(!matches!(ended, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock), "still open");
        assert!(answer.is_empty() && since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    }
    assert_unharmed(&tern);
}
