/** Matrix: made soon. */

import { h } from "./dom.js";

/** @param {import("./types").App} app @returns {import("./types").View} */
export function matrixView(app) {
  const element = h("div", { class: "matrix" });
  return {
    element,
    update() {
      element.textContent = `Matrix: ${app.rows.length} of ${app.messages.length}`;
    },
  };
}
