//! The set commands' replies and error lines. The expected ones were recorded from redis-server 7.0;
//! encodings are those of 7.2, where a small set of words is a listpack.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::Rig;
use std::collections::BTreeSet;
use tern::server::reply::Reply;

/// A reply in one line; sets are sorted.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Int(n) => n.to_string(),
        Reply::Bulk(b) => String::from_utf8_lossy(b).into_owned(),
        Reply::Nil => "nil".into(),
        Reply::Ok => "OK".into(),
        Reply::Simple(s) => s.to_string(),
        Reply::Error(e) => e.0.to_string(),
        Reply::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Reply::Set(items) => {
            let sorted: BTreeSet<String> = items.iter().map(shown).collect();
            assert_eq!(sorted.len(), items.len());
            format!("{{{}}}", Vec::from_iter(sorted).join(" "))
        }
        other => format!("{other:?}"),
    }
}

async fn script(lines: &str) {
    let mut rig = Rig::new().await;
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (command, want) = line.split_once(" -> ").unwrap();
        let argv: Vec<&str> = command.split(' ').map(|w| if w == "''" { "" } else { w }).collect();
        assert_eq!(shown(&rig.run(&argv).await), want, "{command}");
    }
}

const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const RANGE: &str = "ERR value is not an integer or out of range";
const POSITIVE: &str = "ERR value is out of range, must be positive";

#[tokio::test]
async fn members_come_and_go() {
    script(
        "sadd s a b a -> 2
         sadd s b c '' -> 2
         scard s -> 4
         smembers s -> { a b c}
         sismember s c -> 1
         sismember s x -> 0
         smismember s a x '' -> [1 0 1]
         smismember none a b -> [0 0]
         srem s a x a -> 1
         srem none a -> 0
         srem s b c '' -> 3
         exists s -> 0
         type s -> none
         scard s -> 0
         smembers s -> {}",
    )
    .await;
}

#[tokio::test]
async fn another_type_is_refused() {
    let commands = [
        "sadd t a",
        "srem t a",
        "scard t",
        "smembers t",
        "sismember t a",
        "smismember t a",
        "spop t",
        "spop t 1",
        "srandmember t",
        "srandmember t 2",
        "sscan t 0",
        "smove t s a",
        "smove s t a",
        "sinter s t",
        "sinter none t",
        "sunion none t",
        "sdiff none t",
        "sinterstore d none t",
        "sunionstore d t",
        "sdiffstore d s t",
        "sintercard 2 none t",
        "sunioncard 1 t",
        "sdiffcard 2 s t",
    ];
    let lines: Vec<String> = commands.iter().map(|c| format!("{c} -> {WRONG}")).collect();
    script(&format!("set t x -> OK\nsadd s a -> 1\n{}\nsmove none t a -> 0\nget t -> x", lines.join("\n")))
        .await;
}

#[tokio::test]
async fn smove_answers_as_in_redis() {
    script(
        "sadd a x y -> 2
         smove a b x -> 1
         smove a b none -> 0
         smove a a y -> 1
         smove a a z -> 0
         smembers a -> {y}
         smove a b y -> 1
         exists a -> 0
         smembers b -> {x y}
         smove none b x -> 0",
    )
    .await;
}

#[tokio::test]
async fn counts_of_spop_and_srandmember() {
    script(&format!(
        "spop none -> nil
         spop none 3 -> {{}}
         srandmember none -> nil
         srandmember none 3 -> []
         srandmember none -3 -> []
         sadd s a -> 1
         srandmember s -> a
         srandmember s 0 -> []
         srandmember s 5 -> [a]
         srandmember s -3 -> [a a a]
         srandmember s x -> {RANGE}
         srandmember s 1 2 -> ERR syntax error
         srandmember s -9223372036854775808 -> ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
         spop s -1 -> {POSITIVE}
         spop s x -> {POSITIVE}
         spop s 1 2 -> ERR syntax error
         spop s 0 -> {{}}
         spop s 9 -> {{a}}
         exists s -> 0"
    ))
    .await;
}

#[tokio::test]
async fn algebra_and_its_counts() {
    script(
        "sadd a 1 2 3 4 -> 4
         sadd b 3 4 5 w -> 4
         sadd c 4 w -> 2
         sinter a b c -> {4}
         sinter a none -> {}
         sunion a c none -> {1 2 3 4 w}
         sdiff a b none -> {1 2}
         sdiff none a -> {}
         sdiff a a -> {}
         sintercard 2 a b -> 2
         sintercard 2 a b limit 1 -> 1
         sintercard 2 a b LIMIT 0 -> 2
         sunioncard 3 a b c -> 6
         sunioncard 3 a b c approx limit 4 -> 4
         sdiffcard 2 a b -> 2
         sdiffcard 2 a b limit 1 -> 1
         sdiffcard 2 a b approx -> ERR syntax error
         sintercard 0 a -> ERR numkeys should be greater than 0
         sintercard x a -> ERR numkeys should be greater than 0
         sintercard -1 a -> ERR numkeys should be greater than 0
         sintercard 3 a b -> ERR Number of keys can't be greater than number of args
         sintercard 1 a limit -1 -> ERR LIMIT can't be negative
         sintercard 1 a limit x -> ERR LIMIT can't be negative
         sintercard 1 a limit -> ERR syntax error
         sintercard 1 a b -> ERR syntax error",
    )
    .await;
}

#[tokio::test]
async fn stores_overwrite_and_remove() {
    script(
        "sadd a 1 2 3 -> 3
         sadd b 2 3 w -> 3
         set t x ex 100 -> OK
         sinterstore t a b -> 2
         smembers t -> {2 3}
         ttl t -> -1
         object encoding t -> intset
         sunionstore a a b -> 4
         smembers a -> {1 2 3 w}
         object encoding a -> listpack
         sdiffstore t none a -> 0
         exists t -> 0
         sdiffstore a a a -> 0
         exists a -> 0",
    )
    .await;
}

#[tokio::test]
async fn sscan_arguments() {
    script(&format!(
        "sadd s a1 a2 b -> 3
         sscan s 0 -> [0 [a1 a2 b]]
         sscan s '' match a* count 1 -> [0 [a1 a2]]
         sscan none 0 foo -> [0 []]
         sscan s x -> ERR invalid cursor
         sscan s 99999999999999999999 -> ERR invalid cursor
         sscan s 0 count -> ERR syntax error
         sscan s 0 count 0 -> ERR syntax error
         sscan s 0 count x -> {RANGE}
         sscan s 0 type set -> ERR syntax error"
    ))
    .await;
}

async fn encoding(rig: &mut Rig) -> String {
    shown(&rig.line("object encoding s").await)
}

#[tokio::test]
async fn encodings_convert_one_way() {
    let mut rig = Rig::new().await;
    for n in 0..512 {
        rig.line(&format!("sadd s {n}")).await;
    }
    assert_eq!(encoding(&mut rig).await, "intset");
    rig.line("sadd s 512").await;
    assert_eq!(encoding(&mut rig).await, "hashtable");
    for n in 3..513 {
        rig.line(&format!("srem s {n}")).await;
    }
    assert_eq!(shown(&rig.line("smembers s").await), "{0 1 2}");
    assert_eq!(encoding(&mut rig).await, "hashtable");
    rig.line("del s").await;
    rig.line("sadd s 1 w").await;
    assert_eq!(encoding(&mut rig).await, "listpack");
    rig.line(&format!("sadd s {}", "x".repeat(64))).await;
    assert_eq!(encoding(&mut rig).await, "listpack");
    rig.line(&format!("sadd s {}", "x".repeat(65))).await;
    assert_eq!(encoding(&mut rig).await, "hashtable");
    rig.line("del s").await;
    for n in 0..129 {
        assert_eq!(encoding_is_small(&mut rig, n).await, n > 0);
        rig.line(&format!("sadd s w{n}")).await;
    }
    assert_eq!(encoding(&mut rig).await, "hashtable");
}

async fn encoding_is_small(rig: &mut Rig, n: usize) -> bool {
    n > 0 && encoding(rig).await == "listpack"
}

/// Members that stay while others come and go between pages are returned once each.
#[tokio::test]
async fn sscan_returns_stable_members_once() {
    let mut rig = Rig::new().await;
    let stay: Vec<String> = (0..3_000).map(|n| format!("stay:{n}")).collect();
    let argv: Vec<&str> = ["sadd", "s"].into_iter().chain(stay.iter().map(String::as_str)).collect();
    rig.run(&argv).await;
    let (mut cursor, mut seen, mut n) = ("0".to_string(), Vec::new(), 0);
    loop {
        let Reply::Array(page) = rig.line(&format!("sscan s {cursor} count 50")).await else { panic!() };
        let Reply::Array(members) = &page[1] else { panic!() };
        seen.extend(members.iter().map(shown).filter(|m| m.starts_with("stay")));
        cursor = shown(&page[0]);
        if cursor == "0" {
            break;
        }
        for _ in 0..10 {
            n += 1;
            rig.line(&format!("sadd s go:{n} {n}")).await;
            rig.line(&format!("srem s go:{} {}", n / 2, n / 2)).await;
        }
    }
    assert_eq!(seen.len(), 3_000);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), stay.into_iter().collect());
}

#[tokio::test]
async fn long_members_and_large_commands() {
    let mut rig = Rig::new().await;
    let long = "x".repeat(65_536);
    assert_eq!(shown(&rig.run(&["sadd", "s", &long, "y"]).await), "2");
    assert_eq!(shown(&rig.run(&["sismember", "s", &long]).await), "1");
    assert_eq!(shown(&rig.run(&["smembers", "s"]).await), format!("{{{long} y}}"));
    let longer = "x".repeat(100_001);
    assert_eq!(shown(&rig.run(&["sismember", "s", &longer]).await), "0");
    assert_eq!(shown(&rig.run(&["srem", "s", &longer]).await), "0");
    let refused = shown(&rig.run(&["sadd", "s", "z", &longer]).await);
    assert_eq!(refused, "ERR a set member of 100001 bytes exceeds the store's limit of 100000");
    assert_eq!(shown(&rig.line("scard s").await), "2");
    let many: Vec<String> = (0..150_000).map(|n| format!("member:{n:0>20}")).collect();
    let argv: Vec<&str> = ["sadd", "big"].into_iter().chain(many.iter().map(String::as_str)).collect();
    assert_eq!(shown(&rig.run(&argv).await), "150000");
    assert_eq!(shown(&rig.line("scard big").await), "150000");
    assert_eq!(shown(&rig.run(&argv[..20_002]).await), "0");
    assert_eq!(shown(&rig.run(&["smismember", "big", &many[149_999], "member:"]).await), "[1 0]");
}

/// A transaction's cached lookups in a set end with its first write to it, and apply to that set alone.
#[tokio::test]
async fn a_transaction_sees_its_own_writes() {
    let mut rig = Rig::new().await;
    let words: Vec<String> = (0..300).map(|n| format!("w{n}")).collect();
    for key in ["s", "t"] {
        let argv: Vec<&str> = ["sadd", key].into_iter().chain(words.iter().map(String::as_str)).collect();
        rig.run(&argv).await;
    }
    assert_eq!(shown(&rig.line("srem t w7").await), "1");
    let script = "sismember s w7 -> 1
         sismember s w7 -> 1
         sismember t w7 -> 0
         sismember s w8 -> 1
         sismember t w8 -> 1
         sismember s new -> 0
         select 1 -> OK
         sismember s w7 -> 0
         select 0 -> OK
         sismember s w7 -> 1
         srem s w7 -> 1
         sismember s w7 -> 0
         sadd s new -> 1
         sismember s new -> 1
         sismember t w8 -> 1
         del t -> 1
         sismember t w8 -> 0
         scard s -> 300
         flushdb -> OK
         sismember s new -> 0
         scard s -> 0";
    let lines: Vec<(&str, &str)> = script.lines().map(|l| l.trim().split_once(" -> ").unwrap()).collect();
    let commands: Vec<&str> = lines.iter().map(|(command, _)| *command).collect();
    let replies = rig.together(&commands).await;
    for ((command, want), reply) in lines.iter().zip(&replies) {
        assert_eq!(shown(reply), *want, "{command}");
    }
    assert_eq!(replies.len(), lines.len());
}
