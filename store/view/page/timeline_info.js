/** What the timeline says in words: of the slot under the pointer, and of the chosen range. */

import { colourOf } from "./colours.js";
import { h, label, visible } from "./dom.js";
import { dayText, durationText, numberText, plural, timeText } from "./time.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").Gap} Gap */
/** @typedef {import("./time_axis.js").Span} Span */
/** @typedef {import("./time_axis.js").Viewport} Viewport */
/** @typedef {import("./timeline_bars.js").Bars} Bars */

/** Names in the box at the pointer. */
const NAMES = 6;

/** ns */
const DAY = 86_400e9;

/** Return a span as text, as exact as its length asks for. @param {Span} span */
export function spanText({ since, until }) {
  const length = Number(until - since);
  const digits = length >= 60e9 ? 0 : length >= 1e9 ? 3 : length >= 1e6 ? 6 : 9;
  const text = (/** @type {bigint} */ ts) => {
    const time = timeText(ts, digits);
    return length >= DAY || (length >= 60e9 && time.endsWith(":00")) ? time.slice(0, -3) : time;
  };
  const [from, to] = [dayText(since), dayText(until)];
  if (from === to) return `${from} ${text(since)} – ${text(until)}`;
  if (text(since) === "00:00" && text(until) === "00:00") {
    const last = dayText(until - 1n);
    return last === from ? from : `${from} – ${last}`;
  }
  return `${from} ${text(since)} – ${to} ${text(until)}`;
}

/**
 * Return the gaps at a place.
 * @param {Gap[]} gaps @param {Viewport} viewport @param {number} x
 */
export function gapsAt(gaps, viewport, x) {
  return gaps.filter(({ since, until }) => viewport.x(BigInt(since)) <= x + 1 && viewport.x(BigInt(until)) >= x - 2);
}

/** A box at the pointer with the counts of a slot, and with gaps. */
export function pointerBox() {
  const element = h("div", { class: "timeline-box", "aria-hidden": "true", hidden: true });
  return {
    element,
    /** @param {Bars} bars @param {Gap[]} gaps @param {bigint} ts @param {number} x @param {number} width */
    show(bars, gaps, ts, x, width) {
      const slot = bars.slotAt(ts);
      const total = slot < 0 ? 0 : bars.total(slot);
      const lines = gaps.slice(0, 3).map((gap) => h("div", { class: "timeline-box-gap" }, gapText(gap)));
      if (total > 0) lines.push(...slotLines(bars, slot));
      element.hidden = lines.length === 0;
      element.replaceChildren(...lines);
      const left = x > width / 2;
      element.style.left = left ? "auto" : `${x + 14}px`;
      element.style.right = left ? `${width - x + 14}px` : "auto";
    },
    hide() {
      element.hidden = true;
    },
  };
}

/** @param {Gap} gap */
function gapText({ since, until, reason, count }) {
  const lost = count === null ? "" : ` · ${plural(count, "message")}`;
  return visible(`gap: ${reason} · ${durationText(Number(BigInt(until) - BigInt(since)))}${lost}`);
}

/** @param {Bars} bars @param {number} slot */
function slotLines(bars, slot) {
  const parts = bars.series
    .map(({ at, label: name, counts }) => ({ at, name, count: counts[slot] }))
    .filter(({ count }) => count > 0)
    .sort((a, b) => b.count - a.count);
  const lines = parts.slice(0, NAMES).map(({ at, name, count }) => {
    const swatch = h("span", { class: "swatch" });
    swatch.style.background = colourOf(at);
    return h("div", {}, swatch, `${numberText(count)} `, label(name));
  });
  if (parts.length > NAMES) lines.push(h("div", { class: "quiet" }, `and ${parts.length - NAMES} more`));
  const title = `${spanText(bars.slots[slot])} · ${plural(bars.total(slot), "message")}`;
  return [h("div", { class: "timeline-box-title" }, title), ...lines];
}

/**
 * The chosen range in words, with its buttons.
 * @param {App} app @param {() => void} zoom show the range over the whole width
 */
export function rangeInfo(app, zoom) {
  const text = h("span", {});
  const hint = h("span", { class: "timeline-hint" }, "· drag to choose a time");
  const button = (/** @type {string} */ name, /** @type {string} */ title, /** @type {() => void} */ click) =>
    h("button", { type: "button", title, "aria-label": title, on: { click } }, name);
  const buttons = [button("Zoom", "Zoom to the range", zoom), button("Clear", "Clear the range", () => app.state.set({ since: "", until: "" }))];
  const element = h("div", { class: "timeline-info quiet" }, text, hint, buttons);
  return {
    element,
    /** @param {Span} whole @param {string} otherwise what to say if there is no range */
    draw(whole, otherwise) {
      const { since, until } = app.filter;
      const chosen = since !== null || until !== null;
      for (const one of buttons) one.hidden = !chosen;
      hint.hidden = chosen;
      element.classList.toggle("chosen", chosen);
      if (!chosen) {
        text.textContent = otherwise;
        return;
      }
      const span = { since: since ?? whole.since, until: until ?? whole.until };
      const count = app.source.complete ? app.rows.length : app.source.total;
      const parts = [spanText(span), durationText(Number(span.until - span.since))];
      if (count !== null) parts.push(plural(count, "message"));
      text.textContent = parts.join(" · ");
    },
  };
}
