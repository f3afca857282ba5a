-- The world that scripts see, made once for each interpreter. Rust passes what it provides, and gets what it calls.
--
-- Scripts share an interpreter, one after the other, so nothing that they can reach may change. Lua 5.1 has no tables that
-- cannot be written, so what scripts see of a shared table is an empty one in front of it: reading falls through, writing
-- fails, and the functions that would ignore this (rawset, setmetatable and so on) are replaced by ones that do not.
--
-- This file uses no globals when a script runs.
local host = ...
local error, type, pairs, next, select, tostring, tonumber = error, type, pairs, next, select, tostring, tonumber
local getmetatable, setmetatable, rawget, rawset, rawequal = getmetatable, setmetatable, rawget, rawset, rawequal
local setfenv, loadstring, pcall, xpcall, unpack = setfenv, loadstring, pcall, xpcall, unpack
local collectgarbage = collectgarbage
local resume = coroutine.resume
local floor = math.floor
local byte, find, lower, rep, sub, concat = string.byte, string.find, string.lower, string.rep, string.sub, table.concat
local READONLY = 'Attempt to modify a readonly table'

-- What is in front of a shared table -> the shared table.
local hidden = setmetatable({}, { __mode = 'k' })

local function refuse()
    error(READONLY, 2)
end

-- What scripts see of a shared table, and the metatable that says so.
local function front(shared)
    local seen = {}
    local meta = { __index = shared, __newindex = refuse }
    -- Scripts may look at the metatable, too.
    local shown = setmetatable({}, { __index = {}, __newindex = refuse, __metatable = false })
    meta.__metatable = shown
    hidden[seen], hidden[shown] = shared, {}
    return setmetatable(seen, meta), meta
end

local function writable(t)
    if hidden[t] then
        error(READONLY, 3)
    end
    return t
end

-- Once the script must end, nothing that it catches keeps it alive. The host looks at the error, too: a script that may
-- use little memory here must end where it gets no more.
local function kept(ok, ...)
    if not ok and host.is_stopped((...)) then
        error(host.stopped, 0)
    end
    return ok, ...
end

-- As in Redis, whoever catches an error of the server gets its text.
local function caught(ok, ...)
    if not ok then
        local e = ...
        local text = type(e) == 'table' and not host.is_stopped() and e.err
        if type(text) == 'string' or type(text) == 'number' then
            return kept(ok, text)
        end
    end
    return kept(ok, ...)
end

-- A function of the host that returns true and its results, or false and a message.
local function raising(f)
    local function checked(ok, ...)
        if not ok then
            error((...), 3)
        end
        return ...
    end
    return function(...)
        return checked(f(...))
    end
end

local function library(functions)
    local made = {}
    for name, value in pairs(functions) do
        made[name] = type(value) == 'function' and raising(value) or value
    end
    return made
end

-- redis.call and its relatives: the host says how its answer is meant.
local run
local function answered(how, value)
    if how == 'raise' then
        error(value, 0)
    elseif how == 'stop' then
        error(host.stopped, 0)
    end
    return value
end

-- Each function has a number. Many arguments are passed in a table, with the number negated.
local MANY = 1000
local function of_redis(number, name)
    return function(...)
        if not run then
            error({ err = 'ERR redis.' .. name .. ' can only be called inside a script invocation' }, 0)
        end
        local count = select('#', ...)
        if count > MANY then
            return answered(run(-number, { ... }, count))
        end
        return answered(run(number, ...))
    end
end

local redis = {}
for number, name in ipairs(host.functions) do
    redis[name] = of_redis(number, name)
end
for name, value in pairs(host.constants) do
    redis[name] = value
end
function redis.replicate_commands()
    return true
end
function redis.breakpoint()
    return false
end
function redis.debug() end

local globals = {
    assert = assert, error = error, gcinfo = gcinfo, ipairs = ipairs, rawequal = rawequal, select = select,
    tonumber = tonumber, tostring = tostring, type = type, _VERSION = _VERSION,
}
-- (Without newproxy: what it makes may have a finalizer, which would run inside of another script.)

local function of_type(value, wanted, at, name, level)
    if type(value) ~= wanted then
        local found = value == nil and 'no value' or type(value)
        error('bad argument #' .. at .. " to '" .. name .. "' (" .. wanted .. ' expected, got ' .. found .. ')', level or 3)
    end
end

local function text_of(value, at, name)
    if type(value) == 'number' then
        return tostring(value)
    elseif value == nil then
        error('bad argument #' .. at .. " to '" .. name .. "' (string expected, got nil)", 3)
    end
    of_type(value, 'string', at, name, 4)
    return value
end

-- How the collector works is not for a script to decide: it stays so for the next one.
local of_collector = { stop = true, restart = true, setpause = true, setstepmul = true }
function globals.collectgarbage(option, ...)
    if option == nil or option == 'collect' or option == 'count' or option == 'step' then
        return collectgarbage(option, ...)
    end
    option = text_of(option, 1, 'collectgarbage')
    if not of_collector[option] then
        error("bad argument #1 to 'collectgarbage' (invalid option '" .. option .. "')", 2)
    end
    return 0
end

function globals.pcall(f, ...)
    return caught(pcall(f, ...))
end

-- Nothing ends a handler of the error by which a script is ended: then it is not called.
function globals.xpcall(f, handler)
    return kept(xpcall(f, function(e)
        if host.is_stopped(e) then
            return e
        end
        return handler(e)
    end))
end

function globals.rawget(t, k)
    return rawget(hidden[t] or t, k)
end

function globals.rawset(t, k, v)
    return rawset(writable(t), k, v)
end

function globals.setmetatable(t, meta)
    return setmetatable(writable(t), meta)
end

function globals.getmetatable(t)
    return getmetatable(t)
end

function globals.next(t, k)
    return next(hidden[t] or t, k)
end

function globals.pairs(t)
    if hidden[t] then
        return globals.next, t, nil
    end
    return pairs(t)
end

-- What is not in these tables does not exist.
local function closed(t)
    return setmetatable(t, { __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end })
end

-- The code of a library sees other globals while it registers its functions.
local seen_globals, meta_of_globals = front(closed(globals))
local function show(shared)
    meta_of_globals.__index = shared
end

-- Binary code could do anything. Lua's parser does not hold on to the name of the code: here it is on the stack, as
-- C reads it, while it is parsed.
local function parsed(text, name)
    if byte(text, 1) == 27 then
        return nil, 'binary code is not loaded'
    end
    local zero = find(name, '\0', 1, true)
    local held = zero and sub(name, 1, zero - 1) or name
    local f, e = loadstring(text, held)
    return f and setfenv(f, seen_globals), e
end

-- C does not stop in the middle of a long text. A script that asks for that again and again is ended in between.
local LONG = 4096
local function looked_at(text)
    if type(text) == 'string' and #text > LONG and host.is_stopped() then
        error(host.stopped, 0)
    end
    return text
end

function globals.tonumber(text, base)
    if base == nil then
        if type(text) == 'string' and #text > LONG then
            looked_at(text)
        end
        return tonumber(text)
    elseif not tonumber(base) then
        of_type(base, 'number', 2, 'tonumber')
    end
    looked_at(text)
    local whole = floor(tonumber(base))
    if whole ~= 10 then
        text = text_of(text, 1, 'tonumber')
        if not (whole >= 2 and whole <= 36) then
            error("bad argument #2 to 'tonumber' (base out of range)", 2)
        end
    end
    return tonumber(text, whole)
end

function globals.loadstring(text, name)
    text = text_of(text, 1, 'loadstring')
    return parsed(text, name == nil and text or text_of(name, 2, 'loadstring'))
end

local function no_string()
    error('reader function must return a string', 4)
end

function globals.load(reader, name)
    of_type(reader, 'function', 1, 'load')
    local parts = {}
    while true do
        local ok, part = kept(pcall(reader))
        if not ok then
            return nil, part
        elseif part == nil or part == '' then
            break
        elseif type(part) ~= 'string' and type(part) ~= 'number' then
            return nil, select(2, pcall(no_string))
        end
        parts[#parts + 1] = part
    end
    return parsed(concat(parts), name == nil and '=(load)' or text_of(name, 2, 'load'))
end

-- C would count its results wrongly.
local MOST = 7999
function globals.unpack(t, first, last)
    of_type(t, 'table', 1, 'unpack')
    local i, j = first == nil and 1 or tonumber(first), last == nil and #t or tonumber(last)
    of_type(i, 'number', 2, 'unpack')
    of_type(j, 'number', 3, 'unpack')
    if not (i >= -2147483648 and i <= 2147483647 and j >= -2147483648 and j <= 2147483646 and j - i < MOST) then
        error('too many results to unpack', 2)
    end
    -- Its arguments count, too.
    if first == nil and last == nil then
        return unpack(t)
    end
    return unpack(t, i, j)
end

local function copy(t)
    local made = {}
    for k, v in pairs(t) do
        made[k] = v
    end
    return made
end

local threads = copy(coroutine)
function threads.resume(co, ...)
    return kept(resume(co, ...))
end

local numbers = copy(math)
-- As C converts a number to an int.
local function whole(n, at, name)
    local number = tonumber(n)
    if not number then
        local found = n == nil and 'no value' or type(n)
        error("bad argument #" .. at .. " to '" .. name .. "' (number expected, got " .. found .. ')', 3)
    end
    number = number < 0 and -floor(-number) or floor(number)
    local int = (number + 2 ^ 31) % 2 ^ 32 - 2 ^ 31
    return int == int and int or 0
end
function numbers.random(low, high, ...)
    local r = host.random()
    if low == nil then
        return r
    elseif select('#', ...) > 0 then
        error('wrong number of arguments', 2)
    end
    local last = high == nil and whole(low, 1, 'random') or whole(high, 2, 'random')
    local first = high == nil and 1 or whole(low, 1, 'random')
    if first > last then
        error("bad argument #" .. (high == nil and 1 or 2) .. " to 'random' (interval is empty)", 2)
    end
    return floor(r * (last - first + 1)) + first
end
function numbers.randomseed(seed)
    host.seed(whole(seed, 1, 'randomseed'))
end

local texts = copy(string)
texts.dump = nil
-- That of C takes as long for nothing as for something.
function texts.rep(text, count)
    text = text_of(text, 1, 'rep')
    local n = tonumber(count)
    if not n then
        of_type(count, 'number', 2, 'rep')
    end
    if text == '' then
        return ''
    elseif #text * n > LONG and host.is_stopped() then
        error(host.stopped, 0)
    end
    return (rep(text, n))
end
for _, name in pairs({ 'lower', 'reverse', 'upper' }) do
    local of_c = texts[name]
    texts[name] = function(text)
        return (of_c(looked_at(text_of(text, 1, name))))
    end
end
-- Those of C cannot be ended.
for name, f in pairs(host.patterns) do
    texts[name] = f
end

-- Those of C write whatever they are given, and cannot be ended.
local tables = copy(table)
local insert, remove, sort, maxn = table.insert, table.remove, table.sort, table.maxn
-- Elements that C moves at once without need, and that it compares: those may be long texts.
local FEW, FEW_COMPARED = 100, 8
function tables.insert(t, ...)
    of_type(t, 'table', 1, 'insert')
    local count, at = select('#', ...), tonumber((...))
    if count ~= 1 and count ~= 2 then
        error("wrong number of arguments to 'insert'", 2)
    elseif count == 2 then
        of_type(at, 'number', 2, 'insert')
        -- C moves all elements from there on; where an int cannot say from where, for ever.
        if not (at > -FEW and at < 2 ^ 31) then
            error("bad argument #2 to 'insert' (position out of bounds)", 2)
        end
    end
    return insert(writable(t), ...)
end
function tables.remove(t, ...)
    of_type(t, 'table', 1, 'remove')
    return remove(writable(t), ...)
end
local function less(a, b)
    return a < b
end
function tables.sort(t, comparator)
    of_type(t, 'table', 1, 'sort')
    return sort(writable(t), comparator == nil and #t > FEW_COMPARED and less or comparator)
end
function tables.maxn(t)
    of_type(t, 'table', 1, 'maxn')
    if host.is_stopped() then
        error(host.stopped, 0)
    end
    return (maxn(t))
end
globals._G = seen_globals
globals.coroutine = front(threads)
globals.math = front(numbers)
globals.string = front(texts)
globals.table = front(tables)
globals.redis = front(redis)
globals.server = globals.redis
globals.bit = front(library(host.bit))
globals.struct = front(library(host.struct))
local json = library(host.cjson)
function json.new()
    return library(select(2, host.cjson.new()))
end
globals.cjson = front(json)
globals.cmsgpack = front(library(host.cmsgpack))

-- Methods of strings.
local of_strings = getmetatable('')
of_strings.__index = texts
of_strings.__metatable = front({ __index = globals.string })

local registered
local function register_error(text)
    error({ err = 'ERR ' .. text }, 0)
end

local known_flags = {}
for _, name in pairs(host.flags) do
    known_flags[name] = true
end

-- The arguments of register_function as a table: `name`, `callback`, `description`, `flags`.
local function named(given)
    local made = { flags = {} }
    for key, value in pairs(given) do
        if type(key) ~= 'string' and type(key) ~= 'number' then
            register_error('named argument key given to redis.register_function is not a string')
        end
        key = lower(key)
        if key == 'function_name' or key == 'description' then
            if type(value) ~= 'string' and type(value) ~= 'number' then
                register_error(key .. ' argument given to redis.register_function must be a string')
            end
            made[key == 'description' and key or 'name'] = tostring(value)
        elseif key == 'callback' then
            if type(value) ~= 'function' then
                register_error('callback argument given to redis.register_function must be a function')
            end
            made.callback = value
        elseif key == 'flags' then
            if type(value) ~= 'table' then
                register_error('flags argument to redis.register_function must be a table representing function flags')
            end
            local n = 1
            while value[n] ~= nil do
                local flag = type(value[n]) == 'string' and lower(value[n])
                if not known_flags[flag] then
                    register_error('unknown flag given')
                end
                made.flags[flag] = true
                n = n + 1
            end
        else
            register_error('unknown argument given to redis.register_function')
        end
    end
    if not made.name then
        register_error('redis.register_function must get a function name argument')
    elseif not made.callback then
        register_error('redis.register_function must get a callback argument')
    end
    return made
end

local of_libraries = copy(host.constants)
of_libraries.log = redis.log
function of_libraries.register_function(...)
    if not registered then
        register_error('redis.register_function can only be called on FUNCTION LOAD command')
    end
    local count, made = select('#', ...), nil
    local first, second = ...
    if count == 0 or count > 2 then
        register_error('wrong number of arguments to redis.register_function')
    elseif count == 1 then
        if type(first) ~= 'table' then
            register_error('calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).')
        end
        made = named(first)
    elseif type(first) ~= 'string' and type(first) ~= 'number' then
        register_error('first argument to redis.register_function must be a string')
    elseif type(second) ~= 'function' then
        register_error('second argument to redis.register_function must be a function')
    else
        made = { name = tostring(first), callback = second, flags = {} }
    end
    if not host.is_name(made.name) then
        register_error('Library names can only contain letters, numbers, or underscores(_) and must be at least one character long')
    elseif registered[made.name] then
        register_error('Function already exists in the library')
    end
    registered[made.name] = made
end
local library_globals = closed({})
library_globals.redis = front(closed(of_libraries))
library_globals.server = library_globals.redis

local function silent() end

-- Runs the code of a library, which registers its functions, and the one that is wanted, if any. Returns true and the
-- result, or the functions; or false and a table with the error.
local function enter_library(code, server, wanted, keys, args)
    local functions = {}
    globals.KEYS, globals.ARGV = nil, nil
    -- What it logs was logged when it was loaded.
    run, registered = wanted and silent or server, functions
    show(library_globals)
    setfenv(code, seen_globals)
    local ok, result = xpcall(code, host.where)
    registered = nil
    show(globals)
    if ok and not wanted then
        result = functions
    elseif ok then
        run = server
        local callback = functions[wanted].callback
        ok, result = xpcall(function()
            local result = callback(keys, args)
            return result
        end, host.where)
    end
    run = nil
    return ok, result
end

-- Runs a script: `server` answers its calls. Returns true and its result, or false and a table with the error.
local function enter(script, server, keys, args)
    run, registered = server, nil
    show(globals)
    globals.KEYS, globals.ARGV = keys, args
    local ok, result = xpcall(script, host.where)
    run, globals.KEYS, globals.ARGV = nil, nil, nil
    return ok, result
end

setfenv(0, seen_globals)
return parsed, enter, enter_library
