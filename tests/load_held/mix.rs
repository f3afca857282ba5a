//! The mix: command lines on bounded keys, with separate names for each kind of value, so that a correct
//! server answers none of them with an error. A missing key (`RENAME`, `EXEC`) has its one allowed answer in
//! [`is_expected`].
//!
//! In a line `$x` is a random argument of a kind ([`argument`]) and `$x*` are several. Keys and members come
//! from pools: the server's memory for them reaches a size and stays there, so that growth is a leak.

use crate::support::rng::Rng;

/// Lines by weight.
const LINES: &[(usize, &str)] = &[
    (40, "GET $s"),
    (20, "SET $s $v"),
    (10, "SET $s $v PX $p"),
    (3, "SET $s $v NX GET"),
    (4, "SETEX $s 2 $v"),
    (3, "PSETEX $s $p $v"),
    (3, "SETNX $s $v"),
    (3, "GETSET $s $v"),
    (3, "GETDEL $s"),
    (3, "GETEX $s PX $p"),
    (8, "MGET $s*"),
    (8, "MSET $s $v $s $v $s $v"),
    (2, "MSETNX $s $v $s $v"),
    (2, "MSETEX 2 $s $v $s $v PX $p"),
    (4, "APPEND $s $v"),
    (4, "STRLEN $s"),
    (2, "DELEX $s IFEQ $v"),
    (2, "DELIFEQ $s $v"),
    (2, "DIGEST $s"),
    (1, "LCS $s $s"),
    (2, "LCS $s $s LEN"),
    (3, "SET $g $V"),
    (3, "SETRANGE $g $o $v"),
    (3, "APPEND $g $v"),
    (5, "GETRANGE $g $o 20000"),
    (1, "SUBSTR $g 0 100"),
    (1, "DEL $g"),
    (20, "INCR $n"),
    (5, "INCRBY $n $i"),
    (5, "DECR $n"),
    (3, "DECRBY $n $i"),
    (2, "INCREX $n BYINT $i"),
    (1, "SET $n $i PX $p"),
    (4, "INCRBYFLOAT $f $i"),
    (1, "SET $f 0"),
    (4, "SETBIT $b $x 1"),
    (2, "SETBIT $b $x 0"),
    (4, "GETBIT $b $x"),
    (2, "BITCOUNT $b"),
    (2, "BITPOS $b 1"),
    (2, "BITOP XOR $b $b $b"),
    (1, "BITOP AND $b $b $b"),
    (1, "BITOP DIFF1 $b $b $b"),
    (1, "BITOP ONE $b $b $b"),
    (2, "BITFIELD $b INCRBY u8 $x 3 GET u4 0"),
    (1, "BITFIELD_RO $b GET u8 $x"),
    (1, "DEL $b"),
    (6, "PFADD $h $m*"),
    (3, "PFCOUNT $h"),
    (1, "PFCOUNT $h $h"),
    (1, "PFMERGE $h $h $h"),
    (1, "DEL $h"),
    (20, "SADD $k $m*"),
    (10, "SREM $k $m*"),
    (10, "SISMEMBER $k $m"),
    (5, "SMISMEMBER $k $m*"),
    (5, "SCARD $k"),
    (5, "SMEMBERS $k"),
    (5, "SPOP $k"),
    (2, "SPOP $k 3"),
    (3, "SRANDMEMBER $k"),
    (3, "SRANDMEMBER $k -4"),
    (5, "SMOVE $k $k $m"),
    (5, "SINTER $k $k"),
    (3, "SUNION $k $k"),
    (3, "SDIFF $k $k"),
    (3, "SINTERCARD 2 $k $k LIMIT 5"),
    (1, "SUNIONCARD 2 $k $k"),
    (1, "SDIFFCARD 2 $k $k"),
    (3, "SINTERSTORE $k $k $k"),
    (2, "SUNIONSTORE $k $k $k"),
    (2, "SDIFFSTORE $k $k $k"),
    (2, "SSCAN $k 0 COUNT 20"),
    (1, "SORT $k ALPHA LIMIT 0 10"),
    (1, "SORT_RO $k ALPHA DESC"),
    (1, "PEXPIRE $k $p"),
    (8, "SADD $L $M*"),
    (6, "SREM $L $M*"),
    (8, "SISMEMBER $L $M"),
    (3, "SMISMEMBER $L $M*"),
    (3, "SPOP $L 5"),
    (3, "SRANDMEMBER $L 10"),
    (4, "SINTERCARD 2 $L $L"),
    (1, "SINTER $L $L"),
    (1, "SUNIONSTORE $L $L $L"),
    (1, "SDIFFSTORE $L $L $k"),
    (2, "SINTERSTORE $k $k $L"),
    (2, "SSCAN $L 0 COUNT 100"),
    (1, "SMEMBERS $L"),
    (2, "SCARD $L"),
    (1, "UNLINK $L"),
    (12, "HSET $q $m $v $m $v"),
    (2, "HMSET $q $m $v"),
    (2, "HSET $q $m $V"),
    (3, "HSETNX $q $m $v"),
    (10, "HGET $q $m"),
    (4, "HMGET $q $m*"),
    (3, "HGETALL $q"),
    (1, "HKEYS $q"),
    (1, "HVALS $q"),
    (5, "HDEL $q $m*"),
    (3, "HLEN $q"),
    (3, "HEXISTS $q $m"),
    (1, "HSTRLEN $q $m"),
    (3, "HINCRBY $q count $i"),
    (2, "HINCRBYFLOAT $q float $i"),
    (2, "HRANDFIELD $q 3"),
    (2, "HSCAN $q 0 COUNT 20"),
    (4, "HPEXPIRE $q $p FIELDS 2 $m $m"),
    (1, "HEXPIRE $q 2 NX FIELDS 1 $m"),
    (1, "HEXPIREAT $q 1 GT FIELDS 1 $m"),
    (1, "HPEXPIREAT $q 4000000000000 LT FIELDS 1 $m"),
    (2, "HTTL $q FIELDS 2 $m $m"),
    (1, "HPTTL $q FIELDS 1 $m"),
    (1, "HEXPIRETIME $q FIELDS 1 $m"),
    (1, "HPEXPIRETIME $q FIELDS 1 $m"),
    (2, "HPERSIST $q FIELDS 2 $m $m"),
    (2, "HGETDEL $q FIELDS 2 $m $m"),
    (2, "HGETEX $q PX $p FIELDS 1 $m"),
    (4, "HSETEX $q PX $p FIELDS 2 $m $v $m $v"),
    (1, "DUMP $q"),
    (1, "COPY $q $q DB 2 REPLACE"),
    (1, "DEL $q"),
    (8, "LPUSH $t $v $v"),
    (8, "RPUSH $t $m*"),
    (1, "RPUSH $t $V"),
    (2, "LPUSHX $t $v"),
    (2, "RPUSHX $t $v"),
    (6, "LPOP $t"),
    (6, "RPOP $t 3"),
    (2, "LLEN $t"),
    (3, "LINDEX $t $i"),
    (3, "LRANGE $t 0 20"),
    (2, "LINSERT $t BEFORE $m $v"),
    (2, "LREM $t 1 $m"),
    (2, "LSET $t 0 $v"),
    (4, "LTRIM $t 0 100"),
    (1, "LPOS $t $m"),
    (3, "LMOVE $t $t LEFT RIGHT"),
    (2, "RPOPLPUSH $t $t"),
    (2, "BLPOP $t $t 0.01"),
    (1, "BRPOP $t 0.01"),
    (1, "BLMOVE $t $t LEFT RIGHT 0.01"),
    (1, "BRPOPLPUSH $t $t 0.01"),
    (1, "BLMPOP 0.01 2 $t $t LEFT"),
    (2, "LMPOP 2 $t $t RIGHT COUNT 2"),
    (1, "DEL $t"),
    (8, "ZADD $z $i $m $x $m"),
    (2, "ZADD $z GT CH $i $m"),
    (4, "ZINCRBY $z $i $m"),
    (4, "ZREM $z $m*"),
    (2, "ZCARD $z"),
    (4, "ZSCORE $z $m"),
    (2, "ZMSCORE $z $m*"),
    (4, "ZRANK $z $m"),
    (2, "ZREVRANK $z $m"),
    (2, "ZPOPMIN $z"),
    (2, "ZPOPMAX $z 3"),
    (2, "ZCOUNT $z 10 50"),
    (1, "ZLEXCOUNT $z - +"),
    (4, "ZRANGE $z 0 10 WITHSCORES"),
    (2, "ZREVRANGE $z 0 10"),
    (2, "ZRANGEBYSCORE $z 10 50 LIMIT 2 5"),
    (2, "ZREVRANGEBYSCORE $z 50 10"),
    (1, "ZRANGEBYLEX $z - + LIMIT 0 5"),
    (1, "ZREVRANGEBYLEX $z + - LIMIT 0 5"),
    (1, "ZREMRANGEBYRANK $z 100 -1"),
    (1, "ZREMRANGEBYSCORE $z 10 11"),
    (1, "ZREMRANGEBYLEX $z [member:1 [member:10"),
    (1, "ZRANGESTORE $z $z 0 100"),
    (2, "ZUNION 2 $z $z WITHSCORES"),
    (2, "ZINTER 2 $z $z WEIGHTS 2 3"),
    (2, "ZDIFF 2 $z $k"),
    (2, "ZINTERCARD 2 $z $z LIMIT 5"),
    (1, "ZUNIONSTORE $z 2 $z $z AGGREGATE MAX"),
    (1, "ZINTERSTORE $z 2 $z $z"),
    (1, "ZDIFFSTORE $z 2 $z $z"),
    (2, "ZMPOP 2 $z $z MAX COUNT 2"),
    (2, "BZPOPMIN $z $z 0.01"),
    (2, "GEOADD geo 13.3 38.1 a 15.1 37.5 b"),
    (1, "GEOSEARCH geo FROMMEMBER a BYRADIUS 200 km WITHDIST"),
    (1, "GEOSEARCHSTORE near geo FROMLONLAT 13 38 BYBOX 500 500 km"),
    (1, "GEORADIUS geo 13 38 100 km STORE near"),
    (1, "GEORADIUS_RO geo 13 38 100 km WITHCOORD"),
    (1, "GEORADIUSBYMEMBER geo a 200 km STOREDIST near"),
    (1, "GEORADIUSBYMEMBER_RO geo a 200 km"),
    (1, "GEODIST geo a b km"),
    (1, "GEOHASH geo a b"),
    (1, "GEOPOS geo a b"),
    (1, "BZPOPMAX $z 0.01"),
    (1, "BZMPOP 0.01 2 $z $z MIN"),
    (2, "ZRANDMEMBER $z 3"),
    (2, "ZSCAN $z 0 COUNT 20"),
    (1, "DEL $z"),
    (8, "XADD $X MAXLEN ~ 200 * $m $v"),
    (4, "XADD $X MAXLEN 100 * $m $v $m $v"),
    (1, "XADD $X MAXLEN 100 * $m $V"),
    (4, "XLEN $X"),
    (4, "XRANGE $X - + COUNT 20"),
    (3, "XREVRANGE $X + - COUNT 20"),
    (3, "XREAD COUNT 10 STREAMS $X $X 0 0"),
    (2, "XREAD COUNT 10 BLOCK 5 STREAMS $X +"),
    (2, "XDEL $X 1-1"),
    (2, "XDELEX $X DELREF IDS 1 1-1"),
    (2, "XTRIM $X MAXLEN 50"),
    (4, "XGROUP CREATE $X g 0 MKSTREAM"),
    (8, "XREADGROUP GROUP g c1 COUNT 10 STREAMS $X >"),
    (3, "XREADGROUP GROUP g c2 COUNT 10 BLOCK 5 STREAMS $X >"),
    (3, "XACK $X g 1-1"),
    (2, "XACKDEL $X g IDS 1 1-1"),
    (3, "XPENDING $X g"),
    (2, "XCLAIM $X g c2 0 1-1"),
    (4, "XAUTOCLAIM $X g c2 0 0 COUNT 20 JUSTID"),
    (2, "XGROUP DESTROY $X g"),
    (2, "XINFO STREAM $X"),
    (1, "DEL $X"),
    (5, "DEL $s"),
    (2, "UNLINK $s*"),
    (4, "EXISTS $s*"),
    (2, "TOUCH $s*"),
    (3, "TYPE $a"),
    (4, "EXPIRE $s 1"),
    (4, "PEXPIRE $s $p"),
    (1, "EXPIREAT $s 1 GT"),
    (1, "PEXPIREAT $s 4000000000000 LT"),
    (3, "TTL $a"),
    (3, "PTTL $a"),
    (1, "EXPIRETIME $a"),
    (1, "PEXPIRETIME $a"),
    (2, "PERSIST $s"),
    (3, "RENAME $s $s"),
    (2, "RENAMENX $s $s"),
    (1, "RENAME $k $k"),
    (3, "COPY $s $s DB 1 REPLACE"),
    (1, "COPY $L $L DB 2 REPLACE"),
    (1, "MOVE $s 1"),
    (1, "RANDOMKEY"),
    (1, "SCAN 0 COUNT 50"),
    (1, "KEYS str:1?"),
    (1, "DBSIZE"),
    (1, "SWAPDB 3 4"),
    (1, "OBJECT ENCODING $a"),
    (1, "DUMP $k"),
    (1, "DUMP $s"),
    (2, "PING"),
    (1, "ECHO $v"),
    (1, "TIME"),
    (1, "INFO"),
    (1, "COMMAND COUNT"),
    (1, "COMMAND INFO get sadd"),
    (1, "COMMAND DOCS sinter"),
    (1, "CLIENT ID"),
    (1, "CLIENT INFO"),
    (1, "CLIENT LIST"),
    (1, "CLIENT SETNAME soak"),
    (1, "CLIENT KILL ADDR 127.0.0.1:1 SKIPME yes"),
    (1, "CONFIG GET *"),
    (1, "CONFIG SET timeout 0"),
    (1, "MEMORY USAGE $a"),
    (1, "MEMORY STATS"),
    (1, "LASTSAVE"),
    (1, "ROLE"),
    (1, "LOLWUT"),
    (1, "MODULE LIST"),
    (1, "FUNCTION LIST"),
    (1, "FUNCTION STATS"),
    (1, "SCRIPT EXISTS 0123456789012345678901234567890123456789"),
    (6, "EVAL return(redis.call('incr',KEYS[1])) 1 $n"),
    (4, "EVAL redis.call('set',KEYS[1],ARGV[1]);return{redis.call('get',KEYS[1]),cjson.encode({1})} 1 $s $v"),
    (3, "EVAL_RO return(redis.call('strlen',KEYS[1])) 1 $s"),
    (1, "SCRIPT LOAD return(redis.call('get',KEYS[1]))"),
    (1, "ACL SETUSER soak on >$v ~str:* +@read"),
    (1, "ACL LIST"),
    (1, "ACL DRYRUN default GET $s"),
    (1, "SLOWLOG GET 5"),
    (1, "LATENCY HISTOGRAM get"),
    (3, "PUBLISH $s $v"),
    (2, "SPUBLISH $s $v"),
    (1, "PUBSUB NUMSUB $s"),
    (1, "WAIT 0 0"),
    (1, "WAITAOF 0 0 0"),
    (1, "UNWATCH"),
    (5, "IDEMPOTENT $I INCR $n"),
    (2, "IDEMPOTENT $I GET $s"),
    (1, "IDEMPOTENT RESULT $I"),
    (1, "IDEMPOTENT FORGET $I"),
];

/// Commands in [`steps`] below, and those that a worker sends at the right moment.
const ELSEWHERE: &[&str] = &[
    "multi", "exec", "discard", "watch", "restore", "select", "hello", "reset", "quit", "flushdb", "flushall",
];

/// Commands that are unsuitable for a load, and why.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("asking", "an error: there is no cluster mode"),
    ("auth", "an error where there is no password"),
    ("bgrewriteaof", "does nothing here"),
    ("bgsave", "does nothing here"),
    ("save", "does nothing here"),
    ("cluster", "an error: there is no cluster mode"),
    ("debug", "harms on purpose"),
    ("pfdebug", "an error where the key is missing"),
    ("pfselftest", "seconds of work"),
    ("readonly", "an error: there is no cluster mode"),
    ("readwrite", "an error: there is no cluster mode"),
    ("replicaof", "an error: there are no replicas"),
    ("slaveof", "an error: there are no replicas"),
    ("restore-asking", "RESTORE under another name"),
    ("evalsha", "an error where the script is not known"),
    ("evalsha_ro", "an error where the script is not known"),
    ("fcall", "an error where there is no such function"),
    ("fcall_ro", "an error where there is no such function"),
    ("failover", "an error: there are no replicas"),
    ("replconf", "an error: there are no replicas"),
    ("sync", "an error: there are no replicas"),
    ("psync", "an error: there are no replicas"),
    ("migrate", "an error: servers share a store"),
    ("backup", "an error: backups are the store's"),
    ("hotkeys", "an error: keys are not counted"),
    ("trimslots", "an error: there is no cluster mode"),
    ("monitor", "its connection can do little afterwards"),
    ("subscribe", "its connection can do little afterwards"),
    ("psubscribe", "its connection can do little afterwards"),
    ("ssubscribe", "its connection can do little afterwards"),
    ("unsubscribe", "its connection can do little afterwards"),
    ("punsubscribe", "its connection can do little afterwards"),
    ("sunsubscribe", "its connection can do little afterwards"),
    ("xsetid", "an error where the key is missing"),
    ("shutdown", "the end"),
];

/// The names of all commands that the load sends, in lower case.
pub fn names() -> Vec<String> {
    let lines = LINES.iter().map(|(_, line)| line.split(' ').next().unwrap().to_ascii_lowercase());
    lines.chain(ELSEWHERE.iter().map(|name| (*name).to_owned())).collect()
}

/// Every line once, with arguments.
pub fn every_line(rng: &mut Rng) -> Vec<Vec<String>> {
    LINES.iter().map(|(_, line)| expand(rng, line)).collect()
}

/// Lines sent together: one line, a transaction, or several lines in a pipeline.
pub fn steps(rng: &mut Rng) -> Vec<Vec<String>> {
    let word = |line: &str| vec![line.split(' ').map(str::to_owned).collect::<Vec<_>>()];
    match rng.below(100) {
        0..=2 => {
            let watch = [vec!["WATCH".to_owned()], vec![key(rng, 'n'), key(rng, 's')]].concat();
            let body: Vec<Vec<String>> = (0..1 + rng.below(5)).map(|_| data_line(rng)).collect();
            let end = word(if rng.one_in(10) { "DISCARD" } else { "EXEC" });
            [vec![watch], word("MULTI"), body, end].concat()
        }
        3..=9 => (0..2 + rng.below(30)).map(|_| one(rng)).collect(),
        10 if rng.one_in(4) => [word("SELECT 3"), vec![one(rng)], word("FLUSHDB"), word("SELECT 0")].concat(),
        _ => vec![one(rng)],
    }
}

fn one(rng: &mut Rng) -> Vec<String> {
    let line = LINES[rng.weighted(LINES.iter().map(|(weight, _)| *weight))].1;
    expand(rng, line)
}

/// A line that a transaction may hold.
fn data_line(rng: &mut Rng) -> Vec<String> {
    let fits = |argv: &[String]| {
        argv[0] == "SET" || argv[0] == "INCR" || argv[0].starts_with('S') && argv[0] != "SWAPDB"
    };
    std::iter::repeat_with(|| one(rng)).find(|argv| fits(argv)).unwrap()
}

/// Correct errors: another client has removed the key or the group, or has made it.
pub fn is_expected(argv: &[String], error: &[u8]) -> bool {
    let of_groups = ["NOGROUP ", "BUSYGROUP ", "ERR The XGROUP subcommand requires the key to exist"];
    if argv[0].starts_with('X') && of_groups.iter().any(|line| error.starts_with(line.as_bytes())) {
        return true;
    }
    (argv[0].starts_with("RENAME") || ["LSET", "XINFO"].contains(&argv[0].as_str()))
        && error == b"ERR no such key"
}

fn expand(rng: &mut Rng, line: &str) -> Vec<String> {
    let mut argv = Vec::new();
    for word in line.split(' ') {
        let Some(kind) = word.strip_prefix('$') else {
            argv.push(word.to_owned());
            continue;
        };
        let times = if kind.ends_with('*') { 1 + rng.below(20) } else { 1 };
        argv.extend((0..times).map(|_| argument(rng, kind.chars().next().unwrap())));
    }
    argv
}

fn argument(rng: &mut Rng, kind: char) -> String {
    match kind {
        'a' => {
            let kind = ['s', 'g', 'n', 'k', 'L', 'h', 'q', 'z'][rng.below(8)];
            key(rng, kind)
        }
        'v' => "value ".repeat(1 + rng.below(20)),
        'V' => "a long value ".repeat(1 + rng.below(2000)),
        'p' => (20 + rng.below(3000)).to_string(),
        'i' => rng.below(100).to_string(),
        'o' => rng.below(20_000).to_string(),
        'x' => rng.below(40_000).to_string(),
        'm' => format!("member:{}", rng.below(200)),
        'M' if rng.one_in(2) => format!("member:{}", rng.below(20_000)),
        'M' => (rng.below(20_000) * 3).to_string(),
        'I' => format!("an-id-of-the-load:{}", rng.next()),
        _ => key(rng, kind),
    }
}

fn key(rng: &mut Rng, kind: char) -> String {
    let (name, number) = match kind {
        's' => ("str", 2000),
        'g' => ("long", 20),
        'n' => ("count", 200),
        'f' => ("float", 20),
        'b' => ("bits", 20),
        'h' => ("hll", 20),
        'k' => ("set", 100),
        'q' => ("hash", 50),
        't' => ("list", 50),
        'z' => ("zset", 50),
        'X' => ("stream", 30),
        'L' => ("big", 8),
        _ => panic!("no such kind: {kind}"),
    };
    format!("{name}:{}", rng.below(number))
}
