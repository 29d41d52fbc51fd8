/** Bars of the timeline: messages by slot of time, and by sender or channel. */

import { lowest } from "./filter.js";
import { NO_SENDER, othersText } from "./speaker.js";
import { nsOf } from "./time.js";
import { roundDown, roundLength } from "./time_ticks.js";

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./types").App} App */
/** @typedef {import("./time_axis.js").Span} Span */
/** @typedef {import("./time_axis.js").Viewport} Viewport */
/** @typedef {"from" | "channel"} By */

/** Names that have a series of their own. */
export const OWN = 11;
const NO_CHANNEL = "no channel";
/** Width of a bar in pixels, at least. */
const NARROWEST = 3;

/** Names that have a series, largest first. */
export class Ranking {
  /** @param {{ at: number, label: string }[]} names positions in `names` @param {number} others number of other names */
  constructor(names, others) {
    this.names = names;
    this.others = others;
  }
}

/**
 * Rank names by their number of messages; the wanted ones come first.
 * @param {Messages} messages @param {By} by @param {number[]} wanted positions
 */
export function rankingOf(messages, by, wanted) {
  const names = messages[by];
  const known = by === "from" ? messages.names.agents.length : messages.names.channels.length;
  const totals = new Float64Array(known);
  for (let row = 0; row < messages.length; row += 1) totals[names[row]] += 1;
  const first = new Set(wanted);
  const found = [...totals.keys()].filter((at) => totals[at] > 0);
  found.sort((a, b) => Number(first.has(b)) - Number(first.has(a)) || totals[b] - totals[a] || a - b);
  const kept = found.length <= OWN + 1 ? found : found.slice(0, OWN);
  const none = by === "channel" ? NO_CHANNEL : kept.includes(0) ? othersText(messages) : "";
  return new Ranking(kept.map((at) => ({ at, label: at ? nameOf(messages, by, at) : none })), found.length - kept.length);
}

/** Return the name at a position above 0. @param {Messages} messages @param {By} by @param {number} at */
function nameOf({ names }, by, at) {
  return (by === "from" ? names.agents[at]?.text : names.channels[at]) ?? "unknown";
}

/** Counts of messages in slots. */
export class Bars {
  /** @param {bigint} length ns of a slot @param {Span[]} slots ascending @param {{ at: number, label: string, counts: Float64Array }[]} series */
  constructor(length, slots, series) {
    this.length = length;
    this.slots = slots;
    this.series = series;
    /** Counts of a series and of those before it. */
    this.sums = series.map(() => new Float64Array(slots.length));
    series.forEach(({ counts }, number) => {
      for (let slot = 0; slot < slots.length; slot += 1) {
        this.sums[number][slot] = counts[slot] + (number ? this.sums[number - 1][slot] : 0);
      }
    });
    const totals = this.sums.at(-1) ?? new Float64Array(0);
    this.highest = totals.reduce((a, b) => Math.max(a, b), 0);
  }

  /** Return the slot at a time; -1 for none. @param {bigint} ts */
  slotAt(ts) {
    return this.slots.findIndex(({ since, until }) => since <= ts && ts < until);
  }

  /** Return the messages in a slot. @param {number} slot */
  total(slot) {
    return this.sums.at(-1)?.[slot] ?? 0;
  }
}

/** Return slots of a round length for what a viewport shows. @param {Viewport} viewport */
function slotsOf(viewport) {
  const length = roundLength(NARROWEST / viewport.scale);
  /** @type {Span[]} */
  const slots = [];
  for (const span of viewport.spans()) {
    for (let since = roundDown(span.since, length); since < span.until; since += length) {
      const last = slots.at(-1);
      if (last === undefined || last.since < since) slots.push({ since, until: since + length });
    }
  }
  return { length, slots };
}

/**
 * Count rows by slot.
 * @param {Messages} messages @param {Int32Array} rows ascending
 * @param {Viewport} viewport @param {By} by @param {Ranking} ranking
 */
export function barsOf(messages, rows, viewport, by, ranking) {
  const { length, slots } = slotsOf(viewport);
  const series = ranking.names.map((name) => ({ ...name, counts: new Float64Array(slots.length) }));
  const places = new Int32Array(names(messages, by)).fill(series.length);
  ranking.names.forEach(({ at }, place) => (places[at] = place));
  const label = `${ranking.others} others`;
  if (ranking.others) series.push({ at: -1, label, counts: new Float64Array(slots.length) });
  const column = messages[by];
  const counts = series.map((one) => one.counts);
  slots.forEach(({ since, until }, slot) => {
    const end = lowest(messages.ts, rows, until);
    for (let at = lowest(messages.ts, rows, since); at < end; at += 1) counts[places[column[rows[at]]]][slot] += 1;
  });
  return new Bars(length, slots, series);
}

/** @param {Messages} messages @param {By} by */
function names(messages, by) {
  return by === "from" ? messages.names.agents.length : messages.names.channels.length;
}

/**
 * Ask the source for the counts of a viewport without cuts. The source chooses the slots.
 * @param {App} app @param {Viewport} viewport @param {By | "all"} by
 */
export async function askedBars(app, viewport, by) {
  const { slots } = slotsOf(viewport);
  const found = await app.source.activity(app.filter, slots[0].since, slots[slots.length - 1].until, slots.length, by);
  const length = BigInt(Math.max(Math.round(found.length * 1e9), 1));
  const first = nsOf(found.starts[0] ?? 0);
  const starts = Array.from(found.starts, (_, at) => first + BigInt(at) * length);
  const none = by === "from" ? NO_SENDER : NO_CHANNEL;
  const series = found.series.map((one) => (one.at === 0 ? { ...one, label: none } : one));
  return new Bars(length, starts.map((since) => ({ since, until: since + length })), series);
}
