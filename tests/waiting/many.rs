//! Many clients wait: what they cost, and what serving them costs.

use super::scene::{answer, begin, bulks, id, server, text, wait_for_blocked};
use super::support::pace::pace;
use super::support::server::tern;
use super::support::{self, resp::Client, resp::Value};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Who waits for a key is served in order, however many elements come at once; and they share commits, which take a
/// disk's time each.
#[test]
fn those_who_are_served_together_share_commits() {
    const MANY: usize = 200;
    let tern = tern(&["--appendfsync", "always"]);
    let mut admin = tern.client();
    let commits = |admin: &mut Client| {
        let info = text(&admin.line("INFO tern"));
        let line = info.lines().find_map(|line| line.strip_prefix("store_commits:")).unwrap();
        line.parse::<usize>().unwrap()
    };
    let mut waiters: Vec<Client> = (0..MANY).map(|_| tern.client()).collect();
    for round in 0..5 {
        for (n, waiter) in waiters.iter_mut().enumerate() {
            begin(waiter, "BLPOP none k 0");
            wait_for_blocked(&mut admin, n + 1);
        }
        let before = commits(&mut admin);
        let words: Vec<String> = (0..MANY).map(|n| n.to_string()).collect();
        admin.line(&format!("RPUSH k {}", words.join(" ")));
        for (n, waiter) in waiters.iter_mut().enumerate() {
            assert_eq!(answer(waiter), bulks(&["k", &words[n]]), "round {round}");
        }
        let used = commits(&mut admin) - before;
        support::say(&format!("waiting: {MANY} elements for {MANY} clients took {used} commits"));
        assert!(used < MANY / 2, "{used} commits");
        assert_eq!(admin.line("EXISTS k"), Value::Int(0));
    }
}

/// Processor time that a process has used, in steps of 10 ms.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// 2000 clients wait, on one key and on keys of their own: without work, and without a share in the pushes to others.
#[test]
fn those_who_wait_cost_little() {
    const EACH: usize = 1000;
    let tern = server();
    let mut admin = tern.client();
    let before = tern.resident();
    let mut waiters: Vec<Client> = (0..2 * EACH).map(|_| tern.client()).collect();
    // The server has accepted all of them.
    waiters.iter_mut().for_each(|waiter| drop(waiter.line("PING")));
    let idle = tern.resident().saturating_sub(before) / (2 * EACH);
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let line = if n < EACH { "BLPOP all 0".to_owned() } else { format!("BLPOP own:{n} 0") };
        begin(waiter, &line);
        // Not all at once: what commands take while they run is not what clients take while they wait.
        if n % 50 == 49 {
            wait_for_blocked(&mut admin, n + 1);
        }
    }
    let each = tern.resident().saturating_sub(before) / (2 * EACH);
    let since = processor_time(tern.pid());
    std::thread::sleep(Duration::from_secs(1));
    let used = processor_time(tern.pid()).saturating_sub(since);
    support::say(&format!(
        "waiting: {each} bytes a waiting client, {idle} an idle one; {used:?} a second for 2000"
    ));
    // FoundationDB's client takes several kB for a watch, of which each key has two.
    let (most, more) = if support::fdb_cluster::wanted() { (40_000, 20_000) } else { (20_000, 5000) };
    assert!(each < most && each < idle + more, "{each} bytes a client, {idle} an idle one");
    assert!(used < Duration::from_millis(200), "{used:?} in a second");
    // They came on connections of their own, so that nobody knows in which order.
    let since = Instant::now();
    (0..EACH).for_each(|n| drop(admin.line(&format!("RPUSH all {n}"))));
    let got: BTreeSet<String> =
        waiters[..EACH].iter_mut().map(|w| text(&answer(w).items().unwrap()[1])).collect();
    assert_eq!(got.len(), EACH);
    let took = since.elapsed();
    for (n, waiter) in waiters.iter_mut().enumerate().skip(EACH) {
        admin.line(&format!("RPUSH own:{n} {n}"));
        assert_eq!(answer(waiter), bulks(&[&format!("own:{n}"), &n.to_string()]));
    }
    support::say(&format!(
        "waiting: {EACH} hand-overs in {took:?}, with the others waiting for the same key"
    ));
    wait_for_blocked(&mut admin, 0);
}

/// After a flush each key may have something. Those who wait for many look one after the other, while others run.
#[test]
fn a_flush_calls_those_who_wait_for_many_keys() {
    const KEYS: usize = 4000;
    // A cluster looks and watches for all tests at once.
    let many = if std::env::var_os("TERN_TEST_STORE").is_some() { 4 } else { 60 };
    let tern = server();
    let (mut admin, mut other) = (tern.client(), tern.client());
    let mut waiters: Vec<Client> = (0..many).map(|_| tern.client()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let names = (0..KEYS).map(|key| format!("key:{n}:{key}"));
        let line: Vec<String> = ["BLPOP".into()].into_iter().chain(names).chain(["0".into()]).collect();
        waiter.send(&line.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    }
    wait_for_blocked(&mut admin, many);
    let waited_for = format!("total_blocking_keys:{}\r\n", many * KEYS);
    assert!(text(&admin.line("INFO clients")).contains(&waited_for));
    let pace = pace(&mut admin);
    let (since, mut slowest) = (Instant::now(), Duration::ZERO);
    admin.line("FLUSHALL");
    while since.elapsed() < Duration::from_secs(4) {
        let begun = Instant::now();
        assert_eq!(text(&other.line("SET k v")), "OK");
        slowest = slowest.max(begun.elapsed());
    }
    support::say(&format!(
        "waiting: a flush calls {many} clients of {KEYS} keys: SET took {slowest:?} at most, 1000 GETs {pace:?}"
    ));
    assert!(slowest < pace * 30, "a SET took {slowest:?}, 1000 GETs take {pace:?}");
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let key = format!("key:{n}:{}", n * KEYS / many);
        admin.line(&format!("RPUSH {key} {n}"));
        assert_eq!(answer(waiter), bulks(&[&key, &n.to_string()]));
    }
    assert!(text(&admin.line("INFO clients")).contains("total_blocking_keys:0\r\n"));
}

/// Hazard: a client that looks at many keys is not told that its connection has ended, and then takes an element.
#[test]
fn who_has_left_takes_nothing() {
    let tern = server();
    let (mut admin, mut other) = (tern.client(), tern.client());
    let names: Vec<String> = (0..2000).map(|n| format!("k{n}")).collect();
    let line = format!("BLPOP {} 0", names.join(" "));
    for n in 0..24 {
        let mut waiter = tern.client();
        let who = id(&mut waiter);
        begin(&mut waiter, &line);
        if n % 3 > 0 {
            wait_for_blocked(&mut admin, 1);
            other.line(if n % 3 == 1 { "FLUSHALL" } else { "SWAPDB 0 1" });
        }
        std::thread::sleep(Duration::from_millis(n / 2));
        if n % 2 == 0 {
            assert_eq!(admin.line(&format!("CLIENT KILL ID {who}")), Value::Int(1));
        } else {
            drop(waiter);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(other.line("RPUSH k1999 x"), Value::Int(1));
        wait_for_blocked(&mut admin, 0);
        assert_eq!(admin.line("LLEN k1999"), Value::Int(1), "round {n}");
        admin.line("DEL k1999");
    }
}

/// Hazard: a pause begins while a client looks, and what the client then takes is a write within the pause.
#[test]
fn who_looks_when_a_pause_begins_takes_nothing() {
    let tern = server();
    let (mut admin, mut waiter) = (tern.client(), tern.client());
    let names: Vec<String> = (0..4000).map(|n| format!("k{n}")).collect();
    for round in 0..10 {
        begin(&mut waiter, &format!("BLPOP {} 0", names.join(" ")));
        wait_for_blocked(&mut admin, 1);
        let requests = ["FLUSHALL", "RPUSH k3999 x", "CLIENT PAUSE 200 WRITE", "LLEN k3999"].join("\r\n");
        admin.send_raw(format!("{requests}\r\n").as_bytes()).unwrap();
        let said: Vec<Value> = (0..4).map(|_| answer(&mut admin)).collect();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(admin.line("LLEN k3999"), said[3], "round {round}: {said:?}");
        assert_eq!(answer(&mut waiter), bulks(&["k3999", "x"]));
    }
}
