/** The panels in which conditions are chosen: a channel, an agent, two agents, a time, kinds. */

import { combobox } from "./combobox.js";
import { h } from "./dom.js";
import { fold } from "./fold.js";
import { KINDS } from "./messages.js";
import { parseRange, rangeText } from "./time_range.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./combobox.js").Choice} Choice */
/** @typedef {{ element: HTMLElement, opened: () => void }} Panel */

const AROUND = 30_000_000_000n;
const MINUTE = 60_000_000_000n;

/** @param {App} app @param {() => void} done called after a choice @returns {Panel} */
export function channelPanel(app, done) {
  const field = combobox({
    label: "Channel",
    choices: () => channelChoices(app),
    choose(choice) {
      app.state.set({ channel: added(app.state.all("channel"), choice.value) });
      field.clear();
      done();
    },
  });
  return { element: field.element, opened: () => field.input.focus() };
}

/** @param {App} app @param {() => void} done @returns {Panel} */
export function agentPanel(app, done) {
  const field = combobox({
    label: "Agent, as sender or recipient",
    choices: () => agentChoices(app),
    choose(choice) {
      app.state.set({ agent: added(app.state.all("agent"), choice.value) });
      field.clear();
      done();
    },
  });
  return { element: field.element, opened: () => field.input.focus() };
}

/** @param {App} app @param {() => void} done @returns {Panel} */
export function pairPanel(app, done) {
  /** @type {(Choice | null)[]} */
  const chosen = [null, null];
  const fields = ["One agent", "The other agent"].map((label, at) =>
    combobox({
      label,
      choices: () => agentChoices(app),
      choose(choice) {
        chosen[at] = choice;
        const [one, other] = chosen;
        if (one === null || other === null) {
          fields[1 - at].input.focus();
          return;
        }
        app.state.set({ between: [one.value, other.value] });
        done();
      },
    }),
  );
  const opened = () => {
    chosen.fill(null);
    for (const field of fields) field.clear();
    fields[0].input.focus();
  };
  return { element: h("div", { class: "pair" }, fields[0].element, h("span", {}, "and"), fields[1].element), opened };
}

/** @param {App} app @param {() => void} done @returns {Panel} */
export function timePanel(app, done) {
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const input = h("input", { type: "text", "aria-label": "Time", spellcheck: false, autocomplete: "off", size: 34 });
  const near = () => (app.selected >= 0 ? app.messages.ts[app.selected] : BigInt(app.head.first_ts ?? 0));
  const apply = () => {
    const range = parseRange(input.value, near()) ?? atMark(app, input.value);
    wrong.hidden = range !== null;
    wrong.textContent = `This is no range of time, and no mark. Write it as ${example()}.`;
    if (range === null) return;
    app.state.set({ since: String(range.since ?? ""), until: String(range.until ?? "") });
    done();
  };
  const example = () => rangeText(minute(near()), minute(near()) + 1_800_000_000_000n);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    apply();
    event.preventDefault();
    event.stopPropagation();
  });
  const around = h("button", { type: "button" }, "± 30 s around the selected message");
  around.addEventListener("click", () => {
    app.state.set({ since: String(near() - AROUND), until: String(near() + AROUND + 1n) });
    done();
  });
  const before = h("button", { type: "button" }, "The minute before it");
  before.addEventListener("click", () => {
    app.state.set({ since: String(near() - MINUTE), until: String(near() + 1n) });
    done();
  });
  const element = h(
    "div",
    { class: "time-panel" },
    h("div", { class: "field" }, input, h("button", { type: "button", on: { click: apply } }, "Apply")),
    wrong,
    h("p", { class: "quiet" }, "UTC. A day, a minute, from - to, or the label of a mark; the end is not included."),
    h("div", { class: "field" }, around, before),
  );
  const opened = () => {
    input.value = rangeText(app.filter.since, app.filter.until);
    input.placeholder = example();
    around.hidden = before.hidden = app.selected < 0;
    wrong.hidden = true;
    input.focus();
  };
  return { element, opened };
}

/**
 * Return the time around the first mark of a label, `fire` or `mark:fire`; null if there is none.
 * @param {App} app @param {string} text
 */
function atMark({ head }, text) {
  const wanted = fold(text.trim().replace(/^mark:\s*/i, ""));
  const mark = head.marks.find(({ label }) => fold(label) === wanted);
  if (mark === undefined) return null;
  const ts = BigInt(mark.ts);
  return { since: ts - AROUND, until: ts + AROUND + 1n };
}

/** @param {App} app @returns {Panel} */
export function kindPanel(app) {
  const boxes = KINDS.slice(1, 5).map((kind) => {
    const box = h("input", { type: "checkbox", value: kind });
    box.addEventListener("change", () => {
      const others = app.state.all("kind").filter((other) => other !== kind);
      app.state.set({ kind: box.checked ? [...others, kind] : others });
    });
    const count = app.head.kinds[kind];
    return { box, element: h("label", {}, box, ` ${kind}`, count ? h("span", { class: "quiet" }, ` ${count} events`) : null) };
  });
  const opened = () => {
    for (const { box } of boxes) box.checked = app.state.all("kind").includes(box.value);
    boxes[0].box.focus();
  };
  return { element: h("fieldset", {}, h("legend", {}, "Kinds"), ...boxes.map(({ element }) => element)), opened };
}

/** @param {bigint} ts */
function minute(ts) {
  return ts - (ts % MINUTE);
}

/** @param {string[]} values @param {string} value */
function added(values, value) {
  return values.includes(value) ? values : [...values, value];
}

/** Return the agents, those with most messages first. @param {App} app @returns {Choice[]} */
export function agentChoices(app) {
  const { from, to, names, length } = app.messages;
  const counts = new Float64Array(names.agents.length);
  for (let row = 0; row < length; row += 1) {
    counts[from[row]] += 1;
    if (to[row] !== from[row]) counts[to[row]] += 1;
  }
  return sorted(
    names.agents.map((agent, at) => ({ value: agent.id, text: agent.text, count: app.source.complete ? counts[at] : null })),
    counts,
  );
}

/** Return the channels, those with most messages first. @param {App} app @returns {Choice[]} */
function channelChoices(app) {
  const { channel, names, length } = app.messages;
  const counts = new Float64Array(names.channels.length);
  for (let row = 0; row < length; row += 1) counts[channel[row]] += 1;
  return sorted(
    names.channels.map((text, at) => ({ value: text, text, count: app.source.complete ? counts[at] : null })),
    counts,
  );
}

/** @param {Choice[]} choices by position @param {Float64Array} counts */
function sorted(choices, counts) {
  return choices
    .map((choice, at) => ({ choice, count: counts[at], at }))
    .filter(({ at, choice }) => at > 0 && choice !== undefined)
    .sort((a, b) => b.count - a.count || a.at - b.at)
    .map(({ choice }) => choice);
}
