/** Places in a text where a search finds something: in the folded text, and hence in the text itself. */

import { h } from "./dom.js";
import { fold } from "./fold.js";
import { upper } from "./rows.js";

const CLUSTERS = new Intl.Segmenter("en", { granularity: "grapheme" });
const ASCII = /^[\x00-\x7f]*$/;

/**
 * Return begin and end of each hit in a text, in order and apart from each other. A character that only in part
 * belongs to a hit, such as a ligature, is in it as a whole.
 * @param {string} text
 * @param {string} wanted
 * @returns {[number, number][]}
 */
export function hitsIn(text, wanted) {
  const word = fold(wanted);
  if (word === "") return [];
  if (ASCII.test(text)) return found(text.toLowerCase(), word, (at) => at, (at) => at);
  let folded = "";
  /** @type {number[]} Begin in `folded`, and in `text`, of each character that a reader sees. */
  const places = [];
  /** @type {number[]} */
  const origins = [];
  for (const { segment, index } of CLUSTERS.segment(text)) {
    places.push(folded.length);
    origins.push(index);
    folded += fold(segment);
  }
  places.push(folded.length);
  origins.push(text.length);
  const begin = (/** @type {number} */ at) => origins[upper(places, at)];
  const end = (/** @type {number} */ at) => origins[upper(places, at - 1) + 1];
  return found(folded, word, begin, end);
}

/**
 * @param {string} folded @param {string} word
 * @param {(at: number) => number} begin @param {(at: number) => number} end
 */
function found(folded, word, begin, end) {
  /** @type {[number, number][]} */
  const hits = [];
  for (let at = folded.indexOf(word); at >= 0; at = folded.indexOf(word, at + word.length)) {
    const last = hits.at(-1);
    const [first, behind] = [begin(at), end(at + word.length)];
    if (last !== undefined && first < last[1]) last[1] = Math.max(last[1], behind);
    else hits.push([first, behind]);
  }
  return hits;
}

/**
 * Return a part of a text as nodes, in which hits are marked.
 * @param {string} text @param {[number, number][]} hits @param {number} [begin] @param {number} [end]
 * @returns {(Node | string)[]}
 */
export function marked(text, hits, begin = 0, end = text.length) {
  /** @type {(Node | string)[]} */
  const nodes = [];
  let at = begin;
  for (const [first, behind] of hits) {
    if (behind <= begin || first >= end) continue;
    if (first > at) nodes.push(text.slice(at, first));
    at = Math.min(behind, end);
    nodes.push(h("mark", {}, text.slice(Math.max(first, begin), at)));
  }
  if (at < end) nodes.push(text.slice(at, end));
  return nodes;
}
