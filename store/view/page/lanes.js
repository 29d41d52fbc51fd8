/** Lanes of the sequence: the agents of the messages that are shown, then Messagers without a known agent. */

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./receivers.js").Receivers} Receivers */

/**
 * @typedef {object} Lane
 * @property {number} key see receivers.js; NaN for the others
 * @property {string} text
 * @property {string} title
 * @property {number} count messages sent and received
 */

/** Maximum of lanes beside that of the others. */
export const MOST = 40;
/** Characters up to which the name of a Messager is written out: longer ones are random. */
const READABLE = 16;

/** The lanes of messages. */
export class Lanes {
  /**
   * @param {Messages} messages
   * @param {Receivers} receivers
   * @param {Int32Array} rows
   * @param {{ byActivity?: boolean, pinned?: number[] }} [how] `pinned`: lanes to keep in any case
   */
  constructor(messages, receivers, rows, { byActivity = false, pinned = [] } = {}) {
    const { counts, order } = counted(messages, receivers, rows);
    for (const key of pinned) if (counts.of(key) === 0) order.push(key);
    order.sort((a, b) => Number(b > 0) - Number(a > 0));
    const active = [...order].sort((a, b) => counts.of(b) - counts.of(a));
    /** Number of lanes that are folded into the first one. */
    this.folded = 0;
    let kept = byActivity ? active.sort((a, b) => Number(b > 0) - Number(a > 0)) : order;
    if (order.length > MOST) {
      const chosen = new Set(pinned.slice(0, MOST));
      for (const key of active) {
        if (chosen.size === MOST) break;
        chosen.add(key);
      }
      kept = kept.filter((key) => chosen.has(key));
      this.folded = order.length - kept.length;
    }
    const { agents, messagers } = messages.names;
    const twice = duplicates(kept.map((key) => (key > 0 ? agents[key].text : "")));
    let unnamed = 0;
    /** @type {Lane[]} */
    this.list = kept.map((key) => {
      const count = counts.of(key);
      if (key > 0) {
        const { text, id } = agents[key];
        return { key, text: twice.has(text) ? id : text, title: text, count };
      }
      if (key === 0) return { key, text: "no sender", title: "messages without a sender", count };
      const name = messagers[0 - key];
      const text = `Messager ${name.length <= READABLE ? name : (unnamed += 1)}`;
      return { key, text, title: `Messager ${name}, without a known agent`, count };
    });
    if (this.folded > 0) {
      const count = counts.sum - kept.reduce((sum, key) => sum + counts.of(key), 0);
      const title = "to see them, filter by agent, channel or time";
      this.list.unshift({ key: NaN, text: `${this.folded} others`, title, count });
    }
    /** @type {Map<number, number>} */
    this._at = new Map(this.list.map(({ key }, at) => [key, at]));
  }

  /** Return the number of a lane from the left; that of the others if it is folded. @param {number} key */
  at(key) {
    return this._at.get(key) ?? 0;
  }

  /** Return the number of a lane from the left; -1 if it is not shown. @param {number} key */
  placeOf(key) {
    return this._at.get(key) ?? -1;
  }
}

/** Numbers by lane. */
class Counts {
  /** @param {number} messagers @param {number} agents */
  constructor(messagers, agents) {
    this._offset = messagers;
    this._counts = new Float64Array(messagers + agents);
    this.sum = 0;
  }

  /** Count a lane; return its number. @param {number} key */
  add(key) {
    this.sum += 1;
    return (this._counts[key + this._offset] += 1);
  }

  /** @param {number} key */
  of(key) {
    return this._counts[key + this._offset];
  }
}

/** Return the number of messages by lane, and the lanes in the order of first appearance.
 * @param {Messages} messages @param {Receivers} receivers @param {Int32Array} rows */
function counted(messages, receivers, rows) {
  const { to } = messages;
  const counts = new Counts(messages.names.messagers.length, messages.names.agents.length);
  /** @type {number[]} */
  const order = [];
  const count = (/** @type {number} */ key) => {
    if (counts.add(key) === 1) order.push(key);
  };
  for (const row of rows) {
    count(receivers.sender(row));
    if (messages.receptions(row).length > 0) for (const lane of receivers.lanes(row)) count(lane);
    else if (to[row] > 0) count(to[row]);
  }
  return { counts, order };
}

/** @param {string[]} texts */
function duplicates(texts) {
  const seen = new Set();
  return new Set(texts.filter((text) => seen.has(text) || !seen.add(text)));
}
