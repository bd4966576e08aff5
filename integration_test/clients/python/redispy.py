"""redis-py against fbfkv: see clients_test.go for what the steps are for.

    python3 redispy.py host:port[,host:port…] 2|3 prefix
"""

import faulthandler
import logging
import os
import sys
import threading
import time
import uuid

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ClusterError, ConnectionError, RedisClusterException, ResponseError, TimeoutError

logging.disable()  # redis-py logs chains of exceptions without end while nodes are lost
faulthandler.enable()  # whoever aborts this program learns where its threads are
addresses, protocol, prefix = sys.argv[1:4]
nodes = [(host, int(port)) for host, port in (a.rsplit(":", 1) for a in addresses.split(","))]
options = {
    "client_name": "redis-py",
    "decode_responses": True,
    "socket_timeout": 2,  # else it waits for ever for a server that is silent
    **({"protocol": 3} if protocol == "3" else {}),
}

def connect():
    if len(nodes) == 1:
        return redis.Redis(*nodes[0], **options)
    return RedisCluster(startup_nodes=[ClusterNode(*node) for node in nodes], cluster_error_retry_attempts=1, **options)


client = connect()
threads = threading.local()  # each has a client of its own of a cluster: redis-py 4.3 mixes up the answers of several


def say(line):
    os.write(1, (line + "\n").encode())  # at once: print may lose what several threads print


def increment(key):
    if len(nodes) == 1:
        threads.client = client
    elif not hasattr(threads, "client"):
        threads.client = connect()
    opid = str(uuid.uuid4())  # one id per operation, made before the first try
    while True:
        try:
            value = threads.client.execute_command("CINCRBY", key, opid, 1)
            say(f"counted {key} {opid} {value}")
            return value
        except (ConnectionError, TimeoutError, ClusterError, RedisClusterException, IndexError):
            # The increment may or may not have been applied. The same opid
            # makes trying again harmless. (redis-py's own Retry does not cover
            # the taking of a connection from the pool.)
            time.sleep(0.02)
            if len(nodes) > 1:  # its cluster client does not get over a lost node in all versions
                try:
                    threads.client = connect()
                except RedisClusterException:
                    pass  # no node knows the cluster at the moment


assert client.client_getname() == "redis-py"
assert client.client_info()["resp"] == protocol

pipeline = client.pipeline(transaction=False)
for i in range(100):
    pipeline.execute_command("CINCRBY", prefix + "pipeline", f"op-{i}", 1)
assert pipeline.execute() == list(range(1, 101))

# The cluster client divides a pipeline, and mget_nonatomic, among the shards.
keys = [f"{prefix}spread:{i}" for i in range(30)]
pipeline = client.pipeline(transaction=False)
for i, key in enumerate(keys):
    pipeline.execute_command("CINCRBY", key, "op", i)
assert pipeline.execute() == list(range(30))
assert (client.mget if len(nodes) == 1 else client.mget_nonatomic)(keys) == [str(i) for i in range(30)]

if len(nodes) == 1:  # else redis-py has no transactions
    transaction = client.pipeline(transaction=True)
    transaction.execute_command("CINCRBY", prefix + "transaction", "op", 5)
    transaction.get(prefix + "transaction")
    assert transaction.execute() == [5, "5"]
else:
    assert client.execute_command("CINCRBY", prefix + "transaction", "op", 5) == 5

assert client.execute_command("CSEEN", prefix + "transaction", "other") is None
try:
    client.execute_command("CINCRBY", prefix + "transaction", "op", 6)
    raise SystemExit("an opid was used for another delta")
except ResponseError as err:
    assert str(err).startswith("MISMATCH"), err
assert client.execute_command("FBF.ADD", prefix + "filter", "item") == 1

# The client's own calls for RedisBloom's commands. A dump is bytes: it is not decoded.
if len(nodes) == 1:
    bf, cms = client.bf(), client.cms()
    assert bf.create("bloom", 0.01, 1000)
    assert bf.madd("bloom", "a", "b", "a") == [1, 1, 0]
    raw = redis.Redis(*nodes[0]).bf()
    iterator = 0
    while True:
        iterator, data = raw.scandump("bloom", iterator)
        if iterator == 0:
            break
        raw.loadchunk("copy", iterator, data)
    assert bf.mexists("copy", "a", "b", "c") == [1, 1, 0]
    info = bf.info("copy")
    assert (info.capacity, info.insertedNum, info.expansionRate) == (1000, 2, 2)
    for key in "x", "y":
        assert cms.initbyprob(key, 0.01, 0.01)
        assert cms.incrby(key, ["a", "b"], [2, 3]) == [2, 3]
    assert cms.merge("x", 2, ["x", "y"], weights=[1, 10])
    assert cms.query("x", "a", "b", "c") == [22, 33, 0]
    sketch = cms.info("x")
    assert (sketch.width, sketch.depth, sketch.count) == (200, 7, 55)

running = True
counts = [0] * 4


def work(worker):
    while running:
        value = increment(f"{prefix}load:{worker}")
        counts[worker] += 1
        if value != counts[worker]:
            say(f"load:{worker} is {value} after {counts[worker]} increments")
            return
        time.sleep(0.06)  # others need the processor


say("ready")
workers = [threading.Thread(target=work, args=(i,)) for i in range(len(counts))]
for w in workers:
    w.start()
sys.stdin.read()
running = False
for w in workers:
    w.join()
say(f"applied {sum(counts)}")
os._exit(0)  # clients that were given up along the way can keep the interpreter from ending
