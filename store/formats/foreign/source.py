"""Import of a file of another program as a new experiment.

A `Source` reads one format. Each message becomes an event of one recorder, in the order of the source: events of equal
times keep it. What the file does not say (its time zone, a channel) is chosen by the caller, and noted in the meta of
the experiment with what was left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Protocol

from messager import channels

from ... import limits
from ...errors import BadFile
from ...log.event import NewEvent
from ...log.event_log import EventLog
from ..fields import INT64, InvalidEntry, check_depth, check_meta, text
from ..importing import Imported, Split, importing, left_out_notes


@dataclass(frozen=True, slots=True)
class Choices:
    """Answers to what a file does not say. `timezone` is that of times without one, by default UTC."""

    timezone: tzinfo | None = None
    channel: str | None = None
    column: str | None = None
    """Column of CSV whose value a reader of the events needs."""


class Told:
    """Facts about an import, for its user and for the meta of the experiment."""

    def __init__(self) -> None:
        self.chosen: dict[str, str] = {}
        """The time zone and the channel of events, where the file names none."""
        self.left_out: Counter[str] = Counter()
        """Number of the things that were not imported, by what they are."""
        self._assumed: dict[str, str] = {}

    def choose(self, what: str, chosen: object, otherwise: str) -> None:
        """Note that `what` is `chosen`, or without a choice `otherwise`, which was assumed."""
        self.chosen[what] = otherwise if chosen is None else str(chosen)
        if chosen is None:
            self._assumed[what] = f"assumed: {what} {otherwise} (--{what} names another)"

    def notes(self) -> list[str]:
        """Return the facts that a user has not asked for, as lines."""
        return [*self._assumed.values(), *left_out_notes(self.left_out)]


class Source(Protocol):
    """A file of another program. `InvalidEntry` becomes a `BadFile` with the line while it is open."""

    path: str
    format: str
    """Name of the format, as for `--format`."""
    told: Told

    def opened(self) -> AbstractContextManager[None]:
        """Open the file."""

    def events(self) -> Iterator[NewEvent]:
        """Yield the events in order."""

    def provenance(self) -> dict[str, str]:
        """Return the name of the file, and its SHA-256 if it is one file, after the events."""


async def import_foreign(
    log: EventLog,
    source: Source,
    exp_id: str,
    *,
    name: str | None = None,
    tags: tuple[str, ...] = (),
    meta: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    split: Split | None = None,
) -> Imported:
    """Import a file of another program as a new, closed experiment, or with `split` as several.

    They are visible only when all are complete; if anything in the file is invalid, nothing is imported. Raise
    `BadFile` with the number of the line, also for a file without messages, and `ExperimentExists`.
    """
    with source.opened():
        async with importing(
            log,
            exp_id,
            name=name,
            tags=tags,
            meta=meta or {},
            split=split,
            recorders=[{"format": source.format}],
            progress=progress,
        ) as made:
            empty = True
            for entry in source.events():
                empty = False
                if (part := await made.part_of(entry)) is not None:
                    await made.add(part, 1, tuple(entry), len(entry.payload))
            await made.flush()
            if empty:
                raise BadFile(source.path, None, f"it has no messages of the format {source.format}")
            if not made.parts and split is not None:
                raise BadFile(source.path, None, f"none of its events has {split.by}")
            facts = {"format": source.format, **source.told.chosen, "left_out": dict(source.told.left_out)}
            await made.note(facts | source.provenance())
    return await made.imported(source.told.notes())


def checked(entry: NewEvent) -> NewEvent:
    """Return an event of which the log can hold every value. Raise `InvalidEntry` for any other."""
    if not -INT64 <= entry.ts < INT64:
        raise InvalidEntry("its time is before the year 1678 or after 2262, beyond 64 bits of nanoseconds")
    for field in ("channel", "msg_id"):
        value = getattr(entry, field)
        if value is not None and len(channels.encode(text(value, field))) > limits.MOST_NAME:
            raise InvalidEntry(f"{field} is longer than {limits.MOST_NAME:,} bytes")
    if entry.meta is not None:
        check_meta(entry.meta)
    for field in ("from_id", "to_id"):
        value = getattr(entry, field)
        check_depth(value, field)
        if value.__class__ not in _SMALL and len(json.dumps(value)) > limits.MOST_NAME:
            raise InvalidEntry(f"{field} is longer than {limits.MOST_NAME:,} bytes")
    return entry


_SMALL = (int, bool, type(None))


def as_sent(value: Any) -> bytes:
    """Return a value as a Messager encodes it."""
    try:
        return json.dumps(value).encode()
    except RecursionError:
        raise InvalidEntry("it is nested too deep") from None
