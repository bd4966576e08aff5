// Counts a page view with fbfkv so that a retry never counts twice.
//
//   node increment.js [url] [key] [n]        redis://127.0.0.1:6379 page:home 3
import { createClient, ErrorReply } from 'redis';
import { v7 as uuidv7 } from 'uuid';
import { setTimeout as sleep } from 'node:timers/promises';

const [url = 'redis://127.0.0.1:6379', key = 'page:home', n = '3'] = process.argv.slice(2);

// How long one try may take. A server that is silent (stopped, or cut off by the
// network) breaks no connection: without a limit, node-redis waits for ever.
const timeout = 2_000;

// How long an increment is retried. The table's WINDOW, 120 s by default, must
// be longer.
const patience = 30_000;

// Answers of the server that pass; every other one is final.
const passing = /^(MISCONF|OOM|LOADING|ERR max number of clients)/;

// increment adds delta to a counter exactly once, however often the connection
// breaks or the server restarts on the way.
async function increment(client, key, delta) {
  const opid = uuidv7(); // one id per operation, made before the first try
  const deadline = Date.now() + patience;
  for (let wait = 10; ; wait = Math.min(2 * wait, 1000)) {
    try {
      return await withTimeout(client, client.sendCommand(['CINCRBY', key, opid, String(delta)]));
    } catch (err) {
      if (err instanceof ErrorReply && !passing.test(err.message)) throw err;
      if (Date.now() > deadline) throw err;
      // A timeout, a broken connection, a server that starts: the increment may
      // or may not have been applied. The same opid makes trying again harmless.
      await sleep(wait);
    }
  }
}

// withTimeout gives up a connection on which a reply does not come: all that wait for it
// fail, and try again. (node-redis' own timeout of a command ends when the command is
// written, and socketTimeout begins anew with each one that is written.)
function withTimeout(client, reply) {
  const timer = setTimeout(() => {
    client.destroy();
    client.connect();
  }, timeout);
  return reply.finally(() => clearTimeout(timer));
}

const client = createClient({
  url,
  disableOfflineQueue: true, // fail at once while disconnected: increment tries again
  socket: {
    socketTimeout: timeout, // also while it connects
    reconnectStrategy: (retries) => Math.min(10 * 2 ** retries, 1000),
  },
});
client.on('error', (err) => console.error('connection:', err.message || err.code));
client.connect().catch(() => {}); // not awaited: increment waits for it, and gives up in time
for (let i = 0; i < Number(n); i++) {
  console.log(key, Number(await increment(client, key, 1)));
}
client.destroy();
