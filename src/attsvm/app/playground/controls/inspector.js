import { addToken, flipLabel, removeToken, setScore } from "../state/actions.js";
import { LIMITS } from "../state/limits.js";
import { handleItems } from "../view/handles.js";
import { inputInk } from "../view/colours.js";
import { node, setAttributes, setText } from "../view/dom.js";
import { capital, significant } from "../format.js";
import { tokenName } from "../words.js";
import { itemMove } from "./drag.js";
import { numberField } from "./fields.js";

/** One line under the picture: what has the focus, its exact place, and what can be done with it. */
export function createInspector({ store, focused, focusItem }) {
  const name = node("span", { class: "inspected" });
  const coordinate = (k) =>
    numberField({
      label: `${k === 0 ? "first" : "second"} coordinate of what is chosen`,
      low: -LIMITS.coordinate,
      high: LIMITS.coordinate,
      step: 0.05,
      onValue: (value) =>
        store.change(itemMove(focused(), k === 0 ? [value, shown.at[1]] : [shown.at[0], value]), "move"),
    });
  const first = coordinate(0);
  const second = coordinate(1);
  const score = numberField({
    label: "score of the chosen token",
    low: -LIMITS.score,
    high: LIMITS.score,
    step: 0.1,
    onValue: (value) => withToken((i, t) => store.change((state) => setScore(state, i, t, value), "score")),
  });
  const scoreName = node("span", { class: "vector-name" }, "score");
  const add = node(
    "button",
    { type: "button", title: "add a token to this input", onclick: () => withToken(addOne) },
    "Add token",
  );
  const flip = node("button", {
    type: "button",
    onclick: () => withToken((i) => store.change((state) => flipLabel(state, i), "label")),
  });
  const remove = node(
    "button",
    { type: "button", onclick: () => withToken((i, t) => store.change((state) => removeToken(state, i, t), "remove")) },
    "Remove",
  );
  const element = node(
    "div",
    { class: "inspector", role: "group", "aria-label": "what is chosen" },
    name,
    first.input,
    second.input,
    node("span", { class: "more" }, scoreName, score.input, node("span", { class: "spring" }), add, flip, remove),
  );
  let shown = { at: [0, 0] };

  function withToken(action) {
    const [kind, i, t] = focused().split("-");
    if (kind === "token") action(Number(i), Number(t));
  }

  function addOne(i) {
    store.change((state) => addToken(state, i), "add");
    focusItem(`token-${i}-${(store.get().problem.inputs[i]?.tokens.length ?? 1) - 1}`);
  }

  function inspected(model) {
    const [kind, first_, second_] = focused().split("-");
    const [i, t] = [Number(first_), Number(second_)];
    const token = kind === "token" ? model.problem.inputs[i]?.tokens[t] : undefined;
    if (token) return { at: token.x, words: tokenName(model.problem, i, t), token, i, t };
    const item = handleItems(model).find((each) => each.key === focused());
    return item ? { at: item.at, words: item.words.replace(/ at .*$/, ""), token: null, i: item.input } : null;
  }

  function update({ model, theme }) {
    const found = inspected(model);
    setAttributes(element, { class: found === null ? "inspector empty" : "inspector" });
    if (found === null) return;
    shown = found;
    const isToken = found.token !== null;
    setText(name, capital(found.words));
    name.style.setProperty("color", found.i === null ? "inherit" : inputInk(theme, found.i));
    first.show(found.at[0]);
    second.show(found.at[1]);
    for (const button of [add, flip, remove]) setAttributes(button, { hidden: !isToken });
    setAttributes(scoreName, { hidden: !isToken });
    setAttributes(score.input, { hidden: !isToken || !model.typed });
    if (!isToken) return;
    setText(scoreName, model.typed ? "score" : `score ${significant(model.scores[found.i][found.t])}`);
    if (model.typed) score.show(found.token.score);
    setText(flip, model.problem.inputs[found.i].label === 1 ? "Label +1" : "Label −1");
    setAttributes(flip, { title: `flip the label of input ${found.i}` });
    const alone = model.problem.inputs.length === 1 && model.problem.inputs[0].tokens.length === 1;
    setAttributes(remove, { disabled: alone, title: alone ? "one token has to stay" : null });
  }

  return { element, update };
}
