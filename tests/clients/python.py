"""What an application does with redis-py: connects by name and password, pools, pipelines, WATCHes, scans."""

import concurrent.futures
import threading
import time

import redis
from drive import EVERY_BYTE, INF, PLACE, PROTOCOL, WRONG_LOGINS, done, fails, place, restart, row, until
from redis.backoff import ConstantBackoff
from redis.retry import Retry


def connect(**options):
    return redis.Redis(**place(**options))


def names():
    client = connect(client_name="tester", username="default", db=3)
    assert client.ping()
    assert client.client_getname() == "tester"
    mine = client.client_info()
    assert mine["name"] == "tester" and str(mine["db"]) == "3", mine
    assert any(c["name"] == "tester" for c in client.client_list())
    assert str(mine["resp"]) == str(PROTOCOL), mine
    for wrong in WRONG_LOGINS:
        with fails(redis.AuthenticationError):
            connect(**wrong).ping()


def values():
    client = connect()
    client.flushall()
    assert client.set("k", "v", ex=100) is True
    assert client.get("k") == "v" and 0 < client.ttl("k") <= 100
    assert client.set("k", "w", nx=True) is None
    assert client.set("k", "w", get=True) == "v"
    assert client.incrbyfloat("f", 1.5) == 1.5
    assert client.mget("k", "none") == ["w", None]
    assert client.sadd("s", "a", "b", "c") == 3
    assert client.smembers("s") == {"a", "b", "c"}
    client.sadd("t", "b", "c", "d")
    assert client.sinter("s", "t") == {"b", "c"}
    assert client.sunion("s", "t") == {"a", "b", "c", "d"}
    assert client.sdiff("s", "t") == {"a"}
    assert client.smismember("s", ["a", "x"]) == [1, 0]
    popped = client.spop("s", 2)
    assert len(popped) == 2 and client.scard("s") == 1
    with fails(redis.ResponseError, "WRONGTYPE"):
        client.incr("s")


def scripts():
    client = connect()
    client.flushall()
    add = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    assert add(keys=["k"], args=[2]) == 2
    client.script_flush()
    assert add(keys=["k"], args=[3]) == 5
    with client.pipeline() as pipe:
        pipe.set("k", 1)
        add(keys=["k"], args=[1], client=pipe)
        assert pipe.execute() == [True, 2]
    with fails(redis.exceptions.NoScriptError):
        client.evalsha("0" * 40, 0)


def locks():
    client = connect()
    lock = client.lock("lock", timeout=10)
    assert lock.acquire(blocking=False) and not client.lock("lock").acquire(blocking=False)
    assert lock.extend(10) and lock.reacquire() and client.pttl("lock") > 9000
    lock.release()
    assert not client.exists("lock")
    with fails(redis.exceptions.LockError):
        lock.release()
    counter = {"n": 0}

    def count():
        for _ in range(25):
            with connect().lock("lock", sleep=0.001):
                n = counter["n"]
                time.sleep(0.0005)
                counter["n"] = n + 1

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(count) for _ in range(4)]:
            one.result()
    assert counter["n"] == 100


def bytes_survive():
    client = connect(decode_responses=False)
    client.set(EVERY_BYTE, EVERY_BYTE * 1000)
    assert client.get(EVERY_BYTE) == EVERY_BYTE * 1000


def a_pool_of_threads():
    client = redis.Redis(connection_pool=redis.ConnectionPool(max_connections=8, **PLACE))
    client.delete("count")

    def work():
        for _ in range(50):
            client.incr("count")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("count") == b"400"


def pipelines():
    client = connect()
    client.delete("p", "n")
    with client.pipeline(transaction=False) as pipe:
        for i in range(1000):
            pipe.incr("n")
        pipe.get("n")
        replies = pipe.execute()
    assert replies[:1000] == list(range(1, 1001)) and replies[1000] == "1000"
    with client.pipeline(transaction=True) as pipe:
        pipe.set("p", "1").sadd("p", "x").get("p")
        replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and isinstance(replies[1], redis.ResponseError) and replies[2] == "1"


def transactions():
    client, other = connect(), connect()
    client.set("w", 1)
    with client.pipeline() as pipe:
        pipe.watch("w")
        seen = int(pipe.get("w"))
        other.set("w", 5)
        pipe.multi()
        pipe.set("w", seen + 1)
        with fails(redis.WatchError):
            pipe.execute()
    assert client.transaction(lambda p: p.multi() or p.incr("w"), "w") == [6]


def waits(call, serve):
    """What a call that blocks in another thread returns once `serve` has run, 100 ms later."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(call)
        time.sleep(0.1)
        assert not waiting.done()
        serve()
        return waiting.result(timeout=20)


def a_hash(client):
    assert client.hset("user", mapping={"name": "Ann", "city": "Rome", "visits": 5}) == 3
    assert client.hgetall("user") == {"name": "Ann", "city": "Rome", "visits": "5"}
    assert client.hincrby("user", "visits", 3) == 8
    assert client.hincrbyfloat("user", "visits", 0.5) == 8.5
    assert client.hmget("user", "visits", "none") == ["8.5", None]
    assert client.hdel("user", "city", "none") == 1
    assert client.hexpire("user", 100, "visits", "none") == [1, -2]
    assert 90 < client.httl("user", "visits")[0] <= 100 and client.httl("user", "name", "none") == [-1, -2]
    assert client.hpexpire("user", 20, "visits") == [1]
    until("an expired field", lambda: client.hgetall("user") == {"name": "Ann"})


def a_queue(client):
    assert client.rpush("queue", "a", "b", "c") == 3
    assert client.lpop("queue") == "a" and client.lrange("queue", 0, -1) == ["b", "c"]
    assert client.lmove("queue", "working", "LEFT", "RIGHT") == "b"
    assert client.blpop(["none", "queue"], timeout=20) == row("queue", "c")

    def push():
        client.rpush("queue", "d")

    assert waits(lambda: client.blpop("queue", timeout=20), push) == row("queue", "d")
    assert waits(lambda: client.blmove("queue", "working", 20, "LEFT", "RIGHT"), push) == "d"
    assert client.lrange("working", 0, -1) == ["b", "d"]
    assert client.blpop("queue", timeout=0.1) is None
    assert client.blmove("queue", "working", 0.1) is None


def a_leaderboard(client):
    assert client.zadd("board", {"Ann": 1.5, "Bob": 2, "Cid": INF, "Dan": -INF}) == 4
    assert client.zincrby("board", 2.25, "Ann") == 3.75
    everyone = [row("Dan", -INF), row("Bob", 2.0), row("Ann", 3.75), row("Cid", INF)]
    assert client.zrange("board", 0, -1, withscores=True) == everyone
    assert client.zscore("board", "Cid") == INF and client.zmscore("board", ["Bob", "none"]) == [2.0, None]
    assert client.zrevrank("board", "Ann") == 1 and client.zrevrank("board", "none") is None
    assert client.zrevrank("board", "Ann", withscore=True) == [1, 3.75]
    assert client.zrangebyscore("board", "(2", "+inf", start=0, num=1, withscores=True) == [row("Ann", 3.75)]
    assert client.zpopmin("board", 2) == everyone[:2]
    popped = waits(lambda: client.bzpopmin("waited", timeout=20), lambda: client.zadd("waited", {"Eve": -0.5}))
    assert popped == row("waited", "Eve", -0.5)
    assert client.bzpopmin("waited", timeout=0.1) is None


def a_map(client):
    assert client.geoadd("places", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")) == 2
    near = {"longitude": 15, "latitude": 37, "unit": "km", "sort": "ASC"}
    assert client.geosearch("places", radius=100, **near) == ["Catania"]
    found = client.geosearch("places", radius=200, withdist=True, withcoord=True, **near)
    assert found == [
        ["Catania", 56.4413, (15.087267458438873, 37.50266842333162)],
        ["Palermo", 190.4424, (13.361389338970184, 38.1155563954963)],
    ], found


def collections():
    client = connect()
    client.flushall()
    for part in (a_hash, a_queue, a_leaderboard, a_map):
        part(client)


def scans():
    client = connect()
    client.flushall()
    with client.pipeline() as pipe:
        for i in range(2000):
            pipe.set(f"key:{i}", i)
        pipe.sadd("big", *range(3000))
        pipe.execute()
    assert sum(1 for _ in client.scan_iter(match="key:*", count=100)) == 2000
    assert list(client.scan_iter(_type="set")) == ["big"]
    assert {int(m) for m in client.sscan_iter("big", count=200)} == set(range(3000))
    assert client.dbsize() == 2001


def what_operators_ask():
    client = connect()
    info = client.info()
    assert info["role"] == "master" and info["connected_clients"] >= 1, info
    assert client.config_get("maxclients")["maxclients"].isdigit()
    assert client.command_count() > 80
    assert client.object("encoding", "big") == "hashtable"
    assert abs(client.time()[0] - time.time()) < 60
    assert client.echo("x") == "x"


def messages():
    client = connect()
    channels = client.pubsub()
    channels.subscribe("news")
    channels.psubscribe("w*")
    seen = []
    channels.subscribe(**{"handled": lambda message: seen.append(message["data"])})

    def next_message(kind):
        def heard():
            message = channels.get_message(timeout=0.2)
            return message if message and message["type"] == kind else None

        return until(kind, heard)

    assert [next_message("subscribe")["data"], next_message("psubscribe")["data"]] == [1, 2]
    assert next_message("subscribe")["data"] == 3
    assert client.publish("news", "one") == 1
    assert next_message("message")["data"] == "one"
    with client.pipeline(transaction=True) as pipe:
        pipe.set("k", "v").publish("weather", "two").publish("handled", "three")
        assert pipe.execute() == [True, 1, 1]
    message = next_message("pmessage")
    assert (message["pattern"], message["channel"], message["data"]) == ("w*", "weather", "two")
    channels.get_message(timeout=1)
    assert seen == ["three"], seen
    if PROTOCOL == 2:
        # In RESP3 the reply is not a message.
        channels.ping("hello")
        assert next_message("pong")["data"] == "hello"
    assert dict(client.pubsub_numsub("news", "none")) == {"news": 1, "none": 0}
    assert client.pubsub_numpat() == 1
    channels.unsubscribe()
    assert next_message("unsubscribe")["channel"] in ("news", "handled")
    channels.close()


def keyspace_events():
    client = connect(db=5)
    client.config_set("notify-keyspace-events", "KEA")
    events = client.pubsub()
    events.psubscribe("__key*@5__:*")
    assert events.get_message(timeout=5)["type"] == "psubscribe"
    client.set("watched", "v", px=30)
    heard = []
    while len(heard) < 6:
        message = events.get_message(timeout=5)
        assert message, heard
        heard.append((message["channel"].split(":")[0], message["data"]))
    kinds = ["__keyspace@5__", "__keyevent@5__"]
    expected = [(k, d) for e in ("set", "expire", "expired") for k, d in zip(kinds, (e, "watched"))]
    assert heard == expected, heard
    client.config_set("notify-keyspace-events", "")
    events.close()


def cached():
    from redis.cache import CacheConfig

    client, other = connect(cache_config=CacheConfig()), connect()
    other.flushall()
    other.set("cached", "1")
    other.sadd("members", "a")

    def calls():
        return other.info("commandstats")["cmdstat_get"]["calls"]

    def becomes(read, value):
        until(value, lambda: read() == value)

    assert client.get("cached") == "1" and client.scard("members") == 1
    before = calls()
    assert all(client.get("cached") == "1" for _ in range(100))
    assert calls() == before and client.get_cache().size == 2
    for n in range(50):
        other.set("cached", n)
        becomes(lambda: client.get("cached"), str(n))
    other.sadd("members", "b", "c")
    becomes(lambda: client.scard("members"), 3)
    other.pexpire("cached", 20)
    becomes(lambda: client.get("cached"), None)
    other.set("cached", "again")
    becomes(lambda: client.get("cached"), "again")
    other.flushdb()
    becomes(lambda: client.get("cached"), None)
    becomes(lambda: client.scard("members"), 0)
    client.close()


def starting_again():
    client = connect(retry=Retry(ConstantBackoff(0.05), 200))
    channels = connect(retry=Retry(ConstantBackoff(0.05), 200)).pubsub(ignore_subscribe_messages=True)
    channels.subscribe("news")
    channels.get_message(timeout=5)
    client.set("kept", "1")
    restart()
    assert client.get("kept") == "1"

    def heard():
        client.publish("news", "again")
        return channels.get_message(timeout=0.1)

    message = until("the message", heard)
    assert message["data"] == "again", message
    channels.close()


CASES = [
    names,
    values,
    scripts,
    locks,
    bytes_survive,
    a_pool_of_threads,
    pipelines,
    transactions,
    collections,
    scans,
    what_operators_ask,
    messages,
    keyspace_events,
    *([cached] if PROTOCOL == 3 else []),
    starting_again,
]
for case in CASES:
    case()
    done("redis-py", case)
