/**
 * JSON as it is written: the parts of a text, found when they are shown. Numbers keep their digits, and objects their
 * order and double keys, which JSON.parse does not; texts of any depth and size cost only what is looked at.
 */

/**
 * Return whether a text is a JSON object or list.
 * @param {string} text
 */
export function isJson(text) {
  if (!/^[ \t\r\n]*[{[]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** @typedef {{ key: string | null, from: number, until: number }} Member */

/**
 * Yield the members of the object or list that begins at a position: the key as it is written, and the place of the value.
 * @param {string} text valid JSON
 * @param {number} from
 * @returns {Generator<Member>}
 */
export const members = function* (text, from) {
  const isObject = text[from] === "{";
  let at = blank(text, from + 1);
  while (at < text.length && text[at] !== "}" && text[at] !== "]") {
    let key = null;
    if (isObject) {
      const end = endOfString(text, at);
      key = text.slice(at, end);
      at = blank(text, blank(text, end) + 1);
    }
    const until = endOfValue(text, at);
    yield { key, from: at, until };
    at = blank(text, until);
    if (text[at] === ",") at = blank(text, at + 1);
  }
};

/** Return the first position that is no white space. @param {string} text @param {number} at */
export function blank(text, at) {
  while (at < text.length && " \t\r\n".includes(text[at])) at += 1;
  return at;
}

/** Return the end of a value. @param {string} text @param {number} from */
function endOfValue(text, from) {
  if (text[from] === '"') return endOfString(text, from);
  if (text[from] !== "{" && text[from] !== "[") {
    let at = from;
    while (at < text.length && !",]} \t\r\n".includes(text[at])) at += 1;
    return at;
  }
  let depth = 0;
  for (let at = from; at < text.length; at += 1) {
    const unit = text[at];
    if (unit === '"') at = endOfString(text, at) - 1;
    else if (unit === "{" || unit === "[") depth += 1;
    else if ((unit === "}" || unit === "]") && (depth -= 1) === 0) return at + 1;
  }
  return text.length;
}

/** Return the end of a string. @param {string} text @param {number} from position of its first quote */
function endOfString(text, from) {
  for (let at = text.indexOf('"', from + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = 0;
    while (text[at - 1 - escapes] === "\\") escapes += 1;
    if (escapes % 2 === 0) return at + 1;
  }
  return text.length;
}
