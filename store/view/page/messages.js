/** The messages that the page has, in replay order, as typed arrays. `store/view/columns.py` describes the columns. */

import { inflate, readBlock, readChunk } from "./chunk.js";
import { fold } from "./fold.js";
import { joined } from "./payloads.js";
import { upper } from "./rows.js";

/** @typedef {import("./types").Agent} Agent */
/** @typedef {import("./types").Reception} Reception */

export const KINDS = ["", "sent", "received", "blocked", "failed", "gap", "mark", "asked", "answered"];
/** Characters of an agent's name that are shown. */
const LONGEST = 200;
/** Bits of `flags`. */
export const FROM_DERIVED = 1;
export const TO_DERIVED = 2;
export const NO_TEXT = 4;
export const REDACTED = 8;
export const TEXT_CUT = 16;
export const PAYLOAD_CUT = 32;

/** Text and payloads of rows that follow each other. */
class Part {
  /** @param {number} rows @param {string} texts each ends with a zero
   * @param {(at: number) => Promise<Uint8Array>} payload */
  constructor(rows, texts, payload) {
    this.rows = rows;
    this.texts = texts;
    this.payload = payload;
    this.starts = starts(this.texts, rows);
    /** @type {{ text: string, starts: Uint32Array } | null} */
    this._folded = null;
  }

  /** @param {number} at */
  text(at) {
    return this.texts.substring(this.starts[at], this.starts[at + 1] - 1);
  }

  /** Return a part of the first rows. @param {number} rows */
  begin(rows) {
    return new Part(rows, this.texts.slice(0, this.starts[rows]), this.payload);
  }

  /** Return the folded texts, and where each begins. */
  get folded() {
    if (this._folded === null) {
      const text = fold(this.texts);
      this._folded = { text, starts: text === this.texts ? this.starts : starts(text, this.rows) };
    }
    return this._folded;
  }
}

/** Return the part of a chunk. @param {number} rows @param {Uint8Array<ArrayBuffer>} texts @param {Uint8Array<ArrayBuffer>} packed */
function partOf(rows, texts, packed) {
  /** @type {Promise<Record<string, any>> | null} */
  let payloads = null;
  /** @type {Part} */
  const part = new Part(rows, new TextDecoder("utf-8", { ignoreBOM: true }).decode(texts), async (at) => {
    payloads ??= inflate(packed).then((bytes) => readBlock(bytes).columns);
    const { form, end, data } = await payloads;
    return joined(data.subarray(at ? end[at - 1] : 0, end[at]), form[at], part.text(at));
  });
  return part;
}

/** @param {string} texts @param {number} rows */
function starts(texts, rows) {
  const found = new Uint32Array(rows + 1);
  for (let row = 0, at = 0; row < rows; row += 1) {
    at = texts.indexOf("\0", at) + 1;
    found[row + 1] = at;
  }
  return found;
}

export class Messages {
  constructor() {
    this.length = 0;
    /** Number of rows that were dropped at the begin, minus those that were put before it: `base + row` stays. */
    this.base = 0;
    /** Number of times that messages were put between others: `base + row` did not stay then. */
    this.merges = 0;
    /** ns UTC */
    this.ts = new BigInt64Array(0);
    /** Seconds UTC, for drawing. */
    this.time = new Float64Array(0);
    this.kind = new Uint8Array(0);
    this.channel = new Uint32Array(0);
    this.from = new Uint32Array(0);
    this.to = new Uint32Array(0);
    this.messager = new Uint32Array(0);
    this.flags = new Uint8Array(0);
    this.recorder = new Uint32Array(0);
    this.seq = new Float64Array(0);
    /** The arrival number of the last message that the sender had fetched, plus 1; 0 if unknown. */
    this.heard = new Float64Array(0);
    this.cause_recorder = new Uint32Array(0);
    this.cause_seq = new Float64Array(0);
    /** Bytes of the payload. */
    this.size = new Float64Array(0);
    /** @type {Reception[][]} */
    this._receptions = [];
    /** Names by position, from 1. @type {{ agents: Agent[], channels: string[], messagers: string[] }} */
    this.names = { agents: [{ text: "", id: "" }], channels: [""], messagers: [""] };
    /** @type {Map<string, number>} Position of an agent by its id as JSON. */
    this.agentAt = new Map();
    /** @type {Map<string, number>} */
    this.channelAt = new Map();
    /** @type {Part[]} */
    this._parts = [];
    /** @type {number[]} First row of each part, and the number of rows. */
    this._firsts = [0];
  }

  /**
   * Add a chunk at its place behind other messages, with `before` in front of the first one, or with `fresh` instead of
   * all others. Messages that were committed late begin before the last one.
   * @param {Uint8Array<ArrayBuffer>} chunk
   * @param {{ before?: boolean, fresh?: boolean }} [how]
   * @returns {Promise<number>} the number of messages
   */
  async add(chunk, { before = false, fresh = false } = {}) {
    const { block, payloads } = await readChunk(chunk);
    const { header, columns } = block;
    const rows = header.rows;
    this.name(header.names);
    const ts = new BigInt64Array(rows);
    const time = new Float64Array(rows);
    const seq = new Float64Array(rows);
    /** @type {Map<number, number>} */
    const last = new Map();
    let now = BigInt(header.begin);
    for (let row = 0; row < rows; row += 1) {
      now = BigInt.asIntN(64, now + columns.ts[row]);
      ts[row] = now;
      time[row] = Number(now / 1000n) / 1e6;
      const recorder = columns.recorder[row];
      seq[row] = columns.seq[row] + (last.get(recorder) ?? 0);
      last.set(recorder, seq[row]);
    }
    if (fresh) this.clear();
    const added = { ...columns, ts, time, seq };
    const received = receptions(columns, rows);
    const part = partOf(rows, columns.texts, payloads);
    const end = this.length;
    const at = before ? 0 : rows === 0 ? end : this._placeOf(ts[0], columns.recorder[0], seq[0]);
    if (!before && at < end) this._merge(at, added, received, part);
    else {
      this._resize(at, rows);
      for (const name of ALL) this[name].set(/** @type {any} */ (added)[name], at);
      if (before) {
        this._receptions = received.concat(this._receptions);
        this._parts.unshift(part);
        this.base -= rows;
      } else {
        for (const each of received) this._receptions.push(each);
        this._parts.push(part);
      }
    }
    this._count();
    return rows;
  }

  /**
   * Drop whole chunks until at most `most` messages are left, or one chunk.
   * @param {number} most
   * @param {{ last?: boolean }} [how] `last`: drop those at the end
   * @returns {number} the number of dropped messages
   */
  trim(most, { last = false } = {}) {
    let dropped = 0;
    while (this.length > most && this._parts.length > 1) {
      const part = last ? this._parts.pop() : this._parts.shift();
      const rows = part?.rows ?? 0;
      if (!last) {
        for (const name of ALL) this[name].copyWithin(0, rows, this.length);
        this.base += rows;
      }
      this._receptions.splice(last ? this.length - rows : 0, rows);
      this.length -= rows;
      dropped += rows;
    }
    this._count();
    return dropped;
  }

  /** Drop all messages; names stay. */
  clear() {
    this.base += this.length;
    this.length = 0;
    this._parts = [];
    this._receptions = [];
    this._count();
  }

  /** @param {number} row @returns {string} */
  text(row) {
    const [part, at] = this._place(row);
    return part.text(at);
  }

  /**
   * Return the exact bytes of a payload, as far as the page has them (`PAYLOAD_CUT`).
   * @param {number} row
   * @returns {Promise<Uint8Array>}
   */
  async payload(row) {
    const [part, at] = this._place(row);
    return part.payload(at);
  }

  /** Receptions of a message, by time. @param {number} row @returns {Reception[]} */
  receptions(row) {
    return this._receptions[row] ?? NONE;
  }

  /**
   * Add receptions that came after their sending.
   * @param {string} cursor
   * @param {Reception[]} more
   */
  receive(cursor, more) {
    const row = this.row(cursor);
    if (row >= 0) this._receptions[row] = this.receptions(row).concat(more);
  }

  /** Return the cursor of a message. @param {number} row */
  cursor(row) {
    return `${this.ts[row]}:${this.recorder[row]}:${this.seq[row]}`;
  }

  /** Return the row of a cursor; -1 if it is not there. @param {string} cursor */
  row(cursor) {
    const [ts, recorder, seq] = cursor.split(":").map((part) => (/^-?\d{1,19}$/.test(part) ? BigInt(part) : null));
    if (ts === null || recorder === undefined || seq === undefined) return -1;
    for (let row = this.rowAt(ts); row < this.length && this.ts[row] === ts; row += 1) {
      if (this.recorder[row] === Number(recorder) && this.seq[row] === Number(seq)) return row;
    }
    return -1;
  }

  /** Return the row of a recorder's message; -1 if it is not there. Reads all rows. @param {number} recorder @param {number} seq */
  rowOf(recorder, seq) {
    for (let row = 0; row < this.length; row += 1) {
      if (this.seq[row] === seq && this.recorder[row] === recorder) return row;
    }
    return -1;
  }

  /** Return the first row at or after a time in ns. @param {bigint} ts */
  rowAt(ts) {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ts[middle] < ts) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * Mark the rows whose text contains a word: 1 in the result.
   * @param {string} word
   * @returns {Uint8Array}
   */
  search(word) {
    const found = new Uint8Array(this.length);
    const wanted = fold(word);
    this._parts.forEach((part, number) => {
      const { text, starts } = part.folded;
      const first = this._firsts[number];
      let row = 0;
      for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, starts[row + 1])) {
        row = upper(starts, at);
        found[first + row] = 1;
      }
    });
    return found;
  }

  /** Fold the texts in parts, so that the first search is fast; `pause` is awaited between them.
   * @param {() => Promise<void>} pause */
  async prepare(pause) {
    for (const part of [...this._parts]) {
      part.folded;
      await pause();
    }
  }

  /**
   * Note names at their positions.
   * @param {{ agents: [number, string, string][], channels: [number, string][], messagers: [number, string][] }} names
   */
  name(names) {
    for (const [at, text, id] of names.agents) {
      this.names.agents[at] = { text: text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text, id };
      this.agentAt.set(id, at);
    }
    for (const [at, text] of names.channels) {
      this.names.channels[at] = text;
      this.channelAt.set(text, at);
    }
    for (const [at, text] of names.messagers) this.names.messagers[at] = text;
  }

  /** Return the first row that is behind a place in replay order. @param {bigint} ts @param {number} recorder @param {number} seq */
  _placeOf(ts, recorder, seq) {
    let row = this.length;
    while (row > 0 && this._isBehind(row - 1, ts, recorder, seq)) row -= 1;
    return row;
  }

  /** @param {number} row @param {bigint} ts @param {number} recorder @param {number} seq */
  _isBehind(row, ts, recorder, seq) {
    if (this.ts[row] !== ts) return this.ts[row] > ts;
    return this.recorder[row] === recorder ? this.seq[row] > seq : this.recorder[row] > recorder;
  }

  /**
   * Merge rows with those from a row on.
   * @param {number} first @param {Record<string, any>} added @param {Reception[][]} received @param {Part} part
   */
  _merge(first, added, received, part) {
    this.merges += 1;
    const old = this.length - first;
    /** @type {number[]} Rows in their new order: those from `first` on, then the added ones. */
    const order = [];
    for (let row = 0, at = 0; row < old || at < part.rows; ) {
      const late = at < part.rows && (row === old || this._isBehind(first + row, added.ts[at], added.recorder[at], added.seq[at]));
      order.push(late ? old + at++ : row++);
    }
    const places = order.map((row) => (row < old ? this._place(first + row) : /** @type {[Part, number]} */ ([part, row - old])));
    const both = this._receptions.splice(first).concat(received);
    for (const row of order) this._receptions.push(both[row]);
    this._resize(this.length, part.rows);
    for (const name of ALL) {
      const column = /** @type {any} */ (this[name]);
      const before = column.slice(first, first + old);
      for (let row = 0; row < order.length; row += 1) {
        column[first + row] = order[row] < old ? before[order[row]] : added[name][order[row] - old];
      }
    }
    const kept = upper(this._firsts, first);
    const split = this._parts[kept].begin(first - this._firsts[kept]);
    const texts = places.map(([from, at]) => `${from.text(at)}\0`).join("");
    const merged = new Part(order.length, texts, (at) => places[at][0].payload(places[at][1]));
    this._parts.splice(kept, Infinity, ...(split.rows ? [split] : []), merged);
  }

  /** Make room for rows at a place. @param {number} at @param {number} rows */
  _resize(at, rows) {
    const length = this.length + rows;
    if (length > this.ts.length) {
      const room = Math.max(length, Math.min(this.ts.length * 2, this.ts.length + 200_000));
      for (const name of ALL) {
        const old = /** @type {any} */ (this[name]);
        const grown = new old.constructor(room);
        grown.set(old.subarray(0, this.length));
        /** @type {any} */ (this)[name] = grown;
      }
    }
    if (at < this.length) for (const name of ALL) this[name].copyWithin(at + rows, at, this.length);
    this.length = length;
  }

  _count() {
    this._firsts = [0];
    for (const part of this._parts) this._firsts.push(/** @type {number} */ (this._firsts.at(-1)) + part.rows);
  }

  /** @param {number} row @returns {[Part, number]} */
  _place(row) {
    const number = upper(this._firsts, row);
    return [this._parts[number], row - this._firsts[number]];
  }
}

/** @type {Reception[]} */
const NONE = [];
const PLAIN = /** @type {const} */ ([
  "kind", "channel", "from", "to", "messager", "flags", "recorder", "heard", "cause_recorder", "cause_seq", "size",
]);
const ALL = /** @type {const} */ ([...PLAIN, "ts", "time", "seq"]);

/** @param {Record<string, any>} columns @param {number} rows */
function receptions(columns, rows) {
  /** @type {Reception[][]} */
  const found = [];
  for (let row = 0, at = 0; row < rows; row += 1) {
    const count = columns.receptions[row];
    if (count === 0) {
      found.push(NONE);
      continue;
    }
    const each = [];
    for (const end = at + count; at < end; at += 1) {
      each.push({
        recorder: columns.at_recorder[at],
        messager: columns.at_messager[at],
        delay: columns.at_delay[at],
        arrival: columns.at_arrival[at],
      });
    }
    found.push(each);
  }
  return found;
}
