//! The functions beside those of the vendored Lua, in the same interpreter.

use super::matching::{Fault, Found, Matcher, Steps};
use super::table;
use mlua::{Function, Lua, LuaOptions, LuaString, StdLib, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Compares what two functions do with the same arguments: nothing, or a text that tells the difference.
const COMPARE: &str = r#"
local native, ours = ...
local function shown(v)
    if type(v) ~= 'string' then return tostring(v) end
    return (native.gsub(('%q'):format(v), '[\128-\255]', function(c) return '\\' .. c:byte() end))
end
local function all(...)
    local parts = { select('#', ...) }
    for i = 1, select('#', ...) do parts[#parts + 1] = shown((select(i, ...))) end
    return table.concat(parts, ' ')
end
local function walk(gmatch)
    return function(s, p)
        local found = {}
        local iterator = gmatch(s, p)
        for i = 1, 100 do
            local one = all(iterator())
            found[i] = one
            if one == '0' then break end
        end
        return table.concat(found, ';')
    end
end
local function seen(f, ...) return all(pcall(f, ...)) end
local walks = { walk(native.gmatch), walk(ours.gmatch) }
-- Replacements: they note what they get.
local function replacements(log)
    return {
        f = function(...) log[#log + 1] = all(...); return (select(select('#', ...), ...)) end,
        n = function(...) log[#log + 1] = all(...); return #log % 3 ~= 0 and #log / 2 end,
        x = function(...) log[#log + 1] = all(...); if #log > 1 then return {} end end,
        e = function(...) log[#log + 1] = all(...); if #log > 1 then error('raised', 1) end end,
        t = { a = 'A', b = 7, [1] = '<1>', [2] = false, ['('] = 'par', ab = -0.5, [''] = 'e' },
        m = setmetatable({}, { __index = function(_, k)
            log[#log + 1] = shown(k); if #log > 3 then return print end; return k end }),
    }
end
return function(what, s, p, x, y)
    local a, b
    if what == 'gmatch' then
        a, b = seen(walks[1], s, p), seen(walks[2], s, p)
    elseif what == 'call' then
        local logs = { {}, {} }
        a = seen(native.gsub, s, p, replacements(logs[1])[x], y) .. table.concat(logs[1], ';')
        b = seen(ours.gsub, s, p, replacements(logs[2])[x], y) .. table.concat(logs[2], ';')
    else
        a, b = seen(native[what], s, p, x, y), seen(ours[what], s, p, x, y)
    end
    if a ~= b then
        return what .. ' ' .. all(s, p, x, y) .. '\n  native ' .. a .. '\n  ours   ' .. b
    end
end
"#;

fn lua_with(is_over: Arc<dyn Fn() -> bool + Send + Sync>) -> (Lua, Table) {
    let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::new()).unwrap();
    let ours = table(&lua, is_over).unwrap();
    (lua, ours)
}

fn compare() -> (Lua, Function) {
    let (lua, ours) = lua_with(Arc::new(|| false));
    let native: Table = lua.globals().get("string").unwrap();
    let compare: Function = lua.load(COMPARE).call((native, ours)).unwrap();
    (lua, compare)
}

/// Runs a script that has `native` and `ours`, which must be true.
fn holds(script: &str) {
    let (lua, ours) = lua_with(Arc::new(|| false));
    lua.globals().set("ours", ours).unwrap();
    lua.load("native = string").exec().unwrap();
    let traceback = lua.create_function(|lua, ()| lua.traceback(None, 1)).unwrap();
    lua.globals().set("traceback", traceback).unwrap();
    let result: mlua::Value = lua.load(script).set_name("@script").eval().unwrap();
    assert_eq!(result, mlua::Value::Boolean(true), "{script}");
}

/// A script that gives the same with the two libraries, what it fails with included.
fn same(script: &str) {
    let (lua, ours) = lua_with(Arc::new(|| false));
    lua.globals().set("ours", ours).unwrap();
    lua.load("native = string").exec().unwrap();
    // Not as a tail call, which loses the line.
    let script = match script.strip_prefix("return S.") {
        Some(call) => &format!("return keep(S.{call})"),
        None => script,
    };
    let run = |library: &str| -> String {
        let source = format!(
            "local S = {library}; local function keep(...) return ... end; getmetatable('').__index = S
             local function body() {script}\n end
             local r = {{ pcall(body) }}
             for i = 1, 12 do
                local v = r[i]
                if type(v) == 'table' then v = 'table ' .. tostring(v.err) end
                r[i] = tostring(v)
             end
             return table.concat(r, '|')"
        );
        lua.load(source).set_name("@script").eval().unwrap()
    };
    assert_eq!(run("native"), run("ours"), "{script}");
}

/// Function, text, pattern.
const CASES: &[(&str, &[u8], &[u8])] = &[
    ("find", b"hello", b"l"),
    ("find", b"hello", b"^l"),
    ("find", b"a^b", b"a^b"),
    ("find", b"", b""),
    ("find", b"a)b]", b")b]"),
    ("find", b"a\0b\0c", b"\0c"),
    ("find", b"a\0b\0c", b"b\0.c"),
    ("match", b"a\0b\0c", b"%z(.)%z"),
    ("match", b"a\0b", b"[%z]b"),
    ("match", b"ab", b"a\0junk["),
    ("match", b"ab", b"[a\0]"),
    ("match", b"ab", b"a%\0"),
    ("match", b"a]b", b"[]]"),
    ("match", b"a]b", b"[^]]+"),
    ("match", b"a]b", b"[]"),
    ("match", b"a]b", b"[^]"),
    ("match", b"a-b", b"[a-]+"),
    ("match", b"a-b", b"[-a]+"),
    ("match", b"]x", b"[a-%%]"),
    ("match", b"-z%", b"[%a-z]+"),
    ("match", b"z%", b"[a-%z]+"),
    ("match", b"x", b"[%"),
    ("match", b"x", b"[%]"),
    ("match", b"x", b"%"),
    ("match", b"x", b"y%"),
    ("match", b"x", b"x%"),
    ("match", b"x", b"%b"),
    ("match", b"x", b"%bx"),
    ("match", b"(a(b)c)d", b"%b()"),
    ("match", b"xaxb", b"%bxx"),
    ("match", b"(()", b"%b()"),
    ("match", b"THE (quick) fox", b"%f[%a]%a+%f[%A]()"),
    ("match", b"a", b"a%f[%z]()"),
    ("match", b"\0a", b"%f[%z]a"),
    ("match", b"a", b"%fa"),
    ("match", b"a", b"%f"),
    ("match", b"a", b"%f[a"),
    ("match", b"abab", b"(ab)%1"),
    ("match", b"abab", b"(ab)%2"),
    ("match", b"abab", b"%0"),
    ("match", b"abab", b"(a%1)"),
    ("match", b"abab", b"()%1"),
    ("match", b"ab", b"(a"),
    ("match", b"ab", b"a)"),
    ("match", b"ab", b")"),
    ("match", b"ab", b"()(a)()"),
    ("match", b"ab", b"((a)(b))"),
    ("match", b"a$b", b"a$b"),
    ("match", b"a$", b"a$$"),
    ("match", b"ab", b"a$"),
    ("match", b"***", b"**"),
    ("match", b"*", b"*"),
    ("match", b"a+", b"a++"),
    ("match", b"?", b"??"),
    ("match", b"--", b"---"),
    ("match", b"aaa", b"a-$"),
    ("match", b"aaa", b"a?a?a?a?$"),
    ("match", b"()x", b"%(%)%x"),
    ("match", b"a.b", b"^(.-)%.(.*)$"),
    ("match", b"\xe9\xff", b"[\x80-\xff]+"),
    ("match", b"\xe9\xff", b"%a"),
    ("match", b"\xe9", b"%\xe9"),
    ("match", b" \t\n\x0b\x0c\r", b"^%s+$"),
    ("gmatch", b"a^ba", b"^a"),
    ("gmatch", b"one two", b"%a+"),
    ("gmatch", b"k=v, l=w", b"(%w+)=(%w+)"),
    ("gmatch", b"abc", b""),
    ("gmatch", b"abc", b"b*"),
    ("gmatch", b"abc", b"()"),
    ("gmatch", b"", b".-"),
    ("gmatch", b"ab", b"(a"),
];

#[test]
fn quirks_are_those_of_the_c_library() {
    let (lua, compare) = compare();
    for (what, text, pattern) in CASES {
        let (s, p) = (lua.create_string(text).unwrap(), lua.create_string(pattern).unwrap());
        let difference: Option<String> = compare.call((*what, s, p)).unwrap();
        assert_eq!(difference, None);
    }
    for count in [31, 32, 33] {
        let difference: Option<String> = compare.call(("match", "a", "()".repeat(count))).unwrap();
        assert_eq!(difference, None);
    }
}

#[test]
fn replacements_are_those_of_the_c_library() {
    for script in [
        "return S.gsub('hello world', 'o', '0')",
        "return S.gsub('hello', '', '-')",
        "return S.gsub('hello', 'x*', '-')",
        "return S.gsub('hello', '^h', 'H')",
        "return S.gsub('hello', '^', '>')",
        "return S.gsub('hello hello', '^hello', 'x', 5)",
        "return S.gsub('abc', '%w', '%0%0', 2)",
        "return S.gsub('abc', '%w', '%1%%')",
        "return S.gsub('abc', '(%w)', '%2')",
        "return S.gsub('abc', '%w', '%9')",
        "return S.gsub('abc', '()', '%1')",
        "return S.gsub('abc', '(b', '%1')",
        "return S.gsub('abc', '(b', 'x')",
        "return S.gsub('abc', 'b', 'x%')",
        "return S.gsub('abc', 'b', 'x%yz%z')",
        "return S.gsub('abc', 'b', 'x\\0y')",
        "return S.gsub('abc', 'b', 12.5)",
        "return S.gsub('abc', 'b', -0)",
        "return S.gsub(121, 2, 7)",
        "return S.gsub('abc', '%w', 'x', 0)",
        "return S.gsub('abc', '%w', 'x', -1)",
        "return S.gsub('abc', '%w', 'x', 1.9)",
        "return S.gsub('abc', '%w', 'x', '2')",
        "return S.gsub('abc', '%w', 'x', 2^32 + 1)",
        "return S.gsub('abc', '%w', 'x', 2^31)",
        "return S.gsub('abc', '%w', 'x', 1e300)",
        "return S.gsub('abc', '%w', 'x', 0/0)",
        "return S.gsub('abc', '(a)(', {})",
        "return S.gsub('abc', '(a)(', print)",
        "return S.gsub('abc', '(', {})",
        "return S.gsub('abc', 'b', { b = 1e-20 })",
        "return S.gsub('abc', 'b', { b = false })",
        "return S.gsub('abc', 'b', { b = true })",
        "return S.gsub('abc', 'b', { b = {} })",
        "return S.gsub('abc', 'b', function() return S.gsub('xyz', 'y', function(y) return y .. y end) end)",
        "return S.gsub('abc', 'b', function() return io.stdout end)",
        "return S.gsub('abc', '%w', function() end, 2)",
        "return S.gsub('abc', '^%w', function(c) return c .. c end)",
    ] {
        same(script);
    }
}

#[test]
fn arguments_are_those_of_the_c_library() {
    for script in [
        "S.find()",
        "S.find(nil, 'a')",
        "S.find('a')",
        "S.find('a', nil)",
        "S.find('a', {})",
        "S.find('a', 'a', {})",
        "S.find('a', 'a', 'x')",
        "S.find(true, 'a')",
        "S.find(print, 'a')",
        "S.find(io.stdout, 'a')",
        "S.find(coroutine.create(print), 'a')",
        "return S.find('a', 'a', nil, true)",
        "local f = S.find; f(nil)",
        "local t = { g = S.match }; t.g('a')",
        "('a'):find(nil)",
        "('a'):find('a', {})",
        "('a'):match()",
        "('a'):gsub('a')",
        "('a'):gsub('a', nil)",
        "('a'):gsub('a', true)",
        "('a'):gsub('a', nil, {})",
        "('a'):gsub(nil, nil, {})",
        "('a'):gsub('[', 'x')",
        "local x = S.match(\n'a', \n'[')",
        "local t = { f = S.find }; t:f('a')",
        "local t = { f = S.gmatch }; t:f('a')",
        "S.gmatch('a')",
        "S.gmatch(nil, 'a')",
        "for x in S.gmatch('a', '[') do end",
        "for x in S.gmatch('a', '(') do end",
        "return pcall(S.find)",
        "return pcall(S.find, 'a')",
        "return pcall(S.gsub, 'a', 'a', nil)",
        "return pcall(S.gmatch, 'a')",
        "return pcall(S.gmatch('a', '%'))",
        "return pcall(S.match, 'a', '%')",
        "return S.find(12345, 34)",
        "return S.match(-0.5, '.', '2')",
        "return S.find('abc', 'b', 0 / 0)",
        "return S.find('abc', 'b', 1e300)",
        "return S.find('abc', 'b', -1e300)",
        "return S.find('abc', 'b', -2.9)",
        "return S.find('abc', 'b', 2.9)",
        "return S.find('abc', '', 10), S.find('abc', '', 4), S.find('abc', '', -10)",
        "return S.find('abc', '', 10, true)",
        "return S.match('abc', '()', 10), S.match('abc', '()', -1)",
        "return S.find('a.b', '.', 2, true), S.find('a.b', '.', 2, false), S.find('a.b', '%.', 1, 0)",
        "return S.find(-0, '-', 1, true)",
    ] {
        same(script);
    }
}

#[test]
fn errors_of_callbacks_arrive_unchanged() {
    for script in [
        "S.gsub('a', 'a', function() error({ err = 'mine' }) end)",
        "S.gsub('a', 'a', function() error('mine', 0) end)",
        "S.gsub('a', 'a', function() error('mine') end)",
        "S.gsub('a', 'a', function() error('mine', 2) end)",
        "S.gsub('a', 'a', function() error() end)",
        "S.gsub('a', 'a', function() local x = nil + 1 end)",
        "S.gsub('a', 'a', function() S.gsub('b', 'b', function() error({ err = 'inner' }) end) end)",
        "S.gsub('a', 'a', setmetatable({}, { __index = function() error({ err = 'mine' }) end }))",
        "S.gsub('a', 'a', function() S.find('a', '[') end)",
        "S.gsub('a', 'a', function() return {} end)",
        "return coroutine.resume(coroutine.create(function() S.gsub('a', 'a', coroutine.yield) end))",
        "return coroutine.resume(coroutine.create(function()
            S.gsub('a', 'a', function() coroutine.yield(1) end) end))",
        "return coroutine.wrap(function() for x in S.gmatch('a b', '%a') do coroutine.yield(x) end end)()",
        "local n = 0; local function deep() n = n + 1; return (S.gsub('a', 'a', deep)) end
         return n, pcall(deep)",
    ] {
        same(script);
    }
    // A handler sees the stack as it was.
    holds(
        "local function f() error('x') end
         local _, lines = xpcall(function() ours.gsub('a', 'a', function() f() end) end, traceback)
         return lines:find([[in upvalue 'f']], 1, true) ~= nil",
    );
    holds(
        "local e = {}
         local ok, got = pcall(ours.gsub, 'a', 'a', function() error(e) end)
         return not ok and got == e",
    );
}

/// What the module says of tail calls.
#[test]
fn limits_are_as_described() {
    holds(
        "local ok, e = pcall(function() return ours.find(nil) end); \
           return e == \"bad argument #1 to 'find' (string expected, got nil)\"",
    );
    holds(
        "local ok, e = pcall(function() return ours.find('a', '[') end); \
           return e == \"malformed pattern (missing ']')\"",
    );
    holds(
        "local ok, e = pcall(ours.gsub, ('a'):rep(70000), '', ('b'):rep(70000)); \
           return not ok and e == 'the result is larger than 64 MB'",
    );
    holds(
        "local ok, e = pcall(ours.find, ('a'):rep(100000), ('a?'):rep(70000) .. 'b'); \
           return not ok and e == 'pattern too complex'",
    );
    holds(
        "local t = {}; for i = 1, 7000 do t[i] = i > 2 and '1' or 'x' end
         return (ours.find(unpack(t))) == 1",
    );
    holds(
        "local t = {}; for i = 1, 7900 do t[i] = tostring(i) end
           local ok, e = pcall(ours.find, unpack(t)); return ok or type(e) == 'string'",
    );
}

#[test]
fn long_patterns_work() {
    holds("local a = ('a'):rep(1000); return ours.match(a, a .. '$') == a");
    holds(
        "local p = '^' .. ('%s*(%S+)'):rep(32) .. '%s*$'; \
           return select('#', ours.match((' word'):rep(32), p)) == 32",
    );
    holds(
        "local p = '^' .. ('%s*%S+'):rep(100) .. '$'; \
           return ours.find((' word'):rep(100), p) == 1",
    );
    holds("local p = ('a?'):rep(20000); return #ours.match(('a'):rep(20000), p) == 20000");
    holds("local p = ('x-'):rep(20000) .. 'a'; return ours.match('a', p) == 'a'");
}

struct Free;

impl Steps for Free {
    fn charge(&mut self, _: usize) -> Result<(), Fault> {
        Ok(())
    }
}

#[test]
fn a_small_stack_is_enough() {
    let work = || {
        let (text, pattern) = (vec![b'a'; 60_000], b"a?a*b-".repeat(20_000));
        let mut matcher = Matcher::new(&text, &pattern, true, Free);
        assert_eq!(matcher.search(0), Ok(Some(Found { from: 0, to: text.len() })));
        let pattern = b"a?a*b-".repeat(70_000);
        let mut matcher = Matcher::new(&text, &pattern, true, Free);
        assert_eq!(matcher.search(0), Err(Fault::Message("pattern too complex")));
    };
    std::thread::Builder::new().stack_size(32 << 10).spawn(work).unwrap().join().unwrap();
}

/// A script that runs for ever ends soon after it must.
fn is_interrupted(script: &str) {
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let (lua, ours) = lua_with(Arc::new(move || seen.load(Ordering::Relaxed)));
    lua.globals().set("string", ours).unwrap();
    lua.load("getmetatable('').__index = setmetatable({ rep = ('').rep }, { __index = string })")
        .exec()
        .unwrap();
    let waiter = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        over.store(true, Ordering::Relaxed);
        Instant::now()
    });
    let (ok, message): (bool, LuaString) =
        lua.load(format!("return pcall(function() {script} end)")).set_name("@script").eval().unwrap();
    let late = Instant::now();
    let late = late.saturating_duration_since(waiter.join().unwrap());
    println!("{:>9.3} ms  {script}", late.as_secs_f64() * 1e3);
    assert_eq!((ok, &*message.to_str().unwrap()), (false, "the script must end"), "{script}");
    assert!(late < Duration::from_millis(250), "{script}: {late:?}");
}

#[test]
fn what_takes_for_ever_is_interrupted() {
    for script in [
        "local x = string.find(('a'):rep(30000), ('a*'):rep(30) .. 'b')",
        "local x = string.match(('a'):rep(30000), ('a-'):rep(30) .. 'b')",
        "local x = string.match(('a'):rep(30000), ('a?'):rep(3000) .. 'b')",
        "local x = string.gsub(('a'):rep(30000), ('a*'):rep(30) .. 'b', 'x')",
        "local x = string.gsub(('a'):rep(30000), ('a*'):rep(30) .. 'b', print)",
        "for x in string.gmatch(('a'):rep(30000), ('a*'):rep(30) .. 'b') do end",
        "local x = string.match(('a'):rep(3000000), '^(a*)%1b')",
        "local x = string.match(('a'):rep(3000000), '(a-)%1b')",
        "local x = string.find(('('):rep(3000000), '%b()')",
        "local x = string.find(('a'):rep(3000000), '[' .. ('b'):rep(1000000) .. ']*c')",
        "local x = string.find(('a'):rep(3000000), '%f[' .. ('b'):rep(1000000) .. ']')",
        "local x = string.find(('a'):rep(3000000), ('a'):rep(1500000) .. 'b', 1, true)",
        "local x = string.find(('a'):rep(3000000), ('.*'):rep(9) .. 'b')",
        "local s, p = ('a'):rep(3000000), ('b'):rep(1000000) .. '%a'
         while true do string.find(s, p, -1) end",
        "local s = ('a'):rep(1000000); while true do string.match(s, '.*') end",
        "local s = ('a'):rep(1000000); while true do string.gsub(s, 'b', 'c') end",
    ] {
        is_interrupted(script);
    }
}

/// Xorshift, for cases that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    fn of<'a>(&mut self, parts: &[&'a [u8]], most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        let parts: Vec<&'a [u8]> = (0..count).map(|_| parts[self.below(parts.len())]).collect();
        parts.concat()
    }
}

const TEXTS: &[&[u8]] = &[
    b"a", b"a", b"b", b"ab", b"A", b"1", b" ", b"(", b")", b"[", b"]", b"-", b"%", b"^", b"$", b"\0",
    b"\xe9", b".",
];
const RAW: &[&[u8]] = &[
    b"a", b"b", b"1", b"(", b")", b"[", b"]", b"%", b"%", b"-", b"*", b"+", b"?", b"^", b"$", b".", b"\0",
    b"z", b"f", b"\xe9",
];
const ITEMS: &[&[u8]] = &[
    b"a", b"b", b".", b"(", b")", b"(", b")", b"()", b"(a)", b"(.-)", b"(%a*)", b"[ab]", b"[^a]", b"[]a]",
    b"[^]a]", b"[a-b]", b"[%a-]", b"[a-%%]", b"[%w(]", b"%a", b"%A", b"%d", b"%s", b"%S", b"%p", b"%c",
    b"%u", b"%l", b"%x", b"%z", b"%Z", b"%W", b"%(", b"%%", b"%b()", b"%bab", b"%b[]", b"%f[%a]", b"%f[^a]",
    b"%f[%z]", b"%1", b"%2", b"%0", b"*", b"+", b"-", b"?", b"*", b"-", b"a*", b"b-", b".+", b"$", b"^",
    b"\0", b"[", b"%",
];
const REPLACEMENTS: &[&[u8]] = &[b"x", b"%", b"%0", b"%1", b"%2", b"%9", b"%%", b"%a", b"\0", b"yy", b""];

#[test]
fn random_cases_are_those_of_the_c_library() {
    let count: u64 = std::env::var("CASES").map_or(100_000, |count| count.parse().unwrap());
    let (lua, compare) = compare();
    let mut random =
        Random(std::env::var("SEED").map_or(88_172_645_463_325_252, |seed| seed.parse().unwrap()));
    let mut differences = 0;
    for _ in 0..count {
        let text = random.of(TEXTS, 12);
        let mut pattern = if random.below(3) == 0 { random.of(RAW, 8) } else { random.of(ITEMS, 6) };
        if random.below(6) == 0 {
            pattern.insert(0, b'^');
        }
        let (s, p) = (lua.create_string(&text).unwrap(), lua.create_string(&pattern).unwrap());
        let init = (random.below(2) == 0).then(|| random.below(32) as i64 - 16);
        let difference: Option<String> = match random.below(5) {
            0 => compare.call(("find", s, p, init, random.below(5) == 0)).unwrap(),
            1 => compare.call(("match", s, p, init)).unwrap(),
            2 => compare.call(("gmatch", s, p)).unwrap(),
            3 => {
                let replacement = lua.create_string(random.of(REPLACEMENTS, 4)).unwrap();
                let most = (random.below(3) == 0).then(|| random.below(6) as i64 - 1);
                compare.call(("gsub", s, p, replacement, most)).unwrap()
            }
            _ => {
                let how = ["f", "n", "x", "e", "t", "m"][random.below(6)];
                let most = (random.below(3) == 0).then(|| random.below(6) as i64 - 1);
                compare.call(("call", s, p, how, most)).unwrap()
            }
        };
        if let Some(difference) = difference {
            differences += 1;
            if differences < 20 {
                println!("{difference}");
            }
        }
    }
    println!("{count} cases, {differences} differ");
    assert_eq!(differences, 0);
}
