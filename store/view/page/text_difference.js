/** Words in which two texts differ. */

/** @typedef {{ text: string, changed: boolean }} Segment */

/** Characters of a text that are compared by words; of what follows, only the begin is. */
const COMPARED = 8_000;
/** Pairs of words that are compared, at most; else all words between the common ends are marked. */
const CELLS = 400_000;
/** Share of words in common below which marks would not help. */
const LEAST = 0.15;
const WORDS = /\s+|[\p{L}\p{M}\p{N}_]+|[^\s\p{L}\p{M}\p{N}_]/gu;

/**
 * Return the segments of two texts: what only one of them has is `changed`.
 * @param {string} a
 * @param {string} b
 * @returns {[Segment[], Segment[]]}
 */
export function textDifference(a, b) {
  if (a === b) return [whole(a, false), whole(b, false)];
  const [headA, headB] = [a.slice(0, COMPARED), b.slice(0, COMPARED)];
  const wordsA = wordsOf(headA);
  const wordsB = wordsOf(headB);
  const keptA = new Uint8Array(wordsA.length);
  const keptB = new Uint8Array(wordsB.length);
  align(wordsA, wordsB, keptA, keptB);
  const common = wordsA.reduce((sum, word, at) => sum + (keptA[at] && word.trim() ? word.length : 0), 0);
  if (common < LEAST * Math.max(headA.length, headB.length)) return [whole(a, true), whole(b, true)];
  const tail = (/** @type {string} */ text) => text.slice(COMPARED);
  const same = tail(a) === tail(b);
  return [segments(wordsA, keptA, tail(a), same), segments(wordsB, keptB, tail(b), same)];
}

/** @param {string} text @param {boolean} changed @returns {Segment[]} */
function whole(text, changed) {
  return text ? [{ text, changed }] : [];
}

/** @param {string} text @returns {string[]} */
function wordsOf(text) {
  if (typeof Intl.Segmenter !== "function") return text.match(WORDS) ?? [];
  segmenter ??= new Intl.Segmenter(undefined, { granularity: "word" });
  return Array.from(segmenter.segment(text), ({ segment }) => segment);
}

/** @type {Intl.Segmenter | undefined} */
let segmenter;

/** Set 1 for the words of a longest common subsequence. @param {string[]} a @param {string[]} b
 * @param {Uint8Array} keptA @param {Uint8Array} keptB */
function align(a, b, keptA, keptB) {
  let begin = 0;
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin += 1;
  let endA = a.length;
  let endB = b.length;
  while (endA > begin && endB > begin && a[endA - 1] === b[endB - 1]) {
    endA -= 1;
    endB -= 1;
  }
  keptA.fill(1, 0, begin).fill(1, endA);
  keptB.fill(1, 0, begin).fill(1, endB);
  const height = endA - begin;
  const width = endB - begin;
  if (height * width === 0 || height * width > CELLS) return;
  const wide = width + 1;
  const best = new Uint16Array((height + 1) * wide);
  for (let y = height - 1; y >= 0; y -= 1) {
    for (let x = width - 1; x >= 0; x -= 1) {
      best[y * wide + x] =
        a[begin + y] === b[begin + x]
          ? best[(y + 1) * wide + x + 1] + 1
          : Math.max(best[(y + 1) * wide + x], best[y * wide + x + 1]);
    }
  }
  for (let y = 0, x = 0; y < height && x < width; ) {
    if (a[begin + y] === b[begin + x]) {
      keptA[begin + y++] = 1;
      keptB[begin + x++] = 1;
    } else if (best[(y + 1) * wide + x] >= best[y * wide + x + 1]) y += 1;
    else x += 1;
  }
}

/** @param {string[]} words @param {Uint8Array} kept @param {string} tail @param {boolean} same @returns {Segment[]} */
function segments(words, kept, tail, same) {
  /** @type {Segment[]} */
  const found = [];
  const add = (/** @type {string} */ text, /** @type {boolean} */ changed) => {
    const last = found.at(-1);
    if (last !== undefined && last.changed === changed) last.text += text;
    else found.push({ text, changed });
  };
  // A space between two changed words is part of the change.
  words.forEach((word, at) => {
    const between = kept[at] && !word.trim() && at > 0 && !kept[at - 1] && at + 1 < words.length && !kept[at + 1];
    add(word, !kept[at] || Boolean(between));
  });
  if (tail) add(tail, !same);
  return found;
}
