//! Damage of hashes.

use super::{plants, read};
use bytes::Bytes;
use tern::server::reply::Reply;
use tern::types::Value;
use tern::types::hash::HashRep;
use tern::types::record::Record;

#[tokio::test]
async fn damage_of_a_hash_is_seen() {
    let p = plants().await;
    let (db, oid) = (p.db, p.oid("fields").await);
    let (count, field, long) = (db.count(oid), db.field(oid, b"field:1"), db.field(oid, b"long"));
    let n = i128::from_le_bytes(p.value(&count).await.unwrap()[..].try_into().unwrap());
    p.plant(&count, Some(&(n + 1).to_le_bytes()), "the field count is").await;
    p.plant(&count, Some(b"x"), "the field count is not 16 bytes").await;
    p.plant(&count, None, "the field count is 0").await;
    p.plant_and_find(&field, None, &count, "the field count is").await;
    p.plant_and_find(&db.field(oid, b"another"), Some(b"\0v"), &count, "the field count is").await;
    p.plant(&field, Some(b""), "a field of a hash does not decode").await;
    p.plant(&field, Some(b"\x02v"), "a field of a hash does not decode").await;
    p.plant(&field, Some(b"\x01short"), "a field of a hash does not decode").await;
    let misplaced = [&field[..], b"x"].concat();
    p.plant(&misplaced, Some(b"\0v"), "a field of a hash is not where its hash is").await;
    let held = p.value(&long).await.unwrap();
    p.plant_and_find(&field, Some(&held), &long, "two fields of a hash share a long value").await;
    let number = u64::from_le_bytes(held[9..].try_into().unwrap());
    let piece = |n| db.field_piece(oid, number, n);
    p.plant_and_find(&long, Some(b"\0v"), &piece(0), "a piece of a hash belongs to no field").await;
    p.plant(&db.field_piece(oid, number ^ 1, 0), Some(b"v"), "a piece of a hash belongs to no field").await;
    p.plant_and_find(&piece(3), None, &long, "a long value of a hash lacks pieces").await;
    p.plant_and_find(&piece(0), None, &piece(1), "a piece does not fit its field's value").await;
    p.plant(&piece(1), Some(b"short"), "a piece does not fit its field's value").await;
    p.plant(&piece(4), Some(b"x"), "a piece does not fit its field's value").await;
    p.plant(&[&piece(4)[..], b"x"].concat(), Some(b"x"), "a row of a hash has an invalid key").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

#[tokio::test]
async fn damage_of_a_hash_in_its_record_is_seen() {
    let p = plants().await;
    let what = "is empty, too large for a record, or holds a field twice";
    let large = [&[1, 0, b'a', 0x88, 0x13][..], &[b'v'; 5000]].concat();
    for (raw, what) in [
        (&b"\x01\0a"[..], "a hash in its record does not decode"),
        (b"\x01\0a\x05\0bc", "a hash in its record does not decode"),
        (b"\x01\0a\0\0\x01\0a\0\0", what),
        (b"", what),
        (&large, what),
    ] {
        let value = Value::Hash(HashRep::Listpack(Bytes::copy_from_slice(raw)));
        let record = Record { revision: 1, expire_at: None, value }.encode();
        p.plant(&p.db.record(b"small"), Some(&record), what).await;
    }
    assert!(read(&p.rig.server.store).await.is_sound());
}

#[tokio::test]
async fn damage_of_fields_that_expire_is_seen() {
    const AT: u64 = 40_000_000_000_000;
    let mut p = plants().await;
    let line = format!("HPEXPIREAT fields {AT} FIELDS 1 field:1");
    assert_eq!(p.rig.line(&line).await, Reply::Array(vec![Reply::Int(1)]));
    assert!(read(&p.rig.server.store).await.is_sound());
    let (db, oid) = (p.db, p.oid("fields").await);
    let (count, field) = (db.count(oid), db.field(oid, b"field:1"));
    let index = |at| db.field_expiry(oid, at, b"field:1");
    let what = "the index of a hash's fields by expiry does not fit them";
    p.plant_and_find(&index(AT), None, &count, what).await;
    p.plant_and_find(&index(AT + 1), Some(b""), &count, what).await;
    p.plant(&index(AT), Some(b"x"), "a row of the index of a hash's fields by expiry has a value").await;
    p.plant(&[&index(AT)[..], b"x"].concat(), Some(b""), "a row of a hash has an invalid key").await;
    let early = [&b"\x02"[..], &(AT - 1).to_le_bytes(), b"v"].concat();
    p.plant(&field, Some(&early), "a field of a hash expires before its record").await;
    let (due, record) = (db.expiry(AT, b"fields"), db.record(b"fields"));
    p.plant_and_find(&due, None, &record, "the expiry index has no row").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}
