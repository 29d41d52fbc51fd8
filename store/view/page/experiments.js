/** The list of experiments of a store: tags, forks as a tree, and two to compare. */

import { h, label } from "./dom.js";
import { json } from "./served.js";
import { dayText, durationText, numberText, timeText } from "./time.js";

/**
 * @typedef {{ exp_id: string, name: string | null, tags: string[], status: string, created_at: string,
 *   first_ts: string | null, parent: { exp_id: string } | null, events: number, duration_s: number | null, gaps: number }} Listed
 */

/** Show the list in place of the page. */
export async function showExperiments() {
  /** @type {Listed[]} */
  const found = (await json("/api/experiments")).experiments;
  const compare = h("button", { type: "button", disabled: true, on: { click: open } }, "Compare two");
  /** @type {string[]} */
  let chosen = [];

  /** @param {Listed} one @param {boolean} on */
  function choose(one, on) {
    chosen = chosen.filter((exp) => exp !== one.exp_id);
    if (on) chosen.push(one.exp_id);
    compare.disabled = chosen.length !== 2;
  }

  function open() {
    const [a, b] = found.map((one) => one.exp_id).filter((exp) => chosen.includes(exp)).reverse();
    location.search = `?${new URLSearchParams({ exp: a, with: b })}`;
  }

  const rows = tree(found).map(([one, depth]) => row(one, depth, choose));
  const table = h(
    "table",
    { class: "experiments-table" },
    h("caption", { class: "quiet" }, found.length ? "Newest first; forks are below their origin." : "No experiment yet."),
    h("thead", {}, h("tr", {}, ["", "Experiment", "Tags", "Status", "Begun (UTC)"].map((text) => head(text)), ["Length", "Events"].map((text) => head(text, "number")))),
    h("tbody", {}, rows),
  );
  document.title = "messager";
  document.getElementById("page")?.replaceWith(
    h("main", { id: "page", class: "experiments" }, h("h1", {}, "Experiments"), h("p", {}, compare), table),
  );
  document.body.dataset.ready = "";
}

/** @param {string} text @param {string | null} [look] */
function head(text, look = null) {
  return h("th", { scope: "col", class: look }, text || h("span", { class: "status" }, "choose"));
}

/** @param {Listed} one @param {number} depth @param {(one: Listed, on: boolean) => void} choose */
function row(one, depth, choose) {
  const box = h("input", { type: "checkbox", "aria-label": `compare ${one.exp_id}` });
  box.addEventListener("change", () => choose(one, box.checked));
  const link = h("a", { href: `?${new URLSearchParams({ exp: one.exp_id })}` }, label(one.exp_id));
  const name = h("th", { scope: "row" }, depth ? h("span", { class: "quiet" }, `${"  ".repeat(depth - 1)}└ `) : null, link);
  if (one.name) name.append(h("div", { class: "quiet" }, label(one.name)));
  return h(
    "tr",
    {},
    h("td", {}, box),
    name,
    h("td", {}, one.tags.map((tag) => h("span", { class: "tag" }, label(tag)))),
    h("td", {}, one.status),
    h("td", {}, one.first_ts === null ? one.created_at.slice(0, 19).replace("T", " ") : `${dayText(BigInt(one.first_ts))} ${timeText(BigInt(one.first_ts), 0)}`),
    h("td", { class: "number" }, one.duration_s === null ? "-" : durationText(one.duration_s * 1e9)),
    h("td", { class: "number" }, numberText(one.events)),
  );
}

/**
 * Return the experiments in the order of the list, each followed by its forks, with their depth.
 * @param {Listed[]} found
 * @returns {[Listed, number][]}
 */
function tree(found) {
  const known = new Set(found.map((one) => one.exp_id));
  /** @type {[Listed, number][]} */
  const listed = [];
  const done = new Set();
  /** @param {Listed} one @param {number} depth */
  function add(one, depth) {
    if (done.has(one.exp_id)) return;
    done.add(one.exp_id);
    listed.push([one, depth]);
    for (const fork of found) if (fork.parent?.exp_id === one.exp_id) add(fork, depth + 1);
  }
  for (const one of found) if (one.parent === null || !known.has(one.parent.exp_id)) add(one, 0);
  for (const one of found) add(one, 0); // parents that name each other
  return listed;
}
