/** Messages that the sequence brings out: the selected one, what its sender knew, and who told whom. */

/** @typedef {import("./knowledge.js").Chain} Chain */
/** @typedef {import("./knowledge.js").Heard} Heard */
/** @typedef {import("./knowledge.js").Knowledge} Knowledge */

/** @typedef {{ weight: 1 | 2 | 3, tag: string }} Emphasis Line width, and a sign beside the time. */

/** Messages that are brought out, at most. */
const MOST = 300;
/** Steps back, at most. */
export const DEEPEST = 9;

/**
 * @typedef {object} Highlight
 * @property {{ row: number, heard: Heard }[][]} levels what was heard before the selected message, then before each of
 *   those, and so on
 * @property {{ rows: number[], missing: boolean }} causes of the selected message
 * @property {Chain | null} chain
 * @property {Map<number, Emphasis>} rows empty if nothing is brought out beside the selected message
 */

/**
 * @param {Knowledge} knowledge
 * @param {number} selected row; -1 for none
 * @param {number} steps number of levels
 * @param {Chain | null} chain
 * @returns {Highlight}
 */
export function highlightOf(knowledge, selected, steps, chain) {
  /** @type {Highlight} */
  const found = { levels: [], causes: { rows: [], missing: false }, chain, rows: new Map() };
  const { rows } = found;
  chain?.steps.forEach(({ row }, at) => rows.set(row, { weight: 2, tag: String(at + 1) }));
  if (chain !== null && chain.first >= 0 && !rows.has(chain.first)) rows.set(chain.first, { weight: 2, tag: "★" });
  if (selected < 0) return found;
  found.causes = knowledge.causes(selected);
  for (const row of found.causes.rows) rows.set(row, { weight: 2, tag: "c" });
  let asked = [selected];
  const seen = new Set(asked);
  for (let level = 0; level < steps && asked.length > 0; level += 1) {
    const answers = asked.map((row) => ({ row, heard: knowledge.heard(row) }));
    // A fallback of a fallback would say nothing.
    const kept = level === 0 ? answers : answers.filter(({ heard }) => heard.known && heard.told.length > 0);
    if (kept.length === 0) break;
    found.levels.push(kept);
    asked = [];
    for (const { heard } of kept) {
      heard.told.forEach(({ row }, at) => {
        if (seen.has(row) || seen.size > MOST) return;
        seen.add(row);
        asked.push(row);
        const last = level === 0 && at === heard.told.length - 1;
        if (!rows.has(row)) rows.set(row, { weight: last ? 3 : level === 0 ? 2 : 1, tag: "•".repeat(Math.min(level + 1, 3)) });
      });
    }
    asked.sort((a, b) => a - b);
  }
  if (rows.size > 0) rows.set(selected, { weight: 3, tag: rows.get(selected)?.tag ?? "◆" });
  return found;
}

/** Return rows and further ones, ascending. @param {Int32Array} rows @param {Iterable<number>} more */
export function withRows(rows, more) {
  const sorted = Int32Array.from(new Set(more)).sort();
  if (sorted.length === 0) return rows;
  const found = new Int32Array(rows.length + sorted.length);
  let length = 0;
  for (let at = 0, extra = 0; at < rows.length || extra < sorted.length; length += 1) {
    const next = at === rows.length ? sorted[extra] : extra === sorted.length ? rows[at] : Math.min(rows[at], sorted[extra]);
    found[length] = next;
    if (rows[at] === next) at += 1;
    if (sorted[extra] === next) extra += 1;
  }
  return found.subarray(0, length);
}
