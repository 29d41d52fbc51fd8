/** The payload of a message: as a tree, as text, as bytes; copied, and saved. */

import { copy } from "./copying.js";
import { h } from "./dom.js";
import { isJson } from "./json_text.js";
import { jsonTree } from "./json_tree.js";
import { PAYLOAD_CUT, REDACTED } from "./messages.js";
import { numberText, plural } from "./time.js";

/** @typedef {import("./types").App} App */

/** Characters of a text, and bytes, that are shown at first, and by each "more". */
const CHARACTERS = 20_000;
const BYTES = 2048;
/** Bytes in a line, and in one of a narrow panel. */
const WIDTH = 16;
const NARROW = 8;
/** Pixels of a panel that has room for 16 bytes. */
const ROOM = 560;

/**
 * Return the panel of a message's payload.
 * @param {App} app @param {number} row
 * @returns {HTMLElement}
 */
export function payloadPanel(app, row) {
  const { messages } = app;
  const size = messages.size[row];
  const element = h("section", { class: "payload", "aria-label": "payload" }, h("h3", {}, `Payload, ${plural(size, "byte")}`));
  if (messages.flags[row] & REDACTED) {
    element.append(h("p", { class: "quiet" }, "The payload was redacted."));
    return element;
  }
  const cursor = messages.cursor(row);
  const isCut = (messages.flags[row] & PAYLOAD_CUT) !== 0;
  messages.payload(row).then(
    (bytes) => {
      if (isCut) {
        const note = `The page has the first ${numberText(bytes.length)} bytes of this payload. The store has all of it.`;
        element.append(h("p", { class: "quiet" }, note));
      }
      element.append(...content(app, bytes, cursor));
    },
    (error) => element.append(h("p", { class: "failed-note" }, `The payload cannot be read: ${error.message}`)),
  );
  return element;
}

/** @param {App} app @param {Uint8Array} bytes @param {string} cursor */
function content(app, bytes, cursor) {
  const text = textOf(bytes);
  /** @type {[string, () => HTMLElement][]} */
  const forms = [];
  if (text !== null && isJson(text)) forms.push(["JSON", () => jsonTree(text)]);
  if (text !== null) forms.push(["Text", () => longText(text)]);
  const shown = h("div", { class: "payload-content" });
  forms.push(["Bytes", () => hexDump(bytes, lineOf(shown))]);
  const buttons = forms.map(([name, make]) =>
    h("button", { type: "button", on: { click: (/** @type {Event} */ event) => show(event.currentTarget, make) } }, name),
  );
  /** @param {EventTarget | null} chosen @param {() => HTMLElement} make */
  const show = (chosen, make) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === chosen));
    shown.replaceChildren(make());
  };
  show(buttons[0], forms[0][1]);
  const copied = h("button", { type: "button", on: { click: () => copy(app, text ?? hexText(bytes, 0, bytes.length)) } }, text === null ? "Copy bytes" : "Copy");
  const saved = h("button", { type: "button", on: { click: () => save(bytes, cursor) } }, "Save");
  return [h("div", { class: "buttons" }, h("span", { class: "joined", role: "group", "aria-label": "form" }, ...buttons), copied, saved), shown];
}

/** Return bytes as text; null if they are not UTF-8. @param {Uint8Array} bytes */
export function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** @param {string} text */
function longText(text) {
  const shown = h("pre", { class: "payload-text", dir: "auto", tabIndex: 0 });
  return inParts(shown, text.length, CHARACTERS, (from, until) => text.slice(from, until));
}

/** Return the bytes in a line. @param {HTMLElement} shown where they are shown; of no width until it is on the page */
function lineOf(shown) {
  const width = shown.clientWidth || (document.querySelector(".details-content")?.clientWidth ?? 0);
  return width < ROOM ? NARROW : WIDTH;
}

/** @param {Uint8Array} bytes @param {number} width bytes in a line */
function hexDump(bytes, width) {
  const shown = h("pre", { class: "payload-bytes", tabIndex: 0 });
  return inParts(shown, bytes.length, BYTES, (from, until) => hexText(bytes, from, until, width));
}

/**
 * Show a text part by part.
 * @param {HTMLElement} shown @param {number} length @param {number} step
 * @param {(from: number, until: number) => string} part
 */
function inParts(shown, length, step, part) {
  let end = 0;
  const button = h("button", { type: "button", class: "more" });
  const next = () => {
    const until = Math.min(end + step, length);
    shown.append(part(end, until));
    end = until;
    button.textContent = `more (${numberText(length - end)} left)`;
    button.hidden = end === length;
  };
  button.addEventListener("click", next);
  next();
  return h("div", {}, shown, button);
}

/**
 * Return a hex dump: offset, bytes, and those that are ASCII.
 * @param {Uint8Array} bytes @param {number} from @param {number} until @param {number} [width] bytes in a line
 */
export function hexText(bytes, from, until, width = WIDTH) {
  const lines = [];
  for (let at = from; at < until; at += width) {
    const part = [...bytes.subarray(at, Math.min(at + width, until))];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const ascii = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(width * 3)} ${ascii}\n`);
  }
  return lines.join("");
}

/** Save bytes as a file. @param {Uint8Array} bytes @param {string} cursor */
function save(bytes, cursor) {
  const url = URL.createObjectURL(new Blob([/** @type {Uint8Array<ArrayBuffer>} */ (bytes)], { type: "application/octet-stream" }));
  h("a", { href: url, download: `payload-${cursor.replaceAll(":", "-")}.bin` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
