//! Lists behave like a `VecDeque`, in every encoding, across DUMP, RESTORE, COPY, RENAME and transactions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use bytes::Bytes;
use rig::Rig;
use std::collections::{BTreeMap, VecDeque};
use tern::env::Rng;
use tern::server::reply::Reply;

type Model = VecDeque<Bytes>;
const KEYS: u64 = 3;

/// The shape of one run's lists.
#[derive(Clone, Copy)]
struct Shape {
    /// Elements of a call that pushes or pops many.
    many: u64,
    /// The longest element.
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

fn bulks<'a>(elements: impl IntoIterator<Item = &'a Bytes>) -> Reply {
    Reply::bulks(elements.into_iter().cloned())
}

fn or_nil(element: Option<&Bytes>) -> Reply {
    element.map_or(Reply::Nil, |element| Reply::Bulk(element.clone()))
}

/// The indices that LRANGE's numbers name.
fn span(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let at = |n: i64| if n < 0 { n + len as i64 } else { n };
    let (from, to) = (at(start).max(0), (at(stop) + 1).min(len as i64).max(0));
    if from >= to { 0..0 } else { from as usize..to as usize }
}

impl World {
    fn key(&mut self) -> Bytes {
        text(format!("k{}", self.rng.below(KEYS)))
    }

    /// Few short ones, so that they come again.
    fn element(&mut self) -> Bytes {
        match self.rng.below(8) {
            0..6 => text(self.rng.below(6).to_string()),
            6 => Bytes::new(),
            _ => {
                let length = self.rng.below(self.shape.longest + 1);
                vec![self.rng.below(3) as u8; length as usize].into()
            }
        }
    }

    fn count(&mut self) -> u64 {
        1 + if self.rng.below(8) == 0 { self.rng.below(self.shape.many) } else { self.rng.below(4) }
    }

    fn index(&mut self, len: usize) -> i64 {
        self.rng.below(2 * len as u64 + 6) as i64 - len as i64 - 3
    }

    fn is_left(&mut self) -> bool {
        self.rng.below(2) == 0
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
        match self.rng.below(24) {
            0..5 => self.push(&key, &mut model).await,
            5..8 => self.pop(&key, &mut model).await,
            8 => {
                let index = self.index(model.len());
                let at = span(index, index, model.len());
                let want = if at.len() == 1 { model.get(at.start) } else { None };
                let argv = [key.clone(), text(index.to_string())];
                assert_eq!(self.run("lindex", argv).await, or_nil(want));
            }
            9 | 10 => self.set(&key, &mut model).await,
            11 | 12 => self.insert(&key, &mut model).await,
            13 | 14 => self.remove(&key, &mut model).await,
            15 => {
                let (from, to) = (self.rng.below(4) as i64, -(self.rng.below(4) as i64) - 1);
                let (from, to) = if self.rng.below(6) == 0 {
                    (self.index(model.len()), self.index(model.len()))
                } else {
                    (from, to)
                };
                let kept = span(from, to, model.len());
                let argv = [key.clone(), text(from.to_string()), text(to.to_string())];
                assert_eq!(self.run("ltrim", argv).await, Reply::Ok);
                model = model.drain(kept).collect();
            }
            16 => self.find(&key, &model).await,
            17 | 18 => return self.shift(key, model).await,
            19 | 20 => return self.under_another_key(key, model).await,
            21 if self.rng.below(4) == 0 => {
                assert_eq!(self.run("del", [key.clone()]).await, int((!model.is_empty()).into()));
                model.clear();
            }
            _ => self.check(&key, &model).await,
        }
        self.keep(key, model);
    }

    async fn push(&mut self, key: &Bytes, model: &mut Model) {
        let (n, left) = (self.count(), self.is_left());
        let elements: Vec<Bytes> = (0..n).map(|_| self.element()).collect();
        for element in elements.clone() {
            if left { model.push_front(element) } else { model.push_back(element) }
        }
        let argv = [key.clone()].into_iter().chain(elements);
        assert_eq!(self.run(if left { "lpush" } else { "rpush" }, argv).await, int(model.len()));
    }

    async fn pop(&mut self, key: &Bytes, model: &mut Model) {
        let (n, left, one) = (self.count(), self.is_left(), self.rng.below(2) == 0);
        let name = if left { "lpop" } else { "rpop" };
        let mut take = || if left { model.pop_front() } else { model.pop_back() };
        if one {
            let want = take();
            assert_eq!(self.run(name, [key.clone()]).await, or_nil(want.as_ref()));
            return;
        }
        let want: Vec<Bytes> = (0..n).map_while(|_| take()).collect();
        let reply = self.run(name, [key.clone(), text(n.to_string())]).await;
        assert_eq!(reply, if want.is_empty() { Reply::NilArray } else { bulks(&want) });
    }

    async fn set(&mut self, key: &Bytes, model: &mut Model) {
        let (index, element) = (self.index(model.len()), self.element());
        let at = span(index, index, model.len());
        let reply = self.run("lset", [key.clone(), text(index.to_string()), element.clone()]).await;
        match (model.is_empty(), at.len()) {
            (true, _) => assert_eq!(rig::error(&reply), "ERR no such key"),
            (false, 1) => {
                assert_eq!(reply, Reply::Ok);
                model[at.start] = element;
            }
            (false, _) => assert_eq!(rig::error(&reply), "ERR index out of range"),
        }
    }

    async fn insert(&mut self, key: &Bytes, model: &mut Model) {
        let (pivot, element, before) = (self.element(), self.element(), self.is_left());
        let place = text(if before { "before" } else { "after" });
        let reply = self.run("linsert", [key.clone(), place, pivot.clone(), element.clone()]).await;
        let found = model.iter().position(|old| *old == pivot);
        if let Some(at) = found {
            model.insert(at + usize::from(!before), element);
        }
        let want = if found.is_some() { model.len() as i64 } else { -i64::from(!model.is_empty()) };
        assert_eq!(reply, Reply::Int(want));
    }

    async fn remove(&mut self, key: &Bytes, model: &mut Model) {
        let (element, count) = (self.element(), self.rng.below(7) as i64 - 3);
        let mut left = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
        let before = model.len();
        let mut keep = |old: &Bytes| {
            let goes = left > 0 && *old == element;
            left -= usize::from(goes);
            !goes
        };
        let mut kept: Model = match count < 0 {
            true => model.iter().rev().filter(|old| keep(old)).cloned().collect(),
            false => model.iter().filter(|old| keep(old)).cloned().collect(),
        };
        if count < 0 {
            kept = kept.into_iter().rev().collect();
        }
        *model = kept;
        let argv = [key.clone(), text(count.to_string()), element.clone()];
        assert_eq!(self.run("lrem", argv).await, int(before - model.len()));
    }

    async fn find(&mut self, key: &Bytes, model: &Model) {
        let (element, rank) = (self.element(), [1, 2, -1, -3][self.rng.below(4) as usize]);
        let (most, among) = (self.rng.below(4) as usize, self.rng.below(10) as usize * 3);
        let all: Vec<usize> =
            if rank > 0 { (0..model.len()).collect() } else { (0..model.len()).rev().collect() };
        let seen = all.into_iter().take(if among == 0 { usize::MAX } else { among });
        let hits = seen.filter(|at| model[*at] == element).skip(i64::unsigned_abs(rank) as usize - 1);
        let want: Vec<Reply> = hits.take(if most == 0 { usize::MAX } else { most }).map(int).collect();
        let line = format!("rank {rank} count {most} maxlen {among}");
        let argv = [key.clone(), element].into_iter().chain(line.split(' ').map(text));
        assert_eq!(self.run("lpos", argv).await, Reply::Array(want));
    }

    /// LMOVE.
    async fn shift(&mut self, key: Bytes, mut model: Model) {
        let (to, from_left, to_left) = (self.key(), self.is_left(), self.is_left());
        let end = |left: bool| text(if left { "left" } else { "right" });
        let argv = [key.clone(), to.clone(), end(from_left), end(to_left)];
        let reply = self.run("lmove", argv).await;
        let moved = if from_left { model.pop_front() } else { model.pop_back() };
        assert_eq!(reply, or_nil(moved.as_ref()));
        let Some(moved) = moved else { return };
        self.keep(key, model);
        let mut target = self.model(&to);
        if to_left {
            target.push_front(moved)
        } else {
            target.push_back(moved)
        }
        self.keep(to, target);
    }

    /// The list under another key.
    async fn under_another_key(&mut self, key: Bytes, model: Model) {
        let to = self.key();
        if model.is_empty() || key == to {
            return;
        }
        match self.rng.below(3) {
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

    /// The whole list, in each way of reading it.
    async fn check(&mut self, key: &Bytes, model: &Model) {
        assert_eq!(self.run("llen", [key.clone()]).await, int(model.len()));
        assert_eq!(self.run("exists", [key.clone()]).await, int((!model.is_empty()).into()));
        assert_eq!(self.run("lrange", [key.clone(), text("0"), text("-1")]).await, bulks(model));
        let (from, to) = (self.index(model.len()), self.index(model.len()));
        let argv = [key.clone(), text(from.to_string()), text(to.to_string())];
        let want: Vec<Bytes> = model.range(span(from, to, model.len())).cloned().collect();
        assert_eq!(self.run("lrange", argv).await, bulks(&want), "{from} {to}");
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
async fn small_lists() {
    for seed in 0..4 {
        run(seed, Shape { many: 20, longest: 64 }, 600).await;
    }
}

#[tokio::test]
async fn lists_about_as_large_as_a_record() {
    for seed in 10..14 {
        run(seed, Shape { many: 300, longest: 200 }, 500).await;
    }
}

#[tokio::test]
async fn large_lists() {
    for seed in 20..22 {
        run(seed, Shape { many: 4000, longest: 80 }, 400).await;
    }
}

#[tokio::test]
async fn long_elements() {
    for seed in 30..32 {
        run(seed, Shape { many: 10, longest: 70_000 }, 300).await;
    }
}
