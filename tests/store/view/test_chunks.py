"""Chunks of messages: what Python writes, the page reads."""

from __future__ import annotations

import base64
import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from messager_store import Event, EventLog, Experiment
from messager_store.log.names import agent_value, name_text
from messager_store.log.selection import Selection
from messager_store.log.text import storable
from messager_store.projection.query import Projection, projected
from messager_store.projection.reading import Reading
from messager_store.projection.selecting import Rows
from messager_store.view.columns import MAX_PAYLOAD, MAX_TEXT, PAYLOAD_CUT, TEXT_CUT, Names, chunk
from messager_store.view.shown import Reader
from tests.store.view.hostile import hostile, hostile_times
from tests.support import programs

READER = Path(__file__).parent / "js" / "read_chunks.js"


def read_by_page(files: list[Path]) -> list[dict[str, Any]]:
    """Return the messages that the page reads from chunks."""
    command = [programs.node(), "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", str(READER), *map(str, files)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def as_page(entry: Event, receptions: list[Any]) -> dict[str, Any]:
    """Return an event as the page should have it."""
    text = storable(entry.text)
    cut = TEXT_CUT * (len(text) > MAX_TEXT) | PAYLOAD_CUT * (len(entry.payload) > MAX_PAYLOAD)
    return {
        "cursor": str(entry.cursor),
        "kind": entry.kind,
        "channel": "" if entry.channel is None else name_text(entry.channel),
        "from": "" if entry.from_id is None else agent_value(entry.from_id).decode(),
        "to": "" if entry.to_id is None else agent_value(entry.to_id).decode(),
        "messager": "" if entry.messager is None else name_text(entry.messager),
        "flags": entry.flags | cut,
        "heard": 0 if entry.arrival is None or entry.kind == "received" else entry.arrival + 1,
        "cause": list(entry.cause or (0, 0)),
        "size": len(entry.payload),
        "receptions": [[recorder, ts - entry.ts] for recorder, ts in receptions],
        "text": text[:MAX_TEXT],
        "payload": base64.b64encode(entry.payload[:MAX_PAYLOAD]).decode(),
    }


async def test_the_page_reads_every_field_of_every_message_as_it_was_recorded(log: EventLog, tmp_path: Path) -> None:
    await hostile(log)
    await hostile_times(log)
    for exp_id in ("hostile", "hostile-times", "hostile-span"):
        of, names = await log.experiment(exp_id), Names()
        forms: dict[bool, list[Path]] = {True: [], False: []}
        async with projected(log, of) as here:
            expected = await _expected(log, of, here)
            async for shown in Reader(log, of, here, Selection()).chunks(100, 1 << 30):
                made = chunk(shown, names)
                for small, files in forms.items():
                    files.append(tmp_path / f"{exp_id}-{small}-{len(files)}")
                    files[-1].write_bytes(made.packed(small=small))
        for files in forms.values():
            assert len(files) == -(-len(expected) // 100)
            for found, should in zip(read_by_page(files), expected, strict=True):
                assert found == should


async def _expected(log: EventLog, of: Experiment, here: Projection) -> list[dict[str, Any]]:
    """Return the messages as the page should have them, of the events of the log."""
    deliveries: dict[int, list[Any]] = defaultdict(list)
    columns, its = "message_id, recorder, ts", "(message_id <> id OR arrival IS NOT NULL) AND NOT is_copy"
    for message, *reception in here.rows(f"SELECT {columns} FROM event WHERE {its} ORDER BY ts, id"):
        deliveries[message].append(reception)
    ids = dict(here.rows("SELECT ts || ':' || recorder || ':' || seq, id FROM event"))
    pages = Reading(log, of, here, Selection(), Rows.SHOWN).events()
    return [as_page(entry, deliveries[ids[str(entry.cursor)]]) async for page in pages for entry in page]
