#!/usr/bin/env python3
"""A leaderboard on Tern and on redis-server, in turn, in one run: filling, ranks, ranges, changes, combinations.

    cargo build --release
    python3 bench/ranked.py --tern target/release/tern [--members 1000000] [--rounds 3] [--calls 500] [--stored]
        [--options ""] [--out bench/results/NAME.md]

Both with appendfsync everysec. The times are medians of all calls, of one client without pipelining, this one, which
reads each reply to its end. `--stored`: also unions and intersections of large sorted sets. `--options`: Tern's, as
"--store-cache-size 67108864". Only ratios of one run mean something. Needs redis-server.
"""
import argparse
import datetime
import os
import platform
import random
import statistics
import tempfile
import time

from checked import in_turn
from page import Page
from sets import Server, load, processor, request

BATCH = 500  # members of a ZADD


def name(n):
    return b"player:%012d" % n


def fill(server, key, numbers):
    """Adds members whose scores are their numbers. Returns members a second."""
    pairs = [word for n in numbers for word in (n, name(n))]
    batches = [request("ZADD", key, *pairs[at:at + 2 * BATCH]) for at in range(0, len(pairs), 2 * BATCH)]
    return len(numbers) / load(server, batches)


def read(replies):
    """Reads a reply to its end."""
    line = replies.readline()
    kind, rest = line[:1], line[1:-2]
    if kind in (b"-", b""):
        raise SystemExit(f"the server answered {line}")
    if kind == b"$" and rest != b"-1":
        replies.read(int(rest) + 2)
    if kind == b"*":
        for _ in range(int(rest)):
            read(replies)


def seconds(server, words, replies):
    begin = time.perf_counter()
    server.socket.sendall(request(*words))
    read(replies)
    return time.perf_counter() - begin


def took(server, commands):
    """The median time of a command in milliseconds."""
    with server.socket.makefile("rb", buffering=1 << 16) as replies:
        return statistics.median(seconds(server, words, replies) for words in commands) * 1000


def cases(members, calls):
    def draw(make):
        return [make(random.randrange(members)) for _ in range(calls)]

    middle = members // 2
    yield "ZSCORE", draw(lambda n: ("ZSCORE", "board", name(n)))
    yield "ZRANK", draw(lambda n: ("ZRANK", "board", name(n)))
    yield "ZREVRANK", draw(lambda n: ("ZREVRANK", "board", name(n)))
    yield "ZCOUNT", draw(lambda n: ("ZCOUNT", "board", n / 3, n))
    yield "ZRANGE of 100 by rank", draw(lambda n: ("ZRANGE", "board", (middle + n) // 2, (middle + n) // 2 + 99))
    yield "ZREVRANGE of 100 by rank", draw(lambda n: ("ZREVRANGE", "board", (middle + n) // 2, (middle + n) // 2 + 99))
    yield "ZRANGE of 100 by score", draw(lambda n: ("ZRANGE", "board", n, "+inf", "BYSCORE", "LIMIT", 0, 100))
    yield "ZADD, new", [("ZADD", "board", random.randrange(members), name(members + n)) for n in range(calls)]
    yield "ZADD, changed", draw(lambda n: ("ZADD", "board", random.randrange(members), name(n)))
    yield "ZINCRBY", draw(lambda n: ("ZINCRBY", "board", 7, name(n)))
    yield "ZPOPMIN", [("ZPOPMIN", "board")] * calls


def combined(servers):
    for server in servers:
        for key in ["one", "two"]:
            fill(server, key, random.sample(range(2_000_000), 1_000_000))
        for n in range(10):
            fill(server, f"part{n}", random.sample(range(2_000_000), 100_000))
    yield "ZINTERSTORE of two of 1 000 000", [("ZINTERSTORE", "to", 2, "one", "two")]
    yield "ZUNIONSTORE of ten of 100 000", [("ZUNIONSTORE", "to", 10, *[f"part{n}" for n in range(10)])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True)
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--options", default="")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--out")
    a = parser.parse_args()
    random.seed(1)
    page = Page(a.out)
    say = page.say

    say(f"# A leaderboard: Tern beside redis-server, {datetime.date.today()}")
    say("")
    say(f"Machine: {processor()}, Linux {platform.release()}. {a.members:,} members of {len(name(0))} bytes. `python3 bench/ranked.py`: medians of "
        f"{a.rounds} rounds of {a.calls} calls, the servers in turn, in one run; servers and load share the machine."
        f"{f' Tern with `{a.options}`.' if a.options else ''}")
    say("")
    with tempfile.TemporaryDirectory() as directory:
        everysec = ["--appendfsync", "everysec"]
        argv = {"redis": ["redis-server", "--save", "", "--appendonly", "yes", "--daemonize", "no", *everysec],
                "tern": [os.path.abspath(a.tern), *everysec, *a.options.split()]}
        servers = [Server(kind, argv[kind], os.path.join(directory, kind)) for kind in argv]
        try:
            numbers = list(range(a.members))
            random.shuffle(numbers)
            rates = [fill(server, "board", numbers) for server in servers]
            say("| | redis | tern | tern / redis |")
            say("|---|---|---|---|")
            say(f"| ZADD of {BATCH}: members/s | {rates[0]:,.0f} | {rates[1]:,.0f} | **{rates[1] / rates[0]:.2f}** |")
            results = {}
            for n in range(a.rounds):
                for what, commands in cases(a.members, a.calls):
                    results.setdefault(what, []).append(in_turn(servers, n, lambda server: took(server, commands)))
            for what, commands in combined(servers) if a.stored else []:
                results[what] = [in_turn(servers, n, lambda server: took(server, commands)) for n in range(a.rounds)]
            for what, rounds in results.items():
                redis, tern = [statistics.median(one) for one in zip(*rounds)]
                say(f"| {what}, ms | {redis:,.3f} | {tern:,.3f} | **{tern / redis:.2f}** |")
        finally:
            for server in servers:
                server.stop()
    page.keep()


if __name__ == "__main__":
    main()
