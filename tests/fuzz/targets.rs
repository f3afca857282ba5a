//! Functions of bytes from outside that must return. If one yields a value, encoding it must give the same
//! bytes.

use super::{commands, corpus, rows};
use bytes::Bytes;
use futures_util::FutureExt;
use std::sync::Arc;
use tern::commands::generic::scan::parse_cursor;
use tern::commands::registry::table;
use tern::config::{Settings, from_text};
use tern::keyspace::catalog::Place;
use tern::keyspace::cluster::instances::Instance;
use tern::keyspace::cluster::messages;
use tern::keyspace::dictionary::collector::{State, decode_candidates, encode_candidates};
use tern::keyspace::dictionary::{forward, members};
use tern::keyspace::idempotency::{Age, IdempotencyRecord};
use tern::keyspace::keys::{Prefix, root};
use tern::lifecycle::dump;
use tern::net::resp::Decoder;
use tern::net::scan::{Limits, ProtocolError};
use tern::server::acl::{Acl, User};
use tern::server::glob::{Case, Glob};
use tern::server::reply_codec;
use tern::spec::words::atoi;
use tern::spec::words::parse_i64;
use tern::types::Value;
use tern::types::hyperloglog::{HyperLogLog, Registers};
use tern::types::record::{Record, Stored};
use tern::types::set::chunk::Row;
use tern::types::set::small::Small;

/// A function of bytes, and valid inputs of it.
pub struct Target {
    /// Also the name of its test.
    pub name: &'static str,
    /// Must return.
    pub run: fn(&[u8]),
    /// The mutator's corpus.
    pub corpus: fn() -> Vec<Vec<u8>>,
}

/// Decoders and parsers.
pub const ALL: &[Target] = &[
    Target { name: "requests", run: requests, corpus: corpus::requests },
    Target { name: "payloads", run: payloads, corpus: corpus::payloads },
    Target { name: "records", run: records, corpus: corpus::records },
    Target { name: "idempotency_records", run: idempotency_records, corpus: corpus::idempotency_records },
    Target { name: "ages", run: ages, corpus: corpus::ages },
    Target { name: "instances", run: instances, corpus: corpus::instances },
    Target { name: "replies", run: replies, corpus: corpus::replies },
    Target { name: "chunks", run: chunks, corpus: corpus::chunks },
    Target { name: "small_sets", run: small_sets, corpus: corpus::records },
    Target { name: "member_rows", run: member_rows, corpus: corpus::member_rows },
    Target { name: "forward_rows", run: forward_rows, corpus: corpus::forward_rows },
    Target { name: "catalog_rows", run: catalog_rows, corpus: corpus::catalog_rows },
    Target { name: "candidates", run: candidates, corpus: corpus::candidates },
    Target { name: "messages", run: cluster_messages, corpus: corpus::messages },
    Target { name: "row_keys", run: row_keys, corpus: corpus::row_keys },
    Target { name: "hyperloglogs", run: hyperloglogs, corpus: corpus::hyperloglogs },
    Target { name: "config_files", run: config_files, corpus: corpus::config_files },
    Target { name: "acl_rules", run: acl_rules, corpus: corpus::acl_rules },
    Target { name: "arguments", run: arguments, corpus: corpus::arguments },
];

/// Whole servers: the bytes decide what a generator makes. A thousand times slower, and useful only with
/// coverage.
pub const WHOLE: &[Target] = &[
    Target { name: "commands", run: commands::chosen, corpus: corpus::decisions },
    Target { name: "rows", run: rows::chosen, corpus: corpus::decisions },
];

/// RESP and inline: the same requests and errors in one piece and byte by byte, and no large ones before
/// AUTH.
fn requests(input: &[u8]) {
    let known = Limits { max_bulk: 512 << 20, authenticated: true };
    assert_eq!(decoded(input, input.len().max(1), known), decoded(input, 1, known));
    let stranger = Limits { authenticated: false, ..known };
    let (requests, _) = decoded(input, 7, stranger);
    assert!(
        requests.iter().flatten().all(|arg| arg.len() <= 64 << 10),
        "a large request before AUTH must be refused"
    );
}

fn decoded(input: &[u8], piece: usize, limits: Limits) -> (Vec<Vec<Bytes>>, Option<ProtocolError>) {
    let (mut decoder, mut requests) = (Decoder::default(), Vec::new());
    for piece in input.chunks(piece) {
        decoder.room().extend_from_slice(piece);
        decoder.filled(piece.len());
        loop {
            match decoder.next_request(&limits) {
                Ok(Some(argv)) => requests.push(argv),
                Ok(None) => break,
                Err(e) => return (requests, Some(e)),
            }
        }
    }
    (requests, None)
}

/// RESTORE's payloads: as given, and with a correct checksum, because few mutants have one.
fn payloads(input: &[u8]) {
    const LONGEST: usize = 1 << 20;
    let _ = (dump::decode(input, LONGEST).now_or_never(), dump::weight(input));
    let body = &input[..input.len().saturating_sub(8)];
    let sealed = [body, &corpus::crc64(body).to_le_bytes()].concat();
    let _ = dump::decode(&sealed, LONGEST).now_or_never();
    if let Some(Ok(codes)) = dump::libraries(&sealed, (10, LONGEST)).now_or_never() {
        assert!(codes.len() <= 10 && codes.iter().map(Bytes::len).sum::<usize>() <= LONGEST);
        let again = dump::of_libraries(&codes);
        assert_eq!(dump::libraries(&again, (10, LONGEST)).now_or_never().unwrap().unwrap(), codes);
    }
}

fn records(input: &[u8]) {
    if let Ok(row) = Stored::decode(Bytes::copy_from_slice(input)) {
        let again = match &row {
            Stored::Record(record) => record.encode(),
            Stored::Ghost(ghost) => ghost.encode(),
        };
        assert_eq!(Stored::decode(again.into()).unwrap(), row);
    }
}

fn idempotency_records(input: &[u8]) {
    if let Ok(record) = IdempotencyRecord::decode(&Bytes::copy_from_slice(input)) {
        assert_eq!(IdempotencyRecord::decode(&record.encode().into()).unwrap(), record);
    }
}

fn ages(input: &[u8]) {
    if let Some(age) = Age::decode(input) {
        assert_eq!(age.encode(), input);
    }
}

fn instances(input: &[u8]) {
    if let Ok(instance) = Instance::decode(input)
        && instance.address.len() + instance.version.len() < 1 << 16
    {
        assert_eq!(Instance::decode(&instance.encode()).unwrap(), instance);
    }
}

fn replies(input: &[u8]) {
    if let Some(reply) = reply_codec::decode(&Bytes::copy_from_slice(input)) {
        assert_eq!(reply_codec::encode(&reply).unwrap(), input);
    }
}

/// A set's chunk: facts read from the encoded form equal those of the decoded one.
fn chunks(input: &[u8]) {
    let Ok(row) = Row::new(0, Bytes::copy_from_slice(input)) else { return };
    let (count, ids) = (row.count(), row.ids());
    let _ = (row.contains(7), row.contains(u64::MAX), row.select(0), row.select(u64::MAX), row.covers(1));
    let _ = row.parts();
    if let (Ok(count), Ok(ids)) = (count, ids) {
        let _ = (count, ids.len(), ids.iter().take(100).count());
    }
}

fn small_sets(input: &[u8]) {
    let Ok(Stored::Record(Record { value: Value::Set(rep), .. })) =
        Stored::decode(Bytes::copy_from_slice(input))
    else {
        return;
    };
    let Ok(Some(mut small)) = Small::decode(&rep) else { return };
    let members = small.members();
    // Ids that are not integers have no text: `tern check` finds them.
    assert!(members.len() <= small.len());
    let _ = (small.nth(0), small.nth(u64::MAX), small.contains(b"a"));
    // A damaged one may name an id that it does not have.
    for member in members.iter().take(4) {
        let _ = small.remove(member);
    }
}

/// The dictionary's reverse rows: the length of the key, the key, and the row.
fn member_rows(input: &[u8]) {
    let Some((len, rest)) = input.split_first() else { return };
    let (key, value) = rest.split_at_checked((*len).into()).unwrap_or((rest, &[]));
    let entries = members::entries(key, value).map(Vec::from_iter).unwrap_or_default();
    let row = Bytes::copy_from_slice(value);
    // A lookup of one member must agree with reading all members.
    for (id, member) in &entries {
        let (group, own) =
            if key.len() == 10 { (Some(row.clone()), None) } else { (None, Some(row.clone())) };
        assert_eq!(members::found(*id, group, own).as_deref(), Some(*member));
    }
    for id in [0, 7, 15, u64::MAX] {
        let _ = members::found(id, Some(row.clone()), None);
    }
}

/// The dictionary's forward rows: removing one id keeps the others.
fn forward_rows(row: &[u8]) {
    let all: Vec<u64> = forward::ids_of_row(row).collect();
    assert_eq!(all.len(), row.len() / 8);
    for id in all.iter().copied().chain([0, u64::MAX]) {
        let rest: Vec<u64> = forward::ids_of_row(&forward::without(row, id)).collect();
        assert_eq!(rest, Vec::from_iter(all.iter().copied().filter(|other| *other != id)));
    }
}

/// Rows that every transaction reads: the databases' prefixes, the state of the dictionary's collector.
fn catalog_rows(input: &[u8]) {
    if let Some(place) = Place::decode(input) {
        assert_eq!(place.encode(), input);
        assert_eq!(Prefix::from_number(place.prefix.number()), place.prefix);
    }
    if let Ok(state) = State::decode(input) {
        assert_eq!(state.encode(), input);
        let _ = state.round(1, 0);
    }
}

/// Candidates of the dictionary's collector: ten bytes of key, and the ids.
fn candidates(input: &[u8]) {
    let (key, value) = input.split_at(input.len().min(10));
    if let Ok(ids) = decode_candidates(key, value) {
        assert!(!ids.is_empty());
        let again = encode_candidates(&ids).unwrap();
        assert_eq!(decode_candidates(key, &again).unwrap(), ids);
    }
}

fn cluster_messages(input: &[u8]) {
    // The database field of a message that is no event has no meaning.
    if let Some(decoded) = messages::decode(Bytes::copy_from_slice(input)) {
        assert_eq!(messages::decode(messages::encode(decoded.iter()).into()), Some(decoded));
    }
}

fn row_keys(input: &[u8]) {
    let row = Bytes::copy_from_slice(input);
    let _ =
        (Prefix::decode(input), Prefix::of_row(input), Prefix::decode_piece(input), Prefix::decode_id(input));
    for n in [0, 1, 70_000] {
        let prefix = Prefix::from_number(n);
        let _ = (prefix.decode_record(&row), prefix.decode_oid(input), prefix.decode_expiry(&row));
        let _ = (prefix.decode_hash_row(&row), prefix.decode_list_row(&row));
        let _ = prefix.decode_stream_row(&row);
    }
    let _ = (root::decode_lane(input), root::decode_instance(input), root::is_data(input));
    let _ = (root::decode_idempotency_age(input, true), root::decode_idempotency_age(input, false));
    if let Some((of, [])) = root::decode_idempotency(input) {
        assert_eq!(root::idempotency_record(of), input);
    }
    let _ = (root::decode_garbage(&row), root::decode_message(input));
    let _ = (root::decode_made(input), root::decode_in_collection(input));
}

fn hyperloglogs(input: &[u8]) {
    let Some(mut hll) = HyperLogLog::parse(input) else { return };
    let mut registers = Registers::default();
    let _ = (hll.is_dense(), hll.cached(), hll.merge_into(&mut registers), registers.estimate());
    let _ = (hll.decode(), hll.adder(3000).add(b"element"), hll.count());
    let _ = (hll.merge(&registers, 3000), hll.make_dense(), hll.bytes());
}

/// Without `include`, which names other files.
fn config_files(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if text.to_ascii_lowercase().contains("include") {
        return;
    }
    let mut settings = Settings::default();
    if from_text(&mut settings, "fuzzed", &text).is_ok() {
        let _ = (settings.store_timeout(), settings.lane_count());
    }
}

/// A user's rules as in ACL SETUSER and a users' file: the displayed rules create an equivalent user.
fn acl_rules(input: &[u8]) {
    let Some(user) = user_of(&mut input.split(|b| *b == b' ')) else { return };
    let shown = user.show();
    // As a users' file is read.
    let mut words = shown.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let again = user_of(&mut words).unwrap_or_else(|| panic!("refused: {}", shown.escape_ascii()));
    assert_eq!(again.show(), shown, "{}", shown.escape_ascii());
    for row in table().commands() {
        let argv = [Bytes::from_static(row.name.as_bytes())];
        assert_eq!(
            again.check(row, &argv, 1),
            user.check(row, &argv, 1),
            "{}: {}",
            row.name,
            shown.escape_ascii()
        );
    }
}

fn user_of(rules: &mut dyn Iterator<Item = &[u8]>) -> Option<Arc<User>> {
    let (acl, name) = (Acl::new(table(), ""), Bytes::from_static(b"somebody"));
    let rules: Vec<Bytes> = rules.map(Bytes::copy_from_slice).collect();
    acl.set_user(&name, &rules, false).ok()?;
    acl.get(&name)
}

/// Numbers, cursors and patterns of commands.
fn arguments(input: &[u8]) {
    let text = std::str::from_utf8(input).unwrap_or_default();
    assert_eq!(parse_i64(input), text.parse().ok().filter(|n: &i64| n.to_string() == text));
    let _ = (atoi(input), parse_cursor(input));
    let (pattern, subject) = input.split_at(input.len() / 2);
    let matches = |pattern: &[u8], text: &[u8], case: Case| {
        let whole = Glob::new(pattern, case, usize::MAX).matches_within(text, usize::MAX);
        // For texts of this length alone.
        assert_eq!(Glob::new(pattern, case, text.len()).matches_within(text, usize::MAX), whole);
        whole
    };
    let _ = (matches(pattern, subject, Case::Exact), matches(subject, pattern, Case::Ignored));
    let escaped: Vec<u8> = input.iter().flat_map(|byte| [b'\\', *byte]).collect();
    assert!(matches(&escaped, input, Case::Exact));
    assert!(input.is_empty() || matches(b"**", input, Case::Exact));
}
