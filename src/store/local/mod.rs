//! SCAFFOLD: an in-memory MVCC map with the contract's semantics, until the RocksDB engine replaces it.

use super::{Fsync, MAX_TRANSACTION, Pairs, RangeOptions, Read, StoreStats, Version, Watch};
use crate::error::{StoreError, StoreResult};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

type Key = Bytes;
#[derive(Default)]
struct Mvcc {
    version: Version,
    meta: Version,
    rows: BTreeMap<Key, Vec<(Version, Option<Bytes>)>>,
    conflicts: Vec<(Version, Bytes, Bytes)>,
    watches: HashMap<Key, Vec<tokio::sync::oneshot::Sender<()>>>,
}

/// The embedded engine.
#[derive(Clone)]
pub struct Local(Arc<Mutex<Mvcc>>);

/// How the embedded engine is opened.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// When commits are synced.
    pub fsync: Fsync,
    /// Memtable size in bytes.
    pub write_buffer: usize,
    /// Block cache in bytes.
    pub block_cache: usize,
    /// Clock for the 5 s limit.
    pub clock: crate::env::Clock,
}

impl LocalOptions {
    /// Defaults for a server.
    pub fn new(clock: crate::env::Clock) -> Self {
        LocalOptions { fsync: Fsync::Always, write_buffer: 64 << 20, block_cache: 256 << 20, clock }
    }
}

#[derive(Clone)]
enum Op {
    Set(Bytes, bool),
    Clear,
    Atomic(Vec<(bool, Bytes)>),
}

#[derive(Default)]
struct Pending {
    ops: BTreeMap<Key, Op>,
    cleared: Vec<(Bytes, Bytes)>,
    reads: Vec<(Bytes, Bytes)>,
    writes: Vec<(Bytes, Bytes)>,
    size: usize,
    bump: bool,
    watches: Vec<(Key, tokio::sync::oneshot::Sender<()>)>,
}

/// A transaction on the embedded engine.
pub struct LocalTx {
    db: Arc<Mutex<Mvcc>>,
    version: Version,
    meta: Version,
    p: Mutex<Pending>,
}

fn atomic(old: Option<&[u8]>, is_max: bool, operand: &[u8]) -> Bytes {
    let mut cur = old.unwrap_or_default().to_vec();
    cur.resize(operand.len(), 0);
    if is_max {
        return if cur.iter().rev().ge(operand.iter().rev()) { cur.into() } else { operand.to_vec().into() };
    }
    let mut carry = 0u16;
    for (a, b) in cur.iter_mut().zip(operand) {
        let sum = u16::from(*a) + u16::from(*b) + carry;
        *a = sum as u8;
        carry = sum >> 8;
    }
    cur.into()
}

fn at(rows: &BTreeMap<Key, Vec<(Version, Option<Bytes>)>>, key: &[u8], v: Version) -> Option<Bytes> {
    rows.get(key)?.iter().rev().find(|(w, _)| *w <= v)?.1.clone()
}

impl Local {
    /// Opens or creates the store in `dir`.
    pub fn open(_dir: &Path, _options: LocalOptions) -> StoreResult<Self> {
        Ok(Local(Arc::default()))
    }
    /// Starts a transaction.
    pub fn begin(&self) -> LocalTx {
        let m = self.0.lock();
        LocalTx { version: m.version, meta: m.meta, db: self.0.clone(), p: Mutex::default() }
    }
    /// Counters.
    pub fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
    /// Changes the sync policy.
    pub fn set_fsync(&self, _fsync: Fsync) {}
    /// Stops.
    pub async fn close(&self) -> StoreResult<()> {
        Ok(())
    }
}

impl LocalTx {
    fn resolve(&self, p: &Pending, key: &[u8]) -> Option<Bytes> {
        let base = || at(&self.db.lock().rows, key, self.version);
        match p.ops.get(key) {
            Some(Op::Set(v, _)) => Some(v.clone()),
            Some(Op::Clear) => None,
            Some(Op::Atomic(ops)) => {
                let mut v = if self.in_cleared(p, key) { None } else { base() };
                for (m, o) in ops {
                    v = Some(atomic(v.as_deref(), *m, o));
                }
                v
            }
            None if self.in_cleared(p, key) => None,
            None => base(),
        }
    }
    fn in_cleared(&self, p: &Pending, key: &[u8]) -> bool {
        p.cleared.iter().any(|(b, e)| &b[..] <= key && key < &e[..])
    }
    pub(super) async fn get(&self, key: &[u8], read: Read) -> StoreResult<Option<Bytes>> {
        let mut p = self.p.lock();
        if read == Read::Serializable {
            p.reads.push((Bytes::copy_from_slice(key), super::key_after(key).into()));
        }
        Ok(self.resolve(&p, key))
    }
    pub(super) async fn get_range(
        &self,
        begin: &[u8],
        end: &[u8],
        o: RangeOptions,
        read: Read,
    ) -> StoreResult<Pairs> {
        let mut p = self.p.lock();
        if begin >= end {
            return Ok(Pairs::default());
        }
        let mut keys: std::collections::BTreeSet<Bytes> = {
            let m = self.db.lock();
            let r = (std::ops::Bound::Included(begin), std::ops::Bound::Excluded(end));
            m.rows.range::<[u8], _>(r).map(|(k, _)| k.clone()).collect()
        };
        let r = (std::ops::Bound::Included(begin), std::ops::Bound::Excluded(end));
        keys.extend(p.ops.range::<[u8], _>(r).map(|(k, _)| k.clone()));
        let keys: Vec<Bytes> =
            if o.reverse { keys.into_iter().rev().collect() } else { keys.into_iter().collect() };
        let mut out = Pairs::default();
        let mut bytes = 0;
        for k in keys {
            let Some(v) = self.resolve(&p, &k) else { continue };
            if (o.limit > 0 && out.pairs.len() >= o.limit) || (o.bytes > 0 && bytes >= o.bytes) {
                out.more = true;
                break;
            }
            bytes += k.len() + v.len();
            out.pairs.push((k, v));
        }
        if read == Read::Serializable {
            let (mut b, mut e) = (Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
            if out.more
                && let Some((k, _)) = out.pairs.last()
            {
                if o.reverse { b = k.clone() } else { e = super::key_after(k).into() }
            }
            p.reads.push((b, e));
        }
        Ok(out)
    }
    fn put(&self, key: &[u8], op: Op, conflict: bool, n: usize) -> StoreResult<()> {
        let mut p = self.p.lock();
        p.size += key.len() + n;
        let key = Bytes::copy_from_slice(key);
        if conflict {
            p.writes.push((key.clone(), super::key_after(&key).into()));
        }
        p.ops.insert(key, op);
        Ok(())
    }
    pub(super) fn set(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.put(key, Op::Set(Bytes::copy_from_slice(value), true), true, value.len())
    }
    pub(super) fn set_without_conflict(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.put(key, Op::Set(Bytes::copy_from_slice(value), false), false, value.len())
    }
    pub(super) fn clear(&self, key: &[u8]) -> StoreResult<()> {
        self.put(key, Op::Clear, true, 0)
    }
    pub(super) fn clear_range(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        let mut p = self.p.lock();
        p.ops.retain(|k, _| !(begin <= &k[..] && &k[..] < end));
        let r = (Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
        p.cleared.push(r.clone());
        p.writes.push(r);
        Ok(())
    }
    fn atomic(&self, key: &[u8], m: bool, operand: &[u8]) -> StoreResult<()> {
        let mut p = self.p.lock();
        let op = Bytes::copy_from_slice(operand);
        let next = match p.ops.remove(key) {
            Some(Op::Set(v, c)) => Op::Set(atomic(Some(&v), m, operand), c),
            Some(Op::Clear) => Op::Set(atomic(None, m, operand), true),
            Some(Op::Atomic(mut v)) => {
                v.push((m, op));
                Op::Atomic(v)
            }
            None => Op::Atomic(vec![(m, op)]),
        };
        drop(p);
        self.put(key, next, true, operand.len())
    }
    pub(super) fn add(&self, key: &[u8], delta: &[u8]) -> StoreResult<()> {
        self.atomic(key, false, delta)
    }
    pub(super) fn max(&self, key: &[u8], operand: &[u8]) -> StoreResult<()> {
        self.atomic(key, true, operand)
    }
    pub(super) fn add_read_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        self.p.lock().reads.push((Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end)));
        Ok(())
    }
    pub(super) fn add_write_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        self.p.lock().writes.push((Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end)));
        Ok(())
    }
    pub(super) fn watch(&self, key: &[u8]) -> StoreResult<Watch> {
        let (s, r) = tokio::sync::oneshot::channel();
        self.p.lock().watches.push((Bytes::copy_from_slice(key), s));
        Ok(r)
    }
    pub(super) async fn metadata_version(&self) -> StoreResult<u64> {
        self.p.lock().reads.push((Bytes::from_static(b"\xff/m"), Bytes::from_static(b"\xff/n")));
        Ok(self.meta)
    }
    pub(super) fn bump_metadata_version(&self) -> StoreResult<()> {
        let mut p = self.p.lock();
        p.bump = true;
        p.writes.push((Bytes::from_static(b"\xff/m"), Bytes::from_static(b"\xff/n")));
        Ok(())
    }
    pub(super) async fn read_version(&self) -> StoreResult<Version> {
        Ok(self.version)
    }
    pub(super) fn is_write(&self) -> bool {
        !self.p.lock().writes.is_empty() || !self.p.lock().ops.is_empty()
    }
    pub(super) fn size(&self) -> usize {
        self.p.lock().size
    }
    pub(super) async fn commit(self) -> StoreResult<Version> {
        let p = self.p.into_inner();
        if p.size > MAX_TRANSACTION {
            return Err(StoreError::TooLarge);
        }
        let mut m = self.db.lock();
        let read_only = p.ops.is_empty() && p.cleared.is_empty() && p.writes.is_empty();
        for (k, s) in p.watches {
            m.watches.entry(k).or_default().push(s);
        }
        if read_only {
            return Ok(self.version);
        }
        for (b, e) in &p.reads {
            if m.conflicts.iter().any(|(v, wb, we)| *v > self.version && wb < e && b < we) {
                return Err(StoreError::Conflict);
            }
        }
        m.version += 1;
        let v = m.version;
        if p.bump {
            m.meta = v;
        }
        for (b, e) in &p.cleared {
            let keys: Vec<Bytes> = m.rows.range(b.clone()..e.clone()).map(|(k, _)| k.clone()).collect();
            for k in keys {
                m.rows.entry(k).or_default().push((v, None));
            }
        }
        for (k, op) in p.ops {
            let new = match op {
                Op::Set(x, _) => Some(x),
                Op::Clear => None,
                Op::Atomic(ops) => {
                    let mut cur = at(&m.rows, &k, v);
                    for (mx, o) in ops {
                        cur = Some(atomic(cur.as_deref(), mx, &o));
                    }
                    cur
                }
            };
            for s in m.watches.remove(&k).unwrap_or_default() {
                let _ = s.send(());
            }
            m.rows.entry(k).or_default().push((v, new));
        }
        m.conflicts.extend(p.writes.into_iter().map(|(b, e)| (v, b, e)));
        let n = m.conflicts.len();
        if n > 20_000 {
            m.conflicts.drain(..n - 10_000);
        }
        Ok(v)
    }
}
