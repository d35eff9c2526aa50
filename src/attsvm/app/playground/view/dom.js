const SVG_SPACE = "http://www.w3.org/2000/svg";

/** Set attributes that changed; null takes one away. Functions are event listeners (`onclick`). */
export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else {
      const text = value === true ? "" : String(value);
      if (element.getAttribute(name) !== text) element.setAttribute(name, text);
    }
  }
  return element;
}

/** An HTML element. */
export function node(tag, attributes = {}, ...children) {
  const element = setAttributes(document.createElement(tag), attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An SVG element. */
export function shape(tag, attributes = {}, ...children) {
  const element = setAttributes(document.createElementNS(SVG_SPACE, tag), attributes);
  element.append(...children.flat());
  return element;
}

/** Write text only where it differs, so that screen readers and selections are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Make the children of `parent` follow `items`: same key, same element, so that focus and pointer capture survive.
 * @param {(item: any) => string} keyOf
 * @param {(item: any) => Element} create
 * @param {(element: Element, item: any) => void} update
 */
export function syncChildren(parent, items, keyOf, create, update) {
  const known = parent.keyedChildren ?? new Map();
  const next = new Map();
  let before = null;
  for (const item of items) {
    const key = keyOf(item);
    const element = known.get(key) ?? create(item);
    next.set(key, element);
    known.delete(key);
    const place = before === null ? parent.firstChild : before.nextSibling;
    if (element !== place) parent.insertBefore(element, place);
    update(element, item);
    before = element;
  }
  for (const element of known.values()) element.remove();
  parent.keyedChildren = next;
}
