#!/usr/bin/env python3
"""Shows that a load that fails, or that is answered with errors, is never a figure, and that servers take turns at being the first.

    python3 bench/self_check.py --tern target/release/tern

A user who may not write makes each server answer errors; a redis-benchmark that reports a rate whatever it reads stands for older
ones. tests/bench.rs runs this. Needs redis-server, redis-cli and redis-benchmark.
"""
import argparse
import contextlib
import os
import subprocess
import tempfile
import types

import cluster
import compare
import sets
from checked import in_turn, output, without_errors

RATE = """echo '"SET","1000.00","0.1","0.1","0.1","0.1","0.1","0.1"'"""
FAST = ["-t", "set", "-n", "500"]


def refuses(what, run, *words):
    """`run` must end the program with a message that holds these words."""
    try:
        run()
    except SystemExit as why:
        missing = [word for word in words if word not in str(why)]
        assert not missing, f"{what}: no {missing} in: {why}"
        print(f"ok: {what}")
        return
    raise AssertionError(f"{what}: accepted")


@contextlib.contextmanager
def stub(directory, name, lines):
    """A program of this name in front of all others."""
    path, before = os.path.join(directory, "stubs"), os.environ["PATH"]
    os.makedirs(path, exist_ok=True)
    file = os.path.join(path, name)
    with open(file, "w") as f:
        f.write("#!/bin/sh\n" + "\n".join(lines) + "\n")
    os.chmod(file, 0o755)
    os.environ["PATH"] = path + os.pathsep + before
    try:
        yield
    finally:
        os.environ["PATH"] = before
        os.remove(file)


def cli(server, *words):
    return output(["redis-cli", "-e", "-p", str(server.port), *words])


def whole_program(binary, name, *args):
    """Another process, with the PATH of this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    command = ["python3", os.path.join(here, name), "--tern", binary, "--rounds", "1", *args]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if run.returncode != 0:
        raise SystemExit(run.stdout + run.stderr)


def on_one(server, directory):
    name = server.name
    measure = lambda: compare.measure(server, ["-t", "set"], 1, 500, 5)
    several = lambda: cluster.load([server], ["-t", "set"], 1, 500, 5)
    quiet = types.SimpleNamespace(rounds=1, requests=500, clients=5)
    case = lambda: cluster.measure([server], ("SET", ["-t", "set"], None), 1, quiet)
    rate, p50, p99 = measure()
    assert rate > 0 and p99 >= p50 > 0, (rate, p50, p99)
    compare.prepare(server, FAST)
    several()
    case()
    print(f"ok: {name}: a load without errors is a figure")
    with stub(directory, "redis-benchmark", [RATE, "exit 1"]):
        refuses(f"{name}: a figure and exit status 1", measure, "exit status 1")
        refuses(f"{name}: filling, exit status 1", lambda: compare.prepare(server, FAST), "exit status 1")
    with stub(directory, "redis-benchmark", [RATE, "exit 1"]):
        refuses(f"{name}: several servers, exit status 1", several, "exit status 1")
    wrong = f"redis-cli -p {server.port} get > /dev/null"
    with stub(directory, "redis-benchmark", [wrong, RATE]):
        refuses(f"{name}: a figure and error replies", measure, name, "'ERR': 1")
        refuses(f"{name}: filling, error replies", lambda: compare.prepare(server, FAST), name, "'ERR': 1")
    with stub(directory, "redis-benchmark", [wrong, RATE]):
        refuses(f"{name}: several servers, error replies", case, name, "'ERR': 1")
    cli(server, "acl", "setuser", "default", "-set")
    refuses(f"{name}: whoever loads may not write", measure)
    cli(server, "acl", "setuser", "default", "-flushall")
    refuses(f"{name}: whoever prepares may not flush", lambda: compare.prepare(server, None), "NOPERM")
    with without_errors(server):
        cli(server, "ping")


def turns():
    order = []
    for n in range(3):
        assert in_turn("rt", n, lambda which: order.append(which) or which) == ["r", "t"]
    assert "".join(order) == "rttrrt", order
    print("ok: each round begins with the other one")


def direct(server_of):
    """bench/sets.py speaks for itself."""
    server = server_of("tern")
    try:
        refuses("sets: an error reply", lambda: sets.load(server, [sets.request("SADD", "k")]), "ERR")
        refuses("sets: a wrong answer", lambda: sets.timed(lambda: server.integer("SCARD", "k"), 1), "0 instead of 1")
        server.process.kill()
        refuses("sets: a server that ends", lambda: server.integer("SCARD", "k"), "closed")
    except ConnectionError:
        print("ok: sets: a server that ends")
    finally:
        server.process.wait(20)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True)
    binary = os.path.abspath(parser.parse_args().tern)
    turns()
    with tempfile.TemporaryDirectory() as directory:
        for kind in ["redis", "tern"]:
            server = compare.start(kind, binary, "no", directory)
            try:
                on_one(server, directory)
            finally:
                server.stop()
        direct(lambda kind: sets.Server(kind, [binary], os.path.join(directory, "sets")))
        short = ["--requests", "500", "--policies", "no", "--pipelines", "1"]
        for name, args in [("compare.py", [*short, "--only", "PING"]), ("idempotent.py", short)]:
            if name == "compare.py":
                whole_program(binary, name, *args)
                print(f"ok: {name} runs")
            with stub(directory, "redis-benchmark", ['shift; redis-cli -p "$1" get > /dev/null', RATE]):
                refuses(f"{name}: error replies", lambda: whole_program(binary, name, *args), "answered errors")
    print("all checks fail where they should")


if __name__ == "__main__":
    main()
