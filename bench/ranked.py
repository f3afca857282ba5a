#!/usr/bin/env python3
"""A leaderboard on Tern and on redis-server, side by side: filling, ranks, ranges, changes, combinations.

    python3 bench/ranked.py --tern target/release/tern --members 1000000

Both run on 127.0.0.1 with appendfsync everysec. Each figure is a median over the rounds; the times are of one client
without pipelining. Prints a table in Markdown.
"""

import argparse
import os
import random
import shutil
import socket
import statistics
import subprocess
import tempfile
import time


class Client:
    """One connection: commands in, parsed replies out."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb", buffering=1 << 16)

    def send(self, *commands):
        parts = []
        for command in commands:
            words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
            parts.append(b"*%d\r\n" % len(words))
            parts.extend(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self.socket.sendall(b"".join(parts))

    def read(self):
        line = self.reader.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.reader.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def call(self, *command):
        self.send(command)
        return self.read()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server with an empty directory of its own."""

    def __init__(self, name, command):
        self.name, self.port = name, free_port()
        self.dir = tempfile.mkdtemp(prefix="ranked-")
        self.process = subprocess.Popen(command(self.port, self.dir), cwd=self.dir, stdout=subprocess.DEVNULL)
        for _ in range(300):
            try:
                self.client = Client(self.port)
                self.client.call("PING")
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{name} does not answer")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        shutil.rmtree(self.dir, ignore_errors=True)


def name(n):
    return b"player:%012d" % n


def fill(server, key, numbers, scores, batch=500, depth=8):
    """Adds members, `batch` a command, with some commands on their way. Returns members a second."""
    start, waiting = time.perf_counter(), 0
    for at in range(0, len(numbers), batch):
        words = ["ZADD", key]
        for n in numbers[at : at + batch]:
            words += [scores(n), name(n)]
        server.client.send(words)
        waiting += 1
        if waiting >= depth:
            server.client.read()
            waiting -= 1
    for _ in range(waiting):
        server.client.read()
    return len(numbers) / (time.perf_counter() - start)


def p50(server, commands):
    """The median time of a command in milliseconds."""
    times = []
    for command in commands:
        start = time.perf_counter()
        server.client.call(*command)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def workloads(members, rounds):
    def draw(make):
        return [make(random.randrange(members)) for _ in range(rounds)]

    middle = members // 2
    yield "ZSCORE", draw(lambda n: ("ZSCORE", "board", name(n)))
    yield "ZRANK", draw(lambda n: ("ZRANK", "board", name(n)))
    yield "ZREVRANK", draw(lambda n: ("ZREVRANK", "board", name(n)))
    yield "ZCOUNT", draw(lambda n: ("ZCOUNT", "board", n / 3, n))
    yield "ZRANGE of 100 by rank", draw(lambda n: ("ZRANGE", "board", (middle + n) // 2, (middle + n) // 2 + 99))
    yield "ZREVRANGE of 100 by rank", draw(lambda n: ("ZREVRANGE", "board", (middle + n) // 2, (middle + n) // 2 + 99))
    yield "ZRANGE of 100 by score", draw(lambda n: ("ZRANGE", "board", n, "+inf", "BYSCORE", "LIMIT", 0, 100))
    yield "ZADD, new", [("ZADD", "board", random.randrange(members), name(members + n)) for n in range(rounds)]
    yield "ZADD, changed", draw(lambda n: ("ZADD", "board", random.randrange(members), name(n)))
    yield "ZINCRBY", draw(lambda n: ("ZINCRBY", "board", 7, name(n)))
    yield "ZPOPMIN", [("ZPOPMIN", "board")] * rounds


def stored(server, rounds):
    """The median time in seconds of a combination of large sorted sets."""

    def seconds(*command):
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            server.client.call(*command)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    yield "ZINTERSTORE of two of 1 000 000", seconds("ZINTERSTORE", "to", 2, "one", "two")
    yield "ZUNIONSTORE of ten of 100 000", seconds("ZUNIONSTORE", "to", 10, *[f"part{n}" for n in range(10)])


def table(title, rows):
    print(f"\n{title}\n\n| | Redis | Tern | Tern / Redis |\n|---|---|---|---|")
    for what, redis, tern, digits in rows:
        print(f"| {what} | {redis:,.{digits}f} | {tern:,.{digits}f} | {tern / redis:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", required=True, help="the server's binary, a release build")
    parser.add_argument("--redis", default="redis-server")
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1000, help="calls of each command")
    parser.add_argument("--repeats", type=int, default=3, help="how often each command's calls are repeated")
    parser.add_argument("--options", default="", help="further options of Tern, separated by spaces")
    parser.add_argument("--stored", action="store_true", help="also unions and intersections of large sorted sets")
    given = parser.parse_args()
    random.seed(1)
    tern = os.path.abspath(given.tern)
    durable = ["--appendfsync", "everysec"]

    def redis_command(port, at):
        return [given.redis, "--port", str(port), "--dir", at, "--appendonly", "yes", "--save", "", *durable]

    def tern_command(port, at):
        return [tern, "--port", str(port), "--dir", at, *durable, *given.options.split()]

    servers = [Server("redis", redis_command), Server("tern", tern_command)]
    try:
        numbers = list(range(given.members))
        random.shuffle(numbers)
        filled = [fill(server, "board", numbers, lambda n: n) for server in servers]
        table("Filling, members a second (ZADD of 500)", [("ZADD", *filled, 0)])
        found = {}
        for _ in range(given.repeats):
            for what, commands in workloads(given.members, given.rounds):
                for server in servers:
                    found.setdefault((what, server.name), []).append(p50(server, commands))
        names = dict.fromkeys(what for what, _ in found)
        medians = [(what, *[statistics.median(found[what, server.name]) for server in servers], 3) for what in names]
        table("Milliseconds at p50, one client", medians)
        if given.stored:
            for server in servers:
                for key in ["one", "two"]:
                    fill(server, key, random.sample(range(2_000_000), 1_000_000), lambda n: n)
                for n in range(10):
                    fill(server, f"part{n}", random.sample(range(2_000_000), 100_000), lambda n: n)
            both = [list(stored(server, given.repeats)) for server in servers]
            table("Seconds", [(what, redis, tern, 3) for (what, redis), (_, tern) in zip(*both)])
    finally:
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main()
