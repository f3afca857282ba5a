#!/usr/bin/env python3
"""redis-benchmark on Tern and on redis-server, in turn, in one run: medians and ratios.

    cargo build --release
    python3 bench/compare.py --tern target/release/tern [--rounds 5] [--out bench/results/NAME.md]

Both servers run on 127.0.0.1 with fresh directories; each policy of appendfsync on both. They take turns at being the first
of a round. A load that fails, or that is answered with errors, ends the run (bench/checked.py). Only ratios of one run mean
something: the machine may be shared. Needs redis-server, redis-cli and redis-benchmark.
"""
import argparse
import datetime
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from checked import in_turn, output, without_errors
from page import Page, compared

# The cases: name, redis-benchmark arguments, and what is there before (arguments of a run that is not counted).
# Keys and members are drawn from 100 000, or --keys, where there is an -r, but for what uses many up.
KEYS = ["-t", "set", "-r", "100000", "-n", "200000", "-P", "16"]
MEMBERS = ["-t", "sadd", "-r", "100000", "-n", "200000", "-P", "16"]
FIELDS = ["-t", "hset", "-r", "100000", "-n", "200000", "-P", "16"]
ELEMENTS = ["-t", "lpush", "-n", "1000000", "-P", "16"]
HASH = ["-n", "1", "hset", "hash", *[word for n in range(100) for word in (f"field:{n}", f"value:{n}")]]
BOARD = ["-r", "100000", "-n", "300000", "-P", "16", "zadd", "board", "__rand_int__", "player:__rand_int__"]
# A stream of entries 1-0, 2-0 and so on; one group has all of them pending, the other one none.
ADD_10_000 = """
local from = redis.call('XLEN', KEYS[1])
for n = from + 1, from + 10000 do redis.call('XADD', KEYS[1], n .. '-0', 'field', 'value') end
if from == 0 then
  redis.call('XGROUP', 'CREATE', KEYS[1], 'pending', 0)
  redis.call('XGROUP', 'CREATE', KEYS[1], 'new', 0)
end
redis.call('XREADGROUP', 'GROUP', 'pending', 'consumer', 'COUNT', 10000, 'STREAMS', KEYS[1], '>')
"""


def entries(count):
    return ["-c", "1", "-n", str(count // 10_000), "eval", ADD_10_000, "1", "stream"]


CASES = [
    ("PING", ["-t", "ping_mbulk"], None),
    ("GET", ["-t", "get", "-r", "100000"], KEYS),
    ("EXISTS", ["-r", "100000", "exists", "key:__rand_int__"], KEYS),
    ("MGET 10", ["-r", "100000", "mget", *["key:__rand_int__"] * 10], KEYS),
    ("SET", ["-t", "set", "-r", "100000"], KEYS),
    ("SET one key", ["-t", "set"], None),
    ("INCR", ["-t", "incr", "-r", "100000"], None),
    ("INCR one key", ["-t", "incr"], None),
    ("SADD one member", ["-t", "sadd"], None),
    ("SADD random members", ["-t", "sadd", "-r", "100000"], MEMBERS),
    ("SISMEMBER", ["-r", "100000", "sismember", "myset", "element:__rand_int__"], MEMBERS),
    ("SRANDMEMBER", ["srandmember", "myset"], MEMBERS),
    ("SPOP no set", ["-t", "spop"], None),
    ("MSET 10", ["-t", "mset", "-r", "100000"], KEYS),
    ("HSET", ["-t", "hset", "-r", "100000"], FIELDS),
    ("HGET", ["-r", "100000", "hget", "myhash", "element:__rand_int__"], FIELDS),
    ("LPUSH", ["-t", "lpush"], ELEMENTS),
    ("LPOP", ["-t", "lpop"], ELEMENTS),
    ("RPOPLPUSH", ["rpoplpush", "mylist", "mylist"], ELEMENTS),
    ("LRANGE_100", ["-t", "lrange_100"], None),
    ("LRANGE_600", ["-t", "lrange_600"], None),
    ("HGETALL of 100 fields", ["hgetall", "hash"], HASH),
    ("ZADD", ["-r", "100000", "zadd", "board", "__rand_int__", "player:__rand_int__"], BOARD),
    ("ZINCRBY", ["-r", "100000", "zincrby", "board", "1", "player:__rand_int__"], BOARD),
    ("ZSCORE", ["-r", "100000", "zscore", "board", "player:__rand_int__"], BOARD),
    ("ZRANK", ["-r", "100000", "zrank", "board", "player:__rand_int__"], BOARD),
    ("ZPOPMIN", ["zpopmin", "board"], ["-r", "100000000", "-n", "1200000", *BOARD[4:]]),
    ("XADD", ["xadd", "stream", "*", "field", "value"], None),
    ("XADD MAXLEN ~ 1000", ["xadd", "stream", "maxlen", "~", "1000", "*", "field", "value"], None),
    ("XREADGROUP of one", ["xreadgroup", "group", "new", "consumer", "count", "1", "streams", "stream", ">"], entries(1_200_000)),
    ("XACK", ["-r", "1200000", "xack", "stream", "pending", "__rand_int__"], entries(1_200_000)),
    ("XRANGE of ten", ["-r", "1000000", "xrange", "stream", "__rand_int__", "+", "count", "10"], entries(1_200_000)),
]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, name, argv, port, directory):
        self.name, self.port, self.directory = name, port, directory
        self.log = open(os.path.join(directory, "log"), "w")
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log, cwd=directory)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"{name} did not start: see {directory}/log")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


def start(kind, binary, policy, directory):
    port = free_port()
    path = os.path.join(directory, f"{kind}-{policy}")
    os.makedirs(path)
    common = ["--port", str(port), "--dir", path, "--appendfsync", policy]
    if kind == "redis":
        argv = ["redis-server", *common, "--appendonly", "yes", "--save", "", "--daemonize", "no"]
    else:
        argv = [binary, *common]
    return Server(kind, argv, port, path)


def of_keys(words, keys):
    """The arguments of a run that draws from so many keys instead of 100 000, and fills as many times as many."""
    scaled = {("-r", "100000"): keys, ("-n", "200000"): 2 * keys, ("-n", "300000"): 3 * keys}
    pairs = zip([None, *words], words)
    return [str(scaled.get(pair, pair[1])) for pair in pairs]


def prepare(server, fill):
    """An empty server, then what the case needs."""
    output(["redis-cli", "-e", "-p", str(server.port), "flushall"])
    if fill:
        with without_errors(server):
            output(["redis-benchmark", "-p", str(server.port), "-c", "50", "-q", *fill])


def measure(server, args, pipeline, requests, clients):
    """Requests a second, p50 and p99 in ms."""
    command = ["redis-benchmark", "-p", str(server.port), "-c", str(clients), "-P", str(pipeline),
               "-n", str(requests), "--csv", *args]
    with without_errors(server):
        rate, _, _, p50, _, p99, _ = figures(output(command))
    return rate, p50, p99


def figures(out):
    """What redis-benchmark's last row says: requests a second; average, least, p50, p95, p99 and longest in ms."""
    row = re.findall(r'"((?:,"[\d.]+"){7})$', out, re.MULTILINE)
    if not row:
        raise SystemExit(f"redis-benchmark said: {out}")
    return [float(figure) for figure in re.findall(r"[\d.]+", row[-1])]


def version(command):
    return output(command).strip()


def cpu(process):
    """Seconds of processor time."""
    with open(f"/proc/{process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processor():
    with open("/proc/cpuinfo") as f:
        names = re.findall(r"model name\s*:\s*(.*)", f.read())
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=40000)
    parser.add_argument("--keys", type=int, default=100000)
    parser.add_argument("--policies", default="always,everysec")
    parser.add_argument("--pipelines", default="1,16")
    parser.add_argument("--only", default="")
    parser.add_argument("--out")
    a = parser.parse_args()
    binary = os.path.abspath(a.tern)
    given = " ".join(sys.argv[1:])
    page = Page(a.out)
    page.say(
        f"# redis-benchmark: Tern beside redis-server, {datetime.date.today()}",
        "",
        f"Machine: {processor()}, Linux {platform.release()}. {version(['redis-server', '--version'])}. "
        f"{version([binary, '--version'])}.",
        f"`python3 bench/compare.py {given}`: each figure is the "
        "median of the rounds, the servers in turn, each round beginning with the other one, in one run. Server and load share the machine.",
        "",
        "| appendfsync | pipeline | test | redis/s | tern/s | ratio | min-max of the ratio | p50 ms redis | p50 ms tern | p99 ms redis | p99 ms tern |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    )
    with tempfile.TemporaryDirectory() as directory:
        for policy in a.policies.split(","):
            servers = [start("redis", binary, policy, directory), start("tern", binary, policy, directory)]
            try:
                for pipeline in map(int, a.pipelines.split(",")):
                    for name, args, fill in CASES:
                        if a.only and name not in a.only.split(","):
                            continue
                        requests = a.requests * (5 if pipeline > 1 else 1)
                        for s in servers:
                            prepare(s, fill and of_keys(fill, a.keys))
                        words = of_keys(args, a.keys)
                        rounds = [in_turn(servers, n, lambda s: measure(s, words, pipeline, requests, a.clients))
                                  for n in range(a.rounds)]
                        waits = [f"{statistics.median(r[i][n] for r in rounds):.2f}" for n in (1, 2) for i in (0, 1)]
                        rates = [[m[0] for m in r] for r in rounds]
                        page.say(f"| {policy} | {pipeline} | {name} | {compared(rates)} | {' | '.join(waits)} |")
            finally:
                for s in servers:
                    s.stop()
    page.keep()


if __name__ == "__main__":
    sys.exit(main())
