/** The canvas of the sequence: lanes, times, marks, gaps, and the messages of the visible part. */

import { arrowOf, drawArrow } from "./arrows.js";
import { visible } from "./dom.js";
import { KINDS } from "./messages.js";
import { cut } from "./scene.js";
import { joined } from "./spans.js";
import { timeText } from "./time.js";

/** @typedef {import("./arrows.js").Arrow} Arrow */
/** @typedef {import("./scene.js").Scene} Scene */

/** Width of a text at most. */
const LONGEST = 1000;
const DIM = 0.3;
/** Arrows that are drawn at the same place, at most. */
const BESIDE = 3;

/** Draw the visible part; return its arrows. @param {Scene} scene @returns {Arrow[]} */
export function draw(scene) {
  const { context, palette, scale, width, height, top } = scene;
  context.fillStyle = palette.css.back;
  context.fillRect(0, 0, width, height);
  context.textBaseline = "alphabetic";
  const found = scale.crossing(top - 10, top + height + 30).map((at) => arrowOf(scene, at));
  const arrows = scale.byTime ? thinned(found) : found;
  selection(scene, arrows);
  lanes(scene);
  gaps(scene);
  bands(scene);
  for (const arrow of arrows) drawArrow(scene, arrow);
  let free = -Infinity;
  for (const arrow of arrows) {
    const must = arrow.row === scene.selected || scene.emphasis.has(arrow.row);
    if (arrow.y - 15 < free && !(must && arrow.y - 6 > free)) continue;
    text(scene, arrow);
    free = arrow.y;
  }
  times(scene, arrows);
  playhead(scene);
  return arrows;
}

/** Return arrows without those that would be drawn over `BESIDE` others. @param {Arrow[]} arrows */
function thinned(arrows) {
  /** @type {Map<string, number>} */
  const seen = new Map();
  return arrows.filter(({ x, y, ends }) => {
    const place = `${Math.round(y / 2)} ${x} ${ends[0].x}`;
    const count = (seen.get(place) ?? 0) + 1;
    seen.set(place, count);
    return count <= BESIDE;
  });
}

/** @param {Scene} scene @param {Arrow[]} arrows */
function selection({ context, palette, scale, selected, hovered, width }, arrows) {
  for (const { row, y } of arrows) {
    if (row !== selected && (row !== hovered || scale.byTime)) continue;
    context.fillStyle = row === selected ? palette.css.selected : palette.css.panel;
    context.fillRect(0, y - 21, width, 31);
  }
}

/** @param {Scene} scene */
function lanes({ context, lanes: { list }, palette, width, height, gutter, lane, left }) {
  context.lineWidth = 1;
  for (const [at, { key }] of list.entries()) {
    const x = Math.round(gutter + (at + 0.5) * lane - left) + 0.5;
    if (x < gutter - lane || x > width + lane) continue;
    context.strokeStyle = key > 0 ? palette.of(key) : palette.css.line;
    context.globalAlpha = key > 0 ? 0.35 : 1;
    context.setLineDash(key > 0 ? [] : [2, 4]);
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height);
    context.stroke();
  }
  context.globalAlpha = 1;
  context.setLineDash([]);
}

/** Draw gaps as red bands in the lanes of their recorder; those that overlap are one band. @param {Scene} scene */
function gaps(scene) {
  const { context, scale, palette, receivers, top, height, gutter, lane, left } = scene;
  const wide = Math.min(lane * 0.6, 60);
  /** @type {Map<number, [number, number][]>} Begins and ends by lane. */
  const spans = new Map();
  for (const { recorder, since, until } of scene.gaps) {
    const begin = scale.gap(since) - top;
    const end = Math.max(scale.y(until) - top, begin + 8);
    if (end < 0 || begin > height) continue;
    for (const key of receivers.recordedBy(recorder)) {
      const at = scene.lanes.placeOf(key);
      if (at < 0) continue;
      const known = spans.get(at);
      if (known === undefined) spans.set(at, [[begin, end]]);
      else known.push([begin, end]);
    }
  }
  context.fillStyle = palette.css.bad;
  context.strokeStyle = palette.css.bad;
  context.lineWidth = 1;
  for (const [at, all] of spans) {
    const x = Math.round(gutter + (at + 0.5) * lane - left - wide / 2) + 0.5;
    for (const [begin, end] of joined(all)) {
      context.globalAlpha = 0.2;
      context.fillRect(x, begin, wide, end - begin);
      context.globalAlpha = 1;
      context.strokeRect(x, Math.round(begin) + 0.5, wide, Math.round(end - begin));
    }
  }
}

/** Draw marks, days and shortened silences across all lanes. @param {Scene} scene */
function bands({ context, scale, palette, width, height, top, gutter }) {
  for (const band of scale.bandsIn(top - 30, top + height + 30)) {
    const y = Math.round(band.y - top) + 0.5;
    const isEvent = band.kind === "mark" || band.kind === "gap";
    const color = band.kind === "mark" ? palette.css.accent : band.kind === "gap" ? palette.css.bad : palette.css.quiet;
    context.font = isEvent ? palette.strong : palette.small;
    const label = cut(context, visible(scale.text(band)), width - gutter - 60);
    const begin = gutter + 12;
    const long = context.measureText(label).width;
    context.strokeStyle = isEvent ? color : palette.css.line;
    context.lineWidth = isEvent ? 1.5 : 1;
    context.beginPath();
    if (band.kind === "silence") {
      for (let x = gutter; x < width; x += 8) {
        context.lineTo(x, y - 2.5);
        context.lineTo(x + 4, y + 2.5);
      }
    } else {
      context.moveTo(gutter, y);
      context.lineTo(width, y);
    }
    context.stroke();
    context.fillStyle = palette.css.back;
    context.fillRect(begin - 6, y - 9, long + 12, 18);
    context.fillStyle = color;
    context.fillText(label, begin, y + 4);
  }
}

/** Return whether the lane of a sender is not in view, so that its name has to be written.
 * @param {Scene} scene @param {number} row @param {number} x */
function hidden({ lanes, receivers, gutter, width }, row, x) {
  return lanes.placeOf(receivers.sender(row)) < 0 || x < gutter || x > width;
}

/** Write the text of a message above its arrow. @param {Scene} scene @param {Arrow} arrow */
function text(scene, { row, x, y, ends }) {
  const { context, messages, palette, emphasis, width, gutter } = scene;
  const kind = KINDS[messages.kind[row]];
  const dim = emphasis.size > 0 && !emphasis.has(row);
  const nobody = messages.to[row] === 0 || ends[0].kind === "nobody";
  const before = [
    hidden(scene, row, x) ? `${scene.name(scene.receivers.sender(row))}:` : "",
    kind === "blocked" || kind === "failed" ? kind : ends[0].kind === "lost" ? "lost" : "",
    nobody && scene.channels ? scene.channels[messages.channel[row]] : "",
  ].filter((each) => each !== "");
  const least = Math.min(x, ...ends.map((end) => end.x));
  const start = Math.max(least, gutter) + 9;
  const room = Math.min(width - gutter - 18, LONGEST);
  context.globalAlpha = dim ? DIM : 1;
  context.font = palette.small;
  const label = cut(context, before.join(" "), room / 2);
  const wide = label === "" ? 0 : context.measureText(label).width + 7;
  context.font = emphasis.get(row)?.weight === 3 || row === scene.selected ? palette.strong : palette.normal;
  const line = scene.texts.fitting(context, row, room - wide);
  const long = wide + context.measureText(line).width;
  const at = Math.max(Math.min(start, width - 9 - long), gutter + 9);
  const base = y - 6;
  context.lineJoin = "round";
  context.lineWidth = 3;
  context.strokeStyle = row === scene.selected ? palette.css.selected : palette.css.back;
  context.strokeText(line, at + wide, base);
  context.fillStyle = palette.css.text;
  context.fillText(line, at + wide, base);
  if (label !== "") {
    context.font = palette.small;
    context.strokeText(label, at, base);
    const { bad, warn, quiet } = palette.css;
    context.fillStyle = kind === "blocked" ? warn : kind === "failed" || ends[0].kind === "lost" ? bad : quiet;
    context.fillText(label, at, base);
  }
  context.globalAlpha = 1;
}

/** Write the times at the left. @param {Scene} scene @param {Arrow[]} arrows */
function times({ context, messages, palette, emphasis, height, gutter, digits, selected }, arrows) {
  context.fillStyle = palette.css.panel;
  context.fillRect(0, 0, gutter, height);
  context.fillStyle = palette.css.line;
  context.fillRect(gutter - 1, 0, 1, height);
  let free = -Infinity;
  for (const { row, y } of arrows) {
    const mark = emphasis.get(row);
    if (mark !== undefined || row === selected) {
      context.fillStyle = palette.css.accent;
      context.fillRect(0, y - 13, 1 + (mark?.weight ?? 3), 17);
    }
    if (y - 13 < free) continue;
    free = y;
    context.globalAlpha = emphasis.size > 0 && mark === undefined ? 0.5 : 1;
    context.font = palette.small;
    context.fillStyle = palette.css.quiet;
    context.textAlign = "right";
    context.fillText(timeText(messages.ts[row], digits), gutter - 7, y);
    if (mark !== undefined) {
      context.textAlign = "left";
      context.font = palette.strong;
      context.fillStyle = palette.css.accent;
      context.fillText(mark.tag, 8, y + 1);
    }
    context.globalAlpha = 1;
  }
  context.textAlign = "left";
}

/** @param {Scene} scene */
function playhead({ context, scale, palette, playhead: seconds, width, top }) {
  if (Number.isNaN(seconds)) return;
  context.fillStyle = palette.css.accent;
  context.fillRect(0, Math.round(scale.y(seconds) - top) + 9, width, 2);
}
