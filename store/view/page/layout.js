/** Layout of a graph by forces: the same names and edges always give the same picture. */

const STEPS = 400;

/**
 * Place nodes in the unit square. Edges pull their nodes together, all nodes repel each other.
 * @param {string[]} names one for each node, unequal
 * @param {{ from: number, to: number, weight: number }[]} edges places of their nodes; weights from 0 to 1
 * @returns {{ x: Float64Array, y: Float64Array }}
 */
export function layout(names, edges) {
  const order = names.map((_, node) => node).sort((a, b) => (names[a] < names[b] ? -1 : 1));
  const placeOf = new Map(order.map((node, place) => [node, place]));
  const pulls = edges
    .map(({ from, to, weight }) => {
      const ends = [placeOf.get(from) ?? 0, placeOf.get(to) ?? 0].sort((a, b) => a - b);
      return { one: ends[0], other: ends[1], weight };
    })
    .sort((a, b) => a.one - b.one || a.other - b.other || a.weight - b.weight);
  const x = order.map((node) => seeded(`x${names[node]}`));
  const y = order.map((node) => seeded(`y${names[node]}`));
  const distance = 0.8 / Math.sqrt(Math.max(names.length, 1));
  for (let step = 0; step < STEPS; step += 1) move(x, y, pulls, distance, 0.12 * (1 - step / STEPS) ** 2);
  fit(x);
  fit(y);
  const found = { x: new Float64Array(names.length), y: new Float64Array(names.length) };
  order.forEach((node, place) => {
    found.x[node] = x[place];
    found.y[node] = y[place];
  });
  return found;
}

/**
 * Move all nodes by one step.
 * @param {number[]} x
 * @param {number[]} y
 * @param {{ one: number, other: number, weight: number }[]} pulls
 * @param {number} distance wanted between neighbours
 * @param {number} most length of a move
 */
function move(x, y, pulls, distance, most) {
  const dx = new Float64Array(x.length);
  const dy = new Float64Array(x.length);
  /** @param {number} one @param {number} other @param {(length: number) => number} force */
  const push = (one, other, force) => {
    const across = x[one] - x[other];
    const down = y[one] - y[other];
    const length = Math.max(Math.hypot(across, down), 1e-6);
    const size = force(length) / length;
    dx[one] += across * size;
    dy[one] += down * size;
    dx[other] -= across * size;
    dy[other] -= down * size;
  };
  for (let one = 0; one < x.length; one += 1) {
    for (let other = one + 1; other < x.length; other += 1) push(one, other, (length) => distance ** 2 / length);
    dx[one] += (0.5 - x[one]) * distance;
    dy[one] += (0.5 - y[one]) * distance;
  }
  for (const { one, other, weight } of pulls) push(one, other, (length) => (-(length ** 2) / distance) * weight);
  for (let node = 0; node < x.length; node += 1) {
    const length = Math.max(Math.hypot(dx[node], dy[node]), 1e-9);
    x[node] += (dx[node] / length) * Math.min(length, most);
    y[node] += (dy[node] / length) * Math.min(length, most);
  }
}

/** Stretch values to the range from 0 to 1; values that hardly differ become 0.5. @param {number[]} values */
function fit(values) {
  const low = Math.min(...values);
  const range = Math.max(...values) - low;
  for (let at = 0; at < values.length; at += 1) values[at] = range < 1e-3 ? 0.5 : (values[at] - low) / range;
}

/** Return a number from 0 to 1 that depends on the text only. @param {string} text */
function seeded(text) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x45d9f3b);
  hash = Math.imul(hash ^ (hash >>> 16), 0x45d9f3b);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}
