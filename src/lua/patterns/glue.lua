-- What scripts call. Rust passes its functions, which return true and their results, or false and a message,
-- or nil and a message that gets no position. Errors are raised here: Rust could only raise userdata.
--
-- string.gsub calls what a script gives it from here, not from Rust: so errors arrive unchanged and an error
-- handler sees the stack as it was. This file uses no globals when a script runs, and keeps nothing from one
-- call to the next.
local host = ...
local find, match, texts, next_match, substitute, next_piece =
    host.find, host.match, host.texts, host.next_match, host.substitute, host.next_piece
local error, type, foreach, concat, sub = error, type, table.foreach, table.concat, string.sub

-- Who called the function that ends with a call of `checked` is at level 3: a tail call counts as a level.
local function raise(how, message, level)
    error(message, how == nil and 0 or level + 1)
end

local function checked(ok, ...)
    if not ok then
        raise(ok, (...), 3)
    end
    return ...
end

local once = { true }

-- As a tail call, which hides this file's lines from error(message, 2).
local function call(f, ...)
    return f(...)
end

-- string.gsub with a function or a table, after its arguments were checked.
local function replaced(s, p, r, most)
    local by_function = type(r) == 'function'
    local parts, size, count = {}, 0, 0
    -- Where the next search begins, and up to where `parts` has the text.
    local at, done = 0, 0
    local failed, message = false, nil

    local function replace(ok, after, from, to, ...)
        if not ok then
            failed, message = { ok }, after
            return false
        elseif not after then
            return false
        end
        local value
        if by_function then
            value = call(r, ...)
        else
            value = r[(...)]
        end
        if not value then
            value = sub(s, from + 1, to)
        else
            local kind = type(value)
            if kind ~= 'string' and kind ~= 'number' then
                failed, message = { false }, 'invalid replacement value (a ' .. kind .. ')'
                return false
            end
        end
        if from > done then
            size = size + 1
            parts[size] = sub(s, done + 1, from)
        end
        size, count = size + 1, count + 1
        parts[size] = value
        at, done = after, to
        return true
    end

    -- foreach is written in C: nothing can yield through it, as in the C library.
    foreach(once, function()
        while count < most and replace(next_piece(s, p, at, by_function)) do
        end
    end)
    if failed then
        raise(failed[1], message, 3)
    end
    parts[size + 1] = sub(s, done + 1)
    return concat(parts), count
end

local library = {}

function library.find(...)
    return checked(find(...))
end

function library.match(...)
    return checked(match(...))
end

function library.gmatch(...)
    local s, p = checked(texts(...))
    local at = 0
    local function found(ok, after, ...)
        if not ok then
            raise(ok, after, 3)
        elseif after then
            at = after
            return ...
        end
    end
    return function()
        return found(next_match(s, p, at))
    end
end

function library.gsub(...)
    local count, s, p, r, most = checked(substitute(...))
    if count then
        return s, count
    end
    return replaced(s, p, r, most)
end

return library
