// A store for express-rate-limit.
import { current, follow, opidOf } from './request.js';

export class FbfkvStore {
  localKeys = false;
  #counters;
  #header;
  #windowMs = 60_000;
  #limit;

  constructor(counters, { header, prefix = 'rl:' } = {}) {
    this.#counters = counters;
    this.#header = header;
    this.prefix = prefix;
    follow();
  }

  init({ windowMs, limit }) {
    this.#windowMs = windowMs;
    this.#limit = limit;
  }

  // increment does not count what is above the limit: a refusal uses up no opid, so that the same request may be let
  // in later.
  async increment(key) {
    const { request, response, refused } = current() ?? {};
    const id = opidOf(this.prefix + key, 1, this.#header);
    const ubound = request && (typeof this.#limit === 'function' ? await this.#limit(request, response) : this.#limit);
    const { value, added, ttl } = await this.#counters.limit(this.prefix + key, { id, ubound, px: this.#windowMs, enx: true });
    if (Number(added) === 0) refused.add(this.prefix + key);
    return { totalHits: Number(value) + 1 - Number(added), resetTime: this.#after(ttl) };
  }

  async decrement(key) {
    if (current()?.refused.has(this.prefix + key)) return;
    await this.#counters.limit(this.prefix + key, { by: -1, id: opidOf(this.prefix + key, -1, this.#header), lbound: 0 });
  }

  async resetKey(key) {
    await this.#counters.command('DEL', this.prefix + key);
  }

  async get(key) {
    const hits = await this.#counters.command('GET', this.prefix + key);
    if (hits === null) return undefined;
    return { totalHits: Number(hits), resetTime: this.#after(await this.#counters.command('PTTL', this.prefix + key)) };
  }

  #after(ttl) {
    return new Date(Date.now() + (Number(ttl) < 0 ? this.#windowMs : Number(ttl)));
  }
}
