/** Names in the rows and columns of the matrix, and in the graph. */

import { colourOf } from "./colours.js";
import { shortId, visible } from "./dom.js";
import { shortNames } from "./short_names.js";
import { othersText } from "./speaker.js";

/** @typedef {import("./pairs.js").Across} Across */
/** @typedef {"from" | "to"} Side */

/** Characters of a name. */
const MOST = 22;
/** @type {Record<Across, string>} Columns of position 0. */
const NOBODY = { to: "no recipient", channel: "no channel", after: "nobody before" };

export class Naming {
  /** @param {import("./messages.js").Messages} messages @param {Across} across */
  constructor(messages, across) {
    const { names } = messages;
    this._names = names;
    this._noSender = othersText(messages);
    this._across = across;
    this._short = across === "channel" ? shortNames(Array.from(names.channels, (name) => name ?? "")) : [];
  }

  /** Return whether the names of a side are channels. @param {Side} side */
  channels(side) {
    return side === "to" && this._across === "channel";
  }

  /** Return a name that is short, and safe on canvas. @param {Side} side @param {number} at */
  text(side, at) {
    if (at === 0) return side === "from" ? this._noSender : NOBODY[this._across];
    if (at < 0) return "others";
    const text = visible(this.channels(side) ? this._short[at] : this._names.agents[at].text);
    const half = Math.floor(MOST / 2);
    return text.length > MOST ? `${text.slice(0, half)}…${text.slice(1 - half)}` : text;
  }

  /** Return the name for a title. @param {Side} side @param {number} at */
  whole(side, at) {
    if (at <= 0) return this.text(side, at);
    return shortId(this.channels(side) ? this._names.channels[at] : this._names.agents[at].text);
  }

  /** Return a text that no other name has. @param {Side} side @param {number} at */
  key(side, at) {
    return this.channels(side) ? `channel ${this._names.channels[at]}` : this._names.agents[at].id;
  }

  /** @param {Side} side @param {number} at */
  colour(side, at) {
    return colourOf(this.channels(side) ? 0 : at);
  }
}
