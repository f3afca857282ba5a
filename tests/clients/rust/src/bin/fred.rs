//! An application's use of fred.

use fred::clients::SubscriberClient;
use fred::prelude::*;
use fred::types::RespVersion;
use fred::types::scan::Scanner;
use futures_util::{StreamExt, TryStreamExt};
use std::collections::HashSet;
use std::time::Duration;
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
