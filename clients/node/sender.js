// How commands are sent through node-redis and ioredis. A sender has
//
//   send(commands): a list of {value} or {err}, one for each, in one round trip
//   reload():       reads the map of a cluster again
//   hides:          it retries by itself, so that an error does not tell of all tries
//   server:         the address that it connects to; of a cluster those that it was given
//   close()
//
// Numbers come as text where the library can: beyond 2**53 a number would lose digits.
import { NotSent, codeOf, noAnswer } from './errors.js';

// senderOf returns the sender for a client. Of a single server it uses a connection of its
// own, with the client's settings, that it may break off and that retries nothing by itself.
export function senderOf(client, timeout) {
  const isCluster = typeof client.nodeClient === 'function' || client.isCluster === true;
  if (typeof client.call === 'function') {
    return isCluster ? ioredisCluster(client, timeout) : ioredis(client, timeout);
  }
  if (typeof client.sendCommand === 'function') {
    return isCluster ? nodeRedisCluster(client, timeout) : nodeRedis(client, timeout);
  }
  throw new TypeError('fbfkv: the client is neither of node-redis nor of ioredis');
}

const reconnectAfter = (retries) => Math.min(10 * 2 ** retries, 1000);
const numbersAsText = { typeMapping: { 58: String } }; // ':' begins an integer

function nodeRedis(client, timeout) {
  const own = client.duplicate({
    disableOfflineQueue: true, // fail at once while disconnected: the operation is retried
    socket: { ...client.options?.socket, connectTimeout: timeout, reconnectStrategy: reconnectAfter },
  });
  const state = watch(own, timeout, () => own.isReady);
  const end = () => (own.destroy ? own.destroy() : own.disconnect());
  const connect = () => { if (!state.closed) Promise.resolve(own.connect()).catch(() => {}); };
  // A silent server breaks no connection, so we do. All that wait for it try again.
  const giveUp = async () => {
    try { await end(); } catch { /* it is broken already */ }
    connect();
  };
  let connection = 0; // is given up once, by the first that waited too long
  const call = async (command) => {
    state.check();
    return own.sendCommand(command, numbersAsText);
  };
  let begun = false;
  return {
    hides: false,
    server: serverOf(client.options?.socket, client.options?.url),
    send: async (commands) => {
      if (!begun) connect();
      begun = true;
      await state.ready();
      const mine = connection;
      return sendAll(commands, call, timeout, () => (mine === connection ? (connection++, giveUp()) : undefined));
    },
    reload: async () => {},
    close: () => { state.closed = true; if (own.isOpen) end(); },
  };
}

function ioredis(client, timeout) {
  const own = client.duplicate({
    connectTimeout: timeout, retryStrategy: reconnectAfter, lazyConnect: true, enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false, maxRetriesPerRequest: null, stringNumbers: true,
  });
  const state = watch(own, timeout, () => own.status === 'ready');
  const call = async ([name, ...args]) => {
    state.check();
    return own.call(name, ...args);
  };
  return {
    hides: false,
    server: serverOf(client.options),
    send: async (commands) => {
      if (own.status === 'wait' && !state.closed) own.connect().catch(() => {});
      await state.ready();
      return sendAll(commands, call, timeout, () => own.disconnect(true));
    },
    reload: async () => {},
    close: () => { state.closed = true; own.disconnect(); },
  };
}

// Of a cluster of node-redis this is one of our own, too, made anew whenever a node is lost:
// by itself it stays with a leader that is gone, and waits for one that is silent.

function nodeRedisCluster(client, timeout) {
  const settings = client._options?.defaults; // node-redis 4 does not show them
  const limits = { connectTimeout: timeout, socketTimeout: timeout, reconnectStrategy: false };
  const changes = { defaults: { ...settings, disableOfflineQueue: true, socket: { ...settings?.socket, ...limits } } };
  let own; let making; let closed = false;
  const end = async (one) => {
    try { await (one?.destroy ? one.destroy() : one?.disconnect()); } catch { /* a node's connection is closed already */ }
  };
  const make = async () => {
    const next = client.duplicate(client._options ? changes : {});
    next.on('error', () => {});
    try {
      await within(3 * timeout, () => next.connect()); // which may never end if a node falls silent meanwhile
    } catch (err) {
      end(next);
      throw err;
    }
    end(own);
    own = next;
    if (closed) await end(own);
  };
  const renew = async () => {
    making ??= make().finally(() => { making = undefined; });
    return closed ? undefined : within(timeout, () => making).catch(() => {});
  };
  const call = async (command) => {
    if (closed || !own) throw new NotSent(closed);
    return own.sendCommand(keyOf(command), false, command, numbersAsText);
  };
  return {
    hides: true,
    server: (client._options?.rootNodes ?? []).map((node) => serverOf(node.socket, node.url)).join(', '),
    send: async (commands) => {
      if (!own) await renew();
      return sendAll(commands, call, timeout);
    },
    reload: renew,
    close: () => { closed = true; end(own); },
  };
}

// The connections of a cluster of ioredis stay its own.

function ioredisCluster(client, timeout) {
  return {
    hides: true,
    server: (client.startupNodes ?? []).map((node) => (typeof node === 'object' ? serverOf(node) : String(node))).join(', '),
    send: (commands) => sendAll(commands, ([name, ...args]) => client.call(name, ...args), timeout),
    reload: () => within(timeout, () => new Promise((resolve) => { client.refreshSlotsCache(resolve); })).catch(() => {}),
    close: () => {},
  };
}

// serverOf returns an address, without the password that a URL may hold.
function serverOf(socket, url) {
  if (socket?.path) return socket.path;
  if (socket?.host || socket?.port || !url) return `${socket?.host ?? '127.0.0.1'}:${socket?.port ?? 6379}`;
  const { hostname, port } = new URL(url);
  return `${hostname}:${port || 6379}`;
}

const keyOf = ([name, ...args]) => (/^(TIME|CTABLE)$/.test(name) ? undefined : args[name === 'CMINCRBY' ? 2 : 0]);

// watch follows the state of a connection.
function watch(own, timeout, isReady) {
  let failed; // why the last attempt to connect failed
  own.setMaxListeners(0); // all operations under way wait for it
  own.on('error', (err) => { failed = err; });
  own.on('ready', () => { failed = undefined; });
  return {
    closed: false,
    // check throws unless it is connected.
    check() {
      if (this.closed || !isReady()) throw new NotSent(this.closed, this.closed ? undefined : failed);
    },
    // ready waits until it is connected, for as long as a try may take, or until the server
    // has answered that it will not have us.
    ready() {
      if (this.closed || isReady()) return undefined;
      return new Promise((resolve) => {
        const done = () => { clearTimeout(timer); own.off('ready', done); own.off('error', refused); resolve(); };
        const refused = (err) => { if (codeOf(err)) done(); };
        const timer = setTimeout(done, timeout);
        own.on('ready', done);
        own.on('error', refused);
      });
    },
  };
}

// sendAll sends commands without waiting in between, and gives up what is not answered in time.
async function sendAll(commands, call, timeout, giveUp = () => {}) {
  let silent = false;
  const settled = await Promise.all(commands.map((command) => within(timeout, () => call(command)).then(
    (value) => ({ value }),
    (err) => { silent ||= err === noAnswer; return { err }; },
  )));
  if (silent) await giveUp();
  return settled;
}

// within runs a request and fails if it takes longer than ms.
function within(ms, request) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(reject, ms, noAnswer);
    Promise.resolve(request()).then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
