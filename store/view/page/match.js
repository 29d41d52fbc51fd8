/** The rules of a comparison: paths that are left out, and paths of which only the shape is compared. */

import { visible } from "./dom.js";
import { plural } from "./time.js";

/** @typedef {import("./types").Match} Match */
/** @typedef {import("./types").PathSteps} PathSteps */

/** A place in a value, as the steps of each path that are left there. */
export class Place {
  /** @param {PathSteps[]} ignore @param {PathSteps[]} shape */
  constructor(ignore, shape) {
    this.ignore = closed(ignore);
    this.shapes = closed(shape);
  }

  /** Return the root of a payload. @param {Match | null} match */
  static root(match) {
    return new Place(match?.steps.ignore ?? [], match?.steps.shape ?? []);
  }

  /** Return whether the value here is left out. */
  get ignored() {
    return this.ignore.some((steps) => steps.length === 0);
  }

  /** Return whether only the shape of the value here is compared. */
  get shape() {
    return this.shapes.some((steps) => steps.length === 0);
  }

  /** Return the place at a key of an object, or at an index of an array. @param {string | number} key */
  below(key) {
    return new Place(walked(this.ignore, key), walked(this.shapes, key));
  }
}

/** Add the paths whose `**` matches nothing. @param {PathSteps[]} paths */
function closed(paths) {
  return [...paths, ...paths.filter(([first]) => first === "**").map((steps) => steps.slice(1))];
}

/** @param {PathSteps[]} paths @param {string | number} key */
function walked(paths, key) {
  return paths.flatMap((steps) => {
    const [first] = steps;
    if (first === "**") return [steps];
    return first === "*" || (Array.isArray(first) && first.includes(key)) ? [steps.slice(1)] : [];
  });
}

/** Return whether two values have the same shape, without what is left out. @param {any} a @param {any} b @param {Place} place @returns {boolean} */
export function sameShape(a, b, place) {
  if (isObject(a) && isObject(b)) {
    const kept = (/** @type {object} */ value) => Object.keys(value).filter((key) => !place.below(key).ignored);
    const [keys, others] = [kept(a), kept(b)];
    return keys.length === others.length && keys.every((key) => others.includes(key) && sameShape(a[key], b[key], place.below(key)));
  }
  if (Array.isArray(a) && Array.isArray(b)) {
    const fits = (/** @type {any[]} */ some, /** @type {any[]} */ all) =>
      some.every((one, at) => all.some((other) => sameShape(one, other, place.below(at))));
    return a.length === 0 || b.length === 0 || (fits(a, b) && fits(b, a));
  }
  return typeof a === typeof b && (a === null) === (b === null) && Array.isArray(a) === Array.isArray(b);
}

/** @param {any} value */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return the rules as text. @param {Match} match */
export function rulesText({ ignore, shape, tolerance, bytes_only, unnamed }) {
  const rules = [];
  if (ignore.length) rules.push(`without ${ignore.map(visible).join(", ")}`);
  if (shape.length) rules.push(`by shape only: ${shape.map(visible).join(", ")}`);
  if (unnamed) rules.push(`with rules for ${plural(unnamed, "path")} that this file does not name`);
  if (tolerance) rules.push(`numbers that differ by ${tolerance} or less are equal`);
  if (bytes_only) rules.push("byte for byte");
  return rules.length ? rules.join("; ") : "by value";
}
