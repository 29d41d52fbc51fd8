/** The sequence: a lane for each agent, time downwards, an arrow from each sending to each reception. */

import { distance } from "./arrows.js";
import { h, label } from "./dom.js";
import { draw } from "./drawing.js";
import { FILTER_KEYS } from "./filter.js";
import { highlightOf, withRows } from "./highlight.js";
import { Knowledge } from "./knowledge.js";
import { Lanes } from "./lanes.js";
import { Losses } from "./losses.js";
import { KINDS } from "./messages.js";
import { ROW, Scale } from "./scale.js";
import { channelTexts, Palette, Texts } from "./scene.js";
import { laneNames } from "./sequence_lanes.js";
import { sequencePanel } from "./sequence_panel.js";
import { messagerText } from "./speaker.js";
import { durationText, exactText, plural } from "./time.js";
import { positionOf } from "./rows.js";

/** @typedef {import("./scene.js").Scene} Scene */
/** @typedef {import("./types").Changed} Changed */

/** Widths, in pixels: below `NARROW` lanes and times are narrower. */
const NARROW = 560;
const LANE = { least: 96, most: 280, narrow: 76 };
const GUTTER = { plain: 74, exact: 100, narrow: 78 };
/** Time between two layouts while messages arrive, ms. */
const PAUSE = 250;

/** @param {import("./types").App} app @returns {import("./types").View} */
export function sequenceView(app) {
  const { state } = app;
  const canvas = h("canvas", { role: "img", "aria-label": "sequence" });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const sizer = h("div", {}, canvas);
  const scroll = h("div", { class: "sequence-scroll", tabIndex: 0, role: "group", "aria-label": "sequence of messages" }, sizer);
  const names = laneNames(app);
  const hint = h("div", { class: "sequence-hint", hidden: true });
  const empty = h("p", { class: "sequence-empty", hidden: true }, "No message fits the filter.");
  const panel = sequencePanel(app);
  const even = h("button", { type: "button", on: { click: () => state.set({ scale: "" }) } }, "Even rows");
  const byTime = h("button", { type: "button", on: { click: () => state.set({ scale: state.get("scale") || "1" }) } }, "True times");
  const closer = h("button", { type: "button", title: "less height", "aria-label": "less height for time", on: { click: () => zoom(0.5) } }, "−");
  const wider = h("button", { type: "button", title: "more height", "aria-label": "more height for time", on: { click: () => zoom(2) } }, "+");
  const order = h(
    "select",
    { on: { change: () => state.set({ lanes: order.value }) } },
    h("option", { value: "" }, "first appearance"),
    h("option", { value: "activity" }, "activity"),
  );
  const counts = h("span", { class: "sequence-counts" });
  const element = h(
    "div",
    { class: "sequence" },
    h(
      "div",
      { class: "sequence-bar" },
      h("span", { class: "sequence-choice", role: "group", "aria-label": "scale" }, even, byTime, closer, wider),
      h("label", {}, "Lanes by", order),
      counts,
    ),
    h("div", { class: "sequence-body" }, h("div", { class: "sequence-drawing" }, names.element, scroll, empty, hint), panel.element),
  );

  const knowledge = new Knowledge(app.messages);
  let losses = new Losses(app.messages, app.head);
  let palette = new Palette();
  let texts = new Texts(app.messages, "");
  let digits = 0;
  let lanes = new Lanes(app.messages, knowledge.receivers, app.rows);
  let scale = new Scale(app.messages, app.rows, []);
  let highlight = highlightOf(knowledge, -1, 0, null);
  /** `base` of the messages when the scale was made. */
  let base = 0;
  /** @type {import("./scene.js").Gap[]} */
  let gaps = [];
  let hovered = -1;
  let frame = 0;
  let laidOut = 0;
  /** Timer of the layout that was put off; 0 for none. */
  let late = 0;
  let loading = false;
  /** @type {import("./arrows.js").Arrow[]} */
  let arrows = [];
  const size = { width: 0, height: 0, gutter: 0, lane: 0 };

  /** @param {number} factor */
  function zoom(factor) {
    const now = Math.min(Math.max(Number(state.get("scale") || 1) * factor, 1 / 64), 4096);
    state.set({ scale: String(now) });
  }

  /** Return the name of a lane. @param {number} key */
  function nameOf(key) {
    const lane = lanes.list[lanes.placeOf(key)];
    if (lane) return lane.text;
    if (key > 0) return app.messages.names.agents[key].text;
    return messagerText(app.messages.names.messagers[0 - key]);
  }

  /** Find what is brought out. */
  function findHighlight() {
    const who = app.messages.agentAt.get(state.get("who")) ?? 0;
    const word = state.get("q");
    const traced = who > 0 && word !== "";
    if (traced || app.selected >= 0) knowledge.update();
    const chain = traced ? knowledge.chain(who, app.messages.search(word)) : null;
    const steps = Math.max(Number(state.get("back") || 1) || 1, 1);
    highlight = highlightOf(knowledge, app.selected, steps, chain);
  }

  /** Find the lanes of the rows, and their places; keep what is in view where it is. */
  function layOut() {
    const offset = app.messages.base - base;
    const atEnd = scale.height > size.height && scroll.scrollTop + size.height > scale.height - ROW;
    const anchor = visibleAnchor();
    knowledge.receivers.update();
    const chosen = state.get("only") === "1" && highlight.rows.size > 0;
    const rows = withRows(chosen ? new Int32Array(0) : app.rows, app.selected < 0 ? highlight.rows.keys() : [...highlight.rows.keys(), app.selected]);
    const pinned = [...highlight.rows.keys()].flatMap((row) => [knowledge.receivers.sender(row), ...knowledge.receivers.lanes(row)]);
    for (const id of [...state.all("agent"), state.get("who")]) if (app.messages.agentAt.has(id)) pinned.push(Number(app.messages.agentAt.get(id)));
    lanes = new Lanes(app.messages, knowledge.receivers, rows, { byActivity: state.get("lanes") === "activity", pinned: [...new Set(pinned)] });
    const zoomed = Number(state.get("scale"));
    scale = new Scale(app.messages, rows, eventsShown(), { byTime: zoomed > 0, zoom: zoomed });
    base = app.messages.base;
    arrows = [];
    hovered = -1;
    texts = new Texts(app.messages, state.get("q"));
    resize();
    if (anchor !== null) scroll.scrollTop = scale.ys[scale.rows.length ? Math.min(at(anchor.row - offset), scale.rows.length - 1) : 0] - anchor.y;
    if (atEnd && app.source.served && state.get("at") === "") scroll.scrollTop = scale.height;
    empty.hidden = rows.length > 0;
    counts.textContent = `${plural(rows.length, "message")}, ${plural(lanes.list.length - (lanes.folded ? 1 : 0), "lane")}`;
    if (lanes.folded) counts.textContent += `, ${lanes.folded} folded: filter to see them`;
    canvas.setAttribute("aria-label", `Sequence of ${counts.textContent}. The arrow keys select messages; the panel tells about the selected one.`);
  }

  /** Return the marks and gaps in the time of the filter. */
  function eventsShown() {
    const since = app.filter.since === null ? -Infinity : secondsOf(app.filter.since);
    const until = app.filter.until === null ? Infinity : secondsOf(app.filter.until);
    gaps = app.head.gaps.map((gap) => ({ recorder: gap.recorder, since: secondsOf(gap.since), until: secondsOf(gap.until) }));
    return [
      ...app.head.marks.map((mark) => ({ kind: /** @type {const} */ ("mark"), seconds: secondsOf(mark.ts), text: mark.text || mark.label })),
      ...app.head.gaps.map(({ since, until, reason }) => {
        const text = `gap of ${durationText(Number(BigInt(until) - BigInt(since)))}: ${reason}`;
        return { kind: /** @type {const} */ ("gap"), seconds: secondsOf(since), text };
      }),
    ]
      .filter(({ seconds }) => seconds >= since && seconds < until)
      .sort((a, b) => a.seconds - b.seconds);
  }

  /** Return a row in view, and where it is; null if there is none. */
  function visibleAnchor() {
    const { rows, ys } = scale;
    const first = scale.at(scroll.scrollTop);
    if (first >= rows.length || scroll.scrollTop === 0) return null;
    return { row: rows[first], y: ys[first] - scroll.scrollTop };
  }

  /** Return the position of the first row of the scale at or behind a row. @param {number} row */
  function at(row) {
    return positionOf(scale.rows, row);
  }

  /** Take over the size of the view, and give the lanes their widths. */
  function resize() {
    size.width = scroll.clientWidth;
    size.height = scroll.clientHeight;
    const narrow = size.width < NARROW;
    size.gutter = narrow ? GUTTER.narrow : digits ? GUTTER.exact : GUTTER.plain;
    const room = (size.width - size.gutter) / Math.max(lanes.list.length, 1);
    size.lane = Math.min(Math.max(room, narrow ? LANE.narrow : LANE.least), LANE.most);
    sizer.style.width = `${Math.max(size.width, Math.ceil(size.gutter + size.lane * lanes.list.length))}px`;
    sizer.style.height = `${Math.max(Math.ceil(scale.height), size.height)}px`;
    const ratio = Math.min(devicePixelRatio || 1, 3);
    const [width, height] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      canvas.style.width = `${size.width}px`;
      canvas.style.height = `${size.height}px`;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    names.update(lanes, size.lane);
  }

  /** Scroll so that a message is in view. @param {number} row -1 for none */
  function reveal(row) {
    const place = at(row);
    if (row < 0 || scale.rows[place] !== row) return;
    const y = scale.ys[place];
    if (y - ROW < scroll.scrollTop || y + ROW > scroll.scrollTop + size.height) scroll.scrollTop = y - size.height * 0.4;
    const x = size.lane * (lanes.at(knowledge.receivers.sender(row)) + 0.5);
    if (x - size.lane / 2 < scroll.scrollLeft || x + size.lane / 2 > scroll.scrollLeft + size.width - size.gutter) {
      scroll.scrollLeft = x - (size.width - size.gutter) / 2;
    }
  }

  /** Keep the playhead in view while the page plays. @param {number} seconds */
  function follow(seconds) {
    const y = scale.y(seconds);
    if (y < scroll.scrollTop || y > scroll.scrollTop + size.height * 0.8) scroll.scrollTop = y - size.height * 0.3;
  }

  /** @returns {number} seconds UTC; NaN for none */
  function playhead() {
    const ns = state.get("playhead");
    return /^-?\d+$/.test(ns) ? secondsOf(ns) : NaN;
  }

  function paint() {
    frame = 0;
    names.scroll(scroll.scrollLeft, size.gutter);
    const many = new Set(app.state.all("channel")).size !== 1 && app.messages.names.channels.length > 2;
    const channels = many ? channelNames() : null;
    const [left, top] = [scroll.scrollLeft, scroll.scrollTop];
    const { receivers } = knowledge;
    const places = { ...size, left, top, selected: app.selected, hovered, playhead: playhead() };
    const shown = { messages: app.messages, gaps, lanes, receivers, scale, losses, palette, texts, channels, name: nameOf };
    const times = size.width < NARROW ? 0 : digits;
    arrows = draw({ context, ...shown, ...places, emphasis: highlight.rows, digits: times });
  }

  /** @type {string[]} */
  let shortNames = [];
  function channelNames() {
    const { channels } = app.messages.names;
    if (shortNames.length !== channels.length) shortNames = channelTexts(channels);
    return shortNames;
  }

  function paintSoon() {
    if (frame === 0) frame = requestAnimationFrame(paint);
  }

  scroll.addEventListener("scroll", () => {
    hide();
    paintSoon();
    if (scroll.scrollTop < size.height / 2) load("before");
    else if (scroll.scrollTop > scale.height - size.height * 1.5) load("after");
  }, { passive: true });
  new ResizeObserver(() => {
    if (scroll.clientWidth !== size.width || scroll.clientHeight !== size.height) app.changed("size");
  }).observe(scroll);
  scroll.addEventListener("pointermove", (event) => {
    const row = rowAt(event);
    if (row === hovered) return;
    hovered = row;
    if (row < 0) hide();
    else showHint(row, event);
    paintSoon();
  });
  scroll.addEventListener("pointerleave", () => {
    hovered = -1;
    hide();
    paintSoon();
  });
  scroll.addEventListener("click", (event) => {
    const row = rowAt(event);
    if (row >= 0) app.show(row);
  });

  /** Load more messages, unless that is being done. @param {"before" | "after"} direction */
  async function load(direction) {
    if (loading || app.source.complete) return;
    loading = true;
    await app.source.more(direction).catch((error) => app.say(String(error.message)));
    loading = false;
  }

  /** Return the row of the nearest arrow; -1 if none is near. @param {MouseEvent} event */
  function rowAt(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (x > size.width || y > size.height) return -1;
    let nearest = 12;
    let found = -1;
    for (const arrow of arrows) {
      const away = distance(arrow, x, y);
      if (away < nearest) [nearest, found] = [away, arrow.row];
    }
    if (found >= 0 || scale.byTime) return found;
    return arrows.find((arrow) => y > arrow.y - 22 && y < arrow.y + 10)?.row ?? -1;
  }

  function hide() {
    hint.hidden = true;
  }

  /** @param {number} row @param {PointerEvent} event */
  function showHint(row, event) {
    const { messages } = app;
    const { receivers } = knowledge;
    const to = messages.to[row];
    const reached = receivers.lanes(row);
    const received = messages.receptions(row).slice(0, 6).map(({ delay }, each) => `${nameOf(reached[each])} after ${durationText(delay)}`);
    hint.replaceChildren(
      h("p", {}, label(nameOf(receivers.sender(row))), " → ", label(to > 0 ? nameOf(to) : messages.names.channels[messages.channel[row]])),
      h("p", { class: "quiet" }, `${exactText(messages.ts[row])}, ${KINDS[messages.kind[row]]}`),
      h("p", { class: "text" }, texts.line(row).slice(0, 200)),
      received.length ? h("p", { class: "quiet" }, `received: ${received.join(", ")}${reached.length > 6 ? ", …" : ""}`) : "",
    );
    const box = /** @type {HTMLElement} */ (scroll.parentElement).getBoundingClientRect();
    hint.hidden = false;
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    hint.style.left = `${Math.max(4, Math.min(x + 14, box.width - hint.offsetWidth - 6))}px`;
    hint.style.top = `${y + 22 + hint.offsetHeight > box.height ? y - hint.offsetHeight - 14 : y + 22}px`;
  }

  /** @param {Changed} changed */
  function any(changed, /** @type {string[]} */ ...keys) {
    return keys.some((key) => changed.has(key));
  }

  /** @param {Changed} changed */
  function update(changed) {
    if (any(changed, "theme")) palette = new Palette();
    if (changed.has("messages")) {
      const first = app.messages.ts.subarray(0, Math.min(app.messages.length, 500));
      digits = first.some((ts) => ts % 1_000_000_000n !== 0n) ? 3 : 0;
    }
    if (any(changed, "head", "messages")) losses = new Losses(app.messages, app.head);
    const live = any(changed, "live", "messages") && !any(changed, "at", "view", "sequence", ...FILTER_KEYS);
    if (live && app.source.served && base === app.messages.base && performance.now() - laidOut < PAUSE) {
      if (late === 0) late = setTimeout(() => app.changed("sequence"), PAUSE);
    } else {
      clearTimeout(late);
      late = 0;
      const shown = [highlight.rows, app.selected];
      if (any(changed, "messages", "live", "sequence", "at", "q", "who", "back")) findHighlight();
      const brought = shown[0] !== highlight.rows;
      if (brought || any(changed, "rows", "live", "sequence", "head", "scale", "lanes", "only", "agent")) {
        layOut();
        laidOut = performance.now();
      }
    }
    if (any(changed, "size", "theme")) resize();
    const zoomed = state.get("scale");
    even.setAttribute("aria-pressed", String(!zoomed));
    byTime.setAttribute("aria-pressed", String(Boolean(zoomed)));
    closer.hidden = wider.hidden = !zoomed;
    order.value = state.get("lanes");
    if (any(changed, "messages", "live", "sequence", "rows", "at", "q", "who", "back", "only", "agent", "head")) {
      panel.update({ highlight, receivers: knowledge.receivers, losses, texts, name: nameOf, digits });
      if (scroll.clientWidth !== size.width || scroll.clientHeight !== size.height) resize();
    }
    if (any(changed, "at", "view", "only")) reveal(app.selected);
    const { chain } = highlight;
    if (chain !== null && (any(changed, "who") || (any(changed, "q", "view", "only") && app.selected < 0))) {
      reveal(chain.steps[0]?.row ?? chain.first);
    }
    if (changed.has("playhead") && !Number.isNaN(playhead())) follow(playhead());
    paintSoon();
  }

  /** Select the message some rows further. @param {number} by */
  function step(by) {
    const { rows } = scale;
    if (rows.length === 0) return;
    const now = app.selected >= 0 || !Number.isFinite(by) ? at(app.selected) + by : scale.at(scroll.scrollTop + 20);
    const row = rows[Math.min(Math.max(now, 0), rows.length - 1)];
    app.show(row);
    const to = app.messages.to[row];
    app.say(`${nameOf(knowledge.receivers.sender(row))}${to > 0 ? ` to ${nameOf(to)}` : ""}: ${texts.line(row)}`);
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.target instanceof Element && panel.element.contains(event.target) && event.key.startsWith("Arrow")) return false;
    const back = Number(state.get("back") || 1);
    if (event.key === "ArrowDown" || event.key === "j") step(1);
    else if (event.key === "ArrowUp" || event.key === "k") step(-1);
    else if (event.key === "Home" || event.key === "g") step(-Infinity);
    else if (event.key === "End" || event.key === "G") step(Infinity);
    else if (event.key === "Escape" && app.selected >= 0) state.set({ at: "", only: "" });
    else if (event.key === "Escape" && state.get("who")) state.set({ who: "", only: "" });
    else if (event.key === "b" && app.selected >= 0 && highlight.levels.length >= back) state.set({ back: String(back + 1) });
    else if (event.key === "B" && app.selected >= 0) state.set({ back: back > 2 ? String(back - 1) : "" });
    else return false;
    return true;
  }

  return { element, update, key, focus: () => scroll.focus() };
}

/** Return a time in ns as seconds. @param {string | bigint} ns */
function secondsOf(ns) {
  return Number(BigInt(ns) / 1000n) / 1e6;
}
