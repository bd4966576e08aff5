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

const failed = (err) => ({ error: err.message, code: err.code, outcome: err.outcome, op: String(err.op ?? '') });
const outcome = (value) => (value instanceof Error ? failed(value) : { value: String(value) });

async function serve({ do: what, key, delta, ops }) {
  switch (what) {
    case 'add': return outcome(await counters.add(key, BigInt(delta)));
    case 'newop': return { op: String(await counters.newOp(key, BigInt(delta))) };
    case 'text': return outcome(await counters.do(ops[0]));
    case 'numbers': {
      const other = new Counters(client, { numbers: true });
      const value = await other.add(key, BigInt(delta)).finally(() => other.close());
      return outcome(`${typeof value} ${value}`);
    }
    case 'close': return outcome(String(counters.close()));
    case 'do': return outcome(await counters.do(Op.parse(ops[0])));
    default: return { results: (await counters.doAll(ops.map((op) => Op.parse(op)))).map(outcome) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  serve(request).catch(failed).then((answer) => console.log(JSON.stringify({ id: request.id, ...answer })));
}
