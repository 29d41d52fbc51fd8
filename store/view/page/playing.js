/** The pace of a playback: how recorded time passes, and how long silences are shortened. */

/** Silences that would last longer are shortened to this: s of the viewer's time. */
export const LONGEST_SILENCE = 2;

/**
 * Return the recorded time after some time of the viewer.
 * @param {bigint} now recorded ns @param {number} seconds of the viewer @param {number} speed
 * @param {bigint | null} next time of the next message; null if there is none
 * @returns {{ now: bigint, skipped: bigint }} `skipped`: ns of a silence that were skipped
 */
export function advanced(now, seconds, speed, next) {
  const longest = BigInt(Math.round(LONGEST_SILENCE * speed * 1e9));
  let skipped = 0n;
  if (next !== null && next - now > longest) {
    skipped = next - now - longest;
    now += skipped;
  }
  return { now: now + BigInt(Math.round(seconds * speed * 1e9)), skipped };
}

/**
 * Return the speed at which messages are played in so many seconds, with silences shortened.
 * @param {BigInt64Array} times of all messages @param {Int32Array} rows those that are played, ascending
 * @param {number} seconds
 */
export function speedFor(times, rows, seconds) {
  if (rows.length < 2) return 1;
  const silences = new Float64Array(rows.length - 1);
  for (let at = 1; at < rows.length; at += 1) silences[at - 1] = Number(times[rows[at]] - times[rows[at - 1]]) / 1e9;
  silences.sort();
  const longest = silences[silences.length - 1];
  if (longest === 0) return 1;
  // faster from silence to silence, until the longer ones, each shortened, and the others take the time
  let before = 0;
  for (let at = 0; at < silences.length; at += 1) {
    const left = seconds - (silences.length - at) * LONGEST_SILENCE;
    if (left >= 0 && before === 0) return longest / LONGEST_SILENCE; // nothing need be shortened
    if (left > 0 && before / left <= silences[at] / LONGEST_SILENCE) return before / left;
    before += silences[at];
  }
  return before / seconds;
}
