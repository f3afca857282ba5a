//! Web frameworks that keep their sessions in the server: a session is its browser's alone, ends when it should, and
//! outlives a restart. The programs are called as those of `libraries`.

use crate::libraries::{drive_to_end, node_script, python};

fn flask_session(protocol: &str) {
    let Some(command) = python("flask_session", "sessions.py") else { return };
    drive_to_end(command, protocol, &["sessions", "login", "expires", "starting_again"]);
}

#[test]
fn flask_session_in_resp2() {
    flask_session("2");
}

#[test]
fn flask_session_in_resp3() {
    flask_session("3");
}

fn connect_redis(protocol: &str) {
    let Some(command) = node_script("sessions.cjs", "redis", &["express-session", "connect-redis"]) else {
        return;
    };
    drive_to_end(command, protocol, &["sessions", "store", "expires", "starting_again"]);
}

#[test]
fn connect_redis_in_resp2() {
    connect_redis("2");
}

#[test]
fn connect_redis_in_resp3() {
    connect_redis("3");
}
