/** The details of the selected message: its fields, its receptions, its payload, and where to go from it. */

import { NO_CONDITIONS } from "./conditions.js";
import { copy } from "./copying.js";
import { h, visible } from "./dom.js";
import { FROM_DERIVED, KINDS, REDACTED, TEXT_CUT, TO_DERIVED } from "./messages.js";
import { payloadPanel } from "./payload_panel.js";
import { positionOf } from "./rows.js";
import { agentName, speaker } from "./speaker.js";
import { durationText, exactText, numberText, plural, timeText } from "./time.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").View} View */

const AROUND = 30_000_000_000n;
/** Receptions shown at first. */
const RECEPTIONS = 20;
/** Characters of the text that are shown first. */
const SAID = 200;

/**
 * @param {App} app
 * @param {() => void} left called when the details are closed by a key or their button
 * @returns {View}
 */
export function detail(app, left) {
  const content = h("div", { class: "details-content" });
  const close = h("button", { type: "button", "aria-label": "close the details", on: { click: shut } }, "×");
  const title = h("h2", { tabIndex: -1 });
  const element = h("section", { class: "details", "aria-label": "details of the message", hidden: true }, h("header", {}, title, close), content);
  let shown = "";

  function shut() {
    app.state.set({ at: "" });
    left();
  }

  /** Return what the content depends on. */
  function state() {
    if (app.selected < 0) return "";
    const received = app.messages.receptions(app.selected).length;
    return `${app.state.get("at")} ${received} ${fits(app)} ${app.head.problems?.details.length}`;
  }

  return {
    element,
    update(changed) {
      const now = state();
      element.hidden = app.selected < 0;
      if (now === shown && !changed.has("theme")) return;
      if (now.split(" ")[0] !== shown.split(" ")[0]) content.scrollTop = 0;
      shown = now;
      if (app.selected < 0) return;
      title.replaceChildren(...heading(app, app.selected));
      content.replaceChildren(...parts(app, app.selected));
    },
    key(event) {
      if (element.hidden) return false;
      if (event.key === "Escape") {
        shut();
        return true;
      }
      return false;
    },
    focus() {
      title.focus();
    },
  };
}

/** @param {App} app @param {number} row */
function heading({ messages }, row) {
  const to = messages.to[row];
  const time = h("time", {}, timeText(messages.ts[row], 3));
  return [speaker(messages, row), ...(to ? [" › ", agentName(messages, to)] : []), time];
}

/** Return whether the selected message fits the conditions. @param {App} app */
function fits(app) {
  return app.rows[positionOf(app.rows, app.selected)] === app.selected;
}

/** @param {App} app @param {number} row */
function parts(app, row) {
  const { messages } = app;
  return [
    fits(app) ? null : h("p", { class: "note" }, "This message does not fit the conditions. ", action(app, "Show all messages", NO_CONDITIONS)),
    h("p", { class: "said", dir: "auto" }, beginOf(messages.text(row))),
    actions(app, row),
    fields(app, row),
    ...problems(app, row),
    receptions(app, row),
    messages.flags[row] & TEXT_CUT ? h("p", { class: "quiet" }, "The text is longer; the page does not have the rest.") : null,
    payloadPanel(app, row),
  ].filter((part) => part !== null);
}

/** Return the begin of a text: where the details cover the list, nothing else tells it. @param {string} text */
function beginOf(text) {
  return text.length > SAID ? `${text.slice(0, SAID)}…` : text;
}

/** @param {App} app @param {number} row */
function actions(app, row) {
  const { messages } = app;
  const { agents, channels } = messages.names;
  const [from, to, channel] = [messages.from[row], messages.to[row], messages.channel[row]];
  const ts = messages.ts[row];
  const name = (/** @type {number} */ at) => h("bdi", {}, visible(agents[at].text));
  const only = (/** @type {Record<string, string | string[]>} */ values) => ({ ...NO_CONDITIONS, ...values });
  const around = { since: String(ts - AROUND), until: String(ts + AROUND + 1n) };
  return h(
    "div",
    { class: "buttons", role: "group", "aria-label": "show" },
    from && to && from !== to ? action(app, ["Only ", name(from), " and ", name(to)], only({ between: [agents[from].id, agents[to].id] })) : null,
    from ? action(app, ["Only ", name(from)], only({ agent: [agents[from].id] })) : null,
    channel ? action(app, "Only this channel", only({ channel: [channels[channel]] })) : null,
    action(app, "Around this moment (± 30 s)", only(around)),
    action(app, "The minute before", only({ since: String(ts - 2n * AROUND), until: String(ts + 1n) })),
    h("button", { type: "button", on: { click: () => app.show(app.selected, "sequence") } }, "What did it know?"),
  );
}

/** @param {App} app @param {string | (Node | string)[]} text @param {Record<string, string | string[]>} values */
function action(app, text, values) {
  return h("button", { type: "button", on: { click: () => app.state.set(values) } }, ...[text].flat());
}

/** @param {App} app @param {number} row */
function fields(app, row) {
  const { messages } = app;
  const { agents, channels, messagers } = messages.names;
  const cursor = messages.cursor(row);
  const flags = messages.flags[row];
  const heard = messages.heard[row];
  const agent = (/** @type {Node} */ name, /** @type {number} */ at, /** @type {number} */ derived) => [
    name,
    at ? h("bdi", { class: "mono quiet" }, ` ${visible(agents[at].id)}`) : "",
    derived ? h("span", { class: "quiet" }, " derived: the message does not say it") : "",
  ];
  const kind = KINDS[messages.kind[row]];
  /** @type {[string, (Node | string)[]][]} */
  const found = [
    ["Time", [h("span", { class: "mono" }, exactText(messages.ts[row]))]],
    ["From", agent(speaker(messages, row), messages.from[row], flags & FROM_DERIVED)],
  ];
  const to = messages.to[row];
  if (to) found.push(["To", agent(agentName(messages, to), to, flags & TO_DERIVED)]);
  found.push(
    ["Channel", [h("bdi", { class: "mono" }, visible(channels[messages.channel[row]] || "none"))]],
    ["Kind", [kind, flags & REDACTED ? ", redacted" : ""]],
  );
  if (messages.messager[row]) found.push(["Messager", [h("bdi", {}, visible(messagers[messages.messager[row]]))]]);
  if (heard) found.push(["Heard before", [heard === 1 ? "nothing" : `arrivals 1 to ${numberText(heard - 1)}`]]);
  if (messages.cause_seq[row]) found.push(["Cause", [cause(app, row)]]);
  found.push(["Recorder", [`${messages.recorder[row]}, seq ${numberText(messages.seq[row])}`]]);
  const button = h("button", { type: "button", class: "small", on: { click: () => copy(app, cursor) } }, "Copy");
  found.push(["Cursor", [h("span", { class: "mono" }, cursor), " ", button]]);
  return h("dl", { class: "fields" }, ...found.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, ...value)]));
}

/** Return a button to the cause. @param {App} app @param {number} row */
function cause(app, row) {
  const { messages } = app;
  const [recorder, seq] = [messages.cause_recorder[row], messages.cause_seq[row]];
  const found = messages.rowOf(recorder, seq);
  if (found < 0) return h("span", { class: "mono" }, `${recorder}:${seq}`);
  const text = messages.text(found);
  const show = () => app.show(messages.rowOf(recorder, seq));
  const button = h("button", { type: "button", class: "cause", on: { click: show } });
  button.append(speaker(messages, found), h("bdi", { dir: "auto" }, ` ${text.slice(0, 80)}${text.length > 80 ? "…" : ""}`));
  return button;
}

/** @param {App} app @param {number} row */
function problems(app, row) {
  const cursor = app.messages.cursor(row);
  return (app.head.problems?.details ?? [])
    .filter((problem) => problem.message === cursor)
    .map((problem) =>
      h("p", { class: "note bad" }, h("strong", {}, problem.kind), h("bdi", {}, `: ${visible(problem.text || problem.reason)}`)),
    );
}

/** @param {App} app @param {number} row */
function receptions(app, row) {
  const found = app.messages.receptions(row);
  if (found.length === 0) return null;
  const messagers = app.messages.names.messagers;
  const body = h("tbody");
  /** @param {number} from @param {number} until */
  const add = (from, until) => {
    for (const { recorder, messager, delay, arrival } of found.slice(from, until)) {
      const by = messager ? visible(messagers[messager]) : `recorder ${recorder}`;
      body.append(h("tr", {}, h("td", {}, h("bdi", {}, by)), h("td", {}, durationText(delay)), h("td", {}, arrival ? numberText(arrival) : "")));
    }
  };
  add(0, RECEPTIONS);
  const head = h("tr", {}, ...["Received by", "After", "Arrival"].map((name) => h("th", { scope: "col" }, name)));
  const table = h("table", { class: "receptions" }, h("caption", {}, plural(found.length, "reception")), h("thead", {}, head), body);
  if (found.length <= RECEPTIONS) return table;
  const more = h("button", { type: "button", class: "more" }, `more (${numberText(found.length - RECEPTIONS)})`);
  more.addEventListener("click", () => {
    add(RECEPTIONS, found.length);
    more.remove();
  });
  return h("div", {}, table, more);
}
