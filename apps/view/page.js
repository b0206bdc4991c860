'use strict';
// Draws one run that trains, from data that it requests from its server every two seconds, or the finished runs of a
// report, whose data are in the page.
const by = id => document.getElementById(id), token = new URLSearchParams(location.search).get('token');
// Null, or {title, summary: [[name, [value per run]]], runs: [{name, about, status, series, ranks}]}, with the same
// four objects per run as the server's paths of these names.
const report = by('report') && JSON.parse(by('report').textContent);
const runs = report ? report.runs : [{name: '', about: {}, status: {}, series: null, ranks: null}], live = runs[0];
let range = null, log = false, printing = false;

async function get(path, more) {
  const query = new URLSearchParams(more || {});
  if (token) query.set('token', token);
  const answer = await fetch(path + '?' + query, {cache: 'no-store'});
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}
function el(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
function fill(made, heads, rows) {
  made.replaceChildren();
  const line = made.appendChild(el('tr'));
  for (const head of heads) line.append(el('th', head.replace(/^</, ''), head.startsWith('<') ? 'text' : ''));
  for (const row of rows) {
    const tr = made.appendChild(el('tr'));
    row.forEach((cell, i) => {
      const td = el('td', cell instanceof Node ? undefined : cell, heads[i].startsWith('<') ? 'text' : '');
      if (cell instanceof Node) td.append(cell);
      tr.append(td);
    });
  }
}
const known = x => x !== null && x !== undefined && isFinite(x);
const percent = share => known(share) ? (100 * share).toFixed(1) + '%' : '–';
function count(x) {
  if (!known(x)) return '–';
  // Rounds first, so that 999,600 is 1.00M, not 1000k.
  const rounded = Math.abs(+(+x).toPrecision(3));
  for (const [unit, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']])
    if (rounded >= unit) return rounded >= 1000 * unit ? Math.round(x / unit) + name : (x / unit).toPrecision(3) + name;
  return String(+(+x).toPrecision(3));
}
function bytes(x) {
  if (!known(x)) return '–';
  for (const [unit, name] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'],
      [1024, 'KiB']]) if (x >= unit) return (x / unit).toFixed(1) + ' ' + name;
  return Math.round(x) + ' B';
}
function time(s) {
  if (!known(s) || s < 0) return '–';
  s = Math.round(s);
  const two = n => String(n).padStart(2, '0'), h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return h ? h + ':' + two(m) + ':' + two(s % 60) : m + ':' + two(s % 60);
}
const milliseconds = s => known(s) ? +(1e3 * s).toPrecision(4) + ' ms' : '–';
function mark(colour) {
  const made = el('span', undefined, 'key');
  made.style.background = 'var(' + colour + ')';
  return made;
}
function key(colour, text) {
  const made = el('span', text, 'keyed');
  made.prepend(mark(colour));
  return made;
}
const colourOf = run => '--run' + run % 6;

// One part per run of the page's lower half.
for (const run of runs) {
  run.box = by('runs').appendChild(el('div'));
  run.box.append(by('run').content.cloneNode(true));
}
const part = (run, name) => run.box.querySelector('.' + name);
// A report has no parts without data.
function show(run, name, shown) { part(run, name).closest('section').hidden = !shown; }

// Plots -------------------------------------------------------------------------------------------------------------
const margin = {left: 58, right: 10, top: 6, bottom: 20};
function ticks(from, to, about) {
  const rough = (to - from) / about, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find(k => k * unit >= rough) * unit, all = [];
  for (let x = Math.ceil(from / step) * step; x <= to +
      step * 1e-9 && all.length < 20; x += step) all.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return all;
}
// Width in pixels; the browser scales a drawing for `paper` to the printed page.
const widthOf = (svg, paper) => printing ? paper : svg.clientWidth || paper;
// Empties an SVG; the result adds elements to it.
function canvas(svg, width, height) {
  svg.replaceChildren();
  svg.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
  return (tag, attributes, text) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    if (text !== undefined) made.textContent = text;
    return svg.appendChild(made);
  };
}
// One curve per run over steps; `dots`: points [step, value] of a run.
function plot(name, metric, format, dots) {
  const svg = by('plot-' + name), width = widthOf(svg, 420), height = 200, make = canvas(svg, width, height);
  const inside = p => !range || (p[0] >= range[0] && p[0] <= range[1]);
  const logs = log && name === 'loss', map = y => logs ? Math.log10(y) : y;
  const usable = y => known(y) && (!logs || y > 0);
  const curves = runs.map(({name, series, status}, r) => {
    const steps = series ? series.step : [], values = (series || {})[metric] || [];
    const least = (series || {})[metric + '_least'] || values, most = (series || {})[metric + '_most'] || values;
    return {name, colour: 'var(' + colourOf(r) + ')', dots: dots(status).filter(inside).filter(p => usable(p[1])),
      points: steps.map((x, i) => [x, values[i], least[i], most[i]]).filter(inside)};
  });
  const all = curves.flatMap(c => [...c.points, ...c.dots]), seen = all.map(p => p[1]).filter(usable).map(map);
  if (!seen.length) { make('text', {x: width / 2, y: height / 2, 'text-anchor': 'middle'},
      report ? 'no data' : 'no data yet'); return; }
  // Clips the range so that a few spikes do not flatten the curve.
  const sorted = [...seen].sort((a, b) => a - b), at = q => sorted[Math.floor(q * (sorted.length - 1))];
  let low = sorted[0], high = sorted[sorted.length - 1];
  if (sorted.length > 50 && high - low > 8 * (at(0.99) - low)) high = at(0.99) + (at(0.99) - low) * 0.2;
  if (high - low < 1e-12 * Math.max(1, Math.abs(high))) { const more = Math.abs(high) * 0.05 || 1; low -= more;
      high += more; }
  const pad = (high - low) * 0.05; low -= pad; high += pad;
  const x0 = range ? range[0] : Math.min(all[0][0], 1);
  const x1 = range ? Math.max(range[1], x0 + 1) : all.reduce((last, p) => Math.max(last, p[0]), x0 + 1);
  const px = x => margin.left + (x - x0) / (x1 - x0) * (width - margin.left - margin.right);
  const py = y => Math.max(margin.top, Math.min(height - margin.bottom,
      margin.top + (high - map(y)) / (high - low) * (height - margin.top - margin.bottom)));
  for (const t of ticks(low, high, 4)) {
    const y = margin.top + (high - t) / (high - low) * (height - margin.top - margin.bottom);
    make('line', {x1: margin.left, x2: width - margin.right, y1: y, y2: y, stroke: 'var(--grid)'});
    make('text', {x: margin.left - 6, y: y + 4, 'text-anchor': 'end'}, format(logs ? 10 ** t : t));
  }
  for (const t of ticks(x0, x1, Math.max(2, width / 110))) make('text', {x: Math.min(px(t), width - 17),
      y: height - 5, 'text-anchor': 'middle'}, count(t));
  for (const curve of curves) {
    let line = '', up = '', down = '', pen = 'M';
    for (const [step, value, least, most] of curve.points) {
      if (!usable(value)) { pen = 'M'; continue; }
      const x = px(step).toFixed(1);
      line += pen + x + ' ' + py(value).toFixed(1);
      pen = 'L';
      up += (up ? 'L' : 'M') + x + ' ' + py(most).toFixed(1);
      down = 'L' + x + ' ' + py(usable(least) ? least : value).toFixed(1) + down;
    }
    if (runs.length === 1 && curve.points.length > 1) make('path', {d: up + down + 'Z', fill: curve.colour,
        opacity: 0.18});
    make('path', {d: line, fill: 'none', stroke: curve.colour, 'stroke-width': 1.5, class: 'values'});
    if (curve.points.length === 1 && line) make('circle', {cx: px(curve.points[0][0]), cy: py(curve.points[0][1]), r: 3,
        fill: curve.colour});
    for (const [x, y] of curve.dots) make('circle', {cx: px(x), cy: py(y), r: 3, class: 'evaluation',
        fill: runs.length === 1 ? 'var(--run1)' : curve.colour}).append(titled(curve.name, 'validation', x, format(y)));
  }
  const cursor = make('line', {y1: margin.top, y2: height - margin.bottom, stroke: 'var(--soft)',
      visibility: 'hidden'});
  const marked = make('rect', {y: margin.top, height: height - margin.top - margin.bottom, fill: 'var(--run0)',
      opacity: 0.18, visibility: 'hidden'});
  const step = event => {
    const box = svg.getBoundingClientRect();
    return x0 + ((event.clientX - box.left) * width / box.width - margin.left) /
        (width - margin.left - margin.right) * (x1 - x0);
  };
  const nearest = (some, x) => some.reduce((best, p) => Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best);
  svg.onpointermove = event => {
    const x = step(event), here = px(nearest(all, x)[0]);
    cursor.setAttribute('x1', here); cursor.setAttribute('x2', here);
    cursor.setAttribute('visibility', 'visible');
    tip(event, curves.filter(c => c.points.length).map(c => {
      const [at, value] = nearest(c.points, x);
      return (runs.length > 1 ? c.name + ', ' : '') + 'step ' + at + ': ' + (known(value) ? format(value) : '–');
    }).join('\n'));
    if (drag && drag.svg === svg) {
      const a = px(Math.min(drag.from, x)), b = px(Math.max(drag.from, x));
      marked.setAttribute('x', a); marked.setAttribute('width', b - a); marked.setAttribute('visibility', 'visible');
    }
  };
  svg.onpointerleave = () => { tip(); cursor.setAttribute('visibility', 'hidden'); };
  svg.onpointerdown = event => { drag = {svg, from: step(event)}; };
  svg.onpointerup = event => {
    const from = drag && drag.svg === svg ? drag.from : null, to = step(event);
    drag = null;
    if (from === null || Math.abs(px(from) - px(to)) < 8) { marked.setAttribute('visibility', 'hidden'); return; }
    range = [Math.max(0, Math.floor(Math.min(from, to))), Math.ceil(Math.max(from, to))];
    refresh();
  };
  svg.ondblclick = () => { range = null; refresh(); };
}
function titled(name, what, step, value) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', 'title');
  made.textContent = (runs.length > 1 ? name + ', ' : '') + what + ', step ' + step + ': ' + value;
  return made;
}
let drag = null;
addEventListener('pointerup', () => { drag = null; });
function tip(event, text) {
  const box = by('tip');
  box.style.display = event ? 'block' : 'none';
  if (!event) return;
  box.textContent = text;
  box.style.left = Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 4) + 'px';
  box.style.top = event.clientY + 14 + 'px';
}
function drawPlots() {
  const none = () => [], has = metric => runs.some(({series}) => series && series[metric].some(known));
  const mfu = has('mfu') || !has('measured_mfu') ? 'mfu' : 'measured_mfu';
  plot('loss', 'loss', y => String(+y.toPrecision(4)), status => status.evaluations || []);
  plot('norm', 'norm', y => String(+y.toPrecision(3)), none);
  plot('throughput', 'throughput', count, none);
  plot('seconds', 'seconds', milliseconds, none);
  plot('lr', 'lr', y => y.toExponential(2), none);
  by('plot-mfu').closest('section').hidden = !has(mfu);
  by('mfu').textContent = mfu === 'mfu' ? 'MFU' : 'Measured MFU';
  if (has(mfu)) plot('mfu', mfu, percent, none);
  by('whole').hidden = !range;
}

// Summary -----------------------------------------------------------------------------------------------------------
function liveCards({about, status}) {
  const last = status.last || {}, items = (about.item || 'token') + 's';
  const all = [['phase', phase.phase], ['step', status.step + ' / ' + status.steps],
      ['loss', known(last.loss) ? last.loss.toFixed(5) : '–'],
      ['elapsed', time(status.running_seconds)], ['ETA', isOver() ? '–' : time(status.eta_seconds)],
      ['step time', known(status.step_seconds) ? (status.step_seconds * 1e3).toFixed(1) + ' ms' : '–'],
      ['throughput', count(last.tokens_per_second) + ' ' + items + '/s'],
      [known(last.mfu) || !known(last.measured_mfu) ? 'MFU' : 'measured MFU', percent(last.mfu ?? last.measured_mfu)],
      [items, count(status.tokens)], ['grid', about.stages ? about.stages + ' stages × ' + about.rows + ' rows' : '–']];
  if (status.bad_steps) all.push(['bad steps', status.bad_steps]);
  if (status.skipped) all.push(['skipped', status.skipped]);
  if (status.repeated_seconds) all.push(['repeated', time(status.repeated_seconds)]);
  return all.map(([name, value]) => [name, [value]]);
}
function drawSummary() {
  const {about, status} = live, last = runs.length === 1 && status.last || {};
  by('title').textContent = report ? report.title : about.model || 'Ranvier';
  document.title = report ? report.title :
      (status.steps ? Math.floor(100 * status.step / status.steps) + '% · ' : '') + 'Ranvier';
  by('progress').hidden = report !== null;
  by('progress').max = Math.max(status.steps, 1) || 1;
  by('progress').value = status.step || 0;
  if (runs.length > 1 || (report && report.title !== live.name))
    by('names').replaceChildren(...runs.map((run, r) => key(colourOf(r), run.name)));
  by('cards').replaceChildren(...(report ? report.summary : liveCards(live)).map(([name, values]) => {
    const box = el('div');
    box.append(el('span', name), ...values.map((value, r) => {
      const line = el('b', value);
      if (runs.length > 1) { line.prepend(mark(colourOf(r))); line.title = runs[r].name; }
      return line;
    }));
    box.id = 'card-' + name.replace(/ /g, '-');
    return box;
  }));
  by('now-loss').textContent = known(last.loss) ? last.loss.toFixed(5) : '';
  by('now-norm').textContent = known(last.grad_norm) ? last.grad_norm.toFixed(4) : '';
  by('now-throughput').textContent = known(last.tokens_per_second) ?
      count(last.tokens_per_second) + (report ? '/s' : ' ' + (about.item || 'token') + 's/s') : 'per second';
  by('now-seconds').textContent = known(last.seconds) ? milliseconds(last.seconds) : '';
  by('now-lr').textContent = known(last.lr) ? last.lr.toExponential(2) : '';
  by('now-mfu').textContent = known(last.mfu ?? last.measured_mfu) ? percent(last.mfu ?? last.measured_mfu) : '';
  const warnings = runs.flatMap(run => (run.status.warnings || []).slice(report ? 0 : -12).reverse().map(w =>
      el('div', (runs.length > 1 ? run.name + ', ' : '') + 'step ' + w[0] + ': ' + w[1], 'bad')));
  by('warnings-box').hidden = !warnings.length;
  by('warnings').replaceChildren(...warnings);
}
function drawOptions() {
  const rows = new Map();  // [concern, value per run] by name
  runs.forEach((run, r) => (run.about.options || []).forEach(([concern, name, value]) => {
    if (!rows.has(name)) rows.set(name, [concern, runs.map(() => '–')]);
    rows.get(name)[1][r] = value;
  }));
  const all = [...rows].map(([name, [concern, values]]) => [concern, name, ...values]);
  const shown = all.some(row => row[0]) ? 0 : 1;  // a report does not know the concerns
  const put = (id, some) => fill(by(id), ['<concern', '<option', ...(runs.length > 1 ? runs.map(run => '<' + run.name) :
      ['<value'])].slice(shown), some.map(row => row.slice(shown)));
  const has = runs.map(run => (run.about.options || []).length > 0);  // otherwise not in the metrics
  const differing = all.filter(row => new Set(row.slice(2).filter((value, r) => has[r])).size > 1);
  by('differing-box').hidden = !differing.length;
  put('differing', differing);
  put('options', all);
  by('options').closest('section').hidden = report && !all.length;
}

// One run -----------------------------------------------------------------------------------------------------------
function drawTables(run) {
  const {about, status} = run, evaluations = status.evaluations || [], checkpoints = status.checkpoints || [];
  part(run, 'name').replaceChildren(key(colourOf(runs.indexOf(run)), run.name));
  part(run, 'name').hidden = runs.length === 1;
  const share = x => known(x) ? (100 * x).toFixed(2) + '%' : '–';
  const columns = [['step', e => e[0]], ['loss', e => known(e[1]) ? e[1].toFixed(5) : '–', 1],
      ['perplexity', e => known(e[1]) ? Math.exp(e[1]).toPrecision(5) : '–', about.item === 'token' ? 1 : -1],
      ['accuracy', e => share(e[2]), 2], ['HellaSwag', e => share(e[3]), 3]].filter(([name, text, place]) =>
    place === undefined || evaluations.some(e => known(e[place])));
  show(run, 'evaluations', evaluations.length);
  fill(part(run, 'evaluations'), columns.map(([name]) => name),
      evaluations.slice(report ? 0 : -12).reverse().map(e => columns.map(([name, text]) => text(e))));
  show(run, 'checkpoints', checkpoints.length);
  fill(part(run, 'checkpoints'), ['step', 'size', 'duration', 'stall', '<'], checkpoints.slice(report ? 0 : -8).reverse().map(c =>
    [c.step, bytes(c.bytes), c.seconds.toFixed(2) + ' s', c.waited_seconds.toFixed(3) + ' s',
      c.failure || 'complete']));
  const samples = (status.samples || []).slice().reverse();
  show(run, 'samples', samples.length);
  part(run, 'samples').replaceChildren(...samples.flatMap(s => [el('b', 'step ' + s[0]), el('pre', s[1])]));
}
const memoryColours = ['--forward', '--backward', '--optimizer', '--gather', '--reduce', '--send', '--other'];
function drawMemory(run) {
  const {about, status, ranks} = run;
  if (report) {  // the metrics have the sums of rank 0
    const kinds = Object.entries((status.last || {}).memory || {}).filter(([kind, size]) => size > 0);
    part(run, 'memory-name').textContent = 'Planned memory of rank 0';
    fill(part(run, 'memory'), ['<kind', 'planned'], kinds.map(([kind, size]) => [kind, bytes(size)]));
    show(run, 'memory', kinds.length);
    return;
  }
  // One row per memory space of a stage. The plan is allocated at once, so only device memory is also measured: there
  // libraries allocate more.
  const rows = (about.layers || []).flatMap((s, i) => Object.entries(s.planned_bytes).map(([place, kinds]) =>
      ({stage: i, layers: s.layers, place, kinds})));
  const sum = kinds => Object.values(kinds).reduce((a, b) => a + b, 0), most = Math.max(1, ...rows.map(r =>
      sum(r.kinds)));
  const kinds = Object.keys((rows[0] || {kinds: {}}).kinds), names = {device: 'device', pinned: 'pinned',
      host: 'host', nvme: 'files'};
  part(run, 'memory-keys').replaceChildren(...kinds.map((kind, k) => key(memoryColours[k % memoryColours.length],
      kind)));
  fill(part(run, 'memory'), ['stage', '<layers', '<in', '<', 'planned', 'allocated'], rows.map(r => {
    const bar = el('div', undefined, 'bar');
    kinds.forEach((kind, k) => {
      const slice = el('div');
      slice.style.cssText = 'width:' + 100 * r.kinds[kind] / most +
          '%;background:var(' + memoryColours[k % memoryColours.length] + ')';
      bar.append(slice);
    });
    bar.title = kinds.filter(kind => r.kinds[kind]).map(kind => kind + ' ' + bytes(r.kinds[kind])).join(', ');
    const device = r.place === 'device', taken = device && ranks && ranks.ranks.length ? bytes(Math.max(
        ...ranks.ranks.filter((rank, n) => stageOf(run, n) === r.stage).map(rank => rank.device_bytes))) : '–';
    return [device ? r.stage : '', device ? r.layers : '', names[r.place] || r.place, bar, bytes(sum(r.kinds)), taken];
  }));
}

// Ranks -------------------------------------------------------------------------------------------------------------
const passes = ['forward', 'backward', 'weights'], computing = [...passes, 'optimizer'],
    messages = ['gather', 'reduce', 'send'];
const stageOf = (run, rank) => Math.floor(rank / (run.about.rows || 1)), rowOf = (run, rank) =>
    rank % (run.about.rows || 1);
// Whether the run's grid is known, and is that of its ranks.
const placed = run => run.about.stages * run.about.rows === run.ranks.ranks.length;
const rankName = (run, rank) => placed(run) ? 'stage ' + stageOf(run, rank) + ' row ' + rowOf(run, rank) :
    'rank ' + rank;
function drawRanks(run) {
  const {ranks} = run, there = ranks !== null && ranks.ranks.length > 0;
  for (const name of ['ranks', 'timeline']) show(run, name, !report || there);
  show(run, 'links', !report);  // a trace does not tell the bytes
  if (!there) { part(run, 'ranks-note').textContent = 'no data yet'; return; }
  const kind = name => ranks.kinds.indexOf(name), all = ranks.ranks, listed = 64;
  const share = (rank, name) => 100 * rank.seconds[kind(name)] / Math.max(ranks.seconds, 1e-9);
  part(run, 'step-of').textContent = 'step ' + ranks.step + ', ' + (+ranks.step_ms).toFixed(1) + ' ms';
  part(run, 'keys').replaceChildren(...[...computing, ...messages, 'wait'].map(name => key('--' + name, name)));
  const order = all.map((r, i) => i);
  if (all.length > listed) order.sort((a, b) => share(all[b], 'wait') - share(all[a], 'wait'));
  part(run, 'ranks-note').textContent = (report ? 'shares of ' + +ranks.seconds.toPrecision(3) + ' s' :
      'at ' + time(ranks.seconds) + ' since the start') +
      (all.length > listed ? '; the ' + listed + ' of ' + all.length + ' ranks with the longest waiting' : '');
  const more = report ? [...computing, ...messages].filter(name => all.some(r => share(r, name) > 0)) : [];
  const places = placed(run) ? ['stage', 'row'] : [];
  fill(part(run, 'ranks'), ['rank', ...places, '<time', ...more, 'waiting', ...(report ? [] : ['allocated', 'resident',
      '<activity'])], order.slice(0, listed).map(i => {
    const r = all[i], bar = el('div', undefined, 'bar');
    for (const name of computing) {
      const slice = el('div');
      slice.style.cssText = 'width:' + share(r, name) + '%;background:var(--' + name + ')';
      slice.title = name + ' ' + share(r, name).toFixed(1) + '%';
      bar.append(slice);
    }
    return [i, ...places.map(name => name === 'row' ? rowOf(run, i) : stageOf(run, i)), bar,
        ...[...more, 'wait'].map(name => share(r, name).toFixed(1) + '%'),
        ...(report ? [] : [bytes(r.device_bytes), bytes(r.resident_bytes), r.waits])];
  }));
  const total = name => all.reduce((sum, r) => sum + (r[name] || 0), 0),
      since = known(ranks.since_seconds) ? ranks.seconds - ranks.since_seconds : null;
  fill(part(run, 'links'), ['<', 'total', 'per second'], [['inside nodes', 'intra'],
      ['between nodes', 'inter']].map(([text, name]) =>
    [text, bytes(total('bytes_' + name)), since > 0 ? bytes(total(name + '_since') / since) + '/s' : '–']));
  drawTimeline(run);
}
function drawTimeline(run) {
  const {ranks} = run;
  if (!ranks || !ranks.ranks.length) return;
  show(run, 'timeline', !report || ranks.step > 0);
  const svg = part(run, 'timeline'), width = widthOf(svg, 900), n = ranks.ranks.length;
  const row = n <= 16 ? 18 : n <= 64 ? 10 : Math.max(2, Math.floor(700 / n)), left = n <= 64 ? 86 : 10,
      height = n * row + 18, make = canvas(svg, width, height);
  const x = ms => left + ms / Math.max(ranks.step_ms, 1e-9) * (width - left - 4), high = row > 4 ? row - 2 : row;
  const order = ranks.ranks.map((r, i) => i).sort((a, b) => rowOf(run, a) - rowOf(run, b) ||
      stageOf(run, a) - stageOf(run, b));
  const paths = {}, numbers = [];  // rectangles by kind, and microbatches that fit into theirs
  order.forEach((i, place) => {
    const top = place * row;
    if (n <= 64) make('text', {x: 0, y: top + row - (n <= 16 ? 6 : 2), style: n <= 16 ? '' : 'font-size: 8px'},
        rankName(run, i));
    make('rect', {x: left, y: top, width: width - left - 4, height: high, fill: 'var(--grid)'});
    for (const [k, lane, index, begin, length] of ranks.ranks[i].spans) {
      const name = ranks.kinds[k], from = x(begin), wide = Math.max(0.6, x(begin + length) - from);
      const tall = messages.includes(name) && row > 6 ? Math.ceil(high / 3) : high;
      paths[name] = (paths[name] || '') + 'M' + from.toFixed(1) + ' ' + (top + high - tall) + 'h' + wide.toFixed(1) +
          'v' + tall + 'h-' + wide.toFixed(1) + 'z';
      if (n <= 16 && passes.includes(name) && index >= 0 && wide > 7 * String(index).length + 4)
        numbers.push([from + wide / 2, top + high - 4, index]);
    }
  });
  // Later kinds draw over earlier ones: waiting, then messages, then compute.
  for (const name of ['wait', ...messages, ...computing]) if (paths[name]) make('path', {d: paths[name],
      fill: 'var(--' + name + ')', stroke: 'var(--card)', 'stroke-width': row > 6 ? 0.6 : 0, 'stroke-opacity': 0.5});
  for (const [middle, y, index] of numbers) make('text', {x: middle, y, class: 'in'}, index);
  for (const t of ticks(0, ranks.step_ms, Math.max(2, width / 120))) make('text', {x: Math.min(x(t), width - 40),
      y: height - 4}, +t.toPrecision(4) + ' ms');
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect(), scale = width / box.width;
    const ms = ((event.clientX - box.left) * scale - left) / (width - left - 4) * ranks.step_ms;
    const i = order[Math.floor((event.clientY - box.top) * scale / row)];
    if (i === undefined) return tip();
    const here = ranks.ranks[i].spans.filter(s => s[3] <= ms && ms <= s[3] + s[4]).map(s => ranks.kinds[s[0]] +
        (s[2] >= 0 ? ' ' + s[2] : '') + ' ' + s[4].toFixed(2) + ' ms');
    tip(event, 'rank ' + i + (placed(run) ? ' (stage ' + stageOf(run, i) + ', row ' + rowOf(run, i) + ')' : '') + ': ' +
        (here.join(', ') || 'idle'));
  };
  svg.onpointerleave = () => tip();
}

// The loop ----------------------------------------------------------------------------------------------------------
function draw() {
  drawSummary(); drawOptions();
  for (const run of runs) { drawTables(run); drawMemory(run); drawRanks(run); }
  drawPlots();  // last: a scroll bar that appears changes the widths
}
let busy = false, failures = 0, heard = false;
async function refresh() {
  if (report) return draw();
  if (busy) return;
  busy = true;
  const anew = !heard || failures > 0;
  try {
    if (anew || !live.about.model) live.about = await get('about');
    const asked = {points: Math.max(100, Math.min(1200, innerWidth))};
    if (range) [asked.first, asked.last] = range;
    [live.status, live.series, live.ranks] = await Promise.all([get('status'), get('series', asked), get('ranks')]);
    heard = true;
    failures = 0;
    hear({number: live.status.phase_number, phase: live.status.phase, message: live.status.message}, anew);
  } catch (error) {
    if (!heard) by('title').textContent = String(error.message || error);
    ++failures;
  }
  busy = false;
  drawEnding();
  if (!heard) return;
  if (!failures && !listening && !isOver()) listen();
  draw();
}
const endings = {done: 'The run has finished', stopped: 'The run was stopped', failed: 'The run has failed',
  stopping: 'The run is stopping early'};
const isOver = () => phase.phase !== 'stopping' && phase.phase in endings;
function drawEnding() {
  const silent = failures > 1 && !isOver(), box = by('ending'), said = [];
  if (phase.phase in endings) said.push(endings[phase.phase] + (phase.message ? ': ' + phase.message : '') + '.');
  if (silent) said.push('No response: the run has ended, or its machine is unreachable.');
  if (silent || isOver()) said.push('Below is the last data received.');
  box.textContent = said.join(' ');
  box.className = phase.phase;
  box.style.display = said.length ? 'block' : 'none';
}
// The newest phase. After a reconnection (another run on the same port) any number counts as newer.
let phase = {number: -1, phase: '', message: ''};
function hear(now, anew) { if (anew || now.number > phase.number) phase = now; }
// Long poll: the server replies when the phase changes. A run reports its outcome just before it ends.
let listening = false;
async function listen() {
  listening = true;
  try {
    while (!isOver()) {
      hear(await get('phase', {seen: phase.number}));
      drawEnding();
    }
    while (busy) await new Promise(done => setTimeout(done, 20));
    await refresh();
  } catch (error) { /* the next refresh handles it */ }
  listening = false;
}
by('log').onclick = () => { log = !log; drawPlots(); };
by('whole').onclick = () => { range = null; refresh(); };
const drawAgain = () => { drawPlots(); runs.forEach(drawTimeline); };
addEventListener('resize', drawAgain);
addEventListener('beforeprint', () => { printing = true; drawAgain(); });
addEventListener('afterprint', () => { printing = false; drawAgain(); });
document.body.className = report ? 'report' : 'live';
if (!report) {
  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
  setInterval(() => { if (!document.hidden && !drag) refresh(); }, 2000);
}
refresh();
