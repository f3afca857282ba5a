//! Long strings against a `Vec<u8>`: lengths around the inline limit, around the borders of pieces, and of
//! several MB.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use bytes::Bytes;
use rig::Rig;
use tern::env::Rng;
use tern::server::reply::Reply;
use tern::types::string::{INLINE_MAX, PIECE};

/// A length near a border, or any up to `most`.
fn length(rng: &mut Rng, most: usize) -> usize {
    let near = [0, INLINE_MAX, PIECE, 2 * PIECE, 3 * PIECE, 10 * PIECE];
    let border = near[rng.below(near.len() as u64) as usize] as u64;
    let n = match rng.below(4) {
        0 => rng.below(40),
        1 => rng.below(most as u64),
        _ => (border + rng.below(7)).saturating_sub(3),
    };
    (n as usize).min(most)
}

fn content(rng: &mut Rng, len: usize) -> Vec<u8> {
    let seed = rng.below(1000) as usize;
    (0..len).map(|i| (((i + seed) * 31) >> 3) as u8).collect()
}

fn as_bytes(reply: Reply) -> Bytes {
    match reply {
        Reply::Bulk(b) => b,
        other => panic!("{other:?}"),
    }
}

fn patch(model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if model.len() < at + bytes.len() {
        model.resize(at + bytes.len(), 0);
    }
    model[at..at + bytes.len()].copy_from_slice(bytes);
}

async fn step(rig: &mut Rig, rng: &mut Rng, model: &mut Vec<u8>, most: usize) {
    let len = length(rng, most);
    let at = length(rng, most);
    match rng.below(10) {
        0 => {
            *model = content(rng, len);
            assert_eq!(rig.run(&[b"SET", &b"k"[..], model]).await, Reply::Ok);
        }
        1..4 => {
            let tail = content(rng, len / 2);
            model.extend_from_slice(&tail);
            assert_eq!(rig.run(&[b"APPEND", &b"k"[..], &tail]).await, Reply::Int(model.len() as i64));
        }
        4..7 => {
            let bytes = content(rng, len / 3);
            if !bytes.is_empty() {
                patch(model, at, &bytes);
            }
            let argv = [b"SETRANGE", &b"k"[..], at.to_string().as_bytes(), &bytes].map(<[u8]>::to_vec);
            assert_eq!(rig.run(&argv).await, Reply::Int(model.len() as i64));
        }
        7 => assert_eq!(rig.line("STRLEN k").await, Reply::Int(model.len() as i64)),
        8 => assert!(as_bytes(rig.line("GET k").await) == *model),
        _ => {
            let end = at + len;
            let want = model.get(at.min(model.len())..(end + 1).min(model.len())).unwrap_or_default();
            assert!(as_bytes(rig.line(&format!("GETRANGE k {at} {end}")).await) == want, "{at} {end}");
        }
    }
}

async fn run(seed: u64, steps: usize, most: usize) {
    let mut rig = Rig::new().await;
    let mut rng = Rng::seeded(seed);
    rig.line("SET k x").await;
    let mut model = b"x".to_vec();
    for n in 0..steps {
        step(&mut rig, &mut rng, &mut model, most).await;
        if model.len() > 8 * most {
            model.clear();
            rig.run(&["SET", "k", ""]).await;
        }
        if n % 50 == 0 {
            assert!(as_bytes(rig.line("GET k").await) == model, "seed {seed}, step {n}");
        }
    }
    assert!(as_bytes(rig.line("GET k").await) == model, "seed {seed}");
}

#[tokio::test]
async fn around_the_inline_limit() {
    for seed in 0..4 {
        run(seed, 300, INLINE_MAX + 10).await;
    }
}

#[tokio::test]
async fn around_the_borders_of_pieces() {
    for seed in 10..14 {
        run(seed, 300, 3 * PIECE + 10).await;
    }
}

#[tokio::test]
async fn of_several_megabytes() {
    run(20, 60, 1_500_000).await;
}

#[tokio::test]
async fn a_string_may_have_holes() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.line("SETRANGE k 10000000 x").await, Reply::Int(10_000_001));
    assert_eq!(rig.line("SETRANGE k 100 y").await, Reply::Int(10_000_001));
    let mut want = vec![0; 10_000_001];
    want[100] = b'y';
    want[10_000_000] = b'x';
    assert!(as_bytes(rig.line("GET k").await) == want);
    assert_eq!(rig.line("GETRANGE k 99 101").await, rig::bulk(b"\0y\0"));
    assert_eq!(rig.line("GETRANGE k 5000000 5000003").await, rig::bulk([0; 4]));
    assert_eq!(rig.line("GETRANGE k -1 -1").await, rig::bulk("x"));
}

#[tokio::test]
async fn nothing_gets_longer_than_the_limit() {
    let mut rig = Rig::new().await;
    rig.line("SETRANGE k 536870911 x").await;
    assert_eq!(rig.line("STRLEN k").await, Reply::Int(512 << 20));
    for line in ["APPEND k y", "SETRANGE k 536870912 y", "SETRANGE new 536870911 yz"] {
        let reply = rig.line(line).await;
        assert_eq!(
            rig::error(&reply),
            "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            "{line}"
        );
    }
    assert_eq!(rig.line("SETRANGE k 536870912 ").await, Reply::Int(512 << 20));
    assert_eq!(rig.line("EXISTS new").await, Reply::Int(0));
}
