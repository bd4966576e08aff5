"""What errors say of an operation."""

from typing import NamedTuple, Optional

import redis.exceptions

from .op import Op

UNKNOWN = "outcome unknown"  # do with the same Op, within the WINDOW, finds out
NOT_APPLIED = "not applied"  # and no try that is still under way can change that


class Error(Exception):
    """What became of an operation without a value.

    op is the operation; its id is empty if it was not made yet, since the server could not
    be asked for the time. outcome is UNKNOWN or NOT_APPLIED: of an operation that may have
    been sent before (by do, which cannot know), only the server says the latter. code is
    the first word of the server's answer, or None. cause is the error of the last try.
    """

    def __init__(self, op: Op, outcome: str, code: Optional[str], cause: BaseException) -> None:
        super().__init__(op, outcome, code, cause)  # as pickle needs it, to bring it from another process
        self.op, self.outcome, self.code, self.cause = op, outcome, code, cause
        self.__cause__ = cause  # is shown with it

    def __str__(self) -> str:
        op = self.op
        return f"fbfkv: add {op.delta} to {op.key!r} (opid {op.id!r}): {self.outcome}: {self.cause}"


class Stale(Error):
    """The operation is older than what the table remembers. Unless add made it just now, it
    may have been applied long ago: look at the counter."""


class Mismatch(Error):
    """The opid belongs to another operation, with another delta."""


class Future(Error):
    """The operation's time is later than the server's clock and SKEW allow."""


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


_TYPES = {
    "STALE": Stale, "MISMATCH": Mismatch, "FUTURE": Future, "OVERFLOW": Overflow, "WRONGTYPE": WrongType,
    "MISCONF": Misconf, "LOADING": Loading, "OOM": OutOfMemory, "MOVED": Moved, "TRYAGAIN": TryAgain,
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
    return first if first.isupper() else "ERR"


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
    if code == "TRYAGAIN":
        return Verdict(again=True, unknown=True)
    if code in _LOST:
        return Verdict(again=True, lost=True)
    if code:
        return Verdict(again=code in ("LOADING", "OOM", "BUSY", "MAXCLIENTS"))
    # While its map of a cluster changes redis-py also raises Python's own: IndexError (4.3, every leader is
    # another), RuntimeError (two tasks read the map), ValueError (one closes the connection of the other).
    library = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError, IndexError, RuntimeError, ValueError)
    if not isinstance(err, library):
        return Verdict(unknown=True)  # such as a mistake in our caller's arguments
    if "connecting to" in str(err):  # nothing was sent
        return Verdict(again=True, lost=True)
    return Verdict(again=True, unknown=True, lost=True)


def failure(op, fresh, unknown, err):
    """Describes an operation that ended in err.

    unknown says that one of our tries may have been applied, fresh that nobody can have
    sent the operation before.
    """
    if isinstance(err, Error):
        err = err.cause
    code = code_of(err)
    # The server looks for the opid before it looks at the counter.
    is_new = code in ("OVERFLOW", "WRONGTYPE")
    certain = not unknown and (fresh or is_new) or code == "MISMATCH"
    return _TYPES.get(code, Error)(op, NOT_APPLIED if certain else UNKNOWN, code, err)
