/** The drawing of the timeline: bars, gaps, cuts and axes, by uPlot. Places on its x scale are CSS pixels. */

import { colourOf, css } from "./colours.js";
import { h } from "./dom.js";
import { joined } from "./spans.js";
import { ticksOf } from "./time_ticks.js";
import { OWN } from "./timeline_bars.js";

/** @typedef {import("./types").Gap} Gap */
/** @typedef {import("./time_axis.js").Viewport} Viewport */
/** @typedef {import("./timeline_bars.js").Bars} Bars */
/** @typedef {import("./time_ticks.js").Tick} Tick */

/** Width of the axis with the counts, and height of that with the times, in CSS pixels. */
export const LEFT = 40;
export const RIGHT = 10;
const AXIS = 32;

export class Plot {
  constructor() {
    /** @type {Viewport | null} */
    this._viewport = null;
    /** @type {Bars | null} */
    this._bars = null;
    /** @type {Gap[]} */
    this._gaps = [];
    /** @type {Tick[]} */
    this._ticks = [];
    /** Places of the slots. @type {{ from: number, to: number }[]} */
    this._places = [];
    this.element = h("div", { class: "timeline-plot" });
    /** The colours of the theme. @type {Record<string, string>} */
    this._colours = {};
    this._plot = new uPlot(this._options(), [[]], this.element);
    /** The element over the bars. */
    this.over = this._plot.over;
    /** The element over the times. */
    this.axis = /** @type {HTMLElement} */ (this._plot.root.querySelector(".u-axis"));
  }

  /** Take the colours of the theme. */
  theme() {
    for (const name of ["--back", "--line", "--quiet", "--text", "--bad"]) this._colours[name] = css(name);
  }

  /**
   * Draw.
   * @param {Viewport} viewport @param {Bars} bars @param {Gap[]} gaps @param {number} height CSS pixels
   */
  draw(viewport, bars, gaps, height) {
    this._viewport = viewport;
    this._bars = bars;
    this._gaps = gaps;
    this._ticks = ticksOf(viewport);
    this._places = bars.slots.map(({ since, until }) => ({ from: viewport.x(since), to: viewport.x(until) }));
    const width = viewport.width + LEFT + RIGHT;
    const empty = new Array(bars.slots.length).fill(null);
    const sums = Array.from({ length: OWN + 1 }, (_, number) => bars.sums[number] ?? empty);
    const data = /** @type {any} */ ([this._places.map(({ from }) => from), ...sums]);
    this._plot.batch(() => {
      if (this._plot.width !== width || this._plot.height !== height) this._plot.setSize({ width, height });
      this._plot.setData(data);
      this._plot.redraw(false, true); // the ticks change while the scale does not
    });
  }

  /** @returns {import("./vendor/uPlot.js").Options} */
  _options() {
    const text = () => this._colours["--quiet"];
    const line = () => this._colours["--line"];
    const font = "11px system-ui, sans-serif";
    return {
      width: 300,
      height: 100,
      legend: { show: false },
      cursor: { show: false },
      select: { show: false, left: 0, top: 0, width: 0, height: 0 },
      padding: [6, RIGHT, 0, 0],
      scales: {
        x: { time: false, range: () => [0, this._viewport?.width ?? 1] },
        y: { range: () => [0, Math.max(this._bars?.highest ?? 0, 1)] },
      },
      axes: [
        {
          size: AXIS,
          font,
          gap: 2,
          stroke: text,
          lineGap: 1.2,
          grid: { stroke: line, width: 1 },
          ticks: { stroke: line, width: 1, size: 4 },
          splits: () => this._ticks.map(({ x }) => x),
          values: () => this._ticks.map(({ text, under }) => `${text}\n${under}`),
        },
        {
          size: LEFT,
          font,
          gap: 3,
          stroke: text,
          space: 26,
          incrs: INCREMENTS,
          grid: { stroke: line, width: 1 },
          ticks: { show: false },
          values: (_, splits) => splits.map((split) => shortText(split)),
        },
      ],
      series: [
        {},
        ...Array.from({ length: OWN + 1 }, (_, number) => ({
          width: 0,
          points: { show: false },
          fill: () => colourOf(this._bars?.series[number]?.at ?? 0),
          paths: /** @type {import("./vendor/uPlot.js").Series.PathBuilder} */ ((plot) => this._paths(plot, number)),
        })),
      ],
      hooks: {
        drawClear: [(plot) => this._drawGaps(plot), (plot) => this._drawCuts(plot, false)],
        draw: [(plot) => this._drawCuts(plot, true)],
      },
    };
  }

  /** @param {uPlot} plot @param {number} number */
  _paths(plot, number) {
    const fill = new Path2D();
    const bars = this._bars;
    if (bars === null || bars.series[number] === undefined) return { fill, stroke: null, clip: null, flags: 0 };
    const { left, width } = plot.bbox;
    const ratio = uPlot.pxRatio;
    const base = plot.valToPos(0, "y", true);
    const { counts } = bars.series[number];
    const sums = bars.sums[number];
    this._places.forEach(({ from, to }, slot) => {
      if (counts[slot] === 0) return;
      const begin = Math.max(Math.round(from * ratio), 0);
      const end = Math.min(Math.round(to * ratio), width);
      const space = end - begin > 4 * ratio ? ratio : 0;
      const top = plot.valToPos(sums[slot], "y", true);
      const bottom = counts[slot] === sums[slot] ? base : plot.valToPos(sums[slot] - counts[slot], "y", true);
      const least = number === 0 ? 2 * ratio : 0;
      const size = Math.max(bottom - top, least);
      if (end > begin) fill.rect(left + begin, bottom - size, Math.max(end - begin - space, 1), size);
    });
    return { fill, stroke: null, clip: null, flags: 0 };
  }

  /** @param {uPlot} plot */
  _drawGaps(plot) {
    const viewport = this._viewport;
    if (viewport === null) return;
    const { ctx, bbox } = plot;
    const ratio = uPlot.pxRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = this._colours["--bad"];
    /** @type {[number, number][]} */
    const spans = this._gaps.map(({ since, until }) => {
      const from = viewport.x(BigInt(since));
      return [Math.max(from, 0), Math.min(Math.max(viewport.x(BigInt(until)), from + 2), viewport.width)];
    });
    for (const [from, to] of joined(spans.filter(([from, to]) => from < to))) {
      const begin = bbox.left + from * ratio;
      ctx.globalAlpha = 0.22;
      ctx.fillRect(begin, bbox.top, (to - from) * ratio, bbox.height);
      ctx.globalAlpha = 1;
      ctx.fillRect(begin, bbox.top, (to - from) * ratio, 3 * ratio);
    }
    ctx.restore();
  }

  /** Draw the cuts behind the bars, or with `front` their signs on the axis. @param {uPlot} plot @param {boolean} front */
  _drawCuts(plot, front) {
    const viewport = this._viewport;
    if (viewport === null) return;
    const { ctx, bbox } = plot;
    const ratio = uPlot.pxRatio;
    const bottom = bbox.top + bbox.height;
    ctx.save();
    ctx.strokeStyle = this._colours["--quiet"];
    ctx.lineWidth = ratio;
    ctx.setLineDash(front ? [] : [2 * ratio, 4 * ratio]);
    ctx.beginPath();
    for (const cut of viewport.axis.cuts) {
      const x = viewport.x(cut.since);
      if (x < 0 || x > viewport.width) continue;
      const at = bbox.left + Math.round(x * ratio);
      if (front) {
        for (const side of [-2, 2]) {
          ctx.moveTo(at + (side - 2) * ratio, bottom + 5 * ratio);
          ctx.lineTo(at + (side + 2) * ratio, bottom - 3 * ratio);
        }
      } else {
        ctx.moveTo(at, bbox.top);
        ctx.lineTo(at, bottom);
      }
    }
    ctx.stroke();
    ctx.restore();
  }
}

const INCREMENTS = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((times) => times * 10 ** power)).flat();

/** @param {number} value */
function shortText(value) {
  for (const [unit, size] of /** @type {[string, number][]} */ ([["M", 1e6], ["k", 1e3]])) {
    if (value >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
  }
  return String(value);
}
