// The HTTP request that is being served, for limiters whose stores are not told of it.
import { AsyncLocalStorage } from 'node:async_hooks';
import { createHash } from 'node:crypto';
import { channel } from 'node:diagnostics_channel';

const requests = new AsyncLocalStorage();
const begins = channel('http.server.request.start'); // is told of a request before its handlers are
let following = false;

// follow makes the requests of all HTTP servers known to current.
export function follow() {
  if (following) return;
  following = true;
  begins.subscribe(({ request, response }) => {
    requests.enterWith({ request, response, target: `${request.method} ${request.url}`, counts: new Map(), refused: new Set() });
  });
}

export const current = () => requests.getStore();

// opidOf names the next operation of the current request on a key: the same if the request is sent again with the
// same header, but another one if it costs other points. Without the header it returns undefined.
export function opidOf(key, points, header) {
  const { request, target, counts } = current() ?? {};
  const id = header && request?.headers[header.toLowerCase()];
  if (!id) return undefined;
  const n = counts.get(key) ?? 0;
  counts.set(key, n + 1);
  return createHash('sha256').update(`${n} ${points} ${target} ${id}`).digest('base64url');
}
