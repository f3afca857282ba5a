//! Scripts on a server: one transaction each, known after a restart, ended without a trace, seen by MONITOR and the
//! statistics, and nobody waits for one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::{Duration, Instant};
use support::resp::{Client, Value};
use support::server::{assert_sound, tern, tern_in};

fn text(value: &Value) -> String {
    value.bytes().map_or_else(|| format!("{value:?}"), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn eval(client: &mut Client, script: &str, keys: &[&str], args: &[&str]) -> Value {
    let count = keys.len().to_string();
    client.run(&[&["EVAL", script, &count], keys, args].concat()).value
}

/// Ends the script that runs as soon as one does.
fn kill(client: &mut Client) {
    let since = Instant::now();
    while text(&client.line("SCRIPT KILL")) != "OK" {
        assert!(since.elapsed() < Duration::from_secs(20), "no script is running");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_loaded_script_is_known_after_a_restart_and_a_flushed_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = tern_in(dir.path(), &["--appendfsync", "always"]);
    let mut client = server.client();
    let long = format!("return '{}'", "x".repeat(200_000));
    let digests: Vec<String> =
        ["return 7", &long].map(|script| text(&client.run(&["SCRIPT", "LOAD", script]).value)).to_vec();
    eval(&mut client, "return 8", &[], &[]);
    server.kill();
    assert_sound(dir.path(), &[]);
    let mut server = tern_in(dir.path(), &["--appendfsync", "always"]);
    let mut client = server.client();
    assert_eq!(client.run(&["EVALSHA", &digests[0], "0"]).value.int(), Some(7));
    assert_eq!(client.run(&["EVALSHA", &digests[1], "0"]).value.bytes().unwrap().len(), 200_000);
    let evaluated = "8cc2ee21e2e8b3f8c8eb6fbd1bb8ddbc5b1bb1b1";
    let exist = client.run(&["SCRIPT", "EXISTS", &digests[0], &digests[1], evaluated]).value;
    let exist: Vec<_> = exist.items().unwrap().iter().map(Value::int).collect();
    assert_eq!(exist, [Some(1), Some(1), Some(0)]);
    assert_eq!(text(&client.line("SCRIPT FLUSH")), "OK");
    assert!(text(&client.run(&["EVALSHA", &digests[0], "0"]).value).starts_with("NOSCRIPT"));
    server.kill();
    assert_sound(dir.path(), &[]);
    let server = tern_in(dir.path(), &[]);
    assert!(text(&server.client().run(&["EVALSHA", &digests[0], "0"]).value).starts_with("NOSCRIPT"));
}

#[test]
fn a_script_is_one_transaction() {
    let server = tern(&["--appendfsync", "no"]);
    let move_one = "local from, to = KEYS[1], KEYS[2]
        redis.call('decr', from) redis.call('incr', to)
        return redis.call('get', from) + redis.call('get', to)";
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..6)
            .map(|n| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    for i in 0..300 {
                        let keys =
                            [format!("account:{}", (n + i) % 4), format!("account:{}", (n * i + 1 + i) % 4)];
                        let answer = eval(&mut client, move_one, &[&keys[0], &keys[1]], &[]);
                        assert!(answer.int().is_some(), "{answer:?}");
                    }
                })
            })
            .collect();
        let mut reader = server.client();
        let sum = "local sum = 0 for n = 0, 3 do sum = sum + (redis.call('get', 'account:' .. n) or 0) end return sum";
        while movers.iter().any(|mover| !mover.is_finished()) {
            assert_eq!(eval(&mut reader, sum, &[], &[]).int(), Some(0));
        }
    });
}

#[test]
fn an_error_keeps_what_was_written_and_an_end_undoes_it() {
    let server = tern(&["--appendfsync", "no", "--busy-reply-threshold", "300"]);
    let mut client = server.client();
    let failed = eval(&mut client, "redis.call('set', 'a', 1) redis.call('incr', 'a', 2)", &[], &[]);
    assert!(text(&failed).starts_with("ERR Wrong number of args"), "{failed:?}");
    assert_eq!(text(&client.line("GET a")), "1");
    let endless = "redis.call('set', 'b', 1) while true do pcall(redis.call, 'get', 'b') end";
    // In the same window: what is ended takes nothing of the others with it.
    client.send(&["INCR", "c"]).unwrap();
    client.send(&["EVAL", endless, "0"]).unwrap();
    client.send(&["INCR", "c"]).unwrap();
    let replies: Vec<String> = (0..3).map(|_| text(&client.read().unwrap().value)).collect();
    assert!(replies[1].contains("busy-reply-threshold"), "{replies:?}");
    assert_eq!(client.line("GET b"), Value::Nil(b'$'));
    assert_eq!(text(&client.line("GET c")), "2");
    assert_eq!(text(&client.line("CONFIG SET busy-reply-threshold 0")), "OK");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| text(&eval(&mut server.client(), endless, &[], &[])));
        kill(&mut client);
        assert!(running.join().unwrap().contains("killed"));
    });
    assert_eq!(client.line("GET b"), Value::Nil(b'$'));
    assert!(text(&client.line("SCRIPT KILL")).starts_with("NOTBUSY"));
}

#[test]
fn nobody_waits_for_a_script() {
    let server = tern(&["--appendfsync", "no", "--busy-reply-threshold", "0"]);
    std::thread::scope(|scope| {
        let endless = ["while true do end", "return string.find(('a'):rep(30000), ('a*'):rep(30) .. 'b')"];
        let running: Vec<_> = endless
            .iter()
            .map(|script| scope.spawn(|| text(&eval(&mut server.client(), script, &["a"], &[]))))
            .collect();
        let (mut client, mut slowest) = (server.client(), Duration::ZERO);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(1500) {
            let begun = Instant::now();
            assert!(client.line("INCR a").int().is_some());
            slowest = slowest.max(begun.elapsed());
        }
        while running.iter().any(|script| !script.is_finished()) {
            client.line("SCRIPT KILL");
        }
        running.into_iter().for_each(|script| assert!(script.join().unwrap().contains("killed")));
        assert!(slowest < Duration::from_millis(500), "others waited {slowest:?}");
    });
}

/// More than there are places beside the lanes.
#[test]
fn many_scripts_hold_only_each_other() {
    let server = tern(&["--appendfsync", "no", "--busy-reply-threshold", "0"]);
    let mut client = server.client();
    client.line("RPUSH list b a");
    let endless = |name: &str| {
        let mut client = server.client();
        client.send(&[name, "while true do end", "0"]).unwrap();
        client
    };
    let _reading: Vec<Client> = (0..100).map(|_| endless("EVAL_RO")).collect();
    let _writing: Vec<Client> = (0..12).map(|_| endless("EVAL")).collect();
    let slowest = |client: &mut Client, lines: &[&'static str]| {
        let mut slowest = (Duration::ZERO, "");
        for line in lines.repeat(10) {
            let begun = Instant::now();
            let answer = client.line(line);
            assert!(!format!("{answer:?}").contains("ERR"), "{line}: {answer:?}");
            slowest = slowest.max((begun.elapsed(), line));
        }
        slowest
    };
    // Until those that write have left their lanes.
    std::thread::sleep(Duration::from_millis(300));
    let others = ["INCR n", "GET n", "SORT list ALPHA STORE sorted", "FUNCTION STATS"];
    let waited = slowest(&mut client, &others);
    assert!(waited.0 < Duration::from_millis(1000), "others waited {waited:?}");
    // Scripts that read wait until each has had its first turn.
    let reads = "EVAL_RO return(redis.call('get',KEYS[1])) 1 n";
    slowest(&mut client, &[reads]);
    let waited = slowest(&mut client, &[reads, "EVAL return(redis.call('incr',KEYS[1])) 1 n"]);
    assert!(waited.0 < Duration::from_millis(1000), "other scripts waited {waited:?}");
}

/// Also where a call in it reads much at once.
#[test]
fn a_script_that_reads_much_holds_no_lane() {
    const MANY: usize = 60_000;
    let server = tern(&["--appendfsync", "no", "--lanes", "1"]);
    let (mut client, mut other) = (server.client(), server.client());
    for from in (0..MANY).step_by(5000) {
        let all = || (from..from + 5000).map(|n| n.to_string());
        let twice = || all().flat_map(|n| [n.clone(), n]).collect::<Vec<_>>();
        for (command, args) in [
            ("HSET h", twice()),
            ("ZADD z", twice()),
            ("SADD s", all().collect()),
            ("RPUSH l", all().collect()),
        ] {
            let args: Vec<&str> = command.split(' ').chain(args.iter().map(String::as_str)).collect();
            assert_eq!(
                client.run(&args).value.int(),
                Some(from as i64 * i64::from(args[0] == "RPUSH") + 5000)
            );
        }
    }
    let many = MANY.to_string();
    let pairs = format!("-{many}");
    // A commit of a cluster takes a part of the time of a fast call.
    let most = if std::env::var_os("TERN_TEST_STORE").is_some() { 0.3 } else { 0.15 };
    let mut held = |line: &[&str]| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| client.run(line).value);
            let mut slowest = Duration::ZERO;
            while !running.is_finished() {
                let begun = Instant::now();
                assert_eq!(text(&other.line("SET k v")), "OK");
                slowest = slowest.max(begun.elapsed());
            }
            assert!(running.join().unwrap().int() > Some(1000), "{line:?}");
            slowest.as_secs_f64() / begun.elapsed().as_secs_f64()
        })
    };
    for call in [
        &["HGETALL", "h"] as &[&str],
        &["HKEYS", "h"],
        &["HRANDFIELD", "h", &many],
        &["SMEMBERS", "s"],
        &["SUNION", "s", "t"],
        &["SRANDMEMBER", "s", &pairs],
        &["LRANGE", "l", "0", "-1"],
        &["ZRANGE", "z", "0", "-1"],
        &["ZUNION", "2", "z", "s"],
        &["ZRANDMEMBER", "z", &many],
        &["DUMP", "h"],
        &["DUMP", "l"],
        &["DUMP", "s"],
        &["DUMP", "z"],
    ] {
        // The length of an array, or of a string.
        let script = "return #redis.call(unpack(ARGV))";
        let line = [&["EVAL", script, "0"], call].concat();
        let least = (0..3).map(|_| held(&line)).fold(f64::MAX, f64::min);
        println!("{call:?}: others waited for {:.0} % of its time", least * 100.0);
        assert!(least < most, "{call:?}: others waited for {:.0} % of its time", least * 100.0);
    }
}

/// What takes long outside of Lua's own instructions.
#[test]
fn a_script_of_long_calls_is_ended_in_time() {
    let server = tern(&["--appendfsync", "no", "--busy-reply-threshold", "300"]);
    let mut client = server.client();
    for script in [
        "while true do redis.call('COMMAND') end",
        "for i = 1, 3000 do struct.unpack(ARGV[1], ARGV[1]) end while true do end",
        "while true do redis.sha1hex(ARGV[1]) end",
        "while true do cjson.encode({ARGV[1]}) end",
    ] {
        let begun = Instant::now();
        let answer = text(&eval(&mut client, script, &[], &[&"x".repeat(500_000)]));
        assert!(answer.contains("was ended"), "{script}: {answer}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{script}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_call_of_a_script_wakes_those_who_wait() {
    let server = tern(&["--appendfsync", "no"]);
    let (mut waiting, mut client) = (server.client(), server.client());
    waiting.send(&["BLPOP", "queue", "10"]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(eval(&mut client, "return redis.call('rpush', 'queue', 'x')", &[], &[]).int(), Some(1));
    assert_eq!(text(&waiting.read().unwrap().value.items().unwrap()[1]), "x");
}

#[test]
fn what_a_script_calls_is_shown_and_counted_once() {
    let server = tern(&["--appendfsync", "no", "--slowlog-log-slower-than", "0"]);
    let (mut monitor, mut client) = (server.client(), server.client());
    assert_eq!(text(&monitor.line("MONITOR")), "OK");
    client.line("CONFIG RESETSTAT");
    eval(
        &mut client,
        "redis.call('set', KEYS[1], 'v') redis.pcall('incr', KEYS[1]) return redis.call('nosuch')",
        &["k"],
        &[],
    );
    let mut lines = Vec::new();
    while lines.len() < 3 {
        let line = text(&monitor.read().unwrap().value);
        lines.push(line.split_once('[').unwrap().1.to_owned());
    }
    assert!(lines[0].contains("\"EVAL\""), "{lines:?}");
    assert_eq!(lines[1..], ["0 lua] \"set\" \"k\" \"v\"", "0 lua] \"incr\" \"k\""]);
    let stats = text(&client.line("INFO commandstats"));
    for (name, figures) in [("eval", "calls=1,"), ("set", "calls=1,"), ("incr", "calls=1,")] {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:"))).unwrap();
        assert!(
            line.contains(figures)
                && line.contains(if name == "set" { "failed_calls=0" } else { "failed_calls=1" }),
            "{line}"
        );
    }
    let slow = client.line("SLOWLOG GET 20");
    assert!(format!("{slow:?}").contains("nosuch"), "the script itself is logged");
}

#[test]
fn what_a_script_may_not_call_is_counted_as_rejected() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    client.line("CONFIG RESETSTAT");
    let script = "redis.pcall('object') redis.pcall('config', 'get', 'x') redis.pcall('nosuch') return redis.pcall('set', KEYS[1], 'v')";
    let error = text(&client.run(&["EVAL_RO", script, "1", "k"]).value);
    assert!(error.starts_with("ERR Write commands are not allowed from read-only scripts."), "{error}");
    let stats = text(&client.line("INFO commandstats"));
    for name in ["object", "config|get", "set"] {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:"))).unwrap();
        assert!(line.contains("calls=0,") && line.contains("rejected_calls=1,"), "{line}");
    }
    let error = text(&client.run(&["EVAL", "return redis.call('object')", "0"]).value);
    assert!(error.starts_with("ERR Wrong number of args calling Redis command from script"), "{error}");
}

#[test]
fn the_callers_rights_hold_for_each_call() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    client.line("ACL SETUSER few on nopass ~mine:* +eval +get +acl|whoami");
    client.line("SET mine:1 a");
    client.line("SET other b");
    let mut few = server.client();
    assert_eq!(text(&few.line("AUTH few x")), "OK");
    assert_eq!(text(&eval(&mut few, "return redis.call('get', 'mine:1')", &[], &[])), "a");
    for (script, why) in [
        ("return redis.call('get', 'other')", "can't access at least one of the keys"),
        ("return redis.pcall('set', 'mine:1', 'x')", "can't run this command"),
        ("return tostring(redis.acl_check_cmd('get', 'other'))", "false"),
    ] {
        let answer = text(&eval(&mut few, script, &[], &[]));
        assert!(answer.contains(why), "{script}: {answer}");
    }
    let log = format!("{:?}", client.line("ACL LOG"));
    assert!(log.contains("lua"), "{log}");
}

/// Another user than the one that sent it must not run it, nor nobody.
#[test]
fn a_script_of_a_user_that_is_gone_may_do_nothing() {
    let server = tern(&["--appendfsync", "no", "--busy-reply-threshold", "1500"]);
    let mut client = server.client();
    client.line("ACL SETUSER few on nopass ~mine:* +eval +get");
    client.line("SET other secret");
    // Those that run long hold all places, so that the last one waits.
    let late = "for i = 1, 2000000 do end redis.pcall('set', 'other', 'overwritten') return redis.pcall('get', 'other')";
    let scripts: Vec<&str> = std::iter::repeat_n("while true do end", 8).chain([late]).collect();
    let mut sent: Vec<Client> = scripts
        .iter()
        .map(|script| {
            let mut few = server.client();
            assert_eq!(text(&few.line("AUTH few x")), "OK");
            few.send(&["EVAL", script, "1", "mine:1"]).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            few
        })
        .collect();
    assert_eq!(client.line("ACL DELUSER few").int(), Some(1));
    let answers: Vec<_> = sent.iter_mut().map(|few| few.read()).collect();
    assert!(!format!("{answers:?}").contains("secret"));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(text(&client.line("GET other")), "secret");
}

#[test]
fn what_a_script_returns_is_bounded() {
    let server = tern(&["--appendfsync", "no", "--busy-reply-threshold", "2000"]);
    let (mut client, mut other) = (server.client(), server.client());
    let shared = |levels: usize| format!("local t = {{}} for i = 1, {levels} do t = {{ t, t }} end return t");
    assert_eq!(eval(&mut client, &shared(3), &[], &[]).items().map(<[_]>::len), Some(2));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| text(&eval(&mut client, &shared(40), &["a"], &[])));
        let mut slowest = Duration::ZERO;
        while !running.is_finished() {
            let begun = Instant::now();
            assert!(other.line("INCR a").int().is_some());
            slowest = slowest.max(begun.elapsed());
        }
        let answer = running.join().unwrap();
        assert!(answer.contains("256 MB") || answer.contains("busy-reply-threshold"), "{answer}");
        assert!(slowest < Duration::from_millis(500), "others waited {slowest:?}");
    });
}

#[test]
fn a_script_keeps_its_choices_to_itself() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    eval(&mut client, "redis.call('select', 5) redis.setresp(3)", &[], &[]);
    assert!(text(&client.line("CLIENT INFO")).contains(" db=0 "));
    // A reply that is too long is an error that the script may catch.
    let value = "x".repeat(1 << 20);
    for _ in 0..9 {
        client.run(&["RPUSH", "long", &value]);
    }
    let answer = eval(&mut client, "return redis.pcall('lrange', 'long', 0, -1)", &[], &[]);
    assert!(text(&answer).contains("too long for a script"), "{answer:?}");
}
