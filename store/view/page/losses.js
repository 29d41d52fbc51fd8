/** Messages of which nobody received anything: whether they are lost, and why. */

/** @typedef {import("./messages.js").Messages} Messages */
/** @typedef {import("./types").Head} Head */
/** @typedef {import("./types").Problem} Problem */

const NEVER = "never arrived";

export class Losses {
  /** @param {Messages} messages @param {Head} head */
  constructor(messages, head) {
    this._messages = messages;
    /** Whether anybody's receptions were recorded. */
    this.listeners = (head.kinds.received ?? 0) > 0;
    const details = head.problems?.details ?? [];
    const never = details.filter(({ kind }) => kind === NEVER);
    this._judged = head.problems?.examined === true && (head.problems.counts[NEVER] ?? 0) <= never.length;
    this._closed = head.status === "closed";
    /** @type {Map<string, Problem[]>} */
    this._problems = new Map();
    for (const problem of details) {
      if (problem.message === null) continue;
      const known = this._problems.get(problem.message);
      if (known) known.push(problem);
      else this._problems.set(problem.message, [problem]);
    }
  }

  /** Return the problems of a message. @param {number} row @returns {Problem[]} */
  problems(row) {
    return this._problems.get(this._messages.cursor(row)) ?? [];
  }

  /** Return what is known of a message without receptions: `sent` if nobody's receptions were recorded.
   * @param {number} row @returns {"sent" | "lost" | "unknown"} */
  kind(row) {
    if (!this.listeners || this._messages.kind[row] === RECEIVED) return "sent";
    if (this.problems(row).some(({ kind }) => kind === NEVER)) return "lost";
    return this._judged || !this._closed ? "unknown" : "lost";
  }
}

const RECEIVED = 2;
