"""What an application does with redis-py's asyncio client."""

import asyncio
import time

import redis
import redis.asyncio as aio
from drive import EVERY_BYTE, INF, PLACE, PROTOCOL, WRONG_LOGINS, done, fails, place, restart, row
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff


def connect(**options):
    return aio.Redis(**place(**options))


async def until(what, holds):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if await holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never: {what}")


async def names():
    client = connect(client_name="tester", username="default", db=3)
    assert await client.client_getname() == "tester"
    mine = await client.client_info()
    assert str(mine["db"]) == "3" and str(mine["resp"]) == str(PROTOCOL), mine
    await client.acl_setuser("reader", enabled=True, passwords=["+secret"], keys=["r:*"], commands=["+get"])
    reader = connect(username="reader", password="secret")
    assert await reader.get("r:1") is None
    with fails(redis.exceptions.NoPermissionError):
        await reader.get("k")
    with fails(redis.exceptions.NoPermissionError, "set"):
        await reader.set("r:1", "v")
    await reader.aclose()
    await client.acl_deluser("reader")
    for wrong in WRONG_LOGINS:
        other = connect(**wrong)
        with fails(redis.AuthenticationError):
            await other.ping()
        await other.aclose()
    await client.aclose()


async def values():
    client = connect()
    await client.flushall()
    assert await client.set("k", "v", ex=100) is True
    assert await client.get("k") == "v" and 0 < await client.ttl("k") <= 100
    assert await client.set("k", "w", nx=True) is None
    assert await client.sadd("s", "a", "b", "c") == 3
    assert await client.sadd("t", "b", "c", "d") == 3
    assert await client.sinter("s", "t") == {"b", "c"}
    with fails(redis.ResponseError, "WRONGTYPE"):
        await client.incr("s")
    await client.aclose()
    client = connect(decode_responses=False)
    await client.set(EVERY_BYTE, EVERY_BYTE * 1000)
    assert await client.get(EVERY_BYTE) == EVERY_BYTE * 1000
    await client.aclose()


async def pools():
    pool = aio.BlockingConnectionPool(max_connections=8, timeout=60, **PLACE)
    client = aio.Redis(connection_pool=pool)
    await client.delete("count")
    await asyncio.gather(*(client.incr("count") for _ in range(400)))
    assert await client.get("count") == b"400"
    await client.aclose()
    await pool.disconnect()


async def pipelines():
    client = connect()
    await client.delete("n")
    async with client.pipeline(transaction=False) as pipe:
        for _ in range(1000):
            pipe.incr("n")
        assert await pipe.execute() == list(range(1, 1001))
    await client.aclose()


async def transactions():
    client, other = connect(), connect()
    await client.set("w", 1)
    async with client.pipeline() as pipe:
        await pipe.watch("w")
        seen = int(await pipe.get("w"))
        await other.set("w", 5)
        pipe.multi()
        pipe.set("w", seen + 1)
        with fails(redis.WatchError):
            await pipe.execute()
    async with client.pipeline(transaction=True) as pipe:
        assert await pipe.incr("w").get("w").execute() == [6, "6"]
    await client.aclose()
    await other.aclose()


async def waits(call, serve):
    """What a call that blocks on another connection returns once `serve` has run, 100 ms later."""
    waiting = asyncio.create_task(call)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await serve
    return await waiting


async def a_hash(client):
    assert await client.hset("user", mapping={"name": "Ann", "city": "Rome", "visits": 5}) == 3
    assert await client.hgetall("user") == {"name": "Ann", "city": "Rome", "visits": "5"}
    assert await client.hincrby("user", "visits", 3) == 8
    assert await client.hdel("user", "city", "none") == 1
    assert await client.hexpire("user", 100, "visits", "none") == [1, -2]
    assert 90 < (await client.httl("user", "visits"))[0] <= 100
    assert await client.hpexpire("user", 20, "visits") == [1]

    async def expired():
        return await client.hgetall("user") == {"name": "Ann"}

    await until("an expired field", expired)


async def a_queue(client):
    assert await client.rpush("queue", "a", "b") == 2
    assert await client.lpop("queue") == "a" and await client.lrange("queue", 0, -1) == ["b"]
    assert await client.lmove("queue", "working", "LEFT", "RIGHT") == "b"
    assert await waits(client.blpop("queue", timeout=20), client.rpush("queue", "c", "d")) == row("queue", "c")
    assert await client.blpop("queue", timeout=20) == row("queue", "d")
    assert await waits(client.blmove("queue", "working", 20), client.rpush("queue", "e")) == "e"
    assert await client.lrange("working", 0, -1) == ["b", "e"]
    assert await client.blpop("queue", timeout=0.1) is None
    assert await client.blmove("queue", "working", 0.1) is None


async def a_leaderboard(client):
    assert await client.zadd("board", {"Ann": 1.5, "Bob": 2, "Cid": INF}) == 3
    assert await client.zincrby("board", 2.25, "Ann") == 3.75
    everyone = [row("Bob", 2.0), row("Ann", 3.75), row("Cid", INF)]
    assert await client.zrange("board", 0, -1, withscores=True) == everyone
    assert await client.zrevrank("board", "Ann", withscore=True) == [1, 3.75]
    assert await client.zrangebyscore("board", "(2", "inf", 0, 1, withscores=True) == everyone[1:2]
    assert await client.zpopmin("board", 2) == everyone[:2]
    waited = await waits(client.bzpopmin("waited", timeout=20), client.zadd("waited", {"Eve": -0.5}))
    assert waited == row("waited", "Eve", -0.5)
    assert await client.bzpopmin("waited", timeout=0.1) is None


async def a_map(client):
    assert await client.geoadd("places", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")) == 2
    found = await client.geosearch("places", longitude=15, latitude=37, radius=200, unit="km", sort="ASC", withdist=True)
    assert found == [["Catania", 56.4413], ["Palermo", 190.4424]], found


async def collections():
    client = connect()
    await client.flushall()
    for part in (a_hash, a_queue, a_leaderboard, a_map):
        await part(client)
    await client.aclose()


async def scans():
    client = connect()
    await client.flushall()
    async with client.pipeline() as pipe:
        for i in range(500):
            pipe.set(f"key:{i}", i)
        await pipe.sadd("big", *range(3000)).execute()
    assert len({k async for k in client.scan_iter(match="key:*", count=100)}) == 500
    assert [k async for k in client.scan_iter(_type="set")] == ["big"]
    assert {int(m) async for m in client.sscan_iter("big", count=200)} == set(range(3000))
    await client.aclose()


async def hear(channels, count):
    heard = []

    async def enough():
        message = await channels.get_message(ignore_subscribe_messages=True, timeout=0.1)
        if message:
            heard.append((message["pattern"], message["channel"], message["data"]))
        return len(heard) >= count

    await until(f"{count} messages", enough)
    return heard


async def messages():
    client = connect()
    async with client.pubsub() as channels:
        await channels.subscribe("news")
        await channels.psubscribe("n*")
        await channels.get_message(timeout=5)
        await channels.get_message(timeout=5)
        assert await client.publish("news", "hello") == 2
        heard = await hear(channels, 2)
        assert sorted(heard, key=str) == [("n*", "news", "hello"), (None, "news", "hello")], heard
        await channels.unsubscribe()
        await channels.punsubscribe()
    await client.aclose()


async def starting_again():
    again = Retry(ConstantBackoff(0.05), 200)
    client, reader = connect(retry=again), connect(retry=again)
    async with reader.pubsub() as channels:
        await channels.subscribe("news")
        await channels.get_message(timeout=5)
        await client.set("kept", "1")
        await asyncio.to_thread(restart)
        assert await client.get("kept") == "1"
        heard = asyncio.create_task(hear(channels, 1))

        async def received():
            return await client.publish("news", "again") == 1

        await until("the subscription", received)
        assert (await heard)[0] == (None, "news", "again")
    await client.aclose()
    await reader.aclose()


async def main():
    for case in (names, values, pools, pipelines, transactions, collections, scans, messages, starting_again):
        await case()
        done("redis-py asyncio", case)


asyncio.run(main())
