// ioredis against fbfkv: see clients_test.go for what the steps are for.
//
//   node ioredis.js host:port 2
import Redis from 'ioredis';
import assert from 'node:assert';
import { v7 as uuidv7 } from 'uuid';

const [address] = process.argv.slice(2);
const [host, port] = address.split(':');
const redis = new Redis({
  host,
  port: Number(port),
  connectionName: 'ioredis',
  // After a reconnect ioredis sends again what was not answered. The command
  // is the same, so the opid is the same, and nothing is counted twice. With
  // INCRBY this default counts twice.
  autoResendUnfulfilledCommands: true,
  maxRetriesPerRequest: null, // for ever; in earnest: less than the table's WINDOW
  socketTimeout: 2000, // else it waits for ever for a server that is silent
  retryStrategy: () => 20,
});
redis.on('error', () => {}); // a broken connection is what this is about

const increment = (key) => redis.call('CINCRBY', key, uuidv7(), '1');

assert.equal(await redis.client('GETNAME'), 'ioredis');
assert.match(await redis.client('INFO'), / resp=2/);

const pipeline = redis.pipeline();
for (let i = 0; i < 100; i++) pipeline.call('CINCRBY', 'pipeline', `op-${i}`, '1');
assert.deepEqual(await pipeline.exec(), Array.from({ length: 100 }, (_, i) => [null, i + 1]));

const transaction = redis.multi().call('CINCRBY', 'transaction', 'op', '5').get('transaction');
assert.deepEqual(await transaction.exec(), [[null, 5], [null, '5']]);

assert.equal(await redis.call('CSEEN', 'transaction', 'other'), null);
await assert.rejects(redis.call('CINCRBY', 'transaction', 'op', '6'), /^ReplyError: MISMATCH/);
assert.equal(await redis.call('FBF.ADD', 'filter', 'item'), 1);

let running = true;
process.stdin.on('end', () => { running = false; }).resume();
console.log('ready');
const counts = [0, 0, 0, 0];
await Promise.all(counts.map(async (_, worker) => {
  while (running) assert.equal(await increment(`load:${worker}`), ++counts[worker]);
}));
console.log('applied', counts.reduce((a, b) => a + b));
redis.disconnect();
