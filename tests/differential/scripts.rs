//! Random scripts: calls, values of all kinds, errors, conversions, libraries.
//!
//! What a script calls is deterministic, and what it returns has an order: replies are compared as they are.

use crate::support::rng::Rng;

/// Calls whose replies are the same on both sides. `$k`: a key of the script, or a fixed one.
const CALLS: &[&str] = &[
    "'get', $k",
    "'set', $k, $v",
    "'set', $k, $v, 'NX', 'GET'",
    "'incr', $k",
    "'incrby', $k, $n",
    "'append', $k, $v",
    "'strlen', $k",
    "'del', $k",
    "'exists', $k, $k",
    "'type', $k",
    "'rpush', $k, $v, $n",
    "'lpop', $k",
    "'lrange', $k, 0, -1",
    "'llen', $k",
    "'hset', $k, $v, $n",
    "'hget', $k, $v",
    "'hmget', $k, $v, 'none'",
    "'hlen', $k",
    "'sadd', $k, $n, $n",
    "'scard', $k",
    "'sismember', $k, $n",
    "'zadd', $k, 1, $v",
    "'zscore', $k, $v",
    "'zrange', $k, 0, -1",
    "'zcard', $k",
    "'expire', $k, 10000",
    "'persist', $k",
    "'mget', $k, $k, $k",
    "'ping'",
    "'echo', $v",
    "'select', 1",
    "'object', 'encoding', 'none'",
    "'getrange', $k, 0, 3",
    "'setrange', $k, 2, $v",
    "'nosuch', $k",
    "'get'",
    "'get', $k, $k",
    "'blpop', $k, 1",
    "'multi'",
    "'subscribe', 'x'",
    "'eval', 'return 1', 0",
    "'get', {}",
    "$v, $k",
    "",
];

const VALUES: &[&str] = &[
    "'a'",
    "'b'",
    "''",
    "'10'",
    "'3.5'",
    "'\\0\\255'",
    "'OK'",
    "\"it's\"",
    "[[long\ntext]]",
    "('x'):rep(20)",
];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "3.99",
    "-3.99",
    "1e3",
    "2^53",
    "2^63",
    "-2^63",
    "1/0",
    "-1/0",
    "0/0",
    "0x10",
    "12345678901234567890",
    "#ARGV",
    "#KEYS",
    "1e15",
    "0.1",
];

const TABLES: &[&str] = &[
    "{}",
    "{1, 2, nil, 4}",
    "{ok = 'fine'}",
    "{ok = 'two\\nlines'}",
    "{err = 'MY error'}",
    "{err = 'ERR two\\r\\nlines'}",
    "{double = 3.5}",
    "{map = {a = 1}}",
    "{big_number = '123'}",
    "{verbatim_string = {format = 'txt', string = 'x'}}",
    "{verbatim_string = {format = 'mkd', string = 'x'}}",
    "{verbatim_string = {format = 'a', string = 'x'}}",
    "{verbatim_string = {format = 'longer', string = ''}}",
    "{x = 1, 2}",
    "{{{{}}}}",
    "setmetatable({}, {__index = function() return 'x' end})",
    "{true, false}",
    "{1, {2, {3, 'four'}}}",
];

const OTHERS: &[&str] = &[
    "nil",
    "true",
    "false",
    "print",
    "nothing",
    "redis",
    "type",
    "redis.status_reply('FINE')",
    "redis.error_reply('MY')",
    "redis.error_reply('MY error')",
    "redis.error_reply('-MY error')",
    "redis.error_reply('')",
    "redis.error_reply('-MY error \\r\\n')",
    "redis.error_reply()",
    "redis.status_reply(1)",
    "redis.sha1hex('x')",
    "redis.sha1hex()",
    "redis.sha1hex(nil)",
    "redis.sha1hex({})",
    "redis.sha1hex(1.5)",
    "redis.pcall().ignore_error_stats_update",
    "redis.pcall('get', {}).ignore_error_stats_update",
    "redis.pcall('get').ignore_error_stats_update",
    "redis.pcall('nosuch').ignore_error_stats_update",
    "redis.log(redis.LOG_NOTICE, 'x')",
    "redis.log('x')",
    "redis.setresp(3)",
    "redis.setresp(4)",
    "redis.replicate_commands()",
    "redis.set_repl(redis.REPL_ALL)",
    "redis.set_repl(7)",
    "redis.acl_check_cmd('get', 'x')",
    "redis.acl_check_cmd('nosuch')",
    "cjson.encode({1, 2, {a = 'b'}})",
    "cjson.encode({[1] = 1, [3] = 3})",
    "cjson.decode('[1, 2.5, null, \"x\", {\"a\": [true]}]')",
    "cjson.decode('[1, ')",
    "cjson.null",
    "cmsgpack.unpack(cmsgpack.pack({1, 'x', {2.5}}))",
    "cmsgpack.unpack('\\193')",
    "struct.unpack('>I2', struct.pack('>I2', 513))",
    "struct.pack('z')",
    "bit.band(255, 15)",
    "bit.tohex(-1)",
    "bit.lshift('x', 1)",
    "string.format('%5.2f|%d|%s', 3.14159, 42, 'x')",
    "string.find('hello', 'l+')",
    "string.gsub('hello', 'l', 'L')",
    "string.gsub('hello', '.', function(c) return c:upper() end)",
    "string.match('key=value', '(%w+)=(%w+)')",
    "('%d'):format('x')",
    "table.concat({1, 2, 'x'}, ',')",
    "table.concat({{}}, ',')",
    "select('#', nil, nil)",
    "tostring(1e100)",
    "tostring(nil) .. tostring(true)",
    "tonumber('0x1F')",
    "tonumber('z', 36)",
    "math.floor(-3.5)",
    "math.max()",
    "unpack({1, 2, 3})",
    "next({})",
    "rawget(_G, 'x')",
    "getmetatable('x')",
    "getmetatable('x').__index == string",
    "loadstring('return 7')()",
    "loadstring('return (')",
    "load(function() return {} end)",
    "load(function() error('x') end)",
    "load(function() error({err = 'MY x'}) end)",
    "pcall(error, 'x')",
    "pcall(error, {err = 'MY x'})",
    "pcall(redis.call, 'get')",
    "pcall(redis.call, 'incr', KEYS[1])",
    "error('failed')",
    "error({err = 'MY own'})",
    "error()",
    "a.b.c",
    "a()",
    "a .. a",
    "a + 1",
    "#a",
    "_VERSION",
    "redis.REDIS_VERSION_NUM > 0",
    "coroutine.wrap(function() coroutine.yield(redis.call('ping')) end)()",
    "KEYS",
    "ARGV",
    "KEYS[1]",
    "ARGV[1]",
    "ARGV[9]",
];

fn pick(rng: &mut Rng, list: &[&'static str]) -> String {
    (*rng.pick(list)).to_owned()
}

fn call(rng: &mut Rng) -> String {
    let name = ["call", "call", "pcall"][rng.below(3)];
    let mut arguments = pick(rng, CALLS);
    while let Some(at) = arguments.find('$') {
        let value = match arguments.as_bytes()[at + 1] {
            b'k' => ["KEYS[1]", "KEYS[2]", "'a'", "'list1'", "'hash1'"][rng.below(5)].to_owned(),
            b'v' => pick(rng, VALUES),
            _ => ["1", "7", "ARGV[1]", "3.5", "10"][rng.below(5)].to_owned(),
        };
        arguments.replace_range(at..at + 2, &value);
    }
    format!("redis.{name}({arguments})")
}

fn expression(rng: &mut Rng, depth: usize) -> String {
    match rng.below(12) {
        0..4 => call(rng),
        4 => pick(rng, VALUES),
        5 => pick(rng, NUMBERS),
        6 => pick(rng, TABLES),
        7..10 => pick(rng, OTHERS),
        10 => "a".into(),
        _ if depth == 0 => "nil".into(),
        _ => {
            let items: Vec<String> = (0..1 + rng.below(3)).map(|_| expression(rng, depth - 1)).collect();
            format!("{{{}}}", items.join(", "))
        }
    }
}

fn statement(rng: &mut Rng, depth: usize) -> String {
    match rng.below(8) {
        0..3 => format!("a = {}", expression(rng, 1)),
        3..5 => format!("local _ = {}", call(rng)),
        5 if depth > 0 => {
            format!("if {} then {} end", expression(rng, 0), statement(rng, depth - 1))
        }
        6 if depth > 0 => format!("for i = 1, {} do {} end", rng.below(4), statement(rng, depth - 1)),
        7 if depth > 0 => format!("pcall(function() {} end)", statement(rng, depth - 1)),
        _ => format!("local _ = {}", expression(rng, 1)),
    }
}

/// A script, or a digest.
pub fn argument(rng: &mut Rng, kind: u8) -> Vec<u8> {
    if kind == b'A' { script(rng) } else { rng.pick(KNOWN).to_vec() }
}

fn script(rng: &mut Rng) -> Vec<u8> {
    let mut lines = vec!["local a".to_owned()];
    if rng.one_in(8) {
        lines.push("redis.setresp(3)".into());
    }
    lines.extend((0..rng.below(4)).map(|_| statement(rng, 2)));
    lines.push(match rng.below(10) {
        0 => String::new(),
        1 => "return".into(),
        2 => "a b c".into(),
        _ => format!("return {}", expression(rng, 2)),
    });
    if rng.one_in(12) {
        let first = [
            "#!lua",
            "#!lua flags=no-writes",
            "#!lua flags=allow-oom",
            "#!ruby",
            "#!lua x=y",
            "#!lua flags=x",
        ];
        lines.insert(0, (*rng.pick(&first)).into());
    }
    lines.join(if rng.one_in(2) { "\n" } else { " \n" }).into_bytes()
}

/// Digests of scripts, some of which are known on both sides.
const KNOWN: &[&[u8]] = &[
    b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db", // return 1
    b"E0E1F9FABFC9D4800C877A703B823AC0578FF8DB",
    b"0123456789012345678901234567890123456789",
    b"short",
    b"",
];
