//! Commands of streams: replies and errors, as the commands' documentation and redis-server 8.6 have them.
//!
//! A line is followed by its reply in short: arrays in brackets, maps in braces, errors after a minus, simple strings
//! after a plus.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use support::resp::{Value, text};
use support::server::tern;

fn shown(value: &Value) -> String {
    let all = |items: &[Value]| items.iter().map(shown).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(word) => format!("+{}", text(word)),
        Value::Error(line) => format!("-{}", String::from_utf8_lossy(line)),
        Value::Int(n) => n.to_string(),
        Value::Nil(_) => "nil".to_owned(),
        Value::Map(items) => format!("{{{}}}", all(items)),
        Value::Bulk(bytes) => text(bytes),
        other => format!("[{}]", all(other.items().unwrap_or_else(|| panic!("{other:?}")))),
    }
}

fn run(lines: &[(&str, &str)]) {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    for (line, wanted) in lines {
        let got = shown(&client.line(line));
        assert!(line.starts_with("HELLO") || got == *wanted, "{line}\n  wanted {wanted}\n  got    {got}");
    }
}

/// Ids: whole, in part, made; and those that are refused.
#[test]
fn ids_of_xadd() {
    run(&[
        ("XADD k 1-1 a b", "1-1"),
        (
            "XADD k 1-1 a b",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        (
            "XADD k 1-0 a b",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        ("XADD k 0-0 a b", "-ERR The ID specified in XADD must be greater than 0-0"),
        ("XADD k 1-* a b c d", "1-2"),
        ("XADD k 2 a b", "2-0"),
        ("XADD k 2-* a b", "2-1"),
        (
            "XADD k 0-* a b",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        (
            "XADD k IDMP producer 1 * a b",
            "-ERR IDMP and IDMPAUTO are not supported: use IDEMPOTENT id XADD key ... to add an entry once",
        ),
        (
            "XADD k MAXLEN 5 idmpauto producer * a b",
            "-ERR IDMP and IDMPAUTO are not supported: use IDEMPOTENT id XADD key ... to add an entry once",
        ),
        ("XADD k x a b", "-ERR Invalid stream ID specified as stream command argument"),
        ("XADD k 1-x a b", "-ERR Invalid stream ID specified as stream command argument"),
        ("XADD k - a b", "-ERR Invalid stream ID specified as stream command argument"),
        ("XADD k *-1 a b", "-ERR Invalid stream ID specified as stream command argument"),
        ("XADD k 5-1 a", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD k 5-1", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD k 5-1 a b c", "-ERR wrong number of arguments for 'xadd' command"),
        ("XRANGE k - +", "[[1-1 [a b]] [1-2 [a b c d]] [2-0 [a b]] [2-1 [a b]]]"),
        ("XADD none NOMKSTREAM 1-1 a b", "nil"),
        ("EXISTS none", "0"),
        ("XADD new 0-* a b", "0-1"),
        ("XADD k 18446744073709551615-18446744073709551614 a b", "18446744073709551615-18446744073709551614"),
        ("XADD k 18446744073709551615-* a b", "18446744073709551615-18446744073709551615"),
        (
            "XADD k 18446744073709551615-* a b",
            "-ERR The stream has exhausted the last possible ID, unable to add more items",
        ),
        ("XADD k * a b", "-ERR The stream has exhausted the last possible ID, unable to add more items"),
        ("XADD k 18446744073709551616-1 a b", "-ERR Invalid stream ID specified as stream command argument"),
        ("SET s x", "+OK"),
        ("XADD s 1-1 a b", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("TYPE k", "+stream"),
        ("OBJECT ENCODING k", "stream"),
    ]);
}

/// Thresholds of XADD and XTRIM.
#[test]
fn trimming() {
    run(&[
        ("XADD k 1-1 a b", "1-1"),
        ("XADD k 2-1 a b", "2-1"),
        ("XADD k 3-1 a b", "3-1"),
        ("XADD k MAXLEN 3 4-1 a b", "4-1"),
        ("XADD k MAXLEN = 2 5-1 a b", "5-1"),
        ("XRANGE k - +", "[[4-1 [a b]] [5-1 [a b]]]"),
        ("XADD k MINID 5-1 6-1 a b", "6-1"),
        ("XADD k MINID = 6 7-1 a b", "7-1"),
        ("XRANGE k - +", "[[6-1 [a b]] [7-1 [a b]]]"),
        ("XADD k MAXLEN 0 8-1 a b", "8-1"),
        ("XLEN k", "0"),
        ("EXISTS k", "1"),
        ("XADD k NOMKSTREAM 9-1 a b", "9-1"),
        ("XADD k 10-1 a b", "10-1"),
        ("XADD k 11-1 a b", "11-1"),
        ("XTRIM k MAXLEN 5", "0"),
        ("XTRIM k MINID 10-1", "1"),
        ("XTRIM k MAXLEN = 1", "1"),
        ("XTRIM k MAXLEN 0", "1"),
        ("XTRIM none MAXLEN 0", "0"),
        // A node that the new entry stays in stays whole.
        ("XADD n 1-1 a b", "1-1"),
        ("XADD n 2-1 a b", "2-1"),
        ("XADD n 3-1 a b", "3-1"),
        ("XADD n MAXLEN ~ 1 4-1 a b", "4-1"),
        ("XADD n MINID ~ 5 5-1 a b", "5-1"),
        ("XLEN n", "5"),
        ("XTRIM n MINID ~ 5-1", "0"),
        ("XADD n MAXLEN ~ 0 6-1 a b", "6-1"),
        ("XLEN n", "0"),
        ("XTRIM k MAXLEN -1", "-ERR The MAXLEN argument must be >= 0."),
        ("XTRIM k MAXLEN x", "-ERR value is not an integer or out of range"),
        ("XTRIM k MINID x", "-ERR Invalid stream ID specified as stream command argument"),
        ("XTRIM k MAXLEN 1 LIMIT 5", "-ERR syntax error, LIMIT cannot be used without the special ~ option"),
        ("XTRIM k MAXLEN ~ 1 LIMIT -1", "-ERR The LIMIT argument must be >= 0."),
        ("XTRIM k LIMIT 5 MAXLEN", "-ERR syntax error"),
        ("XTRIM k FOO 5", "-ERR syntax error"),
        (
            "XADD k MAXLEN 5 MINID 4 12-1 a b",
            "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        ),
        (
            "XADD k LIMIT 5 12-1 a b",
            "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        ),
        ("XADD k MAXLEN -1 12-1 a b", "-ERR The MAXLEN argument must be >= 0."),
        (
            "XADD k MAXLEN 1 LIMIT 5 12-1 a b",
            "-ERR syntax error, LIMIT cannot be used without the special ~ option",
        ),
        ("XADD k MAXLEN", "-ERR wrong number of arguments for 'xadd' command"),
        ("XINFO STREAM none", "-ERR no such key"),
    ]);
}

#[test]
fn ranges() {
    run(&[
        ("XADD k 1-1 a 1", "1-1"),
        ("XADD k 1-2 a 2", "1-2"),
        ("XADD k 2-1 a 3", "2-1"),
        ("XADD k 3-5 a 4", "3-5"),
        ("XRANGE k - +", "[[1-1 [a 1]] [1-2 [a 2]] [2-1 [a 3]] [3-5 [a 4]]]"),
        ("XRANGE k 1 1", "[[1-1 [a 1]] [1-2 [a 2]]]"),
        ("XRANGE k 1-2 2", "[[1-2 [a 2]] [2-1 [a 3]]]"),
        ("XRANGE k (1-1 (3-5", "[[1-2 [a 2]] [2-1 [a 3]]]"),
        ("XRANGE k (1 +", "[[1-1 [a 1]] [1-2 [a 2]] [2-1 [a 3]] [3-5 [a 4]]]"),
        ("XRANGE k 2 1", "[]"),
        ("XRANGE k - + COUNT 1", "[[1-1 [a 1]]]"),
        ("XRANGE k - + COUNT 0", "nil"),
        ("XRANGE k - + COUNT -5", "nil"),
        ("XRANGE k - + COUNT x", "-ERR value is not an integer or out of range"),
        ("XRANGE k - + FOO 1", "-ERR syntax error"),
        ("XRANGE k - + COUNT", "-ERR syntax error"),
        ("XRANGE k (- +", "-ERR Invalid stream ID specified as stream command argument"),
        ("XRANGE k x +", "-ERR Invalid stream ID specified as stream command argument"),
        ("XRANGE k (18446744073709551615-18446744073709551615 +", "-ERR invalid start ID for the interval"),
        ("XRANGE k - (0-0", "-ERR invalid end ID for the interval"),
        ("XREVRANGE k + -", "[[3-5 [a 4]] [2-1 [a 3]] [1-2 [a 2]] [1-1 [a 1]]]"),
        ("XREVRANGE k 2 1-2", "[[2-1 [a 3]] [1-2 [a 2]]]"),
        ("XREVRANGE k (3-5 - COUNT 2", "[[2-1 [a 3]] [1-2 [a 2]]]"),
        ("XREVRANGE k - +", "[]"),
        ("XRANGE none - +", "[]"),
        ("XLEN k", "4"),
        ("XLEN none", "0"),
    ]);
}

/// A stream stays when its last entry is deleted.
#[test]
fn deleting() {
    run(&[
        ("XADD k 1-1 a b", "1-1"),
        ("XADD k 2-1 a b", "2-1"),
        ("XADD k 3-1 a b", "3-1"),
        ("XDEL k 2-1 2-1 9-9", "1"),
        ("XDEL k 1 1-1", "1"),
        ("XDEL k x", "-ERR Invalid stream ID specified as stream command argument"),
        ("XDEL none 1-1", "0"),
        ("XDEL k 3-1", "1"),
        ("XLEN k", "0"),
        ("EXISTS k", "1"),
        (
            "XADD k 3-1 a b",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        ("XADD k 4-1 a b", "4-1"),
        ("XSETID k 3-1", "-ERR The ID specified in XSETID is smaller than the target stream top item"),
        ("XSETID k 9-1", "+OK"),
        (
            "XADD k 9-1 a b",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        (
            "XSETID k 9-1 ENTRIESADDED 0",
            "-ERR The entries_added specified in XSETID is smaller than the target stream length",
        ),
        (
            "XSETID k 9-1 ENTRIESADDED 7 MAXDELETEDID 10-1",
            "-ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
        ),
        ("XSETID k 9-1 ENTRIESADDED 7 MAXDELETEDID 8-1", "+OK"),
        ("XSETID k 9-1 ENTRIESADDED -1", "-ERR entries_added must be positive"),
        ("XSETID k 9-1 FOO", "-ERR syntax error"),
        ("XSETID none 1-1", "-ERR no such key"),
        ("XINFO GROUPS k", "[]"),
    ]);
}

#[test]
fn reading() {
    run(&[
        ("XADD k 1-1 a 1", "1-1"),
        ("XADD k 2-1 a 2", "2-1"),
        ("XADD j 5-1 b 1", "5-1"),
        ("XREAD STREAMS k 0", "[[k [[1-1 [a 1]] [2-1 [a 2]]]]]"),
        ("XREAD COUNT 1 STREAMS k j 0 0", "[[k [[1-1 [a 1]]]] [j [[5-1 [b 1]]]]]"),
        ("XREAD STREAMS k j 2 4", "[[k [[2-1 [a 2]]]] [j [[5-1 [b 1]]]]]"),
        ("XREAD STREAMS k 2-1", "nil"),
        ("XREAD STREAMS k $", "nil"),
        ("XREAD STREAMS k +", "[[k [[2-1 [a 2]]]]]"),
        ("XREAD STREAMS none j + +", "[[j [[5-1 [b 1]]]]]"),
        ("XREAD BLOCK 1 STREAMS k $", "nil"),
        (
            "XREAD STREAMS k j 0",
            "-ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
        ),
        ("XREAD STREAMS k", "-ERR wrong number of arguments for 'xread' command"),
        ("XREAD STREAMS k x", "-ERR Invalid stream ID specified as stream command argument"),
        ("XREAD COUNT x STREAMS k 0", "-ERR value is not an integer or out of range"),
        ("XREAD COUNT 0 STREAMS k 1", "[[k [[1-1 [a 1]] [2-1 [a 2]]]]]"),
        ("XREAD COUNT -1 STREAMS k 1", "[[k [[1-1 [a 1]] [2-1 [a 2]]]]]"),
        ("XREAD BLOCK -1 STREAMS k 0", "-ERR timeout is negative"),
        ("XREAD BLOCK x STREAMS k 0", "-ERR timeout is not an integer or out of range"),
        (
            "XREAD STREAMS k >",
            "-ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        ),
        (
            "XREAD NOACK STREAMS k 0",
            "-ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        (
            "XREAD GROUP g c STREAMS k 0",
            "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        ("SET s x", "+OK"),
        ("XREAD STREAMS k s 0 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("HELLO 3", ""),
        ("XREAD STREAMS k j 1 0", "{k [[1-1 [a 1]] [2-1 [a 2]]] j [[5-1 [b 1]]]}"),
        ("XREAD STREAMS k $", "nil"),
    ]);
}

#[test]
fn groups() {
    run(&[
        (
            "XGROUP CREATE k g 0",
            "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
        ),
        ("XGROUP CREATE k g 0 MKSTREAM", "+OK"),
        ("XGROUP CREATE k g 0 MKSTREAM", "-BUSYGROUP Consumer Group name already exists"),
        ("XLEN k", "0"),
        ("XGROUP CREATE k h $ ENTRIESREAD 5", "+OK"),
        ("XGROUP CREATE k i x", "-ERR Invalid stream ID specified as stream command argument"),
        ("XGROUP CREATE k i 0 ENTRIESREAD -2", "-ERR value for ENTRIESREAD must be positive or -1"),
        (
            "XGROUP CREATE k i 0 FOO",
            "-ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.",
        ),
        ("XGROUP CREATECONSUMER k g ann", "1"),
        ("XGROUP CREATECONSUMER k g ann", "0"),
        ("XGROUP CREATECONSUMER k none ann", "-NOGROUP No such consumer group 'none' for key name 'k'"),
        ("XGROUP DELCONSUMER k g bob", "0"),
        ("XGROUP DELCONSUMER k none bob", "-NOGROUP No such consumer group 'none' for key name 'k'"),
        ("XADD k 1-1 a b", "1-1"),
        ("XREADGROUP GROUP g ann STREAMS k >", "[[k [[1-1 [a b]]]]]"),
        ("XGROUP SETID k g 0", "+OK"),
        ("XGROUP SETID k g 1-1 ENTRIESREAD 1", "+OK"),
        ("XGROUP SETID k none 0", "-NOGROUP No such consumer group 'none' for key name 'k'"),
        (
            "XGROUP SETID none g 0",
            "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
        ),
        ("XGROUP DELCONSUMER k g ann", "1"),
        ("XGROUP DESTROY k g", "1"),
        ("XGROUP DESTROY k g", "0"),
        (
            "XGROUP DESTROY none g",
            "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
        ),
        ("XGROUP FOO k g", "-ERR unknown subcommand 'FOO'. Try XGROUP HELP."),
        (
            "XREADGROUP GROUP g ann STREAMS k >",
            "-NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        (
            "XREADGROUP GROUP h ann STREAMS none >",
            "-NOGROUP No such key 'none' or consumer group 'h' in XREADGROUP with GROUP option",
        ),
        (
            "XREADGROUP GROUP h ann STREAMS k $",
            "-ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
        ),
        (
            "XREADGROUP GROUP h ann STREAMS k +",
            "-ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would just return an empty result set.",
        ),
        ("XREADGROUP STREAMS k >", "-ERR wrong number of arguments for 'xreadgroup' command"),
        ("XREADGROUP GROUP h ann STREAMS k", "-ERR wrong number of arguments for 'xreadgroup' command"),
        ("XACK k g 1-1", "0"),
        ("XACK k h x", "-ERR Invalid stream ID specified as stream command argument"),
        ("XPENDING k g", "-NOGROUP No such key 'k' or consumer group 'g'"),
        ("XPENDING k h", "[0 nil nil nil]"),
        ("XCLAIM k g ann 0 1-1", "-NOGROUP No such key 'k' or consumer group 'g'"),
        ("XAUTOCLAIM k g ann 0 0", "-NOGROUP No such key 'k' or consumer group 'g'"),
        ("XINFO CONSUMERS k g", "-NOGROUP No such consumer group 'g' for key name 'k'"),
        ("XINFO CONSUMERS none g", "-ERR no such key"),
        ("XINFO GROUPS none", "-ERR no such key"),
        ("XINFO FOO k", "-ERR unknown subcommand 'FOO'. Try XINFO HELP."),
    ]);
}

/// What is delivered belongs to its consumer until it is acknowledged.
#[test]
fn delivered_entries() {
    run(&[
        ("XADD k 1-1 a 1", "1-1"),
        ("XADD k 2-1 a 2", "2-1"),
        ("XADD k 3-1 a 3", "3-1"),
        ("XADD k 4-1 a 4", "4-1"),
        ("XGROUP CREATE k g 0", "+OK"),
        ("XREADGROUP GROUP g ann COUNT 2 STREAMS k >", "[[k [[1-1 [a 1]] [2-1 [a 2]]]]]"),
        ("XREADGROUP GROUP g bob COUNT 1 STREAMS k >", "[[k [[3-1 [a 3]]]]]"),
        ("XPENDING k g", "[3 1-1 3-1 [[ann 2] [bob 1]]]"),
        ("XREADGROUP GROUP g ann STREAMS k 0", "[[k [[1-1 [a 1]] [2-1 [a 2]]]]]"),
        ("XREADGROUP GROUP g ann STREAMS k 1-1", "[[k [[2-1 [a 2]]]]]"),
        ("XREADGROUP GROUP g cid STREAMS k 0", "[[k []]]"),
        ("XREADGROUP GROUP g cid NOACK STREAMS k >", "[[k [[4-1 [a 4]]]]]"),
        ("XREADGROUP GROUP g cid STREAMS k >", "nil"),
        ("XDEL k 2-1", "1"),
        ("XREADGROUP GROUP g ann STREAMS k 0", "[[k [[1-1 [a 1]] [2-1 nil]]]]"),
        ("XPENDING k g - + 10 cid", "[]"),
        ("XPENDING k g IDLE 10000000 - + 10", "[]"),
        ("XPENDING k g - +", "-ERR syntax error"),
        ("XPENDING k g IDLE x - + 10", "-ERR value is not an integer or out of range"),
        ("XACK k g 1-1 1-1 4-1", "1"),
        ("XACK k none 1-1", "0"),
        ("XPENDING k g", "[2 2-1 3-1 [[ann 1] [bob 1]]]"),
        ("XACK k g 2-1 3-1", "2"),
        ("XPENDING k g", "[0 nil nil nil]"),
    ]);
}

#[test]
fn claims() {
    run(&[
        ("XADD k 1-1 a 1", "1-1"),
        ("XADD k 2-1 a 2", "2-1"),
        ("XADD k 3-1 a 3", "3-1"),
        ("XADD k 4-1 a 4", "4-1"),
        ("XGROUP CREATE k g 0", "+OK"),
        ("XREADGROUP GROUP g ann COUNT 3 STREAMS k >", "[[k [[1-1 [a 1]] [2-1 [a 2]] [3-1 [a 3]]]]]"),
        ("XCLAIM k g bob 10000000 1-1 2-1", "[]"),
        ("XCLAIM k g bob 0 1-1 4-1", "[[1-1 [a 1]]]"),
        ("XCLAIM k g bob 0 4-1 FORCE JUSTID", "[4-1]"),
        ("XCLAIM k g bob 0 1-1 IDLE 20000000 RETRYCOUNT 7 JUSTID", "[1-1]"),
        ("XCLAIM k g cid 10000000 1-1 2-1", "[[1-1 [a 1]]]"),
        ("XCLAIM k g bob 0 1-1 LASTID 9-1 JUSTID", "[1-1]"),
        ("XCLAIM k g bob x 1-1", "-ERR Invalid min-idle-time argument for XCLAIM"),
        ("XCLAIM k g bob 0 x", "-ERR Unrecognized XCLAIM option 'x'"),
        ("XCLAIM k g bob 0 1-1 IDLE x", "-ERR Invalid IDLE option argument for XCLAIM"),
        ("XCLAIM k g bob 0 1-1 FOO", "-ERR Unrecognized XCLAIM option 'FOO'"),
        ("XINFO GROUPS k", "[[name g consumers 3 pending 4 last-delivered-id 9-1 entries-read 3 lag 1]]"),
        ("XDEL k 2-1", "1"),
        ("XCLAIM k g bob 0 2-1", "[]"),
        ("XPENDING k g", "[3 1-1 4-1 [[ann 1] [bob 2]]]"),
        ("XDEL k 3-1", "1"),
        ("XAUTOCLAIM k g cid 0 0 COUNT 1", "[3-1 [[1-1 [a 1]]] []]"),
        ("XAUTOCLAIM k g cid 0 1-2", "[0-0 [[4-1 [a 4]]] [3-1]]"),
        ("XAUTOCLAIM k g cid 0 - JUSTID", "[0-0 [1-1 4-1] []]"),
        ("XAUTOCLAIM k g cid 10000000 0", "[0-0 [] []]"),
        ("XAUTOCLAIM k g cid 0 (1-1 JUSTID", "[0-0 [4-1] []]"),
        ("XAUTOCLAIM k g cid 0 0 COUNT 0", "-ERR COUNT must be > 0"),
        ("XAUTOCLAIM k g cid 0 x", "-ERR Invalid stream ID specified as stream command argument"),
        ("XAUTOCLAIM k g cid x 0", "-ERR Invalid min-idle-time argument for XAUTOCLAIM"),
        ("XAUTOCLAIM k none cid 0 0", "-NOGROUP No such key 'k' or consumer group 'none'"),
        ("XPENDING k g", "[2 1-1 4-1 [[cid 2]]]"),
    ]);
}

/// Of 8.2: references of groups keep, go, or decide.
#[test]
fn references() {
    run(&[
        ("XADD k 1-1 a 1", "1-1"),
        ("XADD k 2-1 a 2", "2-1"),
        ("XADD k 3-1 a 3", "3-1"),
        ("XADD k 4-1 a 4", "4-1"),
        ("XGROUP CREATE k g 0", "+OK"),
        ("XGROUP CREATE k h 0", "+OK"),
        ("XREADGROUP GROUP g ann STREAMS k >", "[[k [[1-1 [a 1]] [2-1 [a 2]] [3-1 [a 3]] [4-1 [a 4]]]]]"),
        ("XREADGROUP GROUP h ann COUNT 2 STREAMS k >", "[[k [[1-1 [a 1]] [2-1 [a 2]]]]]"),
        ("XDELEX k IDS 2 1-1 9-9", "[1 -1]"),
        ("XPENDING k g", "[4 1-1 4-1 [[ann 4]]]"),
        ("XDELEX k DELREF IDS 1 1-1", "[-1]"),
        ("XPENDING k g", "[3 2-1 4-1 [[ann 3]]]"),
        ("XDELEX k ACKED IDS 2 2-1 3-1", "[2 2]"),
        ("XACKDEL k g ACKED IDS 2 2-1 3-1", "[2 2]"),
        ("XACKDEL k h ACKED IDS 1 2-1", "[1]"),
        ("XACKDEL k g DELREF IDS 1 4-1", "[1]"),
        ("XACKDEL k g IDS 1 4-1", "[-1]"),
        ("XACKDEL k none IDS 1 4-1", "[-1]"),
        ("XDELEX none IDS 2 1-1 2-1", "[-1 -1]"),
        ("XDELEX k IDS 2 1-1", "-ERR The `numids` parameter must match the number of arguments"),
        ("XDELEX k IDS 0", "-ERR wrong number of arguments for 'xdelex' command"),
        ("XDELEX k IDS x 1-1", "-ERR Number of IDs must be a positive integer"),
        ("XDELEX k FOO IDS 1 1-1", "-ERR syntax error"),
        ("XDELEX k KEEPREF DELREF IDS 1 1-1", "-ERR syntax error"),
        ("XLEN k", "1"),
        ("XADD k 5-1 a 5", "5-1"),
        ("XREADGROUP GROUP g ann STREAMS k >", "[[k [[5-1 [a 5]]]]]"),
        ("XADD k ACKED MAXLEN 1 6-1 a 6", "6-1"),
        ("XLEN k", "3"),
        ("XTRIM k MAXLEN 0 DELREF", "3"),
        ("XPENDING k g", "[0 nil nil nil]"),
        ("XADD k KEEPREF DELREF 7-1 a b", "-ERR Invalid stream ID specified as stream command argument"),
    ]);
}

/// The server's clock makes ids that grow, also within a millisecond and when it is behind the last id.
#[test]
fn ids_that_the_server_makes() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    let time = |client: &mut support::resp::Client| {
        let reply = client.line("TIME");
        let part = |n: usize| text(reply.items().unwrap()[n].bytes().unwrap()).parse::<u64>().unwrap();
        part(0) * 1000 + part(1) / 1000
    };
    let began = time(&mut client);
    let mut last = (0, 0);
    for n in 0..500 {
        let id = shown(&client.line(&format!("XADD k * n {n}")));
        let (ms, seq) = id.split_once('-').unwrap();
        let id: (u64, u64) = (ms.parse().unwrap(), seq.parse().unwrap());
        assert!(id > last && id.0 >= began && id.0 <= time(&mut client), "{id:?} after {last:?}");
        last = id;
    }
    let ahead = last.0 + 3_600_000;
    assert_eq!(shown(&client.line(&format!("XADD k {ahead}-7 a b"))), format!("{ahead}-7"));
    assert_eq!(shown(&client.line("XADD k * a b")), format!("{ahead}-8"));
    assert_eq!(shown(&client.line("XADD k MAXLEN 1 * a b")), format!("{ahead}-9"));
    assert_eq!(shown(&client.line("XLEN k")), "1");
}

/// Any bytes are fields and values, also none.
#[test]
fn fields_are_any_bytes() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    let every: Vec<u8> = (0..=255).collect();
    let long = vec![7; 100_000];
    let fields: [&[u8]; 6] = [b"", b"", &every, &long, &every, &every];
    let argv = [&[b"XADD".as_slice(), b"k", b"1-1"], &fields[..]].concat();
    assert_eq!(shown(&client.run(&argv).value), "1-1");
    let wanted = Value::Array(fields.iter().map(|field| Value::Bulk(field.to_vec())).collect());
    let wanted = Value::Array(vec![Value::Bulk(b"1-1".to_vec()), wanted]);
    for line in ["XRANGE k - +", "XREVRANGE k + -", "XRANGE k 1-1 1-1 COUNT 1"] {
        assert_eq!(client.line(line), Value::Array(vec![wanted.clone()]), "{line}");
    }
    assert_eq!(shown(&client.line("XDEL k 1-1")), "1");
    assert_eq!(shown(&client.line("XRANGE k - +")), "[]");
}
