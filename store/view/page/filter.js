/** The filter of the page: from the state, and the rows that fit it. */

import { KINDS } from "./messages.js";

/** @typedef {import("./types").Filter} Filter */
/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./state.js").State} State */

/** Keys of the state that the filter depends on, besides its times. */
export const CONTENT_KEYS = ["q", "agent", "between", "channel", "kind"];
/** Keys of the state that the filter depends on. */
export const FILTER_KEYS = [...CONTENT_KEYS, "since", "until"];

/** @param {State} state @returns {Filter} */
export function filterOf(state) {
  return {
    q: state.get("q"),
    agents: state.all("agent"),
    between: state.all("between").slice(0, 2),
    channels: state.all("channel"),
    kinds: state.all("kind"),
    since: bigint(state.get("since")),
    until: bigint(state.get("until")),
  };
}

/** Return whether a filter has no conditions except on time. @param {Filter} filter */
function takesAll(filter) {
  const lists = [filter.agents, filter.between, filter.channels, filter.kinds];
  return filter.q === "" && lists.every((list) => list.length === 0);
}

/**
 * Return the rows that fit a filter, ascending.
 * @param {Messages} messages
 * @param {Filter} filter
 * @param {{ anyTime?: boolean }} [how] `anyTime`: ignore its times
 * @returns {Int32Array}
 */
export function rowsOf(messages, filter, { anyTime = false } = {}) {
  const first = anyTime || filter.since === null ? 0 : messages.rowAt(filter.since);
  const end = anyTime || filter.until === null ? messages.length : messages.rowAt(filter.until);
  const found = new Int32Array(Math.max(end - first, 0));
  if (takesAll(filter)) {
    for (let row = first; row < end; row += 1) found[row - first] = row;
    return found;
  }
  const hits = filter.q === "" ? null : messages.search(filter.q);
  const agents = positions(filter.agents, messages.agentAt);
  const channels = positions(filter.channels, messages.channelAt);
  const pair = filter.between.length === 2 ? filter.between.map((id) => messages.agentAt.get(id) ?? -1) : null;
  const kinds = filter.kinds.length ? new Set(filter.kinds.map((kind) => KINDS.indexOf(kind))) : null;
  const { from, to, channel, kind } = messages;
  let count = 0;
  for (let row = first; row < end; row += 1) {
    if (hits !== null && hits[row] === 0) continue;
    if (agents !== null && !agents.has(from[row]) && !agents.has(to[row])) continue;
    if (channels !== null && !channels.has(channel[row])) continue;
    if (kinds !== null && !kinds.has(kind[row])) continue;
    if (pair !== null && !isPair(pair, from[row], to[row])) continue;
    found[count] = row;
    count += 1;
  }
  return found.subarray(0, count);
}

/**
 * Return those of some rows that count as messages: blocked and failed ones only if the filter asks for kinds.
 * @param {Messages} messages
 * @param {Int32Array} rows
 * @param {Filter} filter
 */
export function countedRows({ kind }, rows, { kinds }) {
  return kinds.length ? rows : rows.filter((row) => isExchanged(kind[row]));
}

/** Return whether a message was exchanged, by the code of its kind: neither blocked nor failed. @param {number} kind */
export function isExchanged(kind) {
  return KINDS[kind] !== "blocked" && KINDS[kind] !== "failed";
}

/**
 * Return those of some rows, ascending, that are in the time of a filter.
 * @param {Messages} messages
 * @param {Int32Array} rows
 * @param {Filter} filter
 */
export function rowsWithin({ ts }, rows, { since, until }) {
  const first = since === null ? 0 : lowest(ts, rows, since);
  return rows.subarray(first, until === null ? rows.length : Math.max(lowest(ts, rows, until), first));
}

/** Return the first place in `rows` at or after a time. @param {BigInt64Array} times @param {Int32Array} rows @param {bigint} ts */
export function lowest(times, rows, ts) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[rows[middle]] < ts) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {number[]} pair @param {number} from @param {number} to */
function isPair([one, other], from, to) {
  return (from === one && to === other) || (from === other && to === one);
}

/** @param {string[]} names @param {Map<string, number>} known */
function positions(names, known) {
  return names.length ? new Set(names.map((name) => known.get(name) ?? -1)) : null;
}

/** @param {string} text */
function bigint(text) {
  return /^-?\d{1,19}$/.test(text) ? BigInt(text) : null;
}
