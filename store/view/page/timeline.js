/** The timeline: messages over time, with marks, gaps, problems, the chosen range and the moment. */

import { h, visible } from "./dom.js";
import { FILTER_KEYS, rowsOf } from "./filter.js";
import { playback } from "./playback.js";
import { dayText, durationText, numberText, plural, timeText } from "./time.js";
import { emptyTimes, TimeAxis, Viewport } from "./time_axis.js";
import { lengthText } from "./time_ticks.js";
import { askedBars, Bars, barsOf, lowest, nameOf, Ranking, rankingOf } from "./timeline_bars.js";
import { brush } from "./timeline_brush.js";
import { byOf, legend } from "./timeline_legend.js";
import { overview, OVERVIEW } from "./timeline_overview.js";
import { LEFT, Plot, RIGHT } from "./timeline_plot.js";
import { chapterStrip, problemStrip } from "./timeline_strip.js";

/** @typedef {import("./types").App} App */
/** @typedef {import("./time_axis.js").Span} Span */

/** Messages that arrive are counted that often: ms between two times. */
const PAUSE = 250;
/** Height of all that is drawn, in CSS pixels; and on narrow pages. */
const HEIGHT = 150;
const LOW = 118;
/** Part of the axis that is empty on both sides. */
const MARGIN = 0.006;
