/** Figures of two runs whose messages share little: who said how much to whom, and how fast, in each of them. */

import { h, label } from "./dom.js";
import { durationText, numberText, plural } from "./time.js";

/** @typedef {import("./types").RunsSummary} RunsSummary */

/** Return the summary as an element. @param {RunsSummary} summary */
export function runSummary({ runs, pairs, number, outside }) {
  const sides = ["A", "B"];
  const totals = runs.map(
    ({ messages, duration_s, channels, agents }, at) =>
      `${sides[at]}: ${plural(messages, "message")} in ${durationText(duration_s * 1e9)}, ${plural(channels, "channel")}, ${plural(agents, "agent")}`,
  );
  const rows = pairs.map(({ channel, from, to, messages, delays_s }) =>
    h(
      "tr",
      {},
      ...[from, to, channel].map((name) => h("td", {}, name === null ? "-" : label(name))),
      ...messages.map((count) => h("td", {}, numberText(count))),
      ...delays_s.map((delay) => h("td", {}, delay === null ? "-" : durationText(delay * 1e9))),
    ),
  );
  const titles = ["From", "To", "Channel", ...sides.map((side) => `Messages ${side}`), ...sides.map((side) => `Reply ${side}`)];
  const head = h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)));
  const more = number > pairs.length ? ` The first ${numberText(pairs.length)} are listed.` : "";
  return h(
    "details",
    { class: "comparison-summary", open: true },
    h("summary", {}, `Few messages are equal: ${numberText(outside)} of ${plural(number, "pair")} have another number of messages`),
    h("p", { class: "quiet" }, `${totals.join("; ")}. Replies are medians.${more}`),
    h("table", { class: "receptions" }, h("thead", {}, head), h("tbody", {}, ...rows)),
  );
}
