//! Hashes behave like a `BTreeMap`, in every encoding, across DUMP, RESTORE, COPY, RENAME and transactions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use bytes::Bytes;
use rig::Rig;
use std::collections::BTreeMap;
use tern::env::Rng;
use tern::server::reply::Reply;

type Model = BTreeMap<Bytes, Bytes>;
const KEYS: u64 = 3;

/// The shape of one run's hashes.
#[derive(Clone, Copy)]
struct Shape {
    /// Different fields.
    fields: u64,
    /// Fields of a call that names many.
    many: u64,
    /// The longest value.
    longest: u64,
}

struct World {
    rig: Rig,
    rng: Rng,
    shape: Shape,
    models: BTreeMap<Bytes, Model>,
}

fn text(text: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(text.as_ref())
}

fn int(n: usize) -> Reply {
    Reply::Int(n as i64)
}

fn or_nil(value: Option<&Bytes>) -> Reply {
    value.map_or(Reply::Nil, |value| Reply::Bulk(value.clone()))
}

impl World {
    fn key(&mut self) -> Bytes {
        text(format!("k{}", self.rng.below(KEYS)))
    }

    fn field(&mut self) -> Bytes {
        let n = self.rng.below(self.shape.fields);
        text(if n.is_multiple_of(7) { format!("{n:0>70}") } else { n.to_string() })
    }

    fn value(&mut self) -> Bytes {
        match self.rng.below(4) {
            0 => text(self.rng.below(1000).to_string()),
            1 => Bytes::new(),
            _ => {
                let length = self.rng.below(self.shape.longest + 1);
                let byte = self.rng.below(256) as u8;
                vec![byte; length as usize].into()
            }
        }
    }

    fn count(&mut self) -> u64 {
        1 + if self.rng.below(8) == 0 { self.rng.below(self.shape.many) } else { self.rng.below(4) }
    }

    async fn run(&mut self, name: &str, rest: impl IntoIterator<Item = Bytes>) -> Reply {
        self.rig.run_bytes(std::iter::once(text(name)).chain(rest).collect()).await
    }

    fn model(&self, key: &Bytes) -> Model {
        self.models.get(key).cloned().unwrap_or_default()
    }

    fn keep(&mut self, key: Bytes, model: Model) {
        if model.is_empty() {
            self.models.remove(&key);
        } else {
            self.models.insert(key, model);
        }
    }

    async fn step(&mut self) {
        let key = self.key();
        let mut model = self.model(&key);
        match self.rng.below(20) {
            0..6 => {
                let n = self.count();
                let pairs: Vec<[Bytes; 2]> = (0..n).map(|_| [self.field(), self.value()]).collect();
                let before = model.len();
                pairs.iter().for_each(|[field, value]| drop(model.insert(field.clone(), value.clone())));
                let argv = [key.clone()].into_iter().chain(pairs.into_iter().flatten());
                assert_eq!(self.run("hset", argv).await, int(model.len() - before));
            }
            6..9 => {
                let n = self.count();
                let fields: Vec<Bytes> = (0..n).map(|_| self.field()).collect();
                let gone = fields.iter().filter(|field| model.remove(*field).is_some()).count();
                let argv = [key.clone()].into_iter().chain(fields);
                assert_eq!(self.run("hdel", argv).await, int(gone));
            }
            9 => {
                let (field, value) = (self.field(), self.value());
                let new = !model.contains_key(&field);
                model.entry(field.clone()).or_insert_with(|| value.clone());
                assert_eq!(self.run("hsetnx", [key.clone(), field, value]).await, int(new.into()));
            }
            10 => {
                let (field, by) = (self.field(), self.rng.below(100) as i64 - 50);
                let old =
                    model.get(&field).map_or(Ok(0), |v| std::str::from_utf8(v).unwrap_or("x").parse::<i64>());
                let reply = self.run("hincrby", [key.clone(), field.clone(), text(by.to_string())]).await;
                match old {
                    Ok(old) => {
                        assert_eq!(reply, Reply::Int(old + by));
                        model.insert(field, text((old + by).to_string()));
                    }
                    Err(_) => assert_eq!(rig::error(&reply), "ERR hash value is not an integer"),
                }
            }
            11..14 => {
                let n = self.count();
                let fields: Vec<Bytes> = (0..n).map(|_| self.field()).collect();
                let want = fields.iter().map(|field| or_nil(model.get(field))).collect();
                let argv = [key.clone()].into_iter().chain(fields.iter().cloned());
                assert_eq!(self.run("hmget", argv).await, Reply::Array(want));
                let one = &fields[0];
                assert_eq!(self.run("hget", [key.clone(), one.clone()]).await, or_nil(model.get(one)));
                let exists = model.contains_key(one).into();
                assert_eq!(self.run("hexists", [key.clone(), one.clone()]).await, int(exists));
                let length = model.get(one).map_or(0, Bytes::len);
                assert_eq!(self.run("hstrlen", [key.clone(), one.clone()]).await, int(length));
            }
            14 => self.draw(&key, &model).await,
            15..18 => return self.under_another_key(key, model).await,
            18 => {
                assert_eq!(self.run("del", [key.clone()]).await, int((!model.is_empty()).into()));
                model.clear();
            }
            _ => self.check(&key, &model).await,
        }
        self.keep(key, model);
    }

    /// The hash under another key.
    async fn under_another_key(&mut self, key: Bytes, model: Model) {
        let to = self.key();
        if model.is_empty() {
            let done = self.run("copy", [key.clone(), to.clone(), text("replace")]).await;
            assert!(key == to || done == int(0), "{done:?}");
            return;
        }
        match self.rng.below(3) {
            0 if key == to => return,
            0 => assert_eq!(self.run("copy", [key, to.clone(), text("replace")]).await, int(1)),
            1 => {
                assert_eq!(self.run("rename", [key.clone(), to.clone()]).await, Reply::Ok);
                self.models.remove(&key);
            }
            _ => {
                let Reply::Bulk(payload) = self.run("dump", [key]).await else { panic!("no payload") };
                let argv = [to.clone(), text("0"), payload, text("replace")];
                assert_eq!(self.run("restore", argv).await, Reply::Ok);
            }
        }
        self.keep(to, model);
    }

    async fn draw(&mut self, key: &Bytes, model: &Model) {
        let n = self.count();
        let argv = [key.clone(), text(n.to_string()), text("withvalues")];
        let drawn = match self.run("hrandfield", argv).await {
            Reply::Pairs(pairs) => pairs,
            Reply::Array(none) if none.is_empty() && model.is_empty() => Vec::new(),
            other => panic!("{other:?}"),
        };
        let want = model.len().min(n as usize);
        assert_eq!(drawn.len(), want);
        let drawn: Model = drawn.into_iter().map(bulks).collect();
        assert!(drawn.len() == want && drawn.iter().all(|(field, value)| model.get(field) == Some(value)));
    }

    /// The whole hash, in each way of reading it.
    async fn check(&mut self, key: &Bytes, model: &Model) {
        assert_eq!(self.run("hlen", [key.clone()]).await, int(model.len()));
        assert_eq!(self.run("exists", [key.clone()]).await, int((!model.is_empty()).into()));
        let Reply::Map(pairs) = self.run("hgetall", [key.clone()]).await else { panic!("no map") };
        let (fields, values): (Vec<Reply>, Vec<Reply>) = pairs.iter().cloned().unzip();
        let found: Model = pairs.into_iter().map(bulks).collect();
        assert!(found == *model && found.len() == fields.len());
        assert_eq!(self.run("hkeys", [key.clone()]).await, Reply::Array(fields));
        assert_eq!(self.run("hvals", [key.clone()]).await, Reply::Array(values));
        let (mut cursor, mut scanned) = (text("0"), Vec::new());
        loop {
            let argv = [key.clone(), cursor, text("count"), text("37")];
            let Reply::Array(page) = self.run("hscan", argv).await else { panic!("no page") };
            let [Reply::Bulk(next), Reply::Array(items)] = &page[..] else { panic!("no page") };
            scanned.extend(items.chunks_exact(2).map(|pair| bulks((pair[0].clone(), pair[1].clone()))));
            cursor = next.clone();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(scanned.len(), model.len());
        assert!(scanned.into_iter().collect::<Model>() == *model);
    }
}

fn bulks(pair: (Reply, Reply)) -> (Bytes, Bytes) {
    match pair {
        (Reply::Bulk(field), Reply::Bulk(value)) => (field, value),
        other => panic!("{other:?}"),
    }
}

async fn run(seed: u64, shape: Shape, steps: usize) {
    let (rig, models) = (Rig::new().await, BTreeMap::new());
    let mut world = World { rig, rng: Rng::seeded(seed), shape, models };
    for n in 0..steps {
        world.step().await;
        if n % 100 == 99 {
            world.rig.assert_sound().await;
        }
    }
    for n in 0..KEYS {
        let key = text(format!("k{n}"));
        let model = world.model(&key);
        world.check(&key, &model).await;
    }
    world.rig.assert_sound().await;
}

#[tokio::test]
async fn small_hashes() {
    for seed in 0..4 {
        run(seed, Shape { fields: 20, many: 20, longest: 64 }, 400).await;
    }
}

#[tokio::test]
async fn hashes_about_as_large_as_a_record() {
    for seed in 10..14 {
        run(seed, Shape { fields: 150, many: 100, longest: 60 }, 400).await;
    }
}

#[tokio::test]
async fn large_hashes() {
    for seed in 20..22 {
        run(seed, Shape { fields: 3000, many: 1500, longest: 80 }, 400).await;
    }
}

#[tokio::test]
async fn long_values() {
    for seed in 30..32 {
        run(seed, Shape { fields: 30, many: 10, longest: 70_000 }, 300).await;
    }
}
