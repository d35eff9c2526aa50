/**
 * How the page is shown, apart from what it shows: no part of the state, but part of the address.
 *
 *   lecture           large type, the picture and what changes with it
 *   embed             everything within the height of the frame, so that the page around it scrolls
 *   hide=setup,along  parts that are not shown; hide=none shows all
 *   speed=2           of playing: 0.25, 0.5, 1, 2 or 4
 *   theme=dark        or light; otherwise the system's
 *
 * `text` is the scene of a text, with what was typed, or null: it lies over the plane, whose state stays as it is.
 */
export const DISPLAY_KEYS = ["lecture", "embed", "hide", "speed", "theme"];

export const SPEEDS = [0.25, 0.5, 1, 2, 4];

/** Panels of both sides, and the parts around the picture. */
const RESULT_PANELS = ["going", "attention", "along", "fresh", "local", "certified"];
const SETUP_PANELS = ["train", "coordinates"];
const OTHER_PARTS = ["toolbar", "advice", "legend", "layers", "inspector", "timeline", "explanation", "links"];
const GROUPS = { results: RESULT_PANELS, setup: SETUP_PANELS };

export const HIDEABLE = [...RESULT_PANELS, ...SETUP_PANELS, ...OTHER_PARTS];

const LECTURE_HIDES = ["advice", "inspector", "links", "along", "fresh", "local", "certified", ...SETUP_PANELS];
const EMBED_HIDES = ["inspector", "links", ...RESULT_PANELS, ...SETUP_PANELS];

const PLAIN_DISPLAY = { lecture: false, embed: false, hide: null, speed: 1, theme: null, text: null };

/** The parts that are not shown: those asked for, or where none were named those that go with the way of showing. */
export function hiddenParts(display) {
  if (display.hide !== null) return display.hide;
  if (display.lecture) return LECTURE_HIDES;
  return display.embed ? EMBED_HIDES : [];
}

/** Whether a whole side is away. */
export function hiddenSides(hidden) {
  return Object.keys(GROUPS).filter((side) => GROUPS[side].every((name) => hidden.includes(name)));
}

/** How the address asks for it to be shown, and a sentence on what it asks that cannot be. */
export function readDisplay(fields) {
  const display = { ...PLAIN_DISPLAY };
  let sentence = null;
  for (const name of ["lecture", "embed"]) if (fields.has(name)) display[name] = fields.get(name) !== "0";
  if (fields.has("hide")) {
    const asked = fields.get("hide").split(",").filter((name) => name !== "" && name !== "none");
    const wrong = asked.find((name) => !HIDEABLE.includes(name) && !Object.hasOwn(GROUPS, name));
    if (wrong !== undefined)
      sentence = `nothing called "${wrong.slice(0, 20)}" can be hidden; there are ${[...Object.keys(GROUPS), ...HIDEABLE].join(", ")}`;
    const known = asked.flatMap((name) => (Object.hasOwn(GROUPS, name) ? GROUPS[name] : [name]));
    display.hide = HIDEABLE.filter((name) => known.includes(name));
  }
  if (fields.has("speed")) {
    const speed = Number(fields.get("speed"));
    if (SPEEDS.includes(speed)) display.speed = speed;
    else sentence = `speed must be one of ${SPEEDS.join(", ")}; got "${fields.get("speed").slice(0, 20)}"`;
  }
  if (fields.has("theme")) {
    const theme = fields.get("theme");
    if (theme === "dark" || theme === "light") display.theme = theme;
    else if (theme !== "auto") sentence = `theme must be dark, light or auto; got "${theme.slice(0, 20)}"`;
  }
  return { display, sentence };
}

/** The fields of the address that say how it is shown; what goes without saying is left out. */
export function displayFields(display) {
  const fields = {};
  if (display.lecture) fields.lecture = "";
  if (display.embed) fields.embed = "";
  if (display.hide !== null) {
    const sides = hiddenSides(display.hide);
    const inside = sides.flatMap((side) => GROUPS[side]);
    fields.hide = [...sides, ...display.hide.filter((name) => !inside.includes(name))].join(",") || "none";
  }
  if (display.speed !== 1) fields.speed = display.speed;
  if (display.theme !== null) fields.theme = display.theme;
  return fields;
}
