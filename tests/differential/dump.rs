//! DUMP here and RESTORE in redis-server, and the reverse: values arrive unchanged.

use crate::differences::number;
use crate::support::resp::{Client, text};
use crate::support::rng::Rng;
use crate::support::server::{redis, tern};
use crate::support::{env_number, say};

/// Strings, sets and hashes of every encoding, random ones among them.
fn fill(client: &mut Client, rng: &mut Rng) -> Vec<String> {
    let mut keys = Vec::new();
    let mut key = |name: &str| {
        keys.push(format!("{name} {}", keys.len()));
        keys.last().unwrap().clone()
    };
    for length in [0, 1, 11, 20, 21, 63, 64, 1000, 16_384, 20_000, 70_000] {
        let noise: Vec<u8> = (0..length).map(|_| rng.next() as u8).collect();
        client.run(&[b"SET", key("noise").as_bytes(), &noise]);
        let dull: Vec<u8> = (0..length).map(|n| b"abcabcabd"[n % 9]).collect();
        client.run(&[b"SET", key("dull").as_bytes(), &dull]);
        let words: Vec<u8> = (0..length).map(|_| b"ab "[rng.below(3)]).collect();
        client.run(&[b"SET", key("words").as_bytes(), &words]);
    }
    for shift in 0..63 {
        let n = (1i64 << shift) - (rng.below(3) as i64 - 1);
        client.run(&["SET", &key("number"), &n.to_string()]);
        client.run(&["SET", &key("number"), &(-n).to_string()]);
    }
    for text in ["007", "+1", "-0", " 1", "1.0", "9223372036854775808"] {
        client.run(&["SET", &key("text"), text]);
    }
    for (name, count) in [("few", 5), ("some", 100), ("more", 200), ("many", 3000)] {
        for width in [8, 30, 60] {
            let number =
                |rng: &mut Rng| ((rng.next() >> (64 - width)) as i64 - (1 << (width - 1))).to_string();
            let members = (0..count).map(|_| number(rng));
            let argv: Vec<String> = ["SADD".into(), key(name)].into_iter().chain(members).collect();
            client.run(&argv);
        }
        let words: Vec<String> =
            (0..count).map(|n| format!("{} {n}", "member ".repeat(rng.below(12)))).collect();
        client.run(&[vec!["SADD".into(), key(name)], words.clone()].concat());
        client.run(&[vec!["HSET".into(), key(name)], [words.clone(), words].concat()].concat());
        let pairs = (0..2 * count).map(|n| (n * n).to_string());
        client.run(&["HSET".into(), key(name)].into_iter().chain(pairs).collect::<Vec<_>>());
        let scores = ["-inf", "1", "2", "0.1", "1e300", "5e-324", "-7.25", "inf"];
        let entries = (0..count).flat_map(|n| [scores[n % scores.len()].to_owned(), format!("member {n}")]);
        client.run(&["ZADD".into(), key(name)].into_iter().chain(entries).collect::<Vec<_>>());
    }
    keys
}

fn content(client: &mut Client, key: &str) -> Vec<Vec<u8>> {
    let found = client.run(&["GET", key]).value;
    if !found.is_error() {
        return vec![found.bytes().unwrap().to_vec()];
    }
    let (line, each) = match client.run(&["TYPE", key]).value.bytes() {
        Some(b"hash") => ("HGETALL", 2),
        Some(b"zset") => ("ZRANGE", 2),
        _ => ("SMEMBERS", 1),
    };
    let found = match line {
        "ZRANGE" => client.run(&[line, key, "0", "-1", "WITHSCORES"]).value,
        _ => client.run(&[line, key]).value,
    };
    // 7.0 writes scores with 17 digits.
    if let ("ZRANGE", Some(items)) = (line, found.items()) {
        let (mut all, mut is_score) = (Vec::new(), false);
        for item in items {
            all.push(match number(item).filter(|_| is_score) {
                Some(score) => score.to_string().into_bytes(),
                None => item.bytes().unwrap().to_vec(),
            });
            is_score = !is_score;
        }
        return all;
    }
    let items: Vec<Vec<u8>> = found.items().unwrap().iter().map(|m| m.bytes().unwrap().to_vec()).collect();
    let mut elements: Vec<Vec<Vec<u8>>> = items.chunks(each).map(<[_]>::to_vec).collect();
    elements.sort();
    elements.concat()
}

fn carry(from: &mut Client, to: &mut Client, keys: &[String]) {
    for key in keys {
        let payload = from.run(&["DUMP", key]).value.bytes().unwrap().to_vec();
        let done = to.run(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]).value;
        assert_eq!(
            done.bytes(),
            Some(b"OK".as_slice()),
            "{key}: {}",
            text(&payload[..payload.len().min(200)])
        );
        let (left, arrived) = (content(from, key), content(to, key));
        assert!(left == arrived, "{key}: {} members or {} bytes left", left.len(), left[0].len());
    }
}

#[test]
fn values_move_to_redis_and_back() {
    let Some(redis) = redis("DUMP and RESTORE with a real server") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("DUMP and RESTORE: TERN_SEED={seed}"));
    let (mut redis, mut tern) = (redis.client(), tern.client());
    let keys = fill(&mut redis, &mut Rng::new(seed));
    assert_eq!(fill(&mut tern, &mut Rng::new(seed)), keys);
    // The bytes are equal, except for values that Redis compresses and the order in a hash table.
    let (mut same, mut packed) = (0, 0);
    for key in &keys {
        let dumps = [&mut redis, &mut tern].map(|c| c.run(&["DUMP", key]).value.bytes().unwrap().to_vec());
        same += usize::from(dumps[0] == dumps[1]);
        packed += usize::from(dumps[0].get(1) == Some(&0xc3));
        let table = dumps.iter().any(|payload| [2, 4].contains(&payload[0]));
        assert!(dumps[0] == dumps[1] || dumps[0][1] == 0xc3 || table, "{key}");
    }
    assert!(same > 140 && packed > 10, "{same} payloads are the same, {packed} are compressed");
    tern.line("FLUSHALL");
    carry(&mut redis, &mut tern, &keys);
    redis.line("FLUSHALL");
    carry(&mut tern, &mut redis, &keys);
}
