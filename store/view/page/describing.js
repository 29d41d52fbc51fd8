/** A description of a run in one sentence, from numbers only. */

import { durationText, numberText, plural } from "./time.js";

/**
 * A part of the sentence: plain text, a number, or an agent by its position in `names`.
 * @typedef {{ text: string, as: "text" | "number" | "agent", at?: number }} Part
 */
/**
 * @typedef {object} Numbers
 * @property {number} messages
 * @property {number} agents
 * @property {number} channels 0 if unknown
 * @property {bigint | null} since of the first message
 * @property {bigint | null} until of the last message
 * @property {{ from: number, to: number, count: number }[]} pairs 0 is none
 */

/** Return whether events are being recorded. @param {import("./types").Head} head */
export function isLive({ status, recorders }) {
  return status === "open" && recorders.some(({ state }) => state === "alive");
}

/** Count what agents sent and received. @param {Numbers["pairs"]} pairs */
export function activityOfAgents(pairs) {
  /** @type {Map<number, { at: number, sent: number, received: number }>} */
  const found = new Map();
  /** @param {number} at */
  const agent = (at) => {
    const known = found.get(at) ?? { at, sent: 0, received: 0 };
    found.set(at, known);
    return known;
  };
  for (const { from, to, count } of pairs) {
    if (from > 0) agent(from).sent += count;
    if (to > 0) agent(to).received += count;
  }
  return [...found.values()].sort((a, b) => b.sent - a.sent || b.received - a.received || a.at - b.at);
}

/** Count messages between two agents, in both directions. @param {Numbers["pairs"]} pairs */
export function dialogues(pairs) {
  /** @type {Map<string, { one: number, other: number, count: number }>} */
  const found = new Map();
  for (const { from, to, count } of pairs) {
    if (from === 0 || to === 0 || from === to) continue;
    const [one, other] = from < to ? [from, to] : [to, from];
    const known = found.get(`${one} ${other}`);
    if (known) known.count += count;
    else found.set(`${one} ${other}`, { one, other, count });
  }
  return [...found.values()].sort((a, b) => b.count - a.count || a.one - b.one || a.other - b.other);
}

/**
 * Return the sentence. `name` gives the text of an agent.
 * @param {Numbers} numbers
 * @param {(at: number) => string} name
 * @returns {Part[]}
 */
export function described({ messages, agents, channels, since, until, pairs }, name) {
  if (messages === 0) return [text("No messages.")];
  const active = activityOfAgents(pairs);
  const ns = since === null || until === null ? null : Number(until - since);
  const found = [
    ...(agents === 0 ? [] : [number(plural(agents, "agent")), text(verb(agents, active))]),
    number(plural(messages, "message")),
    text(agents === 0 ? (messages === 1 ? " was sent" : " were sent") : ""),
    ...(channels > 0 ? [text(" on "), number(plural(channels, "channel"))] : []),
    ...(ns !== null && ns > 0 ? [text(" in "), number(durationText(ns))] : []),
    ...busiest(active, name),
    ...closest(agents, dialogues(pairs), name),
    text("."),
  ];
  return found.filter((part) => part.text !== "");
}

/** @param {number} agents @param {ReturnType<typeof activityOfAgents>} active */
function verb(agents, active) {
  if (active.every(({ sent }) => sent === 0)) return " received ";
  return agents > 1 ? " exchanged " : " sent ";
}

/**
 * @param {ReturnType<typeof activityOfAgents>} agents
 * @param {(at: number) => string} name
 * @returns {Part[]}
 */
function busiest(agents, name) {
  const first = agents.filter(({ sent }) => sent > 0 && sent === agents[0].sent);
  if (agents.length < 2 || first.length === 0 || first.length > 2) return [];
  const each = first.length > 1 ? " each" : "";
  return [
    text("; "),
    ...joined(first.map(({ at }) => agent(at, name))),
    text(` spoke most (${numberText(first[0].sent)}${each})`),
  ];
}

/**
 * @param {number} agents
 * @param {ReturnType<typeof dialogues>} pairs
 * @param {(at: number) => string} name
 * @returns {Part[]}
 */
function closest(agents, pairs, name) {
  if (agents < 3 || pairs.length < 2 || pairs[0].count === pairs[1].count) return [];
  const { one, other, count } = pairs[0];
  return [text(", "), ...joined([agent(one, name), agent(other, name)]), text(` most with each other (${numberText(count)})`)];
}

/** @param {Part[]} parts @returns {Part[]} */
function joined(parts) {
  return parts.flatMap((part, place) => (place === 0 ? [part] : [text(" and "), part]));
}

/** @param {string} value @returns {Part} */
function text(value) {
  return { text: value, as: "text" };
}

/** @param {string} value @returns {Part} */
function number(value) {
  return { text: value, as: "number" };
}

/** @param {number} at @param {(at: number) => string} name @returns {Part} */
function agent(at, name) {
  return { text: name(at), as: "agent", at };
}
