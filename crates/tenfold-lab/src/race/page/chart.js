// The curves: one chart, the reader chooses tensors, axis and coders.

const chart = { kind: null, tensor: -1, axis: 'gap', wide: false, shown: new Set() };
const AXES = {
  nmse: { label: 'NMSE', log: true, name: 'NMSE (mean squared error / variance)' },
  gap: { label: 'Gap', log: false, name: 'bits above the Gaussian bound' },
  max_error: { label: 'Max error', log: true, name: 'largest error / σ' },
};

const chartPoints = () => chart.tensor >= 0 ? DATA.tensors[chart.tensor].points : DATA.kinds.find(k => k.kind === chart.kind).points;

/** Round numbers from low to high, about `count` of them. */
function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find(m => m * power >= raw);
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9; i++) out.push(+(i * step).toPrecision(10));
  return out;
}

function drawChart() {
  const box = byId('chart'), axis = AXES[chart.axis];
  const width = Math.max(300, Math.min(1040, box.clientWidth || 640)), phone = width < 520;
  const height = phone ? 330 : 440, left = 58, right = 14, top = 26, bottom = 42;
  const points = chartPoints().filter(p => chart.shown.has(p.family) && (chart.wide || p.bits <= DATA.limit));
  const up = p => axis.log ? Math.log10(p[chart.axis]) : p[chart.axis];
  const spread = (values, least) => {
    const low = Math.min(...values), high = Math.max(...values), margin = Math.max((high - low) * 0.06, least);
    return values.length ? [low - margin, high + margin] : [0, 1];
  };
  const [x0, x1] = spread(points.map(p => p.bits), 0.1);
  const heights = points.map(up);
  // The bound belongs into the picture of the gap, with room for its name below.
  const bound = chart.axis === 'gap' && points.length ? [0, -0.05 * Math.max(0, ...heights)] : [];
  const [y0, y1] = spread([...heights, ...bound], 0.03);
  const px = v => left + (v - x0) / (x1 - x0) * (width - left - right);
  const py = v => height - bottom - (v - y0) / (y1 - y0) * (height - top - bottom);
  const svg = make('svg', {
    viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${axis.name} over bits a value, ${byId('tensor').selectedOptions[0]?.text || ''}`,
  });
  for (const v of ticks(x0, x1, phone ? 6 : 10)) {
    svg.append(make('line', { class: 'grid', x1: px(v), x2: px(v), y1: top, y2: height - bottom }));
    svg.append(make('text', { x: px(v), y: height - bottom + 18, 'text-anchor': 'middle' }, String(v)));
  }
  const lines = axis.log && y1 - y0 > 1.2 ? ticks(Math.ceil(y0), Math.floor(y1), Math.max(1, Math.floor(y1) - Math.ceil(y0))) : ticks(y0, y1, 6);
  for (const v of lines) {
    svg.append(make('line', { class: 'grid', x1: left, x2: width - right, y1: py(v), y2: py(v) }));
    const text = axis.log ? (Number.isInteger(v) ? `10${superscript(v)}` : short(10 ** v)) : fixed(v, 2);
    svg.append(make('text', { x: left - 8, y: py(v) + 4, 'text-anchor': 'end' }, text));
  }
  svg.append(make('line', { class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  svg.append(make('text', { x: width - right, y: height - 8, 'text-anchor': 'end' }, 'bits a value'));
  svg.append(make('text', { x: 4, y: 14 }, axis.name));
  drawBound(svg, { x0, x1, y0, y1, px, py });
  const families = [...new Set(points.map(p => p.family))].sort((a, b) => DATA.families[a].ours - DATA.families[b].ours);
  for (const family of families) svg.append(drawCurve(family, points.filter(p => p.family === family), p => px(p.bits), p => py(up(p))));
  fill('chart', svg);
  drawn('curves', svg.querySelectorAll('.curve').length);
  drawn('points', svg.querySelectorAll('circle.dot').length);
}

/** What no coder can go below if the values are Gaussian: D = 2^(−2R). */
function drawBound(svg, { x0, x1, y0, y1, px, py }) {
  if (chart.axis === 'max_error') return;
  const at = x => chart.axis === 'gap' ? 0 : -2 * x * Math.log10(2);
  const inverse = y => -y / (2 * Math.log10(2));
  let from = x0, to = x1;
  if (chart.axis === 'nmse') { from = Math.max(x0, inverse(y1)); to = Math.min(x1, inverse(y0)); }
  if (from >= to || at(from) > y1 + 1e-9 || at(to) < y0 - 1e-9) return;
  svg.append(make('path', { class: 'bound', d: `M${px(from)} ${py(at(from))}L${px(to)} ${py(at(to))}` }));
  const x = from + 0.04 * (to - from);
  svg.append(make('text', { x: px(x), y: py(at(x)) + 16 }, 'Gaussian bound'));
}

function drawCurve(number, points, x, y) {
  const family = DATA.families[number];
  const group = make('g', { 'data-family': number });
  const path = points.map((p, i) => `${i ? 'L' : 'M'}${x(p).toFixed(1)} ${y(p).toFixed(1)}`).join('');
  group.append(make('path', {
    class: 'curve', d: path, stroke: colour(number), 'stroke-width': family.ours ? 3.2 : 1.8, 'stroke-dasharray': DASHES[family.dash],
  }));
  for (const p of points) {
    const tip = event => showTip(event, family.title, [
      p.peer === family.title ? null : p.peer, `${fixed(p.bits, 3)} bits a value`, `NMSE ${short(p.nmse)}`,
      `${signed(p.gap, 3)} bits to the bound`, `largest error ${short(p.max_error)} σ`,
      p.tensors > 1 ? `mean over ${p.tensors} tensors` : null].filter(Boolean));
    group.append(make('circle', { class: 'dot', cx: x(p), cy: y(p), r: family.ours ? 4.5 : 3.4, fill: colour(number) }));
    group.append(make('circle', {
      cx: x(p), cy: y(p), r: 12, fill: 'transparent', onpointerenter: tip, onpointerdown: tip, onpointerleave: hideTip,
    }));
  }
  return group;
}

/** Fades everybody else while a key of the legend is under the pointer or has the focus. */
function highlight(family) {
  for (const group of document.querySelectorAll('#chart g')) {
    group.classList.toggle('faded', family !== null && group.dataset.family !== String(family));
  }
}

function drawLegend() {
  const present = new Set(DATA.kinds.flatMap(k => k.points.map(p => p.family)));
  const sorts = [...new Set(DATA.families.map(f => f.kind))];
  const groups = sorts.map(sort => {
    const members = DATA.families.map((f, i) => i).filter(i => DATA.families[i].kind === sort && present.has(i));
    if (!members.length) return null;
    const set = on => { members.forEach(i => on ? chart.shown.add(i) : chart.shown.delete(i)); drawLegend(); drawChart(); };
    return make('div', {},
      make('h3', {}, SORTS[sort], make('button', { type: 'button', onclick: () => set(true) }, 'all'),
        make('button', { type: 'button', onclick: () => set(false) }, 'none')),
      make('div', { class: 'keys' }, ...members.map(legendKey)));
  });
  fill('legend', ...groups);
}

function legendKey(number) {
  const family = DATA.families[number];
  const sample = make('svg', { width: 34, height: 10, 'aria-hidden': 'true' },
    make('line', { x1: 1, x2: 33, y1: 5, y2: 5, stroke: colour(number), 'stroke-width': family.ours ? 3.2 : 2, 'stroke-dasharray': DASHES[family.dash] }),
    family.dash ? null : make('circle', { cx: 17, cy: 5, r: 3.4, fill: colour(number) }));
  return make('button', {
    type: 'button', class: family.ours ? 'ours' : null, 'aria-pressed': String(chart.shown.has(number)),
    onclick: event => {
      chart.shown.has(number) ? chart.shown.delete(number) : chart.shown.add(number);
      event.currentTarget.setAttribute('aria-pressed', String(chart.shown.has(number)));
      drawChart();
    },
    onpointerenter: () => highlight(number), onpointerleave: () => highlight(null),
    onfocus: () => highlight(number), onblur: () => highlight(null),
  }, sample, family.title);
}

function chooseKind(kind) {
  chart.kind = kind;
  chart.tensor = -1;
  const members = DATA.tensors.map((t, i) => i).filter(i => DATA.tensors[i].kind === kind);
  const mean = make('option', { value: -1 }, members.length === 1 ? 'the only one' : `mean of ${members.length}`);
  fill('tensor', mean, ...members.map(i => make('option', { value: i }, tensorLabel(DATA.tensors[i]))));
  gaps(kind);
  drawChart();
}

function curves() {
  DATA.families.forEach((family, i) => { if (family.shown) chart.shown.add(i); });
  tabs('axes', Object.entries(AXES).map(([id, a]) => [id, a.label]), chart.axis, id => { chart.axis = id; drawChart(); });
  tabs('widths', [[false, `to ${fixed(DATA.limit, 0)} bits`], [true, 'all rates']], false, wide => { chart.wide = wide; drawChart(); });
  byId('tensor').addEventListener('change', event => { chart.tensor = Number(event.target.value); drawChart(); });
  const kinds = DATA.kinds.map(k => [k.kind, KINDS[k.kind]]);
  tabs('kinds', kinds, kinds[0][0], chooseKind);
  drawLegend();
  chooseKind(kinds[0][0]);
  // Drawn for its width, so that text keeps its size on a phone.
  let width = byId('chart').clientWidth;
  new ResizeObserver(() => {
    if (byId('chart').clientWidth === width) return;
    width = byId('chart').clientWidth;
    drawChart();
    fits();
  }).observe(byId('chart'));
}
