/** One message of a conversation as an element. */

import { h, shortId, visible } from "./dom.js";
import { hitsIn, marked } from "./hits.js";
import { FROM_DERIVED, KINDS, NO_TEXT, REDACTED, TEXT_CUT, TO_DERIVED } from "./messages.js";
import { agentName, speaker } from "./speaker.js";
import { exactText, numberText, timeText } from "./time.js";

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./types").Problem} Problem */

/** Lines, and characters, of a long text that are shown at first. */
const LINES = 12;
const CHARACTERS = 1000;
/** Characters before and after a hit in the part of a text that is not shown. */
const AROUND = 100;
/** Characters of a name of a channel that are shown. */
const LONGEST = 200;
/** Problems that are shown with the message. */
const SHOWN_PROBLEMS = new Set(["never arrived", "missed", "late", "blocked", "failed"]);

/**
 * What an item shows besides its message.
 * @typedef {object} Look
 * @property {number} digits digits of the second; -1 for none and no second
 * @property {import("./short_names.js").ChannelLabel[]} channels by position; [] if there is only one
 * @property {string} q
 * @property {boolean} whole show a long text as a whole
 * @property {boolean} grouped the message before has the same sender, recipient, channel and kind
 * @property {boolean} sameTime the message before has the same time, as shown
 * @property {Problem[]} problems
 */

/**
 * Return the line of a message.
 * @param {Messages} messages @param {number} row @param {Look} look
 */
export function messageLine(messages, row, look) {
  const kind = KINDS[messages.kind[row]];
  const ts = messages.ts[row];
  return h(
    "div",
    { class: `line kind-${kind}${look.grouped ? " grouped" : ""}` },
    h("time", { class: look.sameTime ? "same" : "", title: exactText(ts) }, shortTime(ts, look.digits)),
    look.grouped ? null : who(messages, row, look),
    h("div", { class: "what" }, badges(messages, row, look), said(messages, row, look)),
  );
}

/** Return a time of day; without seconds if `digits` is -1. @param {bigint} ts @param {number} digits */
export function shortTime(ts, digits) {
  return digits < 0 ? timeText(ts, 0).slice(0, 5) : timeText(ts, digits);
}

/** @param {Messages} messages @param {number} row @param {Look} look */
function who(messages, row, look) {
  const flags = messages.flags[row];
  const to = messages.to[row];
  const named = look.channels[messages.channel[row]];
  const channel = named?.agent && named.agent === messages.names.agents[to].text ? named.rest : named?.text;
  return h(
    "div",
    { class: "who" },
    speaker(messages, row, (flags & FROM_DERIVED) !== 0),
    to ? h("span", { class: "arrow", role: "img", "aria-label": "to" }, "›") : null,
    to ? agentName(messages, to, (flags & TO_DERIVED) !== 0) : null,
    channel ? h("bdi", { class: "channel", title: shortId(messages.names.channels[messages.channel[row]]) }, visible(channel.slice(0, LONGEST))) : null,
  );
}

/** @param {Messages} messages @param {number} row @param {Look} look */
function badges(messages, row, look) {
  const found = [];
  const kind = KINDS[messages.kind[row]];
  const problems = look.problems.filter((problem) => SHOWN_PROBLEMS.has(problem.kind));
  const own = problems.find((problem) => problem.kind === kind);
  if (kind === "blocked" || kind === "failed") found.push(badge(kind, own));
  for (const problem of problems) if (problem !== own) found.push(badge(problem.kind, problem));
  if (messages.flags[row] & REDACTED) found.push(h("span", { class: "badge" }, "redacted"));
  return found;
}

/** @param {string} kind @param {Problem} [problem] */
function badge(kind, problem) {
  const reason = problem?.reason ? h("bdi", {}, `: ${visible(problem.reason)}`) : null;
  return h("span", { class: "badge bad", title: visible(problem?.text ?? "") }, kind, reason);
}

/** Return the text, or what there is instead. @param {Messages} messages @param {number} row @param {Look} look */
function said(messages, row, look) {
  const flags = messages.flags[row];
  const text = messages.text(row);
  if (flags & REDACTED) return null;
  if (text === "") return h("span", { class: "quiet" }, flags & NO_TEXT ? `${numberText(messages.size[row])} bytes` : "(empty)");
  const hits = look.q ? hitsIn(text, look.q) : [];
  const end = look.whole ? text.length : shownEnd(text);
  const element = h("div", { class: "said", dir: "auto" }, ...pieces(text, hits, 0, end));
  const rest = text.length - end;
  if (rest > 0) {
    const next = hits.find(([, behind]) => behind > end);
    if (next) {
      const [from, until] = [Math.max(next[0] - AROUND, end), next[1] + AROUND];
      element.append(" … ", ...marked(text, hits, from, until));
    }
    element.append("…");
  }
  const more = rest > 0 ? h("button", { type: "button", class: "more", data: { more: "" } }, `more (${numberText(rest)} characters)`) : null;
  const less = look.whole && shownEnd(text) < text.length ? h("button", { type: "button", class: "more", data: { more: "" } }, "less") : null;
  const cut = flags & TEXT_CUT && (look.whole || rest === 0) ? h("span", { class: "quiet" }, "The text is longer; the page does not have the rest.") : null;
  return h("div", {}, element, more, less, cut);
}

/** Return the end of the part of a text that is shown at first. @param {string} text */
export function shownEnd(text) {
  let end = 0;
  for (let line = 0; line < LINES; line += 1) {
    end = text.indexOf("\n", end) + 1;
    if (end === 0) break;
  }
  end = Math.min(end === 0 ? text.length : end - 1, CHARACTERS);
  if (text.length - end < CHARACTERS / 5 && !text.slice(end).trim().includes("\n")) return text.length;
  return isLow(text, end) ? end + 1 : end;
}

/** Return whether a position is within a character of two units. @param {string} text @param {number} at */
function isLow(text, at) {
  const unit = text.charCodeAt(at);
  return unit >= 0xdc00 && unit < 0xe000;
}

/** Return a part of a text as nodes; the syntax of JSON is less visible than its values.
 * @param {string} text @param {[number, number][]} hits @param {number} begin @param {number} end */
function pieces(text, hits, begin, end) {
  if (!/^\s*[{[]/.test(text)) return marked(text, hits, begin, end);
  const nodes = [];
  let at = begin;
  for (const { 0: token, index } of text.slice(0, end).matchAll(TOKEN)) {
    if (token.startsWith('"') && !token.endsWith(":")) continue;
    nodes.push(...marked(text, hits, at, index));
    nodes.push(h("span", { class: "syntax" }, ...marked(text, hits, index, index + token.length)));
    at = index + token.length;
  }
  return [...nodes, ...marked(text, hits, at, end)];
}

/** A text with the colon behind it, or signs of JSON. A text without an end goes to the end: so the time is linear. */
const TOKEN = /"(?:[^"\\]|\\.)*(?:"(?:\s*:)?|\\?$)|[{}[\],]+\s*/gs;
