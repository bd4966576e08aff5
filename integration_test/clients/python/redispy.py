"""redis-py against fbfkv: see clients_test.go for what the steps are for.

    python3 redispy.py host:port 2|3
"""

import sys
import threading
import time
import uuid

import redis
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

address, protocol = sys.argv[1:3]
host, port = address.rsplit(":", 1)
client = redis.Redis(
    host=host,
    port=int(port),
    client_name="redis-py",
    decode_responses=True,
    socket_timeout=2,  # else it waits for ever for a server that is silent
    **({"protocol": 3} if protocol == "3" else {}),
)


def increment(key):
    opid = str(uuid.uuid4())  # one id per operation, made before the first try
    while True:
        try:
            return client.execute_command("CINCRBY", key, opid, 1)
        except (ConnectionError, TimeoutError):
            # The increment may or may not have been applied. The same opid
            # makes trying again harmless. (redis-py's own Retry does not cover
            # the taking of a connection from the pool.)
            time.sleep(0.02)


assert client.client_getname() == "redis-py"
assert client.client_info()["resp"] == protocol

pipeline = client.pipeline(transaction=False)
for i in range(100):
    pipeline.execute_command("CINCRBY", "pipeline", f"op-{i}", 1)
assert pipeline.execute() == list(range(1, 101))

transaction = client.pipeline(transaction=True)
transaction.execute_command("CINCRBY", "transaction", "op", 5)
transaction.get("transaction")
assert transaction.execute() == [5, "5"]

assert client.execute_command("CSEEN", "transaction", "other") is None
try:
    client.execute_command("CINCRBY", "transaction", "op", 6)
    raise SystemExit("an opid was used for another delta")
except ResponseError as err:
    assert str(err).startswith("MISMATCH"), err
assert client.execute_command("FBF.ADD", "filter", "item") == 1

# The client's own calls for RedisBloom's commands. A dump is bytes: it is not decoded.
bf, cms = client.bf(), client.cms()
assert bf.create("bloom", 0.01, 1000)
assert bf.madd("bloom", "a", "b", "a") == [1, 1, 0]
raw = redis.Redis(host=host, port=int(port)).bf()
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
        value = increment(f"load:{worker}")
        counts[worker] += 1
        if value != counts[worker]:
            print(f"load:{worker} is {value} after {counts[worker]} increments", flush=True)
            return


print("ready", flush=True)
workers = [threading.Thread(target=work, args=(i,)) for i in range(len(counts))]
for w in workers:
    w.start()
sys.stdin.read()
running = False
for w in workers:
    w.join()
print("applied", sum(counts))
