// What an application does with BullMQ: queues, workers in processes of their own, and events, which are a stream.
//
// Usage: node jobs.cjs ioredis PORT PASSWORD PROTOCOL CONTROL, as node.cjs. The program starts itself again as a worker, with
// WORKER as a sixth argument.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const Redis = require("ioredis");
const { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } = require("bullmq");

const { port, password, sleep, until, restart } = require("./drive.cjs");

const JOBS = 10_000;
const SENT_TOGETHER = 1_000;
const WORKERS = 2;
// Seconds for all of them on a busy machine.
const SLOW = 120;
// Milliseconds by which a job may be late: a busy machine runs it.
const LATE = 20_000;

const connection = { host: "127.0.0.1", port, password, maxRetriesPerRequest: null, retryStrategy: () => 50 };
const [broker, store] = [new Redis(connection), new Redis({ ...connection, db: 1 })];
for (const client of [broker, store]) client.on("error", () => {}); // told while the server is away

// Keeps workers, queues and events of a case, and closes all of them at its end.
async function within(name, body) {
  const opened = [];
  const open = (thing) => {
    thing.on("error", () => {});
    opened.push(thing);
    return thing;
  };
  const queue = open(new Queue(name, { connection }));
  try {
    await body(queue, open);
  } finally {
    await Promise.all(opened.reverse().map((thing) => thing.close()));
  }
}

const counts = (queue) => queue.getJobCounts("wait", "active", "delayed", "completed", "failed", "prioritized");

const cases = {
  // Each of many jobs runs once, and its end is told once: the stream of events is trimmed meanwhile.
  async each_once() {
    await within("many", async (queue, open) => {
      const [runs, told] = [new Map(), new Set()];
      const events = open(new QueueEvents("many", { connection }));
      await events.waitUntilReady();
      events.on("completed", ({ jobId, returnvalue }) => told.add(`${jobId}=${returnvalue}`));
      for (let from = 0; from < JOBS; from += SENT_TOGETHER) {
        const jobs = Array.from({ length: SENT_TOGETHER }, (_, n) => ({ name: "square", data: { n: from + n } }));
        await queue.addBulk(jobs);
      }
      assert.equal(await queue.getWaitingCount(), JOBS);
      const work = async ({ data: { n } }) => {
        runs.set(n, (runs.get(n) ?? 0) + 1);
        return n * n;
      };
      for (let n = 0; n < WORKERS; n++) open(new Worker("many", work, { connection, concurrency: 50 }));
      await until("all jobs", async () => (await queue.getCompletedCount()) === JOBS, SLOW);
      assert.equal(runs.size, JOBS);
      assert.deepEqual([...new Set(runs.values())], [1]);
      assert.deepEqual(await counts(queue), { wait: 0, active: 0, delayed: 0, completed: JOBS, failed: 0, prioritized: 0 });
      await until("all events", async () => told.size === JOBS);
      const [some] = await queue.getCompleted(17, 17);
      assert.equal(some.returnvalue, some.data.n ** 2);
      await queue.trimEvents(10);
      assert.ok((await broker.xlen("bull:many:events")) >= 10);
      await queue.obliterate({ force: true });
      assert.equal(await broker.exists("bull:many:events", "bull:many:meta"), 0);
    });
  },

  async delayed() {
    await within("delayed", async (queue, open) => {
      const waits = [];
      const work = async ({ data: { due } }) => waits.push(Date.now() - due);
      const worker = open(new Worker("delayed", work, { connection }));
      await worker.waitUntilReady();
      for (let n = 0; n < 20; n++) {
        const delay = 300 + 100 * (n % 5);
        await queue.add("later", { due: Date.now() + delay }, { delay });
      }
      await until("delayed jobs", async () => waits.length === 20);
      assert.ok(waits.every((wait) => wait >= -2 && wait < LATE), waits);
    });
  },

  async prioritized() {
    await within("prioritized", async (queue, open) => {
      const order = [];
      const jobs = Array.from({ length: 60 }, (_, n) => ({ name: "p", data: { p: 3 - (n % 3) }, opts: { priority: 3 - (n % 3) } }));
      await queue.addBulk(jobs);
      open(new Worker("prioritized", async ({ data: { p } }) => order.push(p), { connection, concurrency: 1 }));
      await until("prioritized jobs", async () => order.length === 60);
      assert.deepEqual(order, [...order].sort());
    });
  },

  // Fails twice, waits longer each time, then succeeds; another one gives up after its last attempt.
  async retried() {
    await within("retried", async (queue, open) => {
      const began = new Map();
      const events = open(new QueueEvents("retried", { connection }));
      await events.waitUntilReady();
      const work = async (job) => {
        began.set(job.id, [...(began.get(job.id) ?? []), Date.now()]);
        if (job.name === "never") throw new UnrecoverableError("never");
        if (job.name === "hopeless" || job.attemptsMade < 2) throw new Error(`attempt ${job.attemptsMade}`);
        return "in the end";
      };
      open(new Worker("retried", work, { connection, concurrency: 5 }));
      const options = { attempts: 3, backoff: { type: "exponential", delay: 200 } };
      const good = await queue.add("good", {}, options);
      const hopeless = await queue.add("hopeless", {}, options);
      const never = await queue.add("never", {}, options);
      assert.equal(await good.waitUntilFinished(events, LATE), "in the end");
      await assert.rejects(hopeless.waitUntilFinished(events, LATE), /attempt 2/);
      await assert.rejects(never.waitUntilFinished(events, LATE), /never/);
      for (const job of [good, hopeless]) {
        const [first, second, third, ...more] = began.get(job.id);
        assert.deepEqual(more, []);
        assert.ok(second - first >= 198 && third - second >= 398, began.get(job.id));
      }
      assert.equal(began.get(never.id).length, 1);
      assert.equal(await queue.getFailedCount(), 2);
      assert.match((await queue.getJob(hopeless.id)).failedReason, /attempt 2/);
    });
  },

  // A parent runs after its children and gets their values.
  async flows() {
    await within("flows", async (queue, open) => {
      const events = open(new QueueEvents("flows", { connection }));
      await events.waitUntilReady();
      const sum = (values) => Object.values(values).reduce((a, b) => a + b, 0);
      const work = async (job) => (job.name === "sum" ? sum(await job.getChildrenValues()) : job.data.n);
      open(new Worker("flows", work, { connection, concurrency: 4 }));
      const producer = open(new FlowProducer({ connection }));
      const children = Array.from({ length: 20 }, (_, n) => ({ name: "child", queueName: "flows", data: { n } }));
      const { job } = await producer.add({ name: "sum", queueName: "flows", children });
      assert.equal(await job.waitUntilFinished(events, LATE), 190);
    });
  },

  // A worker's process is killed in the middle of its jobs: another one finishes each of them.
  async killed() {
    await within("killed", async (queue, open) => {
      const jobs = await queue.addBulk(Array.from({ length: 8 }, (_, n) => ({ name: "held", data: { n } })));
      const worker = spawn(process.execPath, [...process.argv.slice(1, 7), "WORKER"], { stdio: "inherit" });
      await until("jobs under way", async () => (await store.llen("begun")) === 4);
      const taken = await queue.getActive();
      assert.equal(taken.length, 4);
      worker.kill("SIGKILL");
      await new Promise((resolve) => worker.on("exit", resolve));
      const stalled = new Set();
      const other = open(new Worker("killed", async ({ data: { n } }) => n, { connection, ...SHORT }));
      other.on("stalled", (id) => stalled.add(id));
      await until("all jobs", async () => (await queue.getCompletedCount()) === jobs.length);
      assert.deepEqual([...stalled].sort(), taken.map(({ id }) => id).sort());
      assert.equal(await store.llen("begun"), 4);
      assert.equal(await queue.getFailedCount(), 0);
    });
  },

  // Workers and listeners connect again, and no job is lost.
  async starting_again() {
    await within("again", async (queue, open) => {
      const done = new Set();
      const events = open(new QueueEvents("again", { connection }));
      await events.waitUntilReady();
      const later = await queue.add("later", { n: -1 }, { delay: 1_000 });
      await queue.addBulk(Array.from({ length: 50 }, (_, n) => ({ name: "n", data: { n } })));
      await restart();
      await until("an answer", () => store.ping().then(() => true, () => false));
      const work = async ({ data: { n } }) => done.add(n);
      open(new Worker("again", work, { connection }));
      await later.waitUntilFinished(events, LATE);
      await until("all jobs", async () => done.size === 51);
    });
  },
};

// A worker that loses its jobs soon after it has died.
const SHORT = { lockDuration: 5_000, stalledInterval: 1_000 };

async function hold() {
  const work = async ({ data: { n } }) => {
    await store.rpush("begun", n);
    await sleep(600_000);
  };
  await new Worker("killed", work, { connection, concurrency: 4, ...SHORT }).waitUntilReady();
}

async function main() {
  for (const [name, run] of Object.entries(cases)) {
    await run();
    console.log(`BullMQ: ${name}`);
  }
  process.exit(0);
}

(process.argv[7] === "WORKER" ? hold() : main()).catch((e) => {
  console.error(e);
  process.exit(1);
});
