"""What an application does with Django's cache in the server, through django-redis: its incr and its locks are scripts."""

import concurrent.futures
import functools

import django
from django.conf import settings
from drive import PASSWORD, PORT, PROTOCOL, done, fails, restart, until
from redis.exceptions import LockError, LockNotOwnedError

THREADS = 8

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://:{PASSWORD}@127.0.0.1:{PORT}/1",
            "KEY_PREFIX": "site",
            "OPTIONS": {"CONNECTION_POOL_KWARGS": {"protocol": PROTOCOL}},
        }
    }
)
django.setup()

from django.core.cache import cache  # noqa: E402 it needs the settings
from django_redis import get_redis_connection  # noqa: E402


def parallel(body):
    """Runs the body in all threads at once; what they return, in order."""
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        return [f.result() for f in [pool.submit(body, n) for n in range(THREADS)]]


def values():
    cache.clear()
    assert cache.set("k", {"a": [1, "ä", None]}, timeout=100) is True
    assert cache.get("k") == {"a": [1, "ä", None]} and cache.get("none", 7) == 7
    assert 90 < cache.ttl("k") <= 100 and cache.ttl("none") == 0
    assert cache.set("k", 1, nx=True) is False and cache.add("k", 1) is False
    cache.set("forever", 1, timeout=None)
    assert cache.ttl("forever") is None and cache.expire("forever", 50) and 40 < cache.ttl("forever") <= 50
    assert cache.persist("forever") and cache.ttl("forever") is None
    cache.set("short", 1, timeout=1)
    until("an expired value", lambda: not cache.has_key("short"))
    assert cache.get_or_set("made", lambda: 5, 100) == 5 and cache.get_or_set("made", lambda: 6, 100) == 5
    cache.set_many({f"n{n}": n for n in range(5)}, timeout=100)
    assert cache.get_many(["n1", "n4", "none"]) == {"n1": 1, "n4": 4}
    assert cache.delete("n1") is True and cache.delete("n1") is False
    info = get_redis_connection("default").client_info()
    assert str(info["resp"]) == str(PROTOCOL) and str(info["db"]) == "1", info


def counters():
    cache.set("count", 0, timeout=100)
    parallel(lambda _: [cache.incr("count") for _ in range(50)])
    assert cache.get("count") == THREADS * 50
    assert cache.decr("count", 150) == 250 and 80 < cache.ttl("count") <= 100
    with fails(ValueError, "not found"):
        cache.incr("none")
    assert cache.incr("new", 5, ignore_key_check=True) == 5
    # The script's error, after which django-redis adds by itself.
    cache.set("large", 2**63 - 1, timeout=100)
    assert cache.incr("large") == 2**63 and cache.get("large") == 2**63


def patterns():
    cache.clear()
    cache.set_many({f"user:{n}": n for n in range(300)})
    cache.set_many({f"page:{n}": n for n in range(40)})
    assert len(cache.keys("user:*")) == 300 and sorted(cache.keys("page:1?")) == [f"page:{n}" for n in range(10, 20)]
    assert set(cache.iter_keys("page:*", itersize=7)) == {f"page:{n}" for n in range(40)}
    assert cache.delete_pattern("user:*", itersize=20) == 300 and cache.delete_pattern("user:*") == 0
    assert cache.delete_many(["page:0", "page:1", "none"]) == 2
    assert sorted(cache.keys("*")) == sorted(f"page:{n}" for n in range(2, 40))


def locks():
    cache.set("seen", 0)

    def count(_):
        for _ in range(20):
            with cache.lock("lock", timeout=60, sleep=0.005):
                cache.set("seen", cache.get("seen") + 1)

    parallel(count)
    assert cache.get("seen") == THREADS * 20
    holder, other = cache.lock("lock", timeout=60), cache.lock("lock", timeout=60)
    assert holder.acquire() and not other.acquire(blocking_timeout=0.1)
    assert cache.keys("lock") == ["lock"] and 50 < cache.ttl("lock") <= 60
    assert holder.extend(100) and 150 < cache.ttl("lock") <= 160
    assert sum(parallel(lambda _: cache.lock("lock").acquire(blocking=False))) == 0
    holder.release()
    assert sum(parallel(lambda _: cache.lock("lock", timeout=60).acquire(blocking=False))) == 1
    cache.delete("lock")
    # A lost lock is neither extended nor given back: it is another's.
    lost = cache.lock("lost", timeout=0.2)
    assert lost.acquire()
    until("the lock's end", lambda: not cache.has_key("lost"))
    owner = cache.lock("lost", timeout=60)
    assert owner.acquire(blocking=False)
    for call in (functools.partial(lost.extend, 10), lost.reacquire, lost.release):
        with fails(LockNotOwnedError):
            call()
    owner.release()
    with fails(LockError):
        owner.release()


def starting_again():
    cache.set("kept", 5, timeout=500)
    lock = cache.lock("held", timeout=500)
    assert lock.acquire()
    restart()
    connection = get_redis_connection("default")
    connection.connection_pool.disconnect()
    until("an answer", connection.ping)
    assert cache.incr("kept") == 6 and 400 < cache.ttl("kept") <= 500
    assert not cache.lock("held").acquire(blocking=False)
    assert lock.owned() and lock.extend(10) and lock.release() is None
    assert not cache.has_key("held")


for case in (values, counters, patterns, locks, starting_again):
    case()
    done("django-redis", case)
