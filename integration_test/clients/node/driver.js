// Lets the tests of packages_test.go use clients/node.
//
//   node driver.js node-redis|ioredis host:port timeout retryFor
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import { createClient, createCluster } from 'redis';
import { Counters, Op } from '../../../clients/node/index.js';

const [library, address, timeout, retryFor] = process.argv.slice(2);
const urls = address.split(',').map((a) => `redis://${a}`);
const client = {
  ioredis: () => (urls[1] ? new Redis.Cluster(urls, { redisOptions: { socketTimeout: Number(timeout) } }) : new Redis(urls[0], { lazyConnect: true })),
  'node-redis': () => (urls[1] ? createCluster({ rootNodes: urls.map((url) => ({ url })) }) : createClient({ url: urls[0] })),
}[library]();
client.on('error', () => {});
const counters = new Counters(client, { timeout: Number(timeout), retryFor: Number(retryFor) });

// failed describes an error; with a TypeError the package itself refuses.
const failed = (err) => ({ error: err.message, ...(err instanceof TypeError ? { code: 'ARGUMENT', outcome: 'not applied' }
  : { code: err.code, outcome: err.outcome, op: String(err.op ?? '') }) });
const outcome = (value) => (value instanceof Error ? failed(value) : { value: String(value) });

// shown returns a result with all numbers as text: true is 1, and null is nothing.
function shown(value) {
  if (Array.isArray(value)) return value.map(shown);
  if (value !== null && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([name, v]) => [name, shown(v)]));
  return String(typeof value === 'boolean' ? Number(value) : value ?? '');
}

const pairs = (items) => items.flatMap((item, i) => (i % 2 ? [] : [[item, items[i + 1]]]));

async function serve({ do: what, key, delta, ops, opid: id, min: lbound, max: ubound, expire: px, enx, saturate, items, burst, count, period, quantity }) {
  const options = { id, lbound, ubound, px, enx };
  switch (what) {
    case 'add': return shown(await counters.add(key, BigInt(delta), { ...options, status: true }));
    case 'addmany': return shown(await counters.addMany(pairs(items), options));
    case 'limit': return shown(await counters.limit(key, { ...options, by: delta, saturate }));
    case 'hold': return shown(await counters.hold(key, delta, options));
    case 'settle': return shown(await counters.settle(key, id, delta, options));
    case 'cancel': return shown(await counters.cancel(key, id));
    case 'held': return shown(await counters.held(key));
    case 'throttle': return shown(await counters.throttle(key, { id, burst, count, period, quantity }));
    case 'drain': return { value: shown(await counters.drain(key, options)) };
    case 'bloom': return shown(await counters.bloomAdd(key, items, options));
    case 'sketch': return shown(await counters.sketchAdd(key, pairs(items), options));
    case 'newop': return { op: String(await counters.newOp(key, BigInt(delta))) };
    case 'text': return outcome(await counters.do(ops[0]));
    case 'numbers': {
      const other = new Counters(client, { numbers: true });
      const value = await other.add(key, BigInt(delta)).finally(() => other.close());
      return outcome(`${typeof value} ${value}`);
    }
    case 'careless': { // calls that the language lets pass
      const calls = [{ id: null }, { ID: 'x' }, { uBound: 0 }, { at: 1 }].map((o) => counters.add(key, 1, o));
      const ends = await Promise.allSettled([...calls, counters.add(undefined, 1), counters.cancel(key), counters.bloomAdd(key, 'abc')]);
      return outcome(ends.filter((end) => !(end.reason instanceof TypeError)).length);
    }
    case 'close': return outcome(String(counters.close()));
    case 'do': return outcome(await counters.do(Op.parse(ops[0])));
    default: return { results: (await counters.doAll(ops.map((op) => Op.parse(op)))).map(outcome) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  serve(request).catch(failed).then((answer) => console.log(JSON.stringify({ ...answer, id: request.id })));
}
