/** Read: made soon. */

import { h } from "./dom.js";

/** @param {import("./types").App} app @returns {import("./types").View} */
export function conversationView(app) {
  const element = h("div", { class: "conversation" });
  return {
    element,
    update() {
      element.textContent = `Read: ${app.rows.length} of ${app.messages.length}`;
    },
  };
}
