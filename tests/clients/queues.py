"""What an application does with Celery: the server is its broker and keeps its results.

The program starts itself again as a worker, with a fifth argument VISIBILITY: the seconds after which a task that nobody has
acknowledged belongs to the next worker.
"""

import sys
import time
from datetime import datetime, timezone

import redis
from celery import Celery, chain, chord, group
from drive import PASSWORD, PORT, done, fails, kill, place, process, until

VISIBILITY = int(sys.argv[5]) if len(sys.argv) > 5 else 60
# In Celery the least number goes first.
PRIORITIES = (0, 3, 6)
EACH = 90
DELAYED = 30
CONCURRENCY = 2
# The most tasks that a worker has taken and not finished: one runs in each process, and one waits for it.
HELD = 2 * CONCURRENCY

store = redis.Redis(**place(db=1))
app = Celery("queues", broker=f"redis://:{PASSWORD}@127.0.0.1:{PORT}/0", backend=f"redis://:{PASSWORD}@127.0.0.1:{PORT}/2")
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "priority_steps": PRIORITIES,
        "queue_order_strategy": "priority",
        "visibility_timeout": VISIBILITY,
    },
    result_backend_transport_options={"visibility_timeout": VISIBILITY},
    task_acks_late=True,
    worker_prefetch_multiplier=1,
)


def runs(task, order):
    with store.pipeline() as pipe:
        pipe.incr(f"runs:{task.request.id}").rpush(order, task.request.id).execute()


@app.task(bind=True)
def count(self):
    runs(self, "order")


@app.task(bind=True)
def delayed(self, due):
    store.zadd("waits", {self.request.id: time.time() - due})
    runs(self, "delayed")


@app.task(bind=True)
def held(self):
    store.incr("held")
    until("the release", lambda: not store.exists("hold"))
    runs(self, "released")


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def refuse(text):
    raise ValueError(text)


def worker(visibility=60):
    return process(str(visibility))


def each_ran_once(tasks):
    """Every task ran, and none twice: not within a second either."""
    names = [f"runs:{task.id}" for task in tasks]
    until("all tasks", lambda: None not in store.mget(names))
    time.sleep(1)
    assert store.mget(names) == ["1"] * len(names)


def priorities():
    """A worker finds tasks of all priorities, sent in the opposite order."""
    sent = {count.apply_async(priority=p): p for p in reversed(PRIORITIES) for _ in range(EACH)}
    dues = [time.time() + 1 + n % 2 for n in range(DELAYED)]
    later = [delayed.apply_async([due], eta=datetime.fromtimestamp(due, timezone.utc)) for due in dues]
    with worker():
        each_ran_once([*sent, *later])
    ranks = {task.id: p for task, p in sent.items()}
    order = [ranks[name] for name in store.lrange("order", 0, -1)]
    assert len(order) == len(sent)
    for p in PRIORITIES[1:]:
        overtaken = [q for q in order[order.index(p) :] if q < p]
        assert len(overtaken) <= HELD, order
    waits = [wait for _, wait in store.zrange("waits", 0, -1, withscores=True)]
    assert len(waits) == DELAYED and waits[0] > -0.01, waits


def results():
    with worker():
        assert chain(add.s(1, 2), add.s(3), add.s(4)).apply_async().get(timeout=20) == 10
        assert group(add.s(n, n) for n in range(20)).apply_async().get(timeout=20) == [2 * n for n in range(20)]
        assert chord([add.s(n, n) for n in range(20)])(total.s()).get(timeout=20) == 380
        assert len(app.control.ping(timeout=2)) == 1
        with fails(ValueError, "no"):
            refuse.delay("no").get(timeout=20)
        kept = add.delay(5, 6)
        assert kept.get(timeout=20) == 11
    assert app.AsyncResult(kept.id).state == "SUCCESS"
    kept.forget()
    assert app.AsyncResult(kept.id).state == "PENDING"


def restored():
    """A killed worker's tasks are the next one's, once their time is over."""
    store.set("hold", "1")
    tasks = [held.delay() for _ in range(12)]
    with worker(visibility=2) as first:
        until("tasks under way", lambda: store.get("held") == str(CONCURRENCY))
        kill(first)
    assert store.llen("released") == 0
    store.delete("hold")
    time.sleep(2)
    with worker(visibility=2):
        each_ran_once(tasks)
    assert store.get("held") == str(len(tasks) + CONCURRENCY)
    broker = redis.Redis(**place())
    assert not broker.exists("unacked", "unacked_index", "celery")


if len(sys.argv) > 5:
    app.worker_main(["worker", f"--concurrency={CONCURRENCY}", "--loglevel=INFO"])
else:
    for case in (priorities, results, restored):
        case()
        done("Celery", case)
