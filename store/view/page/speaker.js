/**
 * How the sender of a message is called, the same in every view: by the agent; without one by its Messager, as in
 * "Messager driver"; else "no sender".
 */

import { colourOf } from "./colours.js";
import { label, shortId } from "./dom.js";

/** @typedef {import("./messages.js").Messages} Messages */

export const NO_SENDER = "no sender";
/** Characters up to which the name of a Messager is written out: longer ones are random. */
const READABLE = 16;
const KEPT = 6;

/** Return how messages of a Messager are called that have no agent. @param {string} name "" if it is unknown */
export function messagerText(name) {
  if (name === "") return NO_SENDER;
  return `Messager ${name.length <= READABLE ? name : `${name.slice(0, KEPT)}…${name.slice(-KEPT)}`}`;
}

/** Return the name of the sender of a message. @param {Messages} messages @param {number} row */
export function speakerText({ names, from, messager }, row) {
  return from[row] ? names.agents[from[row]].text : messagerText(names.messagers[messager[row]]);
}

/** Return the common name of all messages without an agent: that of their Messager if they have only one.
 * @param {Messages} messages */
export function othersText({ names, from, messager, length }) {
  let only = -1;
  for (let row = 0; row < length; row += 1) {
    if (from[row] !== 0 || messager[row] === only) continue;
    if (only >= 0) return NO_SENDER;
    only = messager[row];
  }
  return messagerText(names.messagers[Math.max(only, 0)]);
}

/**
 * Return the sender of a message as an element in its colour.
 * @param {Messages} messages @param {number} row @param {boolean} [derived]
 */
export function speaker(messages, row, derived = false) {
  const at = messages.from[row];
  if (at > 0) return agentName(messages, at, derived);
  const name = messages.names.messagers[messages.messager[row]];
  const element = label(messagerText(name), "agent nobody");
  if (name) element.title = shortId(`Messager ${name}, without a known agent`);
  return element;
}

/**
 * Return the name of an agent in its colour.
 * @param {Messages} messages @param {number} at above 0 @param {boolean} [derived]
 */
export function agentName(messages, at, derived = false) {
  const { text, id } = messages.names.agents[at];
  const element = label(text, derived ? "agent derived" : "agent");
  element.style.color = colourOf(at);
  element.title = derived ? `${shortId(id)}, derived: the message does not say it` : shortId(id);
  return element;
}
