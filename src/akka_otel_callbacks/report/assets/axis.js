'use strict';
/* The x axis that all charts share: steps or time, the part of it that is shown, and where the cursor stands. */

const axis = { kind: 'step', from: null, to: null, cursor: null };

/* A step of a run on the axis as it is now. */
function across(run, step) {
  if (axis.kind === 'step') return step;
  const { steps, seconds: times } = page.runs[run];
  if (steps.length < 2) return times[0] || 0;
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle; else high = middle;
  }
  const part = (step - steps[low]) / (steps[high] - steps[low] || 1);
  return times[low] + part * (times[high] - times[low]);
}

function extent() {
  const ends = page.runs.map(run => (axis.kind === 'step' ? run.ends : [run.seconds[0], run.seconds[run.seconds.length - 1]]));
  const low = Math.min(...ends.map(end => end[0])), high = Math.max(...ends.map(end => end[1]));
  return low < high ? [low, high] : [low - 1, high + 1];
}

/* What stands at a place of the axis. Behind the last step, where GPUs are still heard of, there is no step. */
function tick(value) {
  if (axis.kind !== 'step') return clock(value);
  return value > last() ? '' : plain(value);
}

function last() {
  return Math.max(...page.runs.map(run => run.last));
}

function position(value) {
  return axis.kind === 'step' ? `step ${plain(Math.min(Math.round(value), last()))}` : clock(value);
}

/* The place of the point that is nearest to a value of an ascending list. */
function nearest(list, value) {
  let low = 0, high = list.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle; else high = middle;
  }
  return value - list[low] <= list[high] - value ? low : high;
}
