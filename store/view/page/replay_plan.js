/** The question before a replay: where it publishes, and under which names. */

import { h, label, visible } from "./dom.js";
import { plural } from "./time.js";

/**
 * @param {string} exp_id
 * @param {(verb: string, given: Record<string, unknown>) => Promise<any>} post
 * @param {{ start: (to_exp: string | null) => Promise<void>, cancel: () => void }} how
 */
export function replayPlan(exp_id, post, how) {
  const name = h("input", { type: "text", size: 30, spellcheck: false, autocomplete: "off", on: { change: () => ask() } });
  const text = h("div", { class: "replay-targets", "aria-live": "polite" });
  const go = h("button", { type: "submit" }, "Start, paused");
  const cancel = h("button", { type: "button", on: { click: () => close(true) } }, "Cancel");
  const element = h(
    "form",
    { class: "replay-plan", hidden: true, "aria-label": "start a replay" },
    text,
    h("label", {}, "publish on the channels of experiment ", name),
    h("p", { class: "quiet" }, "Empty: on the recorded channels."),
    h("p", {}, go, " ", cancel),
  );
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true; // as while `ask` waits: what it shows is to be read first
    await how.start(asked || null);
    go.disabled = false;
  });
  element.addEventListener("keydown", (event) => {
    event.stopPropagation(); // keys of the page
    if (event.key === "Escape") close(true);
  });
  /** The name that `text` is about. @type {string | null} */
  let asked = null;

  /** Show where the replay would publish; with `proposed`, under a name that the server proposes. */
  async function ask(proposed = false) {
    const wanted = name.value.trim();
    go.disabled = true;
    try {
      const plan = await post("plan", { exp_id, ...(proposed ? {} : { to_exp: wanted || null }) });
      if (proposed) name.value = plan.to_exp ?? "";
      else if (name.value.trim() !== wanted) return; // another answer comes
      asked = plan.to_exp ?? "";
      text.replaceChildren(...described(plan));
      go.disabled = false;
    } catch (error) {
      asked = null;
      text.replaceChildren(h("p", { class: "replay-error" }, visible(String(/** @type {Error} */ (error).message))));
    }
  }

  /** @param {boolean} cancelled */
  function close(cancelled) {
    element.hidden = true;
    if (cancelled) how.cancel();
  }

  return {
    element,
    /** Return whether the question is open. */
    get opened() {
      return !element.hidden;
    },
    async open() {
      element.hidden = false;
      await ask(true);
      name.focus();
    },
    close: () => close(false),
  };
}

/** @param {any} plan @returns {HTMLElement[]} */
function described(plan) {
  const more = plan.channels_of - plan.channels.length;
  const found = [
    h("p", {}, `This publishes ${plan.at_least ? "at least " : ""}${plural(plan.messages, "message")} to `, h("strong", {}, label(plan.broker)), ` on ${plural(plan.channels_of, "channel")}:`),
    h("ul", {}, ...plan.channels.map((/** @type {string} */ each) => h("li", {}, label(each, "mono"))), more > 0 ? h("li", {}, `and ${more} more`) : null),
  ];
  if (plan.original) {
    const which = plan.original === plan.channels_of ? "These are" : `${plural(plan.original, "channel")} of these are`;
    found.push(h("p", { class: "replay-warning" }, `${which} as they were recorded: a system that is running on this broker receives the messages.`));
  }
  return found;
}
