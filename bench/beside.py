#!/usr/bin/env python3
"""Two loads beside each other, on Tern and on redis-server in turn, in one run: elements handed over by waiting clients,
and reads of a list that changes all the time.

    cargo build --release
    python3 bench/beside.py --tern target/release/tern [--rounds 5] [--out bench/results/NAME.md]

Both loads are redis-benchmark; each is 50 clients. Of a hand-over the time is taken from the first push until the last
element has been received. Of a read, while the other load runs; its own rate is given too. Needs redis-server, redis-cli and
redis-benchmark.
"""
import argparse
import datetime
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

from checked import accepted, in_turn, without_errors
from compare import prepare, processor, start, version
from page import Page, compared

ELEMENT = "x" * 40
LIST = ["-n", "1", "rpush", "list", *[ELEMENT] * 600]


def load(server, requests, *command):
    return subprocess.Popen(["redis-benchmark", "-p", str(server.port), "-c", "50", "-n", str(requests), "-q", *command],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def rate(process):
    out = process.communicate()[0]
    accepted(process.args, process.returncode, out)
    rates = re.findall(r"([\d.]+) requests per second", out)
    if not rates:
        raise SystemExit(out)
    return float(rates[-1])


def hand_over(server, requests):
    """Elements a second."""
    with without_errors(server):
        consumers = load(server, requests, "blpop", "queue", "0")
        time.sleep(0.3)
        began = time.monotonic()
        producers = load(server, requests, "rpush", "queue", ELEMENT)
        rate(consumers)
        took = time.monotonic() - began
        rate(producers)
    return requests / took, 0


def read_beside(server, requests):
    """Reads a second, and changes a second."""
    with without_errors(server):
        writers = load(server, 100 * requests, "lset", "list", "50", ELEMENT)
        time.sleep(0.3)
        reads = rate(load(server, requests, "lrange", "list", "0", "99"))
        writers.terminate()
        out = writers.communicate()[0]
    changes = re.findall(r"rps=([\d.]+) \(overall: ([\d.]+)\)", out)
    return reads, float(changes[-1][1])


CASES = [
    ("RPUSH by 50, BLPOP by 50", hand_over, None),
    ("LRANGE of 100, beside LSET in them", read_beside, LIST),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=50000)
    parser.add_argument("--policy", default="everysec")
    parser.add_argument("--out")
    a = parser.parse_args()
    binary = os.path.abspath(a.tern)
    page = Page(a.out)
    page.say(
        f"# Two loads beside each other: Tern and redis-server, {datetime.date.today()}",
        "",
        f"Machine: {processor()}, Linux {platform.release()}. {version(['redis-server', '--version'])}. "
        f"{version([binary, '--version'])}.",
        f"`python3 bench/beside.py {' '.join(sys.argv[1:])}`: medians of the rounds, the servers in turn. Servers and loads share the machine.",
        "",
        "| case | redis/s | tern/s | ratio | min-max of the ratio | changes/s beside, redis | tern |",
        "|---|---|---|---|---|---|---|",
    )
    with tempfile.TemporaryDirectory() as directory:
        servers = [start("redis", binary, a.policy, directory), start("tern", binary, a.policy, directory)]
        try:
            for name, measure, fill in CASES:
                for s in servers:
                    prepare(s, fill)
                rounds = [in_turn(servers, n, lambda s: measure(s, a.requests)) for n in range(a.rounds)]
                changes = [statistics.median(r[i][1] for r in rounds) for i in (0, 1)]
                page.say(f"| {name} | {compared([[m[0] for m in r] for r in rounds])} | {changes[0]:,.0f} | {changes[1]:,.0f} |")
        finally:
            for s in servers:
                s.stop()
    page.keep()


if __name__ == "__main__":
    sys.exit(main())
