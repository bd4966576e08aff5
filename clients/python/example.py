"""Counts a page view with fbfkv so that a retry never counts twice.

    python3 example.py [host:port] [key] [n]      127.0.0.1:6379 page:home 3
"""

import sys

import redis

import fbfkv

address, key, n = sys.argv[1:] + ["127.0.0.1:6379", "page:home", "3"][len(sys.argv) - 1 :]
host, port = address.rsplit(":", 1)

client = redis.Redis(host, int(port))
counters = fbfkv.Counters(client)
value = counters.add(key, 1)
for i in range(1, int(n) + 1):
    print(key, value, flush=True)
    if i < int(n):
        value = counters.add(key, 1)
