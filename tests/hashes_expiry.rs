//! Fields of hashes that expire, on a manual clock: when they are gone, for whom, and what the job removes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::{Rig, START};
use std::collections::BTreeMap;
use tern::env::Rng;
use tern::keyspace::keys::SHARDS;
use tern::lifecycle::expire::{Expired, Swept, sweep};
use tern::server::reply::Reply;
use tern::store::{RangeOptions, Read};

/// A reply in one line; maps are sorted.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Int(n) => n.to_string(),
        Reply::Bulk(b) => String::from_utf8_lossy(b).into_owned(),
        Reply::Nil => "nil".into(),
        Reply::Ok => "OK".into(),
        Reply::Simple(s) => s.to_string(),
        Reply::Error(e) => e.0.to_string(),
        Reply::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Reply::Map(pairs) => {
            let mut pairs: Vec<String> =
                pairs.iter().map(|(f, v)| format!("{}={}", shown(f), shown(v))).collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// Runs lines of `command -> reply`; `+ms` moves the clock, `sweep` runs the job.
async fn check(rig: &mut Rig, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some(ms) = line.strip_prefix('+') {
            rig.advance(ms.parse().unwrap());
            continue;
        }
        if line == "sweep" {
            sweep_all(rig).await;
            continue;
        }
        let (command, want) = line.split_once(" -> ").unwrap();
        assert_eq!(shown(&rig.line(command).await), want, "{command}");
    }
    rig.assert_sound().await;
}

async fn sweep_all(rig: &Rig) -> Swept {
    let mut total = Swept::default();
    for shard in 0..SHARDS {
        let swept = sweep(rig.space(), rig.client.db, shard, 1000, &mut Expired::default()).await.unwrap();
        total.removed += swept.removed;
        total.fields += swept.fields;
        total.stale += swept.stale;
        total.more |= swept.more;
    }
    total
}

/// Rows of the database with a tag.
async fn rows(rig: &Rig, tag: u8) -> usize {
    let db = rig.prefix().await;
    let (from, to) = ([db.as_bytes(), &[tag]].concat(), [db.as_bytes(), &[tag + 1]].concat());
    let tx = rig.server.store.begin();
    tx.get_range(&from, &to, RangeOptions::default(), Read::Snapshot).await.unwrap().pairs.len()
}

/// Fields of a hash that exceeds a record.
const FILLERS: usize = 600;

async fn fill(rig: &mut Rig, key: &str) {
    let mut argv = vec!["hset".to_owned(), key.to_owned()];
    argv.extend((0..FILLERS).flat_map(|n| [format!("filler:{n}"), "f".into()]));
    assert_eq!(rig.run(&argv).await, Reply::Int(FILLERS as i64));
}

#[tokio::test]
async fn a_field_is_gone_at_its_millisecond_for_every_command() {
    let mut rig = Rig::new().await;
    check(
        &mut rig,
        "hset h a 1 b 22 c 3 -> 3
         hpexpire h 1000 FIELDS 2 a c -> [1 1]
         object encoding h -> listpackex
         +999
         hget h a -> 1
         hpttl h FIELDS 3 a b x -> [1 -1 -2]
         hlen h -> 3
         +1
         hget h a -> nil
         hmget h a b c -> [nil 22 nil]
         hgetall h -> {b=22}
         hkeys h -> [b]
         hvals h -> [22]
         hlen h -> 1
         hexists h a -> 0
         hstrlen h a -> 0
         hscan h 0 -> [0 [b 22]]
         hrandfield h 5 -> [b]
         hrandfield h -3 -> [b b b]
         hpttl h FIELDS 1 a -> [-2]
         hpersist h FIELDS 1 a -> [-2]
         hexpire h 10 FIELDS 1 a -> [-2]
         hdel h a c -> 0
         hsetnx h a 5 -> 1
         hincrby h c 7 -> 7
         hpttl h FIELDS 2 a c -> [-1 -1]
         hlen h -> 3
         sweep
         hgetall h -> {a=5 b=22 c=7}",
    )
    .await;
    assert_eq!(rows(&rig, b'X').await, 0, "no field expires any more");
}

#[tokio::test]
async fn a_hash_goes_with_its_last_field() {
    let mut rig = Rig::new().await;
    check(
        &mut rig,
        "hset h a 1 b 2 -> 2
         hpexpire h 100 FIELDS 1 a -> [1]
         hpexpire h 200 FIELDS 1 b -> [1]
         +150
         exists h -> 1
         hlen h -> 1
         +50
         exists h -> 0
         type h -> none
         hlen h -> 0
         hgetall h -> {}
         keys * -> []
         scan 0 -> [0 []]
         dbsize -> 1",
    )
    .await;
    assert_eq!(sweep_all(&rig).await, Swept { removed: 1, fields: 0, stale: 0, more: false });
    assert_eq!((rows(&rig, b'K').await, rows(&rig, b'X').await), (0, 0));
    check(
        &mut rig,
        "dbsize -> 0
         hsetex h px 10 FIELDS 1 a 1 -> 1
         +10
         hset h b 1 -> 1
         hgetall h -> {b=1}
         dbsize -> 1
         hsetex h px 10 FIELDS 1 b 1 -> 1
         +10
         set h x -> OK
         get h -> x",
    )
    .await;
}

#[tokio::test]
async fn the_job_removes_what_is_due_and_finds_the_next() {
    let mut rig = Rig::new().await;
    fill(&mut rig, "h").await;
    for n in 0..300 {
        let line = format!("hpexpire h {} FIELDS 1 filler:{n}", 1000 + n);
        assert_eq!(shown(&rig.line(&line).await), "[1]");
    }
    assert_eq!(rows(&rig, b'X').await, 1);
    check(&mut rig, "hlen h -> 600\n+1099\nhlen h -> 500").await;
    let before = rows(&rig, b'H').await;
    assert_eq!(sweep_all(&rig).await, Swept { fields: 100, ..Swept::default() });
    assert_eq!(before - rows(&rig, b'H').await, 200, "a row of the field and one of the index");
    assert_eq!(rows(&rig, b'X').await, 1);
    check(&mut rig, "hlen h -> 500\nhpersist h FIELDS 1 filler:299 -> [1]\n+10000\nhlen h -> 301\nsweep")
        .await;
    assert_eq!(rows(&rig, b'X').await, 0);
    check(&mut rig, "hlen h -> 301\nhget h filler:299 -> f\nhget h filler:298 -> nil").await;
}

#[tokio::test]
async fn many_fields_are_removed_in_steps() {
    let mut rig = Rig::new().await;
    for from in [0, 5000] {
        let mut argv = vec!["hsetex".to_owned(), "h".into(), "px".into(), "10".into(), "fields".into()];
        argv.push("5000".into());
        argv.extend((from..from + 5000).flat_map(|n| [format!("field:{n}"), "x".into()]));
        assert_eq!(rig.run(&argv).await, Reply::Int(1));
    }
    check(
        &mut rig,
        "hset h stays x -> 1\n+10\nhlen h -> 1\nhgetall h -> {stays=x}\nhrandfield h 2 -> [stays]",
    )
    .await;
    let mut removed = 0;
    loop {
        let swept = sweep_all(&rig).await;
        removed += swept.fields;
        if !swept.more {
            break;
        }
    }
    assert_eq!(removed, 10_000);
    assert_eq!((rows(&rig, b'H').await, rows(&rig, b'X').await), (1, 0));
    check(&mut rig, "hlen h -> 1\nhgetall h -> {stays=x}").await;
}

#[tokio::test]
async fn conditions_and_times() {
    let mut rig = Rig::new().await;
    let at = START / 1000 + 100;
    check(
        &mut rig,
        &format!(
            "hset h a 1 b 2 -> 2
             hexpire h 10 XX FIELDS 2 a x -> [0 -2]
             hexpire h 10 GT FIELDS 1 a -> [0]
             hexpire h 10 LT FIELDS 1 a -> [1]
             hexpire h 10 NX FIELDS 2 a b -> [0 1]
             hexpire h 20 LT FIELDS 1 a -> [0]
             hexpire h 20 gt FIELDS 1 a -> [1]
             hexpire h 20 GT FIELDS 1 a -> [0]
             httl h fields 2 a b -> [20 10]
             hexpireat h {at} XX FIELDS 1 a -> [1]
             hexpiretime h FIELDS 1 a -> [{at}]
             hpexpiretime h FIELDS 3 a b x -> [{at}000 {b} -2]
             +1
             httl h FIELDS 1 a -> [100]
             hpttl h FIELDS 1 a -> [99999]
             hpexpireat h 5 FIELDS 2 a a -> [2 -2]
             hexists h a -> 0
             hexpire h 0 FIELDS 1 b -> [2]
             exists h -> 0
             httl h FIELDS 1 a -> [-2]
             hexpire h 10 FIELDS 2 a b -> [-2 -2]
             hpersist h FIELDS 1 a -> [-2]",
            b = START + 10_000
        ),
    )
    .await;
}

#[tokio::test]
async fn wrong_arguments() {
    let mut rig = Rig::new().await;
    check(
        &mut rig,
        "set t x -> OK
         hset h a 1 -> 1
         hexpire t 10 FIELDS 1 a -> WRONGTYPE Operation against a key holding the wrong kind of value
         httl t FIELDS 1 a -> WRONGTYPE Operation against a key holding the wrong kind of value
         hgetex t ZZ FIELDS 1 a -> WRONGTYPE Operation against a key holding the wrong kind of value
         hsetex t FIELDS 1 a b -> WRONGTYPE Operation against a key holding the wrong kind of value
         hexpire h x FIELDS 1 a -> ERR value is not an integer or out of range
         hexpire h -1 FIELDS 1 a -> ERR invalid expire time, must be >= 0
         hexpire h 99999999999 FIELDS 1 a -> ERR invalid expire time in 'hexpire' command
         hexpire h 10 FIELD 1 a -> ERR unknown argument: FIELD
         hexpire h 10 EX FIELDS 1 a -> ERR unknown argument: EX
         hexpire h 10 NX GT FIELDS 1 a -> ERR Multiple condition flags specified
         hexpire h 10 NX GT XX -> ERR missing FIELDS argument
         hexpire h 10 NX NX NX -> ERR missing FIELDS argument
         hexpire h 10 FIELDS 0 a -> ERR Parameter `numFields` should be greater than 0
         hexpire h 10 FIELDS 2 a -> ERR wrong number of arguments
         hexpire h 10 FIELDS 1 a b -> ERR unknown argument: b
         hexpire h 10 NX FIELDS 1 -> ERR FIELDS requires at least numfields and one field argument
         hexpire h 10 FIELDS 1 a FIELDS 1 b -> ERR FIELDS keyword specified multiple times
         httl h FIELDS 0 a -> ERR Number of fields must be a positive integer
         httl h FIELDS 1 a FIELDS -> ERR The `numfields` parameter must match the number of arguments
         hpersist h FIELDS x a -> ERR Number of fields must be a positive integer
         hgetdel h FIELD 1 a -> ERR Mandatory argument FIELDS is missing or not at the right position
         hgetdel h FIELDS 2 a -> ERR The `numfields` parameter must match the number of arguments
         hgetex h EX 10 a 1 b -> ERR unknown argument: a
         hgetex h EX -1 FIELDS 1 a -> ERR invalid expire time, must be >= 0
         hgetex h EX 10 PERSIST FIELDS 1 a -> ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified
         hgetex h FIELDS 1 a EX -> ERR missing expire time
         hgetex h KEEPTTL FIELDS 1 a -> ERR unknown argument
         hgetex h NX FIELDS 1 a -> ERR unknown argument: NX
         hsetex h FNX FXX FIELDS 1 a b -> ERR Only one of FXX or FNX arguments can be specified
         hsetex h EX 10 KEEPTTL FIELDS 1 a b -> ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified
         hsetex h FOO FIELDS 1 a b -> ERR unknown argument: FOO
         hsetex h PERSIST FIELDS 1 a b -> ERR unknown argument
         hsetex h FNX FIELDS 0 a b -> ERR invalid number of fields
         hsetex h FNX FIELDS 2 a b -> ERR wrong number of arguments
         hsetex h FIELDS 1 a 2 b -> ERR unknown argument: b
         hgetex h EX 10 FIELDS 1 -> ERR wrong number of arguments
         hsetex h EX 10 FIELDS x -> ERR invalid number of fields
         httl h FIELDS 1 a -> [-1]
         hexpire h 100 FIELDS 1 a NX -> [1]
         hgetex h FIELDS 1 a PERSIST -> [1]
         hsetex h FIELDS 1 a 1 EX 100 -> 1
         httl h FIELDS 1 a -> [100]
         hgetall h -> {a=1}",
    )
    .await;
}

#[tokio::test]
async fn a_write_drops_or_keeps_the_expiry() {
    let mut rig = Rig::new().await;
    check(
        &mut rig,
        "hset h a 1 b 1 c 1 -> 3
         hexpire h 10 FIELDS 3 a b c -> [1 1 1]
         hset h a 2 -> 0
         hincrby h b 2 -> 3
         hincrbyfloat h c 0.5 -> 1.5
         httl h FIELDS 3 a b c -> [-1 10 10]
         hsetex h KEEPTTL FIELDS 2 a 1 b 1 -> 1
         httl h FIELDS 2 a b -> [-1 10]
         hsetex h FIELDS 1 b 1 -> 1
         httl h FIELDS 1 b -> [-1]
         hpersist h FIELDS 3 a c x -> [-1 1 -2]
         httl h FIELDS 1 c -> [-1]
         hsetex h FNX EX 5 FIELDS 2 a 9 z 9 -> 0
         hsetex h FXX EX 5 FIELDS 2 a 9 z 9 -> 0
         hsetex none FXX EX 5 FIELDS 1 a 9 -> 0
         hsetex h FXX EX 5 FIELDS 2 a 9 b 9 -> 1
         hsetex h FNX PX 5000 FIELDS 1 z 9 -> 1
         httl h FIELDS 4 a b c z -> [5 5 -1 5]
         hsetex h PXAT 1 FIELDS 2 a 1 new 1 -> 1
         hgetall h -> {b=9 c=1.5 z=9}
         hsetex gone PXAT 1 FIELDS 1 a 1 -> 1
         exists gone -> 0",
    )
    .await;
}

#[tokio::test]
async fn values_are_taken_and_times_moved() {
    let mut rig = Rig::new().await;
    check(
        &mut rig,
        "hset h a 1 b 2 c 3 -> 3
         hgetex h FIELDS 2 a x -> [1 nil]
         hgetex h EX 10 FIELDS 2 a x -> [1 nil]
         httl h FIELDS 2 a b -> [10 -1]
         hgetex h PERSIST FIELDS 2 a b -> [1 2]
         httl h FIELDS 1 a -> [-1]
         hgetex h PXAT 1 FIELDS 2 a a -> [1 nil]
         hgetdel h FIELDS 3 b b x -> [2 nil nil]
         hgetall h -> {c=3}
         hgetex h px 10 FIELDS 1 c -> [3]
         +10
         hgetdel h FIELDS 1 c -> [nil]
         hgetdel none FIELDS 1 c -> [nil]
         hgetex none FIELDS 1 c -> [nil]
         hset h d 1 -> 1
         hgetdel h FIELDS 1 d -> [1]
         exists h -> 0",
    )
    .await;
}

#[tokio::test]
async fn expiries_move_with_their_hash() {
    let mut rig = Rig::new().await;
    fill(&mut rig, "large").await;
    check(
        &mut rig,
        "hset small a 1 b 2 -> 2
         hpexpire small 1000 FIELDS 1 a -> [1]
         hpexpire large 500 FIELDS 1 filler:1 -> [1]
         copy small copied -> 1
         rename small renamed -> OK
         copy large large2 -> 1
         move copied 1 -> 1
         expire large 100 -> 1
         hpttl renamed FIELDS 2 a b -> [1000 -1]
         hpttl large2 FIELDS 1 filler:1 -> [500]",
    )
    .await;
    let Reply::Bulk(payload) = rig.line("dump renamed").await else { panic!() };
    let restore = [&b"restore"[..], b"restored", b"0", &payload];
    assert_eq!(rig.run(&restore).await, Reply::Ok);
    check(
        &mut rig,
        "hpttl restored FIELDS 2 a b -> [1000 -1]
         +500
         hlen large -> 599
         hlen large2 -> 599
         sweep
         hlen large2 -> 599
         hgetall restored -> {a=1 b=2}
         +500
         hgetall restored -> {b=2}
         hgetall renamed -> {b=2}
         select 1 -> OK
         hgetall copied -> {b=2}",
    )
    .await;
    let late = [&b"restore"[..], b"late", b"0", &payload];
    assert_eq!(rig.run(&late).await, Reply::Ok);
    check(&mut rig, "hgetall late -> {b=2}\nflushall -> OK").await;
}

#[tokio::test]
async fn long_values_and_large_replies() {
    let mut rig = Rig::new().await;
    let long = "v".repeat(100_000);
    rig.run(&["hset", "h", "long", &long, "short", "x"]).await;
    check(&mut rig, "hpexpire h 100 FIELDS 2 long short -> [1 1]\nhstrlen h long -> 100000").await;
    assert_eq!(rig.run(&["hget", "h", "long"]).await, Reply::Bulk(long.clone().into()));
    check(&mut rig, "hpersist h FIELDS 1 short -> [1]\n+100\nsweep\nhgetall h -> {short=x}").await;
    for n in 0..2000 {
        rig.run(&["hset", "m", &format!("field:{n}"), &"v".repeat(100)]).await;
        if n % 2 == 0 {
            rig.line(&format!("hpexpire m 1000 FIELDS 1 field:{n}")).await;
        }
    }
    rig.advance(1000);
    let Reply::Map(pairs) = rig::whole(rig.line("hgetall m").await).await else { panic!() };
    assert_eq!(pairs.len(), 1000);
    check(&mut rig, "hlen m -> 1000\nsweep\nhlen m -> 1000").await;
}

/// Values by field, each with its expiry.
type Model = BTreeMap<String, (String, Option<u64>)>;

struct World {
    rig: Rig,
    rng: Rng,
    now: u64,
    hashes: [Model; 2],
}

impl World {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// What is left of a hash now.
    fn hash(&mut self, key: usize) -> &mut Model {
        let now = self.now;
        self.hashes[key].retain(|_, (_, at)| at.is_none_or(|at| at > now));
        &mut self.hashes[key]
    }

    /// A command on field `field` of hash `key`, and its reply.
    fn command(&mut self, key: usize, field: &str) -> (String, String) {
        let (what, ms, now) = (self.below(9), 1 + self.below(40), self.now);
        let hash = self.hash(key);
        let old = hash.get(field).cloned();
        let expiry = old.as_ref().and_then(|(_, at)| *at);
        let at = Some(now + ms);
        match what {
            0 | 1 => {
                hash.insert(field.into(), (ms.to_string(), None));
                (format!("hset k{key} {field} {ms}"), u8::from(old.is_none()).to_string())
            }
            2 => {
                let new = old.map_or(0, |(value, _)| value.parse::<u64>().unwrap()) + ms;
                hash.insert(field.into(), (new.to_string(), expiry));
                (format!("hincrby k{key} {field} {ms}"), new.to_string())
            }
            3 => {
                hash.remove(field);
                (format!("hdel k{key} {field}"), u8::from(old.is_some()).to_string())
            }
            4 | 5 => {
                let reply = if old.is_some() { "[1]" } else { "[-2]" };
                hash.get_mut(field).into_iter().for_each(|held| held.1 = at);
                (format!("hpexpire k{key} {ms} FIELDS 1 {field}"), reply.into())
            }
            6 => {
                let reply = old.map_or("[-2]", |_| if expiry.is_some() { "[1]" } else { "[-1]" });
                hash.get_mut(field).into_iter().for_each(|held| held.1 = None);
                (format!("hpersist k{key} FIELDS 1 {field}"), reply.into())
            }
            7 => {
                hash.insert(field.into(), (ms.to_string(), at));
                (format!("hsetex k{key} PX {ms} FIELDS 1 {field} {ms}"), "1".into())
            }
            _ => {
                let reply =
                    old.map_or("-2".into(), |_| expiry.map_or("-1".into(), |at| (at - now).to_string()));
                (format!("hpttl k{key} FIELDS 1 {field}"), format!("[{reply}]"))
            }
        }
    }

    async fn step(&mut self) {
        let key = self.below(2) as usize;
        match self.below(20) {
            0 => {
                let ms = self.below(15);
                self.rig.advance(ms);
                self.now += ms;
            }
            1 => drop(sweep_all(&self.rig).await),
            2 => {
                let there = !self.hash(key).is_empty();
                let reply = self.rig.line(&format!("copy k{key} k{} replace", 1 - key)).await;
                assert_eq!(reply, Reply::Int(there.into()));
                if there {
                    self.hashes[1 - key] = self.hashes[key].clone();
                }
            }
            3 => {
                let Reply::Bulk(payload) = self.rig.line(&format!("dump k{key}")).await else {
                    return assert!(self.hash(key).is_empty());
                };
                let target = format!("k{}", 1 - key);
                let restore = [&b"restore"[..], target.as_bytes(), b"0", &payload, b"replace"];
                assert_eq!(self.rig.run(&restore).await, Reply::Ok);
                self.hashes[1 - key] = self.hash(key).clone();
            }
            _ => {
                let field = format!("f{}", self.below(6));
                let (line, want) = self.command(key, &field);
                assert_eq!(shown(&self.rig.line(&line).await), want, "{line}");
            }
        }
        self.compare(key).await;
    }

    async fn compare(&mut self, key: usize) {
        let hash = self.hash(key);
        let all: Vec<String> = hash.iter().map(|(field, (value, _))| format!("{field}={value}")).collect();
        let (all, n) = (format!("{{{}}}", all.join(" ")), hash.len());
        for (command, want) in
            [("hgetall", all), ("hlen", n.to_string()), ("exists", u8::from(n > 0).to_string())]
        {
            assert_eq!(shown(&self.rig.line(&format!("{command} k{key}")).await), want, "{command}");
        }
    }
}

#[tokio::test]
async fn hashes_are_those_of_a_model() {
    for seed in 0..8 {
        let rig = Rig::new().await;
        let rng = tern::env::Env::seeded(0, seed).rng();
        let mut world = World { rig, rng, now: START, hashes: Default::default() };
        for n in 0..400 {
            world.step().await;
            if n % 100 == 0 {
                world.rig.assert_sound().await;
            }
        }
        world.rig.assert_sound().await;
        world.rig.advance(1000);
        world.now += 1000;
        while sweep_all(&world.rig).await.more {}
        assert_eq!(rows(&world.rig, b'X').await, 0, "seed {seed}");
        for key in [0, 1] {
            world.compare(key).await;
        }
        world.rig.assert_sound().await;
    }
}
