// A web server's use of connect-redis, in which express-session keeps its sessions through node-redis.
//
// Usage: node sessions.cjs redis PORT PASSWORD PROTOCOL CONTROL, as node.cjs.
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const session = require("express-session");
const { RedisStore } = require("connect-redis");
const { createClient } = require("redis");

const { port, password, protocol, until, restart } = require("./drive.cjs");

async function connect() {
  const client = createClient({ socket: { port, reconnectStrategy: 50 }, password, RESP: protocol });
  return client.on("error", () => {}).connect(); // told while the server is away
}

// A web server that counts the visits of each browser; /login gives the session a new id, /logout ends it.
async function serve(store, maxAge) {
  const withSession = session({ store, secret: "s", resave: false, saveUninitialized: false, cookie: { maxAge } });
  const answer = (request, response) => {
    request.session.visits = (request.session.visits ?? 0) + 1;
    response.end(JSON.stringify({ id: request.sessionID, visits: request.session.visits }));
  };
  const server = http.createServer((request, response) => withSession(request, response, () => {
    if (request.url === "/logout") return request.session.destroy(() => response.end("{}"));
    if (request.url !== "/login") return answer(request, response);
    const { visits } = request.session;
    request.session.regenerate(() => {
      request.session.visits = visits;
      answer(request, response);
    });
  }));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${server.address().port}`;
}

// A browser, which keeps its cookie.
function browser(place) {
  let cookie = "";
  return async (page) => {
    const response = await fetch(place + page, { headers: { cookie } });
    cookie = response.headers.getSetCookie()[0]?.split(";")[0] ?? cookie;
    return response.json();
  };
}

function cases(client) {
  return {
    async sessions() {
      const place = await serve(new RedisStore({ client }), 3_600_000);
      const [ann, bob] = [browser(place), browser(place)];
      const { id } = await ann("/");
      for (let visits = 2; visits < 5; visits++) assert.deepEqual(await ann("/"), { id, visits });
      assert.equal((await bob("/")).visits, 1);
      const left = await client.ttl(`sess:${id}`);
      assert.ok(left > 3500 && left <= 3600, left);
      const after = await ann("/login");
      assert.ok(after.id !== id && after.visits === 5);
      assert.deepEqual([await client.exists(`sess:${id}`), await client.exists(`sess:${after.id}`)], [0, 1]);
      await ann("/logout");
      assert.equal(await client.exists(`sess:${after.id}`), 0);
      assert.equal((await ann("/")).visits, 1);
    },
    async store() {
      const store = new RedisStore({ client, prefix: "own:", scanCount: 10 });
      const ids = Array.from({ length: 150 }, (_, n) => `id-${n}`);
      await Promise.all(ids.map((id, n) => store.set(id, { n, cookie: {} })));
      assert.equal(await store.length(), 150);
      assert.deepEqual((await store.ids()).sort(), [...ids].sort());
      assert.deepEqual((await store.all()).map(({ n }) => n).sort((a, b) => a - b), ids.map((_, n) => n));
      await store.touch("id-0", { cookie: { expires: new Date(Date.now() + 50_000) } });
      assert.ok((await client.ttl("own:id-0")) <= 50);
      await store.destroy("id-0");
      assert.equal(await store.get("id-0"), null);
      await store.clear();
      assert.equal(await store.length(), 0);
      assert.ok((await client.exists("own:id-1")) === 0);
    },
    async expires() {
      const visit = browser(await serve(new RedisStore({ client }), 1000));
      const { id } = await visit("/");
      await until("the session's end", async () => (await client.exists(`sess:${id}`)) === 0);
      assert.equal((await visit("/")).visits, 1);
    },
    async starting_again() {
      const visit = browser(await serve(new RedisStore({ client }), 3_600_000));
      await visit("/");
      await restart();
      await until("an answer", () => client.ping().then(() => true, () => false));
      assert.equal((await visit("/")).visits, 2);
    },
  };
}

async function main() {
  const client = await connect();
  for (const [name, run] of Object.entries(cases(client))) {
    await run();
    console.log(`connect-redis RESP${protocol}: ${name}`);
  }
  process.exit(0);
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
