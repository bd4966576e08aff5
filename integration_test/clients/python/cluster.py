"""redis-py's cluster client against the face of a cluster: see clusterface_test.go.

    python3 cluster.py host:port
"""

import sys

from redis.cluster import RedisCluster

host, port = sys.argv[1].rsplit(":", 1)
cluster = RedisCluster(host=host, port=int(port))
assert len(cluster.get_primaries()) == 3 and len(cluster.get_replicas()) == 1, cluster.get_nodes()
for i in range(30):
    assert cluster.execute_command("CINCRBY", f"python:{i}", "op", 2) == 2
    assert cluster.execute_command("CINCRBY", f"python:{i}", "op", 2) == 2
    assert cluster.incr(f"python:{i}") == 3
pipeline = cluster.pipeline()
for i in range(30):
    pipeline.get(f"python:{i}")
assert pipeline.execute() == [b"3"] * 30
reading = RedisCluster(host=host, port=int(port), read_from_replicas=True)
for i in range(30):  # the replicas of this test have data of their own
    assert reading.get(f"python:{i}") in (b"3", None)
print("ok")
