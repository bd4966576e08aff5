// How commands are sent through node-redis and ioredis. A sender has
//
//   send(commands): a list of {value} or {err}, one for each, in one round trip
//   reload():       reads the map of a cluster again
//   hides:          it retries by itself, so that an error does not tell of all tries
//   close()
//
// Numbers come as text where the library can: beyond 2**53 a number would lose digits.
import { NotSent } from './errors.js';

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
  own.on('error', () => {}); // each operation sees its own
  let closed = false;
  const end = () => (own.destroy ? own.destroy() : own.disconnect());
  const connect = () => { if (!closed) Promise.resolve(own.connect()).catch(() => {}); };
  // A silent server breaks no connection, so we do. All that wait for it try again.
  const giveUp = async () => {
    try { await end(); } catch { /* it is broken already */ }
    connect();
  };
  connect();
  let connection = 0; // is given up once, by the first that waited too long
  const call = async (command) => {
    if (!own.isReady) throw new NotSent('not connected');
    return own.sendCommand(command, numbersAsText);
  };
  return {
    hides: false,
    send: async (commands) => {
      if (!own.isReady) await ready(own, timeout);
      const mine = connection;
      return sendAll(commands, call, timeout, () => (mine === connection ? (connection++, giveUp()) : undefined));
    },
    reload: async () => {},
    close: () => { closed = true; if (own.isOpen) end(); },
  };
}

function ioredis(client, timeout) {
  const own = client.duplicate({
    connectTimeout: timeout, retryStrategy: reconnectAfter, lazyConnect: false, enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false, maxRetriesPerRequest: null, stringNumbers: true,
  });
  own.on('error', () => {}); // each operation sees its own
  const call = async ([name, ...args]) => {
    if (own.status !== 'ready') throw new NotSent('not connected');
    return own.call(name, ...args);
  };
  return {
    hides: false,
    send: async (commands) => {
      if (own.status !== 'ready') await ready(own, timeout);
      return sendAll(commands, call, timeout, () => own.disconnect(true));
    },
    reload: async () => {},
    close: () => own.disconnect(),
  };
}

// The nodes' connections of a cluster stay its own; a node that is silent is not the leader
// for long, so the map is read again.

function nodeRedisCluster(client, timeout) {
  return {
    hides: true,
    send: (commands) => sendAll(commands, (c) => client.sendCommand(keyOf(c), false, c, numbersAsText), timeout),
    reload: () => within(timeout, async () => client._slots?.rediscover(client.masters.find((m) => m.client)?.client ?? {}))
      .catch(() => {}),
    close: () => {},
  };
}

function ioredisCluster(client, timeout) {
  return {
    hides: true,
    send: (commands) => sendAll(commands, ([name, ...args]) => client.call(name, ...args), timeout),
    reload: () => within(timeout, () => new Promise((resolve) => { client.refreshSlotsCache(resolve); })).catch(() => {}),
    close: () => {},
  };
}

const keyOf = (command) => (command[0] === 'CINCRBY' ? command[1] : undefined);

// ready waits until a client is connected, for as long as a try may take.
function ready(client, timeout) {
  return new Promise((resolve) => {
    const done = () => { clearTimeout(timer); client.off('ready', done); resolve(); };
    const timer = setTimeout(done, timeout);
    client.on('ready', done);
  });
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

const noAnswer = new Error('no answer in time');

// within runs a request and fails if it takes longer than ms.
function within(ms, request) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(reject, ms, noAnswer);
    Promise.resolve(request()).then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
