/** Chunks of messages, for tests. `store/view/columns.py` describes them. */

import { deflateSync } from "node:zlib";

import { Messages } from "../../../../store/view/page/messages.js";

const KINDS = ["", "sent", "received", "blocked", "failed"];
const COLUMNS = ["channel", "from", "to", "messager", "flags", "recorder", "seq", "heard", "cause_recorder", "cause_seq"];

/** Return a block: `columns` are f64 by name, `ts` is i64, and `texts` and `data` are bytes. */
function block(header, columns) {
  const places = {};
  const parts = [];
  let offset = 0;
  for (const [name, values] of Object.entries(columns)) {
    const wide = name === "ts" ? BigInt64Array.from(values) : Float64Array.from(values);
    const bytes = values instanceof Uint8Array ? values : new Uint8Array(wide.buffer);
    const type = values instanceof Uint8Array ? "bytes" : name === "ts" ? "i64" : "f64";
    places[name] = [type, offset, bytes.length];
    const padded = new Uint8Array(Math.ceil(bytes.length / 8) * 8);
    padded.set(bytes);
    parts.push(padded);
    offset += padded.length;
  }
  let text = JSON.stringify({ ...header, columns: places });
  text += " ".repeat((8 - ((Buffer.byteLength(text) + 4) % 8)) % 8);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(Buffer.byteLength(text));
  return Buffer.concat([length, Buffer.from(text), ...parts]);
}

/**
 * Return a chunk of messages: objects with `ts`, `text`, `from`, `to`, `channel`, `kind`, `received`. Names are taken in
 * the order of `known`, and new ones are added to it.
 */
export function chunkOf(messages, known = { agents: [], channels: [] }) {
  const place = (list, name) => {
    if (name === undefined) return 0;
    if (!list.includes(name)) list.push(name);
    return list.indexOf(name) + 1;
  };
  const rows = messages.map((message, at) => ({
    channel: place(known.channels, message.channel),
    from: place(known.agents, message.from),
    to: place(known.agents, message.to),
    messager: 0,
    flags: 0,
    recorder: 1,
    seq: message.seq - (messages[at - 1]?.seq ?? 0),
    heard: 0,
    cause_recorder: 0,
    cause_seq: 0,
  }));
  const column = (name) => rows.map((row) => row[name]);
  const received = messages.flatMap((message) => message.received ?? []);
  const texts = Buffer.from(messages.map(({ text }) => `${text}\0`).join(""));
  const columns = {
    ...Object.fromEntries(COLUMNS.map((name) => [name, column(name)])),
    ts: messages.map(({ ts }, at) => BigInt(ts) - BigInt(messages[Math.max(at - 1, 0)].ts)),
    kind: messages.map(({ kind = "sent" }) => KINDS.indexOf(kind)),
    size: messages.map(({ text }) => Buffer.byteLength(text)),
    receptions: messages.map((message) => message.received?.length ?? 0),
    at_recorder: received.map(() => 2),
    at_messager: received.map(() => 0),
    at_delay: received,
    at_arrival: received.map(() => 0),
    texts: new Uint8Array(texts),
  };
  const names = {
    agents: known.agents.map((name, at) => [at + 1, String(name), JSON.stringify(name)]),
    channels: known.channels.map((name, at) => [at + 1, name]),
    messagers: [],
  };
  const packed = deflateSync(block({ rows: messages.length, begin: String(messages[0]?.ts ?? 0), names }, columns));
  const data = Buffer.from(messages.map(({ text }) => text).join(""));
  let end = 0;
  const ends = messages.map(({ text }) => (end += Buffer.byteLength(text)));
  const payloads = deflateSync(block({}, { form: messages.map(() => 0), end: ends, data: new Uint8Array(data) }));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(packed.length);
  return new Uint8Array(Buffer.concat([length, packed, payloads]));
}

/** Return messages that the page has, `chunk` of them in a chunk. Without `seq` they are numbered from 1. */
export async function messagesOf(messages, { chunk = 2 } = {}) {
  const found = new Messages();
  const known = { agents: [], channels: [] };
  const numbered = messages.map((message, at) => ({ ts: at, text: "", seq: at + 1, ...message }));
  for (let at = 0; at < numbered.length; at += chunk) await found.add(chunkOf(numbered.slice(at, at + chunk), known));
  return found;
}
