//! Damage of scripts and of libraries of functions.

use super::{Plants, plants, read};
use bytes::Bytes;
use tern::keyspace::keys::scripts::{LibraryRow, ScriptRow};
use tern::server::reply::Reply;

const CODE: &str = "#!lua name=made\nredis.register_function('f', function() end)";

async fn loaded() -> (Plants, [u8; 20]) {
    let mut p = plants().await;
    let Reply::Bulk(digest) = p.rig.run(&["SCRIPT", "LOAD", "return 1"]).await else { panic!("no digest") };
    let digest = std::array::from_fn(|n| {
        u8::from_str_radix(std::str::from_utf8(&digest[2 * n..2 * n + 2]).unwrap(), 16).unwrap()
    });
    let long = format!("{CODE} -- {}", "x".repeat(100_000));
    assert_eq!(p.rig.run(&["FUNCTION", "LOAD", &long]).await, Reply::Bulk(Bytes::from_static(b"made")));
    assert!(read(&p.rig.server.store).await.is_sound());
    (p, digest)
}

#[tokio::test]
async fn damage_of_a_script_is_seen() {
    let (p, digest) = loaded().await;
    let (script, piece) = (ScriptRow::Script(digest).key(), ScriptRow::Piece(digest, 0).key());
    let total = ScriptRow::Total.key();
    p.plant(&script, Some(b"x"), "the row of a script does not decode").await;
    p.plant_and_find(&script, None, &piece, "a piece of a script that does not exist").await;
    p.plant_and_find(&script, None, &total, "the total of scripts is wrong").await;
    p.plant_and_find(&piece, Some(b"return 2"), &script, "the text of a script is not the one").await;
    p.plant_and_find(&piece, None, &script, "the text of a script is not the one").await;
    p.plant_and_find(&total, None, &script, "the total of scripts is missing").await;
    p.plant(b"s\x07", Some(b""), "the row of a script has an invalid key").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}

#[tokio::test]
async fn damage_of_a_library_is_seen() {
    let (p, _) = loaded().await;
    let name = Bytes::from_static(b"made");
    let (library, epoch) = (LibraryRow::Library(name.clone()).key(), LibraryRow::Epoch.key());
    let piece = |n| LibraryRow::Piece(name.clone(), n).key();
    let other = "a library is not the one that was stored";
    p.plant(&library, Some(&[7; 20]), other).await;
    p.plant_and_find(&library, None, &piece(1), "a piece of a library that does not exist").await;
    p.plant_and_find(&piece(0), Some(CODE.as_bytes()), &library, other).await;
    p.plant_and_find(&piece(1), None, &library, other).await;
    p.plant_and_find(&piece(2), Some(b"x"), &library, other).await;
    p.plant(&epoch, Some(b"x"), "the epoch of libraries does not decode").await;
    p.plant_and_find(&epoch, None, &library, "the epoch of libraries is missing").await;
    p.plant(b"s\x06made", Some(b""), "the row of a script has an invalid key").await;
    assert!(read(&p.rig.server.store).await.is_sound());
}
