import { hasTypedScores } from "../state/schema.js";

/**
 * The problem as the arrays of a TokenDataset. Inputs of different lengths are filled up with zeros and a mask; typed
 * scores become a third coordinate of the values, read by v = e3, as in the papers.
 */
export function datasetArrays(problem, head) {
  const { inputs } = problem;
  const longest = Math.max(...inputs.map((input) => input.tokens.length));
  const typed = hasTypedScores(problem);
  const filled = (input, of, empty) =>
    Array.from({ length: longest }, (_, t) => (t < input.tokens.length ? of(input.tokens[t]) : empty));
  const ragged = inputs.some((input) => input.tokens.length < longest);
  return {
    tokens: inputs.map((input) => filled(input, (token) => token.x, [0, 0])),
    queries: inputs.map((input) => (problem.kind === "prompt" ? [1] : input.query)),
    labels: inputs.map((input) => input.label),
    mask: ragged ? inputs.map((input) => filled(input, () => true, false)) : null,
    values: typed ? inputs.map((input) => filled(input, (token) => [...token.x, token.score], [0, 0, 0])) : null,
    head: typed ? [0, 0, 1] : head,
  };
}
