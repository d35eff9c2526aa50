import { train } from "../maths/descent.js";
import { maxMargin } from "../maths/margin.js";
import { imageOf, optimalTokens, scores } from "../maths/model.js";
import { normValue } from "../maths/norms.js";
import { directionCosine } from "../maths/numbers.js";
import { isLocallyOptimal } from "../maths/optimality.js";
import { normOfTraining, predict } from "../maths/predict.js";
import { point } from "../format.js";
import { companionName } from "../words.js";
import { companionSettings, isComparison, startPoint } from "./actions.js";
import { createFreshCounter } from "./fresh.js";
import { indexAt, recordedStepsFor } from "./recording.js";
import { hasTypedScores } from "./schema.js";

const STILL_RECORDS = 240;
const MOVING_RECORDS = 70;
/** Milliseconds that a frame may spend on the main run while something is dragged, and on companions. */
const MOVING_BUDGET = 12;
const COMPANION_BUDGET = 7;

/** The norm in which the selection is solved: the predicted one, or where theory is silent that of W or of (K, Q). */
export function solvedNorm(settings) {
  return normOfTraining(settings.trained === "p", settings) ?? (settings.trained === "KQ" ? "nuclear" : "frobenius");
}

function bestSets(all, optimal) {
  return all.map((each, i) => {
    const best = each[optimal.tokens[i]];
    const line = 1e-12 * Math.max(0, ...each.map(Math.abs));
    return new Set(each.map((_, t) => t).filter((t) => each[t] >= best - line));
  });
}

function conflictsOf(solution) {
  if (!["infeasible", "not found"].includes(solution.status) || !solution.duals) return [];
  return solution.duals.flatMap((row, input) =>
    row.map((dual, token) => ({ input, token, dual })).filter(({ dual }) => dual > 1e-9),
  );
}

function badgeOf(solution) {
  if (solution.status === "infeasible") return "infeasible: nothing separates this selection";
  if (solution.status === "not found") return "no separating weights found";
  return solution.status === "degenerate" && solution.weights === null ? "degenerate" : "";
}

/**
 * Margin of a direction over the best one in the norm, at most 1; it needs no unique solution. Null where there is none,
 * or where inputs ask for different margins.
 */
function marginEfficiency(problem, selected, weights, solution, norm) {
  if (solution.status !== "solved" || !(solution.norm > 0)) return null;
  const size = normValue(norm, weights);
  const least = Math.min(...marginsOf(problem, selected, weights));
  return size > 0 && Number.isFinite(least) ? (least / size) * solution.norm : null;
}

/** The smallest margin of each input, (x_selected - x_t)^T W z over its other tokens; infinite where there are none. */
function marginsOf(problem, selected, weights) {
  return problem.inputs.map((input, i) => {
    const w = imageOf(weights, input.query);
    const own = input.tokens[selected[i]].x;
    const others = input.tokens.filter((_, t) => t !== selected[i]);
    return Math.min(...others.map(({ x }) => (own[0] - x[0]) * w[0] + (own[1] - x[1]) * w[1]));
  });
}

/** What is measured on the run at a record, for the selection whose solution is shown. */
function measuredOn(problem, run, index, selected, solution, norm) {
  const weights = run.weights[index];
  const size = normValue(norm, weights);
  const margins = marginsOf(problem, selected, weights);
  const solved = solution.status === "solved" && size > 0;
  return {
    selected: run.logAttention[index].map((logs) => logs.indexOf(Math.max(...logs))),
    margins,
    size,
    margin: size > 0 ? Math.min(...margins) / size : null,
    efficiency: solved ? marginEfficiency(problem, selected, weights, solution, norm) : null,
    cosine: solved ? directionCosine(weights, solution.weights) : null,
    probability: Math.min(...run.attention[index].map((shares, i) => shares[selected[i]])),
  };
}

function sameProblem(first, second) {
  return first === second || JSON.stringify(first) === JSON.stringify(second);
}

/** What a run has come to at a record: its selection, the cosine to where it should tend, and its margin over the best. */
function readingOf(problem, run, index, aim, norm) {
  const weights = run.weights[index];
  const relaxed = aim.rightHandSide !== null && aim.rightHandSide.some((side) => side !== 1);
  const solution = aim.solution;
  return {
    selected: run.selected,
    cosine: aim.weights ? directionCosine(weights, aim.weights) : null,
    efficiency:
      relaxed || !aim.weights || !solution ? null : marginEfficiency(problem, run.selected, weights, solution, norm),
  };
}

/**
 * Computes what the page shows and remembers it: what did not change is not computed again. While something moves it
 * records less, and where a run is long takes only as many of its steps as a frame has time for; companions take turns.
 */
export function createAnalyst() {
  let main = null;
  let sides = [];
  let turn = 0;
  let speed = 0.004;
  const countFresh = createFreshCounter();

  function timedTrain(problem, settings, record) {
    const began = performance.now();
    const run = train(problem, settings, record);
    const spent = performance.now() - began;
    speed = 0.7 * speed + 0.3 * (spent / Math.max(1, settings.steps));
    return run;
  }

  function mainRun(state, moving) {
    const { problem, settings } = state;
    const count = moving ? MOVING_RECORDS : STILL_RECORDS;
    const fits =
      main !== null &&
      main.problem === problem &&
      main.settings === settings &&
      (main.time === state.time || main.run.steps.includes(state.time ?? -1) || state.time === null);
    if (fits && (moving || (main.count >= count && !main.partial))) return main;
    const allowed = moving ? Math.max(200, Math.floor(MOVING_BUDGET / speed)) : settings.steps;
    const steps = Math.min(settings.steps, allowed);
    const run = timedTrain(
      problem,
      steps === settings.steps ? settings : { ...settings, steps },
      recordedStepsFor(steps, count, [state.time]),
    );
    main = { problem, settings, run, count, time: state.time, partial: steps < settings.steps };
    return main;
  }

  function updateSides(state, moving) {
    const { settings, companions } = state;
    const count = moving ? 40 : 140;
    sides = companions.map((companion, k) => {
      const old = sides[k];
      const problem = companion.problem ?? state.problem;
      const merged =
        old && old.companion === companion && old.base === settings
          ? old.settings
          : companionSettings(settings, companion);
      const same = old && JSON.stringify(old.settings) === JSON.stringify(merged);
      const fresh = Boolean(same) && old.problem === problem && old.count >= count;
      return {
        companion,
        base: settings,
        settings: merged,
        problem,
        ranOn: old?.ranOn ?? problem,
        run: old?.run ?? null,
        aim: old?.aim ?? null,
        count: old?.count ?? 0,
        fresh,
      };
    });
    const began = performance.now();
    for (let k = 0; k < sides.length; k += 1) {
      const at = (turn + k) % sides.length;
      const side = sides[at];
      if (side.fresh) continue;
      const steps = moving
        ? Math.min(side.settings.steps, Math.max(200, Math.floor(COMPANION_BUDGET / speed)))
        : side.settings.steps;
      side.run = timedTrain(side.problem, { ...side.settings, steps }, recordedStepsFor(steps, count));
      side.ranOn = side.problem;
      side.aim = isComparison(side.companion) ? predict(side.problem, side.settings, side.run.selected) : null;
      side.count = steps < side.settings.steps ? 0 : count;
      side.fresh = true;
      turn = at + 1;
      if (performance.now() - began > COMPANION_BUDGET) break;
    }
    return sides.some((side) => !side.fresh);
  }

  function shownCompanions(state, shown) {
    const { settings } = state;
    const ownNorm = solvedNorm(settings);
    let marked = 0;
    return sides.map((side) => {
      const { companion } = side;
      const held = companion.problem !== undefined && !sameProblem(companion.problem, state.problem);
      const differs =
        companion.name !== undefined ||
        held ||
        side.settings.trained !== settings.trained ||
        side.settings.optimizer !== settings.optimizer ||
        side.settings.loss !== settings.loss ||
        side.settings.stepSize !== settings.stepSize;
      if (differs) marked += 1;
      const norm = solvedNorm(side.settings);
      const start = startPoint(side.problem, side.settings, 0);
      const ownRay = norm !== ownNorm || held;
      const index = side.run ? indexAt(side.run.steps, state.time) : 0;
      return {
        name: companionName(companion, settings, point(start)),
        start,
        settings: side.settings,
        problem: side.ranOn,
        held,
        norm,
        run: side.run,
        aim: side.aim,
        index,
        dash: differs ? ["6 4", "2 4", "9 3 2 3"][(marked - 1) % 3] : null,
        ownStart: companion.start !== undefined && !differs && side.problem.kind === "prompt",
        ownRay,
        prediction: !ownRay ? null : held ? side.aim : predict(side.problem, side.settings, shown),
        reading: side.run && side.aim ? readingOf(side.ranOn, side.run, index, side.aim, norm) : null,
      };
    });
  }

  /** Everything on screen for one state. `pending` says that companions are still to come. */
  function analyse(state, moving) {
    const { problem, settings } = state;
    const own = mainRun(state, moving);
    const pending = updateSides(state, moving);
    const { run } = own;
    const all = scores(problem);
    const optimal = optimalTokens(problem);
    const typed = hasTypedScores(problem);
    const selected = run.selected;
    const shown = state.shown ?? selected;
    const norm = solvedNorm(settings);
    const prediction = predict(problem, settings, shown);
    const solution = prediction.solution ?? maxMargin(problem, shown, { norm });
    const relaxed = prediction.rightHandSide !== null && prediction.rightHandSide.some((side) => side !== 1);
    const support = problem.inputs.map(() => new Set());
    if (solution.status === "solved") for (const [i, t] of solution.support) support[i].add(t);
    const index = indexAt(run.steps, state.time);
    const headTrained = settings.trainHead && !typed;
    const bestSet = bestSets(all, optimal);
    const certified = relaxed ? maxMargin(problem, shown, { norm }) : solution;
    const pinned = state.shown !== null && state.shown.some((t, i) => t !== selected[i]);
    const ownReading = readingOf(problem, run, index, pinned ? predict(problem, settings, selected) : prediction, norm);
    return {
      state,
      problem,
      settings,
      run,
      selected,
      shown,
      norm,
      solution,
      prediction,
      support,
      index,
      optimal,
      typed,
      headTrained,
      bestSet,
      pending,
      scores: all,
      relaxed,
      certified,
      measured: measuredOn(problem, run, index, shown, certified, norm),
      partial: own.partial,
      attention: run.attention[index],
      starts: problem.inputs.map((_, i) => startPoint(problem, settings, i)),
      cosine: run.weights.map((weights) => (prediction.weights ? directionCosine(weights, prediction.weights) : null)),
      efficiency:
        relaxed || !prediction.weights ? null : marginEfficiency(problem, shown, run.weights[index], solution, norm),
      ownCosine: ownReading.cosine,
      ownEfficiency: ownReading.efficiency,
      reachedLocal: headTrained ? null : isLocallyOptimal(problem, selected, { norm }),
      shownLocal: headTrained ? null : isLocallyOptimal(problem, shown, { norm }),
      fresh: countFresh(state, run, index, headTrained, moving),
      companions: shownCompanions(state, shown),
      conflicts: conflictsOf(solution),
      badge: badgeOf(solution),
      optimalOutOfReach:
        !headTrained &&
        !optimal.tied.some(Boolean) &&
        maxMargin(problem, optimal.tokens, { norm: "frobenius" }).status === "infeasible",
      otherRays: [],
      optima: null,
      basin: null,
    };
  }

  return { analyse };
}
