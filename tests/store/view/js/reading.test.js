import assert from "node:assert/strict";
import { test } from "node:test";

import { digitsOf } from "../../../../store/view/page/conversation.js";
import { fold } from "../../../../store/view/page/fold.js";
import { hitsIn } from "../../../../store/view/page/hits.js";
import { isJson, members } from "../../../../store/view/page/json_text.js";
import { shownEnd } from "../../../../store/view/page/message_item.js";
import { hexText, textOf } from "../../../../store/view/page/payload_panel.js";
import { channelLabels, shortNames } from "../../../../store/view/page/short_names.js";
import { parseRange, rangeText } from "../../../../store/view/page/time_range.js";

/** Return the parts of a text that are hits. */
const found = (text, wanted) => hitsIn(text, wanted).map(([begin, end]) => text.slice(begin, end));

test("hits are found in the text itself, where folding changes its length", () => {
  assert.deepEqual(found("Fire! FIRE fire", "fire"), ["Fire", "FIRE", "fire"]);
  assert.deepEqual(found("a ﬁre and a ﬁne fire", "fire"), ["ﬁre", "fire"]);
  assert.deepEqual(found("the ﬁnal word", "i"), ["ﬁ"]);
  assert.deepEqual(found("die Straße und die STRASSE", "strasse"), ["Straße", "STRASSE"]);
  assert.deepEqual(found("İstanbul, istanbul", "stanbul"), ["stanbul", "stanbul"]);
  assert.deepEqual(found("ｆｉｒｅ ＦＩＲＥ", "fire"), ["ｆｉｒｅ", "ＦＩＲＥ"]);
  assert.deepEqual(found("cafe\u0301 and café", "CAFÉ"), ["cafe\u0301", "café"]);
  assert.deepEqual(found("ｶﾞﾗｽとガラス", "ガラス"), ["ｶﾞﾗｽ", "ガラス"]);
  assert.deepEqual(found("水火火水", "火"), ["火", "火"]);
  assert.deepEqual(found("ΣΟΦΟΣ σοφός", "σοφοσ"), ["ΣΟΦΟΣ"]);
  assert.deepEqual(found("😀fire😀", "fire😀"), ["fire😀"]);
  assert.deepEqual(found("aaa", "aa"), ["aa"]);
  assert.deepEqual(found("anything", ""), []);
});

test("a text in which the search finds something has a hit to mark", () => {
  const texts = ["ﬃ İ ß ǰ ŉ ΐ", "\u0958 \u09c7\u09be \u1100\u1161\u11a8 각", "ｶﾞ ㌀ ﷺ ½ ①", "ÅÅ\u0327 q\u0307\u0323", "🏳️‍🌈 👩‍👩‍👧 e\u0301\u0327"];
  for (const text of texts) {
    const folded = fold(text);
    for (let at = 0; at < folded.length; at += 1) {
      for (const length of [1, 2, 5]) {
        const wanted = folded.slice(at, at + length);
        if (fold(wanted) !== wanted) continue; // half of a character
        assert.ok(hitsIn(text, wanted).length > 0, JSON.stringify([text, wanted]));
      }
    }
  }
});

test("the members of JSON are as they are written", () => {
  const parts = (text) => [...members(text, 0)].map(({ key, from, until }) => [key, text.slice(from, until)]);
  assert.deepEqual(parts('{"b": 1, "1": [2, {"x": "]}"}] , "b":"\\"}\\\\"}'), [
    ['"b"', "1"],
    ['"1"', '[2, {"x": "]}"}]'],
    ['"b"', '"\\"}\\\\"'],
  ]);
  assert.deepEqual(parts("[12345678901234567890, 1e-400, null]"), [
    [null, "12345678901234567890"],
    [null, "1e-400"],
    [null, "null"],
  ]);
  assert.deepEqual(parts("{}"), []);
  assert.deepEqual(parts("[ ]"), []);
});

test("JSON of 10,000 levels is read level by level", () => {
  let text = `${"[".repeat(10_000)}${"]".repeat(10_000)}`;
  assert.ok(isJson(text));
  let levels = 0;
  for (; text.length > 2; levels += 1) {
    const [{ from, until }] = members(text, 0);
    text = text.slice(from, until);
  }
  assert.equal(levels, 9_999);
});

test("only objects and lists are JSON to unfold", () => {
  assert.deepEqual(['{"a": 1}', " [1]", '"a"', "1", "{a}", "[1", ""].map(isJson), [true, true, false, false, false, false, false]);
});

test("a range of time is read as a person writes it, and written as it is read", () => {
  const near = BigInt(Date.parse("2006-04-30T09:00:00Z")) * 1_000_000n;
  const at = (time) => BigInt(Date.parse(`${time}Z`)) * 1_000_000n;
  const cases = {
    "2006-04-30 11:29 - 12:00": [at("2006-04-30T11:29"), at("2006-04-30T12:00")],
    "11:29-12:00": [at("2006-04-30T11:29"), at("2006-04-30T12:00")],
    "11:29 – 12:00": [at("2006-04-30T11:29"), at("2006-04-30T12:00")],
    "2006-04-30": [at("2006-04-30T00:00"), at("2006-05-01T00:00")],
    "2006-04-29 - 2006-04-30": [at("2006-04-29T00:00"), at("2006-05-01T00:00")],
    "2006-04-29 23:00 to 2006-04-30 01:00": [at("2006-04-29T23:00"), at("2006-04-30T01:00")],
    "11:29": [at("2006-04-30T11:29"), at("2006-04-30T11:30")],
    "11:29:05.5": [at("2006-04-30T11:29:05.5"), at("2006-04-30T11:29:05.6")],
    "2006-04-30T11:29:05Z": [at("2006-04-30T11:29:05"), at("2006-04-30T11:29:06")],
    "from 11:29": [at("2006-04-30T11:29"), null],
    "11:29 -": [at("2006-04-30T11:29"), null],
    "until 11:29": [null, at("2006-04-30T11:29")],
    "- 11:29": [null, at("2006-04-30T11:29")],
  };
  for (const [text, [since, until]] of Object.entries(cases)) {
    assert.deepEqual(parseRange(text, near), { since, until }, text);
    assert.deepEqual(parseRange(rangeText(since, until), 0n), { since, until }, rangeText(since, until));
  }
  for (const [since, until] of [[1n, 2n], [near + 1n, near + 10n ** 18n], [null, near + 123_456_000n]]) {
    assert.deepEqual(parseRange(rangeText(since, until), 0n), { since, until });
  }
  for (const wrong of ["", "soon", "12:00 - 11:00", "25:00", "11:61", "2006-13-01", "11:00 - 12:00 - 13:00", "-", "11"]) {
    assert.equal(parseRange(wrong, near), null, wrong);
  }
});

test("short names leave out what all have in common, up to a separator", () => {
  assert.deepEqual(shortNames(["exps:e:agents:5:chat", "exps:e:agents:57:chat"]), ["5", "57"]);
  assert.deepEqual(shortNames(["#ubuntu", "#ubuntu-devel"]), ["#ubuntu", "#ubuntu-devel"]);
  assert.deepEqual(shortNames(["a/b", "a/b/c", ""]), ["b", "b/c", ""]);
  assert.deepEqual(shortNames(["only:one"]), ["only:one"]);
  assert.deepEqual(shortNames(["same:x", "same:x"]), ["x", "x"]);
});

test("a channel that says no more than the recipient needs no label beside a message to it", () => {
  const agents = new Set(["5", "7"]);
  const rests = (names) => channelLabels(names, agents).map(({ rest }) => rest);
  assert.deepEqual(rests(["", "e:agents:5:chat", "e:agents:7:chat", "e:news"]), ["", "", "", "news"]);
  assert.deepEqual(rests(["", "e:agents:5:chat", "e:agents:7:survey", "e:news"]), ["", "chat", "survey", "news"]);
});

test("a long text is cut after twelve lines or a thousand characters, and not within a character", () => {
  const lines = (count) => Array.from({ length: count }, (_, at) => `line ${at}`).join("\n");
  assert.equal(shownEnd(lines(12)), lines(12).length);
  assert.equal(lines(40).slice(0, shownEnd(lines(40))), lines(12));
  assert.equal(shownEnd("x".repeat(5000)), 1000);
  assert.equal(shownEnd("x".repeat(1100)), 1100, "a short rest is shown");
  assert.equal(shownEnd(`x${"😀".repeat(2000)}`) % 2, 1);
});

test("bytes are shown as they are", () => {
  const bytes = Uint8Array.from([0, 255, ...Buffer.from("abcdefghijklmnop")]);
  assert.equal(
    hexText(bytes, 0, bytes.length),
    "000000  00 ff 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e  ..abcdefghijklmn\n000010  6f 70                                            op\n",
  );
  assert.equal(textOf(bytes), null);
  assert.equal(textOf(new Uint8Array(Buffer.from("\ufeffé"))), "\ufeffé");
});

test("times have the digits that they need", () => {
  const minute = 60_000_000_000n;
  assert.equal(digitsOf(BigInt64Array.of(minute, 2n * minute), 2), -1);
  assert.equal(digitsOf(BigInt64Array.of(minute, 1_000_000_000n), 2), 0);
  assert.equal(digitsOf(BigInt64Array.of(minute, 1_000_000n), 2), 3);
});
