/** The rows of two runs side by side, as `store/view/comparing.py` gives them. */

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./types").Comparison} Comparison */

export const EQUAL = 0;
export const CHANGED = 1;
export const MOVED = 2;
export const ONLY_A = 3;
export const ONLY_B = 4;
/** Titles by kind. */
export const TITLES = ["equal", "changed", "moved", "only in A", "only in B"];

/** Equal rows that stay visible on each side of a difference. */
const CONTEXT = 2;
/** Equal rows that are folded, at least. */
const FOLDED = 4;

export class Alignment {
  /** @param {Comparison} found @param {Messages} messagesA @param {Messages} messagesB */
  constructor(found, messagesA, messagesB) {
    const { kind, a, b, length } = found.rows;
    const rowsA = comparedRows(messagesA, found.kinds);
    const rowsB = comparedRows(messagesB, found.kinds);
    const count = length.reduce((sum, each) => sum + each, 0);
    this.length = count;
    /** Kind by row. */
    this.kind = new Uint8Array(count);
    /** Row in the messages of A, and of B; -1 for none. */
    this.a = new Int32Array(count).fill(-1);
    this.b = new Int32Array(count).fill(-1);
    let row = 0;
    let nextA = 0;
    let nextB = 0;
    kind.forEach((each, run) => {
      if (each !== ONLY_B) nextA += a[run];
      if (each !== ONLY_A) nextB += b[run];
      for (const end = row + length[run]; row < end; row += 1) {
        this.kind[row] = each;
        if (each !== ONLY_B) this.a[row] = rowsA[nextA++] ?? -1;
        if (each !== ONLY_A) this.b[row] = rowsB[nextB++] ?? -1;
      }
    });
    /** The rows that are not equal. */
    this.differences = Int32Array.from(rowsWhere(this.kind, (each) => each !== EQUAL));
  }

  /**
   * Return the next row that differs behind a row, or before it; -1 if there is none.
   * @param {number} row @param {1 | -1} step @param {number} [kind] only of this kind
   */
  next(row, step, kind = -1) {
    const rows = this.differences;
    let at = lower(rows, step > 0 ? row + 1 : row) + (step > 0 ? 0 : -1);
    while (at >= 0 && at < rows.length && kind >= 0 && this.kind[rows[at]] !== kind) at += step;
    return rows[at] ?? -1;
  }

  /** Return the number of the first difference at or behind a row, from 0. @param {number} row */
  numberOf(row) {
    return lower(this.differences, row);
  }

  /** Return the row that has a message of A, or of B; -1 if none has. @param {"a" | "b"} side @param {number} message */
  rowOf(side, message) {
    return message < 0 ? -1 : this[side].indexOf(message);
  }
}

/** Return the rows of the messages that were compared. @param {Messages} messages @param {string[]} kinds */
function comparedRows(messages, kinds) {
  const codes = kinds.map((kind) => KINDS.indexOf(kind));
  return Int32Array.from(rowsWhere(messages.kind.subarray(0, messages.length), (kind) => codes.includes(kind)));
}

const KINDS = ["", "sent", "received", "blocked", "failed"];

/** @param {Uint8Array} kinds @param {(kind: number) => boolean} wanted */
function rowsWhere(kinds, wanted) {
  const found = [];
  for (let row = 0; row < kinds.length; row += 1) if (wanted(kinds[row])) found.push(row);
  return found;
}

/** Return the first place whose value is at least `value`. @param {Int32Array} sorted @param {number} value */
function lower(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The items of a list: rows, and folds in place of many equal rows. An unfolded stretch stays unfolded.
 */
export class FoldedRows {
  /** @param {Alignment} alignment */
  constructor(alignment) {
    this._alignment = alignment;
    /** First rows of the stretches that are unfolded. @type {Set<number>} */
    this._open = new Set();
    /** True to fold nothing. */
    this.all = false;
    this.items = new Int32Array(0);
    /** @type {{ from: number, until: number }[]} */
    this.folds = [];
    /** Number of rows in folds. */
    this.folded = 0;
    this.fold();
  }

  /** Make the items again. */
  fold() {
    const { kind, length, differences } = this._alignment;
    /** @type {number[]} Rows; below 0, folds: -1 - the position in `folds`. */
    const items = [];
    /** @type {{ from: number, until: number }[]} */
    const folds = [];
    const rows = (/** @type {number} */ from, /** @type {number} */ until) => {
      for (let row = from; row < until; row += 1) items.push(row);
    };
    let begin = 0;
    for (let at = 0; at <= differences.length; at += 1) {
      const end = at < differences.length ? differences[at] : length;
      const from = begin === 0 ? begin : begin + CONTEXT;
      const until = end === length ? end : end - CONTEXT;
      if (this.all || this._open.has(begin) || until - from < FOLDED) {
        rows(begin, end);
      } else {
        rows(begin, from);
        items.push(-1 - folds.length);
        folds.push({ from, until });
        rows(until, end);
      }
      if (end < length) items.push(end);
      begin = end + 1;
    }
    this.items = Int32Array.from(items);
    this.folds = folds;
    this.folded = kind.length - (items.length - folds.length);
  }

  get length() {
    return this.items.length;
  }

  /** Return the rows of the fold at an item; null if the item is a row. @param {number} item */
  foldAt(item) {
    return this.items[item] < 0 ? this.folds[-1 - this.items[item]] : null;
  }

  /** Unfold an item. @param {number} item */
  unfold(item) {
    const found = this.foldAt(item);
    if (found === null) return;
    const { differences } = this._alignment;
    const behind = lower(differences, found.from) - 1;
    this._open.add(behind < 0 ? 0 : differences[behind] + 1);
    this.fold();
  }

  /** Return the item of a row, or of the fold that contains it. @param {number} row */
  itemOf(row) {
    let low = 0;
    let high = this.items.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this._first(middle) <= row) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Return the first row of an item. @param {number} item */
  _first(item) {
    return this.foldAt(item)?.from ?? this.items[item];
  }

  /** Return the row of an item; of a fold, its first. @param {number} item */
  rowOf(item) {
    return this.items.length === 0 ? -1 : this._first(Math.max(0, Math.min(item, this.items.length - 1)));
  }
}
