/** Print the messages of chunks as lines of JSON. Arguments: files with a chunk each. */

import { readFileSync } from "node:fs";

import { KINDS, Messages } from "../../../../store/view/page/messages.js";

const messages = new Messages();
for (const file of process.argv.slice(2)) await messages.add(new Uint8Array(readFileSync(file)));
const { names } = messages;
for (let row = 0; row < messages.length; row += 1) {
  const found = {
    cursor: messages.cursor(row),
    kind: KINDS[messages.kind[row]],
    channel: names.channels[messages.channel[row]],
    from: names.agents[messages.from[row]].id,
    to: names.agents[messages.to[row]].id,
    messager: names.messagers[messages.messager[row]],
    flags: messages.flags[row],
    heard: messages.heard[row],
    cause: [messages.cause_recorder[row], messages.cause_seq[row]],
    size: messages.size[row],
    receptions: messages.receptions(row).map(({ recorder, delay }) => [recorder, delay]),
    text: messages.text(row),
    payload: Buffer.from(await messages.payload(row)).toString("base64"),
  };
  console.log(JSON.stringify(found));
}
