#!/usr/bin/env python3
"""The processor time that builds of Tern take for a command, in turn, in one run.

    python3 bench/builds.py --builds before=OLD/tern,after=target/release/tern [--rounds 5] [--out bench/results/NAME.md]

For changes that are smaller than what other work on the machine does to throughput: a server's user and system time, which the
kernel counts in steps of 10 ms, divided by the commands of the round. The least of the rounds says most, because other work can only
make a round longer. The cases are those of bench/compare.py. Needs redis-cli and redis-benchmark.
"""
import argparse
import datetime
import os
import platform
import statistics
import sys
import tempfile

from checked import in_turn
from compare import CASES, cpu, measure, prepare, processor, start, version
from page import Page


def spent(server, args, pipeline, requests, clients):
    """Microseconds a command."""
    before = cpu(server.process)
    measure(server, args, pipeline, requests, clients)
    return (cpu(server.process) - before) * 1e6 / requests


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--builds", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=40000)
    parser.add_argument("--policy", default="everysec")
    parser.add_argument("--pipelines", default="1,16")
    parser.add_argument("--only", default="")
    parser.add_argument("--out")
    a = parser.parse_args()
    builds = [build.split("=", 1) for build in a.builds.split(",")]
    page = Page(a.out)
    names = [name for name, _ in builds]
    page.say(
        f"# Processor time a command: {', '.join(names)}, {datetime.date.today()}",
        "",
        f"Machine: {processor()}, Linux {platform.release()}. " + " ".join(f"{n}: {version([b, '--version'])}." for n, b in builds),
        f"appendfsync {a.policy}, {a.clients} clients, {a.rounds} rounds in turn (bench/builds.py). Microseconds of the server: least (median); "
        f"and the least divided by that of {names[0]}.",
        "",
        f"| pipeline | test | {' | '.join(names)} | ratio |",
        "|---|---|" + "---|" * (len(names) + 1),
    )
    with tempfile.TemporaryDirectory() as directory:
        for pipeline in map(int, a.pipelines.split(",")):
            for case, args, fill in (c for c in CASES if not a.only or c[0] in a.only.split(",")):
                requests = a.requests * (10 if pipeline > 1 else 2)
                rounds = []
                servers = [start(name, os.path.abspath(binary), a.policy, tempfile.mkdtemp(dir=directory)) for name, binary in builds]
                try:
                    for s in servers:
                        prepare(s, fill)
                    for n in range(a.rounds):
                        rounds.append(in_turn(servers, n, lambda s: spent(s, args, pipeline, requests, a.clients)))
                finally:
                    for s in servers:
                        s.stop()
                least = [min(side) for side in zip(*rounds)]
                shown = [f"{low:.2f} ({statistics.median(side):.2f})" for low, side in zip(least, zip(*rounds))]
                ratios = " ".join(f"**{low / least[0]:.2f}**" for low in least[1:])
                page.say(f"| {pipeline} | {case} | {' | '.join(shown)} | {ratios} |")
    page.keep()


if __name__ == "__main__":
    sys.exit(main())
