/** Numbers of messages by sender and recipient, channel, or the speaker before, as a table of limited size. */

import { crossed } from "./counting.js";
import { isExchanged } from "./filter.js";

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {{ from: number, to: number, count: number }} Pair */
/** @typedef {"to" | "channel" | "after"} Across */
/**
 * A row or a column: `at` is a position in `names`, 0 for none, -1 for the others.
 * @typedef {{ at: number, total: number }} Line
 */
/**
 * @typedef {object} Table
 * @property {Line[]} rows
 * @property {Line[]} columns
 * @property {Float64Array} cells row by row
 * @property {number} total
 * @property {number} largest the largest count of two names
 * @property {number} rowNames number of all names that are known
 * @property {number} columnNames
 */

/** Names in a row or a column of the table; the rest is one more. */
export const MOST = 40;

/**
 * Count rows by sender and by the sender of the message before on the same channel.
 * @param {Messages} messages
 * @param {Int32Array} rows
 * @returns {Pair[]} `to` is the position of the speaker before, 0 if there is none
 */
export function turnPairs(messages, rows) {
  const { from, channel, kind, length } = messages;
  const last = new Uint32Array(messages.names.channels.length);
  const before = new Uint32Array(length);
  for (let row = 0; row < length; row += 1) {
    before[row] = last[channel[row]];
    if (isExchanged(kind[row])) last[channel[row]] = from[row];
  }
  return crossed(rows, from, before);
}

/** Return the number of channels of the messages that the page has. @param {Messages} messages */
export function channelsOf(messages) {
  const seen = new Uint8Array(messages.names.channels.length);
  for (let row = 0; row < messages.length; row += 1) seen[messages.channel[row]] = 1;
  return seen.subarray(1).reduce((sum, one) => sum + one, 0);
}

/**
 * Return what to count by if nobody has chosen: the recipient where any is known, else the channel, or in one channel
 * the speaker before.
 * @param {Pair[]} pairs by recipient
 * @param {number} channels
 * @returns {Across}
 */
export function usual(pairs, channels) {
  if (pairs.length === 0 || pairs.some(({ to }) => to > 0)) return "to";
  return channels > 1 ? "channel" : "after";
}

/**
 * Return a table of pairs. Rows and columns of agents have the same order, by activity; others and none come last.
 * @param {Pair[]} pairs
 * @param {{ agents?: boolean, keep?: number[], most?: number }} [how] `agents`: columns are agents too;
 *   `keep`: positions that are never among the others
 * @returns {Table}
 */
export function tableOf(pairs, { agents = true, keep = [], most = MOST } = {}) {
  /** @type {Map<number, number>} */
  const sent = new Map();
  /** @type {Map<number, number>} */
  const got = new Map();
  let total = 0;
  for (const { from, to, count } of pairs) {
    sent.set(from, (sent.get(from) ?? 0) + count);
    got.set(to, (got.get(to) ?? 0) + count);
    total += count;
  }
  /** @param {number} at */
  const activity = (at) => (sent.get(at) ?? 0) + (got.get(at) ?? 0);
  const shownRows = lines(sent, agents ? activity : null, keep, most);
  const shownColumns = lines(got, agents ? activity : null, agents ? keep : [], most);
  const rowOf = new Map(shownRows.map(({ at }, place) => [at, place]));
  const columnOf = new Map(shownColumns.map(({ at }, place) => [at, place]));
  const cells = new Float64Array(shownRows.length * shownColumns.length);
  for (const { from, to, count } of pairs) {
    const row = rowOf.get(from) ?? /** @type {number} */ (rowOf.get(-1));
    const column = columnOf.get(to) ?? /** @type {number} */ (columnOf.get(-1));
    cells[row * shownColumns.length + column] += count;
  }
  let largest = 0;
  cells.forEach((count, cell) => {
    const row = shownRows[Math.floor(cell / shownColumns.length)].at;
    if (row > 0 && shownColumns[cell % shownColumns.length].at > 0) largest = Math.max(largest, count);
  });
  const names = (/** @type {Map<number, number>} */ totals) => totals.size - (totals.has(0) ? 1 : 0) - (totals.has(-1) ? 1 : 0);
  return {
    rows: shownRows, columns: shownColumns, cells, total, largest, rowNames: names(sent), columnNames: names(got),
  };
}

/**
 * Return the most active names as nodes, the most active first, and the pairs of different ones as edges between them,
 * the largest count first. If columns are channels, each channel is a node too.
 * @param {Pair[]} pairs
 * @param {number} most nodes
 * @param {{ agents?: boolean }} [how] `agents`: columns are agents too
 */
export function network(pairs, most, { agents = true } = {}) {
  /** @type {Map<string, { side: "from" | "to", at: number, count: number }>} */
  const found = new Map();
  /** @param {"from" | "to"} given @param {number} at */
  const node = (given, at) => {
    const side = agents ? "from" : given;
    const known = found.get(`${side} ${at}`) ?? { side, at, count: 0 };
    found.set(`${side} ${at}`, known);
    return known;
  };
  const ends = pairs.map(({ from, to, count }) => {
    const one = from > 0 ? node("from", from) : null;
    const other = to > 0 ? node("to", to) : null;
    if (one) one.count += count;
    if (other && other !== one) other.count += count;
    return { one, other, from, to, count };
  });
  const nodes = [...found.values()].sort((a, b) => b.count - a.count || a.at - b.at).slice(0, most);
  const placeOf = new Map(nodes.map((each, place) => [each, place]));
  const edges = [];
  for (const { one, other, from, to, count } of ends) {
    if (one === null || other === null || one === other) continue;
    const [begin, end] = [placeOf.get(one), placeOf.get(other)];
    if (begin !== undefined && end !== undefined) edges.push({ begin, end, from, to, count });
  }
  edges.sort((a, b) => b.count - a.count || a.from - b.from || a.to - b.to);
  return { nodes, edges, names: found.size };
}

/**
 * @param {Map<number, number>} totals
 * @param {((at: number) => number) | null} activity by which the names are ranked; null for their totals
 * @param {number[]} keep
 * @param {number} most
 * @returns {Line[]}
 */
function lines(totals, activity, keep, most) {
  const rank = activity ?? ((/** @type {number} */ at) => totals.get(at) ?? 0);
  const kept = new Set(keep);
  const ranked = [...totals]
    .filter(([at]) => at > 0)
    .sort(([a], [b]) => Number(kept.has(b)) - Number(kept.has(a)) || rank(b) - rank(a) || a - b);
  const shown = ranked.length <= most + 1 ? ranked : ranked.slice(0, most);
  shown.sort(([a], [b]) => rank(b) - rank(a) || a - b);
  const found = shown.map(([at, total]) => ({ at, total }));
  const shownNames = new Set(shown.map(([at]) => at));
  let rest = totals.get(-1) ?? 0;
  for (const [at, total] of ranked) if (!shownNames.has(at)) rest += total;
  if (rest) found.push({ at: -1, total: rest });
  const none = totals.get(0);
  if (none !== undefined) found.push({ at: 0, total: none });
  return found;
}
