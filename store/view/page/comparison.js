/** Two runs side by side, aligned, opened at the first difference. */

import { Alignment, CHANGED, EQUAL, FoldedRows, ONLY_B, TITLES } from "./alignment.js";
import { comparisonRow } from "./comparison_row.js";
import { DifferenceStrip } from "./difference_strip.js";
import { h, label, visible } from "./dom.js";
import { rulesText } from "./match.js";
import { KINDS } from "./messages.js";
import { runSummary } from "./run_summary.js";
import { State } from "./state.js";
import { numberText, plural } from "./time.js";
import { VirtualList } from "./virtual_list.js";

/** @typedef {import("./types").Comparison} Comparison */
/** @typedef {import("./types").Source} Source */

/** Channels that are listed. */
const CHANNELS = 500;

/**
 * Show two runs in place of the page. The state has the selected row: `at` is `a:` or `b:` and the cursor of its message.
 * @param {Comparison} found
 * @param {[Source, Source]} sources
 * @param {object} urls
 * @param {(side: "a" | "b") => string} urls.run page of one run
 * @param {(paths: string[]) => string} [urls.without] page of both runs, compared without some paths
 */
export function showComparison(found, sources, urls) {
  const [messagesA, messagesB] = sources.map(({ messages }) => messages);
  const alignment = new Alignment(found, messagesA, messagesB);
  const rows = new FoldedRows(alignment);
  let selected = -1;

  const list = new VirtualList({
    label: "messages of both runs",
    key(item) {
      const fold = rows.foldAt(item);
      if (fold !== null) return `fold ${fold.from} ${fold.until}`;
      const row = rows.rowOf(item);
      return `${row} ${row === selected}`;
    },
    make(item) {
      const fold = rows.foldAt(item);
      return fold === null ? pair(rows.rowOf(item)) : folded(fold);
    },
    placed() {
      strip.show(rows.rowOf(list.at), rows.rowOf(list.end - 1) + 1);
    },
  });
  const strip = new DifferenceStrip(alignment, (row) => list.move(rows.itemOf(row), -list.height / 2));
  const place = h("span", { class: "quiet", "aria-live": "polite" });
  const foldButton = h("button", { type: "button", "aria-keyshortcuts": "e", on: { click: toggleFolds } }, "Fold equal messages");

  /** @param {number} row */
  function pair(row) {
    const kind = alignment.kind[row];
    return comparisonRow({
      kind,
      sides: [[messagesA, alignment.a[row]], [messagesB, alignment.b[row]]],
      selected: row === selected,
      paths: kind === CHANGED ? found.values[messagesA.cursor(alignment.a[row])] : undefined,
      select: () => select(row),
    });
  }

  /** @param {{ from: number, until: number }} fold */
  function folded({ from, until }) {
    const text = plural(until - from, "equal message");
    return h("article", { class: "aligned fold" }, h("button", { type: "button", on: { click: () => unfold(from) } }, `⋯ ${text}`));
  }

  /** Select a row, show it, and keep it in the URL. @param {number} row */
  function select(row) {
    selected = row;
    if (row >= 0) {
      const item = rows.itemOf(row);
      if (rows.foldAt(item) !== null) rows.unfold(item);
      list.set(rows.length, list.at, list.offset);
      list.reveal(rows.itemOf(row));
      const side = alignment.a[row] >= 0 ? "a" : "b";
      const messages = side === "a" ? messagesA : messagesB;
      state.set({ at: `${side}:${messages.cursor(alignment[side][row])}` });
    }
    const number = alignment.differences.length;
    const at = row >= 0 && alignment.kind[row] !== EQUAL ? `${numberText(alignment.numberOf(row) + 1)} of ` : "";
    place.textContent = number ? `${at}${plural(number, "difference")}` : "no difference";
  }

  /** Select the next difference. @param {1 | -1} step @param {number} [kind] */
  function go(step, kind = -1) {
    const from = selected >= 0 ? selected : step > 0 ? -1 : alignment.length;
    const row = alignment.next(from, step, kind);
    if (row >= 0) select(row);
    else if (kind >= 0 && selected >= 0) select(alignment.next(-1, 1, kind));
    else place.textContent = step > 0 ? "no difference behind this one" : "no difference before this one";
  }

  /** @param {number} from first row of a fold */
  function unfold(from) {
    const place = list.topOf(rows.itemOf(from)) ?? 0;
    rows.unfold(rows.itemOf(from));
    list.set(rows.length, rows.itemOf(from), -place);
    list.element.focus();
  }

  function toggleFolds() {
    const row = selected >= 0 ? selected : rows.rowOf(list.at);
    rows.all = !rows.all;
    rows.fold();
    foldButton.setAttribute("aria-pressed", String(!rows.all));
    list.set(rows.length, rows.itemOf(row), 0);
    list.reveal(rows.itemOf(row));
  }

  /** Select the row above or below. @param {1 | -1} step */
  function move(step) {
    const item = selected < 0 ? list.at : rows.itemOf(selected) + step;
    const fold = rows.foldAt(Math.max(0, Math.min(item, rows.length - 1)));
    if (fold !== null && selected >= 0) {
      list.move(item, -list.height / 2);
      const beyond = item + step;
      if (beyond >= 0 && beyond < rows.length) select(rows.rowOf(beyond));
    } else if (item >= 0 && item < rows.length) select(rows.rowOf(item));
  }

  /** Select the row of the URL. */
  function open() {
    const [side, ...cursor] = state.get("at").split(":");
    const key = side === "b" ? "b" : "a";
    const messages = key === "b" ? messagesB : messagesA;
    const row = cursor.length ? alignment.rowOf(key, messages.row(cursor.join(":"))) : -1;
    select(row >= 0 ? row : (alignment.differences[0] ?? -1));
  }

  let remembered = 0;
  const state = new State(location.hash, () => {
    remembered ||= window.setTimeout(remember, 200);
  });

  /** Keep the state in the URL; soon, because browsers refuse many changes at once. */
  function remember() {
    remembered = 0;
    try {
      history.replaceState(null, "", `#${state.fragment()}`);
    } catch {
      // in a frame without an origin, as in a notebook
    }
  }

  const counts = TITLES.map((title, kind) => {
    const number = Object.values(found.counts)[kind];
    if (number === 0) return null;
    const text = [h("strong", {}, numberText(number)), ` ${title}`];
    const properties = { class: `count count-${kind}` };
    if (kind === EQUAL) return h("span", properties, ...text);
    const titled = { ...properties, type: /** @type {"button"} */ ("button"), title: `the next one that is ${title}` };
    return h("button", { ...titled, on: { click: () => go(1, kind) } }, ...text);
  });
  const heads = /** @type {("a" | "b")[]} */ (["a", "b"]).map((side, at) => {
    const { head, messages } = sources[at];
    return h(
      "div",
      { class: "run-head" },
      h("span", { class: "side" }, side.toUpperCase()),
      h("strong", {}, label(head.name || head.exp_id)),
      head.name ? label(head.exp_id, "quiet") : null,
      h("span", { class: "quiet" }, plural(messages.length, "message")),
      h("a", { href: urls.run(side) }, "open"),
    );
  });
  foldButton.setAttribute("aria-pressed", "true");
  const page = h(
    "div",
    { id: "page", class: "comparison" },
    h(
      "header",
      { class: "comparison-head" },
      h("h1", {}, found.equal ? "Two equal runs" : "Two runs"),
      h("div", { class: "counts" }, ...counts),
      h(
        "div",
        { class: "comparison-tools" },
        h("button", { type: "button", "aria-keyshortcuts": "p", title: "p", on: { click: () => go(-1) } }, "Previous"),
        h("button", { type: "button", "aria-keyshortcuts": "n", title: "n", on: { click: () => go(1) } }, "Next"),
        place,
        foldButton,
      ),
      found.match === null ? null : h("p", { class: "notes" }, `Compared ${rulesText(found.match)}.`),
      notCompared(),
      found.notes.length ? h("p", { class: "quiet notes" }, found.notes.map(visible).join("; ")) : null,
      sharedPaths(),
      found.summary === null ? null : runSummary(found.summary),
      channelList(),
    ),
    h("main", { class: "comparison-body" }, h("div", { class: "run-heads" }, ...heads), h("div", { class: "comparison-list" }, list.element), strip.element),
  );

  /** The messages that are not compared because of their kinds, such as blocked ones. */
  function notCompared() {
    const parts = /** @type {const} */ (["a", "b"]).flatMap((side, at) => {
      const { kind, length } = sources[at].messages;
      const counts = KINDS.map(() => 0);
      for (let row = 0; row < length; row += 1) counts[kind[row]] += 1;
      const others = KINDS.flatMap((name, code) => (counts[code] && !found.kinds.includes(name) ? [`${numberText(counts[code])} ${name}`] : []));
      return others.length ? [`${others.join(" and ")} in ${side.toUpperCase()}`] : [];
    });
    return parts.length ? h("p", { class: "quiet notes" }, `Not compared: ${parts.join(", ")}.`) : null;
  }

  /** The paths in which most changed messages differ only, and how to leave them out. */
  function sharedPaths() {
    if (found.shared === null) return null;
    const { messages, examined, paths } = found.shared;
    const first = examined < found.counts.changed ? "first " : "";
    const names = paths.map(visible).join(" and ");
    const text = `${numberText(messages)} of the ${first}${numberText(examined)} changed messages differ only in `;
    const remedy = urls.without
      ? h("a", { href: urls.without(paths) }, `compare without ${names}`)
      : h("code", {}, paths.map((path) => `--ignore ${visible(path)}`).join(" "));
    return h("p", { class: "notes" }, text, h("span", { class: "mono" }, names), ": ", remedy, urls.without ? null : " compares the rest");
  }

  /** The channels that differ, each with a way to its first difference. */
  function channelList() {
    const channels = channelsOf();
    if (channels.length === 0) return null;
    const number = `${numberText(found.differing)} of ${plural(found.channels, "channel")} with differences`;
    return h(
      "details",
      { class: "comparison-channels" },
      h("summary", {}, number),
      h(
        "ul",
        {},
        ...channels.slice(0, CHANNELS).map(({ name, counts, first }) =>
          h(
            "li",
            {},
            h("button", { type: "button", on: { click: () => select(first) } }, label(name || "no channel")),
            h("span", { class: "quiet" }, TITLES.flatMap((title, kind) => (counts[kind] ? [`${numberText(counts[kind])} ${title}`] : [])).join(", ")),
          ),
        ),
      ),
    );
  }

  /** Return the channels with differences, by their names in A where A has them. */
  function channelsOf() {
    /** @type {Map<string, { name: string, counts: number[], first: number }>} */
    const known = new Map();
    /** @type {Map<number, number>} Position in A of a channel of B. */
    const same = new Map();
    for (let row = 0; row < alignment.length; row += 1) {
      if (alignment.a[row] >= 0 && alignment.b[row] >= 0) same.set(messagesB.channel[alignment.b[row]], messagesA.channel[alignment.a[row]]);
    }
    for (const row of alignment.differences) {
      const kind = alignment.kind[row];
      const ofB = kind === ONLY_B ? messagesB.channel[alignment.b[row]] : -1;
      const at = kind === ONLY_B ? (same.get(ofB) ?? -1) : messagesA.channel[alignment.a[row]];
      const name = at >= 0 ? messagesA.names.channels[at] : messagesB.names.channels[ofB];
      const channel = known.get(name) ?? { name, counts: [0, 0, 0, 0, 0], first: row };
      channel.counts[kind] += 1;
      known.set(name, channel);
    }
    return [...known.values()];
  }

  document.getElementById("page")?.replaceWith(page);
  list.set(rows.length, 0, 0);
  open();
  addEventListener("hashchange", () => {
    state.load(location.hash);
    open();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    list.set(rows.length, list.at, list.offset, { fresh: true });
    strip.draw();
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      n: () => go(1),
      p: () => go(-1),
      e: toggleFolds,
      ArrowDown: () => move(1),
      ArrowUp: () => move(-1),
      Home: () => select(0),
      End: () => select(alignment.length - 1),
    }[event.key];
    const elsewhere = document.activeElement?.closest(".comparison-channels ul") ?? null;
    if (act === undefined || (event.key.length > 1 && elsewhere !== null) || alignment.length === 0) return;
    act();
    event.preventDefault();
  });
}
