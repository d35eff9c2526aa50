import { mount } from "./mount.js";

/** What anywidget calls: the page in a cell, its state and selection tied to the Python object's. */
export function render({ model, el }) {
  const waiting = new Map();
  // One object may be shown in several cells, and every view hears all answers.
  const view = Math.random().toString(36).slice(2);
  let asked = 0;

  function certify(problem, selected, norm, weights) {
    return new Promise((resolve, reject) => {
      asked += 1;
      const id = `${view}-${asked}`;
      waiting.set(id, { resolve, reject });
      model.send({ kind: "certify", id, problem, selected, norm, weights });
    });
  }

  function answer(content) {
    if (content?.kind !== "certificate" || !waiting.has(content.id)) return;
    const { resolve, reject } = waiting.get(content.id);
    waiting.delete(content.id);
    if (content.error) reject(new Error(content.error));
    else resolve(content.certificate);
  }

  function publish(state, selected) {
    model.set("state", state);
    model.set("selected", selected);
    model.save_changes();
  }

  const given = model.get("state");
  const handle = mount(el, {
    state: given && Object.keys(given).length > 0 ? given : undefined,
    host: "widget",
    certify,
    onChange: publish,
  });
  const follow = () => {
    const next = model.get("state");
    if (next && Object.keys(next).length > 0) handle.setState(next);
  };
  model.on("msg:custom", answer);
  model.on("change:state", follow);
  handle.ready.then(() => publish(handle.getState(), handle.getSelected()));
  return () => {
    model.off("msg:custom", answer);
    model.off("change:state", follow);
    handle.destroy();
  };
}
