"""Export of an experiment to a JSON Lines file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from messager import channels

from ...experiments.records import Experiment, RecorderRow
from ...log.event import Event
from ...log.event_log import EventLog
from ...log.messages import causes
from ...log.redaction_records import without_seal
from ..fields import bytes_field
from ..output_file import open_output
from ..sharing import Sharing
from .parser import FORMAT

_READABLE = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
"""As `json.dumps`, which creates an encoder for every line. Values from a store have no cycles."""


def event_to_dict(entry: Event) -> dict[str, Any]:
    """Return the fields of an event that export and `events --json` share."""
    data: dict[str, Any] = {"ts": entry.ts, "kind": entry.kind}
    data |= {"channel": None} if entry.channel is None else bytes_field("channel", channels.encode(entry.channel))
    data |= {"from_id": entry.from_id, "to_id": entry.to_id}
    data |= bytes_field("payload", entry.payload)
    if entry.redacted:
        data["redacted"] = True
    return data


def _line(entry: Event, labels: _Labels, *, several: bool) -> bytes:
    data = event_to_dict(entry)
    if several:
        data["recorder"] = entry.recorder
    optional = (
        ("label", labels.given_to(entry)),
        ("cause", labels.of_cause(entry)),
        ("derived", (entry.derived_ids or None) if entry.flags else None),
        ("msg_id", entry.msg_id),
        ("duration_ns", entry.duration_ns),
        ("receivers", entry.receivers),
        ("meta", without_seal(entry.meta) if entry.redacted else entry.meta),
        ("messager", entry.messager),
        ("arrival", entry.arrival),
        ("origin", entry.origin),
    )
    for key, value in optional:
        if value is not None:
            data[key] = value
    return _dumped(data)


class _Labels:
    """Numbers of the events that later events name as their cause, as import assigns new sequence numbers."""

    def __init__(self, causes: set[tuple[int, int]]) -> None:
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
    text = _READABLE(data)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate in an id or in meta
        return json.dumps(data).encode() + b"\n"


def _header(of: Experiment, recorders: list[RecorderRow], shared: Sharing | None) -> bytes:
    data = {
        "format": FORMAT,
        "name": of.name,
        "tags": of.tags,
        "meta": of.meta,
        "recorders": [_recorder_entry(row) for row in recorders],
    }
    if of.parent_exp_id is not None and of.parent_head is not None:
        data["parent"] = {"exp_id": of.parent_exp_id, "head": of.parent_head.hex(), "cursor": of.parent_cursor}
    return _dumped(data if shared is None else shared.header(data))


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
        "ended_at": row.ended_at,
        "meta": row.meta,
    }


async def export_jsonl(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int], None] | None = None,
    shared: Sharing | None = None,
    **filters: Any,
) -> int:
    """Export an experiment to a file (`-` for standard output), and return the number of events.

    `filters` are those of `EventLog.read`. The file appears when it is complete, and replaces an existing one. The
    same events give the same bytes, unless `shared` pseudonymises them: pseudonyms are new in every export.
    """
    of = await log.experiment(exp_id)
    recorders = await log.recorders(of)
    count = 0
    labels = _Labels(await causes(log, of))
    with open_output(path) as file:
        if shared is not None:
            shared.begin(await log.agents(of))
        file.write(_header(of, recorders, shared))
        async for entry in log.read(of, **filters):
            entry = entry if shared is None else shared.event(entry)
            file.write(_line(entry, labels, several=len(recorders) > 1))
            count += 1
            if progress and count % 1000 == 0:
                progress(count)
    return count
