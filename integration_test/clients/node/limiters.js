// Limits requests with the stores of clients/node in the libraries that they are for, and with those libraries' own
// stores in memory. A gateway sends some requests again. Prints what each was answered.
//
//   node limiters.js host:port
import { once } from 'node:events';
import express from 'express';
import { rateLimit } from 'express-rate-limit';
import { RateLimiterMemory } from 'rate-limiter-flexible';
import { createClient } from 'redis';
import { Counters } from 'fbfkv';
import { FbfkvStore } from 'fbfkv/express-rate-limit';
import { RateLimiterFbfkv } from 'fbfkv/rate-limiter-flexible';

const header = 'X-Request-ID';
const counters = new Counters(createClient({ url: 'redis://127.0.0.1:6379' }));
const stored = { points: 3, duration: 600, keyPrefix: 'flex' };
const limited = { windowMs: 600_000, legacyHeaders: false, standardHeaders: 'draft-6', keyGenerator: (req) => req.get('X-User') };

// flexible is the middleware that the documentation of rate-limiter-flexible shows.
const flexible = (limiter) => async (req, res, next) => {
  try {
    res.set('RateLimit-Remaining', (await limiter.consume(req.get('X-User'))).remainingPoints);
    next();
  } catch (refused) {
    if (refused instanceof Error) next(refused);
    else res.set('RateLimit-Remaining', refused.remainingPoints).sendStatus(429);
  }
};

const store = new FbfkvStore(counters, { header });
const failing = new FbfkvStore(counters, { header, prefix: 'fail:' });
const limiter = new RateLimiterFbfkv({ ...stored, storeClient: counters, header });
const app = express();
app.use('/express', rateLimit({ ...limited, limit: 3, store }));
app.use('/express-memory', rateLimit({ ...limited, limit: 3 }));
app.use('/flexible', flexible(limiter));
app.use('/flexible-memory', flexible(new RateLimiterMemory(stored)));
app.use('/failing', rateLimit({ ...limited, limit: 3, skipFailedRequests: true, store: failing }));
app.use('/function', rateLimit({ ...limited, limit: async (req) => Number(req.query.limit), store: new FbfkvStore(counters, { header, prefix: 'function:' }) }));
app.use('/many', rateLimit({ ...limited, limit: 1000, store: new FbfkvStore(counters, { header, prefix: 'many:' }) }));
app.use('/many', flexible(new RateLimiterFbfkv({ ...stored, points: 1000, keyPrefix: 'many-flex', storeClient: counters, header })));
app.use((req, res) => { res.sendStatus(req.path.includes('/fail/') ? 500 : 200); });
const server = app.listen(0, '127.0.0.1');
await once(server, 'listening');

async function ask(path, id, user = 'ann') {
  const headers = id ? { [header]: id, 'X-User': user } : { 'X-User': user };
  const response = await fetch(`http://127.0.0.1:${server.address().port}/${path}`, { headers });
  await response.text();
  return `${response.status}/${response.headers.get('RateLimit-Remaining')}`;
}

async function show(path, ids, user) {
  const answers = [];
  for (const id of ids) answers.push(`${id || 'none'} ${await ask(path, id, user)}`);
  console.log(`${path}: ${answers.join(', ')}`);
}

const retried = ['r1', 'r1', 'r2', 'r2', 'r3', 'r4', 'r4', 'r1'];
for (const path of ['express', 'express-memory', 'flexible', 'flexible-memory']) await show(path, retried);
await show('express', ['']);
await store.resetKey('ann');
await limiter.delete('ann');
for (const path of ['express', 'flexible']) await show(path, ['r4', 'r4', 'r1', '', '', 'r4']);
for (const path of ['express/a', 'flexible/a']) await show(path, ['r4'], 'bob'); // another request with this id
await show('failing/ok', ['f1', 'f2']);
for (const id of ['f3', 'f3', 'f4']) {
  await show('failing/fail/', [id]);
  while ((await failing.get('ann')).totalHits !== 2); // it is taken back when the answer has gone
}
await show('failing/ok', ['f5', 'f6', 'f6']);
await show('function?limit=1', ['l1', 'l2', 'l1']);
await show('function?limit=2', ['l2']);
await Promise.all(Array.from({ length: 200 }, (_, i) => ask(`many?${i % 100}`, `m${i % 100}`)));
console.log('many:', ...await Promise.all(['many:ann', 'many-flex:ann'].map((key) => counters.command('GET', key))));
const consumed = async (points, id) => limiter.consume('job', points, { id }).then((res) => res.consumedPoints, (res) => `refused at ${res.consumedPoints}`);
console.log(await consumed(2, 'j1'), await consumed(2, 'j1'), await consumed(2, 'j2'), await consumed(1, 'j2'));
console.log((await limiter.get('job')).remainingPoints, (await limiter.get('nobody')), (await store.get('ann')).totalHits, (await failing.get('ann')).totalHits);
await limiter.block('job', 60);
console.log(await consumed(1, 'j3'), (await limiter.reward('job', 4)).consumedPoints, await consumed(3, 'j3'));

await counters.command('CTABLE', 'CREATE', 'money', 'PREFIX', 'money:', 'SCALE', 2); // decimals are text
console.log(await counters.add('money:a', '1.50'), (await counters.addMany({ 'money:a': '-0.25', 'money:b': '0.25' })).values,
  (await counters.limit('money:a', { by: '0.50', ubound: '2.00' })).value, (await counters.hold('money:a', '-0.75', { px: 60_000 })).value,
  await counters.drain('money:b'));

{ // as the README has it
  const app = express();
  app.use(rateLimit({ windowMs: 60_000, limit: 100, store: new FbfkvStore(counters, { header: 'X-Request-ID' }) }));
  app.use((req, res) => { res.sendStatus(200); });
  const shown = app.listen(0, '127.0.0.1');
  await once(shown, 'listening');
  await fetch(`http://127.0.0.1:${shown.address().port}/`);
  const user = 'ann';
  const limiter = new RateLimiterFbfkv({ storeClient: counters, points: 100, duration: 60, header: 'X-Request-ID' });
  await limiter.consume(user);
  await counters.add('stock:fig', 5);
  const { id } = await counters.hold('stock:fig', -2, { id: 'cart-77', ex: 600, lbound: 0 });
  await counters.settle('stock:fig', id, -2); // after ten minutes: an error with the code EXPIRED
  console.log((await limiter.get(user)).consumedPoints, (await counters.held('stock:fig')).value);
}
process.exit();
