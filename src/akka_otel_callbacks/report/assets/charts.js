'use strict';
/* Charts with their legends. The cursor and the part that is shown are the same in all of them. */

const views = new Map();

function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made && !name.startsWith('aria')) made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null));
  return made;
}

/* One chart within a box of the page. `chart.alone` says that it shows one run of several. */
function show(box, chart, name) {
  const view = { name, chart, hidden: new Set(), found: entries(chart), items: new Map() };
  view.legend = make('ul', { className: 'legend' });
  view.area = make('div', { className: 'chart', tabIndex: 0, role: 'img' });
  view.cursor = make('div', { className: 'cursor' });
  view.range = make('div', { className: 'range' });
  const units = [false, true].map(right => chart.drawn.find(one => one.right === right));
  view.told = make('span', {}, '');
  box.replaceChildren(
    ...(chart.title ? [make('h3', {}, chart.title)] : []), view.legend,
    ...(chart.heat.length ? [scale(view)] : []),
    make('div', { className: 'units' }, ...units.map(one => make('span', {}, one ? unitName(one.unit) : ''))),
    make('div', { className: 'frame' }, view.area, view.range, view.cursor),
  );
  view.values = view.found.map(entry => legendEntry(view, entry));
  view.drawing = echarts.init(view.area, null, { renderer: 'svg' });
  listen(view);
  views.set(name, view);
  draw(view);
}

function draw(view) {
  view.found = entries(view.chart);
  view.drawing.setOption(options(view.chart, view.found.filter(entry => !view.hidden.has(entry.id))), { notMerge: true });
  view.found.forEach((entry, place) => { paint(view.values[place].swatch, entry); });
  view.area.setAttribute('aria-label', described(view));
  forPaper(view);
  tell(view);
}

/* Paper has another width than the window: there a chart is scaled. */
function forPaper(view) {
  view.area.querySelector('svg').setAttribute('viewBox', `0 0 ${view.drawing.getWidth()} ${view.drawing.getHeight()}`);
}

function paint(swatch, entry) {
  if (swatch.className === 'area') Object.assign(swatch.style, { background: entry.color, opacity: entry.drawn.form === 'band' ? 0.35 : 1 });
  else swatch.style.borderTop = `3px ${typeof entry.dash === 'string' ? entry.dash : 'dashed'} ${entry.color}`;
}

function redraw() {
  document.getElementById('whole').hidden = axis.from === null;
  views.forEach(draw);
}

/* A name in whatever script, which does not turn around what stands beside it. */
function named(text) {
  return make('bdi', {}, text);
}

/* A button for each figure, which hides it and shows it again. Of several runs a figure has one for each. */
function legendEntry(view, entry) {
  const swatch = make('i', { className: ['stack', 'band'].includes(entry.drawn.form) ? 'area' : '' });
  const value = make('b'), byRun = page.runs.length > 1 && !view.chart.alone;
  const button = make('button', { type: 'button', 'aria-pressed': 'true', ...(byRun ? { title: page.runs[entry.drawn.run].name } : {}) },
    swatch, ...(byRun ? [] : [named(entry.name), ' ']), value);
  button.addEventListener('click', () => {
    view.hidden.has(entry.id) ? view.hidden.delete(entry.id) : view.hidden.add(entry.id);
    button.setAttribute('aria-pressed', String(!view.hidden.has(entry.id)));
    draw(view);
  });
  if (!byRun || !view.items.has(entry.name)) {
    view.items.set(entry.name, make('li', {}, ...(byRun ? [named(entry.name), ' '] : [])));
    view.legend.append(view.items.get(entry.name));
  }
  view.items.get(entry.name).append(button);
  return { swatch, value };
}

function scale(view) {
  return make('div', { className: 'scale' }, make('span', {}, 'few'), make('i', { 'aria-hidden': 'true' }), make('span', {}, 'many rollouts'), view.told);
}

const MOST_MARKS = 5;

/* What happened in the charts of a panel, the worst first. */
function happened(charts) {
  const limits = charts.flatMap(chart => chart.limits.map(limit => make('li', {}, `dashed: ${limit.name}, ${bytes(limit.y)}`)));
  const said = mark => `${page.runs.length > 1 ? page.runs[mark.run].name + ', ' : ''}step ${plain(Math.ceil(mark.x))}: ${mark.text}`;
  const marks = new Map(charts.flatMap(chart => chart.marks).map(mark => [said(mark), mark]));
  const all = [...marks].sort((one, other) => other[1].bad - one[1].bad || one[1].x - other[1].x);
  const items = all.slice(0, MOST_MARKS).map(([text, mark]) => make('li', { className: mark.bad ? 'bad' : '' }, text));
  if (all.length > MOST_MARKS) items.push(make('li', {}, `and ${all.length - MOST_MARKS} more`));
  return items.length + limits.length ? [make('ul', { className: 'marks' }, ...limits, ...items)] : [];
}

function described(view) {
  const last = view.found.slice(0, 6).map(entry => `${entry.name} ${written(entry.drawn.unit, entry.row.y[entry.row.y.length - 1])}`);
  const what = view.chart.heat.length ? `a heat map, in ${toldOf(view.chart.heat[0])}` : `${view.found.length} figures, at the end ${last.join(', ')}`;
  return `${view.chart.title || view.chart.fallback} over ${axis.kind === 'step' ? 'steps' : 'time'}: ${what}`;
}

/* Legends show the values at the cursor, and the last ones where there is none. */
function tell(view) {
  view.found.forEach((entry, place) => {
    const { x, row, drawn } = entry;
    const at = axis.cursor === null ? x.length - 1 : nearest(x, axis.cursor);
    const value = written(drawn.unit, row.y[at]);
    const [low, high] = drawn.form === 'band' ? [row.y, drawn.rows[1].y] : [drawn.low, drawn.high];
    const told = drawn.form === 'band' ? ends(drawn.unit, low[at], high[at])
      : low && axis.cursor !== null ? `${value} (${ends(drawn.unit, low[at], high[at])})` : value;
    view.values[place].value.textContent = told;
  });
  const heat = view.chart.heat[0];
  if (heat) view.told.textContent = `· ${toldOf(heat)}`;
  placeCursor(view);
}

function ends(unit, low, high) {
  return `${written(unit, low)} – ${written(unit, high)}`;
}

function toldOf(heat) {
  const ends = heat.until.map(step => across(heat.run, step));
  let column = ends.length - 1;
  if (axis.cursor !== null) column = Math.max(ends.findIndex(end => end >= axis.cursor), 0);
  const counts = heat.counts[column], all = sum(counts), most = counts.indexOf(Math.max(...counts));
  const [low, high] = heat.buckets[most];
  const between = low === null ? `at most ${plain(high)}` : high === null ? `above ${plain(low)}` : `${plain(low)} to ${plain(high)}`;
  const first = plain(heat.since[column] + 1), last = plain(heat.until[column]);
  return `${first === last ? `step ${last}` : `steps ${first} to ${last}`}: ${plain(all)} rollouts, ${written('1', counts[most] / all)} of them ${between}`;
}

function placeCursor(view) {
  const left = axis.cursor === null ? NaN : view.drawing.convertToPixel({ xAxisIndex: 0 }, axis.cursor);
  const inside = left >= 0 && left <= view.area.clientWidth;
  view.cursor.style.display = inside ? 'block' : 'none';
  if (inside) view.cursor.style.left = `${left}px`;
}

let waiting = false;

function point(value) {
  axis.cursor = value;
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    views.forEach(tell);
    const at = document.getElementById('at');
    if (at) at.textContent = axis.cursor === null ? '' : position(axis.cursor);
  });
}

function zoom(from, to) {
  [axis.from, axis.to] = [from, to];
  redraw();
}

/* Dragging over a chart zooms, a double click shows everything again, and the arrow keys move the cursor. */
function listen(view) {
  const { area, range } = view;
  const valueAt = left => view.drawing.convertFromPixel({ xAxisIndex: 0 }, left);
  const leftOf = event => event.clientX - area.getBoundingClientRect().left;
  let start = null;
  area.addEventListener('pointerdown', event => { start = leftOf(event); });
  area.addEventListener('pointermove', event => {
    const left = leftOf(event);
    point(valueAt(left));
    const dragged = start !== null && event.buttons && Math.abs(left - start) > 5;
    range.style.display = dragged ? 'block' : 'none';
    if (dragged) Object.assign(range.style, { left: `${Math.min(start, left)}px`, width: `${Math.abs(left - start)}px` });
  });
  area.addEventListener('pointerup', event => {
    const left = leftOf(event), from = start;
    start = null;
    range.style.display = 'none';
    if (from !== null && Math.abs(left - from) > 5) {
      const [low, high] = [from, left].map(valueAt).sort((a, b) => a - b), [first, last] = extent();
      zoom(Math.max(low, first), Math.min(high, last));
    }
  });
  area.addEventListener('pointerleave', () => { start = null; range.style.display = 'none'; point(null); });
  area.addEventListener('dblclick', () => zoom(null, null));
  area.addEventListener('keydown', event => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Escape') zoom(null, null);
    if (!way) return;
    event.preventDefault();
    const [low, high] = axis.from === null ? extent() : [axis.from, axis.to];
    const stride = axis.kind === 'step' ? Math.max(Math.round((high - low) / 100), 1) : (high - low) / 100;
    const now = axis.cursor === null ? high : axis.cursor + way * stride;
    point(Math.min(Math.max(now, low), high));
  });
  view.drawing.on('datazoom', event => {
    const moved = (event.batch || [event])[0];
    if (moved.start === undefined) return;
    const [low, high] = extent();
    zoom(low + (high - low) * moved.start / 100, low + (high - low) * moved.end / 100);
  });
}
