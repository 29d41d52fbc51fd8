"""Export of an experiment to a JSON Lines file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Unpack

from sqlalchemy import select

from ...db.codes import REDACTED, SEQ_BITS
from ...db.schema import event
from ...experiments.records import Experiment, RecorderRow
from ...log.attributes import KEYS, decode
from ...log.event import Event
from ...log.event_log import EventLog
from ...log.redaction_records import without_seal
from ...log.selection import Filters, Selection, selection_of
from ..exporting import begin
from ..output_file import open_output
from ..sharing import Sharing
from .event_text import EventText, attributes_of
from .parser import FORMAT


class _Lines:
    """Encodes the lines of events."""

    def __init__(self, labels: _Labels, *, several: bool) -> None:
        self._labels = labels
        self._several = several
        self._readable, self._ascii = EventText(ascii=False), EventText(ascii=True)

    def line(self, entry: Event) -> bytes:
        """Return the line of an event."""
        rest = self._rest(entry)
        try:
            return self._line(self._readable, entry, rest)
        except UnicodeEncodeError:  # a lone surrogate in an id or in meta
            return self._line(self._ascii, entry, rest)

    def _line(self, text: EventText, entry: Event, rest: dict[str, Any]) -> bytes:
        fields = text.fields(entry)
        if self._several:
            fields += f', "recorder": {entry.recorder}'
        if rest:
            fields += f", {text.dumps(rest)[1:-1]}"
        return f"{{{fields}}}\n".encode()

    def _rest(self, entry: Event) -> dict[str, Any]:
        """Return the less frequent fields."""
        rest = attributes_of(entry)
        if entry.flags & REDACTED and "meta" in rest:
            meta = without_seal(rest.pop("meta"))
            rest |= {} if meta is None else {"meta": meta}
        if entry.flags and (derived := entry.derived_ids):
            rest["derived"] = derived
        if self._labels.wanted:
            for field, label in (("label", self._labels.given_to(entry)), ("cause", self._labels.of_cause(entry))):
                if label is not None:
                    rest[field] = label
        return rest


async def _causes(log: EventLog, of: Experiment) -> set[tuple[int, int]]:
    """Return (recorder, seq) of the events that other events name as their cause."""
    rows = await log.recorders(of)
    ordinals, by_uuid = {row.id: row.ordinal for row in rows}, {row.uuid: row.ordinal for row in rows}
    query = select(event.c.id, event.c.attributes).where(
        event.c.experiment_id == of.id, event.c.attributes.contains(f'"{KEYS["cause"]}":')
    )
    found: set[tuple[int, int]] = set()
    async with log.database.reading() as connection:
        for number, text in await connection.execute(query):
            if isinstance(cause := decode(text).get("cause"), int):
                found.add((ordinals.get(number >> SEQ_BITS, 0), cause))
            elif cause is not None:
                found.add((by_uuid.get(cause[0], 0), cause[1]))
    return found


class _Labels:
    """Numbers of the events that later events name as their cause, as import assigns new sequence numbers."""

    def __init__(self, causes: set[tuple[int, int]]) -> None:
        self.wanted = bool(causes)
        """True if there are labels."""
        self._causes = causes
        self._labels: dict[tuple[int, int], int] = {}

    def given_to(self, entry: Event) -> int | None:
        """Return the label of an event that is the cause of another one."""
        if not self._causes or (place := (entry.recorder, entry.seq)) not in self._causes:
            return None
        return self._labels.setdefault(place, len(self._labels) + 1)

    def of_cause(self, entry: Event) -> int | None:
        """Return the label of the cause of an event; None if the cause was not written before."""
        return None if entry.cause is None else self._labels.get(entry.cause)


def _dumped(data: dict[str, Any]) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(data).encode() + b"\n"


def _header(of: Experiment, recorders: list[RecorderRow], shared: Sharing | None) -> bytes:
    data = {
        "format": FORMAT,
        "name": of.name,
        "tags": of.tags,
        "meta": _meta(of.meta),
        "recorders": [_recorder_entry(row) for row in recorders],
    }
    if of.parent_exp_id is not None and of.parent_head is not None:
        data["parent"] = {"exp_id": of.parent_exp_id, "head": of.parent_head.hex(), "cursor": of.parent_cursor}
    return _dumped(data if shared is None else shared.header(data))


def _meta(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the meta without the file that this store imported: an import of the export notes its own."""
    if not isinstance(imported := meta.get("imported"), dict):
        return meta
    rest = {key: value for key, value in imported.items() if key not in ("file", "sha256")}
    return {key: rest if key == "imported" else value for key, value in meta.items() if rest or key != "imported"}


def _recorder_entry(row: RecorderRow) -> dict[str, Any]:
    """Return the description of a recorder for the header; that of an imported one is passed on."""
    if row.role == "import" and row.meta:
        return row.meta
    return {
        "uuid": row.uuid,
        "role": row.role,
        "patterns": row.patterns,
        "host": row.host,
        "started_at": row.started_at,
        # of a repaired recorder, ended_at is the time of the repair
        "ended_at": row.heartbeat_at if row.ended_at is not None and row.unclean else row.ended_at,
        "meta": row.meta,
    }


async def export_jsonl(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int], None] | None = None,
    shared: Sharing | None = None,
    selection: Selection | None = None,
    **filters: Unpack[Filters],
) -> int:
    """Export an experiment to a file (`-` for standard output), and return the number of events.

    The selection is given as for `EventLog.read`. The file appears when it is complete, and replaces an existing one.
    The same events give the same bytes, unless `shared` pseudonymises them: pseudonyms are new in every export.
    """
    export = await begin(log, exp_id, progress, shared)
    recorders = await log.recorders(export.of)
    lines = _Lines(_Labels(await _causes(log, export.of)), several=len(recorders) > 1)
    with open_output(path) as file:
        file.write(_header(export.of, recorders, shared))
        async for page in export.pages(selection_of(selection, filters)):
            file.write(b"".join(map(lines.line, page)))
    return export.count


write = export_jsonl
"""Name that every format has for it."""
