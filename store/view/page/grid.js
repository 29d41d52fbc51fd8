/** A table of numbers, of which one cell at a time can be reached by Tab and the others by arrow keys. */

import { h } from "./dom.js";

/** @typedef {{ text: string, full: string, open: (() => void) | null, colour: string }} Heading */
/** @typedef {{ text: string, full: string, open: (() => void) | null, share: number, chosen: boolean }} Cell */
/**
 * @typedef {object} Content
 * @property {string} label of the table
 * @property {string} corner
 * @property {Heading[]} rows
 * @property {Heading[]} columns
 * @property {Cell[][]} cells by row and column
 */

/** Columns above which their headings are vertical. */
const WIDE = 8;
/** @type {Record<string, [number, number]>} */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Grid {
  constructor() {
    this.table = h("table", { role: "grid", class: "numbers" });
    /** @type {HTMLElement[][]} Headings included. */
    this._cells = [];
    /** @type {Map<Element, () => void>} */
    this._open = new Map();
    /** @type {[number, number]} */
    this._at = [0, 0];
    this.table.addEventListener("click", (event) => this._clicked(event));
    this.table.addEventListener("keydown", (event) => this._pressed(event));
    this.table.addEventListener("focusin", (event) => this._focused(event));
  }

  /** Fill the table. The focused place stays. @param {Content} content */
  fill({ label, corner, rows, columns, cells }) {
    const focused = this.table.contains(document.activeElement);
    this._open.clear();
    const top = [
      h("th", { scope: "col", class: "corner", tabIndex: -1 }, corner),
      ...columns.map((each) => this._heading(each, "col", columns.length > WIDE)),
    ];
    this._cells = [top];
    const body = rows.map((each, row) => {
      const line = [this._heading(each, "row", false), ...cells[row].map((cell) => this._cell(cell))];
      this._cells.push(line);
      return h("tr", { role: "row" }, line);
    });
    this.table.setAttribute("aria-label", label);
    this.table.replaceChildren(h("thead", {}, h("tr", { role: "row" }, top)), h("tbody", {}, body));
    this._move(this._at[0], this._at[1], focused);
  }

  /** @param {Heading} heading @param {"row" | "col"} scope @param {boolean} vertical */
  _heading({ text, full, open, colour }, scope, vertical) {
    const name = h("bdi", {}, text);
    name.style.color = colour;
    const made = h(
      "th",
      {
        scope, title: full, tabIndex: -1, "aria-label": full,
        role: scope === "row" ? "rowheader" : "columnheader",
        class: `${vertical ? "vertical" : ""} ${open ? "opens" : ""}`,
      },
      name,
    );
    if (open) this._open.set(made, open);
    return made;
  }

  /** @param {Cell} cell */
  _cell({ text, full, open, share, chosen }) {
    const made = h("td", { role: "gridcell", tabIndex: -1, title: text ? full : null }, text);
    if (open) this._open.set(made, open);
    if (open) made.classList.add("opens");
    if (chosen) made.classList.add("chosen");
    if (share > 0) made.style.setProperty("--share", `${Math.round(share * 100)}%`);
    return made;
  }

  /** @param {number} row @param {number} column @param {boolean} focus */
  _move(row, column, focus) {
    this._cells[this._at[0]]?.[this._at[1]]?.setAttribute("tabindex", "-1");
    row = Math.min(Math.max(row, 0), this._cells.length - 1);
    column = Math.min(Math.max(column, 0), this._cells[0].length - 1);
    this._at = [row, column];
    const now = this._cells[row][column];
    now.tabIndex = 0;
    if (focus) now.focus();
  }

  /** @param {EventTarget | null} target */
  _place(target) {
    const found = target instanceof Element ? target.closest("th, td") : null;
    if (found === null) return null;
    const row = /** @type {HTMLTableRowElement} */ (found.parentElement).rowIndex;
    return /** @type {[number, number]} */ ([row, /** @type {HTMLTableCellElement} */ (found).cellIndex]);
  }

  /** @param {Event} event */
  _clicked(event) {
    const place = this._place(event.target);
    if (place !== null) this._open.get(this._cells[place[0]][place[1]])?.();
  }

  /** @param {Event} event */
  _focused(event) {
    const place = this._place(event.target);
    if (place !== null) this._move(...place, false);
  }

  /** @param {KeyboardEvent} event */
  _pressed(event) {
    if (event.metaKey || event.altKey) return;
    const [row, column] = this._at;
    const step = STEPS[event.key];
    if (step) this._move(row + step[0], column + step[1], true);
    else if (event.key === "Home") this._move(event.ctrlKey ? 0 : row, 0, true);
    else if (event.key === "End") this._move(event.ctrlKey ? this._cells.length : row, this._cells[0].length, true);
    else if (event.key === "Enter" || event.key === " ") this._open.get(this._cells[row][column])?.();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
