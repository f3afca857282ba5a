#!/usr/bin/env python3
"""SINTERCARD and SINTER of two large sets on a FoundationDB cluster, the first time that a new server is asked.

    cargo build --release --features fdb
    python3 bench/cold.py --tern target/release/tern [--members 1000000] [--rounds 5] [--out bench/results/NAME.md]

A cluster of one fdbserver process (ssd) on 127.0.0.1, sets and members as in bench/sets.py. Each figure is the first command of
a server that has just started, so that it has read nothing but its catalog; "all new" starts fdbserver again before that, too.
fdbserver is at work for a while behind a load and behind a start, so it is waited for until it rests.
Cluster, server and load share the machine.
"""
import argparse
import datetime
import os
import platform
import statistics
import tempfile
import time

import cluster
import sets
from compare import cpu, processor, version
from page import Page

# fdbserver rests when it takes less of a processor than this; for so many seconds it is waited for.
RESTS = 0.05
PATIENCE = 120


class Fleet:
    """A cluster, and servers on it, one after the other."""

    def __init__(self, binary, directory):
        self.binary, self.directory, self.started = binary, directory, 0
        self.cluster = cluster.Cluster(directory)

    def server(self):
        self.started += 1
        argv = [self.binary, "--store", f"fdb:{self.cluster.file}"]
        return sets.Server("tern", argv, os.path.join(self.directory, f"tern{self.started}"))

    def processes(self, server):
        return server.process, self.cluster.process

    def rest(self):
        """Waits until what a start or a load leaves to do is done."""
        for _ in range(PATIENCE):
            before = cpu(self.cluster.process)
            time.sleep(1)
            if cpu(self.cluster.process) - before < RESTS:
                return
        raise SystemExit(f"fdbserver does not rest in {PATIENCE} s")

    def first(self, run, want, all_new):
        """Milliseconds of a new server's first command; the processor's for it in Tern and in fdbserver."""
        if all_new:
            self.cluster.stop()
            self.cluster.start()
            self.cluster.cli("status minimal")
        server = self.server()
        try:
            server.socket.sendall(sets.request("PING"))
            server.line()
            self.rest()
            before = [cpu(p) for p in self.processes(server)]
            took = 1000 * sets.timed(lambda: run(server), want)
            return took, *(1000 * (cpu(p) - b) for p, b in zip(self.processes(server), before))
        finally:
            server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True)
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    a = parser.parse_args()
    n, binary = a.members, os.path.abspath(a.tern)
    members = [sets.member(k) for k in range(n + n // 2)]
    length = len(members[0]) + len(b"$%d\r\n\r\n" % len(members[0]))
    page = Page(a.out)
    page.say(f"# Two sets of {n:,} on FoundationDB, asked for the first time, {datetime.date.today()}", "",
             f"Machine: {processor()}, Linux {platform.release()}. {version([binary, '--version'])}. "
             f"{version([cluster.program('fdbserver'), '--version']).splitlines()[0]}. Members of {len(members[0])} bytes, half in "
             f"both sets. `python3 bench/cold.py`: {a.rounds} rounds, ms.", "",
             "| command | new | median | min-max | to reach | processor: Tern | fdbserver |", "|---|---|---|---|---|---|---|")
    cases = [("SINTERCARD", lambda s: s.integer("SINTERCARD", 2, "a", "b"), 60),
             ("SINTER, reply of half of them read to its end", lambda s: s.members(length, "SINTER", "a", "b"), 150)]
    with tempfile.TemporaryDirectory() as directory:
        fleet = Fleet(binary, directory)
        try:
            server = fleet.server()
            for key, part in [("a", members[:n]), ("b", members[n // 2:])]:
                took = sets.load(server, sets.batches(key, part))
                print(f"loaded {len(part) / took:,.0f} members/s", flush=True)
            server.stop()
            for name, run, target in cases:
                for all_new in [False, True]:
                    rounds = [fleet.first(run, n // 2, all_new) for _ in range(a.rounds)]
                    what = "server and fdbserver" if all_new else "server"
                    (took, tern, fdb), times = map(statistics.median, zip(*rounds)), [r[0] for r in rounds]
                    page.say(f"| {name} | {what} | {took:.0f} | {min(times):.0f}-{max(times):.0f} | {target} | {tern:.0f} | {fdb:.0f} |")
        finally:
            fleet.cluster.stop()
    page.keep()


if __name__ == "__main__":
    main()
