/** Positions in ascending lists, of rows and other numbers. */

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

/** Return the last position whose value is at most `value`. @param {ArrayLike<number>} sorted @param {number} value */
export function upper(sorted, value) {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}
