"""A `Selection` as a condition of DuckDB on the columns of `schema`. `content.takes` tests what SQL cannot."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..db.codes import CHANNEL
from ..db.database import Database
from ..experiments.records import Experiment
from ..log.event import Cursor
from ..log.names import all_names, name_text
from ..log.selection import NOBODY, Selection
from ..log.span import Span
from .schema import id_columns


@dataclass(slots=True)
class Condition:
    """Conditions that must all hold, with `e` as the table, and the values of their parameters."""

    texts: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, text: str, **values: Any) -> None:
        """Add a condition. The names of parameters are distinct."""
        self.texts.append(text)
        self.values.update(values)

    @property
    def where(self) -> str:
        """All conditions."""
        return " AND ".join(f"({text})" for text in self.texts) or "true"


class Rows(Enum):
    """Rows among which a selection selects."""

    EVENTS = "all events"
    MESSAGES = "each message once, without redacted ones"
    """With kinds, those of these kinds: without `sent`, each message that was received is there once, as its first
    reception. Events of other kinds than sent and received are all there."""
    SHOWN = "each message once, and what was blocked or failed, as on the page"


_FIRST_RECEPTIONS = """SELECT min_by(id, (ts, id)) FROM event
    WHERE kind = 'received' AND message_id IS NOT NULL AND NOT is_copy GROUP BY message_id"""
_SHOWN = ("blocked", "failed")


async def condition_of(database: Database, of: Experiment, selection: Selection, rows: Rows) -> Condition:
    """Return the conditions of a selection, without its points, numbers and `content`, and that of `rows`."""
    made = Condition()
    if rows is Rows.SHOWN:
        made.add(f"e.message_id = e.id OR e.kind IN {_SHOWN}")
    elif rows is Rows.MESSAGES:
        first = selection.kinds is not None and "received" in selection.kinds and "sent" not in selection.kinds
        message = f"e.id IN ({_FIRST_RECEPTIONS})" if first else "e.message_id = e.id"
        made.add(message if selection.kinds is None else f"{message} OR e.kind NOT IN ('sent', 'received')")
    if rows is Rows.MESSAGES or not selection.redacted:
        made.add("NOT e.redacted")
    if selection.kinds is not None:
        made.add("list_contains($kinds, e.kind)", kinds=sorted(selection.kinds))
    if selection.channels is not None or selection.exclude is not None or selection.left_out:
        here = await selection.as_recorded(database, of)
        known = (await all_names(database, of.id, CHANNEL)).values()
        names = [name_text(channel) for channel in known if here.takes_channel(channel)]
        other = "" if selection.channels is not None else " OR e.channel IS NULL"
        made.add(f"e.channel IN (SELECT unnest($channels)){other}", channels=names)
    await _add_agents(database, of, selection, made)
    return made


def add_span(made: Condition, span: Span) -> None:
    """Add the points of a span."""
    for name, operator, at in (("start", ">=", span.start), ("after", ">", span.after), ("end", "<", span.end)):
        if at is not None:
            add_place(made, name, operator, at)


def add_place(made: Condition, name: str, operator: str, at: Cursor) -> None:
    """Add a comparison with a place in replay order."""
    ts, recorder, seq = (f"${name}_{part}" for part in ("ts", "recorder", "seq"))
    made.add(
        f"e.ts {operator[0]}= {ts} AND (e.ts <> {ts} OR (e.recorder, e.seq) {operator} ({recorder}, {seq}))",
        **{f"{name}_ts": at.ts, f"{name}_recorder": at.recorder, f"{name}_seq": at.seq},
    )


async def _add_agents(database: Database, of: Experiment, selection: Selection, made: Condition) -> None:
    asked = (selection.agents, selection.from_ids, selection.to_ids)
    if all(values is None for values in asked) and not (selection.pairs or selection.senders_left_out):
        return

    def among(column: str, name: str, values: Collection[bytes]) -> str:
        ids = [id_columns(json.loads(value)) for value in values if value != NOBODY]
        made.values[name] = [f"{kind}:{text}" for text, kind in ids]
        nobody = f"e.{column}_id IS NULL AND e.channel IS NOT NULL" if NOBODY in values else "false"
        return f"(coalesce(list_contains(${name}, e.{column}_type || ':' || e.{column}_id), false) OR {nobody})"

    if selection.agents is not None:
        made.add(f"{among('from', 'agents', selection.agents)} OR {among('to', 'agents', selection.agents)}")
    if selection.senders_left_out:
        made.add(f"e.from_id IS NOT NULL AND NOT {among('from', 'left_out', selection.senders_left_out)}")
    if selection.from_ids is not None:
        made.add(among("from", "senders", selection.from_ids))
    if selection.to_ids is not None:
        made.add(among("to", "recipients", selection.to_ids))
    if selection.pairs:
        pairs = [
            f"{among('from', f'a{at}', a)} AND {among('to', f'b{at}', b)}" for at, (a, b) in enumerate(selection.pairs)
        ]
        made.add(" OR ".join(f"({pair})" for pair in pairs))
