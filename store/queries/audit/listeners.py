"""Listeners of an experiment: who was subscribed to what, when, and when that was in doubt."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from messager import channels
from messager.brokers import BROKER_KINDS
from messager.record import CLOSED, SUBSCRIBED

from ...db.codes import CHANNEL
from ...experiments.records import SILENT_NS, Experiment, RecorderRow
from ...json_text import load_object
from ...log.event_log import EventLog
from ...log.gap import gap_of
from ...log.names import all_names, name_text
from ...projection.query import Projection
from .sessions import recorded_by, session_of
from .times import Interval, Times

Key = tuple[int, str | None]
"""The recorder's ordinal, and the Messager; None for a tap."""
SUBSCRIBING_NS = 1_000_000_000
"""Time after the start of a recorder within which its subscription becomes active, if no mark says when."""
_WILD = re.compile(r"[*?\[\\+#]")


@dataclass(slots=True)
class Listener:
    """A Messager, or a recorder whose Messagers are unknown, such as a tap."""

    key: Key
    recorder: RecorderRow
    subscriptions: list[tuple[int, list[str], bool]] = field(default_factory=list)
    """From when (ns UTC), the patterns, and True if they came to the earlier ones."""
    reached_until: int | None = None
    """`ts` of the last sending that reached it; None if none did."""

    def got(self, keys: Iterable[Key]) -> bool:
        """Return whether one of these listeners is this one."""
        return self.key in keys if self.key[1] is not None else any(key[0] == self.key[0] for key in keys)

    def times(self, channel: str) -> list[Interval]:
        """Return the times, both ends included, at which it was subscribed to a channel, as far as is known."""
        found: list[Interval] = []
        since: int | None = None
        for ts, patterns, added in self.subscriptions:
            here = bool(self.matching(patterns, channel)) or (added and since is not None)
            if here and since is None:
                since = ts
            elif not here and since is not None:
                found.append((since, ts - 1))
                since = None
        if since is not None:
            found.append((since, max(self._end, since)))
        return found

    @property
    def crashed(self) -> bool:
        """True if its recorder ended without saying so, or its end is not in this store."""
        return self.recorder.state in ("unclean", "repaired", "incomplete")

    @property
    def _end(self) -> int:
        """Time until which its recorder may have listened."""
        row = self.recorder
        return max(session_of(row)[1], row.complete_until) + SILENT_NS if row.unclean else recorded_by(row)[1]

    def matching(self, patterns: Iterable[str], channel: str) -> list[str]:
        """Return the patterns that match a channel."""
        patterns = [pattern for pattern in patterns if channel.startswith(_start(pattern))]
        kind = self.recorder.broker_kind
        if kind is not None:
            return [pattern for pattern in patterns if kind.matches(pattern, channels.encode(channel))]
        return [pattern for pattern in patterns if any(_matches(pattern, channel))]

    def patterns(self, channel: str, ts: int) -> list[str]:
        """Return the patterns that matched a channel at a time."""
        known: dict[str, None] = {}
        for since, patterns, added in self.subscriptions:
            if since <= ts:
                known = dict.fromkeys([*known, *patterns] if added else patterns)
        return self.matching(known, channel)


def _matches(pattern: str, channel: str) -> Iterator[bool]:
    yield channels.matches(pattern, channel)
    for kind in BROKER_KINDS:
        yield kind.is_own_pattern(pattern) and kind.matches(pattern, channels.encode(channel))


@lru_cache(maxsize=4096)
def _start(pattern: str) -> str:
    """Return what channels that match a pattern begin with: a/# matches a."""
    wild = _WILD.search(pattern)
    return pattern[: wild.start()].rstrip("/") if wild else pattern


class Listeners:
    """The listeners of an experiment."""

    def __init__(self, listeners: list[Listener], gaps: dict[int, Times], redacted: set[tuple[int, str]]) -> None:
        self.all = listeners
        self._gaps = gaps
        self._redacted = redacted
        self._by_key = {one.key: one for one in listeners}
        self._by_prefix: dict[str, dict[Key, Listener]] = {}
        """By the start of a pattern, up to its first wildcard."""
        for one in listeners:
            for _, patterns, _ in one.subscriptions:
                for pattern in patterns:
                    self._by_prefix.setdefault(_start(pattern), {})[one.key] = one
        self._lengths = sorted({len(start) for start in self._by_prefix})
        self._of_channel: dict[str, list[tuple[Listener, list[Interval]]]] = {}

    def of(self, key: Key) -> Listener | None:
        """Return a listener by its key."""
        return self._by_key.get(key) or self._by_key.get((key[0], None))

    def at(self, channel: str, ts: int) -> list[Listener]:
        """Return those that were subscribed to a channel at a time."""
        known = self._subscribed(channel)
        return [one for one, times in known if any(start <= ts <= end for start, end in times)]

    def _subscribed(self, channel: str) -> list[tuple[Listener, list[Interval]]]:
        """Return those that were ever subscribed to a channel, and when."""
        known = self._of_channel.get(channel)
        if known is None:
            near = {key: one for n in self._lengths for key, one in self._by_prefix.get(channel[:n], {}).items()}
            known = [(one, times) for one in near.values() if (times := one.times(channel))]
            self._of_channel[channel] = known
        return known

    def expected(self, channel: str) -> Iterator[tuple[Listener, Interval]]:
        """Yield who should have received what was sent on a channel, and when.

        Only those and times are told for which a missing reception has a reason, unless nobody received the message.
        """
        for one, times in self._subscribed(channel):
            last = None if one.crashed else self._last_reason(one)
            for start, end in times:
                if last is None or start <= last:
                    yield one, (start, end if last is None else min(end, last))

    def _last_reason(self, one: Listener) -> int:
        """Return the last time at which a missing reception by a listener has a reason, ns UTC."""
        gaps = self._gaps.get(one.key[0])
        ends = [end for _, end in gaps.intervals] if gaps is not None else []
        return max([-(2**63), *([] if one.reached_until is None else [one.reached_until]), *ends])

    def had_gap(self, one: Listener, ts: int) -> bool:
        """Return whether a listener may have missed what was sent at a time."""
        gaps = self._gaps.get(one.key[0])
        return gaps is not None and ts in gaps

    def is_redacted(self, one: Listener, channel: str) -> bool:
        """Return whether receptions by a listener on a channel were redacted, so that they cannot be matched."""
        return (one.key[0], channel) in self._redacted


async def listeners_of(log: EventLog, of: Experiment, here: Projection) -> Listeners:
    """Return the listeners of an experiment.

    A Messager listens from the mark of its subscription to that of its closing. A tap listens on the patterns of its
    row, from its first event or a second after its start. A recorder with neither listens on the channels from which it
    has receptions, from its first event.
    """
    rows = await log.recorders(of)
    names = {name_text(name): name for name in (await all_names(log.database, of.id, CHANNEL)).values()}
    return await asyncio.to_thread(_listeners, here, rows, names)


def _listeners(here: Projection, rows: list[RecorderRow], names: Mapping[str, str]) -> Listeners:
    """Return the listeners. `names` has those of channels by their texts."""
    here.add_marks()
    found: dict[Key, Listener] = {}
    by_ordinal = {row.ordinal: row for row in rows}
    for ts, key, patterns, added in _subscriptions(here):
        if not patterns and key not in found:
            continue  # closed, and never subscribed
        one = found.setdefault(key, Listener(key, by_ordinal[key[0]]))
        one.subscriptions.append((ts, patterns, added))
    marked = {ordinal for ordinal, _ in found}
    heard = defaultdict(list)
    for ordinal, text in here.rows("SELECT DISTINCT recorder, channel FROM event WHERE kind = 'received'"):
        if text is not None:
            heard[ordinal].append(channels.literal(names[text]))
    for row in rows:
        if row.ordinal in marked or row.first_ts is None:
            continue
        if row.patterns:
            began, _ = session_of(row)
            start = began + SUBSCRIBING_NS if began > 0 else row.first_ts
            patterns = row.patterns
        elif row.kinds["received"]:
            start, patterns = row.first_ts, heard[row.ordinal]
        else:
            continue
        key = row.ordinal, None
        found[key] = Listener(key, row, [(min(start, row.first_ts), patterns, False)])
    reached = (
        "SELECT r.recorder, r.messager, max(m.ts) FROM event r JOIN event m ON m.id = r.message_id "
        "WHERE r.id <> m.id AND NOT r.is_copy AND m.kind = 'sent' GROUP BY ALL"
    )
    for ordinal, messager, ts in here.rows(reached):
        for key in {(ordinal, messager), (ordinal, None)} & found.keys():
            found[key].reached_until = max(ts, found[key].reached_until or ts)
    redacted = here.rows("SELECT DISTINCT recorder, channel FROM event WHERE kind = 'received' AND redacted")
    return Listeners(list(found.values()), _gaps(here), {(ordinal, names.get(text, "")) for ordinal, text in redacted})


def _subscriptions(here: Projection) -> Iterator[tuple[int, Key, list[str], bool]]:
    """Yield time, listener, patterns and `added` of each mark of a subscription, in replay order; none at a closing."""
    marks = (
        "SELECT m.name, e.ts, e.recorder, e.messager, m.fields FROM mark m JOIN event e USING (id) "
        "WHERE m.name IN ($subscribed, $closed) ORDER BY e.ts, e.id"
    )
    for name, ts, ordinal, messager, text in here.rows(marks, {"subscribed": SUBSCRIBED, "closed": CLOSED}):
        if name == CLOSED:
            yield ts, (ordinal, messager), [], False
            continue
        fields = None if text is None else json.loads(text)
        patterns = fields.get("patterns") if isinstance(fields, dict) else None
        if isinstance(patterns, list):
            known = [pattern for pattern in patterns if isinstance(pattern, str)]
            yield ts, (ordinal, messager), known, isinstance(fields, dict) and bool(fields.get("added"))


def _gaps(here: Projection) -> dict[int, Times]:
    """Return the times in which each recorder may have missed messages. A repair logs those of another recorder."""
    found: dict[int, list[Interval]] = {}
    for ts, ordinal, meta in here.rows("SELECT ts, recorder, meta FROM event WHERE kind = 'gap'"):
        gap = gap_of(load_object(meta or "{}"))
        found.setdefault(ordinal if gap.recorder is None else gap.recorder, []).append(gap.within(ts))
    return {ordinal: Times(intervals) for ordinal, intervals in found.items()}
