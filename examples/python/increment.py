"""Counts a page view with fbfkv so that a retry never counts twice.

    python3 increment.py [host:port] [key] [n]      127.0.0.1:6379 page:home 3
"""

import sys
import time
import uuid

import redis
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

# How long one try may take, in seconds. A server that is silent (stopped, or cut off by
# the network) breaks no connection: without a limit, redis-py waits for ever.
TIMEOUT = 2

# How long an increment is retried, in seconds. The table's WINDOW, 120 s by
# default, must be longer.
PATIENCE = 30

# Answers of the server that pass; every other one is final.
PASSING = ("MISCONF", "OOM", "LOADING", "max number of clients")


def increment(client, key, delta):
    """Adds delta to a counter exactly once, however often the connection breaks
    or the server restarts on the way, and returns the counter."""
    opid = uuid.uuid4().hex  # one id per operation, made before the first try
    deadline = time.monotonic() + PATIENCE
    wait = 0.01
    while True:
        try:
            return client.execute_command("CINCRBY", key, opid, delta)
        except (ConnectionError, TimeoutError):
            # The increment may or may not have been applied. The same opid
            # makes trying again harmless.
            if time.monotonic() > deadline:
                raise
        except ResponseError as err:
            if not str(err).startswith(PASSING) or time.monotonic() > deadline:
                raise
        time.sleep(wait)
        wait = min(2 * wait, 1)


def main():
    arguments = sys.argv[1:] + ["127.0.0.1:6379", "page:home", "3"][len(sys.argv) - 1 :]
    address, key, n = arguments
    host, port = address.rsplit(":", 1)
    client = redis.Redis(host=host, port=int(port), socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
    for _ in range(int(n)):
        print(key, increment(client, key, 1), flush=True)


if __name__ == "__main__":
    main()
