'use strict';
/* Numbers with their units, as people write them. Units are UCUM. */

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

function plain(value) {
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return Number(value.toPrecision(3)).toExponential().replace('e+', 'e');
  if (size >= 10000 || Number.isInteger(value)) return WHOLE.format(value);
  return String(Number(value.toPrecision(4)));
}

function seconds(value) {
  const size = Math.abs(value);
  if (size === 0) return '0 s';
  if (size < 1e-3) return plain(Number((value * 1e6).toPrecision(3))) + ' µs';
  if (size < 1) return plain(Number((value * 1e3).toPrecision(3))) + ' ms';
  if (size < 120) return plain(Number(value.toPrecision(3))) + ' s';
  if (size < 7200) return plain(Number((value / 60).toPrecision(3))) + ' min';
  return plain(Number((value / 3600).toPrecision(3))) + ' h';
}

function bytes(value) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let place = 0;
  while (Math.abs(value) >= 1024 && place < names.length - 1) { value /= 1024; place += 1; }
  return `${plain(Number(value.toPrecision(4)))} ${names[place]}`;
}

const WITH_UNIT = {
  '1': value => `${plain(Number((value * 100).toPrecision(4)))} %`,
  s: seconds,
  By: bytes,
  Cel: value => `${plain(value)} °C`,
  W: value => `${plain(value)} W`,
};

/* A value with its unit, where the unit is part of how it is written; other units stand beside the axis. */
function written(unit, value) {
  return value === null || value === undefined ? '–' : (WITH_UNIT[unit] || plain)(value);
}

/* What stands beside an axis; empty where every number has its unit. */
function unitName(unit) {
  return unit in WITH_UNIT ? '' : unit.replace(/[{}]/g, '');
}

function clock(value) {
  const whole = Math.max(Math.round(value), 0);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return parts.map((part, place) => (place ? String(part).padStart(2, '0') : String(part))).join(':');
}
