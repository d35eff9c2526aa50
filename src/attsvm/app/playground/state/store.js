/** How many steps can be undone. */
const DEPTH = 200;

/**
 * Holds the state and its past. A `change` makes one entry to undo; a `stroke` (a drag, a held arrow key) collects many
 * changes into one entry. States are never changed in place, so parts that are the same object are the same. Every
 * entry knows what `reset` returned to at its time.
 */
export function createStore(first) {
  let state = first;
  let origin = first;
  let past = [];
  let future = [];
  let stroke = null;
  const listeners = new Set();

  function tell(what) {
    for (const listener of listeners) listener(state, what);
  }

  /**
   * Undo and redo leave the time, the layers and the fresh inputs as a person last set them; another preset has its own.
   */
  function asLooked(next) {
    const time = state.time !== null && state.time <= next.settings.steps ? state.time : null;
    const { layers, fresh } = (next.preset === state.preset ? state : next).view;
    return { ...next, time, view: { ...next.view, layers, fresh } };
  }

  function goTo(entry) {
    state = asLooked(entry.state);
    origin = entry.origin;
  }

  function remember(before) {
    past = [...past.slice(1 - DEPTH), { state: before, origin }];
    future = [];
  }

  return {
    get: () => state,
    canUndo: () => past.length > 0 || (stroke !== null && stroke.before !== state),
    canRedo: () => future.length > 0,
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    /** Apply `update(state) -> state`; returning the same state changes nothing, which is told where something was to be added. */
    change(update, what) {
      const next = update(state);
      if (next === state) {
        if (what === "add") tell("full");
        return;
      }
      if (stroke === null) remember(state);
      state = next;
      tell(what);
    },
    /** Apply an update that is not worth undoing: the time slider, layers. */
    look(update, what) {
      const next = update(state);
      if (next === state) return;
      state = next;
      tell(what);
    },
    beginStroke(name) {
      if (stroke !== null && stroke.name === name) return;
      this.endStroke();
      stroke = { name, before: state };
    },
    endStroke() {
      if (stroke === null) return;
      const before = stroke.before;
      stroke = null;
      if (before !== state) {
        remember(before);
        tell("settled");
      }
    },
    undo() {
      this.endStroke();
      if (past.length === 0) return;
      future = [{ state, origin }, ...future];
      goTo(past[past.length - 1]);
      past = past.slice(0, -1);
      tell("undo");
    },
    redo() {
      this.endStroke();
      if (future.length === 0) return;
      past = [...past, { state, origin }];
      goTo(future[0]);
      future = future.slice(1);
      tell("redo");
    },
    /** Load a state as a new origin, to which `reset` returns. */
    load(next, what) {
      this.endStroke();
      if (next !== state) remember(state);
      state = next;
      origin = next;
      tell(what);
    },
    reset() {
      this.endStroke();
      if (JSON.stringify(state) === JSON.stringify(origin)) return; // nothing to reset: what was undone can be redone
      remember(state);
      state = origin;
      tell("reset");
    },
  };
}
