//! SORT of sets, with a defined order that both servers must find.

use crate::support::resp::text;
use crate::support::server::{redis, tern};

const STATE: &[&str] = &[
    "FLUSHALL",
    "SADD numbers 5 -3 12 0 100 -70 7 1.5 1e3",
    "SADD words a bb A zz Zebra 10 9",
    "SADD one x",
    "SET string v",
    "MSET w_5 1 w_-3 2 w_12 -1 w_0 1.5 w_100 40 w_7 x",
    "MSET v_a one v_bb two v_zz three v_10 ten",
    "MSET p5q 9 p12q 8 p0q 7",
    "SADD v_A member",
    "HSET o_5 field 3 other x",
    "HSET o_-3 field 1",
    "HSET o_12 other 5",
    "HSET o_0 field 1.5",
    "HSET o_a field one",
    "HSET o_bb field two",
    "HSET o_-> field arrow",
];

const LINES: &[&str] = &[
    "SORT numbers",
    "SORT numbers DESC",
    "SORT numbers ALPHA",
    "SORT numbers ALPHA DESC",
    "SORT numbers LIMIT 2 3",
    "SORT numbers LIMIT -2 3 DESC",
    "SORT numbers LIMIT 3 -1",
    "SORT numbers LIMIT 3 0",
    "SORT numbers LIMIT 100 5",
    "SORT numbers limit 0 9223372036854775807",
    "SORT numbers LIMIT 0 x",
    "SORT numbers LIMIT 0",
    "SORT numbers BY w_*",
    "SORT numbers BY w_* ALPHA LIMIT 3 6",
    "SORT numbers BY p*q",
    "SORT numbers BY p*q DESC",
    "SORT numbers BY missing_*",
    "SORT numbers BY missing_* DESC",
    "SORT numbers BY w_*->field",
    "SORT numbers BY w_*->",
    "SORT numbers BY o_*->field",
    "SORT numbers BY o_*->field DESC GET # GET o_*->field GET o_*->other GET o_*->",
    "SORT numbers BY o_*->other ALPHA GET o_*->other",
    "SORT numbers BY o_*->other",
    "SORT words ALPHA GET o_*->field GET v_*->field GET o_*->field->x",
    "SORT words",
    "SORT words ALPHA",
    "SORT words ALPHA DESC",
    "SORT words ALPHA LIMIT 1 2",
    "SORT words ALPHA GET v_*",
    "SORT words ALPHA GET # GET v_* GET nothing",
    "SORT words ALPHA GET v_*->field",
    "SORT words ALPHA GET *",
    "SORT words ALPHA DESC ASC",
    "SORT one",
    "SORT one BY nosort",
    "SORT one BY nosort GET # GET v_*",
    "SORT one BY nosort LIMIT 1 1",
    "SORT missing",
    "SORT missing BY nosort GET #",
    "SORT string",
    "SORT string FOO",
    "SORT numbers GET",
    "SORT numbers BY",
    "SORT_RO numbers",
    "SORT_RO numbers STORE k",
    "SORT numbers STORE",
    "COMMAND GETKEYS SORT_RO numbers BY w_*",
    "COMMAND GETKEYS SORT numbers",
];

#[test]
fn sets_are_sorted_as_by_redis() {
    let Some(redis) = redis("SORT differential test") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    let (mut redis, mut tern) = (redis.client(), tern.client());
    let mut complaints = Vec::new();
    for protocol in ["2", "3"] {
        for client in [&mut redis, &mut tern] {
            client.run(&["HELLO", protocol]);
            STATE.iter().for_each(|line| drop(client.line(line)));
        }
        for line in LINES {
            let argv: Vec<&str> = line.split(' ').collect();
            let (expected, got) = (redis.run(&argv).raw, tern.run(&argv).raw);
            if expected != got {
                complaints.push(format!("{line}\n  redis: {}\n  tern:  {}", text(&expected), text(&got)));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
