//! The server under attack and its contents: the worst values there are, restored after a request has changed
//! them.

use crate::script::{Arg, Call, Script, call, long, times, times_from};
use crate::streams;
use crate::support::env_number;
use crate::support::resp::{Client, Value};
use crate::support::server::{Server, tern};
use std::time::Duration;

pub const MIB: usize = 1 << 20;
/// The number of keys beyond which leftovers of attacks are deleted.
const TOO_MANY: i64 = 3_000_000;
/// The prefix of the copies of the values.
const STORE: &str = "15";

/// The size of a request.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Bytes of a long argument.
    pub long: usize,
    /// The number of arguments of a long request.
    pub many: usize,
    /// Members of the large set.
    pub members: usize,
    /// Keys in the database.
    pub keys: usize,
}

impl Scale {
    /// The scale of a run of this many seconds.
    pub fn of(budget: Duration) -> Scale {
        if budget < Duration::from_secs(300) {
            Scale { long: 8 * MIB, many: 60_000, members: 60_000, keys: 60_000 }
        } else {
            Scale { long: 48 * MIB, many: 1_000_000, members: 200_000, keys: 300_000 }
        }
    }
}

/// The values that commands are applied to.
pub const VALUES: &[&str] =
    &["sparse", "dense", "set", "ints", "hash", "list", "zset", "stream", "hll", "counter", "absent"];
/// Those of them that `SIZES` compares.
const SIZES: &[(&str, &str)] = &[
    ("sparse", "STRLEN"),
    ("dense", "STRLEN"),
    ("set", "SCARD"),
    ("ints", "SCARD"),
    ("hash", "HLEN"),
    ("list", "LLEN"),
    ("zset", "ZCARD"),
    ("stream", "XLEN"),
    ("hll", "STRLEN"),
    ("counter", "GET"),
];

pub struct World {
    pub server: Server,
    /// Resident memory after the values were created.
    pub begin: usize,
    pub scale: Scale,
    sizes: Vec<Value>,
}

impl World {
    pub fn new(scale: Scale) -> World {
        let server = tern(&["--appendfsync", "no", "--store-cache-size", "64mb", "--maxclients", "200"]);
        let mut world = World { begin: 0, server, scale, sizes: Vec::new() };
        world.fill();
        world.begin = world.server.resident();
        world
    }

    pub fn client(&self) -> Client {
        let client = self.server.client();
        client.set_timeout(Duration::from_secs(env_number("TERN_FILL_SECONDS").unwrap_or(120)));
        client
    }

    fn fill(&mut self) {
        let (mut client, scale) = (self.client(), self.scale);
        run(&mut client, call("FLUSHALL", []));
        run(&mut client, call("SETRANGE sparse 536870911 x", []));
        for part in 0..scale.long / MIB {
            run(&mut client, call("APPEND dense", [long(&format!("{part}:dense;"), MIB)]));
        }
        // More sorted members exceed a transaction of a cluster.
        const STEP: usize = 10_000;
        for from in (0..scale.members).step_by(STEP) {
            run(&mut client, call("SADD set", [times_from(from, STEP, "member:{}")]));
            run(&mut client, call("SADD ints", [times_from(from, STEP, "1{}7")]));
            run(&mut client, call("HSET hash", [times_from(from, STEP, "field:{} value:{}")]));
            run(&mut client, call("RPUSH list", [times_from(from, STEP, "element:{}")]));
            run(&mut client, call("ZADD zset", [times_from(from, STEP, "{} member:{}")]));
        }
        streams::made(scale.members).into_iter().for_each(|line| run(&mut client, line));
        run(&mut client, call("PFADD hll", [times(20_000, "{}")]));
        run(&mut client, call("SET counter 7", []));
        for (name, _) in SIZES {
            run(&mut client, call(&format!("COPY {name} {name} DB {STORE} REPLACE"), []));
        }
        self.fill_keys(&mut client);
        self.sizes = sizes(&mut client);
    }

    fn fill_keys(&self, client: &mut Client) {
        for from in (0..self.scale.keys).step_by(10_000) {
            run(client, call("MSET", [times_from(from, 10_000, "key:{} value:{}")]));
        }
    }

    /// Restores what the last attack has changed.
    pub fn restore(&mut self) {
        let mut client = self.client();
        client.line("ACL DELUSER somebody weak");
        client.line("CONFIG SET slowlog-max-len 128 slowlog-log-slower-than 10000");
        let number = client.line("DBSIZE").int().unwrap_or(0);
        client.line(&format!("SELECT {STORE}"));
        let lost = client.line("STRLEN sparse") != Value::Int(512 << 20);
        client.line("SELECT 0");
        if number > TOO_MANY || lost {
            return self.fill();
        }
        if number < self.scale.keys as i64 / 2 {
            self.fill_keys(&mut client);
        }
        client.line("DEL made quick");
        if sizes(&mut client) == self.sizes {
            return;
        }
        client.line(&format!("SELECT {STORE}"));
        for (name, _) in SIZES {
            run(&mut client, call(&format!("COPY {name} {name} DB 0 REPLACE"), []));
        }
        client.line("SELECT 0");
        assert_eq!(sizes(&mut client), self.sizes, "the values cannot be restored");
    }

    /// A breakdown of memory, as far as the server reports it.
    pub fn breakdown(&self) -> String {
        let mut client = self.client();
        let info = client.line("INFO everything");
        let info = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
        let said =
            |name: &&str| info.lines().find(|line| line.starts_with(&format!("{name}:"))).map(str::to_owned);
        let names = [
            "used_memory",
            "used_memory_peak",
            "used_memory_store",
            "mem_clients_normal",
            "tracking_total_keys",
            "tasks",
        ];
        let mut all: Vec<String> = names.iter().filter_map(said).collect();
        for line in ["SLOWLOG LEN", "DBSIZE", "PUBSUB NUMPAT"] {
            all.push(format!("{line}:{:?}", client.line(line).int().unwrap_or(-1)));
        }
        format!("held at the end: {}", all.join(" "))
    }

    /// DUMP of a value.
    pub fn dumped(&self, key: &str) -> Arg {
        let reply = self.client().line(&format!("DUMP {key}"));
        Arg::Bytes(reply.bytes().unwrap_or_else(|| panic!("DUMP {key}: {reply:?}")).to_vec())
    }
}

fn run(client: &mut Client, line: Call) {
    let script = Script::one(line);
    client.send_raw(&script.bytes()).unwrap();
    let reply = client.read().unwrap().value;
    assert!(!reply.is_error(), "{}: {reply:?}", script.show());
}

fn sizes(client: &mut Client) -> Vec<Value> {
    let of = |(name, size): &(&str, &str)| {
        [client.line(&format!("{size} {name}")), client.line(&format!("PTTL {name}"))]
    };
    let mut all: Vec<Value> = SIZES.iter().flat_map(of).collect();
    all.push(client.line("XPENDING stream group"));
    all
}
