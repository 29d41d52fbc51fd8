"""JSON Lines: an optional header, then one event a line, in replay order. gzip by file ending.

The header is an object without `ts`: `{"format": "messager/1", "name", "tags", "meta",
"recorders"}`. An event has `ts` (integer ns UTC), `kind`, `channel`, `from_id`, `to_id` and
`payload`: the exact text as a string, or `payload_base64` where the bytes are not UTF-8;
likewise `channel_base64`. Import also takes an object, an array, a number, true, false or
null as `payload` and writes it as the wire would. Optional: `recorder` (its number, 1 where
it is not said), `derived`, `msg_id`, `duration_ns`, `receivers`, `meta`, and `redacted`: true
where the payload was taken out.

Events of equal `ts` keep the order of their lines, within a recorder; seqs are given anew,
in line order, so that there are no holes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from messager import channels

from ..db.schema import AGENT
from ..errors import ExperimentExists
from ..experiments import registry
from ..experiments.registry import Experiment, RecorderRow
from ..log.event import Event, NewEvent
from ..log.event_log import EventLog
from ..log.messages import causes
from ..log.names import all_names
from ..log.redaction_records import without_seal
from ..log.writer import Writer
from ..maintenance.removal import discard, sweep_unfinished
from ..queries import deliveries
from .fields import Unfit, bytes_field
from .files import written
from .sharing import Sharing
from .source import FORMAT, Source

BATCH_EVENTS = 5000
BATCH_BYTES = 8 * 1024 * 1024


_READABLE = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
"""As `json.dumps` has it, which makes an encoder anew for every line. What comes from a store is in no circle."""


def event_to_dict(entry: Event) -> dict[str, Any]:
    """The part of an event's line that export and `events --json` share."""
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
    )
    for key, value in optional:
        if value is not None:
            data[key] = value
    return _dumped(data)


class _Labels:
    """Numbers for those events that later ones name as their cause: seqs are given anew by an import."""

    def __init__(self, causes: set[tuple[int, int]]) -> None:
        self._causes = causes
        self._labels: dict[tuple[int, int], int] = {}

    def given_to(self, entry: Event) -> int | None:
        """The label of an event that is somebody's cause."""
        if not self._causes or (place := (entry.recorder, entry.seq)) not in self._causes:
            return None
        return self._labels.setdefault(place, len(self._labels) + 1)

    def of_cause(self, entry: Event) -> int | None:
        """The label of an event's cause; None where that was not written before it."""
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
    return _dumped(data if shared is None else shared.header(data))


def _recorder_entry(row: RecorderRow) -> dict[str, Any]:
    """A recorder as the header tells of it; an imported one as it was told of before."""
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
    """Write an experiment to a file (`-` for standard output); how many events.

    `filters` are those of `EventLog.read`. The file appears when it is complete; one that
    is there is replaced. The same events give the same bytes; with `shared`, they are changed on the
    way as it says (pseudonyms are others each time).
    """
    of = await log.experiment(exp_id)
    recorders = await registry.recorders_of(log.database, of.id)
    count = 0
    labels = _Labels(await causes(log.database, of))
    with written(path) as file:
        if shared is not None:
            shared.begin((await all_names(log.database, of.id, AGENT)).values())
        file.write(_header(of, recorders, shared))
        async for entry in log.read(of, **filters):
            entry = entry if shared is None else shared.event(entry)
            file.write(_line(entry, labels, several=len(recorders) > 1))
            count += 1
            if progress and count % 1000 == 0:
                progress(count)
    return count


async def import_jsonl(
    log: EventLog,
    path: str | os.PathLike[str],
    exp_id: str,
    *,
    name: str | None = None,
    tags: tuple[str, ...] = (),
    meta: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Experiment:
    """Read a file (`-` for standard input) into a new, closed experiment.

    It is invisible until it is complete; where a line cannot be read, nothing of it stays.
    `name`, `tags` and `meta` go before, or beside, those of the header. Raises `BadFile` with
    the number of the line, and `ExperimentExists`.
    """
    registry.checked_exp_id(exp_id)
    if await registry.by_exp_id(log.database, exp_id) is not None:
        raise ExperimentExists(exp_id, "Import under another --exp.")
    source = Source(path)
    with source.opened():
        header = source.header()
        await sweep_unfinished(log)
        of = await registry.create(
            log.database,
            f"importing {exp_id} {uuid4().hex}",
            name=name or header.get("name"),
            tags={*tags, *header.get("tags", [])},
            meta={**header.get("meta", {}), **(meta or {})},
            status="importing",
        )
        assert of is not None
        try:
            await _import_events(log, of, source, header, progress)
            await deliveries.work_out(log.database, of.id)  # while it is hidden: a kill here leaves nothing half done
            await registry.publish_import(log.database, of, exp_id)
        except BaseException:
            await discard(log, of)
            raise
    made = await registry.by_exp_id(log.database, exp_id)
    assert made is not None
    return made


async def _import_events(
    log: EventLog, of: Experiment, source: Source, header: dict[str, Any], progress: Callable[[int], None] | None
) -> None:
    told = header.get("recorders", [])
    writers: list[Writer] = []

    async def writer(ordinal: int) -> Writer:
        while len(writers) < ordinal:  # ordinals are given in order
            facts = told[len(writers)] if len(writers) < len(told) else {}
            writers.append(await log.register(of, role="import", meta=facts))
        return writers[ordinal - 1]

    await writer(max(1, len(told)))  # also says that this import is alive
    waiting: dict[int, list[NewEvent]] = {}
    held = 0
    labelled: dict[int, tuple[int, int]] = {}
    seqs: dict[int, int] = {}
    for count, (ordinal, entry, label, cause, length) in enumerate(source.events(), 1):
        seqs[ordinal] = seqs.get(ordinal, 0) + 1
        if label is not None:
            labelled[label] = (ordinal, seqs[ordinal])
        if cause is not None:
            if cause not in labelled:
                raise Unfit(f"its cause, {cause}, is the label of no line before it")
            entry = entry._replace(cause=labelled[cause])
        waiting.setdefault(ordinal, []).append(entry)
        held += length
        if count % BATCH_EVENTS == 0 or held >= BATCH_BYTES:
            await _append(log, writer, waiting)
            held = 0
            if progress:
                progress(count)
    await _append(log, writer, waiting)


async def _append(log: EventLog, writer: Callable[[int], Any], waiting: dict[int, list[NewEvent]]) -> None:
    for ordinal in sorted(waiting):
        await log.append(await writer(ordinal), waiting[ordinal])
    waiting.clear()
