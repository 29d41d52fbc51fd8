/** Layout of a graph by forces: the same names and edges always give the same picture. */

const STEPS = 400;
/** Pull to the middle: of one connected part, and of several, which must stay near each other. */
const GRAVITY = { one: 0.1, several: 1 };
/** Distance of two nodes at least, where the graph is not too large for it. */
const SPACING = 0.06;

/**
 * Place nodes in the unit square. Edges pull their nodes together, all nodes repel each other. Nodes without edges are
 * in a line below the others.
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
  const degrees = new Float64Array(names.length);
  for (const { one, other, weight } of pulls) {
    degrees[one] += weight;
    degrees[other] += weight;
  }
  for (const pull of pulls) pull.weight /= Math.sqrt(Math.max(Math.min(degrees[pull.one], degrees[pull.other]), 1));
  const x = order.map((node) => seeded(`x${names[node]}`));
  const y = order.map((node) => seeded(`y${names[node]}`));
  const distance = 0.8 / Math.sqrt(Math.max(names.length, 1));
  const gravity = connected(names.length, pulls) ? GRAVITY.one : GRAVITY.several;
  for (let step = 0; step < STEPS; step += 1) move(x, y, pulls, distance, gravity, 0.12 * (1 - step / STEPS) ** 2);
  const alone = order.map((_, place) => place).filter((place) => degrees[place] === 0);
  const tied = order.map((_, place) => place).filter((place) => degrees[place] > 0);
  const floor = alone.length && tied.length ? 0.86 : 1;
  fit(x, tied, 1);
  fit(y, tied, floor);
  spread(x, y, tied, floor, Math.min(SPACING, distance / 2));
  alone.forEach((place, number) => {
    const columns = tied.length ? alone.length : Math.ceil(Math.sqrt(alone.length));
    const lines = Math.ceil(alone.length / columns);
    x[place] = ((number % columns) + 0.5) / columns;
    y[place] = tied.length ? 1 : (Math.floor(number / columns) + 0.5) / lines;
  });
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
 * @param {number} gravity
 * @param {number} most length of a move
 */
function move(x, y, pulls, distance, gravity, most) {
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
    dx[one] += (0.5 - x[one]) * gravity;
    dy[one] += (0.5 - y[one]) * gravity;
  }
  for (const { one, other, weight } of pulls) push(one, other, (length) => (-(length ** 2) / distance) * weight);
  for (let node = 0; node < x.length; node += 1) {
    const length = Math.max(Math.hypot(dx[node], dy[node]), 1e-9);
    x[node] += (dx[node] / length) * Math.min(length, most);
    y[node] += (dy[node] / length) * Math.min(length, most);
  }
}

/**
 * Stretch the values of some places to the range from 0 to `most`.
 * @param {number[]} values @param {number[]} places @param {number} most
 */
function fit(values, places, most) {
  const chosen = places.map((place) => values[place]);
  const low = Math.min(...chosen);
  const range = Math.max(Math.max(...chosen) - low, 1e-9);
  for (const place of places) values[place] = (most * (values[place] - low)) / range;
}

/**
 * Push apart nodes that are too near.
 * @param {number[]} x @param {number[]} y @param {number[]} places @param {number} floor largest y @param {number} spacing
 */
function spread(x, y, places, floor, spacing) {
  for (let step = 0; step < STEPS / 10; step += 1) {
    for (const one of places) {
      for (const other of places) {
        const [across, down] = [x[one] - x[other], y[one] - y[other]];
        const length = Math.max(Math.hypot(across, down), 1e-6);
        if (other <= one || length >= spacing) continue;
        const push = (spacing - length) / 2 / length;
        x[one] = Math.min(Math.max(x[one] + across * push, 0), 1);
        y[one] = Math.min(Math.max(y[one] + down * push, 0), floor);
        x[other] = Math.min(Math.max(x[other] - across * push, 0), 1);
        y[other] = Math.min(Math.max(y[other] - down * push, 0), floor);
      }
    }
  }
}

/** Return whether all nodes that have edges are connected. @param {number} nodes @param {{ one: number, other: number }[]} pulls */
function connected(nodes, pulls) {
  const part = Int32Array.from({ length: nodes }, (_, node) => node);
  for (const { one, other } of pulls) {
    const [kept, joined] = [part[one], part[other]];
    for (let node = 0; node < nodes; node += 1) if (part[node] === joined) part[node] = kept;
  }
  return new Set(pulls.map(({ one }) => part[one])).size <= 1;
}

/** Return a number from 0 to 1 that depends on the text only. @param {string} text */
function seeded(text) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x45d9f3b);
  hash = Math.imul(hash ^ (hash >>> 16), 0x45d9f3b);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}
