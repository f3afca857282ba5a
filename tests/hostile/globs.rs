//! Long patterns, many patterns, and texts that they match slowly: no other client waits for them.
//!
//! A release build stays below 100 ms. If the pattern is parsed again for each byte of each text, this takes
//! tens of seconds.

use crate::assert_unharmed;
use crate::support::fdb_cluster::wanted;
use crate::support::resp::{Client, Value, request};
use crate::support::say;
use crate::support::server::{Server, tern};
use crate::witness::{FEW, Witness, tried};
use std::time::{Duration, Instant};

/// Multiples of the witness' pipeline alone: the bound of an attack, and of a long one.
const SOON: u32 = 40;
const LONG: &[(&str, u32)] = &[
    ("PUBLISH to 3000 classes", 160),
    ("PUBLISH to 30 000 patterns", 200),
    // Every pattern is tried on each of 81 options: 280 to 620 times the pipeline in a debug build.
    ("CONFIG GET of 30 000 patterns", 1000),
];

/// Sends a request while a witness is served.
fn attack<A: AsRef<[u8]>>(server: &Server, client: &mut Client, what: &str, argv: &[A]) -> Value {
    client.set_timeout(Duration::from_secs(120));
    let witness = Witness::start(server);
    std::thread::sleep(Duration::from_millis(20));
    let since = Instant::now();
    let reply = client.run(argv).value;
    let took = since.elapsed();
    std::thread::sleep(Duration::from_millis(20));
    let times = LONG.iter().find(|(name, _)| *name == what).map_or(SOON, |(_, times)| *times);
    witness.saw(took, times, what);
    witness.was_served(FEW, &format!("{what} ({took:.1?})"));
    reply
}

/// A star, then a class of this many bytes that holds only `x`.
fn long_class(bytes: usize) -> Vec<u8> {
    [&b"*["[..], &b"x".repeat(bytes), b"]*"].concat()
}

#[test]
fn a_long_class_holds_no_client() {
    tried(|| {
        let tern = tern(&[]);
        let mut c = tern.client();
        let class = long_class(4 << 20);
        let argv = [&b"COMMAND"[..], b"LIST", b"FILTERBY", b"PATTERN", &class];
        let names = attack(&tern, &mut c, "COMMAND LIST by a class of 4 MB", &argv);
        let with_x = |v: &Value| v.bytes().unwrap().contains(&b'x');
        assert!(names.items().unwrap().len() > 5 && names.items().unwrap().iter().all(with_x), "{names:?}");
        let options =
            attack(&tern, &mut c, "CONFIG GET by a class of 4 MB", &[&b"CONFIG"[..], b"GET", &class]);
        assert!(options.items().unwrap().chunks(2).all(|pair| with_x(&pair[0])), "{options:?}");
        for n in 0..2000 {
            c.send(&["SET".into(), format!("key:{n}"), "v".to_owned()]).unwrap();
        }
        (0..2000).for_each(|_| drop(c.read().unwrap()));
        c.line("SET key:x v");
        let keys = attack(&tern, &mut c, "KEYS by a class of 4 MB", &[&b"KEYS"[..], &class]);
        assert_eq!(keys.items().map(<[Value]>::len), Some(1), "{keys:?}");
        let scan = [&b"SCAN"[..], b"0", b"COUNT", b"5000", b"MATCH", &class];
        let page = attack(&tern, &mut c, "SCAN by a class of 4 MB", &scan);
        assert_eq!(page.items().unwrap()[1].items().map(<[Value]>::len), Some(1), "{page:?}");
        assert_unharmed(&tern);
    });
}

#[test]
fn a_long_subscribed_pattern_holds_no_client() {
    tried(|| {
        let tern = tern(&[]);
        let (mut listener, mut c) = (tern.client(), tern.client());
        let class = long_class(4 << 20);
        attack(&tern, &mut listener, "PSUBSCRIBE to a class of 4 MB", &[&b"PSUBSCRIBE"[..], &class]);
        let channel = [&b"-".repeat(1000)[..], b"x"].concat();
        let heard =
            attack(&tern, &mut c, "PUBLISH to a class of 4 MB", &[&b"PUBLISH"[..], &channel, b"hello"]);
        assert_eq!(heard.int(), Some(1));
        assert_eq!(listener.read().unwrap().value.items().unwrap()[3].bytes(), Some(&b"hello"[..]));
        // 3000 classes, each of which is tried at each of 6000 positions.
        let mut other = tern.client();
        let slow = [&b"*"[..], &b"[ab]".repeat(3000), b"c"].concat();
        assert!(!other.run(&[&b"PSUBSCRIBE"[..], &slow]).value.is_error());
        let channel = b"a".repeat(6000);
        let heard = attack(&tern, &mut c, "PUBLISH to 3000 classes", &[&b"PUBLISH"[..], &channel, b"hello"]);
        assert_eq!(heard, Value::Int(0));
        let endless = b"?a".repeat(1 << 20);
        let refused = attack(&tern, &mut other, "PSUBSCRIBE of 2 MB", &[&b"PSUBSCRIBE"[..], &endless]);
        assert!(refused.is_error(), "{refused:?}");
        assert_unharmed(&tern);
    });
}

#[test]
fn many_patterns_hold_no_client() {
    tried(|| {
        let tern = tern(&[]);
        let (mut listener, mut c) = (tern.client(), tern.client());
        let slow = |n: usize| format!("*a*b*{n}*").into_bytes();
        let argv: Vec<Vec<u8>> =
            std::iter::once(b"PSUBSCRIBE".to_vec()).chain((0..30_000).map(slow)).collect();
        attack(&tern, &mut listener, "PSUBSCRIBE to 30 000 patterns", &argv);
        (1..30_000).for_each(|_| drop(listener.read().unwrap()));
        let channel = [&b"ab".repeat(100)[..], b"/29999/"].concat();
        let argv = [&b"PUBLISH"[..], &channel, b"hello"];
        let heard = attack(&tern, &mut c, "PUBLISH to 30 000 patterns", &argv);
        assert_eq!(heard.int(), Some(9), "9, 29, 299, 99, 999, 2999, 9999, 2, 29999");
        (0..9).for_each(|_| drop(listener.read().unwrap()));
        let argv: Vec<Vec<u8>> =
            [b"CONFIG".to_vec(), b"GET".to_vec()].into_iter().chain((0..30_000).map(slow)).collect();
        attack(&tern, &mut c, "CONFIG GET of 30 000 patterns", &argv);
        let names: Vec<String> = (0..30_000).map(|n| format!("channel:{n}")).collect();
        let argv: Vec<&str> = std::iter::once("SUBSCRIBE").chain(names.iter().map(String::as_str)).collect();
        attack(&tern, &mut listener, "SUBSCRIBE to 30 000 channels", &argv);
        (1..30_000).for_each(|_| drop(listener.read().unwrap()));
        let argv = [&b"PUBSUB"[..], b"CHANNELS", b"*n*e*[0-8][0-8]9"];
        let found = attack(&tern, &mut c, "PUBSUB CHANNELS of 30 000", &argv);
        let wanted = (100..30_000).filter(|n| n % 10 == 9 && n / 10 % 10 < 9 && n / 100 % 10 < 9);
        assert_eq!(found.items().map(<[Value]>::len), Some(wanted.count()));
        attack(&tern, &mut listener, "PUNSUBSCRIBE from 30 000 patterns", &["PUNSUBSCRIBE"]);
        assert_unharmed(&tern);
    });
}

#[test]
fn many_listeners_and_long_messages_hold_no_client() {
    tried(|| {
        let tern = tern(&[]);
        let mut listeners: Vec<Client> = (0..300).map(|_| tern.client()).collect();
        for listener in &mut listeners {
            listener.line("SUBSCRIBE news");
        }
        let mut c = tern.client();
        let message = b"m".repeat(1 << 20);
        let before = tern.resident();
        let argv = [&b"PUBLISH"[..], b"news", &message];
        assert_eq!(attack(&tern, &mut c, "PUBLISH of 1 MB to 300", &argv).int(), Some(300));
        let grown = tern.resident().saturating_sub(before);
        say(&format!("a message of 1 MB to 300: {grown} bytes"));
        // On a cluster 14 to 15 MB were measured; one copy for each listener would be 300.
        let most = if wanted() { 32 } else { 10 };
        assert!(grown < most << 20, "{grown} bytes for one message of 1 MB");
        for listener in &mut listeners {
            let heard = listener.read().unwrap().value;
            assert_eq!(heard.items().unwrap()[2].bytes().map(<[u8]>::len), Some(1 << 20));
        }
        assert_unharmed(&tern);
    });
}

/// A waiting message counts with its own bytes, so it must not keep the buffer alive in which it arrived.
#[test]
fn short_messages_that_wait_hold_no_buffers() {
    let tern = tern(&["--client-output-buffer-limit", "pubsub 0 0 0"]);
    let (mut slow, mut c) = (tern.client(), tern.client());
    slow.line("SUBSCRIBE news");
    let long = b"l".repeat(1 << 20);
    for _ in 0..16 {
        assert_eq!(c.run(&[&b"PUBLISH"[..], b"news", &long]).value.int(), Some(1));
    }
    let before = tern.resident();
    let junk = b"j".repeat(60_000);
    for _ in 0..400 {
        let both = [request(&["PUBLISH", "news", "short"]), request(&[&b"ECHO"[..], &junk])].concat();
        c.send_raw(&both).unwrap();
        assert_eq!(c.read().unwrap().value.int(), Some(1));
        assert_eq!(c.read().unwrap().value.bytes().map(<[u8]>::len), Some(junk.len()));
    }
    let grown = tern.resident().saturating_sub(before);
    say(&format!("400 messages of 5 bytes: {grown} bytes"));
    assert!(grown < 1 << 20, "{grown} bytes for 400 messages of 5 bytes");
    assert_unharmed(&tern);
}
