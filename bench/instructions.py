#!/usr/bin/env python3
"""Instructions that a server executes for a command, by callgrind: what a clock cannot tell apart on a busy machine.

    cargo build --release
    python3 bench/instructions.py --tern target/release/tern [--tern ANOTHER ...] [--commands 10000] [--rounds 3]

A server of each binary under callgrind, one connection, one key; windows of 1 and of 16 commands. Each figure is the difference between
a run of three times `--commands` and one of `--commands`, divided by the commands between: without what a start costs. Medians, and the
smallest and largest. What a server does now and then by itself is in it, so figures within a percent are the same. Needs valgrind.
"""
import argparse
import os
import re
import statistics
import tempfile

import sets

CASES = [
    ("GET", ["GET", "key"]),
    ("SET", ["SET", "key", "value"]),
    ("EVAL of a SET", ["EVAL", "return redis.call('set', KEYS[1], ARGV[1])", "1", "key", "value"]),
]
WINDOWS = [1, 16]


def executed(binary, directory, words, window, commands):
    """Instructions of a server's life in which it answers so many commands."""
    out = os.path.join(directory, "callgrind")
    argv = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", binary, "--appendfsync", "no"]
    server = sets.Server("tern", argv, os.path.join(directory, "data"))
    server.socket.sendall(sets.request("SET", "key", "value"))
    want = server.line()
    if words[0] == "GET":
        want = b"$5\r\nvalue\r\n"
    for _ in range(commands // window):
        server.socket.sendall(sets.request(*words) * window)
        answer = b""
        while len(answer) < len(want) * window:
            answer += server.receive(len(want) * window - len(answer))
        if answer != want * window:
            raise SystemExit(f"{' '.join(words)}: {answer[:100]!r}")
    server.stop()
    with open(out) as f:
        return int(re.search(r"^(?:summary|totals): (\d+)", f.read(), re.M).group(1))


def each(binary, words, window, commands):
    def of(n):
        with tempfile.TemporaryDirectory() as directory:
            return executed(binary, directory, words, window, n)

    return (of(3 * commands) - of(commands)) / (2 * commands)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", required=True, action="append")
    parser.add_argument("--commands", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    for name, words in CASES:
        for window in WINDOWS:
            # In turn, so that what the machine does meanwhile is shared.
            rounds = [[each(os.path.abspath(b), words, window, a.commands) for b in a.tern] for _ in range(a.rounds)]
            for binary, seen in zip(a.tern, zip(*rounds)):
                low, middle, high = min(seen), statistics.median(seen), max(seen)
                print(f"{name}, windows of {window}: {binary}: {middle:.0f} ({low:.0f} to {high:.0f})", flush=True)


if __name__ == "__main__":
    main()
