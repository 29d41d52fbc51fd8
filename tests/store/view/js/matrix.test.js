import assert from "node:assert/strict";
import { test } from "node:test";

import { pairsOf } from "../../../../store/view/page/counting.js";
import { layout } from "../../../../store/view/page/layout.js";
import { channelsOf, network, tableOf, turnPairs, usual } from "../../../../store/view/page/pairs.js";
import { messagesOf } from "./making.js";

const GROUP = [
  { from: "a", channel: "x" },
  { from: "b", channel: "y" },
  { from: "b", channel: "x" },
  { from: "a", channel: "x" },
  { from: "b", channel: "x" },
];

/** Return the rows of all messages. */
const all = ({ length }) => Int32Array.from({ length }, (_, row) => row);

/** Return `count` agents that each sent to agent 1: agent n sent n messages. */
const many = (count) => Array.from({ length: count }, (_, at) => ({ from: at + 1, to: 1, count: at + 1 }));

test("a table has every message in one cell, whatever is folded", () => {
  for (const agents of [true, false]) {
    const pairs = [...many(60), { from: 3, to: 0, count: 7 }, { from: 0, to: 9, count: 5 }, { from: -1, to: -1, count: 2 }];
    const table = tableOf(pairs, { agents });
    const total = pairs.reduce((sum, { count }) => sum + count, 0);
    assert.equal(table.total, total);
    assert.equal(table.cells.reduce((sum, count) => sum + count, 0), total);
    table.rows.forEach(({ total }, row) => {
      const cells = table.cells.subarray(row * table.columns.length, (row + 1) * table.columns.length);
      assert.equal(cells.reduce((sum, count) => sum + count, 0), total);
    });
    assert.deepEqual(table.rows.map(({ at }) => at).slice(-2), [-1, 0]);
    assert.equal(table.rowNames, 60);
  }
});

test("a table of few names folds none, and its rows and columns have the same order", () => {
  const pairs = [{ from: 1, to: 2, count: 1 }, { from: 2, to: 1, count: 5 }, { from: 3, to: 2, count: 9 }];
  const { rows, columns } = tableOf(pairs);
  assert.deepEqual(rows.map(({ at }) => at), [2, 3, 1]);
  assert.deepEqual(columns.map(({ at }) => at), [2, 1]);
  assert.equal(tableOf(many(41)).rows.length, 41);
  assert.equal(tableOf(many(42)).rows.length, 41);
  assert.deepEqual(tableOf([]).rows, []);
});

test("a chosen agent is never among the others", () => {
  assert.ok(!tableOf(many(60)).rows.some(({ at }) => at === 2));
  assert.ok(tableOf(many(60), { keep: [2] }).rows.some(({ at }) => at === 2));
});

test("the shade of cells is measured by agents, not by what is folded or unknown", () => {
  assert.equal(tableOf([...many(60), { from: 5, to: 0, count: 1e6 }]).largest, 60);
});

test("messages are counted by channel, and by the speaker before on the channel", async () => {
  const messages = await messagesOf(GROUP);
  const named = (pairs) => pairs.map(({ from, to, count }) => `${from}>${to}:${count}`).sort();
  assert.deepEqual(named(pairsOf(messages, all(messages), "channel")), ["1>1:2", "2>1:2", "2>2:1"]);
  assert.deepEqual(named(turnPairs(messages, all(messages))), ["1>0:1", "1>2:1", "2>0:1", "2>1:2"]);
});

test("the speaker before is known where the filter leaves that message out", async () => {
  const messages = await messagesOf(GROUP);
  assert.deepEqual(turnPairs(messages, Int32Array.of(3)), [{ from: 1, to: 2, count: 1 }]);
});

test("a blocked message is nothing that was said before", async () => {
  const messages = await messagesOf(GROUP.map((one, at) => (at === 0 ? { ...one, kind: "blocked" } : one)));
  assert.deepEqual(turnPairs(messages, Int32Array.of(2)), [{ from: 2, to: 0, count: 1 }]);
});

test("columns are recipients where any is known, else channels, and speakers in a single channel", async () => {
  const kind = async (talk) => {
    const messages = await messagesOf(talk);
    return usual(pairsOf(messages, all(messages)), channelsOf(messages));
  };
  assert.equal(await kind([...GROUP, { from: "a", to: "b", channel: "x" }]), "to");
  assert.equal(await kind(GROUP), "channel");
  assert.equal(await kind(GROUP.filter(({ channel }) => channel === "x")), "after");
  assert.equal(await kind([]), "to");
  assert.equal(usual([{ from: -1, to: -1, count: 3 }, { from: 1, to: 0, count: 3 }], 2), "channel");
});

test("a graph has the most active names, and edges between those only", () => {
  const { nodes, edges, names } = network([...many(80), { from: 80, to: 80, count: 3 }, { from: 80, to: 0, count: 4 }], 3);
  assert.deepEqual(nodes.map(({ at }) => at), [1, 80, 79]);
  assert.deepEqual(edges, [{ begin: 1, end: 0, from: 80, to: 1, count: 80 }, { begin: 2, end: 0, from: 79, to: 1, count: 79 }]);
  assert.equal(names, 80);
});

test("a channel and an agent at the same position are two nodes", () => {
  const { nodes, edges } = network([{ from: 1, to: 1, count: 3 }], 9, { agents: false });
  assert.equal(nodes.length, 2);
  assert.equal(edges.length, 1);
});

const NAMES = Array.from({ length: 30 }, (_, at) => `agent ${at}`);
const EDGES = NAMES.slice(2).map((_, at) => ({ from: at + 1, to: (at * 7) % 29, weight: 1 / (at + 1) }));

test("a graph has the same picture, in whatever order its names and edges are given", () => {
  const one = layout(NAMES, EDGES);
  const turn = (node) => NAMES.length - 1 - node;
  const other = layout([...NAMES].reverse(), EDGES.map(({ from, to, weight }) => ({ from: turn(to), to: turn(from), weight })).reverse());
  NAMES.forEach((_, node) => {
    assert.equal(one.x[node], other.x[turn(node)]);
    assert.equal(one.y[node], other.y[turn(node)]);
  });
});

test("a graph fills its square, and circles with the same neighbours are apart", () => {
  const names = Array.from({ length: 45 }, (_, at) => `agent ${at}`);
  const hubs = names.slice(5).flatMap((_, at) => [0, 1, 2, 3, 4].map((hub) => ({ from: hub, to: at + 5, weight: 1 })));
  const { x, y } = layout(names, hubs);
  for (const values of [x, y]) assert.ok(values.every((value) => value >= 0 && value <= 1));
  assert.ok(Math.max(...x) - Math.min(...x) > 0.9);
  const apart = names.flatMap((_, a) => names.slice(0, a).map((_, b) => Math.hypot(x[a] - x[b], y[a] - y[b])));
  assert.ok(Math.min(...apart) > 0.055);
});

test("a graph of no, one or two names has places", () => {
  assert.equal(layout([], []).x.length, 0);
  assert.deepEqual([...layout(["a"], []).x], [0.5]);
  for (const edges of [[], [{ from: 0, to: 1, weight: 1 }]]) {
    const { x, y } = layout(["a", "b"], edges);
    assert.ok([...x, ...y].every((value) => value >= 0 && value <= 1));
    assert.ok(Math.hypot(x[0] - x[1], y[0] - y[1]) > 0.1);
  }
});
