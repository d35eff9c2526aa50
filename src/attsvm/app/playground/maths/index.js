/** The public maths of the playground. */
import { basin } from "./basin.js";
import { train } from "./descent.js";
import { freshInputs, randomData, selectedRight } from "./generalization.js";
import { labelMargin, maxMargin } from "./margin.js";
import { optimalTokens, scores } from "./model.js";
import { askText, collapsedOrder, readText, trainText } from "./next-token.js";
import { directionCosine } from "./numbers.js";
import { isLocallyOptimal, localOptima } from "./optimality.js";
import { predict } from "./predict.js";

/** What a page, a test or another module may call. */
export const maths = Object.freeze({
  train,
  maxMargin,
  labelMargin,
  scores,
  optimalTokens,
  localOptima,
  isLocallyOptimal,
  basin,
  directionCosine,
  predict,
  randomData,
  freshInputs,
  selectedRight,
  readText,
  collapsedOrder,
  trainText,
  askText,
});
