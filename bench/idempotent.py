#!/usr/bin/env python3
"""What an id costs: INCR with and without IDEMPOTENT, in turn, each round beginning with another case, on one server, in one run.

    cargo build --release
    python3 bench/idempotent.py --tern target/release/tern [--rounds 5] [--out bench/results/NAME.md]

CPU time is the server's own (user and system, from /proc): it is less disturbed by what else the machine does than the
throughput. Needs redis-cli and redis-benchmark.
"""
import argparse
import datetime
import os
import platform
import statistics
import sys
import tempfile

from checked import in_turn, output
from compare import cpu, measure, processor, start, version
from page import Page

# Keys are drawn from 100 000, ids from 10^15 and apart for each case: one that is met again with another key is an error.
ID = "__rand_int__:__rand_int__:__rand_int__"
OLD = ["IDEMPOTENT", "old:" + "0" * 38]
ONE, MANY = ["INCR", "counter"], ["INCR", "key:__rand_int__"]
CASES = [
    ("INCR one key", ONE),
    ("the same under a new id", ["IDEMPOTENT", "one:" + ID, *ONE]),
    ("the same under a known id", [*OLD, *ONE]),
    ("INCR 100 000 keys", MANY),
    ("the same under a new id", ["IDEMPOTENT", "many:" + ID, *MANY]),
]


def run(server, words, pipeline, requests):
    before = cpu(server.process)
    rate, p50, _ = measure(server, ["-r", "100000", *words], pipeline, requests, 50)
    return rate, p50, (cpu(server.process) - before) / requests * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=40000)
    parser.add_argument("--policies", default="always,everysec")
    parser.add_argument("--pipelines", default="1,16")
    parser.add_argument("--out")
    a = parser.parse_args()
    binary = os.path.abspath(a.tern)
    page = Page(a.out)
    page.say(
        f"# INCR with and without an id, {datetime.date.today()}",
        "",
        f"Machine: {processor()}, Linux {platform.release()}. {version([binary, '--version'])}.",
        f"`python3 bench/idempotent.py {' '.join(sys.argv[1:])}`: each figure is the median of the rounds, the cases in turn, on one "
        "server, 50 clients. Server and load share the machine.",
        "",
        "| appendfsync | pipeline | case | requests/s | p50 ms | CPU us a request | min-max |",
        "|---|---|---|---|---|---|---|",
    )
    with tempfile.TemporaryDirectory() as directory:
        for policy in a.policies.split(","):
            server = start("tern", binary, policy, directory)
            try:
                output(["redis-cli", "-e", "-p", str(server.port), *OLD, *ONE])
                for pipeline in map(int, a.pipelines.split(",")):
                    requests = a.requests * (5 if pipeline > 1 else 1)
                    run(server, MANY, 16, 100000)
                    rounds = [in_turn(CASES, n, lambda case: run(server, case[1], pipeline, requests)) for n in range(a.rounds)]
                    for at, (name, _) in enumerate(CASES):
                        rate, p50, used = (statistics.median(r[at][i] for r in rounds) for i in range(3))
                        all_used = [r[at][2] for r in rounds]
                        line = (f"| {policy} | {pipeline} | {name} | {rate:,.0f} | {p50:.2f} | **{used:.1f}** | "
                                f"{min(all_used):.1f}-{max(all_used):.1f} |")
                        page.say(line)
            finally:
                server.stop()
    page.keep()


if __name__ == "__main__":
    sys.exit(main())
