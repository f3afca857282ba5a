//! Stored rows that are not what they should be, of every kind at once: whatever stands in a store, `tern check` reads it to the end
//! and commands are answered, with a value or an error.
//!
//! A store with every kind of row is damaged in a few places: values are changed, rows removed, others' values put into them, keys
//! changed. Then it is checked, a few commands look at it, and it is mended.

use super::choices::Choices;
use super::mutate::mutant;
use super::rig::Rig;
use bytes::Bytes;
use std::sync::OnceLock;
use std::time::Duration;
use tern::store::{RangeOptions, Read, Store};
use tern::types::check::check;

type Rows = Vec<(Bytes, Bytes)>;

/// What looks at each kind of row.
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
    "PFCOUNT hll",
    "DEL made copied",
    "INFO everything",
    "FLUSHDB",
];

async fn populated() -> Rig {
    let mut rig = Rig::new().await;
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
    rig.line("SADD words one two three").await;
    rig.line("SREM words member:5").await;
    rig
}

async fn rows(store: &Store) -> Rows {
    let page = store.begin().get_range(&[], &[0xff], RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert!(!page.more);
    page.pairs
}

/// Puts `rows` in the place of all that is there.
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

/// A row of any kind, each as likely as the others: most rows are the dictionary's.
fn any_row(rows: &Rows, choices: &mut Choices<'_>) -> usize {
    let kind = |at: usize| {
        let key = &rows[at].0;
        // A database's rows begin with its prefix, mostly of two bytes.
        &key[..key.len().min(if key[0] < 0x80 { 1 } else { 3 })]
    };
    let firsts: Vec<usize> = (0..rows.len()).filter(|at| *at == 0 || kind(*at) != kind(at - 1)).collect();
    let which = choices.below(firsts.len());
    let end = firsts.get(which + 1).copied().unwrap_or(rows.len());
    firsts[which] + choices.below(end - firsts[which])
}

/// One to three rows are damaged.
fn damaged(sound: &Rows, choices: &mut Choices<'_>) -> Rows {
    let mut rows = sound.clone();
    for _ in 0..=choices.below(3) {
        let (at, other) = (any_row(&rows, choices), any_row(&rows, choices));
        match choices.below(6) {
            0 => drop(rows.remove(at)),
            1 => rows[at].1 = rows[other].1.clone(),
            2 => {
                let key = mutant(choices, &[rows[at].0.to_vec()]);
                // A key that no engine takes is of no interest, nor is one behind all rows.
                if (1..1000).contains(&key.len()) && key[0] < 0xff {
                    let value = rows[at].1.clone();
                    rows.push((key.into(), value));
                }
            }
            _ => rows[at].1 = mutant(choices, &[rows[at].1.to_vec()]).into(),
        }
    }
    rows
}

/// A store that is damaged again and again.
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

    /// Damages the sound store. Whether `tern check` says so; panics where it does not end in 60 s, or a command does not, or panics.
    pub async fn one(&mut self, choices: &mut Choices<'_>) -> bool {
        let store = self.rig.server.store.clone();
        replace(&store, &damaged(&self.sound, choices)).await;
        let read = async { check(&store, &mut |_, _| {}).await };
        let report = tokio::time::timeout(Duration::from_secs(60), read).await.expect("no verdict");
        for _ in 0..4 {
            let line = LINES[choices.below(LINES.len())];
            let answer = tokio::time::timeout(Duration::from_secs(60), self.rig.line(line)).await;
            assert!(answer.is_ok(), "no answer to {line}");
            assert_eq!(self.rig.server.telemetry.panics.get(), 0, "{line}");
        }
        !report.is_ok_and(|report| report.is_sound())
    }

    /// Puts the sound store back, and checks that.
    pub async fn mend(&self) {
        replace(&self.rig.server.store, &self.sound).await;
        self.rig.assert_sound().await;
    }
}

/// A new server, whose rows are then those of the sound store, damaged as the input decides.
pub fn chosen(input: &[u8]) {
    static SOUND: OnceLock<Rows> = OnceLock::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sound = SOUND.get_or_init(|| runtime().block_on(async { Damaged::new().await.sound })).clone();
    runtime().block_on(async {
        let mut damaged = Damaged { rig: Rig::new().await, sound };
        damaged.one(&mut Choices::Given(input)).await;
    });
}
