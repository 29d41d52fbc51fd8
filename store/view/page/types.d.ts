/** Types that the modules of the page share. Times are ns UTC: BigInt, or decimal text in JSON. */

import type { Messages } from "./messages.js";
import type { State } from "./state.js";

export interface Agent {
  text: string;
  /** As JSON: 5 is not "5". */
  id: string;
}

export interface Reception {
  recorder: number;
  /** Position in `names.messagers`; 0 if unknown. */
  messager: number;
  /** ns after the sending. */
  delay: number;
  /** Number within its Messager; 0 if unknown. */
  arrival: number;
}

export interface Mark {
  ts: string;
  cursor: string;
  label: string;
  text: string;
}

export interface Gap {
  ts: string;
  cursor: string;
  since: string;
  until: string;
  recorder: number;
  count: number | null;
  reason: string;
}

export interface Problem {
  kind: string;
  reason: string;
  text: string;
  cursor: string | null;
  ts: string | null;
  /** Cursor of the message. */
  message: string | null;
  recorder: number | null;
  delay_ns: number | null;
}

export interface Problems {
  counts: Record<string, number>;
  details: Problem[];
  notes: string[];
  /** False if arrivals were not examined. */
  examined: boolean;
}

export interface Recorder {
  recorder: number;
  role: string;
  state: string;
  patterns: string[];
  started_at: string;
  /** ns: what it received until then is in the log. */
  complete_until: string;
  ended_at: string | null;
}

export interface Head {
  exp_id: string;
  name: string | null;
  tags: string[];
  meta: Record<string, unknown>;
  status: string;
  created_at: string;
  parent: null | { exp_id: string; [key: string]: unknown };
  forks: { exp_id: string; at: string | null; point: string | null }[];
  events: number;
  kinds: Record<string, number>;
  /** Names of agents and channels in the whole experiment. */
  agents: number;
  channels: number;
  /** Messages of the selection; null if unknown. */
  messages: number | null;
  first_ts: string | null;
  last_ts: string | null;
  recorders: Recorder[];
  /** null if the page is pseudonymised. */
  head: string | null;
  marks: Mark[];
  gaps: Gap[];
  notes: string[];
  problems: Problems | null;
  verify: null | { ok: boolean; head: string; problems: string[]; notes: string[] };
  /** The filters of the page, as typed; "" for none. */
  selection: string;
  /** What was changed before sharing: "pseudonymised", "redacted: content"; "" for nothing. */
  shared: string;
  /** Version of the program, and when the page was made. */
  made: { version: string; at: string };
  /** Of a served page: the tail position `recorder:seq,...` up to which the head tells. */
  position?: string;
  /** Of a served page: events that the projection has, and their total, while it is brought up to date. */
  building?: [number, number] | null;
  /** Of a served page: that a replay can be followed, or driven. `attached` is the control socket of another's. */
  replay?: { allowed: boolean; attached: string | null; broker: string | null } | null;
}

/** What the page knows of a replay: `store/view/server/replaying.py`. */
export interface Replayed {
  phase: "none" | "starting" | "running" | "ended";
  status: ReplayStatus | null;
  /** Last lines that it printed, and its exit code. */
  lines: string[];
  code: number | null;
  exp_id?: string | null;
  to_exp?: string | null;
}

/** Status of a replay, as `docs/replay.md` describes it; the position is text. */
export interface ReplayStatus {
  exp_id: string;
  state: string;
  paused: boolean;
  position: string | null;
  offset_s: number | null;
  cursor: string | null;
  speed: number | "max";
  planned: number;
  at_least: boolean;
  published: number;
  failed: number;
  loops: number;
  seeks: number;
  repeated: number;
  state_messages: number;
  held_by: string | null;
  live: LiveStatus | null;
}

export interface LiveStatus {
  of: number;
  parts: {
    label: string;
    there: boolean;
    expected: number;
    matched: number;
    different: number;
    missing: number;
    unexpected: number;
  }[];
  waiting_for: { part: string; for: "subscription" | "message"; number?: number; of?: number; channel?: string }[];
}

/** Rules by which payloads are equal. */
export interface Match {
  ignore: string[];
  shape: string[];
  tolerance: number;
  bytes_only: boolean;
  /** Number of paths that are not in the file, because it was redacted or pseudonymised. */
  unnamed: number;
}

/** How the messages of two runs are aligned: `store/view/comparing.py`. */
export interface Comparison {
  a: string;
  b: string;
  equal: boolean;
  messages_a: number;
  messages_b: number;
  /** In the order of `TITLES` of `alignment.js`. */
  counts: { equal: number; changed: number; moved: number; only_a: number; only_b: number };
  channels: number;
  differing: number;
  /** The rules that were given; null for none. */
  match: Match | null;
  notes: string[];
  /** Paths in which most of the examined changed messages differ only. */
  shared: { messages: number; examined: number; paths: string[] } | null;
  /** Figures of both runs, if less than a tenth of the messages is equal. */
  summary: RunsSummary | null;
  /** Kinds of the messages that were compared. */
  kinds: string[];
  rows: { kind: number[]; a: number[]; b: number[]; length: number[] };
  /** Values that differ in a changed message, by the cursor of its message in A; null if the payloads are not JSON. */
  values: Record<string, ValueDifference[] | null>;
}

/** Figures of A and B; `pairs` has the first of `number` pairs, those that differ most, and `outside` counts those that differ. */
export interface RunsSummary {
  runs: { messages: number; duration_s: number; channels: number; agents: number }[];
  pairs: { channel: string; from: string | null; to: string | null; messages: number[]; delays_s: (number | null)[] }[];
  number: number;
  outside: number;
}

/** The path of a value that differs, and the value in A and in B as JSON; null for no value. */
export type ValueDifference = [string, string | null, string | null];

/** Conditions on messages, from the state. Empty lists are no conditions. */
export interface Filter {
  q: string;
  /** Ids as JSON: from or to one of them. */
  agents: string[];
  /** Two agents: from one to the other. */
  between: string[];
  channels: string[];
  kinds: string[];
  since: bigint | null;
  until: bigint | null;
}

/** Counts of messages over time. */
export interface Activity {
  /** Start of each bucket, seconds UTC; all have the same length. */
  starts: Float64Array;
  length: number;
  /** Largest first; the last one may be the others, with `at` -1. `at` is a position in `names`. */
  series: { at: number; label: string; counts: Float64Array }[];
}

/** Gives the page its data: from the blocks of the file, or from the server. */
export interface Source {
  head: Head;
  messages: Messages;
  /** True if all messages are there, so that filters and counts are computed in the page. */
  complete: boolean;
  /** True while the newest messages are added at the end. The reader who leaves the end of a window sets it to false. */
  atEnd: boolean;
  /** True while the messages of a filter are loaded, of which none are there yet. */
  loading: boolean;
  /** True if the recording cannot be followed now. */
  away: boolean;
  /** True if the page is served. */
  served: boolean;
  /** True while, or after, problems and the verification were asked for. */
  examining: boolean;
  /** Ask for problems and the verification, which read the whole experiment. */
  examine(): Promise<void>;
  /** Number of messages that fit the filter; null if unknown. */
  total: number | null;
  /** Make the messages of a filter available, near a cursor. */
  select(filter: Filter, at: string): Promise<void>;
  /** Load messages before the first, or behind the last. Returns their number. */
  more(direction: "before" | "after"): Promise<number>;
  /** Counts of messages; `by` is "from" or "channel". */
  activity(filter: Filter, since: bigint, until: bigint, buckets: number, by: "from" | "channel" | "all"): Promise<Activity>;
  /** Numbers of messages by sender and recipient: positions of agents, 0 for none, -1 for others. */
  pairs(filter: Filter, across?: "to" | "channel"): Promise<{ from: number; to: number; count: number }[]>;
}

/** What changed since the last update: keys of the state, and "messages", "rows", "head", "size", "theme". */
export type Changed = Set<string>;

export interface View {
  element: HTMLElement;
  /** Draw again. Called once a frame at most, only while the view is shown; all keys are in the first call. */
  update(changed: Changed): void;
  /** Handle a key; return whether it was handled. */
  key?(event: KeyboardEvent): boolean;
  focus?(): void;
}

export interface App {
  head: Head;
  messages: Messages;
  state: State;
  source: Source;
  filter: Filter;
  /** Rows that fit the filter at any time, ascending. */
  fitting: Int32Array;
  /** Rows that fit the filter, ascending. */
  rows: Int32Array;
  /** Row of the selected message (`state.at`); -1 for none. */
  readonly selected: number;
  /** Note changes; every view is updated in the next frame. */
  changed(...keys: string[]): void;
  /** Note changes of the source, and update every view at once: no view uses rows of before. */
  drawNow(keys: string[]): void;
  /** Select a message, show it, and with `view` switch to a view. */
  show(row: number, view?: string): void;
  /** Say something in the status line; also to screen readers. */
  say(text: string): void;
}
