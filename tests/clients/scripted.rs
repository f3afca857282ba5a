//! Libraries whose work is done by Lua scripts: locks that exclude each other, limits that let exactly as many
//! through, also after a restart of the server, which has forgotten the scripts and nothing else.
//!
//! In RESP2 and in RESP3, in which a script's reply reaches them as other types. The programs are called as
//! those of `libraries`.

use crate::libraries::{drive_to_end, go_program, java_program, node_script, python, spring_program};

fn rate_limiter_flexible(library: &str, protocol: &str) {
    let Some(command) = node_script("limits.cjs", library, &["rate-limiter-flexible"]) else { return };
    drive_to_end(command, protocol, &["exact", "expires", "changes", "starting_again"]);
}

#[test]
fn rate_limiter_flexible_on_ioredis_in_resp2() {
    rate_limiter_flexible("ioredis", "2");
}

#[test]
fn rate_limiter_flexible_on_ioredis_in_resp3() {
    rate_limiter_flexible("ioredis", "3");
}

#[test]
fn rate_limiter_flexible_on_node_redis_in_resp2() {
    rate_limiter_flexible("redis", "2");
}

#[test]
fn rate_limiter_flexible_on_node_redis_in_resp3() {
    rate_limiter_flexible("redis", "3");
}

fn redsync_and_redis_rate(protocol: &str) {
    let Some(command) = go_program("scripted") else { return };
    let cases = ["exclusion", "lost", "extended", "limits", "refills", "starting_again"];
    drive_to_end(command, protocol, &cases);
}

#[test]
fn redsync_and_redis_rate_in_resp2() {
    redsync_and_redis_rate("2");
}

#[test]
fn redsync_and_redis_rate_in_resp3() {
    redsync_and_redis_rate("3");
}

fn django_redis(protocol: &str) {
    let Some(command) = python("django_redis", "django_cache.py") else { return };
    drive_to_end(command, protocol, &["values", "counters", "patterns", "locks", "starting_again"]);
}

#[test]
fn django_redis_in_resp2() {
    django_redis("2");
}

#[test]
fn django_redis_in_resp3() {
    django_redis("3");
}

fn redisson_by_scripts(protocol: &str) {
    let Some(command) = java_program("ScriptedRedisson") else { return };
    let locks = ["exclusion", "leases", "watchdog", "semaphores"];
    drive_to_end(command, protocol, &[&locks[..], &["maps", "lists", "limits", "starting_again"]].concat());
}

/// Sends the texts of its scripts.
#[test]
fn redisson_by_scripts_in_resp2() {
    redisson_by_scripts("2");
}

/// Sends the digests of its scripts.
#[test]
fn redisson_by_scripts_in_resp3() {
    redisson_by_scripts("3");
}

/// Spring Session, without a web server; scripts of Spring Data; locks of Spring Integration.
fn spring(protocol: &str) {
    let Some(command) = spring_program("WithSpring") else { return };
    drive_to_end(command, protocol, &["sessions", "events", "scripts", "locks", "starting_again"]);
}

#[test]
fn spring_in_resp2() {
    spring("2");
}

#[test]
fn spring_in_resp3() {
    spring("3");
}
