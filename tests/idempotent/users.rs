//! An id belongs to its user: no other user can see its reply, forget it, or take it over. Users need
//! permission for the prefix itself, and the replies kept for one user and for all are bounded.

use crate::support::resp::{Client, Value};
use crate::world::{START, World};
use std::time::Duration;
use tern::keyspace::keys::SHARDS;
use tern::lifecycle::idempotency::sweep;
use tern::store::{RangeOptions, Read};

const ID: &str = "request:00000001";

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

/// A client of a user with `rules`.
fn user(world: &World, name: &str, rules: &str) -> Client {
    let made = world.line(0, &format!("ACL SETUSER {name} reset on >pw ~* {rules}"));
    assert_eq!(made, Value::Simple(b"OK".to_vec()), "{made:?}");
    let mut client = world.client(0);
    assert_eq!(client.line(&format!("AUTH {name} pw")), Value::Simple(b"OK".to_vec()));
    client
}

fn denied(answer: &Value, what: &str) {
    let line = format!("NOPERM this user has no permissions to run the '{what}' command");
    assert_eq!(text(answer), line);
}

#[test]
fn an_id_belongs_to_its_user() {
    let world = World::new(1);
    let (mut admin, mut bob) = (world.client(0), user(&world, "bob", "+@all"));
    admin.line("SET secret 42");
    assert_eq!(text(&admin.line(&format!("IDEMPOTENT {ID} GET secret"))), "42");
    let nothing = Value::Array(vec![Value::Int(0), Value::Nil(b'$')]);
    assert_eq!(bob.line(&format!("IDEMPOTENT RESULT {ID}")), nothing, "another's answer");
    assert_eq!(bob.line(&format!("IDEMPOTENT FORGET {ID}")), Value::Int(0), "another's id");
    admin.line("SET secret 43");
    assert_eq!(
        text(&admin.line(&format!("IDEMPOTENT {ID} GET secret"))),
        "42",
        "the command must not run again"
    );
    assert_eq!(
        text(&bob.line(&format!("IDEMPOTENT {ID} GET secret"))),
        "43",
        "no user may get another's reply"
    );
    assert_eq!(bob.line(&format!("IDEMPOTENT FORGET {ID}")), Value::Int(1));
    assert_eq!(text(&admin.line(&format!("IDEMPOTENT {ID} GET secret"))), "42");
    world.assert_sound();
}

#[test]
fn using_an_id_first_takes_it_from_no_other_user() {
    let world = World::new(1);
    let (mut admin, mut bob) = (world.client(0), user(&world, "bob", "+@all"));
    assert_eq!(bob.line(&format!("IDEMPOTENT {ID} DEL nothing")), Value::Int(0));
    assert_eq!(admin.line(&format!("IDEMPOTENT {ID} INCR k")), Value::Int(1));
    for line in ["MULTI", "INCR k"] {
        bob.line(line);
    }
    let answer = bob.line("IDEMPOTENT request:00000002 EXEC");
    assert_eq!(answer, Value::Array(vec![Value::Int(2)]));
    for line in ["MULTI", "INCR k"] {
        admin.line(line);
    }
    let answer = admin.line("IDEMPOTENT request:00000002 EXEC");
    assert_eq!(answer, Value::Array(vec![Value::Int(3)]), "an EXEC belongs to its user too");
}

#[test]
fn a_client_has_the_ids_of_the_user_it_logs_in_as() {
    let world = World::new(1);
    let mut bob = user(&world, "bob", "+@all");
    assert_eq!(bob.line(&format!("IDEMPOTENT {ID} INCR k")), Value::Int(1));
    drop(user(&world, "eve", "+@all"));
    assert_eq!(bob.line("AUTH eve pw"), Value::Simple(b"OK".to_vec()));
    assert_eq!(bob.line(&format!("IDEMPOTENT {ID} INCR k")), Value::Int(2), "eve's first");
    assert_eq!(bob.line("AUTH bob pw"), Value::Simple(b"OK".to_vec()));
    assert_eq!(bob.line(&format!("IDEMPOTENT {ID} INCR k")), Value::Int(1), "bob's again");
}

#[test]
fn the_prefix_has_a_permission_of_its_own() {
    let world = World::new(1);
    world.line(0, "SET k v");
    let run = format!("IDEMPOTENT {ID} GET k");
    for (rules, refused) in [
        ("+@all", None),
        ("+@all -idempotent", Some("idempotent")),
        ("+get", Some("idempotent")),
        ("+get +idempotent|result +idempotent|forget", Some("idempotent")),
        ("+idempotent", Some("get")),
        ("+get +idempotent", None),
        ("+get (+idempotent ~other)", None),
        ("+idempotent (+get ~k)", None),
    ] {
        let mut bob = user(&world, "bob", rules);
        let (answer, dry) = (bob.line(&run), world.line(0, &format!("ACL DRYRUN bob {run}")));
        match refused {
            None => assert_eq!((text(&answer).as_str(), text(&dry).as_str()), ("v", "OK"), "{rules}"),
            Some(what) => {
                denied(&answer, what);
                let line = format!("This user has no permissions to run the '{what}' command");
                assert_eq!(text(&dry), line, "{rules}");
                assert_eq!(bob.line("PING").is_error(), rules != "+@all -idempotent", "goes on");
            }
        }
        world.line(0, "IDEMPOTENT FORGET request:00000001");
    }
    let logged = format!("{:?}", world.line(0, "ACL LOG"));
    assert!(logged.contains("idempotent"), "{logged}");
}

#[test]
fn exec_under_an_id_needs_the_permission_too() {
    let world = World::new(1);
    let mut bob = user(&world, "bob", "+@all -idempotent");
    for line in ["MULTI", "INCR k"] {
        bob.line(line);
    }
    let answer = text(&bob.line(&format!("IDEMPOTENT {ID} EXEC")));
    assert!(answer.contains("'idempotent'"), "{answer}");
    assert!(bob.line("EXEC").is_error(), "the transaction must end or be marked as failed");
    assert_eq!(world.line(0, "EXISTS k"), Value::Int(0));
    denied(&bob.line(&format!("IDEMPOTENT RESULT {ID}")), "idempotent|result");
}

/// Bytes of all rows of idempotency records and of their index.
fn kept(world: &World) -> usize {
    world.runtime.block_on(async {
        let tx = world.store.begin();
        let page = tx.get_range(b"t", b"v", RangeOptions::default(), Read::Snapshot).await.unwrap();
        page.pairs.iter().map(|(key, value)| key.len() + value.len()).sum()
    })
}

#[test]
fn replies_kept_for_a_user_are_bounded() {
    let world = World::new(2);
    let mut bob = user(&world, "bob", "+@all");
    world.line(0, &format!("SET long {}", "x".repeat(50_000)));
    world.line(0, "CONFIG SET idempotency-max-size-per-user 1mb");
    let mut used = 0;
    let refused = loop {
        let answer = bob.line(&format!("IDEMPOTENT request:{used:08} GET long"));
        if answer.is_error() {
            break text(&answer);
        }
        used += 1;
        assert!(used < 100, "no end");
    };
    assert!(refused.contains("idempotency-max-size-per-user"), "{refused}");
    assert!((20..=21).contains(&used), "{used}");
    assert!(kept(&world) < 1_200_000);
    assert!(text(&bob.line(&format!("IDEMPOTENT fresh-id:{used:08} INCR k"))).contains("idempotency-max"));
    assert_eq!(bob.line("EXISTS k"), Value::Int(0), "a refused command must not run");
    for line in ["MULTI", "INCR k"] {
        bob.line(line);
    }
    assert!(text(&bob.line(&format!("IDEMPOTENT fresh-id:{used:08}:exec EXEC"))).contains("idempotency-max"));
    assert_eq!(bob.line("EXISTS k"), Value::Int(0), "a refused EXEC must not run");
    assert_eq!(bob.line("IDEMPOTENT request:00000000 GET long").bytes().unwrap().len(), 50_000, "known");
    assert_eq!(
        world.line(0, &format!("IDEMPOTENT fresh-id:{used:08} INCR k")),
        Value::Int(1),
        "other users must not be affected"
    );
    assert_eq!(bob.line("IDEMPOTENT FORGET request:00000000 request:00000001"), Value::Int(2));
    assert_eq!(bob.line(&format!("IDEMPOTENT fresh-id:{used:08}:more INCR k")), Value::Int(2), "room again");
    world.line(0, "CONFIG SET idempotency-max-size-per-user 0");
    assert!(!bob.line("IDEMPOTENT request:00000100 GET long").is_error(), "no bound");
    world.assert_sound();
}

#[test]
fn replies_kept_for_all_users_are_bounded() {
    let world = World::new(1);
    world.line(0, &format!("SET long {}", "x".repeat(100_000)));
    world.line(0, "CONFIG SET idempotency-max-size 1mb");
    let users = ["ann", "bob", "cat", "dan"];
    let mut refused = 0;
    for name in users {
        let mut client = user(&world, name, "+@all");
        for n in 0..5 {
            let answer = client.line(&format!("IDEMPOTENT request:{n:08} GET long"));
            refused += usize::from(
                answer.is_error() && text(&answer).contains("all users have reached idempotency-max-size"),
            );
        }
    }
    assert!((8..=10).contains(&refused), "{refused}");
    world.advance(Duration::from_secs(1));
    for shard in 0..SHARDS {
        let swept = sweep(&world.servers[0].space, shard, &None, START + 1, 100);
        world.runtime.block_on(swept).unwrap();
    }
    assert!(!world.line(0, &format!("IDEMPOTENT {ID} GET long")).is_error(), "a sweep must make room");
    world.assert_sound();
}

/// The rows of one id in each of two stores.
#[test]
fn stored_records_reveal_no_arguments() {
    let rows = |seed: u64| {
        let world = World::with_faults(1, seed);
        world.line(0, &format!("IDEMPOTENT {ID} SET pin 1234"));
        world.runtime.block_on(async {
            let tx = world.store.begin();
            let page = tx.get_range(b"t\0", b"t\x01", RangeOptions::default(), Read::Snapshot).await.unwrap();
            assert_eq!(page.pairs.len(), 1);
            page.pairs[0].clone()
        })
    };
    let ((one_key, one), (other_key, other)) = (rows(1), rows(2));
    assert_ne!(one_key, other_key, "the user must not be visible");
    // After the version: the fingerprint.
    assert_ne!(one[1..17], other[1..17], "guessing a PIN must need the store's secret");
}
