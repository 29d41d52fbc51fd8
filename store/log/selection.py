"""A choice of events, as a test of one event and as SQL."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

from sqlalchemy import ColumnElement, bindparam, or_

from messager import channels
from messager.brokers import BROKER_KINDS, BrokerKind

from ..db.codes import AGENT, CHANNEL, KINDS, REDACTED
from ..db.database import Database
from ..db.schema import event
from ..errors import StoreError
from ..experiments.records import Experiment
from ..experiments.registry import recorders_of
from .event import Event
from .names import agent_value, all_names


class Selection:
    """A choice of events: all conditions that are given must hold. Raises `StoreError` for an unknown kind.

    `channels` and `exclude` are glob patterns; in a recording of MQTT they may also be topic filters. `from_ids` are
    senders, `to_ids` recipients, `agents` either; ids have their JSON type (5 is not "5"), and derived ids count. An
    event without a sender matches no `from_ids`, one without a recipient no `to_ids`. A single kind, pattern or id
    needs no list.
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
        """True to include redacted events."""
        self.left_out: frozenset[str] = frozenset()
        """Names of channels that are excluded in addition to the patterns."""
        self._kinds: tuple[BrokerKind, ...] = ()
        """Kinds of brokers whose wildcards apply in addition to those of globs."""
        unknown = (self.kinds or set()) - set(KINDS)
        if unknown:
            raise StoreError(f"unknown kind {', '.join(sorted(unknown))}. The kinds are {', '.join(KINDS)}.")

    @property
    def everything(self) -> bool:
        """True if only kinds and redacted events are excluded."""
        given = (self.channels, self.exclude, self.agents, self.from_ids, self.to_ids)
        return not self.left_out and all(one is None for one in given)

    def of_kinds(self, kinds: Iterable[str]) -> Selection:
        """Return the same selection with other kinds."""
        other = copy(self)
        other.kinds = set(kinds)
        return other

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
        other = copy(self)
        kinds = {kind for row in await recorders_of(database, of.id) if (kind := row.broker_kind)}
        if kinds:
            other._kinds = tuple(kinds)
        elif wild.isdisjoint((await all_names(database, of.id, CHANNEL)).values()):
            other._kinds = BROKER_KINDS
        return other

    def takes(self, entry: Event) -> bool:
        """Return whether an event is selected."""
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
        """Return the same selection without redacted events."""
        other = copy(self)
        other.redacted = False
        return other

    def without(self, names: Iterable[str]) -> Selection:
        """Return the same selection without the channels of these names."""
        other = copy(self)
        other.left_out = self.left_out.union(names)
        return other

    async def condition(self, database: Database, of: Experiment) -> list[ColumnElement[bool]]:
        """Return the conditions as SQL, with the ids that the experiment has for the names."""
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
    """Return the ids of agents as the log stores them; None if no ids were given."""
    return None if agents is None else {agent_value(agent) for agent in _several(agents)}


def _is_among(agent: Any, values: set[bytes]) -> bool:
    """Return whether a sender or recipient is one of these; a missing one never is."""
    return agent is not None and agent_value(agent) in values


def _several(given: Any) -> Iterable[Any]:
    """Return a single value as a tuple, and several as they are."""
    return (given,) if isinstance(given, str | int | float) else given


def _among(column: Any, ids: list[int]) -> ColumnElement[bool]:
    """Return `column IN (ids)`, with the ids in the text of the statement: the number of parameters is limited."""
    return column.in_(bindparam(None, ids, expanding=True, literal_execute=True))  # type: ignore[no-any-return]
