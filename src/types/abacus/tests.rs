//! Runs the test-only type through everything that works on any value.

use super::super::Kind;
use super::*;
use crate::exec::fixtures::{self, World};
use crate::keyspace::keys::{root, root::Garbage};
use crate::lifecycle::{copy, expire, reclaim::reclaim, watched};
use crate::server::reply::Reply;
use std::time::Duration;

impl World {
    async fn run(&self, line: &str) -> Reply {
        let done = self.exec.run(fixtures::unit(&[line])).await;
        done.replies.unwrap().remove(0)
    }

    async fn int(&self, line: &str) -> i64 {
        match self.run(line).await {
            Reply::Int(n) => n,
            other => panic!("{line}: {other:?}"),
        }
    }

    async fn text(&self, line: &str) -> String {
        match self.run(line).await {
            Reply::Bulk(text) => String::from_utf8(text.to_vec()).unwrap(),
            Reply::Simple(text) => text.to_string(),
            Reply::Error(e) => format!("{e:?}"),
            other => panic!("{line}: {other:?}"),
        }
    }

    async fn rows(&self) -> usize {
        let (begin, end) = self.db.tagged(TAG);
        let tx = self.server.store.begin();
        tx.get_range(&begin, &end, RangeOptions::default(), Read::Snapshot).await.unwrap().pairs.len()
    }

    async fn print(&self, key: &'static str) -> watched::Fingerprint {
        let tx = self.server.store.begin();
        let s = self.server.space.scope(&tx, self.db);
        watched::watch(&s, 0, &Bytes::from_static(key.as_bytes())).await.unwrap()
    }

    async fn reclaim(&self) {
        let _ = self.server.space.register().await.unwrap();
        self.server.space.beat().await.unwrap();
        while let Some(from) = reclaim(&self.server.space, None, 100).await.unwrap().next {
            let _ = reclaim(&self.server.space, Some(&from), 100).await.unwrap();
        }
    }
}

#[tokio::test]
async fn generic_commands_know_it() {
    let w = World::new().await;
    assert_eq!([w.int("AINCR k a").await, w.int("AINCR k a").await, w.int("AINCR k b").await], [1, 2, 1]);
    assert_eq!(w.text("TYPE k").await, "abacus");
    assert_eq!(w.text("OBJECT ENCODING k").await, "rows");
    assert_eq!([w.int("OBJECT REFCOUNT k").await, w.int("EXISTS k").await, w.int("DBSIZE").await], [1, 1, 1]);
    assert!(w.int("MEMORY USAGE k").await >= 64);
    assert!(w.text("GET k").await.contains("WRONGTYPE"));
    assert!(w.text("SADD k a").await.contains("WRONGTYPE"));
    assert!(w.text("DUMP k").await.contains("DUMP"));
    let Reply::Array(scanned) = w.run("SCAN 0 TYPE abacus").await else { panic!() };
    assert_eq!(scanned[1], Reply::Array(vec![Reply::Bulk(Bytes::from_static(b"k"))]));
    let tx = w.server.store.begin();
    let s = w.server.space.scope(&tx, w.db);
    let slot = object::open(&s, &Bytes::from_static(b"k"), Read::Snapshot).await.unwrap();
    assert_eq!(slot.record().unwrap().value.len(&s, Read::Snapshot).await, Ok(2));
    assert_eq!(w.problems().await, [""; 0]);
}

#[tokio::test]
async fn a_copy_has_rows_of_its_own_and_a_name_takes_them_along() {
    let w = World::new().await;
    w.int("AINCR k a").await;
    assert_eq!(w.int("COPY k other").await, 1);
    assert_eq!([w.int("AINCR other a").await, w.int("AGET k a").await], [2, 1]);
    w.run("RENAME other third").await;
    assert_eq!([w.int("AGET third a").await, w.int("EXISTS other").await], [2, 0]);
    assert_eq!(w.int("MOVE third 1").await, 1);
    assert_eq!(w.rows().await, 2, "the one that was moved waits to be reclaimed");
    let key = Bytes::from_static(b"k");
    let built = copy::prebuild(&w.server.space, (w.db, w.db), &key, 60_000).await.unwrap().unwrap();
    assert_eq!((built.len(), w.rows().await), (1, 3));
    assert_eq!(Kind::Abacus.prebuilt(&built).oid(), Some(built.oid()));
    assert_eq!(w.problems().await, [""; 0]);
}

#[tokio::test]
async fn what_is_deleted_or_expired_is_reclaimed() {
    let w = World::new().await;
    for key in ["a", "b", "c"] {
        w.int(&format!("AINCR {key} n")).await;
    }
    assert_eq!(w.int("DEL a").await, 1);
    assert_eq!(w.int("PEXPIRE b 1000").await, 1);
    w.server.env.clock.advance(Duration::from_millis(2000));
    assert_eq!(w.int("EXISTS b").await, 0);
    for shard in 0..16 {
        expire::sweep(&w.server.space, 0, shard, 1000, &mut expire::Expired::default()).await.unwrap();
    }
    w.run("SET c text").await;
    assert_eq!(w.rows().await, 3);
    w.reclaim().await;
    assert_eq!((w.rows().await, w.int("DBSIZE").await), (0, 1));
    assert_eq!(w.problems().await, [""; 0]);
}

#[tokio::test]
async fn watch_sees_each_change() {
    let w = World::new().await;
    w.int("AINCR k a").await;
    let first = w.print("k").await;
    assert_eq!(w.print("k").await, first);
    w.int("AINCR k a").await;
    assert_ne!(w.print("k").await, first, "its record is the same, its count of changes is not");
}

#[tokio::test]
async fn check_audits_its_rows() {
    let w = World::new().await;
    w.int("AINCR k a").await;
    let tx = w.server.store.begin();
    let s = w.server.space.scope(&tx, w.db);
    let slot = object::open(&s, &Bytes::from_static(b"k"), Read::Serializable).await.unwrap();
    let Some(Abacus(oid)) = slot.of_type().unwrap() else { panic!() };
    tx.set(&row(w.db, *oid, b"a"), b"short").unwrap();
    tx.set(&row(w.db, Oid(7), b"a"), &[0; 8]).unwrap();
    tx.commit().await.unwrap();
    let problems = w.problems().await;
    assert!(problems.iter().any(|p| p.ends_with("a row of an abacus is not a number")), "{problems:?}");
    assert!(problems.iter().any(|p| p.contains("rows of an object that belongs to no key")), "{problems:?}");
    assert_eq!(root::garbage(Garbage::Object(w.db, *oid)).first(), Some(&b'g'));
}
