/**
 * Which steps of a run to keep: every one at first, then ever fewer, about `count` in all, and those asked for.
 * Paths leave the origin ever more slowly on a logarithmic scale, so equal ratios make even pictures.
 */
export function recordedStepsFor(steps, count, extra = []) {
  const kept = new Set([0, steps]);
  if (steps <= count) for (let step = 1; step < steps; step += 1) kept.add(step);
  else {
    for (let k = 0; k <= count; k += 1) kept.add(Math.round(Math.expm1((k / count) * Math.log1p(steps))));
  }
  for (const step of extra) if (step !== null && step <= steps) kept.add(step);
  return [...kept].sort((a, b) => a - b);
}

/** The place of the last recorded step that is not after `time`; null means the end. */
export function indexAt(steps, time) {
  if (time === null) return steps.length - 1;
  let low = 0;
  let high = steps.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (steps[middle] <= time) low = middle;
    else high = middle - 1;
  }
  return low;
}
