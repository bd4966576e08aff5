"""Limits requests with Flask-Limiter and with limits, counting in fbfkv and in their own memory. A gateway sends some
requests again. Prints what each was answered. The test puts its server's address in the place of 127.0.0.1:6379.
"""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import flask
import limits
import redis
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

import fbfkv.limits

HEADER = "X-Request-ID"
uri = "fbfkv://127.0.0.1:6379"


def application(limit, **storage):
    app = flask.Flask(__name__)
    limiter = Limiter(lambda: flask.request.headers["X-User"], app=app, default_limits=[limit], headers_enabled=True, **storage)

    @app.get("/")
    @app.get("/<path:path>")
    def serve(path=""):
        return path

    return app, limiter


def ask(app, id, user="ann", path="/"):
    headers = {"X-User": user, **({HEADER: id} if id else {})}
    response = app.test_client().get(path, headers=headers)
    return f"{id or 'none'} {response.status_code}/{response.headers['X-RateLimit-Remaining']}"


def show(name, app, ids, **request):
    print(f"{name}: " + ", ".join(ask(app, id, **request) for id in ids))


once = {"storage_uri": uri, "storage_options": {"header": HEADER}}
app, limiter = application("3/hour", **once)
retried = ["r1", "r1", "r2", "r2", "r3", "r4", "r4", "r1"]
show("flask", app, retried)
show("memory", application("3/hour", storage_uri="memory://")[0], retried)
show("flask", app, [""])
limiter.reset()
show("flask", app, ["r4", "r4", "r1", "", "", "r4"])
show("flask", app, ["r4"], user="bob")
show("flask", app, ["r4"], user="bob", path="/a")  # another request with this id
many, _ = application("1000/hour", **once)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda i: ask(many, f"m{i % 100}", user="many", path=f"/{i % 100}"), range(200)))
print("many:", ask(many, "", user="many"))  # 101 of 1000

storage = limits.storage.storage_from_string(uri)
limit = limits.parse("3/hour")
for name in ("FixedWindowRateLimiter", "FixedWindowElasticExpiryRateLimiter"):
    strategy = getattr(limits.strategies, name)(storage)
    for id, cost in (("j1", 2), ("j1", 2), ("j2", 2), ("j2", 1), ("j1", 2)):
        with fbfkv.limits.request(id):
            print(strategy.hit(limit, name, cost=cost), end=" ")
    print(strategy.test(limit, name), strategy.get_window_stats(limit, name)[1], storage.check())
    strategy.clear(limit, name)
with fbfkv.limits.request("twice"):  # the second hit of a request is another operation
    print(strategy.hit(limit, "x"), strategy.hit(limit, "x"), strategy.get_window_stats(limit, "x")[1])

# As the README has it.
app = flask.Flask(__name__)
Limiter(get_remote_address, app=app, storage_uri="fbfkv://127.0.0.1:6379", storage_options={"header": "X-Request-ID"})
counters = fbfkv.Counters(redis.Redis("127.0.0.1", 6379))
counters.add("stock:fig", 5)
hold = counters.hold("stock:fig", -2, id="cart-77", ex=600, lbound=0)
counters.settle("stock:fig", hold.id, -2)  # after ten minutes: fbfkv.Expired
print(app.test_client().get("/").status, counters.held("stock:fig").value)

counters.command("CTABLE", "CREATE", "money", "PREFIX", "money:", "SCALE", 2)
added = counters.add("money:a", Decimal("1.50")), *counters.add_many({"money:a": Decimal("-0.25"), "money:b": Decimal("0.25")}).values
limited = counters.limit("money:a", Decimal("0.50"), ubound=Decimal("2.00"))
print(*added, limited.value, counters.hold("money:a", Decimal("-0.75"), px=60000).value, counters.drain("money:b"))
