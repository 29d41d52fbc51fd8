/** Timeline: made soon. */

import { h } from "./dom.js";

/** @param {import("./types").App} app @returns {import("./types").View} */
export function timeline(app) {
  const element = h("div", { class: "timeline" });
  return {
    element,
    update() {
      element.textContent = `Timeline: ${app.rows.length} of ${app.messages.length}`;
    },
  };
}
