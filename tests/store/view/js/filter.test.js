import assert from "node:assert/strict";
import { test } from "node:test";

import { activityOf, pairsOf } from "../../../../store/view/page/counting.js";
import { countedRows, filterOf, rowsOf } from "../../../../store/view/page/filter.js";
import { State } from "../../../../store/view/page/state.js";
import { messagesOf } from "./making.js";

const SECOND = 1_000_000_000n;
const TALK = [
  { ts: 0n, text: "one", from: 5, to: 6, channel: "x" },
  { ts: SECOND, text: "two", from: 6, to: 5, channel: "y" },
  { ts: 2n * SECOND, text: "one more", from: "5", to: 6, channel: "x" },
  { ts: 3n * SECOND, text: "three", from: 7, channel: "toString", kind: "blocked" },
];

/** Return the rows that fit the fragment of a URL. */
async function rows(fragment) {
  return [...rowsOf(await messagesOf(TALK), filterOf(new State(fragment, () => {})))];
}

test("every condition of a link selects rows, and together they select those that fit all", async () => {
  assert.deepEqual(await rows(""), [0, 1, 2, 3]);
  assert.deepEqual(await rows("#q=ONE"), [0, 2]);
  assert.deepEqual(await rows("#agent=5"), [0, 1]);
  assert.deepEqual(await rows("#agent=%225%22"), [2]);
  assert.deepEqual(await rows("#agent=5&agent=7"), [0, 1, 3]);
  assert.deepEqual(await rows("#between=6&between=5"), [0, 1]);
  assert.deepEqual(await rows("#channel=toString"), [3]);
  assert.deepEqual(await rows("#kind=blocked"), [3]);
  assert.deepEqual(await rows("#since=1000000000&until=3000000000"), [1, 2]);
  assert.deepEqual(await rows("#agent=6&channel=x&q=more"), [2]);
});

test("conditions that name nothing select nothing, and invalid times are no condition", async () => {
  assert.deepEqual(await rows("#agent=8"), []);
  assert.deepEqual(await rows("#channel=__proto__"), []);
  assert.deepEqual(await rows("#kind=nonsense"), []);
  assert.deepEqual(await rows("#since=3&until=2"), []);
  assert.deepEqual(await rows("#since=x&until=1e9"), [0, 1, 2, 3]);
});

test("blocked and failed messages count only if the filter asks for kinds", async () => {
  const kinds = ["sent", "blocked", "failed", "received", "blocked"];
  const messages = await messagesOf(kinds.map((kind, at) => ({ ts: BigInt(at), text: "", kind })));
  const counted = (fragment) => {
    const filter = filterOf(new State(fragment, () => {}));
    return [...countedRows(messages, rowsOf(messages, filter), filter)];
  };
  assert.deepEqual(counted(""), [0, 3]);
  assert.deepEqual(counted("#since=1&until=4"), [3]);
  assert.deepEqual(counted("#kind=blocked&kind=sent"), [0, 1, 4]);
});

test("activity counts every row in its bucket, the largest series first", async () => {
  const messages = await messagesOf(TALK);
  const { starts, series } = activityOf(messages, Int32Array.of(0, 1, 2, 3), 0n, 4n * SECOND, 2, "channel");
  assert.deepEqual([...starts], [0, 2]);
  assert.deepEqual(series.map(({ label, counts }) => [label, ...counts]), [
    ["x", 1, 1],
    ["y", 1, 0],
    ["toString", 0, 1],
  ]);
});

test("activity of many senders has the rest as one series", async () => {
  const messages = await messagesOf(Array.from({ length: 40 }, (_, at) => ({ ts: 0n, from: at % 20, text: "" })));
  const { series } = activityOf(messages, Int32Array.from({ length: 40 }, (_, at) => at), 0n, SECOND, 1, "from");
  assert.equal(series.at(-1).at, -1);
  assert.equal(series.reduce((sum, { counts }) => sum + counts[0], 0), 40);
});

test("pairs count messages by sender and recipient", async () => {
  const messages = await messagesOf(TALK);
  const found = pairsOf(messages, Int32Array.of(0, 1, 2, 3));
  assert.equal(found.length, 4);
  assert.equal(found.find(({ to }) => to === 0).count, 1);
});
