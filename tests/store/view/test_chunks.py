"""Chunks of messages: what Python writes, the page reads."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

from messager_store import Event, EventLog
from messager_store.log.names import agent_value, name_text
from messager_store.log.selection import Selection
from messager_store.log.text import storable
from messager_store.projection.query import projected
from messager_store.projection.reading import Reading
from messager_store.projection.selecting import Rows
from messager_store.view.columns import MAX_PAYLOAD, MAX_TEXT, PAYLOAD_CUT, TEXT_CUT, Names, chunks, receptions_of
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
        "receptions": [[each.recorder, each.ts - entry.ts] for each in receptions],
        "text": text[:MAX_TEXT],
        "payload": base64.b64encode(entry.payload[:MAX_PAYLOAD]).decode(),
    }


async def test_the_page_reads_every_field_of_every_message_as_it_was_recorded(log: EventLog, tmp_path: Path) -> None:
    await hostile(log)
    await hostile_times(log)
    for exp_id in ("hostile", "hostile-times", "hostile-span"):
        of = await log.experiment(exp_id)
        files = []
        async for _, chunk in chunks(log, of, Selection(), Names(), rows=100):
            files.append(tmp_path / f"{exp_id}-{len(files)}")
            files[-1].write_bytes(chunk)
        async with projected(log, of) as here:
            pages = Reading(log, of, here, Selection(), Rows.SHOWN).events()
            wanted = [entry async for page in pages for entry in page]
            expected = [as_page(*each) for each in zip(wanted, await receptions_of(here, wanted), strict=True)]
        for found, should in zip(read_by_page(files), expected, strict=True):
            assert found == should
