"""What errors say of an operation."""

import time
from typing import NamedTuple, Optional

import redis.exceptions

from .op import Op

UNKNOWN = "outcome unknown"  # do with the same Op, within the WINDOW, finds out
NOT_APPLIED = "not applied"  # and no try that is still under way can change that


class Error(Exception):
    """What became of an operation without a value.

    op is the operation; its id is empty if it was not made yet, since the server could not
    be asked for the time. outcome is UNKNOWN or NOT_APPLIED: of an operation that may have
    been sent before (by do, which cannot know), the latter only with the codes
    MISMATCH, ARGUMENT, ENDED and EXPIRED. code is the first word of the server's answer, or None. cause is the most telling error of all
    tries: the last answer of the server, else the last failure of a connection, else that there
    was no answer in time. server is the address that was asked (of a cluster those that it was
    given), tries is how many failed, and elapsed the seconds that they took.
    """

    def __init__(
        self, op: Op, outcome: str, code: Optional[str], cause: BaseException, server: str = "", tries: int = 1, elapsed: float = 0.0
    ) -> None:
        super().__init__(op, outcome, code, cause, server, tries, elapsed)  # as pickle needs it, to bring it from another process
        self.op, self.outcome, self.code, self.cause = op, outcome, code, cause
        self.server, self.tries, self.elapsed = server, tries, elapsed
        self.__cause__ = cause  # is shown with it

    def __str__(self) -> str:
        op = self.op
        tries = f" after {self.tries} tries in {self.elapsed:.1f} s" if self.tries > 1 else ""
        at = f" at {self.server}" if self.server else ""
        what = f"add {op.delta} to" if op.delta is not None else op.words[0]
        return f"fbfkv: {what} {op.key!r} (opid {op.id!r}): {self.outcome}{tries}{at}: {self.cause}"


class Stale(Error):
    """The operation is older than what the table remembers. Unless add made it just now, it
    may have been applied long ago: look at the counter."""


class Mismatch(Error):
    """The opid belongs to another operation, with another delta."""


class Future(Error):
    """The operation's time is later than the server's clock and SKEW allow."""


class Argument(Error):
    """The server can never apply the operation as it is: its opid or its key is empty or too
    long, or its time is no time in milliseconds."""


class Overflow(Error):
    """The counter would leave the range of signed 64-bit integers."""


class WrongType(Error):
    """The key holds a filter, not a counter."""


class Misconf(Error):
    """The server refuses writes, since its disk is full or has failed."""


class Loading(Error):
    """The server starts."""


class OutOfMemory(Error):
    """A memory cap of the server or the table is reached."""


class Moved(Error):
    """The node does not lead the key's shard, and its redirects led nowhere."""


class TryAgain(Error):
    """The shard lost its leader before it knew the outcome."""


class Bound(Error):
    """The counter would leave the operation's bounds or its table's MIN or MAX."""


class NoRights(Error):
    """The region's share of what the table's bounds leave is used up."""


class NoHold(Error):
    """No hold with this opid is known: it was not opened, or it ended longer ago than the window."""


class Ended(Error):
    """The hold was settled with another amount, or cancelled."""


class Expired(Error):
    """The hold's time had come: if it must count, add it with a new opid."""


class Unreadable(Error):
    """A filter or a sketch is damaged: delete the key or restore a backup."""


class Collision(Error):
    """64 other operations have the same hash: use a new opid."""


class Sketch(Error):
    """The count-min sketch does not exist, or cannot count so far."""


class CrossSlot(Error):
    """In a cluster the keys of an operation must be in one slot."""


class ClusterDown(Error):
    """The key's shard has no leader, or the replica has lost it."""


class ReadOnly(Error):
    """The node or the region takes no writes."""


class Denied(Error):
    """The server wants a login, or the user lacks a permission."""


class TooManyClients(Error):
    """The server has as many clients as maxclients allows."""


_TYPES = {
    "STALE": Stale, "MISMATCH": Mismatch, "FUTURE": Future, "ARGUMENT": Argument, "OVERFLOW": Overflow, "WRONGTYPE": WrongType,
    "MISCONF": Misconf, "LOADING": Loading, "OOM": OutOfMemory, "MOVED": Moved, "ASK": Moved, "TRYAGAIN": TryAgain, "UNKNOWN": TryAgain,
    "BOUND": Bound, "NORIGHTS": NoRights, "NOHOLD": NoHold, "ENDED": Ended, "EXPIRED": Expired, "UNREADABLE": Unreadable,
    "COLLISION": Collision, "CMS:": Sketch, "CROSSSLOT": CrossSlot, "CLUSTERDOWN": ClusterDown, "MASTERDOWN": ClusterDown,
    "READONLY": ReadOnly, "NOAUTH": Denied, "WRONGPASS": Denied, "NOPERM": Denied, "MAXCLIENTS": TooManyClients,
}  # fmt: skip

# redis-py makes a class of its own of some answers, and takes their first word away.
_WORDS = {
    "BusyLoadingError": "LOADING", "ReadOnlyError": "READONLY", "TryAgainError": "TRYAGAIN", "MovedError": "MOVED",
    "AskError": "ASK", "ClusterDownError": "CLUSTERDOWN", "MasterDownError": "MASTERDOWN", "OutOfMemoryError": "OOM",
    "NoPermissionError": "NOPERM", "AuthenticationError": "NOAUTH", "AuthenticationWrongNumberOfArgsError": "NOAUTH",
}  # fmt: skip

# The answers that have no word of their own, by what they hold.
_TEXTS = {
    "increment or decrement would overflow": "OVERFLOW",
    "operation time is in the future": "FUTURE",
    "max number of clients": "MAXCLIENTS",
    "opid must be": "ARGUMENT",
    "key must be": "ARGUMENT",
    "AT is a time in milliseconds": "ARGUMENT",
    "the key cannot be read": "UNREADABLE",
    "64 other operations": "COLLISION",
}

_LOST = ("MOVED", "ASK", "CLUSTERDOWN", "MASTERDOWN", "READONLY")


def code_of(err):
    """Returns the first word of the server's answer that err is, or None."""
    for text, code in _TEXTS.items():
        if text in str(err):
            return code
    word = _WORDS.get(type(err).__name__)
    if word or not isinstance(err, redis.exceptions.ResponseError):
        return word
    first = str(err).split(" ", 1)[0]
    return first if first in _TYPES or first == "BUSY" else "ERR"


class Verdict(NamedTuple):
    """What one try says of an operation."""

    again: bool = False  # another try may end otherwise
    unknown: bool = False  # this try may have been applied, or may be later
    lost: bool = False  # the key's node may be another one than the map says


def judge(err):
    """Judges one try by its error, or None."""
    if err is None:
        return Verdict()
    code = code_of(err)
    if code == "MISCONF":
        return Verdict(again=True, unknown="nothing was applied" not in str(err))
    if code in ("TRYAGAIN", "UNKNOWN"):
        return Verdict(again=True, unknown=True)
    if code in _LOST:
        return Verdict(again=True, lost=True)
    if code:
        return Verdict(again=code in ("LOADING", "OOM", "BUSY", "MAXCLIENTS"))
    # While its map of a cluster changes redis-py also raises Python's own: IndexError (4.3, every leader is
    # another), RuntimeError (two tasks read the map), ValueError (one closes the connection of the other).
    library = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError, IndexError, RuntimeError, ValueError)
    if isinstance(err, redis.exceptions.DataError):
        return Verdict()  # an argument is no text and no number: nothing was sent
    if not isinstance(err, library):
        return Verdict(unknown=True)  # such as a mistake in our caller's arguments
    if "connecting to" in str(err):  # nothing was sent
        return Verdict(again=True, lost=True)
    return Verdict(again=True, unknown=True, lost=True)


class Trail:
    """What the tries of an operation leave for its error."""

    def __init__(self, server):
        self.server, self.begun, self.tries, self.told = server, time.monotonic(), 0, None

    def note(self, err):
        self.tries += 1
        if self.told is None or _telling(err) >= _telling(self.told):
            self.told = err

    def failure(self, op, fresh, unknown, err):
        """Describes an operation that ended in err.

        unknown says that one of our tries may have been applied, fresh that nobody can have
        sent the operation before.
        """
        if isinstance(err, Error):  # of learn
            return type(err)(op, err.outcome if fresh else UNKNOWN, *err.args[2:])
        code = code_of(err)
        # Of an operation that may have been sent before, a refusal says only that this server has not applied it so
        # far. Another region may have, and an earlier try may still be on its way.
        certain = not unknown and fresh or code in ("MISMATCH", "ARGUMENT", "ENDED", "EXPIRED")
        told = code_of(self.told)
        elapsed = time.monotonic() - self.begun
        return _TYPES.get(told, Error)(op, NOT_APPLIED if certain else UNKNOWN, told, self.told, self.server, self.tries, elapsed)


def _telling(err):
    """Ranks errors by what they tell of the reason."""
    if code_of(err):
        return 2
    return 0 if isinstance(err, (redis.exceptions.TimeoutError, TimeoutError)) else 1
