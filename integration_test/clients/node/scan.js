// Full scans with COUNT 1 by node-redis 4, which keeps a cursor in a double, and
// by ioredis. A client that goes round in circles is stopped.
//
//   node scan.js host:port
import Redis from 'ioredis';
import { createClient } from 'redis4';

const [address] = process.argv.slice(2);

async function scan(name, keys, most) {
  const seen = new Set();
  let returned = 0;
  for await (const key of keys) {
    seen.add(key);
    if (++returned > most) throw new Error(`${name} does not come to an end`);
  }
  console.log(`${name}: ${returned} keys, ${seen.size} different`);
}

async function* flat(pages) {
  for await (const page of pages) yield* page;
}

const redis4 = createClient({ url: `redis://${address}` });
await redis4.connect();
const most = 2 * (await redis4.dbSize());
await scan('node-redis 4', redis4.scanIterator({ COUNT: 1 }), most);
await redis4.disconnect();

const ioredis = new Redis(`redis://${address}`);
await scan('ioredis', flat(ioredis.scanStream({ count: 1 })), most);
ioredis.disconnect();
