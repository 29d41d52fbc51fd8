/** Strips of the timeline: chapters between marks above it, problems below it. Their buttons are one stop of the tab key. */

import { h, shortId, visible } from "./dom.js";
import { isGrave } from "./problem_kinds.js";
import { plural } from "./time.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").Head} Head */
/** @typedef {import("./types").Mark} Mark */
/** @typedef {import("./types").Problem} Problem */
/** @typedef {import("./time_axis.js").Span} Span */
/** @typedef {import("./time_axis.js").Viewport} Viewport */

/** Pixels of a chapter, and of a problem, at least; narrower ones are joined. */
const CHAPTER = 26;
const TICK = 7;

/**
 * Chapters: the time from each mark to the next one.
 * @param {App} app @returns {{ element: HTMLElement, draw: (viewport: Viewport) => void }}
 */
export function chapterStrip(app) {
  const element = h("div", { class: "timeline-chapters", role: "toolbar", "aria-label": "chapters, from mark to mark" });
  arrowKeys(element);
  return {
    element,
    draw(viewport) {
      const chapters = chaptersOf(app.head.marks, viewport.axis.span);
      element.hidden = chapters.length === 0;
      const joined = joinedBy(chapters, (one) => viewport.x(one.since), CHAPTER).map((group) => {
        const since = group[0].since;
        const until = group[group.length - 1].until;
        return { group, since, until, from: viewport.x(since), to: viewport.x(until) };
      });
      const shown = joined.filter(({ from, to }) => to > 0 && from < viewport.width);
      refill(element, shown, ({ group, since, until, from, to }) => {
        const name = group.map(({ label }) => label);
        const text = name.length === 1 ? name[0] : `${name[0]} … ${name[name.length - 1]}`;
        const many = name.length === 1 ? "" : ` (${plural(name.length, "mark")})`;
        const title = [`${shortId(text)}${many}`, group.length === 1 ? shortId(group[0].text) : ""].filter(Boolean).join(": ");
        const button = h("button", { type: "button", class: "timeline-chapter", title, tabIndex: -1 });
        button.append(h("bdi", {}, visible(text)));
        const begin = Math.max(from, 0);
        button.style.left = `${begin}px`;
        button.style.width = `${Math.min(to, viewport.width) - begin}px`;
        const chosen = app.state.get("since") === String(since) && app.state.get("until") === String(until);
        button.setAttribute("aria-pressed", String(chosen));
        button.addEventListener("click", () =>
          app.state.set(chosen ? { since: "", until: "" } : { since: String(since), until: String(until) }),
        );
        return button;
      });
    },
  };
}

/** @param {Mark[]} marks @param {Span} span */
export function chaptersOf(marks, span) {
  const times = marks.map(({ ts }) => BigInt(ts));
  return marks.map(({ label, text }, at) => ({
    label,
    text: text === label ? "" : text,
    since: times[at],
    until: at + 1 < times.length ? times[at + 1] : span.until > times[at] ? span.until : times[at] + 1n,
  }));
}

/**
 * Problems as ticks.
 * @param {App} app @returns {{ element: HTMLElement, draw: (viewport: Viewport) => void }}
 */
export function problemStrip(app) {
  const element = h("div", { class: "timeline-problems", role: "toolbar", "aria-label": "problems" });
  arrowKeys(element);
  return {
    element,
    draw(viewport) {
      const problems = (app.head.problems?.details ?? []).filter(({ ts }) => ts !== null);
      element.hidden = problems.length === 0;
      const x = (/** @type {Problem} */ one) => viewport.x(BigInt(one.ts ?? 0));
      const shown = problems.filter((one) => x(one) >= 0 && x(one) <= viewport.width).sort((a, b) => x(a) - x(b));
      refill(element, joinedBy(shown, x, TICK), (neighbours) => {
        const group = [...neighbours].sort((a, b) => Number(isGrave(b)) - Number(isGrave(a)));
        const ends = [x(neighbours[0]), x(neighbours[neighbours.length - 1])];
        const lines = group.slice(0, 6).map(({ kind, text, reason }) => visible([kind, text || reason].filter(Boolean).join(": ")));
        if (group.length > 6) lines.push(`and ${group.length - 6} more`);
        const button = h("button", { type: "button", class: isGrave(group[0]) ? "problem-tick" : "problem-tick light", title: lines.join("\n"), tabIndex: -1 });
        button.setAttribute("aria-label", lines.join("; "));
        button.style.left = `${ends[0]}px`;
        if (group.length > 1) button.style.width = `${ends[1] - ends[0] + 5}px`;
        button.addEventListener("click", () => {
          const at = group[0].message ?? group[0].cursor;
          if (at !== null) app.state.set({ at });
        });
        return button;
      });
    },
  };
}

/**
 * Join neighbours that are nearer than some pixels.
 * @template T
 * @param {T[]} all ascending @param {(one: T) => number} x @param {number} space
 * @returns {T[][]}
 */
export function joinedBy(all, x, space) {
  /** @type {T[][]} */
  const found = [];
  let begin = -Infinity;
  for (const one of all) {
    const at = x(one);
    if (at - begin < space) found[found.length - 1].push(one);
    else {
      found.push([one]);
      begin = at;
    }
  }
  return found;
}

/**
 * Fill a strip with buttons; the focus stays at its place.
 * @template T
 * @param {HTMLElement} element @param {T[]} all @param {(one: T) => HTMLButtonElement} made
 */
function refill(element, all, made) {
  const focused = [...element.children].indexOf(/** @type {Element} */ (document.activeElement));
  element.replaceChildren(...all.map(made));
  const buttons = /** @type {HTMLElement[]} */ ([...element.children]);
  const stop = buttons[Math.min(Math.max(focused, 0), buttons.length - 1)];
  if (stop) stop.tabIndex = 0;
  if (focused >= 0) stop?.focus({ preventScroll: true });
}

/** Move the focus within a toolbar by arrow keys. @param {HTMLElement} element */
export function arrowKeys(element) {
  element.addEventListener("keydown", (event) => {
    const buttons = /** @type {HTMLElement[]} */ ([...element.querySelectorAll("button")]);
    const now = buttons.indexOf(/** @type {HTMLElement} */ (event.target));
    /** @type {Record<string, number>} */
    const places = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: buttons.length - 1 };
    const place = places[event.key];
    if (now < 0 || place === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next = buttons[Math.min(Math.max(place, 0), buttons.length - 1)];
    buttons[now].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
