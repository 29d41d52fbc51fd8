/** Spans of an axis: begins and ends. */

/** Return spans of which those that overlap are one. @param {[number, number][]} spans @returns {[number, number][]} */
export function joined(spans) {
  /** @type {[number, number][]} */
  const found = [];
  for (const [begin, end] of spans.sort((a, b) => a[0] - b[0])) {
    const last = found.at(-1);
    if (last !== undefined && begin <= last[1]) last[1] = Math.max(last[1], end);
    else found.push([begin, end]);
  }
  return found;
}
