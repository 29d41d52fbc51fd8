/**
 * A list of any number of items of different heights, of which only those near the visible part are elements.
 *
 * The place is an item and the distance of the visible part's top from the top of that item, and not the position of the
 * scroll bar: so it stays where it is when items above it are added, dropped or measured. A short scroll moves the place
 * by as many pixels; a long one, such as with the mouse on the bar, to the item at that fraction of the list. While
 * nothing scrolls, the bar is set to the place (`_align`). Hence no height but those of the present elements is known,
 * and a list of millions may be higher than a browser's highest element.
 */

import { h } from "./dom.js";

/** Height of the scrolled area at most, px: browsers limit it, Firefox to 17 millions. */
const HIGHEST = 8_000_000;
/** ms without scrolling after which the bar is set to the place. */
const REST = 120;

export class VirtualList {
  /**
   * @param {object} how
   * @param {string} how.label name for screen readers
   * @param {(at: number) => string} how.key what the element of an item depends on
   * @param {(at: number) => HTMLElement} how.make
   * @param {() => void} how.placed called after the place changed
   */
  constructor({ label, key, make, placed }) {
    this._key = key;
    this._make = make;
    this._placed = placed;
    this.count = 0;
    /** The place: an item, and px from its top to the top of the visible part. */
    this.at = 0;
    this.offset = 0;
    /** Items that have elements: from `first` until before `end`. */
    this.first = 0;
    this.end = 0;
    /** Whether the first, or the last, item is wholly visible. */
    this.atStart = true;
    this.atEnd = true;
    /** @type {Map<string, HTMLElement>} */
    this._made = new Map();
    /** @type {number[]} Heights of the items that have elements. */
    this._heights = [];
    this._measured = { sum: 0, count: 0 };
    /** Height of the visible part, px. */
    this.height = 0;
    this._width = 0;
    this._top = 0;
    this._rest = 0;
    this._inner = h("div", { class: "list-items" });
    this._area = h("div", { class: "list-area" }, this._inner);
    this.element = h(
      "div",
      { class: "list", role: "feed", tabIndex: 0, "aria-label": label, on: { scroll: () => this._scrolled() } },
      this._area,
    );
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  /**
   * Set the number of items, and the place.
   * @param {number} count
   * @param {number} at
   * @param {number} offset
   * @param {{ fresh?: boolean }} [how] `fresh`: make all elements again
   */
  set(count, at, offset, { fresh = false } = {}) {
    if (fresh) this._made.clear();
    this.count = count;
    this.move(at, offset);
  }

  /** Go to a place. @param {number} at @param {number} offset */
  move(at, offset) {
    this.at = Math.max(0, Math.min(at, this.count - 1));
    this.offset = at === this.at ? offset : 0;
    this._draw(true);
    this._align();
  }

  /** Go to the end. */
  moveToEnd() {
    this.move(this.count - 1, 0);
  }

  /** Scroll by px. @param {number} distance */
  moveBy(distance) {
    this.move(this.at, this.offset + distance);
  }

  /** Make an item visible: in the middle if it is far away. @param {number} at */
  reveal(at) {
    const top = this.topOf(at);
    if (top === null) return this.center(at);
    const height = this.heightOf(at) ?? 0;
    if (top < 0 || height > this.height) this.moveBy(top - 8);
    else if (top + height > this.height) this.moveBy(top + height - this.height + 8);
  }

  /** Show an item in the middle; from its top if it is high. @param {number} at */
  center(at) {
    const top = this.topOf(at);
    const missing = top === null ? 0 : top + ((this.heightOf(at) ?? 0) - this.height) / 2;
    if ((missing < 0 && this.atStart) || (missing > 0 && this.atEnd)) return;
    this.move(at, -this.height / 2);
    this.move(at, Math.min(((this.heightOf(at) ?? 0) - this.height) / 2, 0));
  }

  /** Return px from the top of the visible part to an item; null if it has no element. @param {number} at */
  topOf(at) {
    if (at < this.first || at >= this.end) return null;
    let top = -this.offset;
    for (let each = this.at; each < at; each += 1) top += this._heights[each - this.first];
    for (let each = at; each < this.at; each += 1) top -= this._heights[each - this.first];
    return top;
  }

  /** Return the height of an item; null if it has no element. @param {number} at */
  heightOf(at) {
    return this._heights[at - this.first] ?? null;
  }

  /** Return the element of an item; null if it has none. @param {number} at @returns {HTMLElement | null} */
  elementOf(at) {
    return /** @type {HTMLElement | undefined} */ (this._inner.children[at - this.first]) ?? null;
  }

  /** Measure again if the size changed, and keep a place. @param {number} [at] @param {number} [offset] */
  resize(at = this.at, offset = this.offset) {
    const { clientHeight, clientWidth } = this.element;
    if (clientHeight === this.height && clientWidth === this._width) return;
    const ended = this.atEnd && !this.atStart;
    this.height = clientHeight;
    this._width = clientWidth;
    if (this.height === 0 || this.count === 0) return;
    if (ended) this.moveToEnd();
    else this.move(at, offset);
  }

  _scrolled() {
    const top = this.element.scrollTop;
    const distance = top - this._top;
    if (distance === 0 || this.height === 0) return;
    this._top = top;
    if (Math.abs(distance) <= 2 * this.height) this.offset += distance;
    else this._jump(top);
    this._draw(false);
    clearTimeout(this._rest);
    const most = this._most();
    if ((top <= 0 && !this.atStart) || (top >= most - 1 && !this.atEnd)) this._align();
    else this._rest = setTimeout(() => this._rested(), REST);
  }

  /** Set the bar to the place, unless it was moved and the event is still to come. */
  _rested() {
    if (this.element.scrollTop === this._top) this._align();
    else this._scrolled();
  }

  /** Go to the item at a fraction of the list. @param {number} top */
  _jump(top) {
    const most = this._most();
    if (top >= most - 1) {
      this.at = this.count - 1;
      this.offset = 0;
      return;
    }
    const place = (Math.max(top, 0) / most) * this._lastPlace();
    this.at = Math.floor(place);
    this.offset = (place - this.at) * this._mean();
  }

  /** Set the height of the area and the bar to the place. */
  _align() {
    clearTimeout(this._rest);
    if (this.height === 0) return;
    const above = this._sum(this.first, this.at) + this.offset;
    const below = this._sum(this.at, this.end) - this.offset - this.height;
    const whole = this.first === 0 && this.end === this.count;
    const height = whole ? above + this.height + below : Math.max(this.count * this._mean(), 3 * this.height + above + below);
    this._area.style.height = `${Math.max(Math.min(height, HIGHEST), this.height)}px`;
    const most = this._most();
    let top = ((this.at + this.offset / this._mean()) / this._lastPlace()) * most;
    if (this.first === 0) top = above;
    else if (this.end === this.count) top = most - below;
    else top = Math.max(this.height, Math.min(top, most - this.height));
    this.element.scrollTop = top;
    this._top = this.element.scrollTop;
    this._shift();
    this._placed();
  }

  /** Make the elements around the place. @param {boolean} measure measure those that are there, too */
  _draw(measure) {
    if (this.height === 0) this.height = this.element.clientHeight;
    if (this.height === 0 || this.count === 0) return;
    const beyond = this.height * 0.75;
    for (let turn = 0; turn < 5; turn += 1) {
      if (turn > 0 || !measure) {
        this._settle();
        if (this._covers(turn > 0 ? 0 : beyond / 2)) break;
      }
      this._take(...this._needed(beyond));
    }
    this._settle();
    this._shift();
    this._placed();
  }

  /** Return whether the elements reach px beyond the visible part. @param {number} beyond */
  _covers(beyond) {
    if (this.at < this.first || this.at >= this.end) return false;
    const above = this._sum(this.first, this.at) + this.offset;
    const below = this._sum(this.at, this.end) - this.offset - this.height;
    return (above >= beyond || this.first === 0) && (below >= beyond || this.end === this.count);
  }

  /** Return the items that are needed, by known and estimated heights. @param {number} beyond @returns {[number, number]} */
  _needed(beyond) {
    const mean = this._mean();
    let first = this.at;
    for (let top = -this.offset; top > -beyond && first > 0; ) top -= this.heightOf((first -= 1)) ?? mean;
    let end = this.at;
    for (let top = -this.offset; top < this.height + beyond && end < this.count; end += 1) top += this.heightOf(end) ?? mean;
    // At the end, the visible part is filled from below.
    if (end === this.count) {
      for (let top = this.height + beyond; top > 0 && end > 0; ) top -= this.heightOf((end -= 1)) ?? mean;
      first = Math.min(first, end);
      end = this.count;
    }
    return [first, Math.max(end, this.at + 1)];
  }

  /** Have the elements of these items, and measure them. @param {number} first @param {number} end */
  _take(first, end) {
    const keys = Array.from({ length: end - first }, (_, at) => this._key(first + at));
    const made = new Map(keys.map((key, at) => [key, this._made.get(key) ?? this._make(first + at)]));
    const kept = new Set(made.values());
    for (const element of [...this._inner.children]) if (!kept.has(/** @type {HTMLElement} */ (element))) element.remove();
    let next = this._inner.firstElementChild;
    for (const element of kept) {
      if (element === next) next = next.nextElementSibling;
      else this._inner.insertBefore(element, next);
    }
    this._made = made;
    this.first = first;
    this.end = end;
    this._heights = [...this._inner.children].map((element) => element.getBoundingClientRect().height);
    this._measured.sum += this._sum(first, end);
    this._measured.count += end - first;
    if (this._measured.count > 4000) {
      this._measured.sum /= 2;
      this._measured.count /= 2;
    }
  }

  /** Name the place by the topmost visible item, and keep it within the list. */
  _settle() {
    if (this.at < this.first || this.at >= this.end) return;
    this._carry();
    if (this.end === this.count) {
      const missing = this.height - (this._sum(this.at, this.end) - this.offset);
      if (missing > 0) {
        this.offset -= missing;
        this._carry();
      }
    }
    if (this.at === 0 && this.offset < 0) this.offset = 0;
    this.atStart = this.at === 0 && this.offset < 1;
    this.atEnd = this.end === this.count && this._sum(this.at, this.end) - this.offset - this.height < 2;
  }

  _carry() {
    while (this.offset < 0 && this.at > this.first) this.offset += this._heights[(this.at -= 1) - this.first];
    while (this.at < this.end - 1 && this.offset >= this._heights[this.at - this.first]) {
      this.offset -= this._heights[this.at - this.first];
      this.at += 1;
    }
  }

  _shift() {
    const top = this._top - this._sum(this.first, this.at) - this.offset;
    this._inner.style.transform = `translateY(${Math.round(top)}px)`;
  }

  /** Sum of heights from an item with an element until before another. @param {number} first @param {number} end */
  _sum(first, end) {
    let sum = 0;
    for (let at = first; at < end; at += 1) sum += this._heights[at - this.first];
    return sum;
  }

  _mean() {
    return this._measured.count ? Math.max(this._measured.sum / this._measured.count, 1) : 40;
  }

  /** The place, as a fractional item, at which the end is visible. */
  _lastPlace() {
    return Math.max(this.count - this.height / this._mean(), 1);
  }

  _most() {
    return Math.max(this.element.scrollHeight - this.element.clientHeight, 1);
  }
}
