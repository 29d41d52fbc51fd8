/**
 * The replay bar of a served page: starts a replay of the experiment onto a broker, and drives one that runs.
 *
 * `store/view/server/replaying.py` has the requests. Before a replay is started, the bar shows where it publishes.
 */

import { h, label, visible } from "./dom.js";
import { replayPlan } from "./replay_plan.js";
import { castList, statusText, waitingText } from "./replay_status.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./types").Replayed} Replayed */
/** @typedef {import("./types").View} View */

const SPEEDS = ["0.1", "0.5", "1", "2", "10", "100", "1000", "max"];
/** Agents to choose from. */
const AGENTS = 500;

/** @param {App} app @returns {View} */
export function replayBar(app) {
  const element = h("section", { class: "replay", "aria-label": "replay", hidden: true });
  const about = app.head.replay;
  if (!app.source.served || !about) return { element, update() {} };

  /** @type {Replayed} */
  let known = { phase: "none", status: null, lines: [], code: null };
  /** Position that the page has shown, and the cursor: the page is only moved when they change. */
  let shown = "";
  let published = "";

  const button = (/** @type {string} */ text, /** @type {() => void} */ click) =>
    h("button", { type: "button", on: { click } }, text);
  const message = h("p", { class: "replay-error", role: "alert" });
  const play = button("▶ Play", () => send(known.status?.paused ? "resume" : "pause"));
  const step = button("Step", () => send("step"));
  const agent = h("select", { "aria-label": "agent of the next message", on: { pointerdown: agents, focus: agents } });
  const next = button("Next of", () => send("next", { agent: JSON.parse(agent.value) }));
  const seek = button("Seek to selected message", () => send("seek", { point: app.state.get("at"), state: withState.checked }));
  const withState = h("input", { type: "checkbox" });
  const follow = h("input", { type: "checkbox", checked: true });
  const speed = h(
    "select",
    { "aria-label": "speed of the replay", on: { change: () => send("speed", { speed: speed.value === "max" ? "max" : Number(speed.value) }) } },
    ...SPEEDS.map((value) => h("option", { value }, value === "max" ? "max" : `${value}×`)),
  );
  const stop = button("End replay", () => send("stop"));
  const status = h("span", { class: "replay-status" });
  const waiting = h("p", { class: "replay-waiting", "aria-live": "polite" });
  const cast = h("div");
  const controls = h(
    "div",
    { class: "replay-controls", role: "group", "aria-label": "control of the replay" },
    ...[play, step, next, agent, seek],
    h("label", {}, withState, " with state"),
    h("label", {}, "speed ", speed),
    ...(about.attached === null ? [stop] : []),
  );
  const running = h(
    "div",
    { class: "replay-running", hidden: true },
    h("p", { class: "replay-line" }, h("strong", {}, "Replay"), status, h("label", {}, follow, " show its messages")),
    about.allowed ? controls : null,
    waiting,
    cast,
  );
  const ended = h("div", { class: "replay-ended", hidden: true });
  const absent = h("p", { class: "quiet", hidden: true });
  if (about.attached !== null) absent.append("Waiting for a replay at ", label(about.attached, "mono"), ".");
  const begin = button(about.broker === null ? "" : `Replay to ${visible(about.broker)} …`, openPlan);
  const plan = replayPlan(app.head.exp_id, post, { start, cancel });
  element.append(begin, plan.element, absent, running, ended, message);

  /** Send a request. @param {string} verb @param {Record<string, unknown>} [given] @returns {Promise<any>} */
  async function post(verb, given = {}) {
    const answer = await fetch(`/api/replay/${verb}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(given),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  }

  /** Send a request; show its error, and return null then. @param {string} verb @param {Record<string, unknown>} [given] */
  async function send(verb, given) {
    message.textContent = "";
    try {
      return await post(verb, given);
    } catch (error) {
      message.textContent = visible(String(/** @type {Error} */ (error).message));
      return null;
    }
  }

  async function openPlan() {
    message.textContent = "";
    begin.hidden = true;
    await plan.open();
  }

  function cancel() {
    draw();
    begin.focus();
  }

  /** Start the replay of the plan. @param {string | null} to_exp */
  async function start(to_exp) {
    const started = await send("start", { exp_id: app.head.exp_id, to_exp });
    if (started === null) return;
    known = started; // the event may come later
    draw();
    play.focus();
  }

  /** Fill the list of agents. */
  function agents() {
    const { agents: names } = app.messages.names;
    if (agent.length === Math.min(names.length - 1, AGENTS)) return;
    const chosen = agent.value;
    agent.replaceChildren(...names.slice(1, AGENTS + 1).map(({ text, id }) => h("option", { value: id }, visible(text))));
    if (chosen) agent.value = chosen;
  }

  function draw() {
    const { phase, status: now } = known;
    const active = phase === "running" || phase === "starting";
    running.hidden = !active;
    const own = now === null || now.exp_id === app.head.exp_id;
    controls.hidden = phase !== "running" || !own; // another experiment's is driven from its page
    begin.hidden = active || plan.opened || about?.broker === null || !about?.allowed;
    if (active) plan.close();
    absent.hidden = phase !== "none" || about?.attached === null;
    ended.hidden = phase !== "ended";
    if (phase === "ended") {
      const lines = known.lines.length ? known.lines : [now?.state === "finished" ? "The replay has finished." : "The replay has ended."];
      ended.replaceChildren(...lines.map((line) => h("p", {}, visible(line))));
    }
    if (!active || now === null) {
      if (active) status.textContent = "starting";
      return;
    }
    status.replaceChildren(own ? "" : `of ${visible(now.exp_id)}, `, statusText(now, known.to_exp ?? null));
    const paused = now.paused;
    play.textContent = paused ? "▶ Play" : "⏸ Pause";
    if (document.activeElement !== speed) setSpeed(String(now.speed));
    seek.disabled = !paused || app.selected < 0 || now.live !== null;
    speed.disabled = now.live !== null;
    waiting.textContent = visible(waitingText(now));
    cast.replaceChildren(castList(now.live));
  }

  /** @param {string} value */
  function setSpeed(value) {
    if (![...speed.options].some((option) => option.value === value)) speed.append(h("option", { value }, `${value}×`));
    speed.value = value;
  }

  /** Show the place of the replay in the page. */
  function place() {
    const now = known.status;
    if (now === null || now.exp_id !== app.head.exp_id) return;
    if (known.phase === "ended") {
      if (shown) app.state.set({ playhead: "" });
      shown = published = "";
      return;
    }
    if (now.position !== null && now.position !== shown) app.state.set({ playhead: now.position });
    shown = now.position ?? "";
    if (follow.checked && now.cursor !== null && now.cursor !== published) app.state.set({ at: now.cursor });
    published = now.cursor ?? "";
  }

  /** @type {EventSource | null} */
  let stream = null;

  /** Follow the replay while the page is visible: a browser has six connections to a server, for all pages together. */
  function connect() {
    if (document.hidden || stream !== null) return;
    stream = new EventSource("/api/replay/follow");
    stream.addEventListener("replay", (event) => {
      known = JSON.parse(event.data);
      draw();
      place();
    });
  }

  function leave() {
    stream?.close();
    stream = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : connect()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", connect);
  connect();
  agents();
  element.hidden = false;
  draw();
  return {
    element,
    update(changed) {
      if (changed.has("messages")) agents();
      if (changed.has("at")) draw();
    },
  };
}
