//! What scripts can reach, and what stays of them: nothing.

use super::interpreter::{Answer, Interpreter, Outcome, Task};
use super::watch::Limits;
use super::{Source, sha1};
use crate::env::Env;
use bytes::Bytes;
use mlua::Value;
use std::time::{Duration, Instant};

fn interpreter() -> Interpreter {
    Interpreter::new(Env::system().clock).unwrap()
}

/// The result of a script as text; its calls are answered with their first argument.
fn run(interpreter: &mut Interpreter, script: &str) -> String {
    run_in(interpreter, script, Limits::default())
}

fn run_for(interpreter: &mut Interpreter, script: &str, seconds: f64) -> String {
    let time = Some(Duration::from_secs_f64(seconds));
    run_in(interpreter, script, Limits { time, ..Limits::default() })
}

fn run_in(interpreter: &mut Interpreter, script: &str, limits: Limits) -> String {
    let outcome = interpreter.run(
        (&sha1(script.as_bytes()), script.as_bytes()),
        Task::Script(&[Bytes::from_static(b"key")], &[]),
        (limits, 7),
        &mut |_, _, given| Ok(Answer::Value(given.first().cloned().unwrap_or(Value::Nil))),
    );
    match outcome.unwrap() {
        Outcome::Returned(Value::Nil) => "nil".into(),
        Outcome::Returned(value) => value.to_string().unwrap(),
        Outcome::Failed { error, .. } => String::from_utf8(error).unwrap(),
        Outcome::Invalid(message) => String::from_utf8(message).unwrap(),
        Outcome::Stopped => "stopped".into(),
    }
}

/// Looks at all that scripts share.
const PRISTINE: &str = "
    local seen = {}
    for _, t in ipairs({ _G, string, math, table, coroutine, redis, cjson, cmsgpack, bit, struct }) do
        local names = {}
        for k, v in pairs(t) do names[#names + 1] = tostring(k) .. type(v) end
        table.sort(names)
        seen[#seen + 1] = table.concat(names, ',') .. #t
    end
    seen[#seen + 1] = ('x'):upper() .. tostring(getmetatable('') == getmetatable('y')) .. math.floor(2.5)
    seen[#seen + 1] = tostring(rawget(_G, 'line')) .. tostring(KEYS[1]) .. #KEYS .. #ARGV .. redis.call('get')
    return table.concat(seen, ';')
";

/// Each tries to leave something behind, or to reach what is not for scripts.
const ATTACKS: &[&str] = &[
    "x = 1",
    "_G.x = 1",
    "rawset(_G, 'x', 1)",
    "string.upper = function() return 'y' end",
    "rawset(string, 'upper', 1)",
    "getmetatable('').__index = { upper = function() return 'y' end }",
    "local m = getmetatable('') m.upper = 1",
    "redis.call = nil",
    "rawset(redis, 'call', function() end)",
    "setmetatable(_G, { __index = function() return 1 end })",
    "setmetatable(string, nil)",
    "getmetatable(_G).__newindex = nil",
    "getmetatable(_G).__index = {}",
    "getmetatable(redis).__newindex = rawset",
    "setfenv(0, {})",
    "setfenv(1, { kept = 1 }) kept = 2",
    "setfenv(redis.call, {})",
    "setfenv(string.upper, {})",
    "getfenv(redis.call).x = 1",
    "getfenv(string.upper).x = 1",
    "getfenv(0).x = 1",
    "getfenv(2).x = 1",
    "getfenv(3).x = 1",
    "for level = 1, 50 do getfenv(level).x = 1 end",
    "KEYS[1] = 'other' KEYS[7] = 1 KEYS = nil",
    "rawset(KEYS, 1, 'other')",
    "table.insert(_G, 1)",
    "table.insert(redis, 1)",
    "table.remove(ARGV) table.sort(string)",
    "collectgarbage('stop') collectgarbage('setpause', 1000000)",
    "loadstring('x = 1')()",
    "load(function() return nil end)()",
    "local f = loadstring('return getfenv(1)') f().x = 1",
    "coroutine.wrap(function() x = 1 end)()",
    "coroutine.wrap(function() getfenv(0).x = 1 end)()",
    "local co = coroutine.create(function() coroutine.yield() end) coroutine.resume(co) getfenv(co).x = 1",
    "cjson.encode = nil",
    "cjson.new().encode = nil cjson.encode_max_depth(1) cjson.decode_invalid_numbers(false)",
    "math.randomseed(99)",
    "math.random = function() return 4 end",
    "for k in pairs(_G) do _G[k] = nil end",
    "next(_G) _G[next(_G)] = 1",
    "pcall(function() error(setmetatable({}, { __tostring = function() x = 1 end })) end)",
    "xpcall(function() error('x') end, function() x = 1 end)",
    "setmetatable(KEYS, { __index = function() return 1 end, __len = function() return 9 end })",
    "redis.setresp(3)",
    "local _, shared = pairs(redis) shared.call = function() return 'other' end",
    "local _, shared = pairs(_G) shared.x = 1",
    "for _, t in ipairs({ _G, redis, string, table, math, cjson }) do pcall(table.insert, t, 'x') pcall(table.sort, t) end",
    "pcall(table.setn, redis, 7) pcall(table.remove, redis)",
    "error(_G)",
    "error(redis)",
    "pcall(error, _G) error(string)",
    "error({ err = 7, line = redis })",
];

#[test]
fn a_script_leaves_nothing_behind() {
    let mut interpreter = interpreter();
    let before = run(&mut interpreter, PRISTINE);
    assert!(before.contains("callfunction") && before.ends_with("Xtrue2;nilkey10get"), "{before}");
    for attack in ATTACKS {
        run(&mut interpreter, attack);
        assert_eq!(run(&mut interpreter, PRISTINE), before, "{attack}");
        // The same script finds what it found before.
        assert_eq!(run(&mut interpreter, attack), run(&mut interpreter, attack), "{attack}");
    }
    assert_eq!(
        run(&mut interpreter, "return math.random(1000000)"),
        run(&mut interpreter, "return  math.random(1000000)")
    );
}

#[test]
fn what_is_not_for_scripts_is_not_there() {
    let mut interpreter = interpreter();
    for name in [
        "os", "io", "debug", "package", "require", "module", "dofile", "loadfile", "print", "newproxy",
        "host",
    ] {
        let answer = run(&mut interpreter, &format!("return {name}"));
        assert!(answer.contains("nonexistent global variable"), "{name}: {answer}");
        assert_eq!(run(&mut interpreter, &format!("return rawget(_G, '{name}')")), "nil", "{name}");
    }
    assert_eq!(run(&mut interpreter, "return string.dump"), "nil");
    for binary in [
        "return loadstring('\\27Lua')",
        "return load((function() local sent return function() if not sent then sent = 1 return '\\27Lua' end end end)())",
    ] {
        assert_eq!(run(&mut interpreter, binary), "nil", "{binary}");
    }
    assert_eq!(run(&mut interpreter, "\x1bLua"), "binary code is not loaded");
}

#[test]
fn nothing_that_a_script_catches_keeps_it_alive() {
    let mut interpreter = interpreter();
    for endless in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(error, {}) end",
        "local function f() return pcall(f) end while true do f() end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "while true do coroutine.wrap(function() while true do end end)() end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "local t = setmetatable({}, { __index = function() while true do end end }) while true do pcall(function() return t.x end) end",
        "while true do redis.pcall('get') end",
        "repeat until pcall(pcall, pcall, error) == 7",
        "while true do pcall(table.sort, { 1, 2, 3 }, function() while true do end end) end",
        "while true do pcall(string.gsub, 'aaa', 'a', function() while true do end end) end",
        "local function f() f() end while true do pcall(f) end",
        "while true do loadstring('while true do end')() end",
        // The interpreter's table of strings looks at few bytes of long ones.
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        "local s = ('x'):rep(1e6) while true do local t = s .. 'x' end",
        "local t = {} for i = 1, 40 do t = { t, t } end cjson.encode(t)",
        "local t = {} for i = 1, 15 do local w = {} for k = 1, 9 do w[k] = t end t = w end pcall(cmsgpack.pack, t)",
        "local s = ('1'):rep(6e7) while true do tonumber(s, 36) end",
        "local s = ('1'):rep(6e7) while true do s:reverse() end",
        "local s = ('1'):rep(6e7) while true do pcall(string.lower, s) end",
        "while true do pcall(string.rep, 'x', 5e7) end",
        "local t = {} for i = 1, 1e6 do t[i] = i end while true do table.maxn(t) end",
        "local a, t = ('\\0'):rep(8000), {} for i = 1, 100 do t[i] = a .. i end while true do table.sort(t) end",
        "local s, t = ('x'):rep(900000), {} for i = 1, 50000 do t[i] = s .. i % 7 end table.sort(t)",
    ] {
        let since = Instant::now();
        assert_eq!(run_for(&mut interpreter, endless, 0.02), "stopped", "{endless}");
        assert!(since.elapsed() < Duration::from_secs(2), "{endless}: {:?}", since.elapsed());
        assert_eq!(run(&mut interpreter, "return redis.call('get')"), "get", "{endless}");
    }
}

/// The time that a script had does not count for the next one, which is only compiled.
#[test]
fn scripts_are_compiled_without_a_limit() {
    let mut interpreter = interpreter();
    assert_eq!(run_for(&mut interpreter, "return 'x'", 0.001), "x");
    std::thread::sleep(Duration::from_millis(10));
    for n in 0..500 {
        let source = Source::parse(Bytes::from(format!("return {n}"))).unwrap();
        assert_eq!(interpreter.compile(&sha1(&source.text), &source).unwrap(), Ok(()), "{n}");
    }
}

#[test]
fn memory_is_bounded_and_given_back() {
    let mut interpreter = interpreter();
    for greedy in [
        "local t = {} while true do t[#t + 1] = { #t } end",
        "return ('x'):rep(1000000000)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
    ] {
        let answer = run_for(&mut interpreter, greedy, 20.0);
        assert!(answer.contains("not enough memory"), "{greedy}: {answer}");
        assert!(interpreter.is_fit(), "{greedy}");
        assert_eq!(run(&mut interpreter, "return redis.call('get')"), "get");
    }
}

/// Hazard: what the server makes counts for nobody, and a script keeps it all.
#[test]
fn replies_count_as_a_scripts_memory() {
    let mut interpreter = interpreter();
    let script = "local t = {} for i = 1, 1000 do t[i] = i end
        for i = 1, 1000 do t[i] = redis.call('get') end return #t";
    let mut run = |limits| {
        assert!(interpreter.is_fit());
        let mut made = 0;
        let server = &mut |lua: &mlua::Lua, _: &str, _: &[Value]| {
            made += 1;
            Ok(Answer::Value(Value::String(lua.create_string(made.to_string().repeat(100_000))?)))
        };
        let code = (&sha1(script.as_bytes()), script.as_bytes());
        let ended = match interpreter.run(code, Task::Script(&[], &[]), (limits, 7), server).unwrap() {
            Outcome::Failed { error, .. } => String::from_utf8(error).unwrap(),
            Outcome::Stopped => "stopped".into(),
            _ => "returned".into(),
        };
        (ended, made)
    };
    let (ended, made) = run(Limits::default());
    assert!(ended.contains("not enough memory"), "{ended}");
    assert!((600..1000).contains(&made), "{made}");
    let (ended, made) = run(Limits { memory: Some(1 << 20), ..Limits::default() });
    assert!(ended == "stopped" && (5..20).contains(&made), "{ended}, {made}");
}

#[test]
fn what_needs_much_memory_is_stopped_in_a_lane() {
    let mut interpreter = interpreter();
    let little = Limits { memory: Some(1 << 20), ..Limits::default() };
    for greedy in [
        "return ('x'):rep(10000000)",
        "local s = 'x' while true do s = s .. s end",
        "local s = 'x' return pcall(function() while true do s = s .. s end end)",
        "local s = 'x' return xpcall(function() while true do s = s .. s end end, function() return 1 end)",
        "return pcall(string.rep, 'x', 10000000)",
        "local s = 'x' local co = coroutine.create(function() while true do s = s .. s end end)
            return coroutine.resume(co)",
        "local t = {} for i = 1, 1e6 do t[i] = i end return #t",
        "return pcall(redis.call, ('x'):rep(2000000))",
        "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(1000) .. i end return pcall(cjson.encode, { t, t, t, t, t })",
    ] {
        assert_eq!(run_in(&mut interpreter, greedy, little), "stopped", "{greedy}");
        assert_eq!(run_in(&mut interpreter, "return redis.call('get')", little), "get");
    }
    assert_eq!(run_in(&mut interpreter, "local s = ('x'):rep(100000) return #(s .. s)", little), "200000");
}

/// C's unpack counts wrongly and writes beyond its stack; C's parser does not hold on to names.
#[test]
fn what_c_gets_wrong_is_not_reached() {
    let mut interpreter = interpreter();
    for script in [
        "return unpack({ 'a' }, -1, 2147483647)",
        "return unpack({}, -2147483648, 2147483647)",
        "return unpack({}, 1, 1e308)",
        "return unpack({}, 0/0, 1)",
        "return unpack({}, -1e18, 1e18)",
        "return unpack({}, 2147483647, 2147483648)",
        "return (unpack({}, 1, 8000))",
    ] {
        assert!(run(&mut interpreter, script).contains("too many results to unpack"), "{script}");
    }
    for (script, answer) in [
        ("return table.concat({ unpack({ 1, 2, 3 }) }, ',')", "1,2,3"),
        ("return table.concat({ unpack({ 1, 2, 3 }, 2) }, ',')", "2,3"),
        ("return table.concat({ unpack({ 1, 2, 3 }, '1', 2) }, ',')", "1,2"),
        (
            "return select('#', unpack({}, 1, 7000)) .. select('#', unpack({}, 2, 1)) .. select('#', unpack({}))",
            "700000",
        ),
        ("unpack()", "ERR user_script:1: bad argument #1 to 'unpack' (table expected, got no value)"),
        ("local f = loadstring('return 7', 'a\\0b') collectgarbage() return f()", "7"),
        ("local f = loadstring('return 8 -- \\0') collectgarbage() return f()", "8"),
        (
            "return string.rep('', 2147483647) .. string.rep('ab', 2) .. ('x'):rep(3) .. ('y'):rep(-1)",
            "ababxxx",
        ),
        ("local t = { 3, 1, 2 } table.sort(t) return table.concat(t)", "123"),
        ("local t = { 1 } table.insert(t, 0, 7) return t[0] .. t[2]", "71"),
        (
            "local ok, e = pcall(table.insert, {}, 2 ^ 31, 1) return e",
            "bad argument #2 to 'insert' (position out of bounds)",
        ),
        (
            "local ok, e = pcall(table.insert, {}, -2 ^ 40, 1) return e",
            "bad argument #2 to 'insert' (position out of bounds)",
        ),
        (
            "local ok, e = pcall(table.insert, {}, 0 / 0, 1) return e",
            "bad argument #2 to 'insert' (position out of bounds)",
        ),
        ("error('bad argument', 2)", "ERR bad argument"),
        (
            "local t = { 1 } table.insert(t, 2) table.insert(t, 1, 0) table.insert(t, 9, 9) return t[1] .. t[2] .. t[3] .. t[9]",
            "0129",
        ),
        ("return table.remove({ 1, 2 }) .. table.remove({ 1, 2 }, 1)", "21"),
        ("return cjson.new().encode({ 1 })", "[1]"),
        ("error({})", "ERR unknown error"),
    ] {
        assert_eq!(run(&mut interpreter, script), answer, "{script}");
    }
    assert!(run(&mut interpreter, "table.insert({}, -50000000, 1)").contains("position out of bounds"));
}

/// Functions that stand before those of C answer as these do.
#[test]
fn functions_before_those_of_c_answer_alike() {
    let mut interpreter = interpreter();
    for (script, answer) in [
        ("local t = { 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 } table.sort(t) return table.concat(t)", "0123456789"),
        (
            "return tonumber('ff', 16) .. tonumber('z', '36') .. tonumber(' 12 ', 10.7) .. tonumber(15, 8)",
            "255351213",
        ),
        (
            "return tostring(tonumber('8', 8)) .. tostring(tonumber({})) .. tostring(tonumber(nil))",
            "nilnilnil",
        ),
        ("tonumber('1', 37)", "ERR user_script:1: bad argument #2 to 'tonumber' (base out of range)"),
        ("tonumber({}, 2)", "ERR user_script:1: bad argument #1 to 'tonumber' (string expected, got table)"),
        ("string.lower(nil)", "ERR user_script:1: bad argument #1 to 'lower' (string expected, got nil)"),
        ("return ('aB'):lower() .. ('aB'):upper() .. string.reverse(12)", "abAB21"),
        ("return table.maxn({ [7] = 1, [2.5] = 1 }) .. ''", "7"),
        (
            "collectgarbage('x')",
            "ERR user_script:1: bad argument #1 to 'collectgarbage' (invalid option 'x')",
        ),
    ] {
        assert_eq!(run(&mut interpreter, script), answer, "{script}");
    }
}

#[test]
fn keys_and_arguments_arrive_whole() {
    let mut interpreter = interpreter();
    let script = "return #KEYS .. ';' .. #ARGV .. ';' .. table.concat(KEYS) .. ';' .. table.concat(ARGV) .. type(KEYS[#KEYS + 1])";
    let of = |what: &str, n: usize| -> Vec<Bytes> { (0..n).map(|n| format!("{what}{n}").into()).collect() };
    for (keys, args) in [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (1, 9),
        (2, 0),
        (3, 5),
        (5, 3),
        (64, 0),
        (32, 32),
        (33, 32),
        (200, 300),
    ] {
        let (mut keys, args) = (of("k", keys), of("a", args));
        for last in [Bytes::from_static(b"\0\xff\r\n"), Bytes::new()] {
            keys.iter_mut().next_back().into_iter().for_each(|key| *key = last.clone());
            let code = (&sha1(script.as_bytes()), script.as_bytes());
            let given = (Limits::default(), 7);
            let server = &mut |_: &mlua::Lua, _: &str, _: &[Value]| Ok(Answer::Stop);
            let outcome = interpreter.run(code, Task::Script(&keys, &args), given, server).unwrap();
            let Outcome::Returned(Value::String(returned)) = outcome else { panic!("{keys:?} {args:?}") };
            let expected = [
                &format!("{};{};", keys.len(), args.len()).into_bytes()[..],
                &keys.concat(),
                b";",
                &args.concat(),
                b"nil",
            ];
            assert_eq!(&*returned.as_bytes(), expected.concat(), "{keys:?} {args:?}");
        }
    }
}
