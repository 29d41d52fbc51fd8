import assert from "node:assert/strict";
import { test } from "node:test";

import { Messages } from "../../../../store/view/page/messages.js";
import { chunkOf, messagesOf } from "./making.js";

const TALK = [
  { ts: -5n, text: "Good morning", from: "a", to: 5, channel: "x" },
  { ts: 0n, text: "", from: 5, to: "5", channel: "__proto__" },
  { ts: 10n ** 18n, text: "Straße", from: "5", to: "a", channel: "x", received: [3, -2] },
  { ts: 10n ** 18n, text: "\ufeffgood", from: "__proto__", to: "constructor" },
  { ts: 10n ** 18n + 1n, text: "日本語 ｆｕｌｌ", kind: "blocked" },
];

test("messages are read from chunks of any size", async () => {
  for (const chunk of [1, 2, 5]) {
    const messages = await messagesOf(TALK, { chunk });
    assert.equal(messages.length, 5);
    TALK.forEach((one, row) => {
      assert.equal(messages.text(row), one.text);
      assert.equal(messages.ts[row], one.ts);
      assert.equal(messages.seq[row], row + 1);
      assert.equal(messages.names.agents[messages.from[row]].text, String(one.from ?? ""));
      assert.equal(messages.names.channels[messages.channel[row]], one.channel ?? "");
    });
  }
});

test("an agent's id is a number or a text, and any text is an id", async () => {
  const { agentAt } = await messagesOf(TALK);
  assert.notEqual(agentAt.get("5"), agentAt.get('"5"'));
  assert.equal(agentAt.get('"toString"'), undefined);
  assert.ok(agentAt.get('"__proto__"') > 0);
});

test("payloads are the exact bytes", async () => {
  const messages = await messagesOf(TALK, { chunk: 3 });
  for (let row = 0; row < 5; row += 1) {
    assert.deepEqual(Buffer.from(await messages.payload(row)), Buffer.from(TALK[row].text));
  }
});

test("receptions belong to their sending", async () => {
  const messages = await messagesOf(TALK);
  assert.deepEqual(messages.receptions(2).map(({ delay }) => delay), [3, -2]);
  assert.deepEqual(messages.receptions(3), []);
});

test("a cursor names a row, also after messages were put before and dropped", async () => {
  const numbered = TALK.map((one, at) => ({ ...one, seq: at + 1 }));
  const messages = new Messages();
  const known = { agents: [], channels: [] };
  await messages.add(chunkOf(numbered.slice(2, 4), known));
  const cursor = messages.cursor(0);
  assert.equal(cursor, `${10n ** 18n}:1:3`);
  await messages.add(chunkOf(numbered.slice(0, 2), known), { before: true });
  await messages.add(chunkOf(numbered.slice(4), known));
  assert.equal(messages.row(cursor), 2);
  assert.deepEqual(TALK.map((_, row) => messages.text(row)), TALK.map(({ text }) => text));
  assert.equal(messages.trim(3), 2);
  assert.equal(messages.row(cursor), 0);
  assert.equal(messages.text(0), "Straße");
  assert.equal(messages.receptions(0).length, 2);
  assert.equal(messages.row("0:1:1"), -1);
  assert.equal(messages.trim(2, { last: true }), 1);
  assert.equal(messages.text(messages.length - 1), "\ufeffgood");
});

test("the first row at or after a time is found", async () => {
  const messages = await messagesOf(TALK);
  assert.equal(messages.rowAt(-6n), 0);
  assert.equal(messages.rowAt(1n), 2);
  assert.equal(messages.rowAt(10n ** 18n), 2);
  assert.equal(messages.rowAt(10n ** 18n + 2n), 5);
});

test("a word is found in any case, width and form, and never across two messages", async () => {
  const messages = await messagesOf(TALK);
  const rows = (word) => [...messages.search(word).entries()].filter(([, hit]) => hit).map(([row]) => row);
  assert.deepEqual(rows("GOOD"), [0, 3]);
  assert.deepEqual(rows("strasse"), [2]);
  assert.deepEqual(rows("本"), [4]);
  assert.deepEqual(rows("FULL"), [4]);
  assert.deepEqual(rows("morningstra"), []);
  assert.deepEqual(rows("nothing of this"), []);
});

test("messages that were committed late are at their place, with texts, payloads and receptions", async () => {
  const all = Array.from({ length: 12 }, (_, at) => ({ ts: BigInt(at), seq: at + 1, text: `number ${at}`, from: at, received: [at] }));
  const known = { agents: [], channels: [] };
  for (const late of [[0], [4], [5, 7], [3, 10], [0, 5, 11]]) {
    const messages = new Messages();
    const inTime = all.filter((_, at) => !late.includes(at));
    for (let at = 0; at < inTime.length; at += 3) await messages.add(chunkOf(inTime.slice(at, at + 3), known));
    await messages.add(chunkOf(late.map((at) => all[at]), known));
    const rows = [...all.keys()];
    assert.deepEqual(rows.map((row) => messages.text(row)), all.map(({ text }) => text));
    assert.deepEqual(rows.map((row) => messages.cursor(row)), rows.map((row) => `${row}:1:${row + 1}`));
    assert.deepEqual(rows.map((row) => messages.receptions(row)[0].delay), rows);
    assert.deepEqual(rows.map((row) => messages.names.agents[messages.from[row]].text), rows.map(String));
    for (const row of rows) assert.equal(Buffer.from(await messages.payload(row)).toString(), `number ${row}`);
    assert.deepEqual([...messages.search("number 1")].map((hit, row) => (hit ? row : -1)).filter((row) => row >= 0), [1, 10, 11]);
  }
});
