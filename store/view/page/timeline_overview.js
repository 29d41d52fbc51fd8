/** A strip with the whole run, shown below the timeline when it is zoomed; dragging moves what the timeline shows. */

import { css } from "./colours.js";
import { h } from "./dom.js";
import { Viewport } from "./time_axis.js";

/** @typedef {import("./timeline_bars.js").Bars} Bars */

/** Height in CSS pixels. */
export const OVERVIEW = 18;

/** @param {{ viewport: () => Viewport | null, show: (viewport: Viewport) => void }} on */
export function overview(on) {
  const canvas = h("canvas", {});
  const frame = h("div", { class: "timeline-frame" });
  const element = h("div", { class: "timeline-overview", "aria-hidden": "true" }, canvas, frame);

  /** @type {Bars | null} */
  let drawn = null;
  let dragged = false;
  const move = (/** @type {PointerEvent} */ event) => {
    const now = on.viewport();
    if (now === null) return;
    const x = event.clientX - element.getBoundingClientRect().left;
    const length = now.to - now.from;
    const middle = BigInt(Math.round((x / now.width) * Number(now.axis.length)));
    const from = middle - length / 2n;
    on.show(new Viewport(now.axis, from, from + length, now.width).within());
  };
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    dragged = true;
    element.setPointerCapture(event.pointerId);
    move(event);
  });
  element.addEventListener("pointermove", (event) => {
    if (dragged) move(event);
  });
  element.addEventListener("pointerup", () => (dragged = false));
  element.addEventListener("pointercancel", () => (dragged = false));

  return {
    element,
    /** @param {Viewport} viewport @param {Bars} bars of the whole run @param {boolean} again draw also the same bars */
    draw(viewport, bars, again) {
      const length = Number(viewport.axis.length);
      const from = (Number(viewport.from) / length) * viewport.width;
      frame.style.transform = `translateX(${from}px)`;
      frame.style.width = `${Math.max((Number(viewport.to - viewport.from) / length) * viewport.width, 3)}px`;
      const ratio = devicePixelRatio;
      const width = Math.round(viewport.width * ratio);
      if (bars === drawn && canvas.width === width && !again) return;
      drawn = bars;
      canvas.width = width;
      canvas.height = OVERVIEW * ratio;
      canvas.style.width = `${viewport.width}px`;
      const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      context.fillStyle = css("--quiet");
      const whole = new Viewport(viewport.axis, 0n, viewport.axis.length, width);
      bars.slots.forEach(({ since, until }, slot) => {
        const total = bars.total(slot);
        if (total === 0) return;
        const begin = whole.x(since);
        const size = Math.max((total / bars.highest) * (canvas.height - 2 * ratio), ratio);
        context.fillRect(begin, canvas.height - size, Math.max(whole.x(until) - begin - 1, 1), size);
      });
    },
  };
}
