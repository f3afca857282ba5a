//! What commands return of objects in rows, kept for each version of them: see [`ContentsCache`].
//!
//! [`ContentsCache`]: crate::keyspace::contents_cache::ContentsCache

use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::contents_cache::Asked;
use crate::keyspace::packed::Packed;
use crate::store::Read;
use crate::types::object::{self, Slot};
use bytes::Bytes;
use std::sync::Arc;

/// Bytes of arguments.
const LONG: usize = 1 << 10;

/// What a reply depends on.
pub(super) enum On {
    /// The whole value. A conflict on every change of it.
    Value,
    /// What is in these rows, on which `read` makes a conflict of its own.
    Rows([Vec<u8>; 2]),
}

/// What `read` returns of the value of `slot`, or returned before. It must depend on nothing but the value, `name` and
/// `args`. None if it returns that: nothing is kept then.
pub(super) async fn read_kept(
    s: &Scope<'_>,
    slot: &Slot,
    (name, args, on): (&[u8], &[Bytes], On),
    read: impl Future<Output = Result<Option<Packed>>>,
) -> Result<Option<Arc<Packed>>> {
    let asked = asked(s, slot, (name, args), &on).await?;
    if let Some(found) = asked.as_ref().and_then(|asked| s.space.contents.find(asked)) {
        if let On::Rows([begin, end]) = on {
            s.tx.add_read_conflict(&begin, &end)?;
        }
        return Ok(Some(found));
    }
    let Some(found) = read.await? else { return Ok(None) };
    Ok(Some(match asked {
        Some(asked) => s.space.contents.learn(asked, found),
        None => found.into(),
    }))
}

/// None for a value that has no rows, or of which this version may yet come to have other contents; and for a long
/// question, which would have to be kept with the answer.
async fn asked(
    s: &Scope<'_>,
    slot: &Slot,
    (name, args): (&[u8], &[Bytes]),
    on: &On,
) -> Result<Option<Asked>> {
    if args.iter().map(Bytes::len).sum::<usize>() > LONG {
        return Ok(None);
    }
    let Some(value) = slot.record().map(|record| &record.value) else { return Ok(None) };
    let Some(oid) = value.oid().filter(|_| value.due().is_none()) else { return Ok(None) };
    // N comes back if this transaction fails; revisions do not.
    if value.counter().is_some() && s.tx.is_write() {
        return Ok(None);
    }
    let read = match on {
        On::Value => Read::Serializable,
        On::Rows(_) => Read::Snapshot,
    };
    let Some(version) = object::version(s, slot, read).await? else { return Ok(None) };
    let mut command = name.to_vec();
    for arg in args {
        command.extend_from_slice(&(arg.len() as u64).to_le_bytes());
        command.extend_from_slice(arg);
    }
    let generation = s.tx.generation().await?;
    Ok(Some(Asked { oid, version, generation, command }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreError;
    use crate::exec::fixtures::World;
    use crate::store::Tx;
    use crate::types::contents::Parts;
    use crate::types::hash::{self, Limits};

    const KEY: Bytes = Bytes::from_static(b"k");
    const LIMITS: Limits = Limits { fields: 0, length: 0 };

    impl World {
        async fn set(&self, tx: &Tx, value: &'static str) {
            let s = self.server.space.scope(tx, self.db);
            let mut slot = object::open_members(&s, &KEY).await.unwrap();
            hash::set(&s, &mut slot, LIMITS, &[["f".into(), value.into()]]).await.unwrap();
        }

        async fn commit(&self, value: &'static str) {
            let tx = self.server.store.begin();
            self.set(&tx, value).await;
            tx.commit().await.unwrap();
        }

        /// The values, whether they had to be read, and the version.
        async fn values(&self, tx: &Tx) -> (Vec<String>, bool, (u64, i128)) {
            self.values_on(tx, On::Value).await
        }

        async fn values_on(&self, tx: &Tx, on: On) -> (Vec<String>, bool, (u64, i128)) {
            let s = self.server.space.scope(tx, self.db);
            let slot = object::open_members(&s, &KEY).await.unwrap();
            let mut is_read = false;
            let read = async {
                is_read = true;
                hash::packed(&s, slot.hash()?, Parts::Values, usize::MAX).await.map(Some)
            };
            let found = read_kept(&s, &slot, (b"hvals", &[], on), read).await.unwrap().unwrap();
            let values = found.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect();
            (values, is_read, object::version(&s, &slot, Read::Snapshot).await.unwrap().unwrap())
        }
    }

    #[tokio::test]
    async fn a_version_is_not_read_again_and_again() {
        let w = World::new().await;
        for value in ["1", "2", "3"] {
            w.commit(value).await;
            for reads in [true, true, false, false] {
                let (values, is_read, _) = w.values(&w.server.store.begin()).await;
                assert_eq!((values, is_read), (vec![value.to_owned()], reads));
            }
        }
    }

    #[tokio::test]
    async fn what_a_failed_transaction_read_is_not_kept() {
        let w = World::new().await;
        w.commit("before").await;
        let failed = w.server.store.begin();
        w.set(&failed, "never").await;
        w.values(&failed).await;
        let (values, _, of_failed) = w.values(&failed).await;
        assert_eq!(values, ["never"]);
        drop(failed);
        w.commit("after").await;
        let (values, _, version) = w.values(&w.server.store.begin()).await;
        assert_eq!(version, of_failed, "a version that had other contents");
        assert_eq!(values, ["after"]);
    }

    #[tokio::test]
    async fn what_was_not_read_again_conflicts_all_the_same() {
        let w = World::new().await;
        w.commit("before").await;
        w.values(&w.server.store.begin()).await;
        w.values(&w.server.store.begin()).await;
        let reader = w.server.store.begin();
        assert!(!w.values(&reader).await.1);
        let writer = w.server.store.begin();
        w.set(&writer, "after").await;
        writer.commit().await.unwrap();
        reader.set(b"elsewhere", b"").unwrap();
        assert_eq!(reader.commit().await, Err(StoreError::Conflict));
    }

    #[tokio::test]
    async fn what_depends_on_some_rows_conflicts_with_those() {
        let w = World::new().await;
        let rows = || On::Rows([b"x".to_vec(), b"y".to_vec()]);
        for (row, conflicts) in [(&b"w"[..], false), (b"x", true), (b"y", false)] {
            w.commit("before").await;
            w.values_on(&w.server.store.begin(), rows()).await;
            w.values_on(&w.server.store.begin(), rows()).await;
            let reader = w.server.store.begin();
            assert!(!w.values_on(&reader, rows()).await.1);
            let writer = w.server.store.begin();
            w.set(&writer, "after").await;
            writer.set(row, b"").unwrap();
            writer.commit().await.unwrap();
            reader.set(b"elsewhere", b"").unwrap();
            assert_eq!(reader.commit().await.is_err(), conflicts, "{row:?}");
        }
    }

    #[tokio::test]
    async fn a_long_question_is_not_kept() {
        let w = World::new().await;
        w.commit("1").await;
        let tx = w.server.store.begin();
        let s = w.server.space.scope(&tx, w.db);
        let slot = object::open_members(&s, &KEY).await.unwrap();
        for (bytes, kept) in [(LONG, true), (LONG + 1, false)] {
            let args = [Bytes::from(vec![b'x'; bytes])];
            let asked = asked(&s, &slot, (b"zrange", &args), &On::Value).await.unwrap();
            assert_eq!(asked.is_some(), kept, "{bytes}");
        }
    }
}
