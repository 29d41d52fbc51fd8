/** Ranges of time as text: `2006-04-30 11:29 - 12:00`. They are UTC and half-open. */

import { dayText, timeText } from "./time.js";

const SECOND = 1_000_000_000n;
const MINUTE = 60n * SECOND;
const DAY = 1440n * MINUTE;
const TIME = /^(?:(\d{4,6}-\d\d-\d\d)(?:[ T]+|$))?(?:(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s*(?:Z|UTC)?$/i;
const BETWEEN = /\s+(?:-|to|until)(?:\s+|$)|\s*(?:–|—|\.\.+|→)\s*|(?<=:\d\d(?:\.\d+)?)-(?=\d)/;

/**
 * Return a range that a person typed; null if it is none. A single time is the day, minute or second that it names, and
 * a missing end is open.
 * @param {string} text
 * @param {bigint} near a time of the day that is meant where none is given
 * @returns {{ since: bigint | null, until: bigint | null } | null}
 */
export function parseRange(text, near) {
  const [first, second, ...more] = text.trim().replace(/^until\s+/i, "- ").replace(/^from\s+/i, "").replace(/^-/, " -").split(BETWEEN);
  if (more.length || text.trim() === "") return null;
  const begin = first.trim() === "" ? null : parseTime(first.trim(), near);
  if (first.trim() !== "" && begin === null) return null;
  if (second === undefined) {
    if (/^from\s/i.test(text.trim())) return { since: begin?.ts ?? null, until: null };
    return begin && { since: begin.ts, until: begin.ts + begin.length };
  }
  if (second.trim() === "") return begin && { since: begin.ts, until: null };
  const end = parseTime(second.trim(), begin?.ts ?? near);
  if (end === null) return null;
  const until = end.length === DAY ? end.ts + DAY : end.ts;
  return begin !== null && until <= begin.ts ? null : { since: begin?.ts ?? null, until };
}

/** @param {string} text @param {bigint} near */
function parseTime(text, near) {
  const found = TIME.exec(text);
  if (found === null || text === "") return null;
  const [, day, hour, minute, second, fraction] = found;
  if (day === undefined && hour === undefined) return null;
  const midnight = Date.parse(`${day ?? dayText(near)}T00:00:00Z`);
  if (Number.isNaN(midnight) || Number(hour ?? 0) > 24 || Number(minute ?? 0) > 59 || Number(second ?? 0) > 59) return null;
  const seconds = BigInt(hour ?? 0) * 3600n + BigInt(minute ?? 0) * 60n + BigInt(second ?? 0);
  const ts = BigInt(midnight) * 1_000_000n + seconds * SECOND + BigInt((fraction ?? "").padEnd(9, "0"));
  const length = hour === undefined ? DAY : second === undefined ? MINUTE : fraction === undefined ? SECOND : 10n ** BigInt(9 - fraction.length);
  return { ts, length };
}

/** Return a range as `parseRange` reads it. @param {bigint | null} since @param {bigint | null} until */
export function rangeText(since, until) {
  if (since === null) return until === null ? "" : `until ${whenText(until)}`;
  if (until === null) return `from ${whenText(since)}`;
  const end = dayText(since) === dayText(until) ? clockText(until) : whenText(until);
  return `${whenText(since)} - ${end}`;
}

/** @param {bigint} ts */
function whenText(ts) {
  return `${dayText(ts)} ${clockText(ts)}`;
}

/** Return the time of day with the digits that it has. @param {bigint} ts */
function clockText(ts) {
  if (ts % MINUTE === 0n) return timeText(ts, 0).slice(0, 5);
  return ts % SECOND === 0n ? timeText(ts, 0) : timeText(ts, 9).replace(/0+$/, "");
}
