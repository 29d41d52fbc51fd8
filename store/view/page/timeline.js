/** The timeline: messages over time, with marks, gaps, problems, the chosen range and the current moment. */

import { h } from "./dom.js";
import { countedRows, FILTER_KEYS, lowest } from "./filter.js";
import { playback } from "./playback.js";
import { emptyTimes, TimeAxis, Viewport } from "./time_axis.js";
import { lengthText } from "./time_ticks.js";
import { askedBars, Bars, barsOf, rankingOf } from "./timeline_bars.js";
import { brush } from "./timeline_brush.js";
import { gapsAt, rangeInfo, pointerBox } from "./timeline_info.js";
import { byOf, legend } from "./timeline_legend.js";
import { overview, OVERVIEW } from "./timeline_overview.js";
import { LEFT, Plot, RIGHT } from "./timeline_plot.js";
import { chapterStrip, problemStrip } from "./timeline_strip.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").Changed} Changed */
/** @typedef {import("./types").View} View */
/** @typedef {import("./time_axis.js").Span} Span */

/** Arriving messages are counted once in so many ms; and if the source is asked for counts. */
const PAUSE = 250;
const ASKED_PAUSE = 1000;
/** The source counts for one part of the time in so many. */
const RESTING = 5;
/** Height of the picture in CSS pixels, and that on narrow pages. */
const HEIGHT = 150;
const LOW = 96;
const NARROW = 600;
const CHAPTERS = 20;
const PROBLEMS = 10;
/** Part of the axis that is free at both ends. */
const MARGIN = 0.006;
/** ms without a change before the source is asked. */
const STILL = 80;
/** Length of a run, in ns, of which all times are shown at first: nobody waits for the end of its silences. */
const BRIEF = 60_000_000_000n;
/** Keys of the state on which the counts depend. */
const COUNTED = ["by", "empty", "fold", ...FILTER_KEYS.filter((key) => key !== "since" && key !== "until")];

/** @param {App} app @returns {View} */
export function timeline(app) {
  return new Timeline(app);
}

/** @implements {View} */
class Timeline {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** Times that are shown; null for all. @type {Span | null} */
    this._view = null;
    /** @type {TimeAxis | null} */
    this._axis = null;
    /** @type {Viewport | null} */
    this._viewport = null;
    /** @type {Bars} */
    this._bars = new Bars(1n, [], []);
    /** Bars of the whole run, for the overview. @type {Bars | null} */
    this._whole = null;
    /** ms of the last answer of the source. */
    this._answered = 0;
    /** Rows that fit the filter at any time; null if they are to be found. @type {Int32Array | null} */
    this._rows = null;
    /** @type {ReturnType<typeof emptyTimes> | null} Times without messages; null if they may have changed. */
    this._empty = null;
    /** @type {import("./timeline_bars.js").Ranking | null} */
    this._ranking = null;
    this._counted = -Infinity;
    this._later = 0;
    /** Number of the counts, which a question to the source contains. */
    this._counts = 0;
    this._question = "";
    /** @type {{ viewport: Viewport, whole: Viewport, question: string, of: string } | null} */
    this._wanted = null;
    /** @type {Promise<void> | null} */
    this._asking = null;
    /** Of what `_whole` has the counts. */
    this._wholeOf = "";

    this._plot = new Plot();
    this._playback = playback(app);
    this._legend = legend(app);
    this._chapters = chapterStrip(app);
    this._problems = problemStrip(app);
    this._overview = overview({ viewport: () => this._viewport, show: (viewport) => this._show(viewport) });
    this._box = pointerBox();
    this._info = rangeInfo(app, () => this._zoomToRange());
    this._skip = h("button", { type: "button", on: { click: () => this._toggleEmpty() } }, "Skip empty times");
    const { over } = this._plot;
    this._picture = h(
      "div",
      { class: "timeline-picture", tabIndex: 0, role: "group", "aria-label": "messages over time", "aria-describedby": "timeline-keys" },
      this._chapters.element,
      this._plot.element,
      this._problems.element,
      this._overview.element,
      this._box.element,
      h("p", { id: "timeline-keys", class: "status" }, KEYS),
    );
    this._brush = brush(app, over, this._plot.axis, this._picture, {
      viewport: () => this._viewport,
      show: (viewport) => this._show(viewport),
      choose: (ts) => this._choose(ts),
      hover: (x) => this._hover(x),
    });
    const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ click) =>
      h("button", { type: "button", title, "aria-label": title, on: { click } }, text);
    const buttons = h(
      "div",
      { class: "timeline-buttons", role: "group", "aria-label": "zoom" },
      button("−", "zoom out", () => this._zoom(2)),
      button("+", "zoom in", () => this._zoom(0.5)),
      button("All", "show the whole run", () => this._show(null)),
    );
    this._fold = h(
      "button",
      { type: "button", class: "timeline-fold", on: { click: () => app.state.set({ fold: this._folded() ? "" : "timeline" }) } },
      "Timeline",
    );
    this._none = h("p", { class: "timeline-none quiet", hidden: true }, "No messages yet: the timeline has nothing to show.");
    this.element = h(
      "section",
      { class: "timeline", "aria-label": "timeline" },
      h("div", { class: "timeline-bar" }, this._playback.element, this._legend.element, this._info.element, this._skip, buttons, this._fold),
      this._none,
      this._picture,
    );
    this._picture.addEventListener("keydown", (event) => {
      if (event.target !== this._picture || !this._key(event)) return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** @param {Changed} changed */
  update(changed) {
    this._playback.update(changed);
    if (changed.has("messages")) this._rows = this._empty = null;
    if (changed.has("theme")) this._plot.theme();
    this.element.dataset.folded = String(this._folded());
    this._fold.setAttribute("aria-expanded", String(!this._folded()));
    if (this._folded()) return;
    const { complete } = this.app.source;
    const now = COUNTED.some((key) => changed.has(key)) || this._axis === null;
    const more = changed.has("timeline-later") || changed.has(complete ? "messages" : "live");
    const soon = this._counted + (complete ? PAUSE : Math.max(ASKED_PAUSE, RESTING * this._answered)) - performance.now();
    const counted = now || (more && soon <= 0);
    if (counted) this._count();
    else if (more) this._wait(soon);
    if (this._axis === null) return;
    if (changed.has("at") || changed.has("playhead")) this._follow(changed);
    if (counted || ["timeline", "size", "theme", "head"].some((key) => changed.has(key))) this._draw(changed);
    else if (["since", "until"].some((key) => changed.has(key)) && this._viewport) this._chapters.draw(this._viewport);
    if (this._viewport) this._brush.draw(this._viewport);
    this._info.draw(this._axis.span, this._hint());
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    return this._playback.key?.(event) ?? false;
  }

  _folded() {
    return this.app.state.get("fold") === "timeline";
  }

  /** Count again later. @param {number} pause ms */
  _wait(pause) {
    if (this._later) return;
    this._later = window.setTimeout(() => {
      this._later = 0;
      this.app.changed("timeline-later");
    }, pause);
  }

  /** Find the rows that fit, and the axis. */
  _count() {
    const { app } = this;
    this._counted = performance.now();
    this._counts += 1;
    this._rows = null;
    if (app.source.complete) this._whole = null;
    const before = this._axis;
    const span = spanOf(app);
    this._none.hidden = span !== null;
    this._picture.hidden = span === null;
    if (span === null) return;
    this._empty ??= app.source.complete ? emptyTimes(app.messages.ts.subarray(0, app.messages.length)) : [];
    const cuts = this._empty;
    const all = new TimeAxis(span, []);
    const less = new TimeAxis(span, cuts);
    const empty = app.state.get("empty");
    const skipped = empty === "skip" || (empty === "" && all.length > BRIEF && less.length < all.length / 4n);
    this._axis = (skipped ? less : all).widened(MARGIN);
    this._skip.hidden = cuts.length === 0;
    this._skip.setAttribute("aria-pressed", String(skipped));
    if (before === null) this._begin();
    else if (this._view && this._view.until >= before.span.until) {
      const by = span.until - before.span.until;
      this._view = { since: this._view.since + by, until: span.until };
    }
  }

  /** Show the range of the link, if it would be too narrow to be seen. */
  _begin() {
    const axis = /** @type {TimeAxis} */ (this._axis);
    const { since, until } = this.app.filter;
    if (since === null || until === null) return;
    if (Number(axis.at(until) - axis.at(since)) < Number(axis.length) * 0.03) this._zoomToRange();
  }

  /** Draw everything. @param {Changed} changed */
  _draw(changed) {
    const { app } = this;
    const axis = /** @type {TimeAxis} */ (this._axis);
    const width = Math.max(this._picture.clientWidth - LEFT - RIGHT, 50);
    const viewport = this._viewportOf(axis, width);
    this._viewport = viewport;
    const by = byOf(app);
    const whole = new Viewport(axis, 0n, axis.length, width);
    if (!app.source.complete) this._ask(viewport, whole);
    else {
      if (this._rows === null || this._ranking === null) {
        const chosen = by === "from" ? app.state.all("agent").map((id) => app.messages.agentAt.get(id) ?? 0) : [];
        this._rows = countedRows(app.messages, app.fitting, app.filter);
        this._ranking = rankingOf(app.messages, by, chosen);
      }
      const ranking = this._ranking;
      this._bars = barsOf(app.messages, this._rows, viewport, by, ranking);
      if (viewport.whole) this._whole = this._bars;
      else this._whole ??= barsOf(app.messages, this._rows, whole, by, ranking);
    }
    const problems = app.head.problems?.details.length ? PROBLEMS : 0;
    const zoomed = viewport.whole || this._whole === null ? 0 : OVERVIEW;
    const height = (innerWidth < NARROW ? LOW : HEIGHT) - problems - zoomed - (app.head.marks.length ? CHAPTERS : 0);
    this._chapters.draw(viewport);
    this._plot.draw(viewport, this._bars, app.head.gaps, height);
    this._problems.draw(viewport);
    this._overview.element.hidden = zoomed === 0;
    if (this._whole && zoomed) this._overview.draw(viewport, this._whole, changed.has("theme"));
    this._legend.draw(this._bars, changed.has("theme"));
  }

  /** Ask the source for the bars; until the answer is there the old ones stay. @param {Viewport} viewport @param {Viewport} whole */
  _ask(viewport, whole) {
    const of = [byOf(this.app), this._counts].join();
    const question = [viewport.from, viewport.to, viewport.width, of].join();
    if (question === this._question) return;
    this._question = question;
    this._wanted = { viewport, whole, question, of };
    this._asking ??= this._answers();
  }

  /** Ask one question after the other, of those that wait only the last one. */
  async _answers() {
    try {
      while (this._wanted !== null) {
        await new Promise((done) => setTimeout(done, STILL));
        const { viewport, whole, question, of } = this._wanted;
        this._wanted = null;
        const by = byOf(this.app);
        const begin = performance.now();
        if (this._whole === null) {
          // Counts by name take longer: their sums come first.
          this._bars = await askedBars(this.app, viewport, "all");
          this.app.changed("timeline");
        }
        const bars = await askedBars(this.app, viewport, by);
        const all = viewport.whole ? bars : of === this._wholeOf ? this._whole : await askedBars(this.app, whole, by);
        this._answered = performance.now() - begin;
        if (question !== this._question) continue;
        this._bars = bars;
        this._whole = all;
        this._wholeOf = of;
        this.app.changed("timeline");
      }
    } catch (error) {
      this._wanted = null;
      this.app.say(`The timeline could not be counted: ${error instanceof Error ? error.message : error}`);
    }
    this._asking = null;
  }

  /** @param {TimeAxis} axis @param {number} width */
  _viewportOf(axis, width) {
    if (this._view === null) return new Viewport(axis, 0n, axis.length, width);
    const from = axis.at(this._view.since);
    const to = axis.at(this._view.until);
    if (to > from) return new Viewport(axis, from, to, width).within();
    return new Viewport(axis, 0n, axis.length, width);
  }

  /** Show a part of the time; null for all. @param {Viewport | null} viewport */
  _show(viewport) {
    this._box.hide();
    if (viewport === null || viewport.whole) this._view = null;
    else {
      const { axis, from, to } = viewport;
      this._view = { since: axis.ts(from), until: axis.ts(to) };
      this._viewport = viewport;
    }
    this.app.changed("timeline");
  }

  /** Zoom around the moment, if it is shown, else around the middle. @param {number} factor */
  _zoom(factor) {
    const viewport = this._viewport;
    if (viewport === null) return;
    const moment = this._moment();
    const x = moment === null ? -1 : viewport.x(moment);
    this._show(viewport.zoomed(factor, x >= 0 && x <= viewport.width ? x : viewport.width / 2));
  }

  _zoomToRange() {
    const axis = this._axis;
    const { since, until } = this.app.filter;
    if (axis === null) return;
    const from = axis.at(since ?? axis.span.since);
    const to = axis.at(until ?? axis.span.until);
    const margin = (to - from) / 12n + 1_000n;
    this._show(new Viewport(axis, from - margin, to + margin, this._viewport?.width ?? 1000).within());
  }

  /** Keep what was selected, or is played, in sight. @param {Changed} changed */
  _follow(changed) {
    const viewport = this._viewport;
    const ts = this._moment();
    if (viewport === null || viewport.whole || ts === null) return;
    const x = viewport.x(ts);
    if (x >= 0 && x <= viewport.width) return;
    this._show(viewport.panned(x - viewport.width * (this.app.state.get("playing") ? 0.1 : 0.5)));
    changed.add("timeline");
  }

  /** Return the time of the playhead, or of the selected message. */
  _moment() {
    const { app } = this;
    const playhead = app.state.get("playhead");
    if (playhead !== "") return BigInt(playhead);
    return app.selected >= 0 ? app.messages.ts[app.selected] : null;
  }

  /** Select the message that is nearest to a time. @param {bigint} ts */
  _choose(ts) {
    const { app } = this;
    if (app.rows.length === 0) return;
    const after = lowest(app.messages.ts, app.rows, ts);
    const near = [after - 1, after].filter((at) => at >= 0 && at < app.rows.length);
    const distance = (/** @type {number} */ at) => Math.abs(Number(app.messages.ts[app.rows[at]] - ts));
    near.sort((a, b) => distance(a) - distance(b));
    app.show(app.rows[near[0]]);
  }

  _toggleEmpty() {
    this.app.state.set({ empty: this._skip.getAttribute("aria-pressed") === "true" ? "show" : "skip" });
  }

  /** Tell what is at a place. @param {number | null} x */
  _hover(x) {
    const viewport = this._viewport;
    if (viewport === null || x === null) return this._box.hide();
    const gaps = gapsAt(this.app.head.gaps, viewport, x);
    this._box.show(this._bars, gaps, viewport.ts(x), x + LEFT, viewport.width + LEFT + RIGHT);
  }

  _hint() {
    if (this._bars.slots.length === 0) return this._asking ? "counting …" : "";
    return this._bars.highest ? `messages per ${lengthText(this._bars.length)}, UTC` : "no messages here, UTC";
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    const viewport = this._viewport;
    if (viewport === null || event.ctrlKey || event.metaKey || event.altKey) return false;
    const { axis, from, to, width } = viewport;
    switch (event.key) {
      case "ArrowLeft":
        this._show(viewport.panned(-width / 8));
        return true;
      case "ArrowRight":
        this._show(viewport.panned(width / 8));
        return true;
      case "+":
      case "=":
        this._zoom(0.5);
        return true;
      case "-":
        this._zoom(2);
        return true;
      case "Home":
        this._show(new Viewport(axis, 0n, to - from, width));
        return true;
      case "End":
        this._show(new Viewport(axis, axis.length - to + from, axis.length, width));
        return true;
      case "[":
      case "]": {
        const ts = String(this._moment() ?? viewport.ts(width / 2));
        this.app.state.set(event.key === "[" ? { since: ts } : { until: String(BigInt(ts) + 1n) });
        return true;
      }
      case "Escape":
        if (!this._brush.cancel()) this.app.state.set({ since: "", until: "" });
        return true;
      default:
        return false;
    }
  }
}

const KEYS =
  "Arrow keys move, plus and minus zoom, Home and End go to the begin and the end, brackets set the begin and the end of " +
  "the range at the selected message, Escape clears the range.";

/** Return the time of the run; null if nothing is known. @param {App} app @returns {Span | null} */
function spanOf({ messages, source, head }) {
  const times = [];
  if (messages.length) times.push(messages.ts[0], messages.ts[messages.length - 1]);
  if (!source.complete) for (const ts of [head.first_ts, head.last_ts]) if (ts !== null) times.push(BigInt(ts));
  for (const mark of head.marks) times.push(BigInt(mark.ts));
  // The end of a gap may be far away.
  if (times.length === 0) for (const gap of head.gaps) times.push(BigInt(gap.since));
  if (times.length === 0) return null;
  const since = times.reduce((a, b) => (a < b ? a : b));
  const until = times.reduce((a, b) => (a > b ? a : b));
  return { since, until: until + 1n };
}
