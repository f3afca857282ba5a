//! Malformed stored rows of every kind: whatever a store holds, `tern check` reads it to the end, and
//! commands get a value or an error.
//!
//! A store with every kind of row is damaged in a few places: values are changed, rows removed, values
//! exchanged, keys changed. Then it is checked, a few commands run on it, and it is repaired. Damage that the
//! check does not report must be undetectable ([`unseen`]).

use super::choices::Choices;
use super::mutate::mutant;
use super::rig::Rig;
use super::unseen::{self, Rows, Unseen};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;
use tern::keyspace::cluster::messages::{LISTENS, Message, encode};
use tern::keyspace::dictionary::collector::State;
use tern::keyspace::keys::root;
use tern::lifecycle::check::check;
use tern::store::{RangeOptions, Read, Store};

/// Commands that read each kind of row.
const LINES: &[&str] = &[
    "GET plain",
    "GET long",
    "STRLEN long",
    "SETRANGE long 70000 abc",
    "INCR n",
    "APPEND plain x",
    "TTL dying",
    "KEYS *",
    "SCAN 0",
    "DBSIZE",
    "RANDOMKEY",
    "SMEMBERS raw",
    "SMEMBERS words",
    "SADD words a b member:7",
    "SREM words member:8 member:9 nobody",
    "SISMEMBER words member:10",
    "SPOP words 3",
    "SRANDMEMBER numbers -3",
    "SINTER words raw",
    "SINTERCARD 2 numbers ints",
    "SUNIONSTORE made words numbers",
    "SDIFFSTORE made numbers ints",
    "SADD ints 4 five",
    "SCARD words",
    "RENAME words renamed",
    "RENAME renamed words",
    "COPY numbers copied REPLACE",
    "DUMP ints",
    "HGET small a",
    "HSET small b 2",
    "HGETALL fields",
    "HGET fields field:7",
    "HSET fields field:8 x new y",
    "HDEL fields field:9 long nobody",
    "HINCRBY fields number 1",
    "HLEN fields",
    "HRANDFIELD fields -3 WITHVALUES",
    "HSCAN fields 0 COUNT 50",
    "COPY fields copied REPLACE",
    "DUMP fields",
    "LPUSH few b 2",
    "LRANGE few 0 -1",
    "LRANGE elements 0 -1",
    "LINDEX elements 7",
    "LINDEX elements -2",
    "LPUSH elements new",
    "RPOP elements 2",
    "LPOP elements 3",
    "LSET elements 20 other",
    "LINSERT elements BEFORE element:30 x",
    "LREM elements 0 element:40",
    "LPOS elements nobody",
    "LTRIM elements 1 -3",
    "LMOVE elements few LEFT RIGHT",
    "COPY elements copied REPLACE",
    "DUMP elements",
    "SORT elements ALPHA",
    "ZADD scored 3 c",
    "ZRANGE scored 0 -1 WITHSCORES",
    "ZADD ranked 7.5 new 1 member:3",
    "ZINCRBY ranked 2 member:4",
    "ZREM ranked member:5 nobody",
    "ZSCORE ranked member:6",
    "ZRANK ranked member:200",
    "ZCOUNT ranked 10 20",
    "ZRANGE ranked 100 -100",
    "ZRANGEBYSCORE ranked 10 (20 WITHSCORES",
    "ZRANGEBYLEX ranked [member [n",
    "ZPOPMIN ranked 2",
    "ZPOPMAX ranked",
    "ZREMRANGEBYRANK ranked 5 9",
    "ZRANDMEMBER ranked -3 WITHSCORES",
    "ZSCAN ranked 0 COUNT 50",
    "COPY ranked copied REPLACE",
    "DUMP ranked",
    "SORT ranked ALPHA",
    "XADD stream * field value",
    "XADD stream 9-9 field value",
    "XADD stream MAXLEN 50 * field value",
    "XLEN stream",
    "XRANGE stream - +",
    "XREVRANGE stream + - COUNT 5",
    "XDEL stream 1-3 2-0",
    "XTRIM stream MINID 1-20",
    "XSETID stream 99999999999999-0",
    "XREAD STREAMS stream 1-5",
    "XREADGROUP GROUP g alice COUNT 3 STREAMS stream >",
    "XREADGROUP GROUP g alice STREAMS stream 0",
    "XACK stream g 1-1 1-6",
    "XPENDING stream g",
    "XPENDING stream g - + 10",
    "XCLAIM stream g bob 0 1-1 1-9 FORCE",
    "XAUTOCLAIM stream g bob 0 0",
    "XINFO STREAM stream FULL",
    "XINFO GROUPS stream",
    "XINFO CONSUMERS stream g",
    "XGROUP CREATE stream new $",
    "XGROUP SETID stream g 1-2",
    "XGROUP DELCONSUMER stream g alice",
    "XGROUP DESTROY stream h",
    "COPY stream copied REPLACE",
    "DUMP stream",
    "PFCOUNT hll",
    "BITOP OR made long plain",
    "BITOP DIFF made long plain n",
    "BITCOUNT long",
    "GETRANGE long 5 90000",
    "DUMP long",
    "DEL made copied",
    "SETNX absent v",
    "INFO everything",
    "IDEMPOTENT RESULT an-id-of-16-bytes",
    "IDEMPOTENT FORGET an-id-of-a-long-reply",
    "FLUSHDB",
];

async fn populated() -> Rig {
    let mut rig = Rig::embedded().await;
    rig.space().beat().await.unwrap();
    for line in ["SET plain v", "SET n 5", "SET dying v PX 100000", "SADD raw a b c", "SADD ints 1 2 3"] {
        rig.line(line).await;
    }
    for line in ["PFADD hll a b c", "SADD gone 1 x", "DEL gone", "SELECT 3", "SET k v", "FLUSHDB", "SELECT 0"]
    {
        rig.line(line).await;
    }
    rig.run(&[&b"SET"[..], b"long", &[b'x'; 100_000]]).await;
    let words: Vec<String> = (0..400).map(|n| format!("member:{n}")).collect();
    let numbers: Vec<String> = (0..4000).map(|n| (n * 777).to_string()).collect();
    for (key, members) in [("words", &words), ("numbers", &numbers)] {
        let argv = ["SADD".to_owned(), key.into()].into_iter().chain(members.iter().cloned());
        rig.run(&argv.collect::<Vec<_>>()).await;
    }
    let pairs: Vec<String> = (0..300).flat_map(|n| [format!("field:{n}"), n.to_string()]).collect();
    rig.run(&["HSET".to_owned(), "fields".into()].into_iter().chain(pairs).collect::<Vec<_>>()).await;
    rig.run(&["HSET", "fields", "long", &"x".repeat(40_000), "longer", &"y".repeat(70_000)]).await;
    let elements = (0..300).map(|n| format!("element:{n}"));
    rig.run(&["RPUSH".to_owned(), "elements".into()].into_iter().chain(elements).collect::<Vec<_>>()).await;
    rig.run(&["RPUSH", "elements", &"x".repeat(40_000), &"y".repeat(70_000)]).await;
    let entries = (0..300).flat_map(|n| [(n / 3).to_string(), format!("member:{n}")]);
    rig.run(&["ZADD".to_owned(), "ranked".into()].into_iter().chain(entries).collect::<Vec<_>>()).await;
    for n in 1..=40 {
        rig.line(&format!("XADD stream 1-{n} field {n} other {n}")).await;
    }
    rig.run(&["XADD", "stream", "2-0", "long", &"x".repeat(40_000), "longer", &"y".repeat(70_000)]).await;
    for line in [
        "XDEL stream 1-7 1-8",
        "XGROUP CREATE stream g 0",
        "XGROUP CREATE stream h 1-9",
        "XREADGROUP GROUP g alice COUNT 5 STREAMS stream >",
        "XREADGROUP GROUP g bob COUNT 2 STREAMS stream >",
        "XREADGROUP GROUP h alice COUNT 1 STREAMS stream >",
        "XACK stream g 1-2",
    ] {
        rig.line(line).await;
    }
    for line in [
        "RPUSH few a 7",
        "ZADD scored 1 a -2.5 b",
        "HSET small a 1 number 7",
        "SADD words one two three",
        "SELECT 5",
        "SET gone v",
        "DEL gone",
        "SELECT 0",
        "COPY words old",
        "DEL old",
    ] {
        rig.line(line).await;
    }
    rig.exec.watch(0, &[Bytes::from_static(b"absent")]).await.unwrap();
    rig.under_id("an-id-of-16-bytes", "INCR n").await;
    rig.under_id("an-id-of-a-long-reply", "GET long").await;
    others(&rig.server.store).await;
    rig.line("SREM words member:5").await;
    rig
}

/// Rows that need several servers, or a collection of the dictionary.
async fn others(store: &Store) {
    let tx = store.begin();
    let message = [Message::Channel(Bytes::from_static(b"news"), Bytes::from_static(b"hello"))];
    let stamped = |n: u8| [&root::messages()[..], &[0, 0, 0, 0, 0, 0, 0, n, 0, 0], &[0; 4]].concat();
    tx.set(&root::listener(7), &[LISTENS]).unwrap();
    tx.set(&root::bell(), &9u64.to_le_bytes()).unwrap();
    tx.set(&root::collected(), &stamped(8)).unwrap();
    tx.set(&stamped(9), &encode(message.iter())).unwrap();
    tx.set(&root::collector(), &State::default().encode()).unwrap();
    tx.set(&root::streamed(7), &1u64.to_le_bytes()).unwrap();
    tx.commit().await.unwrap();
}

async fn rows(store: &Store) -> Rows {
    let page = store.begin().get_range(&[], &[0xff], RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert!(!page.more);
    page.pairs.into_iter().collect()
}

/// Replaces the contents of the store by `rows`.
async fn replace(store: &Store, rows: &Rows) {
    loop {
        let tx = store.begin();
        tx.clear_range(&[], &[0xff]).unwrap();
        rows.iter().for_each(|(key, value)| tx.set(key, value).unwrap());
        tx.bump_metadata_version().unwrap();
        if tx.commit().await.is_ok() {
            return;
        }
    }
}

/// A row of any kind, each kind with the same probability: most rows are the dictionary's.
fn any_row(rows: &Rows, choices: &mut Choices<'_>) -> Bytes {
    let kinds = kinds(rows);
    let kind = &kinds[choices.below(kinds.len())];
    kind[choices.below(kind.len())].clone()
}

/// The keys of each kind of row, in order.
fn kinds(rows: &Rows) -> Vec<Vec<Bytes>> {
    let kind = |key: &Bytes| match key[0] {
        // Idempotency records and their sizes.
        b't' => (key.slice(..key.len().min(2)), None),
        0x80.. => {
            // A database's rows begin with its prefix, mostly of two bytes; those of sets and hashes have
            // their kind after the object's id.
            let kind = key.get(19).copied().filter(|_| [b'H', b'S', b'T'].contains(&key[2]));
            (key.slice(..key.len().min(3)), kind)
        }
        _ => (key.slice(..1), None),
    };
    let keys: Vec<&Bytes> = rows.keys().collect();
    let cut = |a: &&Bytes, b: &&Bytes| kind(a) == kind(b);
    keys.chunk_by(cut).map(|keys| keys.iter().map(|key| (*key).clone()).collect()).collect()
}

/// Damages one to three rows.
fn damaged(sound: &Rows, choices: &mut Choices<'_>) -> Rows {
    let mut rows = sound.clone();
    for _ in 0..=choices.below(3) {
        let (at, other) = (any_row(&rows, choices), any_row(&rows, choices));
        let value = rows[&at].clone();
        match choices.below(6) {
            0 => drop(rows.remove(&at)),
            1 => drop(rows.insert(at, rows[&other].clone())),
            2 => {
                let key = mutant(choices, &[at.to_vec()]);
                // Skips keys that no engine accepts, and keys after all rows.
                if (1..1000).contains(&key.len()) && key[0] < 0xff {
                    rows.insert(key.into(), value);
                }
            }
            _ => drop(rows.insert(at, mutant(choices, &[value.to_vec()]).into())),
        }
    }
    rows
}

/// A store that is damaged repeatedly.
pub struct Damaged {
    rig: Rig,
    sound: Rows,
}

impl Damaged {
    pub async fn new() -> Self {
        let rig = populated().await;
        let sound = rows(&rig.server.store).await;
        Damaged { rig, sound }
    }

    /// Damages the sound store. Returns whether `tern check` reports it; panics if it does not report
    /// detectable damage, if it or a command takes longer than 60 s, or if one panics.
    pub async fn one(&mut self, choices: &mut Choices<'_>) -> bool {
        let store = self.rig.server.store.clone();
        let rows = damaged(&self.sound, choices);
        replace(&store, &rows).await;
        let reported = is_reported(&store).await;
        if !reported {
            self.unseen(&rows).unwrap();
        }
        for _ in 0..4 {
            let line = LINES[choices.below(LINES.len())];
            let answer = tokio::time::timeout(Duration::from_secs(60), self.rig.line(line)).await;
            assert!(answer.is_ok(), "no answer to {line}");
            assert_eq!(self.rig.server.telemetry.panics.get(), 0, "{line}");
        }
        reported
    }

    /// Why the damage in `rows` is undetectable, or what should have been reported.
    fn unseen(&self, rows: &Rows) -> Result<BTreeSet<Unseen>, String> {
        let one = |(key, before, after): (Bytes, Option<Bytes>, Option<Bytes>)| {
            let why = unseen::why([&self.sound, rows], &key, before.as_ref(), after.as_ref());
            let show = |value: &Option<Bytes>| value.as_ref().map(|value| value.escape_ascii().to_string());
            why.ok_or_else(|| {
                format!(
                    "the check must report: {} was {:?}, is {:?}",
                    key.escape_ascii(),
                    show(&before),
                    show(&after)
                )
            })
        };
        unseen::changes(&self.sound, rows).into_iter().map(one).collect()
    }

    /// Damages two rows of each kind in every way, each on its own. Returns unreported damage, and what
    /// should have been reported.
    pub async fn each(&self) -> (BTreeSet<Unseen>, Vec<String>) {
        let (store, mut unseen, mut missed) = (self.rig.server.store.clone(), BTreeSet::new(), Vec::new());
        let mut other = Bytes::new();
        for kind in kinds(&self.sound) {
            for key in BTreeSet::from([&kind[0], &kind[kind.len() - 1]]) {
                for (at, value) in ways(key, &self.sound[key], &other) {
                    let mut rows = self.sound.clone();
                    match value.clone() {
                        Some(value) => drop(rows.insert(at.clone(), value)),
                        None => drop(rows.remove(&at)),
                    }
                    write(&store, &at, value.as_ref()).await;
                    if !is_reported(&store).await {
                        match self.unseen(&rows) {
                            Ok(why) => unseen.extend(why),
                            Err(what) => missed.push(what),
                        }
                    }
                    write(&store, &at, self.sound.get(&at)).await;
                }
                other = self.sound[key].clone();
            }
        }
        (unseen, missed)
    }

    /// Removes two deltas of one set, of which one adds and the other removes. Returns whether that is
    /// reported, and whether it should be.
    pub async fn even_deltas(&self) -> (bool, Result<BTreeSet<Unseen>, String>) {
        let set = |key: &Bytes| (key[2] == b'S' && key.get(19) == Some(&1)).then(|| key.slice(..20));
        let deltas = || self.sound.iter().filter(|(key, _)| key[0] >= 0x80 && set(key).is_some());
        let other = |key: &Bytes, value: &Bytes| {
            deltas().find(|(k, v)| set(k) == set(key) && *v != value).map(|(other, _)| other.clone())
        };
        let mut pairs = deltas().filter_map(|(key, value)| Some([key.clone(), other(key, value)?]));
        self.without(&pairs.next().expect("a set with both kinds of deltas")).await
    }

    /// Removes `n` of the databases, all of them empty, after skipping the last `skipped`. Returns the same.
    pub async fn last_databases(&self, skipped: usize, n: usize) -> (bool, Result<BTreeSet<Unseen>, String>) {
        let databases = self.sound.keys().rev().filter(|key| key[0] == b'd').skip(skipped).take(n);
        self.without(&databases.cloned().collect::<Vec<_>>()).await
    }

    /// Removes rows. Returns whether that is reported, and whether it should be.
    async fn without(&self, gone: &[Bytes]) -> (bool, Result<BTreeSet<Unseen>, String>) {
        let mut rows = self.sound.clone();
        rows.retain(|key, _| !gone.contains(key));
        let store = &self.rig.server.store;
        replace(store, &rows).await;
        (is_reported(store).await, self.unseen(&rows))
    }

    /// Restores the sound store, and checks it.
    pub async fn mend(&self) {
        replace(&self.rig.server.store, &self.sound).await;
        self.rig.assert_sound().await;
    }
}

async fn is_reported(store: &Store) -> bool {
    let read = async { check(store, &mut |_, _| {}).await };
    let report =
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("the check must finish within 60 s");
    !report.is_ok_and(|report| report.is_sound())
}

async fn write(store: &Store, key: &[u8], value: Option<&Bytes>) {
    loop {
        let tx = store.begin();
        match value {
            Some(value) => tx.set(key, value).unwrap(),
            None => tx.clear(key).unwrap(),
        }
        if tx.commit().await.is_ok() {
            return;
        }
    }
}

/// The longest value whose bytes are changed one by one.
const EACH: usize = 48;

/// Every change to a row: a key and its new value. `other`: the value of a row of another kind.
fn ways(key: &Bytes, value: &Bytes, other: &Bytes) -> Vec<(Bytes, Option<Bytes>)> {
    let mut values = vec![Bytes::new(), other.clone(), [&value[..], b"\0"].concat().into()];
    values.extend(value.len().checked_sub(1).map(|end| value.slice(..end)));
    let places = (0..value.len().min(EACH)).chain(value.len().checked_sub(1));
    values.extend(places.map(|at| {
        let mut changed = value.to_vec();
        changed[at] ^= 1 << (at % 8);
        Bytes::from(changed)
    }));
    let mut ways = vec![(key.clone(), None)];
    ways.extend(values.into_iter().map(|value| (key.clone(), Some(value))));
    // The same row again, under another key.
    let mut keys = vec![[&key[..], b"\0"].concat()];
    let shorter = (1..key.len().min(5)).chain([key.len() / 2, key.len() - 1]);
    keys.extend(shorter.map(|len| key[..len].to_vec()));
    keys.extend((0..key.len()).map(|at| {
        let mut changed = key.to_vec();
        changed[at] = changed[at].wrapping_add(1).min(0xfe);
        changed
    }));
    // A key after every range, whose exclusive end has such a byte.
    keys.extend((1..key.len()).map(|at| [&key[..at], &[0xff], &key[at + 1..]].concat()));
    keys.retain(|key| !key.is_empty());
    ways.extend(keys.into_iter().map(|key| (key.into(), Some(value.clone()))));
    ways
}

/// A new server with the rows of the sound store, damaged as the input decides.
pub fn chosen(input: &[u8]) {
    static SOUND: OnceLock<Rows> = OnceLock::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sound = SOUND.get_or_init(|| runtime().block_on(async { Damaged::new().await.sound })).clone();
    runtime().block_on(async {
        let mut damaged = Damaged { rig: Rig::embedded().await, sound };
        damaged.one(&mut Choices::Given(input)).await;
    });
}
