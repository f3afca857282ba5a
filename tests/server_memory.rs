//! MEMORY: the usage of a key follows from its stored data, and the figures from the server's memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;
mod support;

use rig::{Rig, error};
use std::collections::BTreeMap;
use support::resp::{Client, Value};
use support::server::tern;
use tern::server::reply::Reply;

/// MEMORY USAGE of an existing key.
async fn usage(rig: &mut Rig, key: &str) -> i64 {
    match rig.line(&format!("MEMORY USAGE {key}")).await {
        Reply::Int(n) => n,
        other => panic!("{key}: {other:?}"),
    }
}

#[tokio::test]
async fn the_usage_of_a_key_follows_its_stored_bytes() {
    let mut rig = Rig::new().await;
    rig.line("SET k 0123456789").await;
    let ten = usage(&mut rig, "k").await;
    assert!((11..100).contains(&ten), "{ten}");
    rig.line("SET longer 0123456789").await;
    assert_eq!(usage(&mut rig, "longer").await, ten + 5, "the name must count");
    for (length, what) in [(11, "one byte more"), (100, "in its record"), (100_000, "in pieces")] {
        rig.run(&[&b"SET"[..], b"k", &vec![b'x'; length]]).await;
        assert_eq!(usage(&mut rig, "k").await, ten - 10 + length as i64, "{what}");
    }
    rig.line("SADD s a b c").await;
    let small = usage(&mut rig, "s").await;
    rig.line(&format!("SADD s {}", "x".repeat(50))).await;
    assert!((small + 50..small + 60).contains(&usage(&mut rig, "s").await), "the members must count");
    rig.line("SADD ints 1 2 3").await;
    let ints = usage(&mut rig, "ints").await;
    let members: Vec<String> = (0..2000).map(|n| format!("member:{n}")).collect();
    rig.line(&format!("SADD ints {}", members[..1000].join(" "))).await;
    let chunked = usage(&mut rig, "ints").await;
    assert!(chunked > ints + 1000 * 16, "{chunked} for 1003 members, {ints} for three");
    rig.line(&format!("SADD ints {}", members[1000..].join(" "))).await;
    let grown = usage(&mut rig, "ints").await - chunked;
    assert!((1000 * 16..1000 * 100).contains(&grown), "{grown} for 1000 members of a chunked set");
}

#[tokio::test]
async fn an_absent_key_takes_nothing() {
    let mut rig = Rig::new().await;
    rig.line("SET k v PX 50").await;
    assert!(usage(&mut rig, "k").await > 0);
    rig.line("SELECT 1").await;
    assert_eq!(rig.line("MEMORY USAGE k").await, Reply::Nil, "in another database");
    rig.line("SELECT 0").await;
    rig.advance(60);
    assert_eq!(rig.line("MEMORY USAGE k").await, Reply::Nil, "expired");
    assert_eq!(rig.line("MEMORY USAGE none SAMPLES 5").await, Reply::Nil);
}

#[tokio::test]
async fn samples_are_numbers_from_0_on() {
    let mut rig = Rig::new().await;
    rig.line("SET k v").await;
    let (syntax, number) = ("ERR syntax error", "ERR value is not an integer or out of range");
    for key in ["k", "none"] {
        for (options, want) in [
            ("SAMPLES", syntax),
            ("SAMPLES -1", syntax),
            ("SAMPLES x", number),
            ("SAMPLES 9223372036854775808", number),
            ("SAMPLES 1 SAMPLES -2", syntax),
            ("SAMPLES 1 SAMPLES", syntax),
            ("SAMPLES 1 x", syntax),
            ("FOO", syntax),
        ] {
            let line = format!("MEMORY USAGE {key} {options}");
            assert_eq!(error(&rig.line(&line).await), want, "{line}");
        }
    }
    let whole = usage(&mut rig, "k").await;
    for options in ["SAMPLES 0", "samples 1", "SAMPLES 1 Samples 9223372036854775807"] {
        assert_eq!(rig.line(&format!("MEMORY USAGE k {options}")).await, Reply::Int(whole), "{options}");
    }
}

fn stats(client: &mut Client) -> BTreeMap<String, i64> {
    let stats = client.line("MEMORY STATS");
    let name = |value: &Value| String::from_utf8(value.bytes().unwrap().to_vec()).unwrap();
    stats.items().unwrap().chunks(2).map(|pair| (name(&pair[0]), pair[1].int().unwrap())).collect()
}

#[test]
fn figures_follow_the_servers_memory() {
    const CLIENTS: i64 = 50;
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    client.run(&[&b"SET"[..], b"k", &vec![b'x'; 1 << 20]]);
    let before = stats(&mut client);
    let names: Vec<&str> = before.keys().map(String::as_str).collect();
    assert_eq!(names, ["clients.normal", "peak.allocated", "store.disk", "store.memory", "total.allocated"]);
    let resident = server.resident() as i64;
    assert!(
        (resident / 2..resident * 2).contains(&before["total.allocated"]),
        "{before:?}, {resident} resident"
    );
    assert!(before["peak.allocated"] >= before["total.allocated"], "{before:?}");
    let mut others: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    others.iter_mut().for_each(|other| drop(other.line("PING")));
    let more = stats(&mut client)["clients.normal"] - before["clients.normal"];
    assert!(more > CLIENTS * 1024, "{more} for {CLIENTS} clients more");
}

#[test]
fn the_doctor_says_the_same_figures() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    for n in 0..20 {
        client.run(&[b"SET".to_vec(), format!("k{n}").into_bytes(), vec![b'x'; 1 << 20]]);
    }
    let agreed = (0..100).any(|_| {
        let said = String::from_utf8(client.line("MEMORY DOCTOR").bytes().unwrap().to_vec()).unwrap();
        let numbers = said.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<i64>().ok());
        let [disk, resident, memory] = numbers.collect::<Vec<_>>()[..] else { panic!("{said}") };
        let stats = stats(&mut client);
        std::thread::sleep(std::time::Duration::from_millis(10));
        // What a cluster holds is not this server's.
        let is_here = !support::fdb_cluster::wanted();
        assert!((disk > 0 && memory > 0 && disk != memory) == is_here, "{said}");
        let near = (resident / 2..resident * 2).contains(&stats["total.allocated"]);
        near && (disk, memory) == (stats["store.disk"], stats["store.memory"])
    });
    assert!(agreed, "MEMORY DOCTOR and MEMORY STATS must agree");
}
