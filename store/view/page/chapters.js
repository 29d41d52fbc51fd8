/** What stands between messages: new days, marks, and gaps. */

import { h, visible } from "./dom.js";
import { shortTime } from "./message_item.js";
import { dayText, durationText, plural, timeText } from "./time.js";

/** @typedef {import("./types").Head} Head */
/** @typedef {import("./types").Mark} Mark */
/** @typedef {import("./types").Gap} Gap */

/** Marks and gaps shown between two messages; more are counted. */
const SHOWN = 6;
const WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

export class Chapters {
  /** @param {Head} head */
  constructor(head) {
    const marks = head.marks.map((mark) => ({ ts: BigInt(mark.ts), mark, gap: null }));
    const gaps = head.gaps.map((gap) => ({ ts: BigInt(gap.ts), mark: null, gap }));
    /** @type {{ ts: bigint, mark: Mark | null, gap: Gap | null }[]} */
    this.all = [...marks, ...gaps].sort((a, b) => (a.ts < b.ts ? -1 : a.ts > b.ts ? 1 : 0));
  }

  /**
   * Return the elements of marks and gaps after one time until another; null is begin or end.
   * @param {bigint | null} since @param {bigint | null} until @param {number} digits
   */
  between(since, until, digits) {
    const first = since === null ? 0 : this._after(since);
    const end = until === null ? this.all.length : this._after(until);
    const shown = this.all.slice(Math.max(first, end - SHOWN), end);
    const elements = shown.map(({ ts, mark, gap }) => (mark ? markLine(ts, mark, digits) : gapLine(/** @type {Gap} */ (gap))));
    const more = end - first - shown.length;
    if (more > 0) elements.unshift(h("p", { class: "chapter" }, `${plural(more, "more mark")} and gaps`));
    return elements;
  }

  /** @param {bigint} ts */
  _after(ts) {
    let low = 0;
    let high = this.all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.all[middle].ts <= ts) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** @param {bigint} ts @param {Mark} mark @param {number} digits */
function markLine(ts, mark, digits) {
  const name = h("bdi", { class: "chapter-name" }, visible(mark.label || mark.text));
  const rest = mark.text === mark.label ? "" : visible(mark.text.startsWith(mark.label) ? mark.text.slice(mark.label.length) : mark.text);
  return h(
    "p",
    { class: "chapter", role: "separator", "aria-label": `mark ${visible(mark.label)}` },
    name,
    rest.trim() ? h("bdi", { class: "quiet" }, rest) : null,
    h("span", { class: "quiet" }, shortTime(ts, digits)),
  );
}

/** @param {Gap} gap */
function gapLine(gap) {
  const [since, until] = [BigInt(gap.since), BigInt(gap.until)];
  const count = gap.count === null ? "messages may be missing" : `${plural(gap.count, "message")} missing`;
  const text = `Gap of ${durationText(Number(until - since))}: ${count} in recorder ${gap.recorder}`;
  return h(
    "p",
    { class: "gap", role: "separator", "aria-label": text, title: `${timeText(since, 9)} to ${timeText(until, 9)}` },
    text,
    gap.reason ? h("bdi", {}, ` (${visible(gap.reason)})`) : null,
  );
}

/** Return the line of a new day. @param {bigint} ts */
export function dayLine(ts) {
  const day = dayText(ts);
  const weekday = WEEKDAYS[new Date(`${day}T00:00:00Z`).getUTCDay()];
  return h("p", { class: "day", role: "separator" }, h("span", {}, weekday ? `${weekday} ${day}` : day));
}
