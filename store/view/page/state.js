/** The state of the page, kept in the fragment of the URL, so that a link opens the same place. */

/** Keys with one value. */
const ONE = [
  ...["view", "q", "since", "until", "at", "by", "run"],
  ...["empty"], // timeline
  ...["sort"], // problems
  ...["across", "matrix"], // matrix
  ...["scale", "lanes", "who", "back", "only"], // sequence
];
/** Keys with a time, ns UTC. */
const TIMES = ["since", "until"];
/** Keys with several values. */
const MANY = ["agent", "between", "channel", "kind"];
/** Without the trace of the searched word, which ends with the search. */
const NO_TRACE = { who: "", back: "", only: "" };
/** Keys of the moment, which are not in the URL. */
const MOMENT = ["playhead", "playing"];

export class State {
  /** @param {string} fragment @param {(keys: string[]) => void} changed called with the keys that changed */
  constructor(fragment, changed) {
    /** @type {Record<string, string>} */
    this.one = {};
    /** @type {Record<string, string[]>} */
    this.many = {};
    this._changed = changed;
    this._read(fragment);
  }

  /** Return the value of a key; "" if it has none. @param {string} key */
  get(key) {
    return this.one[key] ?? "";
  }

  /** Return the values of a key. @param {string} key */
  all(key) {
    return this.many[key] ?? [];
  }

  /**
   * Set keys. "" and [] remove a key.
   * @param {Record<string, string | string[]>} values
   */
  set(values) {
    const keys = [];
    const traced = values.q === "" && this.get("who") !== "";
    for (const [key, value] of Object.entries(traced ? { ...NO_TRACE, ...values } : values)) {
      if (Array.isArray(value)) {
        if (this.all(key).join("\0") === value.join("\0")) continue;
        this.many[key] = value;
      } else {
        if (this.get(key) === value) continue;
        this.one[key] = value;
      }
      keys.push(key);
    }
    if (keys.length) this._changed(keys);
  }

  /** Return the fragment of the URL, without "#". */
  fragment() {
    const found = new URLSearchParams();
    for (const key of ONE) if (this.get(key)) found.append(key, this.get(key));
    for (const key of MANY) for (const value of this.all(key)) found.append(key, value);
    return found.toString();
  }

  /** Take over a fragment, for example of another place of the history. @param {string} fragment */
  load(fragment) {
    const before = { one: this.one, many: this.many };
    const moment = MOMENT.map((key) => /** @type {[string, string]} */ ([key, this.get(key)]));
    this._read(fragment);
    for (const [key, value] of moment) if (value) this.one[key] = value;
    const keys = [
      ...ONE.filter((key) => (before.one[key] ?? "") !== this.get(key)),
      ...MANY.filter((key) => (before.many[key] ?? []).join("\0") !== this.all(key).join("\0")),
    ];
    if (keys.length) this._changed(keys);
  }

  /** @param {string} fragment */
  _read(fragment) {
    this.one = {};
    this.many = {};
    const given = new URLSearchParams(fragment.replace(/^#/, ""));
    for (const key of ONE) this.one[key] = given.get(key) ?? "";
    for (const key of TIMES) if (!/^-?\d{1,19}$/.test(this.one[key])) this.one[key] = "";
    for (const key of MANY) this.many[key] = given.getAll(key);
  }
}
