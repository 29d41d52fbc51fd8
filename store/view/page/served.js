/**
 * The source of a served page: all messages of a small experiment, a window of a large one, and what is recorded now.
 *
 * `store/view/server/` describes the answers. While `complete` is false, the messages are those of a filter around a
 * place; the others are loaded when the reader comes near the first or the last one.
 */

import { fromBase64 } from "./chunk.js";
import { activityOf, pairsOf } from "./counting.js";
import { isLive } from "./describing.js";
import { countedRows, rowsOf } from "./filter.js";
import { Messages } from "./messages.js";

/** @typedef {import("./types").Filter} Filter */
/** @typedef {import("./types").Head} Head */
/** @typedef {import("./types").Source} Source */

/** Messages of an experiment that is loaded as a whole, at most. */
const WHOLE = 300_000;
/** Messages of a window, at most. */
const WINDOW = 100_000;
/** Events of an experiment that is examined without being asked, at most: problems and verification read all of them. */
export const EXAMINED = 1_000_000;
/** Messages in one answer. */
const PAGE = 8_000;
/** Messages in one answer when all are loaded: fewer answers are made faster. */
const LARGE = 65_536;
/** Messages in the first answer, which comes sooner. */
const FIRST = 1_000;

/** @implements {Source} */
export class ServedSource {
  /** @param {Head} head @param {string} exp */
  constructor(head, exp) {
    this.head = head;
    this.messages = new Messages();
    this.served = true;
    this.examining = false;
    this.complete = false;
    /** @type {number | null} */
    this.total = head.messages;
    /** True while the newest messages are added at the end; false after one scrolled back or chose a time. */
    this.atEnd = true;
    /** True while the first messages of a filter are loaded. */
    this.loading = false;
    /** True if the recording cannot be followed now. */
    this.away = false;
    /** Whether the first, or the last, message of the filter is there. */
    this._reached = { before: false, after: false };
    /** @type {EventSource | null} */
    this._stream = null;
    this._url = `/api/run/${encodeURIComponent(exp)}`;
    /** @type {URLSearchParams} */
    this._filter = new URLSearchParams();
    /** @type {Promise<unknown>} Loads, one after the other. */
    this._loading = Promise.resolve();
    /** @type {Promise<void>} The first load: counts take longer, and would slow it. */
    this._first = Promise.resolve();
    /** Number of selections. */
    this._selected = 0;
    /** @type {(keys: string[]) => void} */
    this.onchange = () => {};
    /** @type {(error: Error) => void} */
    this.onfailure = () => {};
  }

  /**
   * Load the messages: all, if they are not too many; else begin to load those around a place.
   * @param {Filter} filter @param {string} at cursor, or ""
   * @param {(done: number, total: number) => void} progress
   */
  async begin(filter, at, progress) {
    if (this.head.messages !== null && this.head.messages <= WHOLE) {
      await this._loadAll(progress);
    } else {
      this._first = this.select(filter, at).catch((error) => this.onfailure(error));
    }
  }

  /** @param {(done: number, total: number) => void} progress */
  async _loadAll(progress) {
    const limit = String(LARGE);
    let next = this._fetch({ limit });
    for (;;) {
      const { chunk, last } = await next;
      if (last === null) break;
      next = this._fetch({ after: last, limit }); // the server makes it while this one is unpacked
      next.catch(() => {});
      await this.messages.add(chunk);
      progress(this.messages.length, this.head.messages ?? 0);
    }
    this.complete = true;
  }

  /** @param {Filter} filter @param {string} at */
  async select(filter, at) {
    if (this.complete) return;
    this._selected += 1;
    const number = this._selected;
    this.loading = true;
    await this._next(async () => {
      if (number !== this._selected) return;
      this._filter = parameters(filter);
      try {
        await this._begin(at, at === "" && filter.since === null && filter.until === null && isLive(this.head));
      } finally {
        if (number === this._selected) this.loading = false;
        this.onchange(["messages"]);
      }
    });
  }

  /** Load the messages of the filter at a place. @param {string} at @param {boolean} atEnd */
  async _begin(at, atEnd) {
    const limit = String(PAGE);
    const first = String(FIRST);
    if (atEnd) {
      const rows = await this._load({ before: "end", limit: first }, { fresh: true });
      this._reached = { before: rows === 0, after: true };
    } else if (at) {
      const rows = await this._load({ before: at, and: at, limit: first }, { fresh: true });
      this._reached = { before: rows === 0, after: false };
      if (rows === 0) this._reached.after = (await this._load({ limit }, {})) === 0;
    } else {
      const rows = await this._load({ limit: first }, { fresh: true });
      this._reached = { before: true, after: rows === 0 };
    }
    this.atEnd = atEnd;
    this._found();
  }

  /** @param {"before" | "after"} direction */
  more(direction) {
    const selected = this._selected;
    return this._next(async () => {
      if (this.complete || this.loading || selected !== this._selected || this.messages.length === 0) return 0;
      const before = direction === "before";
      const row = before ? 0 : this.messages.length - 1;
      const rows = await this._load({ [direction]: this.messages.cursor(row), limit: String(PAGE) }, { before });
      this._reached[direction] = rows === 0;
      if (!before && rows === 0 && !this._filter.has("until")) this.atEnd = true;
      if (rows && this.messages.trim(WINDOW, { last: before })) {
        this._reached[before ? "after" : "before"] = false;
        if (before) this.atEnd = false;
      }
      this._found();
      this.onchange(rows ? ["messages"] : ["live"]);
      return rows;
    });
  }

  /** Note the number of messages that fit the filter, if they are all there. */
  _found() {
    const all = this._reached.before && this._reached.after;
    this.total = all ? this.messages.length : this._filter.size === 0 ? this.head.messages : null;
  }

  /** @param {Filter} filter @param {bigint} since @param {bigint} until @param {number} buckets
   * @param {"from" | "channel" | "all"} by `all` is faster */
  async activity(filter, since, until, buckets, by) {
    if (this.complete) {
      const rows = countedRows(this.messages, rowsOf(this.messages, filter, { anyTime: true }), filter);
      return activityOf(this.messages, rows, since, until, buckets, by === "all" ? "channel" : by);
    }
    const query = parameters({ ...filter, since, until });
    query.set("buckets", String(buckets));
    query.set("by", by);
    const found = await this._answer(`${this._url}/activity?${query}`);
    this.messages.name(found.names);
    return {
      starts: Float64Array.from(found.starts),
      length: found.length,
      series: found.series.map((/** @type {any} */ one) => ({ ...one, counts: Float64Array.from(one.counts) })),
    };
  }

  /** @param {Filter} filter @param {"to" | "channel"} across */
  async pairs(filter, across = "to") {
    if (this.complete) return pairsOf(this.messages, countedRows(this.messages, rowsOf(this.messages, filter), filter), across);
    const query = parameters(filter);
    query.set("across", across);
    const { names, pairs, others } = await this._answer(`${this._url}/pairs?${query}`);
    this.messages.name(names);
    if (parameters(filter).size === 0 && this.head.messages === null) {
      this.head.messages = pairs.reduce((/** @type {number} */ sum, /** @type {any} */ { count }) => sum + count, others);
      this._found();
      this.onchange(["head"]);
    }
    return others ? [...pairs, { from: -1, to: -1, count: others }] : pairs;
  }

  /**
   * Follow the recording from `head.position`: new messages, marks and gaps are added as they are committed. A hidden page
   * does not: a browser has six connections to a server, for all pages together.
   */
  follow() {
    document.addEventListener("visibilitychange", () => (document.hidden ? this._leave() : this._connect()));
    addEventListener("pagehide", () => this._leave());
    addEventListener("pageshow", () => this._connect());
    this._connect();
  }

  _leave() {
    this._stream?.close();
    this._stream = null;
  }

  /** Connect, unless the page is hidden or connected, or the recording has ended. */
  _connect() {
    if (document.hidden || this._stream !== null || this.head.status !== "open") return;
    const stream = new EventSource(`${this._url}/follow?position=${encodeURIComponent(this.head.position ?? "")}`);
    this._stream = stream;
    const away = (/** @type {boolean} */ is) => {
      if (this.away === is || this._stream !== stream) return;
      this.away = is;
      this.onchange(["head"]);
    };
    stream.addEventListener("open", () => away(false));
    stream.addEventListener("error", () => away(true));
    stream.addEventListener("unavailable", () => away(true));
    stream.addEventListener("waiting", () => away(true)); // it was removed
    stream.addEventListener("recorders", (event) => {
      if (this._stream === stream) this._recorded(JSON.parse(event.data)).catch((error) => this.onfailure(error));
    });
    stream.addEventListener("more", (event) => {
      away(false);
      const batch = JSON.parse(event.data);
      this._next(async () => {
        // After the stream was closed, a new one begins at the position: its events come again.
        if (this._stream === stream) await this._take(batch, event.lastEventId);
      }).catch((error) => this.onfailure(error));
    });
    stream.addEventListener("behind", () => location.reload());
    stream.addEventListener("closed", () => {
      this._leave();
      this._next(async () => {
        Object.assign(this.head, await json(`${this._url}/head`));
        this.onchange(["head"]);
        if (this.head.events <= EXAMINED) await this.examine();
      });
    });
  }

  /** Note the states of the recorders: what was examined before is out of date, or can be examined now.
   * @param {import("./types").Recorder[]} recorders */
  async _recorded(recorders) {
    const was = isLive(this.head);
    this.head.recorders = recorders;
    const is = isLive(this.head);
    if (is && !was) {
      Object.assign(this.head, { problems: null, verify: null });
      this.examining = false;
    }
    if (is !== was) this.onchange(["head"]);
    if (is || !was) return;
    const { head, events, kinds } = await json(`${this._url}/head`);
    Object.assign(this.head, { head, events, kinds });
    this.onchange(["head"]);
    if (events <= EXAMINED) await this.examine();
  }

  /** Ask for what takes longer than the head: problems, and the verification. */
  async examine() {
    this.examining = true;
    this.onchange(["head"]);
    for (const name of /** @type {const} */ (["problems", "verify"])) {
      Object.assign(this.head, { [name]: await this._answer(`${this._url}/${name}`) });
      this.onchange(["head"]);
    }
  }

  /** Return an answer, when the messages are there and the projection is up to date. @param {string} url */
  async _answer(url) {
    await this._first;
    for (;;) {
      const found = await json(url);
      this.head.building = found.building ?? null;
      if (!found.building) return found;
      this.onchange(["head"]);
      await new Promise((done) => setTimeout(done, 1000));
    }
  }

  /** @param {any} batch @param {string} position the tail position behind it */
  async _take(batch, position) {
    const keys = ["live"];
    const first = this.messages.length ? this.messages.cursor(0) : "";
    if (position) this.head.position = position;
    if (batch.names) this.messages.name(batch.names);
    for (const chunk of batch.chunks ?? []) {
      if (!this.complete && !this.atEnd) continue;
      await this.messages.add(fromBase64(chunk));
      keys.push("messages");
    }
    for (const [cursor, ...received] of batch.received ?? []) {
      const [recorder, messager, delay, arrival] = received;
      this.messages.receive(cursor, [{ recorder, messager, delay, arrival }]);
    }
    if (this.complete && this.messages.length > WHOLE) {
      this.complete = false;
      this._reached = { before: true, after: true };
    }
    if (!this.complete && this.atEnd) {
      // A message that was committed late and belongs in front of a window: others between them are not there.
      const late = !this._reached.before && first !== "" && this.messages.cursor(0) !== first;
      if (late) await this._begin("", true);
      if (this.messages.trim(WINDOW)) this._reached.before = false;
    }
    if (batch.marks?.length || batch.gaps?.length) {
      this.head.marks.push(...(batch.marks ?? []));
      this.head.gaps.push(...(batch.gaps ?? []));
      keys.push("head");
    }
    if (batch.last_ts) this.head.last_ts = batch.last_ts;
    if (batch.first_ts) this.head.first_ts ??= batch.first_ts;
    if (this.head.messages !== null) this.head.messages += batch.messages;
    if (!this.complete) this._found();
    this.onchange(keys);
  }

  /** Add an answer to the messages; return the number of rows. @param {Record<string, string>} place
   * @param {{ before?: boolean, fresh?: boolean }} how */
  async _load(place, how) {
    return this.messages.add((await this._fetch(place)).chunk, how);
  }

  /** Return a chunk, and the cursor of its last message; null for none. @param {Record<string, string>} place */
  async _fetch(place) {
    const query = new URLSearchParams(this._filter);
    if (this.head.position) query.set("position", this.head.position);
    for (const [key, value] of Object.entries(place)) if (value) query.set(key, value);
    const answer = await fetch(`${this._url}/messages?${query}`);
    if (!answer.ok) throw new Error(await reason(answer));
    return { chunk: new Uint8Array(await answer.arrayBuffer()), last: answer.headers.get("last") };
  }

  /** Run a load after the ones before it. @template T @param {() => Promise<T>} load @returns {Promise<T>} */
  _next(load) {
    const result = this._loading.then(load);
    this._loading = result.catch(() => {});
    return result;
  }
}

/** Return the head of an experiment; null if it does not exist yet. @param {string} exp @returns {Promise<Head | null>} */
export async function firstHead(exp) {
  const answer = await fetch(`/api/run/${encodeURIComponent(exp)}/head`);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

/** Return a JSON answer of the server. @param {string} url */
export async function json(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

/** @param {Response} answer */
async function reason(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

/** @param {Filter} filter */
function parameters(filter) {
  const found = new URLSearchParams();
  if (filter.q) found.set("q", filter.q);
  for (const id of filter.agents) found.append("agent", id);
  for (const id of filter.between.length === 2 ? filter.between : []) found.append("between", id);
  for (const channel of filter.channels) found.append("channel", channel);
  for (const kind of filter.kinds) found.append("kind", kind);
  if (filter.since !== null) found.set("since", String(filter.since));
  if (filter.until !== null) found.set("until", String(filter.until));
  return found;
}
