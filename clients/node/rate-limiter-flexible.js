// A limiter of rate-limiter-flexible.
import flexible from 'rate-limiter-flexible';
import Store from 'rate-limiter-flexible/lib/RateLimiterStoreAbstract.js';
import { follow, opidOf } from './request.js';

export class RateLimiterFbfkv extends Store {
  #header;

  constructor(options) {
    super(options);
    this.client = options.storeClient;
    this.#header = options.header;
    follow();
  }

  // _consume does not count what is above the points (or above the threshold at which it blocks): a refusal uses up no
  // opid, so that the same request may be let in later.
  _consume(key, points = 1, options = {}) {
    const ubound = Math.max(this.points, this.blockOnConsumed, this.inMemoryBlockOnConsumed);
    return super._consume(key, points, { ...options, ubound });
  }

  async _upsert(key, points, ms, forced, options = {}) {
    const px = ms > 0 ? Math.floor(ms) : undefined;
    if (forced) {
      await this.client.command('SET', key, points, ...(px ? ['PX', px] : []));
      return { consumed: points, ttl: px ?? -1 };
    }
    const { id = opidOf(key, points, this.#header), ubound } = options;
    const { value, added, ttl } = await this.client.limit(key, { by: points, id, ubound, px, enx: px && true });
    return { consumed: Number(value) + points - Number(added), ttl };
  }

  async _get(key) {
    const consumed = await this.client.command('GET', key);
    return consumed === null ? null : { consumed: Number(consumed), ttl: Number(await this.client.command('PTTL', key)) };
  }

  async _delete(key) {
    return Number(await this.client.command('DEL', key)) > 0;
  }

  _getRateLimiterRes(key, changed, { consumed, ttl }) {
    return new flexible.RateLimiterRes(Math.max(this.points - consumed, 0), ttl, consumed, consumed === changed);
  }
}
