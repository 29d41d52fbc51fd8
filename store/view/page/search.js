/** Search: the text that is searched, and the conditions on what is shown. */

import { conditionsOf, isFiltered, NO_CONDITIONS } from "./conditions.js";
import { h, shortId, visible } from "./dom.js";
import { fold } from "./fold.js";
import { isForPage, keysDialog } from "./keys.js";
import { agentPanel, channelPanel, kindPanel, pairPanel, timePanel } from "./pickers.js";
import { positionOf } from "./rows.js";
import { numberText, plural } from "./time.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").View} View */
/** @typedef {import("./pickers.js").Panel} Panel */

/** Names that are suggested for a searched text. */
const SUGGESTED = 4;

/** @param {App} app @returns {View} */
export function searchBar(app) {
  const input = h("input", {
    type: "search",
    "aria-label": "search the messages",
    placeholder: "Search ( / )",
    dir: "auto",
    autocomplete: "off",
    spellcheck: false,
    on: { input: () => app.state.set({ q: input.value }), keydown: typed },
  });
  const count = h("output", { class: "count", role: "status" });
  const previous = h("button", { type: "button", title: "previous (N)", "aria-label": "previous", on: { click: () => hit(-1) } }, "↑");
  const next = h("button", { type: "button", title: "next (n)", "aria-label": "next", on: { click: () => hit(1) } }, "↓");
  const dialog = keysDialog();
  const help = h("button", { type: "button", title: "keys (?)", "aria-label": "keys", on: { click: () => dialog.showModal() } }, "?");
  const chips = h("ul", { class: "chips", "aria-label": "conditions" });
  const all = h("button", { type: "button", class: "mode", on: { click: clear } }, "All");
  const panels = chooserOf(app);
  const modes = h("div", { class: "modes", role: "group", "aria-label": "messages to show" }, all, ...panels.buttons);
  const element = h(
    "search",
    { class: "search", role: "search" },
    h("div", { class: "search-line" }, input, count, previous, next, modes, help),
    panels.element,
    chips,
    dialog,
  );

  function clear() {
    app.state.set(NO_CONDITIONS);
  }

  /** Show the next message that fits, or the previous one. @param {number} step */
  function hit(step) {
    const { rows, selected } = app;
    if (rows.length === 0) return;
    const at = positionOf(rows, selected);
    const isHit = selected >= 0 && rows[at] === selected;
    const wanted = step > 0 ? (isHit ? at + 1 : at) : at - 1;
    const chosen = (wanted + rows.length) % rows.length;
    app.show(rows[chosen], "read");
    app.say(`${numberText(chosen + 1)} of ${numberText(rows.length)}: ${app.messages.text(rows[chosen]).slice(0, 300)}`);
  }

  /** @param {KeyboardEvent} event */
  function typed(event) {
    if (event.isComposing) return;
    if (event.key === "Enter") hit(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape" && app.state.get("q")) app.state.set({ q: "" });
    else if (event.key === "Escape") input.blur();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function countText() {
    const { rows, messages, source } = app;
    if (!source.complete) {
      if (source.loading) return "Loading …";
      if (source.total !== null && source.total <= rows.length) return rows.length === 0 ? "No message fits" : plural(rows.length, "message");
      if (isFiltered(app.state)) return `At least ${plural(rows.length, "message")}`;
      return source.total === null ? `${plural(rows.length, "message")} loaded` : `${numberText(rows.length)} loaded of ${plural(source.total, "message")}`;
    }
    if (!isFiltered(app.state)) return plural(messages.length, "message");
    return rows.length === 0 ? "No message fits" : `${numberText(rows.length)} of ${plural(messages.length, "message")}`;
  }

  /** Return buttons of agents and channels that have the searched text in their names. */
  function suggestions() {
    const wanted = fold(app.filter.q.trim());
    if (wanted === "") return [];
    const { agents, channels } = app.messages.names;
    const has = (/** @type {string} */ text) => text !== undefined && fold(text).includes(wanted);
    const found = [
      ...agents.filter((agent) => agent && has(agent.text)).slice(0, SUGGESTED).map(({ text, id }) => ({ what: "agent", text, value: id })),
      ...channels.filter(has).slice(0, SUGGESTED).map((text) => ({ what: "channel", text, value: text })),
    ];
    return found.slice(0, SUGGESTED).map(({ what, text, value }) => {
      const choose = () => app.state.set({ q: "", [what]: [...app.state.all(what).filter((other) => other !== value), value] });
      const button = h("button", { type: "button", class: "suggestion", on: { click: choose } }, `${what} `, h("bdi", {}, visible(text)));
      return h("li", {}, button);
    });
  }

  function drawChips() {
    const conditions = conditionsOf(app);
    const focused = [...chips.querySelectorAll(".chip")].indexOf(/** @type {Element} */ (document.activeElement));
    const buttons = conditions.map(({ what, name, without }) => {
      const remove = () => app.state.set(without);
      const keys = (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Delete" || event.key === "Backspace") remove();
      };
      const text = `${what}: ${shortId(name)}`;
      return h(
        "button",
        { type: "button", class: "chip", "aria-label": `remove ${text}`, title: `remove ${text}`, on: { click: remove, keydown: keys } },
        h("span", { class: "quiet" }, `${what} `),
        h("bdi", {}, visible(name)),
        h("span", { class: "cross", "aria-hidden": "true" }, "×"),
      );
    });
    const items = buttons.map((button) => h("li", {}, button));
    if (conditions.length) items.push(h("li", {}, h("button", { type: "button", class: "clear", on: { click: clear } }, "Clear all")));
    const suggested = suggestions();
    chips.replaceChildren(...items, ...suggested);
    chips.hidden = items.length + suggested.length === 0;
    if (focused >= 0) (buttons[Math.min(focused, buttons.length - 1)] ?? input).focus();
  }

  let drawn = "";
  return {
    element,
    update(changed) {
      const q = app.state.get("q");
      if (input.value !== q) input.value = q;
      if (!changed.has("rows") && !changed.has("messages") && !changed.has("head") && !changed.has("live")) return;
      count.textContent = countText();
      const none = app.rows.length === 0;
      previous.disabled = none;
      next.disabled = none;
      all.setAttribute("aria-pressed", String(!isFiltered(app.state)));
      panels.update();
      const now = JSON.stringify([app.state.fragment(), app.messages.names.agents.length, app.messages.names.channels.length]);
      if (now !== drawn) drawChips();
      drawn = now;
    },
    key(event) {
      if (!isForPage(event)) return false;
      if (event.key === "/") {
        input.focus();
        input.select();
      } else if (event.key === "?") dialog.showModal();
      else if (event.key === "n") hit(1);
      else if (event.key === "N") hit(-1);
      else return false;
      return true;
    },
  };
}

/** Return the buttons that open panels in which conditions are chosen. @param {App} app */
function chooserOf(app) {
  let open = -1;
  const place = h("div", { class: "panel-place", hidden: true, id: "conditions-panel" });
  const done = () => toggle(open);
  /** @type {[string, string[], Panel][]} */
  const choosers = [
    ["Channel", ["channel"], channelPanel(app, done)],
    ["Agent", ["agent"], agentPanel(app, done)],
    ["Two agents", ["between"], pairPanel(app, done)],
    ["Around a moment", ["since", "until"], timePanel(app, done)],
    ["Kind", ["kind"], kindPanel(app)],
  ];
  const buttons = choosers.map(([name], at) =>
    h(
      "button",
      { type: "button", class: "mode", "aria-expanded": "false", "aria-controls": "conditions-panel", on: { click: () => toggle(at) } },
      `${name} `,
      h("span", { class: "mode-arrow", "aria-hidden": "true" }, "▾"),
    ),
  );

  /** @param {number} at */
  function toggle(at) {
    const before = open;
    open = open === at ? -1 : at;
    buttons.forEach((button, each) => button.setAttribute("aria-expanded", String(each === open)));
    place.hidden = open < 0;
    if (open >= 0) {
      place.replaceChildren(choosers[open][2].element);
      choosers[open][2].opened();
    } else buttons[before]?.focus();
  }

  place.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    toggle(open);
    event.stopPropagation();
  });
  document.addEventListener("pointerdown", (event) => {
    const target = /** @type {Node} */ (event.target);
    if (open >= 0 && !place.contains(target) && !buttons.some((button) => button.contains(target))) toggle(open);
  });

  return {
    element: place,
    buttons,
    update() {
      choosers.forEach(([, keys], at) => {
        const chosen = keys.some((key) => app.state.get(key) || app.state.all(key).length > 0);
        buttons[at].dataset.chosen = String(chosen);
      });
    },
  };
}
