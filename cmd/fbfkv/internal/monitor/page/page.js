// The status page: asks /status every second and shows what INFO says there.

const kept = 300; // points of a plot
const period = 1000; // milliseconds
const shownTables = 30;
const enoughIds = 10000; // for memory per id to mean something: a small filter is mostly empty

const $ = (id) => document.getElementById(id);

function element(name, text = '', className = '') {
  const e = document.createElement(name);
  e.textContent = text;
  e.className = className;
  return e;
}

// Numbers as people read them.

function scaled(n, units, base) {
  let i = 0;
  for (; n >= base * 0.9995 && i < units.length - 1; i++) n /= base;
  const digits = i === 0 && Number.isInteger(n) || n >= 100 ? 0 : n >= 10 ? 1 : 2;
  return n.toFixed(digits) + units[i];
}
const count = (n) => n === null ? '–' : scaled(n >= 10 ? Math.round(n) : Math.round(n * 10) / 10, ['', ' k', ' M', ' G', ' T'], 1000);
const bytes = (n) => scaled(Math.round(n), [' B', ' kB', ' MB', ' GB', ' TB'], 1000);
const latency = (us) => us === null ? '–' : us < 1000 ? `${us < 10 ? Number(us.toPrecision(2)) : Math.round(us)} µs` : us < 1e6 ? `${(us / 1e3).toPrecision(3)} ms` : `${(us / 1e6).toPrecision(3)} s`;
const small = (p) => p === 0 || p >= 0.001 ? String(Number(p.toPrecision(2))) : p.toExponential(1);

function duration(ms) {
  for (const [size, name] of [[86400e3, 'd'], [3600e3, 'h'], [60e3, 'min'], [1e3, 's']])
    if (ms >= 2 * size || ms >= size && ms % size === 0) return `${Math.floor(ms / size)} ${name}`;
  return `${Math.round(ms)} ms`;
}

// INFO: "name:value" lines, and headings, which are left out; a value may be "name=value,name=value".

function parse(text) {
  const fields = new Map();
  for (const line of text.split('\r\n')) {
    const at = line.indexOf(':');
    if (at > 0) fields.set(line.slice(0, at), line.slice(at + 1));
  }
  return { fields, number: (name) => Number(fields.get(name) ?? 0) };
}

const pairs = (value) => new Map(value.split(',').map((p) => p.split('=')));

// What is computed from two samples. A figure that went back was reset: there is no rate.

const rate = (now, before, seconds) => before === undefined || now < before ? null : (now - before) / seconds;

// percentile looks for a share of what was counted between two samples of waits_usec, in
// microseconds; within a bucket everything counts as evenly spread.
function percentile(now, before, share) {
  if (!now || !before) return null;
  const buckets = [...now].map(([end, n]) => [Number(end), n - (before.get(end) ?? 0)]);
  const all = buckets.at(-1)[1];
  if (!(all > 0)) return null;
  let start = 0, below = 0;
  for (const [end, n] of buckets) {
    if (n >= share * all) return isNaN(end) ? start : start + (end - start) * (share * all - below) / (n - below);
    start = end;
    below = n;
  }
  return start;
}

const waits = (info) => info.fields.has('waits_usec') &&
  new Map([...pairs(info.fields.get('waits_usec'))].map(([end, n]) => [end, Number(n)]));

// The plots.

const times = [], series = { applied: [], duplicates: [], p50: [], p99: [] };

function push(time, values) {
  times.push(time);
  for (const name in series) series[name].push(values[name] ?? null);
  if (times.length > kept) for (const list of [times, ...Object.values(series)]) list.shift();
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const clock = (u, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString([], { hour12: false }));

function plot(id, format, lines) {
  const box = $(id);
  const axis = { stroke: color('dim'), grid: { stroke: color('line'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
  const chart = new uPlot({
    width: Math.max(box.clientWidth, 200), height: 220,
    cursor: { sync: { key: 'fbfkv' } },
    scales: { x: { range: (u, min, max) => [min ?? 0, Math.max(max ?? 0, (min ?? 0) + 60)] }, y: { range: (u, min, max) => [0, Math.max(max ?? 0, 1) * 1.1] } },
    axes: [{ ...axis, values: clock, space: 90, gap: 10, size: 34 },
      { ...axis, size: 66, values: (u, ticks) => ticks.map((t) => format(t).replace(/\.0+ /, ' ')) }],
    series: [{ value: (u, t) => t === null ? '' : clock(u, [t])[0] }, ...lines.map(([name, label, shade]) => ({
      label, stroke: color(shade), width: 2, points: { show: false }, value: (u, v) => format(v ?? series[name].at(-1) ?? null),
    }))],
  }, [times, ...lines.map(([name]) => series[name])], box);
  return { chart, draw: () => chart.setData([times, ...lines.map(([name]) => series[name])]) };
}

let plots = [];

function makePlots() {
  for (const p of plots) p.chart.destroy();
  plots = [
    plot('rates', count, [['applied', 'Applied', 'applied'], ['duplicates', 'Duplicates absorbed', 'duplicates']]),
    plot('waits', latency, [['p50', 'Half within', 'applied'], ['p99', '99 % within', 'duplicates']]),
  ];
}

// The tiles.

const tiles = new Map();

function tile(id, name, value, more = '') {
  if (!tiles.has(id)) {
    const box = element('div', '', 'tile'), parts = [element('span', name), element('b'), element('small')];
    parts[1].id = id;
    box.append(...parts);
    $('tiles').append(box);
    tiles.set(id, parts);
  }
  const [, b, small] = tiles.get(id);
  b.textContent = value;
  small.textContent = more;
}

function showTiles(info, now, rates, tables) {
  const n = info.number;
  const ids = tables.reduce((sum, t) => sum + Number(t.get('ids')), 0);
  const memory = n('filter_bytes') + n('used_memory_recent_records');
  const backup = n('backup_last_success_time');
  tile('applied', 'Applied per second', count(rates.applied ?? null), `${count(n('operations_applied'))} in all`);
  tile('duplicates', 'Duplicates per second', count(rates.duplicates ?? null), `${n('operations_duplicate').toLocaleString('en')} in all`);
  tile('latency', '99 % answered within', latency(rates.p99 ?? null), `half within ${latency(rates.p50 ?? null)}`);
  tile('ids', 'Ids remembered', count(ids), ids < enoughIds ? `in ${bytes(memory)} of memory` : `${(memory / ids).toFixed(1)} B of memory each`);
  tile('memory', 'Memory', bytes(n('used_memory')), `filters ${bytes(n('filter_bytes'))}` + (n('filter_maxmemory') ? ` of ${bytes(n('filter_maxmemory'))}` : ''));
  tile('disk', 'Disk', bytes(n('disk_bytes')), n('disk_full') ? 'full: writes are refused' : `${bytes(n('disk_free_bytes'))} free`);
  tile('keys', 'Keys', count(Number(pairs(info.fields.get('db0') ?? 'keys=0').get('keys'))), n('connected_clients') === 1 ? '1 client' : `${count(n('connected_clients'))} clients`);
  tile('backup', 'Last backup', backup ? duration(Math.max(now - backup * 1000, 1000)) + ' ago' : 'never', n('backup_in_progress') ? 'one is under way' : '');
  tiles.get('disk')[2].classList.toggle('bad', n('disk_full') === 1);
}

// The tables: each one's window, as its generations.

const cards = new Map();

function card(name, mode) {
  if (cards.has(name)) return cards.get(name);
  const box = element('article', '', 'table'), title = element('h3', name), bars = element('div', '', 'bars');
  const ends = element('div', '', 'ends'), list = element('dl');
  title.append(element('span', mode, 'tag'));
  ends.append(element('span', 'newest'), element('span', 'oldest'));
  box.append(title, bars, ends, list);
  const c = { box, bars, list, rows: new Map() };
  cards.set(name, c);
  return c;
}

function row(c, name, value, bad = false) {
  if (!c.rows.has(name)) {
    c.rows.set(name, element('dd'));
    c.list.append(element('dt', name), c.rows.get(name));
  }
  c.rows.get(name).textContent = value;
  c.rows.get(name).className = bad ? 'bad' : '';
}

function drawBars(box, fills) {
  const highest = Math.max(0.5, ...fills);
  box.replaceChildren(...fills.map((fill) => {
    const column = element('div', fills.length > 10 ? '' : `${fill > 0 && fill < 0.01 ? '<1' : Math.round(fill * 100)} %`);
    const bar = element('i');
    bar.style.height = `${Math.max(1, Math.round(54 * fill / highest))}px`;
    column.append(bar);
    return column;
  }));
}

function showTables(tables, before, seconds) {
  const busy = (t) => Number(t.get('applied')) + Number(t.get('duplicates'));
  const shown = tables.toSorted((a, b) => busy(b) - busy(a)).slice(0, shownTables);
  for (const t of shown) {
    const v = (name) => Number(t.get(name)), was = before.find((b) => b.get('name') === t.get('name'));
    const perSecond = (name) => count(rate(v(name), was && Number(was.get(name)), seconds));
    const c = card(t.get('name'), t.get('mode'));
    drawBars(c.bars, (t.get('fills') || '0').split('/').map(Number));
    row(c, 'Window', duration(v('window_ms')));
    row(c, 'A new generation at least every', duration(v('refresh_ms')));
    row(c, 'Ids remembered', count(v('ids')));
    row(c, 'Filter memory', bytes(v('memory')));
    row(c, 'Filter memory per id', v('ids') < enoughIds ? '–' : `${(v('memory') / v('ids')).toFixed(1)} B`);
    row(c, 'Error now', small(v('effective_fpp')), v('effective_fpp') > v('target_fpp'));
    row(c, 'Error wanted, at most', small(v('target_fpp')));
    row(c, 'Applied per second', perSecond('applied'));
    row(c, 'Duplicates per second', perSecond('duplicates'));
    row(c, 'Too late (STALE)', count(v('stale')));
    row(c, 'Refused for memory (OOM)', count(v('refused')), v('refused') > 0);
  }
  const boxes = shown.map((t) => cards.get(t.get('name')).box);
  if (boxes.length !== $('tables').children.length || boxes.some((b) => b.parentNode !== $('tables'))) $('tables').replaceChildren(...boxes);
  for (const name of cards.keys()) if (!tables.some((t) => t.get('name') === name)) cards.delete(name);
  $('more').textContent = tables.length > shown.length ? `and ${tables.length - shown.length} tables that do less` : '';
}

function grid(rows) {
  const table = element('table'), head = element('tr');
  const columns = [...new Set(rows.flatMap((r) => [...r.keys()]))];
  head.append(...columns.map((c) => element('th', c)));
  table.append(head, ...rows.map((r) => {
    const line = element('tr');
    line.append(...columns.map((c) => element('td', r.get(c) ?? '', c === 'Command' ? 'text' : '')));
    return line;
  }));
  return table;
}

// The cluster: who leads, and on the leader how far the other nodes are.

function showCluster(info) {
  $('cluster').hidden = info.fields.get('cluster_enabled') !== '1';
  if ($('cluster').hidden) return;
  const field = (name) => info.fields.get(name) ?? '–';
  const leads = field('role') === 'master', rows = [];
  const fields = [
    ['This node', leads ? 'leads' : `follows ${field('master_host')}:${field('master_port')}, link ${field('master_link_status')}`],
    ['Term', field('shard_term')], ['Changes of the leader', field('shard_leader_changes')],
    ['Entries committed', field('shard_commit_index')], ['Entries applied', field('shard_applied_index')],
  ];
  for (let i = 0; info.fields.has(`shard_replica${i}`); i++) {
    const node = pairs(info.fields.get(`shard_replica${i}`)), time = (name) => latency(1000 * node.get(name));
    const heard = node.get('last_contact_ms') >= 0;
    rows.push(new Map([['Node', node.get('address')], ['Entries behind', heard ? node.get('lag_entries') : '–'],
      ['Time behind', heard ? time('lag_ms') : '–'], ['Heard of', heard ? `${time('last_contact_ms')} ago` : 'not since this node leads']]));
  }
  $('cluster-fields').replaceChildren(...fields.flatMap(([name, value]) => [element('dt', name), element('dd', value)]));
  $('cluster-rows').replaceChildren(...(rows.length ? [grid(rows)] : []));
}

function showSlow(status) {
  $('no-slow').hidden = status.slow.length > 0;
  $('hidden-arguments').hidden = status.arguments;
  $('slow').replaceChildren(...(status.slow.length ? [grid(status.slow.map((s) => new Map([
    ['When', new Date(s.at).toLocaleTimeString([], { hour12: false })], ['Took', latency(s.usec)], ['Command', s.text ?? s.command],
    ...(s.client ? [['Client', s.client]] : []),
  ])))] : []));
}

function showState(text, good, about) {
  $('state').textContent = text;
  $('state').className = `pill ${good ? 'good' : 'bad'}`;
  if (about !== undefined) $('about').textContent = about;
  document.title = good ? 'fbfkv' : `fbfkv: ${text}`;
}

let last; // the sample before, of the same process

function show(status) {
  const info = parse(status.info);
  const about = [status.version, status.started && `up ${duration(Math.max(status.now - status.started, 1000))}`,
    info.fields.get('appendfsync') && `appendfsync ${info.fields.get('appendfsync')}`].filter(Boolean).join(' · ');
  showState(status.state || 'ready', !status.state, about);
  const rates = {};
  if (status.info) {
    const before = last?.started === status.started ? last : undefined;
    const seconds = before ? Math.max(status.now - before.now, 1) / 1000 : 1;
    const tables = [...info.fields].filter(([name]) => name.startsWith('table_')).map(([name, value]) => pairs(value).set('name', name.slice(6)));
    if (before && status.now === before.now) return; // the server has not looked again
    rates.applied = rate(info.number('operations_applied'), before?.info.number('operations_applied'), seconds);
    rates.duplicates = rate(info.number('operations_duplicate'), before?.info.number('operations_duplicate'), seconds);
    rates.p50 = percentile(waits(info), before && waits(before.info), 0.5);
    rates.p99 = percentile(waits(info), before && waits(before.info), 0.99);
    showTiles(info, status.now, rates, tables);
    showTables(tables, before?.tables ?? [], seconds);
    showCluster(info);
    last = { ...status, info, tables };
  }
  showSlow(status);
  push(status.now / 1000, rates);
}

async function tick() {
  try {
    const answer = await fetch('/status', { cache: 'no-store', signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(answer.statusText);
    show(await answer.json());
  } catch (problem) {
    showState('no answer', false);
    push(Date.now() / 1000, {});
    if (!(problem instanceof TypeError) && problem.name !== 'TimeoutError') console.error(problem); // not of the network
  }
  for (const p of plots) p.draw();
  setTimeout(tick, period);
}

makePlots();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', makePlots);
new ResizeObserver(() => {
  for (const p of plots) p.chart.setSize({ width: Math.max(p.chart.root.parentNode.clientWidth, 200), height: 220 });
}).observe($('rates'));
tick();
