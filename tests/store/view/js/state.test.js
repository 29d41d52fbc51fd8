import assert from "node:assert/strict";
import { test } from "node:test";

import { State } from "../../../../store/view/page/state.js";

const NOTHING = () => {};

test("a fragment is read as it was written", () => {
  const state = new State("", NOTHING);
  const values = { view: "matrix", q: "日本 & = # % + <b>", agent: ['"__proto__"', "5", '"a b"'], channel: ["\u202e/?"] };
  state.set(values);
  const again = new State(`#${state.fragment()}`, NOTHING);
  for (const key of ["view", "q"]) assert.equal(again.get(key), values[key]);
  for (const key of ["agent", "channel"]) assert.deepEqual(again.all(key), values[key]);
});

test("only keys that differ are reported", () => {
  /** @type {string[][]} */
  const seen = [];
  const state = new State("#q=a&agent=5", (keys) => seen.push(keys));
  state.set({ q: "a", agent: ["5"] });
  assert.deepEqual(seen, []);
  state.set({ q: "b", agent: ["5"], channel: [] });
  state.set({ agent: [] });
  assert.deepEqual(seen, [["q"], ["agent"]]);
  state.load("#q=b&view=read");
  assert.deepEqual(seen.at(-1), ["view"]);
});

test("the trace of a word ends with its search", () => {
  const state = new State('#q=fire&who="smith"&back=2&only=1&at=1:2:3', NOTHING);
  state.set({ q: "fires" });
  assert.equal(state.get("who"), '"smith"');
  state.set({ q: "" });
  assert.equal(state.fragment(), "at=1%3A2%3A3");
  const other = new State("#at=1:2:3&back=2&q=a", NOTHING);
  other.set({ q: "" });
  assert.equal(other.get("back"), "2", "of the selected message");
});

test("keys that the page does not know are dropped", () => {
  const state = new State("#__proto__=1&constructor=2&nonsense=3&q=a", NOTHING);
  assert.equal(state.fragment(), "q=a");
  assert.equal({}.polluted, undefined);
});
