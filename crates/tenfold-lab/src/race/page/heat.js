// Pictures of a tensor and of each coder's error, painted on canvases from one byte a cell.

// Bytes of errors: 0 is exact, 1 to 255 span 16 octaves upwards from 2⁻¹² standard deviations.
const octave = byte => byte * 16 / 255 - 12;
// Dark to light with even steps of lightness, and blue over white to red: both keep their order without colour.
const RISING = ['#440154', '#482878', '#3e4989', '#31688e', '#26828e', '#1f9e89', '#35b779', '#6ece58', '#b5de2b', '#fde725'];
const TWO_SIDED = ['#2166ac', '#67a9cf', '#d1e5f0', '#f7f7f7', '#fddbc7', '#ef8a62', '#b2182b'];

const rgb = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
/** Colour of a position from 0 to 1 in a map. */
function mapped(stops, position) {
  const at = Math.min(Math.max(position, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
  const [a, b] = [rgb(stops[i]), rgb(stops[i + 1])];
  return a.map((v, c) => Math.round(v + (b[c] - v) * (at - i)));
}
const gradient = stops => `linear-gradient(90deg, ${stops.join(', ')})`;

/** Paints a picture and returns its canvas; `position` turns a byte into a place in the map. */
function paint(picture, stops, position, label) {
  const { rows, cols } = picture;
  const canvas = make('canvas', { width: Math.max(cols, 1), height: Math.max(rows, 1), role: 'img', 'aria-label': label });
  // Very long tensors stay recognisable, and still fit a phone.
  canvas.style.aspectRatio = String(Math.min(2.2, Math.max(0.6, cols / Math.max(rows, 1))));
  if (rows && cols) {
    const context = canvas.getContext('2d'), image = context.createImageData(cols, rows);
    const bytes = Uint8Array.from(atob(picture.data), c => c.charCodeAt(0));
    const table = Array.from({ length: 256 }, (_, b) => mapped(stops, position(b)));
    bytes.forEach((byte, i) => image.data.set([...table[byte], 255], 4 * i));
    context.putImageData(image, 0, 0);
  }
  return canvas;
}

const scaleBar = (stops, name, low, high) => make('div', { class: 'scale' },
  make('p', {}, name), make('i', { style: `background:${gradient(stops)}` }), make('div', {}, make('span', {}, low), make('span', {}, high)));

/** Ends of the scale that all coders of a tensor share: all cells but the outermost hundredth on each side. */
function errorRange(tensor) {
  const counts = new Array(256).fill(0);
  let total = 0;
  for (const error of tensor.errors) {
    for (const c of atob(error.picture.data)) {
      const byte = c.charCodeAt(0);
      if (byte) { counts[byte]++; total++; }
    }
  }
  const edge = (order, part) => {
    let seen = 0;
    return order.find(b => (seen += counts[b]) > part * total) ?? 128;
  };
  const bytes = counts.map((_, b) => b);
  const [low, high] = [edge(bytes, 0.01), edge([...bytes].reverse(), 0.01)];
  return high - low >= 8 ? [low, high] : [low - 4, low + 4];
}

function heat(number) {
  const tensor = DATA.tensors[number];
  const [low, high] = errorRange(tensor);
  const own = make('figure', {},
    paint(tensor.picture, TWO_SIDED, b => (b - 1) / 254, `Heat-map of ${tensor.name}`),
    make('figcaption', {}, make('b', {}, tensor.name), make('span', {}, `${tensor.dtype}, ${tensor.shape.join(' × ')}, σ ${short(tensor.std)}`)));
  const sigma = byte => `${short(2 ** octave(byte))} σ`;
  fill('heat-own', own, make('div', { class: 'scales' },
    scaleBar(TWO_SIDED, 'Tensor: cell’s mean, less the tensor’s', `−${short(tensor.scale)}`, `+${short(tensor.scale)}`),
    tensor.errors.length ? scaleBar(RISING, 'Coders: root mean square error', sigma(low), sigma(high)) : null));
  fill('heat', ...tensor.errors.map(error => {
    const family = DATA.families[error.family];
    const place = byte => byte ? (byte - low) / (high - low) : 0;
    return make('figure', { class: family.ours ? 'ours' : null },
      paint(error.picture, RISING, place, `Error of ${family.title} on ${tensor.name}`),
      make('figcaption', {}, make('b', {}, family.title),
        make('span', {}, error.peer === family.title ? bits(error.bits) : `${error.peer}, ${bits(error.bits)}`)));
  }));
  countCells();
}

/** Reads the canvases back: cells that really have a colour, and how many different ones there are. */
function countCells() {
  let cells = 0;
  const colours = new Set();
  for (const canvas of document.querySelectorAll('#heat canvas, #heat-own canvas')) {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] === 255) { cells++; colours.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]); }
    }
  }
  drawn('cells', cells);
  drawn('colours', colours.size);
  drawn('maps', document.querySelectorAll('#heat canvas').length);
}

function heatMaps() {
  byId('heat-about').textContent =
    'The tensor above, and below it the root mean square error of each coder in each cell, over the standard deviation of the tensor. ' +
    `All coders share one logarithmic scale, at ${DATA.rate} bits or the nearest rate a coder has.`;
  fill('heat-tensor', ...DATA.tensors.map((t, i) => make('option', { value: i }, tensorLabel(t))));
  byId('heat-tensor').addEventListener('change', event => heat(Number(event.target.value)));
  heat(0);
}
