/** Playback within the page: moves the playhead through recorded time and selects the message that is current. */

import { h } from "./dom.js";
import { lowest } from "./filter.js";
import { isForPage } from "./keys.js";
import { advanced, speedFor } from "./playing.js";
import { durationText } from "./time.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").View} View */

const SPEEDS = ["1", "10", "100", "1000"];
/** Seconds of a playback at the speed "fit". */
const FIT = 60;
/** ms that a note on a silence stays. */
const NOTE = 2500;
/** ms between two moves if the viewer asked for less motion. */
const CALM = 500;

/** @param {App} app @returns {View} */
export function playback(app) {
  const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ click) =>
    h("button", { type: "button", title, "aria-label": title, on: { click } }, text);
  const play = button("▶", "play", toggle);
  const speed = h(
    "select",
    { "aria-label": "speed", on: { change: () => app.state.get("playing") && start() } },
    h("option", { value: "fit" }, `in ${FIT} s`),
    ...SPEEDS.map((value) => h("option", { value }, `${value}×`)),
  );
  const note = h("span", { class: "playback-note quiet" });
  const element = h(
    "div",
    { class: "playback", role: "group", "aria-label": "playback" },
    button("⏮", "previous message (,)", () => void step(-1)),
    play,
    button("⏭", "next message (.)", () => void step(1)),
    speed,
    note,
  );
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  /** Recorded ns. */
  let now = 0n;
  /** Of the last frame: ms. */
  let before = 0;
  let factor = 1;
  let frame = 0;
  let noteEnd = 0;
  /** Cursor that the playback selected. */
  let chosen = "";
  let waiting = false;

  function toggle() {
    if (app.state.get("playing")) stop("");
    else start();
  }

  /** Begin at the playhead or at the selected message, if the range has it, else at its first message. */
  function start() {
    const { rows, messages } = app;
    if (rows.length === 0) return app.say("There is no message to play.");
    const first = messages.ts[rows[0]];
    const last = messages.ts[rows[rows.length - 1]];
    const playhead = app.state.get("playhead");
    const moment = playhead !== "" ? BigInt(playhead) : app.selected >= 0 ? messages.ts[app.selected] : first;
    now = moment >= first && moment < last ? moment : first;
    factor = speed.value === "fit" ? speedFor(messages.ts, rows, FIT) : Number(speed.value);
    before = performance.now();
    app.state.set({ playing: "1", playhead: String(now) });
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(tick);
  }

  /** @param {string} text what to say */
  function stop(text) {
    cancelAnimationFrame(frame);
    frame = 0;
    app.state.set({ playing: "" });
    note.textContent = "";
    if (text) app.say(text);
  }

  /** @param {number} time */
  function tick(time) {
    frame = requestAnimationFrame(tick);
    if (waiting || (calm.matches && time - before < CALM)) return;
    const { rows, messages } = app;
    const at = lowest(messages.ts, rows, now + 1n);
    if (at >= rows.length) return void end();
    const next = messages.ts[rows[at]];
    const moved = advanced(now, Math.max(Math.min(time - before, 1000), 0) / 1000, factor, next);
    before = time;
    now = moved.now;
    if (moved.skipped > 0n) {
      note.textContent = `skipped ${durationText(Number(moved.skipped))} of silence`;
      noteEnd = time + NOTE;
    } else if (time > noteEnd) note.textContent = "";
    show(lowest(messages.ts, rows, now + 1n) - 1);
  }

  /** Select a row of `app.rows`, and place the playhead. @param {number} at */
  function show(at) {
    const { rows, messages } = app;
    if (at < 0) return app.state.set({ playhead: String(now) });
    chosen = messages.cursor(rows[at]);
    const playhead = calm.matches || !app.state.get("playing") ? messages.ts[rows[at]] : now;
    app.state.set({ at: chosen, playhead: String(playhead) });
  }

  /** Continue with more messages, if the source has them and the range goes on; else stop. */
  async function end() {
    waiting = true;
    const count = app.source.complete ? 0 : await app.source.more("after").catch(() => 0);
    waiting = false;
    before = performance.now();
    if (count === 0) stop("The playback is at the end.");
  }

  /** @param {1 | -1} by */
  async function step(by) {
    if (app.state.get("playing")) stop("");
    const { messages } = app;
    const place = placeOf(by);
    if (place < 0 || place >= app.rows.length) {
      const count = app.source.complete ? 0 : await app.source.more(by > 0 ? "after" : "before").catch(() => 0);
      if (count === 0) app.say(by > 0 ? "This is the last message." : "This is the first message.");
      return;
    }
    now = messages.ts[app.rows[place]];
    show(place);
  }

  /** Return the place in `app.rows` of the next message. @param {1 | -1} by */
  function placeOf(by) {
    const { rows, messages, selected } = app;
    if (selected < 0) {
      const playhead = app.state.get("playhead");
      const at = playhead === "" ? 0 : lowest(messages.ts, rows, BigInt(playhead));
      return by > 0 ? at : at - 1;
    }
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle] < selected) low = middle + 1;
      else high = middle;
    }
    if (by < 0) return low - 1;
    return rows[low] === selected ? low + 1 : low;
  }

  return {
    element,
    update(changed) {
      if (changed.has("playing")) {
        const playing = app.state.get("playing") !== "";
        play.textContent = playing ? "⏸" : "▶";
        play.title = playing ? "pause (space)" : "play (space)";
        play.setAttribute("aria-label", playing ? "pause" : "play");
        if (!playing && frame) stop("");
      }
      if (changed.has("at") && app.selected >= 0 && app.state.get("at") !== chosen) {
        now = app.messages.ts[app.selected];
        chosen = app.state.get("at");
        if (app.state.get("playhead") !== "") app.state.set({ playhead: String(now) });
      }
      if (changed.has("rows") && app.state.get("playing") && speed.value === "fit") {
        factor = speedFor(app.messages.ts, app.rows, FIT);
      }
    },
    key(event) {
      if (!isForPage(event)) return false;
      if (event.key === "," || event.key === ".") {
        void step(event.key === "." ? 1 : -1);
        return true;
      }
      const target = event.target instanceof Element ? event.target : null;
      if (event.key !== " " || target?.closest("button, a, summary, [role=option]")) return false;
      toggle();
      return true;
    },
  };
}
