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
  const gaps = new Float64Array(rows.length - 1);
  for (let at = 1; at < rows.length; at += 1) gaps[at - 1] = Number(times[rows[at]] - times[rows[at - 1]]) / 1e9;
  let low = 1e-9;
  let high = 1e12;
  for (let round = 0; round < 60; round += 1) {
    const middle = Math.sqrt(low * high);
    let total = 0;
    for (const gap of gaps) total += Math.min(gap / middle, LONGEST_SILENCE);
    if (total > seconds) low = middle;
    else high = middle;
  }
  return high;
}
