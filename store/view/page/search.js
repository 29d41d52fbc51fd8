/** Search: made soon. */

import { h } from "./dom.js";

/** @param {import("./types").App} app @returns {import("./types").View} */
export function searchBar(app) {
  const element = h("div", { class: "search" });
  return {
    element,
    update() {
      element.textContent = `Search: ${app.rows.length} of ${app.messages.length}`;
    },
  };
}
