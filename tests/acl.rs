//! Users and their rights on real connections: the effect of a change on connected clients, the files, and
//! the counters. `differential/acl.rs` compares the rules and their error messages with Redis.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use support::resp::{Client, Value};
use support::server::{Refused, Server, binary, tern, tern_in, try_start};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}"))).into_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.items().unwrap_or_else(|| panic!("not an array: {value:?}")).iter().map(text).collect()
}

fn logged_in(server: &Server, user: &str, password: &str) -> Client {
    let mut c = server.client();
    assert_eq!(c.line(&format!("AUTH {user} {password}")), ok());
    c
}

const NO_KEY: &str = "NOPERM this user has no permissions to access one of the keys used as arguments";

#[test]
fn a_change_applies_from_the_next_command() {
    let server = tern(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on >pw ~k* +@all");
    let mut bob = logged_in(&server, "bob", "pw");
    assert_eq!(text(&bob.line("ACL WHOAMI")), "bob");
    assert_eq!(bob.line("SET k v"), ok());
    assert_eq!(text(&bob.line("SET x v")), NO_KEY);
    admin.line("ACL SETUSER bob -set");
    assert_eq!(text(&bob.line("SET k v")), "NOPERM this user has no permissions to run the 'set' command");
    admin.line("ACL SETUSER bob +set allkeys");
    assert_eq!(bob.line("SET x v"), ok());
    admin.line("ACL SETUSER bob off");
    assert_eq!(bob.line("SET x v"), ok(), "a connected client stays");
    let refused = server.client().line("AUTH bob pw");
    assert_eq!(text(&refused), "WRONGPASS invalid username-password pair or user is disabled.");
}

#[test]
fn a_rule_change_applies_to_later_commands_of_the_same_pipeline() {
    let server = tern(&[]);
    let mut c = server.client();
    c.send_raw(b"SET k v\r\nACL SETUSER default -set\r\nSET k w\r\nGET k\r\n").unwrap();
    assert_eq!(c.read().unwrap().value, ok());
    assert_eq!(c.read().unwrap().value, ok());
    assert!(text(&c.read().unwrap().value).starts_with("NOPERM "));
    assert_eq!(text(&c.read().unwrap().value), "v");
}

#[test]
fn a_transaction_is_checked_when_queued_and_when_it_runs() {
    let server = tern(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on >pw ~* +@all");
    let mut bob = logged_in(&server, "bob", "pw");
    for line in ["MULTI", "SET a 1", "GET a", "SET b 1"] {
        bob.line(line);
    }
    admin.line("ACL SETUSER bob -get");
    let replies = bob.line("EXEC");
    let replies = replies.items().unwrap();
    assert_eq!((&replies[0], &replies[2]), (&ok(), &ok()));
    assert!(text(&replies[1]).starts_with("NOPERM ACLs rules changed between"), "{replies:?}");
    bob.line("MULTI");
    assert!(text(&bob.line("GET a")).starts_with("NOPERM "));
    assert!(text(&bob.line("EXEC")).starts_with("EXECABORT "));
    let id = "0123456789abcdef";
    assert!(
        text(&bob.line(&format!("IDEMPOTENT {id} GET a"))).starts_with("NOPERM "),
        "an id grants no rights"
    );
}

#[test]
fn connections_of_removed_users_are_closed() {
    let server = tern(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on >pw +@all");
    let (mut bob, mut other) = (logged_in(&server, "bob", "pw"), server.client());
    other.line("PING");
    assert_eq!(admin.line("ACL DELUSER bob nosuch").int(), Some(1));
    assert!(bob.drain().1, "closed");
    assert_eq!(other.line("PING"), Value::Simple(b"PONG".to_vec()));
    admin.line("ACL SETUSER eve on nopass +@all");
    let mut eve = logged_in(&server, "eve", "x");
    assert_eq!(eve.line("ACL DELUSER eve").int(), Some(1), "the reply precedes the close");
    assert!(eve.drain().1);
    admin.line("ACL SETUSER eve on nopass +@all");
    let mut eve = logged_in(&server, "eve", "x");
    assert_eq!(admin.line("CLIENT KILL USER eve").int(), Some(1));
    assert!(eve.drain().1);
}

#[test]
fn requirepass_is_the_default_users_password() {
    let server = tern(&["--requirepass", "first"]);
    let mut c = server.client();
    assert_eq!(text(&c.line("PING")), "NOAUTH Authentication required.");
    assert_eq!(c.line("AUTH first"), ok());
    assert_eq!(c.line("CONFIG SET requirepass second"), ok());
    assert!(server.client().line("AUTH first").is_error());
    assert_eq!(server.client().line("AUTH default second"), ok());
    c.line("ACL SETUSER default >third");
    assert_eq!(server.client().line("AUTH third"), ok());
    c.run(&["CONFIG", "SET", "requirepass", ""]);
    assert_eq!(server.client().line("PING"), Value::Simple(b"PONG".to_vec()));
    let list = texts(&c.line("ACL LIST"));
    assert_eq!(list, ["user default on nopass ~* &* +@all"]);
    c.line("ACL SETUSER default off");
    assert_eq!(text(&server.client().line("PING")), "NOAUTH Authentication required.");
}

#[test]
fn rules_are_shown_as_they_were_given() {
    let server = tern(&[]);
    let mut c = server.client();
    c.line("ACL SETUSER bob +@all -@dangerous +keys +@hash -config +config|get +select|0 (~x +get)");
    c.line("ACL SETUSER bob -keys on >pw %R~a %W~b ~c &n*");
    let sha = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
    let line = format!(
        "user bob on #{sha} %R~a %W~b ~c resetchannels &n* +@all -@dangerous +@hash -config +config|get +select|0 -keys \
         (~x resetchannels -@all +get)"
    );
    let list = texts(&c.line("ACL LIST"));
    assert_eq!(list[0], line);
    let rules: Vec<&str> = list[0].split_once("user bob ").unwrap().1.split(' ').collect();
    c.run(&[&["ACL", "SETUSER", "copy"][..], &rules].concat());
    assert_eq!(
        texts(&c.line("ACL LIST"))[1],
        line.replace("user bob", "user copy"),
        "the shown rules create the same user"
    );
}

#[test]
fn generated_passwords_are_random_and_of_the_requested_length() {
    let server = tern(&[]);
    let mut c = server.client();
    let (one, two) = (text(&c.line("ACL GENPASS")), text(&c.line("ACL GENPASS")));
    assert!(one.len() == 64 && two.len() == 64 && one != two, "{one} {two}");
    for (bits, digits) in [(1, 1), (5, 2), (128, 32), (4096, 1024)] {
        let password = text(&c.line(&format!("ACL GENPASS {bits}")));
        assert!(password.len() == digits && password.bytes().all(|b| b.is_ascii_hexdigit()), "{password}");
    }
}

#[test]
fn refusals_are_counted() {
    let server = tern(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on nopass ~k +@all -del");
    let mut bob = logged_in(&server, "bob", "x");
    for line in ["SET x 1", "SET x 1", "DEL k", "AUTH bob", "AUTH nobody x"] {
        bob.line(line);
    }
    let info = text(&admin.line("INFO stats"));
    for line in ["auth:1", "cmd:1", "key:2", "channel:0"] {
        assert!(info.contains(&format!("acl_access_denied_{line}\r\n")), "{line}: {info}");
    }
    let info = text(&admin.line("INFO everything"));
    assert!(info.contains("errorstat_NOPERM:count=3"), "{info}");
    assert!(info.contains("cmdstat_set:calls=0,usec=0,usec_per_call=0.00,rejected_calls=2"), "{info}");
    admin.line("CONFIG SET acllog-max-len 1");
    bob.line("SET y 1");
    let log = admin.line("ACL LOG");
    let entry = log.items().unwrap();
    assert_eq!(entry.len(), 1, "{log:?}");
    let facts = entry[0].items().unwrap();
    let fact = |name: &str| {
        let at = facts.iter().position(|f| f.bytes() == Some(name.as_bytes())).unwrap();
        facts[at + 1].clone()
    };
    assert_eq!((text(&fact("object")), text(&fact("username"))), ("y".into(), "bob".into()));
    assert!(text(&fact("client-info")).contains(" user=bob "), "{log:?}");
}

fn write(path: &Path, lines: &str) {
    std::fs::write(path, lines).unwrap();
}

#[test]
fn an_aclfile_is_read_and_written() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("users.acl");
    write(&file, "user bob on nopass ~k +get\n\nuser eve on >pw (~x +set ~y) &*\n");
    let server = tern_in(&home.path().join("data"), &["--aclfile", file.to_str().unwrap()]);
    let mut c = server.client();
    assert_eq!(texts(&c.line("ACL USERS")), ["bob", "default", "eve"]);
    let (mut bob, mut eve) = (logged_in(&server, "bob", "x"), logged_in(&server, "eve", "pw"));
    assert_eq!(eve.line("SET y 1"), ok());
    c.line("ACL SETUSER new on >secret ~* +@read");
    assert_eq!(c.line("ACL SAVE"), ok());
    let saved = std::fs::read_to_string(&file).unwrap();
    assert!(saved.contains("user new on #") && !saved.contains("secret"), "{saved}");
    assert_eq!(saved.lines().map(str::to_owned).collect::<Vec<_>>(), texts(&c.line("ACL LIST")));
    write(&file, "user bob on nopass ~k +get\nuser bob on\nuser eve on +nosuch\nadmin\n");
    let refused = text(&c.line("ACL LOAD"));
    for part in [":2: Duplicate user 'bob'", ":3: Error in applying operation '+nosuch'", ":4: should start"]
    {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(texts(&c.line("ACL USERS")).len(), 4, "a failed load changes nothing");
    write(&file, "user bob on nopass ~k +get +set\n");
    assert_eq!(c.line("ACL LOAD"), ok());
    assert_eq!(bob.line("SET k 1"), ok());
    assert!(eve.drain().1, "a client of a removed user is closed");
    assert_eq!(texts(&c.line("ACL USERS")), ["bob", "default"]);
}

/// A save that finishes before its reply is in the file, whoever saves at the same time.
#[test]
fn concurrent_saves_leave_the_latest_users() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("users.acl");
    write(&file, "user default on nopass ~* &* +@all\n");
    let server = tern_in(&home.path().join("data"), &["--aclfile", file.to_str().unwrap()]);
    let mut c = server.client();
    // Enough users that writing the file takes long.
    for n in 0..300 {
        c.line(&format!("ACL SETUSER user{n} on >pw ~{} +@all", "k".repeat(1000)));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut other = server.client();
                while !stop.load(Relaxed) {
                    assert_eq!(other.line("ACL SAVE"), ok());
                }
            });
        }
        let mut lost = Vec::new();
        for n in 0..100 {
            assert_eq!(c.line(&format!("ACL SETUSER bob reset ~key{n}")), ok());
            assert_eq!(c.line("ACL SAVE"), ok());
            let saved = std::fs::read_to_string(&file).unwrap();
            if !saved.contains(&format!("~key{n} ")) || saved.lines().count() != 302 {
                lost.push(n);
            }
        }
        stop.store(true, Relaxed);
        assert!(lost.is_empty(), "not in the file: {lost:?}");
    });
}

/// A server with a configuration file and a data directory beside it.
fn start_with(conf: &Path) -> Result<Server, Refused> {
    let mut command = std::process::Command::new(binary());
    command.arg(conf).arg("--dir").arg(conf.with_file_name("data"));
    try_start(command, &conf.with_file_name("log"))
}

#[test]
fn users_of_the_configuration_file_are_rewritten_there() {
    let home = tempfile::tempdir().unwrap();
    let conf = home.path().join("tern.conf");
    let start = || start_with(&conf);
    write(&conf, "# mine\nuser bob on >pw ~k +@all\ntimeout 7\n");
    let mut server = start().unwrap();
    let mut bob = logged_in(&server, "bob", "pw");
    assert_eq!(text(&bob.line("SET x 1")), NO_KEY);
    let mut c = server.client();
    c.line("ACL SETUSER eve on nopass ~* +get");
    assert_eq!(c.line("CONFIG REWRITE"), ok());
    assert!(server.terminate());
    let text_of = std::fs::read_to_string(&conf).unwrap();
    assert!(
        text_of.starts_with("# mine\nuser bob on #") && text_of.contains("\nuser eve on nopass "),
        "{text_of}"
    );
    let server = start().unwrap();
    assert_eq!(texts(&server.client().line("ACL USERS")), ["bob", "default", "eve"]);
    drop(server);
    for (line, why) in [
        ("user bob on +nosuch\n", "Unknown command or category name in ACL"),
        ("user bob on >x\nuser bob off\n", "Duplicate user 'bob'"),
        ("user bob on\naclfile users.acl\n", "it must be one of them"),
        ("aclfile /nonexistent/users.acl\n", "Error loading ACLs, opening file"),
    ] {
        write(&conf, line);
        let refused = start().err().unwrap_or_else(|| panic!("{line} is accepted"));
        assert!(refused.said.contains(why), "{line}: {}", refused.said);
    }
}

/// Hazard: a pattern changes when it is saved and loaded, or the saved file keeps every server from starting.
#[test]
fn users_of_any_bytes_survive_a_save() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("users.acl");
    write(&file, "");
    let server = tern_in(&home.path().join("data"), &["--aclfile", file.to_str().unwrap()]);
    let mut c = server.client();
    let rules: [&[u8]; 6] = [b"on", b"nopass", b"~\xff*", b"&\xfe", b"+get|\xfd", b"(~\xfc +set)"];
    assert_eq!(c.run(&[&[&b"ACL"[..], b"SETUSER", b"b\xfcb"], &rules[..]].concat()).value, ok());
    let before = c.line("ACL LIST");
    let line = before.items().unwrap().first().and_then(Value::bytes).unwrap().to_vec();
    for rule in rules.iter().filter(|rule| !rule.is_ascii()) {
        let rule = rule.split(|b| *b == b' ').next().unwrap();
        assert!(line.windows(rule.len()).any(|w| w == rule), "{}", line.escape_ascii());
    }
    assert_eq!((c.line("ACL SAVE"), c.line("ACL LOAD")), (ok(), ok()));
    assert_eq!(c.line("ACL LIST"), before);
    // Bytes that no users' file can hold.
    for rule in [&b"+get|a b"[..], b"(~a) +get)", b"+get|a\n"] {
        assert!(c.run(&[&b"ACL"[..], b"SETUSER", b"eve", rule]).value.is_error(), "{}", rule.escape_ascii());
    }
}

#[test]
fn users_with_quotes_and_odd_spaces_survive_a_rewrite() {
    let home = tempfile::tempdir().unwrap();
    let conf = home.path().join("tern.conf");
    let start = || start_with(&conf);
    write(&conf, "timeout 7\n");
    let mut server = start().unwrap();
    let mut c = server.client();
    let odd = ["\"eve on ~a\u{a0}b +get", "bob's on nopass ~\"x +get|'y", "'z on ~\\x41 ~#"];
    for user in odd.iter().chain(&["all on %RW~* %R~x +get", "both on %R~x %R~* %W~* (%RW~* ~y)"]) {
        assert_eq!(c.line(&format!("ACL SETUSER {user}")), ok());
    }
    let before = c.line("ACL LIST");
    assert_eq!(c.line("CONFIG REWRITE"), ok());
    assert!(server.terminate());
    let server = start().unwrap_or_else(|e| panic!("{e:?}: {}", std::fs::read_to_string(&conf).unwrap()));
    let mut c = server.client();
    assert_eq!(c.line("ACL LIST"), before);
    assert_eq!(c.run(&[&b"ACL"[..], b"SETUSER", b"bob", b"~\xff"]).value, ok());
    assert!(c.line("CONFIG REWRITE").is_error(), "the file is text");
}

/// Users created for Redis may name commands that only Redis has: their rules are kept as Redis shows them
/// and grant nothing here.
#[test]
fn rules_may_name_commands_that_only_redis_has() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("users.acl");
    let rules = "+get +vadd +xgroup|create +function|load +zadd|key +@list -lpush";
    std::fs::write(
        &file,
        format!("user app on nopass ~* resetchannels -@all {rules}\nuser all on nopass ~* &* +@all -vadd\n"),
    )
    .unwrap();
    let server = tern(&["--aclfile", file.to_str().unwrap()]);
    let mut c = server.client();
    let expected = [
        format!("user app on nopass ~* resetchannels -@all {rules}"),
        "user all on nopass ~* &* +@all -vadd".into(),
    ];
    let list = texts(&c.line("ACL LIST"));
    assert!(expected.iter().all(|line| list.contains(line)), "{list:?}");
    let mut app = logged_in(&server, "app", "any");
    assert_eq!(app.line("GET k"), Value::Nil(b'$'));
    assert!(text(&app.line("SET k v")).starts_with("NOPERM"));
    assert!(text(&app.line("VADD k * f v")).starts_with("ERR unknown command 'VADD'"));
    assert_eq!(c.line("ACL SETUSER app -vadd +VDIM|f"), ok());
    let changed = texts(&c.line("ACL LIST")).into_iter().find(|line| line.starts_with("user app")).unwrap();
    assert!(changed.ends_with("+@list -lpush -vadd +vdim|f"), "{changed}");
    for (rule, why) in [
        ("+vaddd", "Unknown command or category name in ACL"),
        ("-xgroup|nosuch", "Unknown command or category name in ACL"),
        ("+xgroup|nosuch", "Unknown command or category name in ACL"),
        ("+function|nosuch", "Unknown command or category name in ACL"),
        ("+xgroup|create|x", "Allowing first-arg of a subcommand is not supported"),
        ("+vadd|", "Syntax error"),
    ] {
        let refused = text(&c.line(&format!("ACL SETUSER app {rule}")));
        assert!(refused.contains(why), "{rule}: {refused}");
    }
}

#[test]
fn acl_pubsub_default_sets_the_channels_of_a_new_user() {
    let server = tern(&["--acl-pubsub-default", "allchannels"]);
    let mut c = server.client();
    c.line("ACL SETUSER a");
    c.line("CONFIG SET acl-pubsub-default resetchannels");
    c.line("ACL SETUSER b");
    assert_eq!(
        texts(&c.line("ACL LIST"))[..2],
        ["user a off &* -@all".to_owned(), "user b off resetchannels -@all".into()]
    );
}

#[test]
fn a_subscriber_to_a_channel_now_forbidden_is_closed() {
    let server = tern(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on nopass +@all &a &b* &c");
    let (mut on_a, mut on_b, mut on_pattern) =
        (logged_in(&server, "bob", "x"), logged_in(&server, "bob", "x"), logged_in(&server, "bob", "x"));
    on_a.line("SUBSCRIBE a");
    on_b.line("SUBSCRIBE bb");
    on_pattern.line("PSUBSCRIBE b*");
    let line = "NOPERM this user has no permissions to access one of the channels used as arguments";
    assert_eq!(text(&logged_in(&server, "bob", "x").line("PSUBSCRIBE bb")), line);
    admin.line("ACL SETUSER bob resetchannels &b* &d");
    assert!(on_a.drain().1, "closed");
    assert_eq!(admin.line("PUBLISH bb m").int(), Some(2), "other clients stay");
    admin.line("ACL SETUSER bob resetchannels &bb");
    assert!(on_pattern.drain().1, "a pattern is allowed literally or not at all");
    assert_eq!(admin.line("PUBLISH bb m").int(), Some(1));
}

#[test]
fn users_with_binary_names_are_distinct() {
    let server = tern(&[]);
    let mut admin = server.client();
    let (one, two) = (&b"\xfe"[..], &b"\xff"[..]);
    let mut clients = [one, two].map(|name| {
        assert_eq!(
            admin.run(&[&b"ACL"[..], b"SETUSER", name, b"on", b"nopass", b"+@all", b"&a"]).value,
            ok()
        );
        let mut client = server.client();
        assert_eq!(client.run(&[&b"AUTH"[..], name, b"x"]).value, ok());
        client.line("SUBSCRIBE a");
        client
    });
    admin.run(&[&b"ACL"[..], b"SETUSER", two, b"resetchannels"]);
    assert!(clients[1].drain().1, "a subscriber to a forbidden channel is closed");
    assert_eq!(admin.line("PUBLISH a m").int(), Some(1), "the other client stays");
    assert_eq!(admin.run(&[&b"ACL"[..], b"DELUSER", two]).value.int(), Some(1));
    assert_eq!(admin.line("PUBLISH a m").int(), Some(1), "the other client stays");
    assert_eq!(admin.run(&[&b"CLIENT"[..], b"KILL", b"USER", one]).value.int(), Some(1));
    assert!(clients[0].drain().1, "closed");
}

/// However the words of a call are chosen.
#[test]
fn streams_of_others_cannot_be_read_by_a_group() {
    let server = tern(&[]);
    let mut admin = server.client();
    for key in ["secret", "bobx"] {
        for group in ["g", "GROUP", "NOACK", "STREAMS"] {
            admin.line(&format!("XGROUP CREATE {key} {group} 0 MKSTREAM"));
        }
        admin.line(&format!("XADD {key} * f v"));
    }
    admin.line("ACL SETUSER bob on nopass ~bob* +@all");
    let mut bob = logged_in(&server, "bob", "x");
    for line in [
        "GROUP g c STREAMS secret >",
        "NOACK GROUP g c STREAMS secret >",
        "NOACK NOACK GROUP g c STREAMS secret >",
        "COUNT 1 GROUP GROUP c STREAMS secret >",
        "COUNT 1 GROUP NOACK STREAMS STREAMS bobx secret > >",
        "GROUP STREAMS STREAMS STREAMS bobx secret > >",
        "BLOCK 1 CLAIM 0 GROUP STREAMS bobx STREAMS secret >",
        "GROUP g c GROUP GROUP STREAMS STREAMS secret 0",
    ] {
        assert_eq!(text(&bob.line(&format!("XREADGROUP {line}"))), NO_KEY, "{line}");
    }
    assert!(!bob.line("XREADGROUP COUNT 1 NOACK GROUP STREAMS STREAMS STREAMS bobx >").is_error());
    assert_eq!(admin.line("XPENDING secret g").items().unwrap()[0], Value::Int(0));
}

#[test]
fn acl_log_entries_are_bounded_in_size() {
    let server = tern(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on nopass ~k &c +@all");
    let mut bob = logged_in(&server, "bob", "x");
    let long = "x".repeat(1 << 20);
    bob.run(&["CLIENT", "SETNAME", &long]);
    bob.run(&["GET", &long]);
    bob.run(&["PUBLISH", &long, "m"]);
    bob.run(&["AUTH", &long, "x"]);
    let log = admin.line("ACL LOG");
    let entries = log.items().unwrap();
    assert_eq!(entries.len(), 3);
    for entry in entries {
        let held: usize = entry.items().unwrap().iter().filter_map(Value::bytes).map(<[u8]>::len).sum();
        assert!(held < 20 << 10, "{held} bytes");
    }
}
