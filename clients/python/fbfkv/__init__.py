"""Counts with the server fbfkv so that a retry never counts twice.

    with fbfkv.Counters(redis.Redis()) as counters:
        views = counters.add("page:home", 1)

add makes an operation: an id that no other operation has, and the time by the server's
clock. It sends the operation, each try with a time limit, until there is an answer that
trying again cannot change. However often the connection breaks and the server restarts on
the way, the server applies the operation once. Retries end before the table's WINDOW does;
one that arrives later all the same is refused, not guessed.

An error is a fbfkv.Error. Its attribute outcome says whether the operation is known to be
without effect (NOT_APPLIED) or not known (UNKNOWN).

A program that may crash between asking and knowing makes the operation with new_op, stores
str(op), and sends it with do, again after the crash if need be. do_all sends many
operations in one round trip. fbfkv.asyncio has the same for asyncio.
"""

import threading
import time
from typing import Callable, Union

import redis

from .core import Core, Methods, key_of, own_client
from .errors import (
    NOT_APPLIED, UNKNOWN, Argument, Bound, ClusterDown, Collision, CrossSlot, Denied, Ended, Error, Expired, Future, Loading, Misconf,
    Mismatch, Moved, NoHold, NoRights, OutOfMemory, Overflow, ReadOnly, Sketch, Stale, TooManyClients, TryAgain, Unreadable, WrongType,
)  # fmt: skip
from .op import Held, Hold, Limit, Op, Result, Results, Throttle, uuid7

__all__ = [
    "Counters", "Op", "uuid7", "Held", "Hold", "Limit", "Result", "Results", "Throttle", "Error", "UNKNOWN", "NOT_APPLIED", "Argument",
    "Bound", "ClusterDown", "Collision", "CrossSlot", "Denied", "Ended", "Expired", "Future", "Loading", "Misconf", "Mismatch", "Moved",
    "NoHold", "NoRights", "OutOfMemory", "Overflow", "ReadOnly", "Sketch", "Stale", "TooManyClients", "TryAgain", "Unreadable", "WrongType",
]  # fmt: skip


class Counters(Methods):
    """Counts through connections of its own, with the settings of client.

    client is a redis.Redis or a redis.RedisCluster, which must have a socket_timeout.
    timeout bounds one try, and retry_for is how long tries of an operation begin, both in
    seconds; the last one ends within nine tenths of the table's WINDOW. new_id(ms) makes the opid
    of an operation made at that time: for tables with IDTIME ULID or MS, which do not read
    the UUIDv7 that is the default. Threads may share a Counters.
    """

    def __init__(
        self, client: "Union[redis.Redis, redis.RedisCluster]", timeout: float = 2.0, retry_for: float = 30.0, new_id: Callable[[int], Union[str, bytes]] = uuid7
    ) -> None:
        self._client = own_client(client, timeout)
        self._core = Core(self._client, timeout, retry_for, new_id, threading.Lock())

    def close(self) -> None:
        """Closes the connections that are its own. The client that was given stays open."""
        if not self._core.hides:
            self._client.connection_pool.disconnect()

    def __enter__(self) -> "Counters":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps):
        answer = None
        while True:
            try:
                kind, argument = steps.send(answer)
            except StopIteration as end:
                return end.value
            if kind == "sleep":
                answer = time.sleep(argument)
            elif kind == "reload":
                answer = self._reload()
            else:
                answer = self._send(argument)

    def _send(self, commands):
        if not self._core.hides:
            return _try(self._client, commands)
        answers = self._try_nodes(commands)
        moved = [i for i, answer in enumerate(answers) if isinstance(answer, redis.exceptions.MovedError)]
        if moved:
            nodes = self._client.nodes_manager
            # redis-py 7 calls it move_slot.
            learn = getattr(nodes, "update_moved_exception", None) or nodes.move_slot
            for i in moved:
                learn(answers[i])
                answers[i : i + 1] = self._try_nodes([commands[i]])
        return answers

    def _try_nodes(self, commands):
        """Sends commands to the nodes that they belong to, to all nodes at the same time.

        Not through RedisCluster.execute_command: if a try after its first finds no connection,
        it gives the one of the try before back to the pool once more, and two threads then read
        one another's answers.
        """
        answers = [None] * len(commands)
        places = {}  # by the client of a node: where its commands are
        for i, command in enumerate(commands):
            try:
                places.setdefault(self._node(command), []).append(i)
            except Exception as err:
                answers[i] = redis.exceptions.ConnectionError(f"connecting to the node of {command[1:2]}: {err!r}")

        def send(node):
            for i, answer in zip(places[node], _try(node, [commands[i] for i in places[node]])):
                answers[i] = answer

        others = [threading.Thread(target=send, args=(node,)) for node in list(places)[1:]]
        for other in others:
            other.start()
        for node in list(places)[:1]:
            send(node)
        for other in others:
            other.join()
        return answers

    def _node(self, command):
        """Returns the client of the node that a command is for."""
        cluster = self._client
        key = key_of(command)
        if key is None:
            node = cluster.get_random_node()
        else:
            node = cluster.nodes_manager.get_node_from_slot(cluster.keyslot(key))
        client = cluster.get_redis_connection(node)
        if client is None:
            raise LookupError("it was lost this moment")
        return client

    def _reload(self):
        nodes = self._client.nodes_manager
        try:
            try:
                nodes.initialize()
            except Exception:
                # redis-py 4.3 fails on a node that it has no connection to, whatever others say.
                nodes.startup_nodes = {k: n for k, n in nodes.startup_nodes.items() if n.redis_connection}
                nodes.initialize()
        except Exception:
            pass  # no node can tell yet: the next try finds out


def _try(client, commands):
    """Sends commands to one server, once, and returns a result or an exception for each."""
    try:
        if len(commands) == 1:
            return [client.execute_command(*commands[0])]
        pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return pipeline.execute(raise_on_error=False)
    except Exception as err:
        return [err] * len(commands)
