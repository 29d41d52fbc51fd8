import assert from "node:assert/strict";
import { test } from "node:test";

import { advanced, LONGEST_SILENCE, speedFor } from "../../../../store/view/page/playing.js";

const SECOND = 1_000_000_000n;

test("recorded time passes at the speed, and long silences are shortened", () => {
  assert.deepEqual(advanced(0n, 0.5, 10, 6n * SECOND), { now: 5n * SECOND, skipped: 0n });
  assert.deepEqual(advanced(0n, 0.5, 10, 20n * SECOND), { now: 5n * SECOND, skipped: 0n });
  assert.deepEqual(advanced(0n, 0.5, 10, 120n * SECOND), { now: 105n * SECOND, skipped: 100n * SECOND });
  assert.deepEqual(advanced(7n, 1, 1, null), { now: SECOND + 7n, skipped: 0n });
});

/** Return the seconds that a playback takes. */
function duration(times, speed) {
  let total = 0;
  for (let at = 1; at < times.length; at += 1) {
    total += Math.min(Number(times[at] - times[at - 1]) / 1e9 / speed, LONGEST_SILENCE);
  }
  return total;
}

test("a run is played in the wanted time, whatever its silences are", () => {
  const runs = {
    steady: Array.from({ length: 500 }, (_, at) => BigInt(at) * SECOND),
    bursts: Array.from({ length: 500 }, (_, at) => BigInt(at) * SECOND + BigInt(Math.floor(at / 50)) * 10_000_000n * SECOND),
    growing: Array.from({ length: 300 }, (_, at) => BigInt(at) ** 4n * SECOND),
    together: Array.from({ length: 300 }, (_, at) => BigInt(Math.floor(at / 3)) ** 3n),
  };
  for (const [name, times] of Object.entries(runs)) {
    const speed = speedFor(BigInt64Array.from(times), Int32Array.from(times.keys()), 60);
    assert.ok(Math.abs(duration(times, speed) - 60) < 1e-3, `${name}: ${duration(times, speed)} s`);
  }
});

test("a few messages are played in less, with no silence shortened", () => {
  const times = BigInt64Array.of(0n, SECOND, 101n * SECOND);
  const speed = speedFor(times, Int32Array.of(0, 1, 2), 60);
  assert.equal(speed, 50);
  assert.equal(speedFor(times, Int32Array.of(1), 60), 1);
  assert.equal(speedFor(BigInt64Array.of(5n, 5n), Int32Array.of(0, 1), 60), 1);
});
