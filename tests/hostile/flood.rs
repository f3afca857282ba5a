//! Too much at once: pipelines, passwords, garbage, unread replies, endless arguments.

use crate::support::fdb_cluster::wanted;
use crate::support::resp::{Client, Value, request};
use crate::support::rng::Rng;
use crate::support::say;
use crate::support::server::{Server, tern};
use crate::witness::{FEW, Ready, Witness, tried};
use crate::{assert_unharmed, info, lines_with};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// The largest resident memory, sampled while `attack` runs, minus the memory before.
fn grown_during(server: &Server, attack: impl FnOnce() + Send) -> usize {
    let before = server.resident();
    let mut most = before;
    std::thread::scope(|scope| {
        let running = scope.spawn(attack);
        while !running.is_finished() {
            most = most.max(server.resident());
            std::thread::sleep(Duration::from_millis(5));
        }
        running.join().unwrap();
    });
    most - before
}

/// Prints the server's growth, which must be less than this many MiB: about twice the maximum of ten runs,
/// and 8 where that was close to nothing.
fn assert_small(attack: &str, grown: usize, most: usize) {
    say(&format!("{attack}: {:.1} MiB of {most}", grown as f64 / MIB as f64));
    assert!(grown < most * MIB, "{attack}: {grown} bytes of {most} MiB");
}

#[test]
fn a_pipeline_of_a_million_commands_is_answered_in_order_and_held_in_pieces() {
    tried(|| {
        let tern = tern(&["--appendfsync", "no"]);
        let witness = Witness::start(&tern);
        let n = 1_000_000;
        let since = Instant::now();
        let grown = grown_during(&tern, || {
            let mut stream = connect(&tern);
            let mut sender = stream.try_clone().unwrap();
            let sending = std::thread::spawn(move || {
                let raw: Vec<u8> = (0..n).flat_map(|i| format!("ECHO {i:07}\r\n").into_bytes()).collect();
                sender.write_all(&raw).unwrap();
            });
            let mut answer = vec![0; b"$7\r\n1234567\r\n".len()];
            let mut buffered = std::io::BufReader::with_capacity(MIB, &mut stream);
            for i in 0..n {
                buffered.read_exact(&mut answer).unwrap();
                assert_eq!(answer, format!("$7\r\n{i:07}\r\n").as_bytes());
            }
            sending.join().unwrap();
        });
        say(&format!("a million commands in one pipeline: {:.1?}", since.elapsed()));
        witness.was_served(50, "a pipeline of a million commands");
        assert_small("a million commands in one pipeline", grown, 8);
        assert_unharmed(&tern);
    });
}

#[test]
fn unread_replies_are_not_held() {
    tried(|| {
        let tern =
            tern(&["--appendfsync", "no", "--store-value-cache-size", "0", "--store-cache-size", "8mb"]);
        let mut admin = tern.client();
        for n in 0..60 {
            let value = vec![b'v'; MIB];
            assert_eq!(
                admin.run(&[b"SET", format!("large:{n}").as_bytes(), &value]).value,
                Value::Simple(b"OK".to_vec())
            );
        }
        let witness = Witness::start(&tern);
        let pipeline: Vec<u8> = (0..60).flat_map(|n| request(&["GET", &format!("large:{n}")])).collect();
        let mut greedy = Vec::new();
        let grown = grown_during(&tern, || {
            for _ in 0..20 {
                let mut stream = connect(&tern);
                stream.write_all(&pipeline).unwrap();
                greedy.push(stream);
            }
            std::thread::sleep(Duration::from_secs(3));
        });
        witness.was_served(FEW, "unread replies");
        // On a cluster, the client library holds what a read is answered with, too.
        let most = if wanted() { 40 } else { 20 };
        assert_small("20 clients ask for 60 MiB each and read nothing", grown, most);
        // A client that reads after all gets everything.
        let mut left = 60 * (MIB + "$1048576\r\n\r\n".len());
        let mut chunk = vec![0; MIB];
        while left > 0 {
            let n = greedy[0].read(&mut chunk).unwrap();
            assert!(n > 0, "closed with {left} bytes to come");
            left -= n;
        }
        drop(greedy);
        assert_unharmed(&tern);
    });
}

/// The replies of an EXEC's commands are held until it commits: the hard limit applies meanwhile, not only
/// afterwards.
#[test]
fn an_exec_that_answers_more_than_the_limit_is_not_held() {
    tried(|| {
        let limit = "normal 8mb 0 0";
        let options =
            ["--appendfsync", "no", "--store-value-cache-size", "0", "--client-output-buffer-limit", limit];
        let tern = tern(&options);
        let mut admin = tern.client();
        assert_eq!(
            admin.run(&[&b"SET"[..], b"large", &vec![b'v'; MIB]]).value,
            Value::Simple(b"OK".to_vec())
        );
        let witness = Witness::start(&tern);
        let exec = |gets: usize, last: &str| {
            let words = [
                "MULTI\r\n".to_owned(),
                "INCR began\r\n".to_owned(),
                "GET large\r\n".repeat(gets),
                last.to_owned(),
            ];
            (words.concat() + "\r\nEXEC\r\n").into_bytes()
        };
        let grown = grown_during(&tern, || {
            std::thread::scope(|scope| {
                for n in 0..4 {
                    let (mut stream, request) = (connect(&tern), exec(200, &format!("SET done:{n} here")));
                    scope.spawn(move || {
                        stream.write_all(&request).unwrap();
                        let mut answer = Vec::new();
                        let _ = stream.read_to_end(&mut answer);
                        assert!(
                            answer.len() < 8 * MIB,
                            "at most 8 MiB may be answered, not {} bytes",
                            answer.len()
                        );
                        assert!(
                            !answer.windows(4).any(|w| w == b"*202"),
                            "no part of the EXEC's reply may be sent"
                        );
                    });
                }
            });
        });
        witness.was_served(FEW, "EXECs beyond the limit");
        assert_small("4 EXECs that answer 200 MiB each, of 8 that are allowed", grown, 12);
        assert_eq!(lines_with(&tern, "client-output-buffer-limit: connection closed"), 4);
        // As in Redis, its writes stay applied, once.
        assert_eq!(admin.line("GET began"), Value::Bulk(b"4".to_vec()));
        assert_eq!(admin.line("EXISTS done:0 done:1 done:2 done:3"), Value::Int(4));
        // Within the limit, or if the client ignores replies, the connection stays open.
        let mut client = tern.client();
        client.send_raw(&exec(5, "PING")).unwrap();
        let answers: Vec<Value> = (0..9).map(|_| client.read().unwrap().value).collect();
        assert_eq!(answers[8].items().map(<[Value]>::len), Some(7));
        client
            .send_raw(
                &[b"CLIENT REPLY OFF\r\n", &exec(20, "PING")[..], b"CLIENT REPLY ON\r\nPING\r\n"].concat(),
            )
            .unwrap();
        assert_eq!(client.read().unwrap().value, Value::Simple(b"OK".to_vec()));
        assert_eq!(client.read().unwrap().value, Value::Simple(b"PONG".to_vec()));
        assert_unharmed(&tern);
    });
}

/// Members are read as they are sent, also those of an EXEC: only the ids of many large sets are held.
#[test]
fn an_exec_of_many_large_sets_is_read_as_it_is_sent() {
    tried(|| {
        const MEMBERS: usize = 100_000;
        const TIMES: usize = 40;
        let tern = tern(&["--appendfsync", "no"]);
        let mut admin = tern.client();
        for from in (0..MEMBERS).step_by(10_000) {
            let members = (from..from + 10_000).map(|n| format!("member:{n:060}"));
            let argv: Vec<String> = ["SADD".to_owned(), "large".into()].into_iter().chain(members).collect();
            assert_eq!(admin.run(&argv).value, Value::Int(10_000));
        }
        let witness = Witness::start(&tern);
        let request = format!("MULTI\r\n{}EXEC\r\n", "SMEMBERS large\r\n".repeat(TIMES)).into_bytes();
        let mut silent: Vec<TcpStream> = Vec::new();
        let grown = grown_during(&tern, || {
            for _ in 0..4 {
                let mut stream = connect(&tern);
                stream.write_all(&request).unwrap();
                silent.push(stream);
            }
            std::thread::sleep(Duration::from_secs(4));
        });
        let asked = 4 * TIMES * MEMBERS * 75 / MIB;
        // From a cluster each reply reads pieces of 1 MiB, the next one while one is being sent.
        let most = if wanted() { 32 } else { 8 };
        witness.was_served(FEW, "EXECs of large sets");
        assert_small(
            &format!("4 EXECs of {TIMES} large sets that no client reads, {asked} MiB"),
            grown,
            most,
        );
        let head = "+OK\r\n".len() + TIMES * "+QUEUED\r\n".len() + format!("*{TIMES}\r\n").len();
        let each = format!("*{MEMBERS}\r\n").len() + MEMBERS * ("$67\r\n\r\n".len() + 67);
        let (mut left, mut chunk) = (head + TIMES * each, vec![0; MIB]);
        while left > 0 {
            let n = silent[0].read(&mut chunk).unwrap();
            assert!(n > 0 && n <= left, "{n} bytes of {left} to come");
            left -= n;
        }
        drop(silent);
        assert_unharmed(&tern);
    });
}

#[test]
fn wrong_passwords_are_counted_and_leave_few_lines() {
    tried(|| {
        let tern = tern(&["--requirepass", "correct horse"]);
        let known = || {
            let mut client = tern.client();
            assert_eq!(client.run(&["AUTH", "correct horse"]).value, Value::Simple(b"OK".to_vec()));
            client
        };
        let witness = Witness::with(known());
        let (clients, each) = (4, 5000);
        let guess = |who: usize| {
            let mut client = tern.client();
            for n in 0..each {
                let password = format!("{who}-{n}");
                let line = if n % 2 == 0 { ["AUTH", "default", &password] } else { ["HELLO", "3", "AUTH"] };
                match n % 2 {
                    0 => client.send(&line).unwrap(),
                    _ => client.send(&[&line[..], &["default", &password]].concat()).unwrap(),
                }
            }
            for _ in 0..each {
                let Value::Error(line) = client.read().unwrap().value else { panic!("no guess may succeed") };
                assert!(line.starts_with(b"WRONGPASS"));
            }
        };
        let grown = grown_during(&tern, || {
            std::thread::scope(|scope| {
                (0..clients).for_each(|who| drop(scope.spawn(move || guess(who))));
            });
        });
        witness.was_served(FEW, "20 000 wrong passwords");
        assert_small("20 000 wrong passwords", grown, 8);
        let mut admin = known();
        assert_eq!(info(&mut admin, "stats", "acl_access_denied_auth"), (clients * each) as u64);
        let lines = lines_with(&tern, "AUTH with a wrong user or password");
        assert!((1..=60).contains(&lines), "{lines} lines");
        assert!(!tern.whole_log().contains("horse"), "the log must hold no password");
    });
}

/// Bytes that resemble the protocol more or less.
fn garbage(rng: &mut Rng) -> Vec<u8> {
    let parts: [&[u8]; 16] = [
        b"*1\r\n",
        b"*3\r\n",
        b"*-1\r\n",
        b"*99999999999\r\n",
        b"*2147483647\r\n",
        b"$3\r\nSET\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$9999999999\r\n",
        b"PING\r\n",
        b"\"unbalanced",
        b"\r\n",
        b"%2\r\n+a\r\n",
        b"\0\0\0\0",
        b"*1\r\n*1\r\n*1\r\n",
        b"HELLO 3\r\n",
    ];
    let mut out = Vec::new();
    for _ in 0..rng.below(40) {
        match rng.below(3) {
            0 => out.extend((0..rng.below(200)).map(|_| rng.next() as u8)),
            _ => out.extend_from_slice(rng.pick(&parts)),
        }
    }
    out
}

#[test]
fn random_garbage_closes_its_own_connection_only() {
    tried(|| {
        let tern = tern(&[]);
        let seed = Rng::any_seed();
        say(&format!("garbage: seed {seed}"));
        let witness = Witness::start(&tern);
        let grown = grown_during(&tern, || {
            let mut rng = Rng::new(seed);
            for _ in 0..2000 {
                let mut stream = connect(&tern);
                // The server may close before everything is written.
                let _ = stream.write_all(&garbage(&mut rng));
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
        witness.was_served(FEW, "2000 times garbage");
        assert_small("2000 times garbage", grown, 8);
        let lines = lines_with(&tern, "Protocol error");
        assert!((1..=100).contains(&lines), "{lines} lines");
        assert_unharmed(&tern);
    });
}

#[test]
fn lines_without_an_end_are_cut_off() {
    tried(|| {
        let tern = tern(&[]);
        let witness = Witness::start(&tern);
        let grown = grown_during(&tern, || {
            for start in [&b"x"[..], b"*", b"*1\r\n$"] {
                let mut streams: Vec<TcpStream> = (0..100).map(|_| connect(&tern)).collect();
                for stream in &mut streams {
                    let _ = stream.write_all(start);
                    let _ = stream.write_all(&[b'1'; 200_000]);
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            }
        });
        witness.was_served(FEW, "lines without an end");
        assert_small("lines without an end", grown, 8);
        assert_unharmed(&tern);
    });
}

#[test]
fn a_request_of_many_empty_arguments_takes_bounded_memory() {
    tried(|| {
        let tern = tern(&[]);
        let witness = Witness::start(&tern);
        let n = 500_000;
        let grown = grown_during(&tern, || {
            let mut client: Client = tern.client();
            let mut raw = format!("*{}\r\n$7\r\nUNKNOWN\r\n", n + 1).into_bytes();
            (0..n).for_each(|_| raw.extend_from_slice(b"$0\r\n\r\n"));
            for _ in 0..3 {
                client.send_raw(&raw).unwrap();
                assert!(client.read().unwrap().value.is_error());
            }
        });
        witness.was_served(FEW, "half a million empty arguments");
        assert_small(&format!("a request of {n} empty arguments"), grown, 160);
        assert_unharmed(&tern);
    });
}

/// 300 clients subscribe to all keyspace events and read nothing, while another one changes hundreds of keys
/// at a time.
#[test]
fn a_client_subscribed_to_everything_holds_no_writer() {
    tried(|| {
        let tern = tern(&["--notify-keyspace-events", "KEA", "--appendfsync", "no"]);
        let listeners: Vec<Client> = (0..300)
            .map(|_| {
                let mut client = tern.client();
                client.line("PSUBSCRIBE *");
                client
            })
            .collect();
        let mut words = vec!["MSET".to_owned()];
        words.extend((0..500).flat_map(|n| [format!("key:{n}"), "v".into()]));
        let mut writer = tern.client();
        // 1.8 million messages are published meanwhile.
        writer.set_timeout(Duration::from_secs(120));
        let witness = Witness::writing(&tern);
        let grown = grown_during(&tern, || {
            writer.send_raw(&request(&words).repeat(6)).unwrap();
            for _ in 0..6 {
                assert_eq!(writer.read().unwrap().value, Value::Simple(b"OK".to_vec()));
            }
        });
        witness.was_served(40, "MSETs published to 300 clients");
        // 1.8 million messages, minus those that the sockets hold.
        assert_small("6 MSETs of 500 keys published to 300 clients", grown, 32);
        let next_channel = |client: &mut Client| {
            let message = client.read().unwrap().value;
            String::from_utf8_lossy(message.items().unwrap()[2].bytes().unwrap()).into_owned()
        };
        let mut one = listeners.into_iter().next_back().unwrap();
        for n in 0..6 * 500 {
            let channel = loop {
                let channel = next_channel(&mut one);
                if channel.starts_with("__keyspace@0__:key") {
                    break channel;
                }
            };
            assert_eq!(
                channel,
                format!("__keyspace@0__:key:{}", n % 500),
                "messages must come in the order of changes"
            );
        }
        assert_unharmed(&tern);
    });
}

/// A transaction with as many messages as possible.
#[test]
fn the_messages_of_one_transaction_hold_no_writer() {
    tried(|| {
        let tern = tern(&["--notify-keyspace-events", "KEA", "--appendfsync", "no"]);
        let mut listeners: Vec<Client> = (0..30)
            .map(|_| {
                let mut client = tern.client();
                client.line("PSUBSCRIBE *");
                client
            })
            .collect();
        // A transaction of a cluster holds 10 MB.
        let n = if wanted() { 20_000 } else { 60_000 };
        let mut words = vec!["MSET".to_owned()];
        words.extend((0..n).flat_map(|n| [format!("key:{n}"), "v".into()]));
        let mut writer = tern.client();
        writer.set_timeout(Duration::from_secs(120));
        let ready = Ready::to_write(&tern);
        writer.send_raw(&request(&words)).unwrap();
        // From its commit on, which no later message passes.
        let _ = listeners[0].read().unwrap();
        let (witness, since) = (ready.start(), Instant::now());
        assert_eq!(writer.read().unwrap().value, Value::Simple(b"OK".to_vec()));
        let took = since.elapsed();
        witness.was_served_during(
            took,
            60,
            &format!("an MSET of {n} keys that is published for {} ms", took.as_millis()),
        );
        drop(listeners);
        assert_unharmed(&tern);
    });
}

/// None of its commands is long.
#[test]
fn an_exec_that_reads_for_seconds_holds_no_writer() {
    tried(|| {
        let tern = tern(&["--appendfsync", "no"]);
        let mut reader = tern.client();
        for _ in 0..8 {
            reader.run(&["APPEND", "string", &"abcdefgh".repeat(MIB / 8)]);
        }
        // One second of them: no transaction lives longer than five.
        let since = Instant::now();
        (0..5).for_each(|_| drop(reader.line("BITCOUNT string")));
        let n = (5.0 / since.elapsed().as_secs_f64()).clamp(20.0, 2000.0) as usize;
        let witness = Witness::writing(&tern);
        let lines = ["MULTI\r\nSET counted x\r\n", &"BITCOUNT string\r\n".repeat(n), "EXEC\r\n"].concat();
        let since = Instant::now();
        reader.send_raw(lines.as_bytes()).unwrap();
        (0..n + 2).for_each(|_| drop(reader.read().unwrap()));
        let exec = reader.read().unwrap().value;
        assert_eq!(exec.items().map(<[Value]>::len), Some(n + 1), "{exec:?}");
        let took = since.elapsed();
        witness.was_served_during(took, FEW, &format!("an EXEC of {n} BITCOUNTs in {} ms", took.as_millis()));
        assert_unharmed(&tern);
    });
}

/// Databases are swapped and flushed repeatedly, and each swap moves keys that 16 clients watch.
#[test]
fn swaps_beside_watches_hold_no_writer() {
    tried(|| {
        let tern = tern(&["--appendfsync", "no"]);
        let watchers: Vec<Client> = (0..16)
            .map(|n| {
                let mut client = tern.client();
                let keys: Vec<String> = (0..256).map(|key| format!(" absent:{n}:{key}")).collect();
                client.line(&format!("WATCH{}", keys.concat()));
                client
            })
            .collect();
        let mut writer = tern.client();
        writer.set_timeout(Duration::from_secs(120));
        let witness = Witness::writing(&tern);
        // On a cluster a thousand take longer than this client's patience.
        let swaps = if wanted() { 100 } else { 1000 };
        let lines = ["SWAPDB 0 1\r\n".repeat(swaps), "FLUSHALL\r\n".repeat(10)].concat();
        writer.send_raw(lines.as_bytes()).unwrap();
        for _ in 0..swaps + 10 {
            assert_eq!(writer.read().unwrap().value, Value::Simple(b"OK".to_vec()));
        }
        witness.was_served(60, "swaps beside watches");
        drop(watchers);
        assert_unharmed(&tern);
    });
}
