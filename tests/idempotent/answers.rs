//! Replies to the byte, and which commands run.

use crate::support::resp::{Value, request};
use crate::world::World;

/// Each line is sent on a connection of its own to an empty store, and gets this reply. `|` stands for CRLF,
/// @1 and @2 for two ids, and [`TEXTS`] for longer ones.
const SCRIPTS: &[(&str, &str)] = &[
    // The same id again.
    ("IDEMPOTENT @1 INCR k|IDEMPOTENT @1 INCR k|GET k|", ":1|:1|$1|1|"),
    ("idempotent @1 INCR k|INCR k|IDEMPOTENT @1 INCR k|", ":1|:2|:1|"),
    ("IDEMPOTENT @1 INCR k|IDEMPOTENT @2 INCR k|IDEMPOTENT @1 INCR k|", ":1|:2|:1|"),
    ("IDEMPOTENT @1 GET k|SET k v|IDEMPOTENT @1 GET k|GET k|", "$-1|+OK|$-1|$1|v|"),
    ("IDEMPOTENT @1 SET k v|DEL k|IDEMPOTENT @1 SET k v|GET k|", "+OK|:1|+OK|$-1|"),
    ("SADD s a|IDEMPOTENT @1 SPOP s|IDEMPOTENT @1 SPOP s|SCARD s|", ":1|$1|a|$1|a|:0|"),
    ("IDEMPOTENT @1 MGET a b|IDEMPOTENT @1 MGET a b|", "*2|$-1|$-1|*2|$-1|$-1|"),
    // Nobody waits under an id.
    (
        "IDEMPOTENT @1 XREAD BLOCK 0 STREAMS s $|XADD s 1-1 a b|IDEMPOTENT @1 XREAD BLOCK 0 STREAMS s $|",
        "*-1|$3|1-1|*-1|",
    ),
    ("XGROUP CREATE s g 0 MKSTREAM|IDEMPOTENT @1 XREADGROUP GROUP g c BLOCK 0 STREAMS s >|", "+OK|*-1|"),
    // Another command under it.
    ("IDEMPOTENT @1 INCR k|IDEMPOTENT @1 INCR j|IDEMPOTENT @1 DECR k|GET k|", ":1|-OTHER|-OTHER|$1|1|"),
    ("IDEMPOTENT @1 INCR k|SELECT 1|IDEMPOTENT @1 INCR k|EXISTS k|", ":1|+OK|-OTHER|:0|"),
    ("IDEMPOTENT @1 GET k|IDEMPOTENT @1 get k|", "$-1|-OTHER|"),
    // An error is an outcome.
    ("SET k x|IDEMPOTENT @1 INCR k|SET k 1|IDEMPOTENT @1 INCR k|GET k|", "+OK|-INT|+OK|-INT|$1|1|"),
    // A command that a gate refuses has not run, so its reply is not kept.
    ("IDEMPOTENT @1 GET|IDEMPOTENT @1 GET k|", "-ERR wrong number of arguments for 'get' command|$-1|"),
    ("IDEMPOTENT @1 FOO a|", "-ERR unknown command 'FOO', with args beginning with: 'a' |"),
    ("IDEMPOTENT|", "-ERR wrong number of arguments for 'idempotent' command|"),
    ("IDEMPOTENT @1|", "-ERR wrong number of arguments for 'idempotent' command|"),
    ("IDEMPOTENT 123456789012345 INCR k|EXISTS k|", "-BADID|:0|"),
    ("IDEMPOTENT RESLT INCR k|", "-BADID|"),
    ("IDEMPOTENT RESULT short|", "-BADID|"),
    ("IDEMPOTENT FORGET @1 short|", "-BADID|"),
    ("IDEMPOTENT RESULT|", "-ERR wrong number of arguments for 'idempotent|result' command|"),
    // Commands that change more than data are refused.
    (
        "IDEMPOTENT @1 PING|",
        "-ERR 'ping' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|",
    ),
    (
        "IDEMPOTENT @1 AUTH x|",
        "-ERR 'auth' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|",
    ),
    (
        "IDEMPOTENT @1 HELLO 3|",
        "-ERR 'hello' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|",
    ),
    (
        "IDEMPOTENT @1 MULTI|INCR k|",
        "-ERR 'multi' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|:1|",
    ),
    (
        "IDEMPOTENT @1 WATCH k|",
        "-ERR 'watch' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|",
    ),
    (
        "IDEMPOTENT @1 CLIENT REPLY OFF|",
        "-ERR 'client|reply' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|",
    ),
    (
        "IDEMPOTENT @1 CONFIG SET hz 10|",
        "-ERR 'config|set' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|",
    ),
    (
        "IDEMPOTENT @1 SHUTDOWN|PING|",
        "-ERR 'shutdown' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|+PONG|",
    ),
    (
        "IDEMPOTENT @1 IDEMPOTENT @2 INCR k|EXISTS k|",
        "-ERR 'idempotent' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|:0|",
    ),
    // SELECT's effect is repeated too.
    ("IDEMPOTENT @1 SELECT 1|SET k v|SELECT 0|IDEMPOTENT @1 SELECT 1|GET k|", "+OK|+OK|+OK|+OK|$1|v|"),
    // RESULT and FORGET.
    ("IDEMPOTENT RESULT @1|IDEMPOTENT @1 INCR k|IDEMPOTENT RESULT @1|", "*2|:0|$-1|:1|*2|:1|:1|"),
    ("SET k x|IDEMPOTENT @1 INCR k|IDEMPOTENT RESULT @1|", "+OK|-INT|*2|:1|-INT|"),
    ("IDEMPOTENT @1 INCR k|SELECT 3|IDEMPOTENT RESULT @1|", ":1|+OK|*2|:1|:1|"),
    (
        "IDEMPOTENT @1 INCR k|IDEMPOTENT FORGET @1 @2|IDEMPOTENT FORGET @1|IDEMPOTENT @1 INCR k|",
        ":1|:1|:0|:2|",
    ),
    ("IDEMPOTENT @1 INCR k|FLUSHALL|IDEMPOTENT RESULT @1|", ":1|+OK|*2|:1|:1|"),
    // EXEC.
    (
        "MULTI|INCR k|GET k|IDEMPOTENT @1 EXEC|MULTI|INCR k|GET k|IDEMPOTENT @1 EXEC|GET k|",
        "+OK|+Q|+Q|*2|:1|$1|1|+OK|+Q|+Q|*2|:1|$1|1|$1|1|",
    ),
    ("MULTI|INCR k|IDEMPOTENT @1 EXEC|MULTI|INCR j|IDEMPOTENT @1 EXEC|", "+OK|+Q|*1|:1|+OK|+Q|-OTHER|"),
    ("MULTI|INCR k|IDEMPOTENT @1 EXEC|IDEMPOTENT RESULT @1|", "+OK|+Q|*1|:1|*2|:1|*1|:1|"),
    ("IDEMPOTENT @1 INCR k|MULTI|INCR k|IDEMPOTENT @1 EXEC|GET k|", ":1|+OK|+Q|-OTHER|$1|1|"),
    ("MULTI|IDEMPOTENT @1 EXEC|IDEMPOTENT RESULT @1|", "+OK|*0|*2|:1|*0|"),
    ("IDEMPOTENT @1 EXEC|", "-ERR EXEC without MULTI|"),
    (
        "MULTI|SET k x|INCR k|IDEMPOTENT @1 EXEC|MULTI|SET k x|INCR k|IDEMPOTENT @1 EXEC|",
        "+OK|+Q|+Q|*2|+OK|-INT|+OK|+Q|+Q|*2|+OK|-INT|",
    ),
    (
        "MULTI|SELECT 1|SET k v|IDEMPOTENT @1 EXEC|SELECT 0|MULTI|SELECT 1|SET k v|IDEMPOTENT @1 EXEC|GET k|",
        "+OK|+Q|+Q|*2|+OK|+OK|+OK|+OK|+Q|+Q|*2|+OK|+OK|$1|v|",
    ),
    // An aborted EXEC did nothing and is not kept.
    (
        "WATCH k|SET k 1|MULTI|INCR k|IDEMPOTENT @1 EXEC|IDEMPOTENT RESULT @1|MULTI|INCR k|IDEMPOTENT @1 EXEC|",
        "+OK|+OK|+OK|+Q|*-1|*2|:0|$-1|+OK|+Q|*1|:2|",
    ),
    // A repeated one is answered even if a watched key has changed since: it ran.
    (
        "MULTI|INCR k|IDEMPOTENT @1 EXEC|WATCH k|INCR k|MULTI|INCR k|IDEMPOTENT @1 EXEC|GET k|",
        "+OK|+Q|*1|:1|+OK|:2|+OK|+Q|*1|:1|$1|2|",
    ),
    (
        "MULTI|INCR k|FOO|IDEMPOTENT @1 EXEC|IDEMPOTENT RESULT @1|",
        "+OK|+Q|-ERR unknown command 'FOO', with args beginning with: |-SPOILT|*2|:0|$-1|",
    ),
    (
        "MULTI|INCR k|PING|IDEMPOTENT @1 EXEC|EXISTS k|EXEC|",
        "+OK|+Q|+Q|-EXECABORT Transaction discarded because of: 'ping' cannot run under an id: only commands on data, PUBLISH, SELECT and EXEC can|:0|-ERR EXEC without MULTI|",
    ),
    (
        "MULTI|IDEMPOTENT @1 EXEC x|EXEC|",
        "+OK|-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command|-ERR EXEC without MULTI|",
    ),
    // Inside MULTI only EXEC can have an id.
    (
        "MULTI|IDEMPOTENT @1 INCR k|IDEMPOTENT @1 EXEC|EXISTS k|",
        "+OK|-ERR inside a transaction only EXEC can have an id: IDEMPOTENT <id> EXEC|-SPOILT|:0|",
    ),
    ("MULTI|IDEMPOTENT short EXEC|EXEC|", "+OK|-BADID|-SPOILT|"),
    (
        "IDEMPOTENT @1 INCR k|MULTI|IDEMPOTENT RESULT @1|IDEMPOTENT FORGET @1|EXEC|",
        ":1|+OK|+Q|+Q|*2|*2|:1|:1|:1|",
    ),
    // The table's facts about the prefix are those of its command.
    ("COMMAND GETKEYS IDEMPOTENT @1 MSET a 1 b 2|", "*2|$1|a|$1|b|"),
    ("COMMAND GETKEYS IDEMPOTENT @1 SINTERCARD 2 a b|", "*2|$1|a|$1|b|"),
    ("COMMAND GETKEYS IDEMPOTENT @1 PING|", "-ERR The command has no key arguments|"),
    ("COMMAND GETKEYS IDEMPOTENT @1|", "-ERR Invalid command specified|"),
];

/// Abbreviations of the scripts.
const TEXTS: &[(&str, &str)] = &[
    ("@1", "request:00000001"),
    ("@2", "request:00000002"),
    ("-OTHER", "-ERR the id was already used for another command or in another database"),
    ("-INT", "-ERR value is not an integer or out of range"),
    ("-BADID", "-ERR an id must have 16 to 255 bytes. Try IDEMPOTENT HELP."),
    ("-SPOILT", "-EXECABORT Transaction discarded because of previous errors."),
    ("+Q|", "+QUEUED|"),
];

fn written_out(short: &str) -> String {
    TEXTS.iter().fold(short.to_owned(), |text, (word, long)| text.replace(word, long))
}

#[test]
fn scripts_are_answered_to_the_byte() {
    let world = World::new(1);
    for (script, want) in SCRIPTS {
        world.answers(0, &written_out("FLUSHALL|IDEMPOTENT FORGET @1 @2|").replace('|', "\r\n"));
        let lines = written_out(script).replace('|', "\r\n");
        let got = world.answers(0, &lines);
        assert_eq!(got, written_out(want), "{script}");
    }
}

const ID: &str = "request:00000001";

#[test]
fn another_server_repeats_the_first_ones_answer() {
    let world = World::new(2);
    assert_eq!(world.line(0, &format!("IDEMPOTENT {ID} INCR k")), Value::Int(1));
    assert_eq!(world.line(1, &format!("IDEMPOTENT {ID} INCR k")), Value::Int(1));
    assert_eq!(world.line(1, "INCR k"), Value::Int(2));
    assert_eq!(
        world.answers(1, &format!("IDEMPOTENT RESULT {ID}\r\n")),
        "*2|:1|:1|",
        "RESULT on another server"
    );
    assert_eq!(world.repeats(), 1);
}

#[test]
fn ids_of_all_lengths_and_bytes() {
    let world = World::new(1);
    let mut client = world.client(0);
    for len in [16, 17, 100, 255] {
        for byte in [0u8, b' ', 0xff] {
            let id = vec![byte; len];
            let argv: Vec<&[u8]> = vec![b"IDEMPOTENT", &id, b"INCR", b"k"];
            let first = client.run(&argv).value;
            assert_eq!(client.run(&argv).value, first, "{len} times {byte}");
        }
    }
    assert_eq!(client.line("GET k"), Value::Bulk(b"12".to_vec()));
    for len in [0, 1, 15, 256, 1000] {
        assert!(client.run(&[b"IDEMPOTENT".to_vec(), vec![b'x'; len], b"DBSIZE".to_vec()]).value.is_error());
    }
}

#[test]
fn each_protocol_gets_the_reply_in_its_own_form() {
    let world = World::new(1);
    world.line(0, "SADD s a");
    let ask = format!("IDEMPOTENT {ID} SMEMBERS s\r\n");
    let other = "IDEMPOTENT request:00000002 GET nothing\r\n";
    assert_eq!(world.answers(0, &format!("{ask}{other}")), "*1|$1|a|$-1|");
    let three = world.answers(0, &format!("HELLO 3\r\n{ask}{other}"));
    assert!(three.ends_with("~1|$1|a|_|"), "{three}");
}

#[test]
fn a_pipeline_keeps_its_order() {
    let world = World::new(1);
    let mut client = world.client(0);
    let mut raw = Vec::new();
    for n in 0..500 {
        raw.extend(request(&["APPEND", "log", "a"]));
        raw.extend(request(&["IDEMPOTENT", &format!("request:{:08}", n / 2), "APPEND", "log", "b"]));
    }
    client.send_raw(&raw).unwrap();
    let mut length = 0;
    let mut before = 0;
    for n in 0..500 {
        length += 1;
        assert_eq!(client.read().unwrap().value, Value::Int(length));
        if n % 2 == 0 {
            length += 1;
            before = length;
        }
        assert_eq!(client.read().unwrap().value, Value::Int(before), "request {n}");
    }
    assert_eq!(length, 750);
}

#[test]
fn a_long_reply_is_kept_in_pieces() {
    let world = World::new(2);
    let long = "x".repeat(3_000_000);
    world.client(0).run(&["SET", "k", &long]);
    let ask = ["IDEMPOTENT", ID, "GETDEL", "k"];
    let want = Value::Bulk(long.into_bytes());
    assert!(world.client(0).run(&ask).value == want, "the first answer");
    assert!(world.client(1).run(&ask).value == want, "the second answer");
    let result = world.client(1).run(&["IDEMPOTENT", "RESULT", ID]).value;
    assert!(result == Value::Array(vec![Value::Int(1), want]), "RESULT");
    assert_eq!(world.line(0, &format!("IDEMPOTENT FORGET {ID}")), Value::Int(1));
    assert_eq!(world.client(0).run(&ask).value, Value::Nil(b'$'));
}

#[test]
fn a_reply_too_long_to_keep_is_refused_and_undone() {
    let world = World::new(1);
    let mut client = world.client(0);
    let long = "x".repeat(9_000_000);
    client.run(&["SET", "k", &long]);
    let refused = client.run(&["IDEMPOTENT", ID, "GETDEL", "k"]).raw;
    let refused = String::from_utf8(refused).unwrap();
    assert!(refused.contains("too long to be kept under an id (limit 8000000)"), "{refused}");
    assert_eq!(client.line("STRLEN k"), Value::Int(9_000_000));
    assert_eq!(
        client.line(&format!("IDEMPOTENT RESULT {ID}")),
        Value::Array(vec![Value::Int(0), Value::Nil(b'$')])
    );
    // The same inside EXEC: all of it is undone.
    for line in ["MULTI", "INCR n", "GETDEL k"] {
        client.line(line);
    }
    let refused = String::from_utf8(client.run(&["IDEMPOTENT", ID, "EXEC"]).raw).unwrap();
    assert!(refused.starts_with("-ERR reply of 90000"), "{refused}");
    assert_eq!(client.line("STRLEN k"), Value::Int(9_000_000));
    assert_eq!(client.line("EXISTS n"), Value::Int(0));
    // Its neighbours in the pipeline are not affected.
    client.send_raw(b"INCR n\r\n").unwrap();
    client.send(&["IDEMPOTENT", ID, "GETDEL", "k"]).unwrap();
    client.send_raw(b"INCR n\r\n").unwrap();
    assert_eq!(client.read().unwrap().value, Value::Int(1));
    assert!(client.read().unwrap().value.is_error());
    assert_eq!(client.read().unwrap().value, Value::Int(2));
}

#[test]
fn a_large_argument_under_an_id() {
    let world = World::new(1);
    let mut client = world.client(0);
    let long = "x".repeat(12_000_000);
    let ask = ["IDEMPOTENT", ID, "APPEND", "k", &long];
    assert_eq!(client.run(&ask).value, Value::Int(12_000_000));
    assert_eq!(client.run(&ask).value, Value::Int(12_000_000));
    assert_eq!(client.line("STRLEN k"), Value::Int(12_000_000));
}

#[test]
fn heavy_and_read_only_commands_run_once_too() {
    let world = World::new(1);
    world.line(0, "SADD a 1 2");
    world.line(0, "SADD b 2 3");
    let store = format!("IDEMPOTENT {ID} SINTERSTORE c a b");
    assert_eq!(world.line(0, &store), Value::Int(1));
    world.line(0, "SADD a 3");
    assert_eq!(world.line(0, &store), Value::Int(1));
    assert_eq!(world.line(0, "SCARD c"), Value::Int(1));
    let keys = "IDEMPOTENT request:00000002 DBSIZE";
    assert_eq!(world.line(0, keys), Value::Int(3));
    world.line(0, "SET d 1");
    assert_eq!(world.line(0, keys), Value::Int(3));
}

#[test]
fn two_connections_with_one_id_at_once() {
    let world = World::new(2);
    for round in 0..40 {
        let id = format!("round:{round:012}");
        let argv = ["IDEMPOTENT", &id, "INCR", "k"];
        let answers: Vec<Value> = std::thread::scope(|scope| {
            let (world, argv) = (&world, &argv);
            let threads: Vec<_> =
                (0..6).map(|n| scope.spawn(move || world.client(n % 2).run(argv).value)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|a| *a == Value::Int(round + 1)), "{answers:?}");
    }
}

#[test]
fn authentication_comes_first() {
    let world = World::new(1);
    world.line(0, "CONFIG SET requirepass secret");
    let noauth = "-NOAUTH Authentication required.|";
    assert_eq!(world.answers(0, &format!("IDEMPOTENT {ID} INCR k\r\n")), noauth);
    assert_eq!(world.answers(0, &format!("IDEMPOTENT RESULT {ID}\r\n")), noauth);
    assert_eq!(world.answers(0, &format!("AUTH secret\r\nIDEMPOTENT {ID} INCR k\r\n")), "+OK|:1|");
}
