/** Summary: made soon. */

import { h } from "./dom.js";

/** @param {import("./types").App} app @returns {import("./types").View} */
export function summary(app) {
  const element = h("div", { class: "summary" });
  return {
    element,
    update() {
      element.textContent = `Summary: ${app.rows.length} of ${app.messages.length}`;
    },
  };
}
