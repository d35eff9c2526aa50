import {
  addInput,
  addToken,
  flipLabel,
  moveHead,
  moveQuery,
  moveToken,
  removeInput,
  removeToken,
  setScore,
  setStart,
} from "../state/actions.js";
import { LIMITS } from "../state/limits.js";
import { inputInk } from "../view/colours.js";
import { node, setAttributes, setText, syncChildren } from "../view/dom.js";
import { lowered, significant } from "../format.js";
import { numberField } from "./fields.js";
import { createRandomData } from "./random-data.js";

/** Two fields for one point of the plane. */
function pointFields(label, onPoint) {
  let shown = [0, 0];
  const field = (k, axis) =>
    numberField({
      label: `${label}, ${axis} coordinate`,
      low: -LIMITS.coordinate,
      high: LIMITS.coordinate,
      step: 0.05,
      onValue: (value) => onPoint(k === 0 ? [value, shown[1]] : [shown[0], value]),
    });
  const first = field(0, "first");
  const second = field(1, "second");
  return {
    inputs: [first.input, second.input],
    show(x) {
      shown = x;
      first.show(x[0]);
      second.show(x[1]);
    },
  };
}

/** Exact coordinates of everything, and buttons to add, remove and flip. */
export function createTable({ store, onRandom }) {
  const inputs = node("div", { class: "inputs" });
  const more = node("button", { type: "button", onclick: () => store.change(addInput, "add") }, "Add an input");
  const head = pointFields("head v", (x) => store.change((state) => moveHead(state, x), "move"));
  const headRow = node("div", { class: "vector" }, node("span", { class: "vector-name" }), ...head.inputs);
  const starts = node("div", { class: "starts" });
  const random = createRandomData({ onDraw: onRandom });
  const element = node("div", { class: "table" }, random.element, inputs, more, headRow, starts);
  const startRows = createStartRows(store, starts);

  function update({ model, theme }) {
    random.update({ model });
    const items = model.problem.inputs.map((input, i) => ({ input, i }));
    syncChildren(
      inputs,
      items,
      ({ i }) => String(i),
      ({ i }) => createInputBlock(store, i),
      (block, item) => block.show(item, model, theme),
    );
    setAttributes(headRow, { hidden: model.typed });
    setText(headRow.firstChild, model.headTrained ? "head v(0)" : "head v");
    head.show(model.headTrained ? model.settings.startHead : model.problem.head);
    startRows(model);
  }

  return { element, update };
}

function createInputBlock(store, i) {
  const title = node("span", { class: "input-title" }, `Input ${i}`);
  const label = node("button", {
    type: "button",
    class: "label",
    onclick: () => store.change((state) => flipLabel(state, i), "label"),
  });
  const remove = node(
    "button",
    {
      type: "button",
      class: "plain",
      "aria-label": `remove input ${i}`,
      title: `remove input ${i}`,
      onclick: () => store.change((state) => removeInput(state, i), "remove"),
    },
    "×",
  );
  const query = pointFields(`query of input ${i}`, (z) => store.change((state) => moveQuery(state, i, z), "move"));
  const queryRow = node(
    "div",
    { class: "vector" },
    node("span", { class: "vector-name" }, `query z${lowered(i)}`),
    ...query.inputs,
  );
  const rows = node("div", { class: "token-rows" });
  const add = node(
    "button",
    { type: "button", class: "plain add", onclick: () => store.change((state) => addToken(state, i), "add") },
    "+ token",
  );
  const block = node(
    "section",
    { class: "input-block", "aria-label": `input ${i}` },
    node("header", {}, title, label, add, remove),
    rows,
    queryRow,
  );

  block.show = ({ input }, model, theme) => {
    title.style.setProperty("color", inputInk(theme, i));
    setText(label, input.label === 1 ? "label +1" : "label −1");
    setAttributes(label, {
      "aria-label": `label of input ${i} is ${input.label}; flip it`,
      title: "flip the label",
    });
    setAttributes(remove, { disabled: model.problem.inputs.length <= 1 });
    setAttributes(queryRow, { hidden: model.problem.kind === "prompt" });
    query.show(input.query);
    syncChildren(
      rows,
      input.tokens.map((token, t) => ({ token, t })),
      ({ t }) => `${t}`,
      ({ t }) => createTokenRow(store, i, t),
      (row, item) => row.show(item.token, model),
    );
  };
  return block;
}

function createTokenRow(store, i, t) {
  const name = `token ${t} of input ${i}`;
  const place = pointFields(name, (x) => store.change((state) => moveToken(state, i, t, x), "move"));
  const score = numberField({
    label: `score of ${name}`,
    low: -LIMITS.score,
    high: LIMITS.score,
    step: 0.1,
    onValue: (value) => store.change((state) => setScore(state, i, t, value), "score"),
  });
  const given = node("span", { class: "given-score" });
  const remove = node(
    "button",
    {
      type: "button",
      class: "plain",
      "aria-label": `remove ${name}`,
      title: `remove ${name}`,
      onclick: () => store.change((state) => removeToken(state, i, t), "remove"),
    },
    "×",
  );
  const number = node("span", { class: "token-number" });
  const row = node("div", { class: "token-row" }, number, ...place.inputs, score.input, given, remove);

  row.show = (token, model) => {
    setText(number, `${t}${model.bestSet[i].has(t) ? "★" : ""}`);
    place.show(token.x);
    setAttributes(score.input, { hidden: token.score === null });
    setAttributes(given, { hidden: token.score !== null, title: "score: label times v·x" });
    if (token.score === null) setText(given, significant(model.scores[i][t]));
    else score.show(token.score);
    setAttributes(remove, { disabled: model.problem.inputs.length <= 1 && model.problem.inputs[0].tokens.length <= 1 });
  };
  return row;
}

/** The starting point: p(0), the rows of W(0), or those of K(0) and Q(0). */
function createStartRows(store, parent) {
  function createRow({ key, index, name }) {
    const fields = pointFields(index === null ? name : `row ${index} of ${name}`, (x) => {
      store.change((state) => {
        const before = state.settings.start[key];
        return setStart(state, { [key]: index === null ? x : before.map((row, k) => (k === index ? x : row)) });
      }, "move");
    });
    const row = node("div", { class: "vector" }, node("span", { class: "vector-name" }), ...fields.inputs);
    row.show = (item) => {
      setText(row.firstChild, item.index === 1 ? "" : item.name);
      fields.show(item.value);
    };
    return row;
  }

  return (model) => {
    const { trained, start } = model.settings;
    const names = { p: ["p"], W: ["W"], KQ: ["K", "Q"] }[trained];
    const items = names.flatMap((key) =>
      key === "p"
        ? [{ key, index: null, name: "p(0)", value: start.p }]
        : start[key].map((value, index) => ({ key, index, name: `${key}(0)`, value })),
    );
    syncChildren(
      parent,
      items,
      ({ key, index }) => `${key}${index}`,
      createRow,
      (row, item) => row.show(item),
    );
  };
}
