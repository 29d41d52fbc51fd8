/**
 * The source of a served page: all messages of a small experiment, a window of a large one, and what is recorded now.
 *
 * `store/view/server/` describes the answers. While `complete` is false, the messages are those of a filter around a
 * place; the others are loaded when the reader comes near the first or the last one.
 */

import { fromBase64 } from "./chunk.js";
import { activityOf, pairsOf } from "./counting.js";
import { rowsOf } from "./filter.js";
import { Messages } from "./messages.js";

/** @typedef {import("./types").Filter} Filter */
/** @typedef {import("./types").Head} Head */
/** @typedef {import("./types").Source} Source */

/** Messages of an experiment that is loaded as a whole, at most. */
const WHOLE = 300_000;
/** Messages of a window, at most. */
const WINDOW = 100_000;
/** Messages in one answer. */
const PAGE = 8_000;

/** @implements {Source} */
export class ServedSource {
  /** @param {Head} head @param {string} exp */
  constructor(head, exp) {
    this.head = head;
    this.messages = new Messages();
    this.served = true;
    this.complete = false;
    /** @type {number | null} */
    this.total = head.messages;
    /** True while the newest messages are added at the end; false after one scrolled back or chose a time. */
    this.atEnd = true;
    this._url = `/api/run/${encodeURIComponent(exp)}`;
    /** @type {URLSearchParams} */
    this._filter = new URLSearchParams();
    /** @type {Promise<unknown>} Loads, one after the other. */
    this._loading = Promise.resolve();
    /** @type {(keys: string[]) => void} */
    this.onchange = () => {};
  }

  /**
   * Load the messages: all, if they are not too many, else those around a place.
   * @param {Filter} filter @param {string} at cursor, or ""
   * @param {(done: number, total: number) => void} progress
   */
  async begin(filter, at, progress) {
    if (this.head.messages !== null && this.head.messages <= WHOLE) {
      await this._loadAll(progress);
    } else {
      await this.select(filter, at);
    }
  }

  /** @param {(done: number, total: number) => void} progress */
  async _loadAll(progress) {
    let after = "";
    for (;;) {
      const rows = await this._load({ after, limit: String(PAGE * 2) }, false);
      if (rows === 0) break;
      after = this.messages.cursor(this.messages.length - 1);
      progress(this.messages.length, this.head.messages ?? 0);
    }
    this.complete = true;
  }

  /** @param {Filter} filter @param {string} at */
  select(filter, at) {
    return this._next(async () => {
      if (this.complete) return;
      this._filter = parameters(filter);
      this.messages.clear();
      this.atEnd = at === "" && filter.since === null && filter.until === null && this.head.status === "open";
      if (this.atEnd) {
        await this._load({ before: "end", limit: String(PAGE) }, true);
      } else if (at) {
        await this._load({ after: at, limit: String(PAGE) }, false);
        await this._load({ before: at, and: at, limit: String(PAGE) }, true);
      } else {
        await this._load({ limit: String(PAGE) }, false);
      }
      this.onchange(["messages"]);
    });
  }

  /** @param {"before" | "after"} direction */
  more(direction) {
    return this._next(async () => {
      if (this.complete || this.messages.length === 0) return 0;
      const before = direction === "before";
      const row = before ? 0 : this.messages.length - 1;
      const rows = await this._load({ [direction]: this.messages.cursor(row), limit: String(PAGE) }, before, true);
      if (!before && rows === 0 && !this._filter.has("until")) this.atEnd = true;
      if (rows && this.messages.trim(WINDOW, { last: before }) && before) this.atEnd = false;
      if (rows) this.onchange(["messages"]);
      return rows;
    });
  }

  /** @param {Filter} filter @param {bigint} since @param {bigint} until @param {number} buckets
   * @param {"from" | "channel"} by */
  async activity(filter, since, until, buckets, by) {
    if (this.complete) {
      return activityOf(this.messages, rowsOf(this.messages, filter, { anyTime: true }), since, until, buckets, by);
    }
    const query = parameters({ ...filter, since, until });
    query.set("buckets", String(buckets));
    query.set("by", by);
    const found = await this._indexed(`${this._url}/activity?${query}`);
    this.messages.name(found.names);
    return {
      starts: Float64Array.from(found.starts),
      length: found.length,
      series: found.series.map((/** @type {any} */ one) => ({ ...one, counts: Float64Array.from(one.counts) })),
    };
  }

  /** @param {Filter} filter */
  async pairs(filter) {
    if (this.complete) return pairsOf(this.messages, rowsOf(this.messages, filter));
    const { names, pairs, others } = await this._indexed(`${this._url}/pairs?${parameters(filter)}`);
    this.messages.name(names);
    return others ? [...pairs, { from: -1, to: -1, count: others }] : pairs;
  }

  /** Follow the recording from `head.position`: new messages, marks and gaps are added as they are committed. */
  follow() {
    const stream = new EventSource(`${this._url}/follow?position=${encodeURIComponent(this.head.position ?? "")}`);
    stream.addEventListener("more", (event) => {
      const batch = JSON.parse(event.data);
      this._next(() => this._take(batch));
    });
    stream.addEventListener("behind", () => location.reload());
    stream.addEventListener("closed", () => {
      stream.close();
      this._next(async () => {
        Object.assign(this.head, await json(`${this._url}/head`));
        this.onchange(["head"]);
        await this.examine();
      });
    });
  }

  /** Ask for what takes longer than the head: problems, and the verification. */
  async examine() {
    for (const name of /** @type {const} */ (["problems", "verify"])) {
      Object.assign(this.head, { [name]: await this._indexed(`${this._url}/${name}`) });
      this.onchange(["head"]);
    }
  }

  /** Return an answer, when the experiment is indexed. @param {string} url */
  async _indexed(url) {
    for (;;) {
      const found = await json(url);
      this.head.indexing = found.indexing ?? null;
      if (!found.indexing) return found;
      this.onchange(["head"]);
      await new Promise((done) => setTimeout(done, 1000));
    }
  }

  /** @param {any} batch */
  async _take(batch) {
    const keys = ["live"];
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
    if (this.messages.length > WHOLE) this.complete = false;
    if (!this.complete && this.atEnd) this.messages.trim(WINDOW);
    if (batch.marks?.length || batch.gaps?.length) {
      this.head.marks.push(...(batch.marks ?? []));
      this.head.gaps.push(...(batch.gaps ?? []));
      keys.push("head");
    }
    if (batch.last_ts) this.head.last_ts = batch.last_ts;
    if (batch.first_ts) this.head.first_ts ??= batch.first_ts;
    if (typeof batch.messages === "number") this.head.messages = (this.head.messages ?? 0) + batch.messages;
    this.onchange(keys);
  }

  /** Add an answer to the messages; return the number of rows. @param {Record<string, string>} place
   * @param {boolean} before @param {boolean} [now] also those behind the position of the head */
  async _load(place, before, now = false) {
    const query = new URLSearchParams(this._filter);
    if (this.head.position && !now) query.set("position", this.head.position);
    for (const [key, value] of Object.entries(place)) if (value) query.set(key, value);
    const answer = await fetch(`${this._url}/messages?${query}`);
    if (!answer.ok) throw new Error(await reason(answer));
    return this.messages.add(new Uint8Array(await answer.arrayBuffer()), { before });
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
