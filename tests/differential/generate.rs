//! Random command lines from templates.
//!
//! A template is a command line in which `$x` stands for a random argument of a kind (see `arguments.rs`),
//! `$x+` for one to four of them, `($x $y)+` for pairs, and `{A|B $x}` for none to three of its alternatives
//! in any order. One line in ten is then damaged: an argument is dropped, doubled, replaced by a hostile one,
//! or added.
//!
//! Expiries are far in the future or in the past, so that no reply depends on a server's speed; keys that do
//! expire are steps of their own that wait until they have.

use crate::arguments::argument;
use crate::harmless::{far_expiry, harmless};
use crate::support::rng::Rng;
use crate::words::{HOSTILE, KEYS};

/// Command lines with weights.
pub type Templates = &'static [(usize, &'static str)];

/// A command and its arguments.
pub type Argv = Vec<Vec<u8>>;

/// How the driver handles a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Send it and compare the replies.
    Plain,
    /// SCAN, SSCAN, HSCAN or ZSCAN: follow the cursor to the end and compare the names found.
    Scan,
    /// SPOP: check that it popped members, then make both sides equal.
    Pop,
    /// SRANDMEMBER, HRANDFIELD or ZRANDMEMBER: check that it returned elements.
    Sample,
    /// RANDOMKEY: check that it returned a key.
    RandomKey,
    /// DBSIZE: expired keys may count until they are collected, so ask again for a while.
    Count,
    /// Send it, then wait until its expiry of 20 ms has passed.
    Lapse,
    /// CLIENT REPLY OFF, the line, CLIENT REPLY ON.
    Silent,
    /// XADD with an id that the server makes: redis-server gets the one that Tern has made.
    Made,
    /// QUIT: the connection closes after the reply.
    Quit,
}

impl Kind {
    /// Whether redis-server may get the line only after Tern has answered, inside MULTI: see `late.rs`.
    pub fn is_chosen(self) -> bool {
        matches!(self, Kind::Scan | Kind::Pop | Kind::Sample | Kind::RandomKey | Kind::Count | Kind::Lapse)
    }
}

/// One step of a sequence.
#[derive(Debug, Clone)]
pub struct Step {
    /// Which of the two connections.
    pub conn: usize,
    /// How to handle the line.
    pub kind: Kind,
    /// The line.
    pub argv: Argv,
}

/// Templates by weight.
pub const TEMPLATES: Templates = &[
    (30, "GET $k"),
    (40, "SET $k $v {NX|XX|GET|KEEPTTL|EX $s|PX $p|EXAT $S|PXAT $P}"),
    (12, "SET $k $v"),
    (6, "SET $k $V"),
    (8, "GETSET $k $v"),
    (8, "GETDEL $k"),
    (12, "GETEX $k {PERSIST|EX $s|PX $p|EXAT $S|PXAT $P}"),
    (8, "SETNX $k $v"),
    (6, "SETEX $k $s $v"),
    (6, "PSETEX $k $p $v"),
    (10, "MGET $k+"),
    (10, "MSET ($k $v)+"),
    (8, "MSETNX ($k $v)+"),
    (14, "APPEND $k $v"),
    (2, "APPEND $k $V"),
    (10, "STRLEN $k"),
    (12, "GETRANGE $k $o $o"),
    (5, "SUBSTR $k $o $o"),
    (12, "SETRANGE $k $o $v"),
    (12, "INCR $k"),
    (12, "INCRBY $k $i"),
    (14, "INCRBYFLOAT $k $f"),
    (8, "DECR $k"),
    (8, "DECRBY $k $i"),
    (10, "SETBIT $k $b 1"),
    (10, "SETBIT $k $b 0"),
    (1, "SETBIT $k $b $n"),
    (12, "GETBIT $k $b"),
    (4, "BITCOUNT $k"),
    (12, "BITCOUNT $k $o $o {BIT|BYTE|bit}"),
    (5, "BITPOS $k $j {$o}"),
    (12, "BITPOS $k $j $o $o {BIT|BYTE|byte}"),
    (4, "BITOP AND $k $k+"),
    (4, "BITOP OR $k $k+"),
    (4, "BITOP XOR $k $k+"),
    (4, "BITOP NOT $k $k"),
    (1, "BITOP $w $k $k+"),
    (
        25,
        "BITFIELD $k {GET $e $x|SET $e $x $i|INCRBY $e $x $i|OVERFLOW SAT|OVERFLOW FAIL|OVERFLOW WRAP|OVERFLOW foo}",
    ),
    (10, "BITFIELD $k OVERFLOW SAT {SET $e $x $i|INCRBY $e $x $i|GET $e $x}"),
    (10, "BITFIELD $k OVERFLOW FAIL {SET $e $x $i|INCRBY $e $x $i|GET $e $x}"),
    (5, "BITFIELD_RO $k {GET $e $x|GET $e $x|SET $e $x $i}"),
    (6, "DUMP $k"),
    (12, "RESTORE $k $p $D {REPLACE|ABSTTL|IDLETIME $n|FREQ $n|FOO}"),
    (12, "RESTORE $k 0 $D REPLACE"),
    (4, "RESTORE $k $P $D ABSTTL {REPLACE|REPLACE|IDLETIME $n}"),
    (4, "SORT $k {DESC|ASC|GET #|GET $k|GET $k*|FOO}"),
    (3, "SORT $k LIMIT $n $n {DESC}"),
    (4, "SORT_RO $k ALPHA {DESC|GET #}"),
    (2, "SORT $k BY n*"),
    (2, "SORT_RO $k BY nosort {GET #|ALPHA}"),
    (6, "LCS $k $k"),
    (4, "LCS $k $k LEN"),
    (8, "LCS $k $k IDX {MINMATCHLEN $n|WITHMATCHLEN|LEN|FOO}"),
    (16, "PFADD $h $m+"),
    (6, "PFADD $h $B"),
    (2, "PFADD $k $m"),
    (2, "PFADD $h"),
    (12, "PFCOUNT $h"),
    (4, "PFCOUNT $h $h+"),
    (2, "PFCOUNT $k+"),
    (6, "PFMERGE $h $h+"),
    (2, "PFMERGE $h $k+"),
    (1, "PFDEBUG TODENSE $h"),
    (2, "PFDEBUG DECODE $h"),
    (2, "PFDEBUG ENCODING $h"),
    (1, "PFDEBUG $w $k"),
    (8, "GET $h"),
    (2, "SET $h $v"),
    (3, "DEL $h"),
    (2, "COPY $h $k"),
    (2, "RENAME $h $h"),
    (30, "SADD $k $m+"),
    (6, "SADD $k $B"),
    (15, "SREM $k $m+"),
    (3, "SREM $k $B"),
    (10, "SISMEMBER $k $m"),
    (10, "SMISMEMBER $k $m+"),
    (10, "SCARD $k"),
    (12, "SMEMBERS $k"),
    (8, "SPOP $k"),
    (8, "SPOP $k $n"),
    (4, "SRANDMEMBER $k"),
    (8, "SRANDMEMBER $k $n"),
    (10, "SMOVE $k $k $m"),
    (10, "SINTER $k+"),
    (10, "SUNION $k+"),
    (10, "SDIFF $k+"),
    (6, "SINTERCARD 1 $k {LIMIT $n}"),
    (8, "SINTERCARD 2 $k $k {LIMIT $n}"),
    (3, "SINTERCARD $n $k+ {LIMIT $n}"),
    (8, "SINTERSTORE $k $k+"),
    (8, "SUNIONSTORE $k $k+"),
    (8, "SDIFFSTORE $k $k+"),
    (5, "SSCAN $k 0 {MATCH $g|COUNT $n}"),
    (2, "SSCAN $k $c {MATCH $g|COUNT $n}"),
    (14, "LPUSH $l $m+"),
    (14, "RPUSH $l $m+"),
    (4, "LPUSHX $l $m"),
    (4, "RPUSHX $l $m+"),
    (3, "RPUSH $l $B"),
    (2, "LPUSH $l $V"),
    (2, "LPUSH $k $v"),
    (10, "LPOP $l"),
    (10, "RPOP $l"),
    (5, "LPOP $l $n"),
    (5, "RPOP $l $n"),
    (6, "LLEN $l"),
    (10, "LINDEX $l $o"),
    (4, "LSET $l 0 $m"),
    (4, "LSET $l -2 $v"),
    (2, "LSET $l 7 $V"),
    (12, "LRANGE $l $o $o"),
    (8, "LRANGE $l 0 -1"),
    (6, "LINSERT $l BEFORE $m $m"),
    (6, "LINSERT $l AFTER $m $v"),
    (1, "LINSERT $l $w $m $m"),
    // Not the lowest number: 7.0 takes it for all, later versions refuse it.
    (8, "LREM $l {0|1|-1|2|-2|-9223372036854775807|abc} $m"),
    (6, "LTRIM $l $n $o"),
    (8, "LPOS $l $m {RANK $n|COUNT $n|MAXLEN $n}"),
    (6, "LMOVE $l $l LEFT RIGHT"),
    (6, "LMOVE $l $l RIGHT LEFT"),
    (3, "LMOVE $l $l LEFT LEFT"),
    (1, "LMOVE $l $l $w LEFT"),
    (5, "RPOPLPUSH $l $l"),
    (5, "LMPOP 2 $l $l LEFT {COUNT $n}"),
    (3, "LMPOP $n $l RIGHT"),
    (4, "BLPOP $l $l {0.001|x|-1}"),
    (3, "BRPOP $l {0.001|abc}"),
    (3, "BLMOVE $l $l LEFT RIGHT 0.001"),
    (2, "BRPOPLPUSH $l $l 0.001"),
    (3, "BLMPOP 0.001 2 $l $l RIGHT {COUNT $n}"),
    (4, "SORT $l ALPHA {DESC|LIMIT $n $n|STORE $l}"),
    (2, "SORT $l {STORE $l|DESC|GET #|GET $k}"),
    (3, "SORT $l BY nosort DESC {STORE $l|GET #}"),
    (2, "SORT $l BY nosort {GET $k STORE $l|ALPHA}"),
    (3, "SORT $k ALPHA {BY nosort|GET #|GET $k} STORE $l"),
    (30, "HSET $q ($m $v)+"),
    (8, "HSET $q $m $i"),
    (3, "HSET $q $m $V"),
    (6, "HSET $q $H"),
    (2, "HSET $k $m $v"),
    (8, "HMSET $q ($m $v)+"),
    (6, "HSETNX $q $m $v"),
    (14, "HGET $q $m"),
    (10, "HMGET $q $m+"),
    (12, "HGETALL $q"),
    (6, "HKEYS $q"),
    (6, "HVALS $q"),
    (12, "HDEL $q $m+"),
    (3, "HDEL $q $B"),
    (8, "HLEN $q"),
    (6, "HEXISTS $q $m"),
    (6, "HSTRLEN $q $m"),
    (12, "HINCRBY $q $m $i"),
    (10, "HINCRBYFLOAT $q $m $f"),
    (4, "HRANDFIELD $q"),
    (6, "HRANDFIELD $q $n"),
    (6, "HRANDFIELD $q $n WITHVALUES"),
    (5, "HSCAN $q 0 {MATCH $g|COUNT $n}"),
    (2, "HSCAN $q $c {MATCH $g|COUNT $n}"),
    (3, "OBJECT ENCODING $q"),
    (3, "DEL $q"),
    (3, "COPY $q $q {REPLACE}"),
    (3, "RENAME $q $q"),
    (2, "DUMP $q"),
    (2, "SORT $k ALPHA {BY hash*->a|BY *->1|GET hash*->a|GET *->b|GET hash*->}"),
    (24, "ZADD $z ($r $m)+"),
    (8, "ZADD $z {NX|XX|GT|LT|CH|INCR} ($r $m)+"),
    (4, "ZADD $z {NX|XX|GT|LT|CH|INCR} $r $m"),
    (6, "ZADD $z $W"),
    (2, "ZADD $k $r $m"),
    (10, "ZINCRBY $z $r $m"),
    (10, "ZREM $z $m+"),
    (2, "ZREM $z $B"),
    (6, "ZCARD $z"),
    (8, "ZSCORE $z $m"),
    (6, "ZMSCORE $z $m+"),
    (10, "ZRANK $z $m"),
    (6, "ZREVRANK $z $m"),
    (5, "ZPOPMIN $z"),
    (3, "ZPOPMIN $z $n"),
    (5, "ZPOPMAX $z"),
    (3, "ZPOPMAX $z $n"),
    (10, "ZCOUNT $z $Q $Q"),
    (10, "ZRANGE $z $o $o {WITHSCORES|REV|LIMIT $n $n}"),
    (8, "ZRANGE $z 0 -1 {WITHSCORES|REV}"),
    (8, "ZRANGE $z $Q $Q BYSCORE {WITHSCORES|REV|LIMIT $n $n}"),
    (6, "ZREVRANGE $z $o $o {WITHSCORES}"),
    (8, "ZRANGEBYSCORE $z $Q $Q {WITHSCORES|LIMIT $n $n}"),
    (6, "ZREVRANGEBYSCORE $z $Q $Q {WITHSCORES|LIMIT $n $n}"),
    (4, "ZRANGESTORE $z $z $o $o {REV|LIMIT $n $n}"),
    (4, "ZRANGESTORE $z $z $Q $Q BYSCORE {REV|LIMIT $n $n}"),
    (2, "ZRANGESTORE $k $z 0 -1"),
    (6, "ZUNION 2 $z $z {WITHSCORES|WEIGHTS $a $a|AGGREGATE MIN|AGGREGATE MAX}"),
    (4, "ZUNION 2 $z $k WITHSCORES"),
    (6, "ZINTER 2 $z $z {WITHSCORES|WEIGHTS $a $a|AGGREGATE MIN|AGGREGATE MAX}"),
    (3, "ZINTER 3 $z $z $z {WITHSCORES}"),
    (5, "ZDIFF 2 $z $z {WITHSCORES}"),
    (3, "ZDIFF 3 $z $k $z {WITHSCORES}"),
    (4, "ZINTERCARD 2 $z $z {LIMIT $n}"),
    (2, "ZUNION $n $z $z {WITHSCORES}"),
    (5, "ZUNIONSTORE $z 2 $z $z {WEIGHTS $a $a|AGGREGATE MAX}"),
    (2, "ZUNIONSTORE $z 2 $z $k"),
    (5, "ZINTERSTORE $z 2 $z $z {WEIGHTS $a $a|AGGREGATE MIN}"),
    (4, "ZDIFFSTORE $z 2 $z $z"),
    (4, "ZMPOP 2 $z $z {MIN|MAX} {COUNT $n}"),
    (4, "BZPOPMIN $z $z {0.001|x|-1}"),
    (2, "BZPOPMAX $z 0.001"),
    (3, "BZMPOP 0.001 2 $z $z {MIN|MAX} {COUNT $n}"),
    (3, "ZMPOP 1 $z MIN"),
    (3, "ZMPOP 2 $z $z MAX COUNT 2"),
    (4, "ZREMRANGEBYRANK $z $o $o"),
    (4, "ZREMRANGEBYSCORE $z $Q $Q"),
    (14, "ZADD $Z (0 $m)+"),
    (6, "ZREM $Z $m+"),
    (5, "ZLEXCOUNT $Z $X $X"),
    (5, "ZRANGE $Z $X $X BYLEX {REV|LIMIT $n $n|WITHSCORES}"),
    (5, "ZRANGEBYLEX $Z $X $X {LIMIT $n $n}"),
    (5, "ZREVRANGEBYLEX $Z $X $X {LIMIT $n $n}"),
    (3, "ZREMRANGEBYLEX $Z $X $X"),
    (3, "ZRANGESTORE $Z $Z $X $X BYLEX {REV|LIMIT $n $n}"),
    (2, "ZINTERSTORE $Z 2 $Z $Z"),
    (2, "ZDIFFSTORE $Z 2 $Z $Z"),
    (20, "GEOADD $G {NX|XX|CH} ($J)+"),
    (6, "GEODIST $G $U $U {m|km|ft|MI|x}"),
    (5, "GEOHASH $G $U+"),
    (8, "GEOSEARCH $G FROMLONLAT $C BYRADIUS $O ASC {WITHDIST|WITHHASH|COUNT $n}"),
    (8, "GEOSEARCH $G FROMMEMBER $U BYBOX $E DESC {WITHDIST|WITHHASH|COUNT $n}"),
    (4, "GEOSEARCH $G ASC {FROMMEMBER $U|FROMLONLAT $C|BYRADIUS $O|BYBOX $E|ANY|COUNT $n}"),
    (6, "GEORADIUS $G $C $O ASC {WITHDIST|WITHHASH|COUNT $n|STORE $G|STOREDIST far}"),
    (6, "GEORADIUSBYMEMBER $G $U $O DESC {WITHDIST|WITHHASH|COUNT $n|STORE $G|STOREDIST far}"),
    (3, "GEORADIUS_RO $G $C $O ASC {WITHDIST|WITHHASH|COUNT $n|STORE $G}"),
    (3, "GEORADIUSBYMEMBER_RO $G $U $O ASC {WITHDIST|WITHHASH|COUNT $n}"),
    (5, "GEOSEARCHSTORE $G $G FROMLONLAT $C BYRADIUS $O {ASC|COUNT $n}"),
    (4, "GEOSEARCHSTORE far $G FROMMEMBER $U BYBOX $E STOREDIST {DESC|COUNT $n|WITHDIST}"),
    (3, "ZREM $G $U+"),
    (4, "ZRANGE $G 0 -1 WITHSCORES"),
    (3, "ZRANGE far 0 -1"),
    (1, "DEL $G"),
    (4, "ZRANDMEMBER $z"),
    (6, "ZRANDMEMBER $z $n"),
    (6, "ZRANDMEMBER $z $n WITHSCORES"),
    (5, "ZSCAN $z 0 {MATCH $g|COUNT $n}"),
    (2, "ZSCAN $z $c {MATCH $g|COUNT $n}"),
    (3, "OBJECT ENCODING $z"),
    (3, "DEL $z"),
    (3, "COPY $z $z {REPLACE}"),
    (3, "RENAME $z $z"),
    (2, "DUMP $z"),
    (3, "SORT $z ALPHA {DESC|LIMIT $n $n|STORE $l}"),
    (2, "SORT $z BY nosort {DESC|GET #}"),
    // Never a set: which of its members it skips is open.
    (1, "SORT $Z BY nosort LIMIT $n $n {DESC|GET #}"),
    (10, "DEL $k+"),
    (6, "UNLINK $k+"),
    (8, "EXISTS $k+"),
    (6, "TYPE $k"),
    (12, "EXPIRE $k $s {NX|XX|GT|LT}"),
    (10, "PEXPIRE $k $p {NX|XX|GT|LT}"),
    (10, "EXPIREAT $k $S {NX|XX|GT|LT}"),
    (10, "PEXPIREAT $k $P {NX|XX|GT|LT}"),
    (8, "TTL $k"),
    (8, "PTTL $k"),
    (6, "EXPIRETIME $k"),
    (6, "PEXPIRETIME $k"),
    (8, "PERSIST $k"),
    (5, "TOUCH $k+"),
    (10, "RENAME $k $k"),
    (8, "RENAMENX $k $k"),
    (8, "COPY $k $k {REPLACE|DB $d|FOO}"),
    (6, "MOVE $k $d"),
    (3, "RANDOMKEY"),
    (5, "KEYS $g"),
    (4, "SCAN 0 {MATCH $g|COUNT $n|TYPE $t}"),
    (2, "SCAN $c {MATCH $g|COUNT $n|TYPE $t}"),
    (4, "DBSIZE"),
    (1, "FLUSHDB {ASYNC|SYNC|FOO}"),
    (1, "FLUSHALL {ASYNC|SYNC|FOO}"),
    (10, "SELECT $d"),
    (4, "SWAPDB $d $d"),
    (8, "OBJECT ENCODING $k"),
    (1, "OBJECT $w $k"),
    (3, "PING"),
    (3, "PING $v"),
    (3, "ECHO $v"),
    (1, "HELLO"),
    (1, "HELLO $w"),
    (1, "HELLO 2"),
    (1, "HELLO 3"),
    (1, "HELLO 3 AUTH default x"),
    (1, "HELLO 3 AUTH bob x"),
    (1, "HELLO 3 FOO"),
    (1, "HELLO 3 AUTH default"),
    (2, "AUTH $v"),
    (1, "AUTH $w $v"),
    (1, "RESET"),
    (1, "QUIT"),
    (1, "CLIENT ID"),
    (1, "CLIENT INFO"),
    (1, "CLIENT LIST {TYPE normal|TYPE foo|TYPE pubsub|ID $n|ID 0}"),
    (3, "CLIENT SETNAME $w"),
    (1, "CLIENT SETNAME $v"),
    (3, "CLIENT GETNAME"),
    (1, "CLIENT KILL ID 999999999"),
    (1, "CLIENT KILL 1.2.3.4:5"),
    (
        1,
        "CLIENT KILL {TYPE foo|ID 0|ID x|USER nobody|ADDR 1.2.3.4:5|LADDR 1.2.3.4:5|SKIPME maybe|FOO bar} USER nobody",
    ),
    (2, "CLIENT NO-EVICT {on|OFF|x}"),
    (1, "CLIENT REPLY $w"),
    (1, "CLIENT PAUSE $n {WRITE|all|foo}"),
    (1, "CLIENT PAUSE -1 {WRITE|ALL|foo}"),
    (1, "CLIENT UNPAUSE"),
    (1, "CLIENT UNBLOCK $n {TIMEOUT|ERROR|foo}"),
    (1, "CLIENT $w"),
    (1, "COMMAND"),
    (1, "COMMAND COUNT"),
    (1, "COMMAND INFO $w"),
    (1, "COMMAND LIST FILTERBY PATTERN $L"),
    (1, "COMMAND LIST FILTERBY $w $w"),
    (1, "COMMAND $w"),
    (1, "COMMAND GETKEYS GET $k"),
    (2, "COMMAND GETKEYS MSET ($k $v)+"),
    (2, "COMMAND GETKEYS SINTERCARD 2 $k $k"),
    (1, "COMMAND GETKEYS SINTERCARD 3 $k"),
    (1, "COMMAND GETKEYS SUNIONSTORE $k+"),
    (1, "COMMAND GETKEYS SET $k $v {GET|NX}"),
    (1, "COMMAND GETKEYS $w $k"),
    (1, "COMMAND GETKEYS PING $v"),
    (1, "CONFIG GET nosuchoption"),
    (1, "CONFIG GET timeout"),
    (1, "CONFIG GET appendfsyn?"),
    (1, "CONFIG SET timeout 0"),
    (1, "CONFIG SET timeout $w"),
    (1, "CONFIG SET timeout 0 timeout 0"),
    (1, "CONFIG SET nosuchoption $v"),
    (1, "CONFIG SET appendfsync sometimes"),
    (1, "CONFIG RESETSTAT"),
    (1, "CONFIG REWRITE"),
    (1, "CONFIG $w"),
    (1, "INFO {server|clients|nosuch|replication}"),
    (1, "TIME"),
    (1, "SHUTDOWN foo"),
    (1, "SHUTDOWN ABORT"),
    (1, "FUNCTION FLUSH"),
    (1, "CLUSTER INFO"),
    (1, "CLUSTER NODES"),
    (1, "CLUSTER KEYSLOT $k"),
    (1, "CLUSTER COUNTKEYSINSLOT $n"),
    (1, "CLUSTER ADDSLOTS $n"),
    (1, "CLUSTER RESET {HARD|SOFT}"),
    (1, "CLUSTER $w"),
    (1, "DEBUG SLEEP 0"),
    (1, "DEBUG OBJECT $k"),
    (1, "MEMORY MALLOC-STATS"),
    (1, "MEMORY PURGE"),
    (1, "MEMORY $w"),
    (1, "SLOWLOG RESET"),
    (1, "SLOWLOG GET $w"),
    (1, "SLOWLOG $w"),
    (1, "LATENCY LATEST"),
    (1, "LATENCY HISTORY $w"),
    (1, "LATENCY GRAPH $w"),
    (1, "LATENCY RESET {$w}"),
    (1, "LATENCY HISTOGRAM nosuch"),
    (1, "LATENCY $w"),
    (1, "READONLY"),
    (1, "READWRITE"),
    (1, "ASKING"),
    (1, "WAIT 0 $n"),
    (1, "WAIT $w $w"),
    (1, "MODULE LIST"),
    (20, "EVAL $A 2 $k $k $v $v"),
    (4, "EVAL $A 0"),
    (4, "EVAL_RO $A 1 $k $v"),
    (2, "EVAL $A $n $k+"),
    (4, "EVALSHA $F 1 $k"),
    (2, "EVALSHA_RO $F 0"),
    (2, "SCRIPT LOAD $A"),
    (2, "SCRIPT EXISTS $F+"),
    (1, "SCRIPT FLUSH {SYNC|ASYNC}"),
    (2, "$u"),
    (2, "$u $v+"),
    (14, "WATCH $k+"),
    (4, "UNWATCH"),
    (22, "MULTI"),
    (26, "EXEC"),
    (4, "DISCARD"),
];

/// Lines whose key expires 20 ms later.
const LAPSING: &[&str] = &[
    "SET $k $v PX 20",
    "PSETEX $k 20 $v",
    "PEXPIRE $k 20",
    "PEXPIRE $k 20 NX",
    "PEXPIRE $k 20 LT",
    "GETEX $k PX 20",
    "SET $k $v XX PX 20",
];

/// The names of all commands that these templates generate, in upper case.
pub fn covered(templates: Templates) -> impl Iterator<Item = &'static str> {
    templates.iter().filter_map(|(_, t)| t.split(' ').next()).filter(|name| !name.starts_with('$'))
}

/// A sequence of `length` steps.
pub fn sequence(rng: &mut Rng, templates: Templates, length: usize) -> Vec<Step> {
    let mut conn = 0;
    let steps = (0..length).map(|_| {
        if rng.one_in(25) {
            conn = 1 - conn;
        }
        step(rng, templates, conn)
    });
    steps.collect()
}

fn step(rng: &mut Rng, templates: Templates, conn: usize) -> Step {
    if rng.one_in(150) {
        let template = rng.pick(LAPSING);
        return Step { conn, kind: Kind::Lapse, argv: expand(rng, template) };
    }
    let weights = templates.iter().map(|(weight, _)| *weight);
    let (_, template) = templates[rng.weighted(weights)];
    let mut argv = expand(rng, template);
    // Ranges of names are of no use where scores differ.
    let is_by_name = argv.get(1).is_some_and(|key| key.starts_with(b"names"));
    if rng.one_in(10) && !is_by_name {
        damage(rng, &mut argv);
        far_expiry(&mut argv);
        harmless(&mut argv);
        crate::streams::harmless(&mut argv);
    }
    if rng.one_in(4) {
        argv[0] = argv[0].to_ascii_lowercase();
    }
    let kind = kind_of(rng, &argv);
    Step { conn, kind, argv }
}

/// How the driver handles a line.
pub fn kind_of(rng: &mut Rng, argv: &Argv) -> Kind {
    match argv[0].to_ascii_uppercase().as_slice() {
        b"SCAN" | b"SSCAN" | b"HSCAN" | b"ZSCAN" => Kind::Scan,
        b"SPOP" => Kind::Pop,
        b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER" => Kind::Sample,
        b"RANDOMKEY" => Kind::RandomKey,
        b"DBSIZE" => Kind::Count,
        b"QUIT" => Kind::Quit,
        b"XADD" if crate::streams::is_made(argv) => Kind::Made,
        b"SET" | b"SADD" | b"HSET" | b"GET" if rng.one_in(60) => Kind::Silent,
        _ => Kind::Plain,
    }
}

/// A line of a template.
pub fn expand(rng: &mut Rng, template: &str) -> Argv {
    let mut argv = Argv::new();
    let mut rest = template;
    while !rest.is_empty() {
        let close = match rest.as_bytes()[0] {
            b'{' => rest.find('}').unwrap() + 1,
            b'(' => rest.find(")+").unwrap() + 2,
            _ => rest.find(' ').unwrap_or(rest.len()),
        };
        let (part, tail) = rest.split_at(close);
        rest = tail.trim_start();
        if let Some(options) = part.strip_prefix('{') {
            let options: Vec<&str> = options.trim_end_matches('}').split('|').collect();
            for _ in 0..[0, 0, 1, 1, 1, 2, 2, 3][rng.below(8)] {
                let option = rng.pick(&options);
                argv.extend(expand(rng, option));
            }
        } else if let Some(group) = part.strip_prefix('(') {
            let times = 1 + rng.below(3);
            (0..times).for_each(|_| argv.extend(expand(rng, group.trim_end_matches(")+"))));
        } else if let Some(kind) = part.strip_prefix('$') {
            let times = if kind.ends_with('+') { 1 + rng.below(4) } else { 1 };
            (0..times).for_each(|_| argument(rng, kind.as_bytes()[0], &mut argv));
        } else {
            argv.push(part.as_bytes().to_vec());
        }
    }
    argv
}

fn damage(rng: &mut Rng, argv: &mut Argv) {
    let at = rng.below(argv.len());
    match rng.below(4) {
        0 if argv.len() > 1 => drop(argv.remove(at.max(1))),
        1 => argv.push(rng.pick(HOSTILE).to_vec()),
        2 if at > 0 => argv.insert(at, argv[at].clone()),
        _ if at > 0 => argv[at] = rng.pick(HOSTILE).to_vec(),
        _ => argv.push(rng.pick(KEYS).to_vec()),
    }
}
