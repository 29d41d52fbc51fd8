"""One side of a comparison: the messages of an experiment, and the names by which they are compared."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import func, select

from messager import channels
from messager.brokers import BROKER_KINDS

from ...db.codes import CHANNEL, KINDS
from ...db.database import Database
from ...db.schema import event
from ...errors import StoreError
from ...experiments.records import Experiment
from ...log.channel_map import ChannelMap
from ...log.event import Cursor, Event
from ...log.event_log import EventLog
from ...log.messages import message_pages
from ...log.names import all_names
from ...log.selection import Filters, Selection, selection_of
from ...log.span import Span
from ...projection.event_lookup import events_at

_MOST_NAMES = 100_000
_SENDER = "\0from "
"""Between a channel and its sender in a key."""


class Side:
    """One side of a comparison: an experiment and its messages, in replay order."""

    def __init__(
        self,
        log: EventLog,
        of: Experiment,
        chosen: Selection,
        span: Span,
        mapping: ChannelMap | None,
        as_one: bool,
        by_sender: bool,
    ) -> None:
        self._log = log
        self._of = of
        self.pages = message_pages(log, of, chosen, span, redacted=True, brief=not by_sender)
        self.by_sender = by_sender
        self.read = 0
        """Number of messages compared."""
        self._mapping = mapping
        self._as_one = as_one
        self._names: dict[str | None, str] = {}
        self._whole: set[str] = set()

    def key(self, entry: Event) -> str:
        """Return what a message is compared by: its channel, or with `by_sender`, its channel and its sender."""
        name = self.name(entry.channel)
        apart = self.by_sender and name not in self._whole
        return f"{name}{_SENDER}{json.dumps(entry.from_id)}" if apart else name

    def leave_whole(self, names: Iterable[str]) -> None:
        """Compare the messages of these channels together: not all of their senders are known."""
        self._whole.update(names)

    async def without_senders(self) -> set[str]:
        """Return the names of the channels on which a message has no sender. Reads all events."""
        kinds = [KINDS.index(kind) + 1 for kind in ("sent", "received")]
        query = (
            select(event.c.channel_id, event.c.kind, func.count() - func.count(event.c.from_id))
            .where(event.c.experiment_id == self._of.id, event.c.kind.in_(kinds))
            .group_by(event.c.channel_id, event.c.kind)
        )
        async with self._log.database.reading() as connection:
            rows = (await connection.execute(query)).all()
        names = await all_names(self._log.database, self._of.id, CHANNEL)
        sent = {channel for channel, kind, _ in rows if kind == kinds[0]}
        return {
            self.name(names[channel])
            for channel, kind, missing in rows
            if missing and channel is not None and (kind == kinds[0] or channel not in sent)
        }

    def name(self, channel: str | None) -> str:
        """Return the name under which a channel is compared."""
        found = self._names.get(channel)
        if found is None:
            text = channel or ""
            found = text if self._mapping is None else channels.decode(self._mapping(text))
            if self._as_one:
                found = channels.with_separator(found, ":")
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[channel] = found
        return found

    async def events(self, cursors: Iterable[Cursor]) -> dict[Cursor, Event]:
        """Return the events at these cursors. Raises `StoreError` if one was removed since it was read."""
        wanted = set(cursors)
        found = await events_at(self._log.database, self._of, wanted)
        if len(found) < len(wanted):
            raise StoreError(f"events of {self._of.exp_id} were removed while they were compared: compare them again")
        return found


def comparable(selection: Selection | None, filters: Filters) -> Selection:
    """Return a selection for each side of a comparison. Raises `StoreError` if it does not keep the order of events."""
    chosen = selection_of(selection, filters)
    if chosen.last_per or chosen.context:
        raise StoreError("messages are compared in order: leave out the last of each, and context")
    return chosen


def parts_of(key: str) -> tuple[str, str]:
    """Return the channel and the sender, as JSON, of a key of `Side.key`; without `by_sender`, the sender is empty."""
    name, _, sender = key.partition(_SENDER)
    return name, sender


class EitherSpelling(Selection):
    """The same selection; a channel is matched by its name on Redis and by its name on MQTT."""

    def __init__(self, chosen: Selection) -> None:
        vars(self).update(vars(chosen))
        self._kinds = BROKER_KINDS

    async def as_recorded(self, database: Database, of: Experiment) -> Selection:
        return self  # one side is from MQTT, so patterns may be topic filters on both

    def takes_channel(self, channel: str | None) -> bool:
        names = (
            [] if channel is None else [channels.with_separator(channel, ":"), channels.with_separator(channel, "/")]
        )
        if self.channels is not None and not any(self.fits(self.channels, name) for name in names):
            return False
        return self.exclude is None or not any(self.fits(self.exclude, name) for name in names)


async def spelt_apart(runs: Iterable[tuple[EventLog, Experiment]]) -> bool:
    """Return whether channels are spelt as on Redis in some of the runs, and as on MQTT in others."""
    return {":", "/"} <= {await _spelling(log, of) for log, of in runs}


async def exp_ids_apart(a: tuple[EventLog, Experiment], b: tuple[EventLog, Experiment]) -> tuple[str, str] | None:
    """Return the exp_ids in the channels of two runs, if each has one and they differ; None if they keep none apart."""
    of_a, of_b = [{channels.with_separator(name, ":") for name in await log.channels(of)} for log, of in (a, b)]
    found = [{parsed.exp_id for name in names if (parsed := channels.parse(name))} for names in (of_a, of_b)]
    if found[0] == found[1] or any(len(exp_ids) != 1 for exp_ids in found):
        return None
    [exp_a], [exp_b] = found
    try:
        renamed = ChannelMap(None, exp_b)
    except StoreError:
        return None
    return (exp_a, exp_b) if any(channels.decode(renamed(name)) in of_b for name in of_a - of_b) else None


async def _spelling(log: EventLog, of: Experiment) -> channels.Separator | None:
    """Return the separator of an experiment's channels; None if it has both or neither.

    If no kind of broker is known, as for some imports, the names decide.
    """
    found = {kind.separator for row in await log.recorders(of) if (kind := row.broker_kind) is not None}
    if not found:
        found = {known for name in await log.channels(of) if (known := channels.separator(name)) is not None}
    return found.pop() if len(found) == 1 else None
