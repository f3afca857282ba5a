//! A social graph on sets, as an example and a test: users follow each other, stored in both directions.
//!
//! ```text
//! out:<a>      the users that a follows    in:<b>       the users that follow b
//! edge:<a>:<b> the newest request about the edge, "<timestamp> <+ or ->"
//! followees:<a>, followers:<b>             the degrees as counters, as a page would show them
//! ```
//! A request names its edge, its time, and whether it adds or removes. WATCH of the edge's record and one
//! MULTI that updates the record, both sets and both counters apply it. A request that is not newer than the
//! record is dropped: so a retry does nothing, and requests may arrive in any order.
//!
//! Writers on several servers compete for the same edges while the store fails now and then, clients leave in
//! the middle, and every unanswered request is sent again to another server. Readers always see both
//! directions agree; at the end every edge shows its newest request, and the degrees are those of the sets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;
#[allow(clippy::duplicate_mod, reason = "a test may use several of the rigs")]
mod fdb_cluster;

use bytes::Bytes;
use cluster::{Cluster, units};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tern::env::Rng;
use tern::exec::Unit;
use tern::keyspace::packed::Packed;
use tern::server::reply::Reply;
use tern::store::faulty::FaultRates;
use tern::types::set::stream::Pieces;

const SERVERS: usize = 3;
const PEOPLE: u64 = 6;
const WRITERS: u64 = 6;
const REQUESTS: u64 = 60;

/// Every second one has a name too long for a set in a record.
fn person(n: u64) -> String {
    if n.is_multiple_of(2) { format!("p{n}") } else { format!("at://did:plc:{n:060}") }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    time: u64,
    from: u64,
    to: u64,
    follows: bool,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Applied,
    /// Superseded by a newer request or an earlier attempt of itself.
    Dropped,
    /// Another client changed the edge meanwhile, or the result is unknown.
    TryAgain,
}

async fn cluster() -> Cluster {
    #[cfg(feature = "fdb")]
    if fdb_cluster::wanted() {
        let mut c = Cluster::on(fdb_cluster::fresh().await);
        for _ in 0..SERVERS {
            c.join(tern::env::Env::system()).await;
        }
        return c;
    }
    Cluster::on_system_clock(SERVERS).await
}

fn unit(lines: &[String]) -> Unit {
    Unit { exec: true, ..units::pipeline(lines) }
}

/// MULTI of these lines.
async fn exec(c: &Cluster, server: usize, lines: &[String]) -> Vec<Reply> {
    c.members[server].exec.run(unit(lines)).await.replies.unwrap()
}

/// The time and the kind of the newest request about an edge.
fn newest(record: &Reply) -> Option<(u64, bool)> {
    let Reply::Bulk(record) = record else { return None };
    let text = std::str::from_utf8(record).unwrap();
    Some((text[..text.len() - 1].parse().unwrap(), text.ends_with('+')))
}

/// The changes of a request, given the edge before.
fn changes(r: &Request, before: bool) -> Vec<String> {
    let (a, b) = (person(r.from), person(r.to));
    let mut lines = vec![format!("SET edge:{a}:{b} {}{}", r.time, if r.follows { '+' } else { '-' })];
    if r.follows != before {
        let (name, by) = if r.follows { ("SADD", 1) } else { ("SREM", -1) };
        lines.push(format!("{name} out:{a} {b}"));
        lines.push(format!("{name} in:{b} {a}"));
        lines.push(format!("INCRBY followees:{a} {by}"));
        lines.push(format!("INCRBY followers:{b} {by}"));
    }
    lines
}

/// One attempt at a request on one server.
async fn attempt(c: &Cluster, server: usize, r: &Request) -> Outcome {
    let record = format!("edge:{}:{}", person(r.from), person(r.to));
    let key = Bytes::from(record.clone());
    let Ok(watches) = c.members[server].exec.watch(0, &[key]).await else { return Outcome::TryAgain };
    let before = match c.line(server, &format!("GET {record}")).await {
        Reply::Error(_) => return Outcome::TryAgain,
        found => newest(&found),
    };
    if before.is_some_and(|(time, _)| time >= r.time) {
        return Outcome::Dropped;
    }
    let lines = changes(r, before.is_some_and(|(_, follows)| follows));
    match c.members[server].exec.run(Unit { watches, ..unit(&lines) }).await.replies {
        None => Outcome::TryAgain,
        Some(replies) if replies.iter().any(|r| matches!(r, Reply::Error(_))) => Outcome::TryAgain,
        Some(replies) => {
            let all = replies.iter().skip(1).take(2).all(|r| *r == Reply::Int(1));
            assert!(all, "{r:?} must find both directions: {replies:?}");
            Outcome::Applied
        }
    }
}

/// Repeats a request until it is answered. Clients leave in the middle, so that the result of an attempt is
/// unknown.
async fn request(c: Arc<Cluster>, rng: &mut Rng, r: Request) -> u64 {
    let mut dropped = 0;
    loop {
        let server = rng.below(SERVERS as u64) as usize;
        let patience =
            if rng.below(5) == 0 { Duration::from_micros(rng.below(3_000)) } else { Duration::from_secs(60) };
        match tokio::time::timeout(patience, attempt(&c, server, &r)).await {
            Ok(Outcome::Applied) => return dropped,
            Ok(Outcome::Dropped) => dropped += 1,
            Ok(Outcome::TryAgain) | Err(_) => continue,
        }
        // Like a client that did not receive the reply.
        if rng.below(4) > 0 {
            return dropped;
        }
    }
}

async fn write(c: Arc<Cluster>, writer: u64, clock: Arc<AtomicU64>) -> (Vec<Request>, u64) {
    let mut rng = Rng::seeded(writer);
    let (mut sent, mut late, mut dropped): (Vec<Request>, Vec<Request>, u64) = (Vec::new(), Vec::new(), 0);
    while (sent.len() as u64) < REQUESTS {
        let time = clock.fetch_add(1, Ordering::Relaxed);
        let (from, to) = (rng.below(PEOPLE), rng.below(PEOPLE));
        let r = Request { time, from, to, follows: rng.below(3) > 0 };
        // Some requests are sent much later than they were made.
        if rng.below(4) == 0 {
            late.push(r);
            continue;
        }
        dropped += request(c.clone(), &mut rng, r).await;
        sent.push(r);
    }
    for r in late {
        dropped += request(c.clone(), &mut rng, r).await;
        sent.push(r);
    }
    (sent, dropped)
}

/// Reads both directions, the counters and the record of an edge at one version: they agree at any time.
async fn read(c: Arc<Cluster>, seed: u64, stop: Arc<AtomicBool>) -> u64 {
    let (mut rng, mut seen) = (Rng::seeded(seed), 0);
    while !stop.load(Ordering::Relaxed) {
        let (a, b) = (person(rng.below(PEOPLE)), person(rng.below(PEOPLE)));
        let lines = [
            format!("GET edge:{a}:{b}"),
            format!("SISMEMBER out:{a} {b}"),
            format!("SISMEMBER in:{b} {a}"),
            format!("SCARD out:{a}"),
            format!("GET followees:{a}"),
            format!("SCARD in:{b}"),
            format!("GET followers:{b}"),
        ];
        let replies = exec(&c, rng.below(SERVERS as u64) as usize, &lines).await;
        if replies.iter().any(|r| matches!(r, Reply::Error(_))) {
            continue;
        }
        let there = Reply::Int(newest(&replies[0]).is_some_and(|(_, follows)| follows).into());
        assert_eq!((&replies[1], &replies[2]), (&there, &there), "{a} and {b}: {replies:?}");
        for (card, counter) in [(&replies[3], &replies[4]), (&replies[5], &replies[6])] {
            assert_eq!(number(card), number(counter), "degrees of {a} and {b}: {replies:?}");
        }
        seen += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    seen
}

fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(n) => *n,
        Reply::Nil => 0,
        Reply::Bulk(raw) => std::str::from_utf8(raw).unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn names(c: &Cluster, line: &str) -> BTreeSet<String> {
    let text = |raw: &[u8]| String::from_utf8(raw.to_vec()).unwrap();
    match c.line(0, line).await {
        Reply::Set(all) | Reply::Array(all) => all
            .iter()
            .map(|r| match r {
                Reply::Bulk(raw) => text(raw),
                other => panic!("{other:?}"),
            })
            .collect(),
        Reply::Members(members) => {
            let (mut unread, mut all, mut piece) =
                (Pieces::new(*members), BTreeSet::new(), Packed::default());
            while !unread.is_done() {
                unread.next(&c.space(0).store, &mut piece).await.unwrap();
                for raw in piece.iter() {
                    all.insert(text(raw));
                }
            }
            all
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_directions_agree_and_every_edge_shows_its_newest_request() {
    let c = Arc::new(cluster().await);
    c.faulty.set_rates(FaultRates { too_old_read: 0.002, ..FaultRates::mixed() });
    let (clock, stop) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
    let reader = tokio::spawn(read(c.clone(), 99, stop.clone()));
    let writers: Vec<_> = (0..WRITERS).map(|n| tokio::spawn(write(c.clone(), n, clock.clone()))).collect();
    let (mut all, mut dropped) = (Vec::new(), 0);
    for writer in writers {
        let (sent, more) = writer.await.unwrap();
        all.extend(sent);
        dropped += more;
    }
    stop.store(true, Ordering::Relaxed);
    let seen = reader.await.unwrap();
    println!("{} requests, {dropped} dropped as old, {seen} looks, {:?}", all.len(), c.faulty.counts());
    assert!(dropped > 0 && seen > 0);
    c.faulty.set_rates(FaultRates::default());
    // A request whose client gave up may still be under way.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut edges: BTreeMap<(u64, u64), Request> = BTreeMap::new();
    for r in all {
        let newest = edges.entry((r.from, r.to)).or_insert(r);
        *newest = r.max(*newest);
    }
    let (mut out, mut into): (Vec<_>, Vec<_>) =
        (0..PEOPLE).map(|_| (BTreeSet::new(), BTreeSet::new())).unzip();
    for (r, (from, to)) in edges.values().map(|r| (r, (r.from, r.to))) {
        let record = c.line(0, &format!("GET edge:{}:{}", person(from), person(to))).await;
        assert_eq!(newest(&record), Some((r.time, r.follows)), "{r:?}");
        if r.follows {
            out[from as usize].insert(person(to));
            into[to as usize].insert(person(from));
        }
    }
    for n in 0..PEOPLE {
        let (p, at) = (person(n), n as usize);
        assert_eq!(names(&c, &format!("SMEMBERS out:{p}")).await, out[at]);
        assert_eq!(names(&c, &format!("SMEMBERS in:{p}")).await, into[at]);
        assert_eq!(number(&c.line(0, &format!("GET followees:{p}")).await), out[at].len() as i64);
        assert_eq!(number(&c.line(0, &format!("GET followers:{p}")).await), into[at].len() as i64);
    }
    c.assert_sound().await;
}

#[tokio::test]
async fn a_duplicate_or_late_request_does_nothing() {
    let c = cluster().await;
    let request = |time, follows| Request { time, from: 0, to: 1, follows };
    for server in [0, 1] {
        let outcome = attempt(&c, server, &request(10, true)).await;
        assert_eq!(outcome, if server == 0 { Outcome::Applied } else { Outcome::Dropped });
    }
    assert_eq!(attempt(&c, 1, &request(5, false)).await, Outcome::Dropped);
    assert_eq!(c.line(2, &format!("SISMEMBER in:{} {}", person(1), person(0))).await, Reply::Int(1));
    assert_eq!(attempt(&c, 2, &request(11, false)).await, Outcome::Applied);
    assert_eq!(attempt(&c, 0, &request(10, true)).await, Outcome::Dropped);
    assert_eq!(c.line(0, &format!("EXISTS out:{} in:{}", person(0), person(1))).await, Reply::Int(0));
}

/// A graph of 300 users, in which `n` follows the multiples of some numbers; each question is one command,
/// compared with sets in memory.
#[tokio::test]
async fn questions_about_a_graph_are_one_command_each() {
    const ALL: u64 = 300;
    let c = cluster().await;
    let follows = |a: u64, b: u64| a != b && ((a * 7 + b * 13) % 11 < 4 || a + b == ALL);
    let out = |a: u64| (0..ALL).filter(move |b| follows(a, *b)).map(person).collect::<BTreeSet<_>>();
    let into = |b: u64| (0..ALL).filter(move |a| follows(*a, b)).map(person).collect::<BTreeSet<_>>();
    for n in 0..ALL {
        for (name, set) in [("out", out(n)), ("in", into(n))] {
            c.line(0, &format!("SADD {name}:{} {}", person(n), Vec::from_iter(set).join(" "))).await;
        }
    }
    let (me, x) = (person(3), person(8));
    let (mine, xs) = (out(3), into(8));
    let also: BTreeSet<String> = mine.intersection(&xs).cloned().collect();
    assert!(also.len() > 10, "{also:?}");
    assert_eq!(
        names(&c, &format!("SINTER out:{me} in:{x}")).await,
        also,
        "users that I follow and that follow x"
    );
    let count = c.line(1, &format!("SINTERCARD 2 out:{me} in:{x} LIMIT 5")).await;
    assert_eq!(count, Reply::Int(5), "followed by five of the users that you follow");
    let mutuals: BTreeSet<String> = mine.intersection(&into(3)).cloned().collect();
    assert_eq!(names(&c, &format!("SINTER out:{me} in:{me}")).await, mutuals, "mutuals");
    let strangers: BTreeSet<String> = xs.difference(&mine).cloned().collect();
    assert_eq!(
        names(&c, &format!("SDIFF in:{x} out:{me}")).await,
        strangers,
        "followers of x that I do not follow"
    );
    // Friends of friends: one command for the union, and one in the same MULTI for the difference.
    let friends: Vec<u64> = (0..ALL).filter(|b| follows(3, *b)).take(20).collect();
    let mut theirs: BTreeSet<String> = friends.iter().flat_map(|f| out(*f)).collect();
    let keys: Vec<String> = friends.iter().map(|f| format!("out:{}", person(*f))).collect();
    assert_eq!(names(&c, &format!("SUNION {}", keys.join(" "))).await, theirs, "friends of friends");
    let lines = [
        format!("SUNIONSTORE reach {}", keys.join(" ")),
        format!("SDIFFSTORE reach reach out:{me}"),
        "SCARD reach".into(),
    ];
    let replies = exec(&c, 2, &lines).await;
    theirs.retain(|p| !mine.contains(p));
    assert_eq!(number(&replies[2]), theirs.len() as i64);
    assert_eq!(names(&c, "SMEMBERS reach").await, theirs, "minus friends");
}
