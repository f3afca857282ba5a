//! Random arguments of the kinds that templates name.

use crate::generate::Argv;
use crate::large;
use crate::support::rng::Rng;
use crate::words::{DIGESTS, GLOBS, HOSTILE, KEYS, LISTED, MEMBERS, PAYLOADS, VALUES, WORDS};

/// Appends one argument of a kind.
pub fn argument(rng: &mut Rng, kind: u8, argv: &mut Argv) {
    let fixed = |rng: &mut Rng, list: &[&[u8]]| rng.pick(list).to_vec();
    let arg = match kind {
        b'k' if rng.one_in(300) => vec![b'k'; 3000],
        b'k' => fixed(rng, KEYS),
        b'h' => fixed(rng, &[b"h1", b"h2", b"h3"]),
        b'q' | b'l' | b'z' if rng.one_in(6) => fixed(rng, KEYS),
        b'q' => fixed(rng, &[b"hash1", b"hash2", b"hash3", b"a"]),
        b'l' => fixed(rng, &[b"list1", b"list2", b"list3", b"a"]),
        b'z' => fixed(rng, &[b"zset1", b"zset2", b"zset3", b"a"]),
        b'a' => weight(rng),
        b'Z' => fixed(rng, &[b"names1", b"names2"]),
        b'r' => score(rng),
        b'Q' if rng.one_in(3) => [b"(".to_vec(), end(rng)].concat(),
        b'Q' => end(rng),
        b'X' => name(rng),
        b'W' => return many_entries(rng, argv),
        b'G' | b'U' | b'J' | b'C' | b'O' | b'E' => return of_places(rng, kind, argv),
        b'A' | b'F' => crate::scripts::argument(rng, kind),
        b'T' | b'I' | b'0'..=b'9' => crate::streams::argument(rng, kind),
        b'v' if rng.one_in(8) => number(rng),
        b'v' => fixed(rng, VALUES),
        b'm' if rng.one_in(4) => rng.below(40).to_string().into_bytes(),
        b'm' => fixed(rng, MEMBERS),
        b'V' => large(rng),
        b'B' | b'H' | b'R' => return many(rng, kind, argv),
        b'K' => fixed(rng, large::KEYS),
        b'M' => large::member(rng.below(large::UNIVERSE)),
        b'N' => fixed(rng, &[b"1", b"500", b"3000", b"20000", b"100000"]),
        b'y' => fixed(rng, DIGESTS),
        b'i' | b'f' if rng.one_in(8) => fixed(rng, HOSTILE),
        b'i' => number(rng),
        b'f' => float(rng),
        b'n' => small(rng),
        b'o' => offset(rng),
        b's' | b'p' | b'S' | b'P' => expiry(rng, kind),
        b'd' if rng.one_in(10) => fixed(rng, &[b"15", b"16", b"-1", b"abc", b"", b"0x1", b"99999999999"]),
        b'd' => rng.below(3).to_string().into_bytes(),
        b'b' => bit_offset(rng),
        b'x' if rng.one_in(3) => format!("#{}", rng.below(20)).into_bytes(),
        b'x' => bit_offset(rng),
        b'j' if rng.one_in(20) => fixed(rng, HOSTILE),
        b'j' => rng.below(2).to_string().into_bytes(),
        b'e' if rng.one_in(20) => {
            fixed(rng, &[b"u64", b"i65", b"i0", b"I8", b"8", b"", b"u", b"i+1", b"u8\x00x"])
        }
        b'e' => fixed(rng, &[b"i8", b"u8", b"i64", b"u63", b"u1", b"i1", b"i5", b"u17", b"i33", b"u32"]),
        b'c' => fixed(rng, &[b"abc", b"", b"-1", b"1.5", b"99999999999999999999999", b"0 ", b" 0"]),
        b'g' => fixed(rng, GLOBS),
        b't' => fixed(rng, &[b"string", b"set", b"SET", b"hash", b"list", b"zset", b"stream", b"nosuch"]),
        b'L' => fixed(rng, LISTED),
        b'D' => fixed(rng, PAYLOADS),
        b'u' => fixed(
            rng,
            &[
                b"NOSUCH",
                b"nosuch\x00command",
                b"",
                b"get\r\n",
                b"S",
                b"SETT",
                b"a command with spaces in its name that is long",
            ],
        ),
        b'w' => fixed(rng, WORDS),
        kind => unreachable!("template kind {}", char::from(kind)),
    };
    argv.push(arg);
}

fn many(rng: &mut Rng, kind: u8, argv: &mut Argv) {
    match kind {
        b'B' => many_members(rng, argv),
        b'H' => many_fields(rng, argv),
        _ => argv.extend(large::many(rng)),
    }
}

fn number(rng: &mut Rng) -> Vec<u8> {
    let n = rng.next() as i64;
    let n = [n, n % 1000, n % 1_000_000, n % 10, i64::MAX - (n & 3), i64::MIN + (n & 3)][rng.below(6)];
    n.to_string().into_bytes()
}

fn float(rng: &mut Rng) -> Vec<u8> {
    let n = rng.next() as i64;
    let text = match rng.below(9) {
        0 => format!("{}.{}", n % 1000, rng.below(1000)),
        1 => format!("{}e{}", n % 100, rng.below(20)),
        2 => format!("{}e-{}", n % 100, rng.below(20)),
        3 => format!("0.{}", rng.below(10)),
        4 => (n % 100).to_string(),
        5 => format!("{:.17}", (n as f64) / 1e18),
        6 => format!("-{}.5", rng.below(10)),
        7 => n.to_string(),
        _ => ["1e400", "-1e400", "5e-324", "1e308", ".5", "5.", "1e", "0x1p3", "infinity", "1e17", "1e-17"]
            [rng.below(11)]
        .into(),
    };
    text.into_bytes()
}

fn weight(rng: &mut Rng) -> Vec<u8> {
    let usual: &[&[u8]] = &[b"1", b"2", b"-1", b"0.5", b"0", b"3"];
    if rng.one_in(12) { score(rng) } else { rng.pick(usual).to_vec() }
}

/// Not one that is out of range, after which 7.0 refuses to SORT: see "SORT fails for its own numbers only".
fn score(rng: &mut Rng) -> Vec<u8> {
    match rng.below(16) {
        0 => match float(rng) {
            text if [b"1e400" as &[u8], b"-1e400", b"5e-324"].contains(&text.as_slice()) => b"0.5".to_vec(),
            text => text,
        },
        1 => number(rng),
        2 => rng.pick(HOSTILE).to_vec(),
        3 => {
            let odd: &[&[u8]] = &[b"inf", b"-inf", b"+inf", b"nan", b"-0", b"0x10", b"+3"];
            rng.pick(odd).to_vec()
        }
        4..8 => format!("{}.{}", rng.below(4), [5, 25, 1][rng.below(3)]).into_bytes(),
        _ => (rng.below(12) as i64 - 4).to_string().into_bytes(),
    }
}

/// An end of a range of scores that all versions of Redis read in the same way.
fn end(rng: &mut Rng) -> Vec<u8> {
    match rng.below(10) {
        0 => rng.pick(&[b"inf" as &[u8], b"-inf", b"+inf", b"nan", b"abc", b"-0", b"1 "]).to_vec(),
        1..4 => format!("{}.{}", rng.below(4), [5, 25, 1][rng.below(3)]).into_bytes(),
        _ => (rng.below(12) as i64 - 4).to_string().into_bytes(),
    }
}

/// The arguments of GEO.
fn of_places(rng: &mut Rng, kind: u8, argv: &mut Argv) {
    let keys: &[&[u8]] = &[b"geo1", b"geo1", b"geo1", b"geo2", b"geo2", b"geo3", b"h1"];
    match kind {
        b'G' => argv.push(rng.pick(keys).to_vec()),
        b'U' => argv.push(format!("place{}", rng.below(PLACES)).into_bytes()),
        b'J' => place(rng, argv),
        b'C' => center(rng, argv),
        b'O' => lengths(rng, 1, argv),
        _ => lengths(rng, 2, argv),
    }
}

/// Members with places.
const PLACES: usize = 80;

/// A longitude, a latitude, and the member that alone is there: equal distances have no order.
fn place(rng: &mut Rng, argv: &mut Argv) {
    let (n, moved) = (rng.below(PLACES), rng.below(2));
    let (x, y) = ((n * 7919 + moved * 13) as f64, (n * 104_729 + moved * 17) as f64);
    let (longitude, latitude) = match n {
        0..40 => (10.0 + x % 997.0 / 100.0, 40.0 + y % 991.0 / 100.0),
        40..60 => (x * 1.7 % 359.0 - 179.5, y * 1.3 % 169.0 - 84.5),
        60..64 => ([180.0, -180.0, 179.9999, -179.9999][n % 4], y % 997.0 / 100.0),
        64..68 => (x % 997.0 / 10.0, [85.051_128_78, -85.051_128_78, 84.9, -84.9][n % 4]),
        _ => (x % 97.0 / 100_000.0, y % 89.0 / 100_000.0),
    };
    argv.extend([longitude.to_string(), latitude.to_string()].map(String::into_bytes));
    argv.push(format!("place{n}").into_bytes());
}

fn center(rng: &mut Rng, argv: &mut Argv) {
    let (x, y) = (rng.below(100_000) as f64, rng.below(100_000) as f64);
    let (longitude, latitude) = match rng.below(8) {
        0 => (180.0 - x / 10_000.0, y / 10_000.0),
        1 => (x / 1000.0 - 180.0, 80.0 + y / 20_000.0),
        2 => (x / 300.0 - 170.0, y / 600.0 - 83.0),
        3 => (x / 1e9, y / 1e9),
        4 if rng.one_in(4) => (181.0, 3.0),
        _ => (10.0 + x / 10_000.0, 40.0 + y / 10_000.0),
    };
    argv.extend([longitude.to_string(), latitude.to_string()].map(String::into_bytes));
}

/// So many lengths, and their unit.
fn lengths(rng: &mut Rng, times: usize, argv: &mut Argv) {
    for _ in 0..times {
        let odd: &[&[u8]] = &[b"-1", b"x", b"nan", b"0", b"0x10", b"1e3"];
        argv.push(match rng.below(10) {
            0 => rng.pick(odd).to_vec(),
            n => format!("{}.5", rng.below(10usize.pow(n as u32 / 2 + 1))).into_bytes(),
        });
    }
    argv.push(rng.pick(&[b"m" as &[u8], b"km", b"km", b"KM", b"ft", b"mi"]).to_vec());
}

/// An end of a range of names.
fn name(rng: &mut Rng) -> Vec<u8> {
    match rng.below(8) {
        0 => b"-".to_vec(),
        1 => b"+".to_vec(),
        2 => rng.pick(MEMBERS).to_vec(),
        n => [if n % 2 == 0 { b"[" as &[u8] } else { b"(" }, rng.pick(MEMBERS)].concat(),
    }
}

fn many_entries(rng: &mut Rng, argv: &mut Argv) {
    let mut members = Argv::new();
    many_members(rng, &mut members);
    let of = 1 + rng.below(50);
    let entry = |(n, member): (usize, Vec<u8>)| [(n % of).to_string().into_bytes(), member];
    argv.extend(members.into_iter().enumerate().flat_map(entry));
}

fn small(rng: &mut Rng) -> Vec<u8> {
    if rng.one_in(8) {
        return rng.pick(HOSTILE).to_vec();
    }
    (rng.below(12) as i64 - 2).to_string().into_bytes()
}

fn offset(rng: &mut Rng) -> Vec<u8> {
    match rng.below(12) {
        0 => rng.pick(&[b"abc" as &[u8], b"", b"1.5", b"99999999999999999999"]).to_vec(),
        1 => rng
            .pick(&[b"536870912" as &[u8], b"4294967296", b"9223372036854775807", b"-9223372036854775808"])
            .to_vec(),
        2 => rng.below(40_000).to_string().into_bytes(),
        _ => (rng.below(30) as i64 - 10).to_string().into_bytes(),
    }
}

/// Occasionally large enough for a string of several pieces. (The last possible bit would make both hold 512
/// MB.)
fn bit_offset(rng: &mut Rng) -> Vec<u8> {
    match rng.below(24) {
        0 => rng
            .pick(&[b"abc" as &[u8], b"", b"-1", b"#1", b"1.5", b"4294967296", b"9223372036854775807"])
            .to_vec(),
        1 => rng.below(1_000_000).to_string().into_bytes(),
        _ => rng.below(120).to_string().into_bytes(),
    }
}

/// Far in the future or in the past, in seconds or milliseconds, relative or absolute. No two are close to
/// each other.
fn expiry(rng: &mut Rng, kind: u8) -> Vec<u8> {
    if rng.one_in(5) {
        let hostile: &[&[u8]] = &[
            b"0",
            b"-1",
            b"-1000",
            b"abc",
            b"",
            b"1.5",
            b"9223372036854775807",
            b"-9223372036854775808",
            b"9223372036854775",
            b"9223372036854775808",
            b"-9223372036854775",
        ];
        return rng.pick(hostile).to_vec();
    }
    let seconds = 10_000 + rng.below(100_000_000);
    let past = rng.one_in(6);
    let n = match kind {
        b's' => seconds,
        b'p' => seconds * 1000 + rng.below(1000),
        b'S' if past => 1_000_000_000,
        b'P' if past => 1_000_000_000_000,
        b'S' => 4_000_000_000 + seconds,
        _ => (4_000_000_000 + seconds) * 1000 + rng.below(1000),
    };
    n.to_string().into_bytes()
}

fn large(rng: &mut Rng) -> Vec<u8> {
    let size = [100, 5000, 16_384, 16_385, 20_000, 70_000, 120_000][rng.below(7)];
    let start = rng.below(200);
    (0..size).map(|i| ((i + start) % 251) as u8).collect()
}

fn many_members(rng: &mut Rng, argv: &mut Argv) {
    let (start, count) = (rng.below(3) * 300, [30, 129, 300, 600][rng.below(4)]);
    let prefix = ["", "m:", "-1"][rng.below(3)];
    argv.extend((start..start + count).map(|i| format!("{prefix}{i}").into_bytes()));
}

fn many_fields(rng: &mut Rng, argv: &mut Argv) {
    let mut fields = Argv::new();
    many_members(rng, &mut fields);
    argv.extend(fields.into_iter().flat_map(|field| [field.clone(), field]));
}
