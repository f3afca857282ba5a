//! The hash commands' replies and error lines. The expected ones were recorded from redis-server 7.0.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::{Rig, bulk, error, whole};
use std::collections::BTreeMap;
use tern::server::reply::Reply;

/// A reply in one line; maps are sorted.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Int(n) => n.to_string(),
        Reply::Bulk(b) if b.is_empty() => "''".into(),
        Reply::Bulk(b) => String::from_utf8_lossy(b).into_owned(),
        Reply::Nil => "nil".into(),
        Reply::Ok => "OK".into(),
        Reply::Simple(s) => s.to_string(),
        Reply::Error(e) => e.0.to_string(),
        Reply::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Reply::Map(pairs) => {
            let sorted: BTreeMap<String, String> = pairs.iter().map(|(f, v)| (shown(f), shown(v))).collect();
            assert_eq!(sorted.len(), pairs.len());
            let pairs: Vec<String> = sorted.into_iter().map(|(f, v)| format!("{f}={v}")).collect();
            format!("{{{}}}", pairs.join(" "))
        }
        Reply::Pairs(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(f, v)| format!("{}={}", shown(f), shown(v))).collect();
            format!("({})", pairs.join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// Runs lines of `command -> reply`; `''` is an empty argument.
async fn check(rig: &mut Rig, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (command, want) = line.split_once(" -> ").unwrap();
        let argv: Vec<&str> = command.split(' ').map(|w| if w == "''" { "" } else { w }).collect();
        assert_eq!(shown(&rig.run(&argv).await), want, "{command}");
    }
}

async fn script(lines: &str) {
    let mut rig = Rig::new().await;
    check(&mut rig, lines).await;
    rig.assert_sound().await;
}

/// More fields than a record holds.
const FILLERS: usize = 600;

/// Makes `h` a hash of [`FILLERS`] fields.
async fn fill(rig: &mut Rig) {
    let mut argv = vec!["hset".to_owned(), "h".to_owned()];
    argv.extend((0..FILLERS).flat_map(|n| [format!("filler:{n}"), "f".into()]));
    assert_eq!(rig.run(&argv).await, Reply::Int(FILLERS as i64));
}

const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const RANGE: &str = "ERR value is not an integer or out of range";

#[tokio::test]
async fn fields_come_and_go() {
    script(
        "hset h a 1 b 2 a 3 -> 2
         hset h a 4 c '' -> 1
         hget h a -> 4
         hget h c -> ''
         hget h x -> nil
         hget none a -> nil
         hmget h a x c '' -> [4 nil '' nil]
         hmget none a b -> [nil nil]
         hgetall h -> {a=4 b=2 c=''}
         hkeys h -> [a b c]
         hvals h -> [4 2 '']
         hgetall none -> {}
         hkeys none -> []
         hvals none -> []
         hlen h -> 3
         hlen none -> 0
         hexists h a -> 1
         hexists h x -> 0
         hexists none a -> 0
         hstrlen h a -> 1
         hstrlen h c -> 0
         hstrlen h x -> 0
         hstrlen none x -> 0
         hsetnx h a 9 -> 0
         hsetnx h d 9 -> 1
         hsetnx new '' x -> 1
         hget new '' -> x
         hmset h e 5 e 6 -> OK
         hget h e -> 6
         hdel h a x a -> 1
         hdel none a -> 0
         hlen h -> 4
         hdel h b c d e -> 4
         exists h -> 0
         type h -> none
         type new -> hash
         hdel new '' -> 1
         exists new -> 0",
    )
    .await;
}

#[tokio::test]
async fn fields_of_a_large_hash_come_and_go() {
    let mut rig = Rig::new().await;
    fill(&mut rig).await;
    check(
        &mut rig,
        "object encoding h -> hashtable
         hset h a 1 b 2 a 3 -> 2
         hset h a 4 c '' filler:0 x -> 1
         hget h a -> 4
         hget h c -> ''
         hget h filler:0 -> x
         hget h x -> nil
         hmget h a x c '' -> [4 nil '' nil]
         hlen h -> 603
         hexists h a -> 1
         hexists h x -> 0
         hstrlen h a -> 1
         hstrlen h c -> 0
         hstrlen h x -> 0
         hsetnx h a 9 -> 0
         hsetnx h d 9 -> 1
         hmset h e 5 e 6 '' empty -> OK
         hget h e -> 6
         hget h '' -> empty
         hincrby h n 5 -> 5
         hincrby h n -7 -> -2
         hincrby h filler:1 1 -> ERR hash value is not an integer
         hincrbyfloat h n 0.5 -> -1.5
         hdel h a x a -> 1
         hdel h b c d e n '' -> 6
         hlen h -> 600",
    )
    .await;
    let Reply::Map(pairs) = rig.line("hgetall h").await else { panic!() };
    let (fields, values): (Vec<Reply>, Vec<Reply>) = pairs.into_iter().unzip();
    assert_eq!(rig.line("hkeys h").await, Reply::Array(fields.clone()));
    assert_eq!(rig.line("hvals h").await, Reply::Array(values.clone()));
    assert_eq!(values.iter().filter(|value| **value == bulk("f")).count(), FILLERS - 1);
    let mut argv = vec!["hdel".to_owned(), "h".to_owned()];
    argv.extend((0..FILLERS).map(|n| format!("filler:{n}")));
    rig.assert_sound().await;
    assert_eq!(rig.run(&argv).await, Reply::Int(FILLERS as i64));
    check(&mut rig, "exists h -> 0\nhlen h -> 0\nhgetall h -> {}\nhset h a 1 -> 1\nhlen h -> 1").await;
    rig.assert_sound().await;
}

#[tokio::test]
async fn another_type_is_refused() {
    let commands = [
        "hset t a b",
        "hsetnx t a b",
        "hmset t a b",
        "hget t a",
        "hmget t a",
        "hgetall t",
        "hkeys t",
        "hvals t",
        "hdel t a",
        "hlen t",
        "hexists t a",
        "hstrlen t a",
        "hincrby t a 1",
        "hincrbyfloat t a 1",
        "hrandfield t",
        "hrandfield t 1",
        "hrandfield t 1 withvalues",
        "hscan t 0",
        "get h",
        "sadd h a",
        "incr h",
    ];
    let lines: Vec<String> = commands.iter().map(|c| format!("{c} -> {WRONG}")).collect();
    script(&format!("set t x -> OK\nhset h a 1 -> 1\n{}\nget t -> x\nhlen h -> 1", lines.join("\n"))).await;
}

#[tokio::test]
async fn wrong_arguments() {
    script(&format!(
        "hset h a 1 b -> ERR wrong number of arguments for 'hset' command
         hmset h a 1 b -> ERR wrong number of arguments for 'hmset' command
         set t x -> OK
         hset t a 1 b -> ERR wrong number of arguments for 'hset' command
         hincrby t a x -> {RANGE}
         hincrby h a 1.5 -> {RANGE}
         hincrbyfloat t a x -> ERR value is not a valid float
         hincrbyfloat h a inf -> ERR value is NaN or Infinity
         hincrbyfloat h a nan -> ERR value is not a valid float
         exists h -> 0
         hset h word w max 9223372036854775807 big 1e4932 -> 3
         hincrby h word 1 -> ERR hash value is not an integer
         hincrby h max 1 -> ERR increment or decrement would overflow
         hincrby h max -1 -> 9223372036854775806
         hincrbyfloat h word 1 -> ERR hash value is not a float
         hincrbyfloat h big 1e4932 -> ERR increment would produce NaN or Infinity
         hincrby h n 12 -> 12
         hincrbyfloat h n 0.1 -> 12.1
         hincrbyfloat h n -12.1 -> 0
         hincrbyfloat h f 1e2 -> 100
         hincrby h f 1 -> 101
         hincrbyfloat h f 0.5 -> 101.5
         hincrby h f 1 -> ERR hash value is not an integer
         hrandfield h x -> {RANGE}
         hrandfield h 1 foo -> ERR syntax error
         hrandfield h 1 withvalues x -> ERR syntax error
         hrandfield h x foo -> {RANGE}
         hrandfield h -9223372036854775808 -> ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
         hrandfield h 9223372036854775807 withvalues -> ERR value is out of range
         hrandfield h -9223372036854775807 withvalues -> ERR value is out of range"
    ))
    .await;
}

#[tokio::test]
async fn hrandfield_answers() {
    script(
        "hrandfield none -> nil
         hrandfield none 3 -> []
         hrandfield none -3 -> []
         hrandfield none 3 withvalues -> []
         hset h a 1 -> 1
         hrandfield h -> a
         hrandfield h 0 -> []
         hrandfield h 0 withvalues -> ()
         hrandfield h 5 -> [a]
         hrandfield h -3 -> [a a a]
         hrandfield h 5 WITHVALUES -> (a=1)
         hrandfield h -2 withvalues -> (a=1 a=1)
         hset h b 2 -> 1",
    )
    .await;
}

#[tokio::test]
async fn hscan_arguments() {
    script(&format!(
        "hset h a1 1 a2 2 b 3 -> 3
         hscan h 0 -> [0 [a1 1 a2 2 b 3]]
         hscan h 0 novalues -> [0 [a1 a2 b]]
         hscan h '' match a* count 1 -> [0 [a1 1 a2 2]]
         hscan h 0 match a* NOVALUES -> [0 [a1 a2]]
         hscan none 0 foo -> [0 []]
         hscan h x -> ERR invalid cursor
         hscan h 99999999999999999999 -> ERR invalid cursor
         hscan h 0 count -> ERR syntax error
         hscan h 0 count 0 -> ERR syntax error
         hscan h 0 count x -> {RANGE}
         hscan h 0 type hash -> ERR syntax error
         sscan h 0 -> {WRONG}
         scan 0 type hash -> [0 [h]]
         scan 0 type set -> [0 []]"
    ))
    .await;
}

#[tokio::test]
async fn encodings_convert_one_way() {
    let mut rig = Rig::new().await;
    let encoding = async |rig: &mut Rig| shown(&rig.line("object encoding h").await);
    for n in 0..512 {
        rig.line(&format!("hset h field:{n} value:{n}")).await;
    }
    assert_eq!(encoding(&mut rig).await, "listpack", "512 fields, too many bytes for a record");
    rig.assert_sound().await;
    rig.line("hset h one more").await;
    assert_eq!(encoding(&mut rig).await, "hashtable");
    for n in 3..512 {
        rig.line(&format!("hdel h field:{n}")).await;
    }
    check(&mut rig, "hgetall h -> {field:0=value:0 field:1=value:1 field:2=value:2 one=more}").await;
    assert_eq!(encoding(&mut rig).await, "hashtable");
    let (fits, long) = ("x".repeat(64), "x".repeat(65));
    for (field, value, want) in [
        ("f", &*fits, "listpack"),
        (&*fits, "v", "listpack"),
        ("f", &long, "hashtable"),
        (&long, "v", "hashtable"),
    ] {
        rig.line("del h").await;
        rig.line("hset h a 1").await;
        assert_eq!(encoding(&mut rig).await, "listpack");
        rig.line(&format!("hset h {field} {value}")).await;
        assert_eq!(encoding(&mut rig).await, want);
        rig.line(&format!("hset h {field} v")).await;
        assert_eq!(encoding(&mut rig).await, want, "it does not come back");
        check(&mut rig, &format!("hlen h -> 2\nhget h {field} -> v")).await;
    }
    rig.assert_sound().await;
}

/// The options' limits decide about the name; a hash that keeps within them may still exceed a record.
#[tokio::test]
async fn limits_are_options() {
    let mut rig = Rig::new().await;
    check(
        &mut rig,
        "config get hash-max-ziplist-entries -> {hash-max-ziplist-entries=512}
         config set hash-max-ziplist-entries 2 hash-max-listpack-value 3 -> OK
         config get hash-max-*-entries -> {hash-max-listpack-entries=2 hash-max-ziplist-entries=2}
         hset h a 1 b 2 -> 2
         object encoding h -> listpack
         hset h c 3 -> 1
         object encoding h -> hashtable
         hset v a 123 -> 1
         object encoding v -> listpack
         hset v a 1234 -> 0
         object encoding v -> hashtable
         hset f abcd 1 -> 1
         object encoding f -> hashtable
         config set hash-max-listpack-entries 0 -> OK
         hset none a 1 -> 1
         object encoding none -> hashtable
         config set hash-max-listpack-entries 1000000 hash-max-listpack-value 100000 -> OK
         config set hash-max-listpack-value 1 hash-max-ziplist-value 2 -> ERR CONFIG SET failed (possibly related to argument 'hash-max-ziplist-value') - duplicate parameter
         hdel none a -> 1",
    )
    .await;
    for length in [100, 5000, 50_000] {
        let line = format!("hset large {length} {}", "x".repeat(length));
        assert_eq!(rig.line(&line).await, Reply::Int(1));
        assert_eq!(rig.line("object encoding large").await, bulk("listpack"), "{length}");
    }
    rig.assert_sound().await;
}

/// The longest field and values of every length, around the sizes at which they are stored differently.
#[tokio::test]
async fn long_fields_and_values() {
    let mut rig = Rig::new().await;
    let lengths = [0, 64, 65, 4096, 16 << 10, (16 << 10) + 1, 32 << 10, (32 << 10) + 1, 100_000, 3_000_000];
    for (n, length) in lengths.into_iter().enumerate() {
        let value: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        let field = format!("field {n}");
        assert_eq!(rig.run(&[b"hset", &b"h"[..], field.as_bytes(), &value]).await, Reply::Int(1));
        assert_eq!(rig.run(&["hget", "h", &field]).await, bulk(&value), "{length}");
        assert_eq!(rig.run(&["hstrlen", "h", &field]).await, Reply::Int(length as i64));
    }
    rig.assert_sound().await;
    let Reply::Map(pairs) = rig.line("hgetall h").await else { panic!() };
    let mut found: Vec<usize> =
        pairs.iter().map(|(_, v)| if let Reply::Bulk(v) = v { v.len() } else { 0 }).collect();
    found.sort();
    assert_eq!(found, lengths);
    for length in [3_000_000, 0, 40_000, 1] {
        let value = vec![b'y'; length];
        assert_eq!(rig.run(&[b"hset", &b"h"[..], b"field 9", &value]).await, Reply::Int(0));
        assert_eq!(rig.run(&["hget", "h", "field 9"]).await, bulk(&value));
        rig.assert_sound().await;
    }
    rig.run(&["hset", "h", "field 9", &"z".repeat(70_000)]).await;
    assert_eq!(rig.run(&["hdel", "h", "field 9", "field 8"]).await, Reply::Int(2));
    rig.assert_sound().await;
    let longest = "f".repeat(8192);
    check(
        &mut rig,
        &format!(
            "hset h {longest} v -> 1
             hget h {longest} -> v
             hdel h {longest} -> 1
             hset h {longest}f v -> ERR a field of a hash has at most 8192 bytes
             hset h ok v {longest}f v -> ERR a field of a hash has at most 8192 bytes
             hget h {longest}f -> nil
             hexists h {longest}f -> 0
             hdel h {longest}f -> 0
             hexists h ok -> 0
             hlen h -> 8
             hset {longest}k f v -> ERR key is longer than 8192 bytes
             hget {longest}k f -> nil"
        ),
    )
    .await;
    rig.assert_sound().await;
}

#[tokio::test]
async fn keys_of_hashes() {
    let mut rig = Rig::new().await;
    for large in [false, true] {
        rig.line("flushall").await;
        if large {
            fill(&mut rig).await;
        }
        let (len, encoding) = if large { (602, "hashtable") } else { (2, "listpack") };
        check(
            &mut rig,
            &format!(
                "hset h a 1 b 2 -> 2
                 object encoding h -> {encoding}
                 object refcount h -> 1
                 copy h c -> 1
                 copy h c -> 0
                 hset c a 9 only x -> 1
                 hlen h -> {len}
                 hget h a -> 1
                 hget c a -> 9
                 copy h c replace -> 1
                 hlen c -> {len}
                 hget c only -> nil
                 copy h h db 1 -> 1
                 rename h r -> OK
                 exists h -> 0
                 hget r b -> 2
                 hset r b 3 -> 0
                 renamenx r c -> 0
                 expire r 100 -> 1
                 hset r z 1 -> 1
                 hdel r z -> 1
                 hincrby r n 1 -> 1
                 hdel r n -> 1
                 ttl r -> 100
                 persist r -> 1
                 move r 1 -> 1
                 select 1 -> OK
                 hlen r -> {len}
                 hget r b -> 3
                 hlen h -> {len}
                 select 0 -> OK
                 exists r -> 0
                 swapdb 0 1 -> OK
                 hget r b -> 3
                 set r over -> OK
                 get r -> over
                 hset other f v -> 1
                 del other h -> 2
                 dbsize -> 1
                 unlink r -> 1
                 flushdb -> OK"
            ),
        )
        .await;
        rig.assert_sound().await;
    }
}

#[tokio::test]
async fn hashes_expire() {
    let mut rig = Rig::new().await;
    fill(&mut rig).await;
    check(&mut rig, "hset small a 1 -> 1\npexpire small 1000 -> 1\npexpire h 1000 -> 1").await;
    rig.advance(1001);
    check(
        &mut rig,
        "hget small a -> nil
         hlen h -> 0
         hgetall h -> {}
         hset h a 1 -> 1
         hlen h -> 1
         ttl h -> -1
         hset small b 1 -> 1
         hgetall small -> {b=1}",
    )
    .await;
    rig.assert_sound().await;
}

#[tokio::test]
async fn memory_usage_grows_with_the_hash() {
    let mut rig = Rig::new().await;
    rig.line("hset small f v").await;
    fill(&mut rig).await;
    let usage = async |rig: &mut Rig, key: &str| match rig.line(&format!("memory usage {key}")).await {
        Reply::Int(n) => n,
        other => panic!("{other:?}"),
    };
    let (small, large) = (usage(&mut rig, "small").await, usage(&mut rig, "h").await);
    assert!(small > 0 && large > 100 * FILLERS as i64 / 4 && large > small, "{small} {large}");
}

/// Fields that stay while others come and go between pages are returned once each, by cursors that a double
/// holds.
#[tokio::test]
async fn hscan_returns_stable_fields_once() {
    let mut rig = Rig::new().await;
    let stay: Vec<String> = (0..3_000).map(|n| format!("stay:{n}")).collect();
    let argv: Vec<&str> =
        ["hset", "h"].into_iter().chain(stay.iter().flat_map(|field| [field.as_str(), "v"])).collect();
    rig.run(&argv).await;
    let (mut cursor, mut seen, mut n) = ("0".to_string(), Vec::new(), 0);
    loop {
        let Reply::Array(page) = rig.line(&format!("hscan h {cursor} count 50")).await else { panic!() };
        let Reply::Array(items) = &page[1] else { panic!() };
        assert!(items.len() >= 2 && items.len() <= 2 * 52, "{} items", items.len());
        seen.extend(items.chunks(2).map(|pair| shown(&pair[0])).filter(|m| m.starts_with("stay")));
        cursor = shown(&page[0]);
        assert!(cursor.parse::<u64>().unwrap() < 1 << 53);
        if cursor == "0" {
            break;
        }
        for _ in 0..10 {
            n += 1;
            rig.line(&format!("hset h go:{n} {n} stay:{} changed", n * 7 % 3000)).await;
            rig.line(&format!("hdel h go:{} {}", n / 2, n / 2)).await;
        }
    }
    assert_eq!(seen.len(), 3_000);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3_000);
}

/// Draws from a hash in its record and from one in rows come near a uniform distribution.
#[tokio::test]
async fn hrandfield_is_near_uniform() {
    for fields in [50, 600] {
        let mut rig = Rig::new().await;
        let argv = ["hset".to_owned(), "h".to_owned()].into_iter();
        let argv: Vec<String> = argv.chain((0..fields).flat_map(|n| [n.to_string(), "v".into()])).collect();
        rig.run(&argv).await;
        let mut seen = vec![0u32; fields];
        let draws = fields * 40;
        for some in 0..draws / 20 {
            let line = if some % 2 == 0 { "hrandfield h -20" } else { "hrandfield h 20" };
            let Reply::Array(drawn) = rig.line(line).await else { panic!() };
            assert_eq!(drawn.len(), 20);
            for field in drawn {
                seen[shown(&field).parse::<usize>().unwrap()] += 1;
            }
        }
        let mean = draws as f64 / fields as f64;
        let chi: f64 = seen.iter().map(|n| (f64::from(*n) - mean).powi(2) / mean).sum();
        // Uniform draws stay below 1.4 for 50 fields and below 1.2 for 600 with a probability of 0.999 and
        // more. A draw from rows picks among 16 neighbours of a random place: the gaps between 16 hashes
        // vary by a quarter of their mean, which adds a sixteenth of the mean of 40.
        let most = if fields == 50 { 1.8 } else { 4.5 };
        assert!(chi / (fields - 1) as f64 <= most, "{} of {fields} fields", chi / (fields - 1) as f64);
        assert!(seen.iter().all(|n| *n > 0), "each field is drawn");
    }
}

#[tokio::test]
async fn draws_from_large_hashes() {
    let mut rig = Rig::new().await;
    fill(&mut rig).await;
    for n in [1, 5, 150, 300, 600, 1000] {
        let Reply::Array(fields) = rig.line(&format!("hrandfield h {n}")).await else { panic!() };
        let mut different: Vec<String> = fields.iter().map(shown).collect();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), n.min(FILLERS));
        let Reply::Pairs(pairs) = rig.line(&format!("hrandfield h -{n} withvalues")).await else { panic!() };
        assert_eq!(pairs.len(), n);
        assert!(pairs.iter().all(|(f, v)| shown(f).starts_with("filler:") && shown(v) == "f"));
    }
    for n in [3_000, 20_000] {
        let Reply::Array(fields) = whole(rig.line(&format!("hrandfield h -{n}")).await).await else {
            panic!()
        };
        assert!(fields.len() == n && fields.iter().all(|f| shown(f).starts_with("filler:")));
        let line = format!("hrandfield h -{n} withvalues");
        let Reply::Pairs(pairs) = whole(rig.line(&line).await).await else { panic!() };
        assert!(pairs.len() == n && pairs.iter().all(|(_, v)| shown(v) == "f"));
    }
    let refused = rig.line("hrandfield h -10000001").await;
    assert_eq!(error(&refused), "ERR HRANDFIELD returns at most 10000000 fields with repetitions");
}

/// A transaction sees its own writes to a hash in rows.
#[tokio::test]
async fn a_transaction_sees_its_own_writes() {
    let mut rig = Rig::new().await;
    fill(&mut rig).await;
    let script = "hset h a 1 -> 1
         hget h a -> 1
         hlen h -> 601
         hincrby h a 4 -> 5
         hdel h a -> 1
         hexists h a -> 0
         hsetnx h a 2 -> 1
         hmget h a filler:0 -> [2 f]
         rename h g -> OK
         hget g a -> 2
         hget h a -> nil
         hset h a 3 -> 1
         hgetall h -> {a=3}
         del g -> 1
         hlen g -> 0
         flushdb -> OK
         hget h a -> nil";
    let lines: Vec<(&str, &str)> = script.lines().map(|l| l.trim().split_once(" -> ").unwrap()).collect();
    let commands: Vec<&str> = lines.iter().map(|(command, _)| *command).collect();
    let replies = rig.together(&commands).await;
    for ((command, want), reply) in lines.iter().zip(&replies) {
        assert_eq!(shown(reply), *want, "{command}");
    }
    assert_eq!(replies.len(), lines.len());
}
