/** What a replay is doing, as text and as elements. */

import { h, label } from "./dom.js";
import { durationText, numberText, plural } from "./time.js";

/** @typedef {import("./types").ReplayStatus} ReplayStatus */
/** @typedef {import("./types").LiveStatus} LiveStatus */

/** Return position and counts. @param {ReplayStatus} status @param {string | null} to_exp */
export function statusText(status, to_exp) {
  const parts = [status.state];
  if (status.offset_s !== null) parts.push(status.offset_s ? `at ${durationText(status.offset_s * 1e9)}` : "at the beginning");
  parts.push(`${numberText(status.published)} of ${status.at_least ? "at least " : ""}${plural(status.planned, "message")} published`);
  if (status.seeks) parts.push(plural(status.seeks, "seek"));
  if (status.failed) parts.push(`${numberText(status.failed)} refused`);
  const found = h("span", {}, parts.join(", "));
  if (to_exp) found.append(", on the channels of ", label(to_exp));
  return found;
}

/** Return what the replay waits for; "" if for nothing but the time. @param {ReplayStatus} status */
export function waitingText(status) {
  if (status.held_by !== null) return `Waiting for the subscriber ${status.held_by}, which reads too slowly.`;
  const waits = status.live?.waiting_for ?? [];
  if (waits.length === 0) return "";
  const [first] = waits;
  const what = first.for === "subscription" ? "to subscribe" : `to say message ${first.number} of ${first.of} on ${first.channel}`;
  return `Waiting for ${first.part} ${what}${waits.length > 1 ? `, and for ${waits.length - 1} more` : ""}.`;
}

/** Return the live agents with their counts. @param {LiveStatus | null} live */
export function castList(live) {
  if (live === null) return h("span");
  const counts = /** @type {const} */ (["matched", "different", "missing", "unexpected"]);
  return h(
    "ul",
    { class: "replay-cast", "aria-label": "live agents" },
    ...live.parts.map((part) =>
      h(
        "li",
        {},
        label(part.label),
        h("span", { class: part.there ? "live" : "quiet" }, part.there ? " here" : " not here yet"),
        h("span", { class: "quiet" }, `, ${numberText(part.expected)} expected${counts.map((name) => (part[name] ? `, ${numberText(part[name])} ${name}` : "")).join("")}`),
      ),
    ),
    live.of > live.parts.length ? h("li", { class: "quiet" }, `and ${numberText(live.of - live.parts.length)} more`) : null,
  );
}
