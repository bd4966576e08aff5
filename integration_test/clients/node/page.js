// Looks at the status page in headless Chromium as a person would:
//
//	node page.js CHROMIUM URL REDIS-HOST:PORT [SCREENSHOT]
//
// It prints "kill" when the server is to be killed and "start" when it is to be started
// again, and ends with an error if something is not as it should be. With SCREENSHOT it
// only sends a load and takes the picture of the README.
import { chromium } from 'playwright-core';
import { createClient } from 'redis';

const [executablePath, url, address, screenshot] = process.argv.slice(2);
// Nothing that Chromium does by itself leaves the machine.
const args = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const browser = await chromium.launch({ executablePath, args });
const redis = createClient({ url: `redis://${address}`, disableOfflineQueue: true });
redis.on('error', () => {}); // it is killed once
await redis.connect();

const problems = [];
const page = await browser.newPage({ viewport: { width: 1000, height: 800 }, colorScheme: 'light' });
// Only what is awaited counts, not how long a busy machine takes for it.
page.setDefaultTimeout(300000);
page.on('pageerror', (e) => problems.push(e.stack));
page.on('request', (r) => {
  if (!r.url().startsWith(url) && !r.url().startsWith('data:')) problems.push(`a request to ${r.url()}`);
});
await page.addInitScript(() => {
  window.violations = [];
  document.addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
});

const until = (what, arg) => page.waitForFunction(what, arg);
const state = (text) => until((text) => document.querySelector('#state').textContent === text, text);
const inAll = () => page.evaluate(() => Number(document.querySelector('#duplicates + small').textContent.replace(/[^0-9]/g, '')));
const send = (key, id) => redis.sendCommand(['CINCRBY', key, id, '1']);

async function takeScreenshot() {
  await redis.sendCommand(['CTABLE', 'CREATE', 'clicks', 'PREFIX', 'click:', 'MODE', 'APPROX', 'WINDOW', '60000']);
  await redis.sendCommand(['CTABLE', 'CREATE', 'votes', 'PREFIX', 'vote:', 'WINDOW', '10000']);
  await page.setViewportSize({ width: 1080, height: 1100 });
  await page.goto(url);
  const end = Date.now() + 75000;
  for (let n = 0; Date.now() < end;) {
    const batch = [];
    for (let i = 0; i < 40 + 30 * Math.sin(Date.now() / 7000); i++, n++) {
      const key = `${['click', 'vote', 'page'][n % 3]}:${n % 997}`;
      batch.push(send(key, `op-${n}`));
      if (n % 16 === 0) batch.push(send(key, `op-${n}`));
    }
    await Promise.all(batch);
    await page.waitForTimeout(5);
  }
  const height = await page.evaluate(() => Math.ceil(document.querySelector('#tables').getBoundingClientRect().bottom) + 12);
  await page.screenshot({ path: screenshot, clip: { x: 0, y: 0, width: 1080, height } });
}

// Labels of the page that lie on one another or stick out.
const collisions = () =>
  page.evaluate(() => {
    const found = [],
      texts = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode());) {
      if (!node.data.trim() || node.parentElement.closest('.scroll, script, noscript, [hidden]')) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const r of range.getClientRects()) if (r.width > 0 && r.height > 0) texts.push([r, node.data.trim()]);
    }
    for (const [i, [a, text]] of texts.entries()) {
      if (a.left < 0 || a.right > document.documentElement.clientWidth) found.push(`"${text}" sticks out`);
      for (const [b, other] of texts.slice(i + 1))
        if (
          Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4
        )
          found.push(`"${text}" and "${other}" overlap`);
    }
    if (texts.length < 30) found.push(`only ${texts.length} texts`);
    if (document.documentElement.scrollWidth > document.documentElement.clientWidth)
      found.push('the page is wider than its window');
    return found;
  });

async function look() {
  await page.goto(url);
  await state('ready');
  // Duplicates move the numbers: the total exactly, and the rate.
  await send('page:home', 'op-1');
  await until(() => document.querySelector('#duplicates + small')?.textContent);
  const before = await inAll();
  for (let i = 0; i < 25; i++) await send('page:home', 'op-1');
  await until((want) => document.querySelector('#duplicates + small').textContent === `${want} in all`, before + 25);
  const moved = until(() => parseFloat(document.querySelector('#duplicates').textContent) > 0);
  for (let done = false; !done;) done = await Promise.race([moved.then(() => true), send('page:home', 'op-1').then(() => false)]);
  await until(() => [...document.querySelectorAll('.table dd')].some((e) => parseFloat(e.textContent) > 0));
  // The slow log shows keys here, on the loopback.
  await redis.sendCommand(['CONFIG', 'SET', 'slowlog-log-slower-than', '0']);
  await send('<b>key</b>', 'op-2');
  await until(() => document.querySelector('#slow').textContent.includes('<b>key</b>'));
  await redis.sendCommand(['CONFIG', 'SET', 'slowlog-log-slower-than', '10000']);
  // A leader shows how far the others are, once there is a cluster.
  if (await page.isVisible('#cluster')) problems.push('a cluster is shown that is not there');
  await page.route('**/status', async (route) => {
    const response = await route.fetch();
    const status = await response.json();
    const lines = 'cluster_enabled:1\r\nshard_term:3\r\nshard_replica0:address=127.0.0.1:7002,index=95,lag_entries=5,lag_ms=1500,last_contact_ms=40' +
      '\r\nshard_replica1:address=127.0.0.1:7003,index=0,lag_entries=99,lag_ms=0,last_contact_ms=-1';
    status.info = status.info.replace('cluster_enabled:0', lines);
    await route.fulfill({ response, json: status });
  });
  await until(() => /leads\s*Term\s*3[^]*127.0.0.1:7002\s*5\s*1.50 s\s*40.0 ms ago\s*127.0.0.1:7003[^]*not since this node leads/.test(document.querySelector('#cluster').innerText));
  // Light, dark, and on a phone.
  const shades = [];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    shades.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    for (const width of [1000, 600, 360]) {
      await page.setViewportSize({ width, height: 800 });
      await until((width) => [...document.querySelectorAll('.uplot')].every((u) => u.getBoundingClientRect().right <= width), width);
      problems.push(...(await collisions()).map((c) => `${colorScheme}, ${width} pixels wide: ${c}`));
    }
  }
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  if (shades[0] === shades[1]) problems.push(`light and dark are both ${shades[0]}`);
  // A server that is gone, and is back.
  console.log('kill');
  await state('no answer');
  console.log('start');
  await state('ready');
  // Not even a script of the page's own could send what it shows elsewhere.
  problems.push(...(await page.evaluate(() => window.violations)));
  await page.evaluate(() => fetch('http://127.0.0.2:1/').catch(() => {}));
  await until(() => window.violations.join().startsWith('connect-src http://127.0.0.2:1'));
}

try {
  await (screenshot ? takeScreenshot() : look());
} catch (e) {
  problems.push(e.stack, `the page shows: ${await page.evaluate(() => document.body.innerText)}`);
}
for (const p of problems) console.error(p);
process.exit(problems.length ? 1 : 0);
