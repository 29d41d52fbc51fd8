import assert from "node:assert/strict";
import { test } from "node:test";

import { highlightOf, withRows } from "../../../../store/view/page/highlight.js";
import { Knowledge, LISTED } from "../../../../store/view/page/knowledge.js";
import { hits, recording } from "./recording.js";

/** Return the knowledge of a recording, up to date. */
function known(list) {
  const knowledge = new Knowledge(recording(list));
  knowledge.update();
  return knowledge;
}

/** Return the rows that the sender of a row had heard. */
function heard(knowledge, row) {
  return knowledge.heard(row).told.map((told) => told.row);
}

const ALONE = [
  { from: "a", to: "b", by: "A", heard: 0, received: [["B", 1]] },
  { from: "c", to: "b", by: "C", heard: 0, received: [["B", 2]] },
  { from: "b", to: "a", by: "B", heard: 1, received: [["A", 1]] },
  { from: "c", to: "b", by: "C", heard: 0, received: [["B", 3]] },
  { from: "b", to: "c", by: "B", heard: 3, received: [["C", 1]] },
];

test("a sender had heard what its Messager handed over since it last spoke, and no more", () => {
  const knowledge = known(ALONE);
  assert.deepEqual(heard(knowledge, 0), []);
  assert.deepEqual(heard(knowledge, 2), [0]);
  assert.deepEqual(heard(knowledge, 4), [1, 3]);
  assert.deepEqual(knowledge.heard(2).since, -1);
  assert.deepEqual(knowledge.heard(4).since, 2);
  assert.equal(knowledge.heard(4).told[1].reception.arrival, 3);
});

test("what arrived but was not fetched before it spoke was not heard", () => {
  const knowledge = known([
    { from: "a", to: "b", by: "A", heard: 0, received: [["B", 1]] },
    { from: "a", to: "b", by: "A", heard: 0, received: [["B", 2]] },
    { from: "b", to: "a", by: "B", heard: 1, at: 100, received: [["A", 1]] },
  ]);
  assert.deepEqual(heard(knowledge, 2), [0]);
});

test("messages are in the order in which they were handed over, not in the order of sending", () => {
  const knowledge = known([
    { from: "a", to: "b", by: "A", heard: 0, received: [["B", 2, 9000]] },
    { from: "a", to: "b", by: "A", heard: 0, received: [["B", 1]] },
    { from: "b", to: "a", by: "B", heard: 2, at: 100 },
  ]);
  assert.deepEqual(heard(knowledge, 2), [1, 0]);
});

const GROUP = [
  { from: "boss", by: "D", heard: 0, text: "fire", received: [["G", 1], ["H", 1]] },
  { from: "x", to: "b", by: "H", heard: 1, text: "yes", received: [["G", 2]] },
  { from: "x", to: "a", by: "H", heard: 1, text: "no", received: [["G", 3]] },
  { from: "a", to: "x", by: "G", heard: 3, text: "fire?", received: [["H", 2]] },
  { from: "b", to: "x", by: "G", heard: 3, text: "what fire", received: [["H", 3]] },
  { from: "y", to: "x", by: "H", heard: 3 },
];

test("an agent of a group hears what is for itself and for nobody in particular; the rest is counted", () => {
  const knowledge = known(GROUP);
  assert.deepEqual(heard(knowledge, 3), [0, 2]);
  assert.equal(knowledge.heard(3).others, 1);
  assert.deepEqual(heard(knowledge, 4), [0, 1]);
  assert.deepEqual(heard(knowledge, 5), [0]);
});

test("copies are listed once, and arrivals without a message on the page are counted", () => {
  const knowledge = known([
    { from: "a", to: "b", by: "A", heard: 0, received: [["B", 2], ["B", 3]] },
    { from: "b", to: "a", by: "B", heard: 5 },
  ]);
  const found = knowledge.heard(1);
  assert.deepEqual(found.told.map(({ row, reception }) => [row, reception.arrival]), [[0, 2]]);
  assert.equal(found.missing, 3);
});

test("without `heard` all messages before, to the sender or on a channel of it, are told as not known to be heard", () => {
  const knowledge = known([
    { from: "a", channel: "hall" },
    { from: "b", channel: "hall" },
    { from: "a", channel: "cellar" },
    { from: "b", channel: "cellar" },
    { from: "c", channel: "yard" },
    { from: "c", to: "b", channel: "inbox" },
    { from: "c", to: "a", channel: "hall" },
    { from: "c", to: "b", channel: "inbox", kind: "blocked" },
    { from: "b", channel: "hall" },
  ]);
  const found = knowledge.heard(8);
  assert.equal(found.known, false);
  assert.equal(found.since, 3);
  assert.deepEqual(found.told.map(({ row, reception }) => [row, reception]), [[0, null], [2, null], [5, null]]);
});

test("of many messages before, the last ones are listed, and the others are counted", () => {
  const many = Array.from({ length: LISTED + 5 }, () => ({ from: "a", channel: "hall" }));
  const found = known([...many, { from: "b", channel: "hall" }]).heard(LISTED + 5);
  assert.deepEqual(found.told.map(({ row }) => row), Array.from({ length: LISTED }, (_, at) => at + 5));
  assert.equal(found.missing, 5);
});

test("the index takes in messages and receptions that come later, and forgets those that were dropped", () => {
  const messages = recording(ALONE);
  const all = messages.receptions;
  const late = (row) => (row === 3 ? [] : all(row));
  messages.receptions = late;
  messages.length = 4;
  const knowledge = new Knowledge(messages);
  knowledge.update();
  messages.length = 5;
  knowledge.update();
  assert.deepEqual(heard(knowledge, 4), [1]);
  messages.receptions = all;
  knowledge.update();
  assert.deepEqual(heard(knowledge, 4), [1, 3]);

  const rest = recording([...ALONE.slice(1), { from: "a", to: "b", by: "A", heard: 1 }]);
  for (const name of ["from", "to", "messager", "heard", "recorder", "ts", "time", "seq", "receptions", "names"]) {
    messages[name] = rest[name];
  }
  messages.base += 1;
  knowledge.update();
  assert.deepEqual(heard(knowledge, 3), [0, 2]);
  assert.deepEqual(heard(knowledge, 4), [1]);
});

test("causes are followed to the first one, and a loop ends", () => {
  const knowledge = known([{ from: "a" }, { from: "b", cause: 0 }, { from: "c", cause: 1 }, { from: "d", cause: 90 }]);
  assert.deepEqual(knowledge.causes(2), { rows: [1, 0], missing: false });
  assert.deepEqual(knowledge.causes(0), { rows: [], missing: false });
  assert.deepEqual(knowledge.causes(3), { rows: [], missing: true });
  const loop = known([{ from: "a", cause: 1 }, { from: "b", cause: 2 }, { from: "c", cause: 1 }]);
  assert.deepEqual(loop.causes(0), { rows: [1, 2], missing: false });
});

/** Return the steps of a chain: who was told, the row, and how it is known; then the origin and its first row. */
function chain(knowledge, agent, word) {
  const { messages } = knowledge;
  const name = (lane) => (lane > 0 ? messages.names.agents[lane].text : messages.names.messagers[0 - lane]);
  const found = knowledge.chain(messages.agentAt.get(JSON.stringify(agent)), hits(messages, word));
  return [...found.steps.map(({ lane, row, known }) => [name(lane), row, known]), [name(found.origin), found.first]];
}

const RUMOUR = [
  { from: "a", to: "z", by: "A", heard: 0, text: "hello", received: [["Z", 1]] },
  { from: "a", to: "b", by: "A", heard: 0, text: "a fire", received: [["B", 1]] },
  { from: "z", to: "d", by: "Z", heard: 1, text: "fire too", received: [["D", 2, 9000]] },
  { from: "b", to: "c", by: "B", heard: 1, text: "fire!", received: [["C", 1]] },
  { from: "c", to: "d", by: "C", heard: 1, text: "the fire", received: [["D", 1]] },
  { from: "d", to: "a", by: "D", heard: 1, text: "fire?", received: [["A", 1]] },
];

test("a word is traced from an agent through those who told it, back to the one who said it first", () => {
  const knowledge = known(RUMOUR);
  assert.deepEqual(chain(knowledge, "d", "fire"), [["d", 4, "heard"], ["c", 3, "heard"], ["b", 1, "heard"], ["a", 1]]);
  assert.deepEqual(chain(knowledge, "z", "fire"), [["z", 2]]);
  assert.deepEqual(chain(knowledge, "z", "hello"), [["z", 0, "received"], ["a", 0]]);
  assert.deepEqual(chain(knowledge, "d", "hello"), [["d", -1]]);
});

test("the first one to tell is whose message was handed over first, not who sent first", () => {
  const list = [
    { from: "a", to: "b", by: "A", heard: 0, text: "fire", received: [["B", 2, 9000]] },
    { from: "c", to: "b", by: "C", heard: 0, text: "fire", received: [["B", 1]] },
    { from: "d", to: "b", by: "D", heard: 0, text: "fire", received: [["B", 3]] },
  ];
  assert.deepEqual(chain(known(list), "b", "fire"), [["b", 1, "received"], ["c", 1]]);
  list.push({ from: "b", by: "B", heard: 3, text: "a fire" });
  assert.deepEqual(chain(known(list), "b", "fire"), [["b", 1, "heard"], ["c", 1]]);
});

test("whoever hears its own news again is still the one who said it first", () => {
  const knowledge = known(RUMOUR);
  assert.deepEqual(chain(knowledge, "a", "fire"), [["a", 1]]);
});

test("news to everybody in a group are told to each of its agents", () => {
  const knowledge = known(GROUP);
  assert.deepEqual(chain(knowledge, "a", "fire"), [["a", 0, "heard"], ["boss", 0]]);
  assert.deepEqual(chain(knowledge, "y", "fire"), [["y", 0, "received"], ["boss", 0]]);
});

test("where receptions are not known, the first mention to an agent or on its channel is told as only sent", () => {
  const knowledge = known([
    { from: "a", channel: "hall", text: "fire" },
    { from: "b", channel: "hall", text: "hello" },
    { from: "c", channel: "yard", text: "fire" },
    { from: "c", to: "b", text: "fire", kind: "failed" },
    { from: "a", channel: "hall", text: "fire, I said" },
    { from: "b", channel: "hall", text: "a fire?" },
  ]);
  assert.deepEqual(chain(knowledge, "b", "fire"), [["b", 4, "before"], ["a", 0]]);
});

test("what was heard is brought out by steps, the last message of the first step most", () => {
  const knowledge = known(ALONE);
  const { rows, levels } = highlightOf(knowledge, 4, 2, null);
  assert.deepEqual([...rows].map(([row, { weight }]) => [row, weight]).sort(), [[1, 2], [3, 3], [4, 3]]);
  assert.equal(levels.length, 1, "those who told it had heard nothing");
  const rumour = highlightOf(known(RUMOUR), 5, 3, null);
  assert.deepEqual(rumour.levels.map((level) => level.map(({ row }) => row)), [[5], [4], [3]]);
  assert.deepEqual([...rumour.rows.keys()].sort(), [1, 3, 4, 5]);
});

test("nothing is brought out beside a message whose sender had heard nothing", () => {
  assert.equal(highlightOf(known(ALONE), 0, 1, null).rows.size, 0);
});

test("a chain is brought out with the numbers of its steps", () => {
  const knowledge = known(RUMOUR);
  const found = knowledge.chain(knowledge.messages.agentAt.get('"d"'), hits(knowledge.messages, "fire"));
  const { rows } = highlightOf(knowledge, -1, 1, found);
  assert.deepEqual([...rows].map(([row, { tag }]) => [row, tag]), [[4, "1"], [3, "2"], [1, "3"]]);
});

test("rows are joined in order, each once", () => {
  assert.deepEqual([...withRows(Int32Array.of(2, 5, 9), [9, 1, 5, 7, 12, 7])], [1, 2, 5, 7, 9, 12]);
  assert.deepEqual([...withRows(new Int32Array(0), [3, 1])], [1, 3]);
});
