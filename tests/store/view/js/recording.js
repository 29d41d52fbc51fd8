/** A recording for tests of what agents knew: messages as the page holds them. */

import { KINDS, Messages } from "../../../../store/view/page/messages.js";

/**
 * Return messages: objects with `from`, `to`, `text`, and optionally `by` (the Messager), `heard`, `kind`, `channel`,
 * `recorder`, `cause` (a row), `at` (seconds; the row by default), and `received`: `[Messager, arrival, delay in ms]`
 * each. Without `heard` it is unknown.
 */
export function recording(list) {
  const messages = new Messages();
  const names = { agents: [""], channels: [""], messagers: [""] };
  const place = (kind, name) => {
    if (name === undefined) return 0;
    if (!names[kind].includes(name)) names[kind].push(name);
    return names[kind].indexOf(name);
  };
  const column = (type, value) => type.from(list, value);
  messages.length = list.length;
  messages.from = column(Uint32Array, ({ from }) => place("agents", from));
  messages.to = column(Uint32Array, ({ to }) => place("agents", to));
  messages.channel = column(Uint32Array, ({ channel }) => place("channels", channel));
  messages.messager = column(Uint32Array, ({ by }) => place("messagers", by));
  messages.kind = column(Uint8Array, ({ kind = "sent" }) => KINDS.indexOf(kind));
  messages.heard = column(Float64Array, ({ heard }) => (heard === undefined ? 0 : heard + 1));
  messages.recorder = column(Uint32Array, ({ recorder = 1 }) => recorder);
  messages.seq = column(Float64Array, (_, row) => row + 1);
  messages.flags = new Uint8Array(list.length);
  messages.size = new Float64Array(list.length);
  messages.cause_recorder = column(Uint32Array, ({ cause }) => (cause === undefined ? 0 : 1));
  messages.cause_seq = column(Float64Array, ({ cause = -1 }) => cause + 1);
  messages.time = column(Float64Array, ({ at }, row) => at ?? row);
  messages.ts = BigInt64Array.from(messages.time, (seconds) => BigInt(Math.round(seconds * 1e9)));
  const received = list.map((one) =>
    (one.received ?? []).map(([by, arrival, delay = 1]) => ({
      recorder: one.recorder ?? 1,
      messager: place("messagers", by),
      delay: delay * 1e6,
      arrival,
    })),
  );
  messages.receptions = (row) => received[row];
  messages.text = (row) => list[row].text ?? "";
  messages.names = {
    agents: names.agents.map((text) => ({ text: String(text), id: JSON.stringify(text) })),
    channels: names.channels,
    messagers: names.messagers,
  };
  names.agents.forEach((name, at) => at && messages.agentAt.set(JSON.stringify(name), at));
  return messages;
}

/** Return 1 for each row whose text contains a word. */
export function hits(messages, word) {
  return Uint8Array.from({ length: messages.length }, (_, row) => Number(messages.text(row).includes(word)));
}
