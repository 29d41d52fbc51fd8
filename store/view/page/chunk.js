/** Reads chunks of messages, as `store/view/columns.py` describes them. */

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */
/** @typedef {{ header: any, columns: Record<string, any> }} Block */

/**
 * Unpack zlib data.
 * @param {Bytes} packed
 * @returns {Promise<Bytes>}
 */
export async function inflate(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Return the bytes of a base64 text.
 * @param {string} text
 * @returns {Bytes}
 */
export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/**
 * Return the block of messages of a chunk, and its packed payloads.
 * @param {Bytes} chunk
 * @returns {Promise<{ block: Block, payloads: Bytes }>}
 */
export async function readChunk(chunk) {
  const length = new DataView(chunk.buffer, chunk.byteOffset, 4).getUint32(0, true);
  const block = readBlock(await inflate(chunk.subarray(4, 4 + length)));
  return { block, payloads: chunk.slice(4 + length) };
}

/**
 * Return the header and the columns of an unpacked block.
 * @param {Bytes} bytes
 * @returns {Block}
 */
export function readBlock(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  /** @type {Record<string, any>} */
  const columns = {};
  for (const [name, [type, offset, size]] of Object.entries(header.columns)) {
    columns[name] = column(bytes, type, bytes.byteOffset + 4 + length + offset, size);
  }
  return { header, columns };
}

/**
 * @param {Bytes} bytes
 * @param {string} type
 * @param {number} at
 * @param {number} size
 */
function column(bytes, type, at, size) {
  const buffer = bytes.buffer;
  if (type === "u8" || type === "bytes") return new Uint8Array(buffer, at, size);
  if (type === "u16") return new Uint16Array(buffer, at, size / 2);
  if (type === "u32") return new Uint32Array(buffer, at, size / 4);
  if (type === "f64") return new Float64Array(buffer, at, size / 8);
  if (type === "i64") return new BigInt64Array(buffer, at, size / 8);
  throw new Error(`unknown column type ${type}`);
}
