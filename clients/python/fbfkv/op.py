"""Operations, their text and their results."""

import os
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, List, NamedTuple, Optional, Tuple, Union
from urllib.parse import quote, unquote_to_bytes

Text = Union[str, bytes]
Number = Union[int, Decimal]  # a Decimal of a table with SCALE

# The commands whose reply is a counter, and those whose reply is a list; WITHSTATUS adds whether this try applied it.
_ADDITIONS = ("CINCRBY", "CDECRBY", "CINCR", "CDECR", "CHOLD", "CSETTLE", "CCANCEL", "CGETDEL")
_LISTS = ("CMINCRBY", "BF.CADD", "CMS.CINCRBY")
_TIMELESS = ("CSETTLE", "CCANCEL", "INCREX", "CL.THROTTLE")  # take no AT


class Result(NamedTuple):
    """A counter, and whether this call applied the operation, not an earlier try, also one of its own."""

    value: Number
    applied: bool


class Results(NamedTuple):
    """As Result, for several counters or items."""

    values: List[Any]
    applied: bool


class Hold(NamedTuple):
    """A hold: value is what would be left if all holds of this sign were settled in full."""

    value: Number
    applied: bool
    id: Text


class Limit(NamedTuple):
    """added is 0 if a bound refused it. ttl: milliseconds until the counter expires, -1: it does not."""

    value: Number
    added: Number
    ttl: int


class Held(NamedTuple):
    """A counter without its open holds, the sums of the positive and of the negative ones, and their number."""

    value: Number
    up: Number
    down: Number
    open: int


class Throttle(NamedTuple):
    """In seconds: when a retry can succeed (-1: it was not limited, or never can), and when all is there again."""

    limited: bool
    limit: int
    remaining: int
    retry_after: int
    full_after: int


@dataclass(frozen=True)
class Op:
    """One operation: it counts once, however often and by whomever it is sent.

    str(op) is text that the fbfkv packages of all languages read; of another operation than a plain addition it is the
    command.
    """

    key: Text  # the counter
    id: Text  # the opid, 1 to 512 bytes, unique among the operations on key
    delta: Optional[Number]  # what an addition adds; None of another operation
    at: int = 0  # when it was made, in Unix milliseconds of the server's clock; 0: not known
    words: Tuple[Any, ...] = ()  # the command, if it is more than key, opid and delta
    status: bool = False  # its result tells whether it was applied, too

    def __post_init__(self) -> None:
        if not self.words:
            digits(self.delta, "delta")
        digits(self.at, "at")

    @classmethod
    def of(cls, *words: Union[Text, Number], at: int = 0, status: bool = False) -> "Op":
        """An operation of the words of its command: Op.of("CHOLD", key, id, -2, "PX", 600000).

        The opid of INCREX and CL.THROTTLE is the last word.
        """
        name = words[0]
        for word in words:
            if word is None or isinstance(word, bool):
                raise TypeError(f"fbfkv: {word} is no key, opid, number or item")
        key = words[3 if name == "CMINCRBY" else 1]
        place = -1 if name in ("INCREX", "CL.THROTTLE") else 1 if name == "CMINCRBY" else 2
        id = words[place] if len(words) > place else ""
        plain = name == "CINCRBY" and len(words) == 4
        return cls(key, id, words[3] if name == "CINCRBY" else None, at, () if plain else tuple(words), status)

    def keys(self) -> Tuple[Text, ...]:
        """The counters that it changes."""
        many = self.words and self.words[0] == "CMINCRBY"
        return self.words[3 : 3 + 2 * int(self.words[2]) : 2] if many else (self.key,)

    def __str__(self) -> str:
        if self.words:
            return " ".join(_escape(word) for word in self.command())
        return f"{_escape(self.key)} {self.delta} {_escape(self.id)} {self.at}"

    @classmethod
    def parse(cls, text: str) -> "Op":
        """Reads an operation from its text."""
        try:
            key, delta, id, at = text.split(" ")
            op = cls(_unescape(key), _unescape(id), _number(delta), int(at))
        except (ValueError, ArithmeticError) as err:
            raise ValueError(f"fbfkv: {text!r} is not an operation: want key, delta, opid and time") from err
        if not op.key or not op.id or op.at < 0:
            raise ValueError(f"fbfkv: {text!r} is not an operation: the key or the opid is empty, or the time is negative")
        return op

    def command(self) -> Tuple[Any, ...]:
        """The command that sends the operation.

        AT ends a list of items, also without a time: an item may have the name of an option.
        """
        words = self.words or ("CINCRBY", self.key, self.id, self.delta)
        words = tuple(format(word, "f") if isinstance(word, Decimal) else word for word in words)  # redis-py sends none
        timed = words[0] in ("BF.CADD", "CMS.CINCRBY") or self.at and words[0] not in _TIMELESS
        return words + (("WITHSTATUS",) if self.status else ()) + (("AT", self.at) if timed else ())

    def read(self, reply: Any) -> Any:
        """Makes the operation's result of the server's reply."""
        name = self.words[0] if self.words else "CINCRBY"
        if name in _ADDITIONS:
            if not isinstance(reply, list):
                return _number(reply)
            value, applied = _number(reply[0]), bool(reply[1])
            return Hold(value, applied, self.id) if name == "CHOLD" else Result(value, applied)
        if name in _LISTS:
            values, *applied = reply if isinstance(reply[0], list) else [reply]
            values = [bool(v) if name == "BF.CADD" else _number(v) for v in values]
            return Results(values, bool(applied[0])) if applied else values
        if name == "INCREX":
            return Limit(_number(reply[0]), _number(reply[1]), int(reply[2]))
        if name == "CHELD":
            return Held(*map(_number, reply[:3]), int(reply[3]))
        if name == "CL.THROTTLE":
            return Throttle(bool(reply[0]), *map(int, reply[1:]))
        return reply


def _number(digits: Any) -> Any:
    """Returns a counter: an int, or a Decimal if it has decimals; None if there is none."""
    if digits is None or isinstance(digits, int):
        return digits
    text = digits.decode() if isinstance(digits, bytes) else str(digits)
    return Decimal(text) if "." in text else int(text)


def digits(n: Any, name: str) -> Any:
    """Returns a number that the server reads."""
    if not isinstance(n, Decimal) and (not isinstance(n, int) or not -(2**63) <= n < 2**63):
        raise ValueError(f"fbfkv: {name} is {n!r}, not a signed 64-bit integer")
    return n


def _escape(word: Any) -> str:
    return quote(word if isinstance(word, bytes) else str(word), safe=":")


def _unescape(word: str) -> Union[str, bytes]:
    raw = unquote_to_bytes(word)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def uuid7(ms: int) -> str:
    """Returns a UUIDv7 (RFC 9562): 48 bits of milliseconds, then random bits."""
    random = int.from_bytes(os.urandom(10), "big")
    return str(uuid.UUID(int=ms << 80 | 7 << 76 | (random >> 68 & 0xFFF) << 64 | 2 << 62 | random & (1 << 62) - 1))
