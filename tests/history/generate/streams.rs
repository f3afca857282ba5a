//! The commands of clients of streams: each has one group, whose consumers are the clients.

use crate::support::rng::Rng;

/// Entries are named up to this one.
const ENTRIES: usize = 24;

/// Gives a stream its group.
pub fn begin(key: &str) -> String {
    format!("XGROUP CREATE {key} g 0 MKSTREAM")
}

/// Commands on the streams f0 and f1.
pub fn command(rng: &mut Rng, fresh: &str) -> String {
    let (key, other) = if rng.below(4) > 0 { ("f0", "f1") } else { ("f1", "f0") };
    let who = rng.below(3);
    let id = format!("0-{}", 1 + rng.below(ENTRIES));
    match rng.below(40) {
        0..=7 => format!("XADD {key} 0-* f {fresh}"),
        8 | 9 => format!("XADD {key} MAXLEN 3 0-* f {fresh}"),
        10..=16 => format!("XREADGROUP GROUP g c{who} COUNT {} STREAMS {key} >", 1 + rng.below(2)),
        17 => format!("XREADGROUP GROUP g c{who} COUNT 1 NOACK STREAMS {key} >"),
        18..=23 => format!("XACK {key} g {id}"),
        24 | 25 => format!("XDEL {key} {id}"),
        26..=29 => format!("XPENDING {key} g"),
        30 => format!("XLEN {key}"),
        31 | 32 => format!("XRANGE {key} - +"),
        33 | 34 => format!("XREAD STREAMS {key} {id}"),
        35 => format!("XCLAIM {key} g c{who} 0 {id} JUSTID"),
        36 => format!("XTRIM {key} MAXLEN 2"),
        37 => begin(key),
        38 => match rng.below(4) {
            0 => format!("DEL {key}"),
            1 => format!("RENAME {key} {other}"),
            _ => format!("COPY {key} {other} REPLACE"),
        },
        _ => format!("XREAD STREAMS {key} 0-0"),
    }
}
