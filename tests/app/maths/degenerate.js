// Random problems in degenerate positions, for test_degenerate.py: every function, every result walked for numbers that
// are not finite. Returns {problems, statuses, wrong}.
async ([seed, count]) => {
  const { maths } = await import("/maths/index.js");
  let state = seed >>> 0;
  // mulberry32, a small seeded generator
  const random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  const whole = (most) => Math.floor(random() * (most + 1));
  const choice = (values) => values[Math.floor(random() * values.length)];
  const coordinates = {
    grid: () => whole(2) - 1,
    nearlyGrid: () => whole(2) - 1 + 1e-9 * random(),
    line: () => 0,
    plain: () => 4 * random() - 2,
    wide: () => (random() - 0.5) * 10 ** (whole(12) - 6),
    extreme: () => choice([0, 1e-300, -1e-300, 1e300, -1e300, 1e15, 5e-324]),
    broken: () => choice([0, 1, NaN, Infinity, -Infinity, null, undefined, "two"]),
  };

  function problem() {
    const styles = Object.keys(coordinates);
    const style = choice(random() < 0.9 ? styles.slice(0, 5) : styles);
    const at = coordinates[style];
    const kind = choice(["prompt", "matrix"]);
    const given = random() < 0.3;
    const inputs = Array.from({ length: random() < 0.02 ? 0 : 1 + whole(3) }, () => {
      const tokens = Array.from({ length: random() < 0.02 ? 0 : 1 + whole(4) }, () => ({
        x: [at(), style === "line" ? 4 * random() - 2 : at()],
        score: given && random() < 0.8 ? choice([0, 1, 1, at()]) : null,
      }));
      if (tokens.length > 1 && random() < 0.3) tokens[1].x = [...tokens[0].x];
      const query = random() < 0.15 ? [0, 0] : [at(), at()];
      return { label: choice([1, -1]), query: kind === "matrix" || random() < 0.2 ? query : null, tokens };
    });
    return { kind, head: random() < 0.2 ? [0, 0] : [at(), at()], inputs };
  }

  function settings(kind) {
    const at = () => (random() < 0.5 ? 0 : 2 * random() - 1);
    const square = () => [[at(), at()], [at(), at()]];
    return {
      trained: kind === "prompt" ? "p" : choice(["W", "KQ"]),
      trainHead: random() < 0.4,
      optimizer: choice(["gradient", "normalized", "sign", "spectral"]),
      loss: choice(["logistic", "exponential", "linear"]),
      stepSize: choice([0.1, 1, 1e-6, 1e6, 0, 1e300]),
      steps: choice([0, 1, 40, 80]),
      start: choice([{ p: [at(), at()], W: square(), K: square(), Q: square() }, {}, null]),
      startHead: choice([[at(), at()], null]),
    };
  }

  const wrong = [];
  const statuses = {};
  function walk(value, path) {
    if (typeof value === "number") {
      if (!Number.isFinite(value)) throw new Error(`${path} is ${value}`);
    } else if (ArrayBuffer.isView(value) || Array.isArray(value)) {
      for (let k = 0; k < value.length; k++) walk(value[k], `${path}[${k}]`);
    } else if (value !== null && typeof value === "object") {
      for (const key of Object.keys(value)) walk(value[key], `${path}.${key}`);
    } else if (value === undefined) {
      throw new Error(`${path} is undefined`);
    }
  }
  const said = (what, result) => {
    if (typeof result.sentence !== "string" || result.sentence === "") throw new Error(`${what} says nothing`);
    statuses[`${what} ${result.status}`] = (statuses[`${what} ${result.status}`] || 0) + 1;
  };

  for (let k = 0; k < count; k++) {
    const given = problem();
    const chosen = settings(given.kind);
    try {
      const run = maths.train(given, chosen, [0, 1, 10, 40]);
      walk(run, "train");
      if (run.weights.length !== run.steps.length || run.selected.length !== given.inputs.length) {
        throw new Error("train keeps the wrong number of records");
      }
      const other = given.inputs.map((input) => whole(Math.max(0, input.tokens.length - 1)));
      for (const selected of [run.selected, other]) {
        for (const norm of ["frobenius", "nuclear", "spectral", "max-entry"]) {
          const solution = maths.maxMargin(given, selected, { norm });
          walk(solution, `maxMargin ${norm}`);
          said("maxMargin", solution);
          const optimal = maths.isLocallyOptimal(given, selected, { norm });
          walk(optimal, "isLocallyOptimal");
          said("isLocallyOptimal", optimal);
        }
        const sides = given.inputs.map(() => choice([0, 1]));
        walk(maths.maxMargin(given, selected, { norm: "nuclear", rightHandSide: sides }), "relaxed");
        const label = maths.labelMargin(given, selected);
        walk(label, "labelMargin");
        said("labelMargin", label);
        const predicted = maths.predict(given, chosen, selected);
        walk(predicted, "predict");
        if (predicted.sentence === "") throw new Error("predict says nothing");
        walk(maths.directionCosine(run.weights[run.weights.length - 1], predicted.weights), "directionCosine");
      }
      walk(maths.scores(given), "scores");
      walk(maths.optimalTokens(given), "optimalTokens");
      walk(maths.localOptima(given, { norm: choice(["frobenius", "nuclear"]), limit: 20 }), "localOptima");
      for (const field of maths.basin(given, { ...chosen, steps: 10 }, { size: 2, extent: 2, budgetMs: 0 }, null)) {
        walk(field, "basin");
      }
    } catch (error) {
      const shown = JSON.stringify([given, chosen], (_, value) => (Number.isNaN(value) ? "NaN" : value));
      wrong.push(`problem ${k}: ${error.message}; ${shown}`);
    }
  }
  return { problems: count, statuses, wrong };
};
