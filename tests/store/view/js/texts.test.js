import assert from "node:assert/strict";
import { test } from "node:test";

import { visible } from "../../../../store/view/page/dom.js";
import { fold } from "../../../../store/view/page/fold.js";
import { joined } from "../../../../store/view/page/payloads.js";
import { dayText, durationText, exactText, nsOf, timeText } from "../../../../store/view/page/time.js";

test("folded texts are equal if they differ in case, width or form only", () => {
  for (const [one, other] of [
    ["STRASSE", "Straße"],
    ["ΣΟΦΟΣ", "σοφος"],
    ["ｆｕｌｌ", "Full"],
    ["e\u0301", "é"],
    ["ﬃ", "FFI"],
    ["ｶﾞ", "ガ"],
  ]) {
    assert.equal(fold(one), fold(other));
  }
  assert.notEqual(fold("か"), fold("が"));
});

test("invisible characters are shown", () => {
  assert.equal(visible("a\u202eb"), "a\\u202eb");
  assert.equal(visible("\0\x1b\x7f\u0085"), "␀␛\\u007f\\u0085");
  assert.equal(visible("日本 é <b>"), "日本 é <b>");
  for (const code of [0x200b, 0x2028, 0x2066, 0x2069, 0xfeff, 0x61c]) {
    assert.match(visible(String.fromCodePoint(code)), /^\\u/);
  }
});

test("a payload is put together from its form and its text", () => {
  const bytes = (text) => new Uint8Array(Buffer.from(text));
  const whole = (data, form, text) => Buffer.from(joined(bytes(data), form, text)).toString();
  assert.equal(whole("as it is", 0, "x"), "as it is");
  assert.equal(whole("\x01", 1, "é"), "é");
  assert.equal(whole('{"content": \x01}', 2, 'é"\n😀'), '{"content": "\\u00e9\\"\\n\\ud83d\\ude00"}');
  assert.equal(whole('{"content": \x01}', 3, 'é"'), '{"content": "é\\""}');
  assert.equal(whole('{"content": \x01}', 4, "é"), '{"content": "\\"\\\\u00e9\\""}');
});

test("times are exact to the nanosecond, before 1970 and at the limits of 64 bits", () => {
  assert.equal(exactText(1_772_352_000_123_456_789n), "2026-03-01 08:00:00.123456789 UTC");
  assert.equal(exactText(0n), "1970-01-01 00:00:00.000000000 UTC");
  assert.equal(exactText(-1n), "1969-12-31 23:59:59.999999999 UTC");
  assert.equal(exactText(2n ** 63n - 1n), "2262-04-11 23:47:16.854775807 UTC");
  assert.equal(exactText(-(2n ** 63n)), "1677-09-21 00:12:43.145224192 UTC");
  assert.equal(timeText(1_500_000n, 0), "00:00:00");
  assert.equal(timeText(1_500_000n), "00:00:00.001");
  assert.equal(dayText(10n ** 30n), `${10n ** 30n} ns`);
});

test("durations have a unit that fits", () => {
  for (const [ns, text] of [
    [0, "0 ns"],
    [-1, "-1 ns"],
    [999, "999 ns"],
    [999.9, "1 µs"],
    [3.2e6, "3.2 ms"],
    [12e9, "12 s"],
    [-300e9, "-5 min"],
    [5.45 * 3600e9, "5 h 27 min"],
    [2 * 86400e9, "2 d 0 h"],
  ]) {
    assert.equal(durationText(ns), text);
  }
  assert.equal(nsOf(1.5), 1_500_000_000n);
});
