// Counts a page view with fbfkv so that a retry never counts twice.
//
//   node example.js [url] [key] [n]        redis://127.0.0.1:6379 page:home 3
import { createClient } from 'redis';
import { Counters } from 'fbfkv';

const [url = 'redis://127.0.0.1:6379', key = 'page:home', n = '3'] = process.argv.slice(2);

const client = createClient({ url });
const counters = new Counters(client);
let value = await counters.add(key, 1);
for (let i = 1; ; i++) {
  console.log(key, value);
  if (i >= Number(n)) break;
  value = await counters.add(key, 1);
}
counters.close();
