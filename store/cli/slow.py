"""A note before a search that takes long because the experiment is not indexed."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from .output import note

if TYPE_CHECKING:
    from ..experiments.records import Experiment
    from ..log.event_log import EventLog
    from ..log.selection import Selection

MANY = 100_000
"""Events from which decoding every text takes a noticeable time: about a second."""


async def note_slow(log: EventLog, of: Experiment, selection: Selection) -> None:
    """Print a note if a search must decode the text of many events."""
    from ..queries.side_tables import is_behind

    if not selection.searches or sum(row.last_seq for row in await log.recorders(of)) < MANY:
        return
    if await is_behind(log.database, of.id):
        note(f"{of.exp_id} is not indexed, so every text is decoded: `messager index {quote(of.exp_id)}` is faster")
