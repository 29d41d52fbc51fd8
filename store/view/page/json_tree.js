/** JSON as a tree, of which parts are made when they are unfolded. */

import { h, visible } from "./dom.js";
import { blank, isJson, members } from "./json_text.js";
import { numberText } from "./time.js";

/** Members that are shown at first, and by each "more". */
const MEMBERS = 100;
/** Characters of a string that are shown at first. */
const STRING = 2000;
/** Characters of a folded value that are shown. */
const PREVIEW = 80;
/** Characters of an object or list that is unfolded from the begin. */
const SMALL = 1500;
/** Levels that are unfolded from the begin. */
const LEVELS = 3;

/**
 * Return the tree of a text.
 * @param {string} text for which `isJson` holds
 */
export function jsonTree(text) {
  return h("div", { class: "json" }, container(text, blank(text, 0), text.trimEnd().length, null, 0));
}

/** @param {string} text @param {number} from @param {number} until @param {string | null} key @param {number} level */
function container(text, from, until, key, level) {
  const content = h("div", { class: "json-members" });
  const preview = text.slice(from, Math.min(until, from + PREVIEW)) + (until - from > PREVIEW ? "…" : "");
  const element = h(
    "details",
    { open: level === 0 || (level < LEVELS && until - from < SMALL) },
    h("summary", {}, keyLabel(key), h("bdi", { class: "json-preview" }, visible(preview))),
    content,
  );
  const rest = members(text, from);
  const unfold = () => {
    if (element.open && content.childElementCount === 0) more(content, text, rest, level);
  };
  element.addEventListener("toggle", unfold);
  unfold();
  return element;
}

/**
 * Add the next members.
 * @param {HTMLElement} content @param {string} text @param {Generator<import("./json_text.js").Member>} rest
 * @param {number} level
 */
function more(content, text, rest, level) {
  let shown = 0;
  for (let next = rest.next(); ; next = rest.next()) {
    if (next.done) {
      if (content.childElementCount === 0) content.append(h("span", { class: "quiet" }, "empty"));
      return;
    }
    const { key, from, until } = next.value;
    const isContainer = text[from] === "{" || text[from] === "[";
    content.append(isContainer ? container(text, from, until, key, level + 1) : leaf(text.slice(from, until), key));
    shown += 1;
    if (shown === MEMBERS) break;
  }
  const button = h("button", { type: "button", class: "more" }, "more");
  button.addEventListener("click", () => {
    button.remove();
    more(content, text, rest, level);
  });
  content.append(button);
}

/** @param {string} token @param {string | null} key */
function leaf(token, key) {
  if (token[0] !== '"') return h("div", { class: "json-leaf" }, keyLabel(key), h("span", { class: "json-plain" }, token));
  const value = /** @type {string} */ (JSON.parse(token));
  const text = h("bdi", { class: "json-string", dir: "auto" }, value.slice(0, STRING));
  const element = h("div", { class: "json-leaf" }, keyLabel(key), text);
  if (value.length > STRING) {
    const button = h("button", { type: "button", class: "more" }, `more (${numberText(value.length - STRING)} characters)`);
    button.addEventListener("click", () => {
      text.textContent = value;
      button.remove();
    });
    element.append(button);
  }
  if (isJson(value)) {
    const button = h("button", { type: "button", class: "more" }, "unfold the JSON in this string");
    button.addEventListener("click", () => {
      text.replaceWith(jsonTree(value));
      button.remove();
    });
    element.append(button);
  }
  return element;
}

/** @param {string | null} key */
function keyLabel(key) {
  return key === null ? null : h("bdi", { class: "json-key" }, visible(JSON.parse(key)), ": ");
}
