//! Requests for rows whose worst case does not follow from their syntax, and the rows that are not driven.

use crate::script::{Arg, Call, Script, call, long, times, words};
use crate::world::{MIB, Scale, World};

/// Rows that are not driven, and why.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("shutdown", "ends the server, which is what it is for"),
    ("client|pause", "makes all others wait, which is what it is for; the test of the measuring uses it"),
];

/// Rows whose syntax would harm others by design, so that only these requests are sent.
pub const BY_HAND_ALONE: &[(&str, &str)] = &[
    ("client|kill", "TYPE NORMAL closes the connections of the others"),
    ("blpop", "it would wait for as long as its argument says"),
    ("brpop", "it would wait for as long as its argument says"),
    ("blmove", "it would wait for as long as its argument says"),
    ("brpoplpush", "it would wait for as long as its argument says"),
    ("blmpop", "it would wait for as long as its argument says"),
    ("bzpopmin", "it would wait for as long as its argument says"),
    ("bzpopmax", "it would wait for as long as its argument says"),
    ("bzmpop", "it would wait for as long as its argument says"),
    ("config|set", "an option that is set to anything would change the limits of what is measured"),
];

pub type Made = fn(&World) -> Vec<Script>;

/// The worst requests of some rows.
pub const BY_HAND: &[(&str, Made)] = &[
    ("sort", sort),
    ("eval", evals),
    ("eval_ro", |_| scripts("EVAL_RO", &["return redis.call('smembers', 'set')", ENDLESS])),
    ("script|load", |w| {
        vec![
            Script::one(call("SCRIPT LOAD", [long("local a = 1 ", w.scale.long)])),
            Script::one(call("SCRIPT LOAD", [long("(", w.scale.long)])),
        ]
    }),
    ("fcall", |_| vec![endless_function("FCALL")]),
    ("fcall_ro", |_| vec![endless_function("FCALL_RO")]),
    ("function|load", libraries),
    ("sort_ro", |_| lines(&["SORT_RO set ALPHA", "SORT_RO ints BY nosort GET # GET key:* GET *"])),
    ("srandmember", |_| {
        lines(&["SRANDMEMBER set -1000000", "SRANDMEMBER ints -1000000", "SRANDMEMBER set 100000"])
    }),
    ("spop", |_| lines(&["SPOP set 50000", "SPOP set 9223372036854775807", "SPOP ints 100000"])),
    ("smembers", |_| lines(&["SMEMBERS set", "SMEMBERS ints"])),
    ("hgetall", |_| lines(&["HGETALL hash"])),
    ("hrandfield", |_| {
        lines(&["HRANDFIELD hash -1000000", "HRANDFIELD hash 10000 WITHVALUES", "HRANDFIELD hash 100000"])
    }),
    ("hscan", scan_of_a_hash),
    ("hset", |w| each_many(w.scale, "HSET", &["hash field:{} other", "made field:{} x", "made x {}"])),
    ("hdel", |w| each_many(w.scale, "HDEL hash", &["field:{}", "none:{}"])),
    ("hexpire", |w| fields_that_expire(w.scale, "HEXPIRE hash 100")),
    ("hpexpire", |w| fields_that_expire(w.scale, "HPEXPIRE hash 100000 NX")),
    ("hexpireat", |w| fields_that_expire(w.scale, "HEXPIREAT hash 9999999999 GT")),
    ("hpexpireat", |w| fields_that_expire(w.scale, "HPEXPIREAT hash 9999999999999 LT")),
    ("httl", |w| fields_that_expire(w.scale, "HTTL hash")),
    ("hpttl", |w| fields_that_expire(w.scale, "HPTTL hash")),
    ("hexpiretime", |w| fields_that_expire(w.scale, "HEXPIRETIME hash")),
    ("hpexpiretime", |w| fields_that_expire(w.scale, "HPEXPIRETIME hash")),
    ("hpersist", |w| fields_that_expire(w.scale, "HPERSIST hash")),
    ("hgetdel", |w| fields_that_expire(w.scale, "HGETDEL hash")),
    ("hgetex", |w| fields_that_expire(w.scale, "HGETEX hash EX 100")),
    ("hsetex", |_| {
        lines(&["HSETEX hash EX 100 FIELDS 2 field:1 a other b", "HSETEX made KEEPTTL FIELDS 1 a b"])
    }),
    ("lpush", |w| each_many(w.scale, "LPUSH", &["list element:{}", "made element:{}"])),
    ("rpush", |w| each_many(w.scale, "RPUSH", &["list element:{}", "made element:{}"])),
    ("lpop", |_| lines(&["LPOP list 1000", "LPOP list 50000", "LPOP list 9223372036854775807"])),
    ("rpop", |_| lines(&["RPOP list 1000", "RPOP list 50000", "RPOP list 9223372036854775807"])),
    ("lmpop", |_| {
        lines(&["LMPOP 2 absent list LEFT COUNT 50000", "LMPOP 1 list RIGHT COUNT 9223372036854775807"])
    }),
    ("blpop", |w| {
        vec![
            Script::one(call("BLPOP", [times(w.scale.many, "absent{}"), Arg::Word("0.01".into())])),
            Script::one(words("BLPOP list 0.01")),
        ]
    }),
    ("brpop", |_| lines(&["BRPOP list 0.01", "BRPOP absent list 0.01", "BRPOP absent 0.01"])),
    ("blmove", |_| lines(&["BLMOVE list made LEFT RIGHT 0.01", "BLMOVE list list LEFT RIGHT 0.01"])),
    ("brpoplpush", |_| lines(&["BRPOPLPUSH list made 0.01", "BRPOPLPUSH absent made 0.01"])),
    ("blmpop", |_| lines(&["BLMPOP 0.01 2 absent list LEFT COUNT 50000", "BLMPOP 0.01 1 absent LEFT"])),
    ("bzpopmin", |w| {
        vec![
            Script::one(call("BZPOPMIN", [times(w.scale.many, "absent{}"), Arg::Word("0.01".into())])),
            Script::one(words("BZPOPMIN zset 0.01")),
        ]
    }),
    ("bzpopmax", |_| lines(&["BZPOPMAX zset 0.01", "BZPOPMAX absent zset 0.01", "BZPOPMAX absent 0.01"])),
    ("bzmpop", |_| lines(&["BZMPOP 0.01 2 absent zset MIN COUNT 50000", "BZMPOP 0.01 1 absent MAX"])),
    ("zmpop", |_| {
        lines(&["ZMPOP 2 absent zset MIN COUNT 50000", "ZMPOP 1 zset MAX COUNT 9223372036854775807"])
    }),
    ("zpopmin", |_| lines(&["ZPOPMIN zset 1000", "ZPOPMIN zset 50000", "ZPOPMIN zset 9223372036854775807"])),
    ("zadd", |w| {
        each_many(w.scale, "ZADD", &["zset 1 other:{}", "zset 1{} member:{}", "made 1{} member:{}"])
    }),
    ("zrem", |w| each_many(w.scale, "ZREM", &["zset member:{}"])),
    ("zremrangebyrank", |_| lines(&["ZREMRANGEBYRANK zset 0 -1", "ZREMRANGEBYRANK zset 30000 30100"])),
    ("zremrangebyscore", |_| lines(&["ZREMRANGEBYSCORE zset 100 20000", "ZREMRANGEBYSCORE zset -inf +inf"])),
    ("zrange", |_| {
        lines(&[
            "ZRANGE zset 0 -1 WITHSCORES",
            "ZRANGE zset 0 inf BYSCORE REV LIMIT 59990 5",
            "ZRANGE zset 30000 30010",
        ])
    }),
    ("zrangebylex", |_| lines(&["ZRANGEBYLEX zset - +", "ZRANGEBYLEX zset [member:3 [member:4"])),
    ("zunionstore", |_| lines(&["ZUNIONSTORE made 2 zset set", "ZUNIONSTORE zset 2 zset ints WEIGHTS 2 3"])),
    ("zinterstore", |_| lines(&["ZINTERSTORE made 2 zset set", "ZINTERSTORE zset 2 zset zset"])),
    ("zdiffstore", |_| lines(&["ZDIFFSTORE made 2 zset set", "ZDIFFSTORE zset 2 zset absent"])),
    ("geoadd", |w| {
        each_many(w.scale, "GEOADD", &["made 13.3{} 38.1 member:{}", "zset 0.1{} 0.{} member:{}"])
    }),
    ("geosearch", |_| {
        lines(&[
            "GEOSEARCH zset FROMLONLAT 0 0 BYRADIUS 30000 km WITHDIST WITHCOORD ASC",
            "GEOSEARCH zset FROMMEMBER member:1 BYBOX 1 1 m COUNT 10 ANY",
            "GEOSEARCH zset FROMMEMBER member:1 BYBOX 40000 40000 km COUNT 10",
        ])
    }),
    ("geosearchstore", |_| {
        lines(&[
            "GEOSEARCHSTORE made zset FROMMEMBER member:1 BYRADIUS 30000 km",
            "GEOSEARCHSTORE zset zset FROMMEMBER member:1 BYRADIUS 30000 km STOREDIST",
        ])
    }),
    ("georadius", |_| lines(&["GEORADIUS zset 0 0 30000 km", "GEORADIUS zset 0 0 30000 km STOREDIST zset"])),
    ("georadiusbymember", |_| lines(&["GEORADIUSBYMEMBER zset member:1 30000 km STORE made"])),
    ("zrangestore", |_| lines(&["ZRANGESTORE made zset 0 -1", "ZRANGESTORE zset zset 100 50000"])),
    ("lrange", |_| lines(&["LRANGE list 0 -1", "LRANGE list 1 -2", "LRANGE list 30000 30010"])),
    ("lindex", |_| lines(&["LINDEX list 30000", "LINDEX list -30000", "LINDEX list 9223372036854775807"])),
    ("lset", |_| lines(&["LSET list 30000 other", "LSET list -1 other", "LSET list 9223372036854775807 x"])),
    ("linsert", |_| {
        lines(&[
            "LINSERT list BEFORE element:30000 x",
            "LINSERT list AFTER element:59999 x",
            "LINSERT list AFTER no x",
        ])
    }),
    ("lrem", |_| {
        lines(&[
            "LREM list 0 element:30000",
            "LREM list -1 element:1",
            "LREM list 0 no",
            "LREM list 1 element:59998",
        ])
    }),
    ("ltrim", |_| {
        lines(&["LTRIM list 1 -2", "LTRIM list 30000 -30000", "LTRIM list 30000 30001", "LTRIM list 1 0"])
    }),
    ("lpos", |_| {
        lines(&["LPOS list no", "LPOS list element:59999 COUNT 0", "LPOS list element:1 RANK -1 COUNT 5"])
    }),
    ("scan", scan),
    ("sscan", scan_of_a_set),
    ("keys", keys),
    ("lcs", common),
    ("bitop", bitop),
    ("bitfield", bitfield),
    ("restore", restore),
    ("publish", publish),
    ("psubscribe", psubscribe),
    ("acl|setuser", set_user),
    ("acl|dryrun", dry_run),
    ("acl|getuser", |w| vec![many_patterns(w.scale).repeat(3, words("ACL GETUSER somebody"))]),
    ("acl|list", |w| vec![many_patterns(w.scale).repeat(3, words("ACL LIST"))]),
    ("auth", auth),
    ("hello", hello),
    ("command|info", |w| each_many(w.scale, "COMMAND INFO", &["get", "client", "nosuch{}", "client|kill"])),
    ("command|docs", |w| each_many(w.scale, "COMMAND DOCS", &["get", "client", "nosuch{}", "set"])),
    ("command|getkeys", |w| each_many(w.scale, "COMMAND GETKEYS", &["mget", "sort", "STORE"])),
    ("command|getkeysandflags", |w| each_many(w.scale, "COMMAND GETKEYSANDFLAGS MGET", &["key:{}"])),
    ("command|list", list),
    ("client|list", |w| each_many(w.scale, "CLIENT LIST ID", &["9000{}", "{}"])),
    ("client|kill", kill),
    ("client|tracking", tracking),
    ("config|get", |w| each_many(w.scale, "CONFIG GET", &["*", "*a*b*c*d*e*f", "nosuch{}", "maxclients"])),
    ("config|set", |w| each_many(w.scale, "CONFIG SET", &["nosuch{} 1", "maxclients 200"])),
    ("info", |w| each_many(w.scale, "INFO", &["everything", "nosuch{}", "commandstats"])),
    ("latency|histogram", |w| each_many(w.scale, "LATENCY HISTOGRAM", &["nosuch{}", "get", "client"])),
    ("exec", exec),
    ("discard", |w| vec![queued(w.scale, "GET key:{}").then(words("DISCARD"))]),
    ("multi", |w| vec![queued(w.scale, "INCR made")]),
    ("watch", |w| {
        vec![
            Script::one(call("WATCH", [times(w.scale.many, "none:{}")]))
                .repeat(1, words("MULTI"))
                .then(words("EXEC")),
        ]
    }),
    ("unwatch", |w| {
        vec![Script::one(call("WATCH", [times(w.scale.many, "none:{}")])).then(words("UNWATCH"))]
    }),
    ("idempotent", idempotent),
    ("sinterstore", |_| lines(&["SINTERSTORE made set set", "SINTERSTORE set set ints"])),
    ("sunionstore", |_| lines(&["SUNIONSTORE made set ints", "SUNIONSTORE set set ints"])),
    ("flushall", |_| lines(&["FLUSHALL SYNC"])),
    ("swapdb", |_| vec![Script::one(words("SWAPDB 0 1")).then(words("SWAPDB 0 1"))]),
];

pub fn lines(lines: &[&str]) -> Vec<Script> {
    lines.iter().map(|line| Script::one(words(line))).collect()
}

const ENDLESS: &str = "while true do pcall(redis.call, 'get', 'counter') end";

/// Scripts without keys.
fn scripts(name: &str, of: &[&str]) -> Vec<Script> {
    of.iter()
        .map(|text| {
            Script::one(vec![Arg::Word(name.into()), Arg::Word((*text).into()), Arg::Word("0".into())])
        })
        .collect()
}

fn library(code: &str) -> Call {
    call("FUNCTION LOAD REPLACE", [Arg::Word(format!("#!lua name=made\n{code}"))])
}

fn endless_function(called_by: &str) -> Script {
    let code =
        "redis.register_function{ function_name = 'endless', flags = { 'no-writes' }, callback = function()
        while true do end end }";
    Script::one(library(code)).then(words(&format!("{called_by} endless 0")))
}

fn libraries(w: &World) -> Vec<Script> {
    let many = "for i = 1, 20000 do redis.register_function('made_' .. i, function() end) end";
    vec![
        Script::one(library("while true do end")),
        Script::one(library("local s = 'x' while true do s = s .. s end")),
        Script::one(library(many)).then(words("FUNCTION LIST")).then(words("FCALL made_1 0")),
        Script::one(call(
            "FUNCTION LOAD",
            [Arg::Long("#!lua name=made\n", "local a = 1 ".into(), w.scale.long)],
        )),
    ]
}

fn evals(w: &World) -> Vec<Script> {
    let mut made = scripts(
        "EVAL",
        &[
            ENDLESS,
            "while true do end",
            "local s = 'x' while true do s = s .. s end",
            "local t = {} while true do t[#t + 1] = {} end",
            "return string.rep('x', 5e7)",
            "return string.find(('a'):rep(30000), ('a*'):rep(30) .. 'b')",
            "local t = {} for i = 1, 1e5 do t = {t} end return cjson.encode(t)",
            "local t = {} for i = 1, 2e5 do t[i] = i end return t",
            "return cjson.decode(('['):rep(1e5))",
            "return #cmsgpack.pack(('x'):rep(1e7))",
            "for i = 1, 1e5 do redis.call('set', 'key:' .. i, i) end",
            "for i = 1, 100 do redis.call('smembers', 'set') end",
            "return redis.call('sort', 'set', 'alpha')",
            "redis.call('zunionstore', 'made', 2, 'zset', 'set') redis.call('del', 'set')",
        ],
    );
    made.push(Script::one(call(
        "EVAL",
        [
            Arg::Word("return #KEYS".into()),
            Arg::Word(w.scale.many.to_string()),
            times(w.scale.many, "key:{}"),
        ],
    )));
    made
}

/// `line` followed by as many repetitions of these as possible.
pub fn each_many(scale: Scale, line: &str, of: &[&str]) -> Vec<Script> {
    of.iter().map(|words| Script::one(call(line, [times(scale.many, words)]))).collect()
}

/// A pattern that must be tried at every byte: stars, and a mismatch at the end.
fn stars(n: usize) -> String {
    "*a".repeat(n) + "b"
}

fn sort(w: &World) -> Vec<Script> {
    let mut scripts = lines(&[
        "SORT set ALPHA",
        "SORT set",
        "SORT ints DESC",
        "SORT set ALPHA STORE made",
        "SORT ints BY nosort GET # GET key:* GET *",
        "SORT ints BY key:* LIMIT 0 10",
        "SORT list ALPHA STORE made",
        "SORT set BY hash->* GET hash*->field:1 GET *->* ALPHA",
    ]);
    scripts.push(Script::one(call("SORT ints BY nosort", [times(w.scale.many / 10, "GET #")])));
    scripts.push(Script::one(call("SORT ints LIMIT 0 1 BY nosort", [times(w.scale.many, "GET nosuch{}*")])));
    scripts.push(Script::one(call("SORT ints BY", [long("a*", w.scale.long)])));
    scripts
}

/// A command on two fields, and on as many as a request may name.
fn fields_that_expire(scale: Scale, head: &str) -> Vec<Script> {
    let many = call(&format!("{head} FIELDS {}", scale.many), [times(scale.many, "field:{}")]);
    let mut scripts = lines(&[&format!("{head} FIELDS 2 field:1 none")]);
    scripts.push(Script::one(many));
    scripts
}

fn scan(_: &World) -> Vec<Script> {
    let hard = stars(50);
    let mut scripts = lines(&["SCAN 0 COUNT 9223372036854775807", "SCAN 0 COUNT 1000000 TYPE set"]);
    scripts.push(Script::one(words(&format!("SCAN 0 MATCH {hard} COUNT 9223372036854775807"))));
    scripts
}

fn scan_of_a_set(w: &World) -> Vec<Script> {
    let hard = stars(50);
    let mut scripts = lines(&["SSCAN set 0 COUNT 9223372036854775807", "SSCAN ints 0 COUNT 1000000"]);
    scripts.push(Script::one(words(&format!("SSCAN set 0 MATCH {hard} COUNT 9223372036854775807"))));
    // A member of 90 kB on which a pattern is tried at every byte.
    let add = call("SADD made", [long("a", 90_000)]);
    let find = words(&format!("SSCAN made 0 MATCH *{}b COUNT 1000", "a".repeat(40_000)));
    scripts.push(Script::one(add).then(find));
    scripts.push(Script::one(call("SSCAN set 0 COUNT 100000 MATCH", [long("[a-y]*", w.scale.long)])));
    scripts
}

fn scan_of_a_hash(w: &World) -> Vec<Script> {
    let hard = stars(50);
    let mut scripts =
        lines(&["HSCAN hash 0 COUNT 9223372036854775807", "HSCAN hash 0 COUNT 1000000 NOVALUES"]);
    scripts.push(Script::one(words(&format!("HSCAN hash 0 MATCH {hard} COUNT 9223372036854775807"))));
    scripts.push(Script::one(call("HSCAN hash 0 COUNT 100000 MATCH", [long("[a-y]*", w.scale.long)])));
    scripts
}

fn keys(w: &World) -> Vec<Script> {
    let mut scripts = lines(&["KEYS *", "KEYS k*e*y*:*1*2*", "KEYS nosuch*"]);
    scripts.push(Script::one(words(&format!("KEYS {}", stars(200)))));
    scripts.push(Script::one(call("KEYS", [long("[a-y]", w.scale.long)])));
    scripts
}

fn common(w: &World) -> Vec<Script> {
    let length = if w.scale.long > 16 * MIB { 20_000 } else { 3000 };
    let set = |key: &str, word: &str| call(&format!("SET {key}"), [long(word, length)]);
    let both = || Script::one(set("made:1", "abcab")).then(set("made:2", "bacca"));
    vec![
        both().then(words("LCS made:1 made:2")),
        both().then(words("LCS made:1 made:2 IDX WITHMATCHLEN")),
        Script::one(words("LCS dense dense LEN")),
        Script::one(words("LCS dense counter LEN")),
    ]
}

fn bitop(w: &World) -> Vec<Script> {
    let mut scripts =
        lines(&["BITOP NOT made dense", "BITOP XOR made sparse dense", "BITOP AND made sparse sparse"]);
    scripts.extend(lines(&["BITOP DIFF1 made sparse dense", "BITOP ANDOR made dense sparse counter"]));
    for op in ["OR", "AND", "DIFF", "ONE"] {
        scripts.push(Script::one(call(&format!("BITOP {op} made"), [times(w.scale.many, "counter")])));
        scripts.push(Script::one(call(&format!("BITOP {op} made"), [times(100, "sparse dense")])));
    }
    scripts
}

fn bitfield(w: &World) -> Vec<Script> {
    let n = w.scale.many / 4;
    let ops = [
        "SET u8 #{} 255",
        "GET u64 #{}",
        "INCRBY u8 #{}000 1",
        "OVERFLOW FAIL INCRBY u2 {}00 3",
        "GET u1 {}999",
    ];
    let of = |key: &str, op: &str| Script::one(call(&format!("BITFIELD {key}"), [times(n, op)]));
    ops.iter().flat_map(|op| [of("made", op), of("sparse", op)]).collect()
}

fn restore(w: &World) -> Vec<Script> {
    let of = |key: &str| {
        let payload = w.dumped(key);
        Script::one(call("RESTORE made 0", [payload]).into_iter().chain(words("REPLACE")).collect::<Call>())
    };
    vec![of("set"), of("ints"), of("hash"), of("list"), of("stream"), of("dense"), of("hll")]
}

/// Publishes to itself, through many patterns.
fn publish(w: &World) -> Vec<Script> {
    let n = w.scale.many / 60;
    let listen = || Script::one(words("HELLO 3")).then(call("PSUBSCRIBE", [times(n, "*a*a*a{}*b")]));
    vec![
        listen().then(call("PUBLISH", [long("a", 64 << 10)]).into_iter().chain(words("x")).collect()),
        listen().then(call("PUBLISH a1b", [long("x", w.scale.long)])),
        Script::one(words("HELLO 3")).then(words("PSUBSCRIBE *")).repeat(1000, words("PUBLISH {} x")),
        Script::one(call("PUBLISH quiet", [long("x", w.scale.long)])),
    ]
}

fn psubscribe(w: &World) -> Vec<Script> {
    let mut scripts = each_many(w.scale, "PSUBSCRIBE", &["*a{}*", "same"]);
    scripts.push(Script::one(call("PSUBSCRIBE", [long("[a-y]*", w.scale.long)])));
    scripts
}

fn many_patterns(scale: Scale) -> Script {
    Script::one(call("ACL SETUSER somebody on nopass +@all", [times(scale.many / 10, "~key{}:*")]))
}

fn set_user(w: &World) -> Vec<Script> {
    let rules = [
        "~key{}:*",
        "&channel{}",
        "+@all -@all",
        "+get -get",
        "+@read",
        "+get|{}",
        ">password{}",
        "(~a{} +get)",
        "+client|list",
    ];
    let mut scripts = each_many(w.scale, "ACL SETUSER somebody", &rules);
    let mut with = |before, word: &str| {
        let rule = Arg::Long(before, word.into(), w.scale.long);
        scripts.push(Script::one(call("ACL SETUSER somebody", [rule])));
    };
    for word in ["[a-y]", "*a", "a", "?"] {
        with("~", word);
        with("&", word);
    }
    with("+get|", "a");
    with("(~", "a");
    with("(", "+get ");
    with(">", "x");
    scripts
}

/// Rules whose patterns are slow to match.
const HARD: &str = "on nopass +@all ~*a*a*a*a*a*b ~*a*a*aa*aa*c ~[a]*[a]*[a]*d &*a*a*a*b";

fn dry_run(w: &World) -> Vec<Script> {
    let user = |name: &str| Script::one(words(&format!("ACL SETUSER {name} {HARD}")));
    let line = |line: &str| call(&format!("ACL DRYRUN somebody {line}"), []);
    let keys = "a".repeat(5000);
    vec![
        user("somebody").then(call("ACL DRYRUN somebody MGET", [times(w.scale.many / 100, &keys)])),
        user("somebody").then(call("ACL DRYRUN somebody MGET", [times(w.scale.many, "ab{}aab")])),
        user("somebody").then(call("ACL DRYRUN somebody GET", [long("a", w.scale.long)])),
        user("somebody").then(
            call("ACL DRYRUN somebody PUBLISH", [long("a", w.scale.long)])
                .into_iter()
                .chain(words("x"))
                .collect(),
        ),
        many_patterns(w.scale).then(call("ACL DRYRUN somebody MGET", [times(w.scale.many / 100, "key9:{}")])),
        user("somebody").then(line("nosuch")),
    ]
}

/// As a user whose every key must be checked.
fn auth(w: &World) -> Vec<Script> {
    let weak = || Script::one(words(&format!("ACL SETUSER weak {HARD}"))).then(words("AUTH weak x"));
    let keys = "a".repeat(5000);
    vec![
        weak().then(call("MGET", [times(w.scale.many / 100, &(keys.clone() + "b"))])),
        weak().then(call("MGET", [times(w.scale.many, "ab{}aab")])),
        weak().repeat(300, words(&format!("GET {keys}"))),
        weak().then(call("DEL", [long("a", w.scale.long)])),
        weak().then(call("PUBLISH", [long("a", w.scale.long)]).into_iter().chain(words("x")).collect()),
        many_patterns(w.scale).then(words("AUTH somebody x")).repeat(1000, words("GET key9")),
        Script::default().repeat(300, words(&format!("AUTH default {}", "x".repeat(16_000)))),
    ]
}

fn hello(w: &World) -> Vec<Script> {
    let mut scripts = each_many(w.scale, "HELLO 3", &["SETNAME x", "AUTH default x"]);
    scripts.push(Script::one(call("HELLO 3 SETNAME", [long("x", w.scale.long)])));
    scripts.push(Script::one(call("HELLO 3 AUTH default", [long("x", w.scale.long)])));
    scripts
}

fn list(w: &World) -> Vec<Script> {
    let pattern = "COMMAND LIST FILTERBY PATTERN";
    let mut scripts =
        vec![Script::one(words(&format!("{pattern} {}", stars(100)))).repeat(100, words("COMMAND LIST"))];
    scripts.push(Script::one(call(pattern, [long("[a-y]", w.scale.long)])));
    scripts.push(Script::default().repeat(100, words("COMMAND LIST FILTERBY ACLCAT read")));
    scripts
}

/// No client has such an id, address or name.
fn kill(w: &World) -> Vec<Script> {
    let mut scripts = each_many(w.scale, "CLIENT KILL ID", &["9000000000{}"]);
    scripts.extend(each_many(
        w.scale,
        "CLIENT KILL",
        &["ADDR nosuch{}", "USER default ADDR x", "ID 9000000000{} LADDR x"],
    ));
    scripts.push(Script::one(call("CLIENT KILL ADDR", [long("x", w.scale.long)])));
    scripts
}

fn tracking(w: &World) -> Vec<Script> {
    let resp3 = || Script::one(words("HELLO 3"));
    let prefixes =
        |prefix: &str| call("CLIENT TRACKING ON BCAST", [times(w.scale.many, &format!("PREFIX {prefix}"))]);
    vec![
        resp3().then(prefixes("p{}:")).repeat(100, words("SET p{}: x")),
        resp3().then(prefixes("{}")),
        resp3().then(call("CLIENT TRACKING ON BCAST PREFIX", [long("q", w.scale.long)])),
        resp3()
            .then(words("CLIENT TRACKING ON"))
            .then(call("MGET", [times(w.scale.many, "key:{}")]))
            .then(call("MSET", [times(w.scale.many / 20, "key:{} x")])),
    ]
}

fn queued(scale: Scale, line: &str) -> Script {
    Script::one(words("MULTI")).repeat(scale.many, words(line))
}

fn exec(w: &World) -> Vec<Script> {
    let of = |n: usize, line: &str| Script::one(words("MULTI")).repeat(n, words(line)).then(words("EXEC"));
    let n = w.scale.many;
    let mut scripts: Vec<Script> = [
        "SET made x",
        "GET key:{}",
        "INCR made",
        "SET made:{} x",
        "PING",
        "SADD made {}",
        "PUBLISH x y",
        "TIME",
        "GET none:{}",
    ]
    .iter()
    .map(|line| of(n, line))
    .collect();
    scripts.extend([
        of(20, "SMEMBERS set"),
        of(5, "HGETALL hash"),
        of(5, "LRANGE list 0 -1"),
        of(n, "RPUSH made {}"),
        of(n, "HSET made {} x"),
        of(5, "GET dense"),
        of(50, "SRANDMEMBER set -100000"),
        of(20, "KEYS *"),
        of(20, "COMMAND DOCS"),
        of(5, "SORT set ALPHA"),
    ]);
    scripts
}

fn idempotent(w: &World) -> Vec<Script> {
    let of = |n: usize, line: &str| Script::one(words(&format!("IDEMPOTENT an-id-of-its-own:{n} {line}")));
    let mut scripts: Vec<Script> = [
        "SMEMBERS set",
        "HGETALL hash",
        "LRANGE list 0 -1",
        "GET dense",
        "GET sparse",
        "KEYS *",
        "SORT set ALPHA",
        "SRANDMEMBER set -1000000",
        "COMMAND DOCS",
    ]
    .iter()
    .enumerate()
    .map(|(n, line)| of(n, line))
    .collect();
    scripts.extend(each_many(w.scale, "IDEMPOTENT another-id-of-its-own MGET", &["key:{}"]));
    scripts.push(Script::one(call("IDEMPOTENT a-third-id-of-its-own ECHO", [long("x", w.scale.long)])));
    scripts.push(
        Script::default().repeat(w.scale.many / 100, words("IDEMPOTENT this-id-is-number:{} INCR made")),
    );
    scripts
}
