//! Commands newer than the oracle's release, against a redis-server 8.6: the facts of COMMAND INFO, and
//! random lines of the commands added since 7.0.

use crate::generate::{Argv, Templates, sequence};
use crate::run::{Ports, Tally, run};
use crate::support::rng::Rng;
use crate::support::server::{newer_redis, redis, tern};
use crate::support::{env_number, say};
use crate::table::{ELEMENTS, info_of, names};

/// Commands added since 7.0, and commands that prepare and show keys.
pub const LINES: Templates = &[
    (20, "SET $k $v {IFEQ $v|IFNE $v|EX $s|PXAT $P|KEEPTTL}"),
    (10, "SET $k $v {IFEQ $v|IFNE $v|GET|NX|XX}"),
    (10, "SET $k $v {IFDEQ $y|IFDNE $y|KEEPTTL|XX|EX $s}"),
    (10, "SET $k hello"),
    (10, "SET $k 1"),
    (14, "DELEX $k {IFEQ $v|IFNE $v|IFDEQ $y|IFDNE $y|FOO $v}"),
    (8, "DELEX $k IFDEQ $y"),
    (14, "DIGEST $k"),
    (10, "MSETEX 1 $k $v {NX|XX|EX $s|PX $p|EXAT $S|PXAT $P|KEEPTTL}"),
    (10, "MSETEX 2 $k $v $k $v {NX|XX|EX $s|PX $p|EXAT $S|PXAT $P|KEEPTTL|FOO}"),
    (3, "MSETEX $n $k $v $k $v"),
    (8, "BITOP DIFF $k $k $k+"),
    (8, "BITOP DIFF1 $k $k $k+"),
    (8, "BITOP ANDOR $k $k $k+"),
    (8, "BITOP ONE $k $k+"),
    (2, "BITOP AND $k $k+"),
    (1, "BITOP diff $k $k"),
    (1, "BITOP Diff1 $k $k"),
    (1, "BITOP andor $k $k"),
    (6, "SET $k $V"),
    (6, "SETRANGE $k $o $v"),
    (6, "SADD $k $m+"),
    (6, "GET $k"),
    (6, "DEL $k+"),
    (4, "PTTL $k"),
    (4, "PEXPIRETIME $k"),
    (14, "HSET $q ($m $v)+"),
    (2, "HSET $q $H"),
    (8, "HSETEX $q {FNX|FXX|EX $s|PX $p|EXAT $S|PXAT $P|KEEPTTL} FIELDS 2 a $v b $v"),
    (5, "HSETEX $q FIELDS 1 $m $v {FNX|FXX|PXAT $P|KEEPTTL|FOO}"),
    (8, "HEXPIRE $q $s {NX|XX|GT|LT} FIELDS 2 $m a"),
    (5, "HPEXPIRE $q $p FIELDS 1 $m {NX|XX|GT|LT|FOO}"),
    (8, "HEXPIREAT $q $S {NX|XX|GT|LT} FIELDS 3 $m $m a"),
    (8, "HPEXPIREAT $q $P {NX|XX|GT|LT} FIELDS 2 $m b"),
    (2, "HEXPIRE $q $s FIELDS $n $m $m"),
    (6, "HTTL $q FIELDS 2 a $m"),
    (6, "HPTTL $q FIELDS 3 $m b a"),
    (6, "HEXPIRETIME $q FIELDS 2 a b"),
    (6, "HPEXPIRETIME $q FIELDS 3 a b $m"),
    (2, "HTTL $q {FIELDS $n} $m $m"),
    (6, "HPERSIST $q FIELDS 2 $m a"),
    (5, "HGETDEL $q FIELDS 2 $m b"),
    (8, "HGETEX $q {PERSIST|EX $s|PX $p|EXAT $S|PXAT $P} FIELDS 2 $m a"),
    (3, "HGETEX $q FIELDS 1 $m {PERSIST|KEEPTTL|PXAT $P}"),
    (8, "HGETALL $q"),
    (4, "HLEN $q"),
    (4, "HINCRBY $q $m $i"),
    (4, "HDEL $q $m+"),
    (4, "COPY $q $q"),
    (14, "ZADD $z ($r $m)+"),
    (2, "ZADD $z $W"),
    (4, "ZADD $z INCR $r $m"),
    (6, "ZINCRBY $z $r $m"),
    (6, "ZRANK $z $m WITHSCORE"),
    (3, "ZREVRANK $z $m {WITHSCORE|FOO}"),
    (6, "ZSCORE $z $m"),
    (6, "ZRANGE $z 0 -1 WITHSCORES"),
    (6, "ZRANGE $z $r $r BYSCORE WITHSCORES"),
    (4, "ZCOUNT $z $r $r"),
    (4, "ZUNION 2 $z $z WITHSCORES"),
    (4, "ZINTER 2 $z $z WITHSCORES"),
    (3, "ZUNIONSTORE $z 2 $z $z WEIGHTS $a $a"),
    (3, "ZRANGESTORE $z $z 0 -2"),
    (3, "ZMPOP 2 $z $z MIN COUNT 2"),
    (20, "GEOADD $G {NX|XX|CH} ($J)+"),
    (8, "GEOPOS $G $U+"),
    (4, "GEODIST $G $U $U {km|ft}"),
    (12, "GEOSEARCH $G FROMLONLAT $C BYRADIUS $O {WITHDIST|WITHHASH|WITHCOORD|COUNT 3 ANY|ASC}"),
    (12, "GEOSEARCH $G FROMMEMBER $U BYBOX $E {WITHDIST|WITHHASH|WITHCOORD|COUNT 2 ANY|DESC}"),
    (4, "GEORADIUS $G $C $O {WITHDIST|WITHCOORD|STORE $G|STOREDIST far}"),
    (4, "GEORADIUSBYMEMBER $G $U $O {WITHDIST|WITHCOORD|STOREDIST far}"),
    (4, "GEOSEARCHSTORE far $G FROMLONLAT $C BYBOX $E STOREDIST"),
    (4, "ZRANGE far 0 -1 WITHSCORES"),
    (1, "DEL $G"),
    (1, "CLIENT KILL MAXAGE x"),
    (1, "CLIENT KILL MAXAGE 0"),
    (1, "WAITAOF 2 0 0"),
    (1, "WAITAOF 0 -1 0"),
    (1, "WAITAOF 0 x 0"),
    (6, "MULTI"),
    (8, "EXEC"),
    (4, "WATCH $k"),
];
const STEPS: usize = 500;
const SEQUENCES: u64 = 12;
/// The default of `TERN_SEED`.
const SEED: u64 = 1;

#[test]
fn commands_since_redis_7_0_answer_as_those_of_8_6() {
    let Some(redis) = newer_redis("newer commands differential test") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    let seed = env_number("TERN_SEED").unwrap_or(SEED);
    let mut tally = Tally::default();
    for n in 0..SEQUENCES {
        let ports = Ports { redis: redis.port, tern: tern.port, protocol: 2 + (n % 2) as u8 };
        let mut steps = sequence(&mut Rng::new(Rng::new(Rng::new(seed).next() ^ n).next()), LINES, STEPS);
        steps.retain(|step| !is_odd(&step.argv));
        if let Err(mismatch) = run(ports, &steps, &mut tally) {
            panic!("TERN_SEED={seed}, sequence {n}\n{mismatch}");
        }
    }
    say(&format!("differential, commands since 7.0: {} compared", tally.lines));
    let ran = |name: &&str| tally.commands.contains_key(*name);
    assert!(["MSETEX", "DELEX", "BITOP", "HSETEX", "HPTTL"].iter().all(ran), "{:?}", tally.commands);
}

/// Where redis-server 8.6 is no model: to a SET with GET and an invalid digest it replies twice, with the old
/// value, then with the error; it accepts NX and XX after a comparison, which its documentation excludes; and
/// HSETEX with a field named twice can end it; and it takes a NUL for the end of a range's number.
fn is_odd(argv: &Argv) -> bool {
    let has =
        |words: &[&str]| argv.iter().any(|arg| words.iter().any(|w| arg.eq_ignore_ascii_case(w.as_bytes())));
    let compares = has(&["IFEQ", "IFNE", "IFDEQ", "IFDNE"]);
    let mut arguments = argv.clone();
    arguments.sort();
    if argv[0].eq_ignore_ascii_case(b"HSETEX") && arguments.windows(2).any(|two| two[0] == two[1]) {
        return true;
    }
    if has(&["BYSCORE", "ZCOUNT"]) && argv.iter().any(|arg| arg.contains(&0)) {
        return true;
    }
    argv[0].eq_ignore_ascii_case(b"SET")
        && (has(&["GET"]) && has(&["IFDEQ", "IFDNE"]) || has(&["NX", "XX"]) && compares)
}

/// Rows that differ on purpose, and why.
const MEANT: &[(&str, &str)] =
    &[("delex", "a comparison reads: a user with write permission only would learn the value")];

#[test]
fn command_info_of_newer_commands_equals_that_of_redis_8_6() {
    let Some(older) = redis("newer COMMAND INFO differential test") else { return };
    let Some(redis) = newer_redis("newer COMMAND INFO differential test") else { return };
    let tern = tern(&[]);
    let (mut older, mut redis, mut tern) = (older.client(), redis.client(), tern.client());
    let (mut complaints, mut compared, mut used) = (Vec::new(), 0, Vec::new());
    for label in names(&mut tern) {
        if info_of(&mut older, &label).is_some() {
            continue; // compared by `table.rs`
        }
        let Some((expected, _)) = info_of(&mut redis, &label) else { continue };
        let (got, _) = info_of(&mut tern, &label).unwrap();
        compared += 1;
        let differ: Vec<_> =
            ELEMENTS.iter().zip(expected.iter().zip(&got)).filter(|(_, (a, b))| a != b).collect();
        if let Some((meant, _)) = MEANT.iter().find(|(name, _)| *name == label) {
            used.extend((!differ.is_empty()).then_some(*meant));
            continue;
        }
        let differ = differ.into_iter();
        complaints
            .extend(differ.map(|(what, (a, b))| format!("{label}: {what}\n  redis: {a:?}\n  tern:  {b:?}")));
    }
    say(&format!("COMMAND INFO of redis-server 8.6: {compared} rows compared"));
    assert!(compared >= 10, "only {compared} rows are in both");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert_eq!(used.len(), MEANT.len(), "exactly these may differ: {used:?}");
}
