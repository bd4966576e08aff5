// The cluster clients of node-redis 5 and 4 and of ioredis against the face of a cluster: see
// clusterface_test.go.
//
//   node cluster.js host:port
import { createCluster } from 'redis';
import { createCluster as createCluster4 } from 'redis4';
import Redis from 'ioredis';
import assert from 'node:assert';

const [address] = process.argv.slice(2);
const [host, port] = address.split(':');

// count counts in all shards; send sends a command with a key.
async function count(name, send) {
  for (let i = 0; i < 30; i++) {
    const key = `${name}:${i}`;
    assert.equal(await send(key, ['CINCRBY', key, 'op', '2']), 2);
    assert.equal(await send(key, ['CINCRBY', key, 'op', '2']), 2);
    assert.equal(await send(key, ['GET', key]), '2');
  }
}

for (const [name, create, send] of [
  ['node-redis', createCluster, (c) => (key, args) => c.sendCommand(key, false, args)],
  ['node-redis 4', createCluster4, (c) => (key, args) => c.sendCommand(key, false, args)],
]) {
  const cluster = create({ rootNodes: [{ url: `redis://${address}` }], useReplicas: true });
  cluster.on('error', (err) => { throw err; });
  await cluster.connect();
  assert.equal(cluster.masters.length, 3);
  assert.equal(cluster.replicas.length, 1);
  await count(name, send(cluster));
  for (let i = 0; i < 30; i++) { // the replicas of this test have data of their own
    assert.ok([null, '2'].includes(await cluster.sendCommand(`${name}:${i}`, true, ['GET', `${name}:${i}`])));
  }
  assert.deepEqual(await cluster.multi().incr('{node}a').incr('{node}a').exec(), name === 'node-redis' ? [1, 2] : [3, 4]);
  cluster.destroy ? cluster.destroy() : await cluster.disconnect();
}

const cluster = new Redis.Cluster([{ host, port: Number(port) }]);
cluster.on('error', (err) => { throw err; });
await count('ioredis', (_, args) => cluster.call(...args));
assert.equal(cluster.nodes('master').length, 3);
assert.equal(cluster.nodes('slave').length, 1);
cluster.disconnect();
console.log('ok');
