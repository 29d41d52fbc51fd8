/** Names of channels without what all of them have in common. */

const ENDS = [":", "/", "."];

/**
 * Return the names without their common first parts, and last parts; parts are separated by `:`, `/` or `.`.
 * @param {string[]} names
 */
export function shortened(names) {
  if (names.length < 2) return names;
  let common = names[0];
  for (const name of names) while (!name.startsWith(common)) common = common.slice(0, -1);
  const cut = Math.max(...ENDS.map((end) => common.lastIndexOf(end))) + 1;
  if (cut < 4) return names;
  const rests = names.map((name) => name.slice(cut));
  let last = rests[0];
  for (const rest of rests) while (!rest.endsWith(last)) last = last.slice(1);
  const begin = Math.min(...ENDS.map((end) => last.indexOf(end)).filter((at) => at >= 0));
  const left = Number.isFinite(begin) ? last.length - begin : 0;
  return rests.map((rest) => `…${rest.slice(0, rest.length - left)}${left ? "…" : ""}`);
}
