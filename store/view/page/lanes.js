/** Lanes of the sequence: the agents of the messages that are shown, then Messagers without a known agent. */

import { messagerText, NO_SENDER } from "./speaker.js";

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./receivers.js").Receivers} Receivers */

/**
 * @typedef {object} Lane
 * @property {number} key see receivers.js; NaN for the others
 * @property {string} text
 * @property {string} title
 */

/** Maximum of lanes beside that of the others. */
export const MOST = 40;

/** The lanes of messages. */
export class Lanes {
  /**
   * @param {Messages} messages
   * @param {Receivers} receivers
   * @param {Int32Array} rows
   * @param {{ byActivity?: boolean, pinned?: number[] }} [how] `pinned`: lanes to keep in any case
   */
  constructor(messages, receivers, rows, { byActivity = false, pinned = [] } = {}) {
    const { counts, order } = counted(messages, receivers, rows);
    for (const key of pinned) if (counts.of(key) === 0) order.push(key);
    const kept = order.length > MOST ? mostActive(order, counts, pinned) : order;
    /** Number of lanes that are folded into the first one. */
    this.folded = order.length - kept.length;
    if (byActivity) kept.sort((a, b) => counts.of(b) - counts.of(a));
    kept.sort((a, b) => Number(b > 0) - Number(a > 0));
    const { agents, messagers } = messages.names;
    const twice = duplicates(kept.map((key) => (key > 0 ? agents[key].text : "")));
    /** @type {Lane[]} */
    this.list = kept.map((key) => {
      if (key > 0) {
        const { text, id } = agents[key];
        return { key, text: twice.has(text) ? id : text, title: text };
      }
      if (key === 0) return { key, text: NO_SENDER, title: "messages without a sender" };
      const name = messagers[0 - key];
      return { key, text: messagerText(name), title: `Messager ${name}, without a known agent` };
    });
    if (this.folded > 0) {
      this.list.unshift({ key: NaN, text: `${this.folded} others`, title: "to see them, filter by agent, channel or time" });
    }
    /** @type {Map<number, number>} */
    this._at = new Map(this.list.map(({ key }, at) => [key, at]));
  }

  /** Return the number of a lane from the left; that of the others if it is folded. @param {number} key */
  at(key) {
    return this._at.get(key) ?? 0;
  }

  /** Return the number of a lane from the left; -1 if it is not shown. @param {number} key */
  placeOf(key) {
    return this._at.get(key) ?? -1;
  }
}

/** Numbers by lane. */
class Counts {
  /** @param {number} messagers @param {number} agents */
  constructor(messagers, agents) {
    this._offset = messagers;
    this._counts = new Float64Array(messagers + agents);
    this.most = 0;
  }

  /** Count a lane; return its number. @param {number} key */
  add(key) {
    const count = (this._counts[key + this._offset] += 1);
    if (count > this.most) this.most = count;
    return count;
  }

  /** @param {number} key */
  of(key) {
    return this._counts[key + this._offset];
  }
}

/** Return the number of messages by lane, and the lanes in the order of first appearance.
 * @param {Messages} messages @param {Receivers} receivers @param {Int32Array} rows */
function counted(messages, receivers, rows) {
  const { to } = messages;
  const counts = new Counts(messages.names.messagers.length, messages.names.agents.length);
  /** @type {number[]} */
  const order = [];
  const count = (/** @type {number} */ key) => {
    if (counts.add(key) === 1) order.push(key);
  };
  for (const row of rows) {
    count(receivers.sender(row));
    if (messages.receptions(row).length > 0) for (const lane of receivers.lanes(row)) count(lane);
    else if (to[row] > 0) count(to[row]);
  }
  return { counts, order };
}

/** Return `MOST` of the lanes, in their order. @param {number[]} order @param {Counts} counts @param {number[]} pinned */
function mostActive(order, counts, pinned) {
  const chosen = new Set(pinned.slice(0, MOST));
  const lanes = new Uint32Array(counts.most + 1);
  for (const key of order) if (!chosen.has(key)) lanes[counts.of(key)] += 1;
  let least = lanes.length - 1;
  for (let left = MOST - chosen.size - lanes[least]; left > 0; left -= lanes[least]) least -= 1;
  for (const key of order) if (counts.of(key) > least) chosen.add(key);
  for (const key of order) if (chosen.size < MOST && counts.of(key) === least) chosen.add(key);
  return order.filter((key) => chosen.has(key));
}

/** @param {string[]} texts */
function duplicates(texts) {
  const seen = new Set();
  return new Set(texts.filter((text) => seen.has(text) || !seen.add(text)));
}
