//! Hazard: `tern check` calls a damaged store sound, or a sound one damaged, also while it is written to.
//!
//! Every kind of damage is planted alone into a store that has every kind of row, and taken out again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../rig/mod.rs"]
mod rig;
#[path = "../sets_world/mod.rs"]
mod sets_world;
#[path = "../support/mod.rs"]
mod support;

mod busy;
mod hashes;
mod scripts;
mod streams;

use bytes::Bytes;
use rig::{Rig, error};
use std::process::Command;
use tern::env::Env;
use tern::keyspace::dictionary::ids::integer_id;
use tern::keyspace::dictionary::members;
use tern::keyspace::idempotency::IdempotencyRecord;
use tern::keyspace::keys::{IdempotencyName, Oid, Prefix, SHARDS, hash, root, root::Garbage, shard};
use tern::lifecycle::check::{CheckError, Report, check};
use tern::lifecycle::idempotency::sweep;
use tern::server::reply::Reply;
use tern::store::{RangeOptions, Read, Store};
use tern::types::Value;
use tern::types::record::{Record, Stored};
use tern::types::set::{SetRep, small::Small};
use tern::types::string::Str;

async fn read(store: &Store) -> Report {
    check(store, &mut |_, _| {}).await.unwrap()
}

/// A store with every kind of row.
async fn populated() -> Rig {
    let mut rig = Rig::new().await;
    rig.space().beat().await.unwrap();
    rig.line("SELECT 3").await;
    rig.line("SET gone v").await;
    rig.line("FLUSHDB").await;
    rig.line("SET other v").await;
    rig.line("SELECT 0").await;
    for line in ["SET plain v", "SET dying v PX 100000", "SADD raw a b c", "SADD ints 1 2 3"] {
        rig.line(line).await;
    }
    rig.run(&[&b"SET"[..], b"long", &[b'x'; 100_000]]).await;
    let words: Vec<String> = (0..3000).map(|n| format!("member:{n}")).collect();
    let numbers: Vec<String> = (0..40_000).map(|n| (n * 77).to_string()).collect();
    for (key, members) in [("words", &words), ("numbers", &numbers), ("deleted", &words)] {
        let argv = ["SADD".to_owned(), key.into()].into_iter().chain(members.iter().cloned());
        rig.run(&Vec::from_iter(argv)).await;
    }
    rig.line("DEL deleted").await;
    let pairs: Vec<String> = (0..1000).flat_map(|n| [format!("field:{n}"), n.to_string()]).collect();
    rig.run(&Vec::from_iter(["HSET".to_owned(), "fields".into()].into_iter().chain(pairs))).await;
    rig.run(&["HSET", "fields", "long", &"x".repeat(100_000), "longer", &"y".repeat(70_000)]).await;
    rig.line("HDEL fields field:7 field:8").await;
    rig.line("HSET small a 1 b 2").await;
    rig.run(&["SADD", "words", &"long ".repeat(200)]).await;
    rig.line("SADD words aaa").await;
    rig.line("SADD numbers 1 2 3").await;
    rig.line("SREM numbers 77 154").await;
    for n in 1..=300 {
        rig.line(&format!("XADD {} 1-{n} field {n}", streams::KEY)).await;
    }
    rig.run(&["XADD", streams::KEY, "2-0", "long", &"x".repeat(70_000)]).await;
    rig.run(&["XADD", streams::KEY, "3-0", "longer", &"y".repeat(100_000)]).await;
    for line in streams::LINES {
        rig.line(line).await;
    }
    rig.under_id("an-id-of-16-bytes", "INCR counter").await;
    rig.under_id("an-id-of-a-long-reply", "GET long").await;
    rig
}

struct Plants {
    rig: Rig,
    db: Prefix,
}

impl Plants {
    async fn value(&self, row: &[u8]) -> Option<Bytes> {
        self.rig.server.store.begin().get(row, Read::Snapshot).await.unwrap()
    }
    async fn first(&self, from: &[u8], to: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
        let page = self.rig.server.store.begin().get_range(from, to, opts, Read::Snapshot).await.unwrap();
        let (row, value) = page.pairs.first().expect("a row to damage");
        (row.to_vec(), value.to_vec())
    }
    /// The row that `member` shares with its neighbours.
    async fn group_of(&self, member: &str) -> (Vec<u8>, Vec<u8>) {
        let id = self.value(&root::forward(member.as_bytes())).await.unwrap();
        let group = root::members(members::group(u64::from_be_bytes(id[..].try_into().unwrap())));
        (group.to_vec(), self.value(&group).await.unwrap().to_vec())
    }
    async fn record(&self, key: &str) -> Record {
        let row = Stored::decode(self.value(&self.db.record(key.as_bytes())).await.unwrap()).unwrap();
        row.into_record().unwrap()
    }
    async fn oid(&self, key: &str) -> Oid {
        self.record(key).await.value.oid().unwrap()
    }
    async fn write(&self, row: &[u8], value: Option<&[u8]>) {
        loop {
            let tx = self.rig.server.store.begin();
            match value {
                Some(value) => tx.set(row, value).unwrap(),
                None => tx.clear(row).unwrap(),
            }
            if tx.commit().await.is_ok() {
                return;
            }
        }
    }
    /// Puts `value` (None: nothing) at `row`, and expects that the check reports `what` of the row `damaged`.
    async fn plant_and_find(&self, row: &[u8], value: Option<&[u8]>, damaged: &[u8], what: &str) {
        let before = self.value(row).await;
        assert_ne!(before.as_deref(), value, "{what}: nothing is damaged");
        self.write(row, value).await;
        let report = read(&self.rig.server.store).await;
        let found = report.problems.iter().any(|p| p.row == damaged && p.what.contains(what));
        assert!(found, "expected '{what}' of {}, got\n{report}", damaged.escape_ascii());
        self.write(row, before.as_deref()).await;
    }
    async fn plant(&self, row: &[u8], value: Option<&[u8]>, what: &str) {
        self.plant_and_find(row, value, row, what).await;
    }
}

async fn plants() -> Plants {
    let rig = populated().await;
    let db = rig.prefix().await;
    let plants = Plants { rig, db };
    let report = read(&plants.rig.server.store).await;
    assert!(report.is_sound(), "{report}");
    plants
}

#[tokio::test]
async fn damage_of_the_dictionary_and_the_leases_is_seen() {
    let p = plants().await;
    let (forward, id) = p.first(b"f\0aaa", b"f\0aab").await;
    let member = root::member(u64::from_be_bytes(id[..].try_into().unwrap()));
    p.plant_and_find(&forward, None, &member, "does not map the member").await;
    p.plant_and_find(&member, None, &forward, "an id without a member").await;
    p.plant_and_find(&member, Some(b"another"), &forward, "the id of another").await;
    p.plant(&member, Some(b"123"), "must not hold").await;
    p.plant(&forward, Some(b"short"), "holds no ids").await;
    p.plant(&forward, Some(&integer_id(b"7").unwrap().to_be_bytes()), "the id of an integer").await;
    let (long, _) = p.first(b"f\x01", b"g").await;
    p.plant(&long, Some(&7u64.to_be_bytes()), "an id without a member").await;
    let lease = [b'q', member[1] << 2 | member[2] >> 6];
    let (group, _) = p.group_of("member:7").await;
    p.plant_and_find(&lease, Some(&0u64.to_le_bytes()), &group, "was never leased").await;
    p.plant(&lease, Some(&[0xff; 8]), "out of range").await;
    p.plant(&root::member(u64::MAX >> 1), Some(b"m"), "an invalid id").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

#[tokio::test]
async fn damage_of_members_that_share_a_row_is_seen() {
    let p = plants().await;
    let (group, row) = p.group_of("member:7").await;
    let members = Vec::from_iter(members::entries(&group, &row).unwrap());
    let (at, forward) = (members[5].0, root::forward(members[5].1));
    p.plant(&group, Some(&row[1..]), "invalid members of a group").await;
    p.plant_and_find(&group, None, &forward, "an id without a member").await;
    p.plant_and_find(&forward, None, &group, &format!("the member to its id {at:#x}")).await;
    let mut other = row.clone();
    *other.last_mut().unwrap() ^= 1;
    p.plant(&group, Some(&other), "does not map the member").await;
    p.plant_and_find(&group, Some(&other), &root::forward(members[15].1), "the id of another").await;
    p.plant(&root::members(1 << 62), Some(&row), "an invalid id").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

#[tokio::test]
async fn damage_of_a_set_is_seen() {
    let p = plants().await;
    let (oid, words) = (p.oid("numbers").await, p.oid("words").await);
    let count = p.db.count(oid);
    let n = i128::from_le_bytes(p.value(&count).await.unwrap()[..].try_into().unwrap());
    p.plant(&count, Some(&(n + 1).to_le_bytes()), "the member count is").await;
    p.plant(&count, Some(b"x"), "the member count is not 16 bytes").await;
    p.plant(&count, None, "the member count is 0").await;
    let zero = p.db.chunk(oid, 0);
    let good = p.value(&zero).await.unwrap();
    p.plant(&zero, None, "has no chunk at 0").await;
    p.plant(&zero, Some(&good[..good.len() - 3]), "a chunk does not decode").await;
    let wrong_next = [&good[..1], &[9; 8], &good[9..]].concat();
    p.plant(&zero, Some(&wrong_next), "as the next one").await;
    let (second, other) = p.first(&p.db.chunk(oid, 1), &p.db.set_rows_end(oid, 0)).await;
    p.plant_and_find(&second, None, &zero, "as the next one").await;
    p.plant(&second, Some(&good), "a chunk does not decode").await; // its next one is this one
    p.plant(&second, Some(&[&other[..9], &good[9..]].concat()), "outside its bounds").await;
    p.plant(&zero, Some(&[&good[..9], &other[9..]].concat()), "outside its bounds").await;
    p.plant(&zero, Some(&[&good[..], b"tail"].concat()), "differently in place").await;
    let (delta, sign) = p.first(&p.db.delta(oid, 0), &p.db.set_rows_end(oid, 1)).await;
    let turned: &[u8] = if sign == b"+" { b"-" } else { b"+" };
    p.plant(&delta, Some(turned), "repeats what its chunk").await;
    p.plant(&delta, Some(b"?"), "a delta does not decode").await;
    p.plant_and_find(&delta, None, &count, "the member count is").await;
    let stranger = p.db.delta(words, 12345);
    p.plant(&stranger, Some(b"+"), "has no member").await;
    let (weight, _) = p.first(&p.db.weight(oid, 0, 0), &p.db.set_rows(oid).1).await;
    p.plant(&weight, Some(&1u64.to_le_bytes()), "a chunk's weight").await;
    p.plant(&weight, None, "a chunk's weight is missing").await;
    p.plant(&weight, Some(b"x"), "a weight does not decode").await;
    p.plant(&p.db.weight(oid, 1, 3), Some(&1u64.to_le_bytes()), "a weight belongs to no chunk").await;
    let (sum, _) = p.first(&p.db.weight_sum(oid, 0), &p.db.set_rows_end(oid, 2)).await;
    p.plant(&sum, Some(&[0; 16]), "sum of weights").await;
    p.plant(&sum, Some(b"x"), "a sum of weights does not decode").await;
    let odd = p.db.weight(oid, 99, 0);
    p.plant(&odd, Some(b""), "an unknown kind of row of a set").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

#[tokio::test]
async fn an_id_of_a_chunk_without_a_member_is_seen() {
    let p = plants().await;
    let oid = p.oid("words").await;
    let (row, id) = p.first(b"f\0member:7", b"f\0member:8").await;
    assert_eq!(id.len(), 8);
    let (group, _) = p.group_of("member:7").await;
    p.write(&row, None).await;
    p.plant_and_find(&group, None, &p.db.chunk(oid, 0), "has no member").await;
}

#[tokio::test]
async fn damage_of_records_and_of_what_repeats_them_is_seen() {
    let p = plants().await;
    let plain = p.db.record(b"plain");
    p.plant(&plain, Some(b"\x01\x63"), "corrupt data").await;
    p.plant_and_find(&plain, None, &p.db.key_count(shard(hash(b"plain"))), "the counter is").await;
    let misplaced = [p.db.record_from(7), b"plain".to_vec()].concat();
    p.plant(&misplaced, Some(&p.value(&plain).await.unwrap()), "no command finds it").await;
    let counter = p.db.key_count(shard(hash(b"plain")));
    p.plant(&counter, Some(&99i64.to_le_bytes()), "the counter is 99").await;
    p.plant(&counter, None, "the counter is 0").await;
    p.plant(&counter, Some(b"x"), "the counter is invalid").await;
    p.plant(&p.db.key_count(200), Some(&[0; 8]), "a shard that does not exist").await;
    let dying = p.record("dying").await;
    let index = p.db.expiry(dying.expire_at.unwrap(), b"dying");
    p.plant_and_find(&index, None, &p.db.record(b"dying"), "the expiry index has no row").await;
    p.plant(&index, Some(b"x"), "has an invalid value").await;
    p.plant(&p.db.expiry(5, b"plain"), Some(b""), "matches no record").await;
    p.plant(&p.db.expiry(5, b"nobody"), Some(b""), "matches no record").await;
    p.plant(&[p.db.as_bytes(), b"Xshort"].concat(), Some(b""), "the expiry index has an invalid key").await;
    p.plant(&[p.db.as_bytes(), b"Q?"].concat(), Some(b""), "an unknown kind of row").await;
    p.plant(&[p.db.as_bytes(), b"~"].concat(), Some(b""), "an unknown kind of row").await;
    let small = |value| Record { revision: 1, expire_at: None, value }.encode();
    let twice = Bytes::from_static(b"\x01\0a\x01\0a");
    for (value, what) in [
        (Value::Set(SetRep::Listpack(twice)), "holds a member twice"),
        (Value::Set(SetRep::Listpack(Bytes::new())), "is empty"),
        (Value::Set(SetRep::Intset(Bytes::from_static(b"\x01x"))), "does not decode"),
        (Value::Str(Str::Inline(vec![0; 20_000].into())), "too long"),
    ] {
        p.plant(&p.db.record(b"raw"), Some(&small(value)), what).await;
    }
    // Ids of the dictionary, also one that has a member, and invalid ids; alone and among integers.
    let word = p.value(&root::forward(b"member:7")).await.unwrap();
    let word = u64::from_be_bytes(word[..].try_into().unwrap());
    let seven = integer_id(b"7").unwrap();
    for id in [0, word, (1 << 63) - 1, 0b11 << 62, u64::MAX] {
        for ids in [vec![id], vec![seven, id], vec![seven - 1, id, seven]] {
            let ids = Small::Ints(ids.into_iter().collect()).encode().unwrap();
            let what = format!("the id {id:#x}, which is not an integer's");
            p.plant(&p.db.record(b"ints"), Some(&small(Value::Set(ids))), &what).await;
        }
    }
    assert!(read(&p.rig.server.store).await.is_sound());
}

/// Memory for it is not asked for either: a server would end of that.
#[tokio::test]
async fn a_length_that_no_string_has_is_seen_and_not_believed() {
    let mut p = plants().await;
    let (row, oid) = (p.db.record(b"long"), p.oid("long").await);
    let sound = p.value(&row).await;
    for len in [u64::MAX, 1 << 40, (512 << 20) + 9] {
        let value = Value::Str(Str::Pieces { oid, len });
        let record = Record { revision: 1, expire_at: None, value }.encode();
        p.plant(&row, Some(&record), "corrupt data").await;
        p.write(&row, Some(&record)).await;
        for line in [
            "STRLEN long",
            "GET long",
            "GETRANGE long 0 5",
            "APPEND long x",
            "SETRANGE long 9 x",
            "COPY long copied",
        ] {
            let reply = p.rig.line(line).await;
            assert!(error(&reply).contains("corrupt data"), "{len}, {line}: {reply:?}");
        }
        p.write(&row, sound.as_deref()).await;
    }
}

/// What the allocator has counted says only when it goes on to further numbers.
#[tokio::test]
async fn a_count_of_numbers_that_there_are_not_harms_nobody() {
    let mut p = plants().await;
    for count in [i64::MAX, -1] {
        let (window, _) = p.first(b"a", b"b").await;
        p.write(&window, Some(&count.to_le_bytes())).await;
        assert_eq!(p.rig.line("FLUSHDB").await, Reply::Ok);
        assert_eq!(p.rig.line("SET k v").await, Reply::Ok);
        assert!(read(&p.rig.server.store).await.is_sound());
    }
}

#[tokio::test]
async fn objects_without_an_owner_or_with_two_are_seen() {
    let p = plants().await;
    let (long, words) = (p.oid("long").await, p.oid("words").await);
    let behind = p.db.piece(long, 99);
    p.plant(&behind, Some(b"x"), "does not fit its string").await;
    p.plant(&p.db.piece(long, 3), Some(&[1; 33_000]), "does not fit its string").await;
    for row in [p.db.piece(Oid(7), 0), p.db.count(Oid(7)), p.db.chunk(Oid(7), 0), p.db.piece(words, 0)] {
        p.plant(&row, Some(b"x"), "belongs to no key").await;
    }
    p.plant_and_find(&p.db.record(b"words"), None, &p.db.count(words), "belongs to no key").await;
    let copy = p.value(&p.db.record(b"words")).await.unwrap();
    p.plant_and_find(&p.db.record(b"plain"), Some(&copy), &p.db.count(words), "keys share one object").await;
    let garbage = root::garbage(Garbage::Object(p.db, words));
    p.plant_and_find(&garbage, Some(b""), &p.db.record(b"words"), "object is also listed as garbage").await;
    let building = root::garbage(Garbage::Building(p.db, long));
    p.plant_and_find(&building, Some(&[0; 8]), &p.db.record(b"long"), "object is also listed as garbage")
        .await;
    let (deleted, _) = p.first(b"g\x01", b"g\x02").await;
    let Some(Garbage::Object(_, oid)) = root::decode_garbage(&deleted.clone().into()) else { panic!() };
    p.plant_and_find(&deleted, None, &p.db.count(oid), "belongs to no key").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

#[tokio::test]
async fn damage_of_the_stores_own_rows_is_seen() {
    let p = plants().await;
    p.plant(&root::database(1), Some(b"x"), "no valid prefix").await;
    // The number of another database, spelled in another way.
    let [head, number @ ..] = p.db.as_bytes() else { panic!() };
    let longer = [&[head + 1, 0], number].concat();
    p.plant(&root::database(1), Some(&longer), "no valid prefix").await;
    p.plant(&root::database(1), Some(p.db.as_bytes()), "two databases have the prefix").await;
    p.plant(&root::database(1), Some(Prefix::from_number(60_000).as_bytes()), "the allocator could hand out")
        .await;
    p.plant(&root::garbage(Garbage::Database(p.db)), Some(b"x"), "a garbage row does not decode").await;
    let garbage = root::garbage(Garbage::Database(p.db));
    p.plant_and_find(&garbage, Some(b""), &root::database(0), "the database is also listed as garbage").await;
    let (flushed, _) = p.first(b"g\x02", b"g\x03").await;
    let Some(Garbage::Database(old)) = root::decode_garbage(&flushed.clone().into()) else { panic!() };
    let (orphan, _) = p.first(old.as_bytes(), &tern::store::prefix_end(old.as_bytes())).await;
    p.plant_and_find(&flushed, None, &orphan, "a database that does not exist").await;
    p.plant(b"\xf0row", Some(b""), "under no valid database prefix").await;
    p.plant(b"z", Some(b""), "an unknown kind of row").await;
    p.plant(b"a1", Some(b""), "a window of the allocator").await;
    p.plant(b"r1", Some(b""), "a number of the allocator").await;
    p.plant(b"l1", Some(b""), "a lane").await;
    p.plant(b"g\x09", Some(b""), "a garbage row does not decode").await;
    p.plant(&root::half_copied(), Some(b"\x01"), "has not finished").await;
    let (instance, _) = p.first(b"i", b"j").await;
    p.plant(&instance, Some(b"x"), "a server's row").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

#[tokio::test]
async fn damage_of_idempotency_records_is_seen() {
    let p = plants().await;
    let default = p.rig.space().secret().await.unwrap().owner(b"default");
    let owner = Some(default);
    let of = IdempotencyName { owner, id: b"an-id-of-a-long-reply" };
    let (head, piece) = (root::idempotency_record(of), root::idempotency_piece(of, 1));
    let (age, value) = p.first(b"u", b"v").await;
    let (_, named) = root::decode_idempotency_age(&age, true).unwrap();
    assert_eq!(named.owner, owner);
    p.plant_and_find(&age, None, &root::idempotency_record(named), "the age index has no matching row").await;
    p.plant(&age, Some(b"??"), "matches no idempotency record").await;
    p.plant_and_find(&root::idempotency_record(named), None, &age, "matches no idempotency record").await;
    p.plant(&root::idempotency_age(5, named), Some(&value), "matches no idempotency record").await;
    p.plant(&[&[b'u', 77][..], &age[2..]].concat(), Some(&value), "in the wrong shard").await;
    p.plant(b"u", Some(b""), "the age index has an invalid key").await;
    p.plant(&head, Some(b"x"), "an idempotency record does not decode").await;
    p.plant_and_find(&piece, None, &head, "its pieces hold").await;
    p.plant(&piece, Some(b"x"), "a piece of a kept reply has 1 bytes").await;
    p.plant_and_find(&head, None, &piece, "belongs to no idempotency record").await;
    p.plant(b"t\x05abcdefghij", Some(b""), "an idempotency record has an invalid key").await;
    for row in [root::idempotency_size(default), root::all_idempotency_size().to_vec()] {
        p.plant(&row, Some(b"x"), "the size of").await;
        p.plant(&row, Some(&77i64.to_le_bytes()), "the counter is 77").await;
        p.plant(&row, None, "the counter is 0").await;
    }
    p.plant(&root::secret(), Some(b"x"), "secret does not decode").await;
    p.plant(&root::secret(), None, "the store's secret is missing").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

/// Idempotency records from before ids had owners: they are sound, answer nobody, and expire by age.
#[tokio::test]
async fn idempotency_records_without_an_owner_are_sound() {
    let mut rig = Rig::new().await;
    let id = b"an-id-of-a-former-version";
    let of = IdempotencyName { owner: None, id };
    for (long, id) in [(false, &id[..]), (true, &b"another-one-with-pieces"[..])] {
        let len = if long { 40_000 } else { 3 };
        let reply = if long { Bytes::new() } else { Bytes::from_static(b"\x01:1") };
        let record = IdempotencyRecord { is_owned: false, fingerprint: 1, at: 77, db: 0, len, reply };
        let of = IdempotencyName { owner: None, id };
        let tx = rig.server.store.begin();
        tx.set(&root::idempotency_record(of), &record.encode()).unwrap();
        tx.set(&root::idempotency_age(77, of), if long { &[1][..] } else { &[] }).unwrap();
        for (n, piece) in vec![b'x'; 40_000].chunks(32 * 1024).enumerate().filter(|_| long) {
            tx.set(&root::idempotency_piece(of, n as u16), piece).unwrap();
        }
        tx.commit().await.unwrap();
    }
    let sound = async || assert!(read(&rig.server.store).await.is_sound());
    sound().await;
    for shard in 0..SHARDS {
        assert_eq!(sweep(rig.space(), shard, &None, 77, 100).await.unwrap().removed, 0);
    }
    let answer = rig.line("IDEMPOTENT RESULT an-id-of-a-former-version").await;
    assert_eq!(answer, Reply::Array(vec![Reply::Int(0), Reply::Nil]));
    let row = rig.server.store.begin().get(&root::idempotency_record(of), Read::Snapshot).await.unwrap();
    assert!(row.is_some());
    let mut removed = 0;
    for shard in 0..SHARDS {
        removed += sweep(rig.space(), shard, &None, 78, 100).await.unwrap().removed;
    }
    assert_eq!(removed, 2);
    let left = rig.server.store.begin().get_range(b"t", b"v", RangeOptions::default(), Read::Snapshot).await;
    assert!(left.unwrap().pairs.is_empty());
    let report = read(&rig.server.store).await;
    assert!(report.is_sound(), "{report}");
}

#[tokio::test]
async fn nothing_is_no_store() {
    let (store, _dir) = sets_world::fresh().await;
    assert_eq!(check(&store, &mut |_, _| {}).await, Err(CheckError::NoData));
}

/// What the binary says of an embedded store: 0, 1 or 2.
#[test]
fn the_exit_status_tells() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let run = || {
        let output =
            Command::new(env!("CARGO_BIN_EXE_tern")).arg("check").arg("--dir").arg(&dir).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (code, said) = run();
    assert_eq!((code, said.contains("holds no store")), (Some(2), true), "{said}");
    std::fs::create_dir(&dir).unwrap();
    let open = || {
        let options = tern::store::local::LocalOptions::new(tern::env::Clock::System);
        Store::Local(tern::store::local::Local::open(&dir, options).unwrap())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let row = |row: &'static [u8], make: bool| {
        runtime.block_on(async {
            let store = open();
            if make {
                tern::keyspace::Keyspace::open(store.clone(), &Env::seeded(1, 1), 1).await.unwrap();
            }
            let tx = store.begin();
            if make {
                tx.clear(row).unwrap()
            } else {
                tx.set(row, b"").unwrap()
            }
            tx.commit().await.unwrap();
            store.close().await.unwrap();
        });
    };
    row(b"z", true);
    let (code, said) = run();
    assert_eq!((code, said.contains("sound")), (Some(0), true), "{said}");
    row(b"z", false);
    let (code, said) = run();
    assert_eq!((code, said.contains("damaged: z: an unknown kind of row")), (Some(1), true), "{said}");
    let used = open();
    let (code, said) = run();
    assert_eq!((code, said.contains("cannot open")), (Some(2), true), "{said}");
    drop(used);
}
