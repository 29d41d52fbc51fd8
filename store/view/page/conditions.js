/** The conditions of the page: as values of the state, and in words. */

import { FILTER_KEYS } from "./filter.js";
import { rangeText } from "./time_range.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./state.js").State} State */

/** Values of the state without conditions. */
export const NO_CONDITIONS = { q: "", agent: [], between: [], channel: [], kind: [], since: "", until: "" };

/** Return whether there are conditions. @param {State} state */
export function isFiltered(state) {
  return FILTER_KEYS.some((key) => state.get(key) !== "" || state.all(key).length > 0);
}

/**
 * A condition in words, and the values of the state without it.
 * @typedef {{ what: string, name: string, without: Record<string, string | string[]> }} Condition
 */

/** Return the conditions except the text that is searched. @param {App} app @returns {Condition[]} */
export function conditionsOf(app) {
  const { state, messages } = app;
  const agent = (/** @type {string} */ id) => messages.names.agents[messages.agentAt.get(id) ?? 0].text || id;
  const each = (/** @type {string} */ key, /** @type {(value: string) => string} */ text) =>
    state.all(key).map((value) => ({ what: key, name: text(value), without: { [key]: state.all(key).filter((other) => other !== value) } }));
  const between = state.all("between").slice(0, 2);
  const { since, until } = app.filter;
  return [
    ...(between.length === 2 ? [{ what: "between", name: between.map(agent).join(" and "), without: { between: [] } }] : []),
    ...each("agent", agent),
    ...each("channel", (channel) => channel),
    ...each("kind", (kind) => kind),
    ...(since === null && until === null ? [] : [{ what: "time", name: rangeText(since, until), without: { since: "", until: "" } }]),
  ];
}
