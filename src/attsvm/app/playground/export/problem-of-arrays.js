import { LIMITS } from "../state/limits.js";
import { FileError } from "./npz-reader.js";

const KNOWN_ARRAYS = ["tokens", "queries", "labels", "mask", "values", "head", "__metadata__"];

function refuseData(sentence) {
  throw new FileError(sentence);
}

function axesOf(value) {
  return Array.isArray(value) ? [value.length, ...axesOf(value[0])] : [];
}

function check(name, value, ...expected) {
  const found = axesOf(value);
  if (found.length !== expected.length || expected.some((length, k) => length !== null && length !== found[k])) {
    const words = expected.map((length) => length ?? "any").join(", ");
    refuseData(`${name} must have shape [${words}]; got [${found.join(", ")}]`);
  }
}

function checkNumbers(name, value, bound) {
  const wrong = value.flat(Infinity).find((entry) => !Number.isFinite(entry) || Math.abs(entry) > bound);
  if (wrong !== undefined) refuseData(`${name} must be finite and within ${bound} to be drawn; got ${wrong}`);
}

function sharing(arrays) {
  try {
    return JSON.parse(arrays.__metadata__ ?? "{}").queries_per_sequence ?? 1;
  } catch {
    return 1;
  }
}

/**
 * The problem that a data set's arrays state, by the rules of Python's `data_to_problem`: one data set in the plane, dq = 1
 * (a prompt) or 2; masked tokens are left out; values that are not the tokens become given scores, v . value.
 * @returns {{ problem: object, trainHead: boolean, extent: number }} data without a head have theirs trained.
 */
export function problemOfArrays(arrays) {
  const stray = Object.keys(arrays).find((name) => !KNOWN_ARRAYS.includes(name));
  if (stray !== undefined)
    refuseData(`no token data set has an array "${stray.slice(0, 30)}"; it has ${KNOWN_ARRAYS.slice(0, 6).join(", ")}`);
  for (const name of ["tokens", "queries", "labels"])
    if (arrays[name] === undefined) refuseData(`the file must hold an array "${name}"`);
  const { tokens, queries, labels, mask, values, head } = arrays;
  if (axesOf(tokens).length > 3) refuseData("the file holds a batch of data sets; save a single one, data[0]");
  check("tokens", tokens, null, null, 2);
  const count = queries.length;
  const wide = axesOf(queries)[1];
  if (wide !== 1 && wide !== 2) refuseData(`queries must have one coordinate (a prompt) or two; got ${wide ?? "none"}`);
  const shared = sharing(arrays);
  if (tokens.length * shared !== count) refuseData(`tokens and queries must belong together; got ${tokens.length} and ${count}`);
  check("queries", queries, count, wide);
  check("labels", labels, count);
  const longest = tokens[0].length;
  if (mask !== undefined) check("mask", mask, count, longest);
  if (values !== undefined) check("values", values, tokens.length, longest, null);
  if (values !== undefined && head === undefined) refuseData("values need a head: without it no token has a score");
  if (head !== undefined) check("head", head, values === undefined ? 2 : values[0][0].length);
  const bad = labels.find((label) => label !== 1 && label !== -1);
  if (bad !== undefined) refuseData(`labels must be 1 or -1; got ${bad}`);
  if (wide === 1 && queries.some(([entry]) => entry !== 1))
    refuseData("queries must all be 1 where they have one coordinate (a prompt); scale the tokens instead");
  checkNumbers("tokens", tokens, LIMITS.coordinate);
  checkNumbers("queries", queries, LIMITS.coordinate);
  const dot = (value) => value.reduce((sum, entry, k) => sum + entry * head[k], 0);
  const typed = values !== undefined && JSON.stringify(values) !== JSON.stringify(tokens);
  if (head !== undefined && !typed) checkNumbers("head", head, LIMITS.coordinate);
  const inputs = queries.map((query, i) => {
    const row = Math.floor(i / shared);
    const real = tokens[row].map((_, t) => t).filter((t) => mask === undefined || mask[i][t]);
    return {
      label: labels[i],
      query: wide === 2 ? query : null,
      tokens: real.map((t) => ({ x: tokens[row][t], score: typed ? dot(values[row][t]) : null })),
    };
  });
  const widest = Math.max(...inputs.map((input) => input.tokens.length));
  if (count > LIMITS.inputs || widest > LIMITS.tokens)
    refuseData(`at most ${LIMITS.inputs} inputs of ${LIMITS.tokens} tokens can be drawn; the file has ${count} of ${widest}`);
  const reach = Math.max(...[tokens, wide === 2 ? queries : []].flat(Infinity).map(Math.abs));
  return {
    problem: { kind: wide === 1 ? "prompt" : "matrix", head: head === undefined || typed ? [0, 1] : head, inputs },
    trainHead: head === undefined,
    extent: Math.min(1.3 * reach || 1.5, LIMITS.coordinate),
  };
}
