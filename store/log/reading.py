"""Reading events: pages in replay order, and the tail of what is being recorded.

No read transaction outlives a page. A replay-order read fixes each recorder's last seq
when it starts. A tail follows `{recorder: seq}`: each recorder commits serially, so
nothing can become visible behind the reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    tuple_,
)

from messager import channels
from messager.brokers import BROKER_KINDS, BrokerKind, kind_of

from ..db.database import Database
from ..db.schema import (
    AGENT,
    CHANNEL,
    KINDS,
    REDACTED,
    SEQ_BITS,
    SEQ_MASK,
    event,
    experiment,
    place_at,
    recorder,
    replay_place,
)
from ..errors import DamagedStore, StoreError
from ..experiments.registry import Experiment, recorders_of
from . import event_rows
from .cursor import Point, resolve
from .event import Cursor, Event
from .names import NameReader, agent_value, all_names

PAGE = 1000
"""Events in a page, at the most."""
PAGE_BYTES = 16 * 1024 * 1024
"""Payload bytes in a page, as the experiment's average lets expect."""
HELD = 8 * 1024 * 1024
"""Bytes of large payloads that are handed on together."""
TOGETHER = 500
"""Events made of their rows, and handed on, together."""
_BEFORE_ALL = (-(2**63), -1)


class Selection:
    """Which events are wanted. Raises `StoreError` for a kind that there is not.

    `channels` and `exclude` are glob patterns; of a recording of MQTT they may be filters, as `record` takes them.
    `from_ids` are senders, `to_ids` recipients, and `agents` may be either; ids have their JSON type (5 is not "5").
    All conditions that are given must hold. An event without a sender fits no `from_ids`, one without a recipient
    no `to_ids`; derived ids count. One kind, pattern or id may be given as it is.
    """

    def __init__(
        self,
        kinds: Iterable[str] | str | None = None,
        channels: Iterable[str] | str | None = None,
        exclude: Iterable[str] | str | None = None,
        agents: Iterable[Any] | int | str | None = None,
        from_ids: Iterable[Any] | int | str | None = None,
        to_ids: Iterable[Any] | int | str | None = None,
    ) -> None:
        self.kinds = None if kinds is None else set(_several(kinds))
        self.channels = None if channels is None else list(_several(channels))
        self.exclude = None if exclude is None else list(_several(exclude))
        self.agents, self.from_ids, self.to_ids = map(_agent_values, (agents, from_ids, to_ids))
        self.redacted = True
        """Whether redacted events are wanted too."""
        self.left_out: frozenset[str] = frozenset()
        """Names of channels that are not wanted, whatever the patterns say."""
        self._kinds: tuple[BrokerKind, ...] = ()
        """Kinds of brokers whose own wildcards count as such, beside those of a glob."""
        unknown = (self.kinds or set()) - set(KINDS)
        if unknown:
            raise StoreError(f"there is no kind {', '.join(sorted(unknown))}: kinds are {', '.join(KINDS)}")

    @property
    def everything(self) -> bool:
        """Whether it leaves out nothing but kinds and redacted events."""
        given = (self.channels, self.exclude, self.agents, self.from_ids, self.to_ids)
        return not self.left_out and all(one is None for one in given)

    def of_kinds(self, kinds: Iterable[str]) -> Selection:
        """The same with other kinds."""
        other = copy(self)
        other.kinds = set(kinds)
        return other

    def takes_channel(self, channel: str | None) -> bool:
        """Whether the channel patterns let it in. Gaps and marks have no channel."""
        if channel in self.left_out:
            return False
        if self.channels is not None and (channel is None or not self.fits(self.channels, channel)):
            return False
        return self.exclude is None or channel is None or not self.fits(self.exclude, channel)

    def fits(self, patterns: list[str], channel: str) -> bool:
        """Whether any of the patterns fits a channel."""
        return channels.matches_any(patterns, channel) or any(
            kind.is_own_pattern(pattern) and kind.matches(pattern, channel)
            for kind in self._kinds
            for pattern in patterns
        )

    async def as_recorded(self, database: Database, of: Experiment) -> Selection:
        """The same for one experiment: in a recording of MQTT `a/+/b` is a filter, in one of Redis a channel's name.

        Where it is not known what was recorded, as of an import, it is a filter unless there is a channel of that name.
        """
        patterns = (*(self.channels or ()), *(self.exclude or ()))
        wild = {pattern for pattern in patterns if any(kind.is_own_pattern(pattern) for kind in BROKER_KINDS)}
        if not wild:
            return self
        other = copy(self)
        kinds = {kind_of(row.broker) for row in await recorders_of(database, of.id) if row.broker}
        if kinds:
            other._kinds = tuple(kinds)
        elif wild.isdisjoint((await all_names(database, of.id, CHANNEL)).values()):
            other._kinds = BROKER_KINDS
        return other

    def takes(self, entry: Event) -> bool:
        """Whether an event is wanted."""
        if self.kinds is not None and entry.kind not in self.kinds:
            return False
        if not self.redacted and entry.redacted:
            return False
        if not self.takes_channel(entry.channel):
            return False
        return (
            (self.agents is None or _is_among(entry.from_id, self.agents) or _is_among(entry.to_id, self.agents))
            and (self.from_ids is None or _is_among(entry.from_id, self.from_ids))
            and (self.to_ids is None or _is_among(entry.to_id, self.to_ids))
        )

    def without_redacted(self) -> Selection:
        """The same without redacted events."""
        other = copy(self)
        other.redacted = False
        return other

    def without(self, names: Iterable[str]) -> Selection:
        """The same without the channels that have these names."""
        other = copy(self)
        other.left_out = self.left_out.union(names)
        return other

    async def condition(self, database: Database, of: Experiment) -> list[ColumnElement[bool]]:
        """The same as SQL, with names turned into the experiment's ids for them."""
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
        senders, recipients = event.c.from_id, event.c.to_id
        by_agent = ((self.agents, (senders, recipients)), (self.from_ids, (senders,)), (self.to_ids, (recipients,)))
        if any(values is not None for values, _ in by_agent):
            agents = await all_names(database, of.id, AGENT)
            for values, columns in by_agent:
                if values is not None:
                    wanted = [number for number, agent in agents.items() if agent_value(agent) in values]
                    conditions.append(or_(*(_among(column, wanted) for column in columns)))
        return conditions


def _agent_values(agents: Any) -> set[bytes] | None:
    """Agents' ids as they are kept; None if none were given."""
    return None if agents is None else {agent_value(agent) for agent in _several(agents)}


def _is_among(agent: Any, values: set[bytes]) -> bool:
    """Return whether a sender or recipient is one of these; a missing one never is."""
    return agent is not None and agent_value(agent) in values


def _several(given: Any) -> Iterable[Any]:
    """What was given, as several: a text would be taken for its letters."""
    return (given,) if isinstance(given, str | int | float) else given


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where: `start` and `behind` are lower bounds, included and excluded."""

    start: Cursor | None = None
    end: Cursor | None = None
    behind: Cursor | None = None
    limit: int | None = None
    last_seqs: dict[int, int] | None = None
    """By ordinal, behind which seq a recorder's events are left out; all of a recorder that is not in it."""


async def span_of(
    database: Database,
    of: Experiment,
    since: Point = None,
    until: Point = None,
    after: Point = None,
    limit: int | None = None,
) -> Span:
    """The part of an experiment between these points, as `EventLog.read` takes them. Raises `BadCursor`."""
    return Span(
        await resolve(database, of, since),
        await resolve(database, of, until),
        await resolve(database, of, after, behind=True),
        limit,
    )


def _among(column: Any, ids: list[int]) -> ColumnElement[bool]:
    """`column IN (ids)`. The ids are ours and whole numbers, so they may stand in the
    statement itself, which has no limit on how many there are."""
    return column.in_(bindparam(None, ids, expanding=True, literal_execute=True))  # type: ignore[no-any-return]


async def pages(
    database: Database,
    of: Experiment,
    chosen: Selection,
    span: Span,
    *,
    page: int | None = None,
    above: int | None = None,
) -> AsyncIterator[list[Event]]:
    """The events that are wanted, in replay order, in lists of at most `page`.

    With `above`, only those with more payload bytes than that.
    """
    numbers, ordinals, bounds = await _recorders(database, of)
    if span.last_seqs is not None:
        bounds = {number: min(last, span.last_seqs.get(ordinals[number], 0)) for number, last in bounds.items()}
    page = page or await _page_size(database, of)
    conditions = [event.c.experiment_id == of.id, *await chosen.condition(database, of)]
    if span.end is not None:
        conditions.append(replay_place < place_at(*_key(span.end, numbers)))
    if above is not None:
        conditions.append(func.length(event.c.payload) > above)
    place = _BEFORE_ALL
    if span.start is not None:
        ts, number = _key(span.start, numbers)
        place = ts, number - 1
    if span.behind is not None:
        place = max(place, _key(span.behind, numbers))
    conditions.append(replay_place > tuple_(_number("ts"), _number("number")))
    order = (event.c.ts, event.c.id)
    query = _Query(event_rows.columns().where(and_(*conditions)).order_by(*order).limit(_number("size")))
    names = NameReader(database)
    left = span.limit
    while left is None or left > 0:
        size = page if left is None else min(page, left)
        rows = await query.rows(database, ts=place[0], number=place[1], size=size)
        if not rows:
            return
        place = event_rows.position(rows[-1])
        short = len(rows) < size
        async for entries in _events(database, rows, ordinals, names, bounds):
            if left is not None:
                left -= len(entries)
            yield entries
        if short:
            return


async def tail(
    database: Database, of: Experiment, position: dict[int, int], poll: float, *, page: int = PAGE
) -> AsyncIterator[list[Event]]:
    """What recorders commit, from a tail position `{ordinal: seq}` on, until the experiment is closed."""
    names = NameReader(database)
    some = event.c.id > _number("seen"), event.c.id <= _number("last")
    query = _Query(event_rows.columns().where(*some).order_by(event.c.id))
    while True:
        async with database.reading() as connection:
            status = (
                await connection.execute(select(experiment.c.status).where(experiment.c.id == of.id))
            ).scalar_one_or_none()
        _, ordinals, bounds = await _recorders(database, of)  # after the status: nothing follows "closed"
        idle = True
        for number, ordinal in ordinals.items():
            seen = position.get(ordinal, 0)
            while seen < bounds[number]:
                last = min(bounds[number], seen + page)
                base = number << SEQ_BITS
                rows = await query.rows(database, seen=base | seen, last=base | last)
                idle = False
                seen = position[ordinal] = last
                async for entries in _events(database, rows, ordinals, names, bounds):
                    yield entries
        if status != "open":
            return
        if idle:
            await asyncio.sleep(poll)


async def count(database: Database, of: Experiment, chosen: Selection, span: Span) -> int:
    """How many events are wanted."""
    numbers, _, _ = await _recorders(database, of)
    conditions = [event.c.experiment_id == of.id, *await chosen.condition(database, of)]
    if span.start is not None:
        conditions.append(replay_place >= place_at(*_key(span.start, numbers)))
    if span.end is not None:
        conditions.append(replay_place < place_at(*_key(span.end, numbers)))
    async with database.reading() as connection:
        query = select(func.count()).select_from(event).where(and_(*conditions))
        return int((await connection.execute(query)).scalar_one())


def _number(name: str) -> Any:
    """A parameter of the statement."""
    return bindparam(name, 0, BigInteger)


def _key(cursor: Cursor, numbers: dict[int, int]) -> tuple[int, int]:
    """A cursor as (ts, id), as the database orders it: recorders in order of their ids, as of their ordinals."""
    at = [ordinal for ordinal in numbers if ordinal <= cursor.recorder]
    nearest = max(at, default=0)
    if not nearest:
        number, seq = 0, 0
    elif nearest < cursor.recorder:
        number, seq = numbers[nearest], SEQ_MASK
    else:
        number, seq = numbers[nearest], min(cursor.seq, SEQ_MASK)
    return cursor.ts, number << SEQ_BITS | seq


async def _recorders(database: Database, of: Experiment) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Recorder ids by ordinal, ordinals by id, and last seqs by id."""
    query = (
        select(recorder.c.id, recorder.c.ordinal, recorder.c.last_seq)
        .where(recorder.c.experiment_id == of.id)
        .order_by(recorder.c.ordinal)
    )
    async with database.reading() as connection:
        rows = (await connection.execute(query)).all()
    return (
        {ordinal: number for number, ordinal, _ in rows},
        {number: ordinal for number, ordinal, _ in rows},
        {number: last for number, _, last in rows},
    )


async def _page_size(database: Database, of: Experiment) -> int:
    """How many events make a page that fits into memory."""
    query = select(func.sum(recorder.c.payload_bytes), func.sum(recorder.c.last_seq)).where(
        recorder.c.experiment_id == of.id
    )
    async with database.reading() as connection:
        payload_bytes, events = (await connection.execute(query)).one()
    if not payload_bytes or not events:
        return PAGE
    return max(50, min(PAGE, PAGE_BYTES * int(events) // int(payload_bytes)))


class _Query:
    """A statement that is made into SQL once, and run for every page; what changes are parameters of it."""

    def __init__(self, statement: Select[Any]) -> None:
        self._statement = statement
        self._sql = ""
        self._names: Sequence[str] = ()
        self._values: dict[str, Any] = {}

    async def rows(self, database: Database, **values: int) -> list[Any]:
        """The rows, as tuples, straight from the driver."""
        async with database.reading() as connection:
            if not self._sql:
                compiled = self._statement.compile(
                    dialect=connection.dialect, compile_kwargs={"render_postcompile": True}
                )
                self._sql, self._names = str(compiled), compiled.positiontup or ()
                self._values = dict(compiled.params)
            known = self._values | values
            return list(await database.dialect.fetch(connection, self._sql, [known[name] for name in self._names]))


async def _events(
    database: Database, rows: list[Any], ordinals: dict[int, int], names: NameReader, bounds: dict[int, int]
) -> AsyncIterator[list[Event]]:
    """Rows as events, a few at a time, without those behind a recorder's last seq in `bounds`.

    Few, because they are let go of before the next ones are made: whole pages would have the garbage
    collector look through all of them several times, which costs as much as making them.
    """
    numbers = {ordinal: number for number, ordinal in ordinals.items()}
    for at in range(0, len(rows), TOGETHER):
        part = rows[at : at + TOGETHER]
        try:
            entries = event_rows.unpack(part, ordinals, names.values, bounds)
        except KeyError:
            await names.load(event_rows.name_ids(part))
            try:
                entries = event_rows.unpack(part, ordinals, names.values, bounds)
            except KeyError:
                reason = "an event names a channel or an agent that is missing; `messager verify` says where"
                raise DamagedStore(database.location, reason) from None
        begin = held = 0
        for place, entry in enumerate(entries):
            if entry.payload is None:
                entry.payload = await _payload(database, numbers[entry.recorder] << SEQ_BITS | entry.seq)
                held += len(entry.payload)
                if held > HELD:
                    yield entries[begin : place + 1]
                    entries[begin : place + 1] = [None] * (place + 1 - begin)  # let go of them
                    begin, held = place + 1, 0
        if begin < len(entries):
            yield entries[begin:] if begin else entries


async def _payload(database: Database, number: int) -> bytes:
    async with database.reading() as connection:
        query = select(event.c.payload).where(event.c.id == number)
        return bytes((await connection.execute(query)).scalar_one())
