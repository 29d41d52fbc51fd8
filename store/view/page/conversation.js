/** Read: the messages as a conversation, and the details of the selected one. */

import { Chapters, dayLine } from "./chapters.js";
import { isFiltered, NO_CONDITIONS } from "./conditions.js";
import { isLive } from "./describing.js";
import { detail } from "./detail.js";
import { h, visible } from "./dom.js";
import { isForPage } from "./keys.js";
import { messageLine, shortTime } from "./message_item.js";
import { positionOf } from "./rows.js";
import { channelLabels } from "./short_names.js";
import { speakerText } from "./speaker.js";
import { numberText } from "./time.js";
import { VirtualList } from "./virtual_list.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").Problem} Problem */
/** @typedef {import("./types").View} View */

/** Items from the first or last loaded one at which more are loaded. */
const NEAR = 40;
const DAY = 86_400;
/** Of messages in a row between the same two, one in so many has their names: one is always in sight. */
const NAMED_EVERY = 8;

/** @param {App} app @returns {View} */
export function conversationView(app) {
  const { messages } = app;
  /** The rows that the list shows, and the base that they count from. @type {Int32Array} */
  let rows = new Int32Array(0);
  let base = 0;
  let chapters = new Chapters(app.head);
  let digits = -1;
  /** @type {import("./short_names.js").ChannelLabel[]} */
  let channels = [];
  /** @type {Map<string, Problem[]>} Problems by the cursor of the message. */
  let problems = new Map();
  /** @type {Set<number>} Messages, as row + base, whose long text is shown as a whole. */
  const whole = new Set();
  /** @type {Set<string>} Directions in which messages are being loaded, or there are none. */
  let asked = new Set();
  let placed = false;
  /** Number of names when the looks were decided. */
  let named = 0;
  let merges = 0;
  /** Messages that came at the end since it was left. */
  let unseen = 0;

  const list = new VirtualList({ label: "messages", key, make, placed: moved });
  const newest = h("button", { type: "button", class: "newest", hidden: true, on: { click: toNewest } }, "Newest ↓");
  const details = detail(app, () => list.element.focus());
  const element = h("div", { class: "conversation" }, h("div", { class: "conversation-list" }, list.element, newest), details.element);

  list.element.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const item = /** @type {HTMLElement | null} */ (target.closest("[data-row]"));
    if (item === null || !getSelection()?.isCollapsed) return;
    const id = Number(item.dataset.row);
    if (target.closest("[data-more]")) {
      if (!whole.delete(id)) whole.add(id);
      list.move(list.at, list.offset);
    } else app.show(id - messages.base);
  });

  /** @param {number} at */
  function key(at) {
    const before = at > 0 ? rows[at - 1] + messages.base : app.filter.since;
    if (at === rows.length) return `end ${before} ${app.filter.until} ${messages.length === 0} ${app.source.complete} ${app.source.loading}`;
    const id = rows[at] + messages.base;
    return `${id} ${before} ${whole.has(id)}`;
  }

  /** Return the element of an item: a message with what stands before it, or what stands behind the last one. @param {number} at */
  function make(at) {
    const row = rows[at];
    const before = at > 0 ? rows[at - 1] : -1;
    const { since, until } = app.filter;
    const after = before >= 0 ? messages.ts[before] : since === null ? null : since - 1n;
    if (at === rows.length) {
      const rest = app.source.complete ? chapters.between(after, until, digits) : [];
      return h("div", { class: "list-end" }, ...rest, rows.length ? null : nothing());
    }
    const lead = chapters.between(at === 0 && !app.source.complete ? messages.ts[row] : after, messages.ts[row], digits);
    const day = before < 0 || Math.floor(messages.time[row] / DAY) !== Math.floor(messages.time[before] / DAY);
    if (day) lead.unshift(dayLine(messages.ts[row]));
    const { from, to, channel, kind } = messages;
    const same = [from, to, channel, kind].every((column) => column[row] === column[before]);
    const grouped = lead.length === 0 && before >= 0 && same && (row + messages.base) % NAMED_EVERY !== 0;
    const line = messageLine(messages, row, {
      digits,
      channels,
      q: app.filter.q,
      whole: whole.has(row + messages.base),
      grouped,
      sameTime: lead.length === 0 && before >= 0 && timeOf(row) === timeOf(before),
      problems: problems.size ? (problems.get(messages.cursor(row)) ?? []) : [],
    });
    return h(
      "article",
      { class: "message", tabIndex: -1, data: { row: String(row + messages.base) }, "aria-posinset": at + 1, "aria-setsize": app.source.complete ? rows.length : -1 },
      ...lead,
      line,
    );
  }

  /** @param {number} row */
  function timeOf(row) {
    return shortTime(messages.ts[row], digits);
  }

  function nothing() {
    if (app.source.loading) return h("p", { class: "nothing" }, "Loading messages …");
    if (messages.length === 0 && app.source.complete) return h("p", { class: "nothing" }, "There are no messages yet.");
    if (!isFiltered(app.state)) return h("p", { class: "nothing" }, "There are no messages.");
    const clear = h("button", { type: "button", on: { click: () => app.state.set(NO_CONDITIONS) } }, "Remove all conditions");
    return h("div", { class: "nothing" }, h("p", {}, "No message fits. Remove a condition."), clear);
  }

  /** Note that the place changed: load more, and show where it is. */
  function moved() {
    for (let at = list.first; at < list.end; at += 1) select(at);
    if (!list.atEnd && !app.source.complete) app.source.atEnd = false;
    if (list.atEnd) unseen = 0;
    if (!app.source.complete && !app.source.atEnd) unseen = 0;
    newest.hidden = list.atEnd || !grows();
    newest.textContent = unseen ? `${numberText(unseen)} new ↓` : "Newest ↓";
    if (app.source.complete || !placed) return;
    if (list.first < NEAR) load("before");
    if (list.end > list.count - NEAR && !(grows() && app.source.atEnd)) load("after");
  }

  /** @param {"before" | "after"} direction */
  async function load(direction) {
    if (asked.has(direction) || messages.length === 0) return;
    asked.add(direction);
    try {
      if (await app.source.more(direction)) asked.delete(direction);
    } catch (error) {
      app.say(error instanceof Error ? error.message : String(error));
    }
  }

  function grows() {
    return app.source.served && isLive(app.head);
  }

  function toNewest() {
    if (app.source.complete || app.source.atEnd) list.moveToEnd();
    else {
      placed = false;
      app.source.select(app.filter, "").catch((error) => app.say(error.message));
    }
    list.element.focus();
  }

  /** Mark the selected message. @param {number} at */
  function select(at) {
    const item = list.elementOf(at);
    if (rows[at] === app.selected && app.selected >= 0) item?.setAttribute("aria-current", "true");
    else item?.removeAttribute("aria-current");
  }

  /** Return the position of the selected message in the list; -1 if it is not there. */
  function selectedAt() {
    const at = positionOf(rows, app.selected);
    return app.selected >= 0 && rows[at] === app.selected ? at : -1;
  }

  /** Show the rows that fit now, and keep the place. @param {boolean} fresh */
  function replace(fresh) {
    const shift = messages.base - base;
    const old = { row: (rows[list.at] ?? -1) - shift, offset: list.offset, atEnd: list.at >= rows.length };
    const followed = list.atEnd;
    const selectedRow = app.selected + shift;
    const was = positionOf(rows, selectedRow);
    const top = app.selected >= 0 && rows[was] === selectedRow ? list.topOf(was) : null;
    const last = rows.length ? rows[rows.length - 1] - shift : -1;
    if (!list.atEnd && placed && (app.source.complete || app.source.atEnd)) unseen += app.rows.length - positionOf(app.rows, last + 1);
    rows = app.rows;
    base = messages.base;
    const count = rows.length + 1;
    const lost = !old.atEnd && old.row < 0;
    const { atEnd } = app.source; // a place that is not the end sets it to false
    if (app.source.loading && rows.length === 0) {
      list.set(count, 0, 0, { fresh });
      placed = false;
    } else if (!placed || lost) {
      list.set(count, 0, 0, { fresh });
      if (selectedAt() >= 0) list.reveal(selectedAt());
      else if (grows() && atEnd && app.filter.until === null) {
        app.source.atEnd = true;
        list.moveToEnd();
      }
      placed = true;
      moved();
    } else if (followed && grows() && (app.source.complete || atEnd)) {
      list.set(count, count - 1, 0, { fresh });
    } else if (top !== null && top > -list.height && top < list.height && selectedAt() >= 0) {
      list.set(count, selectedAt(), -top, { fresh });
    } else {
      const at = old.atEnd ? rows.length : positionOf(rows, old.row);
      list.set(count, at, rows[at] === old.row || old.atEnd ? old.offset : 0, { fresh });
      if (selectedAt() >= 0 && top === null) list.reveal(selectedAt());
    }
  }

  /** Select the message at a distance from the selected one. @param {number} step */
  function go(step) {
    if (rows.length === 0) return;
    const at = selectedAt();
    const next = at >= 0 ? at + step : step > 0 ? positionOf(rows, app.selected) : positionOf(rows, app.selected) - 1;
    const chosen = app.selected < 0 ? firstVisible() : Math.max(0, Math.min(next, rows.length - 1));
    choose(chosen);
  }

  /** @param {number} at */
  function choose(at) {
    const row = rows[at];
    app.show(row);
    app.say(`${visible(speakerText(messages, row))}: ${messages.text(row).slice(0, 300)}`);
  }

  function firstVisible() {
    const at = list.at + ((list.topOf(list.at) ?? 0) < 0 ? 1 : 0);
    return Math.min(at, rows.length - 1);
  }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const inList = target === document.body || list.element.contains(target);
    const onButton = target.closest("button, summary, a") !== null;
    if (event.key === "j" || (event.key === "ArrowDown" && inList)) go(1);
    else if (event.key === "k" || (event.key === "ArrowUp" && inList)) go(-1);
    else if (event.key === "g" || (event.key === "Home" && inList)) list.move(0, 0);
    else if (event.key === "G" || (event.key === "End" && inList)) toNewest();
    else if (event.key === "PageDown" && target === document.body) list.moveBy(list.height * 0.9);
    else if (event.key === "PageUp" && target === document.body) list.moveBy(list.height * -0.9);
    else if (event.key === "Enter" && !onButton && app.selected >= 0) details.focus?.();
    else if (event.key === "Enter" && !onButton && rows.length) choose(firstVisible());
    else return false;
    return true;
  }

  return {
    element,
    update(changed) {
      if (changed.has("head")) {
        chapters = new Chapters(app.head);
        problems = new Map();
        for (const problem of app.head.problems?.details ?? []) {
          if (problem.message !== null) problems.set(problem.message, [...(problems.get(problem.message) ?? []), problem]);
        }
      }
      if (changed.has("messages")) asked = new Set();
      const before = digits;
      if (changed.has("messages")) digits = Math.max(digits, digitsOf(messages.ts, messages.length));
      const merged = messages.merges !== merges;
      merges = messages.merges;
      const looks = newNames() || merged || digits !== before || ["head", "theme", "q"].some((name) => changed.has(name));
      if (changed.has("rows") || changed.has("messages") || looks) replace(looks);
      const at = selectedAt();
      const top = at < 0 ? null : list.topOf(at);
      details.update(changed);
      list.resize(top === null ? list.at : at, top === null ? list.offset : -top);
      if (at >= 0 && changed.has("at") && changed.has("view")) list.center(at);
      else if (at >= 0 && (changed.has("at") || changed.has("view"))) list.reveal(at);
      for (let each = list.first; each < list.end; each += 1) select(each);
    },
    key(event) {
      return isForPage(event) && (details.key?.(event) || pressed(event));
    },
  };

  /** Return whether there are new names; short names of channels and the width of the names are then known. */
  function newNames() {
    const { agents, channels: known } = messages.names;
    const count = agents.length + known.length;
    if (count === named) return false;
    named = count;
    const texts = agents.map((agent) => agent?.text ?? "");
    channels = known.length > 2 ? channelLabels(known.map((name) => name ?? ""), new Set(texts.filter((text) => text))) : [];
    const name = texts.reduce((most, text) => Math.max(most, text.length), 0);
    const channel = channels.reduce((most, { agent, text, rest }) => Math.max(most, (agent ? rest : text).length), 0);
    const width = Math.max(name * (messages.to.some((to) => to > 0) ? 2 : 1) + 4, channel * 0.9);
    element.style.setProperty("--who", `${Math.max(6, Math.min(26, width))}ch`);
    return true;
  }
}

/**
 * Return the digits of the second that times need: -1 if not even the second, else 0, 3 or 6.
 * @param {BigInt64Array} ts @param {number} length
 */
export function digitsOf(ts, length) {
  const step = Math.max(Math.floor(length / 500), 1);
  let found = -1;
  for (let row = 0; row < length; row += step) {
    if (ts[row] % 60_000_000_000n === 0n) continue;
    found = Math.max(found, ts[row] % 1_000_000_000n === 0n ? 0 : 3);
    if (found === 3) break;
  }
  return found;
}
