/** The page: reads the data, makes the views, and passes changes to them once a frame. */

import { conversationView } from "./conversation.js";
import { h } from "./dom.js";
import { FILTER_KEYS, filterOf, rowsOf } from "./filter.js";
import { footer } from "./footer.js";
import { matrixView } from "./matrix.js";
import { problemsView } from "./problems.js";
import { searchBar } from "./search.js";
import { sequenceView } from "./sequence.js";
import { fileSource, isFile } from "./source.js";
import { State } from "./state.js";
import { summary } from "./summary.js";
import { tabs } from "./tabs.js";
import { timeline } from "./timeline.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").Source} Source */
/** @typedef {import("./types").View} View */

/** Make the app on a source. @param {Source} source @returns {App} */
export function appOn(source) {
  /** @type {Set<string>} */
  let waiting = new Set();
  /** @type {View[]} */
  let always = [];
  let frame = 0;
  const status = h("p", { class: "status", role: "status" });

  /** @param {string[]} keys */
  const changed = (...keys) => {
    for (const key of keys) waiting.add(key);
    if (frame === 0) frame = requestAnimationFrame(draw);
  };
  const state = new State(location.hash, (keys) => {
    changed(...keys);
    remember();
  });
  /** @type {App} */
  const app = {
    head: source.head,
    messages: source.messages,
    state,
    source,
    filter: filterOf(state),
    rows: new Int32Array(0),
    selected: -1,
    changed,
    show(row, view) {
      const values = { at: app.messages.cursor(row), ...(view ? { view } : {}) };
      state.set(values);
    },
    say(text) {
      status.textContent = text;
    },
  };

  /** Keep the state in the URL, without a new entry in the history. */
  function remember() {
    try {
      history.replaceState(null, "", `#${state.fragment()}`);
    } catch {
      // in a frame without an origin, as in a notebook
    }
  }

  function draw() {
    frame = 0;
    const keys = waiting;
    waiting = new Set();
    if (keys.has("messages") || FILTER_KEYS.some((key) => keys.has(key))) {
      app.filter = filterOf(state);
      app.rows = rowsOf(app.messages, app.filter);
      keys.add("rows");
    }
    if (keys.has("messages") || keys.has("at")) app.selected = state.get("at") ? app.messages.row(state.get("at")) : -1;
    for (const view of always) view.update(keys);
  }

  const bar = searchBar(app);
  const time = timeline(app);
  const views = tabs(app, [
    ["read", "Read", conversationView(app)],
    ["sequence", "Sequence", sequenceView(app)],
    ["matrix", "Matrix", matrixView(app)],
    ["problems", "Problems", problemsView(app)],
  ]);
  always = [summary(app), bar, time, views, footer(app)];
  const page = h("div", { id: "page" }, ...always.map((view) => view.element), status);
  document.getElementById("page")?.replaceWith(page);
  addEventListener("hashchange", () => state.load(location.hash));
  addEventListener("resize", () => changed("size"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed("theme"));
  addEventListener("keydown", (event) => {
    if (always.some((view) => view.key?.(event))) event.preventDefault();
  });
  changed("messages", "head", "size", "theme", "view", "at", ...FILTER_KEYS);
  return app;
}

/** Show what is wrong in place of the page. @param {unknown} error */
function fail(error) {
  const text = error instanceof Error ? error.message : String(error);
  document.getElementById("page")?.replaceChildren(h("p", { class: "failed", role: "alert" }, text));
  document.body.dataset.ready = "failed";
}

try {
  if (!isFile()) throw new Error("this page has no data");
  const source = await fileSource(0);
  const app = appOn(source);
  requestAnimationFrame(() => {
    document.body.dataset.ready = "";
    app.messages.prepare(() => new Promise((done) => setTimeout(done)));
  });
} catch (error) {
  fail(error);
  throw error;
}
