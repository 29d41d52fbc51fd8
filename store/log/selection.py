"""A choice of events, as a test of one event and as SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from difflib import get_close_matches
from functools import partial
from typing import Any, TypedDict

from sqlalchemy import ColumnElement, and_, bindparam, not_, or_

from messager import channels
from messager.brokers import BROKER_KINDS, BrokerKind

from ..db.codes import AGENT, CHANNEL, KINDS, REDACTED
from ..db.database import Database
from ..db.schema import event
from ..errors import BadCursor, StoreError
from ..experiments.records import Experiment
from ..experiments.registry import recorders_of
from .content import ContentFilter, Skipped
from .cursor import Point, clamped, duration_ns, resolve
from .event import Cursor, Event
from .names import agent_text, agent_value, all_names
from .not_json import NotJson
from .span import Span
from .typed_ids import typed_ids

AROUND_NS = 30_000_000_000
"""Time before and after a point that `around` selects without a length."""
_AROUND = re.compile(r"(?P<point>.+?)(?:\+-|±)(?P<length>[^+±]+)", re.DOTALL)
PER = ("channel", "agent")

Ids = Iterable[Any] | int | str | None
"""Ids of agents: several, one, or None for no condition. None in a list is a message without a sender, or recipient."""
NOBODY = b"null"
"""None in a list of ids, as `agent_value` returns it; no agent has this id."""


class Filters(TypedDict, total=False):
    """The arguments of `Selection`, for functions that pass them on."""

    kinds: Iterable[str] | str | None
    channels: Iterable[str] | str | None
    exclude: Iterable[str] | str | None
    agents: Ids
    from_ids: Ids
    to_ids: Ids
    between: tuple[Any, Any] | None
    grep: Iterable[str] | str
    regex: bool
    where: Iterable[str] | str
    text: str | None
    since: Point
    until: Point
    after: Point
    around: Point
    limit: int | None
    last_per: str | None
    context: int


class Selection:
    """A choice of events: all conditions that are given must hold. A single kind, pattern, id or text needs no list.

    `channels` and `exclude` are glob patterns; in a recording of MQTT they may also be topic filters. `from_ids` are
    senders, `to_ids` recipients, `agents` either; `between` are two agents, or two lists of them, of which one sent to
    the other. Ids have their JSON type (5 is not "5"), and derived ids count. None as one of the ids selects messages
    without a sender, or without a recipient; other ids never do.

    `grep` is text that was said: an event must contain one of the texts, in any case and width (NFKC-normalised and
    case-folded). With `regex`, these are regular expressions, which ignore case. `where` are conditions on fields of
    payloads, as `PayloadCondition` reads them, which must all hold; payloads that are not JSON are left out (`counting`
    counts them). `text` is the path of the spoken text in payloads, if the decoder (`log.text`) does not find it.

    `since` (included), `until` (excluded) and `after` (like `since`, but excluded) are points, as
    `messager_store.log.cursor` resolves them; `around` is a point and a time on both sides of it: `10:30+-5m`. At most
    `limit` events are selected.

    `last_per="channel"` or `"agent"` keeps only the last event on each channel, or of each sender: the state at a
    moment. `context` adds that many events before and after each on its channel, as `grep -C` does.

    Raises `StoreError` for a filter that cannot be understood; it names the place.
    """

    def __init__(
        self,
        kinds: Iterable[str] | str | None = None,
        channels: Iterable[str] | str | None = None,
        exclude: Iterable[str] | str | None = None,
        agents: Ids = None,
        from_ids: Ids = None,
        to_ids: Ids = None,
        *,
        between: tuple[Any, Any] | None = None,
        grep: Iterable[str] | str = (),
        regex: bool = False,
        where: Iterable[str] | str = (),
        text: str | None = None,
        since: Point = None,
        until: Point = None,
        after: Point = None,
        around: Point = None,
        limit: int | None = None,
        last_per: str | None = None,
        context: int = 0,
    ) -> None:
        self.kinds = None if kinds is None else set(_several(kinds))
        self.channels = None if channels is None else list(_several(channels))
        self.exclude = None if exclude is None else list(_several(exclude))
        self.agents, self.from_ids, self.to_ids = map(_agent_values, (agents, from_ids, to_ids))
        self.pairs: list[tuple[set[bytes], set[bytes]]] = []
        """Senders and recipients of which one pair must fit; empty for no condition."""
        if between is not None:
            one, other = (_agent_values(ids) or set() for ids in _two(between))
            self.pairs = [(one, other), (other, one)]
        words, conditions = list(_several(grep)), list(_several(where))
        self.content = ContentFilter(words, regex, conditions, text) if words or conditions or text else None
        """The conditions on content; None if there are none."""
        self.since, self.until, self.after, self.around = since, until, after, around
        self.limit = limit
        self.last_per = last_per
        self.context = context
        self.not_json: NotJson | None = None
        """Counts the payloads that reads skip; None not to count."""
        self.redacted = True
        """True to include redacted events."""
        self.left_out: frozenset[str] = frozenset()
        """Names of channels that are excluded in addition to the patterns."""
        self.senders_left_out: frozenset[bytes] = frozenset()
        """Senders that are excluded, as the log stores their ids."""
        self._kinds: tuple[BrokerKind, ...] = ()
        """Kinds of brokers whose wildcards apply in addition to those of globs."""
        unknown = (self.kinds or set()) - set(KINDS)
        if unknown:
            raise StoreError(f"unknown kind {', '.join(sorted(unknown))}. The kinds are {', '.join(KINDS)}.")
        if last_per not in (None, *PER):
            raise StoreError(f"{last_per!r}: give the last event per channel or per agent")
        if context < 0 or (limit is not None and limit < 0):
            raise StoreError(f"{min(context, limit or 0)} is no number of events: give 0 or more")
        if context and last_per:
            raise StoreError("the last event per channel or agent has no context: leave out one of the two")
        if regex and not words:
            raise StoreError("regex is a way to read grep: give the regular expression as grep")

    def counting(self, not_json: NotJson) -> Selection:
        """Return the same selection; a read of it counts the payloads that `where` skips because they are not JSON."""
        return self._but(not_json=not_json)

    def skipped(self, database: Database, of: Experiment) -> Skipped | None:
        """Return the function that counts a payload of an experiment which is not JSON; None if none are counted."""
        return None if self.not_json is None else partial(self.not_json.add, database, of)

    def text_of(self, entry: Event) -> str:
        """Return what was said in an event, read at the path `text` if there is one."""
        if self.content is None or entry.redacted:
            return entry.text
        return self.content.text(entry) or ""

    async def span(self, database: Database, of: Experiment) -> Span:
        """Return the part of an experiment between the points. Raises `BadCursor`."""
        start, end = await resolve(database, of, self.since), await resolve(database, of, self.until)
        if self.around is not None:
            first, last = await _around(database, of, self.around)
            start = first if start is None else max(start, first)
            end = last if end is None else min(end, last)
        return Span(start, end, await resolve(database, of, self.after, behind=True), self.limit)

    @property
    def everything(self) -> bool:
        """True if only kinds and redacted events are excluded. The points do not count."""
        given = (self.channels, self.exclude, self.agents, self.from_ids, self.to_ids, self.last_per)
        left_out = self.left_out or self.senders_left_out
        return not (left_out or self.pairs or self.by_content or self.context) and all(one is None for one in given)

    @property
    def selects_all(self) -> bool:
        """True if no event is excluded."""
        given = (self.kinds, self.since, self.until, self.after, self.around, self.limit, self.content)
        return self.everything and self.redacted and all(one is None for one in given)

    @property
    def whole_channels(self) -> bool:
        """True if the messages of a channel are selected or not as a whole. The points do not count."""
        given = (self.kinds, self.agents, self.from_ids, self.to_ids, self.last_per)
        return not (self.pairs or self.by_content) and all(one is None for one in given)

    @property
    def by_content(self) -> bool:
        """True if there are conditions on the content of events, which SQL alone cannot test."""
        return self.content is not None and self.content.selects

    def of_kinds(self, kinds: Iterable[str] | None) -> Selection:
        """Return the same selection with other kinds, or with all."""
        return self._but(kinds=None if kinds is None else set(kinds))

    def takes_channel(self, channel: str | None) -> bool:
        """Return whether the conditions on channels hold. Gaps and marks have no channel."""
        if channel in self.left_out:
            return False
        if self.channels is not None and (channel is None or not self.fits(self.channels, channel)):
            return False
        return self.exclude is None or channel is None or not self.fits(self.exclude, channel)

    def fits(self, patterns: list[str], channel: str) -> bool:
        """Return whether any of the patterns matches a channel."""
        return channels.matches_any(patterns, channel) or any(
            kind.is_own_pattern(pattern) and kind.matches(pattern, channel)
            for kind in self._kinds
            for pattern in patterns
        )

    async def as_recorded(self, database: Database, of: Experiment) -> Selection:
        """Return the selection for one experiment: `a/+/b` is a filter in a recording of MQTT, a name in one of Redis.

        If the broker is unknown, as in an import, it is a filter unless a channel has that name.
        """
        patterns = (*(self.channels or ()), *(self.exclude or ()))
        wild = {pattern for pattern in patterns if any(kind.is_own_pattern(pattern) for kind in BROKER_KINDS)}
        if not wild:
            return self
        kinds = {kind for row in await recorders_of(database, of.id) if (kind := row.broker_kind)}
        if not kinds and wild.isdisjoint((await all_names(database, of.id, CHANNEL)).values()):
            return self._but(_kinds=BROKER_KINDS)
        return self._but(_kinds=tuple(kinds))

    def takes(self, entry: Event, skipped: Skipped | None = None) -> bool:
        """Return whether an event is selected. `skipped` is called as `ContentFilter.takes` does."""
        if self.kinds is not None and entry.kind not in self.kinds:
            return False
        if not self.redacted and entry.redacted:
            return False
        if not self.takes_channel(entry.channel):
            return False
        return (
            (self.agents is None or _has(entry, "from_id", self.agents) or _has(entry, "to_id", self.agents))
            and (self.from_ids is None or _has(entry, "from_id", self.from_ids))
            and (self.to_ids is None or _has(entry, "to_id", self.to_ids))
            and (not self.pairs or any(_has(entry, "from_id", a) and _has(entry, "to_id", b) for a, b in self.pairs))
            and (not self.senders_left_out or not _has(entry, "from_id", self.senders_left_out))
            and (self.content is None or self.content.takes(entry, skipped))
        )

    def without_redacted(self) -> Selection:
        """Return the same selection without redacted events."""
        return self._but(redacted=False)

    def without(self, names: Iterable[str]) -> Selection:
        """Return the same selection without the channels of these names."""
        return self._but(left_out=self.left_out.union(names))

    def without_senders(self, senders: Iterable[Any]) -> Selection:
        """Return the same selection without the events of these senders, and without those that have none."""
        return self._but(senders_left_out=self.senders_left_out.union(map(agent_value, senders)))

    def limited(self, limit: int | None) -> Selection:
        """Return the same selection with another maximum of events."""
        return self._but(limit=limit)

    def of_channels(self) -> Selection:
        """Return the same selection without the conditions on agents and content."""
        return self.without_agents()._but(content=None)

    def without_agents(self) -> Selection:
        """Return the same selection without the conditions on agents."""
        return self._but(agents=None, from_ids=None, to_ids=None, pairs=[])

    def with_ids_as_shown(self, known: Iterable[Any]) -> Selection:
        """Return the same selection; an id that is not among `known` also means what is typed as tables show it."""
        here = {NOBODY, *map(agent_value, known)}

        def read(values: set[bytes]) -> set[bytes]:
            absent = (agent_text(json.loads(value)) or "" for value in values - here)
            return values.union(*(map(agent_value, typed_ids(text)) for text in absent))

        other = copy(self)
        other.agents, other.from_ids, other.to_ids = (
            None if values is None else read(values) for values in (self.agents, self.from_ids, self.to_ids)
        )
        other.pairs = [(read(one), read(two)) for one, two in self.pairs]
        return other

    def of_agents(self) -> Selection:
        """Return a selection that has the conditions on agents only."""
        given = {"agents": self.agents, "from_ids": self.from_ids, "to_ids": self.to_ids, "pairs": self.pairs}
        return Selection()._but(**given)

    def _but(self, **changed: Any) -> Selection:
        """Return the same selection with other values of these attributes."""
        other = copy(self)
        vars(other).update(changed)
        return other

    async def condition(self, database: Database, of: Experiment) -> list[ColumnElement[bool]]:
        """Return the conditions as SQL, with the ids that the experiment has for the names.

        With `by_content`, they select more events than the selection: ask `content.takes` about each.
        """
        conditions: list[ColumnElement[bool]] = []
        if self.kinds is not None:
            conditions.append(event.c.kind.in_([KINDS.index(kind) + 1 for kind in self.kinds]))
        if not self.redacted:
            conditions.append(event.c.flags.op("&")(REDACTED) == 0)
        if self.channels is not None or self.exclude is not None or self.left_out:
            known = await all_names(database, of.id, CHANNEL)
            chosen = await self.as_recorded(database, of)
            wanted = [number for number, channel in known.items() if chosen.takes_channel(channel)]
            among = _among(event.c.channel_id, wanted)
            conditions.append(among if self.channels is not None else or_(among, event.c.channel_id.is_(None)))
        conditions += await self._condition_on_agents(database, of)
        return conditions

    async def _condition_on_agents(self, database: Database, of: Experiment) -> list[ColumnElement[bool]]:
        senders, recipients = event.c.from_id, event.c.to_id
        by_agent = ((self.agents, (senders, recipients)), (self.from_ids, (senders,)), (self.to_ids, (recipients,)))
        if all(values is None for values, _ in by_agent) and not self.pairs and not self.senders_left_out:
            return []
        agents = {number: agent_value(agent) for number, agent in (await all_names(database, of.id, AGENT)).items()}

        def among(column: Any, values: Collection[bytes]) -> ColumnElement[bool]:
            given = _among(column, [number for number, agent in agents.items() if agent in values])
            nobody = and_(column.is_(None), event.c.channel_id.is_not(None))
            return or_(given, nobody) if NOBODY in values else given

        conditions: list[ColumnElement[bool]] = [
            or_(*(among(column, values) for column in columns)) for values, columns in by_agent if values is not None
        ]
        if self.pairs:
            conditions.append(or_(*(and_(among(senders, a), among(recipients, b)) for a, b in self.pairs)))
        if self.senders_left_out:
            conditions.append(not_(among(senders, self.senders_left_out)))  # of null, this is null
        return conditions


def selection_of(selection: Selection | None, filters: Filters) -> Selection:
    """Return the selection that a function was given, as a `Selection` or by its filters. Raises `StoreError`."""
    if selection is not None and filters:
        raise StoreError(f"{', '.join(filters)} belong into the selection: give either a selection or filters")
    for name in filters:
        if name not in Filters.__annotations__:
            near = get_close_matches(name, Filters.__annotations__, n=1)
            hint = f": did you mean {near[0]}?" if near else "."
            raise StoreError(f"unknown filter {name!r}{hint} The filters are {', '.join(Filters.__annotations__)}.")
    return selection if selection is not None else Selection(**filters)


async def _around(database: Database, of: Experiment, around: Point) -> tuple[Cursor, Cursor]:
    """Return the first point of a time around a point, and the first one behind it."""
    point, length = around, AROUND_NS
    if isinstance(around, str) and (found := _AROUND.fullmatch(around.strip())):
        point = found["point"].strip()
        try:
            length = duration_ns(found["length"])
        except ValueError as error:
            raise BadCursor(around, str(error)) from None
    at = await resolve(database, of, point)
    if at is None:
        raise BadCursor(repr(around))
    return Cursor(clamped(at.ts - length), 0, 0), Cursor(clamped(at.ts + length + 1), 0, 0)


def _two(between: Any) -> tuple[Any, Any]:
    if isinstance(between, str | bytes) or not isinstance(between, Sequence) or len(between) != 2:
        raise StoreError(f"{between!r} are not two agents: give two ids, or two lists of ids")
    return between[0], between[1]


def _agent_values(agents: Any) -> set[bytes] | None:
    """Return the ids of agents as the log stores them; None if no ids were given."""
    return None if agents is None else {agent_value(agent) for agent in _several(agents)}


def _has(entry: Event, side: str, values: Collection[bytes]) -> bool:
    """Return whether the sender or the recipient of an event is one of these."""
    agent = getattr(entry, side)
    return (agent is not None or entry.channel is not None) and agent_value(agent) in values


def _several(given: Any) -> Iterable[Any]:
    """Return a single value as a tuple, and several as they are."""
    return (given,) if isinstance(given, str | int | float) else given


def _among(column: Any, ids: list[int]) -> ColumnElement[bool]:
    """Return `column IN (ids)`, with the ids in the text of the statement: the number of parameters is limited."""
    return column.in_(bindparam(None, ids, expanding=True, literal_execute=True))  # type: ignore[no-any-return]
