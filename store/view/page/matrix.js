/** Who talks to whom: a table of numbers and a graph. A cell, a heading, a circle or a line opens its messages. */

import { h } from "./dom.js";
import { countedRows, FILTER_KEYS } from "./filter.js";
import { Graph } from "./graph.js";
import { Grid } from "./grid.js";
import { Naming } from "./naming.js";
import { MOST, channelsOf, network, tableOf, turnPairs, usual } from "./pairs.js";
import { numberText, plural } from "./time.js";

/** @typedef {import("./pairs.js").Across} Across */
/** @typedef {import("./pairs.js").Pair} Pair */

/** Circles, and lines, of the graph. */
const NODES = 60;
const EDGES = 300;
/** ms between two counts while messages keep coming. */
const PAUSE = { complete: 500, served: 10_000 };
const CHOICES = /** @type {[Across, string, string, string][]} */ ([
  ["to", "recipient", "from ＼ to", "messages by sender and recipient"],
  ["channel", "channel", "from ＼ channel", "messages by sender and channel"],
  ["after", "speaker before", "who ＼ after whom", "messages by sender and by the sender of the message before on the channel"],
]);

/** @param {import("./types").App} app @returns {import("./types").View} */
export function matrixView(app) {
  const grid = new Grid();
  const hint = h("p", { class: "hint" });
  const graph = new Graph((text) => {
    hint.textContent = text;
  });
  const note = h("p", { class: "quiet counted" });
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
    h("div", { class: "halves" }, h("div", { class: "scroll" }, grid.table), h("div", { class: "drawn" }, graph.canvas, hint)),
  );

  let asked = 0;
  let timer = 0;
  let last = -Infinity;
  /** @type {{ pairs: Pair[], across: Across } | null} */
  let shown = null;

  /** Count, at once or after a pause since the last count. @param {boolean} filtered a condition has changed */
  function count(filtered) {
    if (timer !== 0 && !filtered) return;
    clearTimeout(timer);
    timer = window.setTimeout(async () => {
      last = performance.now();
      asked += 1;
      const number = asked;
      timer = 0;
      element.setAttribute("aria-busy", "true");
      try {
        const found = await counted(app);
        if (number !== asked) return;
        shown = found;
        show();
      } catch (error) {
        note.textContent = error instanceof Error ? error.message : String(error);
      }
      element.removeAttribute("aria-busy");
    }, Math.max(last + (filtered || app.source.complete ? PAUSE.complete : PAUSE.served) - performance.now(), 0));
  }

  /** Fill the table and the graph with what was counted. */
  function show() {
    if (shown === null) return;
    const { pairs, across } = shown;
    const naming = new Naming(app.messages, across);
    const between = across === "to" ? app.state.all("between").map((id) => app.messages.agentAt.get(id) ?? -1) : [];
    const table = tableOf(pairs, { agents: across !== "channel", keep: between });
    choice.value = across;
    note.textContent = noteOf(app, across, table);
    element.dataset.empty = String(table.total === 0);
    fill(table, across, naming, between);
    draw(network(pairs, NODES, { agents: across !== "channel" }), across, naming);
  }

  /**
   * @param {import("./pairs.js").Table} table
   * @param {Across} across
   * @param {Naming} naming
   * @param {number[]} between the agents of the chosen dialogue
   */
  function fill(table, across, naming, between) {
    const [, , corner, label] = CHOICES.find(([value]) => value === across) ?? CHOICES[0];
    /** @param {"from" | "to"} side @param {import("./pairs.js").Line} line @param {number} others */
    const heading = (side, { at, total }, others) => ({
      text: at < 0 && others > 0 && app.source.complete ? plural(others, "other") : naming.text(side, at),
      full: `${naming.whole(side, at)}: ${plural(total, "message")}`,
      open: at > 0 ? () => openName(naming.channels(side) ? "channel" : "agent", at) : null,
      colour: naming.colour(side, at),
    });
    const last = { text: "total", full: `total: ${plural(table.total, "message")}`, open: null, colour: "" };
    const cells = table.rows.map(({ at: from }, row) => [
      ...table.columns.map(({ at: to }, column) => {
        const count = table.cells[row * table.columns.length + column];
        const known = from > 0 && to > 0 && count > 0;
        return {
          text: compact(count),
          full: `${naming.whole("from", from)} → ${naming.whole("to", to)}: ${plural(count, "message")}`,
          open: known ? () => open(across, from, to) : null,
          share: known ? Math.sqrt(count / table.largest) : 0,
          chosen: isPair(between, from, to),
        };
      }),
      sum(table.rows[row].total),
    ]);
    grid.fill({
      label,
      corner,
      rows: [...table.rows.map((line) => heading("from", line, table.rowNames - MOST)), last],
      columns: [...table.columns.map((line) => heading("to", line, table.columnNames - MOST)), last],
      cells: [...cells, [...table.columns.map(({ total }) => sum(total)), sum(table.total)]],
    });
  }

  /** @param {ReturnType<typeof network>} found @param {Across} across @param {Naming} naming */
  function draw({ nodes, edges, names }, across, naming) {
    const drawn = edges.slice(0, EDGES);
    graph.show(
      nodes.map(({ side, at, count }) => ({
        name: naming.key(side, at),
        text: naming.text(side, at),
        colour: () => naming.colour(side, at),
        square: naming.channels(side),
        count,
        open: () => openName(naming.channels(side) ? "channel" : "agent", at),
      })),
      drawn.map(({ begin, end, from, to, count }) => ({
        from: begin, to: end, count, open: () => open(across, from, to),
      })),
      `graph of ${plural(nodes.length, "name")} and ${plural(drawn.length, "connection")}; the table has its numbers`,
    );
    const less = [
      names > nodes.length ? `the ${nodes.length} most active of ${numberText(names)}` : "",
      edges.length > drawn.length ? `the ${EDGES} strongest connections` : "",
    ].filter(Boolean);
    hint.dataset.rest = less.length ? `Drawn: ${less.join(", ")}.` : "";
  }

  /** Open the messages of a cell. @param {Across} across @param {number} from @param {number} to */
  function open(across, from, to) {
    const { agents, channels } = app.messages.names;
    const one = agents[from].id;
    if (across === "to") app.state.set({ between: [one, agents[to].id], agent: [], view: "read" });
    else if (across === "channel") app.state.set({ agent: [one], between: [], channel: [channels[to]], view: "read" });
    else app.state.set({ agent: [...new Set([one, agents[to].id])], between: [], view: "read" });
  }

  /** @param {"agent" | "channel"} what @param {number} at */
  function openName(what, at) {
    const { agents, channels } = app.messages.names;
    if (what === "channel") app.state.set({ channel: [channels[at]], view: "read" });
    else app.state.set({ agent: [agents[at].id], between: [], view: "read" });
  }

  return {
    element,
    update(changed) {
      const wanted = app.state.get("matrix") === "graph" ? "graph" : "";
      element.dataset.shows = wanted;
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.shows === wanted));
      const filtered = ["across", ...FILTER_KEYS].some((key) => changed.has(key));
      if (filtered || changed.has("messages") || changed.has("live")) count(filtered);
      else if (changed.has("theme")) show();
      else if (changed.has("size") || changed.has("matrix") || changed.has("view")) graph.draw();
    },
  };
}

/** Count what the state asks for. @param {import("./types").App} app @returns {Promise<{ pairs: Pair[], across: Across }>} */
async function counted(app) {
  const chosen = CHOICES.find(([value]) => value === app.state.get("across"))?.[0];
  const pairs = await app.source.pairs({ ...app.filter, between: [] });
  const across = chosen ?? usual(pairs, app.source.complete ? channelsOf(app.messages) : app.head.channels);
  if (across === "to") return { pairs, across };
  if (across === "channel") return { pairs: await app.source.pairs(app.filter, across), across };
  return { pairs: turnPairs(app.messages, countedRows(app.messages, app.rows, app.filter)), across };
}

/** @param {number} count */
function sum(count) {
  return { text: compact(count), full: plural(count, "message"), open: null, share: 0, chosen: false };
}

/** @param {number[]} between @param {number} from @param {number} to */
function isPair([one, other], from, to) {
  return (from === one && to === other) || (from === other && to === one);
}

/**
 * @param {import("./types").App} app
 * @param {Across} across
 * @param {import("./pairs.js").Table} table
 */
function noteOf(app, across, table) {
  if (table.total === 0) return "No messages fit the filter.";
  const { complete } = app.source;
  const found = [];
  if (across !== "to" && app.state.get("across") === "") found.push("No message names its recipient.");
  if (across === "channel") found.push("Columns are channels.");
  if (across === "after") found.push("A cell counts the messages of one agent directly after a message of another, on the same channel.");
  if (table.rowNames > MOST + 1) {
    found.push(complete ? `Of ${numberText(table.rowNames)} senders, the most active are shown.` : "The most active senders are shown.");
  }
  if (across === "channel" && table.columnNames > MOST + 1) {
    found.push(`Of ${plural(table.columnNames, "channel")}, the ${MOST} busiest are shown.`);
  }
  if (across === "after" && !complete) found.push(`Counted in the ${plural(app.rows.length, "loaded message")}.`);
  return found.join(" ");
}

/** @param {number} value */
function compact(value) {
  if (value < 100_000) return value === 0 ? "" : numberText(value);
  return value < 1e6 ? `${Math.round(value / 1e3)}k` : `${(value / 1e6).toPrecision(3)}M`;
}
