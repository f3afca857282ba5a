#!/usr/bin/env python3
"""Large sets on Tern and on redis-server, in turn, in one run: medians and ratios.

    cargo build --release
    python3 bench/sets.py --tern target/release/tern [--members 1000000] [--rounds 5] [--pool 0] [--rest 0]
        [--options ""] [--out bench/results/NAME.md]

Two sets of `--members` members of one length, half of them in both. Their members are new; with `--pool` they are picked at random
from so many that Tern has interned before, as members of another set (Redis has no use for that set, and gets none). `--rest`:
seconds between loading and asking, with one question before them: what a reader finds unfolded is folded meanwhile. `--options`: Tern's, as "--store-cache-size 33554432".
Redis keeps nothing on disk; Tern syncs every commit.
A reply is read to its last byte: its length is known beforehand, so that no parser is measured. Only ratios of one run
mean something. Needs redis-server.
"""
import argparse
import datetime
import hashlib
import multiprocessing
import os
import platform
import random
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time

from checked import in_turn, output
from page import Page

BATCH = 1000  # members of a SADD
WINDOW = 8  # SADDs on their way
SMALL = 100  # members of the small set
COPIES = 9  # further sets of the same members, for memory and disk
# What is to be reached: Redis' time divided by Tern's, or (None) something that the text says.
TARGETS = {"SINTERCARD": 50, "SINTERSTORE": 50, "SUNIONSTORE": 50, "SDIFFSTORE": 50, "SINTER": 1, "SMEMBERS": 1,
           "SISMEMBER": 0.5}


def member(n):
    digits = hashlib.blake2b(n.to_bytes(8, "big"), digest_size=19).hexdigest()
    return f"at://did:plc:{digits[:24]}/app.bsky.feed.like/{digits[24:37]}".encode()


def request(*words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Server:
    def __init__(self, name, argv, directory):
        os.makedirs(directory)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.name, self.directory = name, directory
        self.log = open(directory + ".log", "w")
        argv = [*argv, "--port", str(port), "--dir", directory]
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log)
        for _ in range(2400):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), 120)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.buffer = memoryview(bytearray(1 << 20))
                self.socket.sendall(b"PING\r\n")
                if self.line() == b"+PONG\r\n":
                    return
            except (OSError, SystemExit):  # not listening yet, or loading
                time.sleep(0.05)
        raise SystemExit(f"{name} did not start: see {directory}.log")

    @classmethod
    def connected(cls, address):
        """Only a connection to one that runs."""
        server = cls.__new__(cls)
        server.name, server.socket, server.buffer = "reader", socket.create_connection(address, 120), memoryview(bytearray(1 << 20))
        return server

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def receive(self, most):
        """Some bytes of a reply."""
        some = self.socket.recv(most)
        if not some:
            raise SystemExit(f"{self.name} has closed the connection")
        return some

    def line(self):
        out = b""
        while not out.endswith(b"\r\n"):
            out += self.receive(1)
        if out.startswith(b"-"):
            raise SystemExit(f"{self.name}: {out.decode()}")
        return out

    def integer(self, *words):
        self.socket.sendall(request(*words))
        return int(self.line()[1:])

    def members(self, length, *words):
        """Members of a reply, read to its end; `length`: bytes of each in the reply."""
        self.socket.sendall(request(*words))
        count = int(self.line()[1:])
        left = count * length
        while left > 0:
            some = self.socket.recv_into(self.buffer, min(left, len(self.buffer)))
            if some == 0:
                raise SystemExit(f"{self.name} has closed the connection")
            left -= some
        return count

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * 4096

    def disk(self):
        return int(output(["du", "-sb", self.directory]).split()[0])


def load(server, requests):
    """Seconds that the requests take, WINDOW of them on their way."""
    begin = time.perf_counter()
    on_their_way = 0
    for raw in requests:
        server.socket.sendall(raw)
        on_their_way += 1
        if on_their_way > WINDOW:
            server.line()
            on_their_way -= 1
    for _ in range(on_their_way):
        server.line()
    return time.perf_counter() - begin


def batches(key, members):
    return [request("SADD", key, *members[n:n + BATCH]) for n in range(0, len(members), BATCH)]


def fill_pool(server, size):
    """Members a second."""
    pool = (request("SADD", "pool", *map(member, range(n, min(n + BATCH, size)))) for n in range(0, size, BATCH))
    return size / load(server, pool)


def timed(run, want):
    begin = time.perf_counter()
    got = run()
    took = time.perf_counter() - begin
    if got != want:
        raise SystemExit(f"{got} instead of {want}")
    return took


def store(server, *words):
    server.integer("UNLINK", "stored")
    return lambda: server.integer(*words)


def is_member(server, some):
    requests = b"".join(request("SISMEMBER", "a", m) for m in some)

    def run():
        server.socket.sendall(requests)
        replies = b""
        while len(replies) < 4 * len(some):
            replies += server.receive(4096)
        return replies.count(b":1\r\n")
    return run


def peak(server):
    """Most bytes resident since the last reset."""
    with open(f"/proc/{server.process.pid}/status") as f:
        return int(re.search(r"VmHWM:\s*(\d+)", f.read())[1]) * 1024


def read_all(address, length, times):
    reader = Server.connected(address)
    for _ in range(times):
        reader.members(length, "SMEMBERS", "a")


def beside(server, length, times):
    """Latencies in ms of another client's GETs while SMEMBERS is read, and how much the server grows."""
    with open(f"/proc/{server.process.pid}/clear_refs", "w") as f:
        f.write("5")
    before, took = server.resident(), []
    reader = multiprocessing.Process(target=read_all, args=(server.socket.getpeername(), length, times))
    reader.start()
    while reader.is_alive():
        begin = time.perf_counter()
        server.socket.sendall(request("GET", "k"))
        server.line()
        took.append((time.perf_counter() - begin) * 1000)
        time.sleep(0.001)
    if reader.exitcode != 0:
        raise SystemExit(f"{server.name}: the reader beside it failed")
    took.sort()
    return took[len(took) // 2], took[len(took) * 99 // 100], took[-1], max(0, peak(server) - before)


def processor():
    with open("/proc/cpuinfo") as f:
        names = re.findall(r"model name\s*:\s*(.*)", f.read())
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def cases(n, members):
    """Name, what makes the run, its answer, how often in a round."""
    length = len(members[0]) + len(b"$%d\r\n\r\n" % len(members[0]))
    both = ("a", "b")
    return [
        ("SINTERCARD", lambda s: lambda: s.integer("SINTERCARD", 2, *both), n // 2, 1),
        ("SINTERSTORE", lambda s: store(s, "SINTERSTORE", "stored", *both), n // 2, 1),
        ("SUNIONSTORE", lambda s: store(s, "SUNIONSTORE", "stored", *both), n + n // 2, 1),
        ("SDIFFSTORE", lambda s: store(s, "SDIFFSTORE", "stored", *both), n // 2, 1),
        ("SINTER", lambda s: lambda: s.members(length, "SINTER", *both), n // 2, 1),
        ("SMEMBERS", lambda s: lambda: s.members(length, "SMEMBERS", "a"), n, 1),
        ("SINTER 100 with all", lambda s: lambda: s.members(length, "SINTER", "small", "a"), SMALL, 50),
        ("SISMEMBER", lambda s: is_member(s, members[::n // 100][:100]), 100, 50),
    ]


def measure(server, make, want, times):
    return statistics.median(timed(make(server), want) for _ in range(times))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True)
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pool", type=int, default=0)
    parser.add_argument("--rest", type=int, default=0)
    parser.add_argument("--options", default="")
    parser.add_argument("--only", default="redis,tern")
    parser.add_argument("--out")
    a = parser.parse_args()
    n = a.members
    wanted = n + n // 2
    members = [member(k) for k in (random.Random(1).sample(range(a.pool), wanted) if a.pool else range(wanted))]
    binary = os.path.abspath(a.tern)
    page = Page(a.out)
    say = page.say
    say(f"# Large sets: Tern beside redis-server, {datetime.date.today()}", "",
             f"Machine: {processor()}, Linux {platform.release()}. Two sets of {n:,} members of {len(members[0])} bytes, "
             f"half of them in both{f', picked at random from {a.pool:,}' if a.pool else ''}. `python3 bench/sets.py`: medians of {a.rounds} rounds, the servers in turn, each round beginning with the other one, in one run; "
             "server and load share the machine. Times in ms; the ratio is Redis' time divided by Tern's."
             f"{f' Tern with `{a.options}`.' if a.options else ''}", "")
    with tempfile.TemporaryDirectory() as directory:
        argv = {"redis": ["redis-server", "--save", "", "--appendonly", "no", "--daemonize", "no"], "tern": [binary, *a.options.split()]}
        servers = [Server(k, argv[k], os.path.join(directory, k)) for k in a.only.split(",")]
        try:
            for s in servers:
                if a.pool and s.name == "tern":
                    say(f"The pool of {a.pool:,}: {fill_pool(s, a.pool):,.0f} members/s; {s.resident():,} bytes resident, "
                        f"{s.disk():,} on disk.")
                    say("")
            say("| loading | " + " | ".join(s.name for s in servers) + " | ratio |")
            say("|---|" + "---|" * (len(servers) + 1))
            for key, part, name in [("a", members[:n], "members of the pool/s" if a.pool else "new members/s"), ("b", members[n // 2:], "half of them known: members/s"),
                                    ("small", members[:n:n // SMALL][:SMALL], None)]:
                requests = batches(key, part)
                rates = [len(part) / load(s, requests) for s in servers]
                if name:
                    say(f"| SADD of {BATCH}, {name} | " + " | ".join(f"{r:,.0f}" for r in rates)
                        + f" | **{rates[-1] / rates[0]:.2f}** |")
            say("")
            if a.rest:
                for s in servers:
                    s.integer("SINTERCARD", 2, "a", "b")
                time.sleep(a.rest)
            say("| command | " + " | ".join(s.name for s in servers) + " | ratio | min-max | to reach |")
            say("|---|" + "---|" * (len(servers) + 3))
            for name, make, want, times in cases(n, members):
                rounds = [in_turn(servers, n, lambda s: measure(s, make, want, times) * 1000) for n in range(a.rounds)]
                medians = [statistics.median(r[k] for r in rounds) for k in range(len(servers))]
                ratios = [r[0] / r[-1] for r in rounds]
                target = TARGETS.get(name, "under 1 ms")
                say(f"| {name} | " + " | ".join(f"{m:,.2f}" for m in medians) + f" | **{statistics.median(ratios):.2f}** | "
                    f"{min(ratios):.2f}-{max(ratios):.2f} | {target} |")
            say("")
            say("| beside SMEMBERS | " + " | ".join(s.name for s in servers) + " |")
            say("|---|" + "---|" * len(servers))
            length = len(members[0]) + len(b"$%d\r\n\r\n" % len(members[0]))
            seen = [beside(s, length, 2 * a.rounds) for s in servers]
            for k, name in enumerate(["GET of another client, p50", "p99", "max"]):
                say(f"| {name}, ms | " + " | ".join(f"{row[k]:.2f}" for row in seen) + " |")
            say("| growth of resident memory | " + " | ".join(f"{row[3]:,}" for row in seen) + " |")
            say("")
            say("| bytes | " + " | ".join(s.name for s in servers) + " |")
            say("|---|" + "---|" * len(servers))
            for s in servers:
                s.integer("UNLINK", "stored")
                for k in range(COPIES):
                    s.integer("SUNIONSTORE", f"copy{k}", "a")
            sets = n * (COPIES + 2)
            say("| resident | " + " | ".join(f"{s.resident():,}" for s in servers) + " |")
            say("| on disk | " + " | ".join(f"{s.disk():,}" for s in servers) + " |")
            both = [s.resident() + (s.disk() if s.name == "tern" else 0) for s in servers]
            say(f"| both, for a member and set ({COPIES + 2} sets) | " + " | ".join(f"{b / sets:.1f}" for b in both) + " |")
        finally:
            for s in servers:
                s.stop()
    page.keep()


if __name__ == "__main__":
    main()
