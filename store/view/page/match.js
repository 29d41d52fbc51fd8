/** The rules of a comparison as text. */

import { visible } from "./dom.js";
import { plural } from "./time.js";

/** @typedef {import("./types").Match} Match */

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
