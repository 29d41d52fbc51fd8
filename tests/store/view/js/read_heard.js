/** Print, for each sending of a chunk, the cursors of all that its sender had heard. Argument: the file of the chunk. */

import { readFileSync } from "node:fs";

import { Knowledge } from "../../../../store/view/page/knowledge.js";
import { KINDS, Messages } from "../../../../store/view/page/messages.js";

const messages = new Messages();
await messages.add(new Uint8Array(readFileSync(process.argv[2])));
const knowledge = new Knowledge(messages);
knowledge.update();
for (let row = 0; row < messages.length; row += 1) {
  if (KINDS[messages.kind[row]] !== "sent") continue;
  const heard = [];
  for (let at = row; at >= 0; ) {
    const { known, since, told } = knowledge.heard(at);
    heard.push(...told.map((one) => messages.cursor(one.row)));
    at = known ? since : -1;
  }
  console.log(JSON.stringify([messages.cursor(row), heard]));
}
