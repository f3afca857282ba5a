//! A server's limits and access: slow readers, query buffers, maxclients, timeout, passwords, protected mode,
//! CLIENT KILL, a graceful stop.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use support::resp::{Client, Value, request, text};
use support::server::tern;

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn error(line: &str) -> Value {
    Value::Error(line.as_bytes().to_vec())
}

#[test]
fn a_slow_reader_never_makes_the_server_hold_its_replies() {
    let tern = tern(&[]);
    let mut writer = tern.client();
    let value = vec![b'v'; 15_000];
    assert_eq!(writer.run(&[&b"SET"[..], b"k", &value]).value, ok());
    let before = tern.resident();
    // 40 000 replies of 15 kB: 600 MB, all unread. The client sends requests until the server accepts no
    // more.
    let mut slow = TcpStream::connect(("127.0.0.1", tern.port)).unwrap();
    slow.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let pipeline = request(&["GET", "k"]).repeat(40_000);
    let mut sent = 0;
    while let Ok(n @ 1..) = slow.write(&pipeline[sent..]) {
        sent += n;
    }
    std::thread::sleep(Duration::from_millis(500));
    let grown = tern.resident().saturating_sub(before);
    // 0.4 MiB in six runs; the allocator may take a segment more.
    assert!(grown < 4 << 20, "{grown} bytes for one reader");
    assert_eq!(writer.line("PING"), Value::Simple(b"PONG".to_vec()));
    // Once it reads, it gets every reply.
    let requests = sent / request(&["GET", "k"]).len();
    assert!(requests > 100, "{requests}");
    let mut left = requests * (value.len() + "$15000\r\n\r\n".len());
    let mut chunk = vec![0; 1 << 20];
    slow.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    while left > 0 {
        let n = slow.read(&mut chunk).unwrap();
        assert!(n > 0, "closed with {left} bytes to come");
        left = left.saturating_sub(n);
    }
}

#[test]
fn a_reply_larger_than_any_buffer_is_written_in_pieces() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let members: Vec<String> = (0..200_000).map(|i| format!("member-{i}")).collect();
    for some in members.chunks(20_000) {
        let argv = ["SADD", "s"].into_iter().chain(some.iter().map(String::as_str));
        assert_eq!(client.run(&argv.collect::<Vec<_>>()).value, Value::Int(20_000));
    }
    assert_eq!(client.line("SMEMBERS s").items().unwrap().len(), 200_000);
}

#[test]
fn requests_beyond_the_query_buffer_limit_close_the_connection() {
    let tern = tern(&["--client-query-buffer-limit", "1mb"]);
    let mut client = tern.client();
    let _ = client.send_raw(b"*2\r\n$4\r\nECHO\r\n$8000000\r\n");
    let _ = client.send_raw(&vec![b'x'; 4 << 20]);
    let (answer, closed) = client.drain();
    assert!(closed && answer.is_empty(), "{}", text(&answer));
    // Commands queued by MULTI count too.
    let mut client = tern.client();
    assert_eq!(client.line("MULTI"), ok());
    let arg = vec![b'x'; 100_000];
    for _ in 0..20 {
        let _ = client.send(&[&b"ECHO"[..], &arg]);
    }
    assert!(client.drain().1);
}

#[test]
fn replies_beyond_the_output_buffer_limit_close_the_connection() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let value = vec![b'v'; 8 << 20];
    assert_eq!(client.run(&[&b"SET"[..], b"k", &value]).value, ok());
    assert_eq!(client.run(&["CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 0 0"]).value, ok());
    client.send(&[&b"GET"[..], b"k"]).unwrap();
    let (answer, closed) = client.drain();
    assert!(closed && answer.is_empty(), "{} bytes came", answer.len());
    // A soft limit closes only a client that does not read in time.
    let mut client = tern.client();
    assert_eq!(client.run(&["CONFIG", "SET", "client-output-buffer-limit", "normal 0 1mb 1"]).value, ok());
    assert_eq!(client.line("GET k"), Value::Bulk(value));
    for _ in 0..8 {
        client.send(&[&b"GET"[..], b"k"]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1500));
    let (answer, closed) = client.drain();
    assert!(closed && answer.len() < 8 * (8 << 20), "{} bytes came", answer.len());
}

#[test]
fn proto_max_bulk_len_follows_config_set() {
    let tern = tern(&[]);
    let mut client = tern.client();
    assert_eq!(client.line("CONFIG SET proto-max-bulk-len 1mb"), ok());
    client.send_raw(b"*1\r\n$1048577\r\n").unwrap();
    let (answer, closed) = client.drain();
    assert_eq!(text(&answer), text(b"-ERR Protocol error: invalid bulk length\r\n"));
    assert!(closed);
}

#[test]
fn clients_beyond_maxclients_are_refused_by_name() {
    let tern = tern(&["--maxclients", "3"]);
    std::thread::sleep(Duration::from_millis(100));
    let mut clients: Vec<Client> = (0..3).map(|_| tern.client()).collect();
    for client in &mut clients {
        assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
    }
    let (answer, closed) = tern.client().drain();
    assert_eq!((text(&answer), closed), (text(b"-ERR max number of clients reached\r\n"), true));
    clients.pop();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(tern.client().line("PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn an_idle_client_is_closed_after_timeout_and_a_busy_one_is_not() {
    let tern = tern(&["--timeout", "1"]);
    let (mut idle, mut busy) = (tern.client(), tern.client());
    let start = Instant::now(); // the server's clock of this client starts later
    idle.line("PING");
    idle.set_timeout(Duration::from_millis(100));
    loop {
        assert_eq!(busy.line("PING"), Value::Simple(b"PONG".to_vec()));
        if idle.drain().1 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn a_password_is_required() {
    let tern = tern(&["--requirepass", "secret"]);
    let mut client = tern.client();
    assert_eq!(client.line("PING"), error("NOAUTH Authentication required."));
    let wrong = error("WRONGPASS invalid username-password pair or user is disabled.");
    for line in [
        "AUTH wrong",
        "AUTH secretx",
        "AUTH default wrong",
        "AUTH other secret",
        "HELLO 3 AUTH default wrong",
    ] {
        assert_eq!(client.line(line), wrong, "{line}");
    }
    assert_eq!(client.line("AUTH a b c"), error("ERR syntax error"));
    let Value::Error(why) = client.line("HELLO 3") else { panic!("HELLO must need the password") };
    assert!(why.starts_with(b"NOAUTH HELLO must be called with the client already authenticated"));
    assert_eq!(client.line("nonsense"), error("ERR unknown command 'nonsense', with args beginning with: "));
    assert_eq!(client.line("GET"), error("ERR wrong number of arguments for 'get' command"));
    assert_eq!(client.line("AUTH secret"), ok());
    assert_eq!(client.line("AUTH wrong"), wrong);
    assert_eq!(
        client.line("PING"),
        Value::Simple(b"PONG".to_vec()),
        "a failed AUTH must not log the client out"
    );
    assert_eq!(client.line("RESET"), Value::Simple(b"RESET".to_vec()));
    assert_eq!(client.line("PING"), error("NOAUTH Authentication required."));
    assert!(matches!(client.line("HELLO 3 AUTH default secret SETNAME me"), Value::Map(_)));
    assert_eq!(client.line("CLIENT GETNAME"), Value::Bulk(b"me".to_vec()));
    // A client connected before the password was set stays in; a later one does not.
    assert_eq!(client.line("CONFIG SET requirepass "), ok());
    let mut early = tern.client();
    assert_eq!(
        early.line("AUTH x"),
        error(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
        )
    );
    assert_eq!(early.line("AUTH default anything"), ok());
    assert_eq!(client.line("CONFIG SET requirepass new"), ok());
    assert_eq!(early.line("PING"), Value::Simple(b"PONG".to_vec()));
    assert_eq!(tern.client().line("PING"), error("NOAUTH Authentication required."));
}

#[test]
fn hello_answers_each_mistake() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let table = [
        ("HELLO 1", "NOPROTO unsupported protocol version"),
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO x", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 FOO", "ERR Syntax error in HELLO option 'FOO'"),
        ("HELLO 3 AUTH default", "ERR Syntax error in HELLO option 'AUTH'"),
        ("HELLO 3 SETNAME", "ERR Syntax error in HELLO option 'SETNAME'"),
        ("HELLO 3 AUTH foo x", "WRONGPASS invalid username-password pair or user is disabled."),
    ];
    for (line, expected) in table {
        assert_eq!(client.line(line), error(expected), "{line}");
    }
    let spaced = client.run(&["HELLO", "3", "SETNAME", "a b"]).value;
    assert_eq!(spaced, error("ERR Client names cannot contain spaces, newlines or special characters."));
    assert_eq!(client.run(&["GET", "missing"]).raw, b"$-1\r\n", "a refused HELLO must change nothing");
}

/// An address of this machine that is not the loopback.
fn other_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn protected_mode_refuses_other_machines_while_there_is_no_password() {
    let Some(ip) = other_address() else {
        return support::skipped(
            "protected mode: this machine has the loopback only",
            "give it a network address",
        );
    };
    let tern = tern(&["--bind", "*"]);
    let far = || {
        let mut stream = TcpStream::connect((ip, tern.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let _ = stream.write_all(b"PING\r\n");
        let mut answer = [0; 64];
        let n = stream.read(&mut answer).unwrap();
        answer[..n].to_vec()
    };
    assert!(far().starts_with(b"-DENIED Redis is running in protected mode because"));
    let mut near = tern.client();
    assert_eq!(near.line("CONFIG SET protected-mode no"), ok());
    assert_eq!(far(), b"+PONG\r\n");
    assert_eq!(near.line("CONFIG SET protected-mode yes"), ok());
    assert_eq!(near.line("CONFIG SET requirepass secret"), ok());
    assert_eq!(far(), b"-NOAUTH Authentication required.\r\n");
}

#[test]
fn protected_mode_is_about_the_metrics_too() {
    let Some(ip) = other_address() else {
        return support::skipped(
            "protected mode of metrics: this machine has the loopback only",
            "give it a network address",
        );
    };
    let metrics = support::server::free_port();
    let tern = tern(&["--bind", "*", "--metrics-port", &metrics.to_string()]);
    let status = |ip: IpAddr| {
        let mut stream = TcpStream::connect((ip, metrics)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let here = IpAddr::from([127, 0, 0, 1]);
    assert_eq!((status(ip), status(here)), ("HTTP/1.1 403".into(), "HTTP/1.1 200".into()));
    assert_eq!(tern.client().line("CONFIG SET protected-mode no"), ok());
    assert_eq!(status(ip), "HTTP/1.1 200");
}

#[test]
fn a_killed_client_is_closed_also_while_it_is_idle() {
    let tern = tern(&[]);
    let (mut killer, mut victim) = (tern.client(), tern.client());
    let Value::Int(id) = victim.line("CLIENT ID") else { panic!("CLIENT ID is a number") };
    assert_eq!(killer.line(&format!("CLIENT KILL ID {id}")), Value::Int(1));
    assert_eq!(victim.drain(), (Vec::new(), true));
    let list = killer.line("CLIENT LIST");
    let list = text(list.bytes().unwrap());
    assert!(!list.contains(&format!("id={id} ")), "{list}");
    // A client that kills itself gets the reply first.
    let Value::Int(own) = killer.line("CLIENT ID") else { panic!("CLIENT ID is a number") };
    assert_eq!(killer.line(&format!("CLIENT KILL ID {own} SKIPME no")), Value::Int(1));
    assert!(killer.drain().1);
}

#[test]
fn a_client_that_does_not_read_can_be_killed() {
    let tern = tern(&[]);
    let mut killer = tern.client();
    killer.run(&[&b"SET"[..], b"k", &vec![b'v'; 15_000]]);
    let mut stuck = TcpStream::connect(("127.0.0.1", tern.port)).unwrap();
    stuck.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let pipeline = request(&["GET", "k"]).repeat(10_000);
    let _ = stuck.write_all(&pipeline);
    wait_for_clients(&mut killer, 2);
    // Long enough that it stands still in the middle of its replies.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(killer.line("CLIENT KILL SKIPME yes"), Value::Int(1));
    wait_for_clients(&mut killer, 1);
}

fn wait_for_clients(client: &mut Client, n: usize) {
    let start = Instant::now();
    while client.line("CLIENT LIST").bytes().unwrap().split(|b| *b == b'\n').filter(|l| !l.is_empty()).count()
        != n
    {
        assert!(start.elapsed() < Duration::from_secs(5), "never {n} clients");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn client_reply_modes() {
    let tern = tern(&[]);
    let cases: &[(&[u8], &[u8])] = &[
        (b"CLIENT REPLY SKIP\r\nPING\r\nECHO a\r\n", b"$1\r\na\r\n"),
        (
            b"CLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY x\r\nCLIENT REPLY ON\r\nECHO a\r\n",
            b"+OK\r\n$1\r\na\r\n",
        ),
        (b"CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nECHO a\r\n", b"+OK\r\n$1\r\na\r\n"),
        (b"CLIENT REPLY SKIP\r\nRESET\r\nECHO a\r\n", b"$1\r\na\r\n"),
        (b"CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING\r\nECHO a\r\n", b"$1\r\na\r\n"),
        (b"CLIENT REPLY SKIP\r\nfoo\r\nECHO a\r\n", b"$1\r\na\r\n"),
        (b"CLIENT REPLY SKIP\r\nMULTI\r\nECHO a\r\nEXEC\r\n", b"+QUEUED\r\n*1\r\n$1\r\na\r\n"),
        (b"CLIENT REPLY OFF\r\nRESET\r\nECHO a\r\n", b"+RESET\r\n$1\r\na\r\n"),
        (b"PING\r\nCLIENT REPLY OFF\r\nPING\r\n", b"+PONG\r\n"),
    ];
    for (raw, expected) in cases {
        let mut client = tern.client();
        client.send_raw(raw).unwrap();
        client.finish();
        assert_eq!(text(&client.drain().0), text(expected), "{}", text(raw));
    }
}

#[test]
fn a_client_that_does_not_log_in_is_closed() {
    let tern = tern(&["--requirepass", "secret", "--login-timeout", "2"]);
    let mut known = tern.client();
    assert_eq!(known.line("AUTH secret"), ok());
    assert_eq!(tern_default(&mut known, "timeout"), "0");
    let mut again = tern.client();
    assert_eq!(again.line("AUTH secret"), ok());
    std::thread::sleep(Duration::from_millis(2500));
    again.line("RESET");
    let since = Instant::now();
    let (mut silent, mut half, mut busy) = (tern.client(), tern.client(), tern.client());
    half.send_raw(b"*2\r\n$4\r\nAUTH\r\n$100\r\n").unwrap();
    // Sending and receiving does not help.
    busy.set_timeout(Duration::from_secs(5));
    while busy.try_run(&["PING"]).is_ok() {
        assert!(since.elapsed() < Duration::from_secs(10), "still served");
        std::thread::sleep(Duration::from_millis(50));
    }
    for client in [&mut silent, &mut half, &mut again] {
        client.set_timeout(Duration::from_secs(5));
        assert_eq!(client.drain(), (Vec::new(), true));
    }
    let took = since.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(8)).contains(&took), "{took:?}");
    assert_eq!(known.line("PING"), Value::Simple(b"PONG".to_vec()));
    assert_eq!(known.line("CONFIG SET login-timeout 0"), ok());
    let mut silent = tern.client();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(silent.line("AUTH secret"), ok());
}

/// An option's value.
fn tern_default(client: &mut Client, option: &str) -> String {
    let reply = client.run(&["CONFIG", "GET", option]).value;
    String::from_utf8_lossy(reply.items().unwrap()[1].bytes().unwrap()).into_owned()
}

/// CLIENT LIST shows the names of all clients in one reply.
#[test]
fn names_of_clients_are_short() {
    let tern = tern(&[]);
    let mut c = tern.client();
    assert_eq!(tern_default(&mut c, "login-timeout"), "60");
    let (longest, longer, long) = ("n".repeat(1024), "n".repeat(1025), "n".repeat(10 << 20));
    assert_eq!(c.run(&["CLIENT", "SETNAME", &longest]).value, ok());
    for name in [&longer, &long] {
        let why = format!("cannot be longer than 1024 bytes: this one has {}", name.len());
        let said = c.run(&["CLIENT", "SETNAME", name]).value;
        assert_eq!(said, error(&format!("ERR Client names {why}")));
        let said = c.run(&["HELLO", "2", "SETNAME", name]).value;
        assert_eq!(said, error(&format!("ERR Client names {why}")));
        for option in ["lib-name", "lib-ver"] {
            assert_eq!(
                c.run(&["CLIENT", "SETINFO", option, name]).value,
                error(&format!("ERR {option} {why}"))
            );
        }
    }
    assert_eq!(c.line("CLIENT GETNAME"), Value::Bulk(longest.into_bytes()));
}

#[test]
fn a_stop_closes_clients_and_ends_cleanly() {
    let mut tern = tern(&[]);
    let (mut idle, mut other) = (tern.client(), tern.client());
    idle.line("PING");
    assert_eq!(other.line("SET k v"), ok());
    assert!(tern.terminate(), "{}", tern.log());
    assert_eq!(idle.drain(), (Vec::new(), true));
    assert!(Client::connect(tern.port).is_err());
}

#[test]
fn shutdown_is_not_answered() {
    let mut tern = tern(&[]);
    let mut client = tern.client();
    client.send(&["SHUTDOWN"]).unwrap();
    assert_eq!(client.drain(), (Vec::new(), true));
    let start = Instant::now();
    while tern.is_running() {
        assert!(start.elapsed() < Duration::from_secs(10), "{}", tern.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}
