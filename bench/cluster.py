#!/usr/bin/env python3
"""Several Terns on one FoundationDB cluster: throughput, conflicts and fairness, beside one Tern on the embedded store and
redis-server, in one run.

    cargo build --release --features fdb --bin tern --example bench_ceiling
    python3 bench/cluster.py --tern target/release/tern [--ceiling target/release/examples/bench_ceiling]
                             [--servers 1,3,8] [--out bench/results/NAME.md]

Starts a cluster of one fdbserver process (ssd) on 127.0.0.1 in a temporary directory; fdbserver and fdbcli are taken from
$FDB_HOME/bin, /opt/fdb/bin or PATH. The load is one redis-benchmark a server, all at once; --clients is for all together.
Cluster, servers and load share the machine, so only figures of one run can be compared. --ceiling: what the client library
reaches on the same cluster without Redis.
"""
import argparse
import datetime
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from checked import accepted, in_turn, info, output, without_errors
from compare import Server, entries, figures, free_port, processor, start, version
from page import Page

# Name, redis-benchmark arguments ({server}: the server's number, so that no two add the same member; of a tuple, one server takes
# the first, the next one the second), what is there before.
FILL = ["-t", "set", "-r", "100000", "-n", "100000", "-P", "16"]
ELEMENTS = ["-n", "100000", "-P", "16", "rpush", "hot:list", "1"]
BOARD = ["-c", "4", "-r", "100000", "-n", "3000", "zadd", "board", *["__rand_int__", "player:__rand_int__"] * 100]
CASES = [
    ("GET", ["-t", "get", "-r", "100000"], FILL),
    ("SET", ["-t", "set", "-r", "100000"], None),
    ("INCR one key", ["incr", "hot:counter"], None),
    ("SADD one set: fresh members", ["-r", "2000000000", "sadd", "hot:set", "member:{server}:__rand_int__"], None),
    ("SADD one set: of 100 000 members of its own", ["-r", "100000", "sadd", "hot:own", "member:{server}:__rand_int__"], None),
    ("SADD one set: of the same 100 000 members", ["-r", "100000", "sadd", "hot:same", "member:__rand_int__"], None),
    ("ZINCRBY one leaderboard", ["-r", "100000", "zincrby", "board", "1", "player:__rand_int__"], BOARD),
    ("ZRANK", ["-r", "100000", "zrank", "board", "player:__rand_int__"], BOARD),
    ("RPUSH to one list and LPOP by every other server", [("rpush", "lpop"), "hot:list", "1"], ELEMENTS),
    ("XADD one stream", ["xadd", "hot:stream", "*", "field", "value"], None),
    ("XREADGROUP of one by one group", ["xreadgroup", "group", "new", "consumer:{server}", "count", "1", "streams", "stream", ">"], entries(300_000)),
    ("XACK in one group", ["-r", "300000", "xack", "stream", "pending", "__rand_int__"], entries(300_000)),
    ("SADD one set: known members", ["-r", "1000", "sadd", "hot:known", "member:__rand_int__"], None),
]


def program(name):
    places = [os.path.join(os.environ.get("FDB_HOME", "/opt/fdb"), "bin"), "/opt/fdb/bin"]
    found = next((os.path.join(p, name) for p in places if os.path.exists(os.path.join(p, name))), None)
    return found or shutil.which(name) or sys.exit(f"{name}: not found (set FDB_HOME)")


class Cluster:
    def __init__(self, directory):
        port = free_port()
        self.file = os.path.join(directory, "fdb.cluster")
        with open(self.file, "w") as f:
            f.write(f"bench:bench@127.0.0.1:{port}")
        data = os.path.join(directory, "fdb")
        os.makedirs(data)
        self.argv = [program("fdbserver"), "-p", f"127.0.0.1:{port}", "-C", self.file, "-d", data, "-L", data]
        self.start()
        self.cli("configure new single ssd")

    def start(self):
        self.process = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def cli(self, command):
        run = [program("fdbcli"), "-C", self.file, "--timeout", "60", "--exec", command]
        subprocess.run(run, check=True, capture_output=True, timeout=90)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def tern(binary, n, store, directory):
    port, path = free_port(), os.path.join(directory, f"tern-{n}")
    os.makedirs(path)
    return Server(f"tern {n}", [binary, "--port", str(port), "--dir", path, "--store", store], port, path)


def counters(servers):
    total = {"store_commits": 0, "store_conflicts": 0}
    for s in servers:
        for line in info(s, "all").split():
            name, _, value = line.partition(":")
            if name in total:
                total[name] += int(value)
    return total


def load(servers, args, pipeline, requests, clients):
    """Requests a second of all together; the largest p50 and maximum of all, in ms."""
    n, c = requests // len(servers), max(1, clients // len(servers))
    runs = []
    begin = time.monotonic()
    for number, s in enumerate(servers):
        own = [arg[number % len(arg)] if isinstance(arg, tuple) else arg.replace("{server}", str(number)) for arg in args]
        command = ["redis-benchmark", "-p", str(s.port), "-c", str(c), "-P", str(pipeline), "-n", str(n), "--csv", *own]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    outs = [run.communicate(timeout=240)[0] for run in runs]
    seconds = time.monotonic() - begin
    rows = [figures(accepted(run.args, run.returncode, out)) for run, out in zip(runs, outs)]
    return n * len(servers) / seconds, *(max(row[figure] for row in rows) for figure in (3, 6))


def measure(servers, case, pipeline, a):
    """One round: what `load` says, commits and conflicts."""
    name, args, fill = case
    output(["redis-cli", "-e", "-p", str(servers[0].port), "flushall"], 60)
    requests = a.requests * (4 if pipeline > 1 else 1)
    with without_errors(*servers):
        if fill:
            output(["redis-benchmark", "-p", str(servers[0].port), "-c", "50", "-q", *fill], 300)
        before = counters(servers)
        loaded = load(servers, args, pipeline, requests, a.clients)
        after = counters(servers)
    return *loaded, *(after[k] - before[k] for k in ("store_commits", "store_conflicts"))


def row(kind, pipeline, case, rounds):
    rate, p50, worst = (statistics.median(r[i] for r in rounds) for i in range(3))
    commits, conflicts = (sum(r[i] for r in rounds) for i in (3, 4))
    share = f"{100 * conflicts / (commits + conflicts):.2f} %" if commits + conflicts else "-"
    name, servers = kind
    return f"| {name} | {len(servers)} | {pipeline} | {case[0]} | {rate:,.0f} | {p50:.2f} | {worst:.1f} | {share} |"


def ceilings(program, cluster):
    """Rows of what the client library reaches alone."""
    for name, keys, rate in map(str.split, output([program, cluster.file], 120).splitlines()):
        yield f"| FoundationDB, client library alone | - | {keys} | {name} | {int(rate):,} | - | - | - |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True)
    parser.add_argument("--servers", default="1,3,8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=40000)
    parser.add_argument("--pipelines", default="1,16")
    parser.add_argument("--only", default="")
    parser.add_argument("--ceiling")
    parser.add_argument("--out")
    a = parser.parse_args()
    binary = os.path.abspath(a.tern)
    page = Page(a.out)
    page.say(
        f"# Tern on FoundationDB, {datetime.date.today()}",
        "",
        f"Machine: {processor()}, Linux {platform.release()}. {version(['redis-server', '--version'])}. "
        f"{version([binary, '--version'])}. {version([program('fdbserver'), '--version']).splitlines()[0]}.",
        f"`python3 bench/cluster.py {' '.join(sys.argv[1:])}`: medians of the rounds, each beginning with another store, {a.clients} clients in all. "
        "Cluster, servers and load share the machine.",
        "",
        "| store | servers | pipeline | test | requests/s | p50 ms | longest ms | conflicts of commits |",
        "|---|---|---|---|---|---|---|---|",
    )
    with tempfile.TemporaryDirectory() as directory:
        cluster, running = Cluster(directory), []
        try:
            for n in range(max(map(int, a.servers.split(",")))):
                running.append(tern(binary, n, f"fdb:{cluster.file}", directory))
            kinds = [("FoundationDB", running[:int(n)]) for n in a.servers.split(",")]
            for name, kind, policy in [("redis-server, everysec", "redis", "everysec"), ("embedded, always", "tern", "always")]:
                running.append(start(kind, binary, policy, directory))
                kinds.append((name, running[-1:]))
            if a.ceiling:
                page.say(*ceilings(os.path.abspath(a.ceiling), cluster))
            cases = [case for case in CASES if not a.only or case[0] in a.only.split(",")]
            cells = [(pipeline, case) for pipeline in map(int, a.pipelines.split(",")) for case in cases]
            rounds = [in_turn(kinds, n, lambda kind: [measure(kind[1], case, pipeline, a) for pipeline, case in cells])
                      for n in range(a.rounds)]
            for at, kind in enumerate(kinds):
                page.say(*(row(kind, *cell, [r[at][n] for r in rounds]) for n, cell in enumerate(cells)))
        finally:
            for s in running:
                s.stop()
            cluster.stop()
    page.keep()


if __name__ == "__main__":
    sys.exit(main())
