/** Payloads without their text, as `store/view/columns.py` writes them (`FORMS`), put together again. */

/**
 * Return the exact payload.
 * @param {Uint8Array} data the stored bytes; with a form, the byte 1 stands for the text
 * @param {number} form
 * @param {string} text
 * @returns {Uint8Array}
 */
export function joined(data, form, text) {
  if (form === 0) return data;
  const middle = new TextEncoder().encode(FORMS[form - 1](text));
  const at = data.indexOf(1);
  const found = new Uint8Array(data.length - 1 + middle.length);
  found.set(data.subarray(0, at), 0);
  found.set(middle, at);
  found.set(data.subarray(at + 1), at + middle.length);
  return found;
}

/** JSON as Python's json.dumps writes a text. @param {string} text */
const plain = (text) => JSON.stringify(text);
/** @param {string} text */
const ascii = (text) =>
  plain(text).replace(/[\x7f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** @type {((text: string) => string)[]} */
const FORMS = [
  (text) => text,
  ascii,
  plain,
  (text) => ascii(ascii(text)),
  (text) => ascii(plain(text)),
];
