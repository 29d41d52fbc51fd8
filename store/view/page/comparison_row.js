/** One row of two runs: a message of A beside one of B, with what differs. */

import { CHANGED, EQUAL, ONLY_A, ONLY_B, TITLES } from "./alignment.js";
import { colourOf } from "./colours.js";
import { h, label, visible } from "./dom.js";
import { textDifference } from "./text_difference.js";
import { speakerText } from "./speaker.js";
import { exactText, timeText } from "./time.js";

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./text_difference.js").Segment} Segment */
/** @typedef {import("./types").ValueDifference} ValueDifference */

const SIGNS = ["=", "~", "↕", "A", "B"];
/** Characters of a text, unless its row is selected, and of what is equal before a change. */
const SHOWN = 1_200;
const SHOWN_EQUAL = 300;
const LEAD = 160;
/** Paths in one line of a row. */
const LINE = 3;

/**
 * Make the element of a row.
 * @param {object} row
 * @param {number} row.kind
 * @param {[Messages, number][]} row.sides messages and row of A and of B; -1 for none
 * @param {boolean} row.selected
 * @param {ValueDifference[] | null | undefined} row.paths null if the payloads are not JSON, undefined if they are not listed
 * @param {() => void} row.select
 */
export function comparisonRow({ kind, sides, selected, paths, select }) {
  const [[messagesA, a], [messagesB, b]] = sides;
  const [textA, textB] = [a < 0 ? "" : messagesA.text(a), b < 0 ? "" : messagesB.text(b)];
  const [wordsA, wordsB] = kind === CHANGED ? textDifference(textA, textB) : [plain(textA), plain(textB)];
  const most = selected ? Infinity : kind === EQUAL ? SHOWN_EQUAL : SHOWN;
  const element = h(
    "article",
    { class: `aligned aligned-${kind}${selected ? " selected" : ""}`, "aria-current": selected ? "true" : null },
    kind === ONLY_B ? absent("A") : cell("A", messagesA, a, shortened(wordsA, most), messagesA),
    h("span", { class: "sign", title: TITLES[kind] }, h("span", { "aria-hidden": "true" }, SIGNS[kind]), quiet(TITLES[kind])),
    kind === ONLY_A ? absent("B") : cell("B", messagesB, b, shortened(wordsB, most), messagesA),
  );
  if (kind === CHANGED) element.append(selected ? pathTable(paths) : pathLine(paths));
  element.addEventListener("click", () => {
    if (getSelection()?.isCollapsed ?? true) select();
  });
  return element;
}

/** @param {string} text @returns {Segment[]} */
function plain(text) {
  return [{ text, changed: false }];
}

/** Text for screen readers only. @param {string} text */
function quiet(text) {
  return h("span", { class: "status" }, text);
}

/** @param {string} side */
function absent(side) {
  return h("div", { class: "cell absent" }, `not in ${side}`);
}

/**
 * @param {string} side
 * @param {Messages} messages
 * @param {number} row
 * @param {Segment[]} words
 * @param {Messages} first messages of A, whose agents have the colours
 */
function cell(side, messages, row, words, first) {
  const { names, from, to, channel, ts } = messages;
  const agent = (/** @type {number} */ at) => {
    const { text, id } = names.agents[at] ?? { text: "", id: "" };
    const element = label(text || "?", "agent");
    element.style.color = colourOf(at === 0 ? 0 : (first.agentAt.get(id) ?? at + first.names.agents.length));
    return element;
  };
  const sender = from[row] ? agent(from[row]) : label(speakerText(messages, row), "agent nobody");
  const recipient = to[row] ? [h("span", { class: "quiet" }, " → "), agent(to[row])] : [];
  return h(
    "div",
    { class: "cell" },
    h(
      "p",
      { class: "cell-head" },
      h("span", { class: "side", "aria-hidden": "true" }, side),
      h("span", { class: "who" }, sender, ...recipient),
      label(names.channels[channel[row]] ?? "", "quiet channel"),
      h("time", { class: "quiet", title: exactText(ts[row]) }, timeText(ts[row])),
    ),
    h("p", { class: "text" }, ...words.map(({ text, changed }) => (changed ? h("mark", {}, text) : text))),
  );
}

/** Return segments with at most so many characters, from shortly before the first change.
 * @param {Segment[]} words @param {number} most @returns {Segment[]} */
function shortened(words, most) {
  const length = words.reduce((sum, { text }) => sum + text.length, 0);
  if (length <= most) return words;
  const change = words.findIndex(({ changed }) => changed);
  const before = words.slice(0, Math.max(change, 0)).reduce((sum, { text }) => sum + text.length, 0);
  let skip = before > LEAD && before + most / 2 > most ? before - LEAD : 0;
  let left = most;
  /** @type {Segment[]} */
  const found = skip ? [{ text: "… ", changed: false }] : [];
  for (const { text, changed } of words) {
    const shown = text.slice(skip, skip + left);
    skip = Math.max(skip - text.length, 0);
    left -= shown.length;
    if (shown) found.push({ text: shown, changed });
  }
  return left > 0 ? found : [...found, { text: " …", changed: false }];
}

/** The first paths that differ, in one line. @param {ValueDifference[] | null | undefined} paths */
function pathLine(paths) {
  const line = h("p", { class: "paths quiet" });
  if (paths?.length) {
    const shown = paths.slice(0, LINE).map(([path, a, b]) => `${path}: ${short(a)} → ${short(b)}`);
    line.textContent = visible(`${shown.join(", ")}${paths.length > LINE ? ` and ${paths.length - LINE} more` : ""}`);
  } else if (paths !== undefined) {
    line.textContent = paths === null ? "not JSON" : "equal values, other bytes";
  }
  return line;
}

/** @param {string | null} value */
function short(value) {
  if (value === null) return "no value";
  return value.length > 40 ? `${value.slice(0, 40)}…` : value;
}

/** All paths that differ. @param {ValueDifference[] | null | undefined} paths */
function pathTable(paths) {
  if (!paths?.length) return pathLine(paths);
  const value = (/** @type {string | null} */ text) =>
    h("td", { class: "mono text" }, text === null ? h("span", { class: "quiet" }, "no value") : visible(text));
  return h(
    "table",
    { class: "path-table" },
    h("caption", { class: "quiet" }, "values that differ"),
    h("thead", {}, h("tr", {}, ...["path", "A", "B"].map((text) => h("th", { scope: "col" }, text)))),
    h(
      "tbody",
      {},
      ...paths.map(([path, a, b]) => h("tr", {}, h("th", { scope: "row", class: "mono" }, visible(path)), value(a), value(b))),
    ),
  );
}
