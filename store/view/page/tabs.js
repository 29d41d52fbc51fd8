/** The views as tabs: one is shown, and only that one is updated. */

import { h } from "./dom.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").View} View */

/**
 * @param {App} app
 * @param {[string, string, View][]} views key in the state, title, view; the first one is shown by default
 * @returns {View}
 */
export function tabs(app, views) {
  const buttons = views.map(([key, title]) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${key}`,
        "aria-controls": `view-${key}`,
        on: { click: () => app.state.set({ view: key }) },
      },
      title,
    ),
  );
  const panels = views.map(([key, , view]) =>
    h("section", { role: "tabpanel", id: `view-${key}`, "aria-labelledby": `tab-${key}`, class: "panel" }, view.element),
  );
  const list = h("div", { role: "tablist", "aria-label": "views", class: "tabs" }, buttons);
  /** @type {Set<string>[]} Changes that a hidden view has not seen. */
  const unseen = views.map(() => new Set(["messages", "rows", "head", "size", "theme", "view", "at"]));
  const shown = () => Math.max(views.findIndex(([key]) => key === app.state.get("view")), 0);

  list.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const next = (shown() + step + views.length) % views.length;
    app.state.set({ view: views[next][0] });
    buttons[next].focus();
    event.preventDefault();
    event.stopPropagation();
  });

  return {
    element: h("main", { class: "views" }, list, panels),
    update(changed) {
      for (const keys of unseen) for (const key of changed) keys.add(key);
      const now = shown();
      buttons.forEach((_, at) => {
        buttons[at].setAttribute("aria-selected", String(at === now));
        buttons[at].tabIndex = at === now ? 0 : -1;
        panels[at].hidden = at !== now;
      });
      const keys = unseen[now];
      if (keys.size === 0) return;
      unseen[now] = new Set();
      views[now][2].update(keys);
    },
    key(event) {
      const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return false;
      const number = Number(event.key);
      if (number >= 1 && number <= views.length) {
        app.state.set({ view: views[number - 1][0] });
        return true;
      }
      return views[shown()][2].key?.(event) ?? false;
    },
  };
}
