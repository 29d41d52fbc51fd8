import assert from "node:assert/strict";
import { test } from "node:test";

import { ROW, Scale } from "../../../../store/view/page/scale.js";
import { recording } from "./recording.js";

/** Return the scale of all rows of messages at these seconds. */
function scaleOf(times, { events = [], how, received = {} } = {}) {
  const messages = recording(times.map((at, row) => ({ from: "a", at, received: received[row] })));
  return new Scale(messages, Int32Array.from(times, (_, row) => row), events, how);
}

const mark = (seconds, text, kind = "mark") => ({ kind, seconds, text });
const ascending = (values) => values.every((value, at) => at === 0 || values[at - 1] < value);

test("even rows have the same height, whatever the time between them", () => {
  const { ys } = scaleOf([0, 1, 1, 1000, 80_000]);
  assert.deepEqual([1, 2, 3, 4].map((at) => ys[at] - ys[at - 1]), [ROW, ROW, ROW, ROW]);
});

test("marks, gaps and days stand between the rows around them; marks in one place share a line", () => {
  const events = [mark(0.5, "one"), mark(0.6, "two"), mark(0.7, "lost", "gap"), mark(5, "end")];
  const scale = scaleOf([0, 1, 90_000], { events });
  const lines = scale.bands.map((band) => [band.kind, scale.text(band)]);
  assert.deepEqual(lines, [
    ["day", "1970-01-01"],
    ["mark", "one … two (2 marks)"],
    ["gap", "lost"],
    ["mark", "end"],
    ["day", "1970-01-02"],
  ]);
  const places = [scale.bands[0].y, scale.ys[0], scale.bands[1].y, scale.bands[2].y, scale.ys[1], scale.bands[3].y];
  assert.ok(ascending([...places, scale.bands[4].y, scale.ys[2], scale.height]));
  assert.equal(scale.gap(0.7), scale.bands[2].y);
});

test("marks behind the last row are at the end", () => {
  const scale = scaleOf([0, 1], { events: [mark(9, "end")] });
  assert.ok(ascending([scale.ys[1], scale.bands[1].y, scale.height]));
});

test("a reception is as far down as the rows that were sent before it", () => {
  const received = { 0: [["M", 1, 2500]], 1: [["M", 2, 0]] };
  const scale = scaleOf([0, 1, 2, 3], { received });
  const { ys } = scale;
  assert.equal(scale.received(0, 2.5e9), (ys[2] + ys[3]) / 2);
  assert.equal(scale.received(1, 0), ys[1]);
  assert.equal(scale.received(1, -5e9), ys[1], "an arrow does not go up");
  assert.ok(scale.received(3, 1e12) < scale.height);
});

test("of messages of one time, none arrives above its own row", () => {
  const scale = scaleOf([1e9, 1e9, 1e9], { received: { 2: [["M", 1, 1e-6]] } });
  assert.equal(scale.received(2, 1), scale.ys[2]);
});

test("rows whose arrows reach into an area are found, however far above they begin", () => {
  const times = Array.from({ length: 2000 }, (_, at) => at);
  const scale = scaleOf(times, { received: { 3: [["M", 1, 1_800_500]], 5: [["M", 2, 1]] } });
  const top = scale.ys[1800];
  assert.deepEqual(scale.crossing(top - 1, scale.ys[1803]), [3, 1800, 1801, 1802]);
  assert.deepEqual(scale.crossing(scale.ys[1805], scale.ys[1806]), [1805]);
});

test("with times, distances are times, and a long silence is shortened and says how long it was", () => {
  const scale = scaleOf([0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 100_000], { how: { byTime: true } });
  const { ys } = scale;
  const second = ys[1] - ys[0];
  assert.ok(second > 5);
  assert.ok(Math.abs(ys[3] - ys[2] - 2 * second) < 1e-6);
  assert.ok(ys[11] - ys[10] < 5 * second);
  const silence = scale.bands.find(({ kind }) => kind === "silence");
  assert.equal(scale.text(silence), "27 h 46 min");
  scale.messages.ts[11] = scale.messages.ts[10] + 500n;
  assert.equal(scale.text(silence), "500 ns");
  assert.ok(ascending([ys[10], silence.y, ys[11]]));
  const closer = scaleOf([0, 1, 2, 4, 5], { how: { byTime: true, zoom: 2 } });
  assert.ok(closer.ys[1] - closer.ys[0] > 1.5 * second);
});

test("messages of one time stay apart, and an empty scale has a height", () => {
  assert.ok(ascending([...scaleOf([1, 1, 1], { how: { byTime: true } }).ys]));
  for (const byTime of [false, true]) {
    const scale = scaleOf([], { how: { byTime } });
    assert.ok(scale.height > 0);
    assert.deepEqual(scale.crossing(0, 1000), []);
    assert.ok(Number.isFinite(scale.y(5)));
  }
});

test("the bands of an area are found", () => {
  const scale = scaleOf([0, 90_000, 180_000, 270_000]);
  assert.deepEqual(scale.bandsIn(scale.ys[0], scale.ys[2]).map((band) => scale.text(band)), ["1970-01-02", "1970-01-03"]);
});
