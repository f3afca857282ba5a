//! Valid inputs for the mutator to break. The encoders produce them, so they follow the formats.

use super::choices::Choices;
use bytes::Bytes;
use roaring::RoaringTreemap;
use tern::keyspace::catalog::Place;
use tern::keyspace::cluster::instances::Instance;
use tern::keyspace::cluster::messages::{Message, encode};
use tern::keyspace::dictionary::collector::{State, encode_candidates};
use tern::keyspace::dictionary::ids::BLOCK;
use tern::keyspace::idempotency::{Age, IdempotencyRecord};
use tern::keyspace::keys::{Id, IdempotencyName, Oid, Owner, Prefix, root, root::Garbage};
use tern::lifecycle::dump;
use tern::server::reply::Reply;
use tern::server::reply_codec;
use tern::types::Value;
use tern::types::hash::HashRep;
use tern::types::hyperloglog::HyperLogLog;
use tern::types::list::{Extent, ListRep};
use tern::types::record::{Ghost, Record};
use tern::types::set::SetRep;
use tern::types::set::chunk::cut;
use tern::types::set::small::Small;
use tern::types::stream::StreamRep;
use tern::types::string::Str;

/// Redis' checksum (Jones), bit by bit.
pub fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc: u64, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x95AC_9329_AC4B_C9B5 } else { crc >> 1 }
        })
    })
}

fn owned(inputs: &[&[u8]]) -> Vec<Vec<u8>> {
    inputs.iter().map(|i| i.to_vec()).collect()
}

fn members(n: usize) -> Vec<Bytes> {
    (0..n).map(|i| Bytes::from(format!("member-{i}"))).collect()
}

pub fn requests() -> Vec<Vec<u8>> {
    let mut all = owned(&[
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nva\r\nl\r\n*1\r\n$4\r\nPING\r\n",
        b"*0\r\n*-1\r\n*1\r\n$0\r\n\r\n",
        b"*2\r\n$3\r\nGET\r\n$20000\r\n",
        b"set k \"a b\\x41\\n\" 'it\\'s'\r\nPING\n\r\n",
        b"*2147483647\r\n$536870912\r\n",
        b"*1\r\n*1\r\n$1\r\na\r\n",
        b"+OK\r\n:1\r\n%1\r\n",
    ]);
    all.push([&b"*2\r\n$4\r\nECHO\r\n$5000\r\n"[..], &[b'x'; 5000], b"\r\nPING\r\n"].concat());
    all
}

pub fn payloads() -> Vec<Vec<u8>> {
    let integers: Vec<Bytes> = [-1i64, 0, 7, 70_000, 1 << 40].map(|n| Bytes::from(n.to_string())).into();
    // An LZF string: 10 literal bytes, then a repeat.
    let squeezed = [&[0, 0xc3, 4, 11, 0, b'a', 0xe0, 0][..], &[0, 10, 0]].concat();
    let listpack =
        [&[20, 16][..], &[16, 0, 0, 0, 2, 0, 0x81, b'a', 2, 7, 1, 0x82, b'b', b'c', 3, 0xff], &[11, 0]]
            .concat();
    let mut all = vec![
        dump::of_string(b"value"),
        dump::of_string(b"-12345"),
        dump::of_string(&[b'x'; 20_000]),
        dump::of_set(&members(5)),
        dump::of_set(&members(200)),
        dump::of_integers(&integers),
        dump::of_hash(&members(6).chunks(2).map(|two| [two[0].clone(), two[1].clone()]).collect::<Vec<_>>()),
    ];
    all.push(dump::of_list(&members(7)));
    all.push(dump::of_libraries(&members(3)));
    // Hashes in the forms of several versions: listpack, ziplist, zipmap.
    let [listpack_hash, ziplist, zipmap]: [&[u8]; 3] = [
        b"\x10\x0d\x0d\x00\x00\x00\x02\x00\x81a\x02\xc1\x00\x02\xff\x0a\x00",
        b"\x0d\x18\x18\x00\x00\x00\x12\x00\x00\x00\x04\x00\x00\x01a\x03\xf2\x02\x01b\x03\x03two\xff\x09\x00",
        b"\x09\x0f\x02\x01a\x01\x001\x01b\x03\x01two!\xff\x06\x00",
    ];
    // A stream of redis-server 7.0: an entry, a group, a consumer with a pending entry.
    let stream = b"\x13\x01\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x1d\x1d\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x81\x66\x02\0\
        \x01\x02\x01\0\x01\0\x01\x81\x76\x02\x04\x01\xff\x01\x01\x01\x01\x01\0\0\x01\x01\x01g\x01\x01\x01\x01\0\0\0\0\0\0\0\
        \x01\0\0\0\0\0\0\0\x01\x01\0\0\0\0\0\0\0\x01\x01\x01c\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\
        \x0a\0";
    // Lists: a ziplist, one in a quicklist, and a quicklist of a listpack and a plain element.
    let lists = [
        [b"\x0a", &ziplist[1..]].concat(),
        [b"\x0e\x01", &ziplist[1..]].concat(),
        [b"\x12\x02\x02", &listpack_hash[1..15], b"\x01\x03abc\x0a\x00"].concat(),
    ];
    let hashes = [listpack_hash, ziplist, zipmap].map(Vec::from);
    for body in [squeezed, listpack].into_iter().chain(hashes).chain(lists).chain([stream.to_vec()]) {
        let sealed = crc64(&body).to_le_bytes();
        all.push([body, sealed.to_vec()].concat());
    }
    all
}

fn extent(oid: u128, first: i64) -> Extent {
    Extent { oid: Oid(oid), first, len: 9, bytes: 45_000, long: 1 }
}

pub fn records() -> Vec<Vec<u8>> {
    let raw = Small::encode(&Small::Raw(members(3))).unwrap();
    let ints = Small::encode(&Small::Ints([1, 2, 70_000, 1 << 63].into_iter().collect())).unwrap();
    let values = [
        Value::Str(Str::Inline(Bytes::from_static(b"abc"))),
        Value::Str(Str::Pieces { oid: Oid(7), len: 1 << 29 }),
        Value::Str(Str::Made { bytes: Bytes::from_static(b"12"), raw: true }),
        Value::Set(raw),
        Value::Set(ints),
        Value::Set(SetRep::Chunked(Oid(u128::MAX))),
        Value::Hash(HashRep::Listpack(Bytes::from_static(b"\x01\0a\x02\0bc\0\0\0\0"))),
        Value::Hash(HashRep::Rows { oid: Oid(9), is_small: true, due: None }),
        Value::Hash(HashRep::Rows { oid: Oid(10), is_small: false, due: None }),
        Value::Hash(HashRep::Rows { oid: Oid(11), is_small: true, due: Some(1 << 40) }),
        Value::Hash(HashRep::Rows { oid: Oid(12), is_small: false, due: Some(1 << 40) }),
        Value::List(ListRep::Listpack(Bytes::from_static(b"\x01\0a\x02\0bc\0\0"))),
        Value::List(ListRep::Rows { extent: extent(13, -7), is_small: false }),
        Value::List(ListRep::Rows { extent: extent(14, i64::MAX - 9), is_small: true }),
        Value::Stream(StreamRep {
            len: 3,
            first: Id::new(5, 1),
            last: Id::MAX,
            added: 9,
            ..StreamRep::new(Oid(15))
        }),
    ];
    let record = |(n, value): (usize, Value)| {
        Record { revision: n as u64, expire_at: (n % 2 == 0).then_some(1 << 40), value }.encode()
    };
    let ghost = Ghost { revision: 42, expire_at: 1 << 40, swaps: 1 }.encode();
    values.into_iter().enumerate().map(record).chain([ghost]).collect()
}

pub fn idempotency_records() -> Vec<Vec<u8>> {
    let short = IdempotencyRecord {
        is_owned: true,
        fingerprint: 1,
        at: 2,
        db: 3,
        len: 4,
        reply: Bytes::from_static(b"abcd"),
    };
    let long = IdempotencyRecord { len: 5_000_000, reply: Bytes::new(), ..short.clone() };
    let former = IdempotencyRecord { is_owned: false, ..short.clone() };
    vec![short.encode(), long.encode(), former.encode()]
}

pub fn ages() -> Vec<Vec<u8>> {
    let ages = [(false, None), (true, None), (false, Some(130)), (true, Some(5_000_000))];
    let of = |(has_pieces, size)| Age { has_pieces, size }.encode();
    ages.into_iter().map(of).collect()
}

pub fn instances() -> Vec<Vec<u8>> {
    let address = "127.0.0.1:6379".to_owned();
    vec![Instance { epoch: 1, beat: 2, started: 3, at: 4, address, version: "0.1.0".into() }.encode()]
}

pub fn replies() -> Vec<Vec<u8>> {
    let bulk = || Reply::Bulk(Bytes::from_static(b"bulk"));
    let nested = Reply::Array(vec![Reply::Array(vec![bulk(), Reply::Nil]), Reply::Set(vec![Reply::Int(-1)])]);
    let all = [
        Reply::Ok,
        bulk(),
        Reply::Int(7),
        Reply::Double(0.5),
        Reply::Map(vec![(bulk(), Reply::NilArray)]),
        Reply::Pairs(vec![(bulk(), Reply::Int(2))]),
        nested,
    ];
    all.iter().filter_map(reply_codec::encode).collect()
}

pub fn chunks() -> Vec<Vec<u8>> {
    let scattered: RoaringTreemap = (0..3000u64).map(|n| n * 977).collect();
    let mut runs: RoaringTreemap = (100..60_000u64).collect();
    runs.optimize();
    let dense: RoaringTreemap = (0..40_000u64).map(|n| n * 3 / 2).collect();
    let high: RoaringTreemap = [1, 1 << 33, u64::MAX].into_iter().collect();
    let all = [RoaringTreemap::new(), scattered, runs, dense, high];
    all.into_iter().flat_map(|ids| cut(0, ids).unwrap()).map(|piece| piece.encode(Some(1 << 40))).collect()
}

pub fn member_rows() -> Vec<Vec<u8>> {
    let row = |key: &[u8], value: &[u8]| [&[key.len() as u8], key, value].concat();
    let group = |lengths: [u16; 16]| -> Vec<u8> {
        let text: usize = lengths.iter().filter(|len| **len != u16::MAX).map(|len| usize::from(*len)).sum();
        lengths.iter().flat_map(|len| len.to_be_bytes()).chain(vec![b'x'; text]).collect()
    };
    let mut some = [3; 16];
    (some[0], some[7], some[15]) = (u16::MAX, 0, 300);
    vec![
        row(&root::member(42), b"member"),
        row(&root::members(32), &group([4; 16])),
        row(&root::members(1 << 40), &group(some)),
        row(&root::members(0), &group([u16::MAX; 16])),
    ]
}

pub fn forward_rows() -> Vec<Vec<u8>> {
    let row = |ids: &[u64]| ids.iter().flat_map(|id| id.to_be_bytes()).collect::<Vec<u8>>();
    let one = row(&[77]);
    vec![one, row(&[1, 1 << 60, 3]), row(&[77, 78])]
}

pub fn catalog_rows() -> Vec<Vec<u8>> {
    let prefixes = [0, 3, 255, 70_000, u32::MAX]
        .map(|n| Place { prefix: Prefix::from_number(n), swaps: u64::from(n) }.encode());
    let state = State { epoch: 3, owner: u64::MAX, to: 1 << 61, candidates: 9, ..State::default() };
    prefixes.into_iter().chain([state.encode(), State::default().encode()]).collect()
}

pub fn candidates() -> Vec<Vec<u8>> {
    let of = |block: u64, ids: &mut dyn Iterator<Item = u64>| {
        let ids: RoaringTreemap = ids.map(|id| block * BLOCK + id).collect();
        [root::candidates(block * BLOCK).to_vec(), encode_candidates(&ids).unwrap()].concat()
    };
    vec![of(0, &mut [7].into_iter()), of(9, &mut (0..BLOCK).step_by(3)), of(1 << 40, &mut (0..5000))]
}

pub fn messages() -> Vec<Vec<u8>> {
    let text = Bytes::from_static;
    let event = |keyspace, keyevent| Message::Event {
        db: 9,
        keyspace,
        keyevent,
        event: text(b"set"),
        key: text(b"key"),
    };
    let all = [
        Message::Channel(text(b"channel"), text(b"payload")),
        Message::Shard(text(b""), text(b"")),
        event(true, false),
        event(true, true),
    ];
    all.iter().map(|m| encode([m].into_iter())).chain([encode(all.iter())]).collect()
}

pub fn row_keys() -> Vec<Vec<u8>> {
    let db = Prefix::from_number(3);
    vec![
        db.record(b"key"),
        db.piece(Oid(9), 4),
        db.chunk(Oid(9), 77),
        db.delta(Oid(9), 78),
        db.count(Oid(9)),
        db.field(Oid(9), b"field"),
        db.field_piece(Oid(9), 1 << 40, 3),
        db.entry(Oid(9), Id::new(1 << 40, 2)),
        db.entry_piece(Oid(9), Id::MAX, 3),
        db.group(Oid(9), b"group"),
        db.pending(Oid(9), 1 << 50, Id::new(7, 0)),
        db.owned(Oid(9), 1 << 50, 3, Id::new(7, 0)),
        db.consumer(Oid(9), 1 << 50, b"consumer"),
        db.group_count(Oid(9), 1 << 50),
        db.consumer_count(Oid(9), 1 << 50, 3),
        db.expiry(1 << 40, b"key"),
        db.key_count(1),
        root::lane(1, 2),
        root::instance(5).to_vec(),
        root::idempotency_record(IdempotencyName { owner: None, id: b"an-id-of-a-client" }),
        root::idempotency_piece(IdempotencyName { owner: Some(Owner([7; 16])), id: b"an-id-of-a-client" }, 3),
        root::idempotency_age(1 << 40, IdempotencyName { owner: None, id: b"an-id-of-a-client" }),
        root::idempotency_age(
            1 << 40,
            IdempotencyName { owner: Some(Owner([7; 16])), id: b"an-id-of-a-client" },
        ),
        root::forward(b"member"),
        root::member(42).to_vec(),
        root::made(db, Oid(9)),
        root::streamed(5).to_vec(),
        [&root::messages()[..], &[0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 0, 0, 2]].concat(),
        root::garbage(Garbage::Object(db, Oid(9))),
        root::garbage(Garbage::Database(db)),
        root::garbage(Garbage::Building(Prefix::from_number(70_000), Oid(u128::MAX))),
    ]
}

pub fn hyperloglogs() -> Vec<Vec<u8>> {
    let mut hll = HyperLogLog::new();
    let mut all = vec![hll.bytes()];
    for n in 0..300u32 {
        hll.adder(3000).add(&n.to_le_bytes()).unwrap();
        if n % 100 == 7 {
            all.push(hll.bytes());
        }
    }
    hll.make_dense().unwrap();
    all.push(hll.bytes());
    all
}

pub fn config_files() -> Vec<Vec<u8>> {
    let documented = include_bytes!("../../conf/tern.conf");
    let lines = documented.split(|b| *b == b'\n').filter(|l| !l.is_empty() && !l.starts_with(b"#"));
    let few: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
    let mut all: Vec<Vec<u8>> = few.chunks(6).map(|lines| lines.join(&b'\n')).collect();
    all.push(
        b"requirepass \"a \\x41\\n'\" \nsave '' \nclient-output-buffer-limit normal 1mb 2k 3\n".to_vec(),
    );
    all
}

pub fn acl_rules() -> Vec<Vec<u8>> {
    owned(&[
        b"on nopass ~* &* +@all",
        b"on %RW~* %R~read:* ~[a-z]*",
        b"on %R~read:* %R~* %W~*",
        b"on >secret %R~read:* %W~write:* %RW~both ~[a-z]?\\* resetchannels &news.*",
        b"off sanitize-payload #e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 -@all +@read -get +client|list",
        b"on (~temp* +@write -@dangerous) (%R~* +get allchannels) clearselectors (allkeys allcommands)",
        b"reset resetkeys allkeys nocommands +config|get -config +@set -sadd",
        b"skip-sanitize-payload <secret !e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 resetpass",
    ])
}

pub fn arguments() -> Vec<Vec<u8>> {
    owned(&[
        b"0",
        b"-1",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"18446744073709551615",
        b"+12 x",
        b"*a*[^b-d]?\\*aaabxaay*",
        b"[Z-a\\]]*[]zz]",
    ])
}

/// Random decisions of a generator, for no target in particular.
pub fn decisions() -> Vec<Vec<u8>> {
    let bytes = |seed: u64| {
        let mut choices = Choices::seeded(seed);
        (0..30 << (seed % 4)).map(|_| choices.next() as u8).collect()
    };
    (0..32).map(bytes).collect()
}
