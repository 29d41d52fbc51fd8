/** Times and durations as text. Times are ns UTC as BigInt. */

const SECOND = 1_000_000_000n;
/** Hours. */
const YEAR = 24 * 365.25;

/** @param {bigint} ts */
function date(ts) {
  const ms = ts / 1_000_000n - (ts % 1_000_000n < 0n ? 1n : 0n);
  const found = new Date(Number(ms));
  return Number.isNaN(found.getTime()) ? null : found;
}

/** Return `2026-03-01`. @param {bigint} ts */
export function dayText(ts) {
  return date(ts)?.toISOString().slice(0, -14) ?? `${ts} ns`;
}

/**
 * Return `08:02:20.500`, with the given number of digits after the second: 0, 3, 6 or 9.
 * @param {bigint} ts
 * @param {number} [digits]
 */
export function timeText(ts, digits = 3) {
  const found = date(ts);
  if (found === null) return `${ts} ns`;
  const clock = found.toISOString().slice(-13, -5);
  if (digits === 0) return clock;
  const fraction = ((ts % SECOND) + SECOND) % SECOND;
  return `${clock}.${fraction.toString().padStart(9, "0").slice(0, digits)}`;
}

/** Return day and time with all nine digits. @param {bigint} ts */
export function exactText(ts) {
  return `${dayText(ts)} ${timeText(ts, 9)} UTC`;
}

/** Return a duration in ns as text: 3.2 ms, 12 s, 3 min 39 s, 5 h 27 min, 13.3 years. @param {number} ns */
export function durationText(ns) {
  const sign = ns < 0 ? "-" : "";
  const size = Math.abs(ns);
  for (const [unit, factor] of /** @type {[string, number][]} */ ([["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]])) {
    const value = size / factor;
    if (value < 999.5 && (unit !== "s" || value < 119.5)) return `${sign}${Number(value.toPrecision(3))} ${unit}`;
  }
  const seconds = Math.round(size / 1e9);
  if (seconds < 600 && seconds % 60) return `${sign}${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const minutes = Math.round(size / 60e9);
  if (minutes < 120) return `${sign}${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${sign}${hours} h ${minutes % 60} min`;
  if (hours >= 2 * YEAR) return `${sign}${(hours / YEAR).toFixed(1)} years`;
  return `${sign}${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Return seconds UTC as ns. @param {number} seconds */
export function nsOf(seconds) {
  return BigInt(Math.round(seconds * 1e6)) * 1000n;
}

/** Return a number with commas. @param {number} value */
export function numberText(value) {
  return COMMAS.format(value);
}

/** Return a number with its noun. @param {number} value @param {string} noun */
export function plural(value, noun) {
  return `${numberText(value)} ${noun}${value === 1 ? "" : "s"}`;
}

const COMMAS = new Intl.NumberFormat("en-US");
