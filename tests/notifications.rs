//! Hazard: a change of a key is published differently than by Redis, twice, or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use support::resp::{Client, Value, request};
use support::server::{Server, redis, tern};

/// What takes longer does not come.
const LONG: Duration = Duration::from_secs(60);

/// Commands whose events are compared, in databases 0 and 1 of both servers.
const SCRIPT: &[&str] = &[
    "SET a 1",
    "SET a 2 EX 100",
    "SET a 3 KEEPTTL",
    "SET a 4 NX",
    "SET b x XX",
    "SET a 5 GET",
    "SETNX n 1",
    "SETNX n 2",
    "SETEX e 100 v",
    "PSETEX e 100000 v",
    "GETSET a 6",
    "GETSET fresh 1",
    "GETDEL fresh",
    "GETDEL nothing",
    "MSET m1 a m2 b",
    "MSETNX m1 x m3 y",
    "MSETNX m3 x m4 y",
    "APPEND a 7",
    "APPEND ap x",
    "SETRANGE a 1 zz",
    "SETRANGE no 0 ",
    "INCR i",
    "DECR i",
    "INCRBY i 5",
    "DECRBY i 2",
    "INCRBYFLOAT i 1.5",
    "INCR a",
    "GETEX e",
    "GETEX e PERSIST",
    "GETEX e PERSIST",
    "GETEX e EX 100",
    "GETEX e PXAT 1",
    "GET a",
    "GET nothing",
    "MGET a nothing none",
    "EXISTS a nothing",
    "TYPE nothing",
    "STRLEN nothing",
    "GETRANGE nothing 0 1",
    "SETBIT bits 3 1",
    "SETBIT bits 3 1",
    "SETBIT bits 3 0",
    "SETBIT bits 100 0",
    "BITOP AND t bits a",
    "BITOP OR t bits a",
    "BITOP AND t none none",
    "BITOP AND t none none",
    "BITFIELD bits SET u8 0 255",
    "BITFIELD bits SET u8 0 255",
    "BITFIELD bits GET u8 0",
    "BITFIELD nb INCRBY u2 0 1",
    "GETBIT nothing 1",
    "BITCOUNT nothing",
    "PFADD h a b",
    "PFADD h a b",
    "PFCOUNT h",
    "PFMERGE h2 h",
    "PFADD h3",
    "SADD s a b c",
    "SADD s a",
    "SREM s x",
    "SREM s a",
    "SREM s b c",
    "SADD s a",
    "SPOP s",
    "SADD s a b c",
    "SPOP s 3",
    "SPOP s 3",
    "SADD s a b c d",
    "SADD s2 b c x",
    "SMOVE s s2 a",
    "SMOVE s s2 none",
    "SMOVE s s2 b",
    "SADD one q",
    "SMOVE one fresh2 q",
    "SMOVE s s a",
    "SINTERSTORE r s s2",
    "SUNIONSTORE r s s2",
    "SDIFFSTORE r s s2",
    "SDIFFSTORE r s s",
    "SDIFFSTORE r s s",
    "SINTERSTORE r none s",
    "HSET hash a 1 b 2",
    "HSET hash a 1",
    "HSETNX hash a 1",
    "HSETNX hash c 1",
    "HMSET hash c 2 d 3",
    "HINCRBY hash n 1",
    "HINCRBY hash n 0",
    "HINCRBYFLOAT hash n 0.5",
    "HINCRBY hash b x",
    "HSET a x y",
    "HDEL hash x",
    "HDEL hash a b",
    "HDEL hash c d n",
    "HDEL hash c",
    "HSET hash a 1",
    "RENAME hash hash2",
    "COPY hash2 hash",
    "DEL hash2",
    "HGETALL nothing",
    "HGET nothing a",
    "HLEN nothing",
    "HRANDFIELD nothing",
    "HSCAN nothing 0",
    "LPUSH list a b c",
    "RPUSH list d",
    "LPUSHX list e",
    "RPUSHX nothing e",
    "LPOP list",
    "RPOP list 2",
    "LPOP nothing",
    "LPOP list 0",
    "LSET list 0 z",
    "LSET list 9 z",
    "LINSERT list BEFORE z y",
    "LINSERT list BEFORE none y",
    "LREM list 0 none",
    "LREM list 0 y",
    "RPUSH list 1 2 3 4",
    "LTRIM list 0 -1",
    "LTRIM list 1 2",
    "LTRIM nothing 1 2",
    "LMOVE list list LEFT RIGHT",
    "LMOVE list list2 RIGHT LEFT",
    "RPOPLPUSH list list2",
    "RPOPLPUSH nothing list2",
    "LMPOP 2 nothing list2 LEFT COUNT 10",
    "RPUSH list a b",
    "LREM list 0 a",
    "LREM list 0 b",
    "RPUSH list a",
    "LTRIM list 5 6",
    "RPUSH list 3 1 2",
    "SORT list STORE list3",
    "SORT nothing STORE list3",
    "RENAME list list2",
    "COPY list2 list",
    "DEL list2",
    "LRANGE nothing 0 1",
    "LLEN nothing",
    "LINDEX nothing 0",
    "LPOS nothing a",
    "LPUSH a x",
    "ZADD zset 1 a 2 b",
    "ZADD zset 1 a",
    "ZADD zset CH 3 a 4 c",
    "ZADD zset XX 3 none",
    "ZADD zset INCR 1 a",
    "ZADD zset NX INCR 1 a",
    "ZINCRBY zset 0 a",
    "ZINCRBY zset 1 a",
    "ZADD a 1 x",
    "ZREM zset none",
    "ZREM zset a",
    "ZPOPMIN zset 0",
    "ZPOPMIN zset",
    "ZPOPMAX zset",
    "ZPOPMAX nothing",
    "ZADD zset 1 a 2 b 3 c 4 d 5 e",
    "ZREMRANGEBYRANK zset 0 0",
    "ZREMRANGEBYRANK zset 9 9",
    "ZREMRANGEBYSCORE zset 2 2",
    "ZREMRANGEBYLEX zset [c [c",
    "RENAME zset zset2",
    "COPY zset2 zset",
    "ZREMRANGEBYSCORE zset 0 9",
    "ZREM zset2 d e",
    "ZADD zset 1 a 2 b 3 c",
    "SADD zmembers a x",
    "ZRANGESTORE zmade zset 0 1",
    "ZRANGESTORE zmade zset 7 9",
    "ZRANGESTORE zmade nothing 0 1",
    "ZUNIONSTORE zmade 2 zset zmembers",
    "ZUNIONSTORE zmade 2 nothing nothing",
    "ZINTERSTORE zmade 2 zset zmembers",
    "ZDIFFSTORE zmade 2 zset zmembers",
    "ZDIFFSTORE zmembers 2 zset zset",
    "ZMPOP 2 nothing zmade MIN",
    "ZMPOP 1 zmade MAX COUNT 9",
    "ZMPOP 1 nothing MIN",
    "ZADD zmade 1 a 2 b 3 c",
    "GEOADD zmade 13.3 38.1 d",
    "GEOSEARCHSTORE zfar zmade FROMMEMBER d BYRADIUS 1 km",
    "GEORADIUS zmade 13 38 100 km STOREDIST zfar",
    "GEORADIUSBYMEMBER zmade d 1 m STORE zfar",
    "GEOSEARCHSTORE zfar nothing FROMMEMBER d BYRADIUS 1 km",
    "ZREM zmade d",
    "BZPOPMIN nothing zmade 1",
    "BZPOPMAX zmade 1",
    "BZMPOP 1 1 zmade MIN",
    "BZPOPMIN zmade 0.001",
    "ZINTER 2 nothing zset",
    "ZINTERCARD 2 nothing zset",
    "ZCARD nothing",
    "ZRANGE nothing 0 1",
    "ZCOUNT nothing 0 1",
    "ZSCORE nothing a",
    "ZRANK nothing a",
    "ZSCAN nothing 0",
    "ZRANDMEMBER nothing",
    "XADD st 1-1 a b",
    "XADD st 1-1 a b",
    "XADD st MAXLEN 1 2-1 a b",
    "XADD st NOMKSTREAM 3-1 a b",
    "XADD nothing NOMKSTREAM 1-1 a b",
    "XTRIM st MAXLEN 5",
    "XTRIM st MAXLEN 1",
    "XGROUP CREATE st g 0",
    "XGROUP CREATE st2 g $ MKSTREAM",
    "XGROUP CREATE nothing g 0",
    "XGROUP SETID st g 0",
    "XGROUP CREATECONSUMER st g ann",
    "XGROUP CREATECONSUMER st g ann",
    "XREADGROUP GROUP g bob STREAMS st >",
    "XREADGROUP GROUP g bob STREAMS st >",
    "XREADGROUP GROUP g bob STREAMS st 0",
    "XACK st g 3-1",
    "XACK st g 3-1",
    "XCLAIM st g ann 0 3-1 FORCE",
    "XAUTOCLAIM st g bob 0 0",
    "XGROUP DELCONSUMER st g bob",
    "XGROUP DELCONSUMER st g none",
    "XGROUP DESTROY st g",
    "XGROUP DESTROY st g",
    "XSETID st 9-1",
    "XDEL st 3-1",
    "XDEL st 3-1",
    "XADD st 10-1 a b",
    "RENAME st st3",
    "COPY st3 st",
    "DEL st3",
    "XADD a 1-1 a b",
    "XRANGE nothing - +",
    "XREVRANGE nothing + -",
    "XLEN nothing",
    "XPENDING nothing g",
    "XINFO STREAM nothing",
    "XDEL nothing 1-1",
    "XTRIM nothing MAXLEN 1",
    "XACK nothing g 1-1",
    "SCARD nothing",
    "SMEMBERS nothing",
    "SINTER s nothing",
    "SRANDMEMBER nothing",
    "EXPIRE a 100",
    "EXPIRE a 100 NX",
    "PEXPIRE a 100000",
    "EXPIREAT a 99999999999",
    "PEXPIREAT a 99999999999999",
    "PERSIST a",
    "PERSIST a",
    "EXPIRE nothing 1",
    "EXPIRE a -1",
    "SET a 1",
    "PEXPIREAT a 1",
    "TTL nothing",
    "SET a 1",
    "RENAME a z",
    "SET a 1",
    "RENAME a z",
    "RENAMENX z zz",
    "SET z 1",
    "RENAMENX z zz",
    "RENAME z z",
    "COPY zz y",
    "COPY zz y",
    "COPY zz y REPLACE",
    "COPY zz y DB 1",
    "MOVE zz 1",
    "SET zz 1",
    "MOVE zz 1",
    "MOVE nothing 1",
    "DEL z nothing",
    "UNLINK y",
    "TOUCH nothing",
    "SELECT 1",
    "DEL zz",
    "FLUSHDB",
    "SELECT 0",
    "SET d v",
    "SORT none STORE none",
    "OBJECT ENCODING nothing",
    "DUMP nothing",
    "MULTI",
    "SET in v",
    "INCR in",
    "DEL in",
    "EXEC",
    "FLUSHALL",
    "SET last v",
];

fn listening(server: &Server, letters: &str) -> Client {
    let mut client = server.client();
    client.run(&["CONFIG", "SET", "notify-keyspace-events", letters]);
    client.line("PSUBSCRIBE __key*@*__:* end");
    client.read().unwrap();
    client
}

/// Channels and messages up to that of `end`.
fn heard(client: &mut Client) -> Vec<(String, String)> {
    let text = |v: &Value| String::from_utf8_lossy(v.bytes().unwrap()).into_owned();
    let mut all = Vec::new();
    loop {
        let message = client.read().unwrap().value;
        let items = message.items().unwrap();
        if items[2].bytes() == Some(b"end") {
            return all;
        }
        all.push((text(&items[2]), text(&items[3])));
    }
}

fn run(server: &Server, letters: &str) -> Vec<(String, String)> {
    let mut listens = listening(server, letters);
    let mut client = server.client();
    client.line("FLUSHALL");
    for line in SCRIPT {
        client.line(line);
    }
    // A payload of an existing value.
    let dump = {
        client.line("SET source v");
        client.line("DUMP source").bytes().unwrap().to_vec()
    };
    for options in [&["0"][..], &["100000", "REPLACE"], &["1", "REPLACE", "ABSTTL"]] {
        let mut argv: Vec<Vec<u8>> =
            vec![b"RESTORE".to_vec(), b"to".to_vec(), options[0].into(), dump.clone()];
        argv.extend(options[1..].iter().map(|o| o.as_bytes().to_vec()));
        client.run(&argv);
    }
    client.line("PUBLISH end x");
    heard(&mut listens)
}

#[test]
fn changes_are_published_as_by_redis() {
    let Some(redis) = redis("keyspace notifications beside Redis") else { return };
    let tern = tern(&[]);
    for letters in ["KEA", "KEAn", "KEm", "Kg$", "Esx", "An", "gs"] {
        let (ours, theirs) = (run(&tern, letters), run(&redis, letters));
        let first =
            ours.iter().zip(&theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
        let around = first.saturating_sub(3)..;
        let show = |all: &[(String, String)]| {
            format!("{:#?}", all.get(around.clone()).map(|l| &l[..l.len().min(6)]))
        };
        assert_eq!(ours.len(), theirs.len(), "{letters}: ours\n{}\ntheirs\n{}", show(&ours), show(&theirs));
        assert!(ours == theirs, "{letters}: ours\n{}\ntheirs\n{}", show(&ours), show(&theirs));
    }
}

#[test]
fn nothing_is_published_by_default() {
    let server = tern(&[]);
    let mut client = server.client();
    assert_eq!(client.line("CONFIG GET notify-keyspace-events").items().unwrap()[1], Value::Bulk(Vec::new()));
    let mut listens = listening(&server, "");
    client.line("SET a 1");
    client.line("PUBLISH end x");
    assert_eq!(heard(&mut listens), []);
}

/// By the job, and by a write that finds the key expired; each key once.
#[test]
fn every_key_expires_once() {
    const KEYS: usize = 200;
    let server = tern(&[]);
    let mut listens = listening(&server, "Ex");
    let mut client = server.client();
    for n in 0..KEYS {
        client.line(&format!("SET key:{n} v PX 40"));
    }
    std::thread::sleep(Duration::from_millis(60));
    for n in 0..KEYS / 2 {
        client.line(&format!("SADD key:{n} v"));
    }
    for _ in 0..200 {
        if client.line("DBSIZE") == Value::Int(KEYS as i64 / 2) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    client.line("PUBLISH end x");
    let mut received: BTreeMap<String, usize> = BTreeMap::new();
    for (channel, key) in heard(&mut listens) {
        assert_eq!(channel, "__keyevent@0__:expired");
        *received.entry(key).or_default() += 1;
    }
    assert_eq!(received.len(), KEYS);
    assert!(received.values().all(|n| *n == 1), "{received:?}");
}

/// The channel and text of a message.
fn one_heard(client: &mut Client) -> (String, String) {
    let message = client.read().unwrap().value;
    let items = message.items().unwrap();
    let text = |n: usize| String::from_utf8_lossy(items[n].bytes().unwrap()).into_owned();
    (text(items.len() - 2), text(items.len() - 1))
}

/// Hazard: fields of a hash, or the hash with the last of them, expire unheard.
#[test]
fn fields_that_expire_are_heard() {
    let tern = tern(&["--notify-keyspace-events", "KEA", "--appendfsync", "no"]);
    let [mut listener, mut writer] = [(); 2].map(|()| tern.client());
    listener.line("PSUBSCRIBE __keyevent@0__:*");
    for line in [
        "HSET h a 1 b 2 c 3",
        "HPEXPIRE h 100000 FIELDS 1 a",
        "HPERSIST h FIELDS 1 a",
        "HPERSIST h FIELDS 1 a",
        "HGETEX h PX 100000 FIELDS 1 a",
        "HGETDEL h FIELDS 1 a",
        "HPEXPIRE h 200 FIELDS 1 c",
        "HSETEX h PX 2500 FIELDS 1 b 2",
        "HEXPIRE h 0 FIELDS 1 nothing",
    ] {
        writer.line(line);
    }
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last| last != "del") {
        heard.push(one_heard(&mut listener).0.replace("__keyevent@0__:", ""));
    }
    let wanted = ["hset", "hexpire", "hpersist", "hexpire", "hdel", "hexpire", "hset", "hexpire"];
    assert_eq!(heard, [&wanted[..], &["hexpired", "hexpired", "del"]].concat());
    assert_eq!(writer.line("EXISTS h"), Value::Int(0));
}

/// Hazard: a client that has seen a change publishes a message that arrives before the change; a client that
/// subscribes after the change was seen still receives it.
#[test]
fn a_publish_that_follows_a_change_is_heard_after_it() {
    const SET: &str = "__keyevent@0__:set";
    let tern = tern(&["--notify-keyspace-events", "KEA", "--appendfsync", "no"]);
    let [mut listener, mut writer, mut reader] = [(); 3].map(|()| tern.client());
    listener.line(&format!("SUBSCRIBE {SET} answers"));
    listener.read().unwrap();
    let keys: Vec<String> = (0..8000).flat_map(|n| [format!("key:{n}"), "v".into()]).collect();
    for round in 0..12 {
        let mut words = vec!["MSET".to_owned()];
        words.extend(keys.iter().cloned().chain(["seen".into(), round.to_string()]));
        writer.send_raw(&request(&words)).unwrap();
        let since = Instant::now();
        while reader.line("GET seen") != Value::Bulk(round.to_string().into_bytes()) {
            assert!(since.elapsed() < LONG, "the MSET: {:?}", writer.read().unwrap().value);
        }
        let mut late = tern.client();
        if round % 2 == 0 {
            reader.line(&format!("PUBLISH answers {round}"));
        } else {
            late.line(&format!("SUBSCRIBE {SET}"));
        }
        assert_eq!(writer.read().unwrap().value, Value::Simple(b"OK".to_vec()));
        writer.line("SET end x");
        let mut order = Vec::new();
        while order.last().is_none_or(|last| last != "end") {
            let (channel, text) = one_heard(&mut listener);
            if ["seen", "end"].contains(&text.as_str()) || channel == "answers" {
                order.push(if channel == "answers" { channel } else { text });
            }
        }
        if round % 2 == 0 {
            assert_eq!(order, ["seen", "answers", "end"], "round {round}");
        } else {
            assert_eq!(
                one_heard(&mut late).1,
                "end",
                "round {round}: a change seen before the subscription must not be delivered"
            );
        }
    }
}

/// Hazard: a client leaves a channel during many messages, and misses messages whose commands were answered.
#[test]
fn an_unsubscribing_client_first_hears_everything_answered_before() {
    if support::fdb_cluster::wanted() {
        // Messages between servers pass through the store, after the replies.
        return support::skipped(
            "leaving a channel: an embedded store only",
            "run it without TERN_TEST_STORE",
        );
    }
    let tern = tern(&["--notify-keyspace-events", "KEA", "--appendfsync", "no"]);
    let crowd: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = tern.client();
            client.line("PSUBSCRIBE *");
            client
        })
        .collect();
    let [mut listener, mut writer, mut other] = [(); 3].map(|()| tern.client());
    let mut words = vec!["MSET".to_owned()];
    words.extend((0..3000).flat_map(|n| [format!("key:{n}"), "v".into()]));
    for round in 0..3 {
        listener.line("SUBSCRIBE __keyspace@0__:last");
        writer.send_raw(&request(&words)).unwrap();
        while other.line("EXISTS key:0") == Value::Int(0) {}
        assert_eq!(other.line("SET last x"), Value::Simple(b"OK".to_vec()));
        let first = listener.line("UNSUBSCRIBE __keyspace@0__:last");
        let said = first.items().unwrap()[0].bytes().unwrap().to_vec();
        assert_eq!(String::from_utf8_lossy(&said), "message", "round {round}");
        assert_eq!(listener.read().unwrap().value.items().unwrap()[0].bytes(), Some(&b"unsubscribe"[..]));
        assert_eq!(writer.read().unwrap().value, Value::Simple(b"OK".to_vec()));
        other.line("DEL key:0");
    }
    drop(crowd);
}
