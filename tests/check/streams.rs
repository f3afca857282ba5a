//! Damage of streams.

use super::support::rng::Rng;
use super::{Plants, plants, read};
use tern::keyspace::keys::{Id, Oid, Prefix, StreamRow};
use tern::store::{RangeOptions, Read};

/// The key of the stream that [`super::populated`] makes: entries 1-1 to 1-300, of which 1-7 and 1-8 were deleted, a long
/// one 2-0 and a longer one 3-0; the group `g`, whose consumer `alice` has 1-1 to 1-5 but 1-2, and `bob` 1-6; the group
/// `h`, of which nobody asked for anything.
pub const KEY: &str = "stream";

/// The commands that make it.
pub const LINES: &[&str] = &[
    "XDEL stream 1-7 1-8",
    "XGROUP CREATE stream g 0",
    "XGROUP CREATE stream h 1-9",
    "XREADGROUP GROUP g alice COUNT 5 STREAMS stream >",
    "XREADGROUP GROUP g bob COUNT 1 STREAMS stream >",
    "XACK stream g 1-2",
];

/// The numbers of the groups and consumers.
struct Numbers {
    g: u64,
    alice: u64,
    bob: u64,
}

async fn number(p: &Plants, row: &[u8]) -> u64 {
    u64::from_le_bytes(p.value(row).await.unwrap()[..8].try_into().unwrap())
}

async fn numbers(p: &Plants, oid: Oid) -> Numbers {
    let g = number(p, &p.db.group(oid, b"g")).await;
    let consumer = async |name: &[u8]| number(p, &p.db.consumer(oid, g, name)).await;
    Numbers { g, alice: consumer(b"alice").await, bob: consumer(b"bob").await }
}

const fn id(seq: u64) -> Id {
    Id::new(1, seq)
}

#[tokio::test]
async fn damage_of_the_entries_of_a_stream_is_seen() {
    let p = plants().await;
    let (db, oid) = (p.db, p.oid(KEY).await);
    let (record, entry, long) =
        (db.record(KEY.as_bytes()), db.entry(oid, id(9)), db.entry(oid, Id::new(2, 0)));
    let differs = "and its record says";
    p.plant_and_find(&entry, None, &record, differs).await;
    p.plant_and_find(&db.entry(oid, id(1)), None, &record, differs).await;
    let held = p.value(&entry).await.unwrap();
    p.plant_and_find(&db.entry(oid, id(7)), Some(&held), &record, differs).await;
    p.plant_and_find(&db.entry(oid, Id::MIN), Some(&held), &record, differs).await;
    p.plant(&db.entry(oid, Id::new(3, 1)), Some(&held), "an entry of a stream is behind its last id").await;
    for raw in [&b""[..], b"\0", b"\0\x01", b"\0\x01a", b"\0\x01a\x02b", b"\x01short", b"\x02\x01a\x01b"] {
        p.plant(&entry, Some(raw), "an entry of a stream does not decode").await;
    }
    let pieces = p.value(&long).await.unwrap();
    p.plant_and_find(&entry, Some(&pieces), &entry, "a long entry of a stream lacks pieces").await;
    let piece = |n| db.entry_piece(oid, Id::new(2, 0), n);
    p.plant_and_find(&long, Some(&held), &piece(0), "a piece of a stream belongs to no entry").await;
    p.plant(&db.entry_piece(oid, id(9), 0), Some(b"v"), "a piece of a stream belongs to no entry").await;
    p.plant_and_find(&piece(2), None, &long, "a long entry of a stream lacks pieces").await;
    p.plant_and_find(&piece(0), None, &piece(1), "a piece does not fit its entry").await;
    p.plant(&piece(1), Some(b"short"), "a piece does not fit its entry").await;
    p.plant(&piece(3), Some(b"x"), "a piece does not fit its entry").await;
    p.plant(&[&piece(3)[..], b"x"].concat(), Some(b"x"), "a row of a stream has an invalid key").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

#[tokio::test]
async fn damage_of_the_groups_of_a_stream_is_seen() {
    let p = plants().await;
    let (db, oid) = (p.db, p.oid(KEY).await);
    let Numbers { g, alice, bob } = numbers(&p, oid).await;
    let group = db.group(oid, b"g");
    let value = p.value(&group).await.unwrap();
    p.plant(&group, Some(&value[1..]), "a group of a stream does not decode").await;
    p.plant(&db.group(oid, b"other"), Some(&value), "two groups of a stream share their number").await;
    p.plant_and_find(&group, None, &db.pending(oid, g, id(1)), "belongs to no group").await;
    p.plant_and_find(&group, None, &db.group_count(oid, g), "belongs to no group").await;
    for row in [
        db.pending(oid, 7, id(1)),
        db.owned(oid, 7, alice, id(1)),
        db.consumer(oid, 7, b"alice"),
        db.group_count(oid, 7),
        db.consumer_count(oid, 7, alice),
    ] {
        p.plant(&row, Some(&[0; 24][..row_bytes(db, &row)]), "belongs to no group").await;
    }
    let consumer = db.consumer(oid, g, b"alice");
    let value = p.value(&consumer).await.unwrap();
    p.plant(&consumer, Some(&value[1..]), "a consumer of a stream does not decode").await;
    p.plant(&db.consumer(oid, g, b"other"), Some(&value), "two consumers of a group share their number")
        .await;
    let count = db.consumer_count(oid, g, alice);
    p.plant_and_find(&consumer, None, &count, "belong to no consumer").await;
    p.plant_and_find(&consumer, None, &count, "a number of pending entries belongs to no consumer").await;
    for (row, what) in [(db.group_count(oid, g), "16 bytes"), (count.clone(), "8 bytes")] {
        p.plant(&row, Some(b"x"), what).await;
    }
    p.plant(&db.group_count(oid, g), Some(&4i128.to_le_bytes()), "pending entries is 4, not 5").await;
    p.plant_and_find(&db.group_count(oid, g), None, &group, "a group of a stream has no count").await;
    p.plant(&count, Some(&5i64.to_le_bytes()), "pending entries is 5, not 4").await;
    p.plant(&count, Some(&(-1i64).to_le_bytes()), "pending entries is -1, not 4").await;
    p.plant(&count, None, "pending entries is 0, not 4").await;
    p.plant(&db.consumer_count(oid, g, bob), None, "pending entries is 0, not 1").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

/// As many bytes as a row of its kind holds.
fn row_bytes(db: Prefix, row: &[u8]) -> usize {
    match db.decode_stream_row(row).unwrap() {
        StreamRow::Pending(..) | StreamRow::Consumer(..) => 24,
        StreamRow::GroupCount(_) => 16,
        StreamRow::ConsumerCount(..) => 8,
        _ => 0,
    }
}

#[tokio::test]
async fn damage_of_pending_entries_is_seen() {
    let p = plants().await;
    let (db, oid) = (p.db, p.oid(KEY).await);
    let Numbers { g, alice, bob } = numbers(&p, oid).await;
    let (pending, owned) = (db.pending(oid, g, id(1)), db.owned(oid, g, alice, id(1)));
    let (count, others) = (db.consumer_count(oid, g, alice), db.consumer_count(oid, g, bob));
    let differs = "the pending entries of a consumer do not fit those of its group";
    p.plant_and_find(&pending, None, &count, differs).await;
    p.plant_and_find(&pending, None, &db.group_count(oid, g), "pending entries is 5, not 4").await;
    p.plant_and_find(&owned, None, &count, differs).await;
    p.plant_and_find(&db.owned(oid, g, alice, id(2)), Some(b""), &count, differs).await;
    p.plant_and_find(&db.owned(oid, g, bob, id(1)), Some(b""), &others, differs).await;
    p.plant(&owned, Some(b"x"), "a row of a pending entry by consumer has a value").await;
    let value = p.value(&pending).await.unwrap();
    p.plant(&pending, Some(&value[1..]), "a pending entry of a stream does not decode").await;
    let bobs = [&bob.to_le_bytes(), &value[8..]].concat();
    p.plant_and_find(&pending, Some(&bobs), &others, differs).await;
    // One moved to another id in one of the two.
    p.write(&owned, None).await;
    p.plant_and_find(&db.owned(oid, g, alice, id(2)), Some(b""), &count, differs).await;
    p.write(&owned, Some(b"")).await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

/// Hazard: rows of a group that was destroyed, of a consumer or an entry that was removed, or of a stream that was deleted
/// are left.
#[tokio::test]
async fn nothing_is_left_of_what_was_removed() {
    let mut p = plants().await;
    let (db, oid) = (p.db, p.oid(KEY).await);
    for line in [
        "XGROUP DELCONSUMER stream g bob",
        "XGROUP DESTROY stream g",
        "XGROUP DESTROY stream h",
        "XTRIM stream MAXLEN 0",
    ] {
        p.rig.line(line).await;
        let report = read(&p.rig.server.store).await;
        assert!(report.is_sound(), "{line}: {report}");
    }
    let all = db.object_rows(b'T', oid);
    let end = tern::store::prefix_end(&all);
    let tx = p.rig.server.store.begin();
    let page = tx.get_range(&all, &end, RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert_eq!(page.pairs, []);
    assert_eq!(p.rig.line("XLEN stream").await, tern::server::reply::Reply::Int(0));
}

/// A random command on few streams, groups, consumers and entries.
pub fn random_line(rng: &mut Rng) -> String {
    let key = format!("stream:{}", rng.below(2));
    let (group, consumer) = (format!("g{}", rng.below(2)), format!("c{}", rng.below(3)));
    let ids: Vec<String> = (0..1 + rng.below(6)).map(|_| format!("{}-0", 1 + rng.below(60))).collect();
    let (ids, n, count) = (ids.join(" "), ids.len(), 1 + rng.below(12));
    match rng.below(24) {
        0..=5 => format!("XADD {key} * field {}", "v".repeat([3, 30, 40_000][rng.below(3)])),
        // Late ones are refused.
        6 | 7 => format!("XADD {key} {}-0 field value other value", 1 + rng.below(60)),
        8 => format!("XDEL {key} {ids}"),
        9 => format!("XTRIM {key} MAXLEN {}", rng.below(40)),
        10 => format!("XGROUP CREATE {key} {group} 0 MKSTREAM"),
        11 | 12 => format!("XREADGROUP GROUP {group} {consumer} COUNT {count} STREAMS {key} >"),
        13 => format!("XREADGROUP GROUP {group} {consumer} COUNT {count} NOACK STREAMS {key} >"),
        14 | 15 => format!("XACK {key} {group} {ids}"),
        16 => format!("XCLAIM {key} {group} {consumer} 0 {ids} FORCE"),
        17 => format!("XAUTOCLAIM {key} {group} {consumer} 0 0 COUNT {count}"),
        18 => format!("XDELEX {key} {} IDS {n} {ids}", ["KEEPREF", "DELREF", "ACKED"][rng.below(3)]),
        19 => format!("XACKDEL {key} {group} {} IDS {n} {ids}", ["KEEPREF", "DELREF", "ACKED"][rng.below(3)]),
        20 => format!("XGROUP DELCONSUMER {key} {group} {consumer}"),
        21 => format!("COPY {key} stream:{} REPLACE", rng.below(2)),
        22 if rng.below(3) == 0 => format!("XGROUP DESTROY {key} {group}"),
        22 => format!("XGROUP SETID {key} {group} {}-0", rng.below(60)),
        _ if rng.below(4) == 0 => format!("DEL {key}"),
        _ => format!("RENAME {key} stream:{}", rng.below(2)),
    }
}
