import type { ClientRateLimitInfo, Options, Store } from 'express-rate-limit';
import type { Counters } from './index.js';

export interface StoreOptions {
  /** The header with the request's id. It must be set by a proxy that you trust: a client that may choose it repeats
   * requests without being counted. Without it each request counts, once. */
  header?: string;
  /** What the keys of the counters begin with. Default 'rl:'. */
  prefix?: string;
}

/** A store for express-rate-limit: a request that is sent again with the same id counts once. */
export class FbfkvStore implements Store {
  constructor(counters: Counters<any>, options?: StoreOptions);
  localKeys: boolean;
  prefix: string;
  init(options: Options): void;
  increment(key: string): Promise<ClientRateLimitInfo>;
  decrement(key: string): Promise<void>;
  resetKey(key: string): Promise<void>;
  get(key: string): Promise<ClientRateLimitInfo | undefined>;
}
