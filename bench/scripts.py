#!/usr/bin/env python3
"""Scripts on Tern and on redis-server, in turn, in one run: a counter, the release of a lock, a token bucket, many scripts in
turn, and what one call in a script costs.

    cargo build --release
    python3 bench/scripts.py --tern target/release/tern [--rounds 5] [--requests 40000] [--out bench/results/NAME.md]

Both with appendfsync everysec, keys drawn from 100 000. A load that is answered with errors ends the run (bench/checked.py).
Only ratios of one run mean something. Needs redis-server, redis-cli and redis-benchmark.
"""
import argparse
import datetime
import os
import platform
import socket
import statistics
import sys
import tempfile
import time

from checked import in_turn, output, without_errors
from compare import measure, prepare, processor, start, version
from page import Page, compared
from ranked import read
from sets import request

COUNTER = "return redis.call('incr',KEYS[1])"
RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
BUCKET = """local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local now, cost = tonumber(ARGV[3]), tonumber(ARGV[4])
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(state[1]), tonumber(state[2])
if tokens == nil then
  tokens, at = burst, now
end
local passed = math.max(0, now - at)
tokens = math.min(burst, tokens + passed * rate)
local allowed = 0
if tokens >= cost then
  tokens = tokens - cost
  allowed = 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate) * 1000)
return {allowed, tostring(tokens)}"""
KEY = "key:__rand_int__"
LOCKS = ["-r", "100000", "-n", "300000", "-P", "16", "set", KEY, "token"]
# The cases: name, script, its arguments, and what is there before.
CASES = [
    ("counter (one INCR)", COUNTER, [], None),
    ("release of a lock (GET, DEL)", RELEASE, ["token"], LOCKS),
    ("token bucket (HMGET, HSET, PEXPIRE)", BUCKET, ["10", "100", "__rand_int__", "1"], None),
]
SCRIPTS = 1000
WINDOW = 16
CALLS = 1000


def loaded(server, script):
    return output(["redis-cli", "-e", "-p", str(server.port), "script", "load", script]).strip()


def rate(server, requests):
    """Requests a second of one client, WINDOW of them at once."""
    windows = [b"".join(requests[at:at + WINDOW]) for at in range(0, len(requests), WINDOW)]
    with socket.create_connection(("127.0.0.1", server.port), 60) as s, s.makefile("rb", buffering=1 << 16) as replies:
        begin = time.perf_counter()
        for window in windows:
            s.sendall(window)
            for _ in range(WINDOW):
                read(replies)
        return len(windows) * WINDOW / (time.perf_counter() - begin)


def in_a_row(server, scripts, requests):
    digests = [loaded(server, COUNTER + f" -- {n}") for n in range(scripts)]
    return rate(server, [request("EVALSHA", digests[n % scripts], 1, f"key:{n % 1009}") for n in range(requests)])


def a_call(server, name):
    """Microseconds of a call in a script: of a loop with it, without those of an empty loop."""
    def took(body):
        script = request("EVAL", f"for i = 1, {CALLS} do {body} end return 1", 1, "key")
        return statistics.median(1 / rate(server, [script] * WINDOW) for _ in range(5))
    return (took(f"redis.call('{name}', KEYS[1])") - took("")) / CALLS * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=40000)
    parser.add_argument("--out")
    a = parser.parse_args()
    binary, page = os.path.abspath(a.tern), Page(a.out)
    say = page.say

    def compare(what, one, **columns):
        rounds = [in_turn(servers, n, one) for n in range(a.rounds)]
        say(f"| {what} | {compared(rounds, **columns)} |")

    say(f"# Scripts: Tern beside redis-server, {datetime.date.today()}")
    say("")
    say(f"Machine: {processor()}, Linux {platform.release()}. {version(['redis-server', '--version'])}. {version([binary, '--version'])}.")
    say(f"`python3 bench/scripts.py {' '.join(sys.argv[1:])}`: medians of {a.rounds} rounds, the servers in turn, in one run; server and "
        "load share the machine. A ratio above 1 is in Tern's favour.")
    say("")
    say("| | redis | tern | ratio | min-max |")
    say("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        servers = [start(kind, binary, "everysec", directory) for kind in ("redis", "tern")]
        try:
            for pipeline in (1, WINDOW):
                for what, script, args, fill in CASES:
                    digests = {server: loaded(server, script) for server in servers}

                    def one(server):
                        prepare(server, fill)
                        words = ["-r", "100000", "evalsha", digests[server], "1", KEY, *args]
                        return measure(server, words, pipeline, a.requests * (5 if pipeline > 1 else 1), 50)[0]
                    compare(f"{what}, 50 clients, -P {pipeline}: a second", one)
            for server in servers:
                prepare(server, None)
            with without_errors(*servers):
                for scripts in (1, SCRIPTS):
                    compare(f"{scripts} scripts in turn, one client, windows of {WINDOW}: a second",
                            lambda server: in_a_row(server, scripts, a.requests))
                for name in ("get", "incr"):
                    compare(f"{name} called in a script, microseconds", lambda server: a_call(server, name),
                            better=lambda redis, tern: redis / tern, form="{:.2f}")
        finally:
            for server in servers:
                server.stop()
    page.keep()


if __name__ == "__main__":
    sys.exit(main())
