/** Colours of agents and channels: the same name has the same colour everywhere, in dark and in light. */

/** Hues that differ well, in the order of use. */
const HUES = [212, 28, 140, 0, 275, 180, 330, 50, 240, 95, 305, 15];

/** Return whether the page is dark. */
export function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * Return the colour of a position in `names`, for text and lines. 0 is none.
 * @param {number} at
 */
export function colourOf(at) {
  if (at <= 0) return isDark() ? "hsl(220 8% 66%)" : "hsl(220 8% 42%)";
  const hue = HUES[(at - 1) % HUES.length] + Math.floor((at - 1) / HUES.length) * 7;
  // Yellow to cyan look lighter. Each is readable on a selected message, too (4.5:1).
  const lightness = hue % 360 > 30 && hue % 360 < 200 ? 26 : 34;
  return isDark() ? `hsl(${hue} 70% 76%)` : `hsl(${hue} 75% ${lightness}%)`;
}

/** Return the value of a variable of page.css, for canvas. @param {string} name for example "--line" */
export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
