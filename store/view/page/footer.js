/** What the page can be checked by: the chain hash, the result of its verification, and how the page was made. */

import { isLive } from "./describing.js";
import { h, visible } from "./dom.js";
import { numberText } from "./time.js";

/** @typedef {import("./types").App} App */

/** @param {App} app @returns {import("./types").View} */
export function footer(app) {
  const element = h("footer", { class: "footer" });
  return {
    element,
    update(changed) {
      if (changed.has("head")) element.replaceChildren(...content(app));
    },
  };
}

/** @param {App} app */
function content(app) {
  const { head, verify, made } = app.head;
  const changes = app.source.served && isLive(app.head);
  const cited = head === null ? "" : h("span", {}, "head ", h("code", { title: `chain hash of the experiment: ${head}` }, `${head.slice(0, 12)}…`), " ", copyButton(app, head));
  return [
    changes ? h("span", { class: "quiet" }, "head: none while it is recorded") : cited,
    verdict(app, verify),
    h("span", { class: "quiet made" }, madeText(made)),
    h("span", { class: "quiet" }, leavingText(app.head)),
  ];
}

/** Return by what and when the page was made. @param {import("./types").Head["made"]} made */
export function madeText({ version, at }) {
  return `messager ${visible(version)}, made ${visible(at.slice(0, 16).replace("T", " "))} UTC`;
}

/** Return what leaves the machine. @param {import("./types").Head} head */
function leavingText({ replay }) {
  if (!replay?.allowed) return "Nothing on this page leaves your machine.";
  const broker = replay.broker === null ? "its broker" : visible(replay.broker);
  return `A replay publishes to ${broker}; nothing else leaves your machine.`;
}

/** @param {App} app @param {string} head */
function copyButton(app, head) {
  const button = h("button", { type: "button", class: "copy", "aria-label": "copy the chain hash" }, "copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(head);
      button.textContent = "copied";
    } catch {
      const code = button.parentElement?.querySelector("code");
      if (code) {
        code.textContent = head;
        getSelection()?.selectAllChildren(code);
      }
      button.textContent = "selected";
    }
    app.say(`chain hash ${button.textContent}`);
  });
  return button;
}

/** @param {App} app @param {import("./types").Head["verify"]} verify */
function verdict({ head, source }, verify) {
  const { events, selection, shared } = head;
  if (shared) return h("span", { class: "quiet" }, `not the recorded messages (${visible(shared)}): nothing here can be verified`);
  if (verify === null) {
    const text = source.examining ? "verifying …" : source.served && isLive(head) ? "not verified: still recorded" : "not verified";
    return h("span", { class: "quiet" }, text);
  }
  if (verify.ok) {
    const whole = selection ? " of the whole experiment" : "";
    const title = verify.notes.map(visible).join("\n");
    return h("span", { class: "verified", title }, `✓ verified: ${numberText(events)} events${whole}, chain intact`);
  }
  const [first, ...others] = verify.problems.map(visible);
  return h(
    "details",
    { class: "unverified" },
    h("summary", {}, `✗ NOT verified: ${first ?? "unknown problem"}${others.length ? ` and ${others.length} more` : ""}`),
    h("ul", {}, [first ?? "", ...others, ...verify.notes.map(visible)].map((one) => h("li", {}, one))),
  );
}
