// Counts with the server fbfkv so that a retry never counts twice. index.d.ts says what
// each function does.
import { FbfkvError, Trail, codeOf, judge } from './errors.js';
import { Op, digits, known, tail, uuidv7 } from './op.js';
import { senderOf } from './sender.js';

export { FbfkvError, Op, uuidv7 };

// How often the server is asked again for its time and windows, in ms.
const refreshEvery = 60_000;

// The WINDOW in ms if the server does not tell (CTABLE is not permitted to the user): the
// default. Should it be less, the time that each operation carries still has late retries
// refused.
const assumedWindow = 120_000;

export class Counters {
  #sender;
  #timeout;
  #retryFor;
  #newId;
  #number; // makes a counter of its digits
  // What the server told of itself.
  #known = false;
  #refreshing = false;
  #asked = 0; // when we had its time, by performance.now()
  #server = 0; // that time. It was a little later there, so we are never ahead
  #tables = []; // {name, prefix, window}: the longest prefix first; the window if it was needed

  constructor(client, { timeout = 2000, retryFor = 30_000, newId = uuidv7, numbers = false } = {}) {
    this.#sender = senderOf(client, timeout);
    this.#timeout = timeout;
    this.#retryFor = retryFor;
    this.#newId = newId;
    this.#number = typeof numbers === 'function' ? numbers : numbers ? Number : number;
  }

  async add(key, delta, options = {}) {
    const more = [digits(delta, 'delta'), ...tail(options)];
    return this.#once(options, (id, at) => Op.of(['CINCRBY', key, id, ...more], at, options.status === true));
  }

  async addMany(deltas, options = {}) {
    const list = some(flat(deltas));
    return this.#once(options, (id, at) => Op.of(['CMINCRBY', id, list.length / 2, ...list, ...tail(options)], at, true));
  }

  async limit(key, options = {}) {
    const by = digits(options.by ?? 1, 'by');
    const words = ['INCREX', key, by.includes('.') ? 'BYFLOAT' : 'BYINT', by, ...tail(options), 'WITHTTL', 'OPID'];
    return this.#once(options, (id, at) => Op.of([...words, id], at));
  }

  async hold(key, amount, options = {}) {
    return this.#once(options, (id, at) => Op.of(['CHOLD', key, id, digits(amount, 'amount'), ...tail(options)], at, true));
  }

  async settle(key, id, amount, options = {}) {
    known(options);
    return this.do(Op.of(['CSETTLE', key, id, digits(amount, 'amount'), ...tail(options)], 0, true));
  }

  async cancel(key, id) {
    return this.do(Op.of(['CCANCEL', key, id], 0, true));
  }

  held(key) {
    return this.command('CHELD', key);
  }

  async throttle(key, { burst, count, period, quantity = 1, ...options }) {
    const words = ['CL.THROTTLE', key, ...Object.entries({ burst, count, period, quantity }).map(([name, n]) => digits(n, name)), 'OPID'];
    return this.#once(options, (id, at) => Op.of([...words, id], at));
  }

  async drain(key, options = {}) {
    return this.#once(options, (id, at) => Op.of(['CGETDEL', key, id], at));
  }

  async bloomAdd(key, items, options = {}) {
    if (typeof items === 'string') throw new TypeError('fbfkv: a list of items is needed, not one text');
    const list = some([...items]);
    return this.#once(options, (id, at) => Op.of(['BF.CADD', key, id, ...list], at, true));
  }

  async sketchAdd(key, items, options = {}) {
    const list = some(flat(items));
    return this.#once(options, (id, at) => Op.of(['CMS.CINCRBY', key, id, ...list], at, true));
  }

  async command(...words) {
    const [result] = await this.#run([Op.of(words)], true, performance.now() + this.#retryFor);
    if (result instanceof FbfkvError) throw result;
    return result;
  }

  // #once applies an operation once. One that its caller has named may have been sent before.
  async #once(options, build) {
    known(options);
    const { id, at } = options;
    if (id !== undefined) return this.do(build(id, at));
    if (at) throw new TypeError('fbfkv: at is the time of an operation that has an id');
    const deadline = performance.now() + this.#retryFor;
    for (let first = true; ; first = false) {
      const op = await this.#make(build, deadline);
      const [result] = await this.#run([op], true, deadline);
      if (!(result instanceof FbfkvError)) return result;
      const clockIsWrong = result.code === 'STALE' || result.code === 'FUTURE';
      if (!first || !clockIsWrong || result.outcome !== 'not applied') throw result;
      // What we believed of the server's clock is wrong: this machine slept, or the
      // server's clock was set. Nobody has applied the operation, so it may be made anew.
      this.#known = false;
    }
  }

  newOp(key, delta) {
    return this.#make((id, at) => new Op(key, id, delta, at), performance.now() + this.#retryFor);
  }

  async do(op) {
    const [result] = await this.doAll([op]);
    if (result instanceof FbfkvError) throw result;
    return result;
  }

  doAll(ops) {
    return this.#run(ops, false, performance.now() + this.#retryFor);
  }

  close() {
    this.#sender.close();
  }

  async #make(build, deadline) {
    await this.#learn(build('', 0), deadline);
    const now = Math.floor(this.#server + performance.now() - this.#asked);
    return build(String(this.#newId(now)), now);
  }

  // #run sends operations until each has an answer that trying again cannot change. Fresh
  // ones were made just now and were never sent. No try begins after the deadline, nor so late
  // that it could outlast the window.
  async #run(ops, fresh, deadline) {
    const begun = performance.now();
    const other = ops.find((op) => !(op instanceof Op));
    if (other !== undefined) throw new TypeError(`fbfkv: ${JSON.stringify(other)} is not an Op; Op.parse makes one of its text`);
    try {
      for (const op of ops) {
        deadline = Math.min(deadline, begun + (await this.#learn(op, deadline)) * 0.9 - this.#timeout);
      }
    } catch (err) {
      if (!(err instanceof FbfkvError)) throw err;
      return ops.map((op) => new FbfkvError(op, fresh ? err.outcome : 'outcome unknown', err.code, err.cause, err));
    }
    const results = [];
    const trails = ops.map(() => new Trail(this.#sender.server));
    const unknown = [];
    let pending = ops.map((_, i) => i);
    for (let tries = 0; pending.length > 0; tries++) {
      if (tries > 0 && !(await pause(tries, deadline))) break;
      const answers = await this.#sender.send(pending.map((i) => ops[i].command()));
      const again = [];
      let lost = false;
      pending.forEach((i, n) => {
        const { value, err } = answers[n];
        const verdict = judge(err);
        unknown[i] ||= verdict.unknown || (err !== undefined && this.#sender.hides);
        lost ||= verdict.lost;
        if (err) trails[i].note(err);
        results[i] = err ? trails[i].failure(ops[i], fresh, unknown[i], err) : ops[i].read(value, this.#number);
        if (verdict.again) again.push(i);
      });
      pending = again;
      if (lost) await this.#sender.reload();
    }
    return results;
  }

  // #learn returns the shortest WINDOW of the tables of an operation's keys. It asks the server if it must.
  async #learn(op, deadline) {
    let shortest = Infinity;
    for (const key of op.keys) shortest = Math.min(shortest, await this.#windowOf(key, op, deadline));
    return shortest;
  }

  async #windowOf(key, op, deadline) {
    const window = this.#known ? this.#tableOf(key)?.window : undefined;
    if (window && performance.now() - this.#asked > refreshEvery && !this.#refreshing) {
      this.#refreshing = true; // in the background; if it fails, what we know still holds
      this.#ask(key, true).catch(() => {}).finally(() => { this.#refreshing = false; });
    }
    if (window) return window;
    const trail = new Trail(this.#sender.server);
    for (;;) {
      try {
        return await this.#ask(key, false);
      } catch (err) {
        const verdict = judge(err);
        if (verdict.lost) await this.#sender.reload();
        trail.note(err);
        if (!verdict.again || !(await pause(trail.tries, deadline))) throw trail.failure(op, true, false, err);
      }
    }
  }

  #tableOf(key, tables = this.#tables) {
    return tables.find((t) => key.startsWith(t.prefix));
  }

  // #ask asks the server for its time, its tables, and the window of a key's table, which it
  // returns; or, if all is to be fresh, of each table that was needed so far.
  async #ask(key, all) {
    const [seconds, microseconds] = await this.#send('TIME');
    const asked = performance.now();
    const tables = [];
    try {
      for (const [name, prefix] of pairs(await this.#send('CTABLE', 'LIST'))) {
        tables.push({ name, prefix, window: this.#tables.find((t) => t.name === name)?.window });
      }
    } catch (err) {
      if (judge(err).again || !codeOf(err)) throw err; // else it does not tell
    }
    tables.sort((a, b) => b.prefix.length - a.prefix.length);
    if (!this.#tableOf(key, tables)) tables.push({ prefix: '', window: assumedWindow });
    const needed = this.#tableOf(key, tables);
    for (const table of tables) {
      if (table.name === undefined || (table !== needed && !(all && table.window))) continue;
      const info = new Map(pairs(await this.#send('CTABLE', 'INFO', table.name)));
      table.window = Number(info.get('window')) || assumedWindow;
    }
    this.#known = true;
    this.#asked = asked;
    this.#server = Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000);
    this.#tables = tables;
    return needed.window;
  }

  async #send(...args) {
    const [{ value, err }] = await this.#sender.send([args]);
    if (err) throw err;
    return value;
  }
}

// pause waits before a try: longer each time, up to a second, and never in step with other
// clients. It returns false if there is no time for it.
async function pause(tries, deadline) {
  const longest = Math.min(10 * 2 ** Math.min(tries - 1, 10), 1000);
  const wait = longest / 2 + (Math.random() * longest) / 2;
  if (performance.now() + wait >= deadline) return false;
  await new Promise((resolve) => { setTimeout(resolve, wait); });
  return true;
}

// number returns a counter: a bigint if a number would lose digits, and text if it has decimals.
function number(text) {
  if (String(text).includes('.')) return text;
  const exact = BigInt(text);
  const n = Number(exact);
  return Number.isSafeInteger(n) ? n : exact;
}

// some refuses no keys or items: the server would take the option behind them for one.
function some(words) {
  if (words.length === 0) throw new TypeError('fbfkv: there is nothing to add');
  return words;
}

// flat returns keys and their numbers in turn, of a map, an object or a list of pairs.
function flat(numbers) {
  const list = numbers instanceof Map || Array.isArray(numbers) ? [...numbers] : Object.entries(numbers);
  return list.flatMap(([key, n]) => [key, digits(n, `the number of ${key}`)]);
}

// pairs returns names and values, as strings, of a map or of a list of both in turn.
function pairs(reply) {
  if (reply instanceof Map) return [...reply].map(([k, v]) => [String(k), String(v)]);
  if (!Array.isArray(reply)) return Object.entries(reply).map(([k, v]) => [k, String(v)]);
  return Array.from({ length: reply.length / 2 }, (_, i) => [String(reply[2 * i]), String(reply[2 * i + 1])]);
}
