/** Footer: made soon. */

import { h } from "./dom.js";

/** @param {import("./types").App} app @returns {import("./types").View} */
export function footer(app) {
  const element = h("div", { class: "footer" });
  return {
    element,
    update() {
      element.textContent = `Footer: ${app.rows.length} of ${app.messages.length}`;
    },
  };
}
