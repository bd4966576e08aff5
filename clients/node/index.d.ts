/** One operation: it counts once, however often and by whomever it is sent. */
export class Op {
  /** The id has 1 to 512 bytes and is unique among the operations on key. At is when the
   * operation was made, in Unix milliseconds of the server's clock; 0: not known. */
  constructor(key: string, id: string, delta: number | bigint, at?: number);
  readonly key: string;
  readonly id: string;
  readonly delta: bigint;
  readonly at: number;
  /** Text that the fbfkv packages of all languages read. */
  toString(): string;
  toJSON(): string;
  /** Reads an operation from its text; throws a SyntaxError. */
  static parse(text: string): Op;
}

/** 'outcome unknown': do() with the same Op, within the WINDOW, finds out. 'not applied':
 * no try that is still under way can change that. */
export type Outcome = 'outcome unknown' | 'not applied';

/** What became of an operation without a value. */
export class FbfkvError extends Error {
  /** Its id is empty if it was not made yet, since the server could not be asked for the time. */
  readonly op: Op;
  /** Of an operation that may have been sent before (by do(), which cannot know), it is
   * 'not applied' only with the codes MISMATCH and ARGUMENT. */
  readonly outcome: Outcome;
  /** The first word of the server's answer (STALE, MISMATCH, WRONGTYPE, MISCONF, LOADING, OOM,
   * MOVED, TRYAGAIN, ...), or OVERFLOW, FUTURE or ARGUMENT (the opid or the key is empty or too long),
   * or undefined. */
  readonly code?: string;
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
  /** Counters are numbers, also beyond 2**53, where they lose digits. Default false. */
  numbers?: boolean;
}

/** Counts through a connection of its own, with the settings of client. It connects with the first
 * operation. */
export class Counters<Value extends number | bigint = number | bigint> { // <number> with numbers: true
  /** client is of node-redis (createClient, createCluster) or of ioredis (Redis, Cluster). */
  constructor(client: object, options?: Options);
  /** Adds delta to a counter once and returns the counter after it: beyond 2**53 a bigint, unless
   * the option numbers is set. */
  add(key: string, delta: number | bigint): Promise<Value>;
  /** Makes an operation that do() sends, now or after a crash, within the WINDOW. */
  newOp(key: string, delta: number | bigint): Promise<Op>;
  /** Sends an operation until there is an answer. If it was applied before, this changes
   * nothing and returns the original result (MODE APPROX: the present value). */
  do(op: Op): Promise<Value>;
  /** Sends operations as one pipeline. What is not answered is sent again, with its own opid,
   * without the others. */
  doAll(ops: Op[]): Promise<(Value | FbfkvError)[]>;
  /** Closes the connection. The client that was given stays open. */
  close(): void;
}

/** Returns a UUIDv7 made at ms. */
export function uuidv7(ms: number): string;
