import assert from "node:assert/strict";
import { test } from "node:test";

import { Lanes, MOST } from "../../../../store/view/page/lanes.js";
import { Losses } from "../../../../store/view/page/losses.js";
import { Receivers } from "../../../../store/view/page/receivers.js";
import { recording } from "./recording.js";

/** Return the receivers of a recording, up to date. */
function receiversOf(list) {
  const receivers = new Receivers(recording(list));
  receivers.update();
  return receivers;
}

/** Return the names of the lanes of a row's receptions. */
function reached(receivers, row) {
  const { agents, messagers } = receivers.messages.names;
  return receivers.lanes(row).map((lane) => (lane > 0 ? agents[lane].text : `<${messagers[0 - lane]}>`));
}

test("a reception belongs to the only agent of its Messager, else to the recipient, else to the Messager", () => {
  const receivers = receiversOf([
    { from: "a", to: "b", by: "A", received: [["B", 1]] },
    { from: "b", by: "B", received: [["A", 1], ["G", 1], ["T", 1]] },
    { from: "x", to: "a", by: "G", received: [["A", 2]] },
    { from: "y", to: "x", by: "G", received: [["G", 2]] },
    { from: "a", to: "y", by: "A", received: [["G", 3], ["B", 2]] },
  ]);
  assert.deepEqual(reached(receivers, 0), ["b"]);
  assert.deepEqual(reached(receivers, 1), ["a", "<G>", "<T>"]);
  assert.deepEqual(reached(receivers, 3), ["x"]);
  assert.deepEqual(reached(receivers, 4), ["y", "b"], "b listens to the messages of y");
});

test("a Messager of which one agent has spoken so far receives for its whole group", () => {
  const receivers = receiversOf([
    { from: "x", by: "G" },
    { from: "a", to: "y", by: "A", received: [["G", 1]] },
  ]);
  assert.deepEqual(reached(receivers, 1), ["y"]);
});

test("who overhears a message is not taken for its recipient", () => {
  const receivers = receiversOf([
    { from: "a", to: "b", by: "A", received: [["C", 1]] },
    { from: "a", to: "z", by: "A", received: [["C", 2], ["D", 1]] },
    { from: "b", by: "B" },
    { from: "c", by: "C" },
    { from: "d", by: "D" },
  ]);
  assert.deepEqual(reached(receivers, 0), ["c"], "b has a Messager of its own");
  assert.deepEqual(reached(receivers, 1), ["c", "d"], "one of them may be the Messager of z, but which");
});

test("a message without a sender belongs to its Messager", () => {
  const receivers = receiversOf([{ by: "D" }, { from: "a" }, {}]);
  assert.deepEqual([0, 1, 2].map((row) => receivers.sender(row)), [-1, 1, 0]);
});

test("a recorder recorded the senders of its messages, and the recipients of its receptions", () => {
  const receivers = receiversOf([
    { from: "a", to: "b", by: "A", recorder: 2, received: [["B", 1]] },
    { from: "c", by: "C", recorder: 3 },
  ]);
  const names = (recorder) => [...receivers.recordedBy(recorder)].map((lane) => receivers.messages.names.agents[lane].text);
  assert.deepEqual(names(2), ["a", "b"]);
  assert.deepEqual(names(3), ["c"]);
  assert.deepEqual(names(9), []);
});

/** Return the texts of the lanes of all rows. */
function lanesOf(list, how) {
  const receivers = receiversOf(list);
  const rows = Int32Array.from(list, (_, row) => row);
  return new Lanes(receivers.messages, receivers, rows, how);
}

const TALK = [
  { by: "4f2c6a9b8e1d4f2c6a9b8e1d", received: [["north", 1]] },
  { from: "b", to: "a", channel: "x" },
  { from: "c", to: "a" },
  { from: "c" },
  { from: "c" },
  {},
];

test("lanes are in the order of first appearance or of activity, those without an agent behind", () => {
  const texts = (how) => lanesOf(TALK, how).list.map(({ text }) => text);
  assert.deepEqual(texts(), ["b", "a", "c", "Messager 4f2c6a…9b8e1d", "Messager north", "no sender"]);
  assert.deepEqual(texts({ byActivity: true }).slice(0, 3), ["c", "a", "b"]);
});

test("agents of the same name are told apart", () => {
  assert.deepEqual(lanesOf([{ from: 5 }, { from: "5" }, { from: 6 }]).list.map(({ text }) => text), ["5", '"5"', "6"]);
});

test("of many lanes the most active remain, and those that are asked for; the others share the first lane", () => {
  const list = Array.from({ length: 60 }, (_, at) => ({ from: `a${at}` }));
  for (let at = 20; at < 60; at += 1) list.push({ from: `a${at}` });
  const lanes = lanesOf(list, { pinned: [1, 3] });
  assert.equal(lanes.folded, 60 - MOST);
  assert.equal(lanes.list.length, MOST + 1);
  assert.equal(lanes.list[0].text, `${60 - MOST} others`);
  assert.deepEqual(lanes.list.slice(1, 4).map(({ text }) => text), ["a0", "a2", "a20"]);
  assert.equal(lanes.at(2), 0);
  assert.equal(lanes.placeOf(2), -1);
  assert.equal(lanes.at(1), 1);
  assert.equal(lanesOf(list.slice(0, MOST)).folded, 0);
});

const HEAD = { kinds: { sent: 2, received: 1 }, status: "closed", problems: null };

test("a message without receptions is lost only if receptions were recorded, and its problems do not say otherwise", () => {
  const messages = recording([{ from: "a", to: "b" }, { from: "a", to: "c" }, { from: "a", to: "c", kind: "received" }]);
  const kind = (head, row = 0) => new Losses(messages, { ...HEAD, ...head }).kind(row);
  assert.equal(kind({}), "lost");
  assert.equal(kind({ status: "open" }), "unknown", "it may still arrive");
  assert.equal(kind({ kinds: { sent: 2 } }), "sent");
  assert.equal(kind({}, 2), "sent");
  const never = { kind: "never arrived", message: messages.cursor(0), text: "dropped" };
  const problems = { counts: { "never arrived": 1 }, details: [never], notes: [], examined: true };
  assert.equal(kind({ problems }), "lost");
  assert.equal(kind({ problems }, 1), "unknown");
  assert.equal(kind({ problems: { ...problems, counts: { "never arrived": 2 } } }, 1), "lost", "not all are listed");
  assert.deepEqual(new Losses(messages, { ...HEAD, problems }).problems(0), [never]);
});
