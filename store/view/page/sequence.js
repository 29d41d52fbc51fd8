/** Sequence: made soon. */

import { h } from "./dom.js";

/** @param {import("./types").App} app @returns {import("./types").View} */
export function sequenceView(app) {
  const element = h("div", { class: "sequence" });
  return {
    element,
    update() {
      element.textContent = `Sequence: ${app.rows.length} of ${app.messages.length}`;
    },
  };
}
