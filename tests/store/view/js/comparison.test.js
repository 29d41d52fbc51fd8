import assert from "node:assert/strict";
import { test } from "node:test";

import { Alignment, FoldedRows } from "../../../../store/view/page/alignment.js";
import { textDifference } from "../../../../store/view/page/text_difference.js";
import { valueDifferences } from "../../../../store/view/page/value_difference.js";
import { messagesOf } from "./making.js";

/** Return the alignment of texts; `rows` are [kind, a, b, length], with a and b as numbers of messages or null. */
async function aligned(a, b, runs, kinds = ["sent"]) {
  const columns = { kind: [], a: [], b: [], length: [] };
  let nextA = 0;
  let nextB = 0;
  for (const [kind, atA, atB, length] of runs) {
    columns.kind.push(kind);
    columns.length.push(length);
    columns.a.push(atA === null ? 0 : atA - nextA);
    columns.b.push(atB === null ? 0 : atB - nextB);
    if (atA !== null) nextA = atA + length;
    if (atB !== null) nextB = atB + length;
  }
  const messages = await Promise.all([a, b].map((texts) => messagesOf(texts)));
  return new Alignment({ rows: columns, kinds }, ...messages);
}

const talk = (count) => Array.from({ length: count }, (_, at) => ({ text: String(at) }));

test("rows name the messages that were compared", async () => {
  const a = [{ text: "0" }, { text: "no", kind: "blocked" }, { text: "1" }, { text: "2" }];
  const found = await aligned(a, talk(4), [[0, 0, 0, 1], [2, 1, 3, 1], [1, 2, 1, 1], [4, null, 2, 1]]);
  assert.deepEqual([...found.kind], [0, 2, 1, 4]);
  assert.deepEqual([...found.a], [0, 2, 3, -1]);
  assert.deepEqual([...found.b], [0, 3, 1, 2]);
  assert.equal(found.rowOf("a", 3), 2);
  assert.equal(found.rowOf("b", 2), 3);
  assert.equal(found.rowOf("a", 1), -1);
});

test("the next and the previous difference are found from any row", async () => {
  const found = await aligned(talk(10), talk(10), [[0, 0, 0, 3], [1, 3, 3, 1], [0, 4, 4, 3], [3, 7, null, 1], [0, 8, 7, 2]]);
  assert.deepEqual([...found.differences], [3, 7]);
  assert.deepEqual([-1, 2, 3, 6, 7, 9].map((row) => found.next(row, 1)), [3, 3, 7, 7, -1, -1]);
  assert.deepEqual([0, 3, 4, 7, 9].map((row) => found.next(row, -1)), [-1, -1, 3, 3, 7]);
  assert.equal(found.next(0, 1, 3), 7);
  assert.equal(found.next(0, 1, 4), -1);
});

test("equal rows are folded, except some beside a difference, and unfolded", async () => {
  const found = await aligned(talk(40), talk(40), [[0, 0, 0, 20], [1, 20, 20, 1], [0, 21, 21, 19]]);
  const rows = new FoldedRows(found);
  assert.deepEqual([...rows.items], [-1, 18, 19, 20, 21, 22, -2]);
  assert.deepEqual(rows.folds, [{ from: 0, until: 18 }, { from: 23, until: 40 }]);
  assert.equal(rows.folded, 35);
  assert.deepEqual([0, 17, 18, 20, 30, 39].map((row) => rows.itemOf(row)), [0, 0, 1, 3, 6, 6]);
  rows.unfold(6);
  assert.deepEqual([rows.length, rows.itemOf(30), rows.rowOf(22)], [23, 13, 39]);
  rows.all = true;
  rows.fold();
  assert.deepEqual([rows.length, rows.folded], [40, 0]);
});

test("runs without a difference, and without messages, have rows", async () => {
  const equal = new FoldedRows(await aligned(talk(9), talk(9), [[0, 0, 0, 9]]));
  assert.deepEqual([...equal.items], [-1]);
  const empty = new FoldedRows(await aligned([], [], []));
  assert.deepEqual([empty.length, empty.rowOf(0)], [0, -1]);
});

const marked = (a, b) =>
  textDifference(a, b).map((all) => all.map(({ text, changed }) => (changed ? `[${text}]` : text)).join(""));

test("changed words are marked on both sides", () => {
  assert.deepEqual(marked("the red apple fell", "the green apple fell"), ["the [red] apple fell", "the [green] apple fell"]);
  assert.deepEqual(marked("same words here", "same here"), ["same [words ]here", "same here"]);
  assert.deepEqual(marked("go to the old town hall now", "go to a new town hall now"), [
    "go to [the old] town hall now",
    "go to [a new] town hall now",
  ]);
  assert.deepEqual(marked("equal", "equal"), ["equal", "equal"]);
  assert.deepEqual(marked("", "new"), ["", "[new]"]);
});

test("texts without common words are marked as wholes, and long ones at the end as well", () => {
  assert.deepEqual(marked("nothing alike", "completely other"), ["[nothing alike]", "[completely other]"]);
  const long = "word ".repeat(3000);
  assert.deepEqual(marked(`${long}a`, `${long}a`), [`${long}a`, `${long}a`]);
  const [a, b] = textDifference(`${long}a`, `${long}b`);
  assert.equal(a.map(({ text }) => text).join(""), `${long}a`);
  assert.ok(a.at(-1).changed && b.at(-1).changed && !a[0].changed);
});

test("texts in scripts without spaces are marked by words", () => {
  const [a] = marked("私は今日人狼を占います", "私は明日人狼を占います");
  assert.equal(a, "私は[今日]人狼を占います");
});

test("paths that differ have both values, also in JSON within JSON", () => {
  const inner = (text) => JSON.stringify({ content: text, day: 1 });
  const a = JSON.stringify({ t: 1, same: [1, 2], gone: null, inner: inner("x"), "odd key": 1, __proto__: 1 });
  const b = JSON.stringify({ t: 1.5, same: [1, 3, 4], inner: inner("y"), "odd key": 2 });
  assert.deepEqual(valueDifferences(a, b), [
    { path: "$.t", a: "1", b: "1.5" },
    { path: "$.same[1]", a: "2", b: "3" },
    { path: "$.same[2]", a: null, b: "4" },
    { path: "$.gone", a: "null", b: null },
    { path: "$.inner.content", a: '"x"', b: '"y"' },
    { path: '$["odd key"]', a: "1", b: "2" },
  ]);
  assert.deepEqual(valueDifferences('{"__proto__": 1}', "{}"), [{ path: "$.__proto__", a: "1", b: null }]);
  assert.deepEqual(valueDifferences("[]", "{}"), [{ path: "$", a: "[]", b: "{}" }]);
  assert.equal(valueDifferences("text", "{}"), null);
  assert.equal(valueDifferences("[1,2,3,4]", "[]", null, 2)?.length, 2);
});

/** Return the paths that differ by rules. */
function differing(a, b, { ignore = [], shape = [], tolerance = 0 }) {
  const match = { ignore: [], shape: [], tolerance, bytes_only: false, steps: { ignore, shape }, unnamed: 0 };
  return valueDifferences(JSON.stringify(a), JSON.stringify(b), match).map(({ path }) => path);
}

test("values that the rules leave out do not differ", () => {
  const a = { t: 1, n: 1, items: [{ t: 2, id: 7, name: "x" }], inner: JSON.stringify({ t: 3, text: "x" }) };
  const b = { n: 1.5, items: [{ t: 5, id: 8, name: "y" }, { t: 6 }], inner: JSON.stringify({ t: 6, text: "y" }), t: null };
  const all = ["$.t", "$.n", "$.items[0].t", "$.items[0].id", "$.items[0].name", "$.items[1]", "$.inner.t", "$.inner.text"];
  const without = (rules, ...paths) => assert.deepEqual(differing(a, b, rules), all.filter((path) => !paths.includes(path)));
  without({});
  without({ ignore: [[["t"]]] }, "$.t");
  without({ ignore: [["**", ["t"]]] }, "$.t", "$.items[0].t", "$.inner.t");
  without({ ignore: [[["items"], "*", ["id"]], [["items"], ["1", 1]]] }, "$.items[0].id", "$.items[1]");
  without({ tolerance: 0.5 }, "$.n");
  without({ tolerance: 1 }, "$.n", "$.items[0].id");
  assert.deepEqual(differing(a, b, { ignore: ["**"].map((step) => [step]) }), []);
});

test("of some paths only the shape is compared", () => {
  const shape = [[["x"]]];
  assert.deepEqual(differing({ x: "a", y: 1 }, { x: "b", y: 2 }, { shape }), ["$.y"]);
  assert.deepEqual(differing({ x: [1, 2] }, { x: [3] }, { shape }), []);
  assert.deepEqual(differing({ x: [1] }, { x: ["1"] }, { shape }), ["$.x"]);
  assert.deepEqual(differing({ x: { a: 1 } }, { x: { a: 1, b: 2 } }, { shape }), ["$.x"]);
  assert.deepEqual(differing({ x: { a: 1 } }, { x: { a: 1, b: 2 } }, { shape, ignore: [[["x"], ["b"]]] }), []);
  assert.deepEqual(differing({ x: null }, { x: {} }, { shape }), ["$.x"]);
  assert.deepEqual(differing({ x: 1 }, {}, { shape }), ["$.x"]);
});
