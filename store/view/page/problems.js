/** Problems of the recording by kind or by time, each with the way to its place. */

import { isFiltered } from "./conditions.js";
import { h, visible } from "./dom.js";
import { FILTER_KEYS } from "./filter.js";
import { isGrave, mayExamine, MEANING, numberOf, unknownYet } from "./problem_kinds.js";
import { agentName, speaker } from "./speaker.js";
import { dayText, exactText, numberText, plural, timeText } from "./time.js";
import { positionOf } from "./rows.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").Problem} Problem */

/** Problems of a kind that are shown at first, and more at a time. */
const FIRST = 10;
const MORE = 200;
/** ns around a problem, and messages around one in the sequence. */
const AROUND = 30_000_000_000n;
const NEIGHBOURS = 15;
/** Conditions that could hide a message. */
const FREE = { q: "", agent: [], between: [], channel: [], kind: [], since: "", until: "" };

/** @param {App} app @returns {import("./types").View} */
export function problemsView(app) {
  const found = h("div");
  const unfiltered = h("p", { class: "quiet" }, "Search and conditions do not apply here: these are the problems of the whole run.");
  const element = h("div", { class: "problems" }, unfiltered, found);
  /** @type {import("./types").Problems | null | undefined} */
  let shown;
  return {
    element,
    update(changed) {
      if (FILTER_KEYS.some((key) => changed.has(key))) unfiltered.hidden = !isFiltered(app.state);
      const same = ["head", "theme", "sort"].every((key) => !changed.has(key));
      if (shown === app.head.problems && same) return;
      shown = app.head.problems;
      const focused = element.contains(document.activeElement) && changed.has("sort");
      found.replaceChildren(...content(app));
      if (focused) /** @type {HTMLElement | null} */ (element.querySelector(".switch [aria-pressed=true]"))?.focus();
    },
  };
}

/** @param {App} app */
function content(app) {
  const { problems } = app.head;
  if (problems === null) return [h("p", { class: "none" }, unknownYet(app)), ...(mayExamine(app) ? [examineButton(app)] : [])];
  const number = numberOf(problems);
  const kinds = Object.keys(MEANING).filter((kind) => problems.counts[kind]);
  kinds.push(...Object.keys(problems.counts).filter((kind) => !(kind in MEANING)));
  const notes = problems.notes.length
    ? [h("section", { class: "notes" }, h("h2", {}, "Notes"), h("ul", {}, problems.notes.map((note) => h("li", {}, visible(note)))))]
    : [];
  const none = problems.examined
    ? "No problems were found: every message arrived, once and in time, and nothing was blocked, failed or lost."
    : "No problems were found in the log itself. Arrivals could not be examined: the notes say why.";
  return [
    number === 0
      ? h("p", { class: problems.examined ? "none good" : "none" }, none)
      : h("p", { class: "lead" }, h("b", {}, plural(number, "problem")), problems.examined ? "" : ". Arrivals could not be examined: the notes say why."),
    ...(number > 1 ? [sorting(app)] : []),
    ...(app.state.get("sort") === "time" ? [ordered(app, number)] : grouped(app, problems, kinds)),
    ...notes,
  ];
}

/** @param {App} app */
function examineButton({ source, say }) {
  const examine = () => source.examine().catch((error) => say(String(error.message)));
  return h("p", { class: "none" }, h("button", { type: "button", on: { click: examine } }, "Search for problems, and verify"));
}

/** @param {App} app */
function sorting({ state }) {
  const button = (/** @type {string} */ text, /** @type {string} */ sort) =>
    h("button", { type: "button", "aria-pressed": String(state.get("sort") === sort), on: { click: () => state.set({ sort }) } }, text);
  return h("div", { class: "switch", role: "group", "aria-label": "order" }, button("By kind", ""), button("By time", "time"));
}

/** @param {App} app @param {import("./types").Problems} problems @param {string[]} kinds */
function grouped(app, problems, kinds) {
  const groups = kinds.map((kind) => group(app, kind, problems.counts[kind], problems.details.filter((one) => one.kind === kind)));
  return kinds.length > 1 ? [contents(problems, kinds), ...groups] : groups;
}

/** Return all problems by their time, those without one behind. @param {App} app @param {number} count */
function ordered(app, count) {
  const timed = (app.head.problems?.details ?? []).map((one) => ({ one, ts: timeOf(app, one) }));
  timed.sort((a, b) => (a.ts === null ? Number(b.ts !== null) : b.ts === null || a.ts < b.ts ? -1 : Number(a.ts > b.ts)));
  return h("section", { "aria-label": "problems by time" }, ...listed(app, timed.map(({ one }) => one), count, true));
}

/** Return the numbers of each kind, which lead to its group. @param {import("./types").Problems} problems @param {string[]} kinds */
function contents(problems, kinds) {
  const button = (/** @type {string} */ kind) =>
    h(
      "button",
      {
        type: "button", class: "pill",
        on: {
          click() {
            const group = document.getElementById(idOf(kind));
            group?.scrollIntoView();
            group?.focus({ preventScroll: true });
          },
        },
      },
      h("b", {}, numberText(problems.counts[kind])),
      ` ${kind}`,
    );
  return h("ul", { class: "kinds", "aria-label": "kinds of problems" }, kinds.map((kind) => h("li", {}, button(kind))));
}

/** @param {string} kind */
function idOf(kind) {
  return `problems-${kind.replaceAll(" ", "-")}`;
}

/** Return a list of problems, and what shows more of them.
 * @param {App} app @param {Problem[]} details @param {number} count @param {boolean} mixed of different kinds */
function listed(app, details, count, mixed) {
  const list = h("ol");
  const rest = h("p", { class: "quiet" });
  const more = h("button", { type: "button", on: { click: () => add(MORE) } });
  let shown = 0;

  /** @param {number} most */
  function add(most) {
    const begin = shown;
    list.append(...details.slice(shown, shown + most).map((one) => item(app, one, mixed)));
    shown = Math.min(shown + most, details.length);
    const left = details.length - shown;
    more.hidden = left === 0;
    more.textContent = `Show ${numberText(Math.min(left, MORE))} more`;
    rest.textContent = left === 0 && count > shown ? `${numberText(count - shown)} more are only counted.` : "";
    rest.hidden = rest.textContent === "";
    if (begin > 0) /** @type {HTMLElement | null} */ (list.children[begin]?.querySelector("button"))?.focus();
  }

  add(mixed ? MORE : FIRST);
  return [list, more, rest];
}

/** @param {App} app @param {string} kind @param {number} count @param {Problem[]} details */
function group(app, kind, count, details) {
  /** @type {Map<string, number>} */
  const reasons = new Map();
  for (const { reason } of details) if (reason) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  const why = [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([reason, number]) => `${numberText(number)} ${visible(reason)}`);
  return h(
    "section",
    { "aria-label": kind },
    h("h2", { id: idOf(kind), tabIndex: -1 }, h("span", { class: "count" }, numberText(count)), ` ${kind}`, why.length > 1 ? h("small", { class: "quiet" }, why.join(", ")) : null),
    h("p", { class: "quiet" }, MEANING[kind] ?? ""),
    ...listed(app, details, count, false),
  );
}

/** @param {App} app @param {Problem} one @param {boolean} mixed tell the kind */
function item(app, one, mixed) {
  const row = one.message === null ? -1 : app.messages.row(one.message);
  const span = spanOf(app, one);
  const ts = timeOf(app, one);
  const time = ts === null ? null : h("time", { title: exactText(ts) }, `${dayText(ts)} ${timeText(ts)}`);
  const words = row < 0 ? [] : [names(app, row), h("q", { class: "text" }, visible(start(app.messages.text(row))))];
  const kind = mixed ? [h("span", { class: isGrave(one) ? "badge bad" : "badge" }, visible(one.kind))] : [];
  const inside = [...(time ? [time] : []), ...kind, ...words, h("span", { class: "why" }, visible(one.text || one.reason))];
  if (one.message === null && span === null) return h("li", {}, h("div", { class: "place" }, inside));
  return h(
    "li",
    {},
    h("button", { type: "button", class: "place", on: { click: () => go(app, one, "read") } }, inside),
    h("button", { type: "button", class: "also", "aria-label": `show in sequence: ${one.kind}${ts === null ? "" : `, ${timeText(ts)}`}`, on: { click: () => go(app, one, "sequence") } }, "Sequence"),
  );
}

/** @param {App} app @param {Problem} one */
function timeOf(app, one) {
  const since = one.ts ?? spanOf(app, one)?.since;
  return since === undefined ? null : BigInt(since);
}

/** @param {App} app @param {number} row */
function names(app, row) {
  const { messages } = app;
  const to = messages.to[row];
  const target = to > 0 ? agentName(messages, to) : h("bdi", { class: "quiet" }, visible(messages.names.channels[messages.channel[row]] || "nobody"));
  return h("span", { class: "ends" }, speaker(messages, row), " → ", target);
}

/** Return the begin of a text. @param {string} text */
function start(text) {
  return text.length > 160 ? `${text.slice(0, 159)}…` : text;
}

/** Go to the place of a problem. @param {App} app @param {Problem} one @param {string} view */
function go(app, one, view) {
  if (one.message === null) {
    const span = spanOf(app, one);
    if (span !== null) app.state.set({ ...FREE, ...span, at: "", view });
    return;
  }
  const row = app.messages.row(one.message);
  if (row < 0) {
    const ts = BigInt(one.message.split(":")[0]);
    app.state.set({ ...FREE, since: String(ts - AROUND), until: String(ts + AROUND), at: one.message, view });
  } else if (view === "sequence") {
    app.state.set({ ...FREE, ...around(app, row), at: one.message, view });
  } else {
    app.state.set({ ...(app.rows[positionOf(app.rows, row)] === row ? {} : FREE), at: one.message, view });
  }
}

/** Return the time of a few messages before and after one. @param {App} app @param {number} row */
function around({ messages }, row) {
  const first = messages.ts[Math.max(row - NEIGHBOURS, 0)];
  const last = messages.ts[Math.min(row + NEIGHBOURS, messages.length - 1)];
  return { since: String(first), until: String(last + 1n) };
}

/** Return the time of a gap or an unclean end; null if it is unknown. @param {App} app @param {Problem} one */
function spanOf(app, one) {
  if (one.kind === "gap") {
    const gap = app.head.gaps.find(({ cursor }) => cursor === one.cursor);
    if (gap === undefined) return null;
    const since = BigInt(gap.since);
    const until = BigInt(gap.until);
    const margin = (until - since) / 4n + 1_000_000_000n;
    return { since: String(since - margin), until: String(until + margin) };
  }
  const recorder = app.head.recorders.find(({ recorder: number }) => number === one.recorder);
  if (one.kind !== "unclean end" || recorder === undefined) return null;
  return { since: String(BigInt(recorder.complete_until) - AROUND), until: "" };
}
