/**
 * Who sends and who receives a message.
 *
 * A lane is a number: an agent's position in `names.agents`, or minus a Messager's position in `names.messagers` where
 * no agent is known, or 0. A reception belongs to the only agent that sends through its Messager; else to the recipient
 * of the message; else to the Messager.
 */

import { KINDS } from "./messages.js";

/** @typedef {import("./messages.js").Messages} Messages */

const SEVERAL = -1;

export class Receivers {
  /** @param {Messages} messages */
  constructor(messages) {
    this.messages = messages;
    this._base = messages.base;
    this._end = 0;
    /** @type {number[]} By Messager: the only agent that sends through it, or `SEVERAL`. */
    this._only = [];
    /** @type {Map<number, Set<number>>} Agents that send through a Messager. */
    this._senders = new Map();
    /** @type {Set<number>} Agents with a Messager of their own. */
    this._owners = new Set();
    /** @type {Map<number, Set<number>>} Lanes of a recorder. */
    this._recorded = new Map();
  }

  _reset() {
    this._base = this.messages.base;
    this._end = 0;
    this._only = [];
    this._senders.clear();
    this._recorded.clear();
  }

  /** Take in messages that were added. */
  update() {
    const { from, to, messager, recorder, kind, length } = this.messages;
    if (this._base !== this.messages.base || this._end > length) this._reset();
    for (let row = this._end; row < length; row += 1) {
      this._record(recorder[row], this.sender(row));
      if (to[row] > 0) for (const each of this.messages.receptions(row)) this._record(each.recorder, to[row]);
      if (messager[row] === 0 || from[row] === 0 || KINDS[kind[row]] === "received") continue;
      const senders = this._senders.get(messager[row]);
      if (senders === undefined) this._senders.set(messager[row], new Set([from[row]]));
      else senders.add(from[row]);
    }
    if (this._end === length) return;
    this._end = length;
    this._owners.clear();
    for (const [at, senders] of this._senders) {
      const [agent] = senders;
      this._only[at] = senders.size === 1 ? agent : SEVERAL;
      if (senders.size === 1) this._owners.add(agent);
    }
  }

  /** @param {number} recorder @param {number} lane */
  _record(recorder, lane) {
    const lanes = this._recorded.get(recorder);
    if (lanes === undefined) this._recorded.set(recorder, new Set([lane]));
    else lanes.add(lane);
  }

  /** Return the lane of the sender. @param {number} row */
  sender(row) {
    return this.messages.from[row] || 0 - this.messages.messager[row];
  }

  /** Return the lane of each reception of a message. @param {number} row @returns {number[]} */
  lanes(row) {
    const to = this.messages.to[row];
    const found = this.messages.receptions(row).map(({ messager }) => {
      const only = this._only[messager] ?? SEVERAL;
      return only > 0 ? only : to || 0 - messager;
    });
    // The Messager of a group of which one agent has spoken so far.
    if (to > 0 && found.length === 1 && found[0] !== to && !this._owners.has(to)) found[0] = to;
    return found;
  }

  /** Return whether an agent, or a Messager as a lane, sends through a Messager. @param {number} lane @param {number} messager */
  sendsThrough(lane, messager) {
    return lane === 0 - messager || (this._senders.get(messager)?.has(lane) ?? false);
  }

  /** Return the lanes that a recorder recorded. @param {number} recorder @returns {Set<number>} */
  recordedBy(recorder) {
    return this._recorded.get(recorder) ?? new Set();
  }
}
