import assert from "node:assert/strict";
import { test } from "node:test";

import { described } from "../../../../store/view/page/describing.js";

/** Return the sentence as text; names are letters. */
function sentence(numbers) {
  const agents = new Set(numbers.pairs.flatMap(({ from, to }) => [from, to]).filter((at) => at > 0)).size;
  const whole = { agents, channels: 2, since: 0n, until: 250_000_000_000n, ...numbers };
  return described(whole, (at) => " abcdefg"[at]).map(({ text }) => text).join("");
}

const TALK = [
  { from: 1, to: 2, count: 20 },
  { from: 2, to: 1, count: 10 },
  { from: 2, to: 3, count: 4 },
];

test("a run is told in one sentence", () => {
  assert.equal(
    sentence({ messages: 34, pairs: TALK }),
    "3 agents exchanged 34 messages on 2 channels in 4 min 10 s; a spoke most (20), a and b most with each other (30).",
  );
});

test("the sentence says what the numbers say, and no more", () => {
  for (const [numbers, text] of [
    [{ messages: 0, pairs: [] }, "No messages."],
    [{ messages: 1, pairs: [{ from: 0, to: 0, count: 1 }], until: 0n }, "1 message was sent on 2 channels."],
    [{ messages: 2, pairs: [{ from: 0, to: 0, count: 2 }], channels: 0, until: null }, "2 messages were sent."],
    [{ messages: 5, pairs: [{ from: 1, to: 0, count: 5 }], channels: 1 }, "1 agent sent 5 messages on 1 channel in 4 min 10 s."],
    [{ messages: 5, pairs: [{ from: 1, to: 1, count: 5 }], channels: 0, until: 0n }, "1 agent sent 5 messages."],
    [{ messages: 5, pairs: [{ from: 0, to: 3, count: 5 }], channels: 0, until: 0n }, "1 agent received 5 messages."],
    [{ messages: 2, pairs: [{ from: 0, to: 3, count: 1 }, { from: 0, to: 4, count: 1 }], channels: 0, until: 0n }, "2 agents received 2 messages."],
  ]) {
    assert.equal(sentence(numbers), text);
  }
});

test("agents that are equal are named together, and not at all where they are many", () => {
  const equal = (count) => Array.from({ length: count }, (_, at) => ({ from: at + 1, to: 0, count: 3 }));
  assert.match(sentence({ messages: 6, pairs: equal(2) }), /; a and b spoke most \(3 each\)\.$/);
  assert.doesNotMatch(sentence({ messages: 9, pairs: equal(3) }), /most/);
});
