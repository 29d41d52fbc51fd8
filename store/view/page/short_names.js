/** Short forms of channel names: without what all of them begin and end with. */

const SEPARATOR = /[:/.\s]/;

/**
 * Return the short form of each name. A part is left out only up to a separator; empty names count for nothing.
 * @param {string[]} names
 * @returns {string[]}
 */
export function shortNames(names) {
  const given = names.filter((name) => name !== "");
  if (given.length < 2) return names;
  const begin = common(given);
  const end = common(given.map((name) => [...name.slice(begin)].reverse().join("")));
  return names.map((name) => (name === "" ? "" : name.slice(begin, name.length - end)) || name);
}

/** Return the length of the common begin of names, up to behind a separator. @param {string[]} names */
function common(names) {
  let length = names.reduce((least, name) => Math.min(least, name.length), Infinity) - 1;
  for (const name of names) while (!name.startsWith(names[0].slice(0, length))) length -= 1;
  while (length > 0 && !SEPARATOR.test(names[0][length - 1])) length -= 1;
  return Math.max(length, 0);
}

/**
 * What a channel is called beside a message. Where its name contains an agent, as in `agents:7:chat`, messages to that
 * agent need only `rest`, which is "" if it is the same for all such channels.
 * @typedef {{ text: string, agent: string, rest: string }} ChannelLabel
 */

/** @param {string[]} channels @param {Set<string>} agents their names @returns {ChannelLabel[]} */
export function channelLabels(channels, agents) {
  const labels = shortNames(channels).map((text) => {
    const parts = text.split(SEPARATOR);
    const at = parts.findLastIndex((part) => agents.has(part));
    return { text, agent: parts[at] ?? "", rest: at < 0 ? text : parts.slice(at + 1).join(":") };
  });
  const rests = new Set(labels.filter(({ agent }) => agent !== "").map(({ rest }) => rest));
  return rests.size > 1 ? labels : labels.map((label) => (label.agent === "" ? label : { ...label, rest: "" }));
}
