//! Functions on a server: FUNCTION and FCALL. What single functions answer is compared with Redis by
//! `tests/tcl` and `tests/differential`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;
mod sets_world;
mod support;

use bytes::Bytes;
use cluster::Cluster;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use support::resp::{Client, Value};
use support::server::{Server, assert_sound, tern, tern_in};
use tern::env::Env;
use tern::server::reply::Reply;

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap()).into_owned()
}

fn library(name: &str, body: &str) -> String {
    format!("#!lua name={name}\n{body}")
}

const COUNTS: &str = "local function add(key, n) return redis.call('incrby', key, n) end
    redis.register_function('add', function(keys, args) return add(keys[1], args[1]) end)
    redis.register_function{ function_name = 'read', flags = { 'no-writes' }, description = 'reads',
        callback = function(keys) return redis.call('get', keys[1]) end }";

fn load(client: &mut Client, name: &str, body: &str) -> String {
    text(&client.run(&["FUNCTION", "LOAD", "REPLACE", &library(name, body)]).value)
}

fn call(client: &mut Client, name: &str, words: &[&str]) -> Value {
    client.run(&[&["FCALL", name][..], words].concat()).value
}

#[test]
fn libraries_outlive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = tern_in(dir.path(), &["--appendfsync", "always"]);
    let mut client = server.client();
    assert_eq!(load(&mut client, "counts", COUNTS), "counts");
    let long =
        format!("-- {}\nredis.register_function('long', function() return 7 end)", "x".repeat(200_000));
    assert_eq!(load(&mut client, "long", &long), "long");
    assert_eq!(call(&mut client, "ADD", &["1", "n", "5"]).int(), Some(5));
    server.kill();
    assert_sound(dir.path(), &[]);
    let mut server = tern_in(dir.path(), &["--appendfsync", "always"]);
    let mut client = server.client();
    assert_eq!(call(&mut client, "long", &["0"]).int(), Some(7));
    assert_eq!(text(&client.line("FCALL_RO read 1 n")), "5");
    assert_eq!(text(&client.line("FLUSHALL")), "OK");
    assert_eq!(call(&mut client, "add", &["1", "n", "1"]).int(), Some(1), "libraries are not data");
    let dumped = client.line("FUNCTION DUMP");
    assert_eq!(text(&client.line("FUNCTION DELETE long")), "OK");
    assert!(text(&call(&mut client, "long", &["0"])).starts_with("ERR Function not found"));
    let payload = dumped.bytes().unwrap();
    let restored = |client: &mut Client, policy: &[u8]| {
        client.send(&[b"FUNCTION".as_slice(), b"RESTORE", payload, policy]).unwrap();
        text(&client.read().unwrap().value)
    };
    assert_eq!(restored(&mut client, b"APPEND"), "ERR Library counts already exists");
    assert!(text(&call(&mut client, "long", &["0"])).starts_with("ERR Function not found"));
    assert_eq!(restored(&mut client, b"REPLACE"), "OK");
    assert_eq!(call(&mut client, "long", &["0"]).int(), Some(7));
    assert_eq!(text(&client.line("FUNCTION FLUSH")), "OK");
    assert_eq!(client.line("FUNCTION LIST"), Value::Array(Vec::new()));
    server.kill();
    assert_sound(dir.path(), &[]);
}

/// What is remembered of a transaction that is not committed is not used for another one.
#[test]
fn a_library_that_is_not_committed_leaves_nothing() {
    let server = tern(&["--appendfsync", "no"]);
    let (mut client, mut other) = (server.client(), server.client());
    load(&mut client, "v", "redis.register_function('v', function() return 1 end)");
    client.line("WATCH k");
    client.line("MULTI");
    let code = library("v", "redis.register_function('v', function() return 2 end)");
    client.run(&["FUNCTION", "LOAD", "REPLACE", &code]);
    client.line("FCALL v 0");
    other.line("SET k 1");
    assert!(matches!(client.line("EXEC"), Value::Nil(_)));
    assert_eq!(call(&mut other, "v", &["0"]).int(), Some(1));
    client.line("MULTI");
    client.run(&["FUNCTION", "LOAD", "REPLACE", &code]);
    client.line("FCALL v 0");
    let replies = client.line("EXEC");
    assert_eq!(replies.items().unwrap()[1].int(), Some(2), "the transaction sees what it has loaded");
    assert_eq!(call(&mut other, "v", &["0"]).int(), Some(2));
}

fn endless(server: &Server) -> std::thread::JoinHandle<String> {
    let mut client = server.client();
    std::thread::spawn(move || text(&call(&mut client, "endless", &["1", "key", "arg"])))
}

#[test]
fn a_function_that_runs_is_shown_and_killed() {
    let server = tern(&["--appendfsync", "no", "--busy-reply-threshold", "0"]);
    let mut client = server.client();
    load(
        &mut client,
        "e",
        "redis.register_function('endless', function(keys)
        redis.call('set', keys[1], 'x') while true do end end)",
    );
    let running = endless(&server);
    let shown = loop {
        let shown = format!("{:?}", client.line("FUNCTION STATS"));
        if shown.contains("duration_ms") {
            break shown;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(
        shown.contains("endless") && shown.contains("FCALL") && shown.contains("functions_count"),
        "{shown}"
    );
    assert!(text(&client.line("SCRIPT KILL")).starts_with("NOTBUSY"), "it is no script");
    while !running.is_finished() {
        client.line("FUNCTION KILL");
    }
    assert!(running.join().unwrap().contains("FUNCTION KILL"));
    assert_eq!(client.line("GET key"), Value::Nil(b'$'));
    assert!(text(&client.line("FUNCTION KILL")).starts_with("NOTBUSY"));
}

#[test]
fn the_code_of_a_library_reaches_nothing_and_leaves_nothing() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    let long = format!(
        "redis.register_function{{ function_name = 'long', callback = function() end, description = '{}' }}",
        "x".repeat((1 << 20) + 1)
    );
    for (body, why) in [
        ("while true do end", "FUNCTION LOAD timeout"),
        ("redis.call('set', 'k', 1)", "nonexistent global variable 'call'"),
        ("local t = {} t.x = tostring(t)", "nonexistent global variable 'tostring'"),
        ("x = 1", "Attempt to modify a readonly table"),
        ("redis.x = 1", "Attempt to modify a readonly table"),
        ("return 1", "No functions registered"),
        (
            "for i = 1, 10001 do redis.register_function('f' .. i, function() end) end",
            "at most 10000 functions",
        ),
        (&long, "1 MB of descriptions"),
    ] {
        let answer = load(&mut client, "bad", body);
        assert!(answer.contains(why), "{body}: {answer}");
    }
    // A library keeps nothing between two calls: each runs its code afresh.
    load(&mut client, "state", "local n = 0 redis.register_function('n', function() n = n + 1 return n end)");
    assert_eq!(call(&mut client, "n", &["0"]).int(), Some(1));
    assert_eq!(call(&mut client, "n", &["0"]).int(), Some(1));
    load(
        &mut client,
        "leak",
        "local api = redis
        redis.register_function('leak', function() api.register_function('y', function() end) end)",
    );
    let answer = text(&call(&mut client, "leak", &["0"]));
    assert!(answer.contains("can only be called on FUNCTION LOAD command"), "{answer}");
    let after =
        client.run(&["EVAL", "return tostring(redis.register_function) .. type(redis.call)", "0"]).value;
    assert_eq!(text(&after), "nilfunction");
}

/// Two servers on one store.
async fn two_servers() -> (Cluster, tempfile::TempDir) {
    let (store, dir) = sets_world::fresh().await;
    let mut cluster = Cluster::on(store);
    for _ in 0..2 {
        cluster.join(Env::system()).await;
    }
    (cluster, dir)
}

async fn run(cluster: &Cluster, n: usize, words: &[&str]) -> Reply {
    cluster.run(n, words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()).await
}

/// A library whose function returns a number.
fn returns(n: i64) -> String {
    library("number", &format!("redis.register_function('number', function() return {n} end)"))
}

fn is_error(reply: &Reply, begin: &str) -> bool {
    matches!(reply, Reply::Error(e) if e.0.starts_with(begin))
}

/// Hazard: a server knows a script or a library that another has removed, or does not know one that another has loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_loads_all_know() {
    let (cluster, _dir) = two_servers().await;
    let script = "return redis.call('incr', KEYS[1])";
    for (one, other) in [(0, 1), (1, 0)] {
        let Reply::Bulk(digest) = run(&cluster, one, &["SCRIPT", "LOAD", script]).await else { panic!() };
        let digest = String::from_utf8(digest.to_vec()).unwrap();
        let call = ["EVALSHA", &digest, "1", "n"];
        assert!(matches!(run(&cluster, other, &call).await, Reply::Int(_)));
        let exists = Reply::Array(vec![Reply::Int(1)]);
        assert_eq!(run(&cluster, other, &["SCRIPT", "EXISTS", &digest]).await, exists);
        assert_eq!(run(&cluster, other, &["SCRIPT", "FLUSH"]).await, Reply::Ok);
        assert!(is_error(&run(&cluster, one, &call).await, "NOSCRIPT"));
        assert!(is_error(&run(&cluster, other, &call).await, "NOSCRIPT"));

        let call = ["FCALL", "number", "0"];
        assert!(is_error(&run(&cluster, other, &call).await, "ERR Function not found"));
        for n in [7, 8] {
            run(&cluster, one, &["FUNCTION", "LOAD", "REPLACE", &returns(n)]).await;
            assert_eq!(run(&cluster, other, &call).await, Reply::Int(n));
            assert_eq!(run(&cluster, one, &call).await, Reply::Int(n));
        }
        assert_eq!(run(&cluster, other, &["FUNCTION", "DELETE", "number"]).await, Reply::Ok);
        assert!(is_error(&run(&cluster, one, &call).await, "ERR Function not found"));
    }
    cluster.assert_sound().await;
}

/// Hazard: a call that begins after a library was replaced runs the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_library_is_not_called() {
    const VERSIONS: i64 = 60;
    let (cluster, _dir) = two_servers().await;
    run(&cluster, 0, &["FUNCTION", "LOAD", &returns(0)]).await;
    let latest = AtomicI64::new(0);
    let replacing = async {
        for n in 1..=VERSIONS {
            let loaded = run(&cluster, n as usize % 2, &["FUNCTION", "LOAD", "REPLACE", &returns(n)]).await;
            assert_eq!(loaded, Reply::Bulk(Bytes::from_static(b"number")));
            latest.store(n, Ordering::SeqCst);
        }
    };
    let calling = async |server: usize| {
        let mut calls = 0;
        while latest.load(Ordering::SeqCst) < VERSIONS {
            let least = latest.load(Ordering::SeqCst);
            let Reply::Int(seen) = run(&cluster, server, &["FCALL", "number", "0"]).await else { panic!() };
            assert!(seen >= least, "{seen} after {least}");
            calls += 1;
        }
        calls
    };
    let ((), first, second) = tokio::join!(replacing, calling(0), calling(1));
    assert!(first > 10 && second > 10, "{first} and {second} calls");
    cluster.assert_sound().await;
}

/// As in Redis: a number is a name, too, flags have no case, and the number of keys is looked at first.
#[test]
fn what_registers_a_function() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    let body = "redis.register_function(1, function() return 7 end)
        redis.register_function{ FUNCTION_NAME = 'g', description = 2, flags = { 'NO-Writes', nil, 'x' },
            callback = function() return 8 end }";
    assert_eq!(load(&mut client, "l", body), "l");
    assert_eq!(call(&mut client, "1", &["0"]), Value::Int(7));
    assert_eq!(client.line("FCALL_RO g 0"), Value::Int(8));
    for (line, why) in [
        ("FCALL_RO 1 x", "ERR Bad number of keys provided"),
        ("FCALL_RO 1 1", "ERR Number of keys can't be greater than number of args"),
        ("FCALL_RO 1 0", "ERR Can not execute a script with write flag using *_ro command."),
    ] {
        assert_eq!(client.line(line), Value::Error(why.into()), "{line}");
    }
}
