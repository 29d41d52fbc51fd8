/** Pointer and wheel on the timeline: drag a range, its edges or the whole of it, pan, zoom, choose a moment. */

import { h } from "./dom.js";
import { roundTime } from "./time_ticks.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./time_axis.js").Viewport} Viewport */
/** @typedef {"new" | "since" | "until" | "move"} Gesture */

/** Pixels around an edge of the range that belong to it, and pixels that a pointer moves before it is a drag. */
const EDGE = 6;
const STILL = 4;

/**
 * Lines and the range over the bars, and the gestures on them.
 * @param {App} app
 * @param {HTMLElement} over the element over the bars
 * @param {HTMLElement} axis the element over the labels of the times
 * @param {HTMLElement} picture the element with the keyboard focus
 * @param {{ viewport: () => Viewport | null, show: (viewport: Viewport) => void, choose: (ts: bigint) => void,
 *   hover: (x: number | null) => void }} on
 */
export function brush(app, over, axis, picture, on) {
  const range = h("div", { class: "timeline-range" });
  const playhead = h("div", { class: "timeline-playhead" });
  const selected = h("div", { class: "timeline-selected" });
  over.append(range, selected, playhead);

  /** @type {{ gesture: Gesture, x: number, viewport: Viewport, since: bigint, until: bigint, before: [string, string], moved: boolean } | null} */
  let drag = null;

  /** Return the range in pixels, null if there is none. @param {Viewport} viewport */
  const placeOf = (viewport) => {
    const since = app.state.get("since");
    const until = app.state.get("until");
    if (since === "" && until === "") return null;
    return { from: since === "" ? -1 : viewport.x(BigInt(since)), to: until === "" ? viewport.width + 1 : viewport.x(BigInt(until)) };
  };

  let left = 0;
  // measured here, because during a drag it would lay out the whole page again
  const measure = () => {
    left = over.getBoundingClientRect().left;
  };
  over.addEventListener("pointerenter", measure);
  over.addEventListener("pointerdown", measure);
  /** @param {PointerEvent} event */
  const xOf = (event) => event.clientX - left;

  /** @param {number} x @param {Viewport} viewport @returns {Gesture} */
  const gestureAt = (x, viewport) => {
    const place = placeOf(viewport);
    if (place === null) return "new";
    if (Math.abs(x - place.from) <= EDGE) return "since";
    if (Math.abs(x - place.to) <= EDGE) return "until";
    return x > place.from && x < place.to ? "move" : "new";
  };

  over.addEventListener("pointerdown", (event) => {
    const viewport = on.viewport();
    if (event.button !== 0 || viewport === null) return;
    const x = xOf(event);
    const { since, until } = app.filter;
    const { span } = viewport.axis;
    drag = {
      gesture: gestureAt(x, viewport),
      x,
      viewport,
      since: since ?? span.since,
      until: until ?? span.until,
      before: [app.state.get("since"), app.state.get("until")],
      moved: false,
    };
    over.setPointerCapture(event.pointerId);
  });

  over.addEventListener("pointermove", (event) => {
    const viewport = on.viewport();
    if (viewport === null) return;
    const x = xOf(event);
    if (drag === null) {
      const gesture = gestureAt(x, viewport);
      over.dataset.gesture = gesture === "since" || gesture === "until" ? "edge" : gesture;
      on.hover(x);
      return;
    }
    if (!drag.moved && Math.abs(x - drag.x) < STILL) return;
    drag.moved = true;
    on.hover(null);
    app.state.set(rangeOf(drag, x));
  });

  over.addEventListener("pointerup", (event) => {
    const done = drag;
    drag = null;
    if (done !== null && !done.moved && event.detail < 2) on.choose(done.viewport.ts(done.x));
  });
  over.addEventListener("pointercancel", () => (drag = null));
  over.addEventListener("pointerleave", () => on.hover(null));
  over.addEventListener("dblclick", () => app.state.set({ since: "", until: "" }));

  panning(axis, on.viewport, on.show);

  picture.addEventListener(
    "wheel",
    (event) => {
      const viewport = on.viewport();
      if (viewport === null || event.ctrlKey) return;
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : 1;
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const by = (event.shiftKey && event.deltaX === 0 ? event.deltaY : sideways ? event.deltaX : event.deltaY) * unit;
      const x = Math.min(Math.max(event.clientX - over.getBoundingClientRect().left, 0), viewport.width);
      on.show(sideways ? viewport.panned(by) : viewport.zoomed(Math.exp(Math.max(Math.min(by, 300), -300) / 400), x));
    },
    { passive: false },
  );

  return {
    /** Place the range and the lines. @param {Viewport} viewport */
    draw(viewport) {
      const place = placeOf(viewport);
      range.hidden = place === null || place.to < 0 || place.from > viewport.width;
      if (place !== null) {
        const from = Math.max(place.from, -2);
        range.style.transform = `translateX(${from}px)`;
        range.style.width = `${Math.max(Math.min(place.to, viewport.width + 2) - from, 1)}px`;
      }
      const at = app.selected >= 0 ? app.messages.ts[app.selected] : null;
      line(selected, at, viewport);
      line(playhead, app.state.get("playhead") === "" ? null : BigInt(app.state.get("playhead")), viewport);
    },
    /** End a drag and restore the range that was before it. Returns whether there was one. */
    cancel() {
      if (drag === null) return false;
      const [since, until] = drag.before;
      drag = null;
      app.state.set({ since, until });
      return true;
    },
  };
}

/**
 * Pan by dragging an element.
 * @param {HTMLElement} element @param {() => Viewport | null} viewport @param {(viewport: Viewport) => void} show
 */
function panning(element, viewport, show) {
  /** @type {{ x: number, viewport: Viewport } | null} */
  let drag = null;
  element.addEventListener("pointerdown", (event) => {
    const now = viewport();
    if (event.button !== 0 || now === null) return;
    drag = { x: event.clientX, viewport: now };
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (drag !== null) show(drag.viewport.panned(drag.x - event.clientX));
  });
  element.addEventListener("pointerup", () => (drag = null));
  element.addEventListener("pointercancel", () => (drag = null));
}

/** @param {HTMLElement} element @param {bigint | null} ts @param {Viewport} viewport */
function line(element, ts, viewport) {
  const x = ts === null ? -1 : viewport.x(ts);
  element.hidden = x < 0 || x > viewport.width;
  if (!element.hidden) element.style.transform = `translateX(${x}px)`;
}

/**
 * Return the range after a drag.
 * @param {{ gesture: Gesture, x: number, viewport: Viewport, since: bigint, until: bigint }} drag
 * @param {number} x
 * @returns {{ since: string, until: string }}
 */
export function rangeOf({ gesture, x: start, viewport, since, until }, x) {
  const timeAt = (/** @type {number} */ place) =>
    roundTime(viewport.ts(Math.min(Math.max(place, 0), viewport.width)), viewport.scale);
  let [from, to] = [since, until];
  if (gesture === "new") [from, to] = [timeAt(start), timeAt(x)];
  if (gesture === "since") from = timeAt(x);
  if (gesture === "until") to = timeAt(x);
  if (gesture === "move") {
    const { axis } = viewport;
    const by = BigInt(Math.round((x - start) / viewport.scale));
    const size = axis.at(until) - axis.at(since);
    let at = axis.at(since) + by;
    if (at > axis.length - size) at = axis.length - size;
    if (at < 0n) at = 0n;
    from = roundTime(axis.ts(at), viewport.scale);
    to = roundTime(axis.ts(at + size), viewport.scale);
  }
  if (from > to) [from, to] = [to, from];
  if (from === to) to += 1n;
  return { since: String(from), until: String(to) };
}
