/** Text to search in, and to search for: without differences of case, width and form. */

/**
 * Return folded text: NFKC-normalised and case-folded, as near to Python's as JavaScript has it.
 * @param {string} text
 * @returns {string}
 */
export function fold(text) {
  if (ASCII.test(text)) return text.toLowerCase();
  return text.normalize("NFKC").toUpperCase().toLowerCase().replaceAll("ς", "σ");
}

const ASCII = /^[\x00-\x7f]*$/;
