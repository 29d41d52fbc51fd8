/** Problems: made soon. */

import { h } from "./dom.js";

/** @param {import("./types").App} app @returns {import("./types").View} */
export function problemsView(app) {
  const element = h("div", { class: "problems" });
  return {
    element,
    update() {
      element.textContent = `Problems: ${app.rows.length} of ${app.messages.length}`;
    },
  };
}
