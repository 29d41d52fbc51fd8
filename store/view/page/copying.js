/** The clipboard. */

import { h } from "./dom.js";

/** Copy a text, and say so. @param {import("./types").App} app @param {string} text */
export async function copy(app, text) {
  try {
    await navigator.clipboard.writeText(text);
    app.say("Copied.");
  } catch {
    // without permission, as in a notebook
    const field = h("textarea", { value: text, class: "copied" });
    document.body.append(field);
    field.select();
    app.say(document.execCommand("copy") ? "Copied." : "The browser does not allow copying.");
    field.remove();
  }
}
