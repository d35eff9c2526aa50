/** Counts drawn frames between `start` and `stop`, for measurements. */
export function createFrameCounter() {
  let times = null;

  return {
    tick: () => times?.push(performance.now()),
    start: () => {
      times = [];
    },
    /** @returns {{ count: number, seconds: number, perSecond: number, longest: number }} longest gap in milliseconds */
    stop: () => {
      const all = times ?? [];
      times = null;
      const gaps = all.slice(1).map((time, k) => time - all[k]);
      const seconds = gaps.reduce((sum, gap) => sum + gap, 0) / 1000;
      return {
        count: all.length,
        seconds,
        perSecond: seconds > 0 ? gaps.length / seconds : 0,
        longest: Math.max(0, ...gaps),
      };
    },
  };
}
