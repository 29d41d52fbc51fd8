import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { colourOf } from "../../../../store/view/page/colours.js";

const STYLES = readFileSync(new URL("../../../../store/view/page/page.css", import.meta.url), "utf8");
const BACKGROUNDS = ["--back", "--panel", "--raised", "--selected"];

/** Return red, green and blue, 0 to 1, of a colour of CSS. */
function channels(colour) {
  const hex = /^#(..)(..)(..)$/.exec(colour);
  if (hex) return hex.slice(1).map((digits) => parseInt(digits, 16) / 255);
  const [, hue, s, l] = /^hsl\(([\d.]+) ([\d.]+)% ([\d.]+)%\)$/.exec(colour).map(Number);
  const spread = (s / 100) * Math.min(l / 100, 1 - l / 100);
  return [0, 8, 4].map((n) => {
    const k = (n + hue / 30) % 12;
    return l / 100 - spread * Math.max(-1, Math.min(k - 3, 9 - k, 1));
  });
}

/** Return the contrast of two colours, as WCAG 2 defines it. */
function contrast(one, other) {
  const [low, high] = [one, other]
    .map(channels)
    .map((found) => found.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)))
    .map(([red, green, blue]) => 0.2126 * red + 0.7152 * green + 0.0722 * blue)
    .sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

for (const [scheme, part] of [["light", 0], ["dark", 1]]) {
  test(`the colour of every agent can be read on every background when it is ${scheme}`, () => {
    globalThis.matchMedia = () => ({ matches: scheme === "dark" });
    const styles = STYLES.split("prefers-color-scheme: dark")[part];
    for (const name of BACKGROUNDS) {
      const background = new RegExp(`${name}: (#\\w{6})`).exec(styles)[1];
      for (let at = 0; at < 400; at += 1) {
        assert.ok(contrast(colourOf(at), background) >= 4.5, `${colourOf(at)} on ${name} ${background}`);
      }
    }
  });
}

test("the colours of the first agents differ", () => {
  globalThis.matchMedia = () => ({ matches: false });
  assert.equal(new Set(Array.from({ length: 24 }, (_, at) => colourOf(at))).size, 24);
});
