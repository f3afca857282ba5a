//! Hazard: a client that waits for entries is not woken, misses one, or waits for ever on a group that is gone; or two
//! consumers of a group get the same entry.

use super::scene::{
    A_WHILE, Appearing, Taken, answer, begin, bulk, bulks, nil, server, text, wait_for_blocked,
};
use super::support::resp::{Client, Value};
use super::support::rng::Rng;
use super::support::server::tern;

/// One entry of one key, as XREAD replies.
fn one(key: &str, id: &str, fields: &[&str]) -> Value {
    let entry = Value::Array(vec![bulk(id), bulks(fields)]);
    Value::Array(vec![Value::Array(vec![bulk(key), Value::Array(vec![entry])])])
}

/// Whatever makes a stream with an entry appear wakes who waits for it.
#[test]
fn every_change_that_makes_an_entry_wakes() {
    let mut stream = Appearing::new(&["XADD other 5-1 f v", "XGROUP CREATE other g 0"]);
    let mut ways = Appearing::ways("XADD k 5-1 f v");
    ways.push(vec!["XADD k 3-1 a b", "XDEL k 3-1", "XADD k 5-1 f v"]);
    for lines in &ways {
        for command in ["XREAD BLOCK 0 STREAMS k 4", "XREAD COUNT 1 BLOCK 0 STREAMS none k none 0 3-5 $"] {
            let got = stream.woken(command, lines);
            assert_eq!(got, one("k", "5-1", &["f", "v"]), "{command} {lines:?}");
            assert_eq!(stream.admin.line("XLEN k"), Value::Int(1));
        }
    }
}

#[test]
fn what_is_no_later_entry_wakes_nobody() {
    let tern = server();
    let (mut admin, mut waiter, mut consumer) = (tern.client(), tern.client(), tern.client());
    for line in ["XADD k 5-1 a b", "XADD k 6-1 a b", "XADD other 4-1 f v", "XGROUP CREATE k g $"] {
        admin.line(line);
    }
    begin(&mut waiter, "XREAD BLOCK 0 STREAMS k none $ 7");
    begin(&mut consumer, "XREADGROUP GROUP g ann BLOCK 0 STREAMS k >");
    wait_for_blocked(&mut admin, 2);
    for line in [
        "XDEL k 6-1",
        "XSETID k 8-1",
        "XTRIM k MAXLEN 0",
        "XGROUP SETID k g 0",
        "XGROUP CREATE k h 0",
        "XGROUP DESTROY k h",
        "XGROUP CREATECONSUMER k g bob",
        "XADD none 7-0 a b",
        "COPY other none REPLACE",
        "DEL none",
        "XADD k 0-1 too low",
    ] {
        admin.line(line);
    }
    assert!(waiter.is_silent(A_WHILE) && consumer.is_silent(A_WHILE));
    admin.line("XADD k 8-2 a b");
    assert_eq!(answer(&mut waiter), one("k", "8-2", &["a", "b"]));
    assert_eq!(answer(&mut consumer), one("k", "8-2", &["a", "b"]));
}

/// Each reader gets each entry, each group hands it to one consumer.
#[test]
fn an_entry_is_every_readers_and_one_consumers() {
    let tern = server();
    let mut admin = tern.client();
    for line in ["XGROUP CREATE k g $ MKSTREAM", "XGROUP CREATE k h $"] {
        admin.line(line);
    }
    let mut readers: Vec<Client> = (0..5).map(|_| tern.client()).collect();
    let mut consumers: Vec<Client> = (0..4).map(|_| tern.client()).collect();
    readers.iter_mut().for_each(|reader| begin(reader, "XREAD BLOCK 0 STREAMS k $"));
    for (n, consumer) in consumers.iter_mut().enumerate() {
        let group = if n < 3 { "g" } else { "h" };
        begin(consumer, &format!("XREADGROUP GROUP {group} c{n} BLOCK 0 STREAMS k >"));
        wait_for_blocked(&mut admin, 5 + n + 1);
    }
    admin.line("XADD k 1-1 a b");
    let wanted = one("k", "1-1", &["a", "b"]);
    readers.iter_mut().for_each(|reader| assert_eq!(answer(reader), wanted));
    // Who came first is served first.
    assert_eq!(answer(&mut consumers[0]), wanted);
    assert_eq!(answer(&mut consumers[3]), wanted);
    assert!(consumers[1].is_silent(A_WHILE) && consumers[2].is_silent(A_WHILE));
    wait_for_blocked(&mut admin, 2);
    admin.line("MULTI");
    admin.line("XADD k 2-1 a b");
    admin.line("XADD k 3-1 a b");
    admin.line("EXEC");
    let got = answer(&mut consumers[1]);
    let entries = got.items().unwrap()[0].items().unwrap()[1].items().unwrap().len();
    assert_eq!(entries, 2);
    assert!(consumers[2].is_silent(A_WHILE));
    let pending = admin.line("XPENDING k g");
    assert_eq!(pending.items().unwrap()[0], Value::Int(3));
    // What comes with NOACK is nobody's.
    drop(consumers);
    wait_for_blocked(&mut admin, 0);
    let mut noack = tern.client();
    begin(&mut noack, "XREADGROUP GROUP g c0 NOACK BLOCK 0 STREAMS none k > >");
    assert!(text(&answer(&mut noack)).starts_with("NOGROUP No such key 'none'"));
    begin(&mut noack, "XREADGROUP GROUP g c0 NOACK BLOCK 0 STREAMS k >");
    wait_for_blocked(&mut admin, 1);
    admin.line("XADD k 4-1 a b");
    assert_eq!(answer(&mut noack), one("k", "4-1", &["a", "b"]));
    assert_eq!(admin.line("XPENDING k g").items().unwrap()[0], Value::Int(3));
}

/// As Redis since 7.2, which runs the call once more: it then finds no group.
#[test]
fn waiting_ends_with_the_group_or_its_key() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    let gone = "NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option";
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for (lines, error) in [
        (&["DEL k"][..], gone),
        (&["UNLINK k"], gone),
        (&["XGROUP DESTROY k g"], gone),
        (&["SET k x"], wrong),
        (&["FLUSHALL"], gone),
        (&["FLUSHDB"], gone),
        (&["PEXPIRE k -1"], gone),
        (&["PEXPIRE k 30"], gone),
        (&["RENAME k z"], gone),
        (&["MOVE k 1"], gone),
        (&["RENAME bare k"], gone),
        (&["SWAPDB 0 1"], gone),
        (&["MULTI", "DEL k", "LPUSH k x", "EXEC"], wrong),
    ] {
        admin.line("FLUSHALL");
        for line in ["XADD k 1-1 a b", "XGROUP CREATE k g $", "XADD bare 1-1 a b"] {
            admin.line(line);
        }
        begin(&mut waiter, "XREADGROUP GROUP g ann BLOCK 0 STREAMS k >");
        wait_for_blocked(&mut admin, 1);
        lines.iter().for_each(|line| assert!(!admin.line(line).is_error(), "{line}"));
        assert_eq!(text(&answer(&mut waiter)), error, "{lines:?}");
        wait_for_blocked(&mut admin, 0);
    }
    // Another stream with a group of that name serves.
    admin.line("FLUSHALL");
    for line in ["XADD k 1-1 a b", "XGROUP CREATE k g $", "XADD other 5-1 f v", "XGROUP CREATE other g 0"] {
        admin.line(line);
    }
    begin(&mut waiter, "XREADGROUP GROUP g ann BLOCK 0 STREAMS k >");
    wait_for_blocked(&mut admin, 1);
    admin.line("RENAME other k");
    assert_eq!(answer(&mut waiter), one("k", "5-1", &["f", "v"]));
}

#[test]
fn what_a_read_that_waits_answers() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    for line in ["XADD k 1-1 a b", "XGROUP CREATE k g 0"] {
        admin.line(line);
    }
    assert_eq!(admin.line("XREADGROUP GROUP g c NOACK STREAMS k >"), one("k", "1-1", &["a", "b"]));
    for line in [
        "XREAD BLOCK 10 STREAMS k $",
        "XREAD COUNT 5 BLOCK 1 STREAMS none k 0 1-1",
        "XREADGROUP GROUP g c BLOCK 5 STREAMS k >",
    ] {
        assert_eq!(waiter.line(line), nil(), "{line}");
    }
    // The history of a consumer is there at once.
    let empty = Value::Array(vec![Value::Array(vec![bulk("k"), Value::Array(vec![])])]);
    assert_eq!(waiter.line("XREADGROUP GROUP g c BLOCK 0 STREAMS k 0"), empty);
    assert_eq!(waiter.line("XREAD BLOCK 0 STREAMS k +"), one("k", "1-1", &["a", "b"]));
    for line in [
        "MULTI",
        "XREAD BLOCK 0 STREAMS k $",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS k >",
        "XREAD BLOCK 0 STREAMS k 0",
    ] {
        admin.line(line);
    }
    assert_eq!(admin.line("EXEC"), Value::Array(vec![nil(), nil(), one("k", "1-1", &["a", "b"])]));
    waiter.line("HELLO 3");
    assert_eq!(waiter.line("XREAD BLOCK 1 STREAMS k $"), Value::Nil(b'_'));
    begin(&mut waiter, "XREAD BLOCK 0 STREAMS k $");
    wait_for_blocked(&mut admin, 1);
    admin.line("XADD k 2-1 c d");
    let entry = Value::Array(vec![bulk("2-1"), bulks(&["c", "d"])]);
    assert_eq!(answer(&mut waiter), Value::Map(vec![bulk("k"), Value::Array(vec![entry])]));
}

/// Entries that each of three clients adds.
const EACH: usize = 300;

/// Consumers of one group wait on two streams while entries are added, as readers do that must see all of them in order.
#[test]
fn every_entry_is_delivered_once_and_read_by_all() {
    let tern = tern(&["--appendfsync", "no", "--lanes", "4"]);
    let mut admin = tern.client();
    for key in ["s0", "s1"] {
        admin.line(&format!("XGROUP CREATE {key} g 0 MKSTREAM"));
    }
    let (taken, seed) = (Taken::of(3 * EACH), Rng::any_seed());
    super::support::say(&format!("waiting: TERN_SEED={seed}"));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (client, taken, rng) = (tern.client(), &taken, Rng::new(seed + n));
            scope.spawn(move || taken.part(|| consume(client, taken, (n, rng))));
        }
        for key in ["s0", "s1"] {
            let (client, taken) = (tern.client(), &taken);
            scope.spawn(move || taken.part(|| read_all(client, taken, key)));
        }
        for n in 0..3 {
            let (mut client, taken, mut rng) = (tern.client(), &taken, Rng::new(seed + 100 + n));
            scope.spawn(move || {
                taken.part(|| {
                    for entry in 0..EACH {
                        let line = format!("XADD s{} * from {n} number {entry}", rng.below(2));
                        assert!(!client.line(&line).is_error());
                    }
                });
            });
        }
    });
    taken.assert_all();
}

fn consume(mut client: Client, taken: &Taken, (n, mut rng): (u64, Rng)) {
    while !taken.is_over() {
        let count = 1 + rng.below(4);
        let keys = ["s0 s1 > >", "s1 >", "s0 >"][rng.below(3)];
        let line = format!("XREADGROUP GROUP g c{n} COUNT {count} BLOCK 50 STREAMS {keys}");
        ids(&client.line(&line)).into_iter().for_each(|(key, id)| taken.take(format!("{key} {id}")));
    }
}

/// Reads a stream until consumers have taken everything: then nothing was added that it has not seen.
fn read_all(mut client: Client, taken: &Taken, key: &str) {
    let (mut last, mut seen, mut is_over) = ("0-0".to_owned(), 0, false);
    loop {
        let read = ids(&client.line(&format!("XREAD COUNT 7 BLOCK 50 STREAMS {key} {last}")));
        if read.is_empty() && is_over {
            break;
        }
        seen += read.len();
        last = read.last().map_or(last, |(_, id)| id.clone());
        is_over = taken.is_over();
    }
    assert_eq!(client.line(&format!("XLEN {key}")), Value::Int(seen as i64));
}

/// Keys with ids of what was read.
fn ids(reply: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for of_key in reply.items().unwrap_or_default() {
        let [key, entries] = of_key.items().unwrap() else { panic!("{reply:?}") };
        let id = |entry: &Value| (text(key), text(&entry.items().unwrap()[0]));
        all.extend(entries.items().unwrap().iter().map(id));
    }
    all
}
