"""redis-py's helpers for keys of several shards: see shards_test.go.

    python3 shards.py host:port
"""

import sys

from redis.cluster import RedisCluster

host, port = sys.argv[1].rsplit(":", 1)
cluster = RedisCluster(host=host, port=int(port))
keys = [f"helper:{i}" for i in range(60)]
primaries = {"target_nodes": RedisCluster.PRIMARIES}
before = cluster.dbsize(**primaries)
assert cluster.mset_nonatomic({k: i for i, k in enumerate(keys)})
assert cluster.mget_nonatomic(keys) == [str(i).encode() for i in range(60)]
assert cluster.exists(*keys) == 60 and cluster.touch(*keys) == 60
assert sorted(cluster.keys("helper:*", **primaries)) == sorted(k.encode() for k in keys)
assert sorted(cluster.scan_iter("helper:*")) == sorted(k.encode() for k in keys)
assert cluster.dbsize(**primaries) == before + 60
assert cluster.randomkey() is not None
assert cluster.execute_command("CTABLE", "CREATE", "python", "PREFIX", "helper:", target_nodes="random") == b"OK"
assert cluster.unlink(*keys[:30]) == 30 and cluster.delete(*keys[30:]) == 30
assert cluster.dbsize(**primaries) == before
print("ok")
