/** Colours of agents and channels: the same name has the same colour everywhere, in dark and in light. */

/** Hues that differ well, in the order of use. */
const HUES = [212, 28, 140, 0, 275, 180, 330, 50, 240, 95, 305, 15];

/** Return whether the page is dark. */
export function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Luminances of text with a contrast of at least 4.5 on every background of page.css. */
const ON_LIGHT = 0.13;
const ON_DARK = 0.37;
/** @type {Map<string, string>} Colours by scheme and hue. */
const known = new Map();

/**
 * Return the colour of a position in `names`, for text and lines. 0 is none.
 * @param {number} at
 */
export function colourOf(at) {
  const hue = at <= 0 ? -1 : (HUES[(at - 1) % HUES.length] + Math.floor((at - 1) / HUES.length) * 7) % 360;
  const dark = isDark();
  const key = `${dark} ${hue}`;
  let found = known.get(key);
  if (found === undefined) {
    found = at <= 0 ? readable(220, 8, dark) : readable(hue, dark ? 70 : 75, dark);
    known.set(key, found);
  }
  return found;
}

/** Return a colour that is as light as can be on a light page, as dark as can be on a dark one. Hues differ in luminance.
 * @param {number} hue @param {number} saturation @param {boolean} dark */
function readable(hue, saturation, dark) {
  let lightness = dark ? 100 : 0;
  const step = dark ? -0.5 : 0.5;
  const fits = (/** @type {number} */ of) =>
    dark ? luminance(hue, saturation, of) >= ON_DARK : luminance(hue, saturation, of) <= ON_LIGHT;
  while (fits(lightness + step)) lightness += step;
  return `hsl(${hue} ${saturation}% ${lightness}%)`;
}

/** Return the luminance that WCAG 2 defines. @param {number} hue @param {number} saturation @param {number} lightness */
function luminance(hue, saturation, lightness) {
  const light = lightness / 100;
  const spread = (saturation / 100) * Math.min(light, 1 - light);
  const [red, green, blue] = [0, 8, 4].map((place) => {
    const k = (place + hue / 30) % 12;
    const value = light - spread * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Return the value of a variable of page.css, for canvas. @param {string} name for example "--line" */
export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
