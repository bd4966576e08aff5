// What errors say of an operation.

export class FbfkvError extends Error {
  constructor(op, outcome, code, cause, { server = '', tries = 1, elapsed = 0 } = {}) {
    const times = tries > 1 ? ` after ${tries} tries in ${Math.round(elapsed)} ms` : '';
    const at = server ? ` at ${server}` : '';
    const what = op.delta === undefined ? op.words[0] : `add ${op.delta} to`;
    super(`fbfkv: ${what} ${JSON.stringify(op.key)} (opid ${JSON.stringify(op.id)}): ${outcome}${times}${at}: ${text(cause)}`, { cause });
    Object.assign(this, { name: 'FbfkvError', op, outcome, code, server, tries, elapsed });
  }
}

const text = (err) => err.message || err.code || err;

// Trail is what the tries of an operation leave for its error.
export class Trail {
  tries = 0;
  #server;
  #begun = performance.now();
  #told; // the most telling error: the last answer of the server, else the last failure of a connection

  constructor(server) {
    this.#server = server;
  }

  note(err) {
    this.tries++;
    if (this.#told === undefined || telling(err) >= telling(this.#told)) this.#told = err;
  }

  // failure describes an operation that ended in err. Unknown says that one of our tries may
  // have been applied, fresh that nobody can have sent the operation before.
  failure(op, fresh, unknown, err) {
    const code = codeOf(err);
    // Of an operation that may have been sent before, a refusal says only that this server has not applied it so far.
    // Another region may have, and an earlier try may still be on its way.
    const certain = (!unknown && fresh) || ['MISMATCH', 'ARGUMENT', 'ENDED', 'EXPIRED'].includes(code);
    const elapsed = performance.now() - this.#begun;
    return new FbfkvError(op, certain ? 'not applied' : 'outcome unknown', codeOf(this.#told), this.#told,
      { server: this.#server, tries: this.tries, elapsed });
  }
}

// telling ranks errors by what they tell of the reason.
function telling(err) {
  if (codeOf(err)) return 2;
  return err === noAnswer || (err instanceof NotSent && err.cause === undefined) ? 0 : 1;
}

// noAnswer is the error of a try whose time was over.
export const noAnswer = new Error('no answer in time');

// spoken are the answers that have no word of their own, by how they begin.
const spoken = [
  ['ERR increment or decrement would overflow', 'OVERFLOW'],
  ['ERR operation time is in the future', 'FUTURE'],
  ['ERR max number of clients', 'MAXCLIENTS'],
  ['ERR the key cannot be read', 'UNREADABLE'],
  ['ERR 64 other operations', 'COLLISION'],
  ['ERR opid must be', 'ARGUMENT'],
  ['ERR key must be', 'ARGUMENT'],
  ['ERR AT is a time in milliseconds', 'ARGUMENT'],
];

// codeOf returns the first word of the server's answer that err is, or undefined.
export function codeOf(err) {
  if (err instanceof NotSent) return codeOf(err.cause); // the answer to a connection
  const text = err?.message ?? '';
  const known = spoken.find(([begin]) => text.startsWith(begin));
  if (known) return known[1];
  return isAnswer(err) ? /^\S+/.exec(text)?.[0] : undefined;
}

// isAnswer reports whether an error is of the class that a library has for the server's answers.
function isAnswer(err) {
  for (let p = err; p; p = Object.getPrototypeOf(p)) {
    if (/^(ErrorReply|ReplyError)$/.test(p.constructor?.name)) return true;
  }
  return false;
}

// NotSent is the error of a request that never reached a connection, since close() was called
// or as the last attempt to connect failed.
export class NotSent extends Error {
  constructor(closed, cause) {
    const why = cause ? `: ${cause.message || cause.code || cause}` : '';
    super(closed ? 'closed' : `not connected${why}`, { cause });
    this.closed = closed;
  }
}

// judge judges one try by its error: again if another try may end otherwise, unknown if this
// one may have been applied or may be later, lost if the key's node may be another one.
export function judge(err) {
  if (!err || (err instanceof NotSent && err.closed)) return {};
  const code = codeOf(err);
  switch (code) {
    case undefined:
      return { again: true, unknown: !(err instanceof NotSent), lost: true };
    case 'MISCONF':
      return { again: true, unknown: !err.message.includes('nothing was applied') };
    case 'TRYAGAIN': case 'UNKNOWN':
      return { again: true, unknown: true };
    case 'MOVED': case 'ASK': case 'CLUSTERDOWN': case 'MASTERDOWN': case 'READONLY':
      return { again: true, lost: true };
    default:
      return { again: ['LOADING', 'OOM', 'BUSY', 'MAXCLIENTS'].includes(code) };
  }
}
