"""Any file is imported completely, or refused in one line without a trace in the store."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from messager_store import EventLog
from messager_store.db.schema import metadata
from messager_store.errors import StoreError
from messager_store.formats.jsonl import event_to_dict, import_jsonl
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify
from messager_store.queries.overview import overview
from tests.support.examples import WITH_STORE

GOOD: list[dict[str, Any]] = [
    {
        "format": "messager/1",
        "name": "n",
        "tags": ["a"],
        "meta": {"k": 1},
        "recorders": [
            {"uuid": "u", "role": "tap", "patterns": ["*"], "host": "h", "started_at": 1, "ended_at": 2, "meta": {}},
            {},
        ],
    },
    {"ts": 1, "kind": "sent", "channel": "c", "from_id": 1, "to_id": "x", "payload": "p", "msg_id": "m", "meta": {}},
    {"ts": 2, "kind": "received", "channel_base64": "/w==", "payload_base64": "AP8=", "recorder": 2, "receivers": 1},
    {"ts": 2, "kind": "mark", "meta": {"name": "tick", "fields": {"n": 1}}, "derived": ["from_id"], "duration_ns": 5},
    {"ts": 3, "kind": "gap", "meta": {"reason": "r", "since": 1, "until": 2, "count": None}},
]
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63) - 1, 10**30, -1, 0, 1001, "\ud800", "a\x00b", "sent", "/w=="])
    | st.floats()
    | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def file_of(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def rows(log: EventLog) -> dict[str, int]:
    """Return the number of rows of each table."""
    async with log.database.reading() as connection:
        return {
            name: (await connection.execute(select(func.count()).select_from(table))).scalar_one()
            for name, table in metadata.tables.items()
        }


async def imported_or_refused(log: EventLog, path: Path, data: bytes) -> None:
    await asyncio.to_thread(path.write_bytes, data)
    before = await rows(log)
    of, complaint = None, ""
    try:
        of = await import_jsonl(log, path, uuid4().hex)
    except StoreError as error:
        complaint = str(error)
    if of is None:
        assert len(complaint.splitlines()) == 1
    else:
        assert (await verify(log, of)).problems == []
        json.dumps(await overview(log, of))
        async for entry in log.read(of):  # and whatever came in can be looked at
            assert isinstance(entry.text, str)
            json.dumps(event_to_dict(entry))
            assert entry.msg.formatted_str() is not None
        await remove(log, of)
    assert await rows(log) == before


@WITH_STORE
@given(
    st.binary(max_size=300) | st.text(st.characters(), max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))
)
async def test_arbitrary_bytes(log: EventLog, tmp_path: Path, data: bytes) -> None:
    await imported_or_refused(log, tmp_path / "a", data)


@WITH_STORE
@given(st.integers(0, len(GOOD) - 1), st.data())
async def test_a_wrong_type_in_any_field(log: EventLog, tmp_path: Path, line: int, data: st.DataObject) -> None:
    fields = sorted({*GOOD[line], *(GOOD[1] if line else {})})
    field = data.draw(st.sampled_from(fields))
    changed = [dict(good) for good in GOOD]
    changed[line][field] = data.draw(anything)
    await imported_or_refused(log, tmp_path / "a", file_of(changed))


@WITH_STORE
@given(st.sampled_from(sorted(GOOD[0]["recorders"][0])), anything)
async def test_a_wrong_type_in_what_is_told_of_a_recorder(
    log: EventLog, tmp_path: Path, field: str, value: Any
) -> None:
    header = GOOD[0] | {"recorders": [GOOD[0]["recorders"][0] | {field: value}, {}]}
    await imported_or_refused(log, tmp_path / "a", file_of([header, *GOOD[1:]]))


@WITH_STORE
@given(st.data(), st.booleans())
async def test_bytes_swapped_cut_out_or_put_in(
    log: EventLog, tmp_path: Path, data: st.DataObject, packed: bool
) -> None:
    whole = gzip.compress(file_of(GOOD), mtime=0) if packed else file_of(GOOD)
    at = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(at, min(at + 20, len(whole))))
    await imported_or_refused(log, tmp_path / "a", whole[:at] + data.draw(st.binary(max_size=20)) + whole[end:])


@WITH_STORE
@given(st.integers(0, 400), st.booleans())
async def test_a_file_that_ends_too_early(log: EventLog, tmp_path: Path, at: int, packed: bool) -> None:
    whole = gzip.compress(file_of(GOOD), mtime=0) if packed else file_of(GOOD)
    await imported_or_refused(log, tmp_path / "a", whole[:at])
