// The verdict, the tables, the bars of speed and the small print.

function about() {
  const kinds = DATA.kinds.map(k => KINDS[k.kind].replace(/^[AGOW]/, c => c.toLowerCase())).join(', ');
  const count = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;
  byId('about').textContent =
    `${count(DATA.families.length, 'coder')} on ${count(DATA.tensors.length, 'tensor')} (${kinds}), ${DATA.date.slice(0, 10)}`;
}

function verdict() {
  const lost = DATA.losses.found;
  byId('verdict').classList.toggle('lost', lost.length > 0 || !DATA.losses.ours);
  const groups = new Map();
  for (const loss of lost) {
    const who = `${loss.file} / ${loss.tensor}: ${loss.peer}`;
    const point = `${bits(loss.bits)} (error ${fixed(100 * (1 - loss.nmse / loss.ours), 1)} % below ours)`;
    groups.set(who, [...(groups.get(who) || []), point]);
  }
  const lines = [...groups].map(([who, points]) => make('li', {}, make('b', {}, who), ` at ${points.join(', ')}`));
  fill('verdict', make('p', {}, DATA.headline),
    lost.length ? make('details', { open: lines.length <= 12 ? '' : null }, make('summary', {}, 'Where'), make('ul', {}, ...lines)) : null);
  drawn('losses', lost.length);
}

/** A table: heading cells, then rows of [family id, title, cells]. A cell is a text or an element. */
function table(headings, rows) {
  const cell = content => content instanceof Element && content.tagName === 'TD' ? content : make('td', {}, content);
  const ours = id => DATA.families.some(f => f.id === id && f.ours);
  return make('table', {},
    make('thead', {}, make('tr', {}, ...headings.map(h => make('th', { scope: 'col' }, h)))),
    make('tbody', {}, ...rows.map(([id, title, cells]) =>
      make('tr', { class: ours(id) ? 'ours' : null }, make('th', { scope: 'row' }, title), ...cells.map(cell)))));
}

function equalTable(index) {
  const chosen = DATA.equal[index];
  const percent = (cell, of) => cell === null ? '–' : make('td', {
    class: cell.ratio < 0.9995 ? 'good' : cell.ratio > 1.0005 ? 'bad' : null,
    title: `${signed(cell.bits, 3)} bits a value`,
  }, `${signed(100 * (cell.ratio - 1), 1)} %`, make('small', {}, of ? `${cell.count} of ${of}` : `${cell.count} points`));
  const rows = chosen.rows.map(row =>
    [row.family, row.title, [...row.cells.map(c => percent(c, chosen.tensors)), percent(row.own, 0)]]);
  fill('equal', table(['', ...chosen.rates.map(r => `${r} bits`), 'own points'], rows));
  drawn('equalRows', rows.length);
}

function equal() {
  const name = (DATA.families.find(f => f.id === DATA.reference) || { title: DATA.reference }).title;
  byId('h-equal').textContent = `Bits at equal NMSE against ${name}`;
  if (!DATA.equal) {
    byId('equal-about').textContent =
      `The reference “${DATA.reference}” has no points in this race, so there is nothing to compare with.`;
    drawn('equalRows', 0);
    return;
  }
  byId('equal-about').textContent =
    `How many bits each coder takes to reach the error that ${name} has at the rate above the column; below zero is fewer. ` +
    'Under each figure: the tensors in the mean. “Own points” compares at the errors of the coder’s own points instead.';
  if (DATA.equal.length > 2) {
    tabs('equal-kinds', DATA.equal.map((t, i) => [i, t.kind ? KINDS[t.kind] : 'All tensors']), 0, equalTable);
  }
  equalTable(0);
}

function gaps(kind) {
  const chosen = DATA.gaps.find(t => t.kind === kind);
  byId('gaps-about').textContent = `${KINDS[kind]}: bits a value above what any coder would need if the values were ` +
    'independent and Gaussian, mean over the tensors. Real tensors are not, so it may be negative.';
  const cell = c => c === null ? '–' : make('td', {}, fixed(c.gap, 3),
    c.tensors < chosen.tensors ? make('small', {}, `${c.tensors} of ${chosen.tensors}`) : null);
  fill('gaps', table(['', ...chosen.rates.map(r => `${r} bits`)], chosen.rows.map(r => [r.family, r.title, r.cells.map(cell)])));
}

function bars(way) {
  const all = DATA.speeds.map(s => s[way]);
  const low = Math.floor(Math.log10(Math.min(...all)) - 0.3), high = Math.log10(Math.max(...all));
  const width = value => Math.max(1.5, 100 * (Math.log10(value) - low) / Math.max(1e-9, high - low));
  const rate = value => value >= 1e9 ? `${fixed(value / 1e9, 2)} G/s` : `${short(value / 1e6)} M/s`;
  const families = [...new Set(DATA.speeds.map(s => s.family))];
  const best = f => Math.max(...DATA.speeds.filter(s => s.family === f).map(s => s[way]));
  families.sort((a, b) => best(b) - best(a));
  const rows = families.map(f => {
    const own = DATA.speeds.filter(s => s.family === f);
    const lanes = own.map(s => make('div', { class: 'lane' },
      make('i', { class: s.threads > 1 ? 'many' : null, style: `width:${(0.62 * width(s[way])).toFixed(2)}%;background:${colour(f)}` }),
      make('span', {}, `${rate(s[way])} · ${s.threads} ${s.threads === 1 ? 'thread' : 'threads'}`)));
    const family = DATA.families[f];
    const peer = own[0].peer === family.title ? null : make('small', {}, own[0].peer);
    return make('div', { class: family.ours ? 'bar ours' : 'bar' }, make('b', {}, family.title, peer), make('div', {}, ...lanes));
  });
  fill('speeds', ...rows);
  drawn('bars', document.querySelectorAll('#speeds .lane i').length);
}

function speeds() {
  if (!DATA.speeds.length) {
    byId('speed-section').hidden = true;
    drawn('bars', 0);
    return;
  }
  byId('speed-about').textContent = `Values a second at ${DATA.rate} bits or the nearest rate a coder has, median over the tensors; ` +
    'a logarithmic scale. Coders without threads of their own have one bar, coders whose time is not their own (another program’s start) have none.';
  tabs('ways', [['encode', 'Encode'], ['decode', 'Decode']], 'encode', bars);
  bars('encode');
}

function absent() {
  const groups = new Map();
  for (const [peer, file, tensor, why] of DATA.failures) {
    const key = JSON.stringify([peer, why]);
    groups.set(key, [...(groups.get(key) || []), `${file} / ${tensor}`]);
  }
  const items = DATA.not_available.map(a => make('li', {}, `${a.title} `, make('span', {}, `(${a.id}): ${a.reason}`)));
  for (const [key, tensors] of groups) {
    const [peer, why] = JSON.parse(key);
    const where = tensors.length === 1 ? tensors[0] : `${tensors.length} tensors or rates, such as ${tensors[0]}`;
    items.push(make('li', {}, `${peer} `, make('span', {}, `on ${where}: ${why}`)));
  }
  byId('absent-section').hidden = items.length === 0;
  fill('absent', make('ul', { class: 'list' }, ...items));
  drawn('absent', DATA.not_available.length);
}

function how() {
  const machine = `${DATA.machine.cpu}, ${DATA.machine.cores} cores, ${DATA.machine.system}`;
  const entries = [['Command', make('code', {}, DATA.command)], ['Machine', machine], ['Commit', make('code', {}, DATA.commit)],
    ['Version', DATA.version], ['Date', DATA.date], ...DATA.notes.map((n, i) => [i ? '' : 'Notes', n])];
  fill('how', ...entries.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));
  const left = text => make('td', { class: 'left' }, text);
  const rows = DATA.tensors.map(t => ['', tensorLabel(t), [left(KINDS[t.kind]), t.dtype, t.shape.join(' × '),
    t.values.toLocaleString('en'), left(t.values < t.values_in_file ? `first rows of ${t.values_in_file.toLocaleString('en')}` : 'whole')]]);
  fill('tensors', table(['tensor', 'kind', 'dtype', 'shape', 'values', 'part'], rows));
}
