//! `keyspace_hits` and `keyspace_misses`: Redis decides which commands count which keys, so it is the oracle.

use crate::support::resp::Client;
use crate::support::server::{redis, tern};

/// The state before each line: a string, an integer, a longer string, two sets.
const STATE: &[&str] = &[
    "FLUSHALL",
    "SELECT 0",
    "SET s hello",
    "SET n 1",
    "SET ttl v EX 1000",
    "SADD set1 a b c",
    "SADD set2 b c 5",
    "SADD ints 1 2 3",
    "PFADD h1 a b",
    "PFADD h2 b c",
    "HSET hash1 a 1 b 2",
];

/// An expired key, for the lines that name it. Other lines would meet it or not, depending on the servers'
/// sweeps.
const EXPIRED: &str = "SET gone v PX 1";

/// Each runs on its own on the state; `x` and `y` are missing keys.
const LINES: &[&str] = &[
    "GET s",
    "GET x",
    "GET gone",
    "GET set1",
    "MGET s x set1 gone n",
    "GETEX s",
    "GETEX s EX 100",
    "GETEX x",
    "GETEX s EX foo",
    "GETDEL s",
    "GETDEL x",
    "GETDEL set1",
    "GETSET s v",
    "GETSET x v",
    "GETSET set1 v",
    "SET s v",
    "SET x v",
    "SET s v GET",
    "SET x v GET",
    "SET s v XX GET",
    "SET x v XX GET",
    "SET s v NX",
    "SETNX s v",
    "SETNX x v",
    "SETEX s 100 v",
    "PSETEX x 100000 v",
    "MSET s v x v",
    "MSETNX x v y v",
    "MSETNX x v s v",
    "APPEND s v",
    "APPEND x v",
    "STRLEN s",
    "STRLEN x",
    "STRLEN set1",
    "GETRANGE s 0 1",
    "GETRANGE x 0 1",
    "GETRANGE s 0 y",
    "SUBSTR s 0 1",
    "SETRANGE s 1 v",
    "SETRANGE x 1 v",
    "SETBIT s 1 1",
    "SETBIT x 1 1",
    "GETBIT s 1",
    "GETBIT x 1",
    "GETBIT set1 1",
    "BITCOUNT s",
    "BITCOUNT x 0 y",
    "BITPOS s 1",
    "BITPOS x 1 y",
    "BITOP OR y s x n",
    "BITOP AND y set1 s",
    "BITOP NOT s x",
    "BITFIELD s",
    "BITFIELD x GET u8 0",
    "BITFIELD s GET u8 0 SET u8 0 1",
    "BITFIELD_RO s GET u8 0",
    "BITFIELD_RO s SET u8 0 1",
    "INCR n",
    "INCR x",
    "INCRBY n 2",
    "INCRBYFLOAT n 2",
    "DECR n",
    "DECRBY n 2",
    "SORT ints BY x*",
    "SORT set1 ALPHA GET #",
    "SORT set1 ALPHA GET x* GET ttl*",
    "SORT x",
    "SORT_RO s",
    "DUMP s",
    "DUMP x",
    "DUMP set1",
    "RESTORE s 0 nonsense",
    "RESTORE x 0 nonsense",
    "LCS s n",
    "LCS s x",
    "LCS x set1",
    "LCS s s FOO",
    "PFADD h1 c",
    "PFADD x c",
    "PFCOUNT h1",
    "PFCOUNT x",
    "PFCOUNT s",
    "PFCOUNT h1 x h2",
    "PFCOUNT h1 s h2",
    "PFMERGE h1 h2 x",
    "PFMERGE x h2",
    "PFMERGE x h2 s y",
    "PFDEBUG ENCODING h1",
    "HSET hash1 c 1",
    "HSET x c 1",
    "HSET s c 1",
    "HSETNX hash1 a 1",
    "HSETNX x a 1",
    "HMSET hash1 a 1",
    "HGET hash1 a",
    "HGET hash1 x",
    "HGET x a",
    "HGET s a",
    "HMGET hash1 a x",
    "HMGET x a",
    "HGETALL hash1",
    "HGETALL x",
    "HKEYS hash1",
    "HVALS x",
    "HLEN hash1",
    "HLEN x",
    "HEXISTS hash1 a",
    "HSTRLEN x a",
    "HDEL hash1 a",
    "HDEL x a",
    "HINCRBY hash1 a 1",
    "HINCRBY x a 1",
    "HINCRBYFLOAT hash1 a 1",
    "HRANDFIELD hash1",
    "HRANDFIELD x",
    "HRANDFIELD hash1 1 WITHVALUES",
    "HSCAN hash1 0",
    "HSCAN x 0",
    "HSCAN x 0 FOO",
    "SORT set1 BY *->a GET hash*->a ALPHA",
    "DUMP hash1",
    "SADD set1 d",
    "SADD x d",
    "SREM set1 a",
    "SREM x a",
    "SISMEMBER set1 a",
    "SISMEMBER x a",
    "SISMEMBER s a",
    "SMISMEMBER set1 a z",
    "SMISMEMBER x a",
    "SCARD set1",
    "SCARD x",
    "SMEMBERS set1",
    "SMEMBERS x",
    "SPOP set1",
    "SPOP x",
    "SPOP set1 2",
    "SRANDMEMBER set1",
    "SRANDMEMBER x",
    "SRANDMEMBER set1 2",
    "SRANDMEMBER set1 -2",
    "SMOVE set1 set2 a",
    "SMOVE x set2 a",
    "SINTER set1 set2",
    "SINTER set1 x set2",
    "SINTER x set1 y",
    "SINTER set1 s x",
    "SINTER set1 set1",
    "SUNION set1 set2 x",
    "SUNION x s set1",
    "SDIFF set1 set2 x",
    "SDIFF x set1",
    "SINTERCARD 2 set1 set2",
    "SINTERCARD 2 set1 x LIMIT 1",
    "SINTERSTORE x set1 set2",
    "SINTERSTORE s set1 y",
    "SUNIONSTORE x set1 set2",
    "SDIFFSTORE set1 set1 x",
    "SSCAN set1 0",
    "SSCAN x 0",
    "SSCAN x foo",
    "DEL s x",
    "UNLINK s x",
    "EXISTS s x s gone",
    "TYPE s",
    "TYPE x",
    "EXPIRE s 100",
    "EXPIRE x 100",
    "PEXPIREAT s 1",
    "TTL s",
    "TTL x",
    "TTL ttl",
    "PTTL ttl",
    "EXPIRETIME ttl",
    "PEXPIRETIME x",
    "PERSIST ttl",
    "PERSIST x",
    "TOUCH s x s",
    "RENAME s x",
    "RENAME x y",
    "RENAMENX s n",
    "RENAMENX s x",
    "COPY s x",
    "COPY x y",
    "COPY s n",
    "COPY s n REPLACE",
    "COPY s n DB 1",
    "MOVE s 1",
    "MOVE x 1",
    "RANDOMKEY",
    "KEYS *",
    "KEYS s*",
    "SCAN 0 COUNT 100",
    "SCAN 0 COUNT 100 MATCH s*",
    "SCAN 0 COUNT 100 TYPE set",
    "SCAN 0 COUNT 100 TYPE string MATCH s*",
    "DBSIZE",
    "OBJECT ENCODING s",
    "OBJECT ENCODING x",
    "OBJECT REFCOUNT s",
    "OBJECT IDLETIME x",
    "MEMORY USAGE s",
    "MEMORY USAGE x",
    "WATCH s x",
    "SWAPDB 0 1",
    "FLUSHDB",
];

fn lookups(client: &mut Client) -> (u64, u64) {
    let text = client.line("INFO stats");
    let text = String::from_utf8_lossy(text.bytes().unwrap()).into_owned();
    let field = |name: &str| {
        let value = text.lines().find_map(|l| l.strip_prefix(&format!("keyspace_{name}:")));
        value.unwrap_or_else(|| panic!("no keyspace_{name} in {text}")).parse().unwrap()
    };
    (field("hits"), field("misses"))
}

/// Hits and misses that `lines` add to those of the state.
fn counted(client: &mut Client, lines: &[&str]) -> (u64, u64) {
    STATE.iter().for_each(|line| drop(client.line(line)));
    if lines.iter().any(|line| line.contains("gone")) {
        client.line(EXPIRED);
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    client.line("CONFIG RESETSTAT");
    assert_eq!(lookups(client), (0, 0), "CONFIG RESETSTAT");
    lines.iter().for_each(|line| drop(client.line(line)));
    let found = lookups(client);
    client.line("UNWATCH");
    found
}

#[test]
fn hits_and_misses_equal_those_of_redis() {
    let Some(redis) = redis("keyspace_hits differential test") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    let (mut redis, mut tern) = (redis.client(), tern.client());
    let (mut complaints, mut some) = (Vec::new(), 0);
    for line in LINES {
        for lines in [&[*line][..], &["MULTI", line, "EXEC"]] {
            let (expected, got) = (counted(&mut redis, lines), counted(&mut tern, lines));
            some += expected.0 + expected.1;
            if expected != got {
                complaints.push(format!("{lines:?}: (hits, misses) {got:?}, redis {expected:?}"));
            }
        }
    }
    assert!(some > 100, "the oracle counted too little: {some}");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
