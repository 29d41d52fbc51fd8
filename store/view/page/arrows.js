/** Arrows of messages on the canvas of the sequence. */

import { KINDS } from "./messages.js";
import { durationText } from "./time.js";

/** @typedef {import("./scene.js").Scene} Scene */
/** @typedef {"received" | "sent" | "unknown" | "lost" | "blocked" | "failed" | "nobody"} EndKind */
/** @typedef {{ x: number, y: number, kind: EndKind, delay: number }} End Where an arrow ends. */
/** @typedef {{ row: number, x: number, y: number, ends: End[] }} Arrow A message: where its arrows begin and end. */

const LOOP = 26;
const SHORT = 24;
/** Pixels between the end of a blocked message and the lane that it did not reach. */
const BEFORE = 12;
const HEAD = 7;
const DIM = 0.25;
/** Width of a lane from which there is room for a delay. */
const ROOM = 80;

/** Return where the arrows of a row are. @param {Scene} scene @param {number} at position in the scale @returns {Arrow} */
export function arrowOf(scene, at) {
  const { messages, lanes, receivers, scale, losses } = scene;
  const row = scale.rows[at];
  const across = (/** @type {number} */ key) => scene.gutter + (lanes.at(key) + 0.5) * scene.lane - scene.left;
  const x = across(receivers.sender(row));
  const y = scale.ys[at] - scene.top;
  const to = messages.to[row];
  const goal = to > 0 ? across(to) : x + SHORT;
  const kind = KINDS[messages.kind[row]];
  if (kind === "blocked") {
    const stop = Math.abs(goal - x) < SHORT ? x + SHORT : goal - Math.sign(goal - x) * BEFORE;
    return { row, x, y, ends: [{ x: stop, y, kind, delay: 0 }] };
  }
  if (kind === "failed") return { row, x, y, ends: [{ x: x + (goal < x ? -SHORT : SHORT), y, kind, delay: 0 }] };
  const receptions = messages.receptions(row);
  if (receptions.length === 0) {
    return { row, x, y, ends: [{ x: goal, y, kind: to > 0 ? losses.kind(row) : "nobody", delay: 0 }] };
  }
  const reached = receivers.lanes(row);
  const ends = receptions.map(({ delay }, each) => {
    const copies = reached.slice(0, each).filter((lane) => lane === reached[each]).length;
    const end = scale.received(at, delay) - scene.top + copies * 5;
    return { x: across(reached[each]), y: end, kind: /** @type {const} */ ("received"), delay };
  });
  return { row, x, y, ends };
}

/** Draw the arrows of a message. @param {Scene} scene @param {Arrow} arrow */
export function drawArrow(scene, { row, x, y, ends }) {
  const { context, palette, emphasis } = scene;
  const mark = emphasis.get(row);
  const color = palette.of(scene.receivers.sender(row));
  const dim = emphasis.size > 0 && mark === undefined;
  const strong = row === scene.hovered || row === scene.selected;
  context.globalAlpha = dim ? DIM : 1;
  context.lineWidth = mark ? 1 + mark.weight * 0.7 : strong ? 2.2 : 1.3;
  context.strokeStyle = color;
  context.fillStyle = color;
  context.beginPath();
  context.arc(x, y, ends[0].kind === "nobody" || ends.length > 1 ? 4 : 2.6, 0, 7);
  context.fill();
  for (const end of ends) {
    if (end.x === x) loop(scene, x, y, end);
    else straight(scene, x, y, end);
  }
  if (!dim) delays(scene, x, ends);
  context.globalAlpha = 1;
}

/** Draw an arrow from a lane to itself. @param {Scene} scene @param {number} x @param {number} y @param {End} end */
function loop(scene, x, y, end) {
  const { context } = scene;
  const bottom = Math.max(end.y, y + 9);
  dashed(context, end);
  context.beginPath();
  context.moveTo(x, y);
  context.bezierCurveTo(x + LOOP, y - 2, x + LOOP, bottom + 2, x + 4, bottom);
  context.stroke();
  context.setLineDash([]);
  tip(scene, x + 3, bottom, Math.PI, end.kind);
}

/** @param {Scene} scene @param {number} x @param {number} y @param {End} end */
function straight(scene, x, y, end) {
  const { context } = scene;
  dashed(context, end);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(end.x, end.y);
  context.stroke();
  context.setLineDash([]);
  tip(scene, end.x, end.y, Math.atan2(end.y - y, end.x - x), end.kind);
}

/** @param {CanvasRenderingContext2D} context @param {End} end */
function dashed(context, { kind }) {
  context.setLineDash(kind === "lost" || kind === "unknown" ? [5, 4] : []);
}

/** Draw the end of an arrow: full if it was received, a cross if it was not, a bar if it was not let through.
 * @param {Scene} scene @param {number} x @param {number} y @param {number} angle @param {EndKind} kind */
function tip({ context, palette }, x, y, angle, kind) {
  context.beginPath();
  if (kind === "lost" || kind === "failed") {
    context.save();
    context.strokeStyle = palette.css.bad;
    context.lineWidth = 2.4;
    context.moveTo(x - 5, y - 5);
    context.lineTo(x + 5, y + 5);
    context.moveTo(x - 5, y + 5);
    context.lineTo(x + 5, y - 5);
    context.stroke();
    context.restore();
  } else if (kind === "blocked") {
    context.save();
    context.strokeStyle = palette.css.warn;
    context.lineWidth = 4;
    context.moveTo(x, y - 8);
    context.lineTo(x, y + 8);
    context.stroke();
    context.restore();
  } else {
    context.moveTo(x - HEAD * Math.cos(angle - 0.45), y - HEAD * Math.sin(angle - 0.45));
    context.lineTo(x, y);
    context.lineTo(x - HEAD * Math.cos(angle + 0.45), y - HEAD * Math.sin(angle + 0.45));
    if (kind === "received") context.fill();
    else context.stroke();
  }
}

/** Draw the delays below the heads, where there is room. @param {Scene} scene @param {number} x @param {End[]} ends */
function delays(scene, x, ends) {
  const { context, palette } = scene;
  if (scene.lane < ROOM || scene.scale.byTime) return;
  context.font = palette.small;
  context.fillStyle = palette.css.quiet;
  for (const end of ends) {
    if (end.kind !== "received" || end.delay === 0 || Math.abs(end.y - ends[0].y) > 40) continue;
    context.textAlign = end.x > x ? "right" : "left";
    context.fillText(durationText(end.delay), end.x + (end.x > x ? -10 : 10) + (end.x === x ? 6 : 0), end.y + 11);
  }
  context.textAlign = "left";
}

/** Return the distance of a point to the arrows of a message. @param {Arrow} arrow @param {number} x @param {number} y */
export function distance({ x: left, y: top, ends }, x, y) {
  let nearest = Math.hypot(x - left, y - top);
  for (const end of ends) {
    const right = end.x === left ? left + LOOP : end.x;
    const length = (right - left) ** 2 + (end.y - top) ** 2;
    const part = length === 0 ? 0 : Math.min(1, Math.max(0, ((x - left) * (right - left) + (y - top) * (end.y - top)) / length));
    nearest = Math.min(nearest, Math.hypot(x - left - part * (right - left), y - top - part * (end.y - top)));
  }
  return nearest;
}
