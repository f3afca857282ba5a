// An application's use of rate-limiter-flexible, whose script counts and sets an expiry at once, through ioredis or node-redis.
//
// Usage: node limits.cjs LIBRARY PORT PASSWORD PROTOCOL CONTROL, as node.cjs.
"use strict";

const assert = require("node:assert/strict");
const { RateLimiterRedis, RateLimiterRes } = require("rate-limiter-flexible");

const { library, port, password, protocol, until, restart } = require("./drive.cjs");
const CLIENTS = 4;

async function connect() {
  if (library === "ioredis") {
    const Redis = require("ioredis");
    const client = new Redis({ port, password, protocol, retryStrategy: () => 50 });
    return client.on("error", () => {}); // told while the server is away
  }
  const { createClient } = require("redis");
  const client = createClient({ socket: { port, reconnectStrategy: 50 }, password, RESP: protocol });
  return client.on("error", () => {}).connect();
}

// What `calls` parallel calls of each limiter return, and what they are refused with. Any other failure is one.
async function parallel(limiters, calls, key) {
  const all = limiters.flatMap((limiter) => Array.from({ length: calls }, () => limiter.consume(key)));
  const settled = await Promise.allSettled(all);
  const refused = settled.filter((call) => call.status === "rejected").map((call) => call.reason);
  for (const reason of refused) if (!(reason instanceof RateLimiterRes)) throw reason;
  return [settled.filter((call) => call.status === "fulfilled").map((call) => call.value), refused];
}

const sorted = (results) => results.map((result) => result.consumedPoints).sort((a, b) => a - b);
const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, n) => from + n);

function cases(clients) {
  const limiter = (storeClient, options) => new RateLimiterRedis({ storeClient, useRedisPackage: library === "redis", ...options });
  const limiters = (options) => clients.map((client) => limiter(client, options));
  return {
    // Every call gets a number of its own: none is counted twice, none is lost.
    async exact() {
      const [passed, refused] = await parallel(limiters({ points: 50, duration: 600, keyPrefix: "exact" }), 50, "ann");
      assert.deepEqual(sorted(passed), numbers(1, 50));
      assert.deepEqual(sorted(refused), numbers(51, 200));
      assert.equal(passed.filter((result) => result.isFirstInDuration).length, 1);
      for (const { msBeforeNext } of [...passed, ...refused]) assert.ok(msBeforeNext > 590_000 && msBeforeNext <= 600_000);
      const [others] = await parallel(limiters({ points: 50, duration: 600, keyPrefix: "exact" }), 5, "bob");
      assert.equal(others.length, 20);
    },
    async expires() {
      const short = limiter(clients[0], { points: 2, duration: 2, keyPrefix: "short" });
      const [passed, refused] = await parallel([short], 5, "ann");
      assert.deepEqual([passed.length, refused.length], [2, 3]);
      assert.equal(await clients[1].exists("short:ann"), 1);
      await until("no key", async () => (await clients[1].exists("short:ann")) === 0);
      assert.equal(await short.get("ann"), null);
      const again = await short.consume("ann", 2);
      assert.deepEqual([again.consumedPoints, again.remainingPoints, again.isFirstInDuration], [2, 0, true]);
    },
    async changes() {
      const [one, other] = limiters({ points: 5, duration: 600, keyPrefix: "changes" });
      assert.equal((await one.consume("ann", 4)).remainingPoints, 1);
      assert.equal((await other.reward("ann", 2)).consumedPoints, 2);
      assert.equal((await one.penalty("ann")).consumedPoints, 3);
      assert.equal((await other.get("ann")).remainingPoints, 2);
      await one.block("ann", 100);
      await assert.rejects(other.consume("ann"), (e) => e.msBeforeNext > 95_000 && e.msBeforeNext <= 100_000);
      assert.equal(await other.delete("ann"), true);
      assert.equal((await one.consume("ann")).consumedPoints, 1);
      const forever = limiter(clients[0], { points: 5, duration: 0, keyPrefix: "forever" });
      await forever.consume("ann", 3);
      await assert.rejects(forever.consume("ann", 3), (e) => e.consumedPoints === 6 && e.msBeforeNext === -1);
    },
    // The script is gone with the server that had it, the points are not.
    async starting_again() {
      const all = limiters({ points: 50, duration: 600, keyPrefix: "kept" });
      assert.equal((await parallel(all, 8, "ann"))[0].length, 32);
      await restart();
      const answers = (client) => client.ping().then(() => true, () => false);
      for (const client of clients) await until("an answer", () => answers(client));
      const [passed, refused] = await parallel(all, 10, "ann");
      assert.deepEqual(sorted(passed), numbers(33, 50));
      assert.deepEqual(sorted(refused), numbers(51, 72));
    },
  };
}

async function main() {
  const clients = await Promise.all(Array.from({ length: CLIENTS }, connect));
  for (const [name, run] of Object.entries(cases(clients))) {
    await run();
    console.log(`rate-limiter-flexible on ${library} RESP${protocol}: ${name}`);
  }
  process.exit(0);
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
