'use strict';
/* The page around the charts: what stands out, the panels, who the runs were, and what is absent. */

let page = JSON.parse(document.getElementById('data').textContent);

/* A run's name with the colour that it has in all charts. */
function runName(run, number) {
  const swatch = make('i', { className: 'area' });
  swatch.style.background = `var(--c${number % 8})`;
  return make('h3', { className: 'run' }, swatch, run.name);
}

function facts() {
  return page.runs.map((run, number) => make('div', {},
    ...(page.runs.length > 1 ? [runName(run, number)] : []),
    make('dl', {}, ...run.facts.map(fact => make('div', {}, make('dt', {}, fact.label),
      make('dd', {}, make('b', {}, fact.value), make('span', {}, fact.hint)))))));
}

function findings() {
  if (!page.verdicts.length && page.runs.every(run => run.ends[0] < 0)) {
    return [make('p', { className: 'finding' }, 'No step is complete that a rule could be applied to.')];
  }
  if (!page.verdicts.length) {
    return [make('p', { className: 'finding good' }, make('strong', {}, 'Nothing needs attention. '),
      `None of the ${page.rules.length} rules applies.`)];
  }
  return page.verdicts.map(verdict => make('div', { className: verdict.bad ? 'finding bad' : 'finding' },
    make('a', { href: `#${verdict.panel}` }, verdict.name),
    page.runs.length > 1 ? ` in ${page.runs[verdict.run].name}: ` : ': ', ...told(verdict.found),
    make('small', {}, `Rule: ${verdict.rule}.`)));
}

const MOST_FOUND = 5;

/* What a rule found, each with its numbers. */
function told(found) {
  const rest = found.slice(MOST_FOUND), more = make('details', {}, make('summary', {}, `and ${rest.length} more`), make('p', {}, rest.join('; ')));
  return [found.slice(0, MOST_FOUND).join('; '), ...(rest.length ? [more] : [])];
}

function showVerdict() {
  const rules = make('details', {}, make('summary', {}, 'The rules'),
    make('ul', {}, ...page.rules.map(rule => make('li', {}, `${rule.name}: ${rule.words}.`))));
  document.getElementById('verdict').replaceChildren(
    make('h2', { id: 'verdict-title' }, page.runs.length > 1 ? 'Verdict by run' : 'Verdict'), ...facts(),
    make('div', { id: 'found' }, ...findings()), rules);
}

/* A panel's charts. What cannot be laid upon each other has a chart for each run. */
function split(panel) {
  return panel.charts.flatMap(chart => {
    const named = { ...chart, fallback: panel.title.toLowerCase() };
    const apart = chart.heat.length || chart.drawn.some(one => one.form === 'stack');
    if (page.runs.length === 1 || !apart) {
      const drawn = page.runs.length === 1 ? chart.drawn : chart.drawn.filter(one => !(one.form === 'band' && one.quiet));
      return [{ ...named, drawn }];
    }
    return page.runs.map((run, number) => {
      const own = list => list.filter(one => one.run === number);
      return { ...named, alone: true, title: [chart.title, run.name].filter(Boolean).join(' · '),
        drawn: own(chart.drawn), heat: own(chart.heat), marks: own(chart.marks), limits: own(chart.limits) };
    }).filter(one => one.drawn.length || one.heat.length);
  });
}

/* What a panel consists of: where that stays the same, its charts stay, with what is hidden in them. */
function shape(panel) {
  return JSON.stringify([panel.charts.map(chart => [chart.heat.length, chart.drawn.map(one => [one.run, one.form, one.rows.map(row => row.name)])]),
    page.runs.map(run => run.name)]);
}

function showPanels() {
  const there = page.panels.filter(panel => panel.charts.length || panel.words.length);
  const sections = there.map(panel => {
    const known = document.getElementById(panel.name);
    return known && known.dataset.shape === shape(panel) ? known : section(panel);
  });
  const place = document.getElementById('panels');
  if (sections.length !== place.children.length || sections.some((one, at) => one !== place.children[at])) place.replaceChildren(...sections);
  views.forEach((view, name) => { if (!view.area.isConnected) { view.drawing.dispose(); views.delete(name); } });
  there.forEach((panel, at) => fill(panel, sections[at]));
}

function section(panel) {
  const title = `${panel.name}-title`;
  const made = make('section', { className: panel.wide ? 'panel wide' : 'panel', id: panel.name, 'aria-labelledby': title },
    make('h2', { id: title }, panel.title), make('p', { className: 'question' }, panel.question),
    make('div', { className: 'charts' }), make('div', { className: 'said' }));
  made.dataset.shape = shape(panel);
  return made;
}

function fill(panel, made) {
  split(panel).forEach((chart, number) => {
    const name = `${panel.name}.${number}`, view = views.get(name);
    if (view) {
      view.chart = chart;
      draw(view);
    } else {
      const box = make('div', { className: 'box' });
      made.querySelector('.charts').append(box);
      show(box, chart, name);
    }
  });
  made.querySelector('.said').replaceChildren(...happened(panel.charts),
    ...(panel.charts.length ? [] : [make('p', {}, `Absent, because ${panel.why.join('; ')}.`)]),
    ...words(panel.words));
}

const MOST_WORDS = 8;

/* What a panel says in words. More lines than one reads at a glance are folded. */
function words(said) {
  const list = make('ul', { className: 'words' }, ...said.map(one => make('li', {}, one.text)));
  if (!said.length) return [];
  return said.length > MOST_WORDS ? [make('details', {}, make('summary', {}, `Where they are: ${said.length} lines`), list)] : [list];
}

function showPlaces() {
  const links = page.panels.map(panel => make('a', { href: `#${panel.name}`, className: panel.charts.length ? '' : 'empty' }, panel.title));
  document.getElementById('places').replaceChildren(...links, make('a', { href: '#who' }, 'Who'), make('a', { href: '#absent' }, 'Absent'));
}

function table(heads, rows) {
  return make('div', { className: 'scroll', tabIndex: 0 }, make('table', {},
    ...(heads.length ? [make('thead', {}, make('tr', {}, ...heads.map(head => make('th', { scope: 'col' }, head))))] : []),
    make('tbody', {}, ...rows)));
}

function showWho() {
  const several = page.runs.length > 1;
  const rows = page.who.map(row => make('tr', row.differs ? { className: 'differs' } : {},
    make('th', { scope: 'row' }, row.label), ...row.values.map(value => make('td', {}, value || '–'))));
  document.getElementById('who').classList.toggle('several', several);
  document.getElementById('who').replaceChildren(make('h2', { id: 'who-title' }, several ? 'Who the runs were' : 'Who the run was'),
    ...(several ? [make('p', { className: 'question' }, 'What differs between them stands out')] : []),
    table(several ? ['attribute', ...page.runs.map(run => run.name)] : [], rows));
}

function showAbsent() {
  const empty = page.panels.filter(panel => !panel.charts.length && !panel.words.length);
  const reasons = empty.map(panel => make('li', { id: panel.name }, make('strong', {}, panel.title), `: absent, because ${panel.why.join('; ')}.`));
  const rows = page.absent.map(one => make('tr', {}, make('th', { scope: 'row' },
    page.runs.length > 1 ? `${page.runs[one.run].name}: ${one.why}` : one.why), make('td', {}, ...one.figures.flatMap((figure, place) =>
    [place ? ', ' : '', make('span', { title: figure.what }, figure.name)]))));
  document.getElementById('absent').replaceChildren(make('h2', { id: 'absent-title' }, 'Absent, because …'),
    make('ul', {}, ...reasons), ...(rows.length ? [table(['because', 'there is no'], rows)] : [make('p', {}, 'Every figure is there.')]));
}

function showAll() {
  const names = page.runs.map(run => run.name).join(' and ');
  document.getElementById('title').textContent = names || 'Waiting for the first figures of a run';
  if (names) document.title = names;
  document.getElementById('about').textContent = [...new Set(page.runs.map(run => run.about))].join(' and ');
  document.getElementById('made').textContent = `Made by akka-otel at ${new Date(page.made).toLocaleString()}. Drag over a chart to zoom, double-click to see the whole run again. Where a run has too many steps for all to be shown, a line is the mean of each part of it, and the shade behind it goes from the lowest to the highest value.`;
  document.querySelector('main').hidden = !names;
  if (names) { showVerdict(); showPlaces(); showPanels(); showWho(); showAbsent(); }
}

function dress(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
}

dress(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
showAll();
document.getElementById('theme').addEventListener('click', () => {
  dress(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
  redraw();
});
document.getElementById('whole').addEventListener('click', () => zoom(null, null));
document.querySelectorAll('[data-axis]').forEach(button => button.addEventListener('click', () => {
  Object.assign(axis, { kind: button.dataset.axis, from: null, to: null, cursor: null });
  document.querySelectorAll('[data-axis]').forEach(one => one.setAttribute('aria-pressed', String(one === button)));
  redraw();
  point(null);
}));
new ResizeObserver(() => views.forEach(view => { if (!matchMedia('print').matches) view.drawing.resize(); forPaper(view); placeCursor(view); })).observe(document.getElementById('panels'));
/* Paper is white, and nothing can be unfolded on it. */
let worn = null, folded = [];
addEventListener('beforeprint', () => {
  worn = document.documentElement.dataset.theme;
  folded = [...document.querySelectorAll('#found details:not([open]), .said details:not([open])')];
  folded.forEach(one => { one.open = true; });
  dress('light');
  redraw();
});
addEventListener('afterprint', () => {
  folded.forEach(one => { one.open = false; });
  dress(worn);
  redraw();
});
