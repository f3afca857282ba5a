//! Streams move by DUMP and RESTORE between Tern and redis-server, of 7.0 and of 8.6, in both directions: entries, gaps,
//! groups, consumers and what is pending.

use crate::support::resp::{Client, Value, text};
use crate::support::rng::Rng;
use crate::support::server::{newer_redis, redis, tern};
use crate::support::{env_number, say};

/// What XINFO STREAM FULL tells of the server and not of the stream, or computes from the rest, which releases do in different
/// ways; and the time that the payloads of 7.0 lack.
const LEFT_OUT: &[&[u8]] = &[
    b"radix-tree-keys",
    b"radix-tree-nodes",
    b"lag",
    b"active-time",
    b"idmp-duration",
    b"idmp-maxsize",
    b"pids-tracked",
    b"iids-tracked",
    b"iids-added",
    b"iids-duplicates",
];

fn cleaned(value: &Value) -> Value {
    let Some(items) = value.items() else { return value.clone() };
    let is_map = matches!(items.first().and_then(Value::bytes), Some(b"length" | b"name"));
    if !is_map {
        return Value::Array(items.iter().map(cleaned).collect());
    }
    let kept = items.chunks(2).filter(|pair| LEFT_OUT.iter().all(|name| pair[0].bytes() != Some(name)));
    Value::Array(kept.flatten().map(cleaned).collect())
}

fn content(client: &mut Client, key: &str) -> Value {
    let full = client.run(&["XINFO", "STREAM", key, "FULL", "COUNT", "0"]).value;
    assert!(!full.is_error(), "{key}: {full:?}");
    cleaned(&full)
}

fn sure(client: &mut Client, line: &str) {
    let reply = client.line(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
}

fn add(client: &mut Client, rng: &mut Rng, key: &str, id: &str) {
    let fields = match rng.below(6) {
        0 => vec!["name".to_owned(), "x".repeat([10, 63, 64, 4095, 4096, 20_000, 70_000][rng.below(7)])],
        1 => (0..2 * (1 + rng.below(40))).map(|n| (n * n * 7919).to_string()).collect(),
        2 => ["", "0", "-1", "007", "-4097", "9223372036854775807"].map(str::to_owned).to_vec(),
        _ => ["name", "value", "number"].map(str::to_owned).into_iter().chain([id.to_owned()]).collect(),
    };
    let argv = ["XADD", key, id].map(str::to_owned).into_iter().chain(fields).collect::<Vec<_>>();
    let reply = client.run(&argv).value;
    assert!(!reply.is_error(), "{argv:?}: {reply:?}");
}

/// Streams of every shape, random ones among them.
fn fill(client: &mut Client, rng: &mut Rng) -> Vec<String> {
    let keys: Vec<String> = (0..24).map(|n| format!("stream:{n}")).collect();
    sure(client, "XGROUP CREATE stream:0 empty $ MKSTREAM");
    for (n, key) in keys.iter().enumerate().skip(1) {
        let (mut ids, mut ms) = (Vec::new(), 1 + rng.below(1000));
        for _ in 0..[1, 2, 99, 100, 101, 700][rng.below(6)] {
            ms += rng.below(3) * [1, 1000, 1 << 40][rng.below(3)];
            let seq = ids.last().map_or(1, |(last, seq)| if *last == ms { seq + 1 } else { rng.below(5) });
            ids.push((ms, seq.max(1)));
            add(client, rng, key, &format!("{ms}-{}", seq.max(1)));
        }
        let id = |rng: &mut Rng| {
            let (ms, seq) = ids[rng.below(ids.len())];
            format!("{ms}-{seq}")
        };
        for group in 0..rng.below(3) {
            let from = if rng.below(2) == 0 { "0".to_owned() } else { id(rng) };
            sure(client, &format!("XGROUP CREATE {key} group:{group} {from}"));
            for _ in 0..rng.below(6) {
                let (consumer, count) = (rng.below(3), 1 + rng.below(30));
                let noack = if rng.below(5) == 0 { " NOACK" } else { "" };
                let line = "XREADGROUP GROUP group:";
                sure(client, &format!("{line}{group} {consumer} COUNT {count}{noack} STREAMS {key} >"));
                let (one, other) = (id(rng), id(rng));
                sure(client, &format!("XACK {key} group:{group} {one} {other}"));
                let options = ["FORCE", "TIME 1600000000000 RETRYCOUNT 7", "JUSTID"][rng.below(3)];
                sure(client, &format!("XCLAIM {key} group:{group} 7 0 {other} {options}"));
            }
            if rng.below(3) == 0 {
                sure(client, &format!("XGROUP CREATECONSUMER {key} group:{group} idle"));
            }
        }
        for _ in 0..rng.below(8) {
            let (one, other) = (id(rng), id(rng));
            sure(client, &format!("XDEL {key} {one} {other}"));
        }
        match n % 6 {
            0 => sure(client, &format!("XTRIM {key} MAXLEN 0")),
            1 => sure(client, &format!("XTRIM {key} MAXLEN {}", rng.below(200))),
            2 => sure(
                client,
                &format!("XSETID {key} {}-5 ENTRIESADDED 5000 MAXDELETEDID {}", u64::MAX, id(rng)),
            ),
            _ => {}
        }
    }
    keys
}

fn carry(from: &mut Client, to: &mut Client, keys: &[String]) {
    to.line("FLUSHALL");
    for key in keys {
        let payload = from.run(&["DUMP", key]).value.bytes().unwrap().to_vec();
        let done = to.run(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]).value;
        let shown = text(&payload[..payload.len().min(200)]);
        assert_eq!(done.bytes(), Some(b"OK".as_slice()), "{key}: {done:?}, {shown}");
        let (left, arrived) = (content(from, key), content(to, key));
        assert!(left == arrived, "{key}: {left:?}\narrived as {arrived:?}");
        // It can be used as before.
        sure(to, &format!("XTRIM {key} MAXLEN 100000"));
    }
}

#[test]
fn streams_move_to_redis_and_back() {
    let tern = tern(&["--appendfsync", "no"]);
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("streams by DUMP and RESTORE: TERN_SEED={seed}"));
    for server in [redis("streams by DUMP and RESTORE"), newer_redis("streams by DUMP and RESTORE")] {
        let Some(server) = server else { continue };
        let (mut redis, mut tern) = (server.client(), tern.client());
        redis.line("FLUSHALL");
        let keys = fill(&mut redis, &mut Rng::new(seed));
        carry(&mut redis, &mut tern, &keys);
        carry(&mut tern, &mut redis, &keys);
        tern.line("FLUSHALL");
        assert_eq!(fill(&mut tern, &mut Rng::new(seed)), keys);
        carry(&mut tern, &mut redis, &keys);
        carry(&mut redis, &mut tern, &keys);
    }
}
