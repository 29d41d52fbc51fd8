/** Positions in lists of rows, which are ascending. */

/** Return the first position whose row is not before this one. @param {Int32Array} rows @param {number} row */
export function positionOf(rows, row) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle] < row) low = middle + 1;
    else high = middle;
  }
  return low;
}
