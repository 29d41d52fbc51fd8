/** The page: reads the data, makes the views, and passes changes to them once a frame. */

import { showComparison } from "./comparison.js";
import { conversationView } from "./conversation.js";
import { isLive } from "./describing.js";
import { h, visible } from "./dom.js";
import { showExperiments } from "./experiments.js";
import { CONTENT_KEYS, FILTER_KEYS, filterOf, rowsOf, rowsWithin } from "./filter.js";
import { footer } from "./footer.js";
import { matrixView } from "./matrix.js";
import { problemsView } from "./problems.js";
import { replayBar } from "./replay.js";
import { searchBar } from "./search.js";
import { sequenceView } from "./sequence.js";
import { EXAMINED, firstHead, json, ServedSource } from "./served.js";
import { filePart, fileSource, isFile } from "./source.js";
import { State } from "./state.js";
import { summary } from "./summary.js";
import { tabs } from "./tabs.js";
import { numberText } from "./time.js";
import { timeline } from "./timeline.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").Source} Source */
/** @typedef {import("./types").View} View */

/** Make the app on a source. @param {Source} source @returns {App} */
function appOn(source) {
  /** @type {Set<string>} */
  let waiting = new Set();
  /** @type {View[]} */
  let always = [];
  let frame = 0;
  let begun = false;
  const status = h("p", { class: "status", role: "status" });

  /** @param {string[]} keys */
  const changed = (...keys) => {
    for (const key of keys) waiting.add(key);
    if (frame === 0) frame = requestAnimationFrame(draw);
  };
  /** Draw at once: nothing may use rows of before the change. @param {string[]} keys */
  const drawNow = (keys) => {
    for (const key of keys) waiting.add(key);
    cancelAnimationFrame(frame);
    draw();
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
    fitting: new Int32Array(0),
    rows: new Int32Array(0),
    get selected() {
      return state.get("at") ? app.messages.row(state.get("at")) : -1;
    },
    changed,
    drawNow,
    show(row, view) {
      const values = { at: app.messages.cursor(row), ...(view ? { view } : {}) };
      state.set(values);
    },
    say(text) {
      status.textContent = text;
    },
  };

  let remembered = 0;

  /** Keep the state in the URL, without a new entry in the history; soon, because browsers refuse many changes at once. */
  function remember() {
    remembered ||= window.setTimeout(write, 200);
  }

  function write() {
    remembered = 0;
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
    const filtered = FILTER_KEYS.some((key) => keys.has(key));
    if (filtered) app.filter = filterOf(state);
    if (filtered || (keys.has("at") && !loaded())) fetchMessages();
    if (keys.has("messages") || filtered) {
      if (keys.has("messages") || CONTENT_KEYS.some((key) => keys.has(key))) {
        app.fitting = rowsOf(app.messages, app.filter, { anyTime: true });
      }
      app.rows = rowsWithin(app.messages, app.fitting, app.filter);
      keys.add("rows");
    }
    begun = true;
    for (const view of always) view.update(keys);
  }

  /** Return whether the selected message is loaded, or none is selected. */
  function loaded() {
    return source.complete || state.get("at") === "" || app.selected >= 0;
  }

  /** Load the messages that fit the filter, unless all are there. */
  function fetchMessages() {
    if (source.complete || !begun) return;
    source.select(app.filter, state.get("at")).catch((error) => app.say(String(error.message)));
  }

  const bar = searchBar(app);
  const time = timeline(app);
  const views = tabs(app, [
    ["read", "Read", conversationView(app)],
    ["sequence", "Sequence", sequenceView(app)],
    ["matrix", "Matrix", matrixView(app)],
    ["problems", "Problems", problemsView(app)],
  ]);
  always = [summary(app), bar, time, replayBar(app), views, footer(app)];
  const page = h("div", { id: "page" }, ...always.map((view) => view.element), status);
  document.getElementById("page")?.replaceWith(page);
  // The address of the event: the state may have been written to that of the page meanwhile.
  addEventListener("hashchange", (event) => state.load(new URL(event.newURL).hash));
  addEventListener("pagehide", write);
  addEventListener("resize", () => changed("size"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed("theme"));
  addEventListener("keydown", (event) => {
    if (always.some((view) => view.key?.(event))) event.preventDefault();
  });
  changed("messages", "head", "size", "theme", "view", "at", ...FILTER_KEYS);
  return app;
}

/** Show a line in place of the page. @param {string} text @param {string} [role] @param {Node[]} more */
function instead(text, role = "status", ...more) {
  const line = h("p", { class: role === "alert" ? "failed" : "loading", role }, text, ...more);
  document.getElementById("page")?.replaceChildren(line);
}

/** Return the source of a served experiment, as soon as that exists. @param {string} exp @returns {Promise<ServedSource>} */
async function served(exp) {
  const head = await headOf(exp);
  document.title = `${visible(head.name || head.exp_id)} - messager`;
  const source = new ServedSource(head, head.exp_id); // a name may become that of another experiment
  const state = new State(location.hash, () => {});
  await source.begin(filterOf(state), state.get("at"), (done, total) => {
    instead(`Loading ${numberText(done)} of ${numberText(total)} messages …`);
  });
  return source;
}

/** Return the app of the file's run; null if it has two, and both are shown side by side. */
async function ofFile() {
  const found = await filePart("comparison");
  if (found === null) return appOn(await fileSource(0));
  const run = new State(location.hash, () => {}).get("run");
  addEventListener("hashchange", () => {
    if (new State(location.hash, () => {}).get("run") !== run) location.reload();
  });
  if (run === "a" || run === "b") return appOn(await fileSource(run === "b" ? 1 : 0));
  showComparison(found, [await fileSource(0), await fileSource(1)], { run: (side) => `#run=${side}` });
  document.body.dataset.ready = "";
  return null;
}

/** Show two experiments of the server side by side. @param {string} a @param {string} b
 * @param {string[]} ignored paths that are left out */
async function compared(a, b, ignored) {
  const given = (/** @type {Record<string, string>} */ names, /** @type {string[]} */ paths) =>
    new URLSearchParams([...Object.entries(names), ...paths.map((path) => ["ignore", path])]);
  const found = await json(`/api/compare?${given({ a, b }, ignored)}`);
  const sources = /** @type {[Source, Source]} */ ([await served(a), await served(b)]);
  if (!sources.every(({ complete }) => complete)) throw new Error("too many messages to compare here: use messager report");
  document.title = `${visible(found.a)} and ${visible(found.b)} - messager`;
  showComparison(found, sources, {
    run: (side) => `/?${new URLSearchParams({ exp: found[side] })}`,
    without: (paths) => `/?${given({ exp: found.a, with: found.b }, [...ignored, ...paths])}`,
  });
  document.body.dataset.ready = "";
}

/** Return the app of what the page is to show; null if that is the list of experiments. */
async function begin() {
  if (isFile()) return ofFile();
  const asked = new URLSearchParams(location.search);
  const exp = asked.get("exp");
  const other = asked.get("with");
  if (exp !== null && other !== null) {
    await compared(exp, other, asked.getAll("ignore"));
    return null;
  }
  if (exp === null) {
    await showExperiments();
    return null;
  }
  const source = await served(exp);
  const app = appOn(source);
  source.onchange = app.drawNow;
  source.onfailure = (error) => app.say(error.message);
  if (source.head.status === "open") source.follow();
  if (!isLive(source.head) && source.head.events <= EXAMINED) source.examine().catch((error) => app.say(String(error.message)));
  return app;
}

try {
  const app = await begin();
  if (app !== null) {
    requestAnimationFrame(() => {
      document.body.dataset.ready = "";
      app.messages.prepare(() => new Promise((done) => setTimeout(done)));
    });
  }
} catch (error) {
  instead(error instanceof Error ? error.message : String(error), "alert");
  document.body.dataset.ready = "failed";
  throw error;
}

/** Return the head of an experiment, when it exists. @param {string} exp */
async function headOf(exp) {
  return (
    (await firstHead(exp)) ??
    new Promise((done) => {
      const all = h("a", { href: "?" }, "All experiments");
      instead(`Waiting for ${visible(exp)}, which does not exist yet … `, "status", all);
      const stream = new EventSource(`/api/run/${encodeURIComponent(exp)}/follow`);
      stream.addEventListener("found", async () => {
        stream.close();
        done(await firstHead(exp));
      });
    })
  );
}
