//! An application's use of fred.

use fred::clients::SubscriberClient;
use fred::prelude::*;
use fred::types::geo::{GeoPosition, GeoUnit, GeoValue};
use fred::types::lists::LMoveDirection;
use fred::types::scan::Scanner;
use fred::types::{RespVersion, SortOrder};
use futures_util::{StreamExt, TryStreamExt};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tern_clients::{Drive, every_byte, fails, until};

fn config(drive: &Drive, user: Option<&str>, password: Option<&str>) -> Config {
    Config {
        server: ServerConfig::new_centralized("127.0.0.1", drive.port),
        version: if drive.protocol == 3 { RespVersion::RESP3 } else { RespVersion::RESP2 },
        username: user.map(str::to_owned),
        password: password.map(str::to_owned),
        ..Config::default()
    }
}

fn builder(drive: &Drive) -> Builder {
    let mut builder = Builder::from_config(config(drive, None, Some(&drive.password)));
    builder.set_policy(ReconnectPolicy::new_constant(0, 50));
    builder
}

async fn usual(drive: &Drive) -> Client {
    let client = builder(drive).build().unwrap();
    client.init().await.unwrap();
    client
}

/// A client that gives up at the first refusal.
async fn once(config: Config) -> Result<Client, Error> {
    let client = Builder::from_config(config).build()?;
    client.init().await?;
    let () = client.ping(None).await?;
    Ok(client)
}

async fn names(drive: &Drive) {
    let named = Config { database: Some(3), ..config(drive, Some("default"), Some(&drive.password)) };
    let client = once(named).await.unwrap();
    let () = client.client_setname("tester").await.unwrap();
    assert_eq!(client.client_getname::<String>().await.unwrap(), "tester");
    let info: String = client.client_info().await.unwrap();
    assert!(info.contains(" db=3 ") && info.contains(&format!(" resp={}", drive.protocol)), "{info}");
    let rules = vec!["on", ">secret", "~r:*", "+get", "+ping", "+client", "+info"];
    let () = client.acl_setuser("reader", rules).await.unwrap();
    let reader = once(config(drive, Some("reader"), Some("secret"))).await.unwrap();
    assert_eq!(reader.get::<Option<String>, _>("r:1").await.unwrap(), None);
    fails("NOPERM", reader.get::<Option<String>, _>("k").await);
    fails("NOPERM", reader.set::<(), _, _>("r:1", "v", None, None, false).await);
    fails("WRONGPASS", once(config(drive, None, Some("wrong"))).await);
    fails("NOAUTH", once(config(drive, None, None)).await);
    assert_eq!(client.acl_deluser::<i64, _>("reader").await.unwrap(), 1);
}

async fn values(client: &Client) {
    let () = client.flushall(false).await.unwrap();
    let () = client.set("k", "v", Some(Expiration::EX(100)), None, false).await.unwrap();
    assert_eq!(client.get::<String, _>("k").await.unwrap(), "v");
    assert!(client.ttl::<i64, _>("k").await.unwrap() > 90);
    let refused: Option<String> = client.set("k", "w", None, Some(SetOptions::NX), false).await.unwrap();
    assert_eq!(refused, None);
    assert_eq!(client.sadd::<i64, _, _>("s", vec!["a", "b", "c"]).await.unwrap(), 3);
    assert_eq!(client.sadd::<i64, _, _>("t", vec!["b", "c", "d"]).await.unwrap(), 3);
    let both: HashSet<String> = client.sinter(vec!["s", "t"]).await.unwrap();
    assert_eq!(both, HashSet::from(["b".to_owned(), "c".to_owned()]));
    assert_eq!(client.smismember::<Vec<bool>, _, _>("s", vec!["a", "x"]).await.unwrap(), [true, false]);
    assert_eq!(client.incr_by_float::<f64, _>("f", 1.5).await.unwrap(), 1.5);
    fails("WRONGTYPE", client.incr::<i64, _>("s").await);
    let (key, value) = (every_byte()[..256].to_vec(), every_byte());
    let () = client.set(key.as_slice(), value.as_slice(), None, None, false).await.unwrap();
    assert_eq!(client.get::<Vec<u8>, _>(key.as_slice()).await.unwrap(), value);
}

async fn pools(drive: &Drive) {
    let pool = builder(drive).build_pool(8).unwrap();
    pool.init().await.unwrap();
    let increments = (0..400).map(|_| pool.incr::<i64, _>("count"));
    futures_util::future::try_join_all(increments).await.unwrap();
    assert_eq!(pool.get::<i64, _>("count").await.unwrap(), 400);
    pool.quit().await.unwrap();
}

async fn pipelines(client: &Client) {
    let pipeline = client.pipeline();
    for _ in 0..1000 {
        let () = pipeline.incr("n").await.unwrap();
    }
    let replies: Vec<i64> = pipeline.all().await.unwrap();
    assert_eq!(replies, (1..=1000).collect::<Vec<_>>());
}

async fn transactions(client: &Client, other: &Client) {
    for disturbed in [true, false] {
        client.watch("w").await.unwrap();
        if disturbed {
            let () = other.set("w", 5, None, None, false).await.unwrap();
        }
        let unit = client.multi();
        let () = unit.incr("w").await.unwrap();
        let () = unit.get("w").await.unwrap();
        let replies: Option<(i64, String)> = unit.exec(true).await.unwrap();
        assert_eq!(replies, (!disturbed).then(|| (6, "6".to_owned())));
    }
}

/// What a call that blocks on another connection returns once `serve` has run, 100 ms later.
async fn waits<T>(
    call: impl Future<Output = FredResult<T>>,
    serve: impl Future<Output = FredResult<i64>>,
) -> T {
    let serve = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        (Instant::now(), serve.await)
    };
    let call = async { (call.await, Instant::now()) };
    let ((answer, answered), (served, result)) = tokio::join!(call, serve);
    assert!(result.unwrap() > 0 && answered > served);
    answer.unwrap()
}

async fn hash(client: &Client) {
    let user: HashMap<String, String> =
        [("name", "Ann"), ("city", "Rome"), ("visits", "5")].map(|(f, v)| (f.into(), v.into())).into();
    assert_eq!(client.hset::<i64, _, _>("user", user.clone()).await.unwrap(), 3);
    assert_eq!(client.hgetall::<HashMap<String, String>, _>("user").await.unwrap(), user);
    assert_eq!(client.hincrby::<i64, _, _>("user", "visits", 3).await.unwrap(), 8);
    assert_eq!(client.hdel::<i64, _, _>("user", vec!["city", "none"]).await.unwrap(), 1);
    let expires: Vec<i64> = client.hpexpire("user", 20, None, vec!["visits", "none"]).await.unwrap();
    assert_eq!(expires, [1, -2]);
    assert_eq!(client.httl::<Vec<i64>, _, _>("user", "name").await.unwrap(), [-1]);
    until("an expired field", async || client.hlen::<i64, _>("user").await.unwrap() == 1).await;
    assert_eq!(client.hgetall::<HashMap<String, String>, _>("user").await.unwrap()["name"], "Ann");
}

const NOTHING: &str = "Request timed out.";

async fn queue(client: &Client, other: &Client) {
    let (left, right) = (|| LMoveDirection::Left, || LMoveDirection::Right);
    assert_eq!(client.rpush::<i64, _, _>("queue", vec!["a", "b"]).await.unwrap(), 2);
    assert_eq!(client.lpop::<String, _>("queue", None).await.unwrap(), "a");
    assert_eq!(client.lrange::<Vec<String>, _>("queue", 0, -1).await.unwrap(), ["b"]);
    assert_eq!(client.lmove::<String, _, _>("queue", "working", left(), right()).await.unwrap(), "b");
    let pops = other.blpop::<(String, String), _>(vec!["none", "queue"], 20.0);
    assert_eq!(waits(pops, client.rpush("queue", "c")).await, ("queue".into(), "c".into()));
    let moves = other.blmove::<String, _, _>("queue", "working", left(), right(), 20.0);
    assert_eq!(waits(moves, client.rpush("queue", "d")).await, "d");
    assert_eq!(client.lrange::<Vec<String>, _>("working", 0, -1).await.unwrap(), ["b", "d"]);
    // A nil after the wait becomes fred's own error.
    fails(NOTHING, other.blpop::<(String, String), _>("queue", 0.1).await);
    fails(NOTHING, other.blmove::<String, _, _>("queue", "working", left(), right(), 0.1).await);
}

type Score = (String, f64);

async fn leaderboard(client: &Client, other: &Client) {
    let scores = vec![(1.5, "Ann"), (2.0, "Bob"), (f64::INFINITY, "Cid")];
    let everyone = [("Bob", 2.0), ("Ann", 3.75), ("Cid", f64::INFINITY)];
    let everyone = everyone.map(|(name, score)| (name.to_owned(), score));
    assert_eq!(client.zadd::<i64, _, _>("board", None, None, false, false, scores).await.unwrap(), 3);
    assert_eq!(client.zincrby::<f64, _, _>("board", 2.25, "Ann").await.unwrap(), 3.75);
    let all: Vec<Score> = client.zrange("board", 0, -1, None, false, None, true).await.unwrap();
    assert_eq!(all, everyone);
    assert_eq!(client.zscore::<f64, _, _>("board", "Cid").await.unwrap(), f64::INFINITY);
    assert_eq!(client.zrevrank::<Option<i64>, _, _>("board", "none", false).await.unwrap(), None);
    assert_eq!(client.zrevrank::<(i64, f64), _, _>("board", "Ann", true).await.unwrap(), (1, 3.75));
    let above: Vec<Score> = client.zrangebyscore("board", "(2", "+inf", true, Some((0, 1))).await.unwrap();
    assert_eq!(above, everyone[1..2]);
    assert_eq!(client.zpopmin::<Vec<Score>, _>("board", Some(2)).await.unwrap(), everyone[..2]);
    let pops = other.bzpopmin::<(String, String, f64), _>("waited", 20.0);
    let popped = waits(pops, client.zadd("waited", None, None, false, false, (-0.5, "Eve"))).await;
    assert_eq!(popped, ("waited".into(), "Eve".into(), -0.5));
    fails(NOTHING, other.bzpopmin::<(String, String, f64), _>("waited", 0.1).await);
}

async fn map(client: &Client) {
    let place = |longitude, latitude| GeoPosition { longitude, latitude };
    let places = [(place(13.361389, 38.115556), "Palermo"), (place(15.087269, 37.502669), "Catania")];
    let places = places.map(|(coordinates, name)| GeoValue { coordinates, member: name.into() });
    assert_eq!(client.geoadd::<i64, _, _>("places", None, false, places.to_vec()).await.unwrap(), 2);
    let (near, within) = (Some(place(15.0, 37.0)), Some((200.0, GeoUnit::Kilometers)));
    let order = Some(SortOrder::Asc);
    let found: Value =
        client.geosearch("places", None, near, within, None, order, None, true, true, false).await.unwrap();
    let found = found.into_geo_radius_result(true, true, false).unwrap();
    let seen: Vec<_> = found.iter().map(|f| (f.member.as_str().unwrap(), f.distance.unwrap())).collect();
    assert_eq!(seen, [("Catania".into(), 56.4413), ("Palermo".into(), 190.4424)]);
    assert_eq!(found[0].position, Some(place(15.087267458438873, 37.50266842333162)));
}

async fn collections(client: &Client, other: &Client) {
    let () = client.flushall(false).await.unwrap();
    hash(client).await;
    queue(client, other).await;
    leaderboard(client, other).await;
    map(client).await;
}

async fn scans(client: &Client) {
    let () = client.flushall(false).await.unwrap();
    for n in 0..500 {
        let () = client.set(format!("key:{n}"), "x", None, None, false).await.unwrap();
        let () = client.sadd("big", n).await.unwrap();
    }
    let keys: HashSet<Key> = client.scan_buffered("key:*", Some(100), None).try_collect().await.unwrap();
    assert_eq!(keys.len(), 500);
    let pages = client.sscan("big", "*", Some(50));
    let members = pages.map(|page| page.unwrap().take_results().unwrap_or_default());
    assert_eq!(members.map(|page| page.len()).fold(0, async |sum, n| sum + n).await, 500);
}

/// A client that subscribes to "news" and "n*".
async fn listener(drive: &Drive) -> SubscriberClient {
    let reader = builder(drive).build_subscriber_client().unwrap();
    reader.init().await.unwrap();
    drop(reader.manage_subscriptions());
    reader.subscribe("news").await.unwrap();
    reader.psubscribe("n*").await.unwrap();
    reader
}

async fn messages(drive: &Drive, client: &Client) {
    let reader = listener(drive).await;
    let mut heard = reader.message_rx();
    // SUBSCRIBE does not wait for its confirmation, so one of the two may receive an extra message.
    until("both", async || client.publish::<i64, _, _>("news", "hello").await.unwrap() == 2).await;
    let mut kinds = HashSet::new();
    while kinds.len() < 2 {
        let message = heard.recv().await.unwrap();
        assert_eq!((&*message.channel, message.value.as_string()), ("news", Some("hello".to_owned())));
        kinds.insert(format!("{:?}", message.kind));
    }
    reader.quit().await.unwrap();
}

/// Fred keeps no values, but reports the keys that a cache would have to drop.
async fn cached(client: &Client, other: &Client) {
    let mut forget = client.invalidation_rx();
    client.start_tracking(Vec::<String>::new(), false, false, false, false).await.unwrap();
    for n in 0..50 {
        let () = other.set("cached", n, None, None, false).await.unwrap();
        assert_eq!(client.get::<i64, _>("cached").await.unwrap(), n);
        let () = other.set("cached", -1, None, None, false).await.unwrap();
        let invalidation = tokio::time::timeout(Duration::from_secs(20), forget.recv()).await;
        assert_eq!(invalidation.expect("an invalidation").unwrap().keys, [Key::from("cached")]);
    }
    client.stop_tracking().await.unwrap();
}

async fn starting_again(drive: &Drive, client: &Client) {
    let reader = listener(drive).await;
    let () = client.set("kept", "1", None, None, false).await.unwrap();
    drive.restart().await;
    let answers = async || client.get::<String, _>("kept").await.is_ok_and(|value| value == "1");
    until("an answer", answers).await;
    let publish = async || client.publish::<i64, _, _>("news", "again").await.is_ok_and(|n| n == 2);
    until("the subscriptions", publish).await;
    let mut heard = reader.message_rx();
    assert_eq!(client.publish::<i64, _, _>("news", "last").await.unwrap(), 2);
    while heard.recv().await.unwrap().value.as_string() != Some("last".to_owned()) {}
}

#[tokio::main]
async fn main() {
    let drive = Drive::new("fred");
    let client = usual(&drive).await;
    names(&drive).await;
    drive.did("names");
    values(&client).await;
    drive.did("values");
    pools(&drive).await;
    drive.did("pools");
    pipelines(&client).await;
    drive.did("pipelines");
    transactions(&client, &usual(&drive).await).await;
    drive.did("transactions");
    collections(&client, &usual(&drive).await).await;
    drive.did("collections");
    scans(&client).await;
    drive.did("scans");
    messages(&drive, &client).await;
    drive.did("messages");
    if drive.protocol == 3 {
        cached(&usual(&drive).await, &client).await;
        drive.did("cached");
    }
    starting_again(&drive, &client).await;
    drive.did("starting_again");
}
