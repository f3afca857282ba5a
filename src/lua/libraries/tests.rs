//! What the libraries answer, as redis-server 7.0.15 answers it: values, messages, and the limits of each.

use super::{Libraries, general};
use mlua::{Error, Lua, Value};

/// Raises messages as the sandbox does.
const RAISING: &str = "
    local libraries = ...
    local function raising(f)
        local function checked(ok, ...)
            if not ok then error((...), 0) end
            return ...
        end
        return function(...) return checked(f(...)) end
    end
    for name, library in pairs(libraries) do
        local made = {}
        for key, value in pairs(library) do
            made[key] = type(value) == 'function' and raising(value) or value
        end
        _G[name] = made
    end
    function hex(s) return (s:gsub('.', function(c) return ('%02x'):format(c:byte()) end)) end
";

fn interpreter() -> (Lua, Libraries) {
    let lua = Lua::new();
    let made = Libraries::new(&lua).unwrap();
    let tables = [
        ("cjson", made.cjson.clone()),
        ("cmsgpack", made.cmsgpack.clone()),
        ("struct", made.structs.clone()),
        ("bit", made.bit.clone()),
    ];
    lua.load(RAISING).call::<()>(lua.create_table_from(tables).unwrap()).unwrap();
    (lua, made)
}

/// The results or the message, as text.
fn outcome(lua: &Lua, script: &str) -> String {
    let script = format!(
        "local r = {{pcall(function() return {script} end)}}
        for i = 1, table.maxn(r) do r[i] = tostring(r[i]) end
        return table.concat(r, ' ', 2)"
    );
    lua.load(script).eval::<mlua::LuaString>().unwrap().to_string_lossy()
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let (lua, _libraries) = interpreter();
    for (script, expected) in cases {
        assert_eq!(outcome(&lua, script), *expected, "{script}");
    }
}

#[test]
fn numbers_are_written_as_c_writes_them() {
    let cases = [
        (0.0, 14, "0"),
        (-0.0, 14, "-0"),
        (0.1, 17, "0.10000000000000001"),
        (0.1, 14, "0.1"),
        (1e15, 14, "1e+15"),
        (99_999_999_999_999.5, 14, "1e+14"),
        (1_234_567_890_123.25, 14, "1234567890123.2"),
        (0.0001, 14, "0.0001"),
        (0.00001, 14, "1e-05"),
        (5e-324, 17, "4.9406564584124654e-324"),
        (f64::MAX, 17, "1.7976931348623157e+308"),
        (9.5, 1, "1e+01"),
        (f64::NEG_INFINITY, 14, "-inf"),
        (-f64::NAN.abs(), 14, "-nan"),
    ];
    for (n, digits, text) in cases {
        assert_eq!(general(n, digits), text);
    }
}

#[test]
fn bits() {
    check(&[
        ("bit.tobit(0xffffffff), bit.tobit(2^31 + 0.5), bit.tobit('0x10')", "-1 -2147483648 16"),
        ("bit.bnot(0), bit.bswap(0x12345678), bit.band(7, 14, 28)", "-1 2018915346 4"),
        ("bit.rol(0x12345678, 12), bit.arshift(-256, 8 + 32)", "1164411171 -1"),
        (
            "bit.tohex(-1), bit.tohex(255, -4), bit.tohex(1, 0), bit.tohex(255, -2^31)",
            "ffffffff 00FF  000000FF",
        ),
        ("bit.band()", "bad argument #1 to 'band' (number expected, got no value)"),
        ("bit.band(1, {}, nil)", "bad argument #3 to 'band' (number expected, got nil)"),
    ]);
}

#[test]
fn structs() {
    check(&[
        ("hex(struct.pack('>I2i<h!4bi', 258, -2, -3, 1, 7))", "0102fffffffefdff0100000007000000"),
        (
            "hex(struct.pack('>i10', -1)), hex(struct.pack('c0sx', 'ab', 'c'))",
            "0000ffffffffffffffff 6162630000",
        ),
        ("struct.unpack('>Hs', '\\1\\2ab\\0c')", "258 ab 6"),
        ("struct.unpack('bc0', '\\2abc')", "ab 4"),
        ("struct.size('!8bd'), struct.size('z')", "16 0"),
        ("struct.pack('c3', 'ab')", "bad argument #3 to 'pack' (string too short)"),
        ("struct.pack('i')", "bad argument #2 to 'pack' (number expected, got nil)"),
        ("struct.pack('q')", "bad argument #1 to 'pack' (invalid format option 'q')"),
        ("struct.unpack('i', 'abc')", "bad argument #2 to 'unpack' (data string too short)"),
        ("struct.unpack('i', 'abcd', 0)", "bad argument #3 to 'unpack' (offset must be 1 or greater)"),
        ("struct.unpack('', '', 2^63)", "-9.2233720368548e+18"),
        ("struct.unpack('c0', 'abc')", "format 'c0' needs a previous size"),
        ("struct.unpack('s', 'abc')", "unfinished string in data"),
        ("struct.size('i33')", "integral size 33 is larger than limit of 32"),
        ("struct.size('i99999999999')", "integral size overflow"),
        ("struct.size('!3')", "alignment 3 is not a power of 2"),
    ]);
}

#[test]
fn messages_are_packed_and_unpacked() {
    check(&[
        ("hex(cmsgpack.pack(1, -1, 'a', nil, true, 1.5, 0.1))", "01ffa161c0c3ca3fc00000cb3fb999999999999a"),
        ("hex(cmsgpack.pack({1, {}, {a = 1}, {[2] = 1}}))", "94019081a16101810201"),
        (
            "hex(cmsgpack.pack(-129, 2^32, 2^63, -2^63))",
            "d1ff7fcf0000000100000000ca5f000000d38000000000000000",
        ),
        ("cmsgpack.unpack('\\1\\255\\207\\255\\255\\255\\255\\255\\255\\255\\255')", "1 -1 -1"),
        ("cmsgpack.unpack_one('\\1\\2', 1)", "-1 2"),
        ("cmsgpack.unpack_limit('\\1\\2\\3', 2)", "2 1 2"),
        ("cmsgpack.unpack_limit('\\1', -1)", "Invalid request to unpack with offset of 0 and limit of 1."),
        ("cmsgpack.unpack_one('\\1', 2)", "Start offset 2 greater than input length 1."),
        ("cmsgpack.unpack('\\193')", "Bad data format in input."),
        ("cmsgpack.unpack('\\129\\192\\1')", "table index is nil"),
        ("cmsgpack.pack()", "bad argument #0 to 'pack' (MessagePack pack needs input.)"),
        ("cmsgpack.unpack()", "bad argument #1 to 'unpack' (string expected, got no value)"),
    ]);
}

#[test]
fn lengths_are_not_believed() {
    for tag in [0xdb, 0xdd, 0xdf] {
        let script = format!("cmsgpack.unpack('\\{tag}\\255\\255\\255\\255\\1\\1')");
        check(&[(&script, "Missing bytes in input.")]);
    }
}

#[test]
fn json() {
    check(&[
        (
            "cjson.encode({1, 0.1, 'a/\\1\\127', true, cjson.null, {}})",
            r#"[1,0.1,"a\/\u0001\u007f",true,null,{}]"#,
        ),
        ("cjson.encode({[1] = 1, [3] = 3}), cjson.encode({[1.5] = 1})", r#"[1,null,3] {"1.5":1}"#),
        ("cjson.encode({[11] = 1})", "Cannot serialise table: excessively sparse array"),
        ("cjson.encode({[true] = 1})", "Cannot serialise boolean: table key must be a number or string"),
        ("cjson.encode(0/0)", "Cannot serialise number: must not be NaN or Inf"),
        ("cjson.encode(print)", "Cannot serialise function: type not supported"),
        ("cjson.encode(1, 2)", "bad argument #1 to 'encode' (expected 1 argument)"),
        (r#"cjson.decode('[0x1.8p1, "\\u00e9\\ud83d\\ude00"]')[1]"#, "3"),
        (r#"cjson.decode('"\\u00e9\\ud83d\\ude00"')"#, "é😀"),
        ("cjson.decode('null') == cjson.null, cjson.decode('-0.5e1')", "true -5"),
        ("cjson.decode('[1,]')", "Expected value but found T_ARR_END at character 4"),
        ("cjson.decode('{1:2}')", "Expected object key string but found T_NUMBER at character 2"),
        ("cjson.decode('\"a')", "Expected value but found unexpected end of string at character 3"),
        ("cjson.decode('1 x')", "Expected the end but found invalid token at character 3"),
        ("cjson.decode('1\\0')", "JSON parser does not support UTF-16 or UTF-32"),
        (
            "cjson.encode_max_depth(0)",
            "bad argument #1 to 'encode_max_depth' (expected integer between 1 and 2147483647)",
        ),
        ("cjson.encode_keep_buffer('x')", "bad argument #1 to 'encode_keep_buffer' (invalid option 'x')"),
    ]);
}

#[test]
fn settings_last_until_they_are_reset() {
    let (lua, libraries) = interpreter();
    let changed = "cjson.encode_sparse_array(true, 1, 0), cjson.encode_invalid_numbers('null')";
    assert_eq!(outcome(&lua, changed), "true null");
    assert_eq!(outcome(&lua, "cjson.encode({[3] = 1/0})"), r#"{"3":null}"#);
    // Another library needs no globals and has other settings, and answers as its functions do.
    assert_eq!(
        outcome(&lua, "cjson.new().encode(1/0)"),
        "false Cannot serialise number: must not be NaN or Inf"
    );
    libraries.settings.reset();
    assert_eq!(outcome(&lua, "cjson.encode_sparse_array()"), "false 2 10");
    assert_eq!(outcome(&lua, "cjson.encode({[3] = 1/0})"), "Cannot serialise number: must not be NaN or Inf");
}

/// In a thread as small as those that run scripts.
#[test]
fn nesting_has_limits() {
    const SCRIPT: &str = "
        local depth, open, close = ...
        local t = {}
        for i = 2, depth do t = {t} end
        local function outcome(f, ...)
            local ok, e = pcall(f, ...)
            return type(e) == 'string' and not ok and e or 'fine'
        end
        return outcome(cjson.encode, t), outcome(cjson.decode, open:rep(depth) .. '1' .. close:rep(depth))";
    let run = || {
        let (lua, _libraries) = interpreter();
        let nested = |depth: usize, open: &str, close: &str| -> (String, String) {
            lua.load(SCRIPT).call((depth, open, close)).unwrap()
        };
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            assert_eq!(nested(1000, open, close), ("fine".into(), "fine".into()));
            let (encoded, decoded) = nested(1001, open, close);
            assert_eq!(encoded, "Cannot serialise, excessive nesting (1001)");
            assert!(decoded.starts_with("Found too many nested data structures (1001)"), "{decoded}");
            // Beyond the stack.
            lua.load("cjson.encode_max_depth(2^31 - 1) cjson.decode_max_depth(2^31 - 1)").exec().unwrap();
            let (encoded, decoded) = nested(100_000, open, close);
            assert!(encoded.starts_with("Cannot serialise, excessive nesting (7"), "{encoded}");
            assert!(decoded.starts_with("Found too many nested data structures ("), "{decoded}");
            lua.load("cjson.encode_max_depth(1000) cjson.decode_max_depth(1000)").exec().unwrap();
        }
        assert_eq!(outcome(&lua, "#cmsgpack.unpack(('\\145'):rep(3000) .. '\\1')"), "1");
        let overflow =
            "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)";
        for one in ["'\\129'", "'\\129\\161a'", "'\\1'", "'\\161a'"] {
            assert_eq!(outcome(&lua, &format!("cmsgpack.unpack(({one}):rep(100000))")), overflow, "{one}");
        }
        let itself = "(function() local t = {} t[1] = t return #cmsgpack.pack(t) end)()";
        assert_eq!(outcome(&lua, itself), "17");
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

/// Calls of C functions in each other, which Lua limits to 200.
#[test]
fn nested_calls_leave_a_message() {
    let (lua, _libraries) = interpreter();
    for depth in 180..200 {
        let script = format!(
            "local function nested(n)
                if n == 0 then return cjson.encode({{a = 1}}) .. #cmsgpack.unpack(cmsgpack.pack({{1}})) end
                return select(2, pcall(nested, n - 1))
            end
            return nested({depth})"
        );
        let found: String = lua.load(script).eval().unwrap();
        assert!(found == "{\"a\":1}1" || found.contains("stack overflow"), "{found}");
    }
}

#[test]
fn only_memory_is_an_error() {
    let (lua, _libraries) = interpreter();
    lua.set_memory_limit(lua.used_memory() + (4 << 20)).unwrap();
    let script = "return cjson.decode('[' .. ('[],'):rep(200000) .. '1]')";
    match lua.load(script).eval::<Value>() {
        Err(Error::MemoryError(_)) => {}
        Err(Error::CallbackError { cause, .. }) => {
            assert!(matches!(*cause, Error::MemoryError(_)), "{cause}")
        }
        other => panic!("{other:?}"),
    }
}
