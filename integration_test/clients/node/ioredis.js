// ioredis against fbfkv: see clients_test.go for what the steps are for.
//
//   node ioredis.js host:port[,host:port…] 2 prefix
import Redis from 'ioredis';
import assert from 'node:assert';
import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';

const [addresses, , prefix] = process.argv.slice(2);
const nodes = addresses.split(',').map((address) => ({ host: address.split(':')[0], port: Number(address.split(':')[1]) }));
const options = {
  connectionName: 'ioredis',
  // After a reconnect ioredis sends again what was not answered. The command
  // is the same, so the opid is the same, and nothing is counted twice. With
  // INCRBY this default counts twice.
  autoResendUnfulfilledCommands: true,
  maxRetriesPerRequest: null, // for ever; in earnest: less than the table's WINDOW
  socketTimeout: 2000, // else it waits for ever for a server that is silent
  retryStrategy: () => 20,
};
const redis = nodes.length === 1 ? new Redis({ ...nodes[0], ...options }) : new Redis.Cluster(nodes, {
  redisOptions: options,
  maxRedirections: 200, // of the cluster client these are its retries as well
  clusterRetryStrategy: () => 20,
  slotsRefreshInterval: 500, // a leader that is gone says MOVED no more, so the map has to be read again
});
redis.on('error', () => {}); // a broken connection is what this is about

async function increment(key) {
  const opid = uuidv7();
  const value = await redis.call('CINCRBY', key, opid, '1');
  console.log('counted', key, opid, value);
  return value;
}

assert.equal(await redis.client('GETNAME'), 'ioredis');
assert.match(await redis.client('INFO'), / resp=2/);

const pipeline = redis.pipeline();
for (let i = 0; i < 100; i++) pipeline.call('CINCRBY', `${prefix}pipeline`, `op-${i}`, '1');
assert.deepEqual(await pipeline.exec(), Array.from({ length: 100 }, (_, i) => [null, i + 1]));

// A pipeline is for one node of a cluster. What is sent at once goes to all of them.
const keys = Array.from({ length: 30 }, (_, i) => `${prefix}spread:${i}`);
assert.deepEqual(await Promise.all(keys.map((key, i) => redis.call('CINCRBY', key, 'op', i))), keys.map((_, i) => i));
assert.deepEqual(await Promise.all(keys.map((key) => redis.get(key))), keys.map((_, i) => `${i}`));

const key = `${prefix}transaction`;
const transaction = redis.multi().call('CINCRBY', key, 'op', '5').get(key);
assert.deepEqual(await transaction.exec(), [[null, 5], [null, '5']]);

assert.equal(await redis.call('CSEEN', key, 'other'), null);
await assert.rejects(redis.call('CINCRBY', key, 'op', '6'), /^ReplyError: MISMATCH/);
assert.equal(await redis.call('FBF.ADD', `${prefix}filter`, 'item'), 1);

let running = true;
process.stdin.on('end', () => { running = false; }).resume();
console.log('ready');
const counts = [0, 0, 0, 0];
await Promise.all(counts.map(async (_, worker) => {
  while (running) {
    assert.equal(await increment(`${prefix}load:${worker}`), ++counts[worker]);
    await sleep(60); // others need the processor
  }
}));
console.log('applied', counts.reduce((a, b) => a + b));
process.exit(0);
