'use strict';
/* From what the page knows of a chart to ECharts' options. */

const DASHES = ['solid', 'dashed', 'dotted', [8, 3, 2, 3]];

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/* Every legend entry of a chart with its colour. Of several runs each has a colour, and each figure a dash. A quiet band
   has the colour of the line that it belongs to, and one of many courses belongs to none. */
function entries(chart) {
  const several = page.runs.length > 1;
  const kinds = [];
  return chart.drawn.flatMap((drawn, place) => {
    const rows = drawn.form === 'band' ? drawn.rows.slice(0, 1) : drawn.rows;
    return rows.map((row, number) => {
      if (drawn.form !== 'band' && !kinds.includes(row.name)) kinds.push(row.name);
      const at = Math.max(kinds.indexOf(row.name), 0);
      const byRun = several && !chart.alone;
      return {
        id: `${place}.${number}`, drawn, row, name: row.name || chart.fallback,
        color: color(byRun ? `c${drawn.run % 8}` : drawn.form === 'band' && !drawn.quiet ? 'soft' : `c${at % 8}`),
        dash: byRun ? DASHES[at % DASHES.length] : (at >= 8 ? 'dashed' : 'solid'),
        x: drawn.x.map(step => across(drawn.run, step)),
      };
    });
  });
}

function lines(entry) {
  const { drawn, row, x } = entry;
  const base = {
    id: entry.id, name: entry.id, type: 'line', yAxisIndex: drawn.right ? 1 : 0, animation: false, silent: true,
    symbolSize: 6, itemStyle: { color: entry.color }, emphasis: { disabled: true },
    showSymbol: true, symbol: ['points', 'dots'].includes(drawn.form) ? 'circle' : 'none',
    lineStyle: { color: entry.color, width: drawn.form === 'dots' ? 0 : drawn.quiet ? 1.2 : 2, type: entry.dash },
    data: x.map((at, place) => (alone(row.y, place) ? { value: [at, row.y[place]], symbol: 'circle' } : [at, row.y[place]])),
    z: drawn.quiet ? 2 : 3,
  };
  if (drawn.form === 'stack') {
    return [{ ...base, stack: `of ${drawn.run}`, step: 'middle', areaStyle: { color: entry.color, opacity: 0.75 },
      lineStyle: { width: 0 }, data: x.map((at, place) => [at, row.y[place] || 0]) }];
  }
  if (drawn.form === 'band') return between(base, x, row.y, drawn.rows[1].y, entry.color, 0.15);
  return drawn.low ? [...between(base, x, drawn.low, drawn.high, entry.color, 0.3), base] : [base];
}

/* Whether a value has none beside it, so that no line shows it. */
function alone(values, place) {
  const gap = at => values[at] === null || values[at] === undefined;
  return !gap(place) && gap(place - 1) && gap(place + 1);
}

/* The room between two courses. */
function between(base, x, low, high, fill, opacity) {
  const known = x.map((at, place) => low[place] !== null && high[place] !== null);
  const half = { ...base, stack: `band ${base.id}`, stackStrategy: 'all', lineStyle: { width: 0 }, showSymbol: false, z: 1 };
  return [
    { ...half, id: `${base.id}.low`, data: x.map((at, place) => [at, known[place] ? low[place] : null]) },
    { ...half, id: `${base.id}.high`, areaStyle: { color: fill, opacity },
      data: x.map((at, place) => [at, known[place] ? high[place] - low[place] : null]) },
  ];
}

/* Columns of rectangles: x from step to step, y a bucket each, the colour a share of the column. */
function heat(found) {
  const most = Math.max(...found.counts.map(counts => Math.max(...counts) / (sum(counts) || 1)));
  const shades = [0, 1, 2, 3].map(place => color(`heat${place}`));
  const data = [];
  found.counts.forEach((counts, column) => counts.forEach((count, bucket) => {
    const share = count / (sum(counts) || 1);
    data.push([across(found.run, found.since[column]), across(found.run, found.until[column]), bucket, share / (most || 1)]);
  }));
  return {
    type: 'custom', animation: false, silent: true, clip: true, encode: { x: [0, 1], y: 2 }, data,
    renderItem(params, api) {
      const from = api.coord([api.value(0), api.value(2) + 0.5]), to = api.coord([api.value(1), api.value(2) - 0.5]);
      const shape = { x: from[0], y: from[1], width: Math.max(to[0] - from[0], 1) + 0.5, height: to[1] - from[1] };
      return { type: 'rect', shape, style: { fill: blended(shades, api.value(3)) } };
    },
  };
}

function blended(shades, part) {
  const at = Math.min(Math.max(part, 0), 1) * (shades.length - 1), low = Math.min(Math.floor(at), shades.length - 2);
  const [one, other] = [shades[low], shades[low + 1]].map(shade => {
    const hex = shade.slice(1);
    return [0, 2, 4].map(start => parseInt(hex.slice(start, start + 2), 16));
  });
  return `rgb(${one.map((value, place) => Math.round(value + (other[place] - value) * (at - low))).join(',')})`;
}

function sum(values) {
  return values.reduce((all, value) => all + value, 0);
}

/* A vertical line for what happened, and a horizontal one for a limit. */
function markers(chart) {
  const data = chart.marks.map(mark => ({
    xAxis: across(mark.run, mark.x), lineStyle: { color: color(mark.bad ? 'bad' : 'soft'), type: 'dotted', width: mark.bad ? 2 : 1 },
  }));
  chart.limits.forEach(limit => data.push({ yAxis: limit.y, lineStyle: { color: color('bad'), type: 'dashed', width: 1.5 } }));
  return { type: 'line', id: 'markers', data: [], silent: true, animation: false,
    markLine: { symbol: 'none', silent: true, animation: false, label: { show: false }, data } };
}

function yAxis(drawn, right) {
  const of = drawn.filter(one => one.right === right);
  const unit = of.length ? of[0].unit : '';
  const share = unit === '1', fromZero = share || of.some(one => one.form === 'stack');
  const most = Math.max(...of.flatMap(one => [...one.rows.map(row => Math.max(...row.y)), ...(one.high || [])]), 0);
  const whole = share && (most === 0 || (most > 0.75 && most <= 1));
  return {
    type: 'value', show: of.length > 0, position: right ? 'right' : 'left', scale: !fromZero, min: fromZero ? 0 : null, max: whole ? 1 : null, interval: whole ? 0.25 : null,
    splitNumber: 4,
    axisLabel: { color: color('soft'), fontSize: 11, formatter: value => written(unit, value), hideOverlap: true },
    splitLine: { show: !right, lineStyle: { color: color('line') } },
  };
}

function options(chart, found) {
  const [low, high] = extent();
  const of = chart.heat[0];
  const vertical = of
    ? [{ type: 'value', min: -0.5, max: of.buckets.length - 0.5, interval: 1, splitLine: { show: false }, axisTick: { show: false },
        axisLabel: { color: color('soft'), fontSize: 11, showMinLabel: false, formatter: place => bucketName(of.buckets[Math.round(place + 0.5)]) } }]
    : [yAxis(chart.drawn, false), yAxis(chart.drawn, true)];
  if (!of && chart.limits.length) vertical[0].max = Math.max(...chart.limits.map(limit => limit.y)) * 1.02;
  return {
    animation: false, backgroundColor: 'transparent', textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
    grid: { left: 58, right: chart.drawn.some(one => one.right) ? 58 : 16, top: 10, bottom: 24 },
    xAxis: { type: 'value', min: low, max: high, minInterval: axis.kind === 'step' ? 1 : 0, axisLine: { onZero: false, lineStyle: { color: color('line') } },
      axisLabel: { color: color('soft'), fontSize: 11, hideOverlap: true, formatter: tick },
      splitLine: { show: false } },
    yAxis: vertical,
    dataZoom: [{ type: 'inside', filterMode: of ? 'none' : 'filter', zoomOnMouseWheel: 'ctrl', moveOnMouseMove: false, moveOnMouseWheel: false,
      preventDefaultMouseMove: false, startValue: axis.from === null ? low : axis.from, endValue: axis.to === null ? high : axis.to }],
    legend: { show: false },
    series: [...(of ? [heat(of)] : found.flatMap(lines)), markers(chart)],
  };
}

function bucketName(bucket) {
  if (!bucket) return '';
  const [low, high] = bucket;
  if (low === null) return `≤ ${plain(high)}`;
  return high === null ? `> ${plain(low)}` : `${plain(high)}`;
}
