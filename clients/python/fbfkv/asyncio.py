"""The same as fbfkv, for asyncio:

    async with fbfkv.asyncio.Counters(redis.asyncio.Redis()) as counters:
        views = await counters.add("page:home", 1)
"""

import asyncio
import contextlib
from typing import Callable, Union

import redis.asyncio as redis

from .core import Core, Methods, own_client
from .op import uuid7


class Counters(Methods):
    """As fbfkv.Counters, with a redis.asyncio.Redis or redis.asyncio.RedisCluster."""

    def __init__(
        self, client: "Union[redis.Redis, redis.RedisCluster]", timeout: float = 2.0, retry_for: float = 30.0, new_id: Callable[[int], Union[str, bytes]] = uuid7
    ) -> None:
        self._client = own_client(client, timeout)
        self._core = Core(self._client, timeout, retry_for, new_id, contextlib.nullcontext())

    async def close(self) -> None:
        """Closes the connections that are its own. The client that was given stays open."""
        if not self._core.hides:
            await self._client.connection_pool.disconnect()

    async def __aenter__(self) -> "Counters":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, steps):
        answer = None
        while True:
            try:
                kind, argument = steps.send(answer)
            except StopIteration as end:
                return end.value
            if kind == "sleep":
                answer = await asyncio.sleep(argument)
            elif kind == "reload":
                answer = await self._reload()
            else:
                # A request that is cancelled half way would leave its answer to the next
                # one on the connection, in some versions of redis-py: it goes on instead.
                answer = await asyncio.shield(self._send(argument))

    async def _send(self, commands):
        try:
            if len(commands) == 1:
                return [await self._client.execute_command(*commands[0], **self._core.target(commands[0]))]
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute(raise_on_error=False)
        except Exception as err:
            return [err] * len(commands)

    async def _reload(self):
        try:
            await self._client.nodes_manager.initialize()
        except Exception:
            pass  # no node can tell yet: the next try finds out
