/** The values in which two JSON payloads differ, by the rules of a comparison. */

import { isObject, Place, sameShape } from "./match.js";

/** @typedef {import("./types").Match} Match */
/** @typedef {{ path: string, a: string | null, b: string | null }} ValueDifference */

/**
 * Return the paths in which two payloads differ, with both values as JSON; null if one of them is not JSON.
 * Texts that contain JSON are compared as what they contain.
 * @param {string} a
 * @param {string} b
 * @param {Match | null} [match] rules by which values are equal
 * @param {number} [most]
 * @returns {ValueDifference[] | null}
 */
export function valueDifferences(a, b, match = null, most = 100) {
  /** @type {ValueDifference[]} */
  const found = [];
  try {
    new Comparing(match, found, most).values(JSON.parse(a), JSON.parse(b), "$", Place.root(match));
  } catch {
    return null; // not JSON, or too deep
  }
  return found;
}

class Comparing {
  /** @param {Match | null} match @param {ValueDifference[]} found @param {number} most */
  constructor(match, found, most) {
    this.tolerance = match?.tolerance ?? 0;
    this.found = found;
    this.most = most;
  }

  /** @param {any} a @param {any} b undefined for no value @param {string} path @param {Place} place */
  values(a, b, path, place) {
    if (this.found.length >= this.most || a === b || place.ignored) return;
    if (place.shape && a !== undefined && b !== undefined) {
      if (!sameShape(a, b, place)) this.add(a, b, path);
      return;
    }
    if (typeof a === "string" && typeof b === "string") {
      const [innerA, innerB] = [contained(a), contained(b)];
      if (innerA !== undefined && innerB !== undefined) {
        this.values(innerA, innerB, path, place);
        return;
      }
    }
    if (Array.isArray(a) && Array.isArray(b)) {
      for (let at = 0; at < Math.max(a.length, b.length); at += 1) this.values(a[at], b[at], `${path}[${at}]`, place.below(at));
    } else if (isObject(a) && isObject(b)) {
      for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
        const own = (/** @type {any} */ value) => (Object.hasOwn(value, key) ? value[key] : undefined);
        const inner = path + (PLAIN.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`);
        this.values(own(a), own(b), inner, place.below(key));
      }
    } else if (!(typeof a === "number" && typeof b === "number" && Math.abs(a - b) <= this.tolerance)) {
      this.add(a, b, path);
    }
  }

  /** @param {any} a @param {any} b @param {string} path */
  add(a, b, path) {
    this.found.push({ path, a: textOf(a), b: textOf(b) });
  }
}

const PLAIN = /^[\p{L}_][\p{L}\p{N}_-]*$/u;

/** @param {any} value */
function textOf(value) {
  return value === undefined ? null : JSON.stringify(value);
}

/** Return the array or object that a text contains as JSON; undefined if it contains none. @param {string} text */
function contained(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
