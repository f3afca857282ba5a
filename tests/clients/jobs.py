"""What an application does with RQ: queues are lists, delays and what runs are sorted sets, results are streams.

The program starts itself again as a worker, with a fifth argument: which worker.
"""

import signal
import sys
import time
from datetime import timedelta

import redis
from drive import PROTOCOL, done, kill, place, process, restart, until
from rq import Queue, Repeat, Retry, Worker
from rq.job import Job
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry, StartedJobRegistry
from rq.results import Result
from rq.worker import SimpleWorker

JOBS = 300
# Results are bytes to RQ.
broker = redis.Redis(**place(decode_responses=False))
store = redis.Redis(**place(db=1))
queue = Queue("work", connection=broker)


def ran(name):
    return store.rpush(f"runs:{name}", time.time())


def runs(name):
    return [float(at) for at in store.lrange(f"runs:{name}", 0, -1)]


def square(n):
    ran(n)
    return n * n


def late(name, due):
    ran(name)
    return time.time() - due


def third_time(name):
    if ran(name) < 3:
        raise ValueError(f"attempt {store.llen(f'runs:{name}')}")
    return "in the end"


def held(n):
    ran("held")
    if store.exists("hold"):
        time.sleep(60)
    return n


def total(of):
    return sum(Job.fetch(name, connection=broker).return_value() for name in of)


def worker(kind="simple"):
    # RQ knows what to do with the signal only once it has started.
    return process(kind, (0, -signal.SIGTERM))


def ended(job, status):
    until(f"{status} of {job.id}", lambda: job.get_status() == status)


def each_once():
    jobs = queue.enqueue_many([Queue.prepare_data("jobs.square", (n,), job_id=f"square-{n}") for n in range(JOBS)])
    assert queue.count == JOBS and [job.id for job in jobs] == queue.job_ids
    with worker(), worker():
        until("all jobs", lambda: FinishedJobRegistry(queue=queue).count == JOBS)
    assert all(len(runs(n)) == 1 for n in range(JOBS))
    assert [job.return_value(refresh=True) for job in jobs] == [n * n for n in range(JOBS)]
    assert queue.count == StartedJobRegistry(queue=queue).count == 0


def results():
    """A caller waits for a result before it exists, and an earlier one stays beside a later one."""
    with worker():
        job = queue.enqueue("jobs.square", 12)
        result = job.latest_result(timeout=20)
        assert result.type == Result.Type.SUCCESSFUL and result.return_value == 144
        parts = [queue.enqueue("jobs.square", n) for n in range(3)]
        last = queue.enqueue("jobs.total", [part.id for part in parts], depends_on=parts)
        assert last.latest_result(timeout=20).return_value == 5
        again = queue.enqueue("jobs.square", 5, repeat=Repeat(times=2), result_ttl=100)
        until("the repetitions", lambda: len(again.results()) == 3)
        assert [one.return_value for one in again.results()] == [25] * 3
        assert 0 < broker.ttl(Result.get_key(again.id)) <= 100
        again.delete()
        assert not broker.exists(Result.get_key(again.id))


def failures():
    with worker("scheduler"):
        good = queue.enqueue("jobs.third_time", "good", retry=Retry(max=3, interval=1))
        bad = queue.enqueue("jobs.third_time", "bad")
        ended(good, "finished")
        ended(bad, "failed")
        first, second, third = runs("good")
        assert second - first >= 0.9 and third - second >= 0.9
        assert good.return_value(refresh=True) == "in the end"
        failed = FailedJobRegistry(queue=queue)
        assert failed.get_job_ids() == [bad.id]
        assert "ValueError: attempt 1" in bad.latest_result().exc_string
        for _ in range(2):
            failed.requeue(bad.id)
            until("the end", lambda: bad.get_status() in ("failed", "finished"))
        ended(bad, "finished")
        kinds = [result.type for result in bad.results()]
        assert kinds == [Result.Type.SUCCESSFUL, Result.Type.FAILED, Result.Type.FAILED]
        assert failed.count == 0


def scheduled():
    jobs = []
    for n in range(10):
        delay = 1 + n % 2
        name = f"late-{n}"
        jobs.append(queue.enqueue_in(timedelta(seconds=delay), "jobs.late", name, time.time() + delay, job_id=name))
    assert ScheduledJobRegistry(queue=queue).count == len(jobs) and queue.count == 0
    with worker("scheduler"):
        for job in jobs:
            ended(job, "finished")
            # The scheduler counts whole seconds.
            assert job.return_value(refresh=True) > -1.01
    assert ScheduledJobRegistry(queue=queue).count == 0


def killed():
    """A killed worker's job is the next one's, once nobody has been heard of for long enough."""
    store.set("hold", "1")
    job = queue.enqueue("jobs.held", 7, retry=Retry(max=1))
    with worker("forking") as first:
        until("the job under way", lambda: len(runs("held")) == 1)
        kill(first)
    store.delete("hold")
    started = StartedJobRegistry(queue=queue)
    assert started.get_job_ids(cleanup=False) == [job.id] and queue.count == 0
    started.cleanup(timestamp=time.time() + 3600)
    with worker("forking"):
        ended(job, "finished")
    assert len(runs("held")) == 2 and job.return_value(refresh=True) == 7


def starting_again():
    jobs = [queue.enqueue("jobs.square", n) for n in range(1000, 1010)]
    before = queue.job_ids
    restart()
    until("an answer", lambda: redis.Redis(**place()).ping())
    assert queue.job_ids == before
    with worker():
        for job in jobs:
            ended(job, "finished")


def work(kind):
    # A worker that forks runs each job in a process of its own, as RQ does unless told otherwise.
    sort = Worker if kind == "forking" else SimpleWorker
    sort([queue], connection=broker).work(with_scheduler=kind == "scheduler", logging_level="WARNING")


# A worker finds its functions in this file as a module.
if __name__ == "__main__" and len(sys.argv) > 5:
    work(sys.argv[5])
elif __name__ == "__main__":
    for case in (each_once, results, failures, scheduled, killed, starting_again):
        case()
        done("RQ", case)
