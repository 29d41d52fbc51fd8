/** Who talks to whom: a table of numbers and a graph. A cell, a heading, a circle or a line opens its messages. */

import { colourOf } from "./colours.js";
import { h, visible } from "./dom.js";
import { FILTER_KEYS } from "./filter.js";
import { Graph } from "./graph.js";
import { Grid } from "./grid.js";
import { MOST, channelPairs, network, tableOf, turnPairs, usual } from "./pairs.js";
import { shortened } from "./shortened.js";
import { numberText, plural } from "./time.js";

/** @typedef {import("./pairs.js").Across} Across */
/** @typedef {import("./pairs.js").Pair} Pair */

/** Circles, and lines, of the graph. */
const NODES = 60;
const EDGES = 300;
/** ms between two counts while messages keep coming. */
const PAUSE = 500;
const CHOICES = /** @type {[Across, string, string, string][]} */ ([
  ["to", "recipient", "from ＼ to", "messages by sender and recipient"],
  ["channel", "channel", "from ＼ channel", "messages by sender and channel"],
  ["after", "speaker before", "who ＼ after whom", "messages by sender and by the sender of the message before on the channel"],
]);

/** @param {import("./types").App} app @returns {import("./types").View} */
export function matrixView(app) {
  const grid = new Grid();
  const hint = h("p", { class: "hint", role: "status" });
  const graph = new Graph((text) => {
    hint.textContent = text;
  });
  const note = h("p", { class: "quiet note" });
  const choice = h(
    "select",
    { "aria-label": "columns of the matrix", on: { change: () => app.state.set({ across: choice.value }) } },
    CHOICES.map(([value, text]) => h("option", { value }, `by ${text}`)),
  );
  const buttons = [["", "Numbers"], ["graph", "Graph"]].map(([value, text]) =>
    h("button", { type: "button", data: { shows: value }, on: { click: () => app.state.set({ matrix: value }) } }, text),
  );
  const element = h(
    "div",
    { class: "matrix" },
    h("div", { class: "bar" }, choice, h("div", { class: "switch", role: "group", "aria-label": "show" }, buttons), note),
    h("div", { class: "pair" }, h("div", { class: "scroll" }, grid.table), h("div", { class: "drawn" }, graph.canvas, hint)),
  );

  let asked = 0;
  let timer = 0;
  let last = -Infinity;
  /** @type {{ pairs: Pair[], across: Across } | null} */
  let shown = null;

  /** Count, at once or after a pause since the last count. */
  function count() {
    if (timer !== 0) return;
    timer = window.setTimeout(async () => {
      last = performance.now();
      asked += 1;
      const number = asked;
      timer = 0;
      element.setAttribute("aria-busy", "true");
      const found = await counted(app);
      if (number !== asked) return;
      shown = found;
      element.removeAttribute("aria-busy");
      show();
    }, Math.max(last + PAUSE - performance.now(), 0));
  }

  /** Fill the table and the graph with what was counted. */
  function show() {
    if (shown === null) return;
    const { pairs, across } = shown;
    const names = namesOf(app, across);
    choice.value = across;
    const between = app.state.all("between").map((id) => app.messages.agentAt.get(id) ?? -1);
    const table = tableOf(pairs, { agents: across !== "channel", keep: between });
    const [, , corner, label] = CHOICES.find(([value]) => value === across) ?? CHOICES[0];
    note.textContent = noteOf(app, across, table);
    element.dataset.empty = String(table.total === 0);
    const columns = table.columns.length + 1;
    grid.fill({
      label,
      corner,
      rows: [...table.rows.map((line) => names.heading("from", line, table.rowNames - MOST)), totals(table.total)],
      columns: [...table.columns.map((line) => names.heading("to", line, table.columnNames - MOST)), totals(table.total)],
      cell(row, column) {
        const from = table.rows[row]?.at;
        const to = table.columns[column]?.at;
        const both = from !== undefined && to !== undefined;
        const value = both
          ? table.cells[row * (columns - 1) + column]
          : (table.rows[row]?.total ?? table.columns[column]?.total ?? table.total);
        const real = both && from > 0 && to > 0;
        return {
          text: value === 0 ? "" : compact(value),
          full: both ? `${names.text("from", from)} → ${names.text("to", to)}: ${plural(value, "message")}` : plural(value, "message"),
          open: real && value > 0 ? () => open(across, from, to) : null,
          share: real && value > 0 ? Math.sqrt(value / table.largest) : 0,
          chosen: both && across === "to" && between.length === 2 && between.includes(from) && between.includes(to) && (from !== to || between[0] === between[1]),
        };
      },
    });
    picture(pairs, across, names);
  }

  /** @param {Pair[]} pairs @param {Across} across @param {ReturnType<typeof namesOf>} names */
  function picture(pairs, across, names) {
    // A channel is a node of its own: its position counts downwards from -2.
    const channels = across === "channel";
    const apart = channels ? pairs.map((pair) => ({ ...pair, to: pair.to === 0 ? 0 : HALF + pair.to })) : pairs;
    const { nodes, edges, names: all } = network(apart, NODES);
    const placeOf = new Map(nodes.map(({ at }, place) => [at, place]));
    const drawn = edges.slice(0, EDGES);
    graph.show(
      nodes.map(({ at, count }) => {
        const side = at > HALF ? "to" : "from";
        const position = at > HALF ? at - HALF : at;
        return {
          name: names.key(side, position),
          text: cut(names.text(side, position)),
          colour: () => colourOf(at > HALF ? 0 : position),
          square: at > HALF,
          count,
          open: () => openName(channels && at > HALF ? "channel" : "agent", position),
        };
      }),
      drawn.map(({ from, to, count }) => ({
        from: placeOf.get(from) ?? 0,
        to: placeOf.get(to) ?? 0,
        count,
        open: () => open(across, from, to > HALF ? to - HALF : to),
      })),
      `graph of ${plural(nodes.length, "name")} and ${plural(drawn.length, "connection")}; the table has its numbers`,
    );
    const less = [
      all > nodes.length ? `the ${nodes.length} most active of ${numberText(all)}` : "",
      edges.length > drawn.length ? `the ${EDGES} strongest connections` : "",
    ].filter(Boolean);
    graph.canvas.title = "";
    hint.dataset.rest = less.length ? `Drawn: ${less.join(", ")}.` : "";
  }

  /** Open the messages of a cell. @param {Across} across @param {number} from @param {number} to */
  function open(across, from, to) {
    const agents = app.messages.names.agents;
    if (across === "to") app.state.set({ between: [agents[from].id, agents[to].id], agent: [], view: "read" });
    else if (across === "after") app.state.set({ agent: [...new Set([agents[from].id, agents[to].id])], between: [], view: "read" });
    else app.state.set({ agent: [agents[from].id], between: [], channel: [app.messages.names.channels[to]], view: "read" });
  }

  /** @param {"agent" | "channel"} what @param {number} at */
  function openName(what, at) {
    const { agents, channels } = app.messages.names;
    if (what === "channel") app.state.set({ channel: [channels[at]], view: "read" });
    else app.state.set({ agent: [agents[at].id], between: [], view: "read" });
  }

  /** Names of rows and columns. @param {import("./types").App} app @param {Across} across */
  function namesOf(app, across) {
    const { agents, channels } = app.messages.names;
    const short = across === "channel" ? ["", ...shortened(channels.slice(1))] : [];
    /** @param {"from" | "to"} side */
    const channel = (side) => side === "to" && across === "channel";
    /** @param {"from" | "to"} side @param {number} at */
    const text = (side, at) => {
      if (at === 0) return "none";
      if (at < 0) return "others";
      return visible(channel(side) ? short[at] : agents[at].text);
    };
    return {
      text,
      /** @param {"from" | "to"} side @param {number} at */
      key: (side, at) => (channel(side) ? `channel ${channels[at]}` : agents[at].id),
      /** @param {"from" | "to"} side @param {import("./pairs.js").Line} line @param {number} others */
      heading(side, { at, total }, others) {
        const name = at < 0 ? `${numberText(others)} others` : text(side, at);
        const whole = at <= 0 ? name : visible(channel(side) ? channels[at] : `${agents[at].text}`);
        return {
          text: name,
          full: `${whole}: ${numberText(total)}`,
          open: at > 0 ? () => openName(channel(side) ? "channel" : "agent", at) : null,
          colour: at > 0 && !channel(side) ? colourOf(at) : "",
          quiet: at <= 0,
        };
      },
    };
  }

  return {
    element,
    update(changed) {
      const wanted = app.state.get("matrix") === "graph" ? "graph" : "";
      element.dataset.shows = wanted;
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.shows === wanted));
      if (["messages", "across", ...FILTER_KEYS].some((key) => changed.has(key))) count();
      else if (changed.has("theme")) show();
      else if (changed.has("size") || changed.has("matrix") || changed.has("view")) graph.draw();
    },
  };
}

/** Positions of channels in a graph begin behind those of agents. */
const HALF = 2 ** 25;

/** Count what the state asks for. @param {import("./types").App} app @returns {Promise<{ pairs: Pair[], across: Across }>} */
async function counted(app) {
  const chosen = CHOICES.find(([value]) => value === app.state.get("across"))?.[0];
  const pairs = await app.source.pairs({ ...app.filter, between: [] });
  const across = chosen ?? usual(pairs, app.messages);
  if (across === "to") return { pairs, across };
  return { pairs: across === "channel" ? channelPairs(app.messages, app.rows) : turnPairs(app.messages, app.rows), across };
}

/** @param {number} total */
function totals(total) {
  return { text: "total", full: `total: ${numberText(total)}`, open: null, quiet: true };
}

/**
 * @param {import("./types").App} app
 * @param {Across} across
 * @param {import("./pairs.js").Table} table
 */
function noteOf(app, across, table) {
  if (table.total === 0) return "No messages fit the filter.";
  const found = [];
  if (across !== "to" && app.state.get("across") === "") found.push("No message names its recipient.");
  if (across === "channel") found.push("Columns are channels.");
  if (across === "after") found.push("A cell counts the messages of one agent directly after a message of another, on the same channel.");
  const most = Math.max(table.rowNames, table.columnNames);
  if (most > MOST + 1) found.push(`The ${MOST} most active are shown, the others added up.`);
  if (across !== "to" && !app.source.complete) found.push(`Counted in the ${plural(app.rows.length, "loaded message")}.`);
  return found.join(" ");
}

/** @param {number} value */
function compact(value) {
  if (value < 10_000) return numberText(value);
  return value < 1e6 ? `${Math.round(value / 1e3)}k` : `${(value / 1e6).toPrecision(3)}M`;
}

/** Return a name short enough for the graph. @param {string} text */
function cut(text) {
  return text.length > 18 ? `${text.slice(0, 17)}…` : text;
}
