'use strict';
// Shared by all parts of the page: data, elements, numbers for people, and the light or dark theme.
// Text only ever enters the page as text nodes and attributes: names of tensors are not to be trusted.
const errors = [];
window.addEventListener('error', event => {
  errors.push(String(event.message));
  document.documentElement.dataset.errors = errors.join(' | ');
});
document.documentElement.dataset.errors = '';

const DATA = JSON.parse(document.getElementById('data').textContent);
const byId = id => document.getElementById(id);
// What was drawn, counted where it is drawn, for the test that looks at the page from outside.
const drawn = (what, count) => { document.documentElement.dataset[what] = String(count); };

/** What is wider than the window makes a phone scroll sideways. */
const fits = () => drawn('overflow', Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth));

/** An element with attributes and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'path', 'line', 'circle', 'rect', 'text'].includes(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

const fill = (id, ...children) => byId(id).replaceChildren(...children.filter(Boolean));
const colour = family => `rgb(${DATA.families[family].colour.join(' ')})`;
const DASHES = ['', '9 5', '4 4', '2 5'];

const fixed = (value, digits) => value.toFixed(digits).replace('-', '−');
const signed = (value, digits) => (value >= 0 ? '+' : '') + fixed(value, digits);
/** Three digits, as a power of ten where that is shorter. */
function short(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 0.001 && size < 10000) return fixed(value, Math.max(0, 2 - Math.floor(Math.log10(size))));
  const power = Math.floor(Math.log10(size));
  return `${fixed(value / 10 ** power, 1)}·10${superscript(power)}`;
}
const superscript = n => String(n).replace(/./g, c => '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'['-0123456789'.indexOf(c)]);
const bits = value => `${fixed(value, 2)} bits`;
const KINDS = { weights: 'Weights', kv: 'KV cache', activations: 'Activations', gradients: 'Gradients', other: 'Other' };
const SORTS = {
  ours: 'tenfold', video: 'Video codecs', quantiser: 'Quantisers', entropy: 'Quantisers with entropy coding',
  scientific: 'Scientific arrays', lossless: 'Lossless',
};
const tensorLabel = tensor => `${tensor.file} / ${tensor.name}`;

/** Buttons of which one is pressed. `choices` are pairs of value and label. */
function tabs(id, choices, chosen, choose) {
  fill(id, ...choices.map(([value, label]) => make('button', {
    type: 'button', 'aria-pressed': String(value === chosen),
    onclick: event => {
      for (const button of byId(id).children) button.setAttribute('aria-pressed', String(button === event.currentTarget));
      choose(value);
    },
  }, label)));
}

function showTip(event, title, lines) {
  const tip = byId('tip');
  tip.replaceChildren(make('b', {}, title), ...lines.map(line => make('div', {}, line)));
  tip.hidden = false;
  const box = event.currentTarget.getBoundingClientRect();
  const x = event.clientX || box.left, y = event.clientY || box.top;
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 12 : y + 18}px`;
}
const hideTip = () => { byId('tip').hidden = true; };

/** The system's choice until the reader makes one; `#theme=dark` in the address is one, too. */
function theme() {
  const root = document.documentElement, system = matchMedia('(prefers-color-scheme: dark)');
  const stored = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
  let own = (location.hash.match(/theme=(light|dark)/) || [])[1] || stored();
  const apply = () => { root.dataset.theme = own || (system.matches ? 'dark' : 'light'); };
  system.addEventListener('change', apply);
  byId('theme').addEventListener('click', () => {
    own = root.dataset.theme === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem('theme', own); } catch { /* a file opened from disk may have no storage */ }
    apply();
  });
  apply();
}
