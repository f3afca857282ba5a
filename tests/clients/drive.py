"""What the programs with redis-py share: their arguments PORT PASSWORD PROTOCOL CONTROL (what CONTROL is for says libraries.rs), how
they connect, what they expect, and how the server is started again.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

PORT, PASSWORD, PROTOCOL = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
CONTROL = pathlib.Path(sys.argv[4])

PLACE = {"host": "127.0.0.1", "port": PORT, "password": PASSWORD, "protocol": PROTOCOL}
WRONG_LOGINS = [{"password": "wrong"}, {"username": "nobody"}, {"password": None}]
EVERY_BYTE = bytes(range(256))
INF = float("inf")


def place(**options):
    """Where the server is, for a client of texts; `options` say otherwise."""
    return {**PLACE, "decode_responses": True, **options}


def row(*items):
    """A pair or triple of a reply as redis-py returns it: a tuple in RESP2, a list in RESP3."""
    return items if PROTOCOL == 2 else list(items)


@contextlib.contextmanager
def fails(error, text=""):
    """The body must fail, with the text in its error."""
    try:
        yield
    except error as e:
        assert text in str(e), e
    else:
        raise AssertionError(f"no {error.__name__}")


def until(what, holds):
    """What `holds` returns once that is something, within 20 s."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if seen := holds():
            return seen
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


def restart():
    (CONTROL / "restart").touch()
    until("a new server", (CONTROL / "restarted").exists)


@contextlib.contextmanager
def process(argument, endings=(0,)):
    """This program again as a worker, in a process group of its own, which ends in good order unless it is killed."""
    log = CONTROL / "worker.log"
    with log.open("w") as output:
        command = [sys.executable, *sys.argv[:5], argument]
        worker = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield worker
        if worker.poll() is None:
            worker.terminate()
            assert worker.wait(20) in endings
    except BaseException:
        print(log.read_text(), file=sys.stderr)
        raise
    finally:
        if worker.poll() is None:
            kill(worker)


def kill(worker):
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def done(library, case):
    print(f"{library} RESP{PROTOCOL}: {case.__name__}", flush=True)
