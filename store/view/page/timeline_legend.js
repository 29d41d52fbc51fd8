/** The legend of the timeline: by whom the messages are told apart, and a button for each name, which filters. */

import { colourOf } from "./colours.js";
import { h, label, shortId, visible } from "./dom.js";
import { arrowKeys } from "./timeline_strip.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./timeline_bars.js").Bars} Bars */
/** @typedef {import("./timeline_bars.js").By} By */

/** Agents up to this number are told apart; else channels. */
const MOST_AGENTS = 30;

/** Return by what messages are told apart. @param {App} app @returns {By} */
export function byOf(app) {
  const by = app.state.get("by");
  if (by === "from" || by === "channel") return by;
  const agents = app.source.complete ? app.messages.names.agents.length - 1 : app.head.agents;
  return agents <= MOST_AGENTS ? "from" : "channel";
}

/** @param {App} app */
export function legend(app) {
  const by = h(
    "select",
    { "aria-label": "colours by", on: { change: () => app.state.set({ by: by.value }) } },
    h("option", { value: "from" }, "by sender"),
    h("option", { value: "channel" }, "by channel"),
  );
  const entries = h("div", { class: "timeline-entries", role: "toolbar", "aria-label": "legend; a button shows only its messages" });
  arrowKeys(entries);
  const element = h("div", { class: "timeline-legend" }, by, entries);
  let shown = "";

  return {
    element,
    /** @param {Bars} bars @param {boolean} theme the colours changed */
    draw(bars, theme) {
      const now = byOf(app);
      by.value = now;
      const key = now === "from" ? "agent" : "channel";
      const chosen = app.state.all(key);
      const content = JSON.stringify([now, chosen, bars.series.map(({ at, label: name }) => [at, name])]);
      if (content === shown && !theme) return;
      shown = content;
      const focused = [...entries.children].indexOf(/** @type {Element} */ (document.activeElement));
      entries.replaceChildren(
        ...bars.series.map(({ at, label: name }) => {
          const swatch = h("span", { class: "swatch" });
          swatch.style.background = colourOf(at);
          const id = at <= 0 ? "" : now === "from" ? app.messages.names.agents[at]?.id : app.messages.names.channels[at];
          if (!id) return h("span", { class: "timeline-entry quiet" }, swatch, visible(name));
          const button = h("button", { type: "button", class: "timeline-entry", tabIndex: -1, title: `Show only ${shortId(name)}` }, swatch, label(name));
          button.setAttribute("aria-pressed", String(chosen.includes(id)));
          button.addEventListener("click", () =>
            app.state.set({ [key]: chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id] }),
          );
          return button;
        }),
      );
      const buttons = entries.querySelectorAll("button");
      const place = /** @type {HTMLElement | undefined} */ (entries.children[focused]);
      if (place instanceof HTMLButtonElement) {
        place.tabIndex = 0;
        place.focus({ preventScroll: true });
      } else if (buttons[0]) buttons[0].tabIndex = 0;
    },
  };
}
