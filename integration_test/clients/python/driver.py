"""Lets the tests of packages_test.go use clients/python.

    python3 driver.py sync|asyncio host:port timeout retry_for
"""

import asyncio
import json
import logging
import os
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../clients/python"))

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster

import fbfkv
import fbfkv.asyncio

logging.disable()  # redis-py logs chains of exceptions without end while nodes are lost
mode, address, timeout, retry_for = sys.argv[1:5]
nodes = [(host, int(port)) for host, port in (a.rsplit(":", 1) for a in address.split(","))]
limits = {"timeout": int(timeout) / 1000, "retry_for": int(retry_for) / 1000}
write = threading.Lock()


def outcome(value):
    if isinstance(value, fbfkv.Error):
        value = pickle.loads(pickle.dumps(value))  # as it comes from a pool of processes
        return {"error": str(value), "code": value.code or "", "outcome": value.outcome, "op": str(value.op)}
    if isinstance(value, (ValueError, TypeError)):  # the package itself refuses
        return {"error": str(value), "code": "ARGUMENT", "outcome": "not applied"}
    if isinstance(value, fbfkv.Op):
        return {"op": str(value)}
    if hasattr(value, "_asdict"):
        names = {"retry_after": "retryAfter", "full_after": "fullAfter"}
        return {names.get(name, name): shown(v) for name, v in value._asdict().items()}
    return {"value": shown(value)}


def shown(value):
    """Returns numbers as text: True is 1, and None is nothing."""
    if isinstance(value, list):
        return [shown(v) for v in value]
    return str(int(value) if isinstance(value, bool) else "" if value is None else value)


def pairs(items):
    return [(item, int(n)) for item, n in zip(items[::2], items[1::2])]


def call(counters, request):
    """Begins what a request asks for: an answer, or something to await."""
    what, key, items, id = request["do"], request.get("key"), request.get("items") or [], request.get("opid")
    delta = int(request.get("delta") or 0)
    bounds = {name: int(request[field]) for name, field in (("lbound", "min"), ("ubound", "max")) if field in request}
    expiry = {"px": int(request["expire"])} if "expire" in request else {}
    enx = {"enx": request.get("enx", False)}
    if what == "add":
        return counters.add(key, delta, id=id, status=True, **bounds, **expiry, **enx)
    if what == "addmany":
        return counters.add_many(pairs(items), id=id, **bounds)
    if what == "limit":
        return counters.limit(key, delta, id=id, saturate=request.get("saturate", False), **bounds, **expiry, **enx)
    if what == "hold":
        return counters.hold(key, delta, id=id, **bounds, **expiry)
    if what == "settle":
        return counters.settle(key, id, delta, **bounds)
    if what == "cancel":
        return counters.cancel(key, id)
    if what == "held":
        return counters.held(key)
    if what == "throttle":
        rate = {name: int(request[name]) for name in ("burst", "count", "period", "quantity") if name in request}
        return counters.throttle(key, id=id, **rate)
    if what == "drain":
        return counters.drain(key, id=id)
    if what == "bloom":
        return counters.bloom_add(key, items, id=id)
    if what == "sketch":
        return counters.sketch_add(key, pairs(items), id=id)
    if what == "careless":  # calls that the language lets pass
        return careless(counters, key)
    if what == "newop":
        return counters.new_op(key, delta)
    ops = [fbfkv.Op.parse(op) for op in request.get("ops") or ()]
    return counters.do(ops[0]) if what == "do" else counters.do_all(ops)


def careless(counters, key):
    """Returns how many mistakes are not refused before anything is sent."""
    calls = [
        lambda: counters.add(key, True),
        lambda: counters.add(key, 1, at=1),
        lambda: counters.settle(key, None, 1),
        lambda: counters.bloom_add(key, "abc"),
        lambda: counters.throttle(key, burst=1, count=1.5, period=1),
    ]
    passed = 0
    for one in calls:
        try:
            one()
            passed += 1
        except (TypeError, ValueError):
            pass
    return passed


def shared():
    """Counts the connections that a node's pool would give to two threads at once."""
    free = [node.redis_connection.connection_pool._available_connections for node in client.get_nodes() if node.redis_connection]
    return sum(len(f) - len(set(map(id, f))) for f in free)


def connect(library, cluster):
    """Makes a client of a module of redis-py."""
    if len(nodes) == 1:
        return library.Redis(host=nodes[0][0], port=nodes[0][1])
    return library.RedisCluster(startup_nodes=[cluster.ClusterNode(*node) for node in nodes], socket_timeout=2)


def answer(request, value):
    result = {"results": [outcome(v) for v in value]} if isinstance(value, list) else outcome(value)
    with write:
        print(json.dumps({**result, "id": request["id"]}), flush=True)


def serve(counters, request):
    try:
        answer(request, shared() if request["do"] == "shared" else call(counters, request))
    except (fbfkv.Error, ValueError, TypeError) as err:
        answer(request, err)


async def serve_async(counters, request):
    try:
        answer(request, await call(counters, request))
    except (fbfkv.Error, ValueError, TypeError) as err:
        answer(request, err)


async def main_async():
    loop, tasks = asyncio.get_running_loop(), set()
    async with fbfkv.asyncio.Counters(connect(redis.asyncio, redis.asyncio.cluster), **limits) as counters:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            task = loop.create_task(serve_async(counters, json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


if mode == "asyncio":
    asyncio.run(main_async())
else:
    client = connect(redis, redis.cluster)
    with fbfkv.Counters(client, **limits) as counters, ThreadPoolExecutor(16) as pool:
        for line in sys.stdin:
            pool.submit(serve, counters, json.loads(line))
