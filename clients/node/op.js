// Operations, and their text.
import { randomBytes } from 'node:crypto';

const limit = 2n ** 63n;

// additions are the commands whose reply is a counter, lists those whose reply is a list; WITHSTATUS adds whether
// this try applied the operation.
const additions = ['CINCRBY', 'CDECRBY', 'CINCR', 'CDECR', 'CHOLD', 'CSETTLE', 'CCANCEL', 'CGETDEL'];
const lists = ['CMINCRBY', 'BF.CADD', 'CMS.CINCRBY'];
const timeless = ['CSETTLE', 'CCANCEL', 'INCREX', 'CL.THROTTLE']; // take no AT

export class Op {
  constructor(key, id, delta, at = 0) {
    fill(this, ['CINCRBY', key, id, digits(delta, 'delta')], at, false);
  }

  static of(words, at = 0, status = false) {
    return fill(Object.create(Op.prototype), words, at, status);
  }

  // toString returns key, delta, opid and time with spaces between them, and %XX in place of
  // other characters than letters, digits, and a few that no encoding changes. Of another
  // operation than a plain addition it returns the command.
  toString() {
    if (this.words[0] !== 'CINCRBY' || this.words.length > 4) return this.command().map(escape).join(' ');
    return `${escape(this.key)} ${this.delta} ${escape(this.id)} ${this.at}`;
  }

  toJSON() {
    return this.toString();
  }

  static parse(text) {
    const words = /^([^ ]+) (-?\d+(?:\.\d+)?) ([^ ]+) (\d+)$/.exec(text);
    try {
      if (!words) throw new Error('want key, delta, opid and time');
      return new Op(decodeURIComponent(words[1]), decodeURIComponent(words[3]), words[2], Number(words[4]));
    } catch (err) {
      throw new SyntaxError(`fbfkv: ${JSON.stringify(text)} is not an operation: ${err.message}`);
    }
  }

  // command returns the command that sends the operation. AT ends a list of items, also without a time: an item may
  // have the name of an option.
  command() {
    const name = this.words[0];
    const timed = name === 'BF.CADD' || name === 'CMS.CINCRBY' || (this.at && !timeless.includes(name));
    return [...this.words, ...(this.status ? ['WITHSTATUS'] : []), ...(timed ? ['AT', String(this.at)] : [])];
  }

  // read makes the operation's result of the server's reply, and counters of digits with number.
  read(reply, number) {
    const name = this.words[0];
    const counter = (digits) => (digits === null ? null : number(digits));
    const applied = (status) => Number(status) === 1;
    if (additions.includes(name)) {
      if (!Array.isArray(reply)) return counter(reply);
      const result = { value: counter(reply[0]), applied: applied(reply[1]) };
      return name === 'CHOLD' ? { id: this.id, ...result } : result;
    }
    if (lists.includes(name)) {
      const [list, status] = Array.isArray(reply[0]) ? reply : [reply];
      const values = list.map(name === 'BF.CADD' ? applied : counter);
      return status === undefined ? values : { values, applied: applied(status) };
    }
    if (name === 'INCREX') return { value: counter(reply[0]), added: counter(reply[1]), ttl: Number(reply[2]) };
    if (name === 'CHELD') {
      const [value, up, down] = reply.map(counter);
      return { value, up, down, open: Number(reply[3]) };
    }
    if (name !== 'CL.THROTTLE') return reply;
    const [limited, most, remaining, retryAfter, fullAfter] = reply.map(Number);
    return { limited: limited === 1, limit: most, remaining, retryAfter, fullAfter };
  }
}

// fill makes an operation of the words of its command. The opid of INCREX and CL.THROTTLE is the last of them.
function fill(op, words, at, status) {
  if (!Number.isSafeInteger(at) || at < 0) throw new RangeError(`fbfkv: at is ${at}, not Unix milliseconds`);
  for (const word of words) { // else undefined would be a key of that name
    if (!['string', 'number', 'bigint'].includes(typeof word) && !Buffer.isBuffer(word)) {
      throw new TypeError(`fbfkv: ${String(word)} is no key, opid or item`);
    }
  }
  words = words.map(String);
  const name = words[0];
  const key = words[name === 'CMINCRBY' ? 3 : 1];
  const keys = name === 'CMINCRBY' ? words.slice(3, 3 + 2 * Number(words[2])).filter((_, i) => i % 2 === 0) : [key];
  const id = words.at(name === 'INCREX' || name === 'CL.THROTTLE' ? -1 : name === 'CMINCRBY' ? 1 : 2) ?? '';
  const delta = name !== 'CINCRBY' ? undefined : words[3].includes('.') ? words[3] : BigInt(words[3]);
  return Object.freeze(Object.assign(op, { key, id, delta, at, keys, status, words: Object.freeze(words) }));
}

// digits returns a number as the server reads it. Text has decimals, of a table with SCALE.
export function digits(n, name) {
  if (typeof n === 'string' && /^-?\d+\.\d+$/.test(n)) return n;
  if (typeof n === 'string' && /^-?\d+$/.test(n)) n = BigInt(n);
  if (typeof n !== 'bigint' && !Number.isSafeInteger(n)) {
    throw new TypeError(`fbfkv: ${name} is ${n}, not an integer (beyond 2**53 it must be a bigint)`);
  }
  if (BigInt(n) < -limit || BigInt(n) >= limit) throw new RangeError(`fbfkv: ${name} is ${n}, beyond 64 bits`);
  return String(n);
}

const options = ['id', 'at', 'status', 'by', 'lbound', 'ubound', 'ex', 'px', 'exat', 'pxat', 'saturate', 'persist', 'enx'];

// known refuses options that there are not: a bound or an opid with a wrong name would be none.
export function known(given) {
  const other = Object.keys(given).find((name) => !options.includes(name));
  if (other !== undefined) throw new TypeError(`fbfkv: there is no option ${other}`);
}

// tail returns the words of bounds and expiry.
export function tail(options) {
  const given = ['lbound', 'ubound', 'ex', 'px', 'exat', 'pxat'].filter((name) => options[name] !== undefined);
  const flags = ['saturate', 'persist', 'enx'].filter((name) => options[name]);
  return [...given.flatMap((name) => [name.toUpperCase(), digits(options[name], name)]), ...flags.map((name) => name.toUpperCase())];
}

function escape(s) {
  return encodeURIComponent(s).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)
    .replaceAll('%3A', ':');
}

// uuidv7 returns a UUIDv7 (RFC 9562): 48 bits of milliseconds, then random bits.
export function uuidv7(ms) {
  const b = randomBytes(16);
  b.writeUIntBE(ms, 0, 6);
  b[6] = (b[6] & 0x0f) | 0x70;
  b[8] = (b[8] & 0x3f) | 0x80;
  return b.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
