/**
 * What agents knew when they spoke.
 *
 * `heard` of a sending is the number of the last message that its Messager had handed over before, and each reception
 * has its number within its Messager (`arrival`): both together tell what a sender had heard, without comparing clocks.
 * Agents of a group share a Messager; of its messages, an agent hears those to itself and those to nobody in particular.
 */

import { KINDS } from "./messages.js";
import { Receivers } from "./receivers.js";

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./types").Reception} Reception */

/** @typedef {{ row: number, reception: Reception | null }} Told A message, and its reception if it is known. */

/**
 * What a sender had heard since it last spoke.
 * @typedef {object} Heard
 * @property {boolean} known false if the recording does not tell: `told` is then the last of all that was sent before, to
 *   the sender or on a channel of it, and `missing` the number of the others
 * @property {number} lane of the sender
 * @property {number} since row of its message before; -1 for none
 * @property {Told[]} told in the order of arrival
 * @property {number} others messages handed over to other agents of the same Messager
 * @property {number} missing messages handed over that are not on the page, or left out
 */

/**
 * A step of a chain: `row` told `lane`.
 * @typedef {object} Step
 * @property {number} lane who was told
 * @property {number} row
 * @property {"heard" | "received" | "before"} known handed over before it spoke; arrived before it spoke, or at all; only
 *   sent before
 * @property {Reception | null} reception
 */

/**
 * @typedef {object} Chain
 * @property {Step[]} steps from the asked agent back
 * @property {number} origin lane that said it first
 * @property {number} first row of its first message with the word; -1 if it is not known to have said it
 */

const MOST_CAUSES = 100;

/** Messages before a sending that are listed if it is not known what was heard. */
export const LISTED = 30;

export class Knowledge {
  /** @param {Messages} messages */
  constructor(messages) {
    this.messages = messages;
    this.receivers = new Receivers(messages);
    this._base = messages.base;
    /** @type {number[]} Number of receptions in the index, by row. */
    this._indexed = [];
    /** @type {Map<number, { row: number, reception: Reception }[]>} By Messager, sorted by arrival. */
    this._arrivals = new Map();
    /** @type {Map<number, number[]>} Rows by the lane of the sender. */
    this._sendings = new Map();
  }

  _reset() {
    this._base = this.messages.base;
    this._indexed = [];
    this._arrivals.clear();
    this._sendings.clear();
  }

  /** Take in messages and receptions that were added. */
  update() {
    const { messages } = this;
    this.receivers.update();
    if (this._base !== messages.base || this._indexed.length > messages.length) this._reset();
    /** @type {Set<number>} */
    const disordered = new Set();
    for (let row = 0; row < messages.length; row += 1) {
      if (row === this._indexed.length) {
        this._indexed.push(0);
        listed(this._sendings, this.receivers.sender(row)).push(row);
      }
      const receptions = messages.receptions(row);
      for (let at = this._indexed[row]; at < receptions.length; at += 1) {
        const reception = receptions[at];
        if (reception.arrival === 0) continue;
        const arrivals = listed(this._arrivals, reception.messager);
        if (arrivals.length && arrivals[arrivals.length - 1].reception.arrival > reception.arrival) {
          disordered.add(reception.messager);
        }
        arrivals.push({ row, reception });
      }
      this._indexed[row] = receptions.length;
    }
    for (const messager of disordered) {
      this._arrivals.get(messager)?.sort((a, b) => a.reception.arrival - b.reception.arrival);
    }
  }

  /** Return what the sender of a message had heard since it last spoke. @param {number} row @returns {Heard} */
  heard(row) {
    const { messages, receivers } = this;
    const lane = receivers.sender(row);
    const messager = messages.messager[row];
    if (messages.heard[row] === 0 || messager === 0) return this._before(row, lane);
    const own = this._sendings.get(lane) ?? [];
    let place = lowest(own.length, (at) => own[at] >= row) - 1;
    while (place >= 0 && (messages.messager[own[place]] !== messager || messages.heard[own[place]] === 0)) place -= 1;
    const since = place < 0 ? -1 : own[place];
    const after = since < 0 ? 0 : messages.heard[since] - 1;
    const until = messages.heard[row] - 1;
    const arrivals = this._arrivals.get(messager) ?? [];
    /** @type {Told[]} */
    const told = [];
    const rows = new Set();
    let others = 0;
    let found = 0;
    for (let at = lowest(arrivals.length, (each) => arrivals[each].reception.arrival > after); at < arrivals.length; at += 1) {
      const { row: sent, reception } = arrivals[at];
      if (reception.arrival > until) break;
      found += 1;
      if (rows.has(sent)) continue;
      rows.add(sent);
      if (this._isFor(sent, reception, lane)) told.push({ row: sent, reception });
      else others += 1;
    }
    return { known: true, lane, since, told, others, missing: Math.max(until - after - found, 0) };
  }

  /** Return what was sent before a message, to its sender, or to nobody in particular on a channel on which it speaks or
   * spoke before: all that could have informed it. @param {number} row @param {number} lane @returns {Heard} */
  _before(row, lane) {
    const { from, to, channel } = this.messages;
    const own = lane === 0 ? [] : (this._sendings.get(lane) ?? []).filter((each) => each < row);
    const channels = new Set([row, ...own].map((each) => channel[each]));
    /** @type {Told[]} */
    const told = [];
    let missing = 0;
    for (let before = row - 1; before >= 0; before -= 1) {
      if (lane !== 0 && this.receivers.sender(before) === lane) continue;
      const fits = to[before] === 0 ? channels.has(channel[before]) : to[before] === from[row];
      if (!fits || !this._left(before)) continue;
      if (told.length < LISTED) told.push({ row: before, reception: null });
      else missing += 1;
    }
    return { known: false, lane, since: own.at(-1) ?? -1, told: told.reverse(), others: 0, missing };
  }

  /** Return whether a message left its sender. @param {number} row */
  _left(row) {
    const kind = KINDS[this.messages.kind[row]];
    return kind === "sent" || kind === "received";
  }

  /** Return whether a reception is one of a lane. @param {number} row @param {Reception} reception @param {number} lane */
  _isFor(row, reception, lane) {
    const at = this.messages.receptions(row).indexOf(reception);
    const receiver = this.receivers.lanes(row)[at];
    return receiver === lane || (receiver < 0 && this.receivers.sendsThrough(lane, 0 - receiver));
  }

  /**
   * Return the messages that led to a message by `cause`, the nearest first, at most `MOST_CAUSES`.
   * @param {number} row
   * @returns {{ rows: number[], missing: boolean }} `missing`: the last one has a cause that is not on the page
   */
  causes(row) {
    const { messages } = this;
    /** @type {number[]} */
    const rows = [];
    let now = row;
    while (messages.cause_recorder[now] > 0 && rows.length < MOST_CAUSES) {
      const cause = messages.rowOf(messages.cause_recorder[now], messages.cause_seq[now]);
      if (cause < 0 || cause === row || rows.includes(cause)) return { rows, missing: cause < 0 };
      rows.push(cause);
      now = cause;
    }
    return { rows, missing: false };
  }

  /**
   * Return who told an agent about a word, who told that one before, and so on.
   * @param {number} lane
   * @param {Uint8Array} hits 1 for each message with the word
   * @returns {Chain}
   */
  chain(lane, hits) {
    /** @type {Step[]} */
    const steps = [];
    const seen = new Set();
    let now = lane;
    let end = this.messages.length;
    for (;;) {
      const own = this._said(now, hits, end);
      const step = this._firstTold(now, hits, own);
      if (step === null || seen.has(step.row)) return { steps, origin: now, first: own };
      steps.push(step);
      seen.add(step.row);
      now = this.receivers.sender(step.row);
      end = step.row + 1;
    }
  }

  /** Return the first message of a lane with the word before the row `end`; -1 if there is none.
   * @param {number} lane @param {Uint8Array} hits @param {number} end */
  _said(lane, hits, end) {
    for (const row of this._sendings.get(lane) ?? []) {
      if (row >= end) break;
      if (hits[row] === 1) return row;
    }
    return -1;
  }

  /** Return the first message with the word that a lane had heard when it sent the message `own`, or at all if that
   * is -1. @param {number} lane @param {Uint8Array} hits @param {number} own @returns {Step | null} */
  _firstTold(lane, hits, own) {
    const { messages, receivers } = this;
    const messager = own < 0 ? 0 : messages.messager[own];
    const heard = messager === 0 ? 0 : messages.heard[own];
    /** @type {Step | null} */
    let first = null;
    let earliest = Infinity;
    let receives = false;
    const end = own >= 0 && heard === 0 ? own : messages.length;
    for (let row = 0; row < end; row += 1) {
      if (hits[row] === 0 || receivers.sender(row) === lane) continue;
      for (const reception of messages.receptions(row)) {
        if (!this._isFor(row, reception, lane)) continue;
        receives = true;
        const after = own < 0 ? 0 : Number(messages.ts[row] - messages.ts[own]) + reception.delay;
        if (heard > 0 ? reception.messager !== messager || !within(reception.arrival, heard - 1) : after > 0) continue;
        const order = heard > 0 ? reception.arrival : Number(messages.ts[row] - messages.ts[0]) + reception.delay;
        if (order >= earliest) continue;
        earliest = order;
        first = { lane, row, known: heard > 0 ? "heard" : "received", reception };
      }
    }
    if (first !== null || receives || heard > 0 || this._receives(lane)) return first;
    return this._firstSent(lane, hits, end);
  }

  /** Return whether a reception of a lane is known. @param {number} lane */
  _receives(lane) {
    const { messages } = this;
    for (let row = 0; row < messages.length; row += 1) {
      if (messages.receptions(row).some((reception) => this._isFor(row, reception, lane))) return true;
    }
    return false;
  }

  /** Return the first message with the word to a lane, or on a channel on which it had spoken, before the row `end`.
   * @param {number} lane @param {Uint8Array} hits @param {number} end @returns {Step | null} */
  _firstSent(lane, hits, end) {
    const { to, channel } = this.messages;
    const channels = new Set();
    for (let row = 0; row < end; row += 1) {
      const sender = this.receivers.sender(row);
      if (sender === lane) channels.add(channel[row]);
      else if (hits[row] === 1 && this._left(row) && (to[row] === 0 ? channels.has(channel[row]) : to[row] === lane)) {
        return { lane, row, known: "before", reception: null };
      }
    }
    return null;
  }
}

/** @param {number} arrival @param {number} heard */
function within(arrival, heard) {
  return arrival > 0 && arrival <= heard;
}

/** Return the list of a key, made if there is none. @template T @param {Map<number, T[]>} lists @param {number} key */
function listed(lists, key) {
  let list = lists.get(key);
  if (list === undefined) {
    list = [];
    lists.set(key, list);
  }
  return list;
}

/** Return the first number below `end` that fits, where all above it fit too; else `end`.
 * @param {number} end @param {(at: number) => boolean} fits */
function lowest(end, fits) {
  let low = 0;
  let high = end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (fits(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
