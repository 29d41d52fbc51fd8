/** What happened in the run, on top of the page: its name, one sentence, its chapters, and details on demand. */

import { colourOf } from "./colours.js";
import { activityOfAgents, described, dialogues, isLive } from "./describing.js";
import { h, visible } from "./dom.js";
import { madeText } from "./footer.js";
import { channelsOf } from "./pairs.js";
import { badge } from "./problem_kinds.js";
import { dayText, durationText, exactText, numberText, plural, timeText } from "./time.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./describing.js").Numbers} Numbers */

/** Chapters in the line; agents and pairs in the details. */
const CHAPTERS = 6;
const BUSIEST = 8;
/** ms between two counts while messages keep coming. */
const PAUSE = { complete: 1000, served: 10_000 };
const NOTHING = { q: "", agents: [], between: [], channels: [], kinds: [], since: null, until: null };

/** @param {App} app @returns {import("./types").View} */
export function summary(app) {
  const title = h("div", { class: "title" });
  const sentence = h("p", { class: "sentence" });
  const chapters = h("p", { class: "chapters" });
  const details = h("dl", { id: "summary-details", hidden: true });
  const more = h(
    "button",
    {
      type: "button", class: "pill unfold", "aria-expanded": "false", "aria-controls": "summary-details",
      on: { click: () => open(Boolean(details.hidden)) },
    },
    "details",
  );
  const element = h(
    "header",
    { class: "summary" },
    title,
    h("div", { class: "told" }, sentence, chapters, more),
    details,
  );
  /** @type {Numbers | null} */
  let numbers = null;
  let timer = 0;
  let last = -Infinity;

  function count() {
    if (timer !== 0) return;
    timer = window.setTimeout(async () => {
      last = performance.now();
      try {
        numbers = numbersOf(app, await app.source.pairs(NOTHING));
        show();
      } catch (error) {
        sentence.textContent = error instanceof Error ? error.message : String(error);
      }
      timer = 0;
    }, Math.max(last + (app.source.complete ? PAUSE.complete : PAUSE.served) - performance.now(), 0));
  }

  function show() {
    replace(title, titleOf(app));
    const marks = chaptersOf(app);
    replace(chapters, marks);
    chapters.hidden = marks.length === 0;
    if (numbers === null) {
      const { building } = app.head;
      sentence.textContent = building ? `Reading the log: ${numberText(building[0])} of ${plural(building[1], "event")} …` : "Counting …";
      return;
    }
    const name = (/** @type {number} */ at) => visible(app.messages.names.agents[at].text);
    replace(
      sentence,
      described(numbers, name).map(({ text, as, at }) =>
        as === "agent" ? agentButton(app, at ?? 0) : as === "number" ? h("b", {}, text) : text,
      ),
    );
    if (!details.hidden) replace(details, detailsOf(app, numbers));
  }

  /** @param {boolean} wanted */
  function open(wanted) {
    details.hidden = !wanted;
    more.setAttribute("aria-expanded", String(wanted));
    if (wanted && numbers !== null) details.replaceChildren(...detailsOf(app, numbers));
  }

  return {
    element,
    update(changed) {
      if (changed.has("head")) document.title = `${visible(app.head.name ?? app.head.exp_id)} - messager`;
      if (changed.has("messages") || changed.has("live")) count();
      if (changed.has("head") || changed.has("theme")) show();
    },
  };
}

/** Fill an element, unless that took the focus away. @param {Element} element @param {(Node | string)[]} children */
function replace(element, children) {
  if (!element.contains(document.activeElement)) element.replaceChildren(...children);
}

/** @param {App} app @param {Numbers["pairs"]} pairs @returns {Numbers} */
function numbersOf(app, pairs) {
  const { head, messages, source } = app;
  const [since, until] = spanOf(app);
  return {
    messages: pairs.reduce((sum, { count }) => sum + count, 0),
    agents: source.complete ? activityOfAgents(pairs).length : head.agents,
    channels: source.complete ? channelsOf(messages) : head.channels,
    since,
    until,
    pairs,
  };
}

/** Return the times of the first and the last message. @param {App} app @returns {[bigint | null, bigint | null]} */
function spanOf({ head, messages, source }) {
  if (source.complete && messages.length) return [messages.ts[0], messages.ts[messages.length - 1]];
  return [head.first_ts === null ? null : BigInt(head.first_ts), head.last_ts === null ? null : BigInt(head.last_ts)];
}

/** @param {App} app */
function titleOf(app) {
  const { head } = app;
  const [since, until] = spanOf(app);
  const live = isLive(head);
  const days = since === null || until === null ? "" : dayText(since) === dayText(until) ? "" : `${dayText(until)} `;
  const shared = [head.shared, head.selection && `only ${head.selection}`].filter(Boolean).join("; ");
  return [
    h("h1", { title: head.exp_id }, h("bdi", {}, visible(head.name ?? head.exp_id))),
    head.name === null ? null : h("span", { class: "quiet id" }, h("bdi", {}, visible(head.exp_id))),
    h(
      "span",
      { class: live ? "pill recording" : "pill", title: live ? "events are being recorded" : STATUS[head.status] },
      live ? "live" : head.status,
    ),
    app.source.away ? h("span", { class: "pill noted", role: "status" }, "not connected: trying again") : null,
    ...head.tags.map((tag) => h("span", { class: "pill" }, h("bdi", {}, visible(tag)))),
    shared ? h("span", { class: "pill noted" }, visible(shared)) : null,
    head.parent ? h("span", { class: "pill" }, "fork of ", h("bdi", {}, visible(head.parent.exp_id))) : null,
    head.forks.length ? h("span", { class: "pill" }, plural(head.forks.length, "fork")) : null,
    since === null || until === null
      ? null
      : h(
          "span",
          { class: "quiet when", title: `${exactText(since)} to ${exactText(until)}` },
          `${dayText(since)} ${timeText(since, 0)} – ${days}${timeText(until, 0)} UTC`,
        ),
    badge(app),
  ].filter((each) => each !== null);
}

/** @type {Record<string, string>} */
const STATUS = { open: "not closed: more events may be recorded", closed: "no more events can be recorded" };

/** @param {App} app @param {number} at */
function agentButton(app, at) {
  const { text, id } = app.messages.names.agents[at];
  const button = h(
    "button",
    {
      type: "button", class: "agent-name", title: `read the messages of ${visible(text)}`,
      on: { click: () => app.state.set({ agent: [id], between: [], view: "read" }) },
    },
    h("bdi", {}, visible(text)),
  );
  button.style.color = colourOf(at);
  return button;
}

/** Return the chapters: marks that lead to their time. @param {App} app */
function chaptersOf(app) {
  const marks = app.head.marks.filter(({ label }) => label);
  if (marks.length === 0) return [];
  const shown = marks.length <= CHAPTERS ? marks : marks.slice(0, CHAPTERS);
  const more = marks.length - shown.length;
  const oneDay = new Set(shown.map(({ ts }) => dayText(BigInt(ts)))).size === 1;
  return [
    h("span", { class: "quiet" }, `${plural(marks.length, "chapter")}:`),
    ...shown.map((mark, place) => chapter(app, mark, marks[place + 1], oneDay)),
    ...(more ? [h("span", { class: "quiet" }, `and ${numberText(more)} more`)] : []),
  ];
}

/**
 * @param {App} app
 * @param {import("./types").Mark} mark
 * @param {import("./types").Mark | undefined} next
 * @param {boolean} oneDay all marks are of one day
 */
function chapter(app, mark, next, oneDay) {
  const since = BigInt(mark.ts);
  const text = visible(mark.label);
  return h(
    "button",
    {
      type: "button", class: "pill", title: `${visible(mark.text)}: ${exactText(since)}`,
      on: { click: () => app.state.set({ since: mark.ts, until: next ? next.ts : "" }) },
    },
    h("bdi", {}, text),
    h("span", { class: "quiet" }, ` ${oneDay ? timeText(since, 0) : dayText(since)}`),
  );
}

/** @param {App} app @param {Numbers} numbers */
function detailsOf(app, { since, until, pairs }) {
  const { head, messages } = app;
  const agents = activityOfAgents(pairs);
  const dialogue = dialogues(pairs);
  /** @param {string} name @param {...(Node | string)} value */
  const row = (name, ...value) => (value.length && value[0] !== "" ? [h("div", {}, h("dt", {}, name), h("dd", {}, ...value))] : []);
  return [
    ...row("experiment", h("bdi", { class: "mono" }, visible(head.exp_id))),
    ...(since !== null && until !== null
      ? row("messages", `${exactText(since)} to ${exactText(until)} (${durationText(Number(until - since))})`)
      : []),
    ...row("busiest agents", ...list(agents.slice(0, BUSIEST).map(({ at, sent, received }) => [
      agentButton(app, at), ` ${numberText(sent)} sent${received ? `, ${numberText(received)} received` : ""}`,
    ]))),
    ...row("busiest pairs", ...list(dialogue.slice(0, BUSIEST).map(({ one, other, count }) => [pairButton(app, one, other), ` ${numberText(count)}`]))),
    ...row("events", Object.entries(head.kinds).map(([kind, count]) => `${numberText(count)} ${kind}`).join(", ")),
    ...row("recorders", head.recorders.map(({ recorder, role, state }) => `${recorder}: ${role}, ${state}`).join("; ")),
    ...row("tags", visible(head.tags.join(", "))),
    ...row("selection", visible(head.selection)),
    ...row("changed", visible(head.shared)),
    ...(head.parent ? row("fork of", visible(head.parent.exp_id), typeof head.parent.at === "string" ? `, from ${head.parent.at} on` : "") : []),
    ...row("forks", ...list(head.forks.map(({ exp_id, at }) => [h("bdi", {}, visible(exp_id)), at ? ` from ${at} on` : ""]))),
    ...row("chapters", head.marks.length > CHAPTERS ? plural(head.marks.length, "mark") : ""),
    ...row("page", madeText(head.made)),
    ...row("notes", visible(head.notes.join("; "))),
    ...Object.entries(head.meta).flatMap(([key, value]) => row(visible(key), h("span", { class: "mono" }, visible(JSON.stringify(value))))),
    ...row("names", `${plural(messages.names.agents.length - 1, "agent")}, ${plural(messages.names.channels.length - 1, "channel")}`),
  ];
}

/** Return items with commas between them. @param {(Node | string)[][]} items */
function list(items) {
  return items.flatMap((item, place) => (place === 0 ? item : [", ", ...item]));
}

/** @param {App} app @param {number} one @param {number} other */
function pairButton(app, one, other) {
  const agents = app.messages.names.agents;
  const text = `${visible(agents[one].text)} and ${visible(agents[other].text)}`;
  return h(
    "button",
    {
      type: "button", class: "agent-name",
      on: { click: () => app.state.set({ between: [agents[one].id, agents[other].id], agent: [], view: "read" }) },
    },
    h("bdi", {}, text),
  );
}
