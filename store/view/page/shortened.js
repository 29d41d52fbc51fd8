/** Names of channels without what all of them begin with. */

/**
 * Return the names without their common first parts; a part ends with `:`, `/` or `.`.
 * @param {string[]} names
 */
export function shortened(names) {
  if (names.length < 2) return names;
  let common = names[0];
  for (const name of names) while (!name.startsWith(common)) common = common.slice(0, -1);
  const cut = Math.max(...[":", "/", "."].map((end) => common.lastIndexOf(end))) + 1;
  return cut < 4 ? names : names.map((name) => `…${name.slice(cut)}`);
}
