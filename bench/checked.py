"""What a load must show before its figures count: programs that ended well, and servers that answered without errors.

An error is a fast reply: a server that answered nothing else would be the fastest of all. redis-benchmark 7 ends with status 1 at the first
error that it reads, older ones count errors as requests; so the servers' own counters are asked too.
bench/self_check.py shows that each check fails.
"""
import re
import subprocess


def output(command, timeout=240):
    """What a program writes; ends this one where it fails."""
    run = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    return accepted(command, run.returncode, run.stdout, run.stderr)


def accepted(command, status, out, err=""):
    if status != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {status}\n{out[-500:]}{err[-500:]}")
    return out


def info(server, section):
    return output(["redis-cli", "-e", "-p", str(server.port), "info", section], 30)


def errors(server):
    """How many errors a server has answered since its start, by their first word."""
    section = info(server, "errorstats")
    if "# Errorstats" not in section:
        raise SystemExit(f"{server.name}: INFO has no errorstats: {section}")
    return {code: int(count) for code, count in re.findall(r"errorstat_(\S+?):count=(\d+)", section)}


class without_errors:
    """What runs inside must leave these servers without an error more than they had answered before."""

    def __init__(self, *servers):
        self.servers = servers

    def __enter__(self):
        self.before = [errors(s) for s in self.servers]

    def __exit__(self, kind, *_):
        if kind is not None:
            return
        for server, before in zip(self.servers, self.before):
            new = {code: n - before.get(code, 0) for code, n in errors(server).items() if n != before.get(code, 0)}
            if new:
                raise SystemExit(f"{server.name} answered errors: {new}")


def in_turn(things, round_, measure):
    """Measures all of them, each round beginning with another one; the results in the order of the things."""
    first = round_ % len(things)
    order = [*range(first, len(things)), *range(first)]
    results = {n: measure(things[n]) for n in order}
    return [results[n] for n in range(len(things))]
