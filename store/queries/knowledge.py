"""Messages that an agent could have known at a point: the rule of the page (`view/page/knowledge.js`), as one query.

A reception belongs to the only agent that sends through its Messager; else to the recipient of the message; of a
message to nobody in particular, to every agent that sends through the Messager. What such an agent knew:

- `heard`: if it sent the message at the point, and the schedule is recorded, what its Messager had handed over by then.
- `delivered`: else, if somebody else sent that, what had arrived at its Messager, if receptions there are recorded.
- `before`: else what had been sent to it, or to nobody in particular on a channel on which it had spoken: all that
  could have informed it.

Its own messages before the point are known to it as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..experiments.records import Experiment
from ..log.cursor import Point, resolve
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.selection import Selection
from ..projection.event_lookup import events_at
from ..projection.query import Progress, projected
from ..projection.schema import id_columns
from ..projection.selecting import Condition, add_place

_TABLES = """
    WITH said AS (SELECT *, from_type || ':' || from_id AS one, to_type || ':' || to_id AS other
        FROM event WHERE message_id = id AND NOT redacted),
    senders AS (SELECT DISTINCT messager, from_type || ':' || from_id AS one FROM event
        WHERE kind IN ('sent', 'blocked', 'failed') AND messager IS NOT NULL AND from_id IS NOT NULL),
    owners AS (SELECT messager, min(one) AS one FROM senders GROUP BY messager HAVING count(*) = 1),
    receptions AS (SELECT r.ts, r.recorder, r.seq, r.messager, r.arrival, m.id, CASE
            WHEN m.other NOT IN (SELECT one FROM owners) AND count(*) OVER (PARTITION BY m.id) = 1 THEN m.other
            ELSE coalesce(o.one, m.other) END AS receiver
        FROM event r JOIN said m ON r.message_id = m.id LEFT JOIN owners o ON o.messager = r.messager
        WHERE r.kind = 'received' AND NOT r.is_copy),
    reached AS (SELECT * FROM receptions WHERE list_contains($agents, receiver)
        OR receiver IS NULL AND messager IN (SELECT messager FROM senders WHERE list_contains($agents, one)))
"""
_INFORMING = """list_contains($agents, other) OR other IS NULL AND channel IN (SELECT channel FROM said o
    WHERE list_contains($agents, o.one) AND (o.ts, o.recorder, o.seq) <= ($ts, $recorder, $seq))"""


@dataclass(frozen=True, slots=True)
class Known:
    """Result of `known_to`."""

    messages: list[Event]
    """In replay order."""
    basis: str
    """How it is known what had reached the agent: heard, delivered or before."""


async def known_to(
    log: EventLog,
    of: Experiment,
    agents: Collection[Any],
    before: Point,
    selection: Selection | None = None,
    *,
    progress: Progress | None = None,
) -> Known:
    """Return the selected messages that one of these agents (ids with their JSON type) had received or sent before a
    point: a cursor is an event, which is not among them.

    `progress` is called while the projection is brought up to date. Raises `BadCursor` for a point that is none, and
    `StoreError` if DuckDB or pyarrow is not installed.
    """
    at = await resolve(log.database, of, before) or Cursor(2**63 - 1, 0, 0)
    earlier = Condition()
    add_place(earlier, "before", "<", at)
    ids = [":".join(reversed(id_columns(agent))) for agent in agents]
    values = {**earlier.values, "agents": ids, "ts": at.ts, "recorder": at.recorder, "seq": at.seq}
    async with projected(log, of, progress) as here:

        def ask() -> tuple[str, list[tuple[Any, ...]]]:
            asked = f"{_TABLES} SELECT messager, heard FROM said WHERE (ts, recorder, seq) = ($ts, $recorder, $seq)"
            own = here.rows(f"{asked} AND list_contains($agents, one)", values)
            messager, heard = own[0] if own else (None, None)
            if messager is not None and heard is not None:
                basis, told = "heard", "SELECT id FROM reached WHERE messager = $messager AND arrival <= $heard"
            elif not own and here.rows(f"{_TABLES} SELECT 1 FROM reached LIMIT 1", values):
                basis, told = "delivered", f"SELECT id FROM reached e WHERE {earlier.where}"
            else:
                basis, told = "before", f"SELECT id FROM said e WHERE {earlier.where} AND ({_INFORMING})"
            mine = f"list_contains($agents, one) AND {earlier.where}"
            found = f"{_TABLES} SELECT ts, recorder, seq FROM said e WHERE id IN ({told}) OR ({mine}) ORDER BY ts, id"
            return basis, here.rows(found, {**values, "messager": messager, "heard": heard})

        basis, places = await asyncio.to_thread(ask)
    cursors = [Cursor(*place) for place in places]
    events = await events_at(log.database, of, cursors)
    chosen = await (selection or Selection()).as_recorded(log.database, of)
    skipped = chosen.skipped(log.database, of)
    messages = [events[one] for one in cursors if one in events and chosen.takes(events[one], skipped)]
    return Known(messages[: chosen.limit], basis)
