/** Ticks and labels of a time axis, from years to nanoseconds, and the lengths of its bars. UTC. */

import { durationText } from "./time.js";

/** @typedef {import("./time_axis.js").Viewport} Viewport */
/** @typedef {{ x: number, ts: bigint, text: string, under: string }} Tick */

const S = 1_000_000_000n;
const DAY = 86_400n * S;
/** 1970-01-05 was a Monday. */
const MONDAY = 4n * DAY;

/** Lengths that divide time into round parts, in ns, ascending. */
export const LENGTHS = [
  ...Array.from({ length: 9 }, (_, power) => [1n, 2n, 5n].map((times) => times * 10n ** BigInt(power))).flat(),
  ...[1n, 2n, 5n, 10n, 15n, 30n].map((seconds) => seconds * S),
  ...[1n, 2n, 5n, 10n, 15n, 30n].map((minutes) => minutes * 60n * S),
  ...[1n, 2n, 3n, 6n, 12n].map((hours) => hours * 3600n * S),
  ...[1n, 2n, 7n, 14n, 28n, 84n, 364n].map((days) => days * DAY),
];

/** Steps of ticks: a length in ns, or a number of months. */
const STEPS = [
  ...LENGTHS.filter((length) => length <= 14n * DAY && length !== 2n * DAY).map((ns) => ({ ns, months: 0 })),
  ...[1, 3, 6, 12, 24, 60, 120, 240, 600, 1200].map((months) => ({ ns: (BigInt(months) * 30436875n * DAY) / 1000000n, months })),
];

/** Return the shortest round length that is at least so long. @param {number} ns */
export function roundLength(ns) {
  return LENGTHS.find((length) => Number(length) >= ns) ?? LENGTHS[LENGTHS.length - 1];
}

/** Return a time rounded down to a multiple of a length; weeks begin on Monday. @param {bigint} ts @param {bigint} length */
export function roundDown(ts, length) {
  const origin = length >= 7n * DAY ? MONDAY : 0n;
  const rest = (ts - origin) % length;
  return ts - (rest < 0n ? rest + length : rest);
}

/** Return a time rounded to what one pixel can tell. @param {bigint} ts @param {number} scale pixels per ns */
export function roundTime(ts, scale) {
  const length = LENGTHS.findLast((one) => Number(one) <= 1 / scale && one <= DAY) ?? 1n;
  return roundDown(ts + length / 2n, length);
}

/** Return the length of bars as text: 5 min, 1 day, 2 weeks. @param {bigint} length */
export function lengthText(length) {
  if (length % (7n * DAY) === 0n) return length === 7n * DAY ? "week" : `${length / (7n * DAY)} weeks`;
  if (length % DAY === 0n) return length === DAY ? "day" : `${length / DAY} days`;
  const units = /** @type {[bigint, string][]} */ ([[3600n * S, "hour"], [60n * S, "minute"], [S, "second"]]);
  for (const [unit, name] of units) {
    if (length % unit === 0n) return length === unit ? name : `${length / unit} ${name}s`;
  }
  return durationText(Number(length));
}

/**
 * Return the ticks of a viewport, by place, with at least so much space between labels.
 * @param {Viewport} viewport
 * @returns {Tick[]}
 */
export function ticksOf(viewport) {
  const step = STEPS.find(({ ns }) => Number(ns) * viewport.scale >= spaceOf(ns)) ?? STEPS[STEPS.length - 1];
  const space = spaceOf(step.ns);
  /** @type {{ x: number, ts: bigint }[]} */
  const places = [];
  const spans = viewport.spans();
  // the begin of a piece behind a cut tells where one is
  for (const span of spans.slice(spans.length > 1 && viewport.x(spans[0].until) < space ? 0 : 1)) add(span.since);
  for (const span of spans) for (const ts of multiples(step, span.since, span.until)) add(ts);
  places.sort((a, b) => a.x - b.x);
  if (places.length === 0) places.push({ x: 0, ts: viewport.ts(0) });
  let before = "";
  return places.map(({ x, ts }) => {
    const [text, context] = labelsOf(ts, step);
    const under = context === before ? "" : context;
    before = context;
    return { x, ts, text, under };
  });

  /** @param {bigint} ts */
  function add(ts) {
    const x = viewport.x(ts);
    if (x < 0 || x > viewport.width - (space > 100 ? 34 : 18)) return;
    if (places.every((other) => Math.abs(other.x - x) >= space * 0.98)) places.push({ x, ts });
  }
}

/** Return the pixels that labels need. @param {bigint} step */
function spaceOf(step) {
  return step < S ? 128 : 80;
}

/** @param {{ ns: bigint, months: number }} step @param {bigint} since @param {bigint} until */
function* multiples(step, since, until) {
  if (step.months === 0) {
    let ts = roundDown(since, step.ns);
    if (ts < since) ts += step.ns;
    for (; ts < until; ts += step.ns) yield ts;
    return;
  }
  const first = new Date(Number(since / 1_000_000n));
  const months = first.getUTCFullYear() * 12 + first.getUTCMonth();
  for (let month = months - (months % step.months); ; month += step.months) {
    const ts = BigInt(Date.UTC(Math.floor(month / 12), month % 12)) * 1_000_000n;
    if (ts >= until) return;
    if (ts >= since) yield ts;
  }
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Return label and context of a tick. @param {bigint} ts @param {{ ns: bigint, months: number }} step */
function labelsOf(ts, step) {
  const whole = ts - (((ts % S) + S) % S);
  const date = new Date(Number(whole / 1_000_000n));
  const year = String(date.getUTCFullYear());
  const month = MONTHS[date.getUTCMonth()];
  const day = `${date.getUTCDate()} ${month}`;
  const clock = date.toISOString().slice(11, 19);
  if (step.months >= 12) return [year, ""];
  if (step.months) return [month, year];
  if (step.ns >= DAY) return [day, year];
  if (step.ns >= 60n * S) return [clock.slice(0, 5), `${day} ${year}`];
  if (step.ns >= S) return [clock, `${day} ${year}`];
  return [partText(ts - whole, step.ns), `${day} ${clock}`];
}

/** Return a part of a second, exact to the step: 20 ms, 20.505 ms. @param {bigint} part @param {bigint} step */
function partText(part, step) {
  const digits = step >= 1_000_000n ? 0 : step >= 1_000n ? 3 : 6;
  const fraction = String(part % 1_000_000n).padStart(6, "0").slice(0, digits);
  return `${part / 1_000_000n}${digits ? "." : ""}${fraction} ms`;
}
