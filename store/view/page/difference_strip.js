/** A strip beside the rows of two runs: where they differ, and which part is visible. */

import { CHANGED, MOVED } from "./alignment.js";
import { css } from "./colours.js";
import { h } from "./dom.js";

/** @typedef {import("./alignment.js").Alignment} Alignment */

const WIDTH = 14;
/** Height of a difference, px. */
const TICK = 2;

/** Return the variable of the colour of a kind. @param {number} kind */
function kindColour(kind) {
  return kind === CHANGED ? "--warn" : kind === MOVED ? "--accent" : "--bad";
}

export class DifferenceStrip {
  /** @param {Alignment} alignment @param {(row: number) => void} go called with the row of a click */
  constructor(alignment, go) {
    this._alignment = alignment;
    this._shown = [0, 0];
    this.element = h("canvas", { class: "difference-strip", "aria-hidden": "true" });
    const at = (/** @type {MouseEvent} */ event) =>
      go(Math.floor((event.offsetY / Math.max(this.element.clientHeight, 1)) * alignment.length));
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      at(event);
    });
    this.element.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) at(event);
    });
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Mark rows as visible. @param {number} from @param {number} until */
  show(from, until) {
    if (this._shown[0] === from && this._shown[1] === until) return;
    this._shown = [from, until];
    this.draw();
  }

  draw() {
    const canvas = this.element;
    const height = canvas.clientHeight;
    const scale = devicePixelRatio || 1;
    canvas.width = WIDTH * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    if (context === null || height === 0) return;
    context.scale(scale, scale);
    const { differences, kind, length } = this._alignment;
    const place = (/** @type {number} */ row) => (row / Math.max(length, 1)) * (height - TICK);
    const [from, until] = this._shown;
    context.fillStyle = css("--selected");
    context.fillRect(0, place(from), WIDTH, Math.max(place(until) - place(from), 8));
    const colours = [0, 1, 2, 3, 4].map((each) => css(kindColour(each)));
    let last = -1;
    for (const row of differences) {
      const y = Math.round(place(row));
      if (y === last) continue;
      last = y;
      context.fillStyle = colours[kind[row]];
      context.fillRect(2, y, WIDTH - 4, TICK);
    }
  }
}
