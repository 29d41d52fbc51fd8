/** All that is needed to draw the visible part of the sequence, and texts cut to fit. */

import { colourOf, css } from "./colours.js";
import { visible } from "./dom.js";
import { fold } from "./fold.js";
import { NO_TEXT, REDACTED } from "./messages.js";
import { shortNames } from "./short_names.js";
import { plural } from "./time.js";

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {{ recorder: number, since: number, until: number }} Gap With times in seconds UTC. */

/**
 * @typedef {object} Scene
 * @property {CanvasRenderingContext2D} context
 * @property {Messages} messages
 * @property {Gap[]} gaps
 * @property {import("./lanes.js").Lanes} lanes
 * @property {import("./receivers.js").Receivers} receivers
 * @property {import("./scale.js").Scale} scale
 * @property {import("./losses.js").Losses} losses
 * @property {Palette} palette
 * @property {Texts} texts
 * @property {Map<number, import("./highlight.js").Emphasis>} emphasis by row; if it is not empty, other rows are dim
 * @property {(lane: number) => string} name
 * @property {string[] | null} channels short names, if messages to nobody in particular name their channel
 * @property {number} digits of times, after the second
 * @property {number} width
 * @property {number} height
 * @property {number} left how far it is scrolled
 * @property {number} top
 * @property {number} gutter width of the times
 * @property {number} lane width of a lane
 * @property {number} selected row; -1 for none
 * @property {number} hovered row; -1 for none
 * @property {number} playhead seconds UTC; NaN for none
 */

/** Characters of a text that are looked at. */
const LONGEST = 400;
/** Cut texts that are kept. */
const KEPT = 2000;

/** Colours and fonts, until the theme changes. */
export class Palette {
  constructor() {
    const names = ["back", "panel", "text", "quiet", "line", "accent", "selected", "bad", "warn"];
    /** @type {Record<string, string>} */
    this.css = Object.fromEntries(names.map((name) => [name, css(`--${name}`)]));
    const family = css("--sans");
    this.normal = `12.5px ${family}`;
    this.strong = `600 12.5px ${family}`;
    this.small = `10.5px ${family}`;
    /** @type {Map<number, string>} */
    this._lanes = new Map();
  }

  /** Return the colour of a lane. @param {number} lane */
  of(lane) {
    let found = this._lanes.get(lane);
    if (found === undefined) {
      found = colourOf(Math.max(lane, 0));
      this._lanes.set(lane, found);
    }
    return found;
  }
}

/** Texts of messages in one line, cut to fit. */
export class Texts {
  /** @param {Messages} messages @param {string} word a text begins near it */
  constructor(messages, word) {
    this._messages = messages;
    this._word = fold(word);
    /** @type {Map<string, string>} */
    this._cut = new Map();
  }

  /** Return the text of a message in one line, or what there is instead. @param {number} row */
  line(row) {
    const { flags, size } = this._messages;
    if (flags[row] & REDACTED) return "▒▒▒▒ redacted";
    const text = this._messages.text(row);
    if (text === "") return flags[row] & NO_TEXT ? `${plural(size[row], "byte")} without text` : "(empty)";
    return visible(this._from(text).slice(0, LONGEST).replace(/\s*\n\s*/g, " ⏎ "));
  }

  /** Return a text from near the searched word on. @param {string} text */
  _from(text) {
    if (this._word === "") return text;
    const at = fold(text.slice(0, 20_000)).indexOf(this._word);
    return at <= 40 ? text : `…${text.slice(at - 25)}`;
  }

  /**
   * Return the text of a message in a given width.
   * @param {CanvasRenderingContext2D} context with the font
   * @param {number} row
   * @param {number} width
   */
  fitting(context, row, width) {
    const key = `${row} ${Math.round(width / 4)} ${context.font}`;
    let found = this._cut.get(key);
    if (found === undefined) {
      if (this._cut.size > KEPT) this._cut.clear();
      found = cut(context, this.line(row), width);
      this._cut.set(key, found);
    }
    return found;
  }
}

/**
 * Return the begin of a text that fits in a width, with an ellipsis.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
export function cut(context, text, width) {
  // Measuring a long text takes long.
  if (text.length <= LONGEST && context.measureText(text).width <= width) return text;
  let low = 0;
  let high = Math.min(text.length, LONGEST);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  const last = text.charCodeAt(low - 1);
  return low === 0 ? "" : `${text.slice(0, last >= 0xd800 && last < 0xdc00 ? low - 1 : low).trimEnd()}…`;
}

/** Return the short names of channels, by position: without what all begin with, cut in the middle.
 * @param {string[]} channels */
export function channelTexts(channels) {
  return shortNames(channels).map((name) => {
    const text = visible(name);
    return text.length <= 28 ? text : `${text.slice(0, 10)}…${text.slice(-17)}`;
  });
}
