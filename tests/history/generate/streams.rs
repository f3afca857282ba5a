//! The commands of clients of streams: each has two groups, whose consumers are the clients.

use crate::support::rng::Rng;

/// Entries are named up to this one.
const ENTRIES: usize = 24;
/// How long entries must have been pending to be claimed, in milliseconds: any time, a few steps of the clock, too long.
const IDLE: [&str; 4] = ["0", "0", "4", "600000"];

/// Gives a stream a group.
pub fn begin(key: &str, group: &str) -> String {
    format!("XGROUP CREATE {key} {group} 0 MKSTREAM")
}

/// Commands on the streams f0 and f1.
pub fn command(rng: &mut Rng, fresh: &str) -> String {
    let (key, other) = if rng.below(4) > 0 { ("f0", "f1") } else { ("f1", "f0") };
    let group = if rng.below(4) > 0 { "g" } else { "h" };
    let who = rng.below(3);
    let id = format!("0-{}", 1 + rng.below(ENTRIES));
    let policy = rng.pick(&["KEEPREF", "DELREF", "ACKED", "ACKED"]);
    match rng.below(60) {
        0..=8 => format!("XADD {key} 0-* f {fresh}"),
        9 => format!("XADD {key} MAXLEN 3 0-* f {fresh}"),
        10 | 11 => format!("XADD {key} {policy} MAXLEN 3 0-* f {fresh}"),
        12..=19 => format!("XREADGROUP GROUP {group} c{who} COUNT {} STREAMS {key} >", 1 + rng.below(2)),
        20 => format!("XREADGROUP GROUP {group} c{who} COUNT 1 NOACK STREAMS {key} >"),
        21 => format!("XREADGROUP GROUP {group} c{who} STREAMS {key} 0"),
        22..=25 => {
            let (most, idle) = (rng.pick(&["1", "2", "99"]), rng.pick(&IDLE));
            format!("XREADGROUP GROUP {group} c{who} COUNT {most} CLAIM {idle} STREAMS {key} >")
        }
        26..=31 => format!("XACK {key} {group} {id}"),
        32 | 33 => format!("XACKDEL {key} {group} {policy} IDS 1 {id}"),
        34 => format!("XDELEX {key} {policy} IDS 1 {id}"),
        35 | 36 => format!("XDEL {key} {id}"),
        37..=40 => format!("XPENDING {key} {group}"),
        41 | 42 => format!("XPENDING {key} {group} - + 99"),
        43 => format!("XLEN {key}"),
        44 | 45 => format!("XRANGE {key} - +"),
        46 | 47 => format!("XREAD STREAMS {key} {id}"),
        48 | 49 => claim(rng, &format!("XCLAIM {key} {group} c{who}"), &id),
        50 => {
            let (idle, most) = (rng.pick(&["0", "600000"]), 1 + rng.below(3));
            let just_id = rng.pick(&["", " JUSTID"]);
            format!("XAUTOCLAIM {key} {group} c{who} {idle} {id} COUNT {most}{just_id}")
        }
        51 => format!("XAUTOCLAIM {key} {group} c{who} 0 0-0 COUNT 99"),
        52 => format!("XGROUP DELCONSUMER {key} {group} c{who}"),
        53 => format!("XGROUP CREATECONSUMER {key} {group} c{who}"),
        54 => format!("XTRIM {key} MAXLEN 2"),
        55 => format!("XTRIM {key} MAXLEN 2 {policy}"),
        56 => begin(key, group),
        57 => match rng.below(4) {
            0 => format!("DEL {key}"),
            1 => format!("RENAME {key} {other}"),
            2 => format!("XGROUP DESTROY {key} {group}"),
            _ => format!("COPY {key} {other} REPLACE"),
        },
        _ => format!("XREAD STREAMS {key} 0-0"),
    }
}

fn claim(rng: &mut Rng, line: &str, id: &str) -> String {
    let options = rng.pick(&["", " JUSTID", " JUSTID", " FORCE", " IDLE 5", " IDLE 5 FORCE JUSTID"]);
    format!("{line} {} {id}{options}", rng.pick(&["0", "0", "600000"]))
}
