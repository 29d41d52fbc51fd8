/** The panel beside the sequence: what the sender of a message knew, and who told whom about a word, as lists. */

import { colourOf } from "./colours.js";
import { combobox } from "./combobox.js";
import { h, label, visible } from "./dom.js";
import { DEEPEST } from "./highlight.js";
import { KINDS } from "./messages.js";
import { agentChoices } from "./pickers.js";
import { durationText, plural, timeText } from "./time.js";

/** @typedef {import("./highlight.js").Highlight} Highlight */
/** @typedef {import("./knowledge.js").Heard} Heard */
/** @typedef {import("./types").App} App */

/**
 * What the panel tells about.
 * @typedef {object} Subject
 * @property {Highlight} highlight
 * @property {import("./receivers.js").Receivers} receivers
 * @property {import("./losses.js").Losses} losses
 * @property {import("./scene.js").Texts} texts
 * @property {(lane: number) => string} name
 * @property {number} digits of times, after the second
 */

/** Characters of a text in the panel. */
const LONGEST = 600;
/** Messages of a list. */
const LISTED = 100;

/** @param {App} app */
export function sequencePanel(app) {
  const agent = combobox({
    label: "Agent",
    choices: () => agentChoices(app),
    choose: ({ value }) => app.state.set({ who: value }),
  });
  const about = h("span", {});
  const asking = h("section", { class: "sequence-ask", "aria-label": "who told whom" }, "Who told", agent.element, about);
  const first = h("div", {});
  const told = h("div", {});
  const selected = h("div", {});
  const element = h("section", { class: "sequence-panel", "aria-label": "what was known" }, asking, first, told, selected);

  /** @param {Subject} subject */
  function update(subject) {
    const word = app.state.get("q");
    const { chain } = subject.highlight;
    element.hidden = word === "" && app.selected < 0;
    if (element.hidden) return;
    asking.hidden = word === "";
    about.textContent = `about “${visible(word)}”?`;
    if (document.activeElement !== agent.input) agent.input.value = proposed();
    first.replaceChildren(...(chain !== null || word === "" || app.rows.length === 0 ? [] : firstOf(subject, app.rows[0])));
    told.replaceChildren(...(chain === null || word === "" ? [] : chainOf(subject, chain, word)));
    selected.replaceChildren(...(app.selected < 0 ? [] : messageOf(subject, app.selected)));
  }

  /** @param {Subject} subject @param {number} row */
  function firstOf(subject, row) {
    return [h("h3", {}, "First mention"), said(subject, row)];
  }

  /** Return the agent to ask about: the one of the trace, else of the filter, else of the selected message. */
  function proposed() {
    const { names, agentAt, from } = app.messages;
    const ids = [app.state.get("who"), ...app.state.all("agent")].filter((id) => agentAt.has(id));
    const at = ids.length ? agentAt.get(ids[0]) : app.selected < 0 ? 0 : from[app.selected];
    return at ? names.agents[at].text : "";
  }

  /** @param {Subject} subject @param {import("./knowledge.js").Chain} chain @param {string} word */
  function chainOf(subject, { steps, origin, first }, word) {
    const quoted = `“${visible(word)}”`;
    const end =
      first >= 0
        ? [named(subject, origin), ` said ${quoted} first: nobody is known to have told it before.`]
        : [named(subject, origin), ` did not say ${quoted}, and nobody is known to have said it to it.`];
    const lines = steps.map(({ row, lane, known, reception }, at) => {
      const how =
        known === "heard"
          ? "heard before it spoke of it"
          : known === "received"
            ? "received"
            : "sent before it, not known to be heard";
      const delay = reception ? `, after ${durationText(reception.delay)}` : "";
      const told = [named(subject, subject.receivers.sender(row)), " told ", named(subject, lane)];
      return said(subject, row, { tag: String(at + 1), head: told, note: `${how}${delay}` });
    });
    if (first >= 0 && steps.at(-1)?.row !== first) {
      lines.push(said(subject, first, { tag: "★", note: "the first mention" }));
    }
    return [
      h("h3", {}, "Who told whom about ", quoted, ", back to the first mention"),
      h("ol", {}, lines.map((line) => h("li", {}, line))),
      h("p", {}, end),
      h(
        "div",
        { class: "sequence-actions" },
        toggle("Only these", "only"),
        h("button", { type: "button", on: { click: () => app.state.set({ who: "", only: "" }) } }, "End the trace"),
      ),
    ];
  }

  /** A button that sets a key of the state. @param {string} text @param {string} key */
  function toggle(text, key) {
    const on = app.state.get(key) === "1";
    const click = () => app.state.set({ [key]: on ? "" : "1" });
    return h("button", { type: "button", "aria-pressed": String(on), on: { click } }, text);
  }

  /** The selected message. @param {Subject} subject @param {number} row */
  function messageOf(subject, row) {
    const { receivers, losses } = subject;
    const { messages } = app;
    const text = messages.text(row);
    const to = messages.to[row];
    const kind = KINDS[messages.kind[row]];
    const lanes = receivers.lanes(row);
    const received = messages.receptions(row).map((reception, at) => {
      const after = reception.delay < 0 ? " before it was sent: clocks differ" : "";
      return h("li", {}, named(subject, lanes[at]), ` after ${durationText(reception.delay)}${after}`);
    });
    const lost = received.length === 0 && kind === "sent" && to > 0 ? losses.kind(row) : "";
    const problems = losses.problems(row).map((one) => h("p", { class: "sequence-bad" }, `${one.kind}: ${visible(one.text)}`));
    return [
      h(
        "h3",
        { class: "sequence-head" },
        named(subject, receivers.sender(row)),
        " → ",
        to > 0 ? named(subject, to) : label(messages.names.channels[messages.channel[row]] || "nobody in particular"),
        h("small", { class: "quiet" }, ` ${timeText(messages.ts[row], subject.digits)}${kind === "sent" ? "" : `, ${kind}`}`),
      ),
      h("p", { class: "text" }, text === "" ? subject.texts.line(row) : text.slice(0, LONGEST), text.length > LONGEST ? "…" : ""),
      h(
        "div",
        { class: "sequence-actions" },
        h("button", { type: "button", on: { click: () => app.show(row, "read") } }, "Read it there"),
        h("button", { type: "button", on: { click: () => app.state.set({ at: "", only: "" }) } }, "Close"),
      ),
      ...problems,
      lost === "lost" && problems.length === 0 ? h("p", { class: "sequence-bad" }, "Never received.") : "",
      lost === "unknown" ? h("p", { class: "quiet" }, "It is not known whether it was received.") : "",
      received.length ? h("h3", {}, `Received ${received.length === 1 ? "by" : `${received.length} times`}`) : "",
      received.length ? h("ol", {}, received.slice(0, LISTED)) : "",
      ...causesOf(subject),
      ...levelsOf(subject),
    ];
  }

  /** @param {Subject} subject */
  function causesOf(subject) {
    const { rows, missing } = subject.highlight.causes;
    if (rows.length === 0 && !missing) return [];
    return [
      h("h3", {}, "It answers"),
      h("ol", {}, rows.map((row) => h("li", {}, said(subject, row, { tag: "c" })))),
      missing ? h("p", { class: "quiet" }, "A message that this page does not have.") : "",
    ];
  }

  /** What was heard before, and before that. @param {Subject} subject */
  function levelsOf(subject) {
    const { levels } = subject.highlight;
    const found = levels.flatMap((level, at) => level.flatMap(({ row, heard }) => heardOf(subject, row, heard, at)));
    const steps = Number(app.state.get("back") || 1);
    const set = (/** @type {number} */ to) => app.state.set({ back: to === 1 ? "" : String(to) });
    const known = levels.at(-1)?.some(({ heard }) => heard.known && heard.told.length > 0) ?? false;
    return [
      ...found,
      h(
        "div",
        { class: "sequence-actions" },
        h(
          "button",
          { type: "button", disabled: !known || steps >= DEEPEST || levels.length < steps, on: { click: () => set(steps + 1) }, title: "key b" },
          "What did they know?",
        ),
        steps > 1 ? h("button", { type: "button", on: { click: () => set(steps - 1) }, title: "key B" }, "One step less") : "",
        subject.highlight.rows.size > 1 && subject.highlight.chain === null ? toggle("Only these", "only") : "",
      ),
    ];
  }

  /** @param {Subject} subject @param {number} row @param {Heard} heard @param {number} level */
  function heardOf(subject, row, heard, level) {
    const name = named(subject, heard.lane);
    const count = heard.told.length;
    const spoke = heard.since < 0 ? "when it first spoke" : "since it last spoke";
    const before = level === 0 ? "" : ` and said “${subject.texts.line(row).slice(0, 40)}”`;
    const many = plural(count + (heard.known ? 0 : heard.missing), "message");
    const title = heard.known
      ? [name, ` had heard ${count === 0 ? "nothing" : many} ${spoke}${before}`]
      : ["Before it, not known to be heard: ", many];
    const notes = [
      heard.known ? "" : "The recording does not tell what the sender had heard. This was sent to it, or on a channel on which it spoke:",
      heard.others > 0 ? `${plural(heard.others, "message")} to others of the same Messager` : "",
      heard.known && heard.missing > 0 ? `${plural(heard.missing, "more reception")}: copies, or not on this page` : "",
      heard.known || app.source.complete ? "" : "Only messages that are loaded are looked at.",
    ].filter((note) => note !== "");
    const listed = heard.told.slice(-LISTED).map((told, at, all) => {
      const last = heard.known && at === all.length - 1;
      const note = told.reception ? `received ${durationText(told.reception.delay)} after it was sent${last ? ", the last one" : ""}` : "";
      return h("li", {}, said(subject, told.row, { tag: "•".repeat(Math.min(level + 1, 3)), note, last }));
    });
    return [h("h3", {}, title), ...notes.map((note) => h("p", { class: "quiet" }, note)), h("ol", {}, listed)];
  }

  /**
   * A message as a button that selects it.
   * @param {Subject} subject
   * @param {number} row
   * @param {{ tag?: string, head?: (Node | string)[], note?: string, last?: boolean }} [how]
   */
  function said(subject, row, { tag = "", head, note = "", last = false } = {}) {
    const { messages } = app;
    const to = messages.to[row];
    const between = head ?? [
      named(subject, subject.receivers.sender(row)),
      ...(to > 0 ? [" → ", named(subject, to)] : []),
    ];
    return h(
      "button",
      {
        type: "button",
        class: last ? "sequence-said last" : "sequence-said",
        "aria-current": row === app.selected ? "true" : null,
        on: { click: () => app.show(row) },
      },
      tag ? h("span", { class: "sequence-tag", "aria-hidden": "true" }, tag) : "",
      between,
      h("small", {}, ` ${timeText(messages.ts[row], subject.digits)} ${note}`),
      h("span", { class: "text" }, subject.texts.line(row)),
    );
  }

  return { element, update };
}

/** The name of a lane in its colour. @param {Subject} subject @param {number} lane */
function named(subject, lane) {
  const name = label(subject.name(lane));
  name.style.color = colourOf(Math.max(lane, 0));
  return name;
}
