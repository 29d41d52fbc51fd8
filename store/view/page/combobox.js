/** A field that completes names, of which there may be thousands. */

import { h, shortId, visible } from "./dom.js";
import { fold } from "./fold.js";
import { numberText } from "./time.js";

/** Names that are offered at once. */
const OFFERED = 50;

/** @typedef {{ value: string, text: string, count: number | null }} Choice */

let combos = 0;

/**
 * Return a field with its list.
 * @param {object} how
 * @param {string} how.label
 * @param {() => Choice[]} how.choices read each time the field is entered
 * @param {(choice: Choice) => void} how.choose
 * @returns {{ element: HTMLElement, input: HTMLInputElement, clear: () => void }}
 */
export function combobox({ label, choices, choose }) {
  combos += 1;
  const id = `choices-${combos}`;
  /** @type {{ folded: string, choice: Choice }[]} */
  let all = [];
  /** @type {Choice[]} */
  let offered = [];
  let active = -1;
  const list = h("ul", { role: "listbox", id, class: "choices", "aria-label": label, hidden: true });
  const input = h("input", {
    type: "text",
    role: "combobox",
    autocomplete: "off",
    spellcheck: false,
    "aria-label": label,
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": id,
    placeholder: label,
    on: { focus: enter, input: offer, keydown: pressed, blur: leave },
  });

  function enter() {
    all = choices().map((choice) => ({ folded: fold(choice.text), choice }));
    offer();
  }

  function leave() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function offer() {
    const wanted = fold(input.value.trim());
    const found = all.filter(({ folded }) => folded.includes(wanted));
    const first = found.filter(({ folded }) => folded.startsWith(wanted));
    const rest = found.filter(({ folded }) => !folded.startsWith(wanted));
    offered = [...first, ...rest].slice(0, OFFERED).map(({ choice }) => choice);
    active = wanted === "" ? -1 : 0;
    list.replaceChildren(...offered.map(option));
    if (found.length === 0) list.append(h("li", { class: "quiet", role: "option", "aria-disabled": "true" }, "nothing has this name"));
    if (found.length > OFFERED) list.append(h("li", { class: "quiet", role: "option", "aria-disabled": "true" }, `${numberText(found.length - OFFERED)} more: type more of the name`));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    activate();
  }

  /** @param {Choice} choice @param {number} at */
  function option(choice, at) {
    const count = choice.count === null ? null : h("span", { class: "quiet" }, numberText(choice.count));
    const element = h("li", { role: "option", id: `${id}-${at}`, title: shortId(choice.value) }, h("bdi", {}, visible(choice.text)), count);
    element.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      take(choice);
    });
    return element;
  }

  function activate() {
    [...list.children].forEach((element, at) => element.setAttribute("aria-selected", String(at === active)));
    if (active < 0) {
      input.removeAttribute("aria-activedescendant");
      return;
    }
    input.setAttribute("aria-activedescendant", `${id}-${active}`);
    list.children[active]?.scrollIntoView({ block: "nearest" });
  }

  /** @param {Choice} choice */
  function take(choice) {
    input.value = choice.text;
    leave();
    choose(choice);
  }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) offer();
      const step = event.key === "ArrowDown" ? 1 : -1;
      active = Math.max(Math.min(active + step, offered.length - 1), offered.length ? 0 : -1);
      activate();
    } else if (event.key === "Enter" && offered[active]) take(offered[active]);
    else if (event.key === "Escape" && !list.hidden) leave();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  return {
    element: h("div", { class: "combobox" }, input, list),
    input,
    clear() {
      input.value = "";
    },
  };
}
