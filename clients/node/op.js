// Operations, and their text.
import { randomBytes } from 'node:crypto';

const limit = 2n ** 63n;

export class Op {
  constructor(key, id, delta, at = 0) {
    if (typeof delta !== 'bigint' && !Number.isSafeInteger(delta)) {
      throw new TypeError(`fbfkv: delta is ${delta}, not an integer (beyond 2**53 it must be a bigint)`);
    }
    delta = BigInt(delta);
    if (delta < -limit || delta >= limit) throw new RangeError(`fbfkv: delta is ${delta}, beyond 64 bits`);
    if (!Number.isSafeInteger(at) || at < 0) throw new RangeError(`fbfkv: at is ${at}, not Unix milliseconds`);
    Object.assign(this, { key: String(key), id: String(id), delta, at });
    Object.freeze(this);
  }

  // toString returns key, delta, opid and time with spaces between them, and %XX in place of
  // other characters than letters, digits, and a few that no encoding changes.
  toString() {
    return `${escape(this.key)} ${this.delta} ${escape(this.id)} ${this.at}`;
  }

  toJSON() {
    return this.toString();
  }

  static parse(text) {
    const words = /^([^ ]+) (-?\d+) ([^ ]+) (\d+)$/.exec(text);
    try {
      if (!words) throw new Error('want key, delta, opid and time');
      return new Op(decodeURIComponent(words[1]), decodeURIComponent(words[3]), BigInt(words[2]), Number(words[4]));
    } catch (err) {
      throw new SyntaxError(`fbfkv: ${JSON.stringify(text)} is not an operation: ${err.message}`);
    }
  }

  // command returns the command that sends the operation.
  command() {
    const command = ['CINCRBY', this.key, this.id, String(this.delta)];
    return this.at ? [...command, 'AT', String(this.at)] : command;
  }
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
