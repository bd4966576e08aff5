"""What both clients do, without sending anything themselves.

The functions of Core are generators. They yield ("send", commands), which is answered
with a result or an exception for each command, ("sleep", seconds), and ("reload", None),
which has the map of a cluster read again.
"""

import copy
import random
import time
from dataclasses import replace


from .errors import NOT_APPLIED, Error, Future, Stale, Trail, code_of, judge
from .op import Op

REFRESH_EVERY = 60.0  # how often the server is asked again for its time and windows, in seconds

# The WINDOW, in seconds, if the server does not tell (CTABLE is not permitted to the user):
# the default. Should it be less, the time that each operation carries still has late
# retries refused.
ASSUMED_WINDOW = 120.0


def own_client(client, timeout):
    """Returns a client like the given one that gives up each try in time and retries
    nothing by itself: an error after hidden tries would not say what became of them."""
    if hasattr(client, "nodes_manager"):
        kwargs = client.get_connection_kwargs()
        if not kwargs.get("socket_timeout"):
            raise ValueError("fbfkv: the RedisCluster needs a socket_timeout")
        return client
    pool = copy.copy(client.connection_pool)
    pool.connection_kwargs = {
        **pool.connection_kwargs,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry_on_timeout": False,
        "retry_on_error": [],
        "retry": None,
    }
    pool.reset()
    return type(client)(connection_pool=pool)


class Core:
    """Operations, retries, and what the server told of itself."""

    def __init__(self, client, timeout, retry_for, new_id, lock):
        self.timeout = timeout
        self.retry_for = retry_for
        self.new_id = new_id
        self.lock = lock  # of what follows
        self.hides = hasattr(client, "nodes_manager")  # it retries by itself
        self.server_name = _server_name(client)
        self.known = False
        self.asked = 0.0  # when we had the server's time, by the monotonic clock of this machine
        self.server = 0  # that time, in ms. It was a little later there, so we are never ahead
        self.windows = {}  # by prefix: None until it is needed
        self.names = {}  # of tables, by prefix

    def target(self, command):
        """Returns the arguments by which a RedisCluster knows where a command goes."""
        return {"target_nodes": "random"} if self.hides and command[0] != "CINCRBY" else {}

    def add(self, key, delta):
        deadline = time.monotonic() + self.retry_for
        for first in (True, False):
            op = yield from self.new_op(key, delta, deadline)
            (result,) = yield from self.run([op], True, deadline)
            if isinstance(result, (Stale, Future)) and result.outcome == NOT_APPLIED and first:
                # What we believed of the server's clock is wrong: this machine slept, or
                # the server's clock was set. Nobody has applied the operation, so it may
                # be made anew.
                with self.lock:
                    self.known = False
                continue
            if isinstance(result, Error):
                raise result
            return result

    def new_op(self, key, delta, deadline=None):
        op = Op(key, "", delta)
        yield from self.learn(op, deadline or time.monotonic() + self.retry_for)
        now = self.now()
        return replace(op, id=self.new_id(now), at=now)

    def do(self, op):
        (result,) = yield from self.do_all([op])
        if isinstance(result, Error):
            raise result
        return result

    def do_all(self, ops):
        return (yield from self.run(ops, False, time.monotonic() + self.retry_for))

    def run(self, ops, fresh, deadline):
        """Sends operations until each has an answer that trying again cannot change. Fresh
        ones were made just now and were never sent. No try begins after the deadline, nor so
        late that it could outlast the window."""
        begun = time.monotonic()
        for op in ops:
            try:
                window = yield from self.learn(op, deadline)
            except Error as err:
                return [Trail(self.server_name).failure(op, fresh, False, err) for op in ops]
            deadline = min(deadline, begun + window * 0.9 - self.timeout)
        results = [None] * len(ops)
        unknown = [False] * len(ops)
        trails = [Trail(self.server_name) for _ in ops]
        pending = list(range(len(ops)))
        tries = 0
        while pending:
            tries += 1
            if tries > 1 and not (yield from self.pause(tries, deadline)):
                break
            answers = yield ("send", [ops[i].command() for i in pending])
            again, lost = [], False
            for i, answer in zip(pending, answers):
                err = answer if isinstance(answer, Exception) else None
                verdict = judge(err)
                unknown[i] = unknown[i] or verdict.unknown or (self.hides and err is not None)
                lost = lost or verdict.lost
                if err is None:
                    results[i] = answer
                else:
                    trails[i].note(err)
                    results[i] = trails[i].failure(ops[i], fresh, unknown[i], err)
                if verdict.again:
                    again.append(i)
            pending = again
            if lost and self.hides:
                yield ("reload", None)
        return results

    def pause(self, tries, deadline):
        """Waits before a try: longer each time, up to a second, and never in step with
        other clients. Returns False if there is no time for it."""
        longest = min(0.01 * 2 ** min(tries - 2, 10), 1.0)
        wait = random.uniform(longest / 2, longest)
        if time.monotonic() + wait >= deadline:
            return False
        yield ("sleep", wait)
        return True

    def now(self):
        """Returns the server's time in ms, as far as we know."""
        with self.lock:
            return self.server + int((time.monotonic() - self.asked) * 1000)

    def prefix_of(self, key):
        """Returns the prefix of a key's table: the longest that we know."""
        raw = key.encode() if isinstance(key, str) else bytes(key)
        return max((p for p in self.windows if raw.startswith(p)), key=len, default=None)

    def learn(self, op, deadline):
        """Returns the WINDOW of an operation's table. Asks the server if it must."""
        with self.lock:
            window = self.windows.get(self.prefix_of(op.key)) if self.known else None
            refresh = window and time.monotonic() - self.asked > REFRESH_EVERY
            if refresh:
                self.server += int((time.monotonic() - self.asked) * 1000)
                self.asked = time.monotonic()  # nobody else asks meanwhile
        if refresh:
            yield from self.ask(op.key, True)  # if this fails, what we know still holds
        if window:
            return window
        trail = Trail(self.server_name)
        while True:
            err = yield from self.ask(op.key, False)
            if err is None:
                with self.lock:
                    return self.windows[self.prefix_of(op.key)]
            verdict = judge(err)
            if verdict.lost and self.hides:
                yield ("reload", None)
            trail.note(err)
            if not verdict.again or not (yield from self.pause(trail.tries + 1, deadline)):
                raise trail.failure(op, True, False, err)  # nothing was sent

    def ask(self, key, all):
        """Asks the server for its time, its tables, and the window of a key's table; or, if
        all is to be fresh, of each table that was needed so far. Returns an error or None."""
        (now,) = yield ("send", [("TIME",)])
        if isinstance(now, Exception):
            return now
        asked = time.monotonic()
        (tables,) = yield ("send", [("CTABLE", "LIST")])
        if isinstance(tables, Exception):
            if judge(tables).again or not code_of(tables):
                return tables
            tables = []  # it does not tell
        names = {_raw(prefix): name for name, prefix in _pairs(tables)}
        with self.lock:
            windows = {prefix: self.windows.get(prefix) for prefix in names}
            windows.setdefault(b"", ASSUMED_WINDOW)
            self.windows, old = windows, self.windows
            needed = self.prefix_of(key)
            self.windows = old
        for prefix, name in names.items():
            if prefix != needed and not (all and windows[prefix]):
                continue
            (info,) = yield ("send", [("CTABLE", "INFO", name)])
            if isinstance(info, Exception):
                return info
            ms = {_raw(k): v for k, v in _pairs(info)}.get(b"window")
            windows[prefix] = int(ms) / 1000 if ms else ASSUMED_WINDOW
        with self.lock:
            self.known, self.asked, self.windows = True, asked, windows
            self.server = int(now[0]) * 1000 + int(now[1]) // 1000
        return None


def _server_name(client):
    """Returns the address that a client connects to; of a cluster those that it was given."""
    if hasattr(client, "nodes_manager"):
        return ", ".join(str(getattr(node, "name", node)) for node in client.nodes_manager.startup_nodes.values())
    kwargs = client.connection_pool.connection_kwargs
    return kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"


def _raw(word):
    return word.encode() if isinstance(word, str) else word


def _pairs(reply):
    """Returns names and values of a map, or of a list of both in turn."""
    return list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2]))
