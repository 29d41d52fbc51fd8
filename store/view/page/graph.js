/** Who talks to whom as a graph on canvas: agents as circles, messages between them as curves with a direction. */

import { css } from "./colours.js";
import { h } from "./dom.js";
import { layout } from "./layout.js";

/** @typedef {{ name: string, text: string, colour: () => string, square: boolean, count: number, open: () => void }} Name */
/** @typedef {{ from: number, to: number, count: number, open: () => void }} Edge */

const MARGIN = { side: 46, top: 26, bottom: 40 };
const HIT = 7;

export class Graph {
  /** @param {(text: string) => void} say called with what is under the pointer; "" for nothing */
  constructor(say) {
    this.canvas = h("canvas", { class: "graph", role: "img" });
    /** @type {Name[]} */
    this._nodes = [];
    /** @type {Edge[]} */
    this._edges = [];
    /** @type {ReturnType<typeof layout>} */
    this._places = { x: new Float64Array(0), y: new Float64Array(0) };
    /** @type {{ node: number, edge: number }} -1 for none */
    this._under = { node: -1, edge: -1 };
    this._say = say;
    this._width = 0;
    this._height = 0;
    this.canvas.addEventListener("pointermove", (event) => this._pointed(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this._pointed(-1e9, -1e9));
    this.canvas.addEventListener("click", (event) => {
      this._pointed(event.offsetX, event.offsetY);
      this._nodes[this._under.node]?.open();
      this._edges[this._under.edge]?.open();
    });
  }

  /** Show nodes, and edges between their places. @param {Name[]} nodes @param {Edge[]} edges @param {string} label */
  show(nodes, edges, label) {
    this._nodes = nodes;
    this._edges = edges;
    const most = Math.log1p(Math.max(...edges.map(({ count }) => count), 1));
    this._places = layout(
      nodes.map(({ name }) => name),
      edges.map(({ from, to, count }) => ({ from, to, weight: 0.15 + (0.85 * Math.log1p(count)) / most })),
    );
    this._under = { node: -1, edge: -1 };
    this.canvas.setAttribute("aria-label", label);
    this.draw();
  }

  /** Draw for the present size and colours. */
  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (width === 0 || height === 0) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this._width = width;
    this._height = height;
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, width, height);
    const lit = this._lit();
    const largest = Math.max(...this._edges.map(({ count }) => count), 1);
    for (let edge = this._edges.length - 1; edge >= 0; edge -= 1) this._edge(pen, edge, largest, lit);
    this._nodes.forEach((_, node) => this._node(pen, node, lit));
    this._labels(pen, lit);
  }

  /** Return the nodes to be seen well: all, or the one under the pointer and its neighbours. */
  _lit() {
    const { node, edge } = this._under;
    if (node < 0 && edge < 0) return null;
    if (edge >= 0) return new Set([this._edges[edge].from, this._edges[edge].to]);
    const found = new Set([node]);
    for (const { from, to } of this._edges) if (from === node || to === node) found.add(from === node ? to : from);
    return found;
  }

  /** @param {number} node */
  _radius(node) {
    const largest = Math.max(this._nodes[0]?.count ?? 1, 1);
    const most = Math.min(22, Math.max(9, Math.min(this._width, this._height) / (3 * Math.sqrt(this._nodes.length + 1))));
    const { count, square } = this._nodes[node];
    return (square ? 0.6 : 1) * (4 + (most - 4) * Math.sqrt(count / largest));
  }

  /** @param {number} node @returns {[number, number]} */
  _at(node) {
    return [
      MARGIN.side + this._places.x[node] * (this._width - 2 * MARGIN.side),
      MARGIN.top + this._places.y[node] * (this._height - MARGIN.top - MARGIN.bottom),
    ];
  }

  /** Return begin, control point and end of an edge, which bends to the left of its direction. @param {Edge} edge */
  _curve({ from, to }) {
    const [x1, y1] = this._at(from);
    const [x2, y2] = this._at(to);
    const length = Math.max(Math.hypot(x2 - x1, y2 - y1), 1);
    const bend = Math.min(0.14 * length, 26);
    const cx = (x1 + x2) / 2 + ((y2 - y1) / length) * bend;
    const cy = (y1 + y2) / 2 - ((x2 - x1) / length) * bend;
    const toEnd = Math.max(Math.hypot(x2 - cx, y2 - cy), 1);
    const gap = this._radius(to) + 3;
    return { x1, y1, cx, cy, x2: x2 - ((x2 - cx) / toEnd) * gap, y2: y2 - ((y2 - cy) / toEnd) * gap };
  }

  /**
   * @param {CanvasRenderingContext2D} pen @param {number} edge @param {number} largest
   * @param {Set<number> | null} lit
   */
  _edge(pen, edge, largest, lit) {
    const { from, to, count } = this._edges[edge];
    const { node } = this._under;
    const seen = lit === null || edge === this._under.edge || (node >= 0 && (from === node || to === node));
    const { x1, y1, cx, cy, x2, y2 } = this._curve(this._edges[edge]);
    const share = Math.sqrt(count / largest);
    const width = 0.6 + 5.4 * share;
    pen.globalAlpha = seen ? (lit === null ? 0.25 + 0.5 * share : 0.9) : 0.06;
    pen.strokeStyle = pen.fillStyle = this._nodes[from].colour();
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.quadraticCurveTo(cx, cy, x2, y2);
    pen.stroke();
    const angle = Math.atan2(y2 - cy, x2 - cx);
    const head = 4 + width * 1.6;
    pen.beginPath();
    pen.moveTo(x2 + Math.cos(angle) * 3, y2 + Math.sin(angle) * 3);
    for (const side of [-1, 1]) pen.lineTo(x2 - Math.cos(angle + side * 0.45) * head, y2 - Math.sin(angle + side * 0.45) * head);
    pen.fill();
    pen.globalAlpha = 1;
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} node @param {Set<number> | null} lit */
  _node(pen, node, lit) {
    const [x, y] = this._at(node);
    const radius = this._radius(node);
    pen.globalAlpha = lit === null || lit.has(node) ? 1 : 0.2;
    pen.fillStyle = this._nodes[node].colour();
    pen.strokeStyle = css("--back");
    pen.lineWidth = 1.5;
    pen.beginPath();
    if (this._nodes[node].square) pen.rect(x - radius, y - radius, radius * 2, radius * 2);
    else pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
    pen.stroke();
    pen.globalAlpha = 1;
  }

  /** Draw names, those of large nodes first, where they cover no other name. @param {CanvasRenderingContext2D} pen @param {Set<number> | null} lit */
  _labels(pen, lit) {
    pen.font = `12px ${css("--sans")}`;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.lineJoin = "round";
    /** @type {[number, number, number, number][]} */
    const taken = [];
    const order = this._nodes.map((_, node) => node);
    if (lit !== null) order.sort((a, b) => Number(lit.has(b)) - Number(lit.has(a)) || a - b);
    for (const node of order) {
      const shown = lit === null || lit.has(node);
      const text = this._nodes[node].text;
      const half = pen.measureText(text).width / 2;
      const [at, y] = this._at(node);
      const x = Math.min(Math.max(at, half + 2), this._width - half - 2);
      const top = y + this._radius(node) + 2;
      if (!shown || taken.some(([l, t, r, b]) => x - half < r && x + half > l && top < b && top + 14 > t)) continue;
      taken.push([x - half, top, x + half, top + 14]);
      pen.strokeStyle = css("--back");
      pen.lineWidth = 3;
      pen.strokeText(text, x, top);
      pen.fillStyle = css("--text");
      pen.fillText(text, x, top);
    }
  }

  /** Note what is under the pointer. @param {number} x @param {number} y */
  _pointed(x, y) {
    let node = -1;
    let nearest = Infinity;
    this._nodes.forEach((_, each) => {
      const [left, top] = this._at(each);
      const distance = Math.hypot(x - left, y - top) - this._radius(each);
      if (distance < HIT && distance < nearest) [node, nearest] = [each, distance];
    });
    const edge = node < 0 ? this._edgeAt(x, y) : -1;
    if (node === this._under.node && edge === this._under.edge) return;
    this._under = { node, edge };
    this.canvas.style.cursor = node < 0 && edge < 0 ? "" : "pointer";
    this._say(this._described());
    this.draw();
  }

  /** @param {number} x @param {number} y */
  _edgeAt(x, y) {
    let found = -1;
    let nearest = HIT;
    this._edges.forEach((each, edge) => {
      const { x1, y1, cx, cy, x2, y2 } = this._curve(each);
      for (let t = 0.05; t < 1; t += 0.05) {
        const left = (1 - t) ** 2 * x1 + 2 * t * (1 - t) * cx + t * t * x2;
        const top = (1 - t) ** 2 * y1 + 2 * t * (1 - t) * cy + t * t * y2;
        const distance = Math.hypot(x - left, y - top);
        if (distance < nearest) [found, nearest] = [edge, distance];
      }
    });
    return found;
  }

  _described() {
    const { node, edge } = this._under;
    if (edge >= 0) {
      const { from, to, count } = this._edges[edge];
      return `${this._nodes[from].text} → ${this._nodes[to].text}: ${count.toLocaleString("en-US")}`;
    }
    if (node < 0) return "";
    const { text, count } = this._nodes[node];
    const others = (this._lit()?.size ?? 1) - 1;
    return `${text}: ${count.toLocaleString("en-US")} messages, with ${others} of these`;
  }
}
