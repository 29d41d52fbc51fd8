/** Elements of the page. Text is set as text, never as HTML. */

/**
 * Make an element.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [properties] `class`, `on` (listeners by event), `data` (dataset), attributes with a
 *   hyphen or `role`, and properties of the element; null and undefined are left out
 * @param {...(Node | string | null | undefined | (Node | string)[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name === "class") element.className = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "role" || name.includes("-")) element.setAttribute(name, String(value));
    else /** @type {any} */ (element)[name] = value;
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

/** Return text with invisible characters shown as escapes: for names, and for canvas. @param {string} text */
export function visible(text) {
  return text.replace(INVISIBLE, (found) => {
    const code = /** @type {number} */ (found.codePointAt(0));
    return code < 0x20 ? String.fromCodePoint(0x2400 + code) : `\\u${code > 0xffff ? `{${code.toString(16)}}` : code.toString(16).padStart(4, "0")}`;
  });
}

const INVISIBLE =
  /[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\u3164\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** Characters of an id in the title of an element. */
const LONGEST = 200;

/** Return an id that may be long, and anything, for the title of an element. @param {string} id */
export function shortId(id) {
  return visible(id.length > LONGEST ? `${id.slice(0, LONGEST)}…` : id);
}

/** An agent's name as an element that keeps its direction to itself. @param {string} text @param {string} [name] */
export function label(text, name = "") {
  return h("bdi", { class: name || null }, visible(text));
}
