//! Streams that exceed a transaction: read, trimmed, deleted, copied, and groups with much pending.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::{Duration, Instant};
use support::resp::{Client, Value, request};
use support::server::{assert_sound, tern_in};

const MANY: usize = 150_000;
const TOGETHER: usize = 5_000;
/// No command may take longer on the slowest machine that runs this.
const PATIENCE: Duration = Duration::from_secs(60);

/// Entries of one call, near the most that it delivers: 16 384, or on a cluster what is sure to fit into a transaction.
fn each() -> usize {
    if support::fdb_cluster::wanted() { 7_500 } else { 15_000 }
}

/// Adds entries 1-0, 2-0 and so on, each with its number.
fn fill(client: &mut Client, key: &str, count: usize) {
    for from in (1..=count).step_by(TOGETHER) {
        let some = from..(from + TOGETHER).min(count + 1);
        let lines: Vec<u8> = some
            .clone()
            .flat_map(|n| request(&["XADD", key, &format!("{n}-0"), "number", &n.to_string()]))
            .collect();
        client.send_raw(&lines).unwrap();
        some.for_each(|n| assert_eq!(client.read().unwrap().value, bulk(&format!("{n}-0"))));
    }
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn int(n: usize) -> Value {
    Value::Int(n as i64)
}

fn entry(n: usize) -> Value {
    let fields = Value::Array(vec![bulk("number"), bulk(&n.to_string())]);
    Value::Array(vec![bulk(&format!("{n}-0")), fields])
}

fn timely(client: &mut Client, line: &str) -> Value {
    let since = Instant::now();
    client.set_timeout(PATIENCE);
    let reply = client.line(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    assert!(since.elapsed() < PATIENCE, "{line}: {:?}", since.elapsed());
    reply
}

fn within(body: impl FnOnce(&mut Client)) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let options = ["--appendfsync", "no"];
    let mut server = tern_in(&dir, &options);
    body(&mut server.client());
    assert!(server.terminate());
    if std::env::var_os("TERN_BINARY").is_none() {
        assert_sound(&dir, &options);
    }
}

#[test]
fn many_entries_are_read_trimmed_and_copied() {
    within(|client| {
        fill(client, "k", MANY);
        let all = timely(client, "XRANGE k - +");
        assert_eq!(all, Value::Array((1..=MANY).map(entry).collect()));
        let back = timely(client, "XREVRANGE k + - COUNT 100000");
        assert_eq!(back, Value::Array((MANY - 99_999..=MANY).rev().map(entry).collect()));
        let read = timely(client, "XREAD COUNT 120000 STREAMS k 5");
        let [of_key] = read.items().unwrap() else { panic!("one key") };
        assert_eq!(of_key.items().unwrap()[1], Value::Array((6..=120_005).map(entry).collect()));
        assert_eq!(timely(client, "COPY k copy"), int(1));
        assert_eq!(timely(client, &format!("XTRIM k MAXLEN {}", MANY - 1)), int(1));
        assert_eq!(timely(client, "XTRIM k MAXLEN 10"), int(MANY - 11));
        let wanted = Value::Array((MANY - 9..=MANY).map(entry).collect());
        assert_eq!(timely(client, "XRANGE k - +"), wanted);
        assert_eq!(timely(client, &format!("XTRIM copy MINID {}-0", MANY / 2)), int(MANY / 2 - 1));
        assert_eq!(
            timely(client, &format!("XADD copy MAXLEN 1 {}-0 number last", MANY + 1)),
            bulk(&format!("{}-0", MANY + 1))
        );
        assert_eq!(timely(client, "XLEN copy"), int(1));
        assert_eq!(timely(client, "DEL k copy"), int(2));
    });
}

#[test]
fn many_ids_are_deleted_together() {
    within(|client| {
        fill(client, "k", MANY);
        // On a cluster no more fit into a transaction.
        let last = if support::fdb_cluster::wanted() { 30_000 } else { MANY };
        let ids = (1..=last).filter(|n| n % 3 != 0).map(|n| format!("{n}-0"));
        let argv: Vec<String> = ["XDEL".to_owned(), "k".to_owned()].into_iter().chain(ids).collect();
        client.set_timeout(PATIENCE);
        assert_eq!(client.run(&argv).value, int(last - last / 3));
        assert_eq!(timely(client, "XLEN k"), int(MANY - last + last / 3));
        let wanted = Value::Array((1..=MANY).filter(|n| n % 3 == 0 || *n > last).map(entry).collect());
        assert_eq!(timely(client, "XRANGE k - +"), wanted);
    });
}

#[test]
fn many_pending_entries() {
    within(|client| {
        let each = each();
        fill(client, "k", 3 * each);
        timely(client, "XGROUP CREATE k g 0");
        for who in ["ann", "bob", "cid"] {
            let got = timely(client, &format!("XREADGROUP GROUP g {who} COUNT {each} STREAMS k >"));
            let entries = got.items().unwrap()[0].items().unwrap()[1].items().unwrap().len();
            assert_eq!(entries, each);
        }
        let summary = timely(client, "XPENDING k g");
        assert_eq!(summary.items().unwrap()[0], int(3 * each));
        let listed = timely(client, &format!("XPENDING k g - + {}", 3 * each));
        assert_eq!(listed.items().unwrap().len(), 3 * each);
        assert_eq!(timely(client, "COPY k copy"), int(1));
        assert_eq!(timely(client, "XGROUP DELCONSUMER k g bob"), int(each));
        assert_eq!(timely(client, "XPENDING k g").items().unwrap()[0], int(2 * each));
        let ids = (1..=each).map(|n| format!("{n}-0"));
        let argv = ["XACK", "k", "g"].map(str::to_owned).into_iter().chain(ids).collect::<Vec<_>>();
        assert_eq!(client.run(&argv).value, int(each));
        let claimed = timely(client, &format!("XAUTOCLAIM k g dan 0 0 COUNT {each} JUSTID"));
        assert_eq!(claimed.items().unwrap()[1].items().unwrap().len(), each);
        assert_eq!(timely(client, "XPENDING k g").items().unwrap()[0], int(each));
        assert_eq!(timely(client, "XGROUP DESTROY copy g"), int(1));
        assert_eq!(timely(client, "XINFO GROUPS copy"), Value::Array(vec![]));
    });
}

/// How many entries a call of XREADGROUP returned, by key.
fn delivered(reply: &Value) -> Vec<usize> {
    let of_key = |pair: &Value| pair.items().unwrap()[1].items().unwrap().len();
    reply.items().unwrap().iter().map(of_key).collect()
}

/// Delivers 45 000 entries.
fn deliver_all(client: &mut Client, consumer: &str) {
    let mut left = 45_000;
    while left > 0 {
        let count = left.min(each());
        let got = timely(client, &format!("XREADGROUP GROUP g {consumer} COUNT {count} STREAMS k >"));
        assert_eq!(delivered(&got), [count]);
        left -= count;
    }
}

#[test]
fn many_pending_entries_of_one_of_two_consumers() {
    within(|client| {
        fill(client, "k", 45_002);
        timely(client, "XGROUP CREATE k g 0");
        timely(client, "XREADGROUP GROUP g ann COUNT 1 STREAMS k >");
        deliver_all(client, "bob");
        timely(client, "XREADGROUP GROUP g ann COUNT 1 STREAMS k >");
        timely(client, "XCLAIM k g ann 0 22222-0 JUSTID");
        assert_eq!(timely(client, "XGROUP DELCONSUMER k g bob"), int(44_999));
        let left = timely(client, "XPENDING k g - + 10 ann");
        let ids: Vec<_> = left.items().unwrap().iter().map(|row| row.items().unwrap()[0].clone()).collect();
        assert_eq!(ids, ["1-0", "22222-0", "45002-0"].map(bulk));
        assert_eq!(timely(client, "XPENDING k g").items().unwrap()[0], int(3));
    });
}

#[test]
fn trimming_regards_much_that_is_pending() {
    within(|client| {
        fill(client, "k", 60_000);
        timely(client, "XGROUP CREATE k g 0");
        deliver_all(client, "ann");
        assert_eq!(timely(client, "XACK k g 44999-0 45000-0"), int(2));
        assert_eq!(timely(client, "XTRIM k MAXLEN 0 ACKED"), int(2));
        assert_eq!(timely(client, "XADD k MAXLEN 1 ACKED 60001-0 number last"), bulk("60001-0"));
        assert_eq!(timely(client, "XLEN k"), int(59_999));
        timely(client, "XDEL k 5-0");
        assert_eq!(timely(client, "XTRIM k MINID 10001-0 DELREF"), int(9_999));
        // What was deleted before stays pending.
        assert_eq!(timely(client, "XPENDING k g").items().unwrap()[0], int(34_999));
        assert_eq!(timely(client, "XTRIM k MINID 10011-0 DELREF"), int(10));
        assert_eq!(timely(client, "XPENDING k g").items().unwrap()[0], int(34_989));
    });
}

#[test]
fn a_call_delivers_only_so_much_of_all_its_streams() {
    within(|client| {
        for key in ["a", "b"] {
            fill(client, key, 10_000);
            timely(client, &format!("XGROUP CREATE {key} g 0"));
        }
        let mut most = Vec::new();
        while most.iter().flatten().sum::<usize>() < 20_000 {
            most.push(delivered(&timely(client, "XREADGROUP GROUP g ann COUNT 20000 STREAMS a b > >")));
        }
        let is_most = |delivered: &[usize]| match support::fdb_cluster::wanted() {
            true => (each()..=16_384).contains(&delivered.iter().sum()),
            false => delivered == [10_000, 6_384],
        };
        assert!(is_most(&most[0]), "{most:?}");
        // Of a history nothing is answered rather than that it has ended.
        let line = "XREADGROUP GROUP g ann COUNT 20000 STREAMS a b b 0 0 0";
        let again = delivered(&timely(client, line));
        assert!(is_most(&again), "{again:?}");
        let claimed =
            delivered(&timely(client, "XREADGROUP GROUP g bob COUNT 20000 CLAIM 0 STREAMS a b > >"));
        assert!(is_most(&claimed), "{claimed:?}");
    });
}

#[test]
fn entries_that_were_deleted_are_passed_by_claims() {
    within(|client| {
        fill(client, "k", 45_001);
        timely(client, "XGROUP CREATE k g 0");
        deliver_all(client, "ann");
        timely(client, "XREADGROUP GROUP g ann COUNT 1 STREAMS k >");
        for from in (1..=45_000).step_by(5_000) {
            let ids = (from..from + 5_000).map(|n| format!("{n}-0"));
            let argv: Vec<String> = ["XDEL".to_owned(), "k".to_owned()].into_iter().chain(ids).collect();
            assert_eq!(client.run(&argv).value, int(5_000));
        }
        assert_eq!(delivered(&timely(client, "XREADGROUP GROUP g bob CLAIM 0 STREAMS k >")), [1]);
        assert_eq!(timely(client, "XPENDING k g").items().unwrap()[0], int(45_001));
        let claimed = timely(client, "XAUTOCLAIM k g bob 0 0 COUNT 100000 JUSTID");
        assert!(claimed.items().unwrap()[2].items().unwrap().len() >= each());
    });
}
