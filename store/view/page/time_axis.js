/** The axis of the timeline: recorded times in ns on a line, from which long empty times can be cut out. */

/** Cuts on one axis at most. */
const MOST_CUTS = 24;
/** A time is cut out if it is longer than this part of what remains. */
const LONG = 0.04;
/** Part of the rest that stays on both sides of a cut. */
const MARGIN = 0.008;

/** @typedef {{ since: bigint, until: bigint }} Span half-open, in ns */
/** @typedef {{ since: bigint, until: bigint, at: bigint }} Piece a span, and its begin on the axis */

export class TimeAxis {
  /** @param {Span} span @param {Span[]} cuts parts of the span that are left out, ascending, apart from each other */
  constructor(span, cuts) {
    this.span = span;
    this.cuts = cuts;
    /** @type {Piece[]} */
    this.pieces = [];
    let at = 0n;
    let since = span.since;
    for (const cut of cuts) {
      this.pieces.push({ since, until: cut.since, at });
      at += cut.since - since;
      since = cut.until;
    }
    this.pieces.push({ since, until: span.until, at });
    /** Length of the axis in ns. */
    this.length = at + span.until - since;
  }

  /** Return the axis with more time at both ends. @param {number} part of its length */
  widened(part) {
    const more = BigInt(Math.ceil(Number(this.length) * part)) + 1_000n;
    return new TimeAxis({ since: this.span.since - more, until: this.span.until + more }, this.cuts);
  }

  /** Return the position of a time: ns from the begin of the axis. Times in a cut are at the cut. @param {bigint} ts */
  at(ts) {
    let found = this.pieces[0];
    for (const piece of this.pieces) {
      if (piece.since > ts) {
        const end = found.at + found.until - found.since;
        const place = found.at + ts - found.since;
        return place < end ? place : end;
      }
      found = piece;
    }
    return found.at + ts - found.since;
  }

  /** Return the time at a position. @param {bigint} at */
  ts(at) {
    let found = this.pieces[0];
    for (const piece of this.pieces) {
      if (piece.at > at) break;
      found = piece;
    }
    return found.since + at - found.at;
  }
}

/**
 * Return the empty times that are worth to be cut out, ascending.
 * @param {BigInt64Array} times ascending
 */
export function emptyTimes(times) {
  if (times.length < 2) return [];
  const whole = Number(times[times.length - 1] - times[0]);
  /** @type {{ before: number, length: number }[]} */
  const found = [];
  for (let at = 1; at < times.length; at += 1) {
    const length = Number(times[at] - times[at - 1]);
    if (length > whole / 1e6) found.push({ before: at, length });
  }
  found.sort((a, b) => b.length - a.length);
  const taken = [];
  let rest = whole;
  for (const empty of found) {
    if (taken.length === MOST_CUTS || empty.length < rest * LONG || empty.length === rest) break;
    taken.push(empty);
    rest -= empty.length;
  }
  const margin = BigInt(Math.ceil(rest * MARGIN));
  return taken
    .map(({ before }) => ({ since: times[before - 1] + margin, until: times[before] - margin }))
    .filter(({ since, until }) => since < until)
    .sort((a, b) => (a.since < b.since ? -1 : 1));
}

/** A part of an axis that is shown, on a number of pixels. */
export class Viewport {
  /** @param {TimeAxis} axis @param {bigint} from position on the axis @param {bigint} to @param {number} width CSS pixels */
  constructor(axis, from, to, width) {
    this.axis = axis;
    this.from = from;
    this.to = to;
    this.width = width;
    /** Pixels per ns. */
    this.scale = width / Number(to - from);
  }

  /** Return the place of a time in pixels. @param {bigint} ts */
  x(ts) {
    return Number(this.axis.at(ts) - this.from) * this.scale;
  }

  /** Return the time at a place. @param {number} x */
  ts(x) {
    return this.axis.ts(this.from + BigInt(Math.round(x / this.scale)));
  }

  /** Return whether it shows the whole axis. */
  get whole() {
    return this.from <= 0n && this.to >= this.axis.length;
  }

  /** Return the shown parts of the pieces. @returns {Span[]} */
  spans() {
    /** @type {Span[]} */
    const found = [];
    for (const piece of this.axis.pieces) {
      const end = piece.at + piece.until - piece.since;
      if (end <= this.from || piece.at >= this.to) continue;
      found.push({
        since: piece.since + (this.from > piece.at ? this.from - piece.at : 0n),
        until: piece.until - (this.to < end ? end - this.to : 0n),
      });
    }
    return found;
  }

  /**
   * Return a viewport that shows `factor` times as much, with the same time at `x`.
   * @param {number} factor @param {number} x
   */
  zoomed(factor, x) {
    const old = this.to - this.from;
    const wanted = BigInt(Math.round(Number(old) * factor));
    const length = wanted < SHORTEST ? SHORTEST : wanted;
    const from = this.from + BigInt(Math.round((x / this.width) * Number(old - length)));
    return new Viewport(this.axis, from, from + length, this.width).within();
  }

  /** Return a viewport that is moved by pixels. @param {number} pixels */
  panned(pixels) {
    const by = BigInt(Math.round(pixels / this.scale));
    return new Viewport(this.axis, this.from + by, this.to + by, this.width).within();
  }

  /** Return it moved and cut so that it shows nothing beyond the axis. */
  within() {
    const { length } = this.axis;
    let size = this.to - this.from;
    if (size > length) size = length;
    let from = this.from;
    if (from > length - size) from = length - size;
    if (from < 0n) from = 0n;
    return new Viewport(this.axis, from, from + size, this.width);
  }
}

/** ns that a viewport shows at least. */
const SHORTEST = 2_000n;
