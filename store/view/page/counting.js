/** Counts of the messages that the page has: over time, and by sender and recipient. */

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./types").Activity} Activity */

/** Series of an activity; the rest is one more. */
const SERIES = 11;

/**
 * Count rows by bucket of time, and by sender or channel.
 * @param {Messages} messages
 * @param {Int32Array} rows
 * @param {bigint} since
 * @param {bigint} until
 * @param {number} buckets
 * @param {"from" | "channel"} by
 * @returns {Activity}
 */
export function activityOf(messages, rows, since, until, buckets, by) {
  const begin = Number(since / 1000n) / 1e6;
  const length = Math.max(Number(until - since) / 1e9 / buckets, 1e-9);
  const starts = Float64Array.from({ length: buckets }, (_, at) => begin + at * length);
  const names = messages[by];
  /** @type {Map<number, number>} */
  const totals = new Map();
  for (const row of rows) totals.set(names[row], (totals.get(names[row]) ?? 0) + 1);
  const largest = [...totals].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([at]) => at);
  const kept = largest.length <= SERIES + 1 ? largest : largest.slice(0, SERIES);
  const label = (/** @type {number} */ at) =>
    at === 0 ? "none" : by === "from" ? messages.names.agents[at].text : messages.names.channels[at];
  const series = kept.map((at) => ({ at, label: label(at), counts: new Float64Array(buckets) }));
  const placeOf = new Map(kept.map((at, place) => [at, place]));
  if (kept.length < largest.length) {
    series.push({ at: -1, label: `${largest.length - kept.length} others`, counts: new Float64Array(buckets) });
  }
  const { time } = messages;
  for (const row of rows) {
    const bucket = Math.floor((time[row] - begin) / length);
    if (bucket < 0 || bucket >= buckets) continue;
    series[placeOf.get(names[row]) ?? series.length - 1].counts[bucket] += 1;
  }
  return { starts, length, series };
}

/**
 * Count rows by sender, and across by recipient or channel: `to` is the position of either.
 * @param {Messages} messages
 * @param {Int32Array} rows
 * @param {"to" | "channel"} [across]
 */
export function pairsOf(messages, rows, across = "to") {
  return crossed(rows, messages.from, messages[across]);
}

/**
 * Count rows by two columns.
 * @param {Int32Array} rows
 * @param {Uint32Array} one
 * @param {Uint32Array} other
 */
export function crossed(rows, one, other) {
  /** @type {Map<number, { from: number, to: number, count: number }>} */
  const found = new Map();
  for (const row of rows) {
    const key = one[row] * 2 ** 26 + other[row];
    const pair = found.get(key);
    if (pair) pair.count += 1;
    else found.set(key, { from: one[row], to: other[row], count: 1 });
  }
  return [...found.values()].sort((a, b) => b.count - a.count);
}
