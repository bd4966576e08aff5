// node-redis against fbfkv: see clients_test.go for what the steps are for.
//
//   node noderedis.js host:port[,host:port…] 2|3 prefix
import { BasicClientSideCache, createClient, createCluster, ErrorReply, RESP_TYPES } from 'redis';
import assert from 'node:assert';
import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';

const [addresses, protocol, prefix] = process.argv.slice(2);
const urls = addresses.split(',').map((address) => `redis://${address}`);
const isCluster = urls.length > 1;
const options = {
  RESP: Number(protocol),
  name: 'node-redis',
  disableOfflineQueue: true, // fail at once while disconnected: increment tries again
  socket: { socketTimeout: 2000, reconnectStrategy: () => 20 }, // else it waits for ever for a server that is silent
};
const client = isCluster
  ? createCluster({ rootNodes: urls.map((url) => ({ url })), RESP: Number(protocol), useReplicas: true, defaults: options })
  : createClient({ url: urls[0], ...options });
client.on('error', () => {}); // a broken connection is what this is about
await client.connect();

// send sends a command with a key, of a cluster to the key's leader or to any of its nodes.
const send = (key, args, anyNode = false) => (isCluster ? client.sendCommand(key, anyNode, args) : client.sendCommand(args));

async function increment(key) {
  const opid = uuidv7(); // one id per operation, made before the first try
  for (let failed = 0; ; failed++) {
    try {
      // node-redis reads the map of a cluster again when a node says MOVED. A leader that is
      // gone does not, so another node is asked.
      const value = await send(key, ['CINCRBY', key, opid, '1'], failed % 2 === 1);
      console.log('counted', key, opid, value);
      return value;
    } catch (err) {
      // An answer: trying again changes nothing, but that a leader is found.
      if (err instanceof ErrorReply && !/^(TRYAGAIN|CLUSTERDOWN|MOVED)/.test(err.message)) throw err;
      await sleep(20);
    }
  }
}

const info = await send(undefined, ['CLIENT', 'INFO']);
assert.match(info, new RegExp(` resp=${protocol}`));
assert.match(info, / name=node-redis /);

// What is sent in one turn of the event loop goes out as one pipeline.
const sent = Array.from({ length: 100 }, (_, i) => send(`${prefix}pipeline`, ['CINCRBY', `${prefix}pipeline`, `op-${i}`, '1']));
assert.deepEqual(await Promise.all(sent), Array.from({ length: 100 }, (_, i) => i + 1));

// In a cluster that is a pipeline for each node.
const keys = Array.from({ length: 30 }, (_, i) => `${prefix}spread:${i}`);
assert.deepEqual(await Promise.all(keys.map((key, i) => send(key, ['CINCRBY', key, 'op', `${i}`]))), keys.map((_, i) => i));
assert.deepEqual(await Promise.all(keys.map((key) => send(key, ['GET', key]))), keys.map((_, i) => `${i}`));

const key = `${prefix}transaction`;
const begun = ['CINCRBY', key, 'op', '5'];
const transaction = isCluster ? client.multi().addCommand(key, false, begun) : client.multi().addCommand(begun);
assert.deepEqual(await transaction.get(key).exec(), [5, '5']);

assert.equal(await send(key, ['CSEEN', key, 'other']), null);
await assert.rejects(send(key, ['CINCRBY', key, 'op', '6']), /MISMATCH/);
assert.equal(await send(`${prefix}filter`, ['FBF.ADD', `${prefix}filter`, 'item']), protocol === '3' ? true : 1);

// The client's own calls for RedisBloom's commands. A dump is bytes: it needs Buffers.
if (!isCluster) {
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
}

// A cache in the client needs RESP3, and BCAST with the prefixes of the keys that are cached.
class Cache extends BasicClientSideCache {
  trackingOn() { return ['CLIENT', 'TRACKING', 'ON', 'BCAST', 'PREFIX', `${prefix}cached`]; }
}
if (!isCluster && protocol === '3') {
  const cache = new Cache();
  const reader = await createClient({ url: urls[0], RESP: 3, clientSideCache: cache }).on('error', () => {}).connect();
  for (let n = 1; n <= 3; n++) {
    assert.equal(await send(`${prefix}cached`, ['CINCRBY', `${prefix}cached`, `op-${n}`, '1']), n);
    // The message may be on its way, and drop what was read before it came. Then the value comes from
    // the client's memory.
    for (let hit = false; !hit;) {
      const before = cache.stats().hitCount;
      hit = await reader.get(`${prefix}cached`) === `${n}` && cache.stats().hitCount > before;
      if (!hit) await sleep(1);
    }
  }
  reader.destroy();
}

if (!isCluster && protocol === '2') {
  await client.hotkeysStart({ METRICS: { count: 2, CPU: true, NET: true }, COUNT: 3 });
  await Promise.all(keys.map((_, i) => send(keys[i % 2], ['GET', keys[i % 2]])));
  await client.hotkeysStop();
  const hot = await client.hotkeysGet();
  assert.deepEqual(hot.byNetBytes.map(({ key }) => key), keys.slice(0, 2));
  assert.deepEqual([hot.trackingActive, hot.selectedSlots], [0, [{ start: 0, end: 16383 }]]);
}

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
