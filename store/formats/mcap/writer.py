"""Export of an experiment to an MCAP file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from messager.drivers import requirement

from ...errors import StoreError
from ...experiments.records import Experiment
from ...log.chain import head_of
from ...log.event import Event
from ...log.event_log import EventLog
from ...log.selection import Filters, Selection, selection_of
from ..exporting import begin
from ..output_file import open_output
from ..sharing import Sharing
from .message import Shape, json_object, message, schema, shape_of, topic_of

if TYPE_CHECKING:
    from mcap.writer import Writer

CHUNK_BYTES = 4 * 1024 * 1024
"""Uncompressed bytes of a chunk; a reader decompresses one at a time. The index of a chunk stays in memory."""
MOST_TOPICS = 65_000
"""Maximum number of topics: the id of a channel has 16 bits. Further channels share the topic `OTHER`."""
OTHER = "messager:other"
_MOST_SHAPES = 1000
"""Maximum number of schemas."""
_SEQUENCE = 2**32


class MessageWriter:
    """Writes events as messages; each channel has a topic, with a schema made from its first payload that is JSON."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._schemas: dict[Shape, int] = {}
        self._topics: dict[str, int] = {}

    def write(self, entry: Event) -> None:
        """Write one event."""
        data = json_object(entry.payload)
        topic = topic_of(entry)
        channel = self._topics.get(topic)
        if channel is None:
            channel = self._register(topic, () if data is None else shape_of(data))
        ts = max(entry.ts, 0)  # the format has no time before 1970; the message has it
        self._writer.add_message(channel, ts, message(entry, data), ts, entry.seq % _SEQUENCE)

    def _register(self, topic: str, shape: Shape) -> int:
        """Return the id of a new topic, or that of the shared one if there are too many."""
        if len(self._topics) >= MOST_TOPICS:
            topic, shape = OTHER, ()
        if topic not in self._topics:
            self._topics[topic] = self._writer.register_channel(topic, "json", self._schema(shape))
        return self._topics[topic]

    def _schema(self, shape: Shape) -> int:
        """Return the id of the schema for payloads of a shape, or that without a shape if there are too many."""
        if shape not in self._schemas and len(self._schemas) >= _MOST_SHAPES:
            shape = ()
        if shape not in self._schemas:
            name = f"messager.Event.{len(self._schemas)}" if shape else "messager.Event"
            self._schemas[shape] = self._writer.register_schema(name, "jsonschema", schema(shape))
        return self._schemas[shape]


async def export_mcap(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int], None] | None = None,
    shared: Sharing | None = None,
    selection: Selection | None = None,
    **filters: Unpack[Filters],
) -> int:
    """Export an experiment to an MCAP file, and return the number of events.

    The selection is given as for `EventLog.read`. The file appears when it is complete, and replaces an existing one.
    Each channel is a topic, each event a message of JSON with a schema: `log_time` and `publish_time` are its `ts`,
    `sequence` is its `seq` modulo 2^32. Raise `StoreError` if the package mcap is missing.
    """
    try:
        from mcap.writer import Writer
    except ImportError:
        raise StoreError(f"MCAP needs mcap, which is not installed: `pip install '{requirement('mcap')}'`") from None
    export = await begin(log, exp_id, progress, shared)
    with open_output(path) as file:
        writer = Writer(file, chunk_size=CHUNK_BYTES)
        writer.start("", "messager")
        writer.add_metadata("messager", await _metadata(log, export.of, shared))
        messages = MessageWriter(writer)
        async for page in export.pages(selection_of(selection, filters)):
            for entry in page:
                messages.write(entry)
        writer.finish()  # type: ignore[no-untyped-call]
    return export.count


async def _metadata(log: EventLog, of: Experiment, shared: Sharing | None) -> dict[str, str]:
    """Return the metadata record. A pseudonymised one has no exp_id and no head, which lead to the original."""
    recorders = await log.recorders(of)
    header: dict[str, Any] = {"name": of.name, "tags": of.tags, "meta": of.meta, "recorders": []}
    if shared is not None:
        header = shared.header(header)
    found = {"format": "messager-mcap/1", "tags": json.dumps(header["tags"]), "meta": json.dumps(header["meta"])}
    if header["name"] is not None:
        found["name"] = header["name"]
    if shared is None or not shared.pseudonymise:
        found |= {"exp_id": of.exp_id, "head": head_of(recorders)}
    return found
