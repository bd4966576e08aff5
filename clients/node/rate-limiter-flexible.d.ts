import type { IRateLimiterStoreOptions, RateLimiterRes, RateLimiterStoreAbstract } from 'rate-limiter-flexible';
import type { Counters } from './index.js';

export interface FbfkvLimiterOptions extends Omit<IRateLimiterStoreOptions, 'storeClient'> {
  storeClient: Counters<any>;
  /** The header with the request's id. It must be set by a proxy that you trust: a client that may choose it repeats
   * requests without being counted. */
  header?: string;
}

/** A limiter of rate-limiter-flexible: a request that is sent again with the same id counts once. The id is the header's,
 * or the option id of consume, penalty and reward. */
export class RateLimiterFbfkv extends RateLimiterStoreAbstract {
  constructor(options: FbfkvLimiterOptions);
  consume(key: string | number, points?: number, options?: { id?: string; [name: string]: any }): Promise<RateLimiterRes>;
}
