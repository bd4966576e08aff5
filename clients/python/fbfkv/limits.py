"""A storage for limits, and so for Flask-Limiter: a request that is sent again counts once.

    import fbfkv.limits
    Limiter(get_remote_address, app=app, storage_uri="fbfkv://127.0.0.1:6379", storage_options={"header": "X-Request-ID"})

header is the one with the request's id. It must be set by a proxy that you trust: a client that may choose it repeats
requests without being counted. Without it each request counts, once. Elsewhere than in Flask the request is named:

    with fbfkv.limits.request(id):
        limiter.hit(limit, user)
"""

import contextlib
import contextvars
import hashlib
import sys
import time
from typing import Any, Dict, Iterator, Optional, Tuple, Type, Union

import redis
from limits.storage import Storage

from . import Counters, Error

_named: "contextvars.ContextVar[Optional[Tuple[str, Dict[str, int]]]]" = contextvars.ContextVar("fbfkv.limits", default=None)


@contextlib.contextmanager
def request(id: str) -> Iterator[None]:
    """Names the request that is served within."""
    token = _named.set((id, {}))
    try:
        yield
    finally:
        _named.reset(token)


class FbfkvStorage(Storage):
    """Counts in fixed windows. Options other than header, timeout and retry_for (of Counters) are redis.Redis.from_url's."""

    STORAGE_SCHEME = ["fbfkv", "fbfkvs"]  # fbfkvs is rediss: with TLS

    def __init__(self, uri: str, header: Optional[str] = None, timeout: float = 2.0, retry_for: float = 2.0, **options: Any) -> None:
        wrap = {"wrap_exceptions": options.pop("wrap_exceptions")} if "wrap_exceptions" in options else {}
        super().__init__(uri, **wrap)
        self._header = header
        self._client = redis.Redis.from_url(uri.replace("fbfkv", "redis", 1), **options)
        self._counters = Counters(self._client, timeout, retry_for)

    @property
    def base_exceptions(self) -> Union[Type[Exception], Tuple[Type[Exception], ...]]:
        return Error

    def incr(self, key: str, expiry: int, elastic_expiry: bool = False, amount: int = 1) -> int:
        """Does not count what is above the limit, which the key tells: a refusal uses up no opid, so that the same request
        may be let in later. With elastic expiry it counts, as a refused request prolongs the window there."""
        most = key.split("/")[-3:-2]
        bound = {"ubound": int(most[0])} if most and most[0].isdigit() and not elastic_expiry else {}
        value, added, _ = self._counters.limit(key, amount, id=self._opid(key, amount), ex=expiry, enx=not elastic_expiry, **bound)
        return int(value + amount - added)

    def get(self, key: str) -> int:
        return int(self._counters.command("GET", key) or 0)

    def get_expiry(self, key: str) -> int:
        return int(time.time() + max(self._counters.command("PTTL", key), 0) / 1000)

    def check(self) -> bool:
        try:
            return bool(self._client.ping())
        except redis.exceptions.RedisError:
            return False

    def reset(self) -> Optional[int]:
        return sum(self._counters.command("DEL", key) for key in self._client.scan_iter("LIMITER/*"))

    def clear(self, key: str) -> None:
        self._counters.command("DEL", key)

    def _opid(self, key: str, amount: int) -> Optional[str]:
        """Names the next operation of the current request on a key: the same if the request is sent again, but another one
        if its cost has changed."""
        flask, named = sys.modules.get("flask"), _named.get()
        if named:
            id, counts = named
        elif self._header and flask and flask.has_request_context() and self._header in flask.request.headers:
            id = f"{flask.request.method} {flask.request.full_path} {flask.request.headers[self._header]}"
            counts = flask.request.environ.setdefault("fbfkv.counts", {})
        else:
            return None
        counts[key] = counts.get(key, -1) + 1
        return hashlib.sha256(f"{counts[key]} {amount} {id}".encode()).hexdigest()
