//! Hazard: a consumer that waits with CLAIM is not woken by an entry that others have left pending for long, gets one
//! that was acknowledged meanwhile, or gets the same one as another consumer.
//!
//! Times are real. A test that a slow machine may overtake begins again with more time ([`in_time`]).

use super::scene::{A_WHILE, Taken, answer, begin, bulk, bulks, id, nil, server, text, wait_for_blocked};
use super::support::resp::{Client, Value};
use super::support::rng::Rng;
use super::support::server::{Server, tern};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// An age that no entry reaches here, in milliseconds.
const LONG: u64 = 600_000;

/// An entry as a reader with CLAIM gets it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Claimed {
    id: String,
    idle: u64,
    deliveries: i64,
}

/// What a reader of the stream k got.
fn claimed(reply: &Value) -> Vec<Claimed> {
    let of_key = reply.items().unwrap_or_else(|| panic!("{reply:?}"))[0].items().unwrap();
    assert_eq!(of_key[0], bulk("k"));
    let one = |entry: &Value| {
        let [id, fields, idle, deliveries] = entry.items().unwrap() else { panic!("{entry:?}") };
        assert_eq!(*fields, bulks(&["f", "v"]));
        Claimed { id: text(id), idle: idle.int().unwrap() as u64, deliveries: deliveries.int().unwrap() }
    };
    of_key[1].items().unwrap().iter().map(one).collect()
}

/// Entries that are new to their reader.
fn new(id: &str) -> Vec<Claimed> {
    vec![Claimed { id: id.to_owned(), idle: 0, deliveries: 0 }]
}

/// Who has which entry, and how often it was delivered.
fn pending(admin: &mut Client) -> Vec<(String, String, i64)> {
    let reply = admin.line("XPENDING k g - + 100");
    let one = |entry: &Value| {
        let [id, who, _, deliveries] = entry.items().unwrap() else { panic!("{entry:?}") };
        (text(id), text(who), deliveries.int().unwrap())
    };
    reply.items().unwrap().iter().map(one).collect()
}

/// A server with a stream k, whose group g has nothing.
fn with_group() -> (Server, Client) {
    let tern = server();
    let mut admin = tern.client();
    admin.line("XGROUP CREATE k g $ MKSTREAM");
    (tern, admin)
}

fn waiting(who: &str, idle: u64, block: u64) -> String {
    format!("XREADGROUP GROUP g {who} BLOCK {block} CLAIM {idle} STREAMS k >")
}

/// Adds entries and delivers them to ann in one transaction: whoever waits finds them pending.
fn leave_with_ann(admin: &mut Client, ids: &[&str]) {
    admin.line("MULTI");
    ids.iter().for_each(|id| drop(admin.line(&format!("XADD k {id} f v"))));
    admin.line("XREADGROUP GROUP g ann STREAMS k >");
    let replies = admin.line("EXEC");
    assert!(replies.items().unwrap().iter().all(|reply| !reply.is_error()), "{replies:?}");
}

/// Tries with ever more milliseconds, until a round says that it was in time.
fn in_time(mut round: impl FnMut(u64) -> bool) {
    assert!([200, 1000, 5000].into_iter().any(&mut round), "the machine is too slow");
}

#[test]
fn an_entry_is_claimed_once_it_is_idle() {
    const IDLE: u64 = 300;
    let (tern, mut admin) = with_group();
    let mut waiter = tern.client();
    // It is there before the reader comes, and comes while the reader waits.
    for (n, is_late) in [(1, false), (2, true)] {
        let id = format!("{n}-1");
        if is_late {
            begin(&mut waiter, &waiting("bob", IDLE, 0));
            wait_for_blocked(&mut admin, 1);
        }
        let since = Instant::now();
        leave_with_ann(&mut admin, &[&id]);
        if !is_late {
            begin(&mut waiter, &waiting("bob", IDLE, 0));
        }
        let got = claimed(&answer(&mut waiter));
        let took = since.elapsed();
        assert_eq!(got, [Claimed { id: id.clone(), idle: got[0].idle, deliveries: 1 }]);
        assert!(got[0].idle >= IDLE && got[0].idle <= took.as_millis() as u64 + 1, "{got:?} in {took:?}");
        assert_eq!(pending(&mut admin), [(id.clone(), "bob".to_owned(), 2)]);
        wait_for_blocked(&mut admin, 0);
        admin.line(&format!("XACK k g {id}"));
    }
}

/// Each entry when its own time has come: those that others have had for less stay.
#[test]
fn the_first_that_is_idle_wakes() {
    in_time(|idle| {
        let (tern, mut admin) = with_group();
        let mut waiter = tern.client();
        begin(&mut waiter, &waiting("bob", idle, 0));
        wait_for_blocked(&mut admin, 1);
        leave_with_ann(&mut admin, &["1-1"]);
        std::thread::sleep(Duration::from_millis(idle / 2));
        let since = Instant::now();
        leave_with_ann(&mut admin, &["2-1"]);
        let got = claimed(&answer(&mut waiter));
        if since.elapsed() >= Duration::from_millis(idle) {
            return false;
        }
        assert_eq!(got, [Claimed { id: "1-1".to_owned(), idle: got[0].idle, deliveries: 1 }]);
        begin(&mut waiter, &waiting("bob", idle, 0));
        let got = claimed(&answer(&mut waiter));
        assert_eq!(got[0], Claimed { id: "2-1".to_owned(), idle: got[0].idle, deliveries: 1 });
        true
    });
}

#[test]
fn a_new_entry_wakes_before_that() {
    let (tern, mut admin) = with_group();
    let mut waiter = tern.client();
    leave_with_ann(&mut admin, &["1-1"]);
    begin(&mut waiter, &waiting("bob", LONG, 0));
    wait_for_blocked(&mut admin, 1);
    assert!(waiter.is_silent(A_WHILE));
    admin.line("XADD k 2-1 f v");
    assert_eq!(claimed(&answer(&mut waiter)), new("2-1"));
    let [ann, bob] = ["ann", "bob"].map(str::to_owned);
    assert_eq!(pending(&mut admin), [("1-1".to_owned(), ann, 1), ("2-1".to_owned(), bob, 1)]);
    // With what is idle it comes behind that.
    admin.line("XADD k 3-1 f v");
    let got = claimed(&waiter.line(&waiting("bob", 0, 0)));
    let ids: Vec<_> = got.iter().map(|one| (&one.id[..], one.deliveries)).collect();
    assert_eq!(ids, [("1-1", 1), ("2-1", 1), ("3-1", 0)]);
}

/// Readers that wait for the same entries get different ones.
#[test]
fn readers_share_what_is_idle() {
    const READERS: usize = 4;
    let (tern, mut admin) = with_group();
    let mut waiters: Vec<Client> = (0..READERS).map(|_| tern.client()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        begin(waiter, &format!("XREADGROUP GROUP g c{n} COUNT 1 BLOCK 0 CLAIM 300 STREAMS k >"));
        wait_for_blocked(&mut admin, n + 1);
    }
    leave_with_ann(&mut admin, &["1-1", "2-1", "3-1", "4-1"]);
    // Who comes so late that an entry is idle again gets it as one that was delivered once more.
    let got: BTreeSet<(String, i64)> = waiters
        .iter_mut()
        .flat_map(|waiter| claimed(&answer(waiter)))
        .map(|one| (one.id, one.deliveries))
        .collect();
    assert_eq!(got.len(), READERS, "{got:?}");
    assert!(got.contains(&("1-1".to_owned(), 1)), "{got:?}");
}

#[test]
fn one_entry_is_one_readers() {
    in_time(|idle| {
        let (tern, mut admin) = with_group();
        let mut waiters = [tern.client(), tern.client()];
        let numbers = [0, 1].map(|n| id(&mut waiters[n]));
        for (n, waiter) in waiters.iter_mut().enumerate() {
            begin(waiter, &waiting(&format!("c{n}"), idle, 0));
            wait_for_blocked(&mut admin, n + 1);
        }
        leave_with_ann(&mut admin, &["1-1"]);
        let (left, mut since) = (Instant::now(), Instant::now());
        let (got, other) = loop {
            assert!(left.elapsed() < Duration::from_secs(60), "nobody claims it");
            match &pending(&mut admin)[..] {
                [(_, who, 1)] if who == "ann" => since = Instant::now(),
                [(_, who, 2)] if who == "c0" => break (0, 1),
                [(_, who, 2)] if who == "c1" => break (1, 0),
                // The other one has claimed it, too.
                [(.., 3..)] => return false,
                strange => panic!("{strange:?}"),
            }
        };
        assert_eq!(admin.line("XACK k g 1-1"), Value::Int(1));
        if since.elapsed() >= Duration::from_millis(idle) {
            return false;
        }
        assert_eq!(claimed(&answer(&mut waiters[got]))[0].deliveries, 1);
        assert!(waiters[other].is_silent(Duration::from_millis(idle) + A_WHILE));
        assert_eq!(admin.line(&format!("CLIENT UNBLOCK {}", numbers[other])), Value::Int(1));
        assert_eq!(answer(&mut waiters[other]), nil());
        true
    });
}

/// What is no longer pending is not given, nor what was deleted; the rest is.
#[test]
fn what_is_acknowledged_or_deleted_meanwhile_is_not_given() {
    for line in [
        "XACK k g 1-1",
        "XDEL k 1-1",
        "XACKDEL k g IDS 1 1-1",
        "XTRIM k MINID 2-1",
        "XGROUP DELCONSUMER k g ann",
        "XCLAIM k g eve 0 1-1 JUSTID",
    ] {
        in_time(|idle| {
            let (tern, mut admin) = with_group();
            let mut waiter = tern.client();
            begin(&mut waiter, &waiting("bob", idle, 0));
            wait_for_blocked(&mut admin, 1);
            let since = Instant::now();
            leave_with_ann(&mut admin, &["1-1"]);
            std::thread::sleep(Duration::from_millis(idle / 2));
            assert!(!admin.line(line).is_error(), "{line}");
            // What eve has got has a time of its own.
            let is_claimed = line.starts_with("XCLAIM");
            if since.elapsed() >= Duration::from_millis(idle * 3 / 4) {
                return false;
            }
            if !waiter.is_silent(Duration::from_millis(if is_claimed { idle / 2 } else { 2 * idle })) {
                assert!(is_claimed && since.elapsed() >= Duration::from_millis(idle * 3 / 2), "{line}");
                return false;
            }
            if is_claimed {
                let got = claimed(&answer(&mut waiter));
                assert_eq!(got, [Claimed { id: "1-1".to_owned(), idle: got[0].idle, deliveries: 1 }]);
                assert!(got[0].idle >= idle, "{got:?}");
                return true;
            }
            wait_for_blocked(&mut admin, 1);
            leave_with_ann(&mut admin, &["2-1"]);
            let got = claimed(&answer(&mut waiter));
            assert_eq!(got, [Claimed { id: "2-1".to_owned(), idle: got[0].idle, deliveries: 1 }], "{line}");
            true
        });
    }
}

#[test]
fn time_passes_for_who_claims() {
    let (tern, mut admin) = with_group();
    let mut waiter = tern.client();
    for (idle, block) in [(LONG, 100), (0, 100), (5, 1), (LONG, 1)] {
        let since = Instant::now();
        assert_eq!(waiter.line(&waiting("bob", idle, block)), nil(), "{idle} {block}");
        assert!(since.elapsed() >= Duration::from_millis(block), "{idle} {block}: {:?}", since.elapsed());
    }
    leave_with_ann(&mut admin, &["1-1"]);
    let since = Instant::now();
    assert_eq!(waiter.line(&waiting("bob", LONG, 150)), nil());
    assert!(since.elapsed() >= Duration::from_millis(150));
    assert_eq!(pending(&mut admin), [("1-1".to_owned(), "ann".to_owned(), 1)]);
    waiter.line("HELLO 3");
    assert_eq!(waiter.line(&waiting("bob", LONG, 1)), Value::Nil(b'_'));
    wait_for_blocked(&mut admin, 0);
}

#[test]
fn waiting_for_what_becomes_idle_ends_with_the_group() {
    let (tern, mut admin) = with_group();
    let mut waiter = tern.client();
    for line in ["XGROUP DESTROY k g", "DEL k", "FLUSHALL"] {
        admin.line("XGROUP CREATE k g 0 MKSTREAM");
        leave_with_ann(&mut admin, &["*"]);
        begin(&mut waiter, &waiting("bob", LONG, 0));
        wait_for_blocked(&mut admin, 1);
        admin.line(line);
        let gone = "NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option";
        assert_eq!(text(&answer(&mut waiter)), gone, "{line}");
    }
}

/// Entries of the test below.
const MANY: usize = 300;

/// Consumers claim what ann has left, and what others of them leave: no delivery of an entry is two consumers', and each
/// entry is acknowledged once.
#[test]
fn no_delivery_is_made_twice() {
    let tern = tern(&["--appendfsync", "no", "--lanes", "4"]);
    let mut admin = tern.client();
    admin.line("XGROUP CREATE k g $ MKSTREAM");
    let (acknowledged, seed) = (Taken::of(MANY), Rng::any_seed());
    let delivered = Mutex::new(BTreeSet::new());
    super::support::say(&format!("waiting: TERN_SEED={seed}"));
    std::thread::scope(|scope| {
        for n in 0..6 {
            let (client, acknowledged, delivered) = (tern.client(), &acknowledged, &delivered);
            let rng = Rng::new(seed + n);
            scope.spawn(move || acknowledged.part(|| claim(client, (acknowledged, delivered), (n, rng))));
        }
        acknowledged.part(|| {
            for n in 1..=MANY / 3 {
                let ids = [1, 2, 3].map(|of_n| format!("{n}-{of_n}"));
                leave_with_ann(&mut admin, &ids.each_ref().map(String::as_str));
            }
        });
    });
    acknowledged.assert_all();
    assert_eq!(pending(&mut admin), []);
}

fn claim(
    mut client: Client,
    (acknowledged, delivered): (&Taken, &Mutex<BTreeSet<(String, i64)>>),
    (n, mut rng): (u64, Rng),
) {
    while !acknowledged.is_over() {
        let (count, idle) = (1 + rng.below(4), rng.below(10));
        let reply =
            client.line(&format!("XREADGROUP GROUP g c{n} COUNT {count} BLOCK 20 CLAIM {idle} STREAMS k >"));
        if reply == nil() {
            continue;
        }
        for Claimed { id, deliveries, .. } in claimed(&reply) {
            let is_first = delivered.lock().unwrap().insert((id.clone(), deliveries));
            assert!(is_first, "{id} was delivered twice after {deliveries} deliveries");
            if rng.below(2) == 0 && client.line(&format!("XACK k g {id}")) == Value::Int(1) {
                acknowledged.take(id);
            }
        }
    }
}
