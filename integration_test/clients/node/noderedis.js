// node-redis against fbfkv: see clients_test.go for what the steps are for.
//
//   node noderedis.js host:port 2|3
import { createClient, ErrorReply, RESP_TYPES } from 'redis';
import assert from 'node:assert';
import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';

const [address, protocol] = process.argv.slice(2);
const client = createClient({
  url: `redis://${address}`,
  RESP: Number(protocol),
  name: 'node-redis',
  disableOfflineQueue: true, // fail at once while disconnected: increment tries again
  socket: { socketTimeout: 2000, reconnectStrategy: () => 20 }, // else it waits for ever for a server that is silent
});
client.on('error', () => {}); // a broken connection is what this is about
await client.connect();

async function increment(key) {
  const opid = uuidv7(); // one id per operation, made before the first try
  for (;;) {
    try {
      return await client.sendCommand(['CINCRBY', key, opid, '1']);
    } catch (err) {
      if (err instanceof ErrorReply) throw err; // an answer: trying again changes nothing
      await sleep(20);
    }
  }
}

assert.equal(await client.clientGetName(), 'node-redis');
assert.match(await client.sendCommand(['CLIENT', 'INFO']), new RegExp(` resp=${protocol}`));

// What is sent in one turn of the event loop goes out as one pipeline.
const sent = Array.from({ length: 100 }, (_, i) => client.sendCommand(['CINCRBY', 'pipeline', `op-${i}`, '1']));
assert.deepEqual(await Promise.all(sent), Array.from({ length: 100 }, (_, i) => i + 1));

const transaction = client.multi().addCommand(['CINCRBY', 'transaction', 'op', '5']).get('transaction');
assert.deepEqual(await transaction.exec(), [5, '5']);

assert.equal(await client.sendCommand(['CSEEN', 'transaction', 'other']), null);
await assert.rejects(client.sendCommand(['CINCRBY', 'transaction', 'op', '6']), /MISMATCH/);
assert.equal(await client.sendCommand(['FBF.ADD', 'filter', 'item']), protocol === '3' ? true : 1);

// The client's own calls for RedisBloom's commands. A dump is bytes: it needs Buffers.
assert.deepEqual(await client.bf.mAdd('bloom', ['a', 'b', 'a']), [true, true, false]);
const bytes = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
for (let iterator = 0; ;) {
  const dump = await bytes.bf.scanDump('bloom', iterator);
  if ((iterator = dump.iterator) === 0) break;
  await client.bf.loadChunk('copy', iterator, dump.chunk);
}
assert.deepEqual(await client.bf.mExists('copy', ['a', 'b', 'c']), [true, true, false]);
assert.deepEqual({ ...(await client.bf.info('copy')) }, {
  Capacity: 100, Size: 240, 'Number of filters': 1, 'Number of items inserted': 2, 'Expansion rate': 2,
});
for (const key of ['x', 'y']) {
  await client.cms.initByProb(key, 0.01, 0.01);
  assert.deepEqual(await client.cms.incrBy(key, [{ item: 'a', incrementBy: 2 }, { item: 'b', incrementBy: 3 }]), [2, 3]);
}
await client.cms.merge('x', [{ name: 'x', weight: 1 }, { name: 'y', weight: 10 }]);
assert.deepEqual(await client.cms.query('x', ['a', 'b', 'c']), [22, 33, 0]);
assert.deepEqual({ ...(await client.cms.info('x')) }, { width: 200, depth: 7, count: 55 });

let running = true;
process.stdin.on('end', () => { running = false; }).resume();
console.log('ready');
const counts = [0, 0, 0, 0];
await Promise.all(counts.map(async (_, worker) => {
  while (running) assert.equal(await increment(`load:${worker}`), ++counts[worker]);
}));
console.log('applied', counts.reduce((a, b) => a + b));
client.destroy();
