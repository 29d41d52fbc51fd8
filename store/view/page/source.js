/** The source of the page's data: the blocks of a file. `served.js` has that of a server. */

import { fromBase64, inflate } from "./chunk.js";
import { activityOf, pairsOf } from "./counting.js";
import { countedRows, rowsOf } from "./filter.js";
import { Messages } from "./messages.js";

/** @typedef {import("./types").Filter} Filter */
/** @typedef {import("./types").Head} Head */
/** @typedef {import("./types").Source} Source */

/** Data of one experiment of which all messages are in the page. @implements {Source} */
class WholeSource {
  /** @param {Head} head @param {Messages} messages @param {boolean} served */
  constructor(head, messages, served) {
    this.head = head;
    this.messages = messages;
    this.complete = true;
    this.atEnd = true;
    this.loading = false;
    this.away = false;
    this.served = served;
    this.examining = false;
    /** @type {number | null} */
    this.total = messages.length;
  }

  async examine() {}

  async select() {}

  async more() {
    return 0;
  }

  /**
   * @param {Filter} filter @param {bigint} since @param {bigint} until @param {number} buckets
   * @param {"from" | "channel"} by
   */
  async activity(filter, since, until, buckets, by) {
    const rows = countedRows(this.messages, rowsOf(this.messages, filter, { anyTime: true }), filter);
    return activityOf(this.messages, rows, since, until, buckets, by);
  }

  /** @param {Filter} filter @param {"to" | "channel"} across */
  async pairs(filter, across = "to") {
    return pairsOf(this.messages, countedRows(this.messages, rowsOf(this.messages, filter), filter), across);
  }
}

/** Return whether the page is a file with data. */
export function isFile() {
  return document.querySelector("script[data-part]") !== null;
}

/**
 * Unpack the data of a run in the file: 0 is the only or the first one, 1 the second of two.
 * @param {number} run
 * @returns {Promise<WholeSource>}
 */
export async function fileSource(run) {
  const head = JSON.parse(new TextDecoder().decode(await inflate(taken(`head`, run)[0])));
  const messages = new Messages();
  for (const chunk of taken("chunk", run)) await messages.add(chunk);
  return new WholeSource(head, messages, false);
}

/** Return a part of the file that belongs to no run, as JSON; null if there is none. @param {string} part */
export async function filePart(part) {
  const [found] = taken(part, 0);
  return found === undefined ? null : JSON.parse(new TextDecoder().decode(await inflate(found)));
}

/** Return the blocks of a kind, and remove their elements: the text would stay in memory.
 * @param {string} part @param {number} run */
function taken(part, run) {
  const elements = [...document.querySelectorAll(`script[data-part="${part}"][data-run="${run}"]`)];
  return elements.map((element) => {
    const bytes = fromBase64(element.textContent ?? "");
    element.remove();
    return bytes;
  });
}
