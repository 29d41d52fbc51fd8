/** Keys of the page, and the dialog that lists them. */

import { h } from "./dom.js";

const KEYS = [
  ["/", "search"],
  ["Enter, Shift+Enter", "in the search: next and previous hit"],
  ["n, N", "next and previous hit, or message that fits"],
  ["j, k, ↓, ↑", "next and previous message"],
  ["Enter", "details of the message"],
  ["Escape", "close the details; in the search: clear it"],
  ["g, G, Home, End", "first and last message"],
  ["b, B", "in the sequence: what was known a step before, and back"],
  ["1 to 4", "views"],
  ["Space", "play and pause"],
  [", .", "stop at the previous and the next message"],
  ["← → + - Home End", "on the timeline: move and zoom"],
  ["[ ]", "on the timeline: begin and end of the range at the selected message; Escape clears it"],
  ["Delete", "on a condition: remove it"],
  ["?", "this list"],
];

/** Return whether a key is for the page, and not for a field, a dialog or the browser. @param {KeyboardEvent} event */
export function isForPage(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return false;
  return !(event.target instanceof Element) || event.target.closest("input, select, textarea, dialog") === null;
}

/** Return the dialog of all keys. */
export function keysDialog() {
  const rows = KEYS.map(([keys, text]) => h("tr", {}, h("th", { scope: "row" }, keys), h("td", {}, text)));
  const close = h("button", { type: "button" }, "Close");
  const dialog = h("dialog", { class: "keys", "aria-label": "keys" }, h("h2", {}, "Keys"), h("table", {}, h("tbody", {}, rows)), close);
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("keydown", (event) => event.stopPropagation());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  return dialog;
}
