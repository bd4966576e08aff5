"""What both clients do, without sending anything themselves.

The functions of Core are generators. They yield ("send", commands), which is answered
with a result or an exception for each command, ("sleep", seconds), and ("reload", None),
which has the map of a cluster read again.
"""

import copy
import random
import time
from typing import TYPE_CHECKING, Any, Iterable, List, Mapping, Optional, Tuple, TypedDict, Union

from .errors import NOT_APPLIED, Error, Future, Stale, Trail, code_of, judge
from .op import Held, Hold, Limit, Number, Op, Result, Results, Text, Throttle, digits

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Keys or items with their numbers.
Numbers = Union[Mapping[str, Number], Mapping[bytes, Number], Iterable[Tuple[Text, Number]]]

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


_ID = object()  # where the opid comes in the words of a command
_VALUES = ("lbound", "ubound", "ex", "px", "exat", "pxat")
_FLAGS = ("saturate", "persist", "enx")


class Bounds(TypedDict, total=False):
    """What a counter must not leave: beyond them an operation is refused as a whole, and uses up no opid."""

    lbound: Number
    ubound: Number


class Options(Bounds, total=False):
    """Bounds, and when the counter or the hold expires: in seconds or milliseconds, or at that Unix time.

    With enx only if the counter does not expire yet; persist has it never expire. A duplicate changes no expiry.
    """

    ex: int
    px: int
    exat: int
    pxat: int
    persist: bool
    enx: bool


def _named(words, id, at, status):
    return Op.of(*(id if word is _ID else word for word in words), at=at, status=status)


def _tail(options):
    """Returns the words of bounds and expiry."""
    unknown = set(options) - {*_VALUES, *_FLAGS}
    if unknown:
        raise TypeError(f"fbfkv: there is no option {unknown.pop()}")
    given = [n for n in _VALUES if options.get(n) is not None]
    return [word for n in given for word in (n.upper(), digits(options[n], n))] + [n.upper() for n in _FLAGS if options.get(n)]


def _flat(numbers):
    """Returns keys and their numbers in turn."""
    pairs = numbers.items() if isinstance(numbers, Mapping) else numbers
    return [word for key, n in pairs for word in (key, digits(n, f"the number of {key!r}"))]


def _some(words):
    """Returns keys or items. If there are none, the server would take the option behind them for one."""
    if isinstance(words, (str, bytes)):
        raise TypeError("fbfkv: a list of items is needed, not one text")
    words = list(words)
    if not words:
        raise ValueError("fbfkv: there is nothing to add")
    return words


def key_of(command):
    """Returns the key by which a cluster knows where a command goes, or None."""
    return None if command[0] in ("TIME", "CTABLE") else command[3 if command[0] == "CMINCRBY" else 1]


class Methods:
    """What a Counters does. Of fbfkv.asyncio.Counters all of it is awaited.

    id names an operation that has a name already; without it one is made, with the time. at is when a named one was
    made, in Unix milliseconds of the server's clock.
    """

    def add(
        self, key: Text, delta: Number, *, id: Optional[Text] = None, at: int = 0, status: bool = False, **options: "Unpack[Options]"
    ) -> Any:
        """Adds delta to a counter once and returns the counter after it; with status a Result."""
        return self._once(["CINCRBY", key, _ID, delta, *_tail(options)], id, at, status)

    def add_many(self, deltas: Numbers, *, id: Optional[Text] = None, at: int = 0, **bounds: "Unpack[Bounds]") -> Results:
        """Adds to several counters, all or none: a transfer. In a cluster they are in one slot."""
        flat = _some(_flat(deltas))
        return self._once(["CMINCRBY", _ID, len(flat) // 2, *flat, *_tail(bounds)], id, at, True)

    def limit(
        self, key: Text, by: Number = 1, *, id: Optional[Text] = None, saturate: bool = False, **options: "Unpack[Options]"
    ) -> Limit:
        """Adds to a counter unless a bound refuses it: a quota or a rate limit.

        With saturate it adds what fits. What is refused may be sent again later.
        """
        kind = "BYINT" if isinstance(by, int) else "BYFLOAT"
        tail = _tail({**options, "saturate": saturate})
        return self._once(["INCREX", key, kind, digits(by, "by"), *tail, "WITHTTL", "OPID", _ID], id)

    def hold(self, key: Text, amount: Number, *, id: Optional[Text] = None, at: int = 0, **options: "Unpack[Options]") -> Hold:
        """Sets an amount aside until settle, cancel or the time, which it needs, ends the hold."""
        return self._once(["CHOLD", key, _ID, digits(amount, "amount"), *_tail(options)], id, at, True)

    def settle(self, key: Text, id: Text, amount: Number, **bounds: "Unpack[Bounds]") -> Result:
        """Ends a hold and adds what has happened: more or less than was held, or 0."""
        return self.do(Op.of("CSETTLE", key, id, digits(amount, "amount"), *_tail(bounds), status=True))

    def cancel(self, key: Text, id: Text) -> Result:
        """Ends a hold and adds nothing."""
        return self.do(Op.of("CCANCEL", key, id, status=True))

    def held(self, key: Text) -> Held:
        """Returns a counter and the sums of its open holds."""
        return self.command("CHELD", key)

    def throttle(self, key: Text, *, burst: int, count: int, period: int, quantity: int = 1, id: Optional[Text] = None) -> Throttle:
        """Limits a rate smoothly: count permits in each period of seconds, and burst more at once."""
        numbers = {"burst": burst, "count": count, "period": period, "quantity": quantity}
        return self._once(["CL.THROTTLE", key, *(digits(n, name) for name, n in numbers.items()), "OPID", _ID], id)

    def drain(self, key: Text, *, id: Optional[Text] = None, at: int = 0) -> Optional[Number]:
        """Returns a counter, or None, and deletes it, once."""
        return self._once(["CGETDEL", key, _ID], id, at)

    def bloom_add(self, key: Text, items: Iterable[Text], *, id: Optional[Text] = None, at: int = 0) -> Results:
        """Adds items to a Bloom filter once; the values say which ones were new."""
        return self._once(["BF.CADD", key, _ID, *_some(items)], id, at, True)

    def sketch_add(self, key: Text, items: Numbers, *, id: Optional[Text] = None, at: int = 0) -> Results:
        """Counts items in a count-min sketch once; the values are their estimates."""
        return self._once(["CMS.CINCRBY", key, _ID, *_some(_flat(items))], id, at, True)

    def command(self, *words: Any) -> Any:
        """Sends a command that may arrive twice, such as GET or DEL with one key, until there is an answer."""
        return self._run(self._core.command(words))

    def new_op(self, key: Text, delta: Number) -> Op:
        """Makes an addition that do sends, now or after a crash, within the WINDOW."""
        return self._run(self._core.make(["CINCRBY", key, _ID, delta]))

    def do(self, op: Op) -> Any:
        """Sends an operation until there is an answer, and returns its result: of an addition the counter.

        If it was applied before, do changes nothing and returns the original result (in a
        table with MODE APPROX, the present value).
        """
        return self._run(self._core.do(op))

    def do_all(self, ops: Iterable[Op]) -> List[Any]:
        """Sends operations as one pipeline and returns a result or an Error for each.

        What is not answered is sent again, with its own opid, without the others.
        """
        return self._run(self._core.do_all(list(ops)))

    def _once(self, words, id, at=0, status=False):
        return self._run(self._core.once(words, id, at, status))


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
        return {"target_nodes": "random"} if self.hides and key_of(command) is None else {}

    def once(self, words, id, at, status):
        """Applies an operation once. One that its caller has named may have been sent before."""
        if id is not None:
            return (yield from self.do(_named(words, id, at, status)))
        if at:
            raise ValueError("fbfkv: at is the time of an operation that has an id")
        deadline = time.monotonic() + self.retry_for
        for first in (True, False):
            op = yield from self.make(words, deadline, status)
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

    def make(self, words, deadline=None, status=False):
        yield from self.learn(_named(words, "", 0, status), deadline or time.monotonic() + self.retry_for)
        now = self.now()
        return _named(words, self.new_id(now), now, status)

    def do(self, op):
        (result,) = yield from self.do_all([op])
        if isinstance(result, Error):
            raise result
        return result

    def command(self, words):
        (result,) = yield from self.run([Op.of(*words)], True, time.monotonic() + self.retry_for)
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
                    results[i] = ops[i].read(answer)
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
        """Returns the shortest WINDOW of the tables of an operation's keys. Asks the server if it must."""
        windows = []
        for key in op.keys():
            windows.append((yield from self.window_of(key, op, deadline)))
        return min(windows)

    def window_of(self, key, op, deadline):
        with self.lock:
            window = self.windows.get(self.prefix_of(key)) if self.known else None
            refresh = window and time.monotonic() - self.asked > REFRESH_EVERY
            if refresh:
                self.server += int((time.monotonic() - self.asked) * 1000)
                self.asked = time.monotonic()  # nobody else asks meanwhile
        if refresh:
            yield from self.ask(key, True)  # if this fails, what we know still holds
        if window:
            return window
        trail = Trail(self.server_name)
        while True:
            err = yield from self.ask(key, False)
            if err is None:
                with self.lock:
                    return self.windows[self.prefix_of(key)]
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
