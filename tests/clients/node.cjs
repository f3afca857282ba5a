// An application's use of ioredis and node-redis: it connects by name and password, pools, pipelines, WATCHes, scans,
// publishes and subscribes, and continues after a restart of the server.
//
// Usage: node node.cjs LIBRARY PORT PASSWORD PROTOCOL CONTROL. Prints one line per case, exits with 1 at the first failure. To have the
// server restarted it creates the file CONTROL/restart and waits for CONTROL/restarted.
"use strict";

const assert = require("node:assert/strict");

const { library, port, password, protocol, sleep, until, restart } = require("./drive.cjs");

// What a call that blocks on another connection returns once `serve` has run, 100 ms later.
async function waits(call, serve) {
  let answered = false;
  const waiting = call.finally(() => (answered = true));
  await sleep(100);
  assert.equal(answered, false);
  await serve();
  return waiting;
}

const sorted = (items) => [...items].map(String).sort();

function ioredis() {
  const Redis = require("ioredis");
  const connect = (options) => {
    const client = new Redis({ port, password, protocol, retryStrategy: () => 50, ...options });
    client.on("error", () => {}); // told while the server is away
    return client;
  };
  async function a_hash(client) {
    assert.equal(await client.hset("user", { name: "Ann", city: "Rome", visits: 5 }), 3);
    assert.deepEqual(await client.hgetall("user"), { name: "Ann", city: "Rome", visits: "5" });
    assert.equal(await client.hincrby("user", "visits", 3), 8);
    assert.equal(await client.hdel("user", "city", "none"), 1);
    assert.deepEqual(await client.hpexpire("user", 20, "FIELDS", 2, "visits", "none"), [1, -2]);
    assert.deepEqual(await client.httl("user", "FIELDS", 1, "name"), [-1]);
    await until("an expired field", async () => Object.keys(await client.hgetall("user")).join() === "name");
  }
  async function a_queue(client, other) {
    assert.equal(await client.rpush("queue", "a", "b"), 2);
    assert.equal(await client.lpop("queue"), "a");
    assert.deepEqual(await client.lrange("queue", 0, -1), ["b"]);
    assert.equal(await client.lmove("queue", "working", "LEFT", "RIGHT"), "b");
    assert.deepEqual(await waits(other.blpop("none", "queue", 20), () => client.rpush("queue", "c")), ["queue", "c"]);
    const moves = other.blmove("queue", "working", "LEFT", "RIGHT", 20);
    assert.equal(await waits(moves, () => client.rpush("queue", "d")), "d");
    assert.deepEqual(await client.lrange("working", 0, -1), ["b", "d"]);
    assert.equal(await other.blpop("queue", 0.1), null);
    assert.equal(await other.blmove("queue", "working", "LEFT", "RIGHT", 0.1), null);
  }
  // Scores stay texts, in RESP3 too.
  async function a_leaderboard(client, other) {
    assert.equal(await client.zadd("board", 1.5, "Ann", 2, "Bob", "inf", "Cid"), 3);
    assert.equal(await client.zincrby("board", 2.25, "Ann"), "3.75");
    assert.deepEqual(await client.zrange("board", 0, -1, "WITHSCORES"), ["Bob", "2", "Ann", "3.75", "Cid", "inf"]);
    assert.equal(await client.zscore("board", "Cid"), "inf");
    assert.equal(await client.zrevrank("board", "none"), null);
    assert.deepEqual(await client.zrevrank("board", "Ann", "WITHSCORE"), [1, "3.75"]);
    assert.deepEqual(await client.zrangebyscore("board", "(2", "+inf", "WITHSCORES", "LIMIT", 0, 1), ["Ann", "3.75"]);
    assert.deepEqual(await client.zpopmin("board", 2), ["Bob", "2", "Ann", "3.75"]);
    const popped = await waits(other.bzpopmin("waited", 20), () => client.zadd("waited", -0.5, "Eve"));
    assert.deepEqual(popped, ["waited", "Eve", "-0.5"]);
    assert.equal(await other.bzpopmin("waited", 0.1), null);
  }
  async function a_map(client) {
    assert.equal(await client.geoadd("places", 13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"), 2);
    const found = await client.geosearch("places", "FROMLONLAT", 15, 37, "BYRADIUS", 200, "km", "ASC", "WITHDIST", "WITHCOORD");
    assert.deepEqual(found, [
      ["Catania", "56.4413", ["15.087267458438873", "37.50266842333162"]],
      ["Palermo", "190.4424", ["13.361389338970184", "38.1155563954963"]],
    ]);
  }
  return {
    async names() {
      const client = connect({ connectionName: "tester", username: "default", db: 3 });
      assert.equal(await client.client("GETNAME"), "tester");
      assert.match(await client.client("INFO"), / name=tester .* db=3 /);
      client.disconnect();
      const wrong = connect({ password: "wrong", retryStrategy: null, maxRetriesPerRequest: 0 });
      await assert.rejects(wrong.get("k"));
      wrong.disconnect();
    },
    async values() {
      const client = connect();
      await client.flushall();
      assert.equal(await client.set("k", "v", "EX", 100), "OK");
      assert.equal(await client.get("k"), "v");
      assert.equal(await client.set("k", "w", "NX"), null);
      assert.equal(await client.sadd("s", "a", "b", "c"), 3);
      await client.sadd("t", "b", "c", "d");
      assert.deepEqual(sorted(await client.sinter("s", "t")), ["b", "c"]);
      const bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
      await client.set(bytes, bytes);
      assert.deepEqual(await client.getBuffer(bytes), bytes);
      await assert.rejects(client.incr("s"), /WRONGTYPE/);
      client.disconnect();
    },
    async pipelines() {
      const client = connect();
      await client.del("n");
      const pipe = client.pipeline();
      for (let n = 0; n < 1000; n++) pipe.incr("n");
      const replies = await pipe.exec();
      assert.deepEqual(replies.at(-1), [null, 1000]);
      client.disconnect();
    },
    async transactions() {
      const [client, other] = [connect(), connect()];
      await client.set("w", 1);
      await client.watch("w");
      await other.set("w", 5);
      assert.equal(await client.multi().set("w", 2).exec(), null);
      assert.deepEqual(await client.multi().incr("w").get("w").exec(), [[null, 6], [null, "6"]]);
      client.disconnect();
      other.disconnect();
    },
    async collections() {
      const [client, other] = [connect(), connect()];
      await client.flushall();
      for (const part of [a_hash, a_queue, a_leaderboard, a_map]) await part(client, other);
      client.disconnect();
      other.disconnect();
    },
    async scans() {
      const client = connect();
      await client.flushall();
      await client.mset(Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`key:${n}`, n])));
      let found = 0;
      for await (const keys of client.scanStream({ match: "key:*", count: 100 })) found += keys.length;
      assert.equal(found, 500);
      client.disconnect();
    },
    async messages() {
      const [reader, writer] = [connect(), connect()];
      const heard = [];
      reader.on("message", (channel, text) => heard.push(`${channel} ${text}`));
      reader.on("pmessage", (pattern, channel, text) => heard.push(`${pattern} ${channel} ${text}`));
      await reader.subscribe("news");
      await reader.psubscribe("n*");
      assert.equal(await writer.publish("news", "hello"), 2);
      await until("both", () => heard.length === 2);
      assert.deepEqual(sorted(heard), ["n* news hello", "news hello"]);
      reader.disconnect();
      writer.disconnect();
    },
    async starting_again() {
      const [reader, writer] = [connect(), connect()];
      const heard = [];
      reader.on("message", (_, text) => heard.push(text));
      await reader.subscribe("news");
      await writer.set("kept", "1");
      await restart();
      assert.equal(await writer.get("kept"), "1");
      await until("the subscription", async () => (await writer.publish("news", "again")) === 1);
      await until("the message", () => heard.includes("again"));
      reader.disconnect();
      assert.equal(await writer.quit(), "OK");
    },
  };
}

function node_redis() {
  const { BasicClientSideCache, createClient, createClientPool, WatchError } = require("redis");
  const options = (more) => ({
    socket: { port, reconnectStrategy: 50 },
    password,
    RESP: protocol,
    ...more,
  });
  const connect = async (more) => {
    const client = createClient(options(more));
    client.on("error", () => {}); // told while the server is away
    return client.connect();
  };
  async function a_hash(client) {
    assert.equal(await client.hSet("user", { name: "Ann", city: "Rome", visits: 5 }), 3);
    assert.deepEqual({ ...(await client.hGetAll("user")) }, { name: "Ann", city: "Rome", visits: "5" });
    assert.equal(await client.hIncrBy("user", "visits", 3), 8);
    assert.equal(await client.hDel("user", ["city", "none"]), 1);
    assert.deepEqual(await client.hpExpire("user", ["visits", "none"], 20), [1, -2]);
    assert.deepEqual(await client.hTTL("user", ["name"]), [-1]);
    await until("an expired field", async () => Object.keys(await client.hGetAll("user")).join() === "name");
  }
  async function a_queue(client, other) {
    assert.equal(await client.rPush("queue", ["a", "b"]), 2);
    assert.equal(await client.lPop("queue"), "a");
    assert.deepEqual(await client.lRange("queue", 0, -1), ["b"]);
    assert.equal(await client.lMove("queue", "working", "LEFT", "RIGHT"), "b");
    const popped = await waits(other.blPop(["none", "queue"], 20), () => client.rPush("queue", "c"));
    assert.deepEqual({ ...popped }, { key: "queue", element: "c" });
    const moves = other.blMove("queue", "working", "LEFT", "RIGHT", 20);
    assert.equal(await waits(moves, () => client.rPush("queue", "d")), "d");
    assert.deepEqual(await client.lRange("working", 0, -1), ["b", "d"]);
    assert.equal(await other.blPop("queue", 0.1), null);
    assert.equal(await other.blMove("queue", "working", "LEFT", "RIGHT", 0.1), null);
  }
  async function a_leaderboard(client, other) {
    const everyone = [["Bob", 2], ["Ann", 3.75], ["Cid", Infinity]].map(([value, score]) => ({ value, score }));
    assert.equal(await client.zAdd("board", [{ value: "Ann", score: 1.5 }, everyone[0], everyone[2]]), 3);
    assert.equal(await client.zIncrBy("board", 2.25, "Ann"), 3.75);
    assert.deepEqual(await client.zRangeWithScores("board", 0, -1), everyone);
    assert.equal(await client.zScore("board", "Cid"), Infinity);
    assert.equal(await client.zRevRank("board", "none"), null);
    assert.deepEqual({ ...(await client.zRevRankWithScore("board", "Ann")) }, { rank: 1, score: 3.75 });
    const limit = { LIMIT: { offset: 0, count: 1 } };
    assert.deepEqual(await client.zRangeByScoreWithScores("board", "(2", "+inf", limit), [everyone[1]]);
    assert.deepEqual(await client.zPopMinCount("board", 2), everyone.slice(0, 2));
    const popped = await waits(other.bzPopMin("waited", 20), () => client.zAdd("waited", { value: "Eve", score: -0.5 }));
    assert.deepEqual({ ...popped }, { key: "waited", value: "Eve", score: -0.5 });
    assert.equal(await other.bzPopMin("waited", 0.1), null);
  }
  async function a_map(client) {
    const [palermo, catania] = [[13.361389, 38.115556, "Palermo"], [15.087269, 37.502669, "Catania"]];
    const places = [palermo, catania].map(([longitude, latitude, member]) => ({ longitude, latitude, member }));
    assert.equal(await client.geoAdd("places", places), 2);
    const [near, options] = [{ longitude: 15, latitude: 37 }, { SORT: "ASC" }];
    assert.deepEqual(await client.geoSearch("places", near, { radius: 100, unit: "km" }, options), ["Catania"]);
    const wanted = ["WITHDIST", "WITHCOORD"];
    assert.deepEqual(await client.geoSearchWith("places", near, { radius: 200, unit: "km" }, wanted, options), [
      { member: "Catania", distance: 56.4413, coordinates: { longitude: 15.087267458438873, latitude: 37.50266842333162 } },
      { member: "Palermo", distance: 190.4424, coordinates: { longitude: 13.361389338970184, latitude: 38.1155563954963 } },
    ]);
  }
  return {
    async names() {
      const client = await connect({ name: "tester", username: "default", database: 3 });
      assert.equal(await client.clientGetName(), "tester");
      const info = await client.clientInfo();
      assert.equal(info.name, "tester");
      assert.equal(info.db, 3);
      client.destroy();
      const wrong = createClient(options({ password: "wrong", socket: { port, reconnectStrategy: false } }));
      wrong.on("error", () => {});
      await assert.rejects(wrong.connect(), /WRONGPASS/);
    },
    async values() {
      const client = await connect();
      await client.flushAll();
      assert.equal(await client.set("k", "v", { expiration: { type: "EX", value: 100 } }), "OK");
      assert.equal(await client.get("k"), "v");
      assert.equal(await client.set("k", "w", { condition: "NX" }), null);
      assert.equal(await client.sAdd("s", ["a", "b", "c"]), 3);
      await client.sAdd("t", ["b", "c", "d"]);
      assert.deepEqual(sorted(await client.sInter(["s", "t"])), ["b", "c"]);
      assert.equal(await client.incrByFloat("f", 1.5), "1.5");
      await assert.rejects(client.incr("s"), /WRONGTYPE/);
      client.destroy();
    },
    async pools() {
      const pool = createClientPool(options(), { minimum: 2, maximum: 8, acquireTimeout: 60_000 });
      pool.on("error", () => {});
      await pool.connect();
      await pool.del("count");
      await Promise.all(Array.from({ length: 400 }, () => pool.incr("count")));
      assert.equal(await pool.get("count"), "400");
      await pool.close();
    },
    async pipelines() {
      const client = await connect();
      await client.del("n");
      const replies = await Promise.all(Array.from({ length: 1000 }, () => client.incr("n")));
      assert.equal(replies.at(-1), 1000);
      client.destroy();
    },
    async transactions() {
      const [client, other] = [await connect(), await connect()];
      await client.set("w", "1");
      await client.watch("w");
      await other.set("w", "5");
      await assert.rejects(client.multi().set("w", "2").exec(), WatchError);
      assert.deepEqual(await client.multi().incr("w").get("w").exec(), [6, "6"]);
      client.destroy();
      other.destroy();
    },
    async collections() {
      const [client, other] = [await connect(), await connect()];
      await client.flushAll();
      for (const part of [a_hash, a_queue, a_leaderboard, a_map]) await part(client, other);
      client.destroy();
      other.destroy();
    },
    async scans() {
      const client = await connect();
      await client.flushAll();
      await client.mSet(Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`key:${n}`, `${n}`])));
      let found = 0;
      for await (const keys of client.scanIterator({ MATCH: "key:*", COUNT: 100 })) found += keys.length;
      assert.equal(found, 500);
      client.destroy();
    },
    async messages() {
      const [reader, writer] = [await connect(), await connect()];
      const heard = [];
      await reader.subscribe("news", (text, channel) => heard.push(`${channel} ${text}`));
      await reader.pSubscribe("n*", (text, channel) => heard.push(`n* ${channel} ${text}`));
      await reader.sSubscribe("shard", (text, channel) => heard.push(`${channel} ${text}`));
      assert.equal(await writer.publish("news", "hello"), 2);
      assert.equal(await writer.sPublish("shard", "x"), 1);
      await until("all", () => heard.length === 3);
      assert.deepEqual(sorted(heard), ["n* news hello", "news hello", "shard x"]);
      reader.destroy();
      writer.destroy();
    },
    // A value comes from the client's cache until another client writes it.
    async cached() {
      const memory = new BasicClientSideCache({ maxEntries: 100 });
      const [client, other] = [await connect({ clientSideCache: memory }), await connect()];
      await other.set("cached", "1");
      assert.equal(await client.get("cached"), "1");
      assert.equal(await client.get("cached"), "1");
      assert.equal(memory.stats().hitCount, 1);
      for (let n = 0; n < 50; n++) {
        await other.set("cached", `${n}`);
        await until("the new value", async () => (await client.get("cached")) === `${n}`);
      }
      await other.flushAll();
      await until("no value", async () => (await client.get("cached")) === null);
      client.destroy();
      other.destroy();
    },
    async starting_again() {
      const [reader, writer] = [await connect(), await connect()];
      const heard = [];
      await reader.subscribe("news", (text) => heard.push(text));
      await writer.set("kept", "1");
      await restart();
      await until("an answer", () => writer.get("kept").then((value) => value === "1", () => false));
      await until("the subscription", async () => (await writer.publish("news", "again")) === 1);
      await until("the message", () => heard.includes("again"));
      reader.destroy();
      await writer.close();
    },
  };
}

async function main() {
  const cases = { ioredis, redis: node_redis }[library]();
  for (const [name, run] of Object.entries(cases)) {
    if (name === "cached" && protocol === 2) continue;
    await run();
    console.log(`${library} RESP${protocol}: ${name}`);
  }
  process.exit(0);
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
