"""Operations, and their text."""

import os
import uuid
from dataclasses import dataclass
from typing import Tuple, Union
from urllib.parse import quote, unquote_to_bytes


@dataclass(frozen=True)
class Op:
    """One operation: it counts once, however often and by whomever it is sent.

    str(op) is text that the fbfkv packages of all languages read.
    """

    key: Union[str, bytes]  # the counter
    id: Union[str, bytes]  # the opid, 1 to 512 bytes, unique among the operations on key
    delta: int  # what it adds
    at: int = 0  # when it was made, in Unix milliseconds of the server's clock; 0: not known

    def __post_init__(self) -> None:
        for number, name in ((self.delta, "delta"), (self.at, "at")):
            if not isinstance(number, int) or not -(2**63) <= number < 2**63:
                raise ValueError(f"fbfkv: {name} is {number!r}, not a signed 64-bit integer")

    def __str__(self) -> str:
        return f"{quote(self.key, safe=':')} {self.delta} {quote(self.id, safe=':')} {self.at}"

    @classmethod
    def parse(cls, text: str) -> "Op":
        """Reads an operation from its text."""
        try:
            key, delta, id, at = text.split(" ")
            op = cls(_unescape(key), _unescape(id), int(delta), int(at))
        except ValueError as err:
            raise ValueError(f"fbfkv: {text!r} is not an operation: want key, delta, opid and time") from err
        if not op.key or not op.id or op.at < 0:
            raise ValueError(f"fbfkv: {text!r} is not an operation: the key or the opid is empty, or the time is negative")
        return op

    def command(self) -> Tuple[Union[str, bytes, int], ...]:
        """The command that sends the operation."""
        return ("CINCRBY", self.key, self.id, self.delta) + (("AT", self.at) if self.at else ())


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
