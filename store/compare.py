"""Two experiments side by side: per channel, in replay order, the same payloads or the first that differs."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from messager import channels, topics

from .cli.output import plural, safe
from .database import Database
from .errors import StoreError
from .event import Cursor, Event
from .experiments import Experiment, recorders_of
from .log import EventLog
from .messages import message_pages
from .names import all_names
from .reading import Selection, Span
from .replay.channelmap import ChannelMap, spelling
from .schema import CHANNEL

DETAILED = 100
"""Channels whose difference is given with its neighbours; the others are counted."""
SHOWN = 3
"""Channels whose difference is shown, where a comparison is put into words."""
LONGEST = 400
"""Characters of a text that are shown, unless all of it is wanted."""
LEAD = 60
"""Characters that are shown ahead of the first that differs, where a text is cut."""


@dataclass(slots=True)
class Difference:
    """Where one channel first differs, with the neighbours on both sides."""

    channel: str
    index: int
    """The place within the channel, from 0."""
    a: Event | None
    """What A has there; None where A has ended."""
    b: Event | None
    before: Event | None
    """The last message that was the same (A's), or None."""
    a_next: Event | None = None
    b_next: Event | None = None
    messages_a: int = 0
    """A's messages on the channel."""
    messages_b: int = 0

    @property
    def title(self) -> str:
        """The channel, which of its messages differs, and how many there are."""
        return f"{safe(self.channel)}, message {self.index + 1:,} (A has {self.messages_a:,}, B {self.messages_b:,})"

    @property
    def path(self) -> str | None:
        """The first value that differs, as `$.items[2].name`; None where not both payloads are JSON objects."""
        if self.a is None or self.b is None:
            return None
        try:
            a, b = json.loads(self.a.payload), json.loads(self.b.payload)
            found = _path(a, b) if isinstance(a, dict) and isinstance(b, dict) else None
        except (ValueError, RecursionError):
            return None
        return None if found is None else f"${found}"

    def lines(self, *, full: bool = False) -> list[tuple[str, str]]:
        """The difference in words, each line with its sign.

        Blank is the last message that was the same, A and B are the first that differ, `~` says where they do, and
        a and b follow them. Long texts are cut, A's and B's around the first character that differs, unless `full`.
        """
        lines = [] if self.before is None else [(" ", _line(self.before, self.before.text, full=full))]
        start, where = 0, ""
        a, b = _texts(self.a, self.b)
        if a is not None and b is not None:
            at = _first_apart(a, b)
            long = len(a) > LONGEST or len(b) > LONGEST
            start = max(at - LEAD, 0) if long else 0
            path = self.path
            if long or path is not None:
                where = f"differs at character {at + 1:,}"
                where += "" if path is None else f", in {safe(_cut(path, full=full))}"
        for sign, entry, text in (("A", self.a, a), ("B", self.b, b)):
            if entry is None or text is None:
                lines.append((sign, "(nothing: it ends here)"))
            else:
                lines.append((sign, _line(entry, text, start, full=full)))
        if where:
            lines.append(("~", where))
        for sign, entry in (("a", self.a_next), ("b", self.b_next)):
            if entry is not None:
                lines.append((sign, _line(entry, entry.text, full=full)))
        return lines


def _line(entry: Event, text: str, start: int = 0, *, full: bool) -> str:
    return f"{entry.cursor}  {safe(_cut(text, start, full=full))}"


def _cut(text: str, start: int = 0, *, full: bool) -> str:
    """What is shown of a text, from `start` on."""
    if full:
        return text
    end = start + LONGEST
    return ("…" if start else "") + text[start:end] + ("…" if len(text) > end else "")


def _texts(a: Event | None, b: Event | None) -> tuple[str | None, str | None]:
    """What both sides say: as `events` shows it, or the payloads themselves where only these differ."""
    if a is None or b is None:
        return None if a is None else a.text, None if b is None else b.text
    for say in (_as_text, _as_payload):
        said = say(a), say(b)
        if said[0] != said[1]:
            return said
    return repr(a.payload), repr(b.payload)


def _as_text(entry: Event) -> str:
    return entry.text


def _as_payload(entry: Event) -> str:
    return entry.payload.decode("utf-8", "backslashreplace")


def _first_apart(a: str, b: str) -> int:
    """How many characters both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _path(a: Any, b: Any) -> str | None:
    """The way to the first value that differs, or None where all are the same."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if key not in a or key not in b:
                return _step(key)
            if (found := _path(a[key], b[key])) is not None:
                return _step(key) + found
        return None
    if isinstance(a, list) and isinstance(b, list):
        for at, (one, other) in enumerate(zip(a, b, strict=False)):
            if (found := _path(one, other)) is not None:
                return f"[{at}]{found}"
        return None if len(a) == len(b) else f"[{min(len(a), len(b))}]"
    return None if type(a) is type(b) and repr(a) == repr(b) else ""


def _step(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key, ensure_ascii=False)}]"


@dataclass(slots=True, repr=False)
class Comparison:
    """What a comparison found. As `str` it is what `messager diff` says, in short: `assert found.equal, str(found)`."""

    a: str
    b: str
    messages_a: int = 0
    messages_b: int = 0
    channels: int = 0
    """Channels that either has."""
    differing: int = 0
    """Channels that differ."""
    differences: list[Difference] = field(default_factory=list)
    """The first `DETAILED` of them, by name."""
    redacted: int = 0
    """Messages of which either side was redacted: taken for the same as what stands across."""
    translated: bool = False
    """Whether `exps/...` counted as `exps:...`, as the sides come from different kinds of broker."""
    exp_ids: tuple[str, str] | None = None
    """What A's and B's channels bear, where no channel is on both sides and `to_exp` of a mapping would change that."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.differing

    @property
    def same(self) -> int:
        """Channels with the same payloads in the same order."""
        return self.channels - self.differing

    @property
    def verdict(self) -> str:
        """equal or different"""
        return "equal" if self.equal else "different"

    @property
    def counts(self) -> str:
        """How many messages and channels were compared, and how many differ."""
        a, b = plural(self.messages_a, "message"), plural(self.messages_b, "message")
        counts = f"{safe(self.a)}: {a}, {safe(self.b)}: {b}"
        if self.redacted:
            counts += f" ({self.redacted:,} redacted, not compared)"
        if self.equal:
            return f"{counts}, on {plural(self.channels, 'channel')}"
        return f"{counts}; {self.differing:,} of {self.channels:,} channels differ"

    def __str__(self) -> str:
        shown = self.differences[:SHOWN]
        words = [f"{self.verdict}  {self.counts}"]
        for difference in shown:
            words += ["", difference.title, *(f"  {sign} {line}" for sign, line in difference.lines())]
        if self.differing > len(shown):
            words += ["", f"and {plural(self.differing - len(shown), 'more channel')}"]
        return "\n".join(words)

    def __repr__(self) -> str:
        """One line: it is what pytest prints of `assert found.equal`."""
        first = f"; first {self.differences[0].title}" if self.differences else ""
        return f"<Comparison {self.verdict}  {self.counts}{first}>"


_Seen = tuple[Cursor, bytes | None]
"""A message that was read: where it stands, and the digest of its payload, or None where that was redacted."""


class _Channel:
    """What is known of one channel while both sides are read."""

    __slots__ = ("ahead", "before", "counts", "index", "pair", "side", "unknown")

    def __init__(self) -> None:
        self.ahead: deque[_Seen] = deque()  # read on one side, not yet on the other
        self.side = 0
        self.counts = [0, 0]
        self.before: Cursor | None = None
        self.index = 0
        self.unknown = 0
        self.pair: tuple[list[Cursor], list[Cursor]] | None = None
        """Once it differs: the cursors of the first difference and what follows it, for A and B."""

    def meet(self, side: int, seen: _Seen) -> None:
        """One more message: hold it against the other side's, or keep it until that comes."""
        self.counts[side] += 1
        if self.pair is not None:
            if len(self.pair[side]) < 2:
                self.pair[side].append(seen[0])
        elif not self.ahead or self.side == side:
            self.side = side
            self.ahead.append(seen)
        else:
            other = self.ahead.popleft()
            if other[1] == seen[1] or other[1] is None or seen[1] is None:
                self.unknown += other[1] is None or seen[1] is None
                self.before = seen[0] if side == 0 else other[0]
                self.index += 1
            else:
                theirs = [other[0], *(cursor for cursor, _ in list(self.ahead)[:1])]
                self.pair = ([seen[0]], theirs) if side == 0 else (theirs, [seen[0]])
                self.ahead.clear()

    def end(self) -> None:
        """Nothing more comes: what still waits has no counterpart."""
        if self.pair is None and self.ahead:
            left = [cursor for cursor, _ in list(self.ahead)[:2]]
            self.pair = (left, []) if self.side == 0 else ([], left)
            self.ahead.clear()


async def compare(
    log: EventLog,
    a: str | Experiment,
    b: str | Experiment,
    *,
    log_b: EventLog | None = None,
    selection: Selection | None = None,
    mapping: ChannelMap | None = None,
    keep_names: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare the messages of two experiments (as a replay would publish them), payload by payload.

    `mapping` renames A's channels first; `log_b` is B's log where it is another store. Where one comes from Redis and
    the other from MQTT, `exps/...` counts as `exps:...` on both sides, and `selection` may name either, unless
    `keep_names`. Of an import, which does not tell where it comes from, its names do, where they are all alike.
    Memory grows only with how far one side runs ahead of the other on a channel, by a
    digest a message. What was redacted on one side is taken for the same as what stands across, and counted.
    `progress` is told how many messages were read.
    """
    other = log_b or log
    of_a = a if isinstance(a, Experiment) else await log.experiment(a)
    of_b = b if isinstance(b, Experiment) else await other.experiment(b)
    chosen = selection or Selection()
    spelt = {await _spelling(log.database, of_a), await _spelling(other.database, of_b)}
    as_one = not keep_names and spelt == {False, True}
    if as_one:
        chosen = _EitherSpelling(chosen)
    result = Comparison(of_a.exp_id, of_b.exp_id, translated=as_one)
    known: dict[str, _Channel] = {}
    sides = [
        _messages(log.database, of_a, chosen, mapping, as_one),
        _messages(other.database, of_b, chosen, None, as_one),
    ]
    read = [0, 0]
    open_ = [True, True]
    while any(open_):
        # the side that is behind, so that little has to wait in memory
        side = 0 if open_[0] and (read[0] <= read[1] or not open_[1]) else 1
        message = await anext(sides[side], None)
        if message is None:
            open_[side] = False
            continue
        read[side] += 1
        if progress is not None and sum(read) % 1000 == 0:
            progress(sum(read))
        name, seen = message
        channel = known.get(name)
        if channel is None:
            channel = known[name] = _Channel()
        channel.meet(side, seen)
    result.messages_a, result.messages_b = read
    result.channels = len(known)
    if mapping is None:
        result.exp_ids = _apart_by_exp_id(known)
    for name in sorted(known):
        channel = known[name]
        channel.end()
        result.redacted += channel.unknown
        if channel.pair is not None:
            result.differing += 1
            if result.differing <= DETAILED:
                result.differences.append(await _detailed(name, channel, log, of_a, other, of_b))
    return result


def _apart_by_exp_id(known: dict[str, _Channel]) -> tuple[str, str] | None:
    """The exp_ids in the names of both sides, where no channel is on both and B's exp_id in A's names changes that."""
    a, b = ({name for name, channel in known.items() if channel.counts[side]} for side in (0, 1))
    if a & b:
        return None
    of_a, of_b = ({parsed.exp_id for name in names if (parsed := channels.parse(name))} for names in (a, b))
    if len(of_a) != 1 or len(of_b) != 1:
        return None
    [exp_a], [exp_b] = of_a, of_b
    try:
        renamed = ChannelMap(None, exp_b)
    except StoreError:
        return None
    return (exp_a, exp_b) if any(channels.decode(renamed(name)) in b for name in a) else None


async def _detailed(
    name: str, channel: _Channel, log: EventLog, of_a: Experiment, other: EventLog, of_b: Experiment
) -> Difference:
    """A difference with the events themselves."""
    assert channel.pair is not None
    a = [await _at(log, of_a, cursor) for cursor in channel.pair[0]] + [None, None]
    b = [await _at(other, of_b, cursor) for cursor in channel.pair[1]] + [None, None]
    before = None if channel.before is None else await _at(log, of_a, channel.before)
    return Difference(name, channel.index, a[0], b[0], before, a[1], b[1], *channel.counts)


async def _at(log: EventLog, of: Experiment, cursor: Cursor) -> Event | None:
    async for entry in log.read(of, since=cursor, limit=1):
        return entry
    return None


class _EitherSpelling(Selection):
    """The same events, with channels chosen by their names as channels or as topics."""

    def __init__(self, chosen: Selection) -> None:
        super().__init__(chosen.kinds, chosen.channels, chosen.exclude)
        self.agents = chosen.agents
        self._filters = True

    async def as_recorded(self, database: Database, of: Experiment) -> Selection:
        return self  # a filter is one for both sides, as one of them is of MQTT

    def takes_channel(self, channel: str | None) -> bool:
        names = [] if channel is None else [topics.as_channel(channel), topics.as_topic(channel)]
        if self.channels is not None and not any(self.fits(self.channels, name) for name in names):
            return False
        return self.exclude is None or not any(self.fits(self.exclude, name) for name in names)


async def _spelling(database: Database, of: Experiment) -> bool | None:
    brokers = [row.broker for row in await recorders_of(database, of.id)]
    return spelling(brokers, (await all_names(database, of.id, CHANNEL)).values())


async def _messages(
    database: Database, of: Experiment, chosen: Selection, mapping: ChannelMap | None, as_one: bool
) -> AsyncIterator[tuple[str, _Seen]]:
    async for page in message_pages(database, of, chosen, Span(), redacted=True):
        for entry in page:
            channel = entry.channel or ""
            name = channel if mapping is None else channels.decode(mapping(channel))
            if as_one:
                name = topics.as_channel(name)
            yield name, (entry.cursor, None if entry.redacted else sha256(entry.payload).digest())
