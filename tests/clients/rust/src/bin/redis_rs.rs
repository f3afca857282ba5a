//! An application's use of redis-rs: plain connections, a pool of r2d2, and the connection manager, which
//! reconnects by itself.

use futures_util::StreamExt;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::caching::CacheConfig;
use redis::geo::{Coord, RadiusSearchResult, Unit};
use redis::{
    AsyncCommands, AsyncConnectionConfig, Client, Commands, Connection, ConnectionAddr, Direction,
    ExpireOption, IntoConnectionInfo, ProtocolVersion,
};
use redis::{RedisConnectionInfo, RedisResult, pipe};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tern_clients::{Drive, every_byte, fails, until};

fn settings(drive: &Drive) -> RedisConnectionInfo {
    let protocol = if drive.protocol == 3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
    RedisConnectionInfo::default().set_protocol(protocol)
}

fn client(drive: &Drive, settings: RedisConnectionInfo) -> Client {
    let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), drive.port);
    Client::open(address.into_connection_info().unwrap().set_redis_settings(settings)).unwrap()
}

fn usual(drive: &Drive) -> Client {
    client(drive, settings(drive).set_password(&drive.password))
}

fn names(drive: &Drive) {
    let named = settings(drive).set_username("default").set_password(&drive.password).set_db(3);
    let mut con = client(drive, named).get_connection().unwrap();
    let () = con.client_setname("tester").unwrap();
    assert_eq!(con.client_getname::<String>().unwrap(), "tester");
    let info: String = redis::cmd("CLIENT").arg("INFO").query(&mut con).unwrap();
    assert!(info.contains(" db=3 ") && info.contains(&format!(" resp={}", drive.protocol)), "{info}");
    let rules = ["reader", "on", ">secret", "~r:*", "+get"];
    redis::cmd("ACL").arg("SETUSER").arg(&rules).exec(&mut con).unwrap();
    let reader = settings(drive).set_username("reader").set_password("secret");
    let mut reader = client(drive, reader).get_connection().unwrap();
    assert_eq!(reader.get::<_, Option<String>>("r:1").unwrap(), None);
    fails("NoPerm", reader.get::<_, Option<String>>("k").map_err(|e| format!("{e:?}")));
    fails("NoPerm", reader.set::<_, _, ()>("r:1", "v").map_err(|e| format!("{e:?}")));
    let wrong = client(drive, settings(drive).set_password("wrong")).get_connection();
    // After AUTH the client reports the error in its own words.
    let refusal = if drive.protocol == 3 { "WRONGPASS" } else { "AuthenticationFailed" };
    fails(refusal, wrong.map_err(|e| format!("{e:?}")));
    let unauthenticated = client(drive, settings(drive)).get_connection();
    fails("NOAUTH", unauthenticated.and_then(|mut con| con.ping::<String>()).map_err(|e| format!("{e:?}")));
    assert_eq!(con.acl_deluser::<_, i64>(&["reader"]).unwrap(), 1);
}

fn values(con: &mut Connection) {
    let () = con.flushall().unwrap();
    let () = con.set_ex("k", "v", 100).unwrap();
    assert_eq!(con.get::<_, String>("k").unwrap(), "v");
    assert!(con.ttl::<_, i64>("k").unwrap() > 90);
    assert!(!con.set_nx::<_, _, bool>("k", "w").unwrap());
    assert_eq!(con.sadd::<_, _, i64>("s", &["a", "b", "c"]).unwrap(), 3);
    assert_eq!(con.sadd::<_, _, i64>("t", &["b", "c", "d"]).unwrap(), 3);
    let both: HashSet<String> = con.sinter(&["s", "t"]).unwrap();
    assert_eq!(both, HashSet::from(["b".to_owned(), "c".to_owned()]));
    assert_eq!(con.smismember::<_, _, Vec<bool>>("s", &["a", "x"]).unwrap(), [true, false]);
    assert_eq!(con.incr::<_, _, f64>("f", 1.5).unwrap(), 1.5);
    fails("WRONGTYPE", con.incr::<_, _, i64>("s", 1).map_err(|e| format!("{e:?}")));
    let () = con.set(&every_byte()[..256], every_byte()).unwrap();
    assert_eq!(con.get::<_, Vec<u8>>(&every_byte()[..256]).unwrap(), every_byte());
}

fn pools(drive: &Drive) {
    let pool = r2d2::Pool::builder().max_size(8).build(usual(drive)).unwrap();
    let work = |_| {
        let pool = pool.clone();
        std::thread::spawn(move || (0..25).for_each(|_| pool.get().unwrap().incr("count", 1).unwrap()))
    };
    let threads: Vec<_> = (0..16).map(work).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(pool.get().unwrap().get::<_, i64>("count").unwrap(), 400);
}

fn pipelines(con: &mut Connection) {
    let mut pipeline = pipe();
    (0..1000).for_each(|_| _ = pipeline.incr("n", 1));
    let replies: Vec<i64> = pipeline.query(con).unwrap();
    assert_eq!(replies, (1..=1000).collect::<Vec<_>>());
}

/// Retried until no other client writes in between: twice.
fn transactions(con: &mut Connection, other: &mut Connection) {
    let mut tries = 0;
    let done: RedisResult<(i64, String)> = redis::transaction(con, &["w"], |con, pipe| {
        tries += 1;
        let seen: Option<i64> = con.get("w")?;
        if tries == 1 {
            let () = other.set("w", 5)?;
        }
        pipe.set("w", seen.unwrap_or(0) + 1).ignore().incr("w", 1).get("w").query(con)
    });
    assert_eq!((done.unwrap(), tries), ((7, "7".to_owned()), 2));
}

/// What a call that blocks on another connection returns once `serve` has run, 100 ms later.
fn waits<T: Send + 'static>(
    mut other: Connection,
    call: impl FnOnce(&mut Connection) -> RedisResult<T> + Send + 'static,
    serve: impl FnOnce() -> RedisResult<()>,
) -> T {
    let waiting = std::thread::spawn(move || call(&mut other).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    serve().unwrap();
    waiting.join().unwrap()
}

fn hash(con: &mut Connection) {
    let all = [("name", "Ann"), ("city", "Rome"), ("visits", "5")];
    let () = con.hset_multiple("user", &all).unwrap();
    let user: HashMap<String, String> = con.hgetall("user").unwrap();
    assert_eq!(user, all.map(|(field, value)| (field.to_owned(), value.to_owned())).into());
    assert_eq!(con.hincr::<_, _, _, i64>("user", "visits", 3).unwrap(), 8);
    assert_eq!(con.hdel::<_, _, i64>("user", &["city", "none"]).unwrap(), 1);
    let expires: Vec<i64> = con.hpexpire("user", 20, ExpireOption::NONE, &["visits", "none"]).unwrap();
    assert_eq!(expires, [1, -2]);
    assert_eq!(con.httl::<_, _, Vec<i64>>("user", "name").unwrap(), [-1]);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(con.hgetall::<_, Vec<(String, String)>>("user").unwrap(), [("name".into(), "Ann".into())]);
}

fn queue(drive: &Drive, con: &mut Connection) {
    let other = || usual(drive).get_connection().unwrap();
    let (left, right) = (|| Direction::Left, || Direction::Right);
    assert_eq!(con.rpush::<_, _, i64>("queue", &["a", "b"]).unwrap(), 2);
    assert_eq!(con.lpop::<_, String>("queue", None).unwrap(), "a");
    assert_eq!(con.lrange::<_, Vec<String>>("queue", 0, -1).unwrap(), ["b"]);
    assert_eq!(con.lmove::<_, _, String>("queue", "working", left(), right()).unwrap(), "b");
    let pops = move |other: &mut Connection| other.blpop::<_, (String, String)>(&["none", "queue"], 20.0);
    let popped = waits(other(), pops, || con.rpush("queue", "c"));
    assert_eq!(popped, ("queue".into(), "c".into()));
    let moves = move |other: &mut Connection| other.blmove("queue", "working", left(), right(), 20.0);
    let moved: String = waits(other(), moves, || con.rpush("queue", "d"));
    assert_eq!(moved, "d");
    assert_eq!(con.lrange::<_, Vec<String>>("working", 0, -1).unwrap(), ["b", "d"]);
    assert_eq!(con.blpop::<_, Option<(String, String)>>("queue", 0.1).unwrap(), None);
    let nothing: Option<String> = con.blmove("queue", "working", left(), right(), 0.1).unwrap();
    assert_eq!(nothing, None);
}

type Score = (String, f64);

fn leaderboard(drive: &Drive, con: &mut Connection) {
    let scores = [(1.5, "Ann"), (2.0, "Bob"), (f64::INFINITY, "Cid")];
    let everyone = [("Bob", 2.0), ("Ann", 3.75), ("Cid", f64::INFINITY)];
    let everyone = everyone.map(|(name, score)| (name.to_owned(), score));
    assert_eq!(con.zadd_multiple::<_, _, _, i64>("board", &scores).unwrap(), 3);
    assert_eq!(con.zincr::<_, _, _, f64>("board", "Ann", 2.25).unwrap(), 3.75);
    assert_eq!(con.zrange_withscores::<_, Vec<Score>>("board", 0, -1).unwrap(), everyone);
    assert_eq!(con.zscore::<_, _, f64>("board", "Cid").unwrap(), f64::INFINITY);
    assert_eq!(con.zrevrank::<_, _, Option<i64>>("board", "none").unwrap(), None);
    let ranked: (i64, f64) =
        redis::cmd("ZREVRANK").arg("board").arg("Ann").arg("WITHSCORE").query(con).unwrap();
    assert_eq!(ranked, (1, 3.75));
    let above: Vec<Score> = con.zrangebyscore_limit_withscores("board", "(2", "+inf", 0, 1).unwrap();
    assert_eq!(above, everyone[1..2]);
    assert_eq!(con.zpopmin::<_, Vec<Score>>("board", 2).unwrap(), everyone[..2]);
    let pops = |other: &mut Connection| other.bzpopmin::<_, (String, String, f64)>("waited", 20.0);
    let popped = waits(usual(drive).get_connection().unwrap(), pops, || con.zadd("waited", "Eve", -0.5));
    assert_eq!(popped, ("waited".into(), "Eve".into(), -0.5));
    assert_eq!(con.bzpopmin::<_, Option<(String, String, f64)>>("waited", 0.1).unwrap(), None);
}

fn map(con: &mut Connection) {
    let (palermo, catania) = (Coord::lon_lat(13.361389, 38.115556), Coord::lon_lat(15.087269, 37.502669));
    let places = [(palermo, "Palermo"), (catania, "Catania")];
    assert_eq!(con.geo_add::<_, _, i64>("places", &places).unwrap(), 2);
    assert_eq!(con.geo_dist::<_, _, _, f64>("places", "Palermo", "Catania", Unit::Kilometers), Ok(166.2742));
    let mut near = redis::cmd("GEOSEARCH");
    near.arg("places").arg("FROMLONLAT").arg(Coord::lon_lat(15, 37)).arg("BYRADIUS").arg(200).arg("km");
    let found: Vec<RadiusSearchResult> = near.arg("ASC").arg("WITHDIST").arg("WITHCOORD").query(con).unwrap();
    let distances: Vec<_> = found.iter().map(|place| (&*place.name, place.dist.unwrap())).collect();
    assert_eq!(distances, [("Catania", 56.4413), ("Palermo", 190.4424)]);
    assert_eq!(found[0].coord, Some(Coord::lon_lat(15.087267458438873, 37.50266842333162)));
}

fn collections(drive: &Drive, con: &mut Connection) {
    let () = con.flushall().unwrap();
    hash(con);
    queue(drive, con);
    leaderboard(drive, con);
    map(con);
}

fn scans(con: &mut Connection) {
    let () = con.flushall().unwrap();
    for n in 0..500 {
        let () = con.set(format!("key:{n}"), "x").unwrap();
        let () = con.sadd("big", n).unwrap();
    }
    let keys: RedisResult<HashSet<String>> = con.scan_match("key:*").unwrap().collect();
    assert_eq!(keys.unwrap().len(), 500);
    let members: RedisResult<HashSet<u32>> = con.sscan("big").unwrap().collect();
    assert_eq!(members.unwrap(), (0..500).collect());
}

fn messages(drive: &Drive, con: &mut Connection) {
    let mut reader = usual(drive).get_connection().unwrap();
    let mut reader = reader.as_pubsub();
    reader.subscribe("news").unwrap();
    reader.psubscribe("n*").unwrap();
    assert_eq!(con.publish::<_, _, i64>("news", "hello").unwrap(), 2);
    let mut heard = HashSet::new();
    for _ in 0..2 {
        let message = reader.get_message().unwrap();
        let text: String = message.get_payload().unwrap();
        heard.insert((message.get_pattern::<Option<String>>().unwrap(), text));
    }
    let expected = [None, Some("n*".to_owned())].map(|pattern| (pattern, "hello".to_owned()));
    assert_eq!(heard, HashSet::from(expected));
}

/// A value comes from the client's cache until another client writes it.
async fn cached(drive: &Drive, other: &mut Connection) {
    let config = AsyncConnectionConfig::new().set_cache_config(CacheConfig::new());
    let client = usual(drive).get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let get = async || client.clone().get::<_, Option<String>>("cached").await.unwrap();
    let () = other.set("cached", "1").unwrap();
    for _ in 0..2 {
        assert_eq!(get().await.as_deref(), Some("1"));
    }
    assert_eq!(client.get_cache_statistics().unwrap().hit, 1);
    for n in 0..50 {
        let () = other.set("cached", n).unwrap();
        until("the new value", async || get().await == Some(n.to_string())).await;
    }
    let () = other.flushall().unwrap();
    until("no value", async || get().await.is_none()).await;
}

async fn manager(drive: &Drive, config: ConnectionManagerConfig) -> ConnectionManager {
    let config = config.set_min_delay(Duration::from_millis(50)).set_number_of_retries(50);
    usual(drive).get_connection_manager_with_config(config).await.unwrap()
}

/// In RESP3 the manager resubscribes; in RESP2 it does not.
async fn starting_again(drive: &Drive) {
    let writer = manager(drive, ConnectionManagerConfig::new()).await;
    let () = writer.clone().set("kept", "1").await.unwrap();
    let answers = async || writer.clone().get::<_, String>("kept").await.is_ok_and(|value| value == "1");
    if drive.protocol == 2 {
        let mut before = usual(drive).get_async_pubsub().await.unwrap();
        before.subscribe("news").await.unwrap();
        drive.restart().await;
        assert!(before.on_message().next().await.is_none());
        return until("an answer", answers).await;
    }
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let config = ConnectionManagerConfig::new().set_push_sender(sender).set_automatic_resubscription();
    let mut reader = manager(drive, config).await;
    reader.subscribe("news").await.unwrap();
    drive.restart().await;
    until("an answer", answers).await;
    let listens = reader.clone();
    // The next command reopens its connection.
    until("the reader", async || listens.clone().ping::<String>().await.is_ok()).await;
    until("the subscription", async || writer.clone().publish::<_, _, i64>("news", "again").await == Ok(1))
        .await;
    while received.recv().await.unwrap().kind != redis::PushKind::Message {}
}

fn main() {
    let drive = Drive::new("redis-rs");
    let mut con = usual(&drive).get_connection().unwrap();
    names(&drive);
    drive.did("names");
    values(&mut con);
    drive.did("values");
    pools(&drive);
    drive.did("pools");
    pipelines(&mut con);
    drive.did("pipelines");
    transactions(&mut con, &mut usual(&drive).get_connection().unwrap());
    drive.did("transactions");
    collections(&drive, &mut con);
    drive.did("collections");
    scans(&mut con);
    drive.did("scans");
    messages(&drive, &mut con);
    drive.did("messages");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if drive.protocol == 3 {
        runtime.block_on(cached(&drive, &mut con));
        drive.did("cached");
    }
    runtime.block_on(starting_again(&drive));
    drive.did("starting_again");
}
