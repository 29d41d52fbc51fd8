/** Kinds of problems: their meaning, their number, and the badge that opens them. docs/analysis.md defines them. */

import { isLive } from "./describing.js";
import { h } from "./dom.js";
import { plural } from "./time.js";

/** @type {Record<string, string>} Meaning by kind, in the order of the report. */
export const MEANING = {
  "never arrived": "No recorded listener received these messages, and they did not fail.",
  missed: "These messages arrived, but not at every listener that was subscribed.",
  "arrived twice": "A listener received these messages more than once within a minute.",
  late: "These messages arrived more than one second after they were sent.",
  blocked: "An interceptor refused these messages: they were not published.",
  failed: "These messages were not sent, or it is unknown whether they were.",
  gap: "In these times a recorder may have missed messages.",
  "unclean end": "These recorders ended without saying so: the last messages may be missing.",
};

/** Kinds in which every message arrived. */
const LIGHT = new Set(["arrived twice", "late"]);

/** Return whether something is missing, or may be. @param {import("./types").Problem} problem */
export function isGrave({ kind }) {
  return !LIGHT.has(kind);
}

/** Return the number of all problems. @param {import("./types").Problems} problems */
export function numberOf(problems) {
  return Object.values(problems.counts).reduce((sum, count) => sum + count, 0);
}

/** Return whether problems were not asked for yet, and may be. @param {import("./types").App} app */
export function mayExamine({ source, head }) {
  return source.served && !source.examining && !isLive(head);
}

/** Return why nothing is known of problems. @param {import("./types").App} app */
export function unknownYet(app) {
  if (app.source.served && isLive(app.head)) {
    return "Problems are searched when the recording has ended. Until then, `messager problems` reports those so far.";
  }
  if (mayExamine(app)) return "This experiment is large: searching it and verifying its log takes a while.";
  return app.source.served
    ? "Problems are being searched; they appear here when that is done."
    : "Problems were not searched: with a limit or context, messages around a selected one are missing.";
}

/** Return the number of problems as a button that shows them. @param {import("./types").App} app */
export function badge(app) {
  const { problems } = app.head;
  const number = problems === null ? 0 : numberOf(problems);
  const text = problems === null
    ? app.source.examining ? "problems: searching …" : "problems: not searched"
    : number > 0 ? plural(number, "problem") : problems.examined ? "no problems" : "arrivals not examined";
  return h(
    "button",
    {
      type: "button", class: number > 0 ? "problem-badge bad" : "problem-badge",
      "aria-label": `${text}: show`,
      on: { click: () => app.state.set({ view: "problems" }) },
    },
    text,
  );
}
