/** Places of messages from top to bottom: one row a message, or by time with long silences shortened. */

import { dayText, durationText } from "./time.js";

/** @typedef {import("./messages.js").Messages} Messages */

/** @typedef {{ kind: "mark" | "gap", seconds: number, text: string }} Event A mark, or the begin of a gap. */
/**
 * A line across all lanes.
 * @typedef {object} Band
 * @property {number} y
 * @property {"day" | "mark" | "gap" | "silence"} kind
 * @property {number} first number of its first event; row of the first message of a day, or behind a silence
 * @property {number} end behind its last event; row of the message before a silence
 */

/** Height of a row, and of the band of a mark or a day. */
export const ROW = 32;
const BAND = 28;
/** With times: mean height of a message, the height above which a silence is shortened, and that of a shortened one. */
const MEAN = 30;
const LONGEST = 150;
const SILENCE = 60;
/** Least height between two messages, so that each can be clicked. */
const LEAST = 3;
const TOP = 14;
/** Rows of which one value says how far down their arrows reach. */
const BLOCK = 256;
/** Steps between messages that determine the scale. */
const SAMPLE = 10_000;

export class Scale {
  /**
   * @param {Messages} messages
   * @param {Int32Array} rows
   * @param {Event[]} events in the order of time
   * @param {{ byTime?: boolean, zoom?: number }} [how]
   */
  constructor(messages, rows, events, { byTime = false, zoom = 1 } = {}) {
    this.messages = messages;
    this.rows = rows;
    this.events = events;
    this.byTime = byTime;
    /** Middle of each row. */
    this.ys = new Float64Array(rows.length);
    /** @type {Band[]} */
    this.bands = [];
    this.height = byTime ? this._byTime(zoom) : this._even();
    this._reach = this._reaches();
    /** @type {Map<number, number>} Places of gaps by their begin. */
    this._gaps = new Map();
    for (const { kind, first, y } of this.bands) if (kind === "gap") this._gaps.set(events[first].seconds, y);
  }

  _even() {
    const { time } = this.messages;
    const { rows, events, ys, bands } = this;
    let y = TOP;
    let day = NaN;
    let end = 0;
    for (let at = 0; at <= rows.length; at += 1) {
      const before = at === rows.length ? Infinity : time[rows[at]];
      for (; end < events.length && events[end].seconds <= before; end += 1) {
        const { kind } = events[end];
        const last = bands.at(-1);
        if (kind === "mark" && last?.kind === kind && last.y + BAND / 2 === y) {
          last.end = end + 1;
        } else {
          bands.push({ y: y + BAND / 2, kind, first: end, end: end + 1 });
          y += BAND;
        }
      }
      if (at === rows.length) break;
      const today = Math.floor(time[rows[at]] / 86400);
      if (today !== day) {
        bands.push({ y: y + BAND / 2, kind: "day", first: rows[at], end: 0 });
        y += BAND;
        day = today;
      }
      ys[at] = y + ROW * 0.7;
      y += ROW;
    }
    return y + TOP;
  }

  /** @param {number} zoom */
  _byTime(zoom) {
    const { time } = this.messages;
    const { rows, events, ys, bands } = this;
    if (rows.length === 0) return TOP;
    const scale = zoom * pixelsPerSecond(time, rows);
    let y = TOP + ROW;
    bands.push({ y: TOP, kind: "day", first: rows[0], end: 0 });
    ys[0] = y;
    for (let at = 1; at < rows.length; at += 1) {
      const seconds = time[rows[at]] - time[rows[at - 1]];
      const length = seconds * scale;
      const step = Math.max(length > LONGEST ? SILENCE : length, LEAST);
      if (length > LONGEST) bands.push({ y: y + SILENCE / 2, kind: "silence", first: rows[at], end: rows[at - 1] });
      if (Math.floor(time[rows[at]] / 86400) !== Math.floor(time[rows[at - 1]] / 86400)) {
        bands.push({ y: y + Math.max(step * 0.8, step - 14), kind: "day", first: rows[at], end: 0 });
      }
      y += step;
      ys[at] = y;
    }
    events.forEach(({ kind, seconds }, first) => {
      bands.push({ y: seconds < time[rows[0]] ? TOP : this.y(seconds), kind, first, end: first + 1 });
    });
    bands.sort((a, b) => a.y - b.y);
    return y + ROW + TOP;
  }

  /** Return the text of a band. @param {Band} band */
  text({ kind, first, end }) {
    const { ts } = this.messages;
    if (kind === "day") return dayText(ts[first]);
    if (kind === "silence") return durationText(Number(ts[first] - ts[end]));
    const [one, last] = [this.events[first].text, this.events[end - 1].text];
    return end - first === 1 ? one : `${one} … ${last} (${end - first} marks)`;
  }

  /** Return where a gap begins. @param {number} since seconds UTC */
  gap(since) {
    return this._gaps.get(since) ?? this.y(since);
  }

  /** Return the bands in an area. @param {number} top @param {number} bottom @returns {Band[]} */
  bandsIn(top, bottom) {
    let low = 0;
    let high = this.bands.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.bands[middle].y < top) low = middle + 1;
      else high = middle;
    }
    let end = low;
    while (end < this.bands.length && this.bands[end].y <= bottom) end += 1;
    return this.bands.slice(low, end);
  }

  /** Return the place of a time in seconds UTC. @param {number} seconds */
  y(seconds) {
    const { rows, ys } = this;
    const { time } = this.messages;
    if (rows.length === 0) return TOP;
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (time[rows[middle]] < seconds) low = middle + 1;
      else high = middle;
    }
    if (low === 0) return ys[0];
    if (low === rows.length) return ys[low - 1] + Math.min((seconds - time[rows[low - 1]]) * 10, ROW / 2);
    const before = time[rows[low - 1]];
    return ys[low - 1] + ((ys[low] - ys[low - 1]) * (seconds - before)) / (time[rows[low]] - before);
  }

  /** Return the place of a reception. @param {number} at position in `rows` @param {number} delay ns */
  received(at, delay) {
    const y = this.ys[at];
    return delay <= 0 ? y : Math.max(y, this.y(this.messages.time[this.rows[at]] + delay / 1e9));
  }

  /** Return the position of the first row at or below a place. @param {number} y */
  at(y) {
    let low = 0;
    let high = this.ys.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ys[middle] < y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Return the positions of rows whose arrows cross an area, ascending. @param {number} top @param {number} bottom */
  crossing(top, bottom) {
    const first = this.at(top);
    const end = this.at(bottom);
    /** @type {number[]} */
    const found = [];
    for (let block = 0; block * BLOCK < first; block += 1) {
      if (this._reach[block] < top) continue;
      for (let at = block * BLOCK; at < Math.min((block + 1) * BLOCK, first); at += 1) if (this._end(at) >= top) found.push(at);
    }
    for (let at = first; at < end; at += 1) found.push(at);
    return found;
  }

  /** Return how far down the arrows of each block of rows reach. */
  _reaches() {
    const reach = new Float64Array(Math.ceil(this.rows.length / BLOCK));
    for (let at = 0; at < this.rows.length; at += 1) {
      if (this.messages.receptions(this.rows[at]).length === 0) continue;
      const block = Math.floor(at / BLOCK);
      reach[block] = Math.max(reach[block], this._end(at));
    }
    return reach;
  }

  /** @param {number} at */
  _end(at) {
    let end = this.ys[at];
    for (const { delay } of this.messages.receptions(this.rows[at])) end = Math.max(end, this.received(at, delay));
    return end;
  }
}

/** Return a scale at which messages are `MEAN` apart, without the longest silences.
 * @param {Float64Array} time @param {Int32Array} rows */
function pixelsPerSecond(time, rows) {
  const every = Math.ceil(rows.length / SAMPLE);
  const steps = new Float64Array(Math.floor((rows.length - 1) / every));
  for (let at = 0; at < steps.length; at += 1) steps[at] = time[rows[at * every + 1]] - time[rows[at * every]];
  const most = steps.sort()[Math.floor(steps.length * 0.9)] ?? 0;
  let sum = 0;
  for (const step of steps) sum += Math.min(step, most);
  return sum > 0 ? (MEAN * steps.length) / sum : 1;
}
