import assert from "node:assert/strict";
import { test } from "node:test";

import { shortId, visible } from "../../../../store/view/page/dom.js";
import { Naming } from "../../../../store/view/page/naming.js";
import { othersText, speakerText } from "../../../../store/view/page/speaker.js";
import { rankingOf } from "../../../../store/view/page/timeline_bars.js";
import { recording } from "./recording.js";

test("a sender is called by its agent, else by its Messager, else it is none", () => {
  const messages = recording([{ from: "a", by: "north" }, { by: "driver" }, { by: "4f2c6a9b8e1d4f2c6a9b8e1d" }, {}]);
  const names = Array.from({ length: 4 }, (_, row) => speakerText(messages, row));
  assert.deepEqual(names, ["a", "Messager driver", "Messager 4f2c6a…9b8e1d", "no sender"]);
});

test("messages without an agent are called alike in the legend and in the matrix: by their only Messager", () => {
  for (const [list, wanted] of [
    [[{ from: "a", by: "north" }, { by: "driver" }, { by: "driver" }], "Messager driver"],
    [[{ by: "driver" }, { by: "other" }], "no sender"],
    [[{ by: "driver" }, {}], "no sender"],
  ]) {
    const messages = recording(list);
    assert.equal(othersText(messages), wanted);
    assert.equal(new Naming(messages, "to").text("from", 0), wanted);
    assert.equal(rankingOf(messages, "from", []).names.find(({ at }) => at === 0).label, wanted);
  }
});

test("invisible characters of every plane are shown as escapes", () => {
  assert.equal(visible("a\u3164\u00ad\u034f\u180e\ufff9b"), "a\\u3164\\u00ad\\u034f\\u180e\\ufff9b");
  assert.equal(visible("\u{e0041}😀"), "\\u{e0041}😀");
});

test("a long id is cut in a title", () => {
  assert.equal(shortId("x".repeat(5000)).length, 201);
  assert.equal(shortId("\u202e"), "\\u202e");
});
