//! Which commands on the groups of a stream conflict: those whose answers would differ, and few others. And how much of a
//! reply is in memory.

use crate::dispatch::Runner;
use crate::error::{Error, StoreError};
use crate::exec::fixtures::{World, call};
use crate::server::ClientState;
use crate::server::reply::Reply;
use crate::store::Tx;

impl World {
    async fn answer(&self, tx: &Tx, line: &str) -> Reply {
        let mut client = ClientState::new(Default::default(), true);
        let mut runner =
            Runner::new(&self.server, tx, self.env.timeline.now(), self.env.rng()).await.unwrap();
        let reply = runner.call(&call(line), &mut client, &[]).await.unwrap();
        reply.unwrap_or_else(|e| Reply::Error(e.into_reply()))
    }

    /// Whether a command would keep other units of its lane waiting.
    async fn is_heavy(&self, line: &str) -> bool {
        let tx = self.server.store.begin();
        let mut client = ClientState::new(Default::default(), true);
        let mut runner =
            Runner::new(&self.server, &tx, self.env.timeline.now(), self.env.rng()).await.unwrap();
        runner.in_lane = true;
        matches!(runner.call(&call(line), &mut client, &[]).await.unwrap(), Err(Error::TooHeavy))
    }

    async fn apply(&self, line: &str) {
        let tx = self.server.store.begin();
        let reply = self.answer(&tx, line).await;
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
        tx.commit().await.unwrap();
    }
}

/// A stream of three entries, of which a group has delivered two to a consumer and one of these was acknowledged.
const SETUP: [&str; 7] = [
    "flushall",
    "xadd k 1-0 a b",
    "xadd k 2-0 a b",
    "xadd k 3-0 a b",
    "xadd k 4-0 a b",
    "xgroup create k g 0",
    "xreadgroup group g c count 2 streams k >",
];

/// The first command runs, then the second one runs and commits: whether the first one conflicts.
const PAIRS: &[(&str, &str, bool)] = &[
    ("xack k g 1-0", "xack k g 2-0", false),
    ("xack k g 1-0", "xack k g 1-0", true),
    ("xack k g 1-0", "xadd k 9-0 a b", false),
    ("xack k g 1-0", "xdel k 1-0", false),
    ("xack k g 1-0", "xreadgroup group g c streams k >", false),
    ("xack k g 1-0", "xreadgroup group g c streams k 0", true),
    ("xack k g 1-0", "xclaim k g d 0 1-0", true),
    ("xack k g 1-0", "xclaim k g d 0 2-0", false),
    ("xack k g 1-0", "xautoclaim k g d 0 0 count 1", true),
    ("xack k g 1-0", "xackdel k g ids 1 2-0", false),
    ("xack k g 1-0", "xdelex k delref ids 1 1-0", true),
    ("xack k g 1-0", "xgroup setid k g 0", false),
    ("xack k g 1-0", "xgroup create k h 0", false),
    ("xack k g 1-0", "xgroup delconsumer k g c", true),
    ("xack k g 1-0", "xgroup destroy k g", true),
    ("xack k g 1-0", "del k", true),
    ("xack k g 1-0", "rename k j", true),
    ("xack k g 1-0", "set k v", true),
    ("xack k g 1-0", "flushdb", true),
    ("xreadgroup group g c count 2 streams k >", "xadd k 9-0 a b", false),
    ("xreadgroup group g c count 3 streams k >", "xadd k 9-0 a b", true),
    ("xreadgroup group g c streams k >", "xadd k 9-0 a b", true),
    ("xreadgroup group g c count 1 streams k >", "xdel k 3-0", true),
    ("xreadgroup group g c count 1 streams k >", "xdel k 4-0", false),
    ("xreadgroup group g c count 1 streams k >", "xdel k 1-0", false),
    ("xreadgroup group g c count 1 streams k >", "xtrim k maxlen 0", true),
    ("xreadgroup group g c count 1 streams k >", "xreadgroup group g d count 1 streams k >", true),
    ("xreadgroup group g c count 1 streams k >", "xack k g 1-0", false),
    ("xreadgroup group g c count 1 streams k >", "xgroup setid k g 0", true),
    ("xreadgroup group g c count 1 streams k >", "xgroup delconsumer k g c", true),
    // Nobody but c has pending entries: all are cleared at once.
    ("xreadgroup group g d count 1 streams k >", "xgroup delconsumer k g c", true),
    ("xgroup delconsumer k g c", "xreadgroup group g d count 1 streams k >", true),
    ("xreadgroup group g c count 1 streams k >", "xgroup destroy k g", true),
    ("xreadgroup group g c count 1 streams k >", "rename k j", true),
    ("xreadgroup group g c streams k 0", "xadd k 9-0 a b", false),
    ("xreadgroup group g c streams k 0", "xdel k 1-0", true),
    ("xreadgroup group g d streams k 0", "xreadgroup group g c streams k >", false),
    ("xreadgroup group g d count 1 claim 0 streams k >", "xadd k 9-0 a b", false),
    ("xreadgroup group g d count 5 claim 0 streams k >", "xadd k 9-0 a b", true),
    ("xreadgroup group g d count 1 claim 0 streams k >", "xclaim k g e 0 2-0", false),
    ("xreadgroup group g d count 1 claim 0 streams k >", "xclaim k g e 0 2-0 idle 5000", true),
    ("xreadgroup group g d count 1 claim 0 streams k >", "xclaim k g e 0 3-0 force", true),
    ("xclaim k g d 0 1-0", "xdel k 1-0", true),
    ("xclaim k g d 0 1-0", "xclaim k g e 0 1-0", true),
    ("xclaim k g d 0 1-0", "xclaim k g e 0 2-0", false),
    ("xclaim k g d 0 1-0", "xadd k 9-0 a b", false),
    ("xgroup createconsumer k g d", "xgroup createconsumer k g d", true),
    ("xgroup createconsumer k g d", "xgroup createconsumer k g e", false),
    ("xgroup createconsumer k g d", "xgroup destroy k g", true),
    ("xgroup delconsumer k g c", "xack k g 1-0", true),
    ("xgroup create k h $", "xadd k 9-0 a b", true),
    ("xgroup create k h 0", "xgroup create k h 0", true),
    ("xackdel k g acked ids 1 1-0", "xgroup create k h 0", true),
    ("xdelex k acked ids 1 3-0", "xreadgroup group g c streams k >", false),
    ("xdelex k delref ids 1 3-0", "xreadgroup group g c streams k >", true),
];

#[tokio::test]
async fn commands_conflict_where_their_answers_depend_on_each_other() {
    let w = World::new().await;
    let mut wrong = Vec::new();
    for (first, second, conflicts) in PAIRS {
        for line in SETUP {
            w.apply(line).await;
        }
        let tx = w.server.store.begin();
        w.answer(&tx, first).await;
        w.apply(second).await;
        let ended = tx.commit().await;
        assert!(ended.is_ok() || ended == Err(StoreError::Conflict), "{ended:?}");
        if ended.is_err() != *conflicts {
            wrong.push((first, second));
        }
        assert_eq!(w.problems().await, Vec::<String>::new(), "{first}, {second}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

async fn answers(w: &World, line: &str) -> Reply {
    let tx = w.server.store.begin();
    w.answer(&tx, line).await
}

/// Hazard: the first entries are small, and those that follow are all in memory at once.
#[tokio::test]
async fn many_bytes_are_read_while_they_are_sent() {
    let (w, long) = (World::new().await, "y".repeat(100_000));
    for n in 1..=64 {
        w.apply(&format!("xadd k {n}-0 a b")).await;
    }
    for n in 65..=70 {
        w.apply(&format!("xadd k {n}-0 a {long}")).await;
    }
    for (line, are_many) in [
        ("xrange k - + count 70", true),
        ("xrevrange k + - count 3", true),
        ("xrange k 60 +", true),
        ("xrange k - + count 64", false),
        ("xrevrange k 64 -", false),
    ] {
        assert_eq!(matches!(answers(&w, line).await, Reply::Items(_)), are_many, "{line}");
    }
    let Reply::Keyed(found) = answers(&w, "xread count 70 streams k 0").await else { panic!("no stream") };
    assert!(matches!(found[..], [(_, Reply::Items(_))]));
}

/// Hazard: a reply that cannot be read while it is sent takes all memory.
#[tokio::test]
async fn replies_in_memory_are_bounded() {
    const MANY: u64 = 6000;
    let (w, long) = (World::new().await, "y".repeat(100_000));
    let refused = async |line: &str| match answers(&w, line).await {
        Reply::Error(e) => assert!(e.0.starts_with("ERR the reply has more bytes"), "{line}: {}", e.0),
        other => panic!("{line}: {other:?}"),
    };
    w.apply("config set proto-max-bulk-len 1048576").await;
    for n in 1..=MANY {
        w.apply(&format!("xadd k {n}-0 a b")).await;
    }
    for line in ["xgroup create k g 0", "xgroup create k h 0", "xreadgroup group g c streams k >"] {
        w.apply(line).await;
    }
    w.apply("xpending k g - + 1000").await;
    w.apply("xinfo stream k full").await;
    for line in ["xpending k g - + 6000", "xpending k g - + 6000 c", "xinfo stream k full count 0"] {
        refused(line).await;
    }
    let name = "c".repeat(8000);
    for n in 0..150 {
        w.apply(&format!("xgroup createconsumer k h {name}{n}")).await;
        w.apply(&format!("xgroup create k {name}{n} 0")).await;
    }
    for line in ["xinfo consumers k h", "xinfo groups k", "xinfo stream k full count 1"] {
        refused(line).await;
    }
    // What the transaction has changed cannot be read by another.
    for n in 1..=12 {
        w.apply(&format!("xadd two {n}-0 a {long}")).await;
        w.apply(&format!("xadd three {n}-0 a {long}")).await;
    }
    let tx = w.server.store.begin();
    for line in ["xadd two 99-0 a b", "xadd three 99-0 a b"] {
        w.answer(&tx, line).await;
    }
    let few = w.answer(&tx, "xread count 4 streams two three 0 0").await;
    assert!(matches!(few, Reply::Keyed(_)), "{few:?}");
    for line in ["xrange two - +", "xread count 7 streams two three 0 0"] {
        let reply = w.answer(&tx, line).await;
        assert!(matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    }
}

/// Hazard: others wait while the long names of many groups or consumers are read, or all of these are in memory.
#[tokio::test]
async fn many_names_are_read_beside_the_lanes() {
    let (w, name) = (World::new().await, "n".repeat(8000));
    for key in ["consumers", "groups"] {
        w.apply(&format!("xadd {key} 1-0 a b")).await;
        w.apply(&format!("xgroup create {key} g 0")).await;
        w.apply(&format!("xreadgroup group g c streams {key} >")).await;
    }
    for n in 0..150 {
        w.apply(&format!("xgroup createconsumer consumers g {name}{n}")).await;
        w.apply(&format!("xgroup create groups {name}{n} 0")).await;
    }
    for (line, is_heavy) in [
        ("xpending consumers g", true),
        ("xpending consumers g - + 10", true),
        ("xpending consumers g - + 10 c", false),
        ("xinfo consumers consumers g", true),
        ("xinfo groups consumers", true),
        ("xinfo groups groups", true),
        ("xinfo stream consumers", false),
        ("xinfo stream consumers full", true),
        ("xinfo stream groups", true),
        ("xinfo stream groups full", true),
        ("xdelex groups acked ids 1 9-0", true),
        ("xdelex groups ids 1 9-0", false),
        ("xtrim groups maxlen 0 delref", true),
        ("xtrim groups maxlen 0 acked", true),
        ("dump consumers", true),
        ("dump groups", true),
    ] {
        assert_eq!(w.is_heavy(line).await, is_heavy, "{line}");
    }
    w.apply("config set proto-max-bulk-len 1048576").await;
    // The names of those that have nothing are not part of the reply.
    for line in ["xpending consumers g", "xpending consumers g - + 10", "xinfo groups consumers"] {
        let reply = answers(&w, line).await;
        assert!(matches!(&reply, Reply::Array(_)), "{line}: {reply:?}");
    }
    for line in ["dump consumers", "dump groups"] {
        let reply = answers(&w, line).await;
        assert!(matches!(&reply, Reply::Error(e) if e.0.contains("proto-max-bulk-len")), "{line}: {reply:?}");
    }
}

/// Hazard: the first stream of a call is weighed, and the claims of those behind it look at very many entries in the lane.
#[tokio::test]
async fn claims_of_all_streams_are_weighed() {
    const MANY: u64 = 10_000;
    let w = World::new().await;
    for key in ["a", "b"] {
        w.add_entries(key, MANY).await;
        w.apply(&format!("xgroup create {key} g 0")).await;
        w.apply(&format!("xreadgroup group g c streams {key} >")).await;
    }
    for (line, is_heavy) in [
        ("xreadgroup group g d count 1 claim 0 streams a >", false),
        ("xreadgroup group g d count 1 claim 0 streams a b > >", true),
        ("xreadgroup group g d count 1 claim 0 streams a b > 0", false),
        ("xreadgroup group g d count 1 streams a b > >", false),
    ] {
        assert_eq!(w.is_heavy(line).await, is_heavy, "{line}");
    }
}
