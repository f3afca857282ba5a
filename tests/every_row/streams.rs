//! Requests for the rows of streams. `stream` has as many entries as the other values have elements, all of them pending in
//! its group `group` for the consumer `somebody`.

use crate::by_hand::{Made, each_many, lines};
use crate::script::{Arg, Call, Script, call};
use crate::world::Scale;

const WAITS: &str = "it would wait for as long as its argument says";

/// As `BY_HAND_ALONE`.
pub const ALONE: &[(&str, &str)] = &[("xread", WAITS), ("xreadgroup", WAITS)];

/// As `BY_HAND`.
pub const BY_HAND: &[(&str, Made)] = &[
    ("xadd", |w| {
        let mut all = each_many(w.scale, "XADD stream *", &["field:{} value:{}"]);
        all.extend(each_many(w.scale, "XADD made NOMKSTREAM 1-1", &["field:{} value:{}"]));
        all.extend(lines(&[
            "XADD stream MAXLEN = 1 * field value",
            "XADD stream MINID ~ 99999999999999 LIMIT 1000000 * field value",
            "XADD stream MAXLEN 100 KEEPREF * field value",
        ]));
        all
    }),
    ("xrange", |_| {
        lines(&["XRANGE stream - +", "XRANGE stream 30000 30010", "XRANGE stream - + COUNT 50000"])
    }),
    ("xrevrange", |_| lines(&["XREVRANGE stream + -", "XREVRANGE stream + - COUNT 9223372036854775807"])),
    ("xdel", |w| each_many(w.scale, "XDEL stream", &["{}", "{}-7", "1"])),
    ("xtrim", |_| {
        lines(&[
            "XTRIM stream MAXLEN 0",
            "XTRIM stream MAXLEN 30000",
            "XTRIM stream MINID ~ 50000 LIMIT 10000",
        ])
    }),
    ("xread", |w| {
        let keys = |n: usize| Arg::Times(0, n, vec!["absent{}".into()]);
        let ids = |n: usize| Arg::Times(0, n, vec!["0".into()]);
        let n = w.scale.many / 2;
        let mut all = lines(&[
            "XREAD STREAMS stream 0",
            "XREAD COUNT 50000 BLOCK 10 STREAMS stream absent 0 0",
            "XREAD BLOCK 10 STREAMS absent $",
        ]);
        all.push(Script::one(call("XREAD BLOCK 10 STREAMS", [keys(n), ids(n)])));
        all
    }),
    ("xreadgroup", |_| {
        lines(&[
            "XREADGROUP GROUP group somebody STREAMS stream 0",
            "XREADGROUP GROUP group other COUNT 50000 BLOCK 10 STREAMS stream >",
            "XREADGROUP GROUP group other NOACK STREAMS stream >",
        ])
    }),
    ("xack", |w| each_many(w.scale, "XACK stream group", &["{}", "{}-7", "1"])),
    ("xclaim", |w| {
        each_many(w.scale, "XCLAIM stream group other 0", &["{}", "{}-7"])
            .into_iter()
            .chain(lines(&["XCLAIM stream group other 0 1 2 3 FORCE JUSTID"]))
            .collect()
    }),
    ("xautoclaim", |_| {
        lines(&[
            "XAUTOCLAIM stream group other 0 0 COUNT 50000",
            "XAUTOCLAIM stream group other 9999999 0 COUNT 50000 JUSTID",
            "XAUTOCLAIM stream group other 0 30000",
        ])
    }),
    ("xpending", |_| {
        lines(&[
            "XPENDING stream group",
            "XPENDING stream group - + 9223372036854775807",
            "XPENDING stream group IDLE 9999999 - + 10",
            "XPENDING stream group - + 50000 somebody",
        ])
    }),
    ("xinfo|stream", |_| {
        lines(&["XINFO STREAM stream", "XINFO STREAM stream FULL", "XINFO STREAM stream FULL COUNT 0"])
    }),
    ("xinfo|groups", |_| lines(&["XINFO GROUPS stream"])),
    ("xinfo|consumers", |_| lines(&["XINFO CONSUMERS stream group"])),
    ("xgroup|destroy", |_| lines(&["XGROUP DESTROY stream group"])),
    ("xgroup|delconsumer", |_| lines(&["XGROUP DELCONSUMER stream group somebody"])),
    ("xdelex", |w| ids_counted(w.scale, "XDELEX stream DELREF")),
    ("xackdel", |w| ids_counted(w.scale, "XACKDEL stream group ACKED")),
];

/// As many ids as possible, behind their number.
fn ids_counted(scale: Scale, line: &str) -> Vec<Script> {
    let n = scale.many;
    let ids = |word: &str| Arg::Times(0, n, vec![word.to_owned()]);
    ["{}", "{}-7"].iter().map(|word| Script::one(call(&format!("{line} IDS {n}"), [ids(word)]))).collect()
}

/// The commands that make the stream, of this many entries.
pub fn made(entries: usize) -> Vec<Call> {
    const STEP: usize = 5000;
    let add = "for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('xadd', KEYS[1], i, 'field', 'value:' .. i) end";
    let mut calls = vec![call("XGROUP CREATE stream group 0 MKSTREAM", [])];
    for from in (1..=entries).step_by(STEP) {
        let bounds = [from, (from + STEP - 1).min(entries)].map(|n| Arg::Word(n.to_string()));
        calls.push(call("EVAL", [Arg::Word(add.into())].into_iter().chain(call("1 stream", bounds))));
        calls.push(call(&format!("XREADGROUP GROUP group somebody COUNT {STEP} STREAMS stream >"), []));
    }
    calls
}
