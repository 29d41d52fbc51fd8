/** The names above the lanes of the sequence. A click filters by the agent. */

import { colourOf, isDark } from "./colours.js";
import { h, shortId, visible } from "./dom.js";

/** @typedef {import("./lanes.js").Lanes} Lanes */
/** @typedef {import("./types").App} App */

/** @param {App} app */
export function laneNames(app) {
  const names = h("div", {});
  const element = h("div", { class: "sequence-lanes", role: "group", "aria-label": "lanes" }, names);

  let before = "";

  /** @param {Lanes} lanes @param {number} width of a lane */
  function update(lanes, width) {
    const now = JSON.stringify([lanes.list, width, app.state.all("agent"), isDark()]);
    if (now === before) return;
    before = now;
    const focused = names.contains(document.activeElement) ? [...names.children].indexOf(/** @type {Element} */ (document.activeElement)) : -1;
    const chosen = app.state.all("agent");
    names.replaceChildren(
      ...lanes.list.map(({ key, text, title }, at) => {
        const name = key > 0 ? button(key, text, chosen) : h("span", { title: shortId(title) }, visible(text));
        name.style.left = `${Math.round(at * width) + 2}px`;
        name.style.width = `${Math.round(width) - 4}px`;
        return name;
      }),
    );
    names.style.width = `${Math.round(lanes.list.length * width)}px`;
    if (focused >= 0) /** @type {HTMLElement | undefined} */ (names.children[focused])?.focus({ preventScroll: true });
  }

  /** @param {number} key @param {string} text @param {string[]} chosen */
  function button(key, text, chosen) {
    const { id } = app.messages.names.agents[key];
    const on = chosen.includes(id);
    const click = () => app.state.set({ agent: on ? chosen.filter((one) => one !== id) : [id] });
    const title = `${shortId(text)}: click to show ${on ? "all again" : "only its messages"}`;
    const name = h("button", { type: "button", title, "aria-pressed": String(on), on: { click } }, visible(text));
    name.style.color = colourOf(key);
    return name;
  }

  return {
    element,
    update,
    /** @param {number} left @param {number} gutter */
    scroll(left, gutter) {
      names.style.left = `${gutter - left}px`;
      names.style.clipPath = left > 0 ? `inset(0 0 0 ${left}px)` : "none";
    },
  };
}
