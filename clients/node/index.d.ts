/** One operation: it counts once, however often and by whomever it is sent. */
export class Op {
  /** The id has 1 to 512 bytes and is unique among the operations on key. At is when the
   * operation was made, in Unix milliseconds of the server's clock; 0: not known. */
  constructor(key: string, id: string, delta: Digits, at?: number);
  /** An operation of the words of another command: ['CHOLD', key, id, -2, 'PX', 600000]. The opid of INCREX and
   * CL.THROTTLE is the last word. With status its result also tells whether it was applied. */
  static of(words: readonly (string | number | bigint)[], at?: number, status?: boolean): Op;
  readonly key: string;
  readonly id: string;
  /** What an addition adds. */
  readonly delta?: bigint | string;
  readonly at: number;
  /** Text that the fbfkv packages of all languages read, of new Op and newOp; of others the command. */
  toString(): string;
  toJSON(): string;
  /** Reads an operation from its text; throws a SyntaxError. */
  static parse(text: string): Op;
}

/** 'outcome unknown': do() with the same Op, within the WINDOW, finds out. 'not applied':
 * no try that is still under way can change that. */
export type Outcome = 'outcome unknown' | 'not applied';

export type Code =
  | 'BOUND' | 'NORIGHTS' // the counter would leave the operation's bounds or its table's; the region's share of them is used up
  | 'NOHOLD' | 'ENDED' | 'EXPIRED' // no hold with this opid is known; it was settled otherwise or cancelled; its time had come
  | 'MISMATCH' | 'STALE' // the opid is another operation's; the operation is older than what is remembered
  | 'FUTURE' | 'ARGUMENT' // its time is later than the server's; the opid or the key is empty or too long
  | 'OVERFLOW' | 'WRONGTYPE' | 'CMS:' // beyond 64 bits; the key holds something else; the count-min sketch cannot do it
  | 'UNREADABLE' | 'COLLISION' // the filter or sketch is damaged; 64 other operations have the same hash
  | 'MISCONF' | 'LOADING' | 'OOM' | 'MAXCLIENTS' | 'BUSY' // tried again until there was no time left, as are the next ones
  | 'TRYAGAIN' | 'UNKNOWN' | 'MOVED' | 'ASK' | 'CLUSTERDOWN' | 'MASTERDOWN' | 'READONLY'
  | 'CROSSSLOT' // in a cluster the keys are not in one slot
  | 'NOAUTH' | 'WRONGPASS' | 'NOPERM'
  | 'ERR';

/** What became of an operation without a value. */
export class FbfkvError extends Error {
  /** Its id is empty if it was not made yet, since the server could not be asked for the time. */
  readonly op: Op;
  /** Of an operation that may have been sent before (by do(), which cannot know), it is
   * 'not applied' only with the codes MISMATCH, ARGUMENT, ENDED and EXPIRED. */
  readonly outcome: Outcome;
  /** The first word of the server's answer, or a word for an answer that has none of its own: Code has those that
   * an application may want to tell apart. */
  readonly code?: Code | (string & {});
  /** The most telling error of all tries: the last answer of the server, else the last failure of
   * a connection, else that there was no answer in time. */
  readonly cause: Error;
  /** The address that was asked; of a cluster those that it was given. */
  readonly server: string;
  /** How many tries failed, and in how many milliseconds. */
  readonly tries: number;
  readonly elapsed: number;
}

export interface Options {
  /** Bounds one try, in milliseconds. Default 2000. */
  timeout?: number;
  /** How long tries of an operation begin, in milliseconds. Default 30000. The last one ends
   * within nine tenths of the table's WINDOW. */
  retryFor?: number;
  /** Makes the opid of an operation made at ms: for tables with IDTIME ULID or MS, which do
   * not read the UUIDv7 that is the default. */
  newId?: (ms: number) => string;
  /** Counters are numbers, also beyond 2**53, where they lose digits. Default false. Or a function that makes a
   * counter of its digits: String for tables with SCALE, whose deltas may be text, too. */
  numbers?: boolean | ((digits: string) => any);
}

/** A number: beyond 2**53 it must be a bigint; text may have the decimals of a table with SCALE. */
export type Digits = number | bigint | string;

/** What the counter must not leave: an operation that would is refused as a whole with BOUND, and uses up no opid. */
export interface Bounds {
  lbound?: Digits;
  ubound?: Digits;
}

/** When a counter expires: in seconds, milliseconds, at Unix seconds or milliseconds. With enx only if it does not expire
 * yet; persist has it never expire. A duplicate changes nothing. */
export interface Expiry {
  ex?: number;
  px?: number;
  exat?: number;
  pxat?: number;
  persist?: boolean;
  enx?: boolean;
}

/** The operation's own name, for one that has a name already. Without one it is made, with the time. */
export interface Name {
  id?: string;
  /** When an operation with an id was made, in Unix milliseconds of the server's clock. */
  at?: number;
}

/** applied is false if an earlier try, also one of this call's own, had applied the operation. */
export interface Result<Value> { value: Value; applied: boolean }
export interface Results<Value> { values: Value[]; applied: boolean }
/** value is what would be left if all holds of this sign were settled in full. */
export interface Hold<Value> extends Result<Value> { id: string }
/** added is 0 if a bound refused it. ttl: milliseconds until the counter expires, -1: it does not. */
export interface Limit<Value> { value: Value; added: Value; ttl: number }
/** value is the counter without holds, up and down the sums of the positive and of the negative open ones. */
export interface Held<Value> { value: Value; up: Value; down: Value; open: number }
/** In seconds: when a retry can succeed (-1: not limited, or never), and when all is there again. */
export interface Throttle { limited: boolean; limit: number; remaining: number; retryAfter: number; fullAfter: number }
/** Keys or items with their numbers. */
export type Numbers = ReadonlyMap<string, Digits> | readonly (readonly [string, Digits])[] | { [key: string]: Digits };

/** Counts through a connection of its own, with the settings of client. It connects with the first
 * operation. */
export class Counters<Value extends number | bigint | string = number | bigint> { // <number> with numbers: true, <string> with String
  /** client is of node-redis (createClient, createCluster) or of ioredis (Redis, Cluster). */
  constructor(client: object, options?: Options);
  /** Adds delta to a counter once and returns the counter after it: beyond 2**53 a bigint, unless
   * the option numbers is set. */
  add(key: string, delta: Digits, options?: Name & Bounds & Expiry & { status?: false }): Promise<Value>;
  add(key: string, delta: Digits, options: Name & Bounds & Expiry & { status: true }): Promise<Result<Value>>;
  /** Adds to several counters, all or none: a transfer. In a cluster they are in one slot. */
  addMany(deltas: Numbers, options?: Name & Bounds): Promise<Results<Value>>;
  /** Adds by (default 1) unless a bound refuses it: a quota or a rate limit. With saturate it adds what fits. What is
   * refused may be sent again later. */
  limit(key: string, options?: Name & Bounds & Expiry & { by?: Digits; saturate?: boolean }): Promise<Limit<Value>>;
  /** Sets an amount aside until settle, cancel or the time (ex, px, exat or pxat) ends the hold. */
  hold(key: string, amount: Digits, options: Name & Bounds & Expiry): Promise<Hold<Value>>;
  /** Ends a hold and adds what has happened: more or less than was held, or 0. */
  settle(key: string, id: string, amount: Digits, options?: Bounds): Promise<Result<Value>>;
  /** Ends a hold and adds nothing. */
  cancel(key: string, id: string): Promise<Result<Value>>;
  held(key: string): Promise<Held<Value>>;
  /** Limits a rate smoothly: count permits in each period of seconds, and burst more at once. */
  throttle(key: string, rate: Name & { burst: number; count: number; period: number; quantity?: number }): Promise<Throttle>;
  /** Returns a counter, or null, and deletes it, once. */
  drain(key: string, options?: Name): Promise<Value | null>;
  /** Adds items to a Bloom filter once; the values say which ones were new. */
  bloomAdd(key: string, items: Iterable<string>, options?: Name): Promise<Results<boolean>>;
  /** Counts items in a count-min sketch once; the values are their estimates. */
  sketchAdd(key: string, items: Numbers, options?: Name): Promise<Results<Value>>;
  /** Sends a command that may arrive twice, such as GET or DEL with one key, until there is an answer. */
  command(...words: (string | number)[]): Promise<unknown>;
  /** Makes an addition that do() sends, now or after a crash, within the WINDOW. */
  newOp(key: string, delta: Digits): Promise<Op>;
  /** Sends an operation until there is an answer. If it was applied before, this changes
   * nothing and returns the original result (MODE APPROX: the present value). Of other operations than additions the
   * result is that of their method. */
  do(op: Op): Promise<Value>;
  do<Other>(op: Op): Promise<Other>;
  /** Sends operations as one pipeline. What is not answered is sent again, with its own opid,
   * without the others. */
  doAll<Other = Value>(ops: Op[]): Promise<(Other | FbfkvError)[]>;
  /** Closes the connection. The client that was given stays open. */
  close(): void;
}

/** Returns a UUIDv7 made at ms. */
export function uuidv7(ms: number): string;
