"""What the programs with redis-py share: their arguments PORT PASSWORD PROTOCOL CONTROL (what CONTROL is for says libraries.rs), how
they connect, what they expect, and how the server is started again.
"""

import contextlib
import pathlib
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


def done(library, case):
    print(f"{library} RESP{PROTOCOL}: {case.__name__}", flush=True)
