import { LIMITS } from "./limits.js";
import { checkedState } from "./schema.js";

const SHARE_KEY = "s=";

function toBase64Url(text) {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64Url(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(binary, (letter) => letter.charCodeAt(0)));
}

/** The state as the text behind `#` in the address. */
export function encodeState(state) {
  return SHARE_KEY + toBase64Url(JSON.stringify(state));
}

/**
 * Read what `encodeState` wrote, with or without `#`.
 * @returns {{ state: object|null, sentence: string|null }}
 */
function decodeState(text) {
  const code = String(text).replace(/^#/, "");
  if (!code.startsWith(SHARE_KEY))
    return { state: null, sentence: `the address holds no state: it must begin with #${SHARE_KEY}` };
  if (code.length > LIMITS.text)
    return { state: null, sentence: `the state in the address is longer than ${LIMITS.text} letters` };
  let value;
  try {
    value = JSON.parse(fromBase64Url(code.slice(SHARE_KEY.length)));
  } catch {
    return {
      state: null,
      sentence: "the state in the address is damaged and cannot be read; the link may have been cut off",
    };
  }
  return checkedState(value);
}

/** A state given as an object, as JSON, or as the text behind `#`. */
export function stateFrom(value) {
  if (typeof value !== "string") return checkedState(value);
  if (!value.trimStart().startsWith("{")) return decodeState(value);
  try {
    return checkedState(JSON.parse(value));
  } catch {
    return { state: null, sentence: "the state is not valid JSON" };
  }
}
