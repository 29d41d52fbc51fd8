import assert from "node:assert/strict";
import { test } from "node:test";

import { Alignment, FoldedRows } from "../../../../store/view/page/alignment.js";
import { textDifference } from "../../../../store/view/page/text_difference.js";
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
