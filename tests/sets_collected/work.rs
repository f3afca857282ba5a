//! A worker: commands in a database of its own, each compared with a model.

use crate::cluster::{Cluster, units};
use crate::pace;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tern::env::Rng;
use tern::keyspace::packed::Packed;
use tern::server::reply::Reply;
use tern::types::set::stream::Pieces;

/// Members that come and go.
const MEMBERS: u64 = 300;
/// Members of a command that interns before its transaction: more than half of what fits.
const HEAVY: u64 = 1700;
const KEYS: u64 = 5;

/// A difference from the model.
#[derive(Debug)]
pub struct Failure(pub String);

type Set = BTreeSet<Bytes>;

pub struct Worker {
    c: Arc<Cluster>,
    db: usize,
    rng: Rng,
    model: BTreeMap<String, Set>,
    pub done: u64,
}

/// Short ones make small sets, others make a chunked one at once; the longest share rows by their hash.
pub fn member(n: u64) -> Bytes {
    match n {
        _ if n.is_multiple_of(5) => format!("s{n}"),
        _ if n % 31 == 1 => format!("{n:0600}"),
        _ => format!("{n:070}"),
    }
    .into()
}

fn heavy(n: u64) -> Bytes {
    format!("heavy:{n:0500}").into()
}

/// The members of a reply.
pub async fn members_of(c: &Cluster, server: usize, reply: Reply) -> Result<Set, Failure> {
    let all = match reply {
        Reply::Set(all) | Reply::Array(all) => all,
        Reply::Nil => return Ok(Set::new()),
        Reply::Members(members) => {
            let (mut unread, mut out, mut piece) = (Pieces::new(*members), Set::new(), Packed::default());
            while !unread.is_done() {
                match unread.next(&c.space(server).store, &mut piece).await {
                    Err(tern::error::Error::Store(e)) if e.is_retryable() => continue,
                    read => read.map_err(|e| Failure(format!("a stream: {e:?}")))?,
                }
                for member in piece.iter() {
                    out.insert(Bytes::copy_from_slice(member));
                }
            }
            return Ok(out);
        }
        other => return Err(Failure(format!("no members: {other:?}"))),
    };
    let len = all.len();
    let set: Set = all
        .into_iter()
        .map(|member| match member {
            Reply::Bulk(member) => Ok(member),
            other => Err(Failure(format!("no member: {other:?}"))),
        })
        .collect::<Result<_, _>>()?;
    if set.len() == len { Ok(set) } else { Err(Failure("a member occurs twice".into())) }
}

fn differs(what: &str, got: &Set, want: &Set) -> Failure {
    let some = |set: BTreeSet<&Bytes>| Vec::from_iter(set.into_iter().take(3).cloned());
    let (lost, extra) = (want.difference(got).collect(), got.difference(want).collect());
    Failure(format!("{what}: lost {:?}, not expected {:?}", some(lost), some(extra)))
}

impl Worker {
    pub fn new(c: Arc<Cluster>, db: usize, seed: u64) -> Self {
        Worker { c, db, rng: Rng::seeded(seed), model: BTreeMap::new(), done: 0 }
    }

    pub async fn run(mut self, until: Instant) -> Result<Self, Failure> {
        while Instant::now() < until {
            self.command().await.map_err(|Failure(what)| Failure(format!("database {}: {what}", self.db)))?;
            self.done += 1;
            if self.rng.below(50) == 0 {
                tokio::time::sleep(Duration::from_millis(self.rng.below(20))).await;
            }
        }
        Ok(self)
    }

    fn key(&mut self) -> String {
        format!("k{}", self.rng.below(KEYS))
    }

    fn some(&mut self) -> Vec<Bytes> {
        let n = 1 + self.rng.below(4);
        // Workers share members, and recently used ones are used again.
        (0..n).map(|_| member(self.rng.below(MEMBERS))).collect()
    }

    fn set(&self, key: &str) -> Set {
        self.model.get(key).cloned().unwrap_or_default()
    }

    fn put(&mut self, key: &str, set: Set) {
        match set.is_empty() {
            true => self.model.remove(key),
            false => self.model.insert(key.to_owned(), set),
        };
    }

    async fn send(&mut self, words: &[&str], members: &[Bytes]) -> (usize, Reply) {
        let server = self.rng.below(self.c.members.len() as u64) as usize;
        let argv: Vec<Bytes> = words
            .iter()
            .map(|w| Bytes::copy_from_slice(w.as_bytes()))
            .chain(members.iter().cloned())
            .collect();
        let mut unit = units::unit(vec![units::call(argv)]);
        unit.client.db = self.db as u8;
        (server, units::replies(&self.c.members[server].exec, unit).await.remove(0))
    }

    async fn int(&mut self, words: &[&str], members: &[Bytes], want: usize) -> Result<(), Failure> {
        loop {
            match self.send(words, members).await.1 {
                Reply::Int(n) if n == want as i64 => return Ok(()),
                // On a busy machine an epoch may be shorter than a large command. It has done nothing then.
                Reply::Error(e) if members.len() > 600 && e.0.contains("conflict") => {}
                other => {
                    let n = members.len();
                    return Err(Failure(format!("{words:?} of {n} members: {other:?}, not {want}")));
                }
            }
        }
    }

    async fn all(&mut self, words: &[&str], want: &Set) -> Result<(), Failure> {
        let (server, reply) = self.send(words, &[]).await;
        let got = members_of(&self.c, server, reply).await?;
        if got == *want { Ok(()) } else { Err(differs(&words.join(" "), &got, want)) }
    }

    async fn command(&mut self) -> Result<(), Failure> {
        let (a, b, to) = (self.key(), self.key(), self.key());
        match self.rng.below(400) {
            0 => self.heavy(&a).await,
            1..120 => {
                let some = self.some();
                self.add(&a, some).await
            }
            120..200 => {
                let some = self.some();
                self.remove(&a, some).await
            }
            200..240 => self.pop(&a).await,
            240..260 => self.r#move(&a, &b).await,
            260..310 => self.combine(&to, &a, &b).await,
            310..325 => self.copy(&a, &b).await,
            325..340 => self.rename(&a, &b).await,
            340..349 => {
                let want = usize::from(self.model.remove(&a).is_some());
                self.int(&["DEL", &a], &[], want).await
            }
            349 => {
                self.model.clear();
                self.send(&["FLUSHDB"], &[]).await;
                Ok(())
            }
            350..375 => {
                let some = self.some();
                let want = usize::from(self.set(&a).contains(&some[0]));
                self.int(&["SISMEMBER", &a], &some[..1], want).await
            }
            _ => {
                let (x, y) = (self.set(&a), self.set(&b));
                self.all(&["SMEMBERS", &a], &x).await?;
                self.all(&["SUNION", &a, &b], &(&x | &y)).await
            }
        }
    }

    async fn add(&mut self, key: &str, members: Vec<Bytes>) -> Result<(), Failure> {
        let mut set = self.set(key);
        let new: usize = members.iter().map(|m| usize::from(set.insert(m.clone()))).sum();
        self.put(key, set);
        self.int(&["SADD", key], &members, new).await
    }

    async fn remove(&mut self, key: &str, members: Vec<Bytes>) -> Result<(), Failure> {
        let mut set = self.set(key);
        let gone: usize = members.iter().map(|m| usize::from(set.remove(m))).sum();
        self.put(key, set);
        self.int(&["SREM", key], &members, gone).await
    }

    /// More members than are added or removed in their command's own transaction.
    async fn heavy(&mut self, key: &str) -> Result<(), Failure> {
        let first = self.rng.below(HEAVY);
        let members: Vec<Bytes> = (first..first + HEAVY).map(heavy).collect();
        self.add(key, members.clone()).await?;
        let (set, start) = (self.set(key), Instant::now());
        let (server, reply) = self.send(&["SMEMBERS", key], &[]).await;
        // Otherwise its transaction may have been older than the grace period of these tests.
        let in_time = start.elapsed() < pace().grace;
        let from = self.rng.below(HEAVY / 2) as usize;
        self.remove(key, members[from / 2..].to_vec()).await?;
        tokio::time::sleep(Duration::from_millis(self.rng.below(400))).await;
        match members_of(&self.c, server, reply).await {
            Ok(got) if got == set => Ok(()),
            Ok(got) => Err(differs("a value sent later", &got, &set)),
            Err(_) if !in_time => Ok(()),
            Err(e) => Err(e),
        }
    }

    async fn pop(&mut self, key: &str) -> Result<(), Failure> {
        let count = (1 + self.rng.below(3)).to_string();
        let (server, reply) = self.send(&["SPOP", key, &count], &[]).await;
        let popped = members_of(&self.c, server, reply).await?;
        let mut set = self.set(key);
        if popped.len() != set.len().min(count.parse().unwrap()) || !popped.is_subset(&set) {
            return Err(differs("SPOP", &popped, &set));
        }
        set.retain(|m| !popped.contains(m));
        self.put(key, set);
        Ok(())
    }

    async fn r#move(&mut self, from: &str, to: &str) -> Result<(), Failure> {
        let one = self.some().swap_remove(0);
        let moved = self.set(from).contains(&one);
        if moved {
            let mut set = self.set(from);
            set.remove(&one);
            self.put(from, set);
            let mut set = self.set(to);
            set.insert(one.clone());
            self.put(to, set);
        }
        self.int(&["SMOVE", from, to], &[one], moved.into()).await
    }

    async fn combine(&mut self, to: &str, a: &str, b: &str) -> Result<(), Failure> {
        let (x, y) = (self.set(a), self.set(b));
        let (name, result) = match self.rng.below(4) {
            0 => ("SINTERSTORE", &x & &y),
            1 => ("SDIFFSTORE", &x - &y),
            _ => ("SUNIONSTORE", &x | &y),
        };
        let len = result.len();
        self.put(to, result);
        self.int(&[name, to, a, b], &[], len).await
    }

    async fn copy(&mut self, from: &str, to: &str) -> Result<(), Failure> {
        let set = self.set(from);
        if from == to || set.is_empty() {
            return Ok(());
        }
        self.put(to, set);
        self.int(&["COPY", from, to, "REPLACE"], &[], 1).await
    }

    async fn rename(&mut self, from: &str, to: &str) -> Result<(), Failure> {
        let Some(set) = self.model.remove(from) else { return Ok(()) };
        self.put(to, set);
        match self.send(&["RENAME", from, to], &[]).await.1 {
            Reply::Ok => Ok(()),
            other => Err(Failure(format!("RENAME: {other:?}"))),
        }
    }

    /// Compares all sets with the model.
    pub async fn verify_all(&mut self) -> Result<(), Failure> {
        for n in 0..KEYS {
            let key = format!("k{n}");
            let want = self.set(&key);
            self.all(&["SMEMBERS", &key], &want).await?;
            self.int(&["SCARD", &key], &[], want.len()).await?;
        }
        Ok(())
    }
}
