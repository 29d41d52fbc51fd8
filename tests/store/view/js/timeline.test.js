import assert from "node:assert/strict";
import { test } from "node:test";

import { joined } from "../../../../store/view/page/spans.js";
import { emptyTimes, TimeAxis, Viewport } from "../../../../store/view/page/time_axis.js";
import { lengthText, LENGTHS, roundDown, ticksOf } from "../../../../store/view/page/time_ticks.js";
import { barsOf, rankingOf } from "../../../../store/view/page/timeline_bars.js";
import { rangeOf } from "../../../../store/view/page/timeline_brush.js";
import { spanText } from "../../../../store/view/page/timeline_info.js";
import { chaptersOf, joinedBy } from "../../../../store/view/page/timeline_strip.js";
import { messagesOf } from "./making.js";

const SECOND = 1_000_000_000n;
const DAY = 86_400n * SECOND;
/** 2026-03-01 08:00 UTC */
const MORNING = 1_772_352_000n * SECOND;

/** Return a viewport of the whole of a span. */
function shown(since, until, width = 1000, cuts = []) {
  const axis = new TimeAxis({ since, until }, cuts);
  return new Viewport(axis, 0n, axis.length, width);
}

test("an axis with cuts gives every time outside of them back", () => {
  const cuts = [{ since: 100n, until: 1_000n }, { since: 2_000n, until: 50_000n }];
  const axis = new TimeAxis({ since: 0n, until: 60_000n }, cuts);
  assert.equal(axis.length, 11_100n);
  for (const ts of [-5n, 0n, 99n, 1_000n, 1_999n, 50_000n, 60_000n, 60_007n]) assert.equal(axis.ts(axis.at(ts)), ts);
  assert.equal(axis.at(500n), axis.at(1_000n), "a time in a cut is at the cut");
});

test("long empty times are cut out, with a margin, and steady traffic is left as it is", () => {
  const talk = Array.from({ length: 50 }, (_, at) => BigInt(at) * SECOND);
  assert.deepEqual(emptyTimes(BigInt64Array.from(talk)), []);
  const later = talk.map((ts) => ts + 1000n * DAY);
  const [cut, ...more] = emptyTimes(BigInt64Array.from([...talk, ...later]));
  assert.deepEqual(more, []);
  assert.ok(cut.since > talk[49] && cut.since < talk[49] + 5n * SECOND);
  assert.ok(cut.until < later[0] && cut.until > later[0] - 5n * SECOND);
  assert.deepEqual(emptyTimes(new BigInt64Array(0)), []);
  assert.deepEqual(emptyTimes(BigInt64Array.from([7n, 7n])), []);
});

test("zooming keeps the time at the pointer, from years to microseconds, and stays within the axis", () => {
  let viewport = shown(0n, 14n * 365n * DAY);
  const ts = viewport.ts(300);
  while (viewport.to - viewport.from > 10_000n) {
    viewport = viewport.zoomed(0.5, 300);
    assert.ok(Math.abs(viewport.x(ts) - 300) < 1, `${viewport.x(ts)}`);
  }
  for (let times = 0; times < 50; times += 1) viewport = viewport.zoomed(0.5, 300);
  assert.equal(viewport.to - viewport.from, 2_000n, "it shows two microseconds at least");
  for (let times = 0; times < 70; times += 1) viewport = viewport.zoomed(2, 300);
  assert.ok(viewport.whole);
  assert.deepEqual([viewport.panned(-500).from, viewport.panned(500).from], [0n, 0n]);
});

test("ticks are round times with labels that do not meet, at every length", () => {
  for (const length of [3_000n, 50_000n, ...LENGTHS.filter((one) => one >= SECOND).map((one) => one * 7n), 5_110n * DAY]) {
    const ticks = ticksOf(shown(MORNING, MORNING + length));
    assert.ok(ticks.length >= 1 && ticks.length <= 13, `${ticks.length} ticks for ${length} ns`);
    for (let at = 1; at < ticks.length; at += 1) assert.ok(ticks[at].x - ticks[at - 1].x >= 75, `${length}`);
    assert.equal(new Set(ticks.map(({ text, ts }) => `${text} ${ts / DAY}`)).size, ticks.length, `${length}`);
  }
});

test("labels tell years, months, days, minutes, and parts of a second with their context", () => {
  const labels = (since, length) => ticksOf(shown(since, since + length, 400)).map(({ text, under }) => [text, under]);
  assert.deepEqual(labels(MORNING - 1n, 4n * 365n * DAY)[0], ["2027", ""]);
  assert.deepEqual(labels(MORNING, 90n * DAY).slice(0, 2), [["Apr", "2026"], ["May", ""]]);
  assert.deepEqual(labels(MORNING, 4n * DAY)[0], ["2 Mar", "2026"]);
  assert.deepEqual(labels(MORNING, 240n * SECOND).slice(0, 2), [["08:00", "1 Mar 2026"], ["08:01", ""]]);
  assert.deepEqual(labels(MORNING, 4n * SECOND)[1], ["08:00:01", ""]);
  assert.deepEqual(labels(MORNING + 20_000_000n, 6_000_000n)[0], ["20 ms", "1 Mar 08:00:00"]);
  assert.deepEqual(labels(MORNING + 20_505_000n, 3_000n)[0], ["20.505 ms", "1 Mar 08:00:00"]);
});

test("the time behind a cut has a label", () => {
  const cut = { since: MORNING + 60n * SECOND, until: MORNING + 700n * DAY };
  const ticks = ticksOf(shown(MORNING, cut.until + 60n * SECOND, 1000, [cut]));
  const [tick] = ticks.filter(({ ts }) => ts === cut.until);
  assert.deepEqual([tick.x, tick.under], [500, "30 Jan 2028"]);
});

test("bars begin at round times, and weeks on a Monday, also before 1970", () => {
  assert.equal(roundDown(-1n, SECOND), -SECOND);
  assert.equal(roundDown(MORNING, 7n * DAY), BigInt(Date.UTC(2026, 1, 23)) * 1_000_000n);
  assert.deepEqual([7n * DAY, DAY, 300n * SECOND, SECOND, 5_000n].map(lengthText), ["week", "day", "5 minutes", "second", "5 µs"]);
});

const TALK = [
  { ts: 0n, text: "a", from: 1, channel: "x" },
  { ts: SECOND, text: "b", from: 2, channel: "x" },
  { ts: SECOND + 1n, text: "c", from: 2, channel: "y" },
  { ts: 9n * SECOND, text: "d", from: 3, channel: "y" },
];

test("bars count every row once in the slot of its exact time, and sums are stacked", async () => {
  const messages = await messagesOf(TALK);
  const ranking = rankingOf(messages, "from", []);
  assert.deepEqual(ranking.names.map(({ label }) => label), ["2", "1", "3"]);
  const bars = barsOf(messages, Int32Array.of(0, 1, 2, 3), shown(0n, 10n * SECOND, 30), "from", ranking);
  assert.equal(bars.length, SECOND);
  assert.deepEqual(bars.slots.map((_, slot) => bars.total(slot)), [1, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
  assert.deepEqual([...bars.series[0].counts].slice(0, 2), [0, 2]);
  assert.deepEqual([bars.highest, bars.slotAt(SECOND - 1n), bars.slotAt(SECOND), bars.slotAt(-1n)], [2, 0, 1, -1]);
  const some = barsOf(messages, Int32Array.of(1), shown(SECOND, SECOND + 3_000n, 30), "channel", rankingOf(messages, "channel", []));
  assert.deepEqual([some.total(0), some.highest], [1, 1]);
});

test("the wanted names have a series of their own; the rest is one", async () => {
  const many = Array.from({ length: 40 }, (_, at) => ({ ts: BigInt(at), text: "", from: at < 20 ? at : 0, channel: "x" }));
  const messages = await messagesOf(many);
  const last = messages.agentAt.get("19");
  const ranking = rankingOf(messages, "from", [last]);
  assert.deepEqual([ranking.names[0].label, ranking.names[1].label, ranking.names.length, ranking.others], ["19", "0", 11, 9]);
  const rows = Int32Array.from(many.keys());
  const bars = barsOf(messages, rows, shown(0n, 40n * SECOND, 30), "from", ranking);
  assert.deepEqual([bars.series.at(-1).label, bars.series.at(-1).counts[0], bars.total(0)], ["9 others", 9, 40]);
});

test("a drag makes a range in either direction, moves an edge past the other, or the whole within the run", () => {
  const viewport = shown(0n, 1000n * SECOND);
  const drag = { viewport, since: 100n * SECOND, until: 300n * SECOND };
  const range = (gesture, x, to) => {
    const { since, until } = rangeOf({ ...drag, gesture, x }, to);
    return [BigInt(since) / SECOND, BigInt(until) / SECOND];
  };
  assert.deepEqual(range("new", 700, 500), [500n, 700n]);
  assert.deepEqual(range("new", 500, 5_000), [500n, 1000n], "not beyond what is shown");
  assert.deepEqual(range("since", 100, 400), [300n, 400n]);
  assert.deepEqual(range("until", 300, 50), [50n, 100n]);
  assert.deepEqual(range("move", 200, 250), [150n, 350n]);
  assert.deepEqual(range("move", 200, -900), [0n, 200n]);
  assert.deepEqual(range("move", 200, 1900), [800n, 1000n]);
});

test("a chapter ends at the next mark, and the last one at the end of the run", () => {
  const marks = ["one", "two"].map((label, at) => ({ label, text: label, cursor: "", ts: String(at * 10) }));
  const found = chaptersOf(marks, { since: 0n, until: 99n });
  assert.deepEqual(found.map(({ since, until }) => [since, until]), [[0n, 10n], [10n, 99n]]);
  assert.deepEqual(joinedBy([0, 2, 4, 20, 21], (x) => x, 5), [[0, 2, 4], [20, 21]]);
});

test("spans are told as exactly as their length asks for", () => {
  const until = (length) => spanText({ since: MORNING, until: MORNING + length });
  assert.equal(until(1800n * SECOND), "2026-03-01 08:00 – 08:30");
  assert.equal(until(2n * SECOND), "2026-03-01 08:00:00.000 – 08:00:02.000");
  assert.equal(until(2_000n), "2026-03-01 08:00:00.000000000 – 08:00:00.000002000");
  assert.equal(until(3n * DAY), "2026-03-01 08:00 – 2026-03-04 08:00");
  assert.equal(spanText({ since: MORNING - 28_800n * SECOND, until: MORNING + 57_600n * SECOND }), "2026-03-01");
});

test("spans that overlap are drawn as one", () => {
  assert.deepEqual(joined([[5, 9], [0, 2], [1, 6], [20, 30], [9, 10]]), [[0, 10], [20, 30]]);
});
